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

/// The words of a line, with their escapes resolved; `None` if its quotes are not balanced.
/// Lines of configuration files and of a prompt are split like inline commands.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        let mut word = Vec::new();
        let after = read_word(rest, |piece| match piece {
            Piece::Byte(byte) | Piece::Escaped(byte) => word.push(byte),
            Piece::Quote => {}
        })?;
        words.push(word);
        rest = skip_blanks(after);
    }
    Some(words)
}

/// Appends the line's words as a multibulk. The line's quotes are balanced.
pub(crate) fn rewrite(line: &[u8], out: &mut Vec<u8>) {
    let words = split_words(line).unwrap_or_default();
    let mut number = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(number.format(words.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for word in words {
        out.push(b'$');
        out.extend_from_slice(number.format(word.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&word);
        out.extend_from_slice(b"\r\n");
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

#[cfg(test)]
mod tests {
    use super::split_words;

    #[track_caller]
    fn check(line: &[u8], want: &[&[u8]]) {
        let want = want.iter().map(|word| word.to_vec()).collect();
        assert_eq!(split_words(line), Some(want), "{}", line.escape_ascii());
    }

    #[test]
    fn blanks_part_words() {
        check(b"", &[]);
        check(b" \t\r\n", &[]);
        check(b"  get\tk \r\n", &[b"get", b"k"]);
        check(b"maxmemory   2gb\t", &[b"maxmemory", b"2gb"]);
    }

    #[test]
    fn double_quotes_keep_blanks_and_know_escapes() {
        check(br#"set k "a b""#, &[b"set", b"k", b"a b"]);
        check(br#""a\x00b\xfF""#, &[b"a\0b\xff"]);
        check(br#""\n\r\t\b\a\"\\\q""#, &[b"\n\r\t\x08\x07\"\\q"]);
        check(br#""\xg1" save """#, &[b"xg1", b"save", b""]);
        check(br#"ab"c d""#, &[b"abc d"]);
    }

    #[test]
    fn single_quotes_keep_all_but_an_escaped_quote() {
        check(br"'a b' 'it\'s' '\n' ''", &[b"a b", b"it's", br"\n", b""]);
    }

    #[test]
    fn a_quote_is_closed_before_a_blank_or_the_end() {
        let half = r#"half"way "in"#;
        for line in
            [r#"get "k"#, "get 'k", r#"get "k"x"#, "get 'k'x", r#"get "k\"#, r#""a""b""#, half]
        {
            assert_eq!(split_words(line.as_bytes()), None, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_split_or_refused(line: Vec<u8>) {
            let counted = super::count_words(&line).map(|words| words.count as usize);
            let words = split_words(&line);
            assert_eq!(words.as_ref().map(Vec::len), counted);
            let words_bytes: usize = words.into_iter().flatten().map(|word| word.len()).sum();
            assert!(words_bytes <= line.len());
        }
    }
}
