//! What a connection waits for: the replies to its requests that other workers execute, in order.

use base::KeyHash;

/// The end of a list of tickets.
pub(super) const NO_TICKET: u32 = u32::MAX;

/// Why a connection parses no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It does.
    #[default]
    Nothing,
    /// Its next command begins when all before it are answered (K10).
    Barrier,
    /// Its last request has not found a worker yet.
    Parked,
    /// There was no free cell.
    Cells,
    /// It has as many requests outstanding as one connection may have.
    Depth,
}

/// One connection's requests that are not answered yet, as a list of tickets, oldest first. Empty
/// for ever where workers execute what they receive.
#[derive(Debug)]
pub struct Awaiting {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    /// Bit b: a key whose hash ends in b may be among them.
    pub(super) filter: u64,
    pub(super) wait: Wait,
}

impl Default for Awaiting {
    fn default() -> Awaiting {
        Awaiting { first: NO_TICKET, last: NO_TICKET, count: 0, filter: 0, wait: Wait::Nothing }
    }
}

impl Awaiting {
    /// Whether everything is answered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the connection may parse.
    #[inline]
    pub fn may_go_on(&self) -> bool {
        self.wait == Wait::Nothing
    }

    /// The next command begins when all before it are answered.
    #[inline]
    pub fn wait_for_all(&mut self) {
        debug_assert!(!self.is_empty(), "nothing would end the wait");
        self.wait = Wait::Barrier;
    }

    #[inline]
    pub(super) fn bit_of(hash: KeyHash) -> u64 {
        1 << (hash.0 & 63)
    }
}
