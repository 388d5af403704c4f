//! Where a key's chain is, and in which partition.

use proptest::prelude::*;

use super::*;

/// Checks the first and the last hash of some heads: all others lie between them.
#[track_caller]
fn check_heads(index: &Index, heads: impl IntoIterator<Item = u32>) {
    let first_of = |head: u32| (u128::from(head) << 64).div_ceil(u128::from(index.head_count()));
    for head in heads {
        let first = KeyHash(first_of(head) as u64);
        let last = KeyHash((first_of(head + 1) - 1) as u64);
        assert_eq!((index.head_of(first), index.head_of(last)), (head, head));
        let partition_of = |hash: KeyHash| hash.partition(index.partition_bits());
        assert_eq!(partition_of(first), partition_of(last), "I4: head {head}");
    }
}

#[test]
fn every_chain_lies_in_one_partition() {
    for buckets in [8, 9, 43, 44, 1000, 4097, 65_535] {
        for lossy in [false, true] {
            let index = Index::new(buckets * BUCKET_BYTES, lossy).unwrap();
            check_heads(&index, 0..index.head_count());
        }
    }
}

proptest! {
    #[test]
    fn chains_of_an_index_of_any_size_lie_in_one_partition(
        buckets in 8..1_u64 << 24,
        places in prop::collection::vec(any::<u32>(), 20),
    ) {
        // Only mapped, never touched.
        let index = Index::new(buckets * BUCKET_BYTES, false).unwrap();
        check_heads(&index, places.iter().map(|place| place % index.head_count()));
        let given_up = buckets - buckets / POOL_SHARE - u64::from(index.head_count());
        prop_assert!(given_up * 16 <= buckets, "at most a sixteenth moves to the pool");
    }
}
