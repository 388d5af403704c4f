//! Passwords: compares, hashes and generates them.

/// The maximum length of `requirepass`, as in Redis: a client that has not logged in may send some
/// 16 KiB.
pub const PASSWORD_MAX_BYTES: usize = 512;

/// The maximum length of a password that is hashed: some 0.3 ms.
pub const HASHED_MAX_BYTES: usize = 64 << 10;

/// Whether two passwords are equal, in a time that does not reveal where they differ.
pub fn matches(want: &[u8], given: &[u8]) -> bool {
    let differences = want.iter().enumerate().fold(0, |differences, (index, byte)| {
        differences | (byte ^ given.get(index).copied().unwrap_or(!byte))
    });
    want.len() == given.len() && differences == 0
}

/// SHA-256 in hexadecimal, as Redis shows passwords.
pub fn digest(password: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(password))
}

/// So many random hexadecimal digits, from the system's generator.
///
/// # Errors
///
/// The generator fails.
pub fn random_hex(digit_count: usize) -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = vec![0; digit_count.div_ceil(2)];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text = hex(&bytes);
    text.truncate(digit_count);
    Ok(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha_256_and_random_digits_differ() {
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), want);
        let [first, second] = [random_hex(65).unwrap(), random_hex(65).unwrap()];
        assert_eq!((first.len(), first == second), (65, false));
    }

    #[test]
    fn only_equal_passwords_match() {
        assert!(matches(b"secret", b"secret"));
        for given in [&b""[..], b"secre", b"secrets", b"secreT"] {
            assert!(!matches(b"secret", given));
        }
        assert!(matches(b"", b""));
    }
}
