//! Password comparison.

/// Whether two passwords are equal, in a time that does not tell where they differ.
pub fn matches(want: &[u8], given: &[u8]) -> bool {
    let differences = want.iter().enumerate().fold(0, |differences, (index, byte)| {
        differences | (byte ^ given.get(index).copied().unwrap_or(!byte))
    });
    want.len() == given.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_passwords_match() {
        assert!(matches(b"secret", b"secret"));
        for given in [&b""[..], b"secre", b"secrets", b"secreT"] {
            assert!(!matches(b"secret", given));
        }
        assert!(matches(b"", b""));
    }
}
