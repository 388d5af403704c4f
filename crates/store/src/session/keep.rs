//! Lists live entries for a file that keeps the memory, and reads entries back from such a file
//! (warm.rs).
//!
//! # Invariants
//! I1: an entry lives exactly when a slot of its chain names its offset (reclaim.rs, I1).
//! I2: untrusted bytes become an entry only if the entry ends at or before the end of its segment.

use base::{KeyHash, UnixMillis};

use super::Session;
use super::find::find_ordered_entry;
use super::recover::{RECOVER_ENTRIES, locate};
use crate::entry::{ALIGN_BYTES, Entry, HEADER_BYTES, HEADER_MAX_BYTES};
use crate::inner::Inner;
use crate::warm_table::Row;

/// Names in `row` the entries of its segment that live and have not expired. No other session
/// uses the store.
pub(crate) fn name_live(session: &mut Session, row: &mut Row, now: UnixMillis) -> u64 {
    let Session { inner, local } = session;
    let first_bytes = inner.log.segment_start(row.segment);
    let end_bytes = first_bytes + row.contents.used_bytes;
    let (mut next_bytes, mut named) = (first_bytes, 0);
    while next_bytes < end_bytes {
        let mut starts = arrayvec::ArrayVec::<u32, RECOVER_ENTRIES>::new();
        while next_bytes < end_bytes && !starts.is_full() {
            starts.push(((next_bytes - first_bytes) / ALIGN_BYTES as u64) as u32);
            // SAFETY: a closed segment is full of entries up to what is used.
            next_bytes += unsafe { inner.log.entry(next_bytes) }.len_bytes() as u64;
        }
        let mut found = [(KeyHash(0), 0); RECOVER_ENTRIES];
        let found = &mut found[..starts.len()];
        locate(inner, first_bytes, &starts, found);
        for (start, (hash, offset_bytes)) in starts.iter().zip(found) {
            // SAFETY: as above.
            let entry = unsafe { inner.log.entry(*offset_bytes) };
            if !entry.is_expired(now) && is_named(inner, *hash, entry, *offset_bytes) {
                row.name(*start);
                named += 1;
            }
        }
        inner.epochs.quiesce(local.place);
    }
    named
}

/// Whether the entry's slot names it (I1).
fn is_named(inner: &Inner, hash: KeyHash, entry: Entry<'_>, offset_bytes: u64) -> bool {
    match &inner.tree {
        None => {
            let named = |slot: index::hash::slot::Slot| slot.offset_bytes() == offset_bytes;
            inner.index.find(inner.index.head_of(hash), hash, named).is_some()
        }
        Some(tree) => find_ordered_entry(inner, tree, entry.key(), offset_bytes).is_some(),
    }
}

/// Whether the entry at `offset_bytes`, a whole one, has expired.
pub(crate) fn has_expired(inner: &Inner, offset_bytes: u64, now: UnixMillis) -> bool {
    // SAFETY: the caller has seen it whole, and no thread frees segments before the first session.
    unsafe { inner.log.entry(offset_bytes) }.is_expired(now)
}

/// Whether a whole entry with a matching checksum starts at `offset_bytes` and ends at or before
/// `end_bytes` (I2).
pub(crate) fn is_whole_entry(inner: &Inner, offset_bytes: u64, end_bytes: u64) -> bool {
    let room_bytes = end_bytes.saturating_sub(offset_bytes);
    if room_bytes < HEADER_BYTES as u64 {
        return false;
    }
    // SAFETY: the first two words lie inside the memory, which is initialised: it is a file's.
    let entry = unsafe { inner.log.entry(offset_bytes) };
    let header_bytes = entry.header_bytes();
    debug_assert!(header_bytes <= HEADER_MAX_BYTES);
    header_bytes as u64 <= room_bytes
        && entry.len_bytes() as u64 <= room_bytes
        && !entry.is_delete()
        && entry.version() != 0
        && entry.checksum_holds()
}
