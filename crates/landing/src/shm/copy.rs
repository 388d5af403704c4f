//! Copies between racing memory and private bytes, a word at a time.
//!
//! The other process may write any word of a region at any moment, whatever the protocol says. A
//! plain read or write that races is undefined behaviour, and a compiler may read a plain location
//! twice. So every access to a region is one relaxed atomic access to an aligned word:
//!
//! - S1: a region is only ever seen as `&[AtomicU64]`. No `&[u8]` or `&mut [u8]` into it exists.
//! - S2: a word is read once. Checks look at the copy, never at the region again.
//! - S3: bytes are parsed in the copy, which no other process sees.
//!
//! The language defines threads, not processes: another process's stores count as atomic stores of
//! another thread, and the hardware behaves like that (aligned eight-byte loads never fault and
//! return a mixture of stored bytes). Whatever was stored, the copy is an ordinary, initialised
//! byte string, and the parser must accept any byte string from a network anyway.
//!
//! The cost of both copies is in docs/results/landing.md: some ten nanoseconds for 100 bytes.

use base::sync::{AtomicU64, Ordering};

use crate::shm::layout::WORD_BYTES;

/// Copies the first `into.len()` bytes of the words.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], into: &mut [u8]) {
    debug_assert_eq!(words.len(), into.len().div_ceil(WORD_BYTES));
    let mut whole = into.chunks_exact_mut(WORD_BYTES);
    for (bytes, word) in whole.by_ref().zip(words) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let rest = whole.into_remainder();
    if let (false, Some(last)) = (rest.is_empty(), words.last()) {
        rest.copy_from_slice(&last.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
    }
}

/// Copies the bytes into the words; the last word is padded with zeros.
#[inline]
pub(crate) fn copy_in(words: &[AtomicU64], from: &[u8]) {
    debug_assert_eq!(words.len(), from.len().div_ceil(WORD_BYTES));
    let (whole, rest) = from.as_chunks::<WORD_BYTES>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if let (false, Some(last)) = (rest.is_empty(), words.last()) {
        let mut bytes = [0; WORD_BYTES];
        bytes[..rest.len()].copy_from_slice(rest);
        last.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn any_length_comes_back() {
        for len in 0..40 {
            let bytes: Vec<u8> = (1..=len).collect();
            let words: Vec<AtomicU64> =
                (0..bytes.len().div_ceil(8)).map(|_| AtomicU64::new(u64::MAX)).collect();
            copy_in(&words, &bytes);
            let mut copy = vec![0; bytes.len()];
            copy_out(&words, &mut copy);
            assert_eq!(copy, bytes);
        }
    }

    #[test]
    fn a_last_word_that_is_not_full_ends_in_zeros() {
        let words = [AtomicU64::new(u64::MAX)];
        copy_in(&words, b"abc");
        assert_eq!(words[0].load(Ordering::Relaxed).to_ne_bytes(), *b"abc\0\0\0\0\0");
    }
}
