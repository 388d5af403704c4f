//! Range requests: a bounded walk over the ordered index in one call.

use std::ops::Bound;

use base::UnixMillis;

use super::Session;
use crate::entry::Entry;
use crate::range::{Direction, NoOrder, Range, RangeEnd};
use crate::request::Item;
use crate::store::Inner;
use crate::tree::{Origin, Tree, Walk};

/// Entries that one call looks at ...
const CALL_ITEMS_MAX: usize = 1000;
/// ... and bytes of them: some hundred microseconds of a client's time.
const CALL_BYTES_MAX: usize = 1 << 20;

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
        inner.epochs.quiesce(local.place);
        Ok(end)
    }
}

/// One call's part of a range; the caller quiesces afterwards, not before.
pub(super) fn walk_range(
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
    range: &Range<'_>,
    mut visit: impl FnMut(&Item<'_>),
) -> RangeEnd {
    let mut end = RangeEnd { visited: 0, resume_key: None };
    if range.is_empty() || range.item_limit == 0 {
        return end;
    }
    let mut walk = Walk::new(tree, &inner.log, range.direction);
    walk.expect(range.item_limit);
    let mut last = origin_of(range);
    walk.seek(last);
    let (mut looked_at, mut bytes) = (0, 0);
    while let Some(slot) = walk.next(last) {
        // SAFETY: the slot was read since the session's last quiescent point.
        let entry: Entry<'_> = unsafe { inner.log.entry(slot.offset_bytes()) };
        let key = entry.key();
        if is_beyond(range, key) {
            return end;
        }
        last = Origin::Behind(key);
        if !entry.is_expired(now) {
            visit(&entry.see().item());
            end.visited += 1;
        }
        looked_at += 1;
        bytes += entry.len_bytes();
        let is_full = looked_at == CALL_ITEMS_MAX || bytes >= CALL_BYTES_MAX;
        if is_full || end.visited == range.item_limit {
            end.resume_key = Some(key.to_vec());
            return end;
        }
    }
    end
}

/// Where a walk over the range begins.
fn origin_of<'a>(range: &Range<'a>) -> Origin<'a> {
    let near = match range.direction {
        Direction::Forward => range.start,
        Direction::Reverse => range.end,
    };
    match near {
        Bound::Unbounded => Origin::End,
        Bound::Included(key) => Origin::At(key),
        Bound::Excluded(key) => Origin::Behind(key),
    }
}

/// Whether a walk over the range has left it with `key`.
#[inline]
fn is_beyond(range: &Range<'_>, key: &[u8]) -> bool {
    match (range.direction, range.end, range.start) {
        (Direction::Forward, Bound::Included(end), _) => key > end,
        (Direction::Forward, Bound::Excluded(end), _) => key >= end,
        (Direction::Reverse, _, Bound::Included(start)) => key < start,
        (Direction::Reverse, _, Bound::Excluded(start)) => key <= start,
        (Direction::Forward, Bound::Unbounded, _) | (Direction::Reverse, _, Bound::Unbounded) => {
            false
        }
    }
}
