//! Large workers that help with small requests, under recorded load. They exist only after an epoch
//! or two, and they take only requests that wait in long pipelines on many keys.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::linearizable::check::{Found, check};
use crate::linearizable::history::{Threads, record};
use crate::linearizable::load::{WIDE, name};
use crate::linearizable::server::Server;

const SERVE: &str = "--threads 4 --write-policy d-crew --dispatch size-aware \
                     --size-threshold 10000 --large-help on --admin 0";
const LARGE_BYTES: usize = 300_000;
/// Histories until large workers have helped so often in them.
const HELPED_MIN: u64 = 10;
const TIME_MAX: Duration = Duration::from_secs(60);

/// Large requests, few, so that some workers are there for them and mostly idle.
fn ask_large(address: SocketAddr, is_over: &AtomicBool) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answer = vec![0; LARGE_BYTES + 64];
    let value = "v".repeat(LARGE_BYTES);
    // Not an inline command: those are short.
    let ask =
        format!("*3\r\n$3\r\nSET\r\n$6\r\nbeside\r\n${LARGE_BYTES}\r\n{value}\r\nGET beside\r\n");
    let len_bytes = "+OK\r\n".len() + format!("${LARGE_BYTES}\r\n\r\n").len() + LARGE_BYTES;
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(ask.as_bytes()).unwrap();
        stream.read_exact(&mut answer[..len_bytes]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends the requests of [`ask_large`], also where the test fails: its scope waits for them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often large workers have helped, by the admin port.
fn helped_count(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /stats HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, rest) = text.split_once("\"helped_total\":").expect("it dispatches by size");
    let digits = rest.trim_start().split(|letter: char| !letter.is_ascii_digit()).next();
    digits.unwrap_or_default().parse().unwrap()
}

/// Each history begins with keys that are not there.
fn forget_keys(address: SocketAddr) {
    let keys: Vec<String> = (0..WIDE.keys * WIDE.rounds).map(name).collect();
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "DEL {}\r\n", keys.join(" ")).unwrap();
    // A number, whichever.
    client.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn what_large_workers_take_is_linearizable_per_key() {
    let server = Server::start(SERVE).unwrap();
    let admin = server.admin.expect("an admin port");
    let is_over = AtomicBool::new(false);
    let mut found = Found::default();
    std::thread::scope(|scope| {
        scope.spawn(|| ask_large(server.resp, &is_over));
        let ends = Ends(&is_over);
        let start = Instant::now();
        let mut seed = 1;
        while helped_count(admin) < HELPED_MIN || seed < 4 {
            assert!(start.elapsed() < TIME_MAX, "{} were taken", helped_count(admin));
            forget_keys(server.resp);
            let recorded = record(&server, WIDE, seed, Threads::Stay).unwrap();
            let judged = check(&recorded.records).unwrap_or_else(|words| panic!("{seed}: {words}"));
            found.request_count += judged.request_count;
            found.overlap_count += judged.overlap_count;
            found.unanswered_count += judged.unanswered_count;
            seed += 1;
        }
        drop(ends);
    });
    println!("{found:?}, {} were taken", helped_count(admin));
    assert!(found.overlap_count * 10 > found.request_count, "{found:?}");
    assert!(found.unanswered_count > 0, "{found:?}");
    server.stop().unwrap();
}
