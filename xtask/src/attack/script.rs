//! The script of a connection: a beginning, a repeated part, an end; generated while it is sent.

use crate::conformance::reply::multibulk;

/// A byte string that may be longer than memory.
#[derive(Clone, Debug, Default)]
pub struct Script {
    head: Vec<u8>,
    body: Vec<u8>,
    times: u64,
    tail: Vec<u8>,
}

impl Script {
    /// These bytes, once.
    pub fn once(head: impl Into<Vec<u8>>) -> Script {
        Script { head: head.into(), ..Script::default() }
    }

    /// These bytes, repeated.
    pub fn repeat(body: impl Into<Vec<u8>>, times: u64) -> Script {
        Script { body: body.into(), times, ..Script::default() }
    }

    /// One RESP command whose last `times` arguments are the same.
    pub fn wide(words: &str, word: &str, times: u64) -> Script {
        let first: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
        let mut head = format!("*{}\r\n", first.len() as u64 + times).into_bytes();
        first.iter().for_each(|word| push_bulk(&mut head, word));
        let mut body = Vec::new();
        push_bulk(&mut body, word.as_bytes());
        Script { head, body, times, tail: Vec::new() }
    }

    /// The same after other bytes.
    pub fn behind(mut self, before: &[u8]) -> Script {
        self.head.splice(0..0, before.iter().copied());
        self
    }

    /// The same before other bytes.
    pub fn before(mut self, after: &[u8]) -> Script {
        self.tail.extend_from_slice(after);
        self
    }

    /// Bytes of the whole.
    pub fn len(&self) -> u64 {
        self.head.len() as u64 + self.body.len() as u64 * self.times + self.tail.len() as u64
    }

    /// Replaces `out` by the bytes from `at` on, at most `max` of them; none at the end.
    pub fn read(&self, at: u64, max: usize, out: &mut Vec<u8>) {
        out.clear();
        let end = self.len().min(at.saturating_add(max as u64));
        let mut at = at;
        let (head, body) = (self.head.len() as u64, self.body.len() as u64);
        let tail_start = head + body * self.times;
        while at < end {
            let rest = if at < head {
                &self.head[at as usize..]
            } else if at < tail_start {
                &self.body[((at - head) % body) as usize..]
            } else {
                &self.tail[(at - tail_start) as usize..]
            };
            let taken = rest.len().min((end - at) as usize);
            out.extend_from_slice(&rest[..taken]);
            at += taken as u64;
        }
    }
}

fn push_bulk(out: &mut Vec<u8>, word: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// A RESP command of words without spaces.
pub fn command(line: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    multibulk(words.into_iter())
}

/// Several RESP commands, one for each line.
pub fn commands(lines: impl IntoIterator<Item = String>) -> Vec<u8> {
    lines.into_iter().flat_map(|line| command(&line)).collect()
}

/// A request of memcached's binary protocol, its announced body as long as `body` and `missing`.
pub fn binary(opcode: u8, extras: usize, key: &[u8], body: &[u8], missing: u32) -> Vec<u8> {
    let mut request = vec![0x80, opcode];
    request.extend_from_slice(&(key.len() as u16).to_be_bytes());
    request.extend_from_slice(&[extras as u8, 0, 0, 0]);
    request.extend_from_slice(&(body.len() as u32).saturating_add(missing).to_be_bytes());
    request.resize(24, 0);
    request.extend_from_slice(body);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(script: &Script, piece: usize) -> Vec<u8> {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        loop {
            script.read(bytes.len() as u64, piece, &mut out);
            if out.is_empty() {
                return bytes;
            }
            assert!(out.len() <= piece);
            bytes.extend_from_slice(&out);
        }
    }

    #[test]
    fn a_script_is_the_same_bytes_in_pieces_of_any_length() {
        let script = Script::repeat("abc", 3).behind(b"<<").before(b">");
        for piece in 1..20 {
            assert_eq!(whole(&script, piece), b"<<abcabcabc>", "{piece}");
        }
        assert_eq!(script.len(), 12);
        assert_eq!(whole(&Script::once("xy"), 5), b"xy");
        assert_eq!(whole(&Script::default(), 5), b"");
    }

    #[test]
    fn a_wide_command_announces_all_its_arguments() {
        let script = Script::wide("COMMAND DOCS", "get", 2);
        let want = multibulk([&b"COMMAND"[..], b"DOCS", b"get", b"get"].into_iter());
        assert_eq!(whole(&script, 7), want);
    }

    #[test]
    fn a_binary_request_announces_what_is_missing_too() {
        let request = binary(1, 8, b"k", b"\0\0\0\0\0\0\0\0k", 1000);
        assert_eq!(&request[..6], [0x80, 1, 0, 1, 8, 0]);
        assert_eq!(&request[8..12], [0, 0, 3, 0xf1]);
        assert_eq!(request.len(), 24 + 9);
    }
}
