//! Where the store meets the disk and the other nodes.
//!
//! ```text
//!  worker ─▶ cluster::View ─ a read ──▶ here: its own session; else another node, or an error
//!                          ─ a write ─▶ replicate: request slot ─▶ control thread (`server`);
//!                                       reads too, while the shard is not served yet or is filled
//!         ─ replies ─▶ durable::Gate ─▶ leave once on the disk
//!
//!  durable     the files of a data directory, the threads that commit and write checkpoints, the
//!              gate of replies; format and recovery are in `store::durable`
//!  cluster     the workers' view; the replica store and its threads; the UDP sockets by which
//!              entries travel
//!  replicate   writes through the control thread, groups of requests, forwards to other nodes
//! ```
//!
//! Without a cluster there is neither View nor `replicate`: reads and writes go to the worker's
//! session. The Gate exists with a data directory and `--durability fsync`.
//!
//! It knows no client's connection. The protocol is the crate `cluster`, without I/O. Control
//! messages travel by `cluster-io`, entries by the UDP sockets of this crate's module
//! `cluster::landing`. What a warm file keeps: `runtime::warm`.

pub mod cluster;
pub mod durable;
pub mod replicate;
