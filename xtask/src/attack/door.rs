//! The doors (ports) of a server, and connections to those that use streams.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// The time limit for connecting: a server too busy to accept is not worth a long wait.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The time limit for an answer to a login, or to a handshake.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The user on all servers with passwords.
pub const USER: &str = "default";
/// Its password.
pub const PASSWORD: &str = "an-attack-is-no-secret";

/// The ports of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    Resp,
    RespUnix,
    RespTls,
    Memcached,
    MemcachedUnix,
    MemcachedTls,
    MemcachedUdp,
    Native,
    Shm,
    Admin,
}

impl Door {
    /// All doors, in the order of the documentation.
    pub const ALL: [Door; 10] = [
        Door::Resp,
        Door::RespUnix,
        Door::RespTls,
        Door::Memcached,
        Door::MemcachedUnix,
        Door::MemcachedTls,
        Door::MemcachedUdp,
        Door::Native,
        Door::Shm,
        Door::Admin,
    ];

    /// The flag that opens it.
    pub fn flag(self) -> &'static str {
        match self {
            Door::Resp => "resp",
            Door::RespUnix => "unix-socket",
            Door::RespTls => "tls-resp",
            Door::Memcached => "memcached",
            Door::MemcachedUnix => "memcached-unix-socket",
            Door::MemcachedTls => "tls-memcached",
            Door::MemcachedUdp => "udp-port",
            Door::Native => "native",
            Door::Shm => "shm",
            Door::Admin => "admin",
        }
    }

    /// The name of its address in the line of the log that says `ready`.
    pub fn ready_name(self) -> String {
        match self {
            Door::MemcachedUdp => "memcached_udp".to_owned(),
            door => door.flag().replace('-', "_"),
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.flag())
    }
}

/// The address of a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Ip(SocketAddr),
    Path(PathBuf),
}

/// A connection of any kind.
pub trait Stream: Read + Write + Send {
    /// Whether reads and writes return at once.
    fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        TcpStream::set_nonblocking(self, is_nonblocking)
    }
}

impl Stream for UnixStream {
    fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        UnixStream::set_nonblocking(self, is_nonblocking)
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.sock.set_nonblocking(is_nonblocking)
    }
}

/// Connects; if there is a TLS configuration, with a finished handshake.
pub fn connect(address: &Address, tls: Option<&Arc<ClientConfig>>) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Path(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            stream.set_write_timeout(Some(ANSWER_MAX))?;
            Ok(Box::new(stream))
        }
        Address::Ip(address) => {
            let stream = TcpStream::connect_timeout(address, CONNECT_MAX)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            stream.set_write_timeout(Some(ANSWER_MAX))?;
            stream.set_nodelay(true)?;
            match tls {
                None => Ok(Box::new(stream)),
                Some(config) => Ok(Box::new(encrypted(stream, config)?)),
            }
        }
    }
}

fn encrypted(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut stream = StreamOwned::new(greeting(stream.peer_addr()?, config)?, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn greeting(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<ClientConnection> {
    let name = ServerName::IpAddress(address.ip().into());
    ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)
}

/// The first bytes that a client of TLS sends.
pub fn client_hello(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    greeting(address, config)?.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// Logs in as the user with all rights.
pub fn log_in(stream: &mut dyn Stream, door: Door) -> io::Result<()> {
    let (request, want) = match door {
        Door::Resp | Door::RespUnix | Door::RespTls => {
            (super::script::command(&format!("AUTH {USER} {PASSWORD}")), "+OK")
        }
        Door::Memcached | Door::MemcachedUnix | Door::MemcachedTls => {
            let words = format!("{USER} {PASSWORD}");
            (format!("set login 0 0 {}\r\n{words}\r\n", words.len()).into_bytes(), "STORED")
        }
        Door::MemcachedUdp | Door::Native | Door::Shm | Door::Admin => return Ok(()),
    };
    stream.write_all(&request)?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") && line.len() < 1000 {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    match line.starts_with(want.as_bytes()) {
        true => Ok(()),
        false => Err(io::Error::other(format!("login: {}", line.escape_ascii()))),
    }
}
