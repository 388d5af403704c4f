//! RESP2 and RESP3 from the client's side: GET, MGET, SET, AUTH, and Dovetail's KV.RANGE.

use std::ops::Range;

use super::{Codec, Parsed, Reply, body_end, line, number, printable, write_value_room};

/// Writes requests; the headers for keys of the commonest length are formed once.
pub(crate) struct RespCodec {
    key_len_bytes: usize,
    get_start: Vec<u8>,
    key_start: Vec<u8>,
    set_start: Vec<u8>,
}

const GET_HEAD: &str = "*2\r\n$3\r\nGET\r\n";
const SET_HEAD: &str = "*3\r\n$3\r\nSET\r\n";

impl RespCodec {
    pub(crate) fn new(key_len_bytes: usize) -> RespCodec {
        RespCodec {
            key_len_bytes,
            get_start: format!("{GET_HEAD}${key_len_bytes}\r\n").into_bytes(),
            key_start: format!("${key_len_bytes}\r\n").into_bytes(),
            set_start: format!("{SET_HEAD}${key_len_bytes}\r\n").into_bytes(),
        }
    }

    /// `start` (which ends with the length of most keys) and the key, or `head` and a key of
    /// another length.
    fn write_key(&self, start: &[u8], head: &str, key: &[u8], out: &mut Vec<u8>) {
        if key.len() != self.key_len_bytes {
            out.extend_from_slice(head.as_bytes());
            write_bulk(key, out);
            return;
        }
        out.extend_from_slice(start);
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
    }

    /// The request that logs in.
    pub(crate) fn auth(password: &str) -> Vec<u8> {
        format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len()).into_bytes()
    }
}

impl Codec for RespCodec {
    fn write_get(&self, key: &[u8], out: &mut Vec<u8>) {
        self.write_key(&self.get_start, GET_HEAD, key, out);
    }

    fn write_many_start(&self, key_count: usize, out: &mut Vec<u8>) {
        out.push(b'*');
        out.extend_from_slice(itoa::Buffer::new().format(key_count + 1).as_bytes());
        out.extend_from_slice(b"\r\n$4\r\nMGET\r\n");
    }

    fn write_many_key(&self, key: &[u8], out: &mut Vec<u8>) {
        self.write_key(&self.key_start, "", key, out);
    }

    fn write_many_end(&self, _out: &mut Vec<u8>) {}

    fn write_set(&self, key: &[u8], len_bytes: usize, out: &mut Vec<u8>) -> Range<usize> {
        self.write_key(&self.set_start, SET_HEAD, key, out);
        out.push(b'$');
        write_value_room(len_bytes, out)
    }

    fn write_range(&self, key: &[u8], limit: u64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(b"*5\r\n$8\r\nKV.RANGE\r\n");
        // Bounds as in ZRANGEBYLEX: from this key on, it too, to the last.
        out.push(b'$');
        out.extend_from_slice(itoa::Buffer::new().format(key.len() + 1).as_bytes());
        out.extend_from_slice(b"\r\n[");
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
        write_bulk(b"+", out);
        write_bulk(b"LIMIT", out);
        write_bulk(itoa::Buffer::new().format(limit).as_bytes(), out);
        true
    }

    fn parse<'a>(&self, input: &'a [u8]) -> Parsed<'a> {
        match parse(input) {
            Ok(parsed) => parsed,
            Err(reason) => Parsed::Bad { reason },
        }
    }
}

fn write_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn parse(input: &[u8]) -> Result<Parsed<'_>, String> {
    let Some((text, start)) = line(input)? else {
        return Ok(Parsed::NeedMore { at_least_bytes: input.len() + 1 });
    };
    let done = |reply| Ok(Parsed::Done { reply, consumed_bytes: start });
    let bad = || format!("unexpected reply {}", printable(text));
    let (kind, rest) = text.split_first().ok_or_else(bad)?;
    match kind {
        b'+' if rest == b"OK" => done(Reply::Stored),
        b'-' | b'!' => done(Reply::Refused(rest)),
        b'_' => done(Reply::Miss),
        b'*' => {
            let count = number(rest).and_then(|count| usize::try_from(count).ok());
            done(Reply::Many { count: count.ok_or_else(bad)? })
        }
        b'$' => match number(rest) {
            Some(-1) => done(Reply::Miss),
            Some(len) => {
                let len = usize::try_from(len).map_err(|_| bad())?;
                Ok(match body_end(input, start, len)? {
                    None => Parsed::NeedMore { at_least_bytes: start + len + 2 },
                    Some(end) => Parsed::Done {
                        reply: Reply::Value(&input[start..end - 2]),
                        consumed_bytes: end,
                    },
                })
            }
            None => Err(bad()),
        },
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], reply: Reply<'_>, consumed_bytes: usize) {
        let codec = RespCodec::new(3);
        assert_eq!(codec.parse(input), Parsed::Done { reply, consumed_bytes });
        for len in 0..consumed_bytes {
            let cut = codec.parse(&input[..len]);
            assert!(matches!(cut, Parsed::NeedMore { .. }), "cut at {len}: {cut:?}");
        }
    }

    #[test]
    fn replies_are_read_whole_or_not_at_all() {
        check(b"+OK\r\n+OK\r\n", Reply::Stored, 5);
        check(b"$5\r\na\r\nbc\r\n", Reply::Value(b"a\r\nbc"), 11);
        check(b"$0\r\n\r\n", Reply::Value(b""), 6);
        check(b"$-1\r\n", Reply::Miss, 5);
        check(b"_\r\n", Reply::Miss, 3);
        check(b"*2\r\n$-1\r\n", Reply::Many { count: 2 }, 4);
        check(b"-ERR no\r\n", Reply::Refused(b"ERR no"), 9);
    }

    #[test]
    fn what_is_not_resp_is_bad() {
        for input in
            [&b"HTTP/1.1 400\r\n"[..], b"\r\n", b"$x\r\n", b"$-2\r\n", b"+OK\n", b"$1\r\nabc\r\n"]
        {
            let parsed = RespCodec::new(3).parse(input);
            assert!(matches!(parsed, Parsed::Bad { .. }), "{input:?}: {parsed:?}");
        }
    }

    #[test]
    fn requests_are_arrays_of_bulk_strings() {
        let codec = RespCodec::new(3);
        let mut out = Vec::new();
        codec.write_get(b"abc", &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n");
        out.clear();
        let value = codec.write_set(b"abc", 2, &mut out);
        out[value].copy_from_slice(b"xy");
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\nabc\r\n$2\r\nxy\r\n");
        out.clear();
        codec.write_many_start(2, &mut out);
        codec.write_many_key(b"abc", &mut out);
        codec.write_many_key(b"def", &mut out);
        codec.write_many_end(&mut out);
        assert_eq!(out, b"*3\r\n$4\r\nMGET\r\n$3\r\nabc\r\n$3\r\ndef\r\n");
        out.clear();
        codec.write_get(b"abcde", &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$5\r\nabcde\r\n");
        out.clear();
        assert!(codec.write_range(b"abc", 50, &mut out));
        let want = b"*5\r\n$8\r\nKV.RANGE\r\n$4\r\n[abc\r\n$1\r\n+\r\n$5\r\nLIMIT\r\n$2\r\n50\r\n";
        assert_eq!(out, want);
    }
}
