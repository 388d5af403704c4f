//! This server as one node of a cluster: the view that its workers consult before they execute, and
//! the logs, sockets and replicas that `control_thread` drives the node's state machine with.
//!
//! ```text
//!  worker ─ slot of the key ─▶ View ─┬─ Here ────────▶ a read, executed by the worker
//!                                    ├─ ThroughControl ▶ control thread ─▶ node ══▶ backups
//!                                    ├─ Elsewhere ───▶ MOVED, or forwarded
//!                                    └─ Nowhere ─────▶ CLUSTERDOWN
//! ```

pub mod announced;
pub mod inbound_log;
pub mod keeper;
pub mod landing;
pub mod lookup;
pub mod replica_store;
mod room;
mod slot_reads;
pub mod socket;
pub mod syncing;
pub mod view;

pub use announced::Announced;
pub use cluster_io::clock;
pub use cluster_io::config_store::PlaceError;
pub use inbound_log::Receiver;
pub use replica_store::{DigestFigures, ServerReplicaStore};
pub use room::{SHORT_BYTES, room_bytes, room_bytes_for};
pub use slot_reads::SlotReads;
pub use view::{Figures, Place, ReplicationFigures, View, is_own};
