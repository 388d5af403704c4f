//! The expiry pass: all sessions together walk the index, a few buckets a millisecond, and remove
//! expired items. Reads only hide expired items, except for [`meet_expired`].

use base::sync::Ordering;
use base::{KeyHash, UnixMillis};
use index::hash::slot::{Slot, Tag};

use super::Local;
use super::durable::note_published;
use super::execute::NO_GUESS;
use super::find::{entry_of, find_locked};
use super::ordered_walk::{expire_all_ordered, expire_step_ordered};
use crate::counters;
use crate::entry::Entry;
use crate::inner::Inner;
use crate::prefetch;

/// One session goes through all buckets of an index within this time, ...
const PASS_MS: u64 = 1000;
/// ... a step through at least this many for each millisecond since the session's last one, ...
const HEADS_PER_MS_MIN: u64 = 64;
/// ... and at most this many: about 1 % of a busy worker's time, ...
const HEADS_PER_MS_MAX: u64 = 1024;
/// ... at most this many at once, ...
const STEP_HEADS_MAX: u64 = 16 << 10;
/// ... unless it has met this many items for each of them before: some tens of microseconds of
/// work,
const ITEMS_PER_MS: u64 = 128;
/// ... or this many altogether.
const STEP_ITEMS_MAX: u64 = 1024;
/// Buckets whose items are fetched from memory together.
const RANGE_HEADS: u64 = 8;
/// The pass continues at once while more than one in this many items with an expiry had expired.
pub(super) const HURRY_SHARE: u32 = 4;
/// A store without room sweeps the whole index at most this often, ...
const SWEEP_EVERY_MS_MIN: u64 = 200;
/// ... and waits this long for its size: about twenty times what a sweep takes.
const SWEEP_HEADS_PER_MS: u64 = 400;
/// Buckets of a sweep between two quiescent points.
const SWEEP_QUIESCE_HEADS: u32 = 1024;

/// The buckets of one step, for an index of `heads`.
fn step_heads(heads: u64, elapsed_ms: u64) -> u64 {
    let per_ms = (heads / PASS_MS).clamp(HEADS_PER_MS_MIN, HEADS_PER_MS_MAX);
    elapsed_ms.saturating_mul(per_ms).min(STEP_HEADS_MAX)
}

/// The items of one step.
fn step_items(elapsed_ms: u64) -> usize {
    elapsed_ms.saturating_mul(ITEMS_PER_MS).min(STEP_ITEMS_MAX) as usize
}

/// The results of the pass for some items.
#[derive(Default)]
struct Swept {
    /// Items with an expiry ...
    seen: u32,
    /// ... and the number of these that were removed.
    expired: u32,
}

/// One step of the pass; true: many items had expired, so the next step should follow at once.
pub(super) fn expire_step(local: &mut Local, inner: &Inner, now: UnixMillis) -> bool {
    // After the clock was set back the pass starts anew (K3).
    let elapsed_ms = match now < local.expiry_step_at {
        true => 1,
        false => now.0 - local.expiry_step_at.0,
    };
    if elapsed_ms == 0 && !local.is_expiry_pressing {
        return false;
    }
    local.expiry_step_at = now;
    local.is_expiry_pressing =
        has_expiring_items(local, inner) && expire_some(local, inner, now, elapsed_ms.max(1));
    local.is_expiry_pressing
}

/// Expires some items; returns whether many had expired.
fn expire_some(local: &mut Local, inner: &Inner, now: UnixMillis, elapsed_ms: u64) -> bool {
    if let Some(tree) = &inner.tree {
        return expire_step_ordered(local, inner, tree, now);
    }
    let mut heads_left = step_heads(inner.index.size().heads, elapsed_ms);
    let items_max = step_items(elapsed_ms);
    let (mut seen, mut expired, mut looked_at) = (0, 0, 0);
    let mut slots = Vec::new();
    while heads_left > 0 && looked_at < items_max {
        let (start, end) = inner.next_expiry_range(RANGE_HEADS);
        slots.clear();
        let mut next = Some(start);
        while let Some(hash) = next.filter(|hash| end.is_none_or(|end| *hash < end)) {
            next = inner.index.collect(hash, &mut slots).next_hash(hash);
        }
        let swept = expire_items(local, inner, now, &slots);
        seen += swept.seen;
        expired += swept.expired;
        looked_at += slots.len();
        heads_left = heads_left.saturating_sub(RANGE_HEADS);
    }
    expired > 0 && expired * HURRY_SHARE > seen
}

/// The whole pass at once, for a store that would refuse a write otherwise; seldom enough to
/// cost a few percent of the time. Drops every reference this session has. True: something had
/// expired.
#[cold]
pub(super) fn expire_all(local: &mut Local, inner: &Inner, now: UnixMillis) -> bool {
    let every_ms = SWEEP_EVERY_MS_MIN.max(inner.index.size().heads / SWEEP_HEADS_PER_MS);
    let swept_at_ms = inner.swept_at_ms.load(Ordering::Relaxed);
    // A clock that was set back does not delay sweeps (K3).
    let is_due = now.0.abs_diff(swept_at_ms) >= every_ms;
    if !is_due || !has_expiring_items(local, inner) {
        return false;
    }
    // One session sweeps. Relaxed: only the time depends on it.
    let claimed = inner.swept_at_ms.compare_exchange(
        swept_at_ms,
        now.0,
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    if claimed.is_err() {
        return false;
    }
    if let Some(tree) = &inner.tree {
        return expire_all_ordered(local, inner, tree, now);
    }
    let (mut expired, mut slots) = (0, Vec::new());
    let (mut next, mut heads) = (Some(KeyHash(0)), 0_u32);
    while let Some(hash) = next {
        slots.clear();
        next = inner.index.collect(hash, &mut slots).next_hash(hash);
        expired += expire_items(local, inner, now, &slots).expired;
        heads += 1;
        if heads.is_multiple_of(SWEEP_QUIESCE_HEADS) {
            note_published(local, inner);
            inner.epochs.quiesce(local.place);
        }
    }
    expired > 0
}

fn has_expiring_items(local: &Local, inner: &Inner) -> bool {
    let counts = counters::fold(inner.counts.iter().map(|counts| &**counts));
    // Signed: this session's own changes may not be published yet.
    let with_expiry = counts.items_with_expiry.wrapping_add(local.tally.counts.items_with_expiry);
    with_expiry.cast_signed() > 0
}

/// Removes the expired ones of some items whose slots were read since the last quiescent point.
fn expire_items(local: &mut Local, inner: &Inner, now: UnixMillis, slots: &[Slot]) -> Swept {
    for slot in slots {
        prefetch::line(inner.log.address(slot.offset_bytes()));
    }
    let mut swept = Swept::default();
    for slot in slots {
        // SAFETY: the slot was read since the last quiescent point.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        swept.seen += u32::from(entry.has_expiry());
        let is_removed = entry.is_expired(now) && expire_entry(local, inner, now, entry, *slot);
        swept.expired += u32::from(is_removed);
    }
    swept
}

/// Handles an expired entry that a read has met. While changed keys are noted it is removed at
/// once: a client that keeps a copy does not know its expiry, and the pass may come to it late.
#[inline]
pub(super) fn meet_expired(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    hash: KeyHash,
    key: &[u8],
) {
    if local.changes.is_on() && local.held.is_empty() {
        expire_key(local, inner, now, hash, key);
    }
}

#[cold]
fn expire_key(local: &mut Local, inner: &Inner, now: UnixMillis, hash: KeyHash, key: &[u8]) {
    let mut chain = local.held.lock_chain(inner, hash);
    let found = find_locked(inner, &chain, NO_GUESS, Tag::of(hash), key);
    let Some((position, entry)) = found.filter(|(_, entry)| entry.is_expired(now)) else {
        return;
    };
    if local.unlink(inner, &mut chain, position, entry) {
        local.changes.gone(entry.key());
        chain.finish();
        local.tally.counts.expired += 1;
    }
}

/// Removes the entry that `seen` named, if it is still there.
fn expire_entry(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    entry: Entry<'_>,
    seen: Slot,
) -> bool {
    let mut chain = inner.index.lock(inner.hasher.hash(entry.key()));
    let mut found = None;
    chain.entries(|position| {
        if position.slot.same_entry(seen) {
            found = Some(position);
        }
    });
    let Some(position) = found else { return false };
    let entry = entry_of(inner, position);
    debug_assert!(entry.is_expired(now), "entries are immutable (K12)");
    if !local.unlink(inner, &mut chain, position, entry) {
        return false;
    }
    local.changes.gone(entry.key());
    chain.finish();
    local.tally.counts.expired += 1;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_over_an_index_takes_about_a_second_and_a_step_is_bounded() {
        // Of 1 GiB: as large as such an index begins.
        assert_eq!(step_heads(262_144, 1), 262);
        assert_eq!(step_heads(262_144, 20), 20 * 262);
        assert_eq!(step_heads(1 << 20, 1), HEADS_PER_MS_MAX);
        assert_eq!(step_heads(1 << 10, 1), HEADS_PER_MS_MIN);
        assert_eq!(step_heads(1 << 30, u64::MAX), STEP_HEADS_MAX);
        assert_eq!([1, 8, 20, u64::MAX].map(step_items), [128, 1024, 1024, 1024]);
    }
}
