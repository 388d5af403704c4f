//! The items of a run: those of a workload, a dataset of the paper, single settings, or a mixture.

use workload::{Dataset, KeyFormat, Profile, ValueSizes, WorkloadError, values};

use crate::args::Args;
use crate::error::BenchError;

const KEYS_DEFAULT: u64 = 1_000_000;

/// A server's memory unless `--memory` says otherwise; half of it is for a dataset's or a
/// workload's items, so that none is evicted.
const SERVER_MEMORY_BYTES: u64 = 1 << 30;

/// Bytes that a store needs for an item beyond its key and value, as for datasets.
const OVERHEAD_BYTES: f64 = 64.0;

/// Number, key length and value sizes of a run's items.
#[derive(Debug, PartialEq)]
pub(crate) struct Items {
    pub key_count: u64,
    pub key_len_bytes: usize,
    pub value_sizes: ValueSizes,
}

impl Items {
    /// The items of `args`; values that they leave open come from the dataset, and then from the
    /// profile.
    pub(crate) fn new(args: &Args, profile: &Profile) -> Result<Items, BenchError> {
        let dataset: Option<Dataset> =
            args.dataset.as_deref().map(str::parse).transpose().map_err(usage)?;
        let memory_bytes = args.memory.map_or(SERVER_MEMORY_BYTES, |size| size.bytes) / 2;
        let key_count = match dataset {
            Some(dataset) => dataset.item_count_in(memory_bytes),
            None => profile_key_count(profile, memory_bytes),
        };
        let key_count = args.keys.unwrap_or(key_count);
        let key_len_bytes = dataset.map_or(profile.key_len_bytes, |dataset| dataset.key_len_bytes);
        let value_sizes = match (&args.value_size, dataset) {
            (Some(text), _) => text.parse().map_err(usage)?,
            (None, Some(dataset)) => ValueSizes::fixed(dataset.value_len_bytes),
            (None, None) => profile.value_sizes(key_count),
        };
        let key_len_bytes = args.key_size.map_or(key_len_bytes, |size| size.bytes as usize);
        Ok(Items { key_count, key_len_bytes, value_sizes })
    }
}

/// The source's number of keys, or as many as fit.
fn profile_key_count(profile: &Profile, memory_bytes: u64) -> u64 {
    let Some(source_key_count) = profile.source_key_count else { return KEYS_DEFAULT };
    let fitting = memory_bytes as f64 / (profile.item_mean_bytes() + OVERHEAD_BYTES);
    (fitting as u64).clamp(1, source_key_count)
}

fn usage(error: WorkloadError) -> BenchError {
    BenchError::usage(error.to_string())
}

/// One in this many of a scan's items is checked against its key; of the others every byte is read.
/// Computing the id from the key costs more than finding the item did.
pub(crate) const SCAN_CHECK_EVERY: u64 = 16;

/// Whether a scan's item was written by this run: its value is that of its key.
pub(crate) fn is_right(format: &KeyFormat, sizes: &ValueSizes, key: &[u8], value: &[u8]) -> bool {
    let Some(id) = format.id_of(key) else { return false };
    value.len() == sizes.len_of(id) && values::check(id, value).is_some()
}

/// Values up to this many bytes are small: with its headers one fits a packet (Minos §5.3).
const SMALL_MAX_BYTES: usize = 1400;

/// Whether the value of `id` counts as large.
#[inline]
pub(crate) fn is_large(sizes: &ValueSizes, id: u64) -> bool {
    sizes.len_max_bytes() > SMALL_MAX_BYTES && sizes.len_of(id) > SMALL_MAX_BYTES
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn items(line: &str) -> Result<Items, BenchError> {
        let args = Line::parse_from(line.split_whitespace()).args;
        let name = args.workload.as_deref().unwrap_or("get");
        Items::new(&args, &name.parse().unwrap())
    }

    #[track_caller]
    fn check(line: &str, key_count: u64, key_len_bytes: usize, value_size: &str) {
        let found = items(line).unwrap();
        assert_eq!((found.key_count, found.key_len_bytes), (key_count, key_len_bytes), "{line}");
        assert_eq!(found.value_sizes.to_string(), value_size, "{line}");
    }

    #[test]
    fn single_settings_win_over_the_dataset_and_the_dataset_over_the_workload() {
        check("bench", 1_000_000, 16, "64");
        check("bench --memory 64MiB", 1_000_000, 16, "64");
        check("bench --dataset large", (512 << 20) / (128 + 1024 + 64), 128, "1024");
        check("bench --dataset tiny --keys 5 --value-size 9", 5, 8, "9");
        check("bench --dataset tiny --memory 1TiB", 192 << 20, 8, "8");
        check("bench --workload udb --dataset tiny --keys 5", 5, 8, "8");
        check("bench --workload up2x --keys 5 --key-size 12", 5, 12, "pareto:47.25:0.2615");
    }

    #[test]
    fn workloads_shrink_to_memory_and_never_grow_past_their_source() {
        let fitting = ((512 << 20) as f64 / (90.8 + 64.0)) as u64;
        let found = items("bench --workload zippydb").unwrap().key_count;
        assert!(found.abs_diff(fitting) < fitting / 1000, "{found} {fitting}");
        assert_eq!(items("bench --workload zippydb --memory 1TiB").unwrap().key_count, 200_000_000);
        let minos = items("bench --workload minos").unwrap();
        let large = (0..minos.key_count).filter(|id| minos.value_sizes.len_of(*id) > 1400).count();
        assert_eq!(large as u64, (minos.key_count as f64 / 1600.0).round() as u64);
    }

    #[test]
    fn an_unknown_dataset_is_a_usage_error() {
        assert_eq!(items("bench --dataset huge").unwrap_err().exit_code(), 2);
    }
}
