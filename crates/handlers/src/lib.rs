//! What RESP and memcached commands do, written once against the engine.
//!
//! ```text
//!  bytes ─ parse ─▶ resp, memcached ─▶ gather: one batch over all connections ─▶ engine
//! ```

#![forbid(unsafe_code)]

pub mod gather;
pub mod memcached;
pub mod resp;
