//! The glob of KEYS, SCAN MATCH and CONFIG GET: `* ? [a-z] [^x] \`, on bytes.
//!
//! # Trade-offs
//! One remembered star is enough: when a later star has been reached, giving more bytes to an
//! earlier one cannot help. So a hostile pattern costs at most `pattern.len() * text.len()`
//! steps, where a recursive matcher would be exponential.

/// Whether all of `text` matches `pattern`.
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, |byte| byte)
}

/// The same, letters of either case being equal (names of settings and commands).
pub fn glob_matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// The bytes that every match of `pattern` starts with, as far as they stand there literally.
pub fn glob_prefix(pattern: &[u8]) -> &[u8] {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let len = pattern.iter().position(is_special).unwrap_or(pattern.len());
    &pattern[..len]
}

fn matches(mut pattern: &[u8], mut text: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> bool {
    // What follows the last star, and the text that it has been tried against.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = pattern {
            star = Some((after, text));
            pattern = after;
            continue;
        }
        let Some((byte, text_after)) = text.split_first() else {
            return pattern.is_empty();
        };
        if let Some(pattern_after) = match_one(pattern, *byte, fold) {
            (pattern, text) = (pattern_after, text_after);
            continue;
        }
        // The star takes one byte more.
        let Some((after_star, [_, rest @ ..])) = star else {
            return false;
        };
        star = Some((after_star, rest));
        (pattern, text) = (after_star, rest);
    }
}

/// Matches one byte with the front of `pattern`; answers the pattern behind it.
fn match_one(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8 + Copy) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', b'^', class @ ..] => {
            let (is_member, after) = match_class(class, byte, fold);
            (!is_member).then_some(after)
        }
        [b'[', class @ ..] => {
            let (is_member, after) = match_class(class, byte, fold);
            is_member.then_some(after)
        }
        [b'\\', literal, after @ ..] | [literal, after @ ..] => {
            (fold(*literal) == fold(byte)).then_some(after)
        }
    }
}

/// Reads a class up to its `]`, or to the pattern's end if there is none.
fn match_class(mut class: &[u8], byte: u8, fold: impl Fn(u8) -> u8 + Copy) -> (bool, &[u8]) {
    let byte = fold(byte);
    let mut is_member = false;
    loop {
        class = match class {
            [] => return (is_member, class),
            [b'\\', literal, after @ ..] => {
                is_member |= fold(*literal) == byte;
                after
            }
            [b']', after @ ..] => return (is_member, after),
            [from, b'-', to, after @ ..] => {
                let (low, high) = (fold(*from.min(to)), fold(*from.max(to)));
                is_member |= (low..=high).contains(&byte);
                after
            }
            [literal, after @ ..] => {
                is_member |= fold(*literal) == byte;
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{glob_matches, glob_matches_any_case, glob_prefix};

    #[track_caller]
    fn check(pattern: &str, text: &str, want: bool) {
        assert_eq!(glob_matches(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
    }

    #[test]
    fn literals_match_themselves_only() {
        check("", "", true);
        check("", "a", false);
        check("abc", "abc", true);
        check("abc", "abd", false);
        check("abc", "ab", false);
        check("ab", "abc", false);
    }

    #[test]
    fn a_star_takes_any_number_of_bytes() {
        check("*", "", true);
        check("*", "anything", true);
        check("h*llo", "hllo", true);
        check("h*llo", "heeeello", true);
        check("h*llo", "hell", false);
        check("*a*b*", "xxaxxbxx", true);
        check("*a*b*", "xxbxxaxx", false);
        check("a**", "a", true);
        check("*ab", "aaab", true);
    }

    #[test]
    fn a_question_mark_takes_one_byte() {
        check("h?llo", "hello", true);
        check("h?llo", "hllo", false);
        check("?", "", false);
        check("*?", "a", true);
    }

    #[test]
    fn classes_hold_bytes_ranges_and_escapes() {
        check("h[ae]llo", "hallo", true);
        check("h[ae]llo", "hillo", false);
        check("h[^e]llo", "hallo", true);
        check("h[^e]llo", "hello", false);
        check("[a-c]", "b", true);
        check("[c-a]", "b", true);
        check("[a-c]", "d", false);
        check("[\\]]", "]", true);
        check("[a-]", "_", true); // A range up to the bracket, as in Redis.
        check("[a-", "-", true);
        check("[^]", "x", true);
        check("[]", "x", false);
        check("[abc", "b", true);
        check("[", "[", false);
    }

    #[test]
    fn a_backslash_takes_the_meaning_away() {
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("a\\", "a\\", true);
        check("\\[a]", "[a]", true);
    }

    #[test]
    fn case_counts_only_where_it_is_asked_for() {
        check("ABC", "abc", false);
        assert!(glob_matches_any_case(b"MAX*", b"maxmemory"));
        assert!(glob_matches_any_case(b"[A-C]x", b"bX"));
    }

    #[test]
    fn a_prefix_ends_where_bytes_begin_to_mean_something() {
        for (pattern, want) in [
            ("user:*", "user:"),
            ("user:1", "user:1"),
            ("us?r", "us"),
            ("us[e]r", "us"),
            ("us\\er", "us"),
            ("us]er-^*", "us]er-^"),
            ("*", ""),
            ("", ""),
        ] {
            assert_eq!(glob_prefix(pattern.as_bytes()), want.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends_quickly() {
        let pattern = "a*".repeat(500) + "b";
        check(&pattern, &"a".repeat(5_000), false);
    }
}
