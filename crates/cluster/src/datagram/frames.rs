//! Several frames in one datagram, at multiples of the stride, so that they may stay where they
//! land.

use crate::datagram::{HEADER_BYTES, KIND_FRAMES, KIND_PLACED, Key, Route, seal, u16_at};
use crate::record::ALIGN_BYTES;
use crate::scheme::Way;

/// The bytes that hold the place of the first frame.
pub(super) const PLACE_BYTES: usize = 8;

/// The number of bytes before the first frame, with `count` lengths.
fn head_bytes(count: usize, is_placed: bool) -> usize {
    let place_bytes = if is_placed { PLACE_BYTES } else { 0 };
    (HEADER_BYTES + place_bytes + 2 * count).next_multiple_of(ALIGN_BYTES)
}

/// Packs frames until a datagram is full.
#[derive(Clone, Debug)]
pub struct FrameBuilder {
    limit_bytes: usize,
    /// The frames' lengths in strides.
    lens: Vec<u16>,
    frames: Vec<u8>,
    sealed: Vec<u8>,
}

impl FrameBuilder {
    /// A builder of datagrams of at most `limit_bytes`.
    pub fn new(limit_bytes: usize) -> FrameBuilder {
        let (lens, frames) = (Vec::new(), Vec::new());
        FrameBuilder { limit_bytes, lens, frames, sealed: Vec::new() }
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Bytes of the frames so far.
    pub fn len_bytes(&self) -> usize {
        self.frames.len()
    }

    /// Adds a frame. Returns false if there is no room: finish the datagram, and push the frame
    /// again. One frame always has room, however long it is.
    #[must_use]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        debug_assert!(frame.len().is_multiple_of(ALIGN_BYTES), "records end at strides");
        if frame.is_empty() {
            return true;
        }
        let strides = frame.len().div_ceil(ALIGN_BYTES);
        let len_bytes = strides * ALIGN_BYTES;
        let total = head_bytes(self.lens.len() + 1, true) + self.frames.len() + len_bytes;
        let is_full = total > self.limit_bytes || self.lens.len() == usize::from(u16::MAX);
        if is_full && !self.is_empty() {
            return false;
        }
        // A datagram has less than 1,024 strides.
        self.lens.push(strides as u16);
        self.frames.extend(frame);
        let padded = self.frames.len().next_multiple_of(ALIGN_BYTES);
        self.frames.resize(padded, 0);
        true
    }

    /// Returns the finished datagram; the next push begins another.
    pub fn finish(&mut self, route: Route, way: Way, key: &Key) -> &[u8] {
        let bytes = &mut self.sealed;
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(way.at.iter().flat_map(|at| at.to_le_bytes()));
        self.lens.iter().for_each(|len| bytes.extend(len.to_le_bytes()));
        bytes.resize(head_bytes(self.lens.len(), way.at.is_some()), 0);
        bytes.extend(&self.frames);
        let kind = if way.at.is_some() { KIND_PLACED } else { KIND_FRAMES };
        seal(bytes, (kind, way.thread), self.lens.len() as u16, route, key);
        self.lens.clear();
        self.frames.clear();
        bytes
    }
}

/// The frames of a datagram, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    lens: &'a [u8],
    frames: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Opens the bytes behind the header; none if lengths and bytes contradict each other (U2).
    pub(super) fn open(rest: &'a [u8], count: usize, is_placed: bool) -> Option<Frames<'a>> {
        let (head, frames) = rest.split_at_checked(head_bytes(count, is_placed) - HEADER_BYTES)?;
        let head = if is_placed { &head[PLACE_BYTES..] } else { head };
        let (lens, padding) = head.split_at(2 * count);
        let lens_strides = (0..count).map(|index| usize::from(u16_at(lens, 2 * index)));
        let is_whole = lens_strides.clone().all(|strides| strides > 0)
            && lens_strides.sum::<usize>() * ALIGN_BYTES == frames.len()
            && padding.iter().all(|byte| *byte == 0);
        is_whole.then_some(Frames { lens, frames })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, lens) = self.lens.split_first_chunk()?;
        let len_bytes = usize::from(u16::from_le_bytes(*len)) * ALIGN_BYTES;
        let (frame, frames) = self.frames.split_at_checked(len_bytes)?;
        (self.lens, self.frames) = (lens, frames);
        Some(frame)
    }
}
