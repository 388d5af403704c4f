//! Well-behaved clients beside the attack: each reply is compared, each wait recorded.

use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::door::{PASSWORD, USER};
use crate::conformance::reply::{Reply, Wire};
use crate::demo_cluster::memcached::{self, Told};

/// A server that is silent for this long has failed.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Keys of each client.
const KEYS: usize = 64;
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(1);
/// A value is shorter than this plus its key.
const LENGTH_MAX: usize = 97;
/// One in this many requests is a SET.
const SET_EVERY: usize = 5;

/// The state shared by the clients and the trial.
#[derive(Debug, Default)]
pub struct Signals {
    /// The number of clients whose keys are all stored, or that have failed: then the attack may
    /// begin.
    pub ready: AtomicUsize,
    /// Whether the attack is over.
    pub stop: AtomicBool,
}

/// The results of a client.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The waits of its GETs.
    pub waits: Vec<Duration>,
    /// The longest wait of all its requests.
    pub longest: Duration,
    /// Evicted keys, which are no fault in a cache.
    pub misses: u64,
    /// The first wrong reply, after which the client ended.
    pub wrong: Option<String>,
}

impl Findings {
    /// Adds the results of another client.
    pub fn merge(&mut self, other: Findings) {
        self.waits.extend(other.waits);
        self.longest = self.longest.max(other.longest);
        self.misses += other.misses;
        self.wrong = self.wrong.take().or(other.wrong);
    }

    /// The wait that 99 of 100 GETs do not exceed.
    pub fn p99(&self) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let at = (waits.len() * 99).div_ceil(100).saturating_sub(1);
        waits.get(at).copied().unwrap_or_default()
    }
}

/// The part of a protocol that a checked client uses.
trait Speaker {
    fn set(&mut self, key: &str, value: &str) -> Result<()>;
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>>;
}

impl Speaker for Wire {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let reply = self.ask(&[b"SET", key.as_bytes(), value.as_bytes()])?;
        ensure!(reply == Reply::One(b"+OK\r\n".to_vec()), "SET {key}: {}", reply.shown());
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let reply = self.ask(&[b"GET", key.as_bytes()])?;
        let Reply::One(bytes) = &reply else { bail!("GET {key}: {}", reply.shown()) };
        if bytes == b"$-1\r\n" {
            return Ok(None);
        }
        let head = bytes.iter().position(|byte| *byte == b'\n').filter(|_| bytes[0] == b'$');
        let value = head.and_then(|at| bytes.get(at + 1..bytes.len().saturating_sub(2)));
        match value {
            Some(value) => Ok(Some(value.to_vec())),
            None => bail!("GET {key}: {}", reply.shown()),
        }
    }
}

/// memcached's text protocol.
struct Text(BufReader<TcpStream>);

impl Text {
    fn told(&mut self, request: &str) -> Result<Told> {
        memcached::exchange(&mut self.0, request.as_bytes(), |found| {
            Told::Value(found.into_iter().next().map(|(_, value, version)| (value, version)))
        })
    }
}

impl Speaker for Text {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let told = self.told(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()))?;
        ensure!(told == Told::Line("STORED".to_owned()), "set {key}: {told:?}");
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.told(&format!("get {key}\r\n"))? {
            Told::Value(value) => Ok(value.map(|(value, _)| value)),
            other => bail!("get {key}: {other:?}"),
        }
    }
}

/// A client of RESP; logs in if the server has a password.
pub fn resp(at: SocketAddr, has_password: bool, signals: &Signals) -> Findings {
    watch("resp", signals, || {
        let mut wire = Wire::patient(at.port(), ANSWER_MAX)?;
        if has_password {
            wire.ask(&[b"AUTH", USER.as_bytes(), PASSWORD.as_bytes()])?;
        }
        Ok(wire)
    })
}

/// The same for memcached's text protocol.
pub fn memcached(at: SocketAddr, has_password: bool, signals: &Signals) -> Findings {
    watch("memcached", signals, || {
        let stream = TcpStream::connect_timeout(&at, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        let mut text = Text(BufReader::new(stream));
        if has_password {
            text.set("login", &format!("{USER} {PASSWORD}"))?;
        }
        Ok(text)
    })
}

fn watch<S: Speaker>(
    name: &str,
    signals: &Signals,
    connect: impl FnOnce() -> Result<S>,
) -> Findings {
    let mut findings = Findings::default();
    let mut client = None;
    let stored = connect().and_then(|speaker| {
        let client = client.insert(Client { name, speaker, values: vec![String::new(); KEYS] });
        (0..KEYS).try_for_each(|at| client.set(at))
    });
    signals.ready.fetch_add(1, Ordering::Relaxed);
    let result = match (stored, client) {
        (Ok(()), Some(client)) => client.exchange(signals, &mut findings),
        (stored, _) => stored,
    };
    findings.wrong = result.err().map(|error| format!("{name}: {error:#}"));
    findings
}

struct Client<'n, S> {
    name: &'n str,
    speaker: S,
    /// The expected value of each key.
    values: Vec<String>,
}

impl<S: Speaker> Client<'_, S> {
    fn key(&self, at: usize) -> String {
        format!("checked:{}:{at}", self.name)
    }

    /// Stores a value that no key has had before.
    fn set(&mut self, at: usize) -> Result<()> {
        let key = self.key(at);
        let changes = self.values[at].matches('x').count() + 1;
        let value = format!("{key}:{}", "x".repeat(changes % LENGTH_MAX));
        self.speaker.set(&key, &value)?;
        self.values[at] = value;
        Ok(())
    }

    fn exchange(mut self, signals: &Signals, findings: &mut Findings) -> Result<()> {
        let mut round = 0;
        while !signals.stop.load(Ordering::Relaxed) {
            let at = round % KEYS;
            round += 1;
            let began = Instant::now();
            let result = match round % SET_EVERY {
                0 => self.set(at),
                _ => self.get(at, findings),
            };
            // A wait that ends in an error counts too.
            findings.longest = findings.longest.max(began.elapsed());
            result?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn get(&mut self, at: usize, findings: &mut Findings) -> Result<()> {
        let key = self.key(at);
        let began = Instant::now();
        let found = self.speaker.get(&key)?;
        findings.waits.push(began.elapsed());
        match found {
            None => {
                findings.misses += 1;
                self.set(at)
            }
            Some(value) => {
                let want = &self.values[at];
                ensure!(
                    value == want.as_bytes(),
                    "GET {key}: {}, not {want}",
                    value.escape_ascii()
                );
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A fake store that may lose values or return wrong ones, and ends the test after some
    /// requests.
    struct Sample<'s> {
        store: HashMap<String, Vec<u8>>,
        left: u32,
        signals: &'s Signals,
        answer: fn(Option<Vec<u8>>) -> Option<Vec<u8>>,
    }

    impl Speaker for Sample<'_> {
        fn set(&mut self, key: &str, value: &str) -> Result<()> {
            self.store.insert(key.to_owned(), value.into());
            Ok(())
        }

        fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
            self.left -= 1;
            self.signals.stop.store(self.left == 0, Ordering::Relaxed);
            Ok((self.answer)(self.store.get(key).cloned()))
        }
    }

    fn findings(answer: fn(Option<Vec<u8>>) -> Option<Vec<u8>>) -> Findings {
        let signals = Signals::default();
        watch("sample", &signals, || {
            Ok(Sample { store: HashMap::new(), left: 100, signals: &signals, answer })
        })
    }

    #[test]
    fn right_replies_are_counted_and_not_reported() {
        let findings = findings(|value| value);
        assert_eq!((findings.wrong, findings.misses, findings.waits.len()), (None, 0, 100));
    }

    #[test]
    fn a_key_that_is_gone_is_a_miss_and_no_wrong_reply() {
        let findings = findings(|_| None);
        assert_eq!((findings.wrong, findings.misses), (None, 100));
    }

    #[test]
    fn another_value_is_a_wrong_reply() {
        let findings = findings(|value| value.map(|value| [&value[..], b"!"].concat()));
        assert!(findings.wrong.unwrap().contains("checked:sample:"));
    }

    #[test]
    fn a_client_that_cannot_begin_does_not_hold_up_the_attack() {
        let signals = Signals::default();
        let findings = watch::<Wire>("sample", &signals, || bail!("refused"));
        assert_eq!(findings.wrong.as_deref(), Some("sample: refused"));
        assert_eq!(signals.ready.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_percentile_is_a_wait_that_was_there() {
        let waits = |count: u64| (1..=count).rev().map(Duration::from_millis).collect();
        let of = |count| Findings { waits: waits(count), ..Findings::default() };
        assert_eq!(of(0).p99(), Duration::ZERO);
        assert_eq!(of(1).p99(), Duration::from_millis(1));
        assert_eq!(of(100).p99(), Duration::from_millis(99));
        assert_eq!(of(1000).p99(), Duration::from_millis(990));
    }
}
