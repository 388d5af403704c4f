//! RDMA verbs: reliable connections whose messages land in one zone, written by the device.
//!
//! ```text
//!   lane 0 ─ queue pair ─┐      receives, one for each slot, posted in address order
//!   lane 1 ─ queue pair ─┼──▶  shared queue ──▶ │ 0 │ 2 │ 0 │ 1 │ ...   the device writes
//!   lane 2 ─ queue pair ─┘                      completions: lane, slot, length
//! ```
//!
//! Rowan (Rowan-KV §3.2) and uTPS (uTPS §3.2.1) are built on this scheme: senders SEND; the
//! receiver's device takes the first receive of the queue that all connections share, writes the
//! message there and acknowledges; the receiver's CPU posts receives. [`Rdma`] is a
//! [`Transport`](landing::Transport), so code that uses a zone over UDP can use this.
//!
//! libibverbs is loaded when a transport is made: this crate builds, and programs that use it run,
//! where it is not installed. Decision 0028; docs/design/landing.md explains how it works.

mod config;
mod control;
mod handshake;
mod lanes;
mod port;
mod rdma;
mod receives;
mod sends;
mod verbs;

pub use config::{Acknowledge, RdmaConfig};
pub use handshake::Refusal;
pub use rdma::{Counters, Rdma};
pub use verbs::{NotLoaded, OpenError};
