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
//! Without a cluster there is neither View nor `replicate`: reads and writes go to the worker's
//! session. The Gate exists with a data directory and `--durability fsync`.
//!
//! It knows no connection. The protocol is the crate `cluster`, without I/O; its links are in
//! `cluster-io`. What a warm file keeps: `runtime::warm`.

pub mod cluster;
pub mod durable;
pub mod replicate;
