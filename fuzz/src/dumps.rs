//! Payloads of DUMP: any bytes as a body behind a right footer, and as a whole payload.

use wire::resp::dump::{Dumped, load, save};

/// Longer values are refused.
const VALUE_MAX_BYTES: u64 = 1 << 16;

/// An input is a payload, and the value and the body of two others.
pub fn dumps(data: &[u8]) {
    // Nearly never with the right checksum.
    let _ = load(data, VALUE_MAX_BYTES).and_then(Dumped::value);
    check_value(data);
    check_body(data);
}

/// What was saved is loaded.
fn check_value(value: &[u8]) {
    let mut payload = Vec::new();
    save(value, &mut payload);
    let loaded = load(&payload, u64::MAX).and_then(Dumped::value);
    assert_eq!(loaded.expect("a payload of our own"), value);
}

/// A body with a right footer is refused, or a value that is saved and loaded again.
fn check_body(body: &[u8]) {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&10_u16.to_le_bytes());
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Redis, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    let Ok(dumped) = load(&payload, VALUE_MAX_BYTES) else { return };
    let len_max_bytes = dumped.len_max_bytes();
    if let Ok(value) = dumped.value() {
        assert!(value.len() <= len_max_bytes && value.len() as u64 <= VALUE_MAX_BYTES);
        check_value(&value);
    }
}
