//! What every other crate uses: units, ids, rings, offers, roles, the `sync` shim, the key hash,
//! hash slots. No decisions.

pub mod hash;
pub mod ids;
pub mod offers;
pub mod ring;
pub mod roles;
pub mod slot;
pub mod sync;
pub mod units;

pub use hash::KeyHasher;
pub use ids::{KeyHash, PartitionBits, PartitionId, WorkerId};
pub use slot::Slot;
pub use units::{ByteSize, Instant, UnixMillis, format_duration, is_unit_missing, parse_duration};
