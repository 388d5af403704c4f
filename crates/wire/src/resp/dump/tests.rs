//! Payloads: our own, those written by Redis 7.0.15, and damaged ones.

use super::*;

const MAX_BYTES: u64 = 1 << 20;

#[track_caller]
fn check_load(payload: &[u8], want: &[u8]) {
    let value = load(payload, MAX_BYTES).and_then(|dumped| {
        assert!(dumped.len_max_bytes() >= want.len());
        dumped.value()
    });
    assert_eq!(value.as_deref(), Ok(want), "{}", payload.escape_ascii());
}

/// Redis 7.0.15 answers DUMP of the value with the payload.
#[track_caller]
fn check_same(value: &[u8], payload: &[u8]) {
    let mut saved = Vec::new();
    save(value, &mut saved);
    assert_eq!(saved, payload, "{}", saved.escape_ascii());
    check_load(payload, value);
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc_fast::checksum(CrcAlgorithm::Crc64Redis, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

#[test]
fn payloads_are_those_of_redis() {
    check_same(b"hello", b"\x00\x05hello\n\x00cr\xdfve4 \n");
    check_same(b"12", b"\x00\xc0\x0c\n\x00<*\xf8Q\\\x04\xbc\xd5");
    check_same(b"-300", b"\x00\xc1\xd4\xfe\n\x00\xc6\xc4\x86#\xfe\xbe\xde.");
    check_same(b"1234567", b"\x00\xc2\x87\xd6\x12\x00\n\x00\xe9>\x1e6+;|^");
    check_same(b"", b"\x00\x00\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
    check_same(b"99999999999", b"\x00\x0b99999999999\n\x00#\xb0H\xfb\x0e\xdb\xef\x7f");
}

#[test]
fn compressed_values_are_unpacked() {
    let want = [&b"a".repeat(92)[..], &b"abcd".repeat(7)].concat();
    let mut packed =
        b"\x00\xc3\x10@{\x01aa\xe0Q\x00\x02bcd\xe0\x11\x03\x01cd\n\x00\x04W\\".to_vec();
    packed.extend_from_slice(b"\x8cr\x8f\t\x08");
    // 123 bytes: the recording contains the length itself.
    let dumped = load(&packed, MAX_BYTES).expect("a payload of Redis");
    assert_eq!((dumped.len_max_bytes(), dumped.unpacked_bytes()), (123, 123));
    let value = dumped.value().unwrap();
    assert_eq!(value.len(), 123);
    assert!(want.starts_with(&value[..92]) && value.ends_with(b"abcdabcd"));
    assert_eq!(load(&packed, 122), Err(ErrorReply::StringTooLong));
}

#[test]
fn every_length_comes_back() {
    for len in [0, 1, 63, 64, 16_383, 16_384, 70_000] {
        let value = b"x".repeat(len);
        let mut payload = Vec::new();
        save(&value, &mut payload);
        check_load(&payload, &value);
    }
    for number in ["-128", "127", "-129", "32767", "-32769", "2147483647", "-2147483648"] {
        let mut payload = Vec::new();
        save(number.as_bytes(), &mut payload);
        assert!(payload.len() <= 6 + FOOTER_BYTES);
        check_load(&payload, number.as_bytes());
    }
    for text in ["2147483648", "-2147483649", "007", "+1", "-0"] {
        let mut payload = Vec::new();
        save(text.as_bytes(), &mut payload);
        check_load(&payload, text.as_bytes());
    }
}

#[test]
fn damage_is_refused() {
    let mut payload = Vec::new();
    save(b"some value", &mut payload);
    for cut in 0..payload.len() {
        assert_eq!(load(&payload[..cut], MAX_BYTES), Err(ErrorReply::DumpChecksum));
        let mut flipped = payload.clone();
        flipped[cut] ^= 1;
        assert_eq!(load(&flipped, MAX_BYTES), Err(ErrorReply::DumpChecksum));
    }
}

#[test]
fn what_is_no_string_is_refused() {
    let refused = |body: &[u8]| {
        let payload = sealed(body);
        load(&payload, MAX_BYTES).and_then(Dumped::value).expect_err("no string")
    };
    for body in [&b""[..], b"\0", b"\0\x05four", b"\0\xc4", b"\0\x83", b"\0\xc3\x01", b"\xff"] {
        assert_eq!(refused(body), ErrorReply::DumpFormat, "{body:?}");
    }
    // Too short, too long, a copy from before the start, an impossible length.
    for body in [&b"\0\xc3\x02\x05\0a"[..], b"\0\xc3\x02\0\0a", b"\0\xc3\x03\x03\x20\0a"] {
        assert_eq!(refused(body), ErrorReply::DumpFormat, "{body:?}");
    }
    assert_eq!(refused(b"\0\xc3\x01\x80\x7f\xff\xff\xff\0"), ErrorReply::DumpFormat);
    let list = refused(b"\x12\x01\x02\n\n\x00\x00\x00\x01\x00\x81a\x02\xff");
    assert_eq!(list.to_string(), "ERR Bad data format: this server has strings only");
}

#[test]
fn later_versions_are_refused() {
    let mut payload = b"\0\x01a".to_vec();
    payload.extend_from_slice(&14_u16.to_le_bytes());
    let checksum = crc_fast::checksum(CrcAlgorithm::Crc64Redis, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(load(&payload, MAX_BYTES), Err(ErrorReply::DumpChecksum));
}

#[test]
fn a_frame_around_a_value_is_its_payload() {
    for len in [12, 63, 64, 16_383, 16_384, 100_000] {
        let value = vec![b'7'; len];
        let (head, footer) = frame(&value).expect("it is long");
        let mut saved = Vec::new();
        save(&value, &mut saved);
        assert_eq!([&head[..], &value, &footer].concat(), saved, "{len} bytes");
    }
    assert_eq!(frame(b"12345678901"), None, "it may be kept as an integer");
}
