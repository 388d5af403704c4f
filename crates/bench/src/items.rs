//! Which items a run uses: a dataset of the paper, single settings, or both.

use workload::Dataset;

use crate::args::Args;
use crate::error::BenchError;

const KEYS_DEFAULT: u64 = 1_000_000;
const KEY_LEN_DEFAULT_BYTES: usize = 16;
const VALUE_SIZE_DEFAULT: &str = "64";

/// A server's memory unless `--memory` says otherwise; half of it is for a dataset's items, so
/// that none is evicted.
const SERVER_MEMORY_BYTES: u64 = 1 << 30;

/// Number, key length and value sizes (as `ValueSizes` reads them) of a run's items.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Items {
    pub key_count: u64,
    pub key_len_bytes: usize,
    pub value_size: String,
}

impl Items {
    pub(crate) fn new(args: &Args) -> Result<Items, BenchError> {
        let dataset: Option<Dataset> = args
            .dataset
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(|error: workload::WorkloadError| BenchError::usage(error.to_string()))?;
        let memory_bytes = args.memory.map_or(SERVER_MEMORY_BYTES, |size| size.bytes);
        let key_count = dataset.map(|dataset| dataset.item_count_in(memory_bytes / 2));
        let key_len_bytes = dataset.map(|dataset| dataset.key_len_bytes);
        let value_size = dataset.map(|dataset| dataset.value_len_bytes.to_string());
        let key_size = args.key_size.map(|size| size.bytes as usize);
        Ok(Items {
            key_count: args.keys.or(key_count).unwrap_or(KEYS_DEFAULT),
            key_len_bytes: key_size.or(key_len_bytes).unwrap_or(KEY_LEN_DEFAULT_BYTES),
            value_size: args
                .value_size
                .clone()
                .or(value_size)
                .unwrap_or_else(|| VALUE_SIZE_DEFAULT.to_owned()),
        })
    }
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

    #[track_caller]
    fn check(line: &str, key_count: u64, key_len_bytes: usize, value_size: &str) {
        let args = Line::parse_from(line.split_whitespace()).args;
        let want = Items { key_count, key_len_bytes, value_size: value_size.to_owned() };
        assert_eq!(Items::new(&args).unwrap(), want, "{line}");
    }

    #[test]
    fn single_settings_win_over_the_dataset_and_the_dataset_over_the_defaults() {
        check("bench", 1_000_000, 16, "64");
        check("bench --dataset large", (512 << 20) / (128 + 1024 + 64), 128, "1024");
        check("bench --dataset tiny --keys 5 --value-size 9", 5, 8, "9");
        check("bench --dataset tiny --memory 1TiB", 192 << 20, 8, "8");
    }

    #[test]
    fn an_unknown_dataset_is_a_usage_error() {
        let args = Line::parse_from(["bench", "--dataset", "huge"]).args;
        let error = Items::new(&args).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
