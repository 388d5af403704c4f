//! The room that a log must have for a write that all copies must have.

use budget::{BufferBudget, Kind};
use store::Store;

/// Percentage of the log that counts as full: the rest is for cleaning, and for writes in flight
/// when the limit is reached.
pub const FULL_PERCENT: u64 = 90;

/// A value of up to this length needs no run of segments, or a short one, and many at a time take
/// little.
pub const SHORT_BYTES: u64 = 64 << 10;

/// Bytes that may still be written to a log before it is too full to accept writes that all copies
/// must have. The space behind a long value in its last segment does not count.
pub fn room_bytes(store: &Store) -> u64 {
    let stats = store.stats();
    let taken_bytes = stats.space.live_bytes + stats.space.long_tail_bytes;
    (stats.log_bytes / 100 * FULL_PERCENT).saturating_sub(taken_bytes)
}

/// The part of these bytes that a value of that length may take: a long one leaves room for the
/// writes that other nodes may be making at the same time, because they check their own logs.
pub fn room_bytes_for(bytes: u64, room_bytes: u64, budget: &BufferBudget) -> u64 {
    let is_long = bytes > SHORT_BYTES;
    room_bytes.saturating_sub(if is_long { budget.kind_limit_bytes(Kind::Landing) } else { 0 })
}
