//! Globs: against a matcher that is slow, recursive and obvious.

use wire::resp::{Glob, STEPS_PER_BYTE, glob_prefix};

/// An input is `pattern length (1 byte) | pattern | text`.
pub fn globs(data: &[u8]) {
    let Some((pattern_len, rest)) = data.split_first() else { return };
    // The model's time is exponential in the stars.
    let (pattern, text) = rest.split_at(usize::from(*pattern_len % 16).min(rest.len()));
    let text = &text[..text.len().min(16)];
    let want = model(pattern, text);
    let Ok(glob) = Glob::new(pattern) else { panic!("{pattern:?} is short enough") };
    let mut steps = 0;
    assert_eq!(glob.matches(text, &mut steps), want, "{pattern:?} {text:?}");
    let steps_max = STEPS_PER_BYTE * text.len() as u64 + pattern.len() as u64 + 1;
    assert!(steps <= steps_max, "{pattern:?} {text:?} {steps}");
    if want {
        assert!(text.starts_with(glob_prefix(pattern)), "{pattern:?} {text:?}");
    }
}

fn model(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| model(rest, &text[taken..])),
        (_, []) => false,
        ([b'?', rest @ ..], [_, text @ ..]) => model(rest, text),
        ([b'[', class @ ..], [byte, text @ ..]) => {
            let (is_negated, class) = match class {
                [b'^', class @ ..] => (true, class),
                class => (false, class),
            };
            let (members, rest) = model_class(class);
            members.contains(byte) != is_negated && model(rest, text)
        }
        ([b'\\', literal, rest @ ..] | [literal, rest @ ..], [byte, text @ ..]) => {
            literal == byte && model(rest, text)
        }
    }
}

/// All members of a class, and the pattern behind it.
fn model_class(mut class: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut members = Vec::new();
    loop {
        class = match class {
            [] => return (members, class),
            [b'\\', literal, rest @ ..] => {
                members.push(*literal);
                rest
            }
            [b']', rest @ ..] => return (members, rest),
            [from, b'-', to, rest @ ..] => {
                members.extend(*from.min(to)..=*from.max(to));
                rest
            }
            [literal, rest @ ..] => {
                members.push(*literal);
                rest
            }
        };
    }
}
