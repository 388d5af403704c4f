//! Named workloads from papers and traces, for the load generator, the simulator and the capacity
//! planner alike.
//!
//! ```text
//!  "minos", "zippydb", "twitter-12" ──▶ Profile ─┬─ draw(key_count, seed) ──────▶ Draw ──▶ Trace
//!                                                ├─ value_sizes(key_count) ─────▶ ValueSizes
//!                                                └─ requests(key_count, seed) ──▶ Request, ...
//! ```
//!
//! Where a source leaves something open, the profile fills it in and says so in [`Profile::about`]:
//!
//! - Facebook's three stores: the means are those that Rowan-KV §2.1 quotes; values follow the
//!   generalized Pareto shape that the same characterization (Cao et al., FAST 2020) fits to UDB's
//!   largest column family (RocksDB's `mixgraph` defaults to it), scaled to each store's mean.
//! - Twitter's clusters publish means: values follow the generalized Pareto shape of Facebook's ETC
//!   cache (Atikoglu et al., SIGMETRICS 2012), scaled. All keys have the mean length.
//! - ETC's largest value is not in μTPS §5.2.2: 8 KiB, which makes the mean the 256 B that it
//!   compares ETC with.
//!
//! # Invariants
//! P1: every listed name parses, to a profile of that name.
//! P2: a profile's sizes have the mean that its source states.

mod papers;

use std::str::FromStr;

use crate::mix::Mix;
use crate::popularity::Popularity;
use crate::request::{Draw, Requests};
use crate::sizes::ValueSizes;
use crate::twitter::Ttl;
use crate::{WorkloadError, twitter};

pub use papers::{MINOS_KEYS, MINOS_LARGE_KEYS, Minos};

/// A named workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name on the command line.
    pub name: String,
    /// One line: the description, and the assumptions where the source is silent.
    pub about: String,
    /// The paper and section, or the trace.
    pub source: &'static str,
    /// Number of keys in the source; `None`: it gives none, any number will do.
    pub source_key_count: Option<u64>,
    /// The popularity of keys.
    pub popularity: Popularity,
    /// Length of every key.
    pub key_len_bytes: usize,
    /// Shares of operations.
    pub mix: Mix,
    /// Lifetimes of written items and their shares; empty: they stay.
    pub ttls: Vec<Ttl>,
    /// Lengths of the values of all keys, or of all but the rare ones.
    regular_sizes: ValueSizes,
    /// Lengths of the rare keys' values.
    large_sizes: Option<ValueSizes>,
}

impl Profile {
    /// The parameters for drawing a trace over `key_count` keys.
    pub fn draw(&self, key_count: u64, seed: u64) -> Draw {
        Draw { mix: self.mix, popularity: self.popularity, key_count, seed }
    }

    /// The lengths of the values of `key_count` keys.
    pub fn value_sizes(&self, key_count: u64) -> ValueSizes {
        match (&self.large_sizes, self.popularity) {
            (Some(large), Popularity::ZipfBesideRare { rare, .. }) if key_count > 1 => {
                let first_large_id = key_count - rare.count_of(key_count);
                self.regular_sizes.clone().with_large(large.clone(), first_large_id, key_count)
            }
            _ => self.regular_sizes.clone(),
        }
    }

    /// Draws requests one by one, without a trace in memory.
    pub fn requests(&self, key_count: u64, seed: u64) -> Requests {
        Requests::new(&self.draw(key_count, seed), self.value_sizes(key_count))
    }

    /// Mean key and value bytes of the items that are stored.
    pub fn item_mean_bytes(&self) -> f64 {
        // Any large number shows the shares of rare and other keys.
        let value_mean_bytes = self.value_sizes(1 << 30).len_mean_bytes();
        self.key_len_bytes as f64 + value_mean_bytes
    }

    /// Every name, in the order of the documentation.
    pub fn names() -> Vec<String> {
        let clusters =
            (1..=twitter::CLUSTERS).filter(|number| twitter::Cluster::of(*number).is_ok());
        let named = papers::NAMES.iter().map(|name| (*name).to_owned());
        named.chain(clusters.map(|number| format!("twitter-{number}"))).collect()
    }
}

impl FromStr for Profile {
    type Err = WorkloadError;

    fn from_str(name: &str) -> Result<Profile, WorkloadError> {
        if let Some(profile) = papers::named(name) {
            return Ok(profile);
        }
        let number = name.strip_prefix("twitter-").and_then(|number| number.parse().ok());
        if let Some(number) = number.filter(|number| (1..=twitter::CLUSTERS).contains(number)) {
            return Ok(papers::twitter(&twitter::Cluster::of(number)?));
        }
        let known =
            format!("{}, twitter-1 to twitter-{}", papers::NAMES.join(", "), twitter::CLUSTERS);
        Err(WorkloadError::UnknownWorkload { text: name.to_owned(), known })
    }
}

#[cfg(test)]
mod tests;
