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

pub use announced::Told;
pub use cluster_io::clock;
pub use cluster_io::config_store::PlaceError;
pub use facts::{SHORT_BYTES, SlotReads, room_bytes, room_bytes_for};
pub use inbound_log::Receiver;
pub use replica_store::{DigestFigures, ServerReplicaStore};
pub use start::{ControlThread, Joined, Prepared, join, prepare};
pub use view::{Figures, Place, ReplicationFigures, View};
