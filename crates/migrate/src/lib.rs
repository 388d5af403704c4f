//! Moving in: what another server was told, as settings of ours.
//!
//! ```text
//!  redis.conf ───────▶ redis_conf ─────┐
//!  memcached's flags ▶ memcached_args ─┴▶ Imported: settings, and what has no counterpart
//! ```
//!
//! # Invariants
//! I1: nothing is dropped in silence: a directive is translated, or listed with a reason.

#![forbid(unsafe_code)]

mod imported;
pub mod memcached_args;
pub mod redis_conf;

pub use imported::{Ignored, Imported, Setting};
