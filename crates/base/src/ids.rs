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
    /// The key's id in the write table: the hash's top bits (K5).
    #[inline]
    pub fn partition(self, bits: PartitionBits) -> PartitionId {
        // Two shifts, since one by all 64 bits is none.
        PartitionId((self.0 >> 1 >> (63 - bits.0)) as u32)
    }
}

/// How many of a hash's top bits name its partition: few enough that every chain of the index lies
/// in one partition, whatever size the index has (K5).
///
/// ```text
///  hashes 0                                                             2^64
///  heads  |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7  |  8  |  9  | ...
///  ids    |        0        |        1        |        2        |
/// ```
///
/// An index of h heads gives head i the hashes from i/h to (i+1)/h of the whole range. Partitions
/// of the same range by powers of two have no border inside a head exactly when their number
/// divides h. An index that grows by doubling keeps that, so the bits are those of its first size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionBits(u32);

impl PartitionBits {
    /// 2^20 partitions: as many as the buckets of C-4 §6.
    pub const MAX: PartitionBits = PartitionBits(20);
    /// Heads of a partition, as a power of two: rounding to whole partitions costs at most one
    /// head in this many.
    const HEADS_LOG2_MIN: u32 = 4;

    /// For an index of about `head_count` heads, which [`PartitionBits::whole`] makes exact.
    pub fn for_heads(head_count: u32) -> PartitionBits {
        let bits = head_count.max(1).ilog2().saturating_sub(Self::HEADS_LOG2_MIN);
        PartitionBits(bits.min(Self::MAX.0))
    }

    /// `head_count`, less those beyond the last whole partition.
    pub fn whole(self, head_count: u32) -> u32 {
        head_count >> self.0 << self.0
    }

    /// How many partitions there are.
    pub fn partition_count(self) -> u32 {
        1 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head_count: u32, want_partitions: u32, want_heads: u32) {
        let bits = PartitionBits::for_heads(head_count);
        assert_eq!(bits.partition_count(), want_partitions);
        assert_eq!(bits.whole(head_count), want_heads);
    }

    #[test]
    fn a_partition_has_at_least_sixteen_heads_and_few_are_lost() {
        check(0, 1, 0);
        check(6, 1, 6);
        check(31, 1, 31);
        check(33, 2, 32);
        check(1_000_003, 1 << 15, 30 << 15);
        check(u32::MAX, 1 << 20, u32::MAX - (1 << 20) + 1);
    }

    #[test]
    fn a_partition_is_the_top_bits() {
        let hash = KeyHash(0xabcd_ef01_2345_6789);
        assert_eq!(hash.partition(PartitionBits::MAX), PartitionId(0xabcde));
        assert_eq!(hash.partition(PartitionBits::for_heads(33)), PartitionId(1));
        assert_eq!(hash.partition(PartitionBits::for_heads(6)), PartitionId(0));
    }
}
