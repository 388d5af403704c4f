//! Tests with a file written by Redis 7.0.15, and with files made by hand.

use super::*;

/// Fourteen keys of every type in database 0, one in database 3, and a function.
const SAVED: &[u8] = include_bytes!("tests/redis-7.0.15.rdb");

fn read(bytes: &[u8]) -> Result<Vec<Found>, RdbError> {
    let mut reader = Reader::new(bytes)?;
    let mut found = Vec::new();
    loop {
        let next = reader.find_next()?;
        let is_end = next == Found::End;
        found.push(next);
        if is_end {
            return Ok(found);
        }
    }
}

fn entries(bytes: &[u8]) -> Vec<Entry> {
    let found = read(bytes).expect("a whole file").into_iter();
    found
        .filter_map(|found| if let Found::Entry(entry) = found { Some(entry) } else { None })
        .collect()
}

#[track_caller]
fn check_string(key: &[u8], value: &[u8], expires_unix_ms: Option<u64>, database: u64) {
    let content = Content::String(value.to_vec());
    let want = Entry { database, expires_unix_ms, key: key.to_vec(), content };
    assert!(entries(SAVED).contains(&want), "{}", key.escape_ascii());
}

#[test]
fn strings_come_as_they_were_saved() {
    check_string(b"plain", b"hello", None, 0);
    check_string(b"number", b"-300", None, 0);
    check_string(b"large", b"99999999999", None, 0);
    check_string(b"packed", &b"abcd".repeat(40), None, 0);
    check_string(b"ends", b"later", Some(4_102_444_800_000), 0);
    check_string(b"\0\r\n", b"\xff\0", None, 0);
    check_string(b"other", b"db", None, 3);
}

#[test]
fn other_types_are_named() {
    let entries = entries(SAVED);
    assert_eq!(entries.len(), 15);
    for (key, want) in [
        ("list", "list"),
        ("set", "set"),
        ("ints", "set"),
        ("zset", "zset"),
        ("bigz", "zset"),
        ("hash", "hash"),
        ("bighash", "hash"),
        ("stream", "stream"),
    ] {
        let found = entries.iter().find(|entry| entry.key == key.as_bytes());
        assert_eq!(found.expect(key).content, Content::Other(want), "{key}");
    }
}

#[test]
fn sizes_are_told_by_database() {
    let sizes = read(SAVED).expect("a whole file").into_iter().filter_map(|found| match found {
        Found::Size { database, keys } => Some((database, keys)),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [(0, 14), (3, 1)]);
}

/// Every cut and every changed byte: an error, or the same keys where the byte says nothing.
#[test]
fn a_damaged_file_is_never_believed() {
    for len in 0..SAVED.len() {
        assert!(read(&SAVED[..len]).is_err(), "{len} bytes");
    }
    for at in 0..SAVED.len() {
        let mut damaged = SAVED.to_vec();
        damaged[at] ^= 1;
        // The version's last digit and what the checksum covers.
        assert!(read(&damaged).is_err(), "byte {at}");
    }
}

fn file(version: &str, body: &[u8]) -> Vec<u8> {
    [b"REDIS", version.as_bytes(), body, b"\xff\0\0\0\0\0\0\0\0"].concat()
}

#[track_caller]
fn check_kind(body: &[u8], want: Content) {
    let found = entries(&file("0012", body));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].content, want);
}

#[test]
fn types_that_redis_7_0_does_not_write_are_walked_over() {
    let other = Content::Other;
    check_kind(b"\x01\x01l\x02\x01a\xc0\x02", other("list"));
    check_kind(b"\x03\x01z\x03\x01m\x032.5\x01n\xfe\x01o\xfd", other("zset"));
    check_kind(b"\x04\x01h\x01\x01f\x01v", other("hash"));
    check_kind(b"\x14\x01s\x03abc", other("set"));
    check_kind(b"\x18\x01h\0\0\0\0\0\0\0\0\x01\x05\x01f\x01v", other("hash"));
    check_kind(b"\x16\x01h\x01\x05\x01f\x01v", other("hash"));
    check_kind(b"\x19\x01h\0\0\0\0\0\0\0\0\x03abc", other("hash"));
    let module = b"\x07\x01m\x81\0\0\0\0\0\0\0\x01\x02\x05\x01\x06\x03\0\0\0\0\x05\x01x\0";
    check_kind(module, other("module"));
    let aux = b"\xf7\x81\0\0\0\0\0\0\0\x01\x02\x02\x05\x01x\0\xf4\x01\x02\x03\0\x01k\x01v";
    check_kind(aux, Content::String(b"v".to_vec()));
}

#[test]
fn old_files_have_seconds_and_no_checksum() {
    let found = read(b"REDIS0003\xfe\0\xfd\x01\0\0\0\0\x01k\x01v\xff").expect("a whole file");
    assert!(matches!(&found[0], Found::Entry(entry) if entry.expires_unix_ms == Some(1000)));
}

#[track_caller]
fn check_refused(bytes: &[u8], want: &str) {
    let error = read(bytes).expect_err("no file").to_string();
    assert!(error.contains(want), "{error}");
}

#[test]
fn what_is_no_file_says_why() {
    check_refused(b"", "no RDB file");
    check_refused(b"REDIS00x1....", "no RDB file");
    check_refused(b"REDIS0099\xff", "RDB version 99");
    check_refused(&file("0011", b"\x06\x01m"), "byte 9: a value of type 6");
    check_refused(&file("0011", b"\x00\x01k\xc3\x01\x05a"), "no LZF");
    check_refused(b"REDIS0011\x00\x01k\x80\xff\xff\xff\xffabc", "cut off: it ends at byte 20");
    let mut changed = SAVED.to_vec();
    let place = changed.windows(5).position(|part| part == b"hello").expect("the value");
    changed[place] = b'j';
    check_refused(&changed, "the checksum is");
}
