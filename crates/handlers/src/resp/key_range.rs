//! KV.RANGE: reads a part of the key order, one step per round.
//!
//! ```text
//!  round 1: KV.RANGE at the front of the input ─▶ a step ─▶ RangeWalk, a source of slices
//!  round 2: a step ─▶ ...
//!  round n: the last step ─▶ one array, and the command is consumed
//! ```
//!
//! # Invariants
//! I1: a step does the work of one call of [`store::Session::range`], some hundred microseconds;
//!     the worker's other connections have a turn before the next step.
//!
//! # Limits
//! A reply may take a quarter of the client buffers; if these are exhausted, the walk ends with an
//! error.
//!
//! # Trade-offs
//! RESP writes the length of an array before its elements, so the whole reply is gathered first. A
//! range is not a snapshot: a key that exists throughout the walk is reported exactly once; a key
//! that is added or removed meanwhile may be reported.

use std::ops::Bound;

use base::UnixMillis;
use cluster::Slot;
use replication::cluster::{View, clock};
use runtime::engine::Engine;
use runtime::walks::key_range::{Found, RangeWalk};
use runtime::walks::{Caller, Gathered, Slice, Source};
use store::{Direction, NoOrder, Range};
use wire::resp::{ErrorReply, LexBound, RangeRequest};

use crate::gather::Gather;
use crate::resp::slices::{drop_gathered, gathered, keep_slices, may_gather_on, say_gathered};

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    More {
        resume_key: Vec<u8>,
        left_count: usize,
    },
    TooLong,
    /// This node has lost its lease or a slot meanwhile.
    NotServed,
}

/// Whether this node still served the slots of the items that were shown since then (K22).
fn may_tell(view: &View, generation: Option<u64>) -> bool {
    Some(view.generation()) == generation && view.may_answer(clock::now().ns)
}

/// Makes a step. `None`: keys are locked.
fn step(
    found: &mut Found,
    engine: &mut dyn Engine,
    now: UnixMillis,
    range: &Range<'_>,
    is_keys_only: bool,
) -> Option<Result<Step, NoOrder>> {
    let mut left_out = 0;
    let Found { gathered, cluster } = found;
    let cluster = cluster.as_ref();
    let generation = cluster.map(|view| view.generation());
    let ended = engine.range(now, range, &mut |item| {
        if cluster.is_some_and(|view| !view.shows(Slot::of(item.key), item.version)) {
            left_out += 1;
            return;
        }
        gathered.push(item.key);
        if !is_keys_only {
            gathered.push(item.value);
        }
    })?;
    if cluster.is_some_and(|view| !may_tell(view, generation)) {
        return Some(Ok(Step::NotServed));
    }
    Some(ended.map(|ended| {
        let left_count = range.item_limit.saturating_sub(ended.visited - left_out);
        match ended.resume_key {
            _ if gathered.is_too_long => Step::TooLong,
            Some(resume_key) if left_count > 0 => Step::More { resume_key, left_count },
            _ => Step::Done,
        }
    }))
}

/// The range in the store's form. No key is after `+` or before `-`.
fn range_of<'a>(request: &RangeRequest<'a>) -> Range<'a> {
    let bound = |bound| match bound {
        LexBound::Included(key) => Bound::Included(key),
        LexBound::Excluded(key) => Bound::Excluded(key),
        LexBound::Lowest | LexBound::Highest => Bound::Unbounded,
    };
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let direction = if request.is_reverse { Direction::Reverse } else { Direction::Forward };
    let is_empty = request.start() == LexBound::Highest || request.end() == LexBound::Lowest;
    let (start, end) = match is_empty || limit == 0 {
        true => (Bound::Unbounded, Bound::Excluded(&b""[..])),
        false => (bound(request.start()), bound(request.end())),
    };
    Range { start, end, direction, item_limit: limit }
}

/// KV.RANGE.
pub(super) fn key_range(gather: &mut Gather<'_, '_>, caller: Caller, request: &RangeRequest<'_>) {
    gather.settle(caller.slot);
    let mut found = Found { gathered: gathered(gather), cluster: gather.core.cluster.clone() };
    let (range, now, is_keys_only) = (range_of(request), gather.core.now, request.is_keys_only);
    let Some(stepped) = step(&mut found, gather.engine, now, &range, is_keys_only) else {
        debug_assert!(false, "commands on all keys never run under locks");
        return;
    };
    match stepped {
        // Most ranges are short and end before this: the bounds are copied only for long ones.
        Ok(Step::More { resume_key, left_count }) if may_gather_on(gather, caller) => {
            let mut walk = RangeWalk {
                start: range.start.map(Box::from),
                end: range.end.map(Box::from),
                direction: range.direction,
                left_count,
                is_keys_only,
                found,
            };
            walk.go_behind(resume_key, left_count);
            keep_slices(gather, caller, Source::Range(walk));
        }
        Ok(Step::More { .. }) => drop_gathered(gather, found.gathered),
        ended => end_range(gather, caller, found.gathered, ended),
    }
}

/// The next step of a walk.
pub(super) fn range_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut RangeWalk,
) -> Slice {
    let now = gather.core.now;
    let range = Range {
        start: walk.start.as_ref().map(|key| &key[..]),
        end: walk.end.as_ref().map(|key| &key[..]),
        direction: walk.direction,
        item_limit: walk.left_count,
    };
    let Some(stepped) = step(&mut walk.found, gather.engine, now, &range, walk.is_keys_only) else {
        debug_assert!(false, "commands on all keys never run under locks");
        return Slice::Last;
    };
    match stepped {
        Ok(Step::More { resume_key, left_count }) if may_gather_on(gather, caller) => {
            walk.go_behind(resume_key, left_count);
            Slice::More
        }
        Ok(Step::More { .. }) => Slice::Last,
        ended => {
            let gathered = std::mem::take(&mut walk.found.gathered);
            end_range(gather, caller, gathered, ended);
            Slice::Last
        }
    }
}

fn end_range(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    gathered: Gathered,
    ended: Result<Step, NoOrder>,
) {
    let text = match ended {
        Ok(Step::TooLong) => {
            "the range is larger than the client buffers allow: give a LIMIT, or KEYSONLY"
        }
        Ok(Step::NotServed) => {
            gather.fail(caller, &ErrorReply::SlotNotServed);
            return drop_gathered(gather, gathered);
        }
        Ok(_) => return say_gathered(gather, caller, gathered),
        Err(NoOrder) => "KV.RANGE needs the ordered index: start the server with --index tree",
    };
    gather.fail(caller, &ErrorReply::Other(text));
    drop_gathered(gather, gathered);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: &[u8], end: &[u8], want: (Bound<&[u8]>, Bound<&[u8]>)) {
        let range = range_of(&RangeRequest::new(start, end).unwrap());
        assert_eq!((range.start, range.end), want);
    }

    #[test]
    fn bounds_are_those_of_the_store() {
        use Bound::{Excluded, Included, Unbounded};
        check(b"-", b"+", (Unbounded, Unbounded));
        check(b"[a", b"(b", (Included(b"a"), Excluded(b"b")));
        check(b"([", b"[\xff", (Excluded(b"["), Included(b"\xff")));
        check(b"[", b"+", (Included(b""), Unbounded));
    }

    #[test]
    fn nothing_is_behind_the_last_key_or_before_the_first() {
        let nothing = (Bound::Unbounded, Bound::Excluded(&b""[..]));
        check(b"+", b"+", nothing);
        check(b"-", b"-", nothing);
        check(b"+", b"-", nothing);
        check(b"[a", b"-", nothing);
    }
}
