//! Frames that wait to be sent: a bounded queue over one arena.
//!
//! ```text
//!   arena    │ A 64 │ A 64 │ A 40 │ B 64 │ A 64 │        back to back, in order of their commit
//!            └──────── run ───────┘ run    run           what can leave as one message
//! ```

use std::ops::Range;

use crate::{Lane, SendError, Sender};

/// The maximum number of frames in one segmented message: the minimum of all kernels that can
/// segment (UDP_MAX_SEGMENTS).
const SEGMENTS_MAX: usize = 64;

/// The maximum length of one segmented message: a datagram of either family, without its headers.
const SEGMENTED_BYTES_MAX: usize = 65_487;

#[derive(Clone, Copy)]
struct Frame {
    to: Sender,
    offset_bytes: u32,
    len_bytes: u32,
    /// The message continues elsewhere, so this frame leaves by itself.
    is_head: bool,
}

#[derive(Clone, Copy)]
struct Reserved {
    to: Sender,
    bytes_max: usize,
}

/// Which frames may leave as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joining {
    /// Each frame by itself.
    Single,
    /// Frames of one length except for the last: the kernel cuts them apart.
    Segmented,
    /// Any frames: a stream has no boundaries.
    Stream,
}

/// Neighbouring frames to one peer that leave as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) frame_count: usize,
    pub(crate) bytes: usize,
    pub(crate) segment_bytes: usize,
}

/// The queue. Frames before `sent_count` have left; their bytes stay until `clear`.
pub(crate) struct Frames {
    arena: Box<[u8]>,
    used_bytes: usize,
    reserved: Option<Reserved>,
    frames: Box<[Frame]>,
    frame_count: usize,
    sent_count: usize,
}

impl Frames {
    pub(crate) fn new(arena_bytes: usize, frames_max: usize) -> Frames {
        let unused = Frame { to: Lane(0).into(), offset_bytes: 0, len_bytes: 0, is_head: false };
        Frames {
            arena: vec![0; arena_bytes].into_boxed_slice(),
            used_bytes: 0,
            reserved: None,
            frames: vec![unused; frames_max].into_boxed_slice(),
            frame_count: 0,
            sent_count: 0,
        }
    }

    pub(crate) fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        let is_full = self.frame_count == self.frames.len();
        if is_full || bytes_max > self.arena.len() - self.used_bytes {
            return Err(SendError::Full);
        }
        self.reserved = Some(Reserved { to, bytes_max });
        Ok(&mut self.arena[self.used_bytes..][..bytes_max])
    }

    pub(crate) fn commit(&mut self, len_bytes: usize) {
        self.push(len_bytes, false);
    }

    /// Commits the head of a message that continues elsewhere; returns its index.
    pub(crate) fn commit_head(&mut self, len_bytes: usize) -> usize {
        self.push(len_bytes, true);
        self.frame_count - 1
    }

    fn push(&mut self, len_bytes: usize, is_head: bool) {
        let reserved = self.reserved.take().expect("room is reserved before it is committed");
        assert!(len_bytes <= reserved.bytes_max, "a frame fits in what was reserved");
        let (offset_bytes, len) = (self.used_bytes as u32, len_bytes as u32);
        let to = reserved.to;
        self.frames[self.frame_count] = Frame { to, offset_bytes, len_bytes: len, is_head };
        self.frame_count += 1;
        self.used_bytes += len_bytes;
    }

    /// The frames that have not left.
    pub(crate) fn waiting(&self) -> Range<usize> {
        self.sent_count..self.frame_count
    }

    /// The first `count` of them leave.
    pub(crate) fn leave(&mut self, count: usize) {
        self.sent_count += count;
        assert!(self.sent_count <= self.frame_count, "what leaves was queued");
    }

    /// Forgets all frames if all have left; their bytes are no longer read.
    pub(crate) fn clear(&mut self) {
        if self.sent_count == self.frame_count {
            (self.sent_count, self.frame_count, self.used_bytes) = (0, 0, 0);
        }
    }

    pub(crate) fn to(&self, index: usize) -> Sender {
        self.frames[index].to
    }

    /// The address of a frame's first byte; those after it in its run follow.
    pub(crate) fn start(&mut self, index: usize) -> *mut u8 {
        let offset_bytes = self.frames[index].offset_bytes as usize;
        self.arena[offset_bytes..].as_mut_ptr()
    }

    /// So many frames from `index` on, which can leave as one message.
    pub(crate) fn run_of(&self, index: usize, frame_count: usize) -> Run {
        let frames = &self.frames[index..index + frame_count];
        let bytes = frames.iter().map(|frame| frame.len_bytes as usize).sum();
        Run { frame_count, bytes, segment_bytes: frames[0].len_bytes as usize }
    }

    /// The frames from `index` on that can leave as one message.
    pub(crate) fn run(&self, index: usize, joining: Joining) -> Run {
        let first = self.frames[index];
        let segment_bytes = first.len_bytes as usize;
        let mut run = Run { frame_count: 1, bytes: segment_bytes, segment_bytes };
        if joining == Joining::Single || segment_bytes == 0 || first.is_head {
            return run;
        }
        for frame in &self.frames[index + 1..self.frame_count] {
            let len_bytes = frame.len_bytes as usize;
            let fits = run.frame_count < SEGMENTS_MAX
                && run.bytes + len_bytes <= SEGMENTED_BYTES_MAX
                && len_bytes > 0;
            let is_joined = joining == Joining::Stream || len_bytes <= segment_bytes;
            if !fits || !is_joined || frame.to != first.to || frame.is_head {
                break;
            }
            run.frame_count += 1;
            run.bytes += len_bytes;
            if joining == Joining::Segmented && len_bytes < segment_bytes {
                break;
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(lens: &[(u32, usize)]) -> Frames {
        let mut frames = Frames::new(1 << 20, 256);
        for (lane, len) in lens {
            frames.reserve(Lane(*lane).into(), *len).unwrap();
            frames.commit(*len);
        }
        frames
    }

    #[track_caller]
    fn check(lens: &[(u32, usize)], joining: Joining, want_frames: usize) {
        assert_eq!(queue(lens).run(0, joining).frame_count, want_frames);
    }

    #[test]
    fn a_run_is_of_one_peer_and_one_length_but_the_last() {
        check(&[(1, 64), (1, 64), (1, 40), (1, 64)], Joining::Segmented, 3);
        check(&[(1, 64), (1, 65)], Joining::Segmented, 1);
        check(&[(1, 64), (2, 64)], Joining::Segmented, 1);
        check(&[(1, 64), (1, 0)], Joining::Segmented, 1);
        check(&[(1, 64); 100], Joining::Segmented, 64);
        check(&[(1, 30_000); 3], Joining::Segmented, 2);
        check(&[(1, 64), (1, 64)], Joining::Single, 1);
        check(&[(1, 64), (1, 65), (1, 3), (2, 3)], Joining::Stream, 3);
    }

    #[test]
    fn bytes_stay_until_all_frames_have_left() {
        let mut frames = queue(&[(1, 600_000), (1, 400_000)]);
        assert_eq!(frames.reserve(Lane(1).into(), 100_000).err(), Some(SendError::Full));
        frames.leave(1);
        frames.clear();
        assert_eq!(frames.waiting(), 1..2);
        assert_eq!(frames.reserve(Lane(1).into(), 100_000).err(), Some(SendError::Full));
        frames.leave(1);
        frames.clear();
        assert!(frames.reserve(Lane(1).into(), 100_000).is_ok());
    }
}
