//! Puts the floors together: starts and stops the threads of a server.
//!
//! ```text
//!  Server ─ starts ─▶ Worker x threads       each: listeners, Poller, Session, connections
//!    │                  │ read      workers::worker    one read per ready connection
//!    │                  │ parse     handlers::resp, memcached; wire
//!    │                  │ gather    handlers::gather   one batch of requests, all connections
//!    │                  │ execute   runtime::engine, workers::forwarding: the session, keys
//!    │                  │                              under locks, or another worker
//!    │                  │ encode    commands::reply    outcomes into each connection's output
//!    │                  └ send      workers::worker    one write per connection
//!    ├─ control thread  here        drives the node of a cluster: `control_thread`
//!    ├─ admin thread    observe     /metrics, /stats, /healthz, /readyz
//!    ├─ populate thread control     log memory ahead of the writers, and back
//!    ├─ log thread      replication commits, where data outlives the server
//!    └─ manager thread  control     controllers: decide, publish, write down why
//!  runtime::Shared: store, counters, clients, buffer budget, mailboxes; seen by all
//! ```
//!
//! # Invariants
//! I1: a connection's replies leave in the order of its commands (K10).
//! I2: on the data path, workers share only the store and, where requests are routed, the rings and
//!     request slots of `forwarding`.
//! I3: the client buffers of all workers stay under one budget ([`BufferBudget`]).
//!
//! # Trade-offs
//! A worker runs its requests to completion unless a router sends them elsewhere. So an atomic
//! group (EXEC, MSET) delays the other connections of its worker; other long commands take turns
//! (K28).

#![forbid(unsafe_code)]

mod control_thread;
#[cfg(any(test, feature = "drive"))]
mod drive;
mod server;

pub use budget::BufferBudget;
pub use budget::memory::{IndexGrowth, MEMORY_BYTES_MIN, MemoryPlan};
pub use config::StartError;
pub use config::{
    AdminAccess, ClusterConfig, Compacts, Config, DataConfig, DebugCommand, Durability, Hooks,
    HotSetSize, NativeTransport, Poll, RewriteFile, SettingsOrigin, SlowLogConfig, Tuning,
    UdpConfig, XdpDevice,
};
pub use config::{LogLevel, SetLogLevel};
pub use counters::LatencyCounts;
pub use dispatch::hot::{HotKey, HotKeys, Published as HotSet};
pub use dispatch::lanes::{RolesError, Wanted};
pub use dispatch::layer_settings::{check_layers, check_tuning, tries_policies, why_one_layer};
pub use dispatch::sizes::{SizeChange, SizeNumbers, Sizes};
#[cfg(any(test, feature = "drive"))]
pub use drive::Drive;
pub use handlers::resp::{live_keys, set_live};
pub use host::affinity::Pin;
pub use host::memory_limits::{MemoryLimits, memory_max_bytes};
pub use host::resctrl::Cat;
pub use host::topology::Numa;
pub use observe::state_log::log_state;
pub use policy::LargeHelp;
pub use policy::size_class::{Cost as SizeCost, SizeCount, SizePlan, Threshold as SizeThreshold};
pub use policy::{Dispatch, Policies, WritePolicy};
pub use replication::durable::{Data, Kept, backup_data, check_data, check_node};
pub use runtime::live::Live;
pub use runtime::shared::{ProbeError, Rates, Reloaded, Shared};
pub use runtime::slo::{SLO_MAX, SLO_MIN, Slo, SloError};
pub use runtime::warm::Warm;
pub use server::Server;
pub use sessions::password::PASSWORD_MAX_BYTES;
pub use store::durable::FORMAT as DATA_FORMAT;
pub use store::durable::backup::Copied as DataCopied;
pub use store::durable::check::{CheckpointState, Report as DataReport};
pub use store::medium::Media;
pub use store::{Eviction, HugePages, IndexKind, Mode, StoreStats};
