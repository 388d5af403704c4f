//! A client in shared memory, as plain data: it may be on its way from one worker to another.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use budget::{BufferBudget, Kind, Reservation};
use landing::Lane;
use landing::shm::Gone;
use landing::shm::ServerEnd;

/// The low bits of a lane are its client's place, the high ones a serial number.
pub const SLOT_BITS: u32 = 8;

/// A new client, on its way to its worker.
pub struct ShmGuest {
    /// This end of its rings.
    pub end: ServerEnd,
    /// Counts clients: tells it from earlier ones in the same slot.
    pub serial: u32,
    /// The booking of its rings.
    pub booked: Reservation,
}

impl std::fmt::Debug for ShmGuest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ShmGuest({})", self.serial)
    }
}

/// A frame for which a ring had no room.
pub struct Kept {
    /// The frame.
    pub frame: Box<[u8]>,
    /// The booking of its bytes.
    pub _booked: Reservation,
}

/// A client of one worker.
pub struct ShmClient {
    /// This end of its rings.
    pub end: ServerEnd,
    /// The lane of its session.
    pub lane: Lane,
    /// Frames for which its ring had no room (I1 of `native::shm`).
    pub unsent: VecDeque<Kept>,
    /// Since when its ring has had no room for the first of them.
    pub stuck_since: Option<Instant>,
    /// It has left, or broke the rules.
    pub is_gone: bool,
    /// The room of its buffers.
    pub _booked: Reservation,
}

impl std::fmt::Debug for ShmClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ShmClient({})", self.lane.0 >> SLOT_BITS)
    }
}

impl AsFd for ShmClient {
    /// Its doorbell.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl ShmClient {
    /// It is served no further.
    pub fn part(&mut self, error: &Gone) {
        if !matches!(error, Gone::HungUp) {
            tracing::warn!(process = self.end.peer().process_id, "shared memory: {error}");
        }
        self.is_gone = true;
    }

    /// Keeps a frame that exists already.
    pub fn keep(&mut self, frame: &[u8], budget: &Arc<BufferBudget>) {
        let booked = Reservation::forced(budget, Kind::Replies, frame.len() as u64);
        self.unsent.push_back(Kept { frame: frame.into(), _booked: booked });
        self.stuck_since.get_or_insert_with(Instant::now);
    }

    /// Sends the kept replies; returns false if some are still here.
    #[inline]
    pub fn send_unsent(&mut self) -> bool {
        self.unsent.is_empty() || self.send_kept()
    }

    /// Sends what found no room before; whether all of it left.
    #[cold]
    pub fn send_kept(&mut self) -> bool {
        while let Some(kept) = self.unsent.front() {
            match self.end.write(&kept.frame) {
                Ok(true) => {
                    self.unsent.pop_front();
                    self.stuck_since = (!self.unsent.is_empty()).then(Instant::now);
                }
                Ok(false) => break,
                Err(error) => {
                    self.part(&error);
                    break;
                }
            }
        }
        self.end.publish();
        self.unsent.is_empty()
    }
}
