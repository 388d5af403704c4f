//! Tests of records: encoded entries decode to themselves, and other bytes are refused.

use super::*;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    let change = Change::Put { value, client_flags: 0, expires_at: None };
    Record { key, change, version: 9, shard: 0 }
}

fn encoded(record: &Record<'_>, seal: Seal) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len_bytes = record.encode(seal, &mut bytes).expect("it fits");
    assert_eq!((len_bytes, bytes.len()), (record.len_bytes(), record.len_bytes()));
    bytes
}

#[track_caller]
fn check(record: Record<'_>) {
    for seal in [Seal::NONE, Seal(0xdead_beef)] {
        let bytes = encoded(&record, seal);
        assert_eq!(decode(&bytes, seal), Ok((record, bytes.len())), "I1");
        let other = Seal(seal.0 ^ 1);
        assert!(matches!(decode(&bytes, other), Err(Damage::Checksum { .. })), "another seal");
    }
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let long = vec![7; 70_000];
    for value in [&b""[..], b"1", b"12345678", b"123456789", &long] {
        for key in [&b""[..], b"key", b"12345678", &long[..300], &long[..65_535]] {
            check(put(key, value));
            let expires_at = Some(UnixMillis(77));
            let change = Change::Put { value, client_flags: 5, expires_at };
            check(Record { key, change, version: VERSION_MASK, shard: u16::MAX });
        }
    }
}

#[test]
fn a_delete_reads_back_with_its_note() {
    for note in [0, 1, u64::MAX] {
        for key in [&b""[..], b"key", &[3; 300]] {
            check(Record { key, change: Change::Delete { note }, version: 1, shard: 3 });
        }
    }
}

#[test]
fn the_examples_of_the_formats_page_are_what_is_written() {
    let bytes = encoded(&put(b"key", b"value"), Seal::NONE);
    let header = [0x9b, 0xca, 0x10, 0xe2, 1, 3, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes, [&header[..], b"keyvalue"].concat());
    let delete = Record { change: Change::Delete { note: 0 }, ..put(b"deleted!", b"") };
    let bytes = encoded(&delete, Seal::NONE);
    assert_eq!(bytes[4..16], [0x10, 8, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[..4], [0xe6, 0xd5, 0xb3, 0x7f], "as on docs/formats/log-entry.md");
}

#[test]
fn what_does_not_fit_the_layout_is_refused() {
    let long = vec![0; 65_536];
    let refused = |record: Record<'_>| record.encode(Seal::NONE, &mut Vec::new()).unwrap_err();
    assert_eq!(refused(put(&long, b"")), Unencodable::KeyTooLong { len_bytes: 65_536 });
    for version in [0, VERSION_MASK + 1] {
        let record = Record { version, ..put(b"k", b"v") };
        assert_eq!(refused(record), Unencodable::Version { version });
    }
}

#[test]
fn any_flipped_bit_is_noticed() {
    let change = Change::Put { value: b"value", client_flags: 5, expires_at: Some(UnixMillis(77)) };
    let records = [
        Record { change, ..put(b"key", b"") },
        Record { change: Change::Delete { note: 4 }, ..put(b"k", b"") },
        put(b"12345678", b"87654321"),
    ];
    for record in records {
        let whole = encoded(&record, Seal::NONE);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match decode(&bytes, Seal::NONE) {
                Err(_) => {}
                // Padding belongs to no field.
                Ok((read, _)) => assert_eq!(read, record, "bit {bit}"),
            }
        }
    }
}

#[test]
fn each_kind_of_damage_has_its_name() {
    let whole = encoded(&put(b"key", b"value"), Seal::NONE);
    let damage = |bytes: &[u8]| decode(bytes, Seal::NONE).unwrap_err();
    assert_eq!(damage(&whole[..15]), Damage::TornTail { have_bytes: 15 });
    assert_eq!(damage(&whole[..7]), Damage::TornTail { have_bytes: 7 });
    assert_eq!(damage(&whole[..23]), Damage::BeyondEnd { len_bytes: 24, have_bytes: 23 });
    assert_eq!(damage(&[0; 64]), Damage::Zeros);
    assert_eq!(damage(&[0; 8]), Damage::Zeros);
    assert_eq!(damage(&[0xff; 64]), Damage::NoHeader { kind: 0xff });
    let mut bytes = whole.clone();
    bytes[20] ^= 1;
    assert!(matches!(damage(&bytes), Damage::Checksum { len_bytes: 24, .. }));
}

#[test]
fn a_scan_stops_at_damage_and_may_go_on_behind_it() {
    let mut bytes = Vec::new();
    for value in [&b"one"[..], b"two", b"three"] {
        put(b"key", value).encode(Seal::NONE, &mut bytes).unwrap();
    }
    let second = put(b"key", b"one").len_bytes();
    bytes[second + 17] ^= 1;
    bytes.extend_from_slice(&[0; 40]);
    let mut scan = Scan::new(&bytes, Seal::NONE);
    assert_eq!(scan.next().unwrap().unwrap().record, put(b"key", b"one"));
    let damaged = scan.next().unwrap().unwrap_err();
    assert_eq!(damaged.offset, second);
    assert!(matches!(damaged.damage, Damage::Checksum { .. }));
    assert!(scan.next().is_none(), "nothing is guessed");
    assert!(scan.resume());
    assert_eq!(scan.next().unwrap().unwrap().record, put(b"key", b"three"));
    let end = scan.next().unwrap().unwrap_err();
    assert_eq!((end.damage, scan.resume()), (Damage::Zeros, false));
    assert!(scan.next().is_none());
}
