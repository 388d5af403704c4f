//! The requests for all presets: drawn once, so that presets differ in nothing else.

use std::collections::HashMap;

use base::ids::PartitionBits;
use base::{KeyHash, PartitionId};
use policy::Access;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::scramble::mix;

use crate::measure::{Batching, CostTable};

/// The least share of requests of a hot key. A hot key stays in a cache, so that it costs a line
/// transfer when another core has written it. A colder key comes from memory either way, and that
/// is in the measured times.
const HOT_SHARE: f64 = 1e-4;
const HOT_COUNT_MIN: u32 = 8;
/// Some workloads draw a key's size from the mix of its number: its owner is drawn from another.
const PARTITION_SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// One request of a workload, before any random draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its key, as any number.
    pub key: u64,
    /// What it does.
    pub access: Access,
    /// Key and value.
    pub size_bytes: u64,
}

/// One request with all its random draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Time since the previous request, in mean gaps.
    pub gap: f64,
    /// Its key, counted from 0.
    pub key: u32,
    /// Among the hot keys, if it is one.
    pub hot: Option<u32>,
    pub partition: PartitionId,
    pub access: Access,
    pub size_bytes: u64,
    /// Service time of the store alone.
    pub store_ns: f64,
    /// The position of the receiving worker, from 0 to below 1.
    pub receiver: f64,
}

/// All requests of a run.
#[derive(Debug)]
pub(super) struct Jobs {
    all: Vec<Job>,
    hot_key_count: usize,
    store_mean_ns: f64,
    store_max_ns: f64,
}

impl Jobs {
    /// Draws arrivals and service times for `items`.
    pub(super) fn draw(items: &[Item], costs: &CostTable, seed: u64) -> Jobs {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut key_ids = HashMap::new();
        let mut counts: Vec<u32> = Vec::new();
        for item in items {
            let key = *key_ids.entry(item.key).or_insert(counts.len() as u32);
            if key as usize == counts.len() {
                counts.push(0);
            }
            counts[key as usize] += 1;
        }
        let hot_min = ((items.len() as f64 * HOT_SHARE) as u32).max(HOT_COUNT_MIN);
        let mut hot_key_count = 0;
        let hot: Vec<Option<u32>> = counts
            .iter()
            .map(|count| {
                (*count >= hot_min).then(|| {
                    hot_key_count += 1;
                    hot_key_count - 1
                })
            })
            .collect();
        let mut draw = |item: &Item| {
            let key = key_ids[&item.key];
            Job {
                // 1 - [0, 1) is never 0, so the logarithm is finite.
                gap: -(1.0 - random.random::<f64>()).ln(),
                key,
                hot: hot[key as usize],
                partition: partition(item.key),
                access: item.access,
                size_bytes: item.size_bytes,
                store_ns: costs.service_ns(
                    item.access,
                    item.size_bytes,
                    Batching::Full,
                    &mut random,
                ),
                receiver: random.random(),
            }
        };
        let all: Vec<Job> = items.iter().map(&mut draw).collect();
        let store_sum_ns: f64 = all.iter().map(|job| job.store_ns).sum();
        let store_mean_ns = store_sum_ns / all.len().max(1) as f64;
        let store_max_ns = all.iter().map(|job| job.store_ns).fold(0.0, f64::max);
        Jobs { all, hot_key_count: hot_key_count as usize, store_mean_ns, store_max_ns }
    }

    pub(super) fn all(&self) -> &[Job] {
        &self.all
    }

    pub(super) fn hot_key_count(&self) -> usize {
        self.hot_key_count
    }

    pub(super) fn store_mean_ns(&self) -> f64 {
        self.store_mean_ns
    }

    pub(super) fn store_max_ns(&self) -> f64 {
        self.store_max_ns
    }
}

/// One of 2^20: as many as C-4 §6 has buckets.
fn partition(key: u64) -> PartitionId {
    KeyHash(mix(key.wrapping_add(PARTITION_SALT))).partition(PartitionBits::MAX)
}
