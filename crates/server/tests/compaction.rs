//! Long writes of one key in one pipeline: each is answered as if it had run by itself.

use std::io::{BufRead, BufReader};

use counters::Totals;

use crate::support::{Client, TestServer, bulk, command, config};
use server::{Compacts, Config, Dispatch, Policies, WritePolicy};

fn words(words: &[&str]) -> Vec<u8> {
    command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
}

/// Sends one pipeline to each port; how many writes the store was spared.
fn spared_by(compaction: bool) -> u64 {
    spared(Config { compaction, ..config() }).compacted_writes
}

/// The same, and all else that was counted.
fn spared(config: Config) -> Totals {
    let server = TestServer::with(config);
    exchange(&server);
    server.server().shared().totals()
}

/// One pipeline to each port, and every reply to it.
fn exchange(server: &TestServer) {
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
    server.resp().ask(words(&["DEL", "k", "m", "large"]), b":2\r\n");
}

#[test]
fn long_writes_of_a_key_are_answered_one_by_one_and_stored_as_one() {
    assert!(spared_by(true) > 10);
}

/// Sends pipelines of short SETs of one key; returns how many writes the store was spared.
fn spared_of_short_sets(compaction: bool) -> u64 {
    let server = TestServer::with(Config { compaction, ..config() });
    let value = |n: usize| format!("value number {n}");
    // A pipeline may reach its worker in parts.
    for round in 0..ROUNDS_MAX {
        let (mut asked, mut want) = (Vec::new(), Vec::new());
        for n in 0..10 {
            asked.extend(words(&["SET", "k", &value(n)]));
            asked.extend(words(&["SET", "other", &value(round)]));
            want.extend_from_slice(b"+OK\r\n+OK\r\n");
        }
        asked.extend(words(&["GET", "k"]));
        want.extend(bulk(value(9).as_bytes()));
        server.resp().ask(asked, want);

        let (mut asked, mut want) = (Vec::new(), Vec::new());
        for n in 0..10 {
            let (value, reply) = (value(n), if n % 2 == 0 { "" } else { " noreply" });
            asked.extend(format!("set m 7 0 {}{reply}\r\n{value}\r\n", value.len()).bytes());
            if reply.is_empty() {
                want.extend_from_slice(b"STORED\r\n");
            }
        }
        asked.extend_from_slice(b"get m\r\n");
        want.extend(format!("VALUE m 7 14\r\n{}\r\nEND\r\n", value(9)).bytes());
        server.memcached().ask(asked, want);
        let spared = server.server().shared().totals().compacted_writes;
        if spared > 20 {
            return spared;
        }
    }
    server.server().shared().totals().compacted_writes
}

#[test]
fn of_short_sets_of_a_key_the_store_sees_the_last() {
    assert!(spared_of_short_sets(true) > 20);
    assert_eq!(spared_of_short_sets(false), 0);
}

#[test]
fn nothing_is_compacted_where_it_is_switched_off() {
    assert_eq!(spared_by(false), 0);
}

/// Pipelines that one server is sent at most, until it has put writes together.
const ROUNDS_MAX: usize = 200;

/// A batch of one request, as C-4's workers take them: what is put together waits in the queue.
#[test]
fn windows_reach_over_the_queue_of_another_worker() {
    for (write_policy, cr_threads, threads) in [
        (WritePolicy::Crew, Some(1), 2),
        (WritePolicy::Crew, None, 3),
        (WritePolicy::DCrew, Some(1), 3),
    ] {
        let dispatch = Dispatch::Jbsq(2);
        let base = Config {
            policies: Policies::new(write_policy, dispatch),
            cr_threads,
            threads,
            ..config()
        };
        let config = Config { batch: 1, compacts: Compacts::All, ..base.clone() };
        let server = TestServer::with(config);
        // A worker that keeps up with what is sent to it has no queue: some rounds may pass.
        let totals = (0..ROUNDS_MAX).find_map(|_| {
            exchange(&server);
            let totals = server.server().shared().totals();
            let has_joined = cr_threads.is_none() || totals.compaction_joined > 10;
            (totals.compacted_writes > 10 && has_joined).then_some(totals)
        });
        let totals = totals.unwrap_or_else(|| panic!("no window: {write_policy} {cr_threads:?}"));
        assert_eq!(totals.compaction_by_writes.iter().sum::<u64>(), totals.compaction_windows);
        let off = spared(Config { batch: 1, compaction: false, ..base });
        assert_eq!((off.compacted_writes, off.compaction_joined), (0, 0));
    }
}

/// Several clients append to one short key and write their own, each in one pipeline: nothing is
/// lost, and each sees its own effects in order, whichever other clients are put together with it.
#[test]
fn clients_that_share_a_short_key_lose_nothing_and_see_their_own_writes() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 200;
    let base =
        Config { policies: Policies::new(WritePolicy::DCrew, Dispatch::Jbsq(2)), ..config() };
    let shared = Config { threads: 3, batch: 1, compacts: Compacts::All, ..base };
    for cr_threads in [None, Some(1)] {
        let server = TestServer::with(Config { cr_threads, ..shared.clone() });
        let server = &server;
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || append_and_look(server.resp(), client, ROUNDS));
            }
        });
        let total = bulk("x".repeat(CLIENTS * ROUNDS).as_bytes());
        server.resp().ask(words(&["GET", "shared"]), total);
    }
}

fn append_and_look(mut client: Client, number: usize, rounds: usize) {
    let own = format!("own-{number}");
    let mut asked = Vec::new();
    for round in 0..rounds {
        asked.extend(words(&["APPEND", "shared", "x"]));
        asked.extend(words(&["SET", &own, &round.to_string()]));
        asked.extend(words(&["GET", &own]));
        asked.extend(words(&["INCR", &own]));
    }
    client.send(asked);
    let mut lines = BufReader::new(client.stream).lines().map(Result::unwrap);
    let mut line = || lines.next().unwrap();
    let mut last = 0;
    for round in 0..rounds {
        let length: usize = line()[1..].parse().unwrap();
        assert!(length > last, "round {round}: {length} after {last}");
        last = length;
        assert_eq!(line(), "+OK");
        assert_eq!(line(), format!("${}", round.to_string().len()));
        assert_eq!(line(), round.to_string());
        assert_eq!(line(), format!(":{}", round + 1));
    }
}
