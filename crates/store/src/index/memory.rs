//! The buckets' memory: a zeroed mapping, or a vector under the model checker.

use std::ops::Index;

use super::bucket::Bucket;

/// All buckets, addressed by id.
pub(crate) struct BucketMemory {
    #[cfg(not(loom))]
    mapping: crate::mapping::Mapping,
    #[cfg(loom)]
    buckets: Box<[Bucket]>,
    bucket_count: u32,
}

#[cfg(not(loom))]
impl BucketMemory {
    pub(crate) fn new(bucket_count: u32) -> std::io::Result<BucketMemory> {
        let bytes = bucket_count as usize * size_of::<Bucket>();
        Ok(BucketMemory { mapping: crate::mapping::Mapping::new(bytes)?, bucket_count })
    }

    /// Makes a part of the buckets resident; false when the kernel cannot.
    pub(crate) fn populate(&self, offset_bytes: usize, len_bytes: usize) -> bool {
        let end = (offset_bytes + len_bytes).min(self.mapping.len_bytes());
        offset_bytes >= end || self.mapping.populate(offset_bytes, end - offset_bytes)
    }
}

#[cfg(loom)]
impl BucketMemory {
    pub(crate) fn new(bucket_count: u32) -> std::io::Result<BucketMemory> {
        let buckets = (0..bucket_count).map(|_| Bucket::empty()).collect();
        Ok(BucketMemory { buckets, bucket_count })
    }

    pub(crate) fn populate(&self, _offset_bytes: usize, _len_bytes: usize) -> bool {
        true
    }
}

impl BucketMemory {
    pub(crate) fn len(&self) -> usize {
        self.bucket_count as usize
    }
}

impl Index<u32> for BucketMemory {
    type Output = Bucket;

    #[cfg(not(loom))]
    #[inline]
    fn index(&self, bucket: u32) -> &Bucket {
        assert!(bucket < self.bucket_count, "bucket ids stay below the count");
        // SAFETY: the mapping holds `bucket_count` buckets and this one is below (asserted).
        let bucket = unsafe { self.mapping.as_ptr().cast::<Bucket>().add(bucket as usize) };
        // SAFETY: zeroed memory is a valid bucket (only atomics), aligned to a page, and lives
        // as long as `self`; buckets are only ever touched through their atomics.
        unsafe { &*bucket }
    }

    #[cfg(loom)]
    fn index(&self, bucket: u32) -> &Bucket {
        &self.buckets[bucket as usize]
    }
}
