//! Long writes of one key in one pipeline: each is answered as if it had run by itself.

mod support;

use server::Config;
use support::{TestServer, bulk, command, config};

fn words(words: &[&str]) -> Vec<u8> {
    command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
}

/// Sends one pipeline to each port; how many writes the store was spared.
fn spared_by(compaction: bool) -> u64 {
    let server = TestServer::with(Config { compaction, ..config() });
    let value = |n: usize| format!("{n}{}", "v".repeat(1500));
    let (mut asked, mut want) = (Vec::new(), Vec::new());
    for n in 0..10 {
        asked.extend(words(&["SET", "k", &value(n)]));
        want.extend_from_slice(b"+OK\r\n");
        asked.extend(words(&["GET", "k"]));
        want.extend(bulk(value(n).as_bytes()));
        asked.extend(words(&["APPEND", "k", "tail"]));
        want.extend(format!(":{}\r\n", value(n).len() + 4).bytes());
        asked.extend(words(&["SET", "k", &value(n), "NX"]));
        want.extend_from_slice(b"$-1\r\n");
        asked.extend(words(&["DEL", "k"]));
        want.extend_from_slice(b":1\r\n");
        asked.extend(words(&["SET", "k", &value(n), "PX", "100000"]));
        want.extend_from_slice(b"+OK\r\n");
    }
    asked.extend(words(&["GET", "k"]));
    want.extend(bulk(value(9).as_bytes()));
    asked.extend(words(&["PERSIST", "k"]));
    want.extend_from_slice(b":1\r\n");
    server.resp().ask(asked, want);

    let (mut asked, mut want) = (Vec::new(), Vec::new());
    for n in 0..10 {
        let value = value(n);
        asked.extend(format!("set m 7 0 {}\r\n{value}\r\n", value.len()).bytes());
        want.extend_from_slice(b"STORED\r\n");
        asked.extend(format!("add m 0 0 {}\r\n{value}\r\n", value.len()).bytes());
        want.extend_from_slice(b"NOT_STORED\r\n");
        asked.extend_from_slice(b"get m\r\n");
        want.extend(format!("VALUE m 7 {}\r\n{value}\r\nEND\r\n", value.len()).bytes());
        asked.extend(format!("set m 0 0 {} noreply\r\n{value}\r\n", value.len()).bytes());
    }
    asked.extend_from_slice(b"delete m\r\nget m\r\n");
    want.extend_from_slice(b"DELETED\r\nEND\r\n");
    server.memcached().ask(asked, want);

    // A large value that follows itself is pinned from the log, not from what was kept aside.
    let large = "x".repeat(70_000);
    let (mut asked, mut want) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        asked.extend(words(&["SET", "large", &large]));
        want.extend_from_slice(b"+OK\r\n");
        asked.extend(words(&["GET", "large"]));
        want.extend(bulk(large.as_bytes()));
    }
    server.resp().ask(asked, want);
    server.server().shared().totals().compacted_writes
}

#[test]
fn long_writes_of_a_key_are_answered_one_by_one_and_stored_as_one() {
    assert!(spared_by(true) > 10);
}

#[test]
fn nothing_is_compacted_where_it_is_switched_off() {
    assert_eq!(spared_by(false), 0);
}
