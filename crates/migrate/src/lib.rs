//! Migration from Redis and memcached: translates their configuration into Dovetail's settings, and
//! copies their keys.
//!
//! ```text
//!  redis.conf ───────▶ redis_conf ─────┐
//!  memcached's flags ▶ memcached_args ─┴▶ Imported: settings, and what has no counterpart
//!
//!  redis://     ▶ from_redis ─────┐                        ┌ into_redis ─────▶ our RESP port
//!  memcached:// ▶ from_memcached ─┼▶ copy: throttle, tally ┤
//!  rdb://       ▶ from_rdb ▶ rdb ─┘                        └ into_memcached ─▶ our memcached port
//! ```
//!
//! # Invariants
//! I1: nothing is dropped silently: a directive is translated, or listed with a reason; a key is
//! copied, or counted under a reason.
//! I2: a key that expires during the copy is not written.

#![forbid(unsafe_code)]

mod address;
mod copy;
mod error;
mod from_memcached;
mod from_rdb;
mod from_redis;
mod imported;
mod into_memcached;
mod into_redis;
mod item;
mod link;
pub mod memcached_args;
pub mod memcached_words;
mod nodes;
pub mod rdb;
pub mod redis_conf;
pub mod resp;
mod throttle;
mod tls;

pub use address::{Address, AddressError, Place};
pub use copy::{Batch, Ending, Options, Outcome, Source, Tally, Target, Watch, copy};
pub use error::Error;
pub use from_memcached::FromMemcached;
pub use from_rdb::FromRdb;
pub use from_redis::{FromRedis, RespLink};
pub use imported::{Ignored, Imported, Setting, User};
pub use into_memcached::IntoMemcached;
pub use into_redis::IntoRedis;
pub use item::{Expiry, Item};
pub use tls::TlsFiles;
