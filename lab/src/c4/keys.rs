//! The keys of requests: ranks by popularity, and the partition of each rank.

use std::sync::{Arc, Mutex};

use base::PartitionId;
use workload::scramble::mix;

use super::artifact::{self, BUCKET_COUNT};

/// Distribution of ranks by inversion: the artifact's way, exact for its uniform draws.
#[derive(Debug)]
pub struct InverseTable {
    cumulative: Vec<f64>,
    /// `guide[g]`: how many entries are at most `g / guide_count`; the search starts there.
    guide: Vec<u32>,
}

impl InverseTable {
    /// Rank `r` from 0 in proportion to `1 / (r + 1)^exponent`.
    pub fn new(exponent: f64, key_count: u64) -> InverseTable {
        let weight = |rank: u64| ((rank + 1) as f64).powf(-exponent);
        let total: f64 = (0..key_count).map(weight).sum();
        let mut sum = 0.0;
        let cumulative: Vec<f64> = (0..key_count)
            .map(|rank| {
                sum += weight(rank) / total;
                sum
            })
            .collect();
        let guide_count = key_count.next_power_of_two().min(1 << 20);
        let at_most = |bound: f64| cumulative.partition_point(|entry| *entry <= bound) as u32;
        let guide = (0..=guide_count).map(|g| at_most(g as f64 / guide_count as f64)).collect();
        InverseTable { cumulative, guide }
    }

    /// The same table again for the same arguments: figures share one over their points.
    pub fn shared(exponent: f64, key_count: u64) -> Arc<InverseTable> {
        static LAST: Mutex<Vec<(u64, u64, Arc<InverseTable>)>> = Mutex::new(Vec::new());
        const KEPT_MAX: usize = 8;
        let name = (exponent.to_bits(), key_count);
        let mut kept = LAST.lock().expect("no thread panics with the lock");
        if let Some((.., table)) = kept.iter().find(|entry| (entry.0, entry.1) == name) {
            return table.clone();
        }
        let table = Arc::new(InverseTable::new(exponent, key_count));
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push((name.0, name.1, table.clone()));
        table
    }

    /// How many entries are at most `unit`: Python's `bisect_right`.
    #[inline]
    pub fn rank(&self, unit: f64) -> u64 {
        let cell = (unit * (self.guide.len() - 1) as f64) as usize;
        let (low, high) = (self.guide[cell] as usize, self.guide[cell + 1] as usize);
        let within = &self.cumulative[low..high];
        let rank = low + within.partition_point(|entry| *entry <= unit);
        rank.min(self.cumulative.len() - 1) as u64
    }
}

/// From a rank to its partition.
#[derive(Clone, Copy, Debug)]
pub enum KeyMap {
    /// The artifact's table.
    Artifact(&'static [u32]),
    /// Hashed under a seed.
    Hashed {
        /// Another seed puts other hot keys on one core.
        seed: u64,
    },
}

impl KeyMap {
    /// The artifact's.
    pub fn artifact() -> KeyMap {
        KeyMap::Artifact(artifact::buckets())
    }

    /// The partition of the key with that rank.
    #[inline]
    pub fn partition(&self, rank: u64) -> PartitionId {
        match self {
            KeyMap::Artifact(buckets) => PartitionId(buckets[rank as usize]),
            KeyMap::Hashed { seed } => {
                PartitionId(mix(rank.wrapping_add(mix(*seed))) as u32 % BUCKET_COUNT)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InverseTable;

    #[test]
    fn ranks_are_those_of_a_search_through_the_whole_table() {
        for (exponent, key_count) in [(0.0, 7), (0.99, 1000), (1.4, 100_000), (0.9, 1)] {
            let table = InverseTable::new(exponent, key_count);
            for step in 0..10_000 {
                let unit = f64::from(step) / 10_000.0;
                let slow = table.cumulative.partition_point(|entry| *entry <= unit);
                assert_eq!(table.rank(unit), slow.min(key_count as usize - 1) as u64);
            }
        }
    }
}
