//! The metadata of the data file: the superblock, and the page before each segment. The layout is
//! in docs/formats/data-directory.md.
//!
//! ```text
//!  0          4 KiB       64 KiB
//!  | super A | super B |..| page 0 | segment 0 ~~~~ | page 1 | segment 1 ~~~~ | ...
//!                         | row A . row B |           4 KiB and segment_bytes each
//! ```
//!
//! # Invariants
//! I1: of two copies the valid one with the higher generation counts. A new copy overwrites the
//!     other one, so a torn write leaves the old copy intact.
//! I2: the two copies of a row lie in different sectors.

use crate::medium::{Medium, MediumError};

/// The number of this format.
pub const FORMAT: u32 = 1;
/// The offset of the first page.
const BASE_BYTES: u64 = 64 << 10;
/// The length of the page before each segment.
const PAGE_BYTES: u64 = 4096;
/// The distance from the first copy to the second, of rows and of superblocks.
const ROW_STEP_BYTES: u64 = 2048;
const SUPER_STEP_BYTES: u64 = 4096;
const SUPER_BYTES: usize = 128;
const ROW_BYTES: usize = 64;
const SUPER_MAGIC: u64 = u64::from_le_bytes(*b"DOVETAIL");
const ROW_MAGIC: u32 = u32::from_le_bytes(*b"SEGM");

/// The metadata of the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Grows with each write (I1).
    pub generation: u64,
    /// The size of each segment, a power of two; fixed (K14).
    pub segment_bytes: u64,
    /// The number of segments.
    pub segment_count: u32,
    /// Seed of the key hash (K26).
    pub hash_seed: u64,
    /// The time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Versions up to this one were assigned (K1), perhaps to entries that are gone.
    pub version_floor: u64,
    /// Entries up to this version are deleted (K2).
    pub flush_floor: u64,
    /// A random number drawn when the file was created: no entry of another file has the same
    /// seals.
    pub data_id: u64,
    /// Whether the last server wrote everything before it ended.
    pub is_clean: bool,
    /// The sequence that the next segment got when the log was last opened.
    pub sequence_floor: u64,
}

/// The reason why there is no superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoSuper {
    /// Zeros: the file was never written.
    Empty,
    /// Both copies are damaged.
    Damaged,
    /// A valid copy has another format.
    Format(u32),
    /// The medium reported an error.
    Medium(MediumError),
}

/// The use of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowState {
    /// Free; its old bytes no longer count.
    #[default]
    Free,
    /// Has entries up to `end_bytes` at least, perhaps more behind them.
    Open,
    /// Has entries up to `end_bytes`.
    Closed,
}

/// The file's row for one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Grows with each write (I1).
    pub generation: u64,
    /// The use of the segment.
    pub state: RowState,
    /// Segments of the run that this one heads; 1 for a single segment.
    pub run_len: u32,
    /// Drawn when it was taken; no two uses of a segment have the same.
    pub sequence: u64,
    /// Bytes of entries that were synced before this row was written.
    pub end_bytes: u64,
    /// The commit that wrote this row.
    pub commit: RowCommit,
}

/// A commit, as each of its rows records it: it is whole if the medium has all of its rows, and
/// below each one's `end_bytes` nothing but entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCommit {
    /// Its number; a failed one's is not used again. 0: the row does not record its commit.
    pub number: u64,
    /// How many numbers before it the last commit has that was synced by then; at least 1.
    pub since_synced: u32,
    /// The number of its rows; 0: a recovery has found that it is not whole.
    pub rows: u32,
    /// Bytes of the segment's entries with it.
    pub end_bytes: u64,
}

impl RowCommit {
    /// The last commit that was synced before this one was written.
    pub(crate) fn synced(&self) -> u64 {
        self.number.saturating_sub(u64::from(self.since_synced))
    }
}

/// A writer of little-endian numbers into a block.
struct Fields<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl Fields<'_> {
    fn put(&mut self, word: u64) {
        self.bytes[self.at..self.at + 8].copy_from_slice(&word.to_le_bytes());
        self.at += 8;
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The checksum over everything except its own four bytes, which are 12 to 15 of both kinds of
/// block.
fn checksum(bytes: &[u8]) -> u32 {
    crate::crc::extend(crate::crc::extend(crate::crc::START, &bytes[..12]), &bytes[16..])
}

fn seal_block(bytes: &mut [u8]) {
    let sum = checksum(bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    (word(bytes, 1) >> 32) as u32 == checksum(bytes)
}

impl Superblock {
    fn encode(&self) -> [u8; SUPER_BYTES] {
        let mut bytes = [0; SUPER_BYTES];
        let mut fields = Fields { bytes: &mut bytes, at: 0 };
        fields.put(SUPER_MAGIC);
        fields.put(u64::from(FORMAT));
        for word in [
            self.generation,
            self.segment_bytes,
            u64::from(self.segment_count),
            self.hash_seed,
            self.created_ms,
            self.version_floor,
            self.flush_floor,
            self.data_id,
            u64::from(self.is_clean),
            self.sequence_floor,
        ] {
            fields.put(word);
        }
        seal_block(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8; SUPER_BYTES]) -> Result<Superblock, NoSuper> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(NoSuper::Empty);
        }
        if word(bytes, 0) != SUPER_MAGIC || !is_sealed(bytes) {
            return Err(NoSuper::Damaged);
        }
        let format = word(bytes, 1) as u32;
        if format != FORMAT {
            return Err(NoSuper::Format(format));
        }
        let segment_bytes = word(bytes, 3);
        let segment_count = u32::try_from(word(bytes, 4)).map_err(|_| NoSuper::Damaged)?;
        let is_sane = segment_bytes.is_power_of_two() && (4096..=1 << 30).contains(&segment_bytes);
        let floor = word(bytes, 7).max(word(bytes, 8));
        if !is_sane || floor > crate::record::VERSION_MASK {
            return Err(NoSuper::Damaged);
        }
        Ok(Superblock {
            generation: word(bytes, 2),
            segment_bytes,
            segment_count,
            hash_seed: word(bytes, 5),
            created_ms: word(bytes, 6),
            version_floor: word(bytes, 7),
            flush_floor: word(bytes, 8),
            data_id: word(bytes, 9),
            is_clean: word(bytes, 10) != 0,
            sequence_floor: word(bytes, 11),
        })
    }

    /// Reads the copy that counts (I1).
    pub(crate) fn read(medium: &impl Medium) -> Result<Superblock, NoSuper> {
        let read = |copy: u64| {
            let mut bytes = [0; SUPER_BYTES];
            medium.read_at(copy * SUPER_STEP_BYTES, &mut bytes).map_err(NoSuper::Medium)?;
            Superblock::decode(&bytes)
        };
        match (read(0), read(1)) {
            // Another release has written here, and the other copy may be from before that.
            (Err(NoSuper::Format(format)), _) | (_, Err(NoSuper::Format(format))) => {
                Err(NoSuper::Format(format))
            }
            (Ok(a), Ok(b)) => Ok(if a.generation > b.generation { a } else { b }),
            (Ok(good), _) | (_, Ok(good)) => Ok(good),
            (Err(NoSuper::Medium(error)), _) | (_, Err(NoSuper::Medium(error))) => {
                Err(NoSuper::Medium(error))
            }
            (Err(NoSuper::Empty), Err(NoSuper::Empty)) => Err(NoSuper::Empty),
            _ => Err(NoSuper::Damaged),
        }
    }

    /// Writes the next generation over the older copy.
    pub(crate) fn write(&mut self, medium: &mut impl Medium) -> Result<(), MediumError> {
        self.generation += 1;
        medium.write_at(self.generation % 2 * SUPER_STEP_BYTES, &self.encode())
    }

    /// The length of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.page_offset(self.segment_count)
    }

    /// The offset of a segment's page.
    fn page_offset(&self, segment: u32) -> u64 {
        BASE_BYTES + u64::from(segment) * (PAGE_BYTES + self.segment_bytes)
    }

    /// The offset of a segment's entries in the file.
    pub fn segment_offset(&self, segment: u32) -> u64 {
        self.page_offset(segment) + PAGE_BYTES
    }

    /// The seal of the entries in one use of a segment.
    pub(crate) fn seal_of(&self, sequence: u64) -> crate::record::Seal {
        let mut mixed = sequence.wrapping_add(self.data_id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        crate::record::Seal((mixed >> 32) as u32)
    }

    /// Reads a segment's row; `None` if both copies are damaged.
    pub(crate) fn read_row(
        &self,
        medium: &impl Medium,
        segment: u32,
    ) -> Result<Option<Row>, MediumError> {
        let mut bytes = [0; ROW_STEP_BYTES as usize + ROW_BYTES];
        medium.read_at(self.page_offset(segment), &mut bytes)?;
        let (first, second) = bytes.split_at(ROW_STEP_BYTES as usize);
        let rows = [Row::decode(&first[..ROW_BYTES]), Row::decode(second)];
        Ok(match rows {
            [Some(a), Some(b)] => Some(if a.generation > b.generation { a } else { b }),
            [a, b] => a.or(b),
        })
    }

    /// Writes the next generation of a row over the older copy.
    pub(crate) fn write_row(
        &self,
        medium: &mut impl Medium,
        segment: u32,
        row: &mut Row,
    ) -> Result<(), MediumError> {
        row.generation += 1;
        let offset = self.page_offset(segment) + row.generation % 2 * ROW_STEP_BYTES;
        medium.write_at(offset, &row.encode())
    }
}

impl Row {
    fn encode(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        let state = match self.state {
            RowState::Free => 1,
            RowState::Open => 2,
            RowState::Closed => 3_u64,
        };
        let mut fields = Fields { bytes: &mut bytes, at: 0 };
        fields.put(u64::from(ROW_MAGIC) | state << 32);
        fields.put(u64::from(self.run_len));
        let RowCommit { number, since_synced, rows, end_bytes } = self.commit;
        let counts = u64::from(since_synced) | u64::from(rows) << 32;
        for word in [self.generation, self.sequence, self.end_bytes, number, counts, end_bytes] {
            fields.put(word);
        }
        seal_block(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Row> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Row::default());
        }
        if word(bytes, 0) as u32 != ROW_MAGIC || !is_sealed(bytes) {
            return None;
        }
        let state = match word(bytes, 0) >> 32 {
            1 => RowState::Free,
            2 => RowState::Open,
            3 => RowState::Closed,
            _ => return None,
        };
        Some(Row {
            generation: word(bytes, 2),
            state,
            run_len: word(bytes, 1) as u32,
            sequence: word(bytes, 3),
            end_bytes: word(bytes, 4),
            commit: RowCommit {
                number: word(bytes, 5),
                since_synced: word(bytes, 6) as u32,
                rows: (word(bytes, 6) >> 32) as u32,
                end_bytes: word(bytes, 7),
            },
        })
    }
}

/// The metadata of a medium, read before its entries.
pub(crate) struct Segments {
    pub superblock: Superblock,
    /// The row of every segment of the file.
    pub rows: Vec<Row>,
}

impl Segments {
    /// The segments in use; a run is listed by its first.
    pub(crate) fn used(&self) -> impl Iterator<Item = (u32, &Row)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.state != RowState::Free).map(|(at, row)| (at as u32, row))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::medium::MemoryMedium;

    fn sample() -> Superblock {
        Superblock {
            generation: 0,
            segment_bytes: 65_536,
            segment_count: 3,
            hash_seed: 7,
            created_ms: 8,
            version_floor: 9,
            flush_floor: 10,
            data_id: 11,
            is_clean: true,
            sequence_floor: 12,
        }
    }

    #[test]
    fn a_torn_superblock_leaves_the_one_before() {
        let mut medium = MemoryMedium::default();
        assert_eq!(Superblock::read(&medium), Err(NoSuper::Empty));
        let mut block = sample();
        block.write(&mut medium).expect("memory");
        block.version_floor = 100;
        let before = medium.clone();
        block.write(&mut medium).expect("memory");
        assert_eq!(Superblock::read(&medium), Ok(block));
        // Generation 2 is the first copy.
        medium.bytes_mut()[60] ^= 1;
        assert_eq!(Superblock::read(&medium).map(|block| block.version_floor), Ok(9));
        assert_eq!(Superblock::read(&before).map(|block| block.generation), Ok(1));
        medium.bytes_mut()[4096 + 60] ^= 1;
        assert_eq!(Superblock::read(&medium), Err(NoSuper::Damaged));
    }

    #[test]
    fn another_format_is_named() {
        let mut bytes = sample().encode();
        bytes[8] = 2;
        seal_block(&mut bytes);
        let medium = MemoryMedium::new(bytes.to_vec());
        assert_eq!(Superblock::read(&medium), Err(NoSuper::Format(2)));
        // A valid copy of this format beside it is from before the other release's write.
        let mut both = sample().encode().to_vec();
        both.resize(SUPER_STEP_BYTES as usize, 0);
        both.extend(bytes);
        assert_eq!(Superblock::read(&MemoryMedium::new(both)), Err(NoSuper::Format(2)));
    }

    #[test]
    fn a_row_reads_back_and_a_torn_one_leaves_the_one_before() {
        let (mut medium, block) = (MemoryMedium::default(), sample());
        assert_eq!(block.read_row(&medium, 1), Ok(Some(Row::default())));
        let commit = RowCommit { number: 9, since_synced: 1, rows: 3, end_bytes: 700 };
        let state = RowState::Open;
        let mut row = Row { generation: 0, state, run_len: 2, sequence: 5, end_bytes: 640, commit };
        block.write_row(&mut medium, 1, &mut row).expect("memory");
        assert_eq!(block.read_row(&medium, 1), Ok(Some(row)));
        row.state = RowState::Closed;
        block.write_row(&mut medium, 1, &mut row).expect("memory");
        assert_eq!(block.read_row(&medium, 1), Ok(Some(row)));
        let at = (block.page_offset(1) + 20) as usize;
        medium.bytes_mut()[at] ^= 4;
        let before = block.read_row(&medium, 1).expect("memory").expect("the other copy");
        assert_eq!((before.state, before.generation), (RowState::Open, 1));
    }
}
