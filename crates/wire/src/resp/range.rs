//! The bounds of KV.RANGE: parts of the order of all keys, as byte strings.
//!
//! ```text
//!  -      before every key         [key   up to and with the key
//!  +      behind every key         (key   up to the key, without it
//! ```
//!
//! The first byte is never a part of the key. So a key of any bytes can be used in a bound, and no
//! key can be mistaken for another's bound. ZRANGEBYLEX of Redis writes its bounds the same way.

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// `-`: before every key.
    Lowest,
    /// `+`: after every key.
    Highest,
    /// `[key`.
    Included(&'a [u8]),
    /// `(key`.
    Excluded(&'a [u8]),
}

impl<'a> LexBound<'a> {
    /// Parses a bound; `None`: it is invalid.
    pub fn parse(argument: &'a [u8]) -> Option<LexBound<'a>> {
        match argument {
            b"-" => Some(LexBound::Lowest),
            b"+" => Some(LexBound::Highest),
            [b'[', key @ ..] => Some(LexBound::Included(key)),
            [b'(', key @ ..] => Some(LexBound::Excluded(key)),
            _ => None,
        }
    }
}

/// `KV.RANGE`. The bounds are kept as they came, which is shorter; they were validated once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRequest<'a> {
    start: &'a [u8],
    end: &'a [u8],
    /// LIMIT: the maximum number of items; `u64::MAX` without one.
    pub limit: u64,
    /// REV: from the end down. The bounds keep their meaning.
    pub is_reverse: bool,
    /// KEYSONLY.
    pub is_keys_only: bool,
}

impl<'a> RangeRequest<'a> {
    /// A range without options; `None`: a bound is invalid.
    pub fn new(start: &'a [u8], end: &'a [u8]) -> Option<RangeRequest<'a>> {
        LexBound::parse(start)?;
        LexBound::parse(end)?;
        Some(RangeRequest { start, end, limit: u64::MAX, is_reverse: false, is_keys_only: false })
    }

    /// The lower bound, whatever the direction.
    pub fn start(&self) -> LexBound<'a> {
        LexBound::parse(self.start).unwrap_or(LexBound::Highest)
    }

    /// The upper bound, whatever the direction.
    pub fn end(&self) -> LexBound<'a> {
        LexBound::parse(self.end).unwrap_or(LexBound::Lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(argument: &[u8], want: Option<LexBound<'_>>) {
        assert_eq!(LexBound::parse(argument), want, "{argument:?}");
    }

    #[test]
    fn the_first_byte_says_what_a_bound_is() {
        check(b"-", Some(LexBound::Lowest));
        check(b"+", Some(LexBound::Highest));
        check(b"[", Some(LexBound::Included(b"")));
        check(b"(", Some(LexBound::Excluded(b"")));
        for key in [&b"[a"[..], b"(", b"-", b"+", b"a\0\r\n\xff", b"--"] {
            check(&[b"[", key].concat(), Some(LexBound::Included(key)));
            check(&[b"(", key].concat(), Some(LexBound::Excluded(key)));
        }
    }

    #[test]
    fn a_bare_key_is_no_bound() {
        for argument in [&b""[..], b"a", b"-a", b"+a", b"--", b" [a", b"\xff", b"\0"] {
            check(argument, None);
        }
    }
}
