//! The native client: steering, pipelines, retries; over UDP and shared memory.
//!
//! ```text
//!  Client (blocking) ──▶ Connection (polling) ──▶ Engine (no I/O, no clock) ──▶ wire::native
//!                                          └────▶ Link: UDP or shared memory ──▶ landing
//! ```
//!
//! ```no_run
//! # fn main() -> Result<(), client::ClientError> {
//! let mut client = client::Client::connect("native://127.0.0.1:7379")?;
//! client.set(b"greeting", b"hello")?;
//! assert_eq!(client.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! A write takes effect at most once, whatever the network and the server do; a write that may or
//! may not have happened ends as [`RequestError::Unknown`]. docs/design/client.md explains how that
//! is kept, and how the client paces itself. Start reading with `engine.rs`.
#![forbid(unsafe_code)]

mod blocking;
mod cluster;
mod config;
mod connection;
mod engine;
mod error;
mod link;
mod rtt;
mod stats;
mod target;
mod window;

pub use wire::native::{
    BadTagKey, Condition, Direction, Expiry, ItemValue, Items, Op, Range, RangeItems, Reason, Set,
    Status, TagKey, Want,
};

pub use blocking::{Client, ClientError, Item, KeyAndValue, SetOptions, Written};
pub use cluster::{Cluster, ClusterConfig};
pub use config::{Config, Delivery, KeyOrder, OUTSTANDING_MAX, ReadSteering};
pub use connection::{Connection, Waiting};
pub use engine::{Answer, Completion, Engine, Token};
pub use error::{ConnectError, RequestError, SubmitError};
pub use rtt::RttHistogram;
pub use stats::Stats;
pub use target::{BadTarget, Target};
