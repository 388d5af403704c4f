//! KEYS, CLUSTER GETKEYSINSLOT and COUNTKEYSINSLOT: gather or count names, one turn's work at a
//! time. The store does not index keys by slot, so all keys are visited.

use std::ops::Bound;

use cluster::Slot;
use commands::work::Work;
use runtime::walks::Caller;
use runtime::walks::NamesWalk;
use runtime::walks::names::{Place, Wanted};
use runtime::walks::{Gathered, Slice, Source};
use store::{Direction, Item, NoOrder, Range, prefix_end};
use wire::resp::{ErrorReply, Glob, glob_prefix};

use crate::gather::Gather;
use crate::resp::slices::{begin_slices, drop_gathered, gathered, may_gather_on, say_gathered};

/// The number of items that one call on an ordered index visits: the steps of the pattern are
/// checked in between.
const ORDERED_STEP: usize = 64;
/// The number of calls of one slice on a hash index; each looks at a bounded part of it.
const HASHED_CALLS_MAX: usize = 4;

/// The handling of the items that one slice visits.
struct Visit<'v> {
    wanted: &'v Wanted,
    count_max: usize,
    gathered: &'v mut Gathered,
    counted: &'v mut Option<u64>,
    visited: usize,
    steps: u64,
}

impl Visit<'_> {
    fn see(&mut self, item: &Item<'_>) {
        self.visited += 1;
        if self.has_all() || !self.wanted.is_it(item, &mut self.steps) {
            return;
        }
        match self.counted {
            Some(count) => *count += 1,
            None => self.gathered.push(item.key),
        }
    }

    /// Whether the maximum number of names is reached.
    fn has_all(&self) -> bool {
        self.gathered.count >= self.count_max
    }

    fn cost(&self) -> Work {
        let mut cost = Work::visited(self.visited);
        cost += Work::steps(self.steps);
        cost
    }

    fn is_over(&self) -> bool {
        self.cost().is_spent() || self.gathered.is_too_long || self.has_all()
    }
}

/// KEYS.
pub(super) fn keys<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, pattern: &'a [u8]) {
    let glob = match Glob::new(pattern) {
        Ok(glob) => Box::new(glob),
        Err(error) => return gather.fail(caller, &ErrorReply::Other(error.text())),
    };
    let wanted = Wanted::Matching(glob, gather.core.cluster.clone());
    begin_names(gather, caller, wanted, glob_prefix(pattern).into(), usize::MAX, None);
}

/// CLUSTER GETKEYSINSLOT.
pub(super) fn names_in_slot(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    slot: Slot,
    count_max: usize,
) {
    if let Some(view) = gather.core.cluster.clone() {
        begin_names(gather, caller, Wanted::InSlot(slot, view), [].into(), count_max, None);
    }
}

/// CLUSTER COUNTKEYSINSLOT.
pub(super) fn count_in_slot(gather: &mut Gather<'_, '_>, caller: Caller, slot: Slot) {
    if let Some(view) = gather.core.cluster.clone() {
        begin_names(gather, caller, Wanted::InSlot(slot, view), [].into(), usize::MAX, Some(0));
    }
}

fn begin_names(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    wanted: Wanted,
    prefix: Box<[u8]>,
    count_max: usize,
    counted: Option<u64>,
) {
    let (place, gathered) = (Place::Ordered(None), gathered(gather));
    let walk = NamesWalk { wanted, prefix, place, count_max, gathered, counted };
    begin_slices(gather, caller, Source::Names(walk));
}

/// The next items.
pub(super) fn names_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut NamesWalk,
) -> Slice {
    gather.settle(caller.slot);
    let NamesWalk { wanted, prefix, place, count_max, gathered, counted } = walk;
    let count_max = *count_max;
    let mut visit = Visit { wanted, count_max, gathered, counted, visited: 0, steps: 0 };
    if let Place::Ordered(last) = place
        && see_ordered(gather, prefix, last, &mut visit) == Err(NoOrder)
    {
        *place = Place::Hashed(0);
    } else if let Place::Ordered(None) = place {
        *place = Place::End;
    }
    if let Place::Hashed(cursor) = place {
        *cursor = see_hashed(gather, *cursor, &mut visit);
        if *cursor == 0 {
            *place = Place::End;
        }
    }
    let cost = visit.cost();
    if visit.has_all() {
        *place = Place::End;
    }
    gather.core.charge(cost);
    let gathered = std::mem::take(&mut walk.gathered);
    if gathered.is_too_long {
        gather.fail(caller, &walk.wanted.too_many());
        drop_gathered(gather, gathered);
    } else if matches!(walk.place, Place::End) {
        match walk.counted {
            None => say_gathered(gather, caller, gathered),
            Some(count) => {
                drop_gathered(gather, gathered);
                gather.say(caller, |encoder| encoder.integer(count.cast_signed()));
            }
        }
    } else if may_gather_on(gather, caller) {
        walk.gathered = gathered;
        return Slice::More;
    } else {
        drop_gathered(gather, gathered);
    }
    Slice::Last
}

/// Visits keys that start with `prefix` after `last`, and sets `last` to the last visited one;
/// `None`: there are no more.
fn see_ordered(
    gather: &mut Gather<'_, '_>,
    prefix: &[u8],
    last: &mut Option<Vec<u8>>,
    visit: &mut Visit<'_>,
) -> Result<(), NoOrder> {
    let (now, end) = (gather.core.now, prefix_end(prefix));
    let Some(session) = gather.engine.session() else {
        debug_assert!(false, "commands on all keys never run under locks");
        *last = None;
        return Ok(());
    };
    loop {
        let range = Range {
            start: last.as_deref().map_or(Bound::Included(prefix), Bound::Excluded),
            end: end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            direction: Direction::Forward,
            item_limit: ORDERED_STEP,
        };
        *last = session.range(now, &range, |item| visit.see(item))?.resume_key;
        if last.is_none() || visit.is_over() {
            return Ok(());
        }
    }
}

/// Visits keys in the order of a hash index; returns the next cursor, 0 at the end.
fn see_hashed(gather: &mut Gather<'_, '_>, mut cursor: u64, visit: &mut Visit<'_>) -> u64 {
    let now = gather.core.now;
    let Some(session) = gather.engine.session() else {
        debug_assert!(false, "commands on all keys never run under locks");
        return 0;
    };
    for _ in 0..HASHED_CALLS_MAX {
        let next = session.scan_while(now, cursor, &[], usize::MAX, |item| {
            visit.see(item);
            !visit.is_over()
        });
        // A hash index accepts every cursor.
        cursor = next.unwrap_or(0);
        if cursor == 0 || visit.is_over() {
            break;
        }
    }
    cursor
}
