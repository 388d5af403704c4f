//! The cost of one turn of a worker, in units that are counted and not timed (K28).
//!
//! ```text
//!  round: [ connection 3: GET GET SETBIT ][ connection 7: BITCOUNT ]│ connection 9 │ connection 4
//!          units: 8 + 8 + 262,144 ...      is spent ────────────────┘ parse in the next round,
//!                                                                     before 3 and 7
//! ```
//!
//! A unit is about 10 ns of work: 64 bytes read or copied, 8 steps of a pattern, or 4 cells of a
//! table. Looking up a key costs 8 units; visiting a key in a walk over the store costs 20.
//! Commands that run by themselves and look at the whole server (INFO, `stats`, ACL GENPASS) have
//! nothing to count: each is charged the time it took.
//!
//! | one atomic group, up to `max-atomic-size` | holds its worker for about |
//! |---|---|
//! | EXEC, MSET | 20 ms |
//! | EXEC of 100 LCS of 1 MiB, or of 10,000 EXPIRE of such a value | 150 ms |
//! | at a node of a cluster: EXEC, MSET of values of 11 MB | 100 ms |
//!
//! # Invariants
//! W1: once a turn has used [`TURN_UNITS`], no connection begins a command in it. So a turn costs
//!     at most that, plus its last command.
//! W2: beside other connections, one that has used a sixteenth of a turn begins no further command
//!     in that turn. So the next connection in line waits for some of the others' commands, not for
//!     all.
//! W3: behind all this a turn sends of long replies and reads of long commands 64 KiB in all, or a
//!     quarter of the bytes that its work stands for if that is more: beside commands that cost
//!     much, bulk gets a fifth of the time.
//! W4: where clients wait, a slow connection is served after all others. A connection is slow if it
//!     used more than its part when it was last fed, or is about to; where a turn is spent before
//!     it begins, one with more than 1 KiB of input is expected to. In every other turn the slow
//!     connection that has waited longest goes first.

use std::cell::Cell;
use std::ops::AddAssign;
use std::time::Duration;

/// Requests that go to the store together; it splits them into pipelines of its own size.
pub const BATCH_REQUESTS_MAX: usize = 128;

/// Units after which a turn begins no further command: some 1.3 ms.
pub const TURN_UNITS: u64 = 1 << 17;

/// Bytes of long replies and commands that a turn moves (W3).
const BULK_BYTES_MIN: usize = 64 << 10;
/// What a turn moves of them at most.
pub const BULK_BYTES_MAX: usize = 4 << 20;
const BULK_UNIT_BYTES: u64 = UNIT_BYTES / 4;

/// The part of one connection (W2).
const PART_UNITS: u64 = TURN_UNITS / 16;

/// Bytes that are read or copied in one unit.
const UNIT_BYTES: u64 = 64;
/// Units of a key lookup.
const KEY_UNITS: u64 = 8;
/// Units of a key that a walk over the store visits: it was not prefetched.
pub const VISITED_KEY_UNITS: u64 = 20;
/// Buckets of the index that can be looked at in the time of such a key.
const BUCKETS_PER_KEY: u64 = 16;
/// Units of a command that is no request to the store, and of the reply to one.
const COMMAND_UNITS: u64 = 16;
/// Bytes that could be copied in the time of one digit of a long number that INCRBYFLOAT reads or
/// writes: some 5 ns.
const DIGIT_BYTES: u64 = UNIT_BYTES / 2;
/// Bytes that could be copied in the time of reading one compressed byte: some 4 ns, where each two
/// of them stand for few bytes.
const PACKED_BYTE_BYTES: u64 = 24;
/// Bytes that could be copied in the time in which a group at a node of a cluster writes one: it
/// is cut, summed and sent to each copy.
const REPLICATED_BYTE_BYTES: u64 = 8;
/// Units of a client that is looked at, and of one that is described or asked to close.
const CLIENT_UNITS: u64 = 32;
const CLIENT_LINE_UNITS: u64 = 128;
/// Units of a message to a client that tracks: two locks, a few bytes into its output, its part of
/// a call of the kernel.
const MESSAGE_UNITS: u64 = 64;
/// Units of a client that is closed where it is served: some calls of the kernel.
const CLOSED_UNITS: u64 = 1024;
/// Nanoseconds of one unit.
const UNIT_NS: u128 = 10;
/// Steps of a pattern in one unit.
const UNIT_STEPS: u64 = 8;
/// Cells of a table in one unit: each is compared, and written to fresh memory.
const UNIT_CELLS: u64 = 4;

/// The length of a number up to which it costs no more than any small value.
pub const SMALL_FLOAT_DIGITS: usize = 64;

/// Messages of a turn to clients that track.
pub const TURN_MESSAGES: usize = (TURN_UNITS / MESSAGE_UNITS) as usize;

/// Steps of a pattern that a turn takes.
pub const TURN_STEPS: u64 = TURN_UNITS * UNIT_STEPS;

/// Cells of a table that a turn fills.
pub const TURN_CELLS: u64 = TURN_UNITS * UNIT_CELLS;

/// The bytes that a key of an atomic group adds to its own length, against the group's limit.
pub const ATOMIC_KEY_BYTES: u64 = 4 << 10;

/// Bytes that a turn reads or copies.
pub const TURN_BYTES: usize = (TURN_UNITS * UNIT_BYTES) as usize;

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Counted units: independent of the machine.
    units: u64,
    /// Units derived from elapsed time.
    timed_units: u64,
}

impl Work {
    fn counted(units: u64) -> Work {
        Work { units, timed_units: 0 }
    }

    /// Reads or copies bytes.
    pub fn bytes(bytes: u64) -> Work {
        Work::counted(bytes.div_ceil(UNIT_BYTES))
    }

    /// Tells clients that track of a key each.
    pub fn messages(count: usize) -> Work {
        Work::counted(MESSAGE_UNITS * count as u64)
    }

    /// Reads or writes digits of a long decimal number.
    pub fn digits(digits: usize) -> Work {
        Work::bytes(digits_as_bytes(digits))
    }

    /// Reads compressed bytes; the unpacked ones are charged separately.
    pub fn unpacked(packed_bytes: u64) -> Work {
        Work::bytes(packed_bytes.saturating_mul(PACKED_BYTE_BYTES))
    }

    /// Looks up keys.
    pub fn keys(count: usize) -> Work {
        Work::counted(count as u64 * KEY_UNITS)
    }

    /// Visits keys in the order of the index.
    pub fn visited(count: usize) -> Work {
        Work::counted(count as u64 * VISITED_KEY_UNITS)
    }

    /// Looks at buckets of the index, most of which are empty.
    pub fn buckets(count: u64) -> Work {
        Work::counted(count.saturating_mul(VISITED_KEY_UNITS) / BUCKETS_PER_KEY)
    }

    /// Begins a command that is no request to the store.
    pub fn command() -> Work {
        Work::counted(COMMAND_UNITS)
    }

    /// Encodes a reply of that length by itself.
    pub fn reply(bytes: u64) -> Work {
        Work::counted(COMMAND_UNITS + bytes.div_ceil(UNIT_BYTES))
    }

    /// Closes a client.
    pub fn closed() -> Work {
        Work::counted(CLOSED_UNITS)
    }

    /// Looks at clients, of which some are described or are to be closed.
    pub fn clients(looked_at: usize, told: usize) -> Work {
        Work::counted(looked_at as u64 * CLIENT_UNITS + told as u64 * CLIENT_LINE_UNITS)
    }

    /// Work that cannot be counted. One such command alone never ends a turn, however long the
    /// machine kept its thread waiting, so that the observable behaviour of a pipeline stays the
    /// same.
    pub fn elapsed(time: Duration) -> Work {
        let timed_units = u64::try_from(time.as_nanos() / UNIT_NS).unwrap_or(u64::MAX);
        Work { units: 0, timed_units: timed_units.min(TURN_UNITS / 2) }
    }

    /// Bytes of long replies and commands that a turn moves behind this work (W3).
    pub fn bulk_bytes_max(self) -> usize {
        let bytes = self.all_units().saturating_mul(BULK_UNIT_BYTES);
        usize::try_from(bytes).unwrap_or(usize::MAX).clamp(BULK_BYTES_MIN, BULK_BYTES_MAX)
    }

    /// Takes steps of a pattern.
    pub fn steps(steps: u64) -> Work {
        Work::counted(steps.div_ceil(UNIT_STEPS))
    }

    /// Fills cells of a table.
    pub fn cells(cells: u64) -> Work {
        Work::counted(cells.div_ceil(UNIT_CELLS))
    }

    /// Runs a command on the whole server in an atomic group.
    pub fn alone() -> Work {
        Work::keys(4096)
    }

    /// The work since `before`, counted or timed, as bytes.
    pub fn bytes_since(self, before: Work) -> u64 {
        self.all_units().saturating_sub(before.all_units()).saturating_mul(UNIT_BYTES)
    }

    /// The counted units.
    pub fn units(self) -> u64 {
        self.units
    }

    /// The units at which the part of a connection that begins here ends; a connection that is
    /// alone in the turn has all of it.
    #[inline]
    pub fn end_of_part(self, is_alone: bool) -> u64 {
        let part_units = if is_alone { TURN_UNITS } else { PART_UNITS };
        (self.all_units() + part_units).min(TURN_UNITS)
    }

    /// Counted or timed.
    #[inline]
    pub fn all_units(self) -> u64 {
        self.units.saturating_add(self.timed_units)
    }

    /// Whether the work since `before` is more than that of a small command (W4).
    #[inline]
    pub fn is_long_since(self, before: Work) -> bool {
        self.all_units() - before.all_units() > PART_UNITS
    }

    /// Whether the counted work since `before` is a turn's work.
    pub fn is_turn_since(self, before: Work) -> bool {
        self.units.saturating_sub(before.units) >= TURN_UNITS
    }

    /// Whether a turn that has done this work begins no further command.
    pub fn is_spent(self) -> bool {
        self.all_units() >= TURN_UNITS
    }
}

/// The bytes that are copied in the time in which digits are read or written.
pub fn digits_as_bytes(digits: usize) -> u64 {
    digits as u64 * DIGIT_BYTES
}

/// The bytes that are copied in the time in which a group at a node of a cluster writes so many.
pub fn replicated_as_bytes(bytes: u64) -> u64 {
    bytes.saturating_mul(REPLICATED_BYTE_BYTES)
}

/// Adds to a sum behind a shared reference.
pub fn add_work(sum: &Cell<Work>, more: Work) {
    let mut work = sum.get();
    work += more;
    sum.set(work);
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        self.units = self.units.saturating_add(more.units);
        self.timed_units = self.timed_units.saturating_add(more.timed_units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_costly_work_more_of_long_replies_moves() {
        let kib = |units: u64| Work::counted(units).bulk_bytes_max() >> 10;
        assert_eq!(kib(0), 64);
        assert_eq!(kib(4096), 64);
        assert_eq!(kib(TURN_UNITS), 2048);
        assert_eq!(kib(u64::MAX), 4096);
    }

    #[test]
    fn a_turn_is_spent_by_bytes_keys_and_steps_alike() {
        for (almost, last) in [
            (Work::bytes(8 << 20), Work::default()),
            (Work::keys(16_383), Work::keys(1)),
            (Work::steps((1 << 20) - 8), Work::bytes(1)),
            (Work::elapsed(Duration::from_secs(1)), Work::bytes(4 << 20)),
        ] {
            let mut work = almost;
            work += last;
            assert!(work.is_spent(), "{work:?}");
        }
        assert!(!Work::bytes((8 << 20) - 64).is_spent());
        assert!(!Work::keys(16_383).is_spent());
        assert!(!Work::elapsed(Duration::from_secs(1)).is_spent());
    }
}
