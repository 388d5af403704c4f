//! How far a BITOP has come.

use wire::resp::{ArgPlace, BitOperation};

use crate::work::TURN_BYTES;

/// The minimum that one slice reads of each source, so that lookups stay the smaller part.
const BLOCK_BYTES_MIN: usize = 4 << 10;

/// A BITOP that has begun.
pub struct BitOpWalk {
    pub operation: BitOperation,
    pub target: Box<[u8]>,
    pub sources: ArgPlace,
    /// The version of each source when it was first looked at; 0: it is absent.
    pub versions: Vec<u64>,
    /// The length of the longest source.
    pub len_bytes: usize,
    pub result: Vec<u8>,
    pub attempts: u32,
}

impl BitOpWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        self.result.capacity() + size_of_val(&self.versions[..]) + self.target.len()
    }

    pub fn block_bytes(&self) -> usize {
        (TURN_BYTES / self.versions.len().max(1)).max(BLOCK_BYTES_MIN)
    }
}
