//! CRC-32C (Castagnoli), the checksum of records and of the configuration.

use crc_fast::{CrcAlgorithm, checksum};

/// The CRC-32C of these bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    // A 32-bit checksum has 32 bits.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}
