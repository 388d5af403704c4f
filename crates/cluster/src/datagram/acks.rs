//! Acknowledgements as runs: consecutive versions, or blocks of one version.
//!
//! ```text
//!  byte 0       2         8        12          13      14
//!  | shard | version | block | direction | count |       direction 0: versions, 1: blocks
//! ```

use crate::datagram::{HEADER_BYTES, KIND_ACKS, Key, Route, seal, u16_at};
use crate::ids::{ShardId, Version};
use crate::record::BlockId;

const RUN_BYTES: usize = 14;
const VERSIONS: u8 = 0;
const BLOCKS: u8 = 1;

/// A run of consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: BlockId,
    direction: u8,
    count: u8,
}

impl Run {
    /// The block at that index of the run, if there can be one.
    fn at(&self, index: u8) -> Option<BlockId> {
        let BlockId { shard, version, block } = self.first;
        if self.direction == BLOCKS {
            return Some(BlockId { shard, version, block: block.checked_add(index.into())? });
        }
        let version = Version::from_bits(version.bits() + u64::from(index))?;
        Some(BlockId { shard, version, block })
    }

    /// The run extended by this block, if it is the next one in either direction.
    fn with(&self, block: BlockId) -> Option<Run> {
        let count = self.count.checked_add(1)?;
        let directions = [VERSIONS, BLOCKS];
        let fits = |direction: &u8| {
            let run = Run { direction: *direction, ..*self };
            let may_turn = self.count == 1 || self.direction == *direction;
            may_turn && run.at(self.count) == Some(block)
        };
        let direction = directions.into_iter().find(fits)?;
        Some(Run { direction, count, ..*self })
    }

    fn bytes(&self) -> [u8; RUN_BYTES] {
        let BlockId { shard, version, block } = self.first;
        let mut bytes = [0; RUN_BYTES];
        bytes[..2].copy_from_slice(&shard.0.to_le_bytes());
        bytes[2..8].copy_from_slice(&version.bits().to_le_bytes()[..6]);
        bytes[8..12].copy_from_slice(&block.to_le_bytes());
        bytes[12..].copy_from_slice(&[self.direction, self.count]);
        bytes
    }

    /// Decodes a run; none if the bytes are not a valid run (U2).
    fn of(bytes: &[u8; RUN_BYTES]) -> Option<Run> {
        let mut version = [0; 8];
        version[..6].copy_from_slice(&bytes[2..8]);
        let first = BlockId {
            shard: ShardId(u16_at(bytes, 0)),
            version: Version::from_bits(u64::from_le_bytes(version))?,
            block: u32::from(u16_at(bytes, 8)) | u32::from(u16_at(bytes, 10)) << 16,
        };
        let run = Run { first, direction: bytes[12], count: bytes[13] };
        let last = run.count.checked_sub(1)?;
        (run.direction <= BLOCKS && run.at(last).is_some()).then_some(run)
    }
}

/// Packs acknowledgements until a datagram is full.
#[derive(Clone, Debug)]
pub struct AckBuilder {
    limit_bytes: usize,
    bytes: Vec<u8>,
    count: u16,
    /// The last run, not yet encoded.
    open: Option<Run>,
}

impl AckBuilder {
    /// A builder of datagrams of at most `limit_bytes`.
    pub fn new(limit_bytes: usize) -> AckBuilder {
        AckBuilder { limit_bytes, bytes: vec![0; HEADER_BYTES], count: 0, open: None }
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.open.is_none()
    }

    /// Adds a block. Returns false if there is no room: finish the datagram, and push the block
    /// again. An empty datagram always has room.
    #[must_use]
    pub fn push(&mut self, block: BlockId) -> bool {
        if self.is_empty() {
            self.bytes.truncate(HEADER_BYTES);
            self.count = 0;
        }
        let Some(open) = self.open else {
            self.open = Some(Run { first: block, direction: VERSIONS, count: 1 });
            return true;
        };
        if let Some(longer) = open.with(block) {
            self.open = Some(longer);
            return true;
        }
        // Room for the open run, and for the one that would begin.
        let is_full = self.bytes.len() + 2 * RUN_BYTES > self.limit_bytes;
        if is_full || self.count + 1 == u16::MAX {
            return false;
        }
        self.close(open);
        self.open = Some(Run { first: block, direction: VERSIONS, count: 1 });
        true
    }

    fn close(&mut self, run: Run) {
        self.bytes.extend(run.bytes());
        self.count += 1;
    }

    /// Returns the finished datagram; the next push begins another.
    pub fn finish(&mut self, route: Route, key: &Key) -> &[u8] {
        match self.open.take() {
            Some(open) => self.close(open),
            None => {
                self.bytes.truncate(HEADER_BYTES);
                self.count = 0;
            }
        }
        seal(&mut self.bytes, (KIND_ACKS, 0), self.count, route, key);
        &self.bytes
    }
}

/// The blocks that a datagram acknowledges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acks<'a> {
    runs: &'a [u8],
    /// How many blocks of the first run have been returned.
    taken: u8,
}

impl<'a> Acks<'a> {
    /// Opens the bytes behind the header (U2).
    pub(super) fn open(rest: &'a [u8], count: usize) -> Option<Acks<'a>> {
        let (runs, left) = rest.as_chunks::<RUN_BYTES>();
        let is_whole = runs.len() == count && left.is_empty();
        let are_runs = runs.iter().all(|run| Run::of(run).is_some());
        (is_whole && are_runs).then_some(Acks { runs: rest, taken: 0 })
    }
}

impl Iterator for Acks<'_> {
    type Item = BlockId;

    fn next(&mut self) -> Option<BlockId> {
        let (bytes, rest) = self.runs.split_first_chunk()?;
        let run = Run::of(bytes)?;
        let block = run.at(self.taken);
        self.taken += 1;
        if self.taken >= run.count {
            (self.runs, self.taken) = (rest, 0);
        }
        block
    }
}
