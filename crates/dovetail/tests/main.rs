//! Tests of the real binary from outside: one module per topic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cache_traces;
mod cli;
mod cluster;
mod cluster_durable;
mod command_line;
mod durable;
mod durable_disks;
mod joined_cluster;
mod linearizable;
mod managers;
mod memory;
mod simulator;
mod sockets;
mod support;
#[cfg(feature = "xdp")]
mod xdp;
