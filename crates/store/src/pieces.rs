//! A new value as the list of pieces that are copied into the log.
//!
//! ```text
//!  APPEND      old value ─────┐                      ┌───── the request's bytes
//!  SETRANGE    old, up to ──┐ │   zeros of a gap     │ ┌─── the request's bytes, old, from there
//!  INCR                     │ │   the number         │ │
//!                        [ before ][ made ][ after 0 ][ after 1 ][ token ] ──▶ one entry
//! ```
//!
//! # Invariants
//! I1: only `made` owns memory, so only `made` is booked: a value that a client sends is not in
//!     memory twice before it is in the log.

use std::array;

/// A new value as consecutive pieces.
#[derive(Debug, Default)]
pub struct Pieces<'v> {
    /// The first piece: bytes of the old item or of the request.
    pub before: &'v [u8],
    /// The second: bytes made by the update itself.
    pub made: Vec<u8>,
    /// The last ones: bytes of the old item or of the request.
    pub after: [&'v [u8]; 2],
}

impl<'v> Pieces<'v> {
    /// An empty value, with the caller's buffer for `made`.
    pub fn in_buffer(mut made: Vec<u8>) -> Pieces<'v> {
        made.clear();
        Pieces { made, ..Pieces::default() }
    }

    /// The length of the value.
    pub fn len_bytes(&self) -> usize {
        self.before.len() + self.made.len() + self.after[0].len() + self.after[1].len()
    }

    /// The value in one piece, in the memory of `made`.
    pub fn gathered(self) -> Vec<u8> {
        let more_bytes = self.len_bytes() - self.made.len();
        let Pieces { before, mut made, after: [first, second] } = self;
        made.reserve_exact(more_bytes);
        if made.is_empty() {
            made.extend_from_slice(before);
        } else if !before.is_empty() {
            made.splice(0..0, before.iter().copied());
        }
        made.extend_from_slice(first);
        made.extend_from_slice(second);
        made
    }

    /// All pieces, followed by the bytes stored behind them.
    pub(crate) fn with<'p>(&'p self, behind: &'p [u8]) -> Parts<'p> {
        Parts([self.before, &self.made, self.after[0], self.after[1], behind])
    }
}

/// The parts of a stored value, in order.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'p>([&'p [u8]; 5]);

impl<'p> Parts<'p> {
    /// The total length.
    pub fn len_bytes(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    /// The parts that are not empty.
    pub fn iter(&self) -> impl Iterator<Item = &'p [u8]> {
        self.0.into_iter().filter(|part| !part.is_empty())
    }

    /// The first `N` bytes; zeros behind a shorter value.
    pub fn word<const N: usize>(&self) -> [u8; N] {
        let mut bytes = self.iter().flatten();
        array::from_fn(|_| bytes.next().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_gathered_in_their_order() {
        let whole = |before, made: &[u8], after| {
            let pieces = Pieces { before, made: made.to_vec(), after };
            assert_eq!(pieces.with(b"").len_bytes(), pieces.len_bytes());
            let parts: Vec<u8> = pieces.with(b"!").iter().flatten().copied().collect();
            let gathered = pieces.gathered();
            assert_eq!(parts, [&gathered[..], b"!"].concat());
            gathered
        };
        assert_eq!(whole(b"", b"7", [b"", b""]), b"7");
        assert_eq!(whole(b"old", b"", [b"new", b""]), b"oldnew");
        assert_eq!(whole(b"ab", b"00", [b"cd", b"e"]), b"ab00cde");
        assert_eq!(whole(b"", b"", [b"", b""]), b"");
    }

    #[test]
    fn a_word_is_the_beginning_of_the_value() {
        let pieces = Pieces { before: b"ab", made: b"c".to_vec(), after: [b"", b"d"] };
        assert_eq!(pieces.with(b"").word(), *b"abcd\0\0\0\0");
        assert_eq!(pieces.with(b"efghij").word(), *b"abcdefgh");
    }
}
