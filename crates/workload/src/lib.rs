//! Workloads: key popularity, item sizes, operation mixes and arrivals, as pure functions of a
//! seed.
//!
//! ```text
//!  Popularity ─▶ rank ─▶ Scramble ─▶ key id ─┐                    KeyFormat: id ─▶ key bytes
//!  Mix ────────────────▶ operation kind ─────┴─▶ Trace ─▶ Cursor   values: (id, version) ─▶ bytes
//!  Arrivals ───────────▶ intended send times                       ValueSizes: id ─▶ length
//! ```
//!
//! A [`Profile`] is a named workload: all of these together, as a paper or a trace gives them.
//!
//! A trace is drawn before the clock starts, because drawing costs more than a store's GET. Keys
//! and values are functions of the id, so the reader of a value can check it.
//!
//! # Invariants
//! W1: distinct ids below a format's capacity have distinct keys.
//! W2: a value contains the id it belongs to; [`values::check`] reads every byte of it.
//! W3: one seed gives one trace and one sequence of arrivals.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod cache_trace;
pub mod dataset;
pub mod keys;
pub mod linearizable;
pub mod mix;
pub mod popularity;
pub mod profile;
pub mod request;
pub mod scramble;
pub mod sizes;
pub mod trace;
pub mod twitter;
pub mod values;

pub use arrivals::{ArrivalClock, Arrivals};
pub use dataset::{DATASETS, Dataset};
pub use keys::{KeyFormat, KeyStyle};
pub use mix::{Mix, ScanKeys};
pub use popularity::{Popularity, RankSampler, Rare};
pub use profile::Profile;
pub use request::{Draw, Operation, Request, Requests};
pub use scramble::Scramble;
pub use sizes::ValueSizes;
pub use trace::{Cursor, Entry, Trace};

/// The reasons for which a workload cannot be built from the user's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A word that names no workload.
    #[error("`{text}` is no workload: write one of {known}")]
    UnknownWorkload {
        /// The word as written.
        text: String,
        /// All names.
        known: String,
    },
    /// A cluster whose numbers are not public.
    #[error("cluster {cluster} has no published sizes and operations: take another of 1 to 54")]
    NotPublished {
        /// Its number.
        cluster: u32,
    },
    /// A word that names no item set.
    #[error("`{text}` is no dataset: write tiny, small, large or x-large")]
    UnknownDataset {
        /// The word as written.
        text: String,
    },
    /// YCSB's E scans ranges.
    #[error(
        "{workload} scans key ranges, which needs an ordered index: --index tree for embedded:, \
         RESP for a server; elsewhere, ycsb-a, b, c, d and f run"
    )]
    NeedsOrderedIndex {
        /// The workload's name.
        workload: String,
    },
    /// A word that names no kind of keys.
    #[error("`{text}` is no key style: write binary, text or decimal")]
    UnknownKeyStyle {
        /// The word as written.
        text: String,
    },
    /// No usable number of keys.
    #[error("`{text}` is no scan length: write KEYS or LOW-HIGH, 1 to 255, e.g. 50 or 1-100")]
    BadScanKeys {
        /// The word as written.
        text: String,
    },
    /// Not two numbers around a colon.
    #[error("`{text}` is no ratio: write READS:WRITES, e.g. 95:5")]
    BadRatio {
        /// The word as written.
        text: String,
    },
    /// Not a popularity.
    #[error("`{text}` is no distribution: write uniform or zipf:EXPONENT, e.g. zipf:0.99")]
    BadPopularity {
        /// The word as written.
        text: String,
    },
    /// Not a set of sizes.
    #[error(
        "`{text}` is no value size: write BYTES, LOW-HIGH, SIZE:WEIGHT,SIZE:WEIGHT or \
         pareto:MEAN:SHAPE, e.g. 64, 1-1024, 64:9,1KiB:1, pareto:43:0.26"
    )]
    BadSizes {
        /// The word as written.
        text: String,
    },
    /// Not a kind of arrivals.
    #[error("`{text}` is no arrival process: write poisson or constant")]
    BadArrivals {
        /// The word as written.
        text: String,
    },
    /// More ids than keys of this length.
    #[error("keys of {key_len_bytes} bytes name at most {capacity} keys: make them longer")]
    KeyTooShort {
        /// The requested length.
        key_len_bytes: usize,
        /// The number of distinct keys of this length.
        capacity: u64,
    },
}
