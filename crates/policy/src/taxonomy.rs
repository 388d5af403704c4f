//! Places a workload in C-4's taxonomy, and names the policy that suits it.
//!
//! ```text
//!  writes
//!  100 % ┌──────────────┬──────────────┐
//!        │    WI_uni    │    WI_sk     │   left:  d-CREW balances independent writes
//!   50 % ├──────────────┤ ─ ─ ─ ─ ─ ─ ─│   right: compaction takes dependent writes together
//!        │    RW_uni    │    RW_sk     │
//!    5 % ├──────────────┤         ─────┤ ◀─ the hottest key's writes are half of a worker's share
//!        │    R_uni     │ R_sk ───     │
//!    0 % └──────────────┴──────────────┘
//!         uniform            skewed        skewed: Zipf exponent >= 0.9, or one key >= 1/N
//! ```
//!
//! # Where the lines come from
//! - 50 % writes: "WI_uni, e.g. those with at least 50 % writes" (C-4 §2.1).
//! - RW_sk: the write load on the hottest partition is about 1/N of all requests, N workers (C-4
//!   §3.2). C-4's own examples (exponent 1.25 or 1.4, 5 % writes, 64 workers) lie at 0.71 and 1.04
//!   of 1/N, so "about" begins at half of 1/N here. A skewed workload below that line, and below 50
//!   % writes, is R_sk: no writer is overloaded.
//! - Exponent 0.9: the lowest that C-4 §3.2 studies as RW_sk. A popularity that is no Zipf
//!   distribution counts as skewed when one key alone draws a worker's share.
//! - 5 % writes: C-4 gives no number for "read-mostly". Ours is the usual 95 % GET (MICA §4.2).
//!
//! # References
//! C-4 §2.1 (Fig. 1), §3.1, §3.2, §7.1, §7.2.

use std::fmt;

use crate::routers::WritePolicy;

/// The share of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mix {
    /// R: read-mostly; no writer is overloaded.
    ReadMostly,
    /// RW: enough writes to overload the hottest key's writer, or to unbalance the workers.
    ReadWrite,
    /// WI: at least half are writes.
    WriteIntensive,
}

/// The distribution of popularity over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skew {
    /// uni: no key matters by itself.
    Uniform,
    /// sk: a few keys draw much of the load.
    Skewed,
    /// ?: the keys were not sampled.
    Unknown,
}

/// A region of the taxonomy; formatted as C-4 writes it: `RW_sk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The share of writes.
    pub mix: Mix,
    /// The distribution of popularity.
    pub skew: Skew,
}

/// The popularity of keys, estimated from samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Popularity {
    /// The share of all accesses that goes to the most popular key.
    pub hottest_share_ratio: f64,
    /// The exponent of the Zipf law that fits the popular keys; `None` if too few were seen often
    /// enough.
    pub zipf_exponent: Option<f64>,
}

/// Counters of a period of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Requests that read.
    pub read_count: u64,
    /// Requests that write.
    pub write_count: u64,
    /// Workers that share the load.
    pub worker_count: u32,
    /// The popularity of the keys; `None`: they were not sampled.
    pub popularity: Option<Popularity>,
}

/// C-4's recommendation for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// Which workers may write a key.
    pub write_policy: WritePolicy,
    /// Whether dependent writes are gathered; `None`: it depends on unknown facts.
    pub compaction: Option<Compaction>,
}

/// Whether dependent writes are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// They are gathered.
    On,
    /// Each is executed alone.
    Off,
}

/// From this share of writes on a workload is write-intensive (C-4 §2.1).
pub const WRITE_INTENSIVE_RATIO_MIN: f64 = 0.5;
/// Up to this share of writes a uniform workload is read-mostly.
pub const READ_MOSTLY_RATIO_MAX: f64 = 0.05;
/// From this exponent on popularity is skewed (C-4 §3.2).
pub const SKEWED_EXPONENT_MIN: f64 = 0.9;
/// From this multiple of 1/N on the hottest key's writes make a workload RW_sk (C-4 §3.2).
pub const HOT_WRITE_SHARES_MIN: f64 = 0.5;

/// Lower counts are too random to fit.
const FITTED_COUNT_MIN: u32 = 8;
/// Fewer keys than this are too few for a fit.
const FITTED_KEYS_MIN: usize = 8;

impl Popularity {
    /// Estimates popularity from the sampled counts of the most frequent keys, highest first, and
    /// the number of samples ([`crate::hot_set::HotSet::counts`] and `sampled_count` provide both).
    pub fn of(counts: impl IntoIterator<Item = u32>, sampled_count: u64) -> Popularity {
        let mut fit = Fit::default();
        let mut hottest_count = 0;
        for (index, count) in counts.into_iter().enumerate() {
            hottest_count = hottest_count.max(count);
            if count >= FITTED_COUNT_MIN {
                fit.add((index + 1) as f64, f64::from(count));
            }
        }
        Popularity {
            hottest_share_ratio: f64::from(hottest_count) / sampled_count.max(1) as f64,
            zipf_exponent: fit.exponent(),
        }
    }
}

/// Least squares of ln(count) over ln(rank), each point weighted by its count: the variance of the
/// logarithm of a random count is one over the count.
#[derive(Default)]
struct Fit {
    key_count: usize,
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    fn add(&mut self, rank: f64, count: f64) {
        let (x, y, weight) = (rank.ln(), count.ln(), count);
        self.key_count += 1;
        self.weight += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
    }

    fn exponent(&self) -> Option<f64> {
        let spread = self.weight * self.xx - self.x * self.x;
        let slope = (self.weight * self.xy - self.x * self.y) / spread;
        (self.key_count >= FITTED_KEYS_MIN).then_some(-slope)
    }
}

impl Observed {
    /// The share of requests that write; 0 without requests.
    pub fn write_ratio(&self) -> f64 {
        let request_count = (self.read_count + self.write_count).max(1);
        self.write_count as f64 / request_count as f64
    }

    /// The hottest key's writes, in multiples of one worker's share of all requests. Above 1 its
    /// writer is overloaded while others idle. 0 if the keys were not sampled.
    pub fn hot_write_shares(&self) -> f64 {
        let hottest_share_ratio = self.popularity.map_or(0.0, |seen| seen.hottest_share_ratio);
        let hot_write_ratio = self.write_ratio() * hottest_share_ratio;
        hot_write_ratio * f64::from(self.worker_count)
    }

    /// The workload's region.
    pub fn region(&self) -> Region {
        let skew = self.skew();
        let write_ratio = self.write_ratio();
        let is_read_mostly = match skew {
            Skew::Uniform | Skew::Unknown => write_ratio <= READ_MOSTLY_RATIO_MAX,
            Skew::Skewed => self.hot_write_shares() < HOT_WRITE_SHARES_MIN,
        };
        let mix = match (write_ratio >= WRITE_INTENSIVE_RATIO_MIN, is_read_mostly) {
            (true, _) => Mix::WriteIntensive,
            (false, true) => Mix::ReadMostly,
            (false, false) => Mix::ReadWrite,
        };
        Region { mix, skew }
    }

    fn skew(&self) -> Skew {
        let Some(Popularity { hottest_share_ratio, zipf_exponent }) = self.popularity else {
            return Skew::Unknown;
        };
        let is_law_skewed = zipf_exponent.is_some_and(|exponent| exponent >= SKEWED_EXPONENT_MIN);
        let one_key_fills_a_worker = hottest_share_ratio * f64::from(self.worker_count) >= 1.0;
        // With one worker, no key exceeds a worker's share, and nothing can be unbalanced.
        let is_skewed = is_law_skewed || (self.worker_count > 1 && one_key_fills_a_worker);
        if is_skewed { Skew::Skewed } else { Skew::Uniform }
    }
}

impl Region {
    /// C-4's recommendation for the region.
    ///
    /// Readers are concurrent everywhere, which is all that R needs (§2.1). Balancing writes lowers
    /// the tail of uniform workloads, more so the more they write (§7.1); compaction costs them 4
    /// of 91 MRPS and gains nothing. Skewed writes are dependent: they need compaction (§7.2),
    /// while the others are still balanced.
    pub fn recommendation(&self) -> Recommendation {
        let (write_policy, compaction) = match (self.mix, self.skew) {
            (Mix::ReadMostly, _) => (WritePolicy::Crew, Some(Compaction::Off)),
            (_, Skew::Uniform) => (WritePolicy::DCrew, Some(Compaction::Off)),
            (_, Skew::Skewed) => (WritePolicy::DCrew, Some(Compaction::On)),
            (_, Skew::Unknown) => (WritePolicy::DCrew, None),
        };
        Recommendation { write_policy, compaction }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mix = match self.mix {
            Mix::ReadMostly => "R",
            Mix::ReadWrite => "RW",
            Mix::WriteIntensive => "WI",
        };
        let skew = match self.skew {
            Skew::Uniform => "uni",
            Skew::Skewed => "sk",
            Skew::Unknown => "?",
        };
        write!(formatter, "{mix}_{skew}")
    }
}

impl fmt::Display for Recommendation {
    /// Formats the recommendation as settings.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_policy = self.write_policy;
        write!(formatter, "--write-policy {write_policy}")?;
        match self.compaction {
            Some(Compaction::On) => formatter.write_str(" --compaction on"),
            Some(Compaction::Off) => formatter.write_str(" --compaction off"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
