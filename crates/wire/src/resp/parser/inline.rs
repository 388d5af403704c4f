//! Inline commands: words on a line, quoted as in a shell.
//!
//! ```text
//!  SET key plain        words lie in the line as they are meant
//!  SET key "two words"  so do words that are one quoted piece without a backslash
//!  SET key "a\nb" x"y"  these do not: the line is rewritten as a multibulk first
//! ```
//!
//! In double quotes `\n \r \t \b \a \xHH` and `\` before any other byte; in single quotes only
//! `\'`. A closing quote ends the word and must be followed by a blank or the line's end.

/// The words of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) count: u32,
    pub(crate) needs_rewrite: bool,
}

/// Counts the words of a line; `None` if its quotes are not balanced.
pub(crate) fn count_words(line: &[u8]) -> Option<Words> {
    let mut words = Words { count: 0, needs_rewrite: false };
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        let mut is_plain = true;
        let mut is_first_piece = true;
        rest = read_word(rest, |piece| {
            // A quoted piece ends its word, so a word that opens with a quote is only that piece.
            is_plain &= match piece {
                Piece::Byte(_) => true,
                Piece::Quote => is_first_piece,
                Piece::Escaped(_) => false,
            };
            is_first_piece = false;
        })?;
        words.needs_rewrite |= !is_plain;
        words.count += 1;
        rest = skip_blanks(rest);
    }
    Some(words)
}

/// The next word of a line that needs no rewriting, and the rest. A separate function: clients
/// usually send multibulks.
#[inline(never)]
pub(crate) fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = skip_blanks(line);
    let first = *rest.first()?;
    if matches!(first, b'"' | b'\'') {
        let end = memchr::memchr(first, &rest[1..])? + 1;
        return Some((&rest[1..end], &rest[end + 1..]));
    }
    let end = rest.iter().position(|byte| ends_word(*byte)).unwrap_or(rest.len());
    Some((&rest[..end], &rest[end..]))
}

/// Appends the line's words as a multibulk. The line's quotes are balanced.
pub(crate) fn rewrite(line: &[u8], out: &mut Vec<u8>) {
    let count = count_words(line).map_or(0, |words| words.count);
    let mut number = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(number.format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
    let mut word = Vec::new();
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        word.clear();
        let after = read_word(rest, |piece| match piece {
            Piece::Byte(byte) | Piece::Escaped(byte) => word.push(byte),
            Piece::Quote => {}
        });
        let Some(after) = after else { return };
        out.push(b'$');
        out.extend_from_slice(number.format(word.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&word);
        out.extend_from_slice(b"\r\n");
        rest = skip_blanks(after);
    }
}

/// A piece of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// An opening quote.
    Quote,
    /// A literal byte.
    Byte(u8),
    /// The byte of an escape.
    Escaped(u8),
}

/// Parses the word at the front of `rest`, which is not blank; returns the rest after it. `None` if
/// a quote is not closed or a closing one is followed by a byte of the word.
fn read_word(mut rest: &[u8], mut take: impl FnMut(Piece)) -> Option<&[u8]> {
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'"' | b'\'' => {
                take(Piece::Quote);
                let after = read_quoted(after, *byte, &mut take)?;
                let is_closed_well = after.first().is_none_or(|next| is_blank(*next));
                return is_closed_well.then_some(after);
            }
            byte if ends_word(*byte) => return Some(rest),
            byte => take(Piece::Byte(*byte)),
        }
        rest = after;
    }
    Some(rest)
}

fn read_quoted<'a>(
    mut rest: &'a [u8],
    quote: u8,
    take: &mut impl FnMut(Piece),
) -> Option<&'a [u8]> {
    loop {
        let (piece, after) = match (quote, rest) {
            (_, []) => return None,
            (_, [byte, after @ ..]) if *byte == quote => return Some(after),
            (b'"', [b'\\', b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (Piece::Escaped(hex_value(*high) * 16 + hex_value(*low)), after)
            }
            (b'"', [b'\\', escaped, after @ ..]) => (Piece::Escaped(escape_value(*escaped)), after),
            (b'\'', [b'\\', b'\'', after @ ..]) => (Piece::Escaped(b'\''), after),
            (_, [byte, after @ ..]) => (Piece::Byte(*byte), after),
        };
        take(piece);
        rest = after;
    }
}

fn escape_value(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

/// The blanks between words: those of C's `isspace`, and NUL, at which Redis ends a line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

/// The bytes that end an unquoted word: fewer than the blanks, as in Redis.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0)
}

fn skip_blanks(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !is_blank(*byte)).unwrap_or(line.len());
    &line[start..]
}
