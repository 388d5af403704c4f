//! Every write policy with every dispatch and every division of threads: order within a connection,
//! clients that die, values of all sizes, and the end. There are more threads than processors.

use std::time::{Duration, Instant};

use crate::support::native::{Peer, get, set};
use crate::support::{Client, PATIENCE, TestServer, bulk, command, config, pattern};
use server::{
    Config, Dispatch, IndexKind, Policies, Server, SizeThreshold, StartError, WritePolicy,
};
use wire::native::{
    Direction, Items, Op, Range, RangeItems, Request, RequestId, Status, SteeringId, Want,
};

const DISPATCHES: [&str; 8] =
    ["key-hash", "any", "jbsq:1", "jbsq:2", "round-robin", "hand-off:1", "steal", "size-aware"];

/// A server's configuration, named for messages.
struct Case {
    name: String,
    config: Config,
}

/// Every combination that makes sense.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for write_policy in WritePolicy::ALL {
        for dispatch in DISPATCHES {
            for cr_threads in [None, Some(1), Some(3)] {
                let name = format!("{write_policy} {dispatch} {cr_threads:?}");
                let dispatch: Dispatch = dispatch.parse().unwrap();
                // So low that many of these tests' items are large.
                let size_threshold = SizeThreshold::Static { bytes: 4 };
                let native = Some(([127, 0, 0, 1], 0).into());
                let (memory_bytes, threads) = (64 << 20, 4);
                let base = Config { memory_bytes, threads, native, size_threshold, ..config() };
                let config =
                    Config { policies: Policies::new(write_policy, dispatch), cr_threads, ..base };
                cases.push(Case { name, config });
            }
        }
    }
    cases
}

/// Runs `check` on a server of each case, which has a native port too; what contradicts itself is
/// refused.
fn for_each_case(check: impl Fn(&TestServer)) {
    let mut started_count = 0;
    for Case { name, config } in cases() {
        match Server::start(config) {
            Ok(server) => {
                println!("{name}");
                let server = TestServer::around(server);
                check(&server);
                assert!(server.stop(PATIENCE), "{name}: everything is drained");
                started_count += 1;
            }
            Err(StartError::Policies { .. } | StartError::HandOffThreads { .. }) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert_eq!(started_count, 79, "of 96 combinations");
}

/// Reads and writes of few keys and what they answer, for one client alone on its keys.
fn resp_pipeline(client: usize, rounds: usize) -> (String, String) {
    let (mut asks, mut answers) = (String::new(), String::new());
    for round in 0..rounds {
        let key = format!("{client}-{}", round % 3);
        asks +=
            &format!("SET {key} {round}\r\nGET {key}\r\nINCR n{client}\r\nPING\r\nDEL {key}\r\n");
        let number = round.to_string();
        let len = number.len();
        answers += &format!("+OK\r\n${len}\r\n{number}\r\n:{}\r\n+PONG\r\n:1\r\n", round + 1);
        asks += &format!("GET {key}\r\nAPPEND {key} xy\r\nSTRLEN {key}\r\nGETDEL {key}\r\n");
        answers += "$-1\r\n:2\r\n:2\r\n$2\r\nxy\r\n";
        asks += &format!(
            "MSET {key} 1 m{client} 2\r\nGET {key}\r\nGET m{client}\r\nDEL {key} m{client}\r\n"
        );
        answers += "+OK\r\n$1\r\n1\r\n$1\r\n2\r\n:2\r\n";
        asks += &format!(
            "GET {key}\r\nEXPIRE {key} x\r\nINCRBY {key} x\r\nSETEX {key} 0 1\r\nGET {key}\r\n"
        );
        answers += "$-1\r\n-ERR value is not an integer or out of range\r\n\
                    -ERR value is not an integer or out of range\r\n\
                    -ERR invalid expire time in 'setex' command\r\n$-1\r\n";
    }
    (asks, answers)
}

fn memcached_pipeline(client: usize, rounds: usize) -> (String, String) {
    let (mut asks, mut answers) = (String::new(), String::new());
    for round in 0..rounds {
        let key = format!("t{client}-{}", round % 3);
        asks += &format!("set {key} 7 0 2\r\n10\r\nget {key}\r\nincr {key} 5\r\n");
        answers += &format!("STORED\r\nVALUE {key} 7 2\r\n10\r\nEND\r\n15\r\n");
        asks += &format!("set {key} 0 0 1 noreply\r\n9\r\nget {key} {key}\r\ndelete {key}\r\n");
        answers += &format!("VALUE {key} 0 1\r\n9\r\nVALUE {key} 0 1\r\n9\r\nEND\r\nDELETED\r\n");
        asks += &format!("get {key}\r\nbogus\r\ntouch {key} 0\r\nmn\r\n");
        answers += "END\r\nERROR\r\nNOT_FOUND\r\nMN\r\n";
    }
    (asks, answers)
}

/// K10: what one pipeline asks is answered in its order, and sees its own effects.
#[test]
fn pipelines_are_answered_in_order_and_see_their_own_writes() {
    for_each_case(|server| {
        let talk = |mut client: Client, (asks, answers): (String, String)| {
            let mut writer = client.stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::io::Write::write_all(&mut writer, asks.as_bytes()).unwrap()
                });
                client.expect(answers);
            });
        };
        std::thread::scope(|scope| {
            for client in 0..3 {
                scope.spawn(move || talk(server.resp(), resp_pipeline(client, 40)));
                scope.spawn(move || talk(server.memcached(), memcached_pipeline(client, 40)));
            }
        });
    });
}

/// The configurations of the tests below: two layers, equals, and a bound that is always reached.
fn routed() -> Vec<Config> {
    let with = |cr_threads, write_policy: WritePolicy, dispatch: &str| Config {
        threads: 3,
        memory_bytes: 256 << 20,
        cr_threads,
        policies: Policies::new(write_policy, dispatch.parse().unwrap()),
        size_threshold: SizeThreshold::Static { bytes: 2000 },
        ..config()
    };
    vec![
        with(Some(1), WritePolicy::Crcw, "round-robin"),
        with(None, WritePolicy::Erew, "key-hash"),
        with(None, WritePolicy::DCrew, "jbsq:1"),
        with(None, WritePolicy::DCrew, "size-aware"),
        with(Some(1), WritePolicy::Crew, "size-aware"),
        with(None, WritePolicy::Crew, "steal"),
        with(Some(1), WritePolicy::Crcw, "steal"),
    ]
}

#[test]
fn values_of_all_sizes_go_both_ways_in_one_pipeline() {
    for config in routed() {
        let server = TestServer::with(config);
        let sizes = [1, 2, 1000, 4095, 4096, 16_000, 17_000, 65_535, 65_536, 300_000, 8 << 20];
        let values: Vec<Vec<u8>> = sizes.into_iter().map(pattern).collect();
        let (mut asks, mut answers) = (Vec::new(), Vec::new());
        for value in &values {
            for key in [&b"k"[..], b"l"] {
                asks.extend(command(&[b"SET", key, value]));
                asks.extend(command(&[b"APPEND", key, b"z"]));
                asks.extend(command(&[b"GET", key]));
                asks.extend(command(&[b"STRLEN", key]));
                answers.extend(b"+OK\r\n");
                let len_bytes = value.len() + 1;
                answers.extend(format!(":{len_bytes}\r\n").as_bytes());
                answers.extend(bulk(&[value, &b"z"[..]].concat()));
                answers.extend(format!(":{len_bytes}\r\n").as_bytes());
            }
        }
        let mut client = server.resp();
        let mut writer = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| std::io::Write::write_all(&mut writer, &asks).unwrap());
            client.expect(&answers);
        });
        let mut text = server.memcached();
        for value in &values {
            text.send(format!("set t 3 0 {}\r\n", value.len()));
            text.send([&value[..], b"\r\nget t\r\n"].concat());
            let head = format!("STORED\r\nVALUE t 3 {}\r\n", value.len());
            text.expect([head.as_bytes(), value, b"\r\nEND\r\n"].concat());
        }
        assert!(server.stop(PATIENCE));
    }
}

/// That everything is drained says more than it seems: a dispatcher ends only when all its request
/// slots are free again, and a buffer that a request slot has borrowed is booked until then.
#[test]
fn clients_that_die_with_requests_outstanding_leave_nothing_behind() {
    for config in routed() {
        let server = TestServer::with(config);
        let mut other = server.resp();
        let large = pattern(200_000);
        other.ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
        let small = "SET a 1\r\nGET a\r\nINCR n\r\n".repeat(300);
        let mixed =
            [command(&[b"SET", b"b", &large]), b"GET large\r\nGET b\r\n".repeat(20)].concat();
        for round in 0..60 {
            let mut client = server.resp();
            client.send(if round % 2 == 0 { small.as_bytes() } else { &mixed });
            if round % 3 == 0 {
                client.expect(if round % 2 == 0 { "+OK\r\n$1\r\n1\r\n" } else { "+OK\r\n" });
            }
            drop(client);
            other.ask("PING\r\nGET nothing\r\n", "+PONG\r\n$-1\r\n");
        }
        let shared = server.server().shared();
        let start = Instant::now();
        while shared.totals().connections_resp > 1 {
            assert!(start.elapsed() < PATIENCE, "dead clients stay");
            std::thread::yield_now();
        }
        other.ask("GET large\r\n", bulk(&large));
        let granted_bytes = shared.buffer_budget().granted_bytes();
        assert!(granted_bytes < 4 << 20, "{granted_bytes} bytes are still booked");
        assert!(server.stop(PATIENCE));
    }
}

#[test]
fn stopping_answers_what_was_sent_to_other_workers() {
    for config in routed() {
        let server = TestServer::with(config);
        let mut clients: Vec<Client> = (0..8).map(|_| server.resp()).collect();
        for client in &mut clients {
            // The connection is known before it is told to end.
            client.ask("PING\r\n", "+PONG\r\n");
            client.send("INCR n\r\nGET nothing\r\n".repeat(500));
        }
        let readers: Vec<_> = clients
            .into_iter()
            .map(|mut client| std::thread::spawn(move || client.read_to_end()))
            .collect();
        assert!(server.stop(PATIENCE));
        let mut sums: Vec<u64> = Vec::new();
        for reader in readers {
            let answers = String::from_utf8(reader.join().unwrap()).unwrap();
            let words: Vec<&str> = answers.split_terminator("\r\n").collect();
            assert_eq!(words.len(), 1000, "every request is answered once");
            for pair in words.chunks_exact(2) {
                sums.push(pair[0][1..].parse().unwrap());
                assert_eq!(pair[1], "$-1");
            }
        }
        sums.sort_unstable();
        assert!(sums.iter().copied().eq(1..=4000), "every increment counted once");
    }
}

/// A connection that is killed while its requests are with other workers is gone; the others are
/// not disturbed.
#[test]
fn a_client_is_killed_in_the_middle_of_its_pipeline() {
    for config in routed() {
        let server = TestServer::with(config);
        let mut killer = server.resp();
        killer.ask("SET v 1\r\n", "+OK\r\n");
        for _ in 0..20 {
            let mut victim = server.resp();
            victim.ask("CLIENT SETNAME victim\r\nCLIENT ID\r\n", "+OK\r\n:");
            let mut id = String::new();
            while !id.ends_with("\r\n") {
                let mut byte = [0];
                std::io::Read::read_exact(&mut victim.stream, &mut byte).unwrap();
                id.push(byte[0] as char);
            }
            victim.send("SET v 1\r\nGET v\r\n".repeat(400));
            killer.ask(format!("CLIENT KILL ID {id}"), ":1\r\n");
            let mut rest = Vec::new();
            // Closed, with or without a reset: its own requests may be unread.
            let _ = std::io::Read::read_to_end(&mut victim.stream, &mut rest);
            killer.ask("GET v\r\nGET none\r\n", "$1\r\n1\r\n$-1\r\n");
        }
        assert!(server.stop(PATIENCE));
    }
}

/// Messages of one frame take effect in their order per key, whichever workers execute them.
#[test]
fn frames_of_native_clients_see_their_own_writes() {
    for_each_case(|server| {
        let mut peers = [0, 1, 2].map(|steering| {
            let mut peer = Peer::connect(server);
            peer.steering = SteeringId(steering);
            peer
        });
        for round in 0..12 {
            for (number, peer) in peers.iter_mut().enumerate() {
                let keys: Vec<String> =
                    (0..6).map(|key| format!("{number}:{}", key * round % 5)).collect();
                let mut requests = Vec::new();
                for key in &keys {
                    let key = key.as_bytes();
                    requests.extend([get(key), get(key), set(key, b"7"), get(key)]);
                    requests.extend([incr(key, 3), get(key)]);
                    requests.extend([append(key, b"0"), get(key), delete(key), get(key)]);
                }
                let answers = peer.ask(&requests);
                for of_key in answers.chunks(10) {
                    let told: Vec<_> =
                        of_key.iter().map(|it| (it.status, it.number, &it.value[..])).collect();
                    let want: [(Status, Option<i64>, &[u8]); 10] = [
                        (Status::Miss, None, b""),
                        (Status::Miss, None, b""),
                        (Status::Ok, None, b""),
                        (Status::Ok, None, b"7"),
                        (Status::Ok, Some(10), b""),
                        (Status::Ok, None, b"10"),
                        (Status::Ok, Some(3), b""),
                        (Status::Ok, None, b"100"),
                        (Status::Ok, None, b""),
                        (Status::Miss, None, b""),
                    ];
                    assert_eq!(told, want);
                }
            }
        }
    });
}

/// Under EREW one worker executes all requests on a key, whichever worker receives them.
#[test]
fn requests_of_native_clients_on_a_key_are_executed_by_its_owner() {
    let server = TestServer::with(Config {
        native: Some(([127, 0, 0, 1], 0).into()),
        threads: 3,
        policies: Policies::new(WritePolicy::Erew, Dispatch::KeyHash),
        ..config()
    });
    for steering in 0..3 {
        let mut peer = Peer::connect(&server);
        peer.steering = SteeringId(steering);
        for _ in 0..20 {
            peer.ask(&[set(b"k", b"v"), get(b"k")]);
        }
    }
    let shared = server.server().shared();
    let executed = |worker| {
        let forwardings = &shared.counters(worker).forwardings;
        forwardings.served.get() + forwardings.direct.get()
    };
    let mut of_workers = [0, 1, 2].map(executed);
    of_workers.sort_unstable();
    assert_eq!(of_workers, [0, 0, 120]);
    let forwardings = shared.totals().forwardings;
    assert_eq!((forwardings.sent, forwardings.served, forwardings.direct), (80, 80, 40));
}

/// Under two layers the threads that poll walk no range of a native client.
#[test]
fn ranges_of_native_clients_are_walked_by_executors() {
    let server = TestServer::with(Config {
        native: Some(([127, 0, 0, 1], 0).into()),
        threads: 3,
        cr_threads: Some(1),
        index: IndexKind::Tree,
        ..config()
    });
    let mut peer = Peer::connect(&server);
    for key in 0..20 {
        peer.ask(&[set(format!("k{key:02}").as_bytes(), b"v")]);
    }
    let range = Op::Range(Range {
        start: std::ops::Bound::Included(b"k00"),
        end: std::ops::Bound::Unbounded,
        direction: Direction::Forward,
        items: RangeItems::Whole,
        item_limit: 7,
    });
    let before = server.server().shared().totals().forwardings;
    for _ in 0..30 {
        let answers = peer.ask(&[native(range), get(b"k01")]);
        let keys = Items::new(&answers[0].value);
        assert_eq!(keys.count(), 7);
    }
    let shared = server.server().shared();
    let after = shared.totals().forwardings;
    assert_eq!((after.served - before.served, after.direct), (60, 0));
    let served = |worker| shared.counters(worker).forwardings.served.get();
    assert!(served(0) == 0 && served(1) > 15 && served(2) > 15, "executors take turns");
    assert!(server.stop(PATIENCE));
}

#[test]
fn forwardings_are_counted() {
    let server = TestServer::with(routed().remove(0));
    let mut client = server.resp();
    client.ask("SET a 1\r\nGET a\r\nGET b\r\nPING\r\n", "+OK\r\n$1\r\n1\r\n$-1\r\n+PONG\r\n");
    let forwardings = server.server().shared().totals().forwardings;
    assert_eq!((forwardings.sent, forwardings.served), (3, 3));
    assert!((1..=3).contains(&forwardings.batches) && (1..=3).contains(&forwardings.publications));
    assert_eq!(forwardings.queue_depth, [0, 0, 0]);
    assert!(server.stop(Duration::from_secs(10)));
}

/// Two threads, neither of which only polls.
fn equals(write_policy: WritePolicy, dispatch: &str) -> TestServer {
    let dispatch = dispatch.parse().unwrap();
    TestServer::with(Config {
        threads: 2,
        policies: Policies::new(write_policy, dispatch),
        ..config()
    })
}

/// Also where the write table decides: once a write is answered, nothing of it is left there that
/// would draw the next one to the worker that executed it.
#[test]
fn what_stays_with_its_receiver_takes_no_forwarding() {
    let server = equals(WritePolicy::DCrew, "any");
    let mut asks = String::new();
    let mut answers = String::new();
    for key in 0..200 {
        asks += &format!("SET {key} 1\r\nINCR {key}\r\nGET {key}\r\n");
        answers += "+OK\r\n:2\r\n$1\r\n2\r\n";
    }
    // So many that both workers have some of them.
    for _ in 0..20 {
        server.resp().ask(&asks, &answers);
    }
    let forwardings = server.server().shared().totals().forwardings;
    assert_eq!((forwardings.direct, forwardings.sent, forwardings.served), (20 * 600, 0, 0));
    assert!(server.stop(PATIENCE));
}

#[test]
fn a_worker_executes_its_own_keys_where_it_reads_them_and_sends_the_others() {
    let server = equals(WritePolicy::Erew, "key-hash");
    let mut client = server.resp();
    for key in 0..100 {
        client.ask(format!("SET {key} 1\r\n"), "+OK\r\n");
    }
    let forwardings = server.server().shared().totals().forwardings;
    assert_eq!(
        (forwardings.direct + forwardings.sent, forwardings.sent),
        (100, forwardings.served)
    );
    assert!(forwardings.direct > 10 && forwardings.sent > 10, "{forwardings:?}");
    assert!(server.stop(PATIENCE));
}

/// With a bound of one, the first or the second of three reads goes to the other worker, although
/// the first may still be in the batch of the worker that received it.
#[test]
fn a_bound_sees_the_requests_that_wait_in_the_batch() {
    let server = equals(WritePolicy::DCrew, "jbsq:1");
    for _ in 0..16 {
        server.resp().ask("GET a\r\nGET b\r\nGET c\r\n", "$-1\r\n$-1\r\n$-1\r\n");
    }
    let forwardings = server.server().shared().totals().forwardings;
    assert!(forwardings.sent >= 16, "{forwardings:?}");
    assert!(server.stop(PATIENCE));
}

/// Two connections write one key through one dispatcher, whose router takes the two executors in
/// turn.
#[test]
fn writes_that_meet_at_the_write_table_are_counted() {
    let server = TestServer::with(Config {
        threads: 3,
        cr_threads: Some(1),
        policies: Policies::new(WritePolicy::DCrew, "round-robin".parse().unwrap()),
        compaction: false,
        ..config()
    });
    let forwardings = || server.server().shared().totals().forwardings;
    let start = Instant::now();
    let mut sent_count = 0;
    while forwardings().pin_conflicts == 0 {
        assert!(start.elapsed() < PATIENCE, "no write met another: {:?}", forwardings());
        std::thread::scope(|scope| {
            for mut client in [server.resp(), server.resp()] {
                let (asks, answers) = ("SET k v\r\n".repeat(100), "+OK\r\n".repeat(100));
                scope.spawn(move || client.ask(asks, answers));
            }
        });
        sent_count += 200;
    }
    while (forwardings().pins, forwardings().pins_held) != (sent_count, 0) {
        assert!(start.elapsed() < PATIENCE, "{sent_count} writes: {:?}", forwardings());
        std::thread::yield_now();
    }
    assert!(server.stop(PATIENCE));
}

fn native(op: Op<'_>) -> Request<'_> {
    Request { id: RequestId::Free(0), want: Want::PLAIN, op }
}

fn incr(key: &[u8], delta: i64) -> Request<'_> {
    native(Op::Incr { key, delta })
}

fn append<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    native(Op::Append { key, value })
}

fn delete(key: &[u8]) -> Request<'_> {
    native(Op::Delete { key, version: None })
}
