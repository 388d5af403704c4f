//! Raw replies: a connection that reads exactly one reply at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail};

/// A server that is silent for this long has no more to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One reply. Lines and bulks keep their bytes, headers and all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+`, `-`, `:`, `_`, `#`, `,`, nulls, bulks: all bytes.
    One(Vec<u8>),
    /// Arrays, maps, sets: marker and items.
    Many(u8, Vec<Reply>),
    /// The server closed the connection.
    Closed,
}

impl Reply {
    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        let Reply::One(bytes) = self else { return None };
        std::str::from_utf8(bytes.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
    }

    /// Whether no reply came in time.
    pub fn is_nothing(&self) -> bool {
        *self == Reply::One(b"(nothing)".to_vec())
    }

    /// The reply with the items of arrays in a canonical order.
    pub fn sorted(mut self) -> Reply {
        if let Reply::Many(_, items) = &mut self {
            *items = std::mem::take(items).into_iter().map(Reply::sorted).collect();
            items.sort_by_key(|item| item.shown());
        }
        self
    }

    /// Readable text.
    pub fn shown(&self) -> String {
        match self {
            Reply::One(bytes) if bytes.len() > 300 => {
                format!("{}... ({} bytes)", bytes[..200].escape_ascii(), bytes.len())
            }
            Reply::One(bytes) => bytes.escape_ascii().to_string(),
            Reply::Many(marker, items) => {
                let items: Vec<String> = items.iter().map(Reply::shown).collect();
                format!("{}{} [{}]", char::from(*marker), items.len(), items.join(" "))
            }
            Reply::Closed => "(closed)".to_owned(),
        }
    }
}

/// A connection.
pub struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    pub fn connect(port: u16) -> Result<Wire> {
        Wire::patient(port, TIMEOUT)
    }

    /// A connection with this time limit for bytes of a reply.
    pub fn patient(port: u16, reply_max: Duration) -> Result<Wire> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply_max))?;
        stream.set_write_timeout(Some(reply_max))?;
        Ok(Wire { reader: BufReader::new(stream) })
    }

    /// A closed connection shows when it is read.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.reader.get_mut().write_all(bytes);
    }

    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Reply> {
        self.send(&multibulk(words.iter().copied()));
        self.reply()
    }

    pub fn reply(&mut self) -> Result<Reply> {
        let mut head = Vec::new();
        match self.reader.read_until(b'\n', &mut head) {
            Ok(0) => return Ok(Reply::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return Ok(Reply::Closed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Ok(Reply::One(b"(nothing)".to_vec()));
            }
            Err(error) => bail!("no reply: {error}"),
        }
        let number = || {
            let text = std::str::from_utf8(&head[1..]).unwrap_or_default();
            text.trim_end().parse::<i64>().unwrap_or(-1)
        };
        let marker = head[0];
        match marker {
            b'$' | b'=' if number() >= 0 => {
                let mut body = vec![0; number() as usize + 2];
                self.reader.read_exact(&mut body)?;
                head.extend_from_slice(&body);
                Ok(Reply::One(head))
            }
            b'*' | b'%' | b'~' | b'>' if number() >= 0 => {
                let per_item = if marker == b'%' { 2 } else { 1 };
                let count = number() * per_item;
                let items = (0..count).map(|_| self.reply()).collect::<Result<_>>()?;
                Ok(Reply::Many(marker, items))
            }
            _ => Ok(Reply::One(head)),
        }
    }
}

/// A command as an array of bulk strings.
pub fn multibulk<'w>(words: impl ExactSizeIterator<Item = &'w [u8]>) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_framed() {
        let words: [&[u8]; 2] = [b"GET", b"a b"];
        assert_eq!(multibulk(words.into_iter()), b"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
    }

    #[test]
    fn order_is_forgotten_only_where_it_is_asked_for() {
        let one = |text: &str| Reply::One(text.as_bytes().to_vec());
        let left = Reply::Many(b'*', vec![one(":1\r\n"), one(":2\r\n")]);
        let right = Reply::Many(b'*', vec![one(":2\r\n"), one(":1\r\n")]);
        assert_ne!(left, right);
        assert_eq!(left.sorted(), right.sorted());
    }
}
