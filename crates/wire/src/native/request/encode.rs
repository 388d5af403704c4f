//! Requests into bytes, field by field in the order of the parser.

use std::ops::Bound;

use super::super::layout::{Parts, WordList};
use super::{
    Condition, Direction, Expiry, KEEP_EXPIRY, Op, Part, Range, RangeItems, Request, Set, code,
    range_mode, word,
};

impl<'a> Request<'a> {
    /// The message's length in a frame.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.parts().len_bytes()
    }

    /// The fields that the message is written from.
    #[inline]
    pub(in crate::native) fn parts(&self) -> Parts<'a> {
        let mut parts = Parts {
            code: 0,
            flags: self.id.flag() | self.want.0,
            mode: 0,
            id: self.id.number(),
            words: WordList::default(),
            key: &[],
            value: &[],
        };
        match self.op {
            Op::Ping => parts.code = code::PING,
            Op::Get { key, touch } => {
                (parts.code, parts.key) = (code::GET, key);
                if let Some(expiry) = touch {
                    parts.mode = 1;
                    put_expiry(&mut parts, expiry);
                }
            }
            Op::Pull { key, version, span } => {
                (parts.code, parts.key) = (code::PULL, key);
                parts.words.push(word::VERSION, version);
                let part = Part { offset: span.offset, total: span.len_bytes };
                parts.words.push(word::PART, part.to_word());
            }
            Op::Set(set) => put_set(&mut parts, &set),
            Op::Delete { key, version } => {
                (parts.code, parts.key) = (code::DELETE, key);
                parts.words.push_some(word::VERSION, version);
            }
            Op::Incr { key, delta } => {
                (parts.code, parts.key) = (code::INCR, key);
                parts.words.push(word::DELTA, delta as u64);
            }
            Op::Append { key, value } => {
                (parts.code, parts.key, parts.value) = (code::APPEND, key, value);
            }
            Op::Prepend { key, value } => {
                (parts.code, parts.key, parts.value) = (code::PREPEND, key, value);
            }
            Op::Touch { key, expiry } => {
                (parts.code, parts.key) = (code::TOUCH, key);
                put_expiry(&mut parts, expiry);
            }
            Op::Range(range) => put_range(&mut parts, &range),
        }
        parts
    }
}

#[inline]
fn put_set<'a>(parts: &mut Parts<'a>, set: &Set<'a>) {
    (parts.code, parts.key, parts.value) = (code::SET, set.key, set.value);
    put_expiry(parts, set.expiry);
    parts.mode = match set.condition {
        Condition::Always => 0,
        Condition::IfAbsent => 1,
        Condition::IfPresent => 2,
        Condition::IfVersion(version) => {
            parts.words.push(word::VERSION, version);
            3
        }
    };
    if set.client_flags != 0 {
        parts.words.push(word::CLIENT_FLAGS, u64::from(set.client_flags));
    }
    parts.words.push_some(word::PART, set.part.map(Part::to_word));
}

fn put_range<'a>(parts: &mut Parts<'a>, range: &Range<'a>) {
    parts.code = code::RANGE;
    let mut mode = match range.direction {
        Direction::Forward => 0,
        Direction::Reverse => range_mode::REVERSE,
    };
    if range.items == RangeItems::KeysOnly {
        mode |= range_mode::KEYS_ONLY;
    }
    match range.start {
        Bound::Unbounded => {}
        Bound::Included(key) => parts.key = key,
        Bound::Excluded(key) => {
            parts.key = key;
            mode |= range_mode::START_EXCLUDED;
        }
    }
    match range.end {
        Bound::Unbounded => mode |= range_mode::END_UNBOUNDED,
        Bound::Included(key) => parts.value = key,
        Bound::Excluded(key) => {
            parts.value = key;
            mode |= range_mode::END_EXCLUDED;
        }
    }
    parts.mode = mode;
    parts.words.push(word::LIMIT, u64::from(range.item_limit));
}

#[inline]
fn put_expiry(parts: &mut Parts<'_>, expiry: Expiry) {
    match expiry {
        Expiry::Never => {}
        Expiry::Keep => parts.flags |= KEEP_EXPIRY,
        Expiry::At(at) => parts.words.push(word::EXPIRES_AT, at.0),
        Expiry::AfterMs(ttl_ms) => parts.words.push(word::TTL_MS, ttl_ms),
    }
}
