//! The share of a skewed workload on each partition, and how much of it is served from a cache.
//!
//! Keys go to partitions by a seeded hash. The hottest `HEAD_KEYS` are placed one by one; the
//! rest, each below a millionth of the load, are spread evenly (their own spread would move a
//! partition's load by less than 0.1 %).
//!
//! # References
//! MICA (ISCA 2015) §6.2; the population is Table 3's tiny dataset.

use workload::scramble::mix;

/// Keys of the tiny dataset: 192 Mi.
pub const KEYS: f64 = (192_u64 << 20) as f64;

/// The exponent of every skewed workload in the paper.
pub const EXPONENT: f64 = 0.99;

const HEAD_KEYS: u64 = 1 << 18;

/// How requests spread over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// Every key alike.
    Uniform,
    /// Zipf 0.99: the hottest key has 4.62 % of the load, 9.3 million times the average.
    Zipf,
    /// Zipf 0.99, but the hottest key has [`STATED_HOTTEST_SHARE`]: the only way to the loads that
    /// the paper states for 120 and 240 partitions.
    ZipfAsStated,
}

/// The paper's hottest partitions have 1.97, 5.8 and 10.6 times the mean on 24, 120 and 240
/// partitions: all three are `1 + 0.0402 n` within rounding, a key of 4 % and even rest.
pub const STATED_HOTTEST_SHARE: f64 = 0.0402;

/// The load of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartitionLoad {
    /// The partition's share of all requests.
    pub share: f64,
    /// The share of the partition's requests for its hottest keys, as many as a cache holds.
    pub cached_share: f64,
}

/// The loads of all partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads {
    /// The loads, by partition.
    pub partitions: Vec<PartitionLoad>,
    /// The share of all requests for the hottest keys of all partitions together, as many as one
    /// cache holds: the part that a core keeps if it reads keys of every partition.
    pub shared_cached_share: f64,
}

impl Loads {
    /// Partitions from the one with the most load to the one with the least.
    pub fn hottest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.partitions.len()).collect();
        let share = |partition: &usize| self.partitions[*partition].share;
        order.sort_by(|a, b| share(b).total_cmp(&share(a)));
        order
    }

    /// The hottest partition's load over the mean.
    pub fn hottest_over_mean(&self) -> f64 {
        let hottest = self.partitions.iter().map(|load| load.share).fold(0.0, f64::max);
        hottest * self.partitions.len() as f64
    }
}

/// The shares of all keys, from which loads on any number of partitions follow.
#[derive(Clone, Debug)]
pub struct Population {
    /// The shares of the hottest keys; empty if all keys are alike.
    head_shares: Vec<f64>,
    /// A key of rank `r` (from 1) behind the hottest has `scale * r^-0.99`.
    scale: f64,
}

impl Population {
    /// All keys under a skew.
    pub fn new(skew: Skew) -> Population {
        let hottest_share = match skew {
            Skew::Uniform => return Population { head_shares: Vec::new(), scale: 0.0 },
            Skew::Zipf => 1.0 / harmonic(KEYS),
            Skew::ZipfAsStated => STATED_HOTTEST_SHARE,
        };
        let scale = (1.0 - hottest_share) / (harmonic(KEYS) - 1.0);
        let share = |rank: u64| match rank {
            1 => hottest_share,
            _ => scale * (rank as f64).powf(-EXPONENT),
        };
        Population { head_shares: (1..=HEAD_KEYS).map(share).collect(), scale }
    }

    /// The loads on `partition_count` partitions with caches of `cache_keys` keys each.
    pub fn loads(&self, partition_count: usize, cache_keys: u64, hash_seed: u64) -> Loads {
        if self.head_shares.is_empty() {
            return uniform(partition_count, cache_keys);
        }
        let mut found = vec![Partition::default(); partition_count];
        for (rank, share) in self.head_shares.iter().enumerate() {
            let partition = &mut found[partition_of(rank as u64, hash_seed, partition_count)];
            partition.share += share;
            if partition.key_count < cache_keys {
                partition.cached += share;
            }
            partition.key_count += 1;
        }
        let count = partition_count as f64;
        let head = HEAD_KEYS as f64;
        let finish = |partition: Partition| {
            let share = partition.share + self.between(head, KEYS) / count;
            let room = cache_keys.saturating_sub(partition.key_count) as f64;
            let cached = partition.cached + self.between(head, head + room * count) / count;
            PartitionLoad { share, cached_share: cached / share }
        };
        let shared_cached_share = self.head_shares[0] + self.between(1.0, cache_keys as f64);
        Loads { partitions: found.into_iter().map(finish).collect(), shared_cached_share }
    }

    /// The share of the keys behind rank `from`, to rank `to`.
    fn between(&self, from: f64, to: f64) -> f64 {
        self.scale * (harmonic(to.clamp(from, KEYS)) - harmonic(from))
    }
}

fn uniform(partition_count: usize, cache_keys: u64) -> Loads {
    let count = partition_count as f64;
    let cached_share = (cache_keys as f64 * count / KEYS).min(1.0);
    let load = PartitionLoad { share: 1.0 / count, cached_share };
    Loads { partitions: vec![load; partition_count], shared_cached_share: cached_share / count }
}

#[derive(Clone, Copy, Debug, Default)]
struct Partition {
    share: f64,
    cached: f64,
    key_count: u64,
}

/// The partition of the key of a rank.
pub fn partition_of(rank: u64, hash_seed: u64, partition_count: usize) -> usize {
    let hash = mix(mix(hash_seed).wrapping_add(rank));
    ((u128::from(hash) * partition_count as u128) >> 64) as usize
}

/// The sum of `k^-0.99` to `key_count`: exact to 1000, then Euler-Maclaurin.
pub fn harmonic(key_count: f64) -> f64 {
    const EXACT: f64 = 1000.0;
    let head = (1..=key_count.min(EXACT) as u64).map(|rank| (rank as f64).powf(-EXPONENT));
    let head: f64 = head.sum();
    if key_count <= EXACT {
        return head;
    }
    let power = |point: f64| point.powf(1.0 - EXPONENT) / (1.0 - EXPONENT);
    let ends = (key_count.powf(-EXPONENT) - EXACT.powf(-EXPONENT)) / 2.0;
    head + power(key_count) - power(EXACT) + ends
}
