//! The cluster: shards, configuration, replication, failover. State machines without I/O.
//!
//! ```text
//!   config store ◀─ compare and set ─ manager ── Install, Commit, leases ──▶ node ◀── clients
//!   (ZooKeeper, or files)         live nodes and their roles              │ ▲
//!                                                       landed frames ════╪═╪═══▶ other nodes
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `configuration`, `slot`, `addresses` | the role of each node per range of the 16,384 slots |
//! | `config_store` | where the configuration is kept, and which manager leads |
//! | `manager` | which nodes live; new configurations; their commit |
//! | `node` | a server's part: leases, writes, copies, promotion |
//! | `scheme` | how entries travel to backups, and which of their logs they lie in |
//! | `record` | entries as they land and lie in logs |
//! | `datagram` | landed frames and acknowledgements on their way, with a keyed tag |
//! | `message`, `codec` | all other messages, and their byte format |
//!
//! Each machine takes `input(event, now, &mut actions)`. The server drives it with sockets, files
//! and a clock; the simulator with simulated ones that fail. docs/design/cluster.md explains the
//! protocols.
//!
//! # Invariants
//! I1: no clock, thread, socket or file here: time comes in, actions go out.
//! I2: the same inputs give the same actions.
#![forbid(unsafe_code)]

pub mod addresses;
pub mod codec;
pub mod config_store;
pub mod configuration;
mod crc;
pub mod datagram;
pub mod ids;
pub mod manager;
pub mod message;
pub mod node;
pub mod record;
pub mod replica_store;
pub mod scheme;
pub mod settings;

pub use addresses::Addresses;
pub use base::slot::{self, Slot};
pub use configuration::{Configuration, Role, Shard};
pub use ids::{ClientId, NodeId, ShardId, Term, Version};
pub use manager::Manager;
pub use message::{Message, Operation, Outcome, Peer, Request};
pub use node::Node;
pub use record::Plain;
pub use replica_store::{Above, Done, Installed, Landed, MemoryReplicaStore, Part, ReplicaStore};
pub use scheme::{Scheme, Way};
pub use settings::{Durability, Settings};
