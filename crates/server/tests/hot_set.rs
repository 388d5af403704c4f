//! The hot set of a two-layer server under load: reads of hot keys see every write, in every order
//! that a connection asks for, while keys turn hot and cold.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::support::{Client, PATIENCE, TestServer, config};
use server::{Config, Dispatch, HotSetSize, IndexKind, Policies, WritePolicy};

/// One thread polls, two execute.
fn two_layers(index: IndexKind, hot_set: HotSetSize) -> TestServer {
    TestServer::with(Config {
        threads: 3,
        cr_threads: Some(1),
        policies: Policies::new(WritePolicy::Crcw, Dispatch::RoundRobin),
        index,
        hot_set,
        compaction: false,
        ..config()
    })
}

fn hot_hits(server: &TestServer) -> u64 {
    server.server().shared().totals().forwardings.hot_hits
}

/// Asks for one key until the dispatcher reads it itself.
fn heat(server: &TestServer, key: &str) {
    let mut client = server.resp();
    client.ask(format!("SET {key} 0\r\n"), "+OK\r\n");
    let start = Instant::now();
    let (hits, asks, answers) =
        (hot_hits(server), format!("GET {key}\r\n").repeat(100), "$1\r\n0\r\n".repeat(100));
    while hot_hits(server) == hits {
        assert!(start.elapsed() < PATIENCE, "{key} does not turn hot");
        client.ask(&asks, &answers);
    }
}

#[test]
fn a_frequent_key_turns_hot_and_is_listed() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let server = two_layers(index, HotSetSize::Auto);
        heat(&server, "h");
        let hot = server.server().shared().hot_keys().unwrap().now();
        assert!(hot.item_count() == 1 && hot.share_ratio() > 0.9, "{hot:?}");
        assert_eq!((&*hot.listed()[0].head, hot.listed()[0].len_bytes), (&b"h"[..], 1));
        assert!(server.stop(PATIENCE));
    }
}

/// Over a tree a hot key is looked for in a sorted array, which says where it is; ranges begin
/// there as well. Over a hash index there is no array.
#[test]
fn hot_keys_of_a_tree_are_read_at_their_places() {
    for (index, is_ordered) in [(IndexKind::Hash, false), (IndexKind::Tree, true)] {
        let server = two_layers(index, HotSetSize::Auto);
        heat(&server, "h");
        let counts = || {
            let forwardings = server.server().shared().totals().forwardings;
            (forwardings.hot_hits, forwardings.hot_in_place)
        };
        let mut client = server.resp();
        client.ask("GET h\r\n", "$1\r\n0\r\n"); // Its place is known from here on.
        let before = counts();
        for value in 0..5 {
            client.ask(
                format!("SET h {value}\r\nGET h\r\nGET h\r\n"),
                format!("+OK\r\n$1\r\n{value}\r\n$1\r\n{value}\r\n"),
            );
        }
        let after = counts();
        if after.0 - before.0 == 10 {
            assert_eq!((after.1 > before.1, before.1 > 0), (is_ordered, is_ordered));
        }
        if is_ordered {
            client.ask(
                "SET i 7\r\nKV.RANGE [h + LIMIT 2\r\n",
                "+OK\r\n*4\r\n$1\r\nh\r\n$1\r\n4\r\n$1\r\ni\r\n$1\r\n7\r\n",
            );
        }
        assert!(server.stop(PATIENCE));
    }
}

/// Keeps a key hot, whatever others do to it, until `is_over`.
fn keep_hot(server: &TestServer, key: &str, is_over: &AtomicBool) {
    let mut client = server.resp();
    let asks = format!("EXISTS {key}\r\n").repeat(100);
    while !is_over.load(Ordering::Relaxed) {
        client.send(&asks);
        client.stream.read_exact(&mut [0; 400]).unwrap();
    }
}

/// Runs `check` while a key is kept hot, and every 50 ms told to be cold, or hot again.
fn with_switches(server: &TestServer, key: &str, check: impl FnOnce()) {
    heat(server, key);
    let is_over = AtomicBool::new(false);
    let hits = hot_hits(server);
    let switch_count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_hot(server, key, &is_over));
        scope.spawn(|| {
            let shared = server.server().shared();
            let keys = shared.hot_keys().unwrap();
            let hot_count = || keys.now().item_count();
            while !is_over.load(Ordering::Relaxed) {
                let is_hot = hot_count() > 0;
                keys.set_size(if is_hot { 0 } else { 1000 });
                let start = Instant::now();
                while (hot_count() > 0) == is_hot && !is_over.load(Ordering::Relaxed) {
                    assert!(start.elapsed() < PATIENCE, "the hot set does not change");
                    std::thread::yield_now();
                }
                switch_count.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The others end even if the check fails.
        let ending = Ending(&is_over);
        let start = Instant::now();
        check();
        while switch_count.load(Ordering::Relaxed) < 4 {
            assert!(start.elapsed() < PATIENCE, "the hot set does not change");
            std::thread::yield_now();
        }
        drop(ending);
    });
    assert!(hot_hits(server) > hits);
}

/// Sets a flag when it goes.
struct Ending<'f>(&'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// K10 between a dispatcher and the executors: hot reads are executed at once, the writes around
/// them elsewhere, and none sees what it should not; also while the key turns hot and cold.
#[test]
fn a_pipeline_on_a_hot_key_is_answered_in_its_order() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let server = two_layers(index, HotSetSize::Auto);
        with_switches(&server, "h", || {
            let mut client = server.resp();
            let start = Instant::now();
            let mut round = 0;
            while start.elapsed() < std::time::Duration::from_secs(1) {
                round += 1;
                client.ask(
                    format!(
                        "GET h\r\nGET cold{round}\r\nGET h\r\nINCR h\r\nGET h\r\nGET h\r\n\
                         DEL h\r\nGET h\r\nPING\r\nGET h\r\nMSET h 6 i 7\r\nGET h\r\n\
                         GET i\r\nDEL h i\r\nGET h\r\nSET h 0\r\n"
                    ),
                    "$1\r\n0\r\n$-1\r\n$1\r\n0\r\n:1\r\n$1\r\n1\r\n$1\r\n1\r\n:1\r\n\
                     $-1\r\n+PONG\r\n$-1\r\n+OK\r\n$1\r\n6\r\n$1\r\n7\r\n:2\r\n$-1\r\n\
                     +OK\r\n",
                );
            }
        });
        assert!(server.stop(PATIENCE));
    }
}

/// Readers of one hot counter and a writer that knows when each increment began and was answered:
/// no read sees less than what was answered before it began, nor more than what had begun.
#[test]
fn a_hot_counter_is_linearizable() {
    let server = two_layers(IndexKind::Hash, HotSetSize::Auto);
    let (begun, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let read = || {
        let mut client = server.resp();
        let mut last = 0;
        while !is_over.load(Ordering::SeqCst) {
            let least = answered.load(Ordering::SeqCst);
            client.send("GET n\r\nGET x\r\nGET n\r\nPING\r\n");
            let seen = [line_after(&mut client, 2), line_after(&mut client, 3)];
            client.expect("+PONG\r\n");
            let most = begun.load(Ordering::SeqCst);
            for seen in seen.map(|text| text.parse().unwrap()) {
                assert!((least..=most).contains(&seen), "{least} <= {seen} <= {most}");
                assert!(last <= seen, "{last} was seen before {seen}");
                last = seen;
            }
        }
    };
    with_switches(&server, "n", || {
        std::thread::scope(|scope| {
            scope.spawn(read);
            scope.spawn(read);
            let _ending = Ending(&is_over);
            let mut writer = server.resp();
            for count in 1..=2000_u64 {
                begun.store(count, Ordering::SeqCst);
                writer.ask("INCR n\r\n", format!(":{count}\r\n"));
                answered.store(count, Ordering::SeqCst);
            }
        });
    });
    assert!(server.stop(PATIENCE));
}

/// The last of so many lines.
fn line_after(client: &mut Client, count: usize) -> String {
    (1..count).for_each(|_| drop(client.line()));
    client.line()
}

#[test]
fn a_server_without_a_hot_set_sends_every_read_away() {
    let server = two_layers(IndexKind::Hash, HotSetSize::Off);
    assert!(server.server().shared().hot_keys().is_none());
    server.resp().ask("GET a\r\n".repeat(1000), "$-1\r\n".repeat(1000));
    let forwardings = server.server().shared().totals().forwardings;
    assert_eq!((forwardings.served, forwardings.hot_hits), (1000, 0));
    assert!(server.stop(PATIENCE));
}
