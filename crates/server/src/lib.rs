//! The threads that join wire and store: listeners, workers, connections, counters, the admin port.

mod admin;
mod affinity;
mod budget;
pub mod clients;
pub mod config;
mod connection;
mod core;
pub mod counters;
mod descriptors;
mod engine;
mod error;
mod gather;
mod listen;
mod memcached;
mod memory;
mod metrics;
mod output;
mod password;
mod poller;
mod process;
mod reply;
mod resp;
mod rmw;
mod server;
mod shared;
mod slab;
mod worker;

pub use budget::BufferBudget;
pub use config::{Config, Pin, Poll};
pub use error::StartError;
pub use memory::{MEMORY_BYTES_MIN, MemoryPlan};
pub use server::Server;
pub use shared::{ProbeError, Shared};
pub use store::{Eviction, Mode, StoreStats};
