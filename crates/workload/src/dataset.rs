//! The item sets of MICA's evaluation (MICA §4.2, Table 3; mission row M8), scaled to memory.

use std::str::FromStr;

use crate::WorkloadError;

/// The number of items and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The name on the command line.
    pub name: &'static str,
    /// The number of items in the paper.
    pub paper_item_count: u64,
    /// Length of every key.
    pub key_len_bytes: usize,
    /// Length of every value.
    pub value_len_bytes: usize,
}

const MEBI: u64 = 1 << 20;

/// Bytes that a store needs for an item beyond its key and value: header, padding and index.
const OVERHEAD_BYTES: u64 = 64;

/// Table 3.
pub const DATASETS: [Dataset; 4] = [
    Dataset { name: "tiny", paper_item_count: 192 * MEBI, key_len_bytes: 8, value_len_bytes: 8 },
    Dataset { name: "small", paper_item_count: 128 * MEBI, key_len_bytes: 16, value_len_bytes: 64 },
    Dataset {
        name: "large",
        paper_item_count: 8 * MEBI,
        key_len_bytes: 128,
        value_len_bytes: 1024,
    },
    Dataset {
        name: "x-large",
        paper_item_count: 8 * MEBI,
        key_len_bytes: 250,
        value_len_bytes: 1152,
    },
];

impl Dataset {
    /// The paper's count, or as many items as fit into `memory_bytes` with their overhead.
    pub fn item_count_in(&self, memory_bytes: u64) -> u64 {
        let item_bytes = (self.key_len_bytes + self.value_len_bytes) as u64 + OVERHEAD_BYTES;
        (memory_bytes / item_bytes).clamp(1, self.paper_item_count)
    }
}

impl FromStr for Dataset {
    type Err = WorkloadError;

    fn from_str(name: &str) -> Result<Dataset, WorkloadError> {
        let found = DATASETS.into_iter().find(|dataset| dataset.name == name);
        found.ok_or_else(|| WorkloadError::UnknownDataset { text: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_shrink_to_memory_and_never_grow_past_the_paper() {
        let tiny: Dataset = "tiny".parse().unwrap();
        assert_eq!(tiny.item_count_in(800 << 20), 10 * MEBI);
        assert_eq!(tiny.item_count_in(1 << 50), 192 * MEBI);
        assert_eq!(tiny.item_count_in(0), 1);
    }

    #[test]
    fn the_table_is_the_papers() {
        let bytes = DATASETS.map(|dataset| {
            let (key, value) = (dataset.key_len_bytes as u64, dataset.value_len_bytes as u64);
            dataset.paper_item_count * (key + value)
        });
        assert_eq!(bytes, [3 << 30, 10 << 30, 9 << 30, 8 * MEBI * 1402]);
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = "huge".parse::<Dataset>().unwrap_err().to_string();
        assert_eq!(error, "`huge` is no dataset: write tiny, small, large or x-large");
    }
}
