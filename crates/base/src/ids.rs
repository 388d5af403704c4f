//! Ids as newtypes, so that two of them cannot change places in a call.

/// A worker thread's position, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The id as an index into per-worker arrays.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A partition of the key space (C-4 §4.2), counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// The id as an index into per-partition arrays.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The seeded 64-bit hash of a key, computed once, where the request is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The key's id in the write table: the top 30 bits, which choose the bucket in an index of any
    /// size (K5).
    pub fn partition(self) -> PartitionId {
        PartitionId((self.0 >> 34) as u32)
    }
}
