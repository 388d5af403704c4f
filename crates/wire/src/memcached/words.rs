//! Words of a command line, separated by spaces. A NUL ends the line, as it does in C.

/// The maximum number of words of a command other than get; one more makes it wrong.
pub(super) const WORDS_MAX: usize = 8;

/// The words of a line, up to [`WORDS_MAX`], and whether there were more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    /// More than [`WORDS_MAX`] if the line has further words.
    pub(super) count: usize,
}

impl<'a> Words<'a> {
    pub(super) fn split(line: &'a [u8]) -> Words<'a> {
        let mut words = Words { words: [&[]; WORDS_MAX], count: 0 };
        let mut rest = line;
        while words.count <= WORDS_MAX {
            let Some((word, after)) = split_word(rest) else { break };
            if let Some(place) = words.words.get_mut(words.count) {
                *place = word;
            }
            words.count += 1;
            rest = after;
        }
        words
    }

    /// The word at `index`; empty if there is none.
    pub(super) fn get(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or_default()
    }

    /// Whether the last word is `noreply`.
    pub(super) fn ends_in_noreply(&self) -> bool {
        self.count > 0 && self.get(self.count - 1) == b"noreply"
    }
}

/// The first word of `line`, and what follows it.
#[inline]
pub(super) fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = skip_spaces(line);
    let mut end = 0;
    while end < rest.len() && rest[end] != b' ' && rest[end] != 0 {
        end += 1;
    }
    // An empty word here precedes a NUL, or there is none.
    if end == 0 { None } else { Some(rest.split_at(end)) }
}

/// [`split_word`] for words that may be long.
#[inline]
pub(super) fn split_key(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = skip_spaces(line);
    let end = memchr::memchr2(b' ', 0, rest).unwrap_or(rest.len());
    if end == 0 { None } else { Some(rest.split_at(end)) }
}

#[inline]
fn skip_spaces(mut line: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = line {
        line = rest;
    }
    line
}

/// Reads one space and one to nine digits, up to the next space or the line's end.
#[inline]
pub(super) fn plain_number(line: &[u8]) -> Option<(u32, &[u8])> {
    const DIGITS_MAX: usize = 9; // These fit into 32 bits.
    let digits = line.strip_prefix(b" ")?;
    let mut number = 0;
    let mut digit_count = 0;
    while let Some(byte) = digits.get(digit_count).filter(|byte| **byte != b' ') {
        let digit = u32::from(byte.wrapping_sub(b'0'));
        if digit > 9 || digit_count == DIGITS_MAX {
            return None;
        }
        number = number * 10 + digit;
        digit_count += 1;
    }
    (digit_count > 0).then(|| (number, &digits[digit_count..]))
}

/// Parses a number as C's `strtol` does after the word was cut out: a sign is allowed.
pub(super) fn parse_signed(word: &[u8]) -> Option<i64> {
    let (negative, magnitude) = parse_magnitude(word)?;
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Parses an unsigned number: `+` is allowed, and `-` before zero.
pub(super) fn parse_unsigned(word: &[u8]) -> Option<u64> {
    let (negative, magnitude) = parse_magnitude(word)?;
    (!negative || magnitude == 0).then_some(magnitude)
}

fn parse_magnitude(word: &[u8]) -> Option<(bool, u64)> {
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut magnitude = 0_u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some((negative, magnitude))
}
