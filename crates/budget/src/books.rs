//! The bytes that one connection has booked at its worker, by kind.

use super::Kind;

/// The kinds that a connection's buffers are booked in: the first rows.
const KINDS: [Kind; 6] =
    [Kind::Small, Kind::Strangers, Kind::Bodies, Kind::Replies, Kind::Groups, Kind::Udp];

const _: () = {
    let mut at = 0;
    while at < KINDS.len() {
        assert!(KINDS[at] as usize == at, "a kind's bytes stand where its row does");
        at += 1;
    }
};

/// Bytes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books([u64; KINDS.len()]);

impl Books {
    /// Whether nothing is booked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.into_iter().fold(0, |all, bytes| all | bytes) == 0
    }

    /// The booked bytes of a kind.
    #[inline]
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Adds bytes of a kind.
    #[inline]
    pub fn add(&mut self, kind: Kind, bytes: u64) {
        self.0[kind as usize] += bytes;
    }

    /// Takes off bytes of a kind.
    pub fn take(&mut self, kind: Kind, bytes: u64) {
        self.0[kind as usize] -= bytes;
    }

    /// Each kind and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u64)> {
        KINDS.into_iter().zip(self.0)
    }

    /// The sum.
    #[cfg(test)]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}
