//! Where the store meets the disk and the other nodes.
//!
//! ```text
//!  worker ─▶ cluster::View ─ a read ──▶ here, or READONLY at a copy: its own session; else
//!                                       another node, or an error
//!         ─ a write ─▶ replicate: request slot ─▶ control thread (`server`); reads too, until the
//!                      shard is served, and while data is copied into it
//!         ─ replies ─▶ durable::Gate ─▶ leave once on the disk
//!
//!  durable     the files of a data directory, the threads `log` (commits) and `checkpoint`, the
//!              gate of replies; format and recovery are in `store::durable`
//!  cluster     the workers' view and what of it is announced to clients; the replica store and its
//!              `digest` threads; `sync` and `keep`, which write beside the control thread;
//!              `lookup` of host names; the UDP sockets by which entries travel
//!  replicate   writes through the control thread, groups of requests, requests of memcached
//!              clients that another node executes
//! ```
//!
//! Without a cluster there is neither View nor `replicate`: reads and writes go to the worker's
//! session. The Gate exists with a data directory and `--durability fsync`.
//!
//! It knows no client's connection. The protocol is the crate `cluster`, without I/O. Control
//! messages travel by `cluster-io`, entries by the UDP sockets of this crate's module
//! `cluster::landing` and, under the scheme `rpc`, of `cluster::inbound_log`.

pub mod cluster;
pub mod durable;
pub mod replicate;
