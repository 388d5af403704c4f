//! Threads change roles while requests flow: nothing is lost, answered twice or reordered, whatever
//! state a connection is in when it changes its worker. There are more threads than processors.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::native::{Peer, get, set};
use crate::support::{Client, PATIENCE, TestServer, bulk, command, config, is_alone, pattern};
use server::{
    Config, Dispatch, NativeTransport, Policies, Shared, SizeThreshold, Wanted, WritePolicy,
};
use wire::native::{Status, SteeringId};

/// Divisions of four threads: threads with a role, and those that poll.
const DIVISIONS: [(usize, usize); 7] = [(4, 4), (4, 1), (4, 2), (3, 3), (2, 1), (4, 3), (1, 1)];

pub fn start(policies: &str, cr_threads: Option<usize>) -> TestServer {
    let (write_policy, dispatch) = policies.split_once(' ').unwrap();
    let write_policy: WritePolicy = write_policy.parse().unwrap();
    let dispatch: Dispatch = dispatch.parse().unwrap();
    let memory_bytes = 256 << 20;
    let base = Config { threads: 4, memory_bytes, ..config() };
    TestServer::with(Config { cr_threads, policies: Policies::new(write_policy, dispatch), ..base })
}

/// Every server of these tests can divide its threads.
fn all_policies() -> impl Iterator<Item = TestServer> {
    let all = [
        ("crcw any", None),
        ("erew key-hash", None),
        ("d-crew jbsq:1", Some(1)),
        ("crcw round-robin", Some(2)),
        ("crew any", None),
        ("crew steal", None),
    ];
    all.into_iter().map(|(policies, cr_threads)| {
        println!("{policies} {cr_threads:?}");
        start(policies, cr_threads)
    })
}

/// Changes roles and waits until every thread has taken them up.
#[track_caller]
pub fn divide(shared: &Shared, (threads, dispatchers): (usize, usize)) {
    shared.change_roles(Wanted::by_hand(threads, dispatchers)).unwrap();
    wait_until(|| shared.roles().are_settled());
    let plan = shared.roles().plan();
    assert_eq!((plan.threads, plan.dispatchers), (threads, dispatchers));
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it takes too long");
        std::thread::yield_now();
    }
}

/// Changes roles until told to stop; every third change does not wait for the one before it.
fn keep_changing(shared: &Shared, is_over: &AtomicBool, changes: &AtomicUsize) {
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let (threads, dispatchers) = DIVISIONS[round * 5 % DIVISIONS.len()];
        if shared.change_roles(Wanted::by_hand(threads, dispatchers)).is_err() {
            return; // It stops.
        }
        if round % 3 != 0 {
            wait_until(|| shared.roles().are_settled() || shared_stops(shared, is_over));
        }
        changes.fetch_add(1, Ordering::Relaxed);
    }
}

fn shared_stops(shared: &Shared, is_over: &AtomicBool) -> bool {
    is_over.load(Ordering::Relaxed) || shared.run().is_stopping()
}

/// Runs `clients` while roles change; how often they did.
fn while_changing(server: &TestServer, clients: impl FnOnce()) -> usize {
    let (is_over, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let shared = server.server().shared();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| keep_changing(shared, &is_over, &changes));
        clients();
        is_over.store(true, Ordering::Relaxed);
        mover.join().unwrap();
    });
    changes.into_inner()
}

/// What one client asks and how it is answered; it is alone on its keys.
fn resp_pipeline(client: usize, rounds: std::ops::Range<usize>) -> (String, String) {
    let (mut asks, mut answers) = (String::new(), String::new());
    for round in rounds {
        let key = format!("{client}-{}", round % 5);
        asks += &format!("SET {key} {round}\r\nGET {key}\r\nINCR n{client}\r\nDEL {key}\r\n");
        let number = round.to_string();
        let len = number.len();
        answers += &format!("+OK\r\n${len}\r\n{number}\r\n:{}\r\n:1\r\n", round + 1);
        asks += &format!("GET {key}\r\nAPPEND {key} xy\r\nMSET {key} 1 m{client} {round}\r\n");
        answers += "$-1\r\n:2\r\n+OK\r\n";
        asks += &format!("GET m{client}\r\nPING\r\nMULTI\r\nINCR {key}\r\nGET {key}\r\nEXEC\r\n");
        answers += &format!("${len}\r\n{number}\r\n+PONG\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n");
        answers += "*2\r\n:2\r\n$1\r\n2\r\n";
    }
    (asks, answers)
}

fn memcached_pipeline(client: usize, rounds: std::ops::Range<usize>) -> (String, String) {
    let (mut asks, mut answers) = (String::new(), String::new());
    for round in rounds {
        let key = format!("t{client}-{}", round % 5);
        asks += &format!("set {key} 7 0 2\r\n10\r\nget {key}\r\nincr {key} 5\r\n");
        answers += &format!("STORED\r\nVALUE {key} 7 2\r\n10\r\nEND\r\n15\r\n");
        asks +=
            &format!("set {key} 0 0 1 noreply\r\n9\r\nget {key} {key}\r\ndelete {key}\r\nmn\r\n");
        answers +=
            &format!("VALUE {key} 0 1\r\n9\r\nVALUE {key} 0 1\r\n9\r\nEND\r\nDELETED\r\nMN\r\n");
    }
    (asks, answers)
}

/// Writes from a second thread, so that neither side waits for the other.
fn talk(client: &mut Client, (asks, answers): (String, String)) {
    let mut writer = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(asks.as_bytes()).unwrap());
        client.expect(answers);
    });
}

/// The same connections through thousands of changes, over all policies.
#[test]
fn pipelines_keep_their_order_and_see_their_own_writes() {
    let mut change_count = 0;
    for server in all_policies() {
        let is_enough = AtomicBool::new(false);
        let shared = server.server().shared();
        let resp = |client: usize| {
            let mut connection = server.resp();
            for part in 0.. {
                talk(&mut connection, resp_pipeline(client, part * 20..part * 20 + 20));
                if is_enough.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        let memcached = |client: usize| {
            let mut connection = server.memcached();
            for part in 0.. {
                talk(&mut connection, memcached_pipeline(client, part * 20..part * 20 + 20));
                if is_enough.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        change_count += while_changing(&server, || {
            std::thread::scope(|scope| {
                for client in 0..3 {
                    scope.spawn(move || resp(client));
                    scope.spawn(move || memcached(client));
                }
                // Each change is one of two or three threads.
                wait_until(|| shared.totals().forwardings.role_changes > 1500);
                is_enough.store(true, Ordering::Relaxed);
            });
        });
        let forwardings = shared.totals().forwardings;
        assert!(forwardings.connections_moved > 100, "{forwardings:?}");
        assert!(server.stop(PATIENCE), "everything is drained");
    }
    println!("{change_count} changes");
}

/// Sixteen connections, so that every thread has some; each in the state that `prepare` leaves it
/// in while it goes from thread to thread, and then as `check` finds it.
fn through_all_divisions(
    server: &TestServer,
    prepare: impl Fn(usize, &mut Client),
    step: impl Fn(usize, usize, &mut Client),
    check: impl Fn(usize, &mut Client),
) {
    let shared = server.server().shared();
    let mut clients: Vec<Client> = (0..16).map(|_| server.resp()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        prepare(number, client);
    }
    for (round, division) in DIVISIONS.into_iter().cycle().take(21).enumerate() {
        divide(shared, division);
        for (number, client) in clients.iter_mut().enumerate() {
            step(round, number, client);
        }
    }
    assert!(shared.totals().forwardings.connections_moved >= 16);
    for (number, client) in clients.iter_mut().enumerate() {
        check(number, client);
    }
}

#[test]
fn what_a_connection_has_said_goes_with_it() {
    for server in all_policies() {
        through_all_divisions(
            &server,
            |number, client| {
                client.ask(format!("CLIENT SETNAME c{number}\r\n"), "+OK\r\n");
                client.ask(format!("SET watched{number} 1\r\n"), "+OK\r\n");
                client.ask(format!("WATCH watched{number}\r\nMULTI\r\n"), "+OK\r\n+OK\r\n");
            },
            |round, _, client| client.ask(format!("ECHO {round}\r\n"), "+QUEUED\r\n"),
            |number, client| {
                let echoes: String = (0..21).map(|round| bulk_text(&round.to_string())).collect();
                client.ask("EXEC\r\n", format!("*21\r\n{echoes}"));
                client.ask("CLIENT GETNAME\r\n", bulk_text(&format!("c{number}")));
            },
        );
        assert!(server.stop(PATIENCE));
    }
}

fn bulk_text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn a_watched_key_that_changes_on_the_way_spoils_the_transaction() {
    let server = start("crcw any", None);
    let other = std::cell::RefCell::new(server.resp());
    through_all_divisions(
        &server,
        |number, client| {
            client
                .ask(format!("WATCH w{number}\r\nMULTI\r\nPING\r\n"), "+OK\r\n+OK\r\n+QUEUED\r\n");
        },
        |_, number, _| {
            other.borrow_mut().ask(format!("SET w{number} 1\r\n"), "+OK\r\n");
        },
        |_, client| client.ask("EXEC\r\n", "*-1\r\n"),
    );
}

#[test]
fn passwords_protocol_versions_and_silence_go_with_a_connection() {
    let base = Config { threads: 4, requirepass: Some("secret".into()), ..config() };
    let server = TestServer::with(base);
    through_all_divisions(
        &server,
        |number, client| {
            if number % 2 == 0 {
                client.ask("AUTH secret\r\nCLIENT REPLY OFF\r\n", "+OK\r\n");
            }
        },
        |_, number, client| match number % 2 {
            0 => client.send("SET a 1\r\n"),
            _ => client.ask("GET a\r\n", "-NOAUTH Authentication required.\r\n"),
        },
        |number, client| {
            if number % 2 == 0 {
                client.ask("CLIENT REPLY ON\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
            }
        },
    );
}

/// A value of 2 MiB arrives piece by piece, each at another worker; then it is read by a client
/// that takes it piece by piece.
#[test]
fn half_read_and_half_sent_values_go_with_a_connection() {
    for server in all_policies() {
        let value = pattern(2 << 20);
        let whole = command(&[b"SET", b"large", &value]);
        let pieces: Vec<&[u8]> = whole.chunks(whole.len().div_ceil(21)).collect();
        let text = [b"set text 5 0 2097152\r\n", &value[..], b"\r\n"].concat();
        let text_pieces: Vec<&[u8]> = text.chunks(text.len().div_ceil(21)).collect();
        let memcached = std::cell::RefCell::new(server.memcached());
        let small = |number: usize, client: &mut Client| {
            client.ask(format!("SET k{number} 1\r\nGET k{number}\r\n"), "+OK\r\n$1\r\n1\r\n");
        };
        through_all_divisions(
            &server,
            |_, _| {},
            |round, number, client| match number {
                0..4 => client.send(pieces[round]),
                4 => memcached.borrow_mut().send(text_pieces[round]),
                _ => small(number, client),
            },
            |number, client| {
                if number < 4 {
                    client.expect("+OK\r\n");
                }
            },
        );
        memcached.borrow_mut().expect("STORED\r\n");
        let answer = bulk(&value);
        let found = std::cell::RefCell::new(vec![0; 16]);
        let part_bytes = answer.len().div_ceil(21);
        through_all_divisions(
            &server,
            |_, client| client.send("GET large\r\n"),
            |_, number, client| {
                let start = found.borrow()[number];
                let end = (start + part_bytes).min(answer.len());
                client.expect(&answer[start..end]);
                found.borrow_mut()[number] = end;
            },
            |_, client| client.ask("PING\r\n", "+PONG\r\n"),
        );
        let head = b"VALUE text 5 2097152\r\n";
        memcached.borrow_mut().ask("get text\r\n", [&head[..], &value, b"\r\nEND\r\n"].concat());
        assert!(server.stop(PATIENCE));
    }
}

#[test]
fn paused_clients_go_on_where_they_are_then() {
    for server in all_policies() {
        let shared = server.server().shared();
        let mut operator = server.resp();
        let mut clients: Vec<Client> = (0..16).map(|_| server.resp()).collect();
        for client in &mut clients {
            client.ask("PING\r\n", "+PONG\r\n");
        }
        operator.ask("CLIENT PAUSE 100000\r\n", "+OK\r\n");
        for client in &mut clients {
            client.send("INCR n\r\n".repeat(20) + "PING\r\n");
        }
        for division in DIVISIONS {
            divide(shared, division);
        }
        operator.ask("CLIENT UNPAUSE\r\n", "+OK\r\n");
        let mut numbers: Vec<u32> = Vec::new();
        for mut client in clients {
            client.finish_sending();
            let text = String::from_utf8(client.read_to_end()).unwrap();
            let mut words: Vec<&str> = text.split_terminator("\r\n").collect();
            assert_eq!(words.pop(), Some("+PONG"));
            numbers.extend(words.iter().map(|word| word[1..].parse::<u32>().unwrap()));
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=320), "each counted once");
        assert!(server.stop(PATIENCE));
    }
}

/// A pause may end while its clients are on their way between two workers.
#[test]
fn clients_that_move_while_a_pause_ends_go_on() {
    let server = all_policies().next().unwrap();
    let shared = server.server().shared();
    let mut operator = server.resp();
    let mut clients: Vec<Client> = (0..32).map(|_| server.resp()).collect();
    for _ in 0..20 {
        for division in DIVISIONS {
            operator.ask("CLIENT PAUSE 3600000 WRITE\r\n", "+OK\r\n");
            for client in &mut clients {
                client.send("INCR n\r\nECHO x\r\n");
            }
            std::thread::scope(|scope| {
                scope.spawn(|| divide(shared, division));
                operator.ask("CLIENT UNPAUSE\r\n", "+OK\r\n");
            });
            for client in &mut clients {
                client.line();
                client.expect("$1\r\nx\r\n");
            }
        }
    }
}

/// That everything is drained says more than it seems: a worker ends only when all its request
/// slots are free again and no connection is on its way.
#[test]
fn clients_that_die_and_are_killed_leave_nothing_behind() {
    for server in all_policies() {
        let large = pattern(200_000);
        let shared = server.server().shared();
        let mut other = server.resp();
        other.ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
        while_changing(&server, || {
            let mixed =
                [command(&[b"SET", b"b", &large]), b"GET large\r\nGET b\r\n".repeat(9)].concat();
            let small = "SET a 1\r\nGET a\r\nINCR n\r\n".repeat(300);
            for round in 0..60 {
                let mut client = server.resp();
                if round % 4 == 0 {
                    client.ask("CLIENT SETNAME victim\r\nCLIENT ID\r\n", "+OK\r\n:");
                    let mut id = String::new();
                    while !id.ends_with("\r\n") {
                        let mut byte = [0];
                        std::io::Read::read_exact(&mut client.stream, &mut byte).unwrap();
                        id.push(char::from(byte[0]));
                    }
                    client.send(&small);
                    other.ask(format!("CLIENT KILL ID {id}"), ":1\r\n");
                    // Closed, with or without a reset: its own requests may be unread.
                    let _ = std::io::Read::read_to_end(&mut client.stream, &mut Vec::new());
                    continue;
                }
                client.send(if round % 2 == 0 { small.as_bytes() } else { &mixed });
                if round % 3 == 0 {
                    client.expect("+OK\r\n");
                }
                drop(client);
                other.ask("PING\r\nGET nothing\r\n", "+PONG\r\n$-1\r\n");
            }
        });
        wait_until(|| shared.totals().connections_resp == 1);
        other.ask("GET large\r\n", bulk(&large));
        let granted_bytes = shared.buffer_budget().granted_bytes();
        assert!(granted_bytes < 4 << 20, "{granted_bytes} bytes are still booked");
        assert!(server.stop(PATIENCE));
    }
}

/// New clients come in by listeners of threads that poll, execute, or have no role.
#[test]
fn connections_are_accepted_by_threads_of_every_role() {
    for server in all_policies() {
        for division in DIVISIONS {
            divide(server.server().shared(), division);
            for client in 0..12 {
                server.resp().ask(format!("SET {client} 1\r\n"), "+OK\r\n");
                server.memcached().ask(
                    format!("get {client}\r\n"),
                    format!("VALUE {client} 0 1\r\n1\r\nEND\r\n"),
                );
            }
        }
        assert!(server.stop(PATIENCE));
    }
}

#[test]
fn stopping_in_the_middle_of_a_change_answers_everything_once() {
    for server in all_policies().chain(all_policies()) {
        let mut clients: Vec<Client> = (0..8).map(|_| server.resp()).collect();
        for client in &mut clients {
            client.ask("PING\r\n", "+PONG\r\n");
        }
        let shared = std::sync::Arc::clone(server.server().shared());
        let (is_over, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut numbers: Vec<u32> = Vec::new();
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| keep_changing(&shared, &is_over, &changes));
            wait_until(|| changes.load(Ordering::Relaxed) > 20);
            for client in &mut clients {
                client.send("INCR n\r\nGET nothing\r\n".repeat(500));
            }
            let read = |mut client: Client| scope.spawn(move || client.read_to_end());
            let readers: Vec<_> = clients.into_iter().map(read).collect();
            assert!(server.stop(PATIENCE));
            for reader in readers {
                let answers = String::from_utf8(reader.join().unwrap()).unwrap();
                let words: Vec<&str> = answers.split_terminator("\r\n").collect();
                assert_eq!(words.len(), 1000, "every request is answered once");
                for pair in words.chunks_exact(2) {
                    numbers.push(pair[0][1..].parse().unwrap());
                    assert_eq!(pair[1], "$-1");
                }
            }
            is_over.store(true, Ordering::Relaxed);
            mover.join().unwrap();
        });
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=4000), "every increment counted once");
    }
}

/// A connection changes its worker while a large one sends for it: the loan finds it again, and
/// what it asked for since leaves behind what was lent.
#[test]
fn what_is_lent_comes_back_to_where_its_connection_is() {
    for cr_threads in [None, Some(1)] {
        let (write_policy, dispatch) = (WritePolicy::DCrew, Dispatch::SizeAware);
        let size_threshold = SizeThreshold::Static { bytes: 10_000 };
        let routed = Config {
            policies: Policies::new(write_policy, dispatch),
            size_threshold,
            cr_threads,
            ..config()
        };
        let server = TestServer::with(Config { threads: 4, memory_bytes: 256 << 20, ..routed });
        let shared = server.server().shared();
        let large = pattern(4 << 20);
        server.resp().ask(command(&[b"SET", b"large", &large]), "+OK\r\n");
        let mut clients: Vec<Client> = (0..6).map(|_| server.resp()).collect();
        for round in 0..3 * DIVISIONS.len() {
            let lent_before = shared.totals().forwardings.lent;
            for client in &mut clients {
                client.send("GET large\r\n");
            }
            // They read nothing: the large worker waits for them.
            wait_until(|| shared.totals().forwardings.lent >= lent_before + clients.len() as u64);
            let (threads, dispatchers) = DIVISIONS[round * 5 % DIVISIONS.len()];
            shared.change_roles(Wanted::by_hand(threads, dispatchers)).unwrap();
            for (at, client) in clients.iter_mut().enumerate() {
                client.send(format!("SET c{at} {round}\r\nGET c{at}\r\n"));
            }
            let number = round.to_string();
            let rest = format!("+OK\r\n${}\r\n{number}\r\n", number.len());
            for client in &mut clients {
                client.expect([&bulk(&large)[..], rest.as_bytes()].concat());
            }
            wait_until(|| shared.roles().are_settled());
            if threads < 2 {
                divide(shared, (4, 4)); // One alone lends to no other.
            }
        }
        assert!(server.stop(PATIENCE));
    }
}

/// When more threads poll than before, each of those that did hands over its share.
#[test]
fn threads_that_begin_to_poll_get_their_share() {
    let server = start("crcw any", None);
    let shared = server.server().shared();
    divide(shared, (4, 1));
    let mut clients: Vec<Client> = (0..16).map(|_| server.resp()).collect();
    let ask_all = |clients: &mut Vec<Client>| {
        for client in clients {
            client.ask("PING\r\n", "+PONG\r\n");
        }
    };
    ask_all(&mut clients);
    let moved = || shared.totals().forwardings.connections_moved;
    for (division, want) in [((4, 2), 8), ((4, 1), 8), ((4, 4), 12), ((4, 4), 0)] {
        let before = moved();
        divide(shared, division);
        ask_all(&mut clients);
        assert_eq!(moved() - before, want, "{division:?}");
    }
}

/// A range is walked over many rounds, some of them at other workers.
#[test]
fn a_range_goes_on_where_its_connection_is() {
    let index = server::IndexKind::Tree;
    let server = TestServer::with(Config { threads: 4, index, ..config() });
    let mut writer = server.resp();
    let (mut sets, mut want) = (String::new(), String::from("*60000\r\n"));
    for key in 10_000..40_000 {
        sets += &format!("SET {key} v\r\n");
        want += &format!("$5\r\n{key}\r\n$1\r\nv\r\n");
    }
    talk(&mut writer, (sets, "+OK\r\n".repeat(30_000)));
    let mut clients: Vec<Client> = (0..6).map(|_| server.resp()).collect();
    while_changing(&server, || {
        for _ in 0..4 {
            for client in &mut clients {
                client.send("KV.RANGE - +\r\nPING\r\n");
            }
            for client in &mut clients {
                client.expect(&want);
                client.expect("+PONG\r\n");
            }
        }
    });
    assert!(server.stop(PATIENCE));
}

/// A list of keys is made over many rounds, some of them at other workers.
#[test]
fn a_list_of_keys_goes_on_where_its_connection_is() {
    for index in [server::IndexKind::Hash, server::IndexKind::Tree] {
        let output_limit_bytes = 16 << 10;
        let server = TestServer::with(Config { threads: 4, index, output_limit_bytes, ..config() });
        let (mut sets, mut want) = (String::new(), Vec::new());
        for key in 10_000..20_000 {
            sets += &format!("SET {key} v\r\n");
            want.push(format!("mg {key}"));
        }
        talk(&mut server.resp(), (sets, "+OK\r\n".repeat(10_000)));
        let list_bytes = want.len() * "mg 10000\r\n".len() + "EN\r\nMN\r\n".len();
        let mut clients: Vec<Client> = (0..6).map(|_| server.memcached()).collect();
        while_changing(&server, || {
            for _ in 0..4 {
                for client in &mut clients {
                    client.send("lru_crawler mgdump all\r\nmn\r\n");
                }
                for client in &mut clients {
                    let mut list = vec![0; list_bytes];
                    client.stream.read_exact(&mut list).unwrap();
                    let list = String::from_utf8(list).unwrap();
                    let lines = list.strip_suffix("EN\r\nMN\r\n").unwrap();
                    let mut lines: Vec<&str> = lines.split_terminator("\r\n").collect();
                    lines.sort_unstable();
                    assert_eq!(lines, want);
                }
            }
        });
        assert!(server.stop(PATIENCE));
    }
}

/// Two large commands do not fit the buffers together: one waits for the other's end, wherever
/// they are by then.
#[test]
fn a_client_that_waits_for_buffer_room_gets_it_at_another_worker() {
    let starved_time_max = PATIENCE;
    let base = Config { threads: 4, memory_bytes: 64 << 20, starved_time_max, ..config() };
    let server = TestServer::with(base);
    let value = pattern(4 << 20);
    let whole = command(&[b"SET", b"large", &value]);
    let (head, tail) = whole.split_at(whole.len() - 100);
    let mut clients: Vec<Client> = (0..2).map(|_| server.resp()).collect();
    let (first, second) = clients.split_at_mut(1);
    first[0].send(head);
    let shared = server.server().shared();
    wait_until(|| shared.totals().net_input_bytes >= head.len() as u64);
    std::thread::scope(|scope| {
        scope.spawn(|| second[0].ask(&whole, "+OK\r\n"));
        wait_until(|| shared.totals().net_input_bytes > head.len() as u64);
        for division in DIVISIONS.into_iter().cycle().take(14) {
            divide(shared, division);
        }
        first[0].ask(tail, "+OK\r\n");
    });
    clients[0].ask("GET large\r\n", bulk(&value));
    assert!(server.stop(PATIENCE));
}

/// A connection that is on its way when the server stops is answered where it arrives.
#[test]
fn stopping_loses_no_connection_on_its_way() {
    let plain = || TestServer::with(Config { threads: 3, ..config() });
    let plain_divisions = [(3, 3), (1, 1), (2, 2), (1, 1)];
    let divided = || start("crcw any", None);
    let divisions = [(4, 4), (4, 1), (2, 2), (2, 1)];
    for round in 0..60 {
        let (server, divisions) =
            if round % 3 == 0 { (divided(), divisions) } else { (plain(), plain_divisions) };
        let mut clients: Vec<Client> = (0..24).map(|_| server.resp()).collect();
        for client in &mut clients {
            client.ask("PING\r\n", "+PONG\r\n");
        }
        let shared = std::sync::Arc::clone(server.server().shared());
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut changes = divisions.into_iter().cycle();
                while changes.next().is_some_and(|(threads, dispatchers)| {
                    std::thread::yield_now();
                    shared.change_roles(Wanted::by_hand(threads, dispatchers)).is_ok()
                }) {}
            });
            for client in &mut clients {
                client.send("ECHO end\r\n");
            }
            wait_until(|| shared.totals().forwardings.connections_moved > 20 + round % 7);
            assert!(server.stop(PATIENCE));
            mover.join().unwrap();
        });
        for mut client in clients {
            assert_eq!(client.read_to_end(), b"$3\r\nend\r\n");
        }
    }
}

/// A client that is killed while on its way between two workers is closed where it arrives.
#[test]
fn a_kill_reaches_a_connection_on_its_way() {
    let server = start("crcw any", None);
    while_changing(&server, || {
        let mut killer = server.resp();
        killer.ask("PING\r\n", "+PONG\r\n");
        for _ in 0..30 {
            let mut clients: Vec<Client> = (0..32).map(|_| server.resp()).collect();
            for client in &mut clients {
                client.ask("PING\r\n", "+PONG\r\n");
            }
            killer.ask("CLIENT KILL TYPE normal\r\n", ":32\r\n");
            for mut client in clients {
                client.expect_closed();
            }
        }
    });
}

/// Nanoseconds that a thread of this process has run; its name is no other server's here.
fn ran_ns(thread: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let paths: Vec<_> = tasks.map(|task| task.unwrap().path()).collect();
    let is_it = |path: &&std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == thread)
    };
    let path = paths.iter().find(is_it).unwrap();
    let stat = std::fs::read_to_string(path.join("schedstat")).unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Even where workers are told never to sleep.
#[test]
fn a_thread_without_a_role_sleeps() {
    if !is_alone("moving::a_thread_without_a_role_sleeps") {
        return;
    }
    let server = TestServer::with(Config { threads: 9, poll: server::Poll::Busy, ..config() });
    let shared = server.server().shared();
    // Only one is left that spins, so that this disturbs no other test.
    divide(shared, (1, 1));
    let (before, start) = (ran_ns("worker-8"), Instant::now());
    wait_until(|| start.elapsed() > Duration::from_millis(200));
    let idle_ns = ran_ns("worker-8") - before;
    assert!(idle_ns < 2_000_000, "{idle_ns} ns");
}

/// U2: whatever was steered to a thread is served there, whatever its role becomes.
#[test]
fn native_clients_do_not_notice() {
    let server = TestServer::with(Config { threads: 4, ..crate::support::native::config() });
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::connect(&server)).collect();
    let shared = server.server().shared();
    while_changing(&server, || {
        for round in 0.. {
            for (number, peer) in peers.iter_mut().enumerate() {
                let (key, value) = (format!("k{number}"), format!("v{round}"));
                let answers = peer
                    .ask_patiently(&[set(key.as_bytes(), value.as_bytes()), get(key.as_bytes())]);
                assert_eq!(answers[1].value, value.as_bytes());
            }
            if round > 100 && shared.totals().forwardings.role_changes > 200 {
                return;
            }
        }
    });
    assert!(server.stop(PATIENCE));
}

/// U2: the threads that poll hear datagrams, also of clients that were told of other threads.
#[test]
fn native_datagrams_go_to_the_threads_that_poll() {
    for native_transport in [NativeTransport::Recvmmsg, NativeTransport::IoUring] {
        let base = crate::support::native::config();
        let server = TestServer::with(Config { threads: 4, native_transport, ..base });
        let shared = server.server().shared();
        let mut old = Peer::connect(&server);
        for (threads, dispatchers) in DIVISIONS {
            divide(shared, (threads, dispatchers));
            let mut new = Peer::connect(&server);
            assert_eq!(usize::from(new.welcome.steering.worker_count()), dispatchers);
            let frames_before = shared.totals().native.worker_frames_in;
            for partition in 0..16 {
                for peer in [&mut old, &mut new] {
                    peer.steering = SteeringId(partition);
                    assert_eq!(peer.ask_patiently(&[set(b"k", b"v")])[0].status, Status::Ok);
                }
            }
            let frames = shared.totals().native.worker_frames_in;
            let counts = frames.iter().zip(&frames_before).map(|(after, before)| after - before);
            let heard: Vec<bool> = counts.map(|count| count > 0).collect();
            let want: Vec<bool> = (0..4).map(|thread| thread < dispatchers).collect();
            assert_eq!(heard, want, "{threads} threads, {dispatchers} of them poll: {frames:?}");
        }
        assert!(server.stop(PATIENCE));
    }
}
