//! Range requests: bounded walks over the ordered index, one or many in a call.
//!
//! ```text
//!  all ranges   root ─▶ ... ─▶ first border        a step of each in turn, as for single keys
//!  range i + 4  the next borders asked for, by what their parent says
//!  range i      gather: slots from the borders, each entry asked for       ─┐ lanes, in turn
//!  range i - 1  visit: its entries have arrived                            ─┘
//! ```
//!
//! The lines of a range's entries depend only on its borders, so a walk gathers up to [`AHEAD_MAX`]
//! slots before it looks at the first of their entries.

use std::ops::Bound;

use arrayvec::ArrayVec;
use base::UnixMillis;
use index::hash::slot::Slot;
use index::tree::{Hint, Keys, Origin, Sought, Tree, Walk};

use super::Session;
use super::pace::quiesce_after_reads;
use crate::config::BATCH_MAX;
use crate::entry::{Entry, HEADER_BYTES};
use crate::inner::Inner;
use crate::log::Log;
use crate::range::{Direction, NoOrder, Range, RangeEnd, RangeSink};
use crate::request::Item;

/// The entries that one call looks at ...
const CALL_ITEMS_MAX: usize = 1000;
/// ... and bytes of them: some hundred microseconds of a client's time.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Slots that a walk gathers before it reads their entries ...
const AHEAD_MAX: usize = 64;
/// ... and the initial number, because the range may end before that many.
const AHEAD_MIN: usize = 16;
/// Slots that one walk gathers between as many visits of the other walk.
const TURN: usize = 8;
/// How many ranges ahead borders are prefetched.
const BORDERS_AHEAD: usize = 4;

impl Session {
    /// Visits the items of a range in order, as many as `item_limit` and the bound of one call
    /// allow (1,000 items or 1 MiB); the caller goes on with [`Range::after`]. Quiesces at the end.
    ///
    /// Every key that is present throughout all calls is visited exactly once.
    ///
    /// # Errors
    /// The store's index keeps no order.
    pub fn range(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visit: impl FnMut(&Item<'_>),
    ) -> Result<RangeEnd, NoOrder> {
        let Session { inner, local } = self;
        let tree = inner.tree.as_ref().ok_or(NoOrder)?;
        let end = walk_range(inner, tree, now, range, visit);
        quiesce_after_reads(local, inner, now);
        Ok(end)
    }

    /// [`Session::range`] for each of `ranges`, in order. They descend and fetch their entries side
    /// by side: several ranges in one call cost less than as many calls.
    ///
    /// # Errors
    /// The store's index keeps no order.
    pub fn ranges(
        &mut self,
        now: UnixMillis,
        ranges: &[Range<'_>],
        sink: &mut impl RangeSink,
    ) -> Result<(), NoOrder> {
        let Session { inner, local } = self;
        let tree = inner.tree.as_ref().ok_or(NoOrder)?;
        for (batch, ranges) in ranges.chunks(BATCH_MAX).enumerate() {
            walk_ranges(inner, tree, now, (batch * BATCH_MAX, ranges), sink);
            quiesce_after_reads(local, inner, now);
        }
        Ok(())
    }

    /// Like [`Session::range`]; a range that begins at a hot key begins at its place.
    ///
    /// # Errors
    /// The store's index keeps no order.
    pub fn range_from_hot(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visit: impl FnMut(&Item<'_>),
    ) -> Result<RangeEnd, NoOrder> {
        let Session { inner, local } = self;
        let tree = inner.tree.as_ref().ok_or(NoOrder)?;
        let hint = match &mut local.hot {
            Some(hot) => hot.hint_of(inner, tree, range),
            None => Hint::NONE,
        };
        let end = walk_range_from(inner, tree, now, (range, hint), visit);
        quiesce_after_reads(local, inner, now);
        Ok(end)
    }
}

/// One call's part of a range; the caller quiesces afterwards, not before.
pub(super) fn walk_range(
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
    range: &Range<'_>,
    visit: impl FnMut(&Item<'_>),
) -> RangeEnd {
    walk_range_from(inner, tree, now, (range, Hint::NONE), visit)
}

/// Like `walk_range`, beginning at the hint's place if that is right.
#[inline]
pub(super) fn walk_range_from(
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
    (range, hint): (&Range<'_>, Hint),
    mut visit: impl FnMut(&Item<'_>),
) -> RangeEnd {
    let mut lane = Lane::new(inner, tree);
    lane.open(range, hint);
    lane.gather(AHEAD_MAX);
    loop {
        if let Some(ended) = lane.visit(now, range, AHEAD_MAX, &mut visit) {
            let Ended { visited, resume_key } = ended;
            return RangeEnd { visited, resume_key: resume_key.map(<[u8]>::to_vec) };
        }
    }
}

/// At most a batch of ranges; the caller quiesces afterwards, not before.
fn walk_ranges(
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
    (first, ranges): (usize, &[Range<'_>]),
    sink: &mut impl RangeSink,
) {
    let mut hints = [Hint::NONE; BATCH_MAX];
    let hints = &mut hints[..ranges.len()];
    let sought = |index: usize| Sought { key: origin_of(&ranges[index]).key(), tag: None };
    if ranges.len() > 1 {
        tree.seek_batch(&inner.log, sought, hints);
    }
    let ask_ahead = |index: usize| {
        if let (Some(range), Some(hint)) = (ranges.get(index), hints.get(index)) {
            Walk::<Log>::ask_ahead(tree, range.direction, range.item_limit, *hint);
        }
    };
    (0..BORDERS_AHEAD).for_each(ask_ahead);
    // One lane gathers while the entries of the other are on their way: a few slots, then a few
    // visits.
    let mut lanes = (Lane::new(inner, tree), Lane::new(inner, tree));
    for index in 0..=ranges.len() {
        let (gathering, visiting) = (&mut lanes.0, &mut lanes.1);
        ask_ahead(index + BORDERS_AHEAD);
        if let (Some(range), Some(hint)) = (ranges.get(index), hints.get(index)) {
            gathering.open(range, *hint);
        }
        if let Some(last) = index.checked_sub(1) {
            let mut visit = |item: &Item<'_>| sink.item(first + last, item);
            let ended = loop {
                gathering.gather(TURN);
                if let Some(ended) = visiting.visit(now, &ranges[last], TURN, &mut visit) {
                    break ended;
                }
            };
            sink.ended(first + last, ended.visited, ended.resume_key);
        }
        if index < ranges.len() {
            gathering.gather(AHEAD_MAX);
        }
        std::mem::swap(&mut lanes.0, &mut lanes.1);
    }
}

/// How a walk over a range ended; see [`RangeEnd`].
struct Ended<'i> {
    visited: usize,
    resume_key: Option<&'i [u8]>,
}

/// A walk, and the slots gathered ahead of the visits: their entries are on their way.
struct Lane<'i, 'k> {
    inner: &'i Inner,
    walk: Walk<'i, 'k, Log>,
    ahead: ArrayVec<Slot, AHEAD_MAX>,
    /// The number of slots in `ahead` before they are visited.
    target: usize,
    /// The walk has come to its end.
    is_over: bool,
    /// The number of slots of `ahead` that were looked at.
    seen: usize,
    /// The number of items visited so far.
    visited: usize,
    looked_at: usize,
    bytes: usize,
}

impl<'i, 'k> Lane<'i, 'k> {
    fn new(inner: &'i Inner, tree: &'i Tree) -> Lane<'i, 'k> {
        Lane {
            inner,
            walk: Walk::new(tree, &inner.log),
            ahead: ArrayVec::new(),
            target: 0,
            is_over: true,
            seen: 0,
            visited: 0,
            looked_at: 0,
            bytes: 0,
        }
    }

    /// Goes to the beginning of the range.
    fn open(&mut self, range: &Range<'k>, hint: Hint) {
        self.ahead.clear();
        (self.seen, self.visited, self.looked_at, self.bytes) = (0, 0, 0, 0);
        self.is_over = range.is_empty() || range.item_limit == 0;
        // If a range may end early, few slots are gathered, so that few prefetches are in vain.
        let target = if far_bound(range) == Bound::Unbounded { AHEAD_MAX } else { AHEAD_MIN };
        self.target = target.min(range.item_limit);
        if !self.is_over {
            self.walk.start(range.direction, origin_of(range), range.item_limit, hint);
        }
    }

    /// Takes up to `count` slots and prefetches their entries.
    #[inline]
    fn gather(&mut self, count: usize) {
        if self.is_over {
            return;
        }
        for _ in 0..count.min(self.target - self.ahead.len()) {
            let Some(slot) = self.walk.next_slot() else {
                self.is_over = true;
                return;
            };
            self.inner.log.prefetch(slot);
            self.ahead.push(slot);
        }
    }

    /// Gathers the next slots when all were looked at; false: there are none.
    fn gather_again(&mut self, range: &Range<'_>) -> bool {
        if self.is_over {
            return false;
        }
        self.target = AHEAD_MAX.min(2 * self.target).min(range.item_limit - self.visited);
        self.ahead.clear();
        self.seen = 0;
        self.gather(AHEAD_MAX);
        !self.ahead.is_empty()
    }

    /// Looks at up to `count` entries, within the bound of one call; returns how the walk ended, if
    /// it did.
    #[inline]
    fn visit(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        count: usize,
        mut visit: impl FnMut(&Item<'_>),
    ) -> Option<Ended<'i>> {
        for _ in 0..count {
            if self.seen == self.ahead.len() && !self.gather_again(range) {
                return Some(Ended { visited: self.visited, resume_key: None });
            }
            let slot = self.ahead[self.seen];
            self.seen += 1;
            // SAFETY: the slot was read since the session's last quiescent point.
            let entry: Entry<'i> = unsafe { self.inner.log.entry(slot.offset_bytes()) };
            let mut word = Default::default();
            let item = entry.read(&mut word);
            if is_beyond(range, item.key) {
                return Some(Ended { visited: self.visited, resume_key: None });
            }
            self.looked_at += 1;
            self.bytes += HEADER_BYTES + item.key.len() + item.value.len();
            if item.expires_at.is_none_or(|at| at > now) {
                visit(&item);
                self.visited += 1;
            }
            let is_full = self.looked_at == CALL_ITEMS_MAX || self.bytes >= CALL_BYTES_MAX;
            if is_full || self.visited == range.item_limit {
                return Some(Ended { visited: self.visited, resume_key: Some(entry.key()) });
            }
        }
        None
    }
}

/// The origin of a walk over the range.
pub(super) fn origin_of<'a>(range: &Range<'a>) -> Origin<'a> {
    match range.origin() {
        Bound::Unbounded => Origin::End,
        Bound::Included(key) => Origin::At(key),
        Bound::Excluded(key) => Origin::Behind(key),
    }
}

/// The bound at which the walk ends.
#[inline]
fn far_bound<'a>(range: &Range<'a>) -> Bound<&'a [u8]> {
    match range.direction {
        Direction::Forward => range.end,
        Direction::Reverse => range.start,
    }
}

/// Whether `key` is outside the range, so that the walk ends.
#[inline]
fn is_beyond(range: &Range<'_>, key: &[u8]) -> bool {
    match (range.direction, far_bound(range)) {
        (_, Bound::Unbounded) => false,
        (Direction::Forward, Bound::Included(end)) => key > end,
        (Direction::Forward, Bound::Excluded(end)) => key >= end,
        (Direction::Reverse, Bound::Included(start)) => key < start,
        (Direction::Reverse, Bound::Excluded(start)) => key <= start,
    }
}
