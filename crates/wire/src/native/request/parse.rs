//! Bytes into requests: one pass, in place, without guesses.

use std::ops::Bound;

use base::UnixMillis;

use super::super::layout::{MESSAGE_HEAD_BYTES, Raw, read_u32, read_u64};
use super::super::reply::Status;
use super::{
    Condition, Direction, Expiry, KEEP_EXPIRY, NO_VALUE, ONCE, Op, Part, Range, RangeItems,
    Request, RequestError, RequestId, Set, Span, WANT_MASK, Want, code, range_mode, word,
};

/// The requests of a frame's body, in order. After [`RequestError::Overrun`] it ends.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    rest: &'a [u8],
}

impl<'a> Requests<'a> {
    /// Walks the body of a frame of [`crate::native::Kind::Requests`].
    pub fn new(body: &'a [u8]) -> Requests<'a> {
        Requests { rest: body }
    }

    /// The bytes behind the last request.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Result<Request<'a>, RequestError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        if let Some((request, rest)) = split_plain_get(self.rest) {
            self.rest = rest;
            return Some(Ok(request));
        }
        let Some((raw, rest)) = Raw::split(self.rest) else {
            self.rest = &[];
            return Some(Err(RequestError::Overrun));
        };
        self.rest = rest;
        let id = RequestId::new(raw.id, raw.flags);
        Some(match parse_op(&raw) {
            Ok(op) => Ok(Request { id, want: Want(raw.flags & WANT_MASK), op }),
            Err(status) => Err(RequestError::Refused { id, status }),
        })
    }
}

/// A get without words or mode, as most requests are: one comparison recognizes it. `None`: another
/// message, or a malformed one.
#[inline]
fn split_plain_get(body: &[u8]) -> Option<(Request<'_>, &[u8])> {
    const WANT_BITS: u64 = (WANT_MASK as u64) << 8;
    const KEY_LEN_BITS: u64 = 0xffff << 32;
    let (head, rest) = body.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
    let first = read_u64(head, 0);
    let value_len_bytes = read_u32(head, 12);
    if first & !(WANT_BITS | KEY_LEN_BITS) != u64::from(code::GET) || value_len_bytes != 0 {
        return None;
    }
    let key_len_bytes = usize::from((first >> 32) as u16);
    let (padded, rest) = rest.split_at_checked(key_len_bytes.next_multiple_of(8))?;
    let op = Op::Get { key: &padded[..key_len_bytes], touch: None };
    let want = Want((first >> 8) as u8);
    Some((Request { id: RequestId::Free(read_u32(head, 8)), want, op }, rest))
}

/// The flags, words and highest mode of an op in version 1.
struct Known {
    flags: u8,
    words: u16,
    mode_bits: u8,
}

/// A write's reply has only status, version and number, which [`crate::native::Once`] remembers.
const WRITE_FLAGS: u8 = ONCE | Want::VERSION.0;
const EXPIRY_WORDS: u16 = word::EXPIRES_AT | word::TTL_MS;

/// The properties of an op in version 1; `None` for an unknown op.
#[inline]
fn known(op_code: u8) -> Option<Known> {
    let known = |flags, words, mode_bits| Some(Known { flags, words, mode_bits });
    match op_code {
        code::PING => known(0, 0, 0),
        code::GET => known(WANT_MASK | KEEP_EXPIRY, EXPIRY_WORDS, 1),
        code::PULL => known(WANT_MASK & !NO_VALUE, word::VERSION | word::PART, 0),
        code::SET => {
            let words = EXPIRY_WORDS | word::VERSION | word::CLIENT_FLAGS | word::PART;
            known(WRITE_FLAGS | KEEP_EXPIRY, words, 3)
        }
        code::DELETE => known(ONCE, word::VERSION, 0),
        code::INCR => known(WRITE_FLAGS, word::DELTA, 0),
        code::APPEND | code::PREPEND => known(WRITE_FLAGS, 0, 0),
        code::TOUCH => known(WRITE_FLAGS | KEEP_EXPIRY, EXPIRY_WORDS, 0),
        code::RANGE => known(0, word::LIMIT, 0x1f),
        _ => None,
    }
}

#[inline]
fn parse_op<'a>(raw: &Raw<'a>) -> Result<Op<'a>, Status> {
    let known = known(raw.code).ok_or(Status::Unsupported)?;
    let unknown = (raw.flags & !known.flags) | (raw.mode & !known.mode_bits) | raw.reserved;
    if unknown != 0 || raw.words.mask & !known.words != 0 {
        return Err(Status::Unsupported);
    }
    let op = match raw.code {
        code::GET => {
            let touch = if raw.mode == 0 { None } else { Some(expiry(raw)?) };
            if touch.is_none() && (raw.words.mask != 0 || raw.flags & KEEP_EXPIRY != 0) {
                return Err(Status::Malformed);
            }
            Op::Get { key: raw.key, touch }
        }
        code::SET => return parse_set(raw),
        code::APPEND => return Ok(Op::Append { key: raw.key, value: raw.value }),
        code::PREPEND => return Ok(Op::Prepend { key: raw.key, value: raw.value }),
        code::RANGE => return parse_range(raw),
        code::PING if raw.key.is_empty() => Op::Ping,
        code::PING => return Err(Status::Malformed),
        code::PULL => {
            let version = raw.words.get(word::VERSION).ok_or(Status::Malformed)?;
            let halves = raw.words.get(word::PART).ok_or(Status::Malformed)?;
            let span = Span { offset: halves as u32, len_bytes: (halves >> 32) as u32 };
            Op::Pull { key: raw.key, version, span }
        }
        code::DELETE => Op::Delete { key: raw.key, version: raw.words.get(word::VERSION) },
        code::INCR => {
            let delta = raw.words.get(word::DELTA).ok_or(Status::Malformed)?;
            Op::Incr { key: raw.key, delta: delta as i64 }
        }
        _ => Op::Touch { key: raw.key, expiry: expiry(raw)? },
    };
    if raw.value.is_empty() { Ok(op) } else { Err(Status::Malformed) }
}

fn parse_set<'a>(raw: &Raw<'a>) -> Result<Op<'a>, Status> {
    let words = &raw.words;
    let condition = match (raw.mode, words.get(word::VERSION)) {
        (0, None) => Condition::Always,
        (1, None) => Condition::IfAbsent,
        (2, None) => Condition::IfPresent,
        (3, Some(version)) => Condition::IfVersion(version),
        _ => return Err(Status::Malformed),
    };
    let client_flags = words.get(word::CLIENT_FLAGS).unwrap_or(0);
    let part = words.get(word::PART).map(Part::from_word);
    if part.is_some_and(|part| !part.holds(raw.value.len())) {
        return Err(Status::Malformed);
    }
    // A part is identified by its sequence number: without one, parts of two values could mix.
    if client_flags > u64::from(u32::MAX) || (part.is_some() && raw.flags & ONCE == 0) {
        return Err(Status::Malformed);
    }
    Ok(Op::Set(Set {
        key: raw.key,
        value: raw.value,
        client_flags: client_flags as u32,
        expiry: expiry(raw)?,
        condition,
        part,
    }))
}

fn parse_range<'a>(raw: &Raw<'a>) -> Result<Op<'a>, Status> {
    let has = |bit| raw.mode & bit != 0;
    let start = if has(range_mode::START_EXCLUDED) {
        Bound::Excluded(raw.key)
    } else {
        Bound::Included(raw.key)
    };
    let end = match (has(range_mode::END_UNBOUNDED), has(range_mode::END_EXCLUDED)) {
        (true, false) if raw.value.is_empty() => Bound::Unbounded,
        (true, _) => return Err(Status::Malformed),
        (false, true) => Bound::Excluded(raw.value),
        (false, false) => Bound::Included(raw.value),
    };
    let limit = raw.words.get(word::LIMIT).ok_or(Status::Malformed)?;
    Ok(Op::Range(Range {
        start,
        end,
        direction: if has(range_mode::REVERSE) { Direction::Reverse } else { Direction::Forward },
        items: if has(range_mode::KEYS_ONLY) { RangeItems::KeysOnly } else { RangeItems::Whole },
        item_limit: u32::try_from(limit).map_err(|_| Status::Malformed)?,
    }))
}

#[inline]
fn expiry(raw: &Raw<'_>) -> Result<Expiry, Status> {
    let keep = raw.flags & KEEP_EXPIRY != 0;
    if !keep && raw.words.mask & EXPIRY_WORDS == 0 {
        return Ok(Expiry::Never);
    }
    match (keep, raw.words.get(word::EXPIRES_AT), raw.words.get(word::TTL_MS)) {
        (true, None, None) => Ok(Expiry::Keep),
        (false, Some(at), None) => Ok(Expiry::At(UnixMillis(at))),
        (false, None, Some(ttl_ms)) => Ok(Expiry::AfterMs(ttl_ms)),
        _ => Err(Status::Malformed),
    }
}
