//! What all workers share, and what each of them has.
//!
//! ```text
//!  shared ─▶ mailbox, published decisions     what all threads see
//!  core                                       one worker's connections, buffers, counters
//!  connection ─▶ walks                        one client's state; commands in slices
//!  engine ─▶ reply_sink                       what executes a batch, and where its replies go
//! ```

#![forbid(unsafe_code)]

pub mod connection;
pub mod core;
pub mod delays;
pub mod engine;
pub mod group_replies;
pub mod live;
pub mod mailbox;
pub mod moving;
pub mod observations;
pub mod pause;
pub mod reply_sink;
pub mod run;
pub mod shared;
pub mod shm_client;
pub mod slab;
pub mod slo;
pub mod transaction;
pub mod walks;
pub mod warm;
