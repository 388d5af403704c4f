//! How far a BITOP has come.

use commands::work::TURN_BYTES;
use wire::resp::{ArgPlace, BitOperation};

/// The minimum that one slice reads of each source, so that lookups stay the smaller part.
const BLOCK_BYTES_MIN: usize = 4 << 10;

/// A BITOP that has begun.
pub struct BitOpWalk {
    /// AND, OR, XOR or NOT.
    pub operation: BitOperation,
    /// The key of the result.
    pub target: Box<[u8]>,
    /// The keys of the operands.
    pub sources: ArgPlace,
    /// The version of each source when it was first looked at; 0: it is absent.
    pub versions: Vec<u64>,
    /// The length of the longest source.
    pub len_bytes: usize,
    /// The result so far.
    pub result: Vec<u8>,
    /// How often it has begun: again if an operand changed meanwhile.
    pub attempts: u32,
}

impl BitOpWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        self.result.capacity() + size_of_val(&self.versions[..]) + self.target.len()
    }

    /// How much of each operand is read at a time.
    pub fn block_bytes(&self) -> usize {
        (TURN_BYTES / self.versions.len().max(1)).max(BLOCK_BYTES_MIN)
    }
}
