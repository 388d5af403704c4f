//! This server as one node of a cluster: the view that its workers consult before they execute, and
//! the control thread that drives the node's state machine (`cluster::Node`).
//!
//! ```text
//!  worker ─ slot of the key ─▶ View ─┬─ Here ────────▶ a read, executed by the worker
//!                                    ├─ ThroughControl ▶ control thread ─▶ node ══▶ backups
//!                                    ├─ Elsewhere ───▶ MOVED, or forwarded
//!                                    └─ Nowhere ─────▶ CLUSTERDOWN
//! ```

pub mod announced;
mod control;
mod departure;
mod facts;
mod flushes;
mod forwards;
mod groups;
mod inbound_log;
mod keeper;
mod landing;
mod lookup;
mod outstanding;
pub mod replica_store;
mod socket;
mod start;
mod syncing;
pub mod view;

use std::net::SocketAddr;

pub use announced::Told;
pub use cluster_io::clock;
pub use cluster_io::config_store::PlaceError;
pub use facts::{SHORT_BYTES, SlotReads, room_bytes, room_bytes_for};
pub use inbound_log::Receiver;
pub use replica_store::{DigestFigures, ServerReplicaStore};
pub use start::{ControlThread, Joined, Prepared, join, prepare};
pub use view::{Figures, Place, ReplicationFigures, View};

/// The settings of a server that is a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Where the cluster's config store is.
    pub config_store: cluster_io::Place,
    /// The address at which other nodes reach this one: links by TCP, landed frames by UDP, one
    /// port.
    pub peer: SocketAddr,
    /// The host that is announced to clients and nodes; `None`: the address of each port.
    pub advertise: Option<String>,
    /// This server's name; `None`: derived from the peers' address.
    pub name: Option<u16>,
    /// The value that the operator expects among the cluster's settings; `None`: any.
    pub copies: Option<u8>,
    /// As `copies`.
    pub min_copies: Option<u8>,
    /// As `copies`.
    pub replication: Option<cluster::Scheme>,
    /// Threads that install landed entries; 0: the control thread does.
    pub digest_threads: usize,
}
