//! What one turn of a worker costs, by the units that it counts: no command holds it (K28).

use std::sync::atomic::{AtomicBool, Ordering};

use commands::work::TURN_UNITS;
use server::Config;

use crate::support::{Client, TestServer, bulk, command, config};

const LARGE_BYTES: usize = 4 << 20;

/// Units of one request that reads a large value, and copies it twice at most.
const LARGE_UNITS: u64 = 2 * (LARGE_BYTES as u64 + 64) / 64;

/// Requests that go to the store before the first large value is noticed.
const HEAVY_BATCH: u64 = 8;

/// A number of INFO stats.
pub fn stat(client: &mut Client, name: &str) -> u64 {
    client.send(command(&[b"INFO", b"stats"]));
    let text = client.bulk();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

/// So many commands in one go, and their replies, each on a line.
fn pipelined(client: &mut Client, words: &[&[u8]], count: usize) -> Vec<String> {
    client.send(command(words).repeat(count));
    (0..count).map(|_| client.line()).collect()
}

/// Stores keys of a name and a number, a thousand at a time.
pub fn store_keys(client: &mut Client, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
    for names in names.chunks(1000) {
        let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
        let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        client.ask(command(&words), "+OK\r\n");
    }
    names
}

#[test]
fn commands_on_large_values_take_many_turns() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"large", &vec![0; LARGE_BYTES]]), "+OK\r\n");
    let commands: [&[&[u8]]; 7] = [
        &[b"BITCOUNT", b"large"],
        &[b"BITPOS", b"large", b"1"],
        &[b"SETRANGE", b"large", b"5", b"x"],
        &[b"SETBIT", b"large", b"7", b"0"],
        &[b"DIGEST", b"large"],
        &[b"EXPIRE", b"large", b"1000"],
        &[b"PERSIST", b"large"],
    ];
    for words in commands {
        // One after the other they would be 60 times as much.
        let mut client = server.resp();
        if words[0] == b"DIGEST" {
            client.send(command(words).repeat(60));
            (0..60).for_each(|_| assert_eq!(client.bulk().len(), 16));
        } else {
            let replies = pipelined(&mut client, words, 60);
            assert!(replies.iter().all(|reply| reply.starts_with(':')), "{replies:?}");
        }
        let most = stat(&mut client, "dovetail_turn_work_units_max");
        assert!(most <= TURN_UNITS + HEAVY_BATCH * LARGE_UNITS, "{most} of {words:?}");
        assert!(most >= LARGE_BYTES as u64 / 64, "nothing was counted");
    }
}

#[test]
fn memcached_appends_to_large_values_take_many_turns() {
    let server = TestServer::start();
    let mut client = server.memcached();
    client.send(format!("set large 0 0 {}\r\n", LARGE_BYTES / 4));
    client.send(vec![b'x'; LARGE_BYTES / 4]);
    client.ask("\r\n", "STORED\r\n");
    client.send("append large 0 0 1\r\ny\r\n".repeat(100));
    (0..100).for_each(|_| assert_eq!(client.line(), "STORED"));
    let most = stat(&mut server.resp(), "dovetail_turn_work_units_max");
    assert!(most <= TURN_UNITS + HEAVY_BATCH * LARGE_UNITS / 4, "{most}");
    assert!(most >= TURN_UNITS / 4, "nothing was counted");
}

/// Without replies, and where nothing is written: work counts all the same.
#[test]
fn quiet_appends_and_failed_comparisons_of_large_values_take_many_turns() {
    let server = TestServer::start();
    let (mut quiet, mut resp) = (server.memcached(), server.resp());
    resp.ask(command(&[b"SET", b"large", &vec![b'1'; LARGE_BYTES / 4]]), "+OK\r\n");
    quiet.send("append large 0 0 1 noreply\r\ny\r\n".repeat(50));
    quiet.ask("mn\r\n", "MN\r\n");
    resp.send(command(&[b"DELEX", b"large", b"IFDEQ", b"0000000000000000"]).repeat(50));
    (0..50).for_each(|_| assert_eq!(resp.line(), ":0"));
    let most = stat(&mut resp, "dovetail_turn_work_units_max");
    assert!(most <= TURN_UNITS + HEAVY_BATCH * LARGE_UNITS / 4, "{most}");
    // Without a count the values would not show: 50 appends are 1.6 M units, in turns.
    assert!(most >= LARGE_BYTES as u64 / 4 / 64, "nothing was counted");
    // A value of megabytes is no number, and is not looked at.
    quiet.ask(
        "incr large 1\r\n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
}

#[test]
fn sums_of_thousands_of_digits_take_many_turns() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.send(command(&[b"INCRBYFLOAT", b"sum", b"1e4900"]).repeat(200));
    (0..200).for_each(|_| assert!((4901..=4903).contains(&client.bulk().len())));
    let most = stat(&mut client, "dovetail_turn_work_units_max");
    assert!(most <= 2 * TURN_UNITS, "{most}");
    assert!(most >= TURN_UNITS / 4, "nothing was counted");
}

#[test]
fn a_hostile_pattern_takes_a_turn_for_a_few_keys() {
    let server = TestServer::start();
    let mut client = server.resp();
    for number in 0..40 {
        let key = format!("{number}{}", "a".repeat(60_000));
        client.ask(command(&[b"SET", key.as_bytes(), b"v"]), "+OK\r\n");
    }
    let keys_of = |pattern: &str| command(&[b"KEYS", pattern.as_bytes()]);
    client.ask(keys_of(&format!("*{}b*", "a".repeat(15))), "*0\r\n");
    client.ask(keys_of(&format!("*?{}b*", "a".repeat(1000))), "*0\r\n");
    client.ask(keys_of(&format!("*{}b*", "a".repeat(30_000))), "*0\r\n");
    let most = stat(&mut client, "dovetail_turn_work_units_max");
    // A bucket of the index is looked at as a whole.
    assert!(most <= 8 * TURN_UNITS, "{most}");
    assert!(most >= TURN_UNITS, "nothing was counted");
    let refused = format!("*?{}*", "a".repeat(2000));
    let text = "-ERR the pattern is too complex: its long parts with ? or [] between stars have \
                more than 16 words of 64 places\r\n";
    client.ask(keys_of(&refused), text);
    client.ask(command(&[b"SCAN", b"0", b"MATCH", refused.as_bytes()]), text);
}

#[track_caller]
fn check_keys(index: server::IndexKind) {
    const KEYS: usize = 40_000;
    let server = TestServer::with(Config { index, ..config() });
    let mut client = server.resp();
    let mut names = store_keys(&mut client, KEYS);
    client.send(command(&[b"KEYS", b"key:*"]));
    assert_eq!(client.line(), format!("*{KEYS}"));
    let mut found: Vec<String> =
        (0..KEYS).map(|_| String::from_utf8(client.bulk()).unwrap()).collect();
    found.sort();
    names.sort();
    assert_eq!(found, names);
    client.ask(command(&[b"KEYS", b"*:39999"]), [&b"*1\r\n"[..], &bulk(b"key:39999")].concat());
    let most = stat(&mut client, "dovetail_turn_work_units_max");
    assert!(most <= 2 * TURN_UNITS, "{most}");
}

#[test]
fn keys_finds_every_key_over_many_turns() {
    check_keys(server::IndexKind::Hash);
}

#[test]
fn keys_finds_every_key_of_an_ordered_index_over_many_turns() {
    check_keys(server::IndexKind::Tree);
}

#[test]
fn commands_on_very_many_keys_take_many_turns_and_count_for_themselves() {
    const KEYS: usize = 40_000;
    // One worker: the commands of both clients alternate on it.
    let server = TestServer::with(Config { threads: 1, ..config() });
    let (mut one, mut other) = (server.resp(), server.resp());
    let names = store_keys(&mut one, KEYS);
    let on_all = |verb: &[u8], names: &[String]| {
        let keys = names.iter().map(String::as_bytes);
        command(&std::iter::once(verb).chain(keys).collect::<Vec<&[u8]>>())
    };
    one.send([on_all(b"EXISTS", &names), command(&[b"PING"])].concat());
    other.send(on_all(b"TOUCH", &names[KEYS / 2..]));
    one.expect(format!(":{KEYS}\r\n+PONG\r\n"));
    other.expect(format!(":{}\r\n", KEYS / 2));
    one.ask(on_all(b"UNLINK", &names[1..]), format!(":{}\r\n", KEYS - 1));
    one.ask(command(&[b"DBSIZE"]), ":1\r\n");
    let most = stat(&mut one, "dovetail_turn_work_units_max");
    assert!(most <= 2 * TURN_UNITS, "{most}");
}

#[test]
fn a_long_common_subsequence_takes_many_turns() {
    let server = TestServer::start();
    let mut client = server.resp();
    let (left, right) = ("ab".repeat(750), "ba".repeat(750));
    client.ask(command(&[b"MSET", b"l", left.as_bytes(), b"r", right.as_bytes()]), "+OK\r\n");
    client.send([command(&[b"LCS", b"l", b"r", b"LEN"]), command(&[b"PING"])].concat());
    client.expect(":1499\r\n+PONG\r\n");
    client.send(command(&[b"LCS", b"l", b"r"]));
    assert_eq!(client.bulk().len(), 1499);
    let most = stat(&mut client, "dovetail_turn_work_units_max");
    // 2.25 M cells are more than four turns.
    assert!((TURN_UNITS..2 * TURN_UNITS).contains(&most), "{most}");
}

const TOO_MUCH: &str = "-ERR the command or transaction is larger than max-atomic-size (each key \
                        counts 4096 bytes)\r\n";

#[test]
fn an_atomic_group_beyond_its_limit_changes_nothing() {
    let server =
        TestServer::with(Config { atomic_size_max_bytes: 1 << 20, threads: 1, ..config() });
    let mut client = server.resp();
    let names: Vec<String> = (0..257).map(|number| format!("k{number}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
    let words = |verb: &'static [u8]| std::iter::once(verb).chain(pairs.clone());
    for verb in [&b"MSET"[..], b"MSETNX"] {
        client.ask(command(&words(verb).collect::<Vec<_>>()), TOO_MUCH);
    }
    client.ask("MULTI\r\n", "+OK\r\n");
    for name in &names {
        client.ask(command(&[b"SET", name.as_bytes(), b"v"]), "+QUEUED\r\n");
    }
    client.ask("EXEC\r\n", TOO_MUCH);
    let keys = names.iter().map(String::as_bytes);
    let mget: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys).collect();
    // MGET reads as many snapshots as it needs.
    client.ask(command(&mget), format!("*257\r\n{}", "$-1\r\n".repeat(257)));
    client.ask(command(&[b"DBSIZE"]), ":0\r\n");
    let half = vec![b'x'; 600 << 10];
    client.ask(command(&[b"SET", b"a", &half]), "+OK\r\n");
    client.ask(command(&[b"SET", b"b", &half]), "+OK\r\n");
    // BITOP takes as many turns as it needs.
    client.ask(command(&[b"BITOP", b"AND", b"c", b"a", b"b"]), format!(":{}\r\n", 600 << 10));
    assert_eq!(stat(&mut client, "dovetail_atomic_refused"), 3);
    // 256 keys are not too many.
    client.ask(command(&words(b"MSET").take(1 + 2 * 250).collect::<Vec<_>>()), "+OK\r\n");
}

#[test]
fn a_transaction_that_does_too_much_ends_in_errors() {
    let server =
        TestServer::with(Config { atomic_size_max_bytes: 2 * LARGE_BYTES as u64, ..config() });
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"large", &vec![1; LARGE_BYTES]]), "+OK\r\n");
    client.ask("MULTI\r\n", "+OK\r\n");
    let queued = pipelined(&mut client, &[b"BITCOUNT", b"large"], 40);
    assert!(queued.iter().all(|reply| reply == "+QUEUED"));
    client.ask("EXEC\r\n", "*40\r\n");
    let replies: Vec<String> = (0..40).map(|_| client.line()).collect();
    let counted = replies.iter().take_while(|reply| **reply == format!(":{LARGE_BYTES}")).count();
    assert!((1..=HEAVY_BATCH as usize + 2).contains(&counted), "{replies:?}");
    assert!(replies[counted..].iter().all(|reply| reply == TOO_MUCH.trim_end()), "{replies:?}");
    client.ask("PING\r\n", "+PONG\r\n");
}

/// What walks over all keys and what fills a table count as much as they take.
#[test]
fn a_transaction_does_as_much_of_what_is_slow_as_its_limit_says() {
    const KEYS: usize = 10_000;
    let server =
        TestServer::with(Config { atomic_size_max_bytes: 8 << 20, threads: 1, ..config() });
    let mut client = server.resp();
    store_keys(&mut client, KEYS);
    let text = "ab".repeat(450);
    client.ask(command(&[b"SET", b"text", text.as_bytes()]), "+OK\r\n");
    let mut exec = |words: &[&[u8]], count: usize, replies: &[&str]| {
        client.ask("MULTI\r\n", "+OK\r\n");
        (0..count).for_each(|_| client.ask(command(words), "+QUEUED\r\n"));
        client.ask("EXEC\r\n", replies.concat());
    };
    exec(&[b"KEYS", b"none*"], 1, &[TOO_MUCH]);
    // 810,000 cells.
    exec(&[b"LCS", b"text", b"text", b"LEN"], 2, &["*2\r\n", ":900\r\n", TOO_MUCH]);
}

/// Replies of INFO are measured before the first command: that counts against the limit of a group.
#[test]
fn a_transaction_of_commands_on_the_whole_server_is_refused() {
    let server = TestServer::with(Config { atomic_size_max_bytes: 64 << 10, ..config() });
    let mut client = server.resp();
    client.ask("MULTI\r\n", "+OK\r\n");
    client.ask("INCR n\r\n", "+QUEUED\r\n");
    (0..8).for_each(|_| client.ask("INFO\r\n", "+QUEUED\r\n"));
    client.ask("EXEC\r\n", TOO_MUCH);
    client.ask("GET n\r\n", "$-1\r\n");
}

#[test]
fn an_atomic_group_holds_as_many_keys_as_a_worker_does_in_20_ms() {
    let server = TestServer::start();
    let mut client = server.resp();
    let names: Vec<String> = (0..25_000).map(|number| format!("k{number}")).collect();
    let mset = |count: usize| {
        let pairs = names[..count].iter().flat_map(|name| [name.as_bytes(), b"v"]);
        command(&std::iter::once(&b"MSET"[..]).chain(pairs).collect::<Vec<_>>())
    };
    client.ask(mset(25_000), TOO_MUCH);
    client.ask(mset(20_000), "+OK\r\n");
}

#[test]
fn bitop_of_large_values_takes_many_turns() {
    const SOURCES: usize = 12;
    let server = TestServer::with(Config { memory_bytes: 256 << 20, threads: 1, ..config() });
    let mut client = server.resp();
    let names: Vec<String> = (0..SOURCES).map(|number| format!("source:{number}")).collect();
    let mut want = Vec::new();
    for (number, name) in names.iter().enumerate() {
        // No two are of the same length, and the longest is in the middle.
        let value = vec![1 << (number % 8); LARGE_BYTES - (number.abs_diff(5) << 10)];
        want.resize(LARGE_BYTES.max(want.len()), 0);
        want.iter_mut().zip(&value).for_each(|(sum, byte)| *sum ^= byte);
        client.ask(command(&[b"SET", name.as_bytes(), &value]), "+OK\r\n");
    }
    let head: [&[u8]; 3] = [b"BITOP", b"XOR", b"made"];
    let words: Vec<&[u8]> = head.into_iter().chain(names.iter().map(String::as_bytes)).collect();
    client.send([command(&words), command(&[b"GET", b"made"])].concat());
    assert_eq!(client.line(), format!(":{LARGE_BYTES}"));
    assert!(client.bulk() == want);
    let most = stat(&mut client, "dovetail_turn_work_units_max");
    // All at once they would be 6 turns and more.
    assert!(most <= 2 * TURN_UNITS + LARGE_UNITS, "{most}");
}

#[test]
fn bitop_combines_what_the_sources_hold_at_one_moment() {
    // Of each source a slice reads a quarter.
    const VALUE_BYTES: usize = 1 << 20;
    let server = TestServer::with(Config { memory_bytes: 256 << 20, threads: 2, ..config() });
    let is_over = AtomicBool::new(false);
    // One bit of each byte, or two.
    let whole = [1, 2].map(|bits| format!(":{}", bits * VALUE_BYTES));
    let fills = [1, 3].map(|byte| {
        let value = vec![byte; VALUE_BYTES];
        command(&[b"MSET", b"a", &value, b"b", &value])
    });
    let mut client = server.resp();
    client.ask(&fills[0], "+OK\r\n");
    let mut counts = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.resp();
            for fill in fills.iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                writer.ask(fill, "+OK\r\n");
            }
        });
        let head: [&[u8]; 3] = [b"BITOP", b"OR", b"made"];
        let words: Vec<&[u8]> = head.into_iter().chain([&b"a"[..], b"b"].repeat(16)).collect();
        for _ in 0..100 {
            client.ask(command(&words), format!(":{VALUE_BYTES}\r\n"));
            client.send(command(&[b"BITCOUNT", b"made"]));
            counts.push(client.line());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(counts.iter().all(|count| whole.contains(count)), "blocks of several moments");
}

#[track_caller]
fn check_flushes(index: server::IndexKind) {
    const KEYS: usize = 30_000;
    let server = TestServer::with(Config { index, threads: 1, ..config() });
    let (mut client, mut memcached) = (server.resp(), server.memcached());
    // What is behind it in a pipeline finds nothing of before, and stays.
    let empty = "$-1\r\n:0\r\n+OK\r\n:1\r\n";
    store_keys(&mut client, KEYS);
    client.ask(
        "FLUSHALL\r\nGET key:29999\r\nDBSIZE\r\nSET a 1\r\nDBSIZE\r\n",
        "+OK\r\n".to_owned() + empty,
    );
    store_keys(&mut client, KEYS);
    memcached.ask("flush_all\r\nget key:29999\r\n", "OK\r\nEND\r\n");
    store_keys(&mut client, KEYS);
    memcached.ask("flush_all noreply\r\nget key:29999\r\n", "END\r\n");
    store_keys(&mut client, KEYS);
    // Many at once.
    let mut others: Vec<Client> = (0..20).map(|_| server.resp()).collect();
    others.iter_mut().for_each(|other| other.send("FLUSHALL\r\nDBSIZE\r\n"));
    others.iter_mut().for_each(|other| other.expect("+OK\r\n:0\r\n"));
    assert!(stat(&mut client, "dovetail_turn_work_units_max") <= TURN_UNITS + LARGE_UNITS);
    store_keys(&mut client, KEYS);
    let group = "MULTI\r\nFLUSHALL\r\nSET a 1\r\nDBSIZE\r\nEXEC\r\n";
    client.ask(group, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n+OK\r\n:1\r\n");
    // One that leaves ends nothing.
    store_keys(&mut client, KEYS);
    let mut leaving = server.resp();
    leaving.send("FLUSHALL\r\n");
    drop(leaving);
    client.ask("FLUSHALL\r\nDBSIZE\r\n", "+OK\r\n:0\r\n");
}

#[test]
fn flushes_of_many_keys_take_many_turns() {
    check_flushes(server::IndexKind::Hash);
}

#[test]
fn flushes_of_many_keys_of_an_ordered_index_take_many_turns() {
    check_flushes(server::IndexKind::Tree);
}

#[test]
fn looks_at_sizes_of_a_store_with_one_key_take_a_part_of_a_turn() {
    let server = TestServer::with(Config { threads: 1, memory_bytes: 1 << 30, ..config() });
    let mut client = server.resp();
    client.ask("SET a 1\r\n", "+OK\r\n");
    for _ in 0..200 {
        (0..20).for_each(|_| server.server().shared().draw_sizes());
        client.ask("GET a\r\n", "$1\r\n1\r\n");
    }
    assert!(stat(&mut client, "dovetail_turn_work_units_max") < TURN_UNITS);
}

#[test]
fn keys_that_are_watched_together_are_as_many_as_an_atomic_group_holds() {
    let server = TestServer::start();
    let mut client = server.resp();
    let names: Vec<String> = (0..30_000).map(|number| format!("key:{number}")).collect();
    let watch = |names: &[String]| {
        let words: Vec<&[u8]> =
            std::iter::once(&b"WATCH"[..]).chain(names.iter().map(|it| it.as_bytes())).collect();
        command(&words)
    };
    let (some, more) = names.split_at(20_000);
    client.ask(watch(some), "+OK\r\n");
    client.send(watch(more));
    client.expect_line_with("max-atomic-size");
    client.ask("UNWATCH\r\n", "+OK\r\n");
    client.ask(watch(more), "+OK\r\n");
}

#[test]
fn latency_takes_as_many_names_as_there_are_commands() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("PING\r\n", "+PONG\r\n");
    for word in [&b"HISTOGRAM"[..], b"RESET"] {
        let mut words: Vec<&[u8]> = vec![b"get"; 1026];
        (words[0], words[1]) = (b"LATENCY", word);
        client.send(command(&words));
        assert!(!client.line().starts_with('-'));
        words.push(b"get");
        client.ask(command(&words), "-ERR LATENCY takes at most 1024 names\r\n");
    }
}
