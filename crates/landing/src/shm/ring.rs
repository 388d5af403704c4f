//! The two ends of one ring of frames. Neither end trusts the words that the other side writes.
//!
//! ```text
//!  ring (bytes)   .....[ len | frame bytes, padded to 8 ][ len | frame ..].......
//!                      ^ head (reader)                                   ^ tail (writer)
//!  len word       63..32 zero | 31..0 frame length in bytes, from 1 to a quarter of the ring - 8
//! ```
//!
//! `head` and `tail` count bytes since the beginning (2^64 bytes are never reached). A position is
//! the count modulo the ring's size, and a frame that reaches the ring's end continues at its
//! beginning.
//!
//! # Invariants
//! - R1: `0 <= tail - head <= ring`, both multiples of 8.
//! - R2: each end keeps its own index privately and only ever *stores* it in the region.
//! - R3: the other end's index is loaded once per refresh and checked against R1 before it is used.
//! - R4: a length word is loaded once per attempt; the copy is checked and used.
//!
//! # Concurrency
//! One reader and one writer, on any threads. The writer's release store of `tail` (W1) pairs with
//! the reader's acquire load (A1): frames are whole before they are seen. The reader's release
//! store of `head` (W2) pairs with the writer's acquire load (A2): a word is read before it is
//! reused.

use std::sync::Arc;

use base::sync::{AtomicU64, Ordering};
use thiserror::Error;

use crate::shm::copy::{copy_in, copy_out};
use crate::shm::layout::{Lane, WORD_BYTES};
use crate::shm::region::Region;
use crate::shm::weaken::{Place, ordering};

/// The other side broke the protocol; the only remedy is to close the connection.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// R1 does not hold for the index it stored.
    #[error("the other side stored the index {stored}, while ours is {own}")]
    Index {
        /// The stored index.
        stored: u64,
        /// Our own index of that ring.
        own: u64,
    },
    /// The word before a frame is not a length, or the frame ends beyond what was published.
    #[error("the other side stored {word:#x} as a frame's length")]
    Length {
        /// The stored word.
        word: u64,
    },
}

/// The result of an attempt to take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There is no frame.
    Empty,
    /// There is a frame, but the target is too short.
    TooShort,
    /// A frame of so many bytes was copied.
    Frame { len_bytes: usize },
}

/// Bytes that a frame takes in the ring.
#[inline]
fn record_bytes(frame_len: usize) -> u64 {
    (WORD_BYTES + frame_len.next_multiple_of(WORD_BYTES)) as u64
}

/// A lane's words in the region.
struct Words {
    region: Arc<Region>,
    lane: Lane,
}

impl Words {
    fn tail(&self) -> &AtomicU64 {
        &self.region.words()[self.lane.tail_word]
    }

    fn head(&self) -> &AtomicU64 {
        &self.region.words()[self.lane.head_word]
    }

    fn ring_bytes(&self) -> u64 {
        self.lane.ring.bytes() as u64
    }

    /// `word_count` words of the ring from byte index `at` on, in two pieces: up to the ring's end,
    /// and the rest from its beginning.
    #[inline]
    fn span(&self, at: u64, word_count: usize) -> (&[AtomicU64], &[AtomicU64]) {
        let ring_words = self.lane.ring.bytes() / WORD_BYTES;
        let start = (at as usize / WORD_BYTES) & (ring_words - 1);
        let ring = &self.region.words()[self.lane.data_word..][..ring_words];
        let first = word_count.min(ring_words - start);
        (&ring[start..start + first], &ring[..word_count - first])
    }

    /// Reports to a model check that these words are read: no write may race with that, since both
    /// ends of a model keep the protocol. So the check also detects what values cannot show: a word
    /// that is overwritten before it was read (W2, A2).
    #[inline(always)]
    fn note_read(&self, at: u64, word_count: usize) {
        #[cfg(loom)]
        self.shadows(at, word_count, |shadow| shadow.with(|_| ()));
        #[cfg(not(loom))]
        let _ = (at, word_count);
    }

    /// Reports that these words are written.
    #[inline(always)]
    fn note_written(&self, at: u64, word_count: usize) {
        #[cfg(loom)]
        self.shadows(at, word_count, |shadow| shadow.with_mut(|_| ()));
        #[cfg(not(loom))]
        let _ = (at, word_count);
    }

    #[cfg(loom)]
    fn shadows(&self, at: u64, word_count: usize, note: impl Fn(&loom::cell::UnsafeCell<()>)) {
        let ring_words = self.lane.ring.bytes() / WORD_BYTES;
        for step in 0..word_count {
            let word = (at as usize / WORD_BYTES + step) % ring_words;
            note(self.region.shadow(self.lane.data_word + word));
        }
    }

    /// R1: how far `tail` is ahead of `head`, unless the other side's index is invalid.
    #[inline]
    fn filled(&self, tail: u64, head: u64) -> Option<u64> {
        // Not a wrapping difference: a hostile head just below 2^64 would pass for a small one.
        let filled = tail.checked_sub(head)?;
        let is_sound = filled <= self.ring_bytes() && filled.is_multiple_of(WORD_BYTES as u64);
        is_sound.then_some(filled)
    }
}

/// The end that takes frames.
pub(crate) struct Reader {
    words: Words,
    /// Bytes taken (R2).
    head: u64,
    /// The value of `head` in the region; behind it until [`Reader::release`].
    released: u64,
    /// The writer's index when it was last loaded and found valid (R3).
    tail: u64,
}

impl Reader {
    pub fn new(region: Arc<Region>, lane: Lane) -> Reader {
        Reader { words: Words { region, lane }, head: 0, released: 0, tail: 0 }
    }

    /// Whether there is a frame to take. Looks at the region only when no frame is known.
    #[inline]
    pub fn has_frames(&mut self) -> Result<bool, Fault> {
        if self.head != self.tail {
            return Ok(true);
        }
        let tail = self.words.tail().load(ordering(Place::A1, Ordering::Acquire));
        if self.words.filled(tail, self.head).is_none() {
            return Err(Fault::Index { stored: tail, own: self.head });
        }
        self.tail = tail;
        Ok(tail != self.head)
    }

    /// Copies the next frame into the beginning of `into`.
    #[inline]
    pub fn take(&mut self, into: &mut [u8]) -> Result<Taken, Fault> {
        if !self.has_frames()? {
            return Ok(Taken::Empty);
        }
        let (length, _) = self.words.span(self.head, 1);
        let word = length[0].load(Ordering::Relaxed); // R4
        let len_bytes = self.checked_len(word)?;
        let Some(into) = into.get_mut(..len_bytes) else { return Ok(Taken::TooShort) };
        let word_count = len_bytes.div_ceil(WORD_BYTES);
        self.words.note_read(self.head, 1 + word_count);
        let (first, rest) = self.words.span(self.head + WORD_BYTES as u64, word_count);
        if rest.is_empty() {
            copy_out(first, into);
        } else {
            let (into_first, into_rest) = into.split_at_mut(first.len() * WORD_BYTES);
            copy_out(first, into_first);
            copy_out(rest, into_rest);
        }
        self.head += record_bytes(len_bytes);
        Ok(Taken::Frame { len_bytes })
    }

    /// R4: a length is valid if it is within the limit and within the published bytes.
    #[inline]
    fn checked_len(&self, word: u64) -> Result<usize, Fault> {
        let len_max = self.words.lane.ring.frame_len_max();
        let is_length = word >= 1 && word <= len_max as u64;
        // The sum cannot overflow: the word is at most a quarter of the ring.
        if is_length && record_bytes(word as usize) <= self.tail - self.head {
            Ok(word as usize)
        } else {
            Err(Fault::Length { word })
        }
    }

    /// Whether there is returned room that the writer does not know of.
    #[inline]
    pub fn has_unreleased(&self) -> bool {
        self.released != self.head
    }

    /// Gives the room of taken frames back to the writer.
    #[inline]
    pub fn release(&mut self) {
        self.released = self.head;
        self.words.head().store(self.head, ordering(Place::W2, Ordering::Release));
    }
}

/// The end that writes frames.
pub(crate) struct Writer {
    words: Words,
    /// Bytes written (R2).
    tail: u64,
    /// The value of `tail` in the region; behind it until [`Writer::publish`].
    published: u64,
    /// The reader's index when it was last loaded and found valid (R3).
    head: u64,
}

impl Writer {
    pub fn new(region: Arc<Region>, lane: Lane) -> Writer {
        Writer { words: Words { region, lane }, tail: 0, published: 0, head: 0 }
    }

    /// The longest frame, in bytes.
    #[inline]
    pub fn frame_len_max(&self) -> usize {
        self.words.lane.ring.frame_len_max()
    }

    /// Whether there is room for a frame of so many bytes. Looks at the region only if there seems
    /// to be none.
    #[inline]
    pub fn has_room(&mut self, frame_len: usize) -> Result<bool, Fault> {
        let used_max = self.words.ring_bytes() - record_bytes(frame_len);
        if self.tail - self.head <= used_max {
            return Ok(true);
        }
        let head = self.words.head().load(ordering(Place::A2, Ordering::Acquire));
        if self.words.filled(self.tail, head).is_none() {
            return Err(Fault::Index { stored: head, own: self.tail });
        }
        self.head = head;
        Ok(self.tail - head <= used_max)
    }

    /// Writes a frame after the others; the reader sees it only after [`Writer::publish`]. `false`:
    /// the ring has no room for it.
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<bool, Fault> {
        assert!(!frame.is_empty() && frame.len() <= self.frame_len_max(), "a frame fits its ring");
        if !self.has_room(frame.len())? {
            return Ok(false);
        }
        let word_count = frame.len().div_ceil(WORD_BYTES);
        self.words.note_written(self.tail, 1 + word_count);
        let (length, _) = self.words.span(self.tail, 1);
        length[0].store(frame.len() as u64, Ordering::Relaxed);
        let (first, rest) = self.words.span(self.tail + WORD_BYTES as u64, word_count);
        if rest.is_empty() {
            copy_in(first, frame);
        } else {
            let (frame_first, frame_rest) = frame.split_at(first.len() * WORD_BYTES);
            copy_in(first, frame_first);
            copy_in(rest, frame_rest);
        }
        self.tail += record_bytes(frame.len());
        Ok(true)
    }

    /// Whether there are frames that the reader does not know of.
    #[inline]
    pub fn has_unpublished(&self) -> bool {
        self.published != self.tail
    }

    /// Publishes all written frames to the reader.
    #[inline]
    pub fn publish(&mut self) {
        self.published = self.tail;
        self.words.tail().store(self.tail, ordering(Place::W1, Ordering::Release));
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
