//! What clients cause is booked by kind: what fills one kind leaves the others their room.

use std::io::Write;

use server::Config;

use crate::support::native::{Peer, config};
use crate::support::{TestServer, bulk, command, pattern};

const MIB: u64 = 1 << 20;

fn small() -> Config {
    Config { memory_bytes: 64 * MIB, ..config() }
}

fn refusals(server: &TestServer, name: &str) -> u64 {
    let kinds = server.server().shared().buffer_budget();
    kinds.kinds().find(|numbers| numbers.kind.name() == name).unwrap().refusals
}

/// A SET of 100 KB and a GET of another key.
fn serves_others(server: &TestServer) {
    let mut client = server.resp();
    let value = "v".repeat(100_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$4\r\nhers\r\n$100000\r\n{value}\r\n");
    client.ask(&set, "+OK\r\n");
    client.ask("*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n", "$-1\r\n");
}

#[test]
fn the_seed_of_the_index_is_in_no_welcome() {
    let with_seed = || Config { hash_seed: Some(0x1122_3344_5566_7788), ..config() };
    let servers = [TestServer::with(with_seed()), TestServer::with(with_seed())];
    let seeds = servers.each_ref().map(|server| Peer::connect(server).welcome.steering_seed);
    let index_seed = servers[0].server().shared().store().key_hasher().seed();
    assert_eq!(index_seed, 0x1122_3344_5566_7788);
    assert!(!seeds.contains(&index_seed));
    assert_ne!(seeds[0], seeds[1], "it is drawn at each start");
}

#[test]
fn new_values_are_booked_while_they_are_made() {
    let server = TestServer::with(small());
    let (mut client, mut meta) = (server.resp(), server.memcached());
    let numbers = |name| {
        let mut kinds = server.server().shared().buffer_budget().kinds();
        kinds.find(|numbers| numbers.kind.name() == name).unwrap()
    };
    let scratch = || numbers("scratch");
    let value = "v".repeat(4_500_000);
    client.ask(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4500000\r\n{value}\r\n"), "+OK\r\n");
    client.ask("APPEND k xyz\r\nSETRANGE k 4600000 abc\r\n", ":4500003\r\n:4600003\r\n");
    client.ask("SETBIT k 7 1\r\nSTRLEN k\r\n", ":0\r\n:4600003\r\n");
    assert_eq!((scratch().bytes, scratch().refusals), (0, 0));
    // The zeros and a command that arrives beside them are more than 7 MiB together.
    let mut beside = server.resp();
    beside.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$4500000\r\n{}", &value[1..]));
    while numbers("bodies").bytes < 4_000_000 {
        std::thread::yield_now();
    }
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    client.ask("SETRANGE n 4500000 abc\r\n", refused);
    assert_eq!((scratch().bytes, scratch().refusals), (0, 1));
    meta.ask("mg n\r\n", "EN\r\n");
    beside.ask("v\r\n", "+OK\r\n");
    drop(beside);
    while numbers("bodies").bytes > 1_000_000 {
        std::thread::yield_now();
    }
    client.ask("SETRANGE n 4500000 abc\r\n", ":4500003\r\n");
    serves_others(&server);
}

#[test]
fn users_that_fill_their_part_are_refused_and_others_are_served() {
    let server = TestServer::with(small());
    let mut client = server.resp();
    let pattern = "k".repeat(10_000);
    let mut name = 0;
    while refusals(&server, "acl") == 0 {
        name += 1;
        assert!(name < 1000, "a part of 1 MiB holds no more");
        let len = 1 + pattern.len();
        let head = format!("*4\r\n$3\r\nACL\r\n$7\r\nSETUSER\r\n$4\r\n{name:04}\r\n");
        client.send(format!("{head}${len}\r\n~{pattern}\r\n"));
        let reply = client.line();
        assert!(reply.starts_with("+OK") || reply.contains("--memory"), "{reply}");
    }
    serves_others(&server);
}

#[test]
fn half_sent_small_commands_leave_large_ones_their_room() {
    let server = TestServer::with(small());
    let mut half_sent = Vec::new();
    let half = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$15000\r\n{}", "x".repeat(12_000));
    for _ in 0..600 {
        let mut client = server.resp();
        // A client that is closed for want of room has sent enough.
        let _ = client.stream.write_all(half.as_bytes());
        half_sent.push(client);
    }
    serves_others(&server);
    let budget = server.server().shared().buffer_budget();
    assert!(budget.granted_bytes() <= budget.limit_bytes() + MIB);
}

/// At 64 MiB the client buffers hold one value of the longest: an update of one has its bytes in
/// memory once.
#[test]
fn updates_take_values_as_long_as_a_set_does() {
    let server = TestServer::with(small());
    let mut client = server.memcached();
    let value = &pattern(5_000_000)[..];
    let mut store = |line: &str, want: &str| {
        client.send(format!("{line}\r\n"));
        client.send(value);
        client.ask("\r\n", want);
    };
    store("set k 0 0 5000000", "STORED\r\n");
    store("ms k 5000000 E7", "HD\r\n");
    store("ms k 5000000 C1 I", "HD\r\n");
    store("ms k 5000000 C1 I E9 c", "HD c9\r\n");
    store("ms a 5000000 MA N0", "HD\r\n");
    store("ms p 5000000 MP N0 E3 c", "HD c3\r\n");
    let mut client = server.memcached();
    for verb in ["append", "prepend"] {
        client.ask("set k 5 0 3\r\nabc\r\n", "STORED\r\n");
        client.send(format!("{verb} k 0 0 5000000\r\n"));
        client.send(value);
        client.ask("\r\n", "STORED\r\n");
        client.send("get k\r\n");
        client.expect("VALUE k 5 5000003\r\n");
        let whole = if verb == "append" { [b"abc", value] } else { [value, b"abc"] };
        client.expect(whole.concat());
        client.expect("\r\nEND\r\n");
    }
}

#[test]
fn updates_of_redis_take_values_as_long_as_a_set_does() {
    let server = TestServer::with(small());
    let mut client = server.resp();
    let value = pattern(5_000_000);
    client.ask(command(&[b"SET", b"k", b"abc"]), "+OK\r\n");
    client.ask(command(&[b"APPEND", b"k", &value]), ":5000003\r\n");
    client.ask(command(&[b"SETRANGE", b"k", b"2", &value]), ":5000003\r\n");
    client.ask(command(&[b"SETBIT", b"k", b"0", b"1"]), ":0\r\n");
    client.ask("GET k\r\n", bulk(&[b"\xe1b", &value[..], &value[value.len() - 1..]].concat()));
    client.ask(command(&[b"SETRANGE", b"gap", b"3", &value]), ":5000003\r\n");
    client.ask("GET gap\r\n", bulk(&[b"\0\0\0", &value[..]].concat()));
    client.ask(command(&[b"SET", b"gap", &value, b"IFEQ", b"x"]), "$-1\r\n");
    client.ask("SET gap x\r\n", "+OK\r\n");
    client.ask(command(&[b"SET", b"gap", &value, b"IFEQ", b"x"]), "+OK\r\n");
    client.ask("STRLEN gap\r\n", ":5000000\r\n");
}

/// Compressed, it would be unpacked in memory of its own, half of the client buffers at most.
#[test]
fn a_payload_is_restored_from_where_it_lies() {
    let server = TestServer::with(small());
    let mut client = server.resp();
    let (value, mut payload) = (pattern(5_000_000), Vec::new());
    wire::resp::dump::save(&value, &mut payload);
    client.ask(command(&[b"RESTORE", b"k", b"0", &payload]), "+OK\r\n");
    client.ask("GET k\r\n", bulk(&value));
}
