//! Walks over the whole ordered index, in the order of keys: SCAN, RANDOMKEY and the expiry pass.

use std::ops::Bound;

use base::UnixMillis;
use index::hash::slot::{Slot, Tag};
use index::tree::{Hint, Keys, Origin, Tree, Walk};

use super::durable::note_published;
use super::expire::HURRY_SHARE;
use super::find::{entry_of, find_ordered_entry};
use super::pace::quiesce_after_reads;
use super::range::walk_range;
use super::{Local, Session};
use crate::cursor::UnknownCursor;
use crate::inner::Inner;
use crate::range::{Direction, Range, prefix_end};
use crate::request::Item;

/// The entries that FLUSHALL and the sweep of expired ones visit between two quiescent points.
pub(super) const WALK_STEP: usize = 256;

/// The results of one step of a walk.
#[derive(Default)]
pub(super) struct Swept {
    /// Entries with an expiry ...
    pub seen: u32,
    /// ... and the number of these that were removed.
    pub expired: u32,
    /// Whether the walk has reached the end.
    pub is_end: bool,
}

/// [`Session::scan`] over the tree: the keys that start with `prefix`, in their order.
pub(super) fn scan_ordered(
    session: &mut Session,
    now: UnixMillis,
    cursor: u64,
    prefix: &[u8],
    item_target: usize,
    visit: impl FnMut(&Item<'_>),
) -> Result<u64, UnknownCursor> {
    let Session { inner, local } = session;
    let Some(tree) = &inner.tree else { return Err(UnknownCursor { cursor }) };
    let last = match cursor {
        0 => None,
        cursor => Some(inner.cursors().key_of(cursor)?),
    };
    let end = prefix_end(prefix);
    // A cursor may be from a walk over another prefix.
    let last = last.filter(|last| last.as_slice() >= prefix);
    let start = last.as_deref().map_or(Bound::Included(prefix), Bound::Excluded);
    let range = Range {
        start,
        end: end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        direction: Direction::Forward,
        item_limit: item_target.max(1),
    };
    let walked = walk_range(inner, tree, now, &range, visit);
    quiesce_after_reads(local, inner, now);
    Ok(walked.resume_key.map_or(0, |key| inner.cursors().remember(key)))
}

/// [`Session::random_item`] over the tree: descends at random, then goes on to a live key.
pub(super) fn random_ordered(
    session: &mut Session,
    now: UnixMillis,
    random: u64,
    visit: impl FnMut(&Item<'_>),
) -> bool {
    let Session { inner, local } = session;
    let Some(tree) = &inner.tree else { return false };
    let key = tree.random_key(random, &inner.log).map(<[u8]>::to_vec);
    let start = key.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let mut visit = visit;
    let mut visit_first = |start: Bound<&[u8]>| {
        let mut from = start.map(<[u8]>::to_vec);
        loop {
            let range = Range {
                start: from.as_ref().map(Vec::as_slice),
                end: Bound::Unbounded,
                direction: Direction::Forward,
                item_limit: 1,
            };
            let end = walk_range(inner, tree, now, &range, &mut visit);
            inner.epochs.quiesce(local.place);
            match end.resume_key {
                _ if end.visited > 0 => return true,
                Some(key) => from = Bound::Excluded(key),
                None => return false,
            }
        }
    };
    visit_first(start) || visit_first(Bound::Unbounded)
}

/// A step of the expiry pass over the tree, from the place where the last step of any session
/// ended.
pub(super) fn expire_ordered(
    local: &mut Local,
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
    last: &mut Option<Vec<u8>>,
) -> Swept {
    let mut slots = Vec::with_capacity(WALK_STEP);
    collect_behind(inner, tree, last.as_deref(), &mut slots);
    let mut swept = Swept::default();
    for slot in &slots {
        // SAFETY: the slot was read since this session's last quiescent point.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        swept.seen += u32::from(entry.has_expiry());
        if entry.is_expired(now) && remove_ordered(local, inner, tree, *slot) {
            local.changes.gone(entry.key());
            local.tally.counts.expired += 1;
            swept.expired += 1;
        }
    }
    swept.is_end = slots.len() < WALK_STEP;
    *last = match swept.is_end {
        true => None,
        false => slots.last().map(|slot| key_of(inner, *slot).to_vec()),
    };
    swept
}

/// One step of the pass; true: many items had expired, so the next step should follow soon.
pub(super) fn expire_step_ordered(
    local: &mut Local,
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
) -> bool {
    // Another session is taking its step of the shared pass: that is enough.
    let Some(mut place) = inner.try_expiry_key() else { return false };
    let swept = expire_ordered(local, inner, tree, now, &mut place);
    swept.expired > 0 && swept.expired * HURRY_SHARE > swept.seen
}

/// The whole pass at once; true: something had expired. Drops every reference this session has.
#[cold]
pub(super) fn expire_all_ordered(
    local: &mut Local,
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
) -> bool {
    let (mut last, mut expired) = (None, 0);
    loop {
        let swept = expire_ordered(local, inner, tree, now, &mut last);
        expired += swept.expired;
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
        if swept.is_end {
            return expired > 0;
        }
    }
}

/// Removes the entry that `seen` named, if the key still has it.
pub(super) fn remove_ordered(local: &mut Local, inner: &Inner, tree: &Tree, seen: Slot) -> bool {
    let key = key_of(inner, seen);
    let hash = inner.hasher.hash(key);
    debug_assert!(seen.has_tag(Tag::of(hash)), "a slot has its key's tag");
    let mut chain = inner.index.lock(hash);
    let found = find_ordered_entry(inner, tree, key, seen.offset_bytes());
    let Some(position) = found else { return false };
    let entry = entry_of(inner, position);
    if !local.unlink(inner, &mut chain, position, entry) {
        return false;
    }
    chain.finish();
    true
}

pub(super) fn key_of(inner: &Inner, slot: Slot) -> &[u8] {
    // SAFETY: the slot was read since the session's last quiescent point; callers use the key no
    // longer than until the next.
    unsafe { inner.log.entry(slot.offset_bytes()) }.key()
}

/// The next slots in the order of keys, and the last of their keys if there may be more.
pub(super) fn collect_step(
    inner: &Inner,
    tree: &Tree,
    last: Option<&[u8]>,
    slots: &mut Vec<Slot>,
) -> Option<Vec<u8>> {
    collect_behind(inner, tree, last, slots);
    let last = slots.last().filter(|_| slots.len() == WALK_STEP);
    last.map(|slot| key_of(inner, *slot).to_vec())
}

/// The next slots in the order of keys.
pub(super) fn collect_behind(
    inner: &Inner,
    tree: &Tree,
    last: Option<&[u8]>,
    slots: &mut Vec<Slot>,
) {
    let mut walk = Walk::new(tree, &inner.log);
    let origin = last.map_or(Origin::End, Origin::Behind);
    walk.start(Direction::Forward, origin, WALK_STEP, Hint::NONE);
    // All slots are gathered before the first entry is read.
    let asked_for =
        std::iter::from_fn(|| walk.next_slot()).inspect(|slot| inner.log.prefetch(*slot));
    slots.extend(asked_for.take(WALK_STEP));
}
