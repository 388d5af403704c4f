//! Which operations a workload has, and in what shares.
//!
//! The YCSB core workloads (Cooper et al., SoCC 2010, table 2):
//!
//! | name | operations | keys |
//! |---|---|---|
//! | A | 50 % read, 50 % update | zipf |
//! | B | 95 % read, 5 % update | zipf |
//! | C | 100 % read | zipf |
//! | D | 95 % read, 5 % insert | the latest inserted are read most |
//! | E | 95 % range scan, 5 % insert | refused: a hash index has no order |
//! | F | 50 % read, 50 % read-modify-write | zipf |

use std::fmt;
use std::str::FromStr;

use crate::WorkloadError;
use crate::popularity::Popularity;

/// A workload by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Reads only.
    Get,
    /// Writes only.
    Set,
    /// Update heavy.
    YcsbA,
    /// Read mostly.
    YcsbB,
    /// Read only.
    YcsbC,
    /// Read latest.
    YcsbD,
    /// Short ranges; needs an ordered index.
    YcsbE,
    /// Read-modify-write.
    YcsbF,
}

const NAMES: [(&str, Preset); 8] = [
    ("get", Preset::Get),
    ("set", Preset::Set),
    ("ycsb-a", Preset::YcsbA),
    ("ycsb-b", Preset::YcsbB),
    ("ycsb-c", Preset::YcsbC),
    ("ycsb-d", Preset::YcsbD),
    ("ycsb-e", Preset::YcsbE),
    ("ycsb-f", Preset::YcsbF),
];

impl FromStr for Preset {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Preset, WorkloadError> {
        let named = NAMES.iter().find(|(name, _)| *name == text);
        named
            .map(|(_, preset)| *preset)
            .ok_or_else(|| WorkloadError::UnknownPreset { text: text.to_owned() })
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, preset)| preset == self);
        formatter.write_str(named.map_or("", |(name, _)| name))
    }
}

impl Preset {
    /// The shares of its operations.
    pub fn mix(self) -> Result<Mix, WorkloadError> {
        let mix =
            Mix { read: 0, update: 0, insert: 0, read_modify_write: 0, reads: Reads::Popular };
        match self {
            Preset::Get | Preset::YcsbC => Ok(Mix { read: 100, ..mix }),
            Preset::Set => Ok(Mix { update: 100, ..mix }),
            Preset::YcsbA => Ok(Mix { read: 50, update: 50, ..mix }),
            Preset::YcsbB => Ok(Mix { read: 95, update: 5, ..mix }),
            Preset::YcsbD => Ok(Mix { read: 95, insert: 5, reads: Reads::Latest, ..mix }),
            Preset::YcsbE => Err(WorkloadError::NeedsOrderedIndex),
            Preset::YcsbF => Ok(Mix { read: 50, read_modify_write: 50, ..mix }),
        }
    }

    /// The popularity that a run uses unless told otherwise.
    pub fn popularity(self) -> Popularity {
        match self {
            Preset::Get | Preset::Set => Popularity::Uniform,
            _ => Popularity::Zipf { exponent: 0.99 },
        }
    }
}

/// Which keys reads choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By popularity, wherever the key is.
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
    /// Which keys reads choose.
    pub reads: Reads,
}

impl Mix {
    /// The sum of all weights, never 0.
    pub fn total(&self) -> u32 {
        self.read + self.update + self.insert + self.read_modify_write
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
        Ok(Mix { read, update, insert: 0, read_modify_write: 0, reads: Reads::Popular })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_as_they_print() {
        for (name, preset) in NAMES {
            assert_eq!(name.parse(), Ok(preset));
            assert_eq!(preset.to_string(), name);
        }
        assert!("ycsb-g".parse::<Preset>().is_err());
    }

    #[test]
    fn range_scans_name_the_index_they_need() {
        let refused = Preset::YcsbE.mix().unwrap_err().to_string();
        assert!(refused.contains("ordered index") && !refused.contains('\n'), "{refused}");
    }

    #[test]
    fn ratios_are_two_weights() {
        let mix: Mix = "95:5".parse().unwrap();
        assert_eq!((mix.read, mix.update, mix.total()), (95, 5, 100));
        for text in ["", "95", "0:0", "a:b", "-1:2", "1:2:3"] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
    }
}
