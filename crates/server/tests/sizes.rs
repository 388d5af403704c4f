//! Large items beside small ones: which worker executes what, in which order it is answered, which
//! worker sends it, and what is left behind. There are more threads than processors.

use std::io::{Read, Write};
use std::time::Instant;

use dispatch::sizes;

use crate::support::native::{Peer, get, set};
use crate::support::{Client, PATIENCE, TestServer, bulk, command, config, pattern};
use server::{Config, Dispatch, Policies, Poll, Shared, SizeThreshold, WritePolicy};
use wire::native::SteeringId;

const THRESHOLD_BYTES: u64 = 10_000;

fn size_aware(write_policy: WritePolicy, cr_threads: Option<usize>) -> Config {
    Config {
        threads: 3,
        memory_bytes: 256 << 20,
        cr_threads,
        policies: Policies::new(write_policy, Dispatch::SizeAware),
        size_threshold: SizeThreshold::Static { bytes: THRESHOLD_BYTES },
        ..config()
    }
}

fn all() -> Vec<Config> {
    let policies = [WritePolicy::Crew, WritePolicy::DCrew, WritePolicy::Crcw];
    let with = |policy| [None, Some(1)].map(|cr_threads| size_aware(policy, cr_threads));
    policies.into_iter().flat_map(with).collect()
}

/// Sends on one thread and compares on another, so that neither side's buffers stop it.
fn talk(client: &mut Client, asks: &[u8], answers: &[u8]) {
    let mut writer = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(asks).unwrap());
        client.expect(answers);
    });
}

/// Between two layers, so that the router alone says which worker executes: the first back is
/// small, the second stands by for large requests.
#[test]
fn what_is_found_large_is_executed_by_a_large_worker_and_once() {
    let server = TestServer::with(size_aware(WritePolicy::Crcw, Some(1)));
    let mut client = server.resp();
    let large = pattern(20_000);
    client.ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
    client.ask("SET small 1\r\nGET small\r\n", "+OK\r\n$1\r\n1\r\n");
    let handed_on = || server.server().shared().totals().forwardings.handed_on;
    assert_eq!(handed_on(), 0, "a SET carries its size");
    client.ask("GET large\r\n", bulk(&large));
    assert_eq!(handed_on(), 1);
    client.ask("STRLEN large\r\nTTL large\r\nEXISTS large\r\n", ":20000\r\n:-1\r\n:1\r\n");
    client.ask("GETRANGE large 0 3\r\n", bulk(&large[..4]));
    assert_eq!(handed_on(), 1, "what says little of a large item is small");
    client.ask("GETRANGE large 0 -1\r\n", bulk(&large));
    client.ask("APPEND large x\r\n", ":20001\r\n");
    client.ask("EXPIRE large 1000\r\n", ":1\r\n");
    assert_eq!(handed_on(), 4, "what copies a large item is large");
    client.ask("STRLEN large\r\nINCR small\r\nDEL large\r\n", ":20001\r\n:2\r\n:1\r\n");
    assert_eq!(handed_on(), 4);
    let totals = server.server().shared().totals();
    let of = |name| totals.commands.iter().find(|command| command.name == name).unwrap();
    assert_eq!((of("get").calls, of("get").hits), (2, 2), "counted where they are executed");
    assert_eq!((of("append").calls, of("append").hits), (1, 1));
}

/// Everything that one connection does to few keys whose sizes change all the time.
fn mixed_pipeline(client: usize, rounds: usize) -> (Vec<u8>, Vec<u8>) {
    let sizes = [1, 9_000, 11_000, 100, 70_000, 20_000, 3, 300_000];
    let (mut asks, mut answers) = (Vec::new(), Vec::new());
    let mut say = |words: &[&[u8]], answer: &[u8]| {
        asks.extend(command(words));
        answers.extend_from_slice(answer);
    };
    for round in 0..rounds {
        let key = format!("{client}-{}", round % 3);
        let (key, other) = (key.as_bytes(), format!("o{client}"));
        let value = pattern(sizes[(round * 5 + client) % sizes.len()]);
        say(&[b"GET", b"nothing"], b"$-1\r\n");
        say(&[b"SET", key, &value], b"+OK\r\n");
        say(&[b"GET", key], &bulk(&value));
        say(&[b"GET", key], &bulk(&value));
        say(&[b"APPEND", key, b"z"], format!(":{}\r\n", value.len() + 1).as_bytes());
        let longer = [&value[..], b"z"].concat();
        say(&[b"GET", key], &bulk(&longer));
        say(&[b"SET", key, b"short"], b"+OK\r\n");
        say(&[b"GET", key], &bulk(b"short"));
        say(&[b"GETSET", key, &longer], &bulk(b"short"));
        say(&[b"INCR", other.as_bytes()], format!(":{}\r\n", round + 1).as_bytes());
        say(&[b"MGET", key, b"nothing"], &[&b"*2\r\n"[..], &bulk(&longer), b"$-1\r\n"].concat());
        say(&[b"GETDEL", key], &bulk(&longer));
        say(&[b"GET", key], b"$-1\r\n");
        say(&[b"PING"], b"+PONG\r\n");
    }
    (asks, answers)
}

/// The same by meta commands, whose read is a change that may turn out to be a read.
fn meta_pipeline(client: usize, rounds: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut asks, mut answers) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let key = format!("m{client}-{}", round % 2);
        for value in [pattern(20_000), pattern(3), pattern(70_000 + round), pattern(9_000)] {
            asks.extend(format!("ms {key} {}\r\n", value.len()).into_bytes());
            asks.extend([&value[..], b"\r\n"].concat());
            asks.extend(format!("mg {key} v\r\nmg {key} t v\r\n").into_bytes());
            answers.extend(format!("HD\r\nVA {}\r\n", value.len()).into_bytes());
            answers.extend([&value[..], b"\r\n"].concat());
            answers.extend(format!("VA {} t-1\r\n", value.len()).into_bytes());
            answers.extend([&value[..], b"\r\n"].concat());
        }
    }
    (asks, answers)
}

/// Under busy polling the executor has often returned the get before it takes the set. The server
/// ends at once all the same, though its client stays.
#[test]
fn a_meta_get_of_a_large_value_is_answered_before_the_set_behind_it() {
    let large = pattern(20_000);
    for (config, poll) in all().into_iter().zip([Poll::Busy, Poll::Auto].into_iter().cycle()) {
        let server = TestServer::with(Config { poll, ..config });
        let mut client = server.memcached();
        for key in (0..20).map(|number| format!("k{number}")) {
            let set = [format!("ms {key} 20000\r\n").as_bytes(), &large, b"\r\n"].concat();
            talk(&mut client, &set, b"HD\r\n");
            let asks = format!("mg {key} v\r\nms {key} 2\r\nbb\r\nmg {key} v\r\n");
            let answers = [b"VA 20000\r\n", &large[..], b"\r\nHD\r\nVA 2\r\nbb\r\n"].concat();
            talk(&mut client, asks.as_bytes(), &answers);
        }
        assert!(server.stop(PATIENCE));
    }
}

#[test]
fn pipelines_of_small_and_large_are_answered_in_order_and_see_their_own_writes() {
    for config in all() {
        let server = TestServer::with(config);
        std::thread::scope(|scope| {
            for client in 0..3 {
                let server = &server;
                scope.spawn(move || {
                    let (asks, answers) = mixed_pipeline(client, 24);
                    talk(&mut server.resp(), &asks, &answers);
                });
                scope.spawn(move || {
                    let (asks, answers) = meta_pipeline(client, 24);
                    talk(&mut server.memcached(), &asks, &answers);
                });
            }
        });
        assert!(server.server().shared().totals().forwardings.lent > 0, "large replies were lent");
        assert!(server.stop(PATIENCE));
    }
}

#[test]
fn values_of_one_byte_to_eight_mebibytes_come_back_in_both_protocols() {
    for config in [size_aware(WritePolicy::DCrew, None), size_aware(WritePolicy::Crew, Some(1))] {
        let server = TestServer::with(config);
        let (mut client, mut text) = (server.resp(), server.memcached());
        for len_bytes in [1, 9_999, 10_001, 16_384, 65_535, 65_537, 500_000, 8 << 20] {
            let value = pattern(len_bytes);
            let asks = [&command(&[b"SET", b"k", &value])[..], b"GET k\r\nGET k\r\nPING\r\n"];
            let answers = [&b"+OK\r\n"[..], &bulk(&value), &bulk(&value), b"+PONG\r\n"];
            talk(&mut client, &asks.concat(), &answers.concat());
            let head = format!("set t 3 0 {len_bytes}\r\n");
            let asks = [head.as_bytes(), &value, b"\r\nget t\r\nget t t\r\n"].concat();
            let block = [format!("VALUE t 3 {len_bytes}\r\n").as_bytes(), &value, b"\r\n"].concat();
            let answers = [&b"STORED\r\n"[..], &block, b"END\r\n", &block, &block, b"END\r\n"];
            talk(&mut text, &asks, &answers.concat());
        }
        assert!(server.stop(PATIENCE));
    }
}

/// A key whose item is now small, now large: whatever of a reader's pipeline is handed on keeps
/// its place, so that no version is followed by an older one.
#[test]
fn a_reader_never_sees_an_older_version_after_a_newer_one() {
    const VERSIONS: u32 = 400;
    for config in all() {
        let server = TestServer::with(config);
        let value_of = |version: u32| {
            let mut value = format!("{version:08}").into_bytes();
            value.resize(if version.is_multiple_of(2) { 20 } else { 15_000 }, b'.');
            value
        };
        server.resp().ask(command(&[b"SET", b"k", &value_of(0)]), "+OK\r\n");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut reader = server.resp();
                scope.spawn(move || {
                    let mut newest = 0;
                    while newest < VERSIONS {
                        reader.send("GET k\r\n".repeat(16));
                        for _ in 0..16 {
                            let version = read_version(&mut reader);
                            assert!(version >= newest, "{version} after {newest}");
                            newest = version;
                        }
                    }
                });
            }
            let mut writer = server.resp();
            for version in 1..=VERSIONS {
                writer.ask(command(&[b"SET", b"k", &value_of(version)]), "+OK\r\n");
            }
        });
        assert!(server.stop(PATIENCE));
    }
}

fn read_version(reader: &mut Client) -> u32 {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        let mut byte = [0];
        reader.stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let len_bytes: usize = String::from_utf8_lossy(&head[1..head.len() - 2]).parse().unwrap();
    let mut value = vec![0; len_bytes + 2];
    reader.stream.read_exact(&mut value).unwrap();
    String::from_utf8_lossy(&value[..8]).parse().unwrap()
}

/// The slow client's socket is with a large worker that waits for it; no other client waits.
#[test]
fn a_client_that_does_not_read_its_large_values_holds_up_no_other() {
    for config in [size_aware(WritePolicy::Crcw, None), size_aware(WritePolicy::Crcw, Some(1))] {
        let server = TestServer::with(config);
        let large = pattern(4 << 20);
        let mut clients: Vec<Client> = (0..6).map(|_| server.resp()).collect();
        clients[0].ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
        let mut slow: Vec<Client> = (0..4).map(|_| server.resp()).collect();
        for client in &mut slow {
            client.send("GET large\r\nGET large\r\nGET large\r\nPING\r\n");
        }
        for round in 0..200 {
            let client = &mut clients[round % 6];
            client.ask(format!("SET {round} 1\r\nGET {round}\r\n"), "+OK\r\n$1\r\n1\r\n");
        }
        // Large ones of clients that read come through as well.
        clients[1].ask("GET large\r\n", bulk(&large));
        for client in &mut slow {
            let value = bulk(&large);
            client.expect([&value[..], &value, &value, b"+PONG\r\n"].concat());
            client.ask("GET 0\r\n", "$1\r\n1\r\n");
        }
        assert!(server.stop(PATIENCE));
    }
}

/// Waits until the server has closed all connections but one.
fn await_one_connection(shared: &Shared) {
    let start = Instant::now();
    while shared.totals().connections_resp > 1 {
        assert!(start.elapsed() < PATIENCE, "dead clients stay");
        std::thread::yield_now();
    }
}

/// Clients that go away while a large worker sends to them, closing or killed.
#[test]
fn a_connection_that_ends_while_it_is_lent_leaves_nothing_behind() {
    for config in [size_aware(WritePolicy::DCrew, None), size_aware(WritePolicy::Crew, Some(1))] {
        let server = TestServer::with(config);
        let large = pattern(6 << 20);
        let mut other = server.resp();
        other.ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
        for round in 0..30 {
            let mut victim = server.resp();
            victim.send("CLIENT ID\r\n");
            let id = victim.line().split_off(1);
            victim.send("GET large\r\nGET large\r\nSET a 1\r\nGET a\r\n");
            victim.expect("$6291456\r\n");
            if round % 2 == 0 {
                other.ask(format!("CLIENT KILL ID {id}\r\n"), ":1\r\n");
                // The kill reaches the thread that sends after the reply to it. Only then is
                // the rest read: what the two sockets hold is less than two values.
                await_one_connection(server.server().shared());
                let mut rest = Vec::new();
                // With or without a reset, but not as a whole.
                let _ = victim.stream.read_to_end(&mut rest);
                assert!(rest.len() < 2 * large.len(), "cut");
            }
            drop(victim);
            // New connections take the places of the dead ones at once.
            let mut next = server.resp();
            next.ask("GET nothing\r\nPING\r\n", "$-1\r\n+PONG\r\n");
        }
        let shared = server.server().shared();
        await_one_connection(shared);
        other.ask("GET large\r\n", bulk(&large));
        let granted_bytes = shared.buffer_budget().granted_bytes();
        assert!(granted_bytes < 4 << 20, "{granted_bytes} bytes are still booked");
        assert!(server.stop(PATIENCE), "no loan is left");
    }
}

#[test]
fn stopping_sends_what_is_lent() {
    let server = TestServer::with(size_aware(WritePolicy::Crcw, None));
    let large = pattern(3 << 20);
    let mut clients: Vec<Client> = (0..6).map(|_| server.resp()).collect();
    clients[0].ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
    for client in &mut clients {
        client.ask("PING\r\n", "+PONG\r\n");
        client.send("GET large\r\nGET nothing\r\nGET large\r\n");
    }
    for client in &mut clients {
        client.expect("$3145728\r\n");
    }
    let readers: Vec<_> = clients
        .into_iter()
        .map(|mut client| std::thread::spawn(move || client.read_to_end()))
        .collect();
    assert!(server.stop(PATIENCE));
    let value = bulk(&large);
    let want = [&value[b"$3145728\r\n".len()..], b"$-1\r\n", &value].concat();
    for reader in readers {
        assert!(reader.join().unwrap() == want, "everything is answered, in order");
    }
}

/// Minos §6.2's sampling: each worker counts the size of its first request and of every tenth
/// after it.
#[test]
fn one_request_in_so_many_is_counted() {
    for (size_sample, want) in [(1, 600), (10, 60)] {
        let server = TestServer::with(Config {
            threads: 2,
            size_sample,
            ..size_aware(WritePolicy::Crcw, None)
        });
        let mut client = server.resp();
        client.ask("SET k 1\r\n".repeat(300), "+OK\r\n".repeat(300));
        client.ask("GET k\r\n".repeat(300), "$1\r\n1\r\n".repeat(300));
        let counted = sizes::sum(server.server().shared().size_counts());
        let sum: u32 = counted.iter().map(|class| class.requests).sum();
        assert!((want..want + 2).contains(&sum), "{counted:?}");
        assert!(counted.iter().all(|class| class.size_max_bytes < 100), "{counted:?}");
        assert!(server.stop(PATIENCE));
    }
}

/// A worker that serves large items alone has no connections (Minos §3), and gets some again when
/// it serves small ones.
#[test]
fn connections_are_at_the_workers_of_small_items() {
    let server = TestServer::with(Config { threads: 2, ..size_aware(WritePolicy::Crcw, None) });
    let shared = server.server().shared();
    let large = pattern(200_000);
    let mut clients: Vec<Client> = (0..24).map(|_| server.resp()).collect();
    clients[0].ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
    let at_large = || shared.clients().list().iter().filter(|it| it.worker().0 == 1).count();
    let start = Instant::now();
    while shared.sizes().unwrap().plan().large_workers() == 0 || at_large() > 0 {
        assert!(start.elapsed() < PATIENCE, "{:?} {}", shared.sizes().unwrap().plan(), at_large());
        for client in &mut clients {
            client.ask("SET small 1\r\nGET small\r\n", "+OK\r\n$1\r\n1\r\n");
            client.ask("GET large\r\n", bulk(&large));
        }
    }
    // A new one is handed on.
    let mut new: Vec<Client> = (0..8).map(|_| server.resp()).collect();
    let start = Instant::now();
    while at_large() > 0 {
        assert!(start.elapsed() < PATIENCE);
        new.iter_mut().for_each(|client| client.ask("GET small\r\n", "$1\r\n1\r\n"));
    }
    let start = Instant::now();
    while shared.sizes().unwrap().plan().large_workers() > 0 || at_large() == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?} {}", shared.sizes().unwrap().plan(), at_large());
        new.iter_mut().for_each(|client| client.ask("GET small\r\n", "$1\r\n1\r\n"));
    }
    assert!(server.stop(PATIENCE));
}

/// Native clients' requests count as all others, and sets of large values go to large workers.
#[test]
fn sizes_of_native_requests_are_counted_and_decide() {
    let server = TestServer::with(Config {
        threads: 2,
        native: Some(([127, 0, 0, 1], 0).into()),
        size_threshold: SizeThreshold::Static { bytes: 100 },
        ..size_aware(WritePolicy::Crcw, None)
    });
    let large = pattern(500);
    for steering in 0..2 {
        let mut peer = Peer::connect(&server);
        peer.steering = SteeringId(steering);
        for _ in 0..50 {
            peer.ask(&[set(b"large", &large), set(b"small", b"1"), get(b"small")]);
        }
    }
    let counted = sizes::sum(server.server().shared().size_counts());
    let sum = |is_large: bool| {
        let of = counted.iter().filter(|class| (class.size_min_bytes > 100) == is_large);
        of.map(|class| class.requests).sum::<u32>()
    };
    assert_eq!((sum(false), sum(true)), (200, 100), "{counted:?}");
    let served = |worker| server.server().shared().counters(worker).forwardings.served.get();
    assert_eq!((served(0), served(1)), (0, 50), "the large worker executes the sets");
    assert!(server.stop(PATIENCE));
}

/// With `auto`, the first epoch with requests says where small ends, and two in a row which workers
/// are large. Requests flow on while both change.
#[test]
fn the_plan_follows_the_load_while_requests_flow() {
    let threshold = SizeThreshold::Quantile(0.99);
    let server = TestServer::with(Config {
        threads: 4,
        size_threshold: threshold,
        ..size_aware(WritePolicy::DCrew, None)
    });
    let large = pattern(400_000);
    let mut clients: Vec<Client> = (0..4).map(|_| server.resp()).collect();
    clients[0].ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
    let start = Instant::now();
    let sizes = server.server().shared().sizes().unwrap();
    let mut rounds_after = 0;
    while rounds_after < 20 {
        assert!(start.elapsed() < PATIENCE, "{:?}", sizes.plan());
        for (turn, client) in clients.iter_mut().enumerate() {
            client.send("SET small 1\r\nGET small\r\n".repeat(70));
            client.send("GET large\r\n");
            client.send("INCR n\r\n".replace('n', &format!("n{turn}")));
        }
        for client in &mut clients {
            client.expect("+OK\r\n$1\r\n1\r\n".repeat(70));
            client.expect(bulk(&large));
            client.expect(":");
            let mut byte = [0];
            while byte != [b'\n'] {
                client.stream.read_exact(&mut byte).unwrap();
            }
        }
        let plan = sizes.plan();
        rounds_after += u32::from(plan.large_workers() > 0);
    }
    let plan = sizes.plan();
    assert!(plan.threshold_bytes < 400_000, "{plan:?}");
    let counted = sizes::sum(server.server().shared().size_counts());
    assert!(counted.iter().any(|class| class.size_max_bytes > 390_000), "{counted:?}");
    assert!(server.stop(PATIENCE));
}
