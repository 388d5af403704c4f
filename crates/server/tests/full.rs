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

/// Fills a store with values of 300 KB until it refuses one.
fn fill(client: &mut Client) {
    let value = pattern(300_000);
    for number in 0.. {
        let key = format!("fill:{number}");
        client.send(command(&[b"SET", key.as_bytes(), &value]));
        let mut answer = [0; 5];
        client.stream.read_exact(&mut answer).unwrap();
        if &answer != b"+OK\r\n" {
            return client.expect(&OUT_OF_MEMORY[5..]);
        }
    }
}

const OUT_OF_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// Long values take segments and runs of segments: there is room for some of them and not for all.
#[test]
fn a_write_of_several_keys_without_room_for_all_writes_none() {
    let server = TestServer::with(Config { mode: Mode::Clean, ..config() });
    let mut client = server.resp();
    fill(&mut client);
    client.ask("DEL fill:0 fill:1 fill:2\r\n", ":3\r\n");
    let keys: Vec<String> = (0..12).map(|number| format!("m{number}")).collect();
    keys.iter().for_each(|key| client.ask(command(&[b"SET", key.as_bytes(), b"old"]), "+OK\r\n"));
    let value = pattern(400_000);
    let pairs: Vec<&[u8]> = keys.iter().flat_map(|key| [key.as_bytes(), &value[..]]).collect();
    client.ask(command(&[&[&b"MSET"[..]], &pairs[..]].concat()), OUT_OF_MEMORY);
    client.ask(command(&[&[&b"MSETEX"[..], b"12"], &pairs[..]].concat()), OUT_OF_MEMORY);
    client.ask("MULTI\r\n", "+OK\r\n");
    for key in &keys {
        client.ask(format!("SETRANGE {key} 400000 new\r\n"), "+QUEUED\r\n");
    }
    client.ask("EXEC\r\n", OUT_OF_MEMORY);
    for key in &keys {
        client.ask(command(&[b"GET", key.as_bytes()]), "$3\r\nold\r\n");
    }
    // What needs no room, and what gives some back, is not refused.
    client.ask("MULTI\r\n", "+OK\r\n");
    for line in ["EXPIRE m0 1000\r\n", "GET m1\r\n", "DEL fill:3 fill:4 fill:5\r\n"] {
        client.ask(line, "+QUEUED\r\n");
    }
    client.ask("EXEC\r\n", "*3\r\n:1\r\n$3\r\nold\r\n:3\r\n");
    let few = [&[&b"MSET"[..]], &pairs[..4]].concat();
    client.ask(command(&few), "+OK\r\n");
}
