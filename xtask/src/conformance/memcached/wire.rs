//! A connection that reads the replies up to a fence, and drops the parts in which two servers
//! never agree.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail};

use super::binary;
use crate::conformance::Protocol;

/// A server that is silent for this long has no more to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A data block that was too short may consume the first line; the second one is executed.
const LINES: &[u8] = b"verbosity 1\r\nversion\r\n";

/// The bytes sent after a step.
pub fn fence(protocol: Protocol) -> Vec<u8> {
    if protocol == Protocol::Binary { binary::fence() } else { LINES.to_vec() }
}

/// A connection.
pub struct Wire(BufReader<TcpStream>);

/// A callback with the key, if the reply names it, and the returned token.
type Told<'t> = dyn FnMut(Option<&[u8]>, u64) + 't;

impl Wire {
    pub fn connect(port: u16) -> Result<Wire> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Wire(BufReader::new(stream)))
    }

    /// A closed connection shows when it is read.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// The replies up to the fence or the end; also returns whether the connection goes on.
    pub fn receive(&mut self, protocol: Protocol, told: &mut Told<'_>) -> Result<(Vec<u8>, bool)> {
        let mut reply = Vec::new();
        let result = match protocol {
            Protocol::Binary => self.packets(&mut reply, told),
            _ => self.lines(&mut reply, told),
        };
        match result {
            Ok(()) => return Ok((reply, true)),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                    reply.extend_from_slice(b"(closed)");
                }
                ErrorKind::WouldBlock => reply.extend_from_slice(b"(nothing)"),
                _ => bail!("no reply: {error}"),
            },
        }
        Ok((reply, false))
    }

    fn lines(&mut self, reply: &mut Vec<u8>, told: &mut Told<'_>) -> std::io::Result<()> {
        loop {
            let mut line = Vec::new();
            self.0.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                reply.extend_from_slice(&line);
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with(b"VERSION ") {
                return Ok(());
            }
            let words: Vec<&[u8]> = line.trim_ascii_end().split(|byte| *byte == b' ').collect();
            let len_at = match words[0] {
                b"VALUE" => 3,
                b"VA" => 1,
                _ => words.len(),
            };
            let block_len = words.get(len_at).and_then(|word| number(word)).map(|len| len + 2);
            let mut block = vec![0; block_len.unwrap_or(0) as usize];
            self.0.read_exact(&mut block)?;
            let short = unpadded(block.strip_suffix(b"\r\n").unwrap_or(&block));
            let len = short.map_or(String::new(), |number| number.len().to_string());
            let mut words = words;
            if let Some(number) = short {
                words[len_at] = len.as_bytes();
                block = [number, b"\r\n"].concat();
            }
            reply.extend_from_slice(&masked(&words, told));
            reply.extend_from_slice(&block);
        }
    }

    fn packets(&mut self, reply: &mut Vec<u8>, told: &mut Told<'_>) -> std::io::Result<()> {
        loop {
            let mut header = [0; binary::HEADER_BYTES];
            self.0.read_exact(&mut header)?;
            let body_len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
            let mut body = vec![0; body_len as usize];
            self.0.read_exact(&mut body)?;
            if binary::is_fence(&header) {
                return Ok(());
            }
            let [.., c0, c1, c2, c3, c4, c5, c6, c7] = header;
            let token = u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
            if token != 0 {
                told(None, token);
                header[16..].fill(b'#');
            }
            let value_at = usize::from(header[4]) + usize::from(header[3]);
            let number_len = body.get(value_at..).and_then(unpadded).map(<[u8]>::len);
            if let Some(number_len) = number_len {
                body.truncate(value_at + number_len);
                header[8..12].copy_from_slice(&(body.len() as u32).to_be_bytes());
            }
            reply.extend_from_slice(&header);
            reply.extend_from_slice(&body);
        }
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A number without its padding; `None`: it is not a number, or not padded.
fn unpadded(value: &[u8]) -> Option<&[u8]> {
    let number = value.trim_ascii_end();
    let is_padded = number.len() < value.len() && value.ends_with(b" ");
    (is_padded && !number.is_empty() && number.iter().all(u8::is_ascii_digit)).then_some(number)
}

/// A line without tokens, without remaining or past seconds, and without the fields of `me` about
/// memory.
///
/// memcached writes the time of a read down once a minute, this server once a second.
fn masked(words: &[&[u8]], told: &mut Told<'_>) -> Vec<u8> {
    let is_meta = matches!(words[0], b"HD" | b"VA" | b"EN" | b"NF" | b"NS" | b"EX");
    let mut line = Vec::new();
    let is_told = |word: &&[u8]| words[0] != b"ME" || !is_fact(word) || word.starts_with(b"fetch=");
    for (index, word) in words.iter().filter(|word| is_told(word)).enumerate() {
        let letter = word.first().copied().filter(|_| is_meta && index > 0);
        let amount = number(word.get(1..).unwrap_or_default()).filter(|amount| *amount > 0);
        line.extend_from_slice(if index > 0 { b" " } else { b"" });
        match (letter, amount) {
            (Some(b'c'), Some(token)) => {
                told(None, token);
                line.extend_from_slice(b"c#");
            }
            (Some(b't'), Some(_)) => line.extend_from_slice(b"t#"),
            (Some(b'l'), _) if number(&word[1..]).is_some() => line.extend_from_slice(b"l#"),
            _ if words[0] == b"VALUE" && index == 4 => {
                told(Some(words[1]), number(word).unwrap_or(0));
                line.push(b'#');
            }
            _ => line.extend_from_slice(word),
        }
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// One of the words of `me` behind its key.
fn is_fact(word: &[u8]) -> bool {
    [&b"exp="[..], b"la=", b"cas=", b"fetch=", b"cls=", b"size="]
        .iter()
        .any(|it| word.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_of_numbers_only() {
        assert_eq!(unpadded(b"17  "), Some(&b"17"[..]));
        for value in [&b"17"[..], b"a ", b"  ", b"", b"17\t"] {
            assert_eq!(unpadded(value), None, "{value:?}");
        }
    }

    #[test]
    fn tokens_and_seconds_are_masked_and_told() {
        let mut tokens = Vec::new();
        let mut mask = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let mut told =
                |key: Option<&[u8]>, token| tokens.push((key.map(<[u8]>::to_vec), token));
            String::from_utf8(masked(&words, &mut told)).expect("it was text")
        };
        assert_eq!(mask("VALUE k 0 5 77"), "VALUE k 0 5 #\r\n");
        assert_eq!(mask("HD t55 c9 Oc5 kt7"), "HD t# c# Oc5 kt7\r\n");
        assert_eq!(mask("HD t-1 c0"), "HD t-1 c0\r\n");
        assert_eq!(mask("HD l0 h1 l12"), "HD l# h1 l#\r\n");
        assert_eq!(mask("ME key exp=5 la=0 cas=1 fetch=yes"), "ME key fetch=yes\r\n");
        assert_eq!(tokens, [(Some(b"k".to_vec()), 77), (None, 9)]);
    }
}
