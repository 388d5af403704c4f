//! The input stream with its position and checksum, and RDB's string encodings.

use std::fmt;
use std::io::{ErrorKind, Read};

use crc_fast::{CrcAlgorithm, Digest};
use wire::resp::dump::{Length, LengthForm, unpack};

use super::RdbError;

/// Bytes read at once, and the most memory reserved ahead of the bytes received.
const BUFFER_BYTES: usize = 256 << 10;

pub(super) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    /// Positions in the buffer: the end of consumed bytes, and the end of received bytes.
    taken: usize,
    filled: usize,
    /// The length of all earlier buffers.
    before: u64,
    digest: Digest,
    /// Position in the buffer: the end of the bytes in the digest.
    summed: usize,
}

impl<R> fmt::Debug for Input<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Input at {}", self.at())
    }
}

impl<R> Input<R> {
    pub(super) fn new(source: R) -> Input<R> {
        let digest = Digest::new(CrcAlgorithm::Crc64Redis);
        let buffer = vec![0; BUFFER_BYTES];
        Input { source, buffer, taken: 0, filled: 0, before: 0, digest, summed: 0 }
    }

    /// The number of consumed bytes.
    pub(super) fn at(&self) -> u64 {
        self.before + self.taken as u64
    }

    /// The checksum of all consumed bytes.
    pub(super) fn checksum(&mut self) -> u64 {
        self.digest.update(&self.buffer[self.summed..self.taken]);
        self.summed = self.taken;
        self.digest.finalize()
    }

    pub(super) fn damaged(&self, what: &'static str) -> RdbError {
        RdbError::Damaged { at: self.at(), what }
    }
}

impl<R: Read> Input<R> {
    /// Reads at least one byte, or returns an error at the end.
    fn fill(&mut self) -> Result<(), RdbError> {
        if self.taken < self.filled {
            return Ok(());
        }
        self.checksum();
        self.before += self.taken as u64;
        (self.taken, self.filled, self.summed) = (0, 0, 0);
        loop {
            match self.source.read(&mut self.buffer) {
                Ok(0) => return Err(RdbError::Cut(self.at())),
                Ok(count) => {
                    self.filled = count;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(RdbError::Io(error)),
            }
        }
    }

    /// Up to this many of the next bytes, and at least one unless none is wanted.
    fn piece(&mut self, max_bytes: u64) -> Result<&[u8], RdbError> {
        if max_bytes == 0 {
            return Ok(&[]);
        }
        self.fill()?;
        let there = self.filled - self.taken;
        let count = usize::try_from(max_bytes).map_or(there, |max| max.min(there));
        let from = self.taken;
        self.taken += count;
        Ok(&self.buffer[from..self.taken])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut out = [0; N];
        let mut at = 0;
        while at < N {
            let piece = self.piece((N - at) as u64)?;
            out[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(out)
    }

    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, RdbError> {
        let mut out = Vec::with_capacity(len.min(BUFFER_BYTES as u64) as usize);
        while (out.len() as u64) < len {
            let left = len - out.len() as u64;
            out.extend_from_slice(self.piece(left)?);
        }
        Ok(out)
    }

    pub(super) fn skip(&mut self, len: u64) -> Result<(), RdbError> {
        let mut left = len;
        while left > 0 {
            left -= self.piece(left)?.len() as u64;
        }
        Ok(())
    }

    fn length(&mut self) -> Result<Length, RdbError> {
        let [first] = self.array()?;
        Ok(match LengthForm::of(first) {
            Some(LengthForm::Whole(length)) => length,
            Some(LengthForm::OneMore { high }) => {
                let [low] = self.array()?;
                Length::Bytes(high << 8 | u64::from(low))
            }
            Some(LengthForm::Four) => Length::Bytes(u64::from(u32::from_be_bytes(self.array()?))),
            Some(LengthForm::Eight) => Length::Bytes(u64::from_be_bytes(self.array()?)),
            None => return Err(self.damaged("no length begins so")),
        })
    }

    /// A length that is not an encoding.
    pub(super) fn number(&mut self) -> Result<u64, RdbError> {
        match self.length()? {
            Length::Bytes(count) => Ok(count),
            Length::Special(_) => Err(self.damaged("a string's form in the place of a number")),
        }
    }

    pub(super) fn skip_numbers(&mut self, count: u32) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    pub(super) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let number = match self.length()? {
            Length::Bytes(len) => return self.bytes(len),
            Length::Special(0) => i32::from(i8::from_le_bytes(self.array()?)),
            Length::Special(1) => i32::from(i16::from_le_bytes(self.array()?)),
            Length::Special(2) => i32::from_le_bytes(self.array()?),
            Length::Special(3) => {
                let (packed_len, len) = (self.number()?, self.number()?);
                let packed = self.bytes(packed_len)?;
                return unpack(&packed, len)
                    .ok_or_else(|| self.damaged("compressed bytes that are no LZF"));
            }
            Length::Special(_) => return Err(self.damaged("no string is kept so")),
        };
        Ok(number.to_string().into_bytes())
    }

    pub(super) fn skip_string(&mut self) -> Result<(), RdbError> {
        match self.length()? {
            Length::Bytes(len) => self.skip(len),
            Length::Special(0) => self.skip(1),
            Length::Special(1) => self.skip(2),
            Length::Special(2) => self.skip(4),
            Length::Special(3) => {
                let packed_len = self.number()?;
                self.number()?;
                self.skip(packed_len)
            }
            Length::Special(_) => Err(self.damaged("no string is kept so")),
        }
    }
}
