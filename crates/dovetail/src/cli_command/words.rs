//! Splits a line into words as redis-cli does: blanks separate words, quotes keep blanks.
//!
//! ```text
//!  set k "a b"       a closing quote stands before a blank or the end
//!  "..."  \n \r \t \b \a \xHH; any other escaped byte is itself
//!  '...'  \' is a quote; all else is as it stands
//! ```

/// An error: a quote is not closed, or is closed within a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unbalanced quotes: close each before a blank or the line's end")]
pub struct Unbalanced;

/// The words of a line; none for a line of blanks.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

fn take_word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    let mut word = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'"' => take_quoted(after, b'"', &mut word)?,
            b'\'' => take_quoted(after, b'\'', &mut word)?,
            blank if blank.is_ascii_whitespace() => break,
            plain => {
                word.push(*plain);
                after
            }
        };
    }
    Ok((word, rest))
}

/// Reads the byte after the closing quote.
fn take_quoted<'a>(
    mut rest: &'a [u8],
    quote: u8,
    word: &mut Vec<u8>,
) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [first, after @ ..] if *first == quote => {
                let is_closed = after.first().is_none_or(u8::is_ascii_whitespace);
                return if is_closed { Ok(after) } else { Err(Unbalanced) };
            }
            [b'\\', after @ ..] if quote == b'"' => take_escaped(after)?,
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [first, after @ ..] => (*first, after),
            [] => return Err(Unbalanced),
        };
        word.push(byte);
        rest = after;
    }
}

/// The byte for an escape: the character after the backslash.
fn take_escaped(rest: &[u8]) -> Result<(u8, &[u8]), Unbalanced> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if let [b'x', high, low, after @ ..] = rest
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Ok((high << 4 | low, after));
    }
    let (first, after) = rest.split_first().ok_or(Unbalanced)?;
    let byte = match first {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => *other,
    };
    Ok((byte, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], want: &[&[u8]]) {
        let want: Vec<Vec<u8>> = want.iter().map(|word| word.to_vec()).collect();
        assert_eq!(split(line), Ok(want), "{}", line.escape_ascii());
    }

    #[test]
    fn blanks_part_words() {
        check(b"", &[]);
        check(b" \t\r\n", &[]);
        check(b"  get\tk \r\n", &[b"get", b"k"]);
    }

    #[test]
    fn double_quotes_keep_blanks_and_know_escapes() {
        check(br#"set k "a b""#, &[b"set", b"k", b"a b"]);
        check(br#""a\x00b\xfF""#, &[b"a\0b\xff"]);
        check(br#""\n\r\t\b\a\"\\\q""#, &[b"\n\r\t\x08\x07\"\\q"]);
        check(br#""\xg1""#, &[b"xg1"]);
        check(br#""""#, &[b""]);
        check(br#"ab"c d""#, &[b"abc d"]);
    }

    #[test]
    fn single_quotes_keep_all_but_an_escaped_quote() {
        check(br"'a b' 'it\'s' '\n' ''", &[b"a b", b"it's", br"\n", b""]);
    }

    #[test]
    fn a_quote_is_closed_before_a_blank_or_the_end() {
        for line in [r#"get "k"#, "get 'k", r#"get "k"x"#, "get 'k'x", r#"get "k\"#, r#""a""b""#] {
            assert_eq!(split(line.as_bytes()), Err(Unbalanced), "{line}");
        }
    }
}
