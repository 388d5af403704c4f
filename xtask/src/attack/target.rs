//! The target of a shape: the doors of a server, the logins, and the deadline.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::ClientConfig;

use super::door::{self, Address, Door, PASSWORD, Stream, USER};
use super::pump::{Flood, Reading};
use super::script::Script;
use crate::conformance::reply::{Reply, Wire};

/// Values that a shape loads are not larger than this, or than an item may be.
const VALUE_MAX_BYTES: u64 = 30_000_000;
/// And not than this part of the cap, so that several fit.
const VALUE_CAP_PART: u64 = 20;
/// The time limit for a reply while a shape prepares.
const PREPARATION_MAX: Duration = Duration::from_secs(10);

/// Whether the server asks for a password, and the attack knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Login {
    /// The server has no password.
    Open,
    /// The attack has logged in.
    In,
    /// The attack has not logged in.
    Stranger,
}

impl Login {
    /// Whether the server has a password.
    pub fn is_locked(self) -> bool {
        self != Login::Open
    }

    /// A readable name.
    pub fn name(self) -> &'static str {
        match self {
            Login::Open => "open",
            Login::In => "in",
            Login::Stranger => "stranger",
        }
    }
}

/// A server under attack.
#[derive(Clone)]
pub struct Target {
    pub pid: u32,
    pub doors: BTreeMap<Door, Address>,
    pub tls: Option<Arc<ClientConfig>>,
    pub login: Login,
    pub cap_bytes: u64,
    /// The duration of the attack, from its first call.
    pub duration: Duration,
    /// The start of the attack: loading beforehand does not count.
    pub began: OnceLock<Instant>,
    /// The most connections of the attack.
    pub connections_max: usize,
    /// The file of users for ACL LOAD, on a server with a password.
    pub acl_file: std::path::PathBuf,
}

impl Target {
    /// The address of a door.
    pub fn address(&self, door: Door) -> Result<&Address> {
        self.doors.get(&door).with_context(|| format!("the server has no {door}"))
    }

    /// The socket address of a door with a port.
    pub fn ip(&self, door: Door) -> Result<SocketAddr> {
        match self.address(door)? {
            Address::Ip(address) => Ok(*address),
            Address::Path(path) => anyhow::bail!("{} is no port", path.display()),
        }
    }

    /// The deadline of the attack; the first call starts it.
    pub fn deadline(&self) -> Instant {
        *self.began.get_or_init(Instant::now) + self.duration
    }

    /// Whether the attack is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline()
    }

    /// One connection, logged in if the attack is.
    pub fn open(&self, door: Door) -> Result<Box<dyn Stream>> {
        let is_encrypted = matches!(door, Door::RespTls | Door::MemcachedTls);
        let tls = self.tls.as_ref().filter(|_| is_encrypted);
        let mut stream = door::connect(self.address(door)?, tls)?;
        if self.login == Login::In {
            door::log_in(&mut *stream, door)?;
        }
        Ok(stream)
    }

    /// Opens this many connections, or as many as possible before the deadline; returns the number
    /// of refusals too.
    pub fn crowd(&self, door: Door, count: usize) -> (Vec<Box<dyn Stream>>, u64) {
        let (mut streams, mut refused) = (Vec::new(), 0);
        for _ in 0..count.min(self.connections_max) {
            if self.is_over() || refused > 50 {
                break;
            }
            match self.open(door) {
                Ok(stream) => streams.push(stream),
                Err(_) => refused += 1,
            }
        }
        (streams, refused)
    }

    /// Opens this many connections without handshake and login.
    pub fn silent_crowd(&self, door: Door, count: usize) -> (Vec<Box<dyn Stream>>, u64) {
        // The copy ends when this one does.
        self.deadline();
        let mut silent = self.clone();
        silent.tls = None;
        silent.login = Login::Open;
        silent.crowd(door, count)
    }

    /// Opens connections and floods them; returns the number of refusals.
    pub fn flood(
        &self,
        door: Door,
        count: usize,
        script: &Script,
        reading: Reading,
    ) -> Result<u64> {
        let (streams, refused) = self.crowd(door, count);
        ensure!(!streams.is_empty() || refused > 0 || self.is_over(), "no connection to {door}");
        Ok(refused + self.pump(streams, script, reading))
    }

    /// Floods open connections; returns the number of refusals.
    pub fn pump(&self, streams: Vec<Box<dyn Stream>>, script: &Script, reading: Reading) -> u64 {
        self.trickle(streams, script, reading, usize::MAX)
    }

    /// The same, with this many bytes at a time.
    pub fn trickle(
        &self,
        streams: Vec<Box<dyn Stream>>,
        script: &Script,
        reading: Reading,
        piece: usize,
    ) -> u64 {
        Flood { script, reading, piece, deadline: self.deadline() }.run(streams)
    }

    /// A connection of an operator, for the preparation of a shape.
    pub fn operator(&self) -> Result<Wire> {
        let mut wire = Wire::patient(self.ip(Door::Resp)?.port(), PREPARATION_MAX)?;
        if self.login.is_locked() {
            let reply = wire.ask(&[b"AUTH", USER.as_bytes(), PASSWORD.as_bytes()])?;
            ensure!(reply == Reply::One(b"+OK\r\n".to_vec()), "AUTH: {}", reply.shown());
        }
        Ok(wire)
    }

    /// The length of large values, by the cap.
    pub fn large_bytes(&self) -> usize {
        (self.cap_bytes / VALUE_CAP_PART).min(VALUE_MAX_BYTES) as usize
    }

    /// Stores `large:0` ... of that length each, in an emptied server: a full cache would evict one
    /// for the next, and an attack on absent keys would prove nothing.
    pub fn load_large(&self, count: usize) -> Result<()> {
        let mut wire = self.operator()?;
        let value = vec![b'v'; self.large_bytes()];
        let keys: Vec<String> = (0..count).map(|index| format!("large:{index}")).collect();
        self.store(&mut wire, &[b"FLUSHALL"])?;
        for key in &keys {
            self.store(&mut wire, &[b"SET", key.as_bytes(), &value])?;
        }
        for key in &keys {
            let length = wire.ask(&[b"STRLEN", key.as_bytes()])?.integer();
            let is_there = length == i64::try_from(value.len()).ok();
            ensure!(is_there, "{key} of {} bytes does not stay in the server", value.len());
        }
        Ok(())
    }

    /// Stores `small:0` ... with short values.
    pub fn load_small(&self, count: usize) -> Result<()> {
        let mut wire = self.operator()?;
        for first in (0..count).step_by(1000) {
            let last = count.min(first + 1000);
            let mut words = vec![b"MSET".to_vec()];
            words
                .extend((first..last).flat_map(|at| [format!("small:{at}").into(), b"v".to_vec()]));
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.store(&mut wire, &words)?;
        }
        Ok(())
    }

    /// A write that is retried while connections of the previous trial still hold memory.
    fn store(&self, wire: &mut Wire, words: &[&[u8]]) -> Result<()> {
        let until = Instant::now() + PREPARATION_MAX;
        loop {
            let reply = wire.ask(words)?;
            if reply == Reply::One(b"+OK\r\n".to_vec()) {
                return Ok(());
            }
            let bytes: usize = words.iter().map(|word| word.len()).sum();
            let name = words[0].escape_ascii();
            ensure!(Instant::now() < until, "{name} of {bytes} bytes: {}", reply.shown());
            std::thread::sleep(Duration::from_millis(20));
            // A protocol error closes.
            *wire = self.operator()?;
        }
    }

    /// A socket that sends to a door of datagrams.
    pub fn datagrams(&self, door: Door) -> Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(self.ip(door)?)?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        Ok(socket)
    }

    /// Sends datagrams until the deadline, or until `make` returns none; returns the number that
    /// found no room.
    pub fn shower(
        &self,
        sockets: &[UdpSocket],
        mut make: impl FnMut(u64) -> Option<Vec<u8>>,
    ) -> io::Result<u64> {
        let (mut number, mut refused) = (0, 0);
        while !self.is_over() {
            let Some(datagram) = make(number) else { break };
            let socket = &sockets[number as usize % sockets.len()];
            refused += u64::from(socket.send(&datagram).is_err());
            number += 1;
            // The server shares processors with its attackers.
            if number.is_multiple_of(64) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(refused)
    }

    /// Waits for the deadline, for attacks that have sent everything.
    pub fn linger(&self) {
        std::thread::sleep(self.deadline().saturating_duration_since(Instant::now()));
    }
}
