//! Simulates whole clusters under faults, from one seed, with the state machines that the servers
//! run.
//!
//! ```text
//!  seed ─▶ scenario: servers, managers, clients, faults
//!           └▶ world: network, disks, clocks, config store ⇄ cluster::{Node, Manager} ⇄ clients
//!               ├▶ watch: one primary per shard and term, versions grow, no copy is forgotten
//!               └▶ judge: all serve again, copies are alike, one order explains every answer
//!  a seed that fails ─▶ shrink: fewer faults, clients, requests ─▶ one command to replay it
//! ```
//!
//! # Invariants
//! I1: one set of options gives one run, bit by bit.
//! I2: each fault stays within what the design promises to survive. Faults beyond that (clocks
//!     outside their bound, the loss of every copy without a disk) are not drawn.

mod client;
mod dice;
mod faults;
mod groups;
mod judge;
pub use workload::linearizable;
mod machines;
mod plant;
mod scenario;
mod shrink;
mod watch;
mod world;

pub use ::cluster::Scheme;
pub use plant::{PLANTS, Plant};
pub use scenario::{FAULT_KINDS, FaultKind};
pub use shrink::shrink;

use scenario::Scenario;
use world::World;

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed of all random choices.
    pub seed: u64,
    /// Servers; drawn if not set.
    pub nodes: Option<usize>,
    /// Shards, and at least as many keys; drawn if not set.
    pub shards: Option<u16>,
    /// Clients; drawn if not set.
    pub clients: Option<usize>,
    /// Requests of each client.
    pub requests: Option<usize>,
    /// The allowed kinds of faults.
    pub faults: Vec<FaultKind>,
    /// Only these of the drawn faults, by their position.
    pub only_faults: Option<Vec<usize>>,
    /// The replication scheme; by the seed if not set.
    pub scheme: Option<cluster::Scheme>,
    /// Whether some writes belong together, as commands on several keys. They are not sent again:
    /// some outcomes stay unknown even where no message is lost.
    pub has_groups: bool,
    /// The planted bug.
    pub plant: Option<Plant>,
    /// One line per event on standard error.
    pub trace: bool,
}

impl Options {
    /// Every kind of fault.
    pub fn all_faults(seed: u64) -> Options {
        let faults = FAULT_KINDS.iter().map(|(_, kind)| *kind).collect();
        Options { seed, faults, ..Options::default() }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The violation, if there was one.
    pub failure: Option<String>,
    /// Whether the checker gave up.
    pub is_undecided: bool,
    /// Whether every full copy of a shard was lost, beyond what is promised: the run is judged up
    /// to there.
    pub is_beyond_promise: bool,
    /// Faults that were drawn.
    pub fault_count: usize,
    /// Faults that had an effect.
    pub struck_count: u64,
    /// Servers that were told to end, and handed over everything before they did.
    pub left_count: u64,
    /// Requests of all clients.
    pub request_count: usize,
    /// Groups of requests that were executed.
    pub group_count: u64,
    /// Requests with an unknown outcome.
    pub unanswered_count: usize,
    /// Events of the simulation.
    pub event_count: u64,
    /// The last term.
    pub term_count: u64,
    /// Simulated time.
    pub simulated_ns: u64,
}

/// Runs it.
pub fn run(options: &Options) -> Report {
    let scenario = Scenario::draw(options);
    World::new(options, scenario).run()
}

#[cfg(test)]
mod tests;
