//! Ids as newtypes, so that two of them cannot be swapped in a call.

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
    /// The key's id in the write table: the hash's top bits (K5).
    #[inline]
    pub fn partition(self, bits: PartitionBits) -> PartitionId {
        // Two shifts, because a single shift by all 64 bits would not shift at all.
        PartitionId((self.0 >> 1 >> (63 - bits.0)) as u32)
    }
}

/// The number of a hash's top bits that name its partition: few enough that every chain of the
/// index lies in one partition, whatever size the index has (K5).
///
/// ```text
///  hashes 0                                             2^64
///  heads  |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7  |    grown
///  heads  |     0     |     1     |     2     |     3     |    as opened
///  ids    |           0           |           1           |
/// ```
///
/// Heads are chosen by leading bits of the hash, and an index never has fewer heads than it was
/// opened with. So the bits that chose a head at opening are equal for all keys of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionBits(u32);

impl PartitionBits {
    /// 2^20 partitions: as many as the buckets of C-4 §6.
    pub const MAX: PartitionBits = PartitionBits(20);

    /// That many bits, up to the most that a partition's id may have.
    pub fn at_most(bits: u32) -> PartitionBits {
        PartitionBits(bits.min(Self::MAX.0))
    }

    /// The number of partitions.
    pub fn partition_count(self) -> u32 {
        1 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_the_top_bits() {
        let hash = KeyHash(0xabcd_ef01_2345_6789);
        assert_eq!(hash.partition(PartitionBits::MAX), PartitionId(0xabcde));
        assert_eq!(hash.partition(PartitionBits::at_most(1)), PartitionId(1));
        assert_eq!(hash.partition(PartitionBits::at_most(0)), PartitionId(0));
        assert_eq!(PartitionBits::at_most(30), PartitionBits::MAX);
        assert_eq!(PartitionBits::at_most(6).partition_count(), 64);
    }
}
