//! Instructions that the server executes for a request, counted by callgrind: other load on the
//! machine hardly changes them.
//!
//! ```text
//!  valgrind ─▶ serve, one thread that sleeps ◀─ 4 connections x 32 requests a round
//!  instructions of a request = (all of many rounds - all of few rounds) / requests between
//! ```
//!
//! # Limits
//! How many requests the server finds at a wake-up depends on the machine, and so does their part
//! of what a wake-up costs: repetitions differ by one or two in a hundred.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use rustix::process::{Pid, Signal, kill_process};
use steps::programs;
use workload::popularity::{Popularity, RankSampler};

/// Connections, and requests that each sends at a time.
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 32;
/// Rounds of the two runs.
const ROUNDS: [usize; 2] = [100, 1600];
const KEYS: usize = 10_000;
const KEY_BYTES: usize = 16;
const VALUE: [u8; 64] = [b'x'; 64];
/// The load of C-4: SETs of this length, keys by Zipf.
const HOT_VALUE: [u8; 512] = [b'x'; 512];
const HOT_POPULARITY: Popularity = Popularity::Zipf { exponent: 1.25 };
/// Keys of one MGET.
const MGET_KEYS: usize = 10;

/// Options of `cargo xtask count-instructions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A server to count; given several times, the others are compared with the first
    #[arg(long = "binary", value_name = "PATH", default_value = "target/release/dovetail")]
    binaries: Vec<PathBuf>,
    /// Counts of each request and server
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Flags for each server beyond those of the measurement, e.g. "--compaction off"
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    serve: Option<String>,
}

/// A kind of request.
#[derive(Clone, Copy)]
enum Kind {
    Get,
    Set,
    HotSet,
    MGet,
    MemcachedGet,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Get, "GET"),
    (Kind::Set, "SET"),
    (Kind::HotSet, "SET, hot keys"),
    (Kind::MGet, "MGET of 10"),
    (Kind::MemcachedGet, "memcached get"),
];

impl Kind {
    /// The bytes of a request, and the length of its reply.
    fn request(self, first_key: usize) -> (Vec<u8>, usize) {
        let key = key(first_key);
        let bulk_bytes = b"$64\r\n\r\n".len() + VALUE.len();
        match self {
            Kind::Get => (command(&[b"GET", &key]), bulk_bytes),
            Kind::Set => (command(&[b"SET", &key, &VALUE]), b"+OK\r\n".len()),
            Kind::HotSet => (command(&[b"SET", &key, &HOT_VALUE]), b"+OK\r\n".len()),
            Kind::MGet => {
                let keys: Vec<_> = (0..MGET_KEYS).map(|at| self::key(first_key + at)).collect();
                let mut words: Vec<&[u8]> = vec![b"MGET"];
                words.extend(keys.iter().map(Vec::as_slice));
                (command(&words), b"*10\r\n".len() + MGET_KEYS * bulk_bytes)
            }
            Kind::MemcachedGet => {
                let reply_bytes = b"VALUE  0 64\r\n\r\nEND\r\n".len() + KEY_BYTES + VALUE.len();
                ([b"get ", &key[..], b"\r\n"].concat(), reply_bytes)
            }
        }
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{:012}", number % KEYS).into_bytes()
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend([word, &b"\r\n"[..]].concat());
    }
    bytes
}

/// Prints a table.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let has_valgrind = programs::succeeds("valgrind", &["--version"]);
    ensure!(has_valgrind, "valgrind is missing: install it");
    println!("Instructions a request: median (least to most of {})", args.repetitions);
    let flags: Vec<_> = args.serve.iter().flat_map(|flags| flags.split_whitespace()).collect();
    for (kind, name) in KINDS {
        let mut first = None;
        for binary in &args.binaries {
            let counts =
                (0..args.repetitions).map(|_| per_request(&root.join(binary), &flags, kind));
            let mut counts = counts.collect::<Result<Vec<u64>>>()?;
            counts.sort_unstable();
            let median = counts[counts.len() / 2];
            let ratio = median as f64 / *first.get_or_insert(median) as f64;
            let (least, most) = (counts[0], counts[counts.len() - 1]);
            let path = binary.display();
            println!("{name:14} {median:6} ({least} to {most}) x {ratio:.3}  {path}");
        }
    }
    Ok(())
}

fn per_request(binary: &Path, flags: &[&str], kind: Kind) -> Result<u64> {
    let [few, many] = ROUNDS;
    let between = ((many - few) * CONNECTIONS * REQUESTS) as u64;
    Ok(count(binary, flags, kind, many)?.saturating_sub(count(binary, flags, kind, few)?) / between)
}

/// Instructions of a whole server that answers so many rounds.
fn count(binary: &Path, flags: &[&str], kind: Kind, rounds: usize) -> Result<u64> {
    let mut server = start(binary, flags)?;
    let mut log = BufReader::new(server.stderr.take().context("the log is piped")?).lines();
    let ready = log.by_ref().map_while(Result::ok).find(|line| line.contains("\"ready\""));
    let ready = ready.with_context(|| format!("{} did not start", binary.display()))?;
    let ports: serde_json::Value = serde_json::from_str(&ready)?;
    let rest = std::thread::spawn(move || log.map_while(Result::ok).collect::<Vec<String>>());
    let asked = ask_all(&ports, kind, rounds);
    let pid = Pid::from_child(&server);
    kill_process(pid, Signal::TERM)?;
    server.wait()?;
    asked?;
    let lines = rest.join().expect("the reader does not panic");
    let total = lines.iter().find_map(|line| line.split_once("Collected :"));
    let (_, total) = total.context("callgrind printed no total")?;
    Ok(total.trim().parse()?)
}

fn start(binary: &Path, more: &[&str]) -> Result<Child> {
    let flags = [
        "serve",
        "--resp",
        "127.0.0.1:0",
        "--memcached",
        "127.0.0.1:0",
        "--native",
        "off",
        "--admin",
        "off",
        "--threads",
        "1",
        "--memory",
        "128MiB",
        "--huge-pages",
        "off",
        "--pin",
        "off",
        "--poll",
        "block",
        "--log-format",
        "json",
    ];
    Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(binary)
        .args(flags)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("valgrind does not start")
}

fn ask_all(ports: &serde_json::Value, kind: Kind, rounds: usize) -> Result<()> {
    let connect = |name: &str| -> Result<TcpStream> {
        Ok(TcpStream::connect(ports[name].as_str().context("an address")?)?)
    };
    let mut filler = connect("resp")?;
    for first in (0..KEYS).step_by(100) {
        let sets = (first..first + 100).map(|number| Kind::Set.request(number));
        exchange(&mut [&mut filler], &[sets.collect()])?;
    }
    let port = if matches!(kind, Kind::MemcachedGet) { "memcached" } else { "resp" };
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| connect(port)).collect::<Result<_>>()?;
    // Keys in an order that no cache foresees, the same in each run.
    let mut number = 0_usize;
    let (popularity, mut random) =
        (RankSampler::new(HOT_POPULARITY, KEYS as u64), Pcg64::seed_from_u64(1));
    for _ in 0..rounds {
        let batches: Vec<Vec<_>> = (0..CONNECTIONS)
            .map(|_| {
                let next = |_| {
                    number = match kind {
                        Kind::HotSet => popularity.draw(&mut random) as usize,
                        _ => (number + 6_971) % KEYS,
                    };
                    kind.request(number)
                };
                (0..REQUESTS).map(next).collect()
            })
            .collect();
        exchange(&mut connections.iter_mut().collect::<Vec<_>>(), &batches)?;
    }
    Ok(())
}

/// Sends each connection its requests, then reads all replies.
fn exchange(connections: &mut [&mut TcpStream], batches: &[Vec<(Vec<u8>, usize)>]) -> Result<()> {
    for (connection, batch) in connections.iter_mut().zip(batches) {
        let bytes: Vec<u8> = batch.iter().flat_map(|(bytes, _)| bytes).copied().collect();
        connection.write_all(&bytes)?;
    }
    for (connection, batch) in connections.iter_mut().zip(batches) {
        let mut replies = vec![0; batch.iter().map(|(_, reply_bytes)| reply_bytes).sum()];
        connection.read_exact(&mut replies)?;
        let is_wrong = replies.first() == Some(&b'-') || replies.starts_with(b"SERVER_ERROR");
        ensure!(!is_wrong, "{}", String::from_utf8_lossy(&replies));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{KEY_BYTES, Kind, key};

    #[test]
    fn requests_name_keys_of_one_length() {
        assert_eq!([key(0).len(), key(9_999).len(), key(12_345).len()], [KEY_BYTES; 3]);
        let (bytes, reply_bytes) = Kind::Get.request(7);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000007\r\n");
        assert_eq!(reply_bytes, 71);
        let (bytes, reply_bytes) = Kind::MemcachedGet.request(7);
        assert_eq!(bytes, b"get key:000000000007\r\n");
        assert_eq!(reply_bytes, "VALUE key:000000000007 0 64\r\n\r\nEND\r\n".len() + 64);
    }
}
