//! A client: what it has said, and the replies that must come, in this order.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;

use counters::Dialect;

use super::Seen;
use super::model::{KEYS, Model};

/// Seconds that keys live for which the clients give a time.
pub(crate) const LIFE_SECONDS: u64 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp,
    Memcached,
}

impl Protocol {
    pub fn dialect(self) -> Dialect {
        match self {
            Protocol::Resp => Dialect::Resp,
            Protocol::Memcached => Dialect::Memcached,
        }
    }
}

/// A reply that must come next.
#[derive(Debug)]
pub(crate) enum Reply {
    /// These bytes.
    Is(Vec<u8>),
    /// A line with a number, within.
    Number(RangeInclusive<i64>),
    /// A line with the next value of the counter.
    Counted,
    /// `VALUE key flags len token`, a block of these bytes, and the end.
    WithToken { key: usize, version: u64, block: Vec<u8> },
}

/// The counter that all clients share.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    seen: Seen,
}

/// A token of memcached's and what the key was when it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub key: usize,
    pub version: u64,
    pub token: u64,
}

pub(crate) struct Peer {
    pub protocol: Protocol,
    /// Connections of this client before.
    pub life: u32,
    pub model: Model,
    /// Of the last answered `gets`.
    pub token: Option<Token>,
    socket: TcpStream,
    unsent: Vec<u8>,
    wanted: VecDeque<Reply>,
    received: Vec<u8>,
    counted_last: u64,
}

impl Peer {
    /// A client and the server's end of its connection.
    pub fn connect(
        listener: &TcpListener,
        protocol: Protocol,
        index: usize,
        life: u32,
    ) -> (Peer, TcpStream) {
        let address = listener.local_addr().expect("it is bound");
        let socket = TcpStream::connect(address).expect("the listener has room");
        let (server_end, _) = listener.accept().expect("a client has come");
        socket.set_nonblocking(true).expect("a socket like others");
        socket.set_nodelay(true).expect("a socket like others");
        let peer = Peer {
            protocol,
            life,
            model: Model::new(format!("client{index}.{life}")),
            token: None,
            socket,
            unsent: Vec::new(),
            wanted: VecDeque::new(),
            received: Vec::new(),
            counted_last: 0,
        };
        (peer, server_end)
    }

    /// Says something, and knows what is answered.
    pub fn ask(&mut self, text: impl AsRef<[u8]>, reply: Reply) {
        self.unsent.extend_from_slice(text.as_ref());
        self.wanted.push_back(reply);
    }

    /// The same, where the bytes of the reply are known.
    pub fn ask_for(&mut self, text: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.ask(text, Reply::Is(reply.as_ref().to_vec()));
    }

    /// Sends as much as the kernel takes.
    pub fn send(&mut self) {
        match self.socket.write(&self.unsent) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("the server has closed a connection: {error}"),
        }
    }

    /// Takes what has come and compares it.
    pub fn receive(&mut self, counter: &mut Counter) {
        let mut buffer = [0; 64 << 10];
        match self.socket.read(&mut buffer) {
            Ok(0) => panic!("the server has closed a connection; missing: {}", self.missing()),
            Ok(len) => self.received.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("the connection broke: {error}"),
        }
        while let Some(len) = self.matched(counter) {
            self.received.drain(..len);
            self.wanted.pop_front();
        }
    }

    /// How long the next reply is; `None`: it is not all there.
    fn matched(&mut self, counter: &mut Counter) -> Option<usize> {
        let received = &self.received[..];
        match self.wanted.front() {
            None => {
                assert!(received.is_empty(), "unasked for: {:?}", shown(received));
                None
            }
            Some(Reply::Is(bytes)) => {
                let len = bytes.len().min(received.len());
                let (have, want) = (shown(&received[..len]), shown(bytes));
                assert!(received[..len] == bytes[..len], "{have} instead of {want}");
                (len == bytes.len()).then_some(len)
            }
            Some(Reply::Number(within)) => {
                let (number, len) = number(received, b":")?;
                assert!(within.contains(&(number as i64)), "{number} in {within:?}");
                Some(len)
            }
            Some(Reply::Counted) => {
                let (number, len) = number(received, b":")?;
                assert!(number > self.counted_last, "{number} after {}", self.counted_last);
                assert!(counter.seen.insert(number), "{number} was answered before");
                self.counted_last = number;
                Some(len)
            }
            Some(Reply::WithToken { key, version, block }) => {
                let line = received.windows(2).position(|two| two == b"\r\n")?;
                let end = [&b"\r\n"[..], block, b"\r\nEND\r\n"].concat();
                if received.len() < line + end.len() {
                    return None;
                }
                assert!(received[line..].starts_with(&end), "the block of a gets");
                let token = received[..line].rsplit(|byte| *byte == b' ').next()?;
                let token = std::str::from_utf8(token).ok()?.parse().expect("a token");
                self.token = Some(Token { key: *key, version: *version, token });
                Some(line + end.len())
            }
        }
    }

    pub fn is_answered(&self) -> bool {
        self.unsent.is_empty() && self.wanted.is_empty()
    }

    pub fn missing(&self) -> String {
        let (count, next) = (self.wanted.len(), self.wanted.front());
        let next = format!("{next:?}").chars().take(80).collect::<String>();
        format!("{count}, next {next}, has {}", shown(&self.received))
    }

    /// All keys of a model, whichever client wrote them, are as it says.
    pub fn expect_model(&mut self, model: &Model) {
        for key in 0..KEYS {
            let (name, value) = (model.name(key), model.get(key).map(|value| &value.bytes[..]));
            match self.protocol {
                Protocol::Resp => self.ask_for(format!("GET {name}\r\n"), super::resp::bulk(value)),
                Protocol::Memcached => {
                    self.ask_for(format!("get {name}\r\n"), super::memcached::block(&name, value));
                }
            }
        }
    }
}

/// The number on the first line.
fn number(received: &[u8], sign: &[u8]) -> Option<(u64, usize)> {
    let line = received.windows(2).position(|two| two == b"\r\n")?;
    let digits = received[..line].strip_prefix(sign);
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Some((number.unwrap_or_else(|| panic!("no number: {}", shown(received))), line + 2))
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(100)].escape_ascii().to_string()
}
