//! Building blocks of every other crate: units, ids, rings, offers, roles, the `sync` shim, the key
//! hash, hash slots. The crate makes no decisions.

pub mod hash;
pub mod ids;
#[cfg(all(test, loom))]
mod named;
pub mod offers;
pub mod ring;
pub mod roles;
pub mod slot;
pub mod sync;
pub mod units;

pub use hash::KeyHasher;
pub use ids::{KeyHash, PartitionBits, PartitionId, WorkerId};
pub use slot::Slot;
pub use units::{
    ByteSize, Instant, UnixMillis, format_duration, format_grouped, is_unit_missing, parse_count,
    parse_count_in, parse_duration,
};
