//! A full log, and commands of very many parts.

use std::io::Read;

use super::support::{Client, PATIENCE, TestServer, command, config, pattern};
use server::{Config, Mode};

fn store_keys(client: &mut Client, count: usize, value: &[u8]) {
    for number in 0..count {
        let key = format!("key:{number}");
        client.ask(command(&[b"SET", key.as_bytes(), value]), "+OK\r\n");
    }
}

#[test]
fn a_full_store_is_ready_and_answers_reads_and_deletes() {
    let server = TestServer::with(Config { mode: Mode::Clean, ..config() });
    let mut client = server.resp();
    let value = pattern(1 << 20);
    let mut stored = 0;
    loop {
        let key = format!("key:{stored}");
        client.send(command(&[b"SET", key.as_bytes(), &value]));
        let mut answer = [0; 5];
        client.stream.read_exact(&mut answer).unwrap();
        if &answer != b"+OK\r\n" {
            client.expect("command not allowed when used memory > 'maxmemory'.\r\n");
            break;
        }
        stored += 1;
    }
    assert!(stored > 10, "values of 1 MiB fill the log, not a segment each: {stored}");
    assert!(server.server().shared().probe(PATIENCE).is_ok());
    client.ask("EXISTS key:0\r\n", ":1\r\n");
    client.ask("DEL key:0 key:1 key:2 key:3 key:4\r\n", ":5\r\n");
    client.ask(command(&[b"SET", b"again", &value]), "+OK\r\n");
}

#[test]
fn a_transaction_of_deletes_evicts_nothing() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"big", &pattern(1 << 20)]), "+OK\r\n");
    store_keys(&mut client, 1000, b"value");
    client.ask("MULTI\r\n", "+OK\r\n");
    for _ in 0..100 {
        client.ask("DEL big\r\n", "+QUEUED\r\n");
    }
    client.send("EXEC\r\n");
    client.expect("*100\r\n:1\r\n");
    client.expect(":0\r\n".repeat(99));
    client.ask("DBSIZE\r\n", ":1000\r\n");
}

#[test]
fn a_read_of_very_many_keys_is_answered_in_several_snapshots() {
    let server = TestServer::start();
    let mut client = server.resp();
    let key_count = 900_000;
    let mut ask = format!("*{}\r\n$4\r\nMGET\r\n", key_count + 1).into_bytes();
    ask.extend_from_slice(&b"$1\r\nk\r\n".repeat(key_count));
    client.send(&ask);
    client.expect("*900000\r\n");
    client.expect("$-1\r\n".repeat(key_count));
    client.ask("MGET k k\r\n", "*2\r\n$-1\r\n$-1\r\n");
}
