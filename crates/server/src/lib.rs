//! The threads that join wire and store: listeners, workers, connections, counters, the admin port.

mod admin;
pub mod config;
pub mod counters;
mod error;
mod listen;
mod metrics;
mod server;
mod shared;

pub use config::{Config, Pin, Poll};
pub use error::StartError;
pub use server::Server;
pub use shared::{ProbeError, Shared};
pub use store::{Eviction, Mode};
