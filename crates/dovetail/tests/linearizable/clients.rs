//! Clients of the three protocols: each sends a pipeline and reports the answers as they arrive.
//!
//! ```text
//!  pipeline ─▶ encode ─▶ one write, or several with a cut anywhere
//!  replies  ─▶ decode by what was asked ─▶ Answer, in the order of the requests
//! ```

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::linearizable::load::Asked;
use crate::linearizable::model::Answer;

pub mod native;
mod resp;
mod text;

/// A reply that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than fits the sockets' buffers is written beside reading, or both sides would wait.
const WRITE_FIRST_BYTES_MAX: usize = 32 << 10;

/// A connection over which pipelines are sent.
pub trait Client {
    /// Sends the pipeline and takes the first `reply_count` replies. `cut` is a place in what is
    /// sent at which the sending is interrupted.
    fn talk(
        &mut self,
        pipeline: &[Asked],
        reply_count: usize,
        cut: usize,
        take: &mut dyn FnMut(usize, Option<Answer>),
    ) -> Result<()>;

    /// Sends the beginning of one more request that never ends, and is gone.
    fn die(self: Box<Self>, last: &Asked);
}

/// A protocol over TCP.
pub trait Protocol {
    fn encode(&self, asked: &Asked, out: &mut Vec<u8>);

    /// The reply to `asked`; `None`: it has none.
    fn decode(&self, asked: &Asked, from: &mut Replies) -> Result<Option<Answer>>;
}

/// Connects a client of the Redis protocol.
pub fn resp(address: SocketAddr) -> Result<Box<dyn Client>> {
    Tcp::connect(address, resp::Resp)
}

/// Connects a client of memcached's text protocol.
pub fn text(address: SocketAddr) -> Result<Box<dyn Client>> {
    Tcp::connect(address, text::Text)
}

/// The receiving side of a connection.
pub struct Replies {
    reader: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Replies {
    pub fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(Error::new(ErrorKind::UnexpectedEof, "the reply ends in a line")),
        }
    }

    /// Bytes that `\r\n` follows.
    pub fn body(&mut self, len_bytes: usize) -> Result<&[u8]> {
        self.body.resize(len_bytes + 2, 0);
        self.reader.read_exact(&mut self.body)?;
        match self.body.strip_suffix(b"\r\n") {
            Some(body) => Ok(body),
            None => Err(bad(format!("no line end follows {len_bytes} bytes"))),
        }
    }
}

/// A server that does not keep to its protocol.
fn bad(message: String) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

struct Tcp<P> {
    replies: Replies,
    protocol: P,
    out: Vec<u8>,
}

impl<P: Protocol + 'static> Tcp<P> {
    fn connect(address: SocketAddr, protocol: P) -> Result<Box<dyn Client>> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let replies = Replies { reader: BufReader::new(socket), body: Vec::new() };
        Ok(Box::new(Tcp { replies, protocol, out: Vec::new() }))
    }
}

impl<P: Protocol> Client for Tcp<P> {
    fn talk(
        &mut self,
        pipeline: &[Asked],
        reply_count: usize,
        cut: usize,
        take: &mut dyn FnMut(usize, Option<Answer>),
    ) -> Result<()> {
        let Tcp { replies, protocol, out } = self;
        out.clear();
        for asked in pipeline {
            protocol.encode(asked, out);
        }
        let mut writer = replies.reader.get_ref().try_clone()?;
        let closer = writer.try_clone()?;
        let mut read = || {
            for (index, asked) in pipeline[..reply_count].iter().enumerate() {
                let answer = protocol.decode(asked, replies);
                take(index, answer.map_err(|error| bad(format!("{:?}: {error}", asked.ask)))?);
            }
            Ok(())
        };
        let (first, second) = out.split_at(cut % (out.len() + 1));
        if out.len() <= WRITE_FIRST_BYTES_MAX {
            writer.write_all(first)?;
            writer.write_all(second)?;
            return read();
        }
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A client that dies takes not all replies, so that not all may be read.
                let _ = writer.write_all(first).and_then(|()| writer.write_all(second));
            });
            let result = read();
            if reply_count < pipeline.len() || result.is_err() {
                let _ = closer.shutdown(Shutdown::Both);
            }
            result
        })
    }

    fn die(self: Box<Self>, last: &Asked) {
        let mut out = Vec::new();
        self.protocol.encode(last, &mut out);
        let mut socket = self.replies.reader.get_ref();
        let sent_bytes = (out.len() - 1).min(WRITE_FIRST_BYTES_MAX);
        // Whether it arrives is not the question, nor is there time to wait for room.
        let _ = socket.set_nonblocking(true).and_then(|()| socket.write(&out[..sent_bytes]));
    }
}
