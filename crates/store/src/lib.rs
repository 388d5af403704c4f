//! The store: a segmented log, an index over it (crate `index`), and the batch executor that
//! serves requests.
//!
//! ```text
//!            Session (one per thread)                     shared
//!  requests ─▶ execute: three stages ──finds──▶ index ──names──▶ log (segments of entries)
//!              appender: open segments ─────publishes──▶ slot     ▲ evict or clean
//!              epoch: quiesces between batches ──────────────────┘ reuse once no session looks
//! ```
//!
//! Reads take no lock (K9). An update appends a new entry and swaps one slot; only a value of at
//! most 8 bytes is replaced in place, by one atomic store (K12). docs/design/store.md describes the
//! whole, docs/formats/ the layouts.
//!
//! # Limits
//! Keys to 65,535 bytes; key + value to 512 MiB, or a quarter of the log if that is less.

mod config;
mod counters;
mod crc;
mod cursor;
pub mod durable;
mod durable_log;
mod entry;
mod ghost;
mod hot_array;
mod inner;
mod item;
mod log;
pub mod medium;
mod pieces;
pub mod pin;
mod prefetch;
pub mod range;
pub mod record;
pub mod replica;
pub mod request;
mod resize;
mod scratch_room;
mod session;
mod store;
mod tuning;
mod validate;
pub mod warm;
mod warm_table;

pub use config::{
    BATCH_MAX, Eviction, IndexKind, Limits, Mode, NeededMemory, NoSession, OpenError, StoreConfig,
};
pub use counters::{LogSpace, StoreStats};
pub use cursor::UnknownCursor;
pub use entry::{HEADER_BYTES, HEADER_MAX_BYTES, entry_len_bytes, entry_len_max_bytes};
pub use hot_array::HotArray;
pub use index::mapping::{HugePages, PageKind, huge_pages_available};
pub use index::placement::{NodeShare, Placement};
pub use log::Tended;
pub use pieces::Pieces;
pub use pin::{PinnedValue, Pins};
pub use range::{Direction, NoOrder, Range, RangeEnd, RangeSink, prefix_end};
pub use replica::{Installed, NotInstalled, RecoveredDelete, Replica, ReplicaChange};
pub use request::{
    Condition, Evicted, Expiry, Item, LastUse, NoUpdate, Op, Outcome, Request, Set, Sink, Unmet,
    Update, Use, Verdict, token_base,
};
pub use resize::{NoResize, SizeBounds};
pub use scratch_room::ScratchRoom;
pub use session::{
    Changes, Drawn, Flush, HOT_PLACE_BYTES, LockedSession, Origin, Room, Session, Sweep,
};
pub use store::Store;
pub use tuning::{Prefetch, Tuning};

/// The longest key, in bytes.
pub const KEY_LEN_MAX_BYTES: usize = 65_535;
/// The largest key + value that a store can be configured for.
pub const ITEM_MAX_BYTES: u64 = 512 << 20;
