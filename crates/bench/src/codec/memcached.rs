//! memcached's text protocol from the client's side: get of one or more keys, and set.

use std::ops::Range;

use super::{Codec, Parsed, Reply, body_end, line, number, printable, write_value_room};

/// Has no state: keys carry no length in this protocol.
pub(crate) struct MemcachedCodec;

impl Codec for MemcachedCodec {
    fn write_get(&self, key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"get ");
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
    }

    fn write_many_start(&self, _key_count: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"get");
    }

    fn write_many_key(&self, key: &[u8], out: &mut Vec<u8>) {
        out.push(b' ');
        out.extend_from_slice(key);
    }

    fn write_many_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n");
    }

    fn write_set(&self, key: &[u8], len_bytes: usize, out: &mut Vec<u8>) -> Range<usize> {
        out.extend_from_slice(b"set ");
        out.extend_from_slice(key);
        out.extend_from_slice(b" 0 0 ");
        write_value_room(len_bytes, out)
    }

    fn write_range(&self, _key: &[u8], _limit: u64, _out: &mut Vec<u8>) -> bool {
        false
    }

    fn parse<'a>(&self, input: &'a [u8]) -> Parsed<'a> {
        match parse(input) {
            Ok(parsed) => parsed,
            Err(reason) => Parsed::Bad { reason },
        }
    }
}

const REFUSALS: [&[u8]; 4] = [b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR", b"NOT_STORED"];

fn parse(input: &[u8]) -> Result<Parsed<'_>, String> {
    let Some((text, start)) = line(input)? else {
        return Ok(Parsed::NeedMore { at_least_bytes: input.len() + 1 });
    };
    let done = |reply| Ok(Parsed::Done { reply, consumed_bytes: start });
    match text {
        b"END" => return done(Reply::End),
        b"STORED" => return done(Reply::Stored),
        _ if REFUSALS.iter().any(|word| text.starts_with(word)) => {
            return done(Reply::Refused(text));
        }
        _ => {}
    }
    let bad = || format!("unexpected reply {}", printable(text));
    let mut words = text.split(|byte| *byte == b' ');
    let (name, key, _flags, len) = (words.next(), words.next(), words.next(), words.next());
    let (Some(b"VALUE"), Some(key), Some(len)) = (name, key, len) else {
        return Err(bad());
    };
    let len = number(len).and_then(|len| usize::try_from(len).ok()).ok_or_else(bad)?;
    Ok(match body_end(input, start, len)? {
        None => Parsed::NeedMore { at_least_bytes: start + len + 2 },
        Some(end) => {
            let reply = Reply::ValueOf { key, value: &input[start..end - 2] };
            Parsed::Done { reply, consumed_bytes: end }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], reply: Reply<'_>, consumed_bytes: usize) {
        assert_eq!(MemcachedCodec.parse(input), Parsed::Done { reply, consumed_bytes });
        for len in 0..consumed_bytes {
            let cut = MemcachedCodec.parse(&input[..len]);
            assert!(matches!(cut, Parsed::NeedMore { .. }), "cut at {len}: {cut:?}");
        }
    }

    #[test]
    fn replies_are_read_whole_or_not_at_all() {
        check(b"STORED\r\n", Reply::Stored, 8);
        check(b"END\r\nSTORED\r\n", Reply::End, 5);
        let value = Reply::ValueOf { key: b"k", value: b"a\r\nb" };
        check(b"VALUE k 0 4\r\na\r\nb\r\nEND\r\n", value, 19);
        let value = Reply::ValueOf { key: b"k", value: b"" };
        check(b"VALUE k 7 0 99\r\n\r\n", value, 18);
        check(b"SERVER_ERROR out of memory\r\n", Reply::Refused(b"SERVER_ERROR out of memory"), 28);
    }

    #[test]
    fn what_is_not_memcached_is_bad() {
        for input in
            [&b"+OK\r\n"[..], b"VALUE k 0\r\n", b"VALUE k 0 x\r\n", b"VALUE k 0 1\r\nabc\r\n"]
        {
            assert!(matches!(MemcachedCodec.parse(input), Parsed::Bad { .. }), "{input:?}");
        }
    }

    #[test]
    fn a_multi_get_is_one_line() {
        let mut out = Vec::new();
        MemcachedCodec.write_many_start(2, &mut out);
        MemcachedCodec.write_many_key(b"a", &mut out);
        MemcachedCodec.write_many_key(b"b", &mut out);
        MemcachedCodec.write_many_end(&mut out);
        assert_eq!(out, b"get a b\r\n");
    }
}
