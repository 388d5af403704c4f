//! Reads under [`Eviction::Lru`]: an entry that is read is appended anew, so that the log's order
//! is the order of use (MICA §4.1).
//!
//! ```text
//!  oldest                                   youngest sixteenth
//!  | a | b | c | d | ...           ... | x | y | z |        GET b, GET y
//!        └───────────── copied ──────────────────────▶ | b |      y stays
//! ```
//!
//! # Trade-offs
//! A read of an older entry locks its chain and appends, as a write does; MICA's cache pays the
//! same. Entries of the youngest sixteenth are not moved, so that a hot key is moved once while a
//! sixteenth of the log is written, and not at each read.

use base::KeyHash;
use index::hash::Position;
use index::hash::slot::Tag;

use super::Local;
use super::find::{entry_of, find_ordered_entry, point};
use super::reclaim::append_copy;
use crate::config::Eviction;
use crate::inner::Inner;
use crate::log::Purpose;

/// Notes that a read has found an entry: by a mark (K13), or by appending the entry anew.
#[inline]
pub(super) fn note_read(local: &mut Local, inner: &Inner, hash: KeyHash, position: Position) {
    if inner.config.eviction != Eviction::Lru {
        return inner.mark(position);
    }
    if inner.mark_limit() > 0 && !inner.log.is_young(position.slot.offset_bytes()) {
        renew(local, inner, hash, position);
    }
}

/// Appends the entry anew. Where that would wait or finds no room, a mark keeps the entry from its
/// next eviction, and so with entries too long to share a segment with others.
#[cold]
#[inline(never)]
fn renew(local: &mut Local, inner: &Inner, hash: KeyHash, position: Position) {
    let offset_bytes = position.slot.offset_bytes();
    let entry = entry_of(inner, position);
    let len_bytes = entry.len_bytes();
    if !local.held.is_empty() || len_bytes as u64 > inner.log.short_max_bytes() {
        return inner.mark(position);
    }
    let tag = Tag::of(hash);
    // It waits for no lock (K9).
    let Some(mut chain) = inner.index.try_lock(hash) else { return inner.mark(position) };
    let found = match &inner.tree {
        None => chain.find_entry(tag, offset_bytes),
        Some(tree) => find_ordered_entry(inner, tree, entry.key(), offset_bytes),
    };
    // Another session has changed or moved it meanwhile.
    let Some(position) = found else { return };
    let appender = &mut local.appenders.writes;
    let Some(slot) = append_copy(inner, appender, tag, entry, Purpose::Write) else {
        return inner.mark(position);
    };
    point(inner, &mut chain, position, entry.key(), slot);
    chain.finish();
    inner.log.sub_live(local.tally.lane, offset_bytes, len_bytes);
    local.tally.counts.reinserted += 1;
}
