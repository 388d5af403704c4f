//! Ids of the cluster as newtypes, so that two of them cannot be swapped in a call.

use std::fmt;

/// One incarnation of a server process: its name, which outlives it, and how often that name has
/// started.
///
/// A server that restarts is another node. Messages to or from an earlier incarnation never count
/// for a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// The server's name, given by its operator.
    pub name: u16,
    /// The incarnation, at least 1 and higher with each start. A server derives it from the clock;
    /// one that keeps data stores it with the data and continues above the stored number.
    pub incarnation: u32,
}

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "n{}.{}", self.name, self.incarnation)
    }
}

/// The number of a configuration; each new one is one higher (Rowan-KV §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    /// The next term.
    #[must_use]
    pub fn next(self) -> Term {
        Term(self.0 + 1)
    }
}

/// A shard's position in the configuration, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The id as an index into arrays by shard.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A client's session. Its requests that write carry it and a sequence number (K24).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The highest thread number, which fits into a byte.
const MAX_THREAD: u16 = 255;

impl ClientId {
    const ANONYMOUS: u64 = 1 << 63;

    /// The client of entries that no client will ask about again: it occurs in entries, never in a
    /// session.
    pub const NONE: ClientId = ClientId(u64::MAX);

    /// A client without a session, which a driver can find again by these 63 bits: each of its
    /// requests is sent once, and nothing is remembered of it.
    pub fn anonymous(bits: u64) -> ClientId {
        ClientId(bits | Self::ANONYMOUS)
    }

    /// Whether it has no session.
    pub fn is_anonymous(self) -> bool {
        self.0 & Self::ANONYMOUS != 0
    }

    /// The thread of its server that the client belongs to, from 1 to 255: for the replication
    /// schemes that need it. A client without a session has it, less one, in bits 32 to 47.
    pub fn thread(self) -> u16 {
        let number = if self.is_anonymous() { (self.0 >> 32) as u16 } else { self.0 as u16 % 4 };
        number.min(MAX_THREAD - 1) + 1
    }

    /// The bits that [`ClientId::anonymous`] was given.
    pub fn bits(self) -> u64 {
        self.0 & !Self::ANONYMOUS
    }
}

/// The version of an entry within its shard: 48 bits that only grow (K1).
///
/// ```text
///  63      48 47             32 31                         0
///  +---------+-----------------+---------------------------+
///  |    0    | epoch of the    | counter of the primary    |
///  |         | shard (16)      | (32)                      |
///  +---------+-----------------+---------------------------+
/// ```
///
/// The epoch counts the primaries of the shard (decision 0051): every version that an earlier
/// primary may have assigned is lower (K22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    const COUNTER_BITS: u32 = 32;
    const MAX: u64 = (1 << 48) - 1;

    /// The version below every entry's.
    pub const ZERO: Version = Version(0);

    /// The version just below the first one of an epoch.
    pub fn before_epoch(epoch: u16) -> Version {
        Version(u64::from(epoch) << Self::COUNTER_BITS)
    }

    /// Decodes the 48 bits of an entry; a number with more bits is not a version.
    pub fn from_bits(bits: u64) -> Option<Version> {
        (bits <= Self::MAX).then_some(Version(bits))
    }

    /// The bits, as an entry stores them.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The epoch of the primary that assigned it.
    pub fn epoch(self) -> u16 {
        (self.0 >> Self::COUNTER_BITS) as u16
    }

    /// The next version of the same epoch; none when its counter is used up.
    pub fn next(self) -> Option<Version> {
        let next = Version(self.0 + 1);
        (next.epoch() == self.epoch()).then_some(next)
    }

    /// The previous version; zero has none and stays.
    #[must_use]
    pub fn previous(self) -> Version {
        Version(self.0.saturating_sub(1))
    }
}

const _: () = assert!(Version::COUNTER_BITS + u16::BITS == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_epoch_is_above_all_that_an_earlier_one_can_issue() {
        let last = Version::from_bits((3 << 32) | 0xffff_ffff).unwrap();
        assert_eq!((last.epoch(), last.next()), (3, None));
        assert!(last < Version::before_epoch(4));
        let first = Version::before_epoch(4).next().unwrap();
        assert_eq!((first.epoch(), first.previous()), (4, Version::before_epoch(4)));
        assert_eq!(Version::from_bits(1 << 48), None);
    }
}
