//! The store: a segmented log, a hash index over it, and the batch executor that serves requests.

mod config;
pub mod pin;
pub mod request;

pub use config::{Eviction, Limits, Mode, NoSession, OpenError, StoreConfig};

/// The longest key, in bytes.
pub const KEY_LEN_MAX_BYTES: usize = 65_535;
