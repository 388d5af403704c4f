//! A client of the Redis protocol; each request uses one of its spellings.

use std::io::Result;

use super::{Protocol, Replies, bad};
use crate::linearizable::load::Asked;
use crate::linearizable::model::{Answer, Ask};
use crate::linearizable::value::Value;

pub struct Resp;

/// What comes back, before it is known what it answers.
#[derive(Debug)]
enum Reply {
    Words(String),
    Number(u64),
    Bulk(Option<Value>),
}

fn reply(from: &mut Replies) -> Result<Reply> {
    let line = from.line()?;
    let number = || line[1..].parse::<i64>().map_err(|_| bad(format!("a reply of {line:?}")));
    match line.as_bytes().first() {
        Some(b'+' | b'-') => Ok(Reply::Words(line)),
        Some(b':') => Ok(Reply::Number(number()? as u64)),
        Some(b'$') => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Bulk(None)),
            Ok(len_bytes) => Ok(Reply::Bulk(Some(Value::of(from.body(len_bytes)?)))),
        },
        Some(b'*') if line == "*1" => reply(from),
        _ => Err(bad(format!("a reply of {line:?}"))),
    }
}

impl Protocol for Resp {
    fn encode(&self, asked: &Asked, out: &mut Vec<u8>) {
        let (key, value) = (asked.name.as_bytes(), &asked.bytes[..]);
        let words: &[&[u8]] = match (asked.ask, asked.spelling % 3) {
            (Ask::Get, 0) => &[b"MGET", key],
            (Ask::Get, 1) => &[b"GETEX", key],
            (Ask::Get, _) => &[b"GET", key],
            (Ask::Set(_), 0) => &[b"MSET", key, value],
            (Ask::Set(_), 1) => &[b"SETEX", key, b"10000", value],
            (Ask::Set(_), _) => &[b"SET", key, value],
            (Ask::Add(_), 0) => &[b"SET", key, value, b"NX"],
            (Ask::Add(_), _) => &[b"SETNX", key, value],
            (Ask::Exchange(_), 0) => &[b"SET", key, value, b"GET"],
            (Ask::Exchange(_), _) => &[b"GETSET", key, value],
            (Ask::Take, _) => &[b"GETDEL", key],
            (Ask::Delete, 0) => &[b"UNLINK", key],
            (Ask::Delete, _) => &[b"DEL", key],
            (Ask::Append(_), _) => &[b"APPEND", key, value],
            (Ask::Increment, 0) => &[b"INCRBY", key, b"1"],
            (Ask::Increment, _) => &[b"INCR", key],
            (other, _) => panic!("Redis has no {other:?}"),
        };
        out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn decode(&self, asked: &Asked, from: &mut Replies) -> Result<Option<Answer>> {
        let reply = reply(from)?;
        let answer = match (asked.ask, reply) {
            (Ask::Get | Ask::Exchange(_) | Ask::Take, Reply::Bulk(value)) => Answer::Value(value),
            (Ask::Set(_), Reply::Words(words)) if words == "+OK" => Answer::Done,
            (Ask::Add(_), Reply::Words(words)) if words == "+OK" => Answer::Stored(true),
            (Ask::Add(_), Reply::Bulk(None) | Reply::Number(0)) => Answer::Stored(false),
            (Ask::Add(_), Reply::Number(1)) => Answer::Stored(true),
            (Ask::Delete, Reply::Number(count @ 0..=1)) => Answer::Existed(count == 1),
            (Ask::Append(_), Reply::Number(len_bytes)) => Answer::Length(len_bytes),
            (Ask::Increment, Reply::Number(sum)) => Answer::Sum(Some(sum)),
            (Ask::Increment, Reply::Words(words)) if words.contains("not an integer") => {
                Answer::NotANumber
            }
            (_, reply) => return Err(bad(format!("answered by {reply:?}"))),
        };
        Ok(Some(answer))
    }
}
