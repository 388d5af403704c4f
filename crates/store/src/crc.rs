//! CRC-32C of entries: a running state, so that a body is summed before its header is known.

use crc_fast::{CrcAlgorithm, Digest};

/// The state before any byte.
pub(crate) const START: u32 = u32::MAX;

/// The state after `bytes`. The state, not its complement, is what entries store: one step less,
/// and as strong.
#[inline]
pub(crate) fn extend(state: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    u32::try_from(digest.get_state()).expect("a 32-bit checksum has a 32-bit state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_the_complement_of_the_published_check_value() {
        assert_eq!(extend(START, b"123456789"), !0xe306_9283);
    }

    #[test]
    fn a_sum_may_be_cut_anywhere() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for cut in [0, 1, 7, 8, 63, 64, 500, 1000] {
            assert_eq!(extend(extend(START, &bytes[..cut]), &bytes[cut..]), extend(START, &bytes));
        }
    }
}
