//! The binary with a data directory: acknowledged writes survive `kill -9` under load.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sockets::read_some;

struct Served {
    child: Child,
    resp: SocketAddr,
    memcached: SocketAddr,
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command
        .env("DOVETAIL_MODE", "store")
        .args(["serve", "--memory", "64m", "--threads", "2"])
        .args(["--resp", "127.0.0.1:0", "--memcached", "127.0.0.1:0", "--native", "off"])
        .args(["--admin", "off", "--log-format", "json", "--data-dir"])
        .arg(directory);
    command
}

impl Served {
    fn start(directory: &Path) -> Served {
        let mut child =
            command(directory).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = child.stderr.take().expect("it is piped");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let ready = lines.find(|line| line.contains("\"ready\"")).expect("it becomes ready");
        // The rest is dropped: a server that ends writes a few lines, which fit the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, resp: address(&ready, "resp"), memcached: address(&ready, "memcached") }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.resp).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket has a timeout");
        stream
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// By a signal that it handles.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str, name: &str) -> SocketAddr {
    let rest = line.split(&format!("\"{name}\":\"")).nth(1).expect("an address");
    rest.split('"').next().and_then(|text| text.parse().ok()).expect("an address")
}

/// One command, one reply that fits one read.
fn ask(stream: &mut TcpStream, words: &[&str]) -> std::io::Result<String> {
    let mut out = format!("*{}\r\n", words.len());
    for word in words {
        out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(out.as_bytes())?;
    let mut bytes = [0; 4096];
    match read_some(stream, &mut bytes)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        count => Ok(String::from_utf8_lossy(&bytes[..count]).into_owned()),
    }
}

fn asked(stream: &mut TcpStream, words: &[&str]) -> String {
    ask(stream, words).expect("the server answers")
}

fn check(directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command.arg("check").arg(directory).output().expect("the binary runs")
}

/// Counts in keys of its own until the server is gone; the last count of each that was
/// acknowledged.
fn count_up(stream: &mut TcpStream, name: &str, is_over: &AtomicBool) -> Vec<u64> {
    let mut counts = vec![0; 20];
    loop {
        for (index, count) in counts.iter_mut().enumerate() {
            let (key, value) = (format!("{name}-{index}"), (*count + 1).to_string());
            match ask(stream, &["SET", &key, &value]) {
                Ok(reply) if reply == "+OK\r\n" => *count += 1,
                Ok(reply) => panic!("a SET is answered by {reply}"),
                Err(_) => return counts,
            }
            // A reader of what another connection has written waits for the disk as well.
            let other = ask(stream, &["GET", &format!("0-{index}")]);
            if other.is_err() || is_over.load(Ordering::Relaxed) {
                return counts;
            }
        }
    }
}

#[test]
fn every_acknowledged_write_survives_kill_9_under_load() {
    let directory = tempfile::tempdir().expect("a directory");
    for life in 0..3 {
        let is_over = AtomicBool::new(false);
        let counted: Vec<Vec<u64>> = std::thread::scope(|scope| {
            // Dropped, and with it ended, before a failure waits for the counters.
            let mut served = Served::start(directory.path());
            let counters: Vec<_> = (0..4)
                .map(|id| {
                    let (mut stream, is_over) = (served.connect(), &is_over);
                    scope.spawn(move || count_up(&mut stream, &id.to_string(), is_over))
                })
                .collect();
            // Waits until enough was written for a useful test.
            let mut watcher = served.connect();
            let enough = |reply: &str| {
                reply.trim_start_matches(|c: char| c != '\n').trim().parse::<u64>().unwrap_or(0)
                    >= 50
            };
            while !enough(&asked(&mut watcher, &["GET", "3-0"])) {}
            served.kill();
            is_over.store(true, Ordering::Relaxed);
            counters.into_iter().map(|counter| counter.join().expect("it counts")).collect()
        });
        assert_eq!(check(directory.path()).status.code(), Some(0), "a kill damages nothing");
        let again = Served::start(directory.path());
        let mut stream = again.connect();
        for (id, counts) in counted.iter().enumerate() {
            for (index, count) in counts.iter().enumerate() {
                let reply = asked(&mut stream, &["GET", &format!("{id}-{index}")]);
                let found = reply.lines().nth(1).and_then(|text| text.parse::<u64>().ok());
                // The one that was on its way may be there or not.
                let found = found.unwrap_or(0);
                assert!(
                    found == *count || found == count + 1,
                    "life {life}, key {id}-{index}: {found}, acknowledged {count}",
                );
            }
        }
        assert_eq!(asked(&mut stream, &["FLUSHALL"]), "+OK\r\n");
        again.stop();
    }
    let mut served = Served::start(directory.path());
    assert_eq!(asked(&mut served.connect(), &["DBSIZE"]), ":0\r\n", "FLUSHALL stays");
    served.kill();
}

#[test]
fn deletes_expiries_and_memcached_values_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut served = Served::start(directory.path());
    let mut stream = served.connect();
    for (words, reply) in [
        (&["SET", "kept", "1"][..], "+OK\r\n"),
        (&["SET", "gone", "1"], "+OK\r\n"),
        (&["DEL", "gone"], ":1\r\n"),
        (&["SET", "brief", "new", "PX", "1"], "+OK\r\n"),
        (&["SET", "long", "1", "EX", "1000"], "+OK\r\n"),
        (&["INCR", "kept"], ":2\r\n"),
        (&["MSET", "a", "1", "b", "2"], "+OK\r\n"),
        (&["MULTI"], "+OK\r\n"),
        (&["APPEND", "a", "23"], "+QUEUED\r\n"),
        (&["DEL", "b"], "+QUEUED\r\n"),
        (&["EXEC"], "*2\r\n:3\r\n:1\r\n"),
    ] {
        assert_eq!(asked(&mut stream, words), reply, "{words:?}");
    }
    let mut memcached = TcpStream::connect(served.memcached).expect("it listens");
    memcached.write_all(b"set mc 5 0 3\r\nabc\r\n").expect("it reads");
    let mut bytes = [0; 64];
    let count = read_some(&mut memcached, &mut bytes).expect("it answers");
    assert_eq!(&bytes[..count], b"STORED\r\n");
    served.kill();
    let again = Served::start(directory.path());
    let mut stream = again.connect();
    for (key, reply) in [
        ("kept", "$1\r\n2\r\n"),
        ("gone", "$-1\r\n"),
        ("brief", "$-1\r\n"),
        ("long", "$1\r\n1\r\n"),
        ("a", "$3\r\n123\r\n"),
        ("b", "$-1\r\n"),
        ("mc", "$3\r\nabc\r\n"),
    ] {
        assert_eq!(asked(&mut stream, &["GET", key]), reply, "{key}");
    }
    let ttl = asked(&mut stream, &["TTL", "long"]);
    assert!(ttl == ":1000\r\n" || ttl == ":999\r\n" || ttl.starts_with(":99"), "{ttl}");
    again.stop();
}

#[test]
fn a_directory_that_cannot_be_had_is_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |extra: &[&str]| {
        let output = command(directory.path()).args(extra).output().expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text.lines().last().unwrap_or_default().to_owned())
    };
    let (code, line) = refused(&["--mode", "cache"]);
    assert!(code == Some(2) && line.contains("--mode store"), "{code:?} {line}");
    let (code, line) = refused(&["--durability", "replicated"]);
    assert!(code == Some(2) && line.contains("fsync"), "{code:?} {line}");
    let mut served = Served::start(directory.path());
    let (code, line) = refused(&[]);
    assert!(code == Some(1) && line.contains("another server has it"), "{code:?} {line}");
    let held = check(directory.path());
    assert_eq!(held.status.code(), Some(1), "a server has it");
    assert_eq!(asked(&mut served.connect(), &["SET", "k", &"v".repeat(500)]), "+OK\r\n");
    // Long enough for a row to say what is synced: one more commit.
    assert_eq!(asked(&mut served.connect(), &["SET", "l", "v"]), "+OK\r\n");
    assert_eq!(asked(&mut served.connect(), &["SET", "m", "v"]), "+OK\r\n");
    served.kill();
    let path = directory.path().join("log");
    let mut bytes = std::fs::read(&path).expect("it is there");
    let found = bytes.windows(200).position(|window| window == [b'v'; 200]).expect("the value");
    bytes[found + 100] ^= 1;
    std::fs::write(&path, bytes).expect("it can be written");
    let (code, line) = refused(&[]);
    assert!(code == Some(1) && line.contains("--recover-damaged"), "{code:?} {line}");
    let checked = check(directory.path());
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.code() == Some(1) && text.contains("segment 0"), "{text}");
}
