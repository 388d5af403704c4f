//! What people read of a server. No thread of it waits for them.
//!
//! ```text
//!  Shared, counters ─▶ metrics ─▶ admin      /metrics, /stats, pages; its own thread
//!                             └─▶ state_log  SIGUSR2
//! ```

#![forbid(unsafe_code)]

pub mod admin;
pub mod metrics;
pub mod state_log;
