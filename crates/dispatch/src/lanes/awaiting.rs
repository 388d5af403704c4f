//! The list of replies that a connection waits for from other workers, in the order of its
//! requests.

use base::KeyHash;

/// Requests that one connection may have outstanding, at most.
pub const DEPTH_MAX: u32 = 256;
/// The same limit at first, for a connection whose replies come from other nodes, with lengths
/// unknown until they arrive.
pub const DEPTH_AT_FIRST: u32 = 8;

/// The end of a list of tickets.
pub const NO_TICKET: u32 = u32::MAX;

/// Why a connection parses no further command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It parses.
    #[default]
    Nothing,
    /// Its next command begins when all before it are answered (K10).
    Barrier,
    /// Its last request has not found a worker yet.
    Parked,
    /// There was no free request slot.
    RequestSlots,
    /// It has as many requests outstanding as one connection may have.
    Depth,
}

/// One connection's requests that are not answered yet, as a list of tickets, oldest first. Always
/// empty where workers execute the requests that they receive.
#[derive(Debug)]
pub struct Awaiting {
    /// The ticket of the oldest.
    pub first: u32,
    /// The ticket of the youngest.
    pub last: u32,
    /// How many there are.
    pub count: u32,
    /// Bit b: a key whose hash ends in b may be among them.
    pub filter: u64,
    /// Why its next command waits.
    pub wait: Wait,
    /// Counts the replies that it received, and wraps around.
    pub got_count: u32,
    /// How many requests it may have outstanding now (`fits`).
    pub depth_max: u32,
}

impl Default for Awaiting {
    fn default() -> Awaiting {
        let (first, last) = (NO_TICKET, NO_TICKET);
        let (wait, depth_max) = (Wait::Nothing, DEPTH_MAX);
        Awaiting { first, last, count: 0, filter: 0, wait, got_count: 0, depth_max }
    }
}

impl Awaiting {
    /// Whether every request is answered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A mark for [`Awaiting::has_got`]: all replies that it awaits now.
    pub fn reply_mark(&self) -> u32 {
        self.got_count.wrapping_add(self.count)
    }

    /// Whether all replies that it awaited at a mark have arrived. Valid for recent marks only:
    /// fewer than 2^31 replies old.
    pub fn has_got(&self, reply_mark: u32) -> bool {
        self.is_empty() || self.got_count.wrapping_sub(reply_mark) < 1 << 31
    }

    /// The first reply was put into the output.
    #[inline]
    pub fn got_one(&mut self) {
        self.count -= 1;
        self.got_count = self.got_count.wrapping_add(1);
    }

    /// A reply of that length arrived from another node. Limits the outstanding requests so that
    /// replies of such a length fit into `room_bytes` together. A long reply lowers the limit at
    /// once; shorter ones raise it again, by one each.
    pub fn fits(&mut self, reply_bytes: usize, room_bytes: usize) {
        let fitting = room_bytes / reply_bytes.max(1);
        let fitting = u32::try_from(fitting).unwrap_or(DEPTH_MAX).clamp(1, DEPTH_MAX);
        self.depth_max = fitting.min(self.depth_max + 1);
    }

    /// No reply is awaited any more: those of all requests count as received.
    pub fn got_all(&mut self) {
        self.got_count = self.got_count.wrapping_add(self.count);
        self.clear();
    }

    /// No reply is awaited any more.
    #[inline]
    pub fn clear(&mut self) {
        let Awaiting { got_count, depth_max, .. } = *self;
        *self = Awaiting { got_count, depth_max, ..Awaiting::default() };
    }

    /// Whether the connection may parse its next command.
    #[inline]
    pub fn may_go_on(&self) -> bool {
        self.wait == Wait::Nothing
    }

    /// Makes the next command wait until all requests before it are answered.
    #[inline]
    pub fn wait_for_all(&mut self) {
        debug_assert!(!self.is_empty(), "nothing would end the wait");
        self.wait = Wait::Barrier;
    }

    /// The bit of a key in the filter.
    #[inline]
    pub fn bit_of(hash: KeyHash) -> u64 {
        1 << (hash.0 & 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_replies_are_asked_for_one_by_one_until_short_ones_come() {
        let mut awaiting = Awaiting { depth_max: DEPTH_AT_FIRST, ..Awaiting::default() };
        awaiting.fits(0, 1 << 20);
        assert_eq!(awaiting.depth_max, DEPTH_AT_FIRST + 1);
        awaiting.fits(300 << 10, 1 << 20);
        assert_eq!(awaiting.depth_max, 3);
        awaiting.fits(2 << 20, 1 << 20);
        assert_eq!(awaiting.depth_max, 1, "one may always be");
        awaiting.clear();
        (0..2 * DEPTH_MAX).for_each(|_| awaiting.fits(100, 1 << 20));
        assert_eq!(awaiting.depth_max, DEPTH_MAX);
    }

    #[test]
    fn a_mark_is_reached_when_what_was_waited_for_is_answered() {
        let mut awaiting = Awaiting { count: 3, got_count: u32::MAX - 1, ..Awaiting::default() };
        let mark = awaiting.reply_mark();
        awaiting.count += 5; // Sent after the mark.
        assert!(!awaiting.has_got(mark));
        (0..2).for_each(|_| awaiting.got_one());
        assert!(!awaiting.has_got(mark));
        awaiting.got_one();
        assert!(awaiting.has_got(mark) && awaiting.count == 5);
        awaiting.count = 0;
        awaiting.clear();
        assert!(awaiting.has_got(mark) && awaiting.has_got(mark.wrapping_add(9)));
    }
}
