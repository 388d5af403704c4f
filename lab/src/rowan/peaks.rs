//! The shared part of Figs 9, 11, 13 and Table 2: throughput and latency by number of clients.
//!
//! Latency at saturation grows with the number of clients. So the peak is taken at the smallest
//! number of clients that reaches nine tenths of the highest throughput.

use workload::Profile;

use super::costs::{self, Costs, SCHEMES, Scheme};
use super::store::{COPIES, Outcome, Setup, WORKERS};
use super::sweep::DIMMS;
use crate::figure::Options;
use sim::SimError;

/// Numbers of clients of each worker.
pub(super) const CLIENTS: [usize; 7] = [1, 2, 3, 4, 6, 8, 24];
/// The number that is enough for the highest throughput.
pub(super) const CLIENTS_MANY: usize = 24;
pub(super) const REQUESTS_DEFAULT: u64 = 200_000;
const PEAK_SHARE: f64 = 0.9;

/// Checksum, version, shard, lengths: what an entry has beside key and value.
const ENTRY_HEADER_BYTES: u64 = 16;
const SIZES_DRAWN: u64 = 4096;

/// Shares of PUTs, by YCSB's names (§6.1).
pub(super) const MIXES: [(&str, f64); 4] = [("Load", 1.0), ("A", 0.5), ("B", 0.05), ("C", 0.0)];
/// R13's objects.
pub(super) const OBJECTS: [&str; 3] = ["zippydb", "up2x", "udb"];

/// The part that all points of a figure share.
pub(super) struct Bench {
    pub costs: Vec<(Scheme, Costs)>,
    pub sizes: Vec<u64>,
    pub objects: &'static str,
    pub is_paper: bool,
    requests: u64,
    seed: u64,
}

impl Bench {
    pub fn new(options: &Options) -> Result<Bench, SimError> {
        let wanted = options.objects.as_deref().unwrap_or(OBJECTS[0]);
        let objects = OBJECTS.iter().find(|name| **name == wanted).ok_or_else(|| {
            let what = format!("`{wanted}`: write objects of {}", OBJECTS.join(", "));
            SimError::BadParameter { what }
        })?;
        let all = costs::load(options.costs.as_deref())?;
        let costs = SCHEMES.iter().zip(all);
        Ok(Bench {
            costs: costs.filter_map(|((_, scheme), costs)| Some((*scheme, costs?))).collect(),
            sizes: sizes_of(objects)?,
            objects,
            is_paper: options.costs.is_none(),
            requests: options.requests.unwrap_or(REQUESTS_DEFAULT),
            seed: options.seed,
        })
    }

    /// The paper's cluster with this many clients for each worker.
    pub fn setup(&self, scheme: (Scheme, Costs), put_share: f64, clients: usize) -> Setup {
        Setup {
            scheme: scheme.0,
            costs: scheme.1,
            workers: WORKERS,
            copies: COPIES,
            dimms: DIMMS,
            sizes: self.sizes.clone(),
            put_share,
            clients,
            requests: self.requests,
            seed: self.seed,
        }
    }

    /// The text about the costs.
    pub fn about(&self) -> &'static str {
        if self.is_paper {
            "CPU costs are fitted to the paper's own peaks of Rowan-KV (48.2 and 72.7 million a \
             second) and to 1.37 and 1.61 times fewer PUTs of RPC-KV and RWrite-KV; \
             all else follows."
        } else {
            "CPU costs are those of the file that `--costs` names."
        }
    }
}

/// The length of a store's entries in a log (§5.3: padded to 64 bytes).
pub(super) fn sizes_of(objects: &str) -> Result<Vec<u64>, SimError> {
    let profile: Profile = objects
        .parse()
        .map_err(|error| SimError::BadParameter { what: format!("{objects}: {error}") })?;
    let values = profile.value_sizes(SIZES_DRAWN);
    let fixed_bytes = ENTRY_HEADER_BYTES + profile.key_len_bytes as u64;
    let entry = |id| (fixed_bytes + values.len_of(id) as u64).next_multiple_of(64);
    Ok((0..SIZES_DRAWN).map(entry).collect())
}

/// The results of one scheme and mix, by rising number of clients.
pub(super) struct Curve(pub Vec<Outcome>);

impl Curve {
    /// The highest throughput, in millions a second.
    pub fn most_mops(&self) -> f64 {
        self.0.iter().map(|outcome| outcome.mops).fold(0.0, f64::max)
    }

    /// The peak, see above.
    pub fn peak(&self) -> Option<&Outcome> {
        let least = PEAK_SHARE * self.most_mops();
        self.0.iter().find(|outcome| outcome.mops >= least)
    }

    /// A latency in microseconds at this many million a second; none above the peak.
    pub fn at(&self, mops: f64, latency_us: impl Fn(&Outcome) -> f64) -> Option<f64> {
        let above = self.0.iter().position(|outcome| outcome.mops >= mops)?;
        let (low, high) = (&self.0[above.saturating_sub(1)], &self.0[above]);
        let (from, to) = (latency_us(low), latency_us(high));
        if high.mops <= low.mops || above == 0 {
            return Some(to);
        }
        Some(from + (to - from) * (mops - low.mops) / (high.mops - low.mops))
    }
}

pub(super) fn put_median_us(outcome: &Outcome) -> f64 {
    outcome.put.quantile(0.5) as f64 / 1e3
}

pub(super) fn get_median_us(outcome: &Outcome) -> f64 {
    outcome.get.quantile(0.5) as f64 / 1e3
}

/// Of all requests.
pub(super) fn p99_us(outcome: &Outcome) -> f64 {
    let mut all = outcome.put.clone();
    all.merge(&outcome.get);
    all.quantile(0.99) as f64 / 1e3
}
