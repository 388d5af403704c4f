//! Range requests and their results: the interface of the ordered index.
//!
//! ```text
//!  Range { start, end, direction, item_limit }  ──▶  Session::range  ──▶  visit(item) ...
//!       ▲                                                  │
//!       └───── Range::after(resume_key) ◀── RangeEnd ──────┘   a call does a bounded amount
//! ```
//!
//! Keys are ordered as byte strings: `"a" < "a\0" < "ab" < "b"`.

use std::ops::Bound;

pub use index::tree::Direction;
use thiserror::Error;

use crate::item::Item;

/// A part of the key order. `start` is the lower bound and `end` the upper one, whatever the
/// direction.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// The lower bound.
    pub start: Bound<&'a [u8]>,
    /// The upper bound.
    pub end: Bound<&'a [u8]>,
    /// The direction of the walk.
    pub direction: Direction,
    /// The most items in this call; a call has its own bound as well.
    pub item_limit: usize,
}

impl<'a> Range<'a> {
    /// The rest of the range after a call that ended at `resume_key`.
    pub fn after(&self, resume_key: &'a [u8]) -> Range<'a> {
        match self.direction {
            Direction::Forward => Range { start: Bound::Excluded(resume_key), ..*self },
            Direction::Reverse => Range { end: Bound::Excluded(resume_key), ..*self },
        }
    }

    /// The bound that the walk begins at.
    pub fn origin(&self) -> Bound<&'a [u8]> {
        match self.direction {
            Direction::Forward => self.start,
            Direction::Reverse => self.end,
        }
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        match (self.start, self.end) {
            (Bound::Unbounded, _) => self.end == Bound::Excluded(&[]),
            (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Excluded(start), Bound::Included(end))
            | (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) => {
                start >= end
            }
        }
    }
}

/// The least key above every key that starts with `prefix`: the excluded end of a prefix walk.
/// `None`: there is no such key, the walk goes to the end.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The result of one call of [`crate::Session::range`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeEnd {
    /// The number of items visited.
    pub visited: usize,
    /// The last key reached, when more may follow ([`Range::after`]); `None`: the range is done.
    pub resume_key: Option<Vec<u8>>,
}

/// Receives the items of several ranges ([`crate::Session::ranges`]), range after range.
pub trait RangeSink {
    /// The next item of the range at `range_index`.
    fn item(&mut self, range_index: usize, item: &Item<'_>);

    /// The range at `range_index` has passed `visited` items. With a `resume_key` more may follow
    /// behind it ([`Range::after`]); with none the range is done.
    fn ended(&mut self, range_index: usize, visited: usize, resume_key: Option<&[u8]>);
}

/// The error that the store's index has no key order.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the hash index keeps no order; open the store with the tree index")]
pub struct NoOrder;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_prefix(prefix: &[u8], want: Option<&[u8]>) {
        assert_eq!(prefix_end(prefix).as_deref(), want);
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_string_of_its_length_or_shorter() {
        check_prefix(b"user:", Some(b"user;"));
        check_prefix(b"a\xff\xff", Some(b"b"));
        check_prefix(b"\xff\xff", None);
        check_prefix(b"", None);
    }

    #[track_caller]
    fn check_empty(start: Bound<&[u8]>, end: Bound<&[u8]>, want: bool) {
        let range = Range { start, end, direction: Direction::Forward, item_limit: 1 };
        assert_eq!(range.is_empty(), want, "{range:?}");
    }

    #[test]
    fn a_range_is_empty_when_its_bounds_have_crossed() {
        use Bound::{Excluded, Included, Unbounded};
        check_empty(Unbounded, Unbounded, false);
        check_empty(Unbounded, Excluded(b""), true);
        check_empty(Unbounded, Included(b""), false);
        check_empty(Included(b"a"), Included(b"a"), false);
        check_empty(Included(b"a"), Excluded(b"a"), true);
        check_empty(Excluded(b"a"), Included(b"a"), true);
        check_empty(Included(b"b"), Included(b"a"), true);
        check_empty(Excluded(b"a"), Unbounded, false);
    }

    #[test]
    fn what_is_left_begins_behind_the_last_key_in_the_direction_of_the_walk() {
        let whole = Range {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            direction: Direction::Reverse,
            item_limit: 9,
        };
        let left = whole.after(b"m");
        assert_eq!((left.start, left.end), (Bound::Unbounded, Bound::Excluded(&b"m"[..])));
        let forward = Range { direction: Direction::Forward, ..whole }.after(b"m");
        assert_eq!((forward.start, forward.end), (Bound::Excluded(&b"m"[..]), Bound::Unbounded));
    }
}
