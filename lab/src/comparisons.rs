//! Measurements on this machine: Dovetail beside its peers, its presets, and its own parts.
//!
//! ```text
//!  lab peers, cache, store, joined   beside Redis, Valkey, memcached and other crates' maps
//!  lab presets, costs                presets beside the default; what each joint costs
//!  lab cold-start, replication       what a start costs; what a copy costs
//!          │
//!          ▼
//!  release build ─▶ servers in turn, pinned ─▶ `dovetail bench` ─▶ medians ─▶ docs/results
//! ```
//!
//! # Invariants
//! M1: servers take turns in each repetition, so that a disturbance of the machine hits them alike.

mod bench_report;
mod cache;
mod cold_start;
mod conditions;
mod joined;
mod peers;
mod replication;
mod server;
mod statistics;
mod store;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One comparison, with its flags.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Comparison {
    /// Dovetail, Redis and memcached side by side on one core; writes docs/results
    Peers(peers::Args),
    /// Miss ratios of Dovetail and memcached at equal memory; writes docs/results
    Cache(cache::Args),
    /// The store in process and other crates' maps, one run; writes docs/results/store.md
    Store(store::Args),
    /// Overload and mixes of sizes, beside Redis and memcached; writes docs/results/joined.md
    Joined(joined::Args),
    /// The default beside every preset on the papers' workloads; writes docs/results/presets.md
    Presets(joined::presets::Args),
    /// What routing, forwarding, batches and windows cost a request; writes docs/results/costs.md
    Costs(joined::costs::Args),
    /// From start to first answer over a log of millions; writes docs/results/cold-start.md
    ColdStart(cold_start::Args),
    /// CPU time of a cluster's servers for a SET, by scheme of replication, beside Redis
    Replication(replication::Args),
}

impl Comparison {
    /// Builds what is measured, measures it, and writes the results.
    pub fn run(&self) -> Result<()> {
        let root = &root()?;
        match self {
            Comparison::Peers(args) => peers::run(root, args),
            Comparison::Cache(args) => cache::run(root, args),
            Comparison::Store(args) => store::run(root, args),
            Comparison::Joined(args) => joined::run(root, args),
            Comparison::Presets(args) => joined::presets::run(root, args),
            Comparison::Costs(args) => joined::costs::run(root, args),
            Comparison::ColdStart(args) => cold_start::run(root, args),
            Comparison::Replication(args) => replication::run(root, args),
        }
    }
}

/// The workspace's root, from any directory in it.
fn root() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).context("lab has no parent directory")
}
