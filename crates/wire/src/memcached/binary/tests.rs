//! The binary protocol's requests and responses, byte for byte.

use super::*;
use crate::Parsed;

const RULES: Rules = Rules { value_max_bytes: 100, access: Access::Free };

/// A request with the actual lengths.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![REQUEST_MAGIC, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend(b"opaq");
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend_from_slice(extras);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

#[track_caller]
fn done<'a>(input: &'a [u8], rules: &Rules) -> (Result<Request<'a>, Refusal<'a>>, usize) {
    match next_request(input, rules) {
        Parsed::Done { value, consumed_bytes } => (value, consumed_bytes),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(input: &[u8], rules: &Rules) -> (Status, u64, bool) {
    let refusal = done(input, rules).0.unwrap_err();
    assert_eq!(refusal.head.opaque, *b"opaq");
    (refusal.status, refusal.swallow_bytes, refusal.closes)
}

#[test]
fn a_set_has_flags_expiry_token_and_value() {
    let bytes = packet(0x11, &[0, 0, 0, 9, 0, 0, 1, 0], b"a key", b"value");
    let (request, consumed) = done(&bytes, &RULES);
    let request = request.unwrap();
    assert_eq!((request.verb, request.is_quiet, request.cas), (Verb::Set, true, 7));
    assert_eq!((request.flags(), request.exptime()), (9, 256));
    assert_eq!((request.key, request.value), (&b"a key"[..], &b"value"[..]));
    assert_eq!((consumed, request.head.opcode), (bytes.len(), 0x11));
}

#[test]
fn a_count_has_a_step_and_perhaps_a_beginning() {
    let mut extras = [0; 20];
    extras[7] = 3;
    extras[8] = 1;
    let bytes = packet(0x06, &extras, b"k", b"");
    let request = done(&bytes, &RULES).0.unwrap();
    assert_eq!((request.verb, request.delta()), (Verb::Decrement, 3));
    assert_eq!((request.initial(), request.exptime()), (Some(1 << 56), 0));
    extras[16..].fill(0xff);
    let bytes = packet(0x05, &extras, b"k", b"");
    assert_eq!(done(&bytes, &RULES).0.unwrap().initial(), None);
}

#[test]
fn where_it_is_cut_does_not_matter() {
    for bytes in [
        packet(0x01, &[0; 8], b"key", b"value"),
        packet(0x0c, b"", b"key", b""),
        packet(0x1d, &[0; 4], b"key", b""),
        packet(0x0a, b"", b"", b""),
        packet(0x99, b"xy", b"key", b""),
    ] {
        for cut in 0..bytes.len() {
            let Parsed::NeedMore { at_least_bytes } = next_request(&bytes[..cut], &RULES) else {
                panic!("{cut} of {bytes:?} are a request");
            };
            assert!(at_least_bytes > cut && at_least_bytes <= bytes.len());
        }
        assert_eq!(done(&bytes, &RULES).1, bytes.len());
    }
}

#[test]
fn wrong_lengths_are_refused_and_closed() {
    for bytes in [
        packet(0x00, b"", b"", b""),
        packet(0x00, b"x", b"key", b""),
        packet(0x00, b"", b"key", b"value"),
        packet(0x01, &[0; 7], b"key", b"value"),
        packet(0x01, &[0; 8], b"", b"value"),
        packet(0x05, &[0; 8], b"key", b""),
        packet(0x08, &[0; 3], b"", b""),
        packet(0x0a, b"", b"k", b""),
        packet(0x1c, &[0; 8], b"key", b""),
        packet(0x01, &[0; 8], &[b'k'; 251], b"value"),
    ] {
        assert_eq!(refused(&bytes, &RULES), (Status::Invalid, 0, true), "{bytes:?}");
    }
    let mut shorter = packet(0x00, b"", b"key", b"");
    shorter[11] = 2; // The body, of which the key has three bytes.
    assert_eq!(refused(&shorter, &RULES), (Status::UnknownCommand, 0, true));
    shorter[0] = b'g';
    assert_eq!(next_request(&shorter, &RULES), Parsed::Bad(InvalidMagic));
}

#[test]
fn what_is_unknown_or_too_large_is_skipped() {
    for opcode in [0x1b, 0x25, 0x30, 0x40, 0xff] {
        let bytes = packet(opcode, b"ext", b"key", b"value");
        assert_eq!(refused(&bytes, &RULES), (Status::UnknownCommand, 5, false));
        assert_eq!(done(&bytes, &RULES).1, bytes.len() - 5);
    }
    let mut bytes = packet(0x01, &[0; 8], b"key", &[b'v'; 101]);
    assert_eq!(refused(&bytes, &RULES), (Status::TooLarge, 101, false));
    assert_eq!(done(&bytes, &RULES).0.unwrap_err().delete_key, Some(&b"key"[..]));
    bytes[1] = 0x02;
    assert_eq!(done(&bytes, &RULES).0.unwrap_err().delete_key, None);
}

#[test]
fn a_stranger_may_log_in() {
    let stranger = Rules { access: Access::Stranger, ..RULES };
    let known = Rules { access: Access::Known, ..RULES };
    let auth = packet(0x21, b"", b"PLAIN", b"\0user\0password");
    let request = done(&auth, &stranger).0.unwrap();
    assert_eq!((request.key, request.value), (&b"PLAIN"[..], &b"\0user\0password"[..]));
    assert_eq!(refused(&auth, &RULES), (Status::UnknownCommand, 14, false));
    assert!(done(&packet(0x0b, b"", b"", b""), &stranger).0.is_ok());
    for opcode in [0x00, 0x0a, 0x77] {
        let bytes = packet(opcode, b"", b"", b"");
        assert_eq!(refused(&bytes, &stranger), (Status::AuthError, 0, true));
    }
    assert!(done(&packet(0x0a, b"", b"", b""), &known).0.is_ok());
    let long = packet(0x21, b"", &[b'M'; 33], b"data");
    assert_eq!(refused(&long, &stranger), (Status::Invalid, 4, false));
}

#[test]
fn responses_repeat_opcode_and_opaque() {
    let head = Head { opcode: 0x0c, opaque: *b"opaq" };
    let mut out = Vec::new();
    Encoder::new(&mut out, head).item_front(5, 9, b"key", 2);
    out.extend(b"ab");
    let want = b"\x81\x0c\x00\x03\x04\x00\x00\x00\x00\x00\x00\x09opaq\
                 \x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x05keyab";
    assert_eq!(out, want);
    out.clear();
    Encoder::new(&mut out, head).refuse(Status::UnknownCommand);
    let want = b"\x81\x0c\x00\x00\x00\x00\x00\x81\x00\x00\x00\x0fopaq\
                 \x00\x00\x00\x00\x00\x00\x00\x00Unknown command";
    assert_eq!(out, want);
}
