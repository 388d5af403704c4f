//! Clients that misbehave, resources that run out, and the end.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::support::{Client, PATIENCE, TestServer, bulk, command, config, pattern, read_some};
use server::{Config, Server, StartError};

#[test]
fn a_half_closed_client_gets_all_its_answers() {
    let server = TestServer::start();
    for mut client in [server.resp(), server.memcached()] {
        let is_resp = client.stream.peer_addr().ok() == server.server().resp_addr();
        client.send(if is_resp { "SET a 1\r\nGET a\r\nGET " } else { "get a\r\nget " });
        client.finish_sending();
        let want: &[u8] =
            if is_resp { b"+OK\r\n$1\r\n1\r\n" } else { b"VALUE a 0 1\r\n1\r\nEND\r\n" };
        assert_eq!(client.read_to_end(), want);
    }
}

#[test]
fn a_client_that_never_reads_is_not_read_and_others_work_on() {
    let server = TestServer::start();
    let mut other = server.resp();
    let value = pattern(10_000);
    other.ask(command(&[b"SET", b"v", &value]), "+OK\r\n");
    let mut slow = server.resp();
    slow.stream.set_nonblocking(true).unwrap();
    // Asks until the server stops reading: replies of 200 times the limit would be due.
    let ask = b"GET v\r\n".repeat(1000);
    let (mut asked, mut blocked) = (0, 0);
    while asked < 20_000 && blocked < 50 {
        match slow.stream.write(&ask) {
            Ok(count) => asked += count / 7,
            Err(_) => {
                blocked += 1;
                other.ask("PING\r\n", "+PONG\r\n");
            }
        }
    }
    let budget = server.server().shared().buffer_budget();
    assert!(budget.granted_bytes() < 8 << 20, "{} bytes", budget.granted_bytes());
    // And once it reads, nothing is missing.
    slow.stream.set_nonblocking(false).unwrap();
    slow.finish_sending();
    let answers = slow.read_to_end();
    let whole = bulk(&value);
    assert!(answers.len() >= whole.len() * (asked - 1000).max(1));
    assert!(answers.chunks_exact(whole.len()).all(|answer| answer == whole));
}

#[test]
fn a_large_value_leaves_from_the_log_while_it_is_overwritten() {
    let server = TestServer::with(Config { memory_bytes: 256 << 20, ..config() });
    let (mut reader, mut writer) = (server.resp(), server.resp());
    let value = pattern(4 << 20);
    writer.ask(command(&[b"SET", b"v", &value]), "+OK\r\n");
    reader.send("GET v\r\n");
    // The reader takes nothing while the log goes round.
    for number in 0..80_u8 {
        writer.ask(command(&[b"SET", b"w", &vec![number; 4 << 20]]), "+OK\r\n");
    }
    reader.expect(bulk(&value));
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = TestServer::with(Config { max_connections: 2, ..config() });
    let (mut first, mut second) = (server.resp(), server.memcached());
    first.ask("PING\r\n", "+PONG\r\n");
    second.ask("version\r\n", "VERSION ");
    assert_eq!(server.resp().read_to_end(), b"-ERR max number of clients reached\r\n");
    assert_eq!(server.memcached().read_to_end(), b"ERROR Too many open connections\r\n");
    first.send("QUIT\r\n");
    assert_eq!(first.read_to_end(), b"+OK\r\n");
    let started = Instant::now();
    while server.server().shared().totals().connections_resp > 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    server.resp().ask("PING\r\n", "+PONG\r\n");
    assert_eq!(server.server().shared().totals().connections_rejected, 2);
}

#[test]
fn garbage_is_answered_and_closed_while_another_client_works() {
    let server = TestServer::start();
    let mut good = server.resp();
    for seed in 0..40 {
        let mut bad = if seed % 2 == 0 { server.resp() } else { server.memcached() };
        let garbage = &pattern(20_000 + seed * 977)[seed * 500..];
        let _ = bad.stream.write_all(garbage);
        let _ = bad.stream.write_all(b"\r\n");
        good.ask(format!("SET k {seed}\r\nGET k\r\n"), {
            let mut want = b"+OK\r\n".to_vec();
            want.extend(bulk(seed.to_string().as_bytes()));
            want
        });
    }
    let mut bad = server.resp();
    bad.ask("*1\r\n!3\r\n", "-ERR Protocol error: expected '$', got '!'\r\n");
    bad.expect_closed();
    let mut bad = server.resp();
    bad.ask("*many\r\n", "-ERR Protocol error: invalid multibulk length\r\n");
    bad.expect_closed();
}

#[test]
fn many_half_sent_large_commands_stay_within_the_budget() {
    let server = TestServer::with(Config { memory_bytes: 64 << 20, ..config() });
    let shared = server.server().shared();
    let limit_bytes = shared.buffer_budget().limit_bytes();
    let value_bytes = shared.config().max_item_size_bytes as usize;
    let mut halves: Vec<_> = (0..6)
        .map(|number| {
            let mut client = server.resp();
            let head = format!("*3\r\n$3\r\nSET\r\n$2\r\nk{number}\r\n${value_bytes}\r\n");
            client.send(head);
            client.send(vec![b'x'; 100_000]);
            client
        })
        .collect();
    let mut other = server.resp();
    other.ask("SET small 1\r\nGET small\r\n", "+OK\r\n$1\r\n1\r\n");
    assert!(shared.buffer_budget().granted_bytes() <= limit_bytes + (1 << 20));
    // A client that gives up makes room for the others.
    let mut last = halves.pop().unwrap();
    drop(halves);
    last.send(vec![b'x'; value_bytes - 100_000]);
    last.send("\r\n");
    last.expect("+OK\r\n");
}

/// So many halves of large commands that no more room is left for another.
fn fill_the_buffers(server: &TestServer) -> Vec<super::support::Client> {
    let value_bytes = server.server().shared().config().max_item_size_bytes;
    (0..40)
        .map(|_| {
            let mut client = server.resp();
            client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${value_bytes}\r\n"));
            client.send(vec![b'x'; 20_000]);
            client
        })
        .collect()
}

#[test]
fn clients_that_give_up_while_they_wait_for_room_take_none() {
    let server = TestServer::with(Config {
        memory_bytes: 64 << 20,
        threads: 1,
        starved_time_max: Duration::from_secs(3600),
        ..config()
    });
    let value_bytes = server.server().shared().config().max_item_size_bytes as usize;
    let halves = fill_the_buffers(&server);
    drop(halves);
    let started = Instant::now();
    while server.server().shared().totals().connections_resp > 0 {
        assert!(started.elapsed() < PATIENCE, "a client that has gone still takes room");
        std::thread::yield_now();
    }
    let mut last = server.resp();
    last.ask(command(&[b"SET", b"k", &vec![b'x'; value_bytes]]), "+OK\r\n");
}

#[test]
fn a_client_that_stalls_in_mid_command_gives_way_to_those_that_wait() {
    let server = TestServer::with(Config {
        memory_bytes: 64 << 20,
        threads: 1,
        // Long enough that this thread is never taken for a stalled client by its own server.
        starved_time_max: Duration::from_millis(500),
        ..config()
    });
    let value_bytes = server.server().shared().config().max_item_size_bytes as usize;
    let halves = fill_the_buffers(&server);
    let mut last = server.resp();
    last.ask(command(&[b"SET", b"k", &vec![b'x'; value_bytes]]), "+OK\r\n");
    drop(halves);
}

/// Commands of unknown length take their room bit by bit, until all of them wait. A short one is
/// given room by refusing as few as it takes, and not half of them after the longest wait.
#[test]
fn a_short_command_gets_room_beside_many_that_have_each_a_part() {
    let server = TestServer::with(Config {
        memory_bytes: 64 << 20,
        threads: 1,
        starved_time_max: Duration::from_secs(16),
        ..config()
    });
    let budget = server.server().shared().buffer_budget();
    let words = b"$1\r\na\r\n".repeat(200_000);
    let mut long: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.resp();
            client.send("*400000\r\n$4\r\nMGET\r\n");
            client.stream.set_nonblocking(true).unwrap();
            client
        })
        .collect();
    let mut sent_bytes = vec![0; long.len()];
    let mut send_on = |began: Instant| {
        assert!(began.elapsed() < PATIENCE, "{sent_bytes:?}");
        for (client, sent_bytes) in long.iter_mut().zip(&mut sent_bytes) {
            let rest = &words[*sent_bytes..];
            *sent_bytes += client.stream.write(&rest[..rest.len().min(50_000)]).unwrap_or(0);
        }
        std::thread::yield_now();
    };
    let began = Instant::now();
    while budget.granted_bytes() < budget.limit_bytes() / 4 * 3 {
        send_on(began);
    }
    let mut short = server.resp();
    short.send(command(&[b"SET", b"k", &pattern(300_000)]));
    short.stream.set_nonblocking(true).unwrap();
    let began = Instant::now();
    while short.stream.peek(&mut [0; 1]).is_err() {
        send_on(began); // A client that falls silent is refused.
    }
    short.stream.set_nonblocking(false).unwrap();
    short.expect("+OK\r\n");
    let is_refused = |client: &mut Client| matches!(client.stream.read(&mut [0; 1]), Ok(1));
    let refused_count = long.iter_mut().map(is_refused).filter(|is_refused| *is_refused).count();
    assert!(refused_count < 6, "{refused_count} of 20");
}

/// Clients that send a byte now and then are not silent, but take room that they do not fill. Those
/// that are refused come back, so that there is always a shorter command than the one that waits.
#[test]
fn clients_that_trickle_give_way_to_one_that_sends() {
    let server = TestServer::with(Config {
        memory_bytes: 64 << 20,
        threads: 2,
        starved_time_max: Duration::from_secs(6),
        ..config()
    });
    let trickle = || {
        let mut client = server.resp();
        client.send("*3\r\n$3\r\nSET\r\n$1\r\nt\r\n$400000\r\n");
        client.send(vec![b'x'; 100_000]);
        client
    };
    // About 16 of them have room, and the others wait.
    let mut trickling: Vec<_> = (0..30).map(|_| trickle()).collect();
    let mut sending = server.resp();
    sending.send(command(&[b"SET", b"k", &pattern(500_000)]));
    sending.stream.set_nonblocking(true).unwrap();
    let (mut reply, began) = ([0; 64], Instant::now());
    let reply = loop {
        match sending.stream.read(&mut reply) {
            Ok(count) => break &reply[..count],
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        assert!(began.elapsed() < PATIENCE, "no reply");
        for client in &mut trickling {
            if client.stream.write(b"x").is_err() {
                *client = trickle();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(String::from_utf8_lossy(reply), "+OK\r\n");
}

#[test]
fn a_burst_of_connections_is_served() {
    let server = TestServer::start();
    let mut clients: Vec<_> = (0..300).map(|_| server.resp()).collect();
    for client in &mut clients {
        client.send("PING\r\n");
    }
    for client in &mut clients {
        client.expect("+PONG\r\n");
    }
}

#[test]
fn stopping_answers_what_was_sent() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask("SET a 1\r\n", "+OK\r\n");
    client.send("GET a\r\n".repeat(100));
    assert!(server.stop(PATIENCE));
    assert_eq!(client.read_to_end(), b"$1\r\n1\r\n".repeat(100));
}

#[test]
fn stopping_does_not_wait_for_a_client_that_never_reads() {
    let server = TestServer::start();
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"v", &pattern(8 << 20)]), "+OK\r\n");
    client.send("GET v\r\n".repeat(4));
    let mut first = [0; 1];
    client.stream.read_exact(&mut first).unwrap();
    let started = Instant::now();
    assert!(!server.stop(Duration::from_millis(200)));
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_probe_goes_through_every_worker_and_leaves_no_key() {
    let server = TestServer::start();
    let shared = server.server().shared();
    assert_eq!(shared.probe(PATIENCE), Ok(()));
    server.resp().ask("DBSIZE\r\n", ":0\r\n");
}

#[test]
fn shutdown_reaches_the_owner() {
    let server = TestServer::start();
    let requests = server.server().shutdown_requests();
    server.resp().send("SHUTDOWN NOSAVE\r\n");
    assert_eq!(requests.recv_timeout(PATIENCE), Ok(()));
}

#[track_caller]
fn check_refused(config: Config, want: &str) {
    match Server::start(config) {
        Ok(_) => panic!("it started"),
        Err(error) => assert!(error.to_string().contains(want), "{error}"),
    }
}

#[test]
fn a_wrong_configuration_says_what_would_be_right() {
    check_refused(Config { memory_bytes: 1 << 20, ..config() }, "at least 64MiB");
    check_refused(Config { threads: 0, ..config() }, "--threads 0 is out of range: give 1 to ");
    check_refused(Config { batch: 1000, ..config() }, "--batch 1000 is out of range: give 1 to 64");
    let server = TestServer::start();
    let taken = server.server().resp_addr();
    check_refused(Config { resp: taken, ..config() }, " is in use: stop the other server or ");
    let error = Server::start(Config { memcached: taken, ..config() }).err();
    assert!(matches!(error, Some(StartError::AddressInUse { setting: "memcached", .. })));
}

#[test]
fn many_clients_that_never_read_do_not_disturb_one_that_does() {
    let server = TestServer::with(Config { memory_bytes: 64 << 20, ..config() });
    let mut good = server.resp();
    good.ask(command(&[b"SET", b"v", &pattern(50_000)]), "+OK\r\n");
    let shared = server.server().shared();
    let limit_bytes = shared.buffer_budget().limit_bytes();
    let asks = b"GET v\r\n".repeat(400);
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut client = server.resp();
        client.stream.set_nonblocking(true).unwrap();
        // Some of it is refused once the server holds the client back, or closes it.
        for _ in 0..20 {
            let _ = client.stream.write(&asks);
        }
        slow.push(client);
        good.ask("PING\r\n", "+PONG\r\n");
    }
    good.ask("SET w 1\r\nGET w\r\n", "+OK\r\n$1\r\n1\r\n");
    let granted_bytes = shared.buffer_budget().granted_bytes();
    assert!(granted_bytes <= limit_bytes + (4 << 20), "{granted_bytes} of {limit_bytes}");
}

#[test]
fn a_reply_larger_than_all_buffers_leaves_as_its_client_reads() {
    let server = TestServer::with(Config { memory_bytes: 64 << 20, ..config() });
    let mut good = server.resp();
    good.ask(command(&[b"SET", b"v", &pattern(4000)]), "+OK\r\n");
    let mut greedy = server.resp();
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.resize(30_001, b"v");
    greedy.send(command(&words));
    good.ask("PING\r\n", "+PONG\r\n");
    let budget = server.server().shared().buffer_budget();
    assert!(budget.granted_bytes() < budget.limit_bytes() / 2, "{}", budget.granted_bytes());
    greedy.expect("*30000\r\n");
    let value = bulk(&pattern(4000));
    for _ in 0..30_000 {
        greedy.expect(&value);
    }
    greedy.ask("PING\r\n", "+PONG\r\n");
}

/// MULTI keeps a copy of each command: a large one takes the room for both while it arrives, and
/// waits for both.
#[test]
fn a_large_command_in_a_transaction_waits_for_room() {
    const LEN_BYTES: usize = 400_000;
    let server = TestServer::with(Config {
        memory_bytes: 64 << 20,
        threads: 1,
        starved_time_max: Duration::from_secs(20),
        ..config()
    });
    let budget = server.server().shared().buffer_budget();
    let mut client = server.resp();
    client.ask("MULTI\r\n", "+OK\r\n");
    // Halves of commands leave room for the command, and not for its copy.
    let bodies = || budget.kinds().find(|it| it.kind.name() == "bodies").unwrap();
    let free_bytes = || bodies().limit_bytes - bodies().bytes;
    let began = Instant::now();
    let mut halves = Vec::new();
    while free_bytes() > LEN_BYTES as u64 * 7 / 4 {
        assert!(began.elapsed() < PATIENCE, "{} free", free_bytes());
        let before_bytes = free_bytes();
        let mut half = server.resp();
        half.send("*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$150000\r\n");
        half.send(vec![b'x'; 40_000]);
        while free_bytes() == before_bytes {
            assert!(began.elapsed() < PATIENCE, "it has no room: {before_bytes}");
            std::thread::yield_now();
        }
        halves.push(half);
    }
    client.send(command(&[b"SET", b"k", &pattern(LEN_BYTES)]));
    client.send("EXEC\r\n");
    for half in &mut halves {
        half.send(vec![b'x'; 110_000]);
        half.send("\r\n");
        half.expect("+OK\r\n");
    }
    client.expect("+QUEUED\r\n*1\r\n+OK\r\n");
}

#[test]
fn many_unfinished_transactions_stay_within_the_budget() {
    let server = TestServer::with(Config { memory_bytes: 64 << 20, ..config() });
    let mut good = server.resp();
    let shared = server.server().shared();
    let limit_bytes = shared.buffer_budget().limit_bytes();
    let set = command(&[b"SET", b"k", &pattern(100_000)]);
    let mut open = Vec::new();
    let mut refused_count = 0;
    for _ in 0..12 {
        let mut client = server.resp();
        client.ask("MULTI\r\n", "+OK\r\n");
        for _ in 0..30 {
            client.send(&set);
            let mut first = [0; 1];
            client.stream.read_exact(&mut first).unwrap();
            let mut rest = vec![0; if first == *b"+" { 8 } else { 64 }];
            let count = read_some(&mut client.stream, &mut rest).unwrap();
            assert!(count > 0);
            refused_count += usize::from(first == *b"-");
            if first == *b"-" {
                break;
            }
        }
        good.ask("SET w 1\r\nGET w\r\n", "+OK\r\n$1\r\n1\r\n");
        open.push(client);
    }
    assert!(refused_count > 0, "12 x 3 MB do not fit 16 MiB");
    assert!(shared.buffer_budget().granted_bytes() <= limit_bytes + (1 << 20));
}

#[test]
fn many_half_sent_small_commands_stay_within_the_budget() {
    let server = TestServer::with(Config { memory_bytes: 64 << 20, ..config() });
    let mut good = server.resp();
    let shared = server.server().shared();
    let mut halves = Vec::new();
    for _ in 0..900 {
        let mut client = server.resp();
        client.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16000\r\n");
        client.send([b'x'; 15_900]);
        halves.push(client);
        if halves.len() % 50 == 0 {
            good.ask("SET w 1\r\nGET w\r\n", "+OK\r\n$1\r\n1\r\n");
        }
    }
    let limit_bytes = shared.buffer_budget().limit_bytes();
    assert!(shared.buffer_budget().granted_bytes() <= limit_bytes + (1 << 20));
    drop(halves);
    good.ask("GET w\r\n", "$1\r\n1\r\n");
}
