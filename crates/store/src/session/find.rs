//! Lookups: the entry of a key, with a lock or without, in the hash index or in the tree.
//!
//! ```text
//!  find         no lock: what was there at some moment (K9)
//!  find_locked  under the chain's lock: what is there until the lock is released
//! ```

use base::{KeyHash, UnixMillis};
use index::hash::slot::{Slot, Tag};
use index::hash::{Chain, Position};
use index::tree::Tree;

use super::execute::Guess;
use super::ordered::Tagged;
use crate::entry::{Entry, Seen};
use crate::inner::Inner;

/// The entry that a slot names, valid until this session quiesces.
#[inline]
pub(super) fn entry_of(inner: &Inner, position: Position) -> Entry<'_> {
    // SAFETY: the slot was read since the last quiescent point (I1 of the session) or under its
    // lock.
    unsafe { inner.log.entry(position.slot.offset_bytes()) }
}

/// Looks a key up without a lock (K9).
pub(super) fn find<'a>(
    inner: &'a Inner,
    head: u32,
    hash: KeyHash,
    key: &[u8],
) -> Option<(Position, Entry<'a>)> {
    if let Some(tree) = &inner.tree {
        return find_ordered(inner, tree, Tag::of(hash), key);
    }
    let position = inner.index.find(head, hash, |slot| {
        // SAFETY: the slot was read since this session's last quiescent point.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        entry.has_key(key)
    })?;
    Some((position, entry_of(inner, position)))
}

/// The key's entry, under its chain's lock; the guess of stage 2 is tried first.
#[inline]
pub(super) fn find_locked<'a>(
    inner: &'a Inner,
    chain: &Chain<'_>,
    guess: Guess,
    tag: Tag,
    key: &[u8],
) -> Option<(Position, Entry<'a>)> {
    if let Some(tree) = &inner.tree {
        return find_ordered(inner, tree, tag, key);
    }
    let is_key = |slot: Slot| {
        // SAFETY: the chain's lock keeps its entries in place.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        entry.has_key(key)
    };
    let guessed = guess.in_head().and_then(|seen| chain.still_there(seen));
    let position = match guessed.filter(|position| is_key(position.slot)) {
        Some(position) => position,
        None => chain.find(tag, is_key)?,
    };
    Some((position, entry_of(inner, position)))
}

/// Points the slot of `key` at another entry, under its chain's lock.
#[inline]
pub(super) fn point(
    inner: &Inner,
    chain: &mut Chain<'_>,
    position: Position,
    key: &[u8],
    slot: Slot,
) {
    match &inner.tree {
        None => chain.replace(position, slot),
        Some(tree) => tree.replace(position, key, slot, &inner.log),
    }
}

/// The entry as a client sees it: nothing once it has expired.
#[inline]
pub(super) fn see_live(entry: Option<Entry<'_>>, now: UnixMillis) -> Option<Seen<'_>> {
    entry.filter(|entry| !entry.is_expired(now)).map(Entry::see)
}

/// The key's entry in the tree; while its stripe is locked, no other session changes it.
#[inline]
pub(super) fn find_ordered<'a>(
    inner: &'a Inner,
    tree: &Tree,
    tag: Tag,
    key: &[u8],
) -> Option<(Position, Entry<'a>)> {
    let position = tree.find(key, &Tagged { log: &inner.log, tag })?;
    Some((position, entry_of(inner, position)))
}

/// The key's slot in the tree, if it names `offset_bytes`.
pub(super) fn find_ordered_entry(
    inner: &Inner,
    tree: &Tree,
    key: &[u8],
    offset_bytes: u64,
) -> Option<Position> {
    let position = tree.find(key, &inner.log)?;
    (position.slot.offset_bytes() == offset_bytes).then_some(position)
}
