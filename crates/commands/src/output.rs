//! The output of a connection: encoded bytes that wait to be sent, and large values sent from the
//! log.
//!
//! ```text
//!  front: [ sent | encoded bytes ... ]   rest: [ pinned value ][ encoded bytes ][ pinned ] ...
//!                 ▲ sent_bytes                   (empty for almost every connection)
//! ```
//!
//! # Invariants
//! I1: bytes leave in the order in which they were put here.
//! I2: `unsent_bytes` counts every byte that has not left, pinned ones included.
//! I3: a pinned value is never copied; it holds its log segment until it has left (K12).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;
use store::pin::PinnedValue;

/// A value of at least this size is sent from the log; smaller ones are copied (K12).
pub const PIN_VALUE_BYTES_MIN: usize = 64 << 10;

/// Beyond the output limit, values of this size are no longer copied either, so that a batch full
/// of middle-sized values cannot multiply a slow client's buffer.
pub const PIN_VALUE_BYTES_MIN_OVER_LIMIT: usize = 4 << 10;

/// Maximum bytes of one system call: some ten microseconds of copying. A little less than 64 KiB,
/// so that it is one packet for the kernel, and not one and a tail of some bytes.
pub const CALL_BYTES_MAX: usize = 60 << 10;

/// The maximum number of pieces in one system call.
const PIECES_MAX: usize = 16;

/// A sent prefix longer than this is cut off while the rest waits.
const SENT_BYTES_MAX: usize = 64 << 10;

/// Replies of this length are copied behind others rather than sent as a piece of their own.
const COPIED_FRONT_BYTES_MAX: usize = 16 << 10;

/// Memory that an output may have in vain: a worker's buffer, which it gets back.
const SLACK_BYTES_MAX: usize = 64 << 10;

/// The unsent replies of one connection.
#[derive(Default)]
pub struct Output {
    front: Vec<u8>,
    rest: VecDeque<Piece>,
    /// Bytes already sent of the first piece: `front`, or the first of `rest` once `front` is
    /// empty.
    sent_bytes: usize,
    rest_bytes: usize,
    /// Of `rest_bytes`, those that are encoded and not pinned.
    rest_encoded_bytes: usize,
}

enum Piece {
    Encoded(Vec<u8>),
    Pinned(PinnedValue),
}

/// A place in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputEnd {
    front_bytes: usize,
    rest_count: usize,
    /// Of the last piece of the rest, if that is encoded.
    last_bytes: usize,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Encoded(bytes) => bytes,
            Piece::Pinned(value) => value,
        }
    }
}

/// How a [`Output::send`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing is left.
    All,
    /// As much as was allowed, and the socket takes more.
    Part,
    /// The socket takes no more for now.
    Blocked,
}

impl Output {
    /// Appends by `encode`, which may only append to what it is given.
    #[inline]
    pub fn append<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.rest.is_empty() {
            return encode(&mut self.front);
        }
        self.append_behind_pinned(encode)
    }

    #[cold]
    fn append_behind_pinned<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if !matches!(self.rest.back(), Some(Piece::Encoded(_))) {
            self.rest.push_back(Piece::Encoded(Vec::new()));
        }
        let Some(Piece::Encoded(bytes)) = self.rest.back_mut() else {
            unreachable!("pushed above");
        };
        let len_before = bytes.len();
        let result = encode(bytes);
        self.rest_bytes += bytes.len() - len_before;
        self.rest_encoded_bytes += bytes.len() - len_before;
        result
    }

    /// The place behind all that is here.
    pub fn end(&self) -> OutputEnd {
        let last_bytes = match self.rest.back() {
            Some(Piece::Encoded(bytes)) => bytes.len(),
            _ => 0,
        };
        OutputEnd { front_bytes: self.front.len(), rest_count: self.rest.len(), last_bytes }
    }

    /// Forgets everything behind a place that [`Output::end`] gave; nothing was sent since.
    pub fn cut_back(&mut self, end: OutputEnd) {
        self.front.truncate(end.front_bytes);
        self.rest.truncate(end.rest_count);
        if let Some(Piece::Encoded(bytes)) = self.rest.back_mut() {
            bytes.truncate(end.last_bytes);
        }
        let (mut rest_bytes, mut encoded_bytes) = (0, 0);
        for piece in &self.rest {
            rest_bytes += piece.bytes().len();
            encoded_bytes += match piece {
                Piece::Encoded(bytes) => bytes.len(),
                Piece::Pinned(_) => 0,
            };
        }
        (self.rest_bytes, self.rest_encoded_bytes) = (rest_bytes, encoded_bytes);
    }

    /// Takes memory for so many bytes at once, rather than twice what is there each time.
    pub fn reserve(&mut self, bytes: usize) {
        self.append(|out| out.reserve_exact(bytes));
    }

    /// Gives back what [`Output::reserve`] took in vain.
    pub fn trim(&mut self) {
        let last = self.rest.iter_mut().rev().find_map(|piece| match piece {
            Piece::Encoded(bytes) => Some(bytes),
            Piece::Pinned(_) => None,
        });
        for bytes in last.into_iter().chain([&mut self.front]) {
            if bytes.capacity() - bytes.len() > SLACK_BYTES_MAX {
                bytes.shrink_to_fit();
            }
        }
    }

    /// Puts another output, of which nothing was sent, behind all that is here.
    pub fn append_output(&mut self, other: Output) {
        debug_assert!(other.sent_bytes == 0, "a part of it has left");
        if other.front.len() <= COPIED_FRONT_BYTES_MAX {
            self.append(|out| out.extend_from_slice(&other.front));
        } else {
            self.push_piece(Piece::Encoded(other.front));
        }
        other.rest.into_iter().for_each(|piece| self.push_piece(piece));
    }

    fn push_piece(&mut self, piece: Piece) {
        self.rest_bytes += piece.bytes().len();
        if let Piece::Encoded(bytes) = &piece {
            self.rest_encoded_bytes += bytes.len();
        }
        self.rest.push_back(piece);
    }

    /// Sends a value without copying it.
    pub fn push_pinned(&mut self, value: PinnedValue) {
        self.push_piece(Piece::Pinned(value));
    }

    /// I2.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.front.len() + self.rest_bytes - self.sent_bytes
    }

    /// Bytes that were copied here; some of them may have left.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        self.front.len() + self.rest_encoded_bytes
    }

    /// Whether everything has left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.unsent_bytes() == 0
    }

    /// Memory held here, without pinned values: they are part of the log.
    pub fn held_bytes(&self) -> usize {
        let encoded = |piece: &Piece| match piece {
            Piece::Encoded(bytes) => bytes.capacity(),
            Piece::Pinned(_) => 0,
        };
        self.front.capacity() + self.rest.iter().map(encoded).sum::<usize>()
    }

    /// Whether there is a buffer to encode into without an allocation.
    #[inline]
    pub fn has_buffer(&self) -> bool {
        self.front.capacity() != 0
    }

    /// Lends an empty buffer; only when [`Output::has_buffer`] is false.
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(!self.has_buffer() && buffer.is_empty());
        self.front = buffer;
    }

    /// Takes the buffer back once everything has left.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        (self.is_empty() && self.has_buffer()).then(|| {
            self.reset();
            std::mem::take(&mut self.front)
        })
    }

    fn reset(&mut self) {
        self.front.clear();
        self.rest.clear();
        self.sent_bytes = 0;
        self.rest_bytes = 0;
        self.rest_encoded_bytes = 0;
    }

    /// Sends as much as the socket takes, in system calls of [`CALL_BYTES_MAX`].
    pub fn send(&mut self, socket: BorrowedFd<'_>, sent_total: &mut u64) -> io::Result<Sent> {
        while !self.is_empty() {
            let (sent, offered_bytes) = if self.rest.is_empty() {
                let unsent = &self.front[self.sent_bytes..];
                let unsent = &unsent[..unsent.len().min(CALL_BYTES_MAX)];
                (rustix::net::send(socket, unsent, SendFlags::NOSIGNAL), unsent.len())
            } else {
                self.send_pieces(socket, CALL_BYTES_MAX)
            };
            match sent {
                Ok(count) => {
                    *sent_total += count as u64;
                    self.advance(count);
                    if count < offered_bytes {
                        // The socket is full; the poller reports when it has room.
                        return Ok(Sent::Blocked);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                Err(error) => return Err(error.into()),
            }
        }
        self.reset();
        Ok(Sent::All)
    }

    /// Gives unsent bytes to `write`, one piece at a time, until that would block.
    pub fn send_by(
        &mut self,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Sent> {
        while !self.is_empty() {
            let first =
                if self.front.is_empty() { self.rest.front().map(Piece::bytes) } else { None };
            let first = first.unwrap_or(&self.front);
            match write(&first[self.sent_bytes..]) {
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Sent::Blocked);
                }
                Err(error) => return Err(error),
            }
        }
        self.reset();
        Ok(Sent::All)
    }

    /// Sends at most `bytes_max` bytes, in one system call.
    pub fn send_slice(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes_max: usize,
        sent_total: &mut u64,
    ) -> io::Result<Sent> {
        let (sent, offered_bytes) = self.send_pieces(socket, bytes_max);
        let count = match sent {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(Sent::Part),
            Err(Errno::AGAIN) => return Ok(Sent::Blocked),
            Err(error) => return Err(error.into()),
        };
        *sent_total += count as u64;
        self.advance(count);
        if self.is_empty() {
            self.reset();
            return Ok(Sent::All);
        }
        Ok(if count < offered_bytes { Sent::Blocked } else { Sent::Part })
    }

    /// The longest value that waits pinned.
    #[inline]
    pub fn pinned_bytes_max(&self) -> usize {
        if self.rest.is_empty() { 0 } else { self.longest_pinned() }
    }

    #[cold]
    fn longest_pinned(&self) -> usize {
        let pinned = self.rest.iter().map(|piece| match piece {
            Piece::Pinned(value) => value.len(),
            Piece::Encoded(_) => 0,
        });
        pinned.max().unwrap_or(0)
    }

    /// Sends the bytes before the first pinned value; [`Sent::All`] once they have left.
    pub fn send_front(&mut self, socket: BorrowedFd<'_>, sent_total: &mut u64) -> io::Result<Sent> {
        while self.sent_bytes < self.front.len() {
            match rustix::net::send(socket, &self.front[self.sent_bytes..], SendFlags::NOSIGNAL) {
                Ok(count) => {
                    *sent_total += count as u64;
                    self.advance(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Sent::All)
    }

    /// Lends all output to another worker to send. Until [`Output::end_loan`] it counts as unsent
    /// here (I2), and nothing may be sent (I1).
    pub fn lend(&mut self) -> (Output, usize) {
        let lent_bytes = self.unsent_bytes();
        let mut lent = std::mem::take(self);
        self.rest_bytes = lent_bytes;
        if lent.front.is_empty() {
            std::mem::swap(&mut self.front, &mut lent.front); // The worker's own buffer.
        }
        (lent, lent_bytes)
    }

    /// Ends a loan: the lent bytes have left, or never will.
    pub fn end_loan(&mut self, lent_bytes: usize) {
        self.rest_bytes -= lent_bytes;
    }

    fn send_pieces(
        &self,
        socket: BorrowedFd<'_>,
        bytes_max: usize,
    ) -> (Result<usize, Errno>, usize) {
        let mut slices: [IoSlice<'_>; PIECES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let front = (!self.front.is_empty()).then_some(&self.front[..]);
        let pieces = front.into_iter().chain(self.rest.iter().map(Piece::bytes));
        let (mut count, mut offered_bytes) = (0, 0);
        for (slice, bytes) in slices.iter_mut().zip(pieces) {
            let unsent = if count == 0 { &bytes[self.sent_bytes..] } else { bytes };
            let unsent = &unsent[..unsent.len().min(bytes_max - offered_bytes)];
            *slice = IoSlice::new(unsent);
            offered_bytes += unsent.len();
            count += 1;
        }
        // SIGPIPE is ignored from the start of every Rust program.
        (rustix::io::writev(socket, &slices[..count]), offered_bytes)
    }

    /// Forgets the first `count` unsent bytes.
    fn advance(&mut self, count: usize) {
        self.sent_bytes += count;
        if self.sent_bytes >= self.front.len() && !self.rest.is_empty() {
            self.sent_bytes -= self.front.len();
            self.front.clear();
        }
        if self.front.is_empty() {
            while let Some(first) = self.rest.front()
                && self.sent_bytes >= first.bytes().len()
            {
                let len_bytes = first.bytes().len();
                self.sent_bytes -= len_bytes;
                self.rest_bytes -= len_bytes;
                if let Some(Piece::Encoded(_)) = self.rest.pop_front() {
                    self.rest_encoded_bytes -= len_bytes;
                }
            }
        } else if self.sent_bytes > SENT_BYTES_MAX && self.sent_bytes > self.front.len() / 2 {
            self.front.drain(..self.sent_bytes);
            self.sent_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests;
