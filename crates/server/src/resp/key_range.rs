//! KV.RANGE: a part of the key order, walked a step per round.
//!
//! ```text
//!  round 1: KV.RANGE at the front of the input ─▶ a step ─▶ RangeWalk, kept by the connection
//!  round 2: the same bytes again               ─▶ a step ─▶ ...
//!  round n: the last step ─▶ one array, and the command is consumed
//! ```
//!
//! # Invariants
//! I1: while a connection has a walk, the first command of its input is the walk's.
//! I2: a step does what one call of [`store::Session::range`] does, some hundred microseconds of
//!     work; the other connections of the worker have a turn before the next.
//!
//! # Limits
//! A reply may take a quarter of the client buffers, and the walk ends with an error when these
//! are exhausted.
//!
//! # Trade-offs
//! RESP says the length of an array before its elements, so that the reply is gathered as a whole.
//! A range is no snapshot: a key that is there throughout is answered exactly once, one that comes
//! or goes meanwhile may be.

use std::ops::Bound;
use std::sync::Arc;

use base::UnixMillis;
use cluster::Slot;
use store::{Direction, NoOrder, Range, RangeEnd};
use wire::resp::{Encoder, ErrorReply, LexBound, Protocol, RangeRequest};

use super::Caller;
use crate::cluster::{View, clock};
use crate::engine::Engine;
use crate::gather::Gather;

/// A reply may take this part of the client buffers.
const RANGE_BUFFER_PART: u64 = 4;

/// A KV.RANGE that is being answered.
pub struct RangeWalk {
    caller: Caller,
    start: Bound<Box<[u8]>>,
    end: Bound<Box<[u8]>>,
    direction: Direction,
    /// Of LIMIT.
    left_count: usize,
    is_keys_only: bool,
    found: Found,
}

/// The elements of the reply so far, encoded.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    count: usize,
    bytes_max: usize,
    is_too_long: bool,
    /// In a cluster: items of other nodes' slots, of which this node has copies, are left out.
    cluster: Option<Arc<View>>,
}

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    More {
        resume_key: Vec<u8>,
        left_count: usize,
    },
    TooLong,
    /// Of a node of a cluster that has lost its lease or a slot meanwhile.
    NotServed,
}

impl Found {
    /// Adds a key or value, unless that would be too much.
    fn push(&mut self, element: &[u8]) {
        self.is_too_long |= self.bytes.len() + element.len() > self.bytes_max;
        if !self.is_too_long {
            // Bulk strings are the same in both versions.
            Encoder::new(&mut self.bytes, Protocol::Resp2).bulk(element);
            self.count += 1;
        }
    }

    /// `None`: keys are locked.
    fn step(
        &mut self,
        engine: &mut impl Engine,
        now: UnixMillis,
        range: &Range<'_>,
        is_keys_only: bool,
    ) -> Option<Result<Step, NoOrder>> {
        let mut left_out = 0;
        let generation = self.cluster.as_ref().map(|view| view.generation());
        let ended = engine.range(now, range, |item| {
            if self
                .cluster
                .as_ref()
                .is_some_and(|view| !view.shows(Slot::of(item.key), item.version))
            {
                left_out += 1;
                return;
            }
            self.push(item.key);
            if !is_keys_only {
                self.push(item.value);
            }
        })?;
        if self.cluster.as_ref().is_some_and(|view| !may_tell(view, generation)) {
            return Some(Ok(Step::NotServed));
        }
        let counted = |ended: RangeEnd| RangeEnd { visited: ended.visited - left_out, ..ended };
        Some(ended.map(|ended| self.stepped(range, counted(ended))))
    }

    fn stepped(&self, range: &Range<'_>, ended: RangeEnd) -> Step {
        let left_count = range.item_limit.saturating_sub(ended.visited);
        match ended.resume_key {
            _ if self.is_too_long => Step::TooLong,
            Some(resume_key) if left_count > 0 => Step::More { resume_key, left_count },
            _ => Step::Done,
        }
    }
}

/// Whether what was shown since then was this node's to tell (K22).
fn may_tell(view: &View, generation: Option<u64>) -> bool {
    Some(view.generation()) == generation && view.may_answer(clock::now().ns)
}

impl RangeWalk {
    /// Its connection has moved.
    pub fn move_to(&mut self, slot: usize) {
        self.caller.slot = slot;
    }

    /// Memory that it takes.
    pub fn held_bytes(&self) -> usize {
        self.found.bytes.capacity()
    }

    fn step(&mut self, engine: &mut impl Engine, now: UnixMillis) -> Option<Result<Step, NoOrder>> {
        let range = Range {
            start: self.start.as_ref().map(|key| &key[..]),
            end: self.end.as_ref().map(|key| &key[..]),
            direction: self.direction,
            item_limit: self.left_count,
        };
        self.found.step(engine, now, &range, self.is_keys_only)
    }

    fn go_behind(&mut self, resume_key: Vec<u8>, left_count: usize) {
        let bound = Bound::Excluded(resume_key.into_boxed_slice());
        match self.direction {
            Direction::Forward => self.start = bound,
            Direction::Reverse => self.end = bound,
        }
        self.left_count = left_count;
    }
}

/// The range as the store has it. Nothing is behind `+` and nothing before `-`.
fn range_of<'a>(request: &RangeRequest<'a>) -> Range<'a> {
    let bound = |bound| match bound {
        LexBound::Included(key) => Bound::Included(key),
        LexBound::Excluded(key) => Bound::Excluded(key),
        LexBound::Lowest | LexBound::Highest => Bound::Unbounded,
    };
    let limit = request.limit.map_or(usize::MAX, |limit| limit.try_into().unwrap_or(usize::MAX));
    let direction = if request.is_reverse { Direction::Reverse } else { Direction::Forward };
    let is_empty = request.start() == LexBound::Highest || request.end() == LexBound::Lowest;
    let (start, end) = match is_empty || limit == 0 {
        true => (Bound::Unbounded, Bound::Excluded(&b""[..])),
        false => (bound(request.start()), bound(request.end())),
    };
    Range { start, end, direction, item_limit: limit }
}

impl<E: Engine> Gather<'_, '_, E> {
    /// Begins a KV.RANGE; false: it goes on in the next round.
    pub(super) fn key_range(&mut self, caller: Caller, request: &RangeRequest<'_>) -> bool {
        self.settle(caller.slot);
        let bytes_max = self.core.shared.buffer_budget().limit_bytes() / RANGE_BUFFER_PART;
        let mut found = Found {
            bytes: self.core.pool.pop().unwrap_or_default(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            cluster: self.core.cluster.clone(),
            ..Found::default()
        };
        let (range, now, is_keys_only) = (range_of(request), self.core.now, request.is_keys_only);
        let Some(stepped) = found.step(self.engine, now, &range, is_keys_only) else {
            debug_assert!(false, "commands on all keys never run under locks");
            return true;
        };
        match stepped {
            // Most ranges are short and never come here: the bounds are copied for long ones.
            Ok(Step::More { resume_key, left_count }) => {
                let mut walk = Box::new(RangeWalk {
                    caller,
                    start: range.start.map(Box::from),
                    end: range.end.map(Box::from),
                    direction: range.direction,
                    left_count,
                    is_keys_only,
                    found,
                });
                walk.go_behind(resume_key, left_count);
                self.keep(walk)
            }
            ended => self.end(caller, found, ended),
        }
    }

    /// KV.RANGE inside EXEC: all of it, for the commands behind it are not to wait.
    pub(super) fn key_range_at_once(&mut self, caller: Caller, request: &RangeRequest<'_>) {
        let mut is_done = self.key_range(caller, request);
        while !is_done {
            let walk = self.core.connections[caller.slot].resp().walk.take();
            is_done = walk.is_none_or(|walk| self.go_on(walk));
        }
    }

    /// The next step of a walk; false: it is not the last.
    pub(super) fn go_on(&mut self, mut walk: Box<RangeWalk>) -> bool {
        let now = self.core.now;
        let Some(stepped) = walk.step(self.engine, now) else {
            debug_assert!(false, "commands on all keys never run under locks");
            return true;
        };
        match stepped {
            Ok(Step::More { resume_key, left_count }) => {
                walk.go_behind(resume_key, left_count);
                self.keep(walk)
            }
            ended => self.end(walk.caller, walk.found, ended),
        }
    }

    /// Leaves a walk for the next round, if there is room for what it has gathered.
    fn keep(&mut self, walk: Box<RangeWalk>) -> bool {
        let caller = walk.caller;
        if self.core.ledger.is_over() {
            let text = "the client buffers are full: try again, or give a smaller LIMIT";
            self.fail(caller, &ErrorReply::Other(text));
            return true;
        }
        self.core.connections[caller.slot].resp().walk = Some(walk);
        false
    }

    /// Answers; true: the command is done.
    fn end(&mut self, caller: Caller, mut found: Found, ended: Result<Step, NoOrder>) -> bool {
        match ended {
            Ok(Step::TooLong) => {
                let text = "the range is larger than the client buffers allow: give a LIMIT, or \
                            KEYSONLY";
                self.fail(caller, &ErrorReply::Other(text));
            }
            Ok(Step::NotServed) => self.fail(caller, &ErrorReply::SlotNotServed),
            Ok(_) => self.say(caller, |encoder| {
                encoder.array_header(found.count);
                encoder.out().extend_from_slice(&found.bytes);
            }),
            Err(NoOrder) => {
                let text = "KV.RANGE needs the ordered index: start the server with --index tree";
                self.fail(caller, &ErrorReply::Other(text));
            }
        }
        found.bytes.clear();
        if found.bytes.capacity() > 0 {
            self.core.return_buffer(found.bytes);
        }
        true
    }
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

    #[test]
    fn a_reply_that_would_be_too_long_stops_growing() {
        let mut found = Found { bytes_max: 20, ..Found::default() };
        found.push(b"0123456789");
        found.push(b"0123456789");
        found.push(b"");
        assert_eq!((found.count, found.is_too_long), (1, true));
        assert_eq!(found.bytes, b"$10\r\n0123456789\r\n");
    }
}
