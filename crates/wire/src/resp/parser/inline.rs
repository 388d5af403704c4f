//! Inline commands: words on a line, quoted as in a shell.

/// The next word of a line without escapes, and what follows it.
pub(crate) fn split_word(_line: &[u8]) -> Option<(&[u8], &[u8])> {
    None
}

/// Appends the line's words as a multibulk.
pub(crate) fn rewrite(_line: &[u8], _out: &mut Vec<u8>) {}
