//! A small client of Redis Cluster: one connection per server; it follows MOVED.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The time limit: a server keeps a request for two seconds at most.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(3000);
const CONNECT_TIME_MAX: Duration = Duration::from_millis(300);
const REDIRECTS_MAX: usize = 5;
/// The errors after which a request has changed nothing.
const SURE: [&str; 6] = ["CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN", "OOM", "LOADING", "EXECABORT"];

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status such as +OK.
    Simple(String),
    /// An error such as -ERR.
    Error(String),
    /// A number.
    Integer(i64),
    /// A value, or none.
    Bulk(Option<Vec<u8>>),
    /// Several replies.
    Array(Vec<Reply>),
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was executed.
    Reply(Reply),
    /// It was refused and has changed nothing.
    Refused(String),
    /// The outcome is unknown: it may be executed now, later, or never.
    Unknown(String),
}

/// One user.
pub struct Client {
    servers: Vec<String>,
    connections: HashMap<String, BufReader<TcpStream>>,
    /// The server on which each key was found last.
    known: HashMap<String, String>,
    next: usize,
}

impl Client {
    /// A client of these servers, beginning with `first`.
    pub fn new(servers: &[String], first: usize) -> Client {
        let (connections, known) = (HashMap::new(), HashMap::new());
        Client { servers: servers.to_vec(), connections, known, next: first }
    }

    /// Sends the command to the server of its key, its second word.
    pub fn ask(&mut self, words: &[&str]) -> Told {
        self.ask_all(words.get(1).copied().unwrap_or_default(), &[words])
    }

    /// Sends all commands at once to the server of the key, and gives the last one's reply.
    pub fn ask_all(&mut self, key: &str, commands: &[&[&str]]) -> Told {
        let mut last = String::new();
        for _ in 0..REDIRECTS_MAX {
            let at = self.known.get(key).cloned().unwrap_or_else(|| self.any());
            let connection = match self.connection(&at) {
                Ok(connection) => connection,
                // Nothing was sent.
                Err(error) => {
                    self.known.remove(key);
                    last = format!("{at}: {error:#}");
                    continue;
                }
            };
            match exchange(connection, commands) {
                Ok(Reply::Error(line)) if line.starts_with("MOVED ") => {
                    let to = line.rsplit(' ').next().unwrap_or_default().to_owned();
                    self.known.insert(key.to_owned(), to);
                    last = line;
                }
                Ok(Reply::Error(line)) => {
                    self.known.remove(key);
                    let is_sure = SURE.iter().any(|word| line.starts_with(word));
                    return if is_sure { Told::Refused(line) } else { Told::Unknown(line) };
                }
                Ok(reply) => {
                    self.known.insert(key.to_owned(), at);
                    return Told::Reply(reply);
                }
                Err(error) => {
                    self.connections.remove(&at);
                    self.known.remove(key);
                    return Told::Unknown(format!("{at}: {error:#}"));
                }
            }
        }
        Told::Refused(last)
    }

    fn any(&mut self) -> String {
        self.next = (self.next + 1) % self.servers.len();
        self.servers[self.next].clone()
    }

    fn connection(&mut self, at: &str) -> Result<&mut BufReader<TcpStream>> {
        if !self.connections.contains_key(at) {
            self.connections.insert(at.to_owned(), connect(at)?);
        }
        self.connections.get_mut(at).context("it was just made")
    }
}

/// A connection with time limits for reading and writing.
pub fn connect(at: &str) -> Result<BufReader<TcpStream>> {
    let address: SocketAddr = at.parse()?;
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// The last command's reply, or the first error.
pub fn exchange(connection: &mut BufReader<TcpStream>, commands: &[&[&str]]) -> Result<Reply> {
    let mut out = String::new();
    for words in commands {
        out.push_str(&format!("*{}\r\n", words.len()));
        for word in *words {
            out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
    }
    connection.get_mut().write_all(out.as_bytes())?;
    let replies = commands.iter().map(|_| reply(connection)).collect::<Result<Vec<_>>>()?;
    let error = replies.iter().find(|reply| matches!(reply, Reply::Error(_))).cloned();
    // A transaction all of whose commands were refused has done nothing.
    let refused = match replies.last() {
        Some(Reply::Array(all)) if all.iter().all(|one| matches!(one, Reply::Error(_))) => {
            all.first().cloned()
        }
        _ => None,
    };
    error.or(refused).or_else(|| replies.last().cloned()).context("something was asked")
}

/// The next reply.
pub fn reply(connection: &mut BufReader<TcpStream>) -> Result<Reply> {
    let mut line = String::new();
    if connection.read_line(&mut line)? == 0 {
        bail!("the connection was closed");
    }
    let rest = line.get(1..).unwrap_or_default().trim_end().to_owned();
    Ok(match line.as_bytes()[0] {
        b'+' => Reply::Simple(rest),
        b'-' => Reply::Error(rest),
        b':' => Reply::Integer(rest.parse()?),
        b'_' => Reply::Bulk(None),
        b'$' | b'*' if rest == "-1" => Reply::Bulk(None),
        b'$' => {
            let mut bytes = vec![0; rest.parse::<usize>()? + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Bulk(Some(bytes))
        }
        b'*' => {
            let count: usize = rest.parse()?;
            Reply::Array((0..count).map(|_| reply(connection)).collect::<Result<_>>()?)
        }
        _ => bail!("no reply of RESP: {rest}"),
    })
}

/// The body of a page of a server.
pub fn page(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.parse()?, CONNECT_TIME_MAX)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The slot of a key without braces, as Redis Cluster counts them: CRC16 of XMODEM.
pub fn slot_of(key: &str) -> u16 {
    let mix = |mut crc: u16, byte: u8| {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
        }
        crc
    };
    key.bytes().fold(0, mix) % 16_384
}

#[cfg(test)]
mod tests {
    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(super::slot_of("123456789"), 0x31c3);
        assert_eq!(super::slot_of("foo"), 12_182);
    }
}
