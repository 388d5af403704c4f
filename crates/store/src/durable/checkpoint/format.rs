//! The byte format of a checkpoint: docs/formats/data-directory.md.
//!
//! ```text
//!  slot:  | tag (16) | location (45) | last of its chain (1) | 0 (2) |
//!  empty: | 0 (16)   | chains without an entry (40) | shift of chains from here on (8) |
//! ```

use std::io::{self, Read, Write};

use index::hash::slot::Slot;
use thiserror::Error;

use super::{Checkpoint, Covered};
use crate::crc;

const MAGIC: u64 = u64::from_le_bytes(*b"DOVEINDX");
/// The number of this format.
const FORMAT: u64 = 1;
const HEADER_WORDS: usize = 8;
const COVERED_WORDS: usize = 3;
/// The words read or written at once.
const PIECE_WORDS: usize = 8192;
const LAST_BIT: u64 = 1 << 2;
const MARK_BITS: u64 = 0b11;
const TAG_SHIFT: u32 = 48;
const COUNT_SHIFT: u32 = 8;

/// The reason why a checkpoint is not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be read.
    #[error("{0}")]
    Io(String),
    /// Its format is that of another version.
    #[error("it has format {found}, and this version reads {FORMAT}")]
    Format {
        /// The format found.
        found: u64,
    },
    /// It differs from what was written, or is incomplete.
    #[error("it is damaged or was not written to its end")]
    Damaged,
    /// It belongs to other data.
    #[error("it is of another log")]
    OtherLog,
    /// The log was put back to an earlier state.
    #[error("it is of a later state of the log than what is there")]
    LaterLog,
    /// Entries that it names are missing.
    #[error("it names {named} entries, of which {found} are there")]
    Misfit {
        /// Entries named, in unchanged segments.
        named: u64,
        /// How many of these were found.
        found: u64,
    },
    /// The index is a tree, for which there are no checkpoints.
    #[error("the index is a tree")]
    Tree,
    /// An index built with it takes more room than there is.
    #[error("the memory has no room for an index that is built with it")]
    NoRoom,
}

/// One word of the part behind the segments.
pub(super) enum ChainWord {
    Slot { slot: Slot, is_last: bool },
    Empty { shift: u32, count: u64 },
}

impl ChainWord {
    pub(super) fn of(word: u64) -> ChainWord {
        if word >> TAG_SHIFT == 0 {
            return ChainWord::Empty { shift: (word & 63) as u32, count: word >> COUNT_SHIFT };
        }
        ChainWord::Slot {
            slot: Slot(word & !(LAST_BIT | MARK_BITS)),
            is_last: word & LAST_BIT != 0,
        }
    }
}

/// Chains as they are collected.
#[derive(Default)]
pub(super) struct Words {
    words: Vec<u64>,
    items: u64,
    shift: u32,
    empty: u64,
}

impl Words {
    pub(super) fn push(&mut self, shift: u32, slots: &[Slot]) {
        if shift != self.shift {
            self.end_empty();
            self.shift = shift;
            self.words.push(u64::from(shift));
        }
        let Some((last, rest)) = slots.split_last() else {
            self.empty += 1;
            return;
        };
        self.end_empty();
        self.items += slots.len() as u64;
        self.words.extend(rest.iter().map(|slot| slot.with_marks(0).0));
        self.words.push(last.with_marks(0).0 | LAST_BIT);
    }

    fn end_empty(&mut self) {
        if self.empty > 0 {
            self.words.push(self.empty << COUNT_SHIFT | u64::from(self.shift));
            self.empty = 0;
        }
    }

    pub(super) fn end(mut self) -> (Vec<u64>, u64) {
        self.end_empty();
        (self.words, self.items)
    }
}

impl Checkpoint {
    /// Writes the checkpoint, in pieces.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut out = Summed { inner: out, sum: crc::START, bytes: Vec::new() };
        out.words(&[
            MAGIC,
            FORMAT,
            self.data_id,
            self.hash_seed,
            self.generation,
            self.items,
            self.covered.len() as u64,
            self.words.len() as u64,
        ])?;
        for Covered { segment, sequence, end_bytes } in &self.covered {
            out.words(&[u64::from(*segment), *sequence, *end_bytes])?;
        }
        for piece in self.words.chunks(PIECE_WORDS) {
            out.words(piece)?;
        }
        let sum = u64::from(out.sum);
        out.words(&[sum])
    }

    /// Reads a checkpoint that [`Checkpoint::write_to`] wrote.
    ///
    /// # Errors
    /// The bytes are not a checkpoint, or cannot be read.
    pub fn read_from(source: &mut impl Read) -> Result<Checkpoint, CheckpointError> {
        let mut source = Summed { inner: source, sum: crc::START, bytes: Vec::new() };
        let mut words = Vec::new();
        source.read(HEADER_WORDS as u64, &mut words)?;
        let [magic, format, data_id, hash_seed, generation, items, covered_count, word_count] =
            *words.first_chunk::<HEADER_WORDS>().ok_or(CheckpointError::Damaged)?;
        if magic != MAGIC {
            return Err(CheckpointError::Damaged);
        }
        if format != FORMAT {
            return Err(CheckpointError::Format { found: format });
        }
        words.clear();
        source.read(covered_count.saturating_mul(COVERED_WORDS as u64), &mut words)?;
        let covered = words.as_chunks::<COVERED_WORDS>().0.iter().map(covered_of);
        let covered = covered.collect::<Option<Vec<_>>>().ok_or(CheckpointError::Damaged)?;
        words.clear();
        source.read(word_count, &mut words)?;
        let (sum, mut stored) = (source.sum, Vec::new());
        source.read(1, &mut stored)?;
        if stored != [u64::from(sum)] || !source.is_at_end()? {
            return Err(CheckpointError::Damaged);
        }
        Ok(Checkpoint { data_id, hash_seed, generation, covered, items, words })
    }
}

fn covered_of([segment, sequence, end_bytes]: &[u64; COVERED_WORDS]) -> Option<Covered> {
    let segment = u32::try_from(*segment).ok()?;
    Some(Covered { segment, sequence: *sequence, end_bytes: *end_bytes })
}

/// A reader or writer, with the checksum of the bytes that have passed.
struct Summed<'s, S> {
    inner: &'s mut S,
    sum: u32,
    bytes: Vec<u8>,
}

impl<S: Write> Summed<'_, S> {
    fn words(&mut self, words: &[u64]) -> io::Result<()> {
        self.bytes.clear();
        self.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.sum = crc::extend(self.sum, &self.bytes);
        self.inner.write_all(&self.bytes)
    }
}

impl<S: Read> Summed<'_, S> {
    /// Appends up to `count` words, as far as they are present: whatever the count is, no more
    /// memory is taken than the source has bytes.
    fn read(&mut self, count: u64, words: &mut Vec<u64>) -> Result<(), CheckpointError> {
        let mut left = count;
        while left > 0 {
            let piece = left.min(PIECE_WORDS as u64);
            self.bytes.resize(piece as usize * 8, 0);
            self.inner.read_exact(&mut self.bytes).map_err(|error| unreadable(&error))?;
            self.sum = crc::extend(self.sum, &self.bytes);
            let (chunks, _) = self.bytes.as_chunks::<8>();
            words.extend(chunks.iter().map(|word| u64::from_le_bytes(*word)));
            left -= piece;
        }
        Ok(())
    }

    fn is_at_end(&mut self) -> Result<bool, CheckpointError> {
        let mut byte = [0];
        Ok(self.inner.read(&mut byte).map_err(|error| unreadable(&error))? == 0)
    }
}

fn unreadable(error: &io::Error) -> CheckpointError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => CheckpointError::Damaged,
        _ => CheckpointError::Io(error.to_string()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use base::KeyHash;
    use index::hash::slot::Tag;

    fn sample() -> Checkpoint {
        let slot = |tag, at| Slot::entry(Tag::of(KeyHash(tag)), at).with_marks(2);
        let mut words = Words::default();
        words.push(63, &[slot(5, 80), slot(6, 160)]);
        words.push(62, &[]);
        words.push(62, &[slot(7, 240)]);
        let (words, items) = words.end();
        let covered = vec![Covered { segment: 3, sequence: 9, end_bytes: 320 }];
        Checkpoint { data_id: 1, hash_seed: 2, generation: 3, covered, items, words }
    }

    fn bytes_of(checkpoint: &Checkpoint) -> Vec<u8> {
        let mut bytes = Vec::new();
        checkpoint.write_to(&mut bytes).expect("memory");
        bytes
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        let (checkpoint, bytes) = (sample(), bytes_of(&sample()));
        assert_eq!(Checkpoint::read_from(&mut &bytes[..]), Ok(checkpoint));
        for len in 0..bytes.len() {
            let read = Checkpoint::read_from(&mut &bytes[..len]);
            assert_eq!(read, Err(CheckpointError::Damaged), "{len} bytes");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x20;
            assert!(Checkpoint::read_from(&mut &flipped[..]).is_err(), "byte {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Checkpoint::read_from(&mut &longer[..]), Err(CheckpointError::Damaged));
    }

    #[test]
    fn chains_come_back_in_their_places() {
        let mut seen = Vec::new();
        let visit = |hash: KeyHash, shift, slot: Slot| {
            seen.push((hash.0 >> 62, shift, slot.offset_bytes(), slot.marks()));
            Ok(())
        };
        sample().each_slot(visit).expect("all hashes are covered");
        assert_eq!(seen, [(0, 63, 80, 0), (0, 63, 160, 0), (3, 62, 240, 0)]);
        let mut short = sample();
        short.words.pop();
        assert_eq!(short.each_slot(|_, _, _| Ok(())), Err(CheckpointError::Damaged));
    }
}
