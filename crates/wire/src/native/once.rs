//! At-most-once execution: a server's record of one session's writes.
//!
//! ```text
//!  sequence numbers    ... 40  41 | 42    43     44        45    ...  1065 | 1066 ...
//!                      forgotten  | Ok 7  -      under way Miss  -      -  | refused
//!                                 low-water mark (client's)    it + window
//! ```
//!
//! Each write has a sequence number. The first copy that arrives is executed. A later copy gets the
//! remembered outcome, or no reply while the first is under way. Writes that the client reports as
//! answered or given up lie below the low-water mark: they are forgotten, and never admitted again.
//! So a copy that was delayed for long cannot undo a newer write. A client that gives a write up
//! and raises the low-water mark knows by the next answer that the write was executed, or is in a
//! batch that is under way, or will never be.
//!
//! # Invariants
//! I1: a number is admitted at most once.
//! I2: the low-water mark never decreases. Nothing below it is admitted.
//! I3: every remembered number lies in `low_water .. low_water + window`.
//!
//! # Limits
//! 16 bytes per number, for the largest count of writes that the client ever had outstanding at
//! once, rounded up to a power of two, at most the window. A frame costs at most one pass over
//! them, whatever its contents.
//!
//! # Trade-offs
//! Numbers do not wrap: after 2^32 writes a client begins a new session. At a million writes a
//! second, that costs one round trip an hour, and it avoids the question to which lap a late copy
//! belongs.

use super::reply::{Reply, Status};
use super::request::RequestId;

/// The outcomes of one session's at-most-once requests.
#[derive(Clone, Debug)]
pub struct Once {
    /// Every number below it is settled (I2).
    low_water: u32,
    /// How far above the low-water mark numbers are admitted.
    window: u32,
    /// A ring: a number's place is its low bits. The length is a power of two, or 0.
    slots: Vec<Slot>,
}

/// The treatment of a request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is new: execute it, then [`Once::record`] its outcome, or [`Once::forget`] it.
    Execute,
    /// It was executed: send this reply.
    Again(Remembered),
    /// A copy of it is being executed: drop this one, the other's reply is enough.
    UnderWay,
    /// The client has the reply or does not want it: drop it.
    BelowLowWater,
    /// The client exceeds its maximum of outstanding requests: answer [`Status::OutsideWindow`].
    OutsideWindow,
}

/// An outcome as it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The status of the reply.
    pub status: Status,
    /// The version in the reply; of 48 bits (K1).
    pub version: Option<u64>,
    /// The number in the reply.
    pub number: Option<i64>,
}

/// One number's state.
///
/// ```text
///  63     58  57 56  55       48 47                  0
///  +--------+-------+-----------+---------------------+----------------+
///  |   0    | state |  status   |   version, 0: none  |  number (64)   |
///  +--------+-------+-----------+---------------------+----------------+
/// ```
/// State 0: not seen. 1: under way. 2: done. 3: done, with a number.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    word: u64,
    number: i64,
}

const _: () = assert!(size_of::<Slot>() == 16);

const VERSION_BITS: u32 = 48;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
const STATE_SHIFT: u32 = 56;
const UNDER_WAY: u64 = 1 << STATE_SHIFT;
const DONE: u64 = 2 << STATE_SHIFT;
const DONE_WITH_NUMBER: u64 = 3 << STATE_SHIFT;
/// A session that never writes has no slots; one that does begins with a kibibyte.
const SLOT_COUNT_MIN: usize = 64;

impl Once {
    /// The largest window.
    pub const WINDOW_MAX: u32 = 1 << 16;

    /// A session that has sent nothing yet. The window is at least 1 and at most
    /// [`Once::WINDOW_MAX`].
    pub fn new(window: u32) -> Once {
        Once { low_water: 0, window: window.clamp(1, Self::WINDOW_MAX), slots: Vec::new() }
    }

    /// Applies a frame's low-water mark, before its requests. A lower one than before is from a
    /// frame that was overtaken, and changes nothing.
    pub fn raise_low_water(&mut self, low_water: u32) {
        if low_water <= self.low_water {
            return;
        }
        let settled_count = (low_water - self.low_water).min(self.slots.len() as u32);
        for step in 0..settled_count {
            let place = self.place(self.low_water + step);
            self.slots[place] = Slot::default();
        }
        self.low_water = low_water;
    }

    /// The lowest number that may still be executed or answered.
    pub fn low_water(&self) -> u32 {
        self.low_water
    }

    /// The answer that [`Once::admit`] would give; changes nothing.
    pub fn look(&self, sequence: u32) -> Admission {
        let Some(above) = sequence.checked_sub(self.low_water) else {
            return Admission::BelowLowWater;
        };
        if above >= self.window {
            return Admission::OutsideWindow;
        }
        if above as usize >= self.slots.len() {
            return Admission::Execute;
        }
        self.slots[self.place(sequence)].admission()
    }

    /// Decides whether to execute a request; `Execute` is returned once for each number (I1).
    pub fn admit(&mut self, sequence: u32) -> Admission {
        let admission = self.look(sequence);
        if admission == Admission::Execute {
            self.grow_for(sequence - self.low_water);
            let place = self.place(sequence);
            self.slots[place] = Slot { word: UNDER_WAY, number: 0 };
        }
        admission
    }

    /// Records the outcome of an admitted request.
    pub fn record(&mut self, sequence: u32, outcome: Remembered) {
        // If the low-water mark has passed it meanwhile, the client will not ask for it.
        if let Some(slot) = self.under_way(sequence) {
            *slot = Slot::done(&outcome);
        }
    }

    /// Withdraws an admission: the request was not executed, and a copy of it may be.
    pub fn forget(&mut self, sequence: u32) {
        if let Some(slot) = self.under_way(sequence) {
            *slot = Slot::default();
        }
    }

    /// The memory of this session, for metrics.
    pub fn held_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// Checks the invariants from scratch; for tests.
    pub fn validate(&self) {
        assert!(self.slots.is_empty() || self.slots.len().is_power_of_two());
        assert!(self.slots.len() <= (self.window as usize).next_power_of_two().max(SLOT_COUNT_MIN));
        for above in self.window as usize..self.slots.len() {
            let slot = &self.slots[self.place(self.low_water.wrapping_add(above as u32))];
            assert_eq!(slot.word, 0, "I3: nothing is remembered outside the window");
        }
    }

    fn under_way(&mut self, sequence: u32) -> Option<&mut Slot> {
        let above = sequence.checked_sub(self.low_water)?;
        if above as usize >= self.slots.len() {
            return None;
        }
        let place = self.place(sequence);
        Some(&mut self.slots[place]).filter(|slot| slot.word == UNDER_WAY)
    }

    fn place(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }

    /// Makes room for a number that far above the low-water mark.
    fn grow_for(&mut self, above: u32) {
        let want_count = (above as usize + 1).next_power_of_two().max(SLOT_COUNT_MIN);
        let old_count = self.slots.len();
        if want_count <= old_count {
            return;
        }
        let mut slots = vec![Slot::default(); want_count];
        for above in 0..old_count {
            let sequence = self.low_water.wrapping_add(above as u32);
            slots[sequence as usize & (want_count - 1)] = self.slots[self.place(sequence)];
        }
        self.slots = slots;
    }
}

impl Slot {
    fn admission(self) -> Admission {
        let status = Status::from_byte((self.word >> VERSION_BITS) as u8);
        match (self.word & DONE_WITH_NUMBER, status) {
            (0, _) | (_, None) => Admission::Execute,
            (UNDER_WAY, _) => Admission::UnderWay,
            (state, Some(status)) => Admission::Again(Remembered {
                status,
                version: Some(self.word & VERSION_MASK).filter(|version| *version != 0),
                number: (state == DONE_WITH_NUMBER).then_some(self.number),
            }),
        }
    }

    fn done(outcome: &Remembered) -> Slot {
        let version = outcome.version.unwrap_or(0);
        assert!(version <= VERSION_MASK, "a version has 48 bits (K1)");
        let state = if outcome.number.is_some() { DONE_WITH_NUMBER } else { DONE };
        let word = state | (u64::from(outcome.status as u8) << VERSION_BITS) | version;
        Slot { word, number: outcome.number.unwrap_or(0) }
    }
}

impl Remembered {
    /// The outcome to remember of a reply to a write: all of it.
    pub fn of(reply: &Reply<'_>) -> Remembered {
        Remembered { status: reply.status, version: reply.version, number: reply.number }
    }

    /// Makes the same reply again.
    pub fn reply(&self, sequence: u32) -> Reply<'static> {
        Reply {
            version: self.version,
            number: self.number,
            ..Reply::new(RequestId::Once(sequence), self.status)
        }
    }
}

#[cfg(test)]
mod tests;
