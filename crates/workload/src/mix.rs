//! The operations of a workload and their shares.
//!
//! The YCSB core workloads (Cooper et al., SoCC 2010, table 2):
//!
//! | name | operations | keys |
//! |---|---|---|
//! | A | 50 % read, 50 % update | zipf |
//! | B | 95 % read, 5 % update | zipf |
//! | C | 100 % read | zipf |
//! | D | 95 % read, 5 % insert | the latest inserted are read most |
//! | E | 95 % range scan, 5 % insert | zipf |
//! | F | 50 % read, 50 % read-modify-write | zipf |

use std::str::FromStr;

use crate::WorkloadError;

/// The longest scan that a trace entry can encode.
pub const SCAN_KEYS_MAX: u64 = 255;

/// The number of keys per scan: uniform between two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanKeys {
    /// The shortest, at least 1.
    pub min: u64,
    /// The longest, at most [`SCAN_KEYS_MAX`].
    pub max: u64,
}

impl ScanKeys {
    /// YCSB's own range; μTPS §5.2.1 says 50 on average.
    pub const YCSB: ScanKeys = ScanKeys { min: 1, max: 100 };
}

impl FromStr for ScanKeys {
    type Err = WorkloadError;

    /// `KEYS` or `LOW-HIGH`.
    fn from_str(text: &str) -> Result<ScanKeys, WorkloadError> {
        let error = || WorkloadError::BadScanKeys { text: text.to_owned() };
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let count = |text: &str| text.trim().parse::<u64>().map_err(|_| error());
        let (min, max) = (count(min)?, count(max)?);
        let is_usable = min >= 1 && min <= max && max <= SCAN_KEYS_MAX;
        if is_usable { Ok(ScanKeys { min, max }) } else { Err(error()) }
    }
}

/// The keys that reads choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By popularity, regardless of age.
    Popular,
    /// Popularity counts back from the newest key.
    Latest,
}

/// Shares of operations, as weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Reads of one key.
    pub read: u32,
    /// Rewrites of an existing key.
    pub update: u32,
    /// Writes of a new key.
    pub insert: u32,
    /// A read and then a write of the same key, counted as one operation.
    pub read_modify_write: u32,
    /// Reads of a range of keys from one key on.
    pub scan: u32,
    /// The number of keys per scan.
    pub scan_keys: ScanKeys,
    /// The keys that reads choose.
    pub reads: Reads,
}

impl Mix {
    /// No operation at all: the base for building a mix.
    pub(crate) const NOTHING: Mix = Mix {
        read: 0,
        update: 0,
        insert: 0,
        read_modify_write: 0,
        scan: 0,
        scan_keys: ScanKeys::YCSB,
        reads: Reads::Popular,
    };

    /// Reads and rewrites of single keys.
    ///
    /// # Panics
    /// When both weights are 0.
    pub const fn reads_to_updates(read: u32, update: u32) -> Mix {
        assert!(read > 0 || update > 0, "a mix needs an operation");
        Mix { read, update, ..Mix::NOTHING }
    }

    /// The sum of all weights, never 0.
    pub fn total(&self) -> u32 {
        self.read + self.update + self.insert + self.read_modify_write + self.scan
    }

    /// The share of operations that write: a read-modify-write does.
    pub fn write_share(&self) -> f64 {
        f64::from(self.update + self.insert + self.read_modify_write) / f64::from(self.total())
    }
}

impl FromStr for Mix {
    type Err = WorkloadError;

    /// `READS:WRITES`; writes are updates.
    fn from_str(text: &str) -> Result<Mix, WorkloadError> {
        let error = || WorkloadError::BadRatio { text: text.to_owned() };
        let (read, update) = text.split_once(':').ok_or_else(error)?;
        let weight = |text: &str| text.trim().parse::<u32>().ok().filter(|found| *found <= 1 << 20);
        let (read, update) = (weight(read).ok_or_else(error)?, weight(update).ok_or_else(error)?);
        if read + update == 0 {
            return Err(error());
        }
        Ok(Mix::reads_to_updates(read, update))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_lengths_are_a_count_or_a_range() {
        assert_eq!("50".parse(), Ok(ScanKeys { min: 50, max: 50 }));
        assert_eq!("1-100".parse(), Ok(ScanKeys::YCSB));
        for text in ["", "0", "5-4", "1-256", "x", "1-"] {
            assert!(text.parse::<ScanKeys>().is_err(), "{text}");
        }
    }

    #[test]
    fn ratios_are_two_weights() {
        let mix: Mix = "95:5".parse().unwrap();
        assert_eq!((mix.read, mix.update, mix.total()), (95, 5, 100));
        assert_eq!(mix.write_share(), 0.05);
        for text in ["", "95", "0:0", "a:b", "-1:2", "1:2:3"] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
    }
}
