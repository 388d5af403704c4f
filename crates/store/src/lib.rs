//! The store: a segmented log, a hash index over it, and the batch executor that serves requests.

pub mod pin;
pub mod request;

/// The longest key, in bytes.
pub const KEY_LEN_MAX_BYTES: usize = 65_535;
