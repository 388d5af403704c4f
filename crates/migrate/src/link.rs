//! A TCP connection, encrypted or not, with alternating requests and answers.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::address::Place;
use crate::error::Error;
use crate::tls::{TlsStream, greet, of_rustls};

/// The time limit for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The time limit for progress in reading or writing. Redis may be busy with one slow command.
const STALL_MAX: Duration = Duration::from_secs(30);
/// Bytes read from the kernel at once.
const READ_BYTES: usize = 128 << 10;

/// A stream with or without TLS.
#[derive(Debug)]
pub(crate) enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream>),
}

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) input: BufReader<Stream>,
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Clear(stream) => stream.read(to),
            // In TLS 1.3 a server reports a missing certificate only now.
            Stream::Tls(stream) => stream.read(to).map_err(of_rustls),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Clear(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Clear(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

impl Link {
    pub(crate) fn connect(place: &Place) -> Result<Link, Error> {
        dial(place).map_err(|error| broken(place, error))
    }

    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let stream = self.input.get_mut();
        stream.write_all(request)?;
        stream.flush()
    }
}

fn dial(place: &Place) -> io::Result<Link> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (place.host.as_str(), place.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(STALL_MAX))?;
                stream.set_write_timeout(Some(STALL_MAX))?;
                let stream = match &place.tls {
                    None => Stream::Clear(stream),
                    Some(files) => Stream::Tls(Box::new(greet(&place.host, stream, files)?)),
                };
                return Ok(Link { input: BufReader::with_capacity(READ_BYTES, stream) });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// An error of the connection, or in the server's answer.
pub(crate) fn broken(place: &Place, error: io::Error) -> Error {
    let error = match error.kind() {
        // The system's message for a timeout is `Resource temporarily unavailable`.
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "no answer for 30 seconds")
        }
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")
        }
        _ => error,
    };
    Error::Connection { place: place.to_string(), error }
}
