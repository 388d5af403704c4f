//! A small memcached client: it may ask any server, since servers forward requests for keys of
//! others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};

use super::resp::connect;

/// The error texts of requests that changed nothing.
const SURE: [&str; 4] =
    ["no node serves", "too few copies", "out of memory", "the node that serves"];

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A line, such as STORED.
    Line(String),
    /// The answer to a get: the value and its version, or none.
    Value(Option<(Vec<u8>, String)>),
    /// The answer to a get of several keys: the existing ones.
    Values(Vec<(String, Vec<u8>)>),
    /// It was refused and has changed nothing.
    Refused(String),
    /// The outcome is unknown: it may be executed now, later, or never.
    Unknown(String),
}

/// Keys, their values and versions.
pub type Found = Vec<(String, Vec<u8>, String)>;

/// One user.
pub struct Client {
    servers: Vec<String>,
    connections: Vec<Option<BufReader<TcpStream>>>,
}

impl Client {
    /// A client of these servers.
    pub fn new(servers: &[String]) -> Client {
        let connections = servers.iter().map(|_| None).collect();
        Client { servers: servers.to_vec(), connections }
    }

    /// Gets several keys through this server, whichever server has each.
    pub fn ask_several(&mut self, at: usize, names: &[String]) -> Told {
        let request = format!("get {}\r\n", names.join(" "));
        let values = |found: Found| {
            Told::Values(found.into_iter().map(|(name, value, _)| (name, value)).collect())
        };
        self.exchange(at, request.as_bytes(), values)
    }

    /// Sends the request to this server, whichever server has the key.
    pub fn ask(&mut self, at: usize, request: &[u8]) -> Told {
        let single = |found: Found| {
            Told::Value(found.into_iter().next().map(|(_, value, version)| (value, version)))
        };
        self.exchange(at, request, single)
    }

    fn exchange(&mut self, at: usize, request: &[u8], found: impl FnOnce(Found) -> Told) -> Told {
        let at = at % self.servers.len();
        if self.connections[at].is_none() {
            match connect(&self.servers[at]) {
                Ok(stream) => self.connections[at] = Some(stream),
                // Nothing was sent.
                Err(error) => return Told::Refused(format!("{}: {error:#}", self.servers[at])),
            }
        }
        let Some(connection) = &mut self.connections[at] else {
            return Told::Refused("no connection".to_owned());
        };
        match exchange(connection, request, found) {
            Ok(Told::Line(line)) if line.contains("ERROR") => {
                let is_sure = SURE.iter().any(|words| line.contains(words));
                if is_sure { Told::Refused(line) } else { Told::Unknown(line) }
            }
            Ok(told) => told,
            Err(error) => {
                self.connections[at] = None;
                Told::Unknown(format!("memcached {}: {error:#}", self.servers[at]))
            }
        }
    }
}

/// Sends a request and reads its answer, over any kind of connection.
pub fn exchange(
    connection: &mut BufReader<TcpStream>,
    request: &[u8],
    told: impl FnOnce(Found) -> Told,
) -> Result<Told> {
    connection.get_mut().write_all(request)?;
    let mut found = Found::new();
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line)? == 0 {
            bail!("the connection was closed");
        }
        let line = line.trim_end();
        if line == "END" {
            return Ok(told(found));
        }
        if !line.starts_with("VALUE ") {
            return Ok(Told::Line(line.to_owned()));
        }
        let mut words = line.split(' ').skip(1);
        let name = words.next().context("a value has a key")?.to_owned();
        let mut words = words.skip(1);
        let length: usize = words.next().context("a value has a length")?.parse()?;
        let mut bytes = vec![0; length + 2];
        connection.read_exact(&mut bytes)?;
        bytes.truncate(length);
        found.push((name, bytes, words.next().unwrap_or_default().to_owned()));
    }
}
