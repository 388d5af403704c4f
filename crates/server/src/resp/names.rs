//! KEYS: the names that match, gathered a turn's work at a time.

use std::ops::Bound;
use std::sync::Arc;

use store::{Direction, Item, NoOrder, Range, prefix_end};
use wire::resp::{ErrorReply, Glob, glob_prefix};

use super::Caller;
use super::scan::is_own;
use super::slices::{Gathered, Slice, Source};
use crate::cluster::View;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::work::Work;

/// Items that one call on an ordered index visits: the pattern's steps are looked at in between.
const ORDERED_STEP: usize = 64;
/// Calls of one slice on a hash index; each looks at a bounded part of it.
const HASHED_CALLS_MAX: usize = 4;

/// A KEYS that is being answered.
pub(super) struct NamesWalk {
    glob: Box<Glob>,
    /// What the names start with; an ordered index is walked only there.
    prefix: Box<[u8]>,
    place: Place,
    cluster: Option<Arc<View>>,
    gathered: Gathered,
}

/// How far the walk has come.
enum Place {
    /// Behind this key of an ordered index.
    Ordered(Option<Vec<u8>>),
    /// At this cursor of a hash index.
    Hashed(u64),
    End,
}

/// What one slice does with the items that it visits.
struct Visit<'v> {
    glob: &'v Glob,
    cluster: Option<&'v View>,
    gathered: &'v mut Gathered,
    visited: usize,
    steps: u64,
}

impl Visit<'_> {
    fn see(&mut self, item: &Item<'_>) {
        self.visited += 1;
        if self.glob.matches(item.key, &mut self.steps) && is_own(self.cluster, item) {
            self.gathered.push(item.key);
        }
    }

    fn cost(&self) -> Work {
        let mut cost = Work::keys(self.visited);
        cost += Work::steps(self.steps);
        cost
    }

    fn is_over(&self) -> bool {
        self.cost().is_spent() || self.gathered.is_too_long
    }
}

impl NamesWalk {
    /// Memory that it takes.
    pub fn held_bytes(&self) -> usize {
        self.gathered.bytes.capacity() + self.glob.held_bytes() + self.prefix.len()
    }
}

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// KEYS.
    pub(super) fn keys(&mut self, caller: Caller, pattern: &'a [u8]) {
        let glob = match Glob::new(pattern) {
            Ok(glob) => Box::new(glob),
            Err(error) => return self.fail(caller, &ErrorReply::Other(error.text())),
        };
        let walk = NamesWalk {
            glob,
            prefix: glob_prefix(pattern).into(),
            place: Place::Ordered(None),
            cluster: self.core.cluster.clone(),
            gathered: self.gathered(),
        };
        self.begin_slices(caller, Source::Names(walk));
    }

    /// The next items.
    pub(super) fn names_slice(&mut self, caller: Caller, walk: &mut NamesWalk) -> Slice {
        self.settle(caller.slot);
        let NamesWalk { glob, prefix, place, cluster, gathered } = walk;
        let mut visit = Visit { glob, cluster: cluster.as_deref(), gathered, visited: 0, steps: 0 };
        if let Place::Ordered(last) = place
            && self.see_ordered(prefix, last, &mut visit) == Err(NoOrder)
        {
            *place = Place::Hashed(0);
        } else if let Place::Ordered(None) = place {
            *place = Place::End;
        }
        if let Place::Hashed(cursor) = place {
            *cursor = self.see_hashed(*cursor, &mut visit);
            if *cursor == 0 {
                *place = Place::End;
            }
        }
        let cost = visit.cost();
        self.core.charge(cost);
        let gathered = std::mem::take(&mut walk.gathered);
        if gathered.is_too_long {
            let text = "too many keys for the client buffers: use SCAN instead of KEYS";
            self.fail(caller, &ErrorReply::Other(text));
            self.drop_gathered(gathered);
        } else if matches!(walk.place, Place::End) {
            self.say_gathered(caller, gathered);
        } else if self.may_gather_on(caller) {
            walk.gathered = gathered;
            return Slice::More;
        } else {
            self.drop_gathered(gathered);
        }
        Slice::Last
    }

    /// Sees keys that start with `prefix` behind `last`, which is then the last one seen; `None`:
    /// there are no more.
    fn see_ordered(
        &mut self,
        prefix: &[u8],
        last: &mut Option<Vec<u8>>,
        visit: &mut Visit<'_>,
    ) -> Result<(), NoOrder> {
        let (now, end) = (self.core.now, prefix_end(prefix));
        let Some(session) = self.engine.session() else {
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

    /// The same in the order of a hash index; the next cursor, 0 at the end.
    fn see_hashed(&mut self, mut cursor: u64, visit: &mut Visit<'_>) -> u64 {
        let now = self.core.now;
        let Some(session) = self.engine.session() else {
            debug_assert!(false, "commands on all keys never run under locks");
            return 0;
        };
        for _ in 0..HASHED_CALLS_MAX {
            let next = session.scan_while(now, cursor, &[], usize::MAX, |item| {
                visit.see(item);
                !visit.is_over()
            });
            // Of a hash index every cursor is known.
            cursor = next.unwrap_or(0);
            if cursor == 0 || visit.is_over() {
                break;
            }
        }
        cursor
    }
}
