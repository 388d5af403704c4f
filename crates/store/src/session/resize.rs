//! The session's part in the index's growth: it reports its added and removed items, and moves some
//! chains when a resize is due.
//!
//! ```text
//!  a chunk of requests ──▶ 16 items more or less? ──▶ tell the index ──▶ due? ──▶ 32 heads
//! ```
//!
//! Growing takes two heads for every three inserts (shape.rs), and a step moves one or two for
//! each, so a partition is grown before the next is due, even if no caller calls `maintain`.

use std::cell::Cell;

use index::hash::{Move, Moved};

use super::Local;
use crate::inner::Inner;

/// The items that come or go before the session reports them to the index.
const SETTLE_ITEMS: u64 = 16;
/// Lines that left their chain, or nodes, before they are freed.
const SETTLE_LINES: usize = 64;
/// The old heads that one step moves: some 10 us at 5 uncached items each. It moves more only after
/// a chunk that inserted more.
const STEP_HEADS: u32 = 32;
/// The bytes of keys that one step hashes before it ends: some 30 us.
const STEP_KEY_BYTES: usize = 256 << 10;

/// After a chunk of `request_count` requests or locked keys: reports the changed number of
/// items to the index, now and then.
#[inline]
pub(super) fn settle_chunk(local: &mut Local, inner: &Inner, request_count: usize) {
    let net = local.tally.unsettled_items();
    if net.unsigned_abs() >= SETTLE_ITEMS {
        settle_and_resize(local, inner, request_count);
    }
    if local.retired.unlinked_count() >= SETTLE_LINES {
        local.retired.free_some(inner);
    }
}

#[cold]
fn settle_and_resize(local: &mut Local, inner: &Inner, request_count: usize) {
    let net = local.tally.unsettled_items();
    if local.tally.settle(inner) {
        // At most as many as this call may have inserted: a flush leaves a far greater
        // difference.
        let heads_max = (request_count as u64).max(STEP_HEADS.into());
        let heads = net.unsigned_abs().clamp(STEP_HEADS.into(), heads_max);
        resize_heads(local, inner, heads as u32);
    }
}

/// A bounded step of growing or shrinking; true: more is due. The session holds no reference
/// and no lock.
pub(super) fn resize_step(local: &mut Local, inner: &Inner) -> bool {
    // Housekeeping removes items as well, even without requests.
    if local.tally.unsettled_published().unsigned_abs() >= SETTLE_ITEMS {
        local.tally.settle(inner);
    }
    resize_heads(local, inner, STEP_HEADS)
}

fn resize_heads(local: &mut Local, inner: &Inner, heads: u32) -> bool {
    if !inner.index.wants_move() {
        return false;
    }
    debug_assert!(local.held.is_empty(), "I2 of the session");
    local.retired.free_some(inner);
    let mut budget = Budget { heads, key_bytes: Cell::new(STEP_KEY_BYTES) };
    while budget.is_left() {
        let Some(mut job) = inner.index.next_move() else { break };
        match resize_partition(local, inner, &mut job, &mut budget) {
            Moved::All => {
                local.retired.add(inner, inner.index.end_move(job));
            }
            Moved::Heads(_) => inner.index.put_back(job),
            Moved::Blocked => {
                inner.index.put_back(job);
                break;
            }
        }
    }
    inner.epochs.quiesce(local.place);
    !budget.is_left() && inner.index.wants_move()
}

fn resize_partition(
    local: &mut Local,
    inner: &Inner,
    job: &mut Move,
    budget: &mut Budget,
) -> Moved {
    let key_bytes = &budget.key_bytes;
    let hash_of = |slot: index::hash::slot::Slot| {
        // SAFETY: the slot is read under its chain's lock.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        let key = entry.key();
        key_bytes.set(key_bytes.get().saturating_sub(key.len()));
        inner.hasher.hash(key)
    };
    loop {
        if budget.heads == 0 || key_bytes.get() == 0 {
            return Moved::Heads(0);
        }
        inner.index.foresee(job, |slot| {
            crate::prefetch::line(inner.log.address(slot.offset_bytes()));
        });
        match inner.index.move_next(job, hash_of, &mut local.retired.lines) {
            Moved::Heads(heads) => budget.heads = budget.heads.saturating_sub(heads),
            ended => return ended,
        }
    }
}

/// The remaining bounds of one step.
struct Budget {
    heads: u32,
    key_bytes: Cell<usize>,
}

impl Budget {
    fn is_left(&self) -> bool {
        self.heads > 0 && self.key_bytes.get() > 0
    }
}
