//! Where the store meets the disk and the other nodes.
//!
//! ```text
//!  worker ─ a read ──▶ cluster::View: is it served here? ─▶ its own session
//!         ─ a write ─▶ replicate: request slot ─▶ control thread (`server`)
//!         ─ replies ─▶ durable::Gate ─▶ leave once on the disk
//!
//!  durable     the data directory of one node: log, checkpoints, lock
//!  cluster     what workers know of the cluster; replicas in the store
//!  replicate   writes through the control thread, and how a node applies them
//! ```
//!
//! The protocol is the crate `cluster`, without I/O. What a warm file keeps: `runtime::warm`.

pub mod cluster;
pub mod durable;
pub mod replicate;
