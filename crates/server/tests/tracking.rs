//! Clients that track keys or prefixes: what they are told, and what they are refused.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};

use commands::work::TURN_UNITS;

use crate::support::{Client, TestServer, command, pattern};
use crate::turns::stat;

/// A client of RESP3 that tracks these prefixes.
fn tracker(server: &TestServer, prefixes: &[String]) -> Client {
    let mut client = server.resp();
    client.send("HELLO 3\r\nECHO end\r\n");
    read_to_echo(&mut client);
    client.ask(tracking(prefixes), "+OK\r\n");
    client
}

/// What is read up to the reply to `ECHO end`.
fn read_to_echo(client: &mut Client) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"$3\r\nend\r\n") {
        let mut byte = [0];
        client.stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

fn tracking(prefixes: &[String]) -> String {
    let mut line = "CLIENT TRACKING ON BCAST".to_owned();
    prefixes.iter().for_each(|prefix| write!(line, " PREFIX {prefix}").unwrap());
    line + "\r\n"
}

fn told(key: &str) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len())
}

/// A long value on its way to the client takes no room in its output.
#[test]
fn a_written_key_is_told_behind_a_long_reply() {
    const VALUE_BYTES: usize = 8 << 20;
    let server = TestServer::start();
    let (mut reader, mut writer) = (tracker(&server, &["k".to_owned()]), server.resp());
    let value = pattern(VALUE_BYTES);
    writer.ask(command(&[b"SET", b"long", &value]), "+OK\r\n");
    reader.send("GET long\r\n");
    reader.expect(format!("${VALUE_BYTES}\r\n"));
    writer.ask("SET k1 v\r\n", "+OK\r\n");
    reader.expect(&value);
    reader.expect(format!("\r\n{}", told("k1")));
}

#[test]
fn a_written_key_is_told_to_exactly_the_clients_that_have_a_prefix_of_it() {
    let server = TestServer::start();
    // Each has an end of its own, which shows that nothing else was told before it.
    let many = |letter: char| (0..500).map(move |at| format!("{letter}{at:03}"));
    let prefixes: [Vec<String>; 5] = [
        many('a').chain(["end".to_owned()]).collect(),
        many('b').chain(["a", "end"].map(str::to_owned)).collect(),
        ["a0", "a1", "b007:x", "e"].map(str::to_owned).to_vec(),
        vec!["a007:x".to_owned(), "end".to_owned()],
        vec![], // All keys.
    ];
    let mut clients: Vec<Client> = prefixes.iter().map(|them| tracker(&server, them)).collect();
    let mut writer = server.resp();
    let keys = ["a007:x", "a007", "a00", "a1", "A007", "b007:x", "b499z", "c", "a499", "b5", "end"];
    for key in keys {
        writer.ask(format!("SET {key} v\r\n"), "+OK\r\n");
    }
    for (client, prefixes) in clients.iter_mut().zip(&prefixes) {
        let has = |key: &&&str| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(&**prefix))
        };
        let want: String = keys.iter().filter(has).map(|key| told(key)).collect();
        client.expect(want);
    }
    // A client that tracks no more is told nothing, and leaves the others theirs.
    clients[1].ask("CLIENT TRACKING OFF\r\n", "+OK\r\n");
    writer.ask("SET a007 v\r\nSET end v\r\n", "+OK\r\n+OK\r\n");
    clients[1].ask("PING\r\n", "+PONG\r\n");
    clients[0].expect(told("a007") + &told("end"));
}

#[test]
fn prefixes_of_a_client_that_overlap_are_refused_and_none_of_the_command_stays() {
    let server = TestServer::start();
    let mut client = server.resp();
    let many: Vec<String> = (0..2000).map(|at| format!("p{at:04}")).collect();
    client.ask(tracking(&many), "+OK\r\n");
    let known = |one: &str, other: &str| {
        format!(
            "-ERR Prefix '{one}' overlaps with an existing prefix '{other}'. Prefixes for a \
             single client must not overlap.\r\n"
        )
    };
    client.ask("CLIENT TRACKING ON BCAST PREFIX q PREFIX p\r\n", known("p", "p0000"));
    client.ask("CLIENT TRACKING ON BCAST PREFIX p1999:x PREFIX q\r\n", known("p1999:x", "p1999"));
    client.ask("CLIENT TRACKING ON BCAST PREFIX q PREFIX r PREFIX q1\r\n", {
        "-ERR Prefix 'q' overlaps with another provided prefix 'q1'. Prefixes for a single client \
         must not overlap.\r\n"
    });
    client.ask("CLIENT TRACKING ON BCAST PREFIX q1\r\n", "+OK\r\n");
    client.send("CLIENT TRACKINGINFO\r\nECHO end\r\n");
    let seen = read_to_echo(&mut client);
    assert_eq!(seen.matches("p").count() - "prefixes".matches("p").count(), many.len());
    assert!(seen.contains("*2001") && seen.contains("q1"), "{seen}");
}

/// The keys that one client is told of, and whether it is told that everything has changed, up to
/// `key_count` keys or that.
fn told_of(client: &mut Client, key_count: usize) -> (BTreeSet<String>, bool) {
    let mut keys = BTreeSet::new();
    let mut replies = BufReader::new(&client.stream).lines().map(Result::unwrap);
    while keys.len() < key_count {
        let head: Vec<String> = replies.by_ref().take(3).collect();
        assert_eq!(head, [">2", "$10", "invalidate"]);
        if replies.next().unwrap() == "_" {
            return (keys, true);
        }
        let key = replies.by_ref().nth(1).unwrap();
        assert!(keys.insert(key), "once");
    }
    (keys, false)
}

#[test]
fn changes_of_more_keys_than_a_turn_tells_reach_every_reader() {
    const KEY_COUNT: usize = 4000;
    let names: Vec<String> = (0..KEY_COUNT).map(|at| format!("k{at}")).collect();
    for client_count in [1, 40] {
        let server = TestServer::start();
        let mut clients: Vec<Client> = (0..client_count).map(|_| server.resp()).collect();
        for client in &mut clients {
            client.send("HELLO 3\r\nCLIENT TRACKING ON\r\n");
            client.send(format!("MGET {}\r\nECHO end\r\n", names.join(" ")));
            read_to_echo(client);
        }
        let pairs: Vec<String> = names.iter().map(|name| format!("{name} v")).collect();
        let mut writer = server.resp();
        writer.ask(format!("MSET {}\r\nGET k7\r\n", pairs.join(" ")), "+OK\r\n$1\r\nv\r\n");
        for client in &mut clients {
            let (keys, is_summed) = told_of(client, KEY_COUNT);
            assert_eq!(is_summed, keys.len() < KEY_COUNT, "nothing is left out");
            assert!(!is_summed || client_count > 1, "the ids of {KEY_COUNT} readers have room");
        }
        // The write alone has 160,000 readers, whose messages would take 78 turns.
        let most = stat(&mut writer, "dovetail_turn_work_units_max");
        assert!(most <= 4 * TURN_UNITS, "{most}");
    }
}
