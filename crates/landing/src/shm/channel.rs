//! Both rings of one end, and the sleep words that decide which end rings a bell.
//!
//! A doorbell is a system call and a wake-up, so it is rung only for a sleeping side. Each side has
//! one sleep word. It names the events that should wake the side (bit 0: frames to take, bit 1:
//! room to write), and is 0 while the side is awake.
//!
//! ```text
//!  the side that goes to sleep            the side that publishes
//!  D1  sleep word = what for              P1  store indexes (release)
//!  D2  fence (SeqCst)                     P2  fence (SeqCst)
//!  D3  look at the other's indexes again  P3  load the sleep word
//!  D4  nothing: block for the bell        P4  wanted: swap it to 0; it was not 0: ring
//! ```
//!
//! The fences are totally ordered. If D2 is first, P3 sees D1 and the bell is rung. If P2 is first,
//! D3 sees P1 and the side stays awake. Without either fence a store and the load after it may
//! change places, and both sides may see the old value: a lost wake-up. The swap decides by the
//! value it *took*, not by the value that P3 saw: between the two the sleeper may have gone to
//! sleep again, for another reason.
//!
//! A bell may ring in vain, if the sleeper woke for another reason: it is then noticed once, later,
//! and has no effect. A hostile peer may put anything into any word: the result is one bell too
//! many, or none for the peer itself.

use std::sync::Arc;

use base::sync::Ordering;

use crate::shm::layout::{CLIENT_SLEEP_WORD, Lane, RingSize, SERVER_SLEEP_WORD};
use crate::shm::region::Region;
use crate::shm::ring::{Fault, Reader, Taken, Writer};
use crate::shm::weaken::{Place, fence_at};

/// Sleeps until there are frames to take.
const FOR_FRAMES: u64 = 1;
/// Sleeps until there is room to write.
const FOR_ROOM: u64 = 2;

/// Whether the other side sleeps and must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Bell {
    Quiet,
    Ring,
}

/// Whether a side may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// The other side will ring: block for the file descriptor to become readable.
    Sleep,
    /// There is something to do already: do not block.
    Work,
}

/// The events that a side sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// Frames to take.
    pub frames: bool,
    /// Room for a frame of so many bytes.
    pub room_for: Option<usize>,
}

/// The end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// One end of a region.
pub(crate) struct Channel {
    region: Arc<Region>,
    reader: Reader,
    writer: Writer,
    own_sleep_word: usize,
    peer_sleep_word: usize,
    is_armed: bool,
}

impl Channel {
    pub fn new(region: Arc<Region>, ring: RingSize, side: Side) -> Channel {
        let (requests, replies) = (Lane::requests(ring), Lane::replies(ring));
        let (read, write, own_sleep_word, peer_sleep_word) = match side {
            Side::Server => (requests, replies, SERVER_SLEEP_WORD, CLIENT_SLEEP_WORD),
            Side::Client => (replies, requests, CLIENT_SLEEP_WORD, SERVER_SLEEP_WORD),
        };
        Channel {
            reader: Reader::new(Arc::clone(&region), read),
            writer: Writer::new(Arc::clone(&region), write),
            region,
            own_sleep_word,
            peer_sleep_word,
            is_armed: false,
        }
    }

    pub fn frame_len_max(&self) -> usize {
        self.writer.frame_len_max()
    }

    #[inline]
    pub fn has_frames(&mut self) -> Result<bool, Fault> {
        self.reader.has_frames()
    }

    #[inline]
    pub fn has_room(&mut self, frame_len: usize) -> Result<bool, Fault> {
        self.writer.has_room(frame_len)
    }

    #[inline]
    pub fn take(&mut self, into: &mut [u8]) -> Result<Taken, Fault> {
        self.reader.take(into)
    }

    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<bool, Fault> {
        self.writer.write(frame)
    }

    /// Whether there is anything to publish.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.writer.has_unpublished() || self.reader.has_unreleased()
    }

    /// Publishes written frames and returned room: one store each for any number, and one fence for
    /// both.
    #[inline]
    pub fn publish(&mut self) -> Bell {
        let mut told = 0;
        if self.reader.has_unreleased() {
            self.reader.release();
            told |= FOR_ROOM;
        }
        if self.writer.has_unpublished() {
            self.writer.publish();
            told |= FOR_FRAMES;
        }
        if told == 0 {
            return Bell::Quiet;
        }
        fence_at(Place::P2); // Pairs with D2.
        let word = &self.region.words()[self.peer_sleep_word];
        if word.load(Ordering::Relaxed) & told != 0 && word.swap(0, Ordering::Relaxed) != 0 {
            return Bell::Ring;
        }
        Bell::Quiet
    }

    /// Announces that this side goes to sleep. Everything must have been published.
    pub fn arm(&mut self, want: Want) -> Result<Armed, Fault> {
        debug_assert!(!self.has_news(), "the other side would wait for what it was not told");
        let for_frames = if want.frames { FOR_FRAMES } else { 0 };
        let for_room = if want.room_for.is_some() { FOR_ROOM } else { 0 };
        let word = &self.region.words()[self.own_sleep_word];
        // D1. A store would do: it follows, in the word's one order of changes, any exchange of P4
        // that took an earlier value. Loom orders only what a thread has seen, and an exchange
        // sees.
        word.swap(for_frames | for_room, Ordering::Relaxed);
        fence_at(Place::D2); // Pairs with P2.
        self.is_armed = true;
        let has_frames = want.frames && self.reader.has_frames()?;
        let has_room = match want.room_for {
            Some(frame_len) => self.writer.has_room(frame_len)?,
            None => false,
        };
        if has_frames || has_room {
            self.disarm();
            return Ok(Armed::Work);
        }
        Ok(Armed::Sleep)
    }

    /// Announces that this side is awake. Omitting it only causes one bell too many.
    #[inline]
    pub fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.region.words()[self.own_sleep_word].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
