//! The position of each word of a shared region; docs/formats/shm-ring.md shows the same picture.

use thiserror::Error;

/// Bytes of one word: all positions in a region are whole words.
pub(crate) const WORD_BYTES: usize = 8;

/// The control page, in bytes: the indexes and sleep words of both directions.
pub(crate) const CONTROL_BYTES: usize = if cfg!(loom) { 64 } else { 4096 };

/// The distance in words between words that different processes write: two cache lines, because the
/// adjacent-line prefetcher fetches lines in pairs.
const APART_WORDS: usize = if cfg!(loom) { 1 } else { 128 / WORD_BYTES };

/// The maximum part of a ring for a frame with its length word.
const FRAME_PART: usize = if cfg!(loom) { 2 } else { 4 };

/// The smallest ring. Two of the longest frames fill the ring of a model check, so that it wraps at
/// once.
pub const RING_BYTES_MIN: usize = if cfg!(loom) { 32 } else { 4096 };

/// The largest ring.
pub const RING_BYTES_MAX: usize = 1 << 30;

/// The size of one direction's ring: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize(usize);

/// A ring cannot have this size.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "a ring of {bytes} bytes: take a power of two from {RING_BYTES_MIN} to {RING_BYTES_MAX} bytes"
)]
pub struct BadRingSize {
    /// The requested size.
    pub bytes: u64,
}

impl RingSize {
    /// The default size: both rings stay in a core's second-level cache.
    pub const DEFAULT: RingSize = RingSize(256 << 10);

    /// A ring of so many bytes.
    pub fn new(bytes: u64) -> Result<RingSize, BadRingSize> {
        match usize::try_from(bytes) {
            Ok(size)
                if size.is_power_of_two() && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&size) =>
            {
                Ok(RingSize(size))
            }
            _ => Err(BadRingSize { bytes }),
        }
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.0
    }

    /// The longest frame, in bytes: with its length word, a quarter of the ring.
    pub fn frame_len_max(self) -> usize {
        self.0 / FRAME_PART - WORD_BYTES
    }

    /// Bytes of a region with two rings of this size.
    pub(crate) fn region_bytes(self) -> usize {
        CONTROL_BYTES + 2 * self.0
    }
}

/// The words of one direction of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// Written by the writer: the count of bytes ever published.
    pub tail_word: usize,
    /// Written by the reader: the count of bytes ever taken.
    pub head_word: usize,
    /// The first word of the ring.
    pub data_word: usize,
    pub ring: RingSize,
}

impl Lane {
    /// From the client to the server.
    pub fn requests(ring: RingSize) -> Lane {
        Lane { tail_word: 0, head_word: APART_WORDS, data_word: CONTROL_BYTES / WORD_BYTES, ring }
    }

    /// From the server to the client.
    pub fn replies(ring: RingSize) -> Lane {
        Lane {
            tail_word: 2 * APART_WORDS,
            head_word: 3 * APART_WORDS,
            data_word: (CONTROL_BYTES + ring.bytes()) / WORD_BYTES,
            ring,
        }
    }
}

/// The word in which the server announces what it sleeps for.
pub(crate) const SERVER_SLEEP_WORD: usize = 4 * APART_WORDS;
/// The word in which the client announces what it sleeps for.
pub(crate) const CLIENT_SLEEP_WORD: usize = 5 * APART_WORDS;

const _: () = assert!((CLIENT_SLEEP_WORD + APART_WORDS) * WORD_BYTES <= CONTROL_BYTES);

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_picture_of_the_format_page_holds() {
        let ring = RingSize::new(1 << 16).unwrap();
        let (requests, replies) = (Lane::requests(ring), Lane::replies(ring));
        let words = [
            requests.tail_word,
            requests.head_word,
            replies.tail_word,
            replies.head_word,
            SERVER_SLEEP_WORD,
            CLIENT_SLEEP_WORD,
            requests.data_word,
            replies.data_word,
        ];
        let bytes = words.map(|word| word * WORD_BYTES);
        assert_eq!(bytes, [0, 128, 256, 384, 512, 640, 4096, 4096 + (1 << 16)]);
        assert_eq!(ring.region_bytes(), 4096 + (2 << 16));
        assert_eq!(ring.frame_len_max(), (1 << 14) - 8);
    }

    #[track_caller]
    fn check_size(bytes: u64, is_good: bool) {
        assert_eq!(RingSize::new(bytes).is_ok(), is_good, "{bytes}");
    }

    #[test]
    fn a_ring_is_a_power_of_two_within_limits() {
        check_size(0, false);
        check_size(2048, false);
        check_size(4096, true);
        check_size(5000, false);
        check_size(1 << 30, true);
        check_size(1 << 31, false);
        check_size(u64::MAX, false);
    }
}
