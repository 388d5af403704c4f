//! Workers for large items that have none take small requests, one at a time (Minos §6.1's
//! alternative), on threads of their own: all is answered right and in order. There may be more
//! threads than processors, so no test here says how many requests are taken: those that do choose
//! the order of turns themselves (`drive::tests::large_help`).

use std::time::Instant;

use crate::support::{Client, PATIENCE, TestServer, bulk, command, config, pattern};
use server::{Config, Dispatch, LargeHelp, Policies, SizeThreshold, WritePolicy};

const LARGE_BYTES: usize = 300_000;
const KEYS: usize = 48;
const TALKS: usize = 200;

fn by_size(write_policy: WritePolicy) -> Config {
    Config {
        threads: 4,
        memory_bytes: 256 << 20,
        policies: Policies::new(write_policy, Dispatch::SizeAware),
        size_threshold: SizeThreshold::Static { bytes: 10_000 },
        large_help: LargeHelp::On,
        // Every large request counts, so that the plan keeps workers for them.
        size_sample: 1,
        ..config()
    }
}

/// A server with a large item, keys of many values, and a worker for large items only.
fn start(config: Config) -> TestServer {
    let server = TestServer::with(config);
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"large", &pattern(LARGE_BYTES)]), "+OK\r\n");
    for key in 0..KEYS {
        client.ask(format!("SET k{key} {key}\r\n"), "+OK\r\n");
    }
    until_planned(&server, &mut client);
    server
}

/// Asks for the large item until the plan has workers for such.
fn until_planned(server: &TestServer, client: &mut Client) {
    let sizes = server.server().shared().sizes().unwrap();
    let start = Instant::now();
    while sizes.plan().large_workers() == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", sizes.plan());
        ask_large(client);
    }
}

/// Keeps the plan as it is: small requests alone would make all workers small.
fn ask_large(client: &mut Client) {
    client.ask("GET large\r\n", bulk(&pattern(LARGE_BYTES)));
}

/// Reads of as many keys, in one piece.
fn reads() -> (String, String) {
    let asks = (0..KEYS).map(|key| format!("GET k{key}\r\n")).collect();
    let answer = |key: usize| format!("${}\r\n{key}\r\n", key.to_string().len());
    (asks, (0..KEYS).map(answer).collect())
}

/// Talks so often that large workers take requests, if they are awake at the right moments.
/// `large_count` large ones a talk leave one worker for them.
fn talk_often(server: &TestServer, large_count: usize, mut talk: impl FnMut()) {
    let mut large = server.resp();
    for _ in 0..TALKS {
        talk();
        (0..large_count).for_each(|_| ask_large(&mut large));
    }
}

/// Pieces that are read one after the other: a read at the end of one, which is offered, and the
/// write of the same key at the beginning of the next.
fn pieces(client: usize, round: usize) -> (Vec<String>, String) {
    let (reads, read_answers) = reads();
    let (mut asks, mut answers) = (Vec::new(), String::new());
    for step in 0..6 {
        let count = (round * 6 + step + 1).to_string();
        let counted = format!("${}\r\n{count}\r\n", count.len());
        asks.push(format!("INCR n{client}\r\n{reads}GET n{client}\r\n"));
        answers += &format!(":{count}\r\n{read_answers}{counted}");
        // The same again, with nothing but reads.
        asks.push(format!("{reads}GET n{client}\r\n"));
        answers += &format!("{read_answers}{counted}");
    }
    (asks, answers)
}

#[test]
fn a_connection_sees_its_own_writes_in_order_at_any_reading_thread() {
    for write_policy in [WritePolicy::DCrew, WritePolicy::Crcw] {
        let server = start(by_size(write_policy));
        let mut clients: Vec<Client> = (0..4).map(|_| server.resp()).collect();
        let mut round = 0;
        talk_often(&server, 4, || {
            std::thread::scope(|scope| {
                for (index, client) in clients.iter_mut().enumerate() {
                    scope.spawn(move || {
                        let (asks, answers) = pieces(index, round);
                        asks.iter().for_each(|piece| client.send(piece));
                        client.expect(answers);
                    });
                }
            });
            round += 1;
        });
        assert!(server.stop(PATIENCE));
    }
}

/// A key whose versions only grow: no reader sees an older one after a newer one, though some of
/// its reads are executed by others.
#[test]
fn a_reader_never_sees_an_older_version_after_a_newer_one() {
    let server = start(by_size(WritePolicy::DCrew));
    // Several, so that some are with each worker, however they were dealt.
    let (mut writer, mut readers) = (server.resp(), [(); 6].map(|()| server.resp()));
    let (reads, read_answers) = reads();
    let mut version = 1_000_000_u64;
    let mut newest = [0; 6];
    writer.ask(format!("SET v {version}\r\n"), "+OK\r\n");
    talk_often(&server, 1, || {
        for reader in &mut readers {
            (0..4).for_each(|_| reader.send(format!("{reads}GET v\r\n")));
        }
        for _ in 0..20 {
            version += 1;
            writer.ask(format!("SET v {version}\r\n"), "+OK\r\n");
        }
        for (reader, newest) in readers.iter_mut().zip(&mut newest) {
            for _ in 0..4 {
                reader.expect(&read_answers);
                let found = seven_digits(reader);
                assert!(found >= *newest && found <= version, "{found} after {newest}");
                *newest = found;
            }
        }
    });
    assert!(server.stop(PATIENCE));
}

fn seven_digits(client: &mut Client) -> u64 {
    client.expect("$7\r\n");
    let mut digits = [0; 9];
    std::io::Read::read_exact(&mut client.stream, &mut digits).unwrap();
    std::str::from_utf8(&digits[..7]).unwrap().parse().unwrap()
}

/// Clients that go away while some of their reads are with a large worker.
#[test]
fn clients_that_die_leave_nothing_behind() {
    let server = start(by_size(WritePolicy::DCrew));
    let (asks, answers) = reads();
    talk_often(&server, 1, || {
        for _ in 0..8 {
            server.resp().send(&asks);
        }
        server.resp().ask(&asks, &answers);
    });
    assert!(server.stop(PATIENCE), "every ticket comes back");
}
