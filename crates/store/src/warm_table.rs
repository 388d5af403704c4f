//! The table behind the memory in a warm file: which segments are in use, and which of their
//! entries live. docs/formats/warm-file.md has the layout byte by byte.
//!
//! ```text
//!  | memory ...           | header 16 | row | bits ... | row | bits ... | trailer 64 |
//!  0                      memory_bytes                                   end of the file
//!  | memory ...           | whatever, room for all of that               | RUNNING 64 |
//!  row:   segment 4 | run 4 | used bytes 8 | latest expiry 8 | flags 4 | words of bits 4
//!  bits:  bit n of word m: an entry that lives starts at byte 8 x (64 m + n) of the segment
//! ```
//!
//! # Invariants
//! I1: the trailer is written to the end of the file last: a trailer whose sums do not match is
//!     none.
//! I2: rows are in the order in which their segments were taken, the oldest first.
//! I3: [`Table::parse`] never panics, and never returns a table that names bytes outside the
//!     memory.

use crate::crc;
use crate::log::{Contents, Queue};
use crate::record::ALIGN_BYTES;

/// The version of the whole file's layout, including the memory: grows with every change of either.
pub const LAYOUT: u32 = 1;

const MAGIC: [u8; 8] = *b"DVTLWARM";
/// The mark in the place of a trailer while a store runs.
pub(crate) const RUNNING: [u8; TRAILER_BYTES] =
    *b"DVTLWARM is running, or was killed; nothing in here is believed.";
/// The mark in the place of a trailer after an end at which nothing was to be kept.
pub(crate) const NOT_KEPT: [u8; TRAILER_BYTES] =
    *b"DVTLWARM keeps nothing: its server ended by SHUTDOWN NOSAVE.   \n";
/// The length of the trailer.
pub(crate) const TRAILER_BYTES: usize = 64;
const HEADER_BYTES: usize = 16;
const ROW_BYTES: usize = 32;
const WORD_BYTES: usize = 8;
/// The offset of the trailer's own sum, which covers the bytes before it.
const TRAILER_SUM_AT: usize = 60;

const FLAG_LONG: u32 = 1;
const FLAG_SMALL: u32 = 1 << 1;

/// The file's last bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub memory_bytes: u64,
    pub table_bytes: u64,
    pub table_sum: u32,
    pub saved_at_ms: u64,
    /// The highest version of any key.
    pub version: u64,
    /// The caller's note.
    pub note: u64,
}

/// The reason why the last bytes of a file are not a trailer that this program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTrailer {
    /// A store is running, or was killed.
    Running,
    /// A store ended, and nothing was to be kept.
    NotKept,
    /// The bytes are foreign.
    Foreign,
    /// The trailer is of another layout.
    Layout { found: u32 },
}

impl Trailer {
    pub(crate) fn to_bytes(self) -> [u8; TRAILER_BYTES] {
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(LAYOUT.to_le_bytes());
        bytes.extend([0; 4]);
        for word in [self.memory_bytes, self.table_bytes, self.saved_at_ms, self.version, self.note]
        {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.table_sum.to_le_bytes());
        bytes.extend(crc::extend(crc::START, &bytes).to_le_bytes());
        bytes.try_into().expect("8 + 8 + 5 x 8 + 4 + 4 bytes")
    }

    pub(crate) fn parse(bytes: &[u8; TRAILER_BYTES]) -> Result<Trailer, NoTrailer> {
        let sum = crc::extend(crc::START, &bytes[..TRAILER_SUM_AT]);
        if *bytes == RUNNING {
            return Err(NoTrailer::Running);
        }
        if *bytes == NOT_KEPT {
            return Err(NoTrailer::NotKept);
        }
        let mut rest = Bytes(bytes);
        if rest.take(MAGIC.len()) != Some(&MAGIC) {
            return Err(NoTrailer::Foreign);
        }
        let layout = rest.u32().unwrap_or(0);
        rest.u32();
        let mut word = || rest.u64().unwrap_or(0);
        let (memory_bytes, table_bytes, saved_at_ms) = (word(), word(), word());
        let (version, note) = (word(), word());
        let table_sum = rest.u32().unwrap_or(0);
        if rest.u32() != Some(sum) {
            return Err(NoTrailer::Foreign);
        }
        if layout != LAYOUT {
            return Err(NoTrailer::Layout { found: layout });
        }
        Ok(Trailer { memory_bytes, table_bytes, table_sum, saved_at_ms, version, note })
    }
}

/// One segment, or a run, that is in use.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub segment: u32,
    pub run_len: u32,
    pub contents: Contents,
    pub queue: Queue,
    /// The bits of live entries; see the module's documentation.
    pub live: Vec<u64>,
}

impl Row {
    /// The positions of its live entries, in words of eight bytes behind its start.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u32> {
        let of_word = |(at, word): (usize, &u64)| {
            let (first, mut left) = (at as u32 * u64::BITS, *word);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(first + bit)
            })
        };
        self.live.iter().enumerate().flat_map(of_word)
    }

    /// Names the entry that starts at this word as live.
    pub(crate) fn name(&mut self, start: u32) {
        let word = (start / u64::BITS) as usize;
        if self.live.len() <= word {
            self.live.resize(word + 1, 0);
        }
        self.live[word] |= 1 << (start % u64::BITS);
    }

    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.segment.to_le_bytes());
        bytes.extend(self.run_len.to_le_bytes());
        bytes.extend(self.contents.used_bytes.to_le_bytes());
        bytes.extend(self.contents.latest_expiry_ms.to_le_bytes());
        let long = if self.contents.is_long { FLAG_LONG } else { 0 };
        let small = if self.queue == Queue::Small { FLAG_SMALL } else { 0 };
        bytes.extend((long | small).to_le_bytes());
        bytes.extend((self.live.len() as u32).to_le_bytes());
        self.live.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
}

/// All segments in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub segment_bytes: u64,
    /// The rows, in the order of I2.
    pub rows: Vec<Row>,
}

/// The most bytes that a table takes for this much memory and this many segments, without the
/// trailer.
pub(crate) fn bytes_max(memory_bytes: u64, segments: u64) -> u64 {
    let bits_bytes = memory_bytes / (u64::from(u64::BITS) * ALIGN_BYTES as u64) * WORD_BYTES as u64;
    let row_bytes = (ROW_BYTES + WORD_BYTES) as u64;
    HEADER_BYTES as u64 + segments * row_bytes + bits_bytes
}

/// The first bytes of a table.
pub(crate) fn header(segment_bytes: u64, row_count: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&segment_bytes.to_le_bytes());
    bytes[8..12].copy_from_slice(&row_count.to_le_bytes());
    bytes
}

impl Table {
    /// Decodes a table from bytes whose sum is right; `None`: they are not a table of this much
    /// memory (I3).
    pub(crate) fn parse(bytes: &[u8], memory_bytes: u64) -> Option<Table> {
        let mut rest = Bytes(bytes);
        let segment_bytes = rest.u64().filter(|bytes| bytes.is_power_of_two())?;
        let row_count = rest.u32()?;
        rest.u32()?;
        let segment_count = memory_bytes.checked_div(segment_bytes)?;
        let mut rows = Vec::with_capacity((row_count as usize).min(bytes.len() / ROW_BYTES));
        for _ in 0..row_count {
            let row = rest.row()?;
            let end = u64::from(row.segment) + u64::from(row.run_len);
            let row_bytes = u64::from(row.run_len).checked_mul(segment_bytes)?;
            let is_inside = row.run_len > 0 && end <= segment_count;
            let named_bytes = row.live.len() as u64 * u64::from(u64::BITS) * ALIGN_BYTES as u64;
            let is_named = named_bytes < row_bytes + u64::from(u64::BITS) * ALIGN_BYTES as u64;
            if !is_inside || row.contents.used_bytes > row_bytes || !is_named {
                return None;
            }
            rows.push(row);
        }
        rest.0.is_empty().then_some(Table { segment_bytes, rows })
    }
}

/// The bytes still to be read.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn row(&mut self) -> Option<Row> {
        let (segment, run_len) = (self.u32()?, self.u32()?);
        let (used_bytes, latest_expiry_ms) = (self.u64()?, self.u64()?);
        let (flags, word_count) = (self.u32()?, self.u32()?);
        let words = self.take((word_count as usize).checked_mul(WORD_BYTES)?)?;
        let words = words.as_chunks::<WORD_BYTES>().0.iter();
        let live = words.map(|word| u64::from_le_bytes(*word)).collect();
        let is_long = flags & FLAG_LONG != 0;
        let contents = Contents { used_bytes, latest_expiry_ms, is_long };
        let queue = if flags & FLAG_SMALL != 0 { Queue::Small } else { Queue::Main };
        Some(Row { segment, run_len, contents, queue, live })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_BYTES: u64 = 64 << 10;

    fn row(segment: u32, starts: &[u32]) -> Row {
        let contents = Contents { used_bytes: 4096, latest_expiry_ms: 77, is_long: true };
        let (run_len, queue) = (2, Queue::Small);
        let mut row = Row { segment, run_len, contents, queue, live: Vec::new() };
        starts.iter().for_each(|start| row.name(*start));
        row
    }

    fn table_of(rows: &[Row]) -> Vec<u8> {
        let mut bytes = header(SEGMENT_BYTES, rows.len() as u32).to_vec();
        rows.iter().for_each(|row| row.append_to(&mut bytes));
        bytes
    }

    #[test]
    fn a_table_reads_back_as_it_was() {
        let bytes = table_of(&[row(3, &[0, 63, 64, 511]), row(9, &[])]);
        let table = Table::parse(&bytes, 16 * SEGMENT_BYTES).expect("a table");
        assert_eq!(table.segment_bytes, SEGMENT_BYTES);
        let starts: Vec<Vec<u32>> = table.rows.iter().map(|row| row.starts().collect()).collect();
        assert_eq!(starts, [vec![0, 63, 64, 511], vec![]]);
        let Row { segment, run_len, contents, queue, .. } = &table.rows[0];
        assert_eq!((*segment, *run_len, *queue), (3, 2, Queue::Small));
        let Contents { used_bytes, latest_expiry_ms, is_long } = *contents;
        assert_eq!((used_bytes, latest_expiry_ms, is_long), (4096, 77, true));
    }

    #[test]
    fn a_table_that_names_bytes_outside_the_memory_is_none() {
        let good = row(3, &[1]);
        let bad = [
            Row { segment: 15, ..good.clone() },
            Row { segment: u32::MAX, ..good.clone() },
            Row { run_len: 0, ..good.clone() },
            Row { run_len: u32::MAX, ..good.clone() },
            Row { live: vec![0; 257], ..good.clone() },
            Row {
                contents: Contents { used_bytes: 2 * SEGMENT_BYTES + 1, ..good.contents },
                ..good.clone()
            },
        ];
        assert!(Table::parse(&table_of(&[good]), 16 * SEGMENT_BYTES).is_some());
        for row in bad {
            let text = format!("{row:?}");
            assert!(Table::parse(&table_of(&[row]), 16 * SEGMENT_BYTES).is_none(), "{text}");
        }
    }

    #[test]
    fn no_part_of_a_table_is_one_and_none_panics() {
        let bytes = table_of(&[row(3, &[0, 63, 64, 511]), row(9, &[7])]);
        for len in 0..bytes.len() {
            assert!(Table::parse(&bytes[..len], 16 * SEGMENT_BYTES).is_none(), "{len} bytes");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                // Whatever comes of it, it names nothing outside.
                let Some(table) = Table::parse(&bytes, 16 * SEGMENT_BYTES) else { continue };
                assert!(table.rows.iter().all(|row| row.segment + row.run_len <= 16));
            }
        }
    }

    #[test]
    fn a_trailer_reads_back_and_no_flipped_bit_of_it_does() {
        let trailer = Trailer {
            memory_bytes: 1 << 30,
            table_bytes: 12_345,
            table_sum: 6,
            saved_at_ms: 7,
            version: 8,
            note: 9,
        };
        let bytes = trailer.to_bytes();
        assert_eq!(Trailer::parse(&bytes), Ok(trailer));
        assert_eq!(Trailer::parse(&RUNNING), Err(NoTrailer::Running));
        assert_eq!(Trailer::parse(&NOT_KEPT), Err(NoTrailer::NotKept));
        for bit in 0..8 * TRAILER_BYTES {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::parse(&bytes), Err(NoTrailer::Foreign), "bit {bit}");
        }
    }

    #[test]
    fn a_trailer_of_another_layout_says_which() {
        let trailer = Trailer {
            memory_bytes: 0,
            table_bytes: 0,
            table_sum: 0,
            saved_at_ms: 0,
            version: 0,
            note: 0,
        };
        let mut bytes = trailer.to_bytes();
        bytes[8] = 200;
        let sum = crc::extend(crc::START, &bytes[..TRAILER_SUM_AT]);
        bytes[TRAILER_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Trailer::parse(&bytes), Err(NoTrailer::Layout { found: 200 }));
    }
}
