//! `Args`: the arguments of one command, walked in the read buffer.
//!
//! ```text
//!  *3 CRLF │ $3 CRLF SET CRLF │ $1 CRLF k CRLF │ $2 CRLF vv CRLF
//!          └─ rest ─────────────────────────────────────────────▶   remaining = 3
//! ```
//!
//! # Invariants
//! A1: `rest` was validated by the parser: it holds `remaining` whole arguments.

use super::parser::inline;

/// The framing of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `$len CRLF bytes CRLF`.
    Bulk,
    /// Words on a line, quoted at most without escapes.
    Inline,
}

/// The arguments of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    iter: ArgIter<'a>,
    quoted: bool,
}

/// Walks arguments.
#[derive(Clone, Copy, Debug)]
pub struct ArgIter<'a> {
    rest: &'a [u8],
    remaining: u32,
    form: Form,
}

/// The position of a walk over a command's arguments, as numbers: with the command's bytes it
/// becomes the walk again ([`ArgPlace::walk`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgPlace {
    start: usize,
    remaining: u32,
    form: Form,
}

/// The keys of a command with several of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keys<'a> {
    iter: ArgIter<'a>,
    /// Arguments from one key to the next; 0 and 1 mean adjacent.
    step: u32,
}

/// Key and value pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairs<'a> {
    iter: ArgIter<'a>,
}

/// An inline command with escapes or with quotes in mid-word, whose arguments are not in the buffer
/// in their final form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedLine<'a> {
    line: &'a [u8],
}

impl<'a> Args<'a> {
    pub(crate) fn bulks(rest: &'a [u8], count: u32) -> Args<'a> {
        Args { iter: ArgIter { rest, remaining: count, form: Form::Bulk }, quoted: false }
    }

    /// The words of `line`; `quoted` means that some of them need rewriting.
    pub(crate) fn words(line: &'a [u8], count: u32, quoted: bool) -> Args<'a> {
        Args { iter: ArgIter { rest: line, remaining: count, form: Form::Inline }, quoted }
    }

    /// The number of arguments, including the name. 0 for an empty command.
    pub fn len(&self) -> usize {
        self.iter.len()
    }

    /// An empty line, `*0` or `*-1`.
    pub fn is_empty(&self) -> bool {
        self.iter.remaining == 0
    }

    /// The argument at `index`; walks to it.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.iter().nth(index)
    }

    /// All arguments.
    pub fn iter(&self) -> ArgIter<'a> {
        self.iter
    }

    /// The line, if its words must be rewritten before they can be parsed.
    pub fn quoted_line(&self) -> Option<QuotedLine<'a>> {
        self.quoted.then_some(QuotedLine { line: self.iter.rest })
    }
}

impl<'a> Iterator for ArgIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        let (argument, rest) = match self.form {
            Form::Bulk => split_bulk(self.rest)?,
            Form::Inline => inline::split_word(self.rest)?,
        };
        self.rest = rest;
        Some(argument)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for ArgIter<'_> {
    fn len(&self) -> usize {
        self.remaining as usize
    }
}

/// Two walks are equal if they will yield equal arguments.
impl PartialEq for ArgIter<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.remaining == other.remaining && (*self).eq_by_items(*other)
    }
}

impl<'a> ArgIter<'a> {
    /// A walk over nothing.
    pub fn empty() -> ArgIter<'a> {
        ArgIter { rest: &[], remaining: 0, form: Form::Bulk }
    }

    /// The position of the walk in `command`, the bytes of the whole command that it walks.
    pub fn place_in(&self, command: &[u8]) -> ArgPlace {
        let start = self.rest.as_ptr().addr().wrapping_sub(command.as_ptr().addr());
        ArgPlace { start, remaining: self.remaining, form: self.form }
    }

    fn eq_by_items(self, other: ArgIter<'_>) -> bool {
        Iterator::eq(self, other)
    }

    pub(crate) fn take_first(mut self, count: usize) -> ArgIter<'a> {
        self.remaining = self.remaining.min(u32::try_from(count).unwrap_or(u32::MAX));
        self
    }
}

impl ArgPlace {
    /// The number of remaining arguments.
    pub fn remaining(self) -> usize {
        self.remaining as usize
    }

    /// The walk from that position on; an empty one if `command` is shorter than it was.
    pub fn walk(self, command: &[u8]) -> ArgIter<'_> {
        match command.get(self.start..) {
            Some(rest) => ArgIter { rest, remaining: self.remaining, form: self.form },
            None => ArgIter::empty(),
        }
    }
}

/// Parses `$len CRLF bytes CRLF` (A1 guarantees it).
#[inline]
fn split_bulk(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len_bytes, start) = match rest {
        [_, digit, b'\r', ..] => (usize::from(digit & 0xf), 4),
        [_, ten, digit, b'\r', ..] => (usize::from(ten & 0xf) * 10 + usize::from(digit & 0xf), 5),
        _ => long_length(rest)?,
    };
    let (bulk, after) = rest.get(start..)?.split_at_checked(len_bytes)?;
    Some((bulk, after.get(2..)?))
}

/// A length of three digits or more, and the start of the bytes.
#[inline(never)]
fn long_length(rest: &[u8]) -> Option<(usize, usize)> {
    let digits = rest.get(1..)?;
    let digit_count = digits.iter().position(|byte| *byte == b'\r')?;
    let value =
        |sum: usize, digit: &u8| sum.wrapping_mul(10).wrapping_add(usize::from(digit & 0xf));
    Some((digits[..digit_count].iter().fold(0, value), 1 + digit_count + 2))
}

impl<'a> Keys<'a> {
    pub(crate) fn all(iter: ArgIter<'a>) -> Keys<'a> {
        Keys { iter, step: 1 }
    }

    pub(crate) fn stepped(iter: ArgIter<'a>, step: u32) -> Keys<'a> {
        Keys { iter, step: step.max(1) }
    }

    /// The walk over the arguments that contain the keys, and the distance between keys.
    pub fn arguments(&self) -> (ArgIter<'a>, u32) {
        (self.iter, self.step)
    }

    /// The keys among the arguments, each `step` after the previous one.
    pub fn among(arguments: ArgIter<'a>, step: u32) -> Keys<'a> {
        Keys::stepped(arguments, step)
    }

    /// No key is longer than all remaining bytes of the command.
    pub fn len_bytes_bound(&self) -> usize {
        self.iter.rest.len()
    }

    /// How many keys are left.
    pub fn len(&self) -> usize {
        self.iter.len().div_ceil(self.step as usize)
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let key = self.iter.next()?;
        for _ in 1..self.step {
            self.iter.next();
        }
        Some(key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Keys<'_> {}

impl<'a> Pairs<'a> {
    pub(crate) fn new(iter: ArgIter<'a>) -> Pairs<'a> {
        Pairs { iter }
    }

    /// How many pairs are left.
    pub fn len(&self) -> usize {
        self.iter.len() / 2
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Only the first of each pair.
    pub fn keys(&self) -> Keys<'a> {
        Keys::stepped(self.iter, 2)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        Some((self.iter.next()?, self.iter.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

impl QuotedLine<'_> {
    /// Appends the same command as a multibulk, to be parsed in place of the line.
    pub fn rewrite(&self, out: &mut Vec<u8>) {
        inline::rewrite(self.line, out);
    }
}

#[cfg(test)]
mod tests {
    use crate::Parsed;
    use crate::resp::{Limits, Parser};

    #[track_caller]
    fn check_places(command: &[u8]) {
        let Parsed::Done { value, .. } = Parser::default().parse(command, &Limits::default())
        else {
            panic!("not one whole command");
        };
        let moved = command.to_vec();
        let mut walk = value.iter();
        loop {
            let place = walk.place_in(command);
            assert!(walk.eq(place.walk(&moved)), "after {} arguments", value.len() - walk.len());
            assert_eq!(place.walk(&[]).next(), None, "bytes that are shorter hold nothing");
            if walk.next().is_none() {
                break;
            }
        }
    }

    #[test]
    fn a_walk_goes_on_from_its_place_in_a_copy_of_the_command() {
        check_places(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n");
        check_places(b"*1\r\n$4\r\nPING\r\n");
        check_places(b"MGET  a \"b c\" d \r\n");
    }
}
