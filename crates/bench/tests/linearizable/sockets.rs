//! Histories over real sockets: Redis and memcached clients on the same keys at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use server::{Config, Dispatch, Server, WritePolicy};

use crate::model::{Answer, Ask, Record, Swap, Ticks, check};

const THREADS: usize = 4;
const KEYS: usize = 2;
const ROUNDS: usize = 150;
const OPERATIONS_PER_ROUND: usize = 8;

/// A connection of either protocol that sends one request and reads its reply.
struct Client {
    reader: BufReader<TcpStream>,
    is_resp: bool,
}

impl Client {
    fn connect(address: SocketAddr, is_resp: bool) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { reader: BufReader::new(socket), is_resp }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end_matches("\r\n").to_owned()
    }

    fn body(&mut self, len: usize) -> u64 {
        let mut body = vec![0; len + 2];
        self.reader.read_exact(&mut body).unwrap();
        std::str::from_utf8(&body[..len]).unwrap().parse().unwrap()
    }

    fn ask(&mut self, key: &str, ask: Ask) -> Answer {
        if self.is_resp { self.ask_resp(key, ask) } else { self.ask_text(key, ask) }
    }

    fn ask_resp(&mut self, key: &str, ask: Ask) -> Answer {
        let request = match ask {
            Ask::Get => format!("GET {key}\r\n"),
            Ask::Set(value) => format!("SET {key} {value}\r\n"),
            Ask::Delete => format!("DEL {key}\r\n"),
            Ask::Increment => format!("INCR {key}\r\n"),
            other => panic!("Redis has no {other:?}"),
        };
        self.reader.get_mut().write_all(request.as_bytes()).unwrap();
        let line = self.line();
        match ask {
            Ask::Get if line == "$-1" => Answer::Value(None),
            Ask::Get => Answer::Value(Some(self.body(line[1..].parse().unwrap()))),
            Ask::Set(_) if line == "+OK" => Answer::Done,
            Ask::Delete => Answer::Existed(line == ":1"),
            Ask::Increment => Answer::Sum(Some(line[1..].parse().unwrap())),
            other => panic!("{other:?} was answered {line}"),
        }
    }

    fn ask_text(&mut self, key: &str, ask: Ask) -> Answer {
        let store = |verb: &str, value: u64, token: &str| {
            format!("{verb} {key} 0 0 {}{token}\r\n{value}\r\n", value.to_string().len())
        };
        let request = match ask {
            Ask::Get => format!("get {key}\r\n"),
            Ask::Gets => format!("gets {key}\r\n"),
            Ask::Set(value) => store("set", value, ""),
            Ask::Delete => format!("delete {key}\r\n"),
            Ask::IncrementExisting => format!("incr {key} 1\r\n"),
            Ask::CompareAndSwap { version, value } => store("cas", value, &format!(" {version}")),
            Ask::Increment => panic!("memcached's incr does not create"),
        };
        self.reader.get_mut().write_all(request.as_bytes()).unwrap();
        let line = self.line();
        match (ask, line.as_str()) {
            (Ask::Get, "END") => Answer::Value(None),
            (Ask::Gets, "END") => Answer::Versioned(None),
            (Ask::Get | Ask::Gets, _) => {
                let words: Vec<&str> = line.split(' ').collect();
                let value = self.body(words[3].parse().unwrap());
                assert_eq!(self.line(), "END");
                match ask {
                    Ask::Get => Answer::Value(Some(value)),
                    _ => Answer::Versioned(Some((value, words[4].parse().unwrap()))),
                }
            }
            (Ask::Set(_), "STORED") => Answer::Done,
            (Ask::Delete, "DELETED") => Answer::Existed(true),
            (Ask::Delete, "NOT_FOUND") => Answer::Existed(false),
            (Ask::IncrementExisting, "NOT_FOUND") => Answer::Sum(None),
            (Ask::IncrementExisting, digits) => Answer::Sum(Some(digits.parse().unwrap())),
            (Ask::CompareAndSwap { .. }, "STORED") => Answer::Swap(Swap::Stored),
            (Ask::CompareAndSwap { .. }, "EXISTS") => Answer::Swap(Swap::Changed),
            (Ask::CompareAndSwap { .. }, "NOT_FOUND") => Answer::Swap(Swap::Absent),
            (ask, line) => panic!("{ask:?} was answered {line}"),
        }
    }
}

/// An operation that the protocol has.
fn draw(random: &mut SmallRng, is_resp: bool, version_seen: Option<u64>) -> Ask {
    let value = random.random_range(0..1000);
    match (random.random_range(0..8), is_resp) {
        (0 | 1, _) => Ask::Get,
        (2, _) => Ask::Set(value),
        (3, _) => Ask::Delete,
        (_, true) => Ask::Increment,
        (4, false) => Ask::IncrementExisting,
        (5, false) => Ask::Gets,
        (_, false) => match version_seen {
            Some(version) => Ask::CompareAndSwap { version, value },
            None => Ask::Gets,
        },
    }
}

fn run_thread(mut client: Client, ticks: &Ticks, barrier: &Barrier, thread: usize) -> Vec<Record> {
    let mut random = SmallRng::seed_from_u64(thread as u64);
    let mut records = Vec::new();
    for round in 0..ROUNDS {
        barrier.wait();
        let mut versions = [None; KEYS];
        for _ in 0..OPERATIONS_PER_ROUND {
            let key = random.random_range(0..KEYS);
            let ask = draw(&mut random, client.is_resp, versions[key]);
            let name = format!("round-{round}-key-{key}");
            let start_tick = ticks.next();
            let answer = client.ask(&name, ask);
            let end_tick = ticks.next();
            if let Answer::Versioned(Some((_, version))) = answer {
                versions[key] = Some(version);
            }
            let key = round * KEYS + key;
            records.push(Record { thread, key, ask, answer, start_tick, end_tick });
        }
    }
    records
}

#[test]
fn a_server_of_two_workers_is_linearizable_per_key_over_both_ports() {
    run(Config { threads: 2, ..config() });
}

/// One thread receives, two execute, each request anywhere.
#[test]
fn two_layers_are_linearizable_per_key() {
    let (cr_threads, dispatch) = (Some(1), Dispatch::RoundRobin);
    run(Config { threads: 3, cr_threads, dispatch, ..config() });
}

/// Whoever writes a key goes on writing it, and any worker reads it.
#[test]
fn writers_that_change_are_linearizable_per_key() {
    let (write_policy, dispatch) = (WritePolicy::DCrew, Dispatch::Jbsq(1));
    run(Config { threads: 3, write_policy, dispatch, ..config() });
}

#[test]
fn owners_of_keys_are_linearizable_per_key() {
    let (write_policy, dispatch) = (WritePolicy::Crew, Dispatch::RoundRobin);
    run(Config { threads: 3, write_policy, dispatch, ..config() });
}

fn config() -> Config {
    let any_port = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Config {
        resp: any_port,
        memcached: any_port,
        native: None,
        admin: None,
        memory_bytes: 64 << 20,
        ..Config::default()
    }
}

fn run(config: Config) {
    let server = Server::start(config).unwrap();
    let (ticks, barrier) = (Ticks::default(), Barrier::new(THREADS));
    let records: Vec<Record> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let is_resp = thread % 2 == 0;
                let address = if is_resp { server.resp_addr() } else { server.memcached_addr() };
                let client = Client::connect(address.unwrap(), is_resp);
                let (ticks, barrier) = (&ticks, &barrier);
                scope.spawn(move || run_thread(client, ticks, barrier, thread))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(records.len(), THREADS * ROUNDS * OPERATIONS_PER_ROUND);
    check(&records);
    server.stop();
    assert!(server.join(Duration::from_secs(10)), "the server drains in time");
}
