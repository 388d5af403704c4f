//! What commands add to the counts that clients see: `stats` of memcached, INFO of Redis. What is
//! wanted here memcached 1.6.18 and Redis 7.0.15 count.

use std::collections::BTreeMap;
use std::io::Read;

use crate::support::{Client, TestServer};

/// The lines of a group of `stats`.
fn stats(server: &TestServer) -> BTreeMap<String, i64> {
    let mut client = server.memcached();
    client.send("stats\r\nquit\r\n");
    let text = String::from_utf8(client.read_to_end()).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Which of memcached's counts of commands have moved; those of meta commands left out.
fn moved(server: &TestServer, run: impl FnOnce()) -> String {
    let before = stats(server);
    run();
    let is_count = |name: &str| {
        let starts = ["get_", "cmd_", "delete_", "incr_", "decr_", "touch_", "cas_"];
        name == "total_items"
            || (starts.iter().any(|it| name.starts_with(it)) && name != "cmd_meta")
    };
    let after = stats(server);
    let moved = after.iter().filter(|(name, _)| is_count(name)).filter_map(|(name, value)| {
        let more = value - before[name];
        (more != 0).then(|| format!("{name}+{more}"))
    });
    moved.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(server: &TestServer, client: &mut Client, (ask, answer, want): (&str, &str, &str)) {
    client.ask("set k 0 0 1\r\n5\r\ndelete none noreply\r\nmn\r\n", "STORED\r\nMN\r\n");
    let moved = moved(server, || client.ask(ask, answer));
    assert_eq!(moved, want, "{ask}");
}

#[test]
fn memcacheds_counts_say_what_became_of_commands() {
    let server = TestServer::start();
    let mut client = server.memcached();
    for case in [
        ("get k none\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n", "cmd_get+2 get_hits+1 get_misses+1"),
        (
            "gat 30 k none\r\n",
            "VALUE k 0 1\r\n5\r\nEND\r\n",
            "cmd_touch+2 touch_hits+1 touch_misses+1",
        ),
        ("gats 30 none\r\n", "END\r\n", "cmd_touch+1 touch_misses+1"),
        ("touch k 30\r\n", "TOUCHED\r\n", "cmd_touch+1 touch_hits+1"),
        ("touch none 30\r\n", "NOT_FOUND\r\n", "cmd_touch+1 touch_misses+1"),
        ("mg k v\r\n", "VA 1\r\n5\r\n", "cmd_get+1 get_hits+1"),
        ("mg k T30\r\n", "HD\r\n", "cmd_touch+1 touch_hits+1"),
        ("mg none T30\r\n", "EN\r\n", "cmd_get+1 get_misses+1"),
        ("mg none N30\r\n", "HD W\r\n", "cmd_get+1 get_hits+1 total_items+1"),
        ("mg none N30 T30\r\n", "HD W\r\n", "cmd_touch+1 total_items+1 touch_hits+1"),
        ("set none 0 0 1\r\n1\r\n", "STORED\r\n", "cmd_set+1 total_items+1"),
        ("set none 0 -1 1\r\n1\r\n", "STORED\r\n", "cmd_set+1 total_items+1"),
        ("add k 0 0 1\r\n1\r\n", "NOT_STORED\r\n", "cmd_set+1"),
        ("add none 0 0 1\r\n1\r\n", "STORED\r\n", "cmd_set+1 total_items+1"),
        ("replace none 0 0 1\r\n1\r\n", "NOT_STORED\r\n", "cmd_set+1"),
        ("append k 0 0 1\r\n1\r\n", "STORED\r\n", "cmd_set+1 total_items+1"),
        ("append none 0 0 1\r\n1\r\n", "NOT_STORED\r\n", "cmd_set+1"),
        ("prepend none 0 0 1\r\n1\r\n", "NOT_STORED\r\n", "cmd_set+1"),
        ("cas k 0 0 1 99999\r\n1\r\n", "EXISTS\r\n", "cas_badval+1 cmd_set+1"),
        ("cas none 0 0 1 9\r\n1\r\n", "NOT_FOUND\r\n", "cas_misses+1 cmd_set+1"),
        ("ms k 1 C99999\r\n1\r\n", "EX\r\n", "cas_badval+1 cmd_set+1"),
        ("ms none 1 C99999\r\n1\r\n", "NF\r\n", "cas_misses+1 cmd_set+1"),
        ("ms k 1 C1 I\r\n1\r\n", "HD\r\n", "cas_hits+1 cmd_set+1 total_items+1"),
        ("ms k 1 ME\r\n1\r\n", "NS\r\n", "cmd_set+1"),
        ("ms none 1 MR\r\n1\r\n", "NS\r\n", "cmd_set+1"),
        ("ms none 1 MA\r\n1\r\n", "NS\r\n", "cmd_set+1"),
        ("ms none 1 T-1\r\n1\r\n", "HD\r\n", "cmd_set+1 total_items+1"),
        ("ms k 1 MA\r\n1\r\n", "HD\r\n", "cmd_set+1 total_items+1"),
        ("ma k\r\n", "HD\r\n", "incr_hits+1"),
        ("ma none\r\n", "NF\r\n", "incr_misses+1"),
        ("ma k MD\r\n", "HD\r\n", "decr_hits+1"),
        ("ma none MD\r\n", "NF\r\n", "decr_misses+1"),
        ("ma none N30\r\n", "HD\r\n", "total_items+1"),
        ("ma none N30 MD\r\n", "HD\r\n", "total_items+1"),
        ("ma k C99999\r\n", "EX\r\n", ""),
        ("md k\r\n", "HD\r\n", "delete_hits+1"),
        ("md none\r\n", "NF\r\n", "delete_misses+1"),
        ("md k I\r\n", "HD\r\n", ""),
        ("md none I\r\n", "NF\r\n", "delete_misses+1"),
        ("md k C99999\r\n", "EX\r\n", "delete_misses+1"),
        ("md k I C99999\r\n", "EX\r\n", "delete_misses+1"),
    ] {
        check(&server, &mut client, case);
    }
}

/// `keyspace_hits` and `keyspace_misses` of INFO.
fn keyspace(client: &mut Client) -> (i64, i64) {
    client.send("INFO stats\r\nQUIT\r\n");
    let info = String::from_utf8(client.read_to_end()).unwrap();
    let count = |name: &str| -> i64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.parse().unwrap()
    };
    (count("keyspace_hits:"), count("keyspace_misses:"))
}

#[test]
fn keyspace_hits_are_of_the_commands_that_redis_counts() {
    let server = TestServer::start();
    for (ask, hits, misses) in [
        ("GET k", 1, 0),
        ("MGET k n", 1, 1),
        ("EXISTS k n", 1, 1),
        ("GETSET k 1", 1, 0),
        ("GETSET n 1", 0, 1),
        ("SET k 1", 0, 0),
        ("SET n 1", 0, 0),
        ("SET k 1 GET", 1, 0),
        ("SET n 1 GET", 0, 1),
        ("SET k 1 NX GET", 1, 0),
        ("SET n 1 XX GET", 0, 1),
        ("SET k 1 NX", 0, 0),
        ("GETDEL k", 1, 0),
        ("GETEX n EX 9", 0, 1),
        ("GETEX k EX 0", 1, 0),
        ("COPY k d", 1, 0),
        ("COPY n d", 0, 1),
        ("RENAME k d", 0, 0),
        ("LCS k n", 1, 1),
        ("BITOP AND d k n", 1, 1),
        ("BITOP NOT d n", 0, 1),
        ("BITFIELD k GET u8 0", 1, 0),
        ("BITFIELD_RO n GET u8 0", 0, 1),
        ("BITFIELD k SET u8 0 1", 0, 0),
        ("OBJECT FREQ k", 1, 0),
        ("MEMORY USAGE k", 0, 0),
        ("INCR k", 0, 0),
        ("APPEND k 1", 0, 0),
        ("SETRANGE k 0 1", 0, 0),
        ("SETBIT k 1 1", 0, 0),
        ("EXPIRE k 9", 0, 0),
        ("EXPIRE n 9", 0, 0),
        ("PERSIST n", 0, 0),
        ("DEL k n", 0, 0),
        ("UNLINK n", 0, 0),
    ] {
        server.resp().ask("FLUSHALL\r\nSET k 5\r\n", "+OK\r\n+OK\r\n");
        let before = keyspace(&mut server.resp());
        let mut client = server.resp();
        client.send(format!("{ask}\r\nQUIT\r\n"));
        client.read_to_end();
        let after = keyspace(&mut server.resp());
        assert_eq!((after.0 - before.0, after.1 - before.1), (hits, misses), "{ask}");
    }
}

#[test]
fn commands_that_were_not_begun_took_no_time() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.send("NOPE\r\nECHO\r\nINFO commandstats\r\nQUIT\r\n");
    let info = String::from_utf8(client.read_to_end()).unwrap();
    let line = "cmdstat_echo:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0\r\n";
    assert!(info.contains(line), "{info}");
    assert!(!info.contains("cmdstat_unknown"), "{info}");
}

#[test]
fn a_watcher_of_fetches_is_told_the_size_of_what_is_touched() {
    let server = TestServer::start();
    let mut client = server.memcached();
    client.ask("set k 0 0 3\r\nabc\r\n", "STORED\r\n");
    let mut watcher = server.memcached();
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    client.ask("touch k 30\r\nmn\r\nquit\r\n", "TOUCHED\r\nMN\r\n");
    let mut told = String::new();
    while !told.ends_with('\n') {
        let mut byte = [0];
        watcher.stream.read_exact(&mut byte).unwrap();
        told.push(char::from(byte[0]));
    }
    assert!(told.contains("key=k status=found clsid=1 ") && told.contains(" size=3"), "{told}");
}
