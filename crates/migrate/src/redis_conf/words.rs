//! Splits a line into words as Redis does.

/// The words; `None`: quotes are not balanced.
pub(super) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let start = rest.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0);
        let Some(start) = start else { return Some(words) };
        let (word, after) = one(&rest[start..])?;
        words.push(word);
        rest = after;
    }
}

fn one(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [0, ..] => return Some((word, &[])),
            [byte, ..] if byte.is_ascii_whitespace() => return Some((word, rest)),
            [b'"', quoted @ ..] => return closed(double_quoted(quoted, &mut word)?, word),
            [b'\'', quoted @ ..] => return closed(single_quoted(quoted, &mut word)?, word),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// A closing quote must be followed by a space, or by nothing.
fn closed(rest: &[u8], word: Vec<u8>) -> Option<(Vec<u8>, &[u8])> {
    let is_end = rest.first().is_none_or(|byte| byte.is_ascii_whitespace());
    is_end.then_some((word, rest))
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[track_caller]
    fn check(line: &str, want: Option<&[&[u8]]>) {
        let found = split(line.as_bytes());
        let found: Option<Vec<&[u8]>> =
            found.as_ref().map(|words| words.iter().map(Vec::as_slice).collect());
        assert_eq!(found.as_deref(), want, "{line}");
    }

    #[test]
    fn words_are_split_as_redis_splits_them() {
        check("maxmemory   2gb\t", Some(&[b"maxmemory", b"2gb"]));
        check(r#"a "b c" 'd e'"#, Some(&[b"a", b"b c", b"d e"]));
        check(r#""\x41\x0a\n\t\q\\\"" x"#, Some(&[b"A\n\n\tq\\\"", b"x"]));
        check(r#"'it\'s' '\n'"#, Some(&[b"it's", b"\\n"]));
        check(r#"save """#, Some(&[b"save", b""]));
        check(r#"half"way "in"#, None);
        check(r#""a"b"#, None);
        check("'open", None);
        check("", Some(&[]));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_split_or_refused(line: Vec<u8>) {
            if let Some(words) = split(&line) {
                let length: usize = words.iter().map(Vec::len).sum();
                assert!(length <= line.len());
            }
        }
    }
}
