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
//! I2: a step does what one call of [`Session::range`] does, some hundred microseconds of work;
//!     the other connections of the worker have a turn before the next.
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

use base::UnixMillis;
use store::{Direction, NoOrder, Range, Session};
use wire::resp::{Encoder, ErrorReply, LexBound, Protocol, RangeRequest};

use super::Caller;
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
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    More,
    TooLong,
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
}

impl RangeWalk {
    fn new(caller: Caller, request: &RangeRequest<'_>, bytes_max: usize) -> RangeWalk {
        let limit =
            request.limit.map_or(usize::MAX, |limit| limit.try_into().unwrap_or(usize::MAX));
        let (start, end) = bounds(request);
        RangeWalk {
            caller,
            start,
            end,
            direction: if request.is_reverse { Direction::Reverse } else { Direction::Forward },
            left_count: limit,
            is_keys_only: request.is_keys_only,
            found: Found { bytes_max, ..Found::default() },
        }
    }

    /// Memory that it takes.
    pub fn held_bytes(&self) -> usize {
        self.found.bytes.capacity()
    }

    fn step(&mut self, session: &mut Session, now: UnixMillis) -> Result<Step, NoOrder> {
        let range = Range {
            start: self.start.as_ref().map(|key| &key[..]),
            end: self.end.as_ref().map(|key| &key[..]),
            direction: self.direction,
            item_limit: self.left_count,
        };
        let (found, is_keys_only) = (&mut self.found, self.is_keys_only);
        let ended = session.range(now, &range, |item| {
            found.push(item.key);
            if !is_keys_only {
                found.push(item.value);
            }
        })?;
        self.left_count -= ended.visited.min(self.left_count);
        let Some(resume_key) = ended.resume_key.filter(|_| self.left_count > 0) else {
            return Ok(if self.found.is_too_long { Step::TooLong } else { Step::Done });
        };
        match self.direction {
            Direction::Forward => self.start = Bound::Excluded(resume_key.into()),
            Direction::Reverse => self.end = Bound::Excluded(resume_key.into()),
        }
        Ok(if self.found.is_too_long { Step::TooLong } else { Step::More })
    }
}

/// The bounds as the store has them. Nothing is behind `+` and nothing before `-`.
fn bounds(request: &RangeRequest<'_>) -> (Bound<Box<[u8]>>, Bound<Box<[u8]>>) {
    let bound = |bound| match bound {
        LexBound::Included(key) => Bound::Included(key.into()),
        LexBound::Excluded(key) => Bound::Excluded(key.into()),
        LexBound::Lowest | LexBound::Highest => Bound::Unbounded,
    };
    let is_empty = request.start() == LexBound::Highest || request.end() == LexBound::Lowest;
    if is_empty || request.limit == Some(0) {
        return (Bound::Unbounded, Bound::Excluded(Box::default()));
    }
    (bound(request.start()), bound(request.end()))
}

impl<E: Engine> Gather<'_, '_, E> {
    /// Begins a KV.RANGE; false: it goes on in the next round.
    pub(super) fn key_range(&mut self, caller: Caller, request: &RangeRequest<'_>) -> bool {
        self.settle(caller.slot);
        let bytes_max = self.core.shared.buffer_budget().limit_bytes() / RANGE_BUFFER_PART;
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        self.go_on(Box::new(RangeWalk::new(caller, request, bytes_max)))
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
        let (caller, now) = (walk.caller, self.core.now);
        let Some(session) = self.engine.session() else {
            debug_assert!(false, "commands on all keys never run under locks");
            return true;
        };
        match walk.step(session, now) {
            Ok(Step::More) if self.core.ledger.is_over() => {
                let text = "the client buffers are full: try again, or give a smaller LIMIT";
                self.fail(caller, &ErrorReply::Other(text));
            }
            Ok(Step::More) => {
                self.core.connections[caller.slot].resp().walk = Some(walk);
                return false;
            }
            Ok(Step::TooLong) => {
                let text = "the range is larger than the client buffers allow: give a LIMIT, or \
                            KEYSONLY";
                self.fail(caller, &ErrorReply::Other(text));
            }
            Ok(Step::Done) => self.say(caller, |encoder| {
                encoder.array_header(walk.found.count);
                encoder.out().extend_from_slice(&walk.found.bytes);
            }),
            Err(NoOrder) => {
                let text = "KV.RANGE needs the ordered index: start the server with --index tree";
                self.fail(caller, &ErrorReply::Other(text));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: &[u8], end: &[u8], want: (Bound<&[u8]>, Bound<&[u8]>)) {
        let (start, end) = bounds(&RangeRequest::new(start, end).unwrap());
        let found = (start.as_ref().map(|key| &key[..]), end.as_ref().map(|key| &key[..]));
        assert_eq!(found, want);
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
