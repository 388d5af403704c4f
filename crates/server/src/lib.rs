//! The threads that join wire and store: listeners, workers, connections, counters, the admin port.
//!
//! ```text
//!  Server ─ starts ─▶ Worker x threads       each: listeners, Poller, Session, connections
//!    │                  │ read      (worker/read)     one read per ready connection
//!    │                  │ parse     (resp, memcached) commands, written once against Engine
//!    │                  │ gather    (gather)          one batch of requests over all connections
//!    │                  │ execute   (engine, forwarding) the session, keys under their locks, or
//!    │                  │                             another worker, if a router says so
//!    │                  │ encode    (reply)           outcomes into each connection's output
//!    │                  └ send      (worker/finish)   one write per connection
//!    ├─ starts ─▶ admin thread                    /metrics, /stats, /healthz, /readyz
//!    ├─ starts ─▶ populate thread                 log memory ahead of the writers, and back
//!    ├─ starts ─▶ log thread                      commits, where data outlives the server
//!    └─ starts ─▶ manager thread                  controllers: decide, publish, write down why
//!  Shared: store, counters, clients, buffer budget, mailboxes; seen by all
//! ```
//!
//! # Invariants
//! I1: a connection's replies leave in the order of its commands (K10).
//! I2: on the data path, workers share only the store and, where requests are routed, the rings and
//!     request slots of `forwarding`.
//! I3: the client buffers of all workers stay under one budget ([`BufferBudget`]).
//!
//! # Trade-offs
//! A worker runs its requests to completion unless a router sends them elsewhere. A long command
//! (KEYS, a value of many megabytes) therefore delays the other connections of its worker.

pub mod acl;
mod admin;
mod affinity;
mod auth_log;
mod budget;
pub mod clients;
pub mod cluster;
mod commands;
mod compaction;
pub mod config;
mod connection;
mod control_thread;
mod controller;
mod core;
pub mod counters;
mod descriptors;
mod disk_thread;
pub mod doors;
#[cfg(any(test, feature = "drive"))]
mod drive;
mod durable;
mod end;
mod engine;
mod error;
mod event_stream;
mod forwarding;
mod gather;
mod heap;
mod hot;
mod lanes;
pub mod latency_monitor;
mod layer_settings;
mod listen;
mod live;
mod log_level;
pub mod logins;
mod mailbox;
mod manager;
mod memcached;
mod memcached_users;
mod memory;
mod memory_limits;
mod metrics;
mod monitor;
mod moving;
mod native;
mod observations;
mod output;
mod password;
mod poller;
mod populate;
mod private;
mod process;
mod published;
mod replicate;
mod reply;
mod reply_sink;
mod resctrl;
mod resp;
mod rmw;
mod server;
mod shared;
mod shm_client;
mod sizes;
mod slab;
mod slo;
pub mod slow_log;
pub mod small_file;
mod state_log;
pub mod tls;
mod topology;
pub mod tracking;
mod walks;
mod warm;
pub mod work;
mod worker;

pub use affinity::Pin;
pub use budget::BufferBudget;
pub use config::{
    AdminAccess, ClusterConfig, Compacts, Config, DataConfig, DebugCommand, Durability, Hooks,
    HotSetSize, NativeTransport, Poll, RewriteFile, SettingsOrigin, SlowLogConfig, Tuning,
    UdpConfig, XdpDevice,
};
pub use counters::LatencyCounts;
#[cfg(any(test, feature = "drive"))]
pub use drive::Drive;
pub use durable::{Data, Kept, backup_data, check_data, check_node};
pub use error::StartError;
pub use hot::{HotKey, HotKeys, Published as HotSet};
pub use lanes::RolesError;
pub use live::{LIVE_SETTINGS, Live};
pub use log_level::{LogLevel, SetLogLevel};
pub use memory::{IndexGrowth, MEMORY_BYTES_MIN, MemoryPlan};
pub use memory_limits::{MemoryLimits, memory_max_bytes};
pub use password::PASSWORD_MAX_BYTES;
pub use policy::LargeHelp;
pub use policy::size_class::{Cost as SizeCost, SizeCount, SizePlan, Threshold as SizeThreshold};
pub use policy::{Dispatch, WritePolicy};
pub use resctrl::Cat;
pub use resp::set_live;
pub use server::Server;
pub use shared::{ProbeError, Rates, Reloaded, Shared};
pub use sizes::{SizeChange, SizeNumbers, Sizes};
pub use slo::{SLO_MAX, SLO_MIN, Slo, SloError};
pub use store::durable::FORMAT as DATA_FORMAT;
pub use store::durable::backup::Copied as DataCopied;
pub use store::durable::check::{CheckpointState, Report as DataReport};
pub use store::medium::Media;
pub use store::{Eviction, HugePages, IndexKind, Mode, StoreStats};
pub use topology::Numa;
pub use warm::Warm;
