//! Writes one frame into a caller's buffer, message by message, and closes it with its tag.
//!
//! ```text
//!  FrameWriter::new(&mut buffer, header) ─▶ push_request | push_reply ... ─▶ finish(key) ─▶ len
//! ```
//!
//! # Invariants
//! I1: a message is written completely or not at all.
//! I2: a finished frame is a multiple of 8 bytes long and parses.

use thiserror::Error;

use super::header::{FRAME_MAX_BYTES, HEADER_LEN_BYTES, Header, LENGTH_AT, TAG_AT};
use super::layout::{KEY_MAX_BYTES, Parts, message_len_bytes};
use super::reply::Reply;
use super::request::Request;
use super::tag::TagKey;

/// The message, or the header, does not fit into the rest of the buffer. Finish this frame and
/// begin another; a message that does not fit into an empty one goes in parts.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{want_bytes} bytes do not fit into the {left_bytes} that the frame has left")]
pub struct NoRoom {
    /// The length of the message.
    pub want_bytes: usize,
    /// The rest of the buffer.
    pub left_bytes: usize,
}

/// A frame that is being written.
#[derive(Debug)]
pub struct FrameWriter<'b> {
    buffer: &'b mut [u8],
    len_bytes: usize,
}

impl<'b> FrameWriter<'b> {
    /// Begins a frame that may fill the buffer, or [`FRAME_MAX_BYTES`] of it.
    #[inline]
    pub fn new(buffer: &'b mut [u8], header: Header) -> Result<FrameWriter<'b>, NoRoom> {
        let end = buffer.len().min(FRAME_MAX_BYTES);
        let buffer = &mut buffer[..end & !7];
        let left_bytes = buffer.len();
        let Some(head) = buffer.first_chunk_mut::<HEADER_LEN_BYTES>() else {
            return Err(NoRoom { want_bytes: HEADER_LEN_BYTES, left_bytes });
        };
        *head = header.to_bytes();
        Ok(FrameWriter { buffer, len_bytes: HEADER_LEN_BYTES })
    }

    /// Continues a frame that was begun in this buffer and is `len_bytes` long so far; `None` if
    /// the buffer is shorter than that.
    #[inline]
    pub fn resume(buffer: &'b mut [u8], len_bytes: usize) -> Option<FrameWriter<'b>> {
        let end = buffer.len().min(FRAME_MAX_BYTES);
        let buffer = &mut buffer[..end & !7];
        let is_begun = (HEADER_LEN_BYTES..=buffer.len()).contains(&len_bytes);
        is_begun.then_some(FrameWriter { buffer, len_bytes })
    }

    /// The frame's length so far.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether no message was written yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == HEADER_LEN_BYTES
    }

    /// The room left for messages.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        self.buffer.len() - self.len_bytes
    }

    /// The maximum length of a value in a message with so many words and such a key.
    #[inline]
    pub fn value_room_bytes(&self, word_count: usize, key_len_bytes: usize) -> usize {
        // The room is a multiple of 8, so padding always fits.
        let fixed_bytes = message_len_bytes(word_count, 0, 0) + key_len_bytes;
        self.room_bytes().saturating_sub(fixed_bytes)
    }

    /// Writes a request.
    #[inline]
    pub fn push_request(&mut self, request: &Request<'_>) -> Result<(), NoRoom> {
        self.push(&request.parts())
    }

    /// Writes a reply.
    #[inline]
    pub fn push_reply(&mut self, reply: &Reply<'_>) -> Result<(), NoRoom> {
        self.push(&reply.parts())
    }

    /// Closes the frame: writes its length, and its tag if there is a key. Returns the length.
    #[inline]
    pub fn finish(self, key: Option<&TagKey>) -> usize {
        let frame = &mut self.buffer[..self.len_bytes];
        let units = (self.len_bytes / 8) as u16;
        frame[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&units.to_le_bytes());
        if let Some(key) = key {
            let tag = key.tag(frame);
            frame[TAG_AT..TAG_AT + 8].copy_from_slice(&tag.to_le_bytes());
        }
        self.len_bytes
    }

    /// Writes bytes that are a whole body.
    pub(super) fn push_body(&mut self, body: &[u8]) -> Result<(), NoRoom> {
        let place = self.claim(body.len().next_multiple_of(8))?;
        let (bytes, padding) = place.split_at_mut(body.len());
        bytes.copy_from_slice(body);
        padding.fill(0);
        Ok(())
    }

    #[inline]
    fn push(&mut self, parts: &Parts<'_>) -> Result<(), NoRoom> {
        if parts.key.len() > KEY_MAX_BYTES {
            return Err(NoRoom { want_bytes: parts.key.len(), left_bytes: KEY_MAX_BYTES });
        }
        parts.write(self.claim(parts.len_bytes())?);
        Ok(())
    }

    #[inline]
    fn claim(&mut self, want_bytes: usize) -> Result<&mut [u8], NoRoom> {
        let left_bytes = self.room_bytes();
        if want_bytes > left_bytes {
            return Err(NoRoom { want_bytes, left_bytes });
        }
        let start = self.len_bytes;
        self.len_bytes += want_bytes;
        Ok(&mut self.buffer[start..self.len_bytes])
    }
}
