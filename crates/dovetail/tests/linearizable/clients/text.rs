//! A client of memcached's text protocol; half of the writes use `noreply`.

use std::io::Result;

use super::{Protocol, Replies, bad};
use store::request::token_base;

use crate::linearizable::load::Asked;
use crate::linearizable::model::{Answer, Ask, Swap};
use crate::linearizable::value::Value;

pub struct Text;

/// One write in four: more would leave little to check.
fn is_quiet(asked: &Asked) -> bool {
    !matches!(asked.ask, Ask::Get | Ask::Gets) && asked.spelling.is_multiple_of(4)
}

impl Protocol for Text {
    fn encode(&self, asked: &Asked, out: &mut Vec<u8>) {
        let (key, value) = (&asked.name, &asked.bytes);
        let quiet = if is_quiet(asked) { " noreply" } else { "" };
        let mut store = |verb: &str, token: &str| {
            let head = format!("{verb} {key} 0 0 {}{token}{quiet}\r\n", value.len());
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        };
        let line = match asked.ask {
            Ask::Set(_) => return store("set", ""),
            Ask::Add(_) => return store("add", ""),
            Ask::AppendExisting(_) => return store("append", ""),
            // The other protocols show the version alone (decision 0090).
            Ask::CompareAndSwap { version, .. } => {
                let token = version + token_base(key.as_bytes());
                return store("cas", &format!(" {token}"));
            }
            Ask::Get => format!("get {key}\r\n"),
            Ask::Gets => format!("gets {key}\r\n"),
            Ask::Delete => format!("delete {key}{quiet}\r\n"),
            Ask::IncrementExisting => format!("incr {key} 1{quiet}\r\n"),
            other => panic!("memcached has no {other:?}"),
        };
        out.extend_from_slice(line.as_bytes());
    }

    fn decode(&self, asked: &Asked, from: &mut Replies) -> Result<Option<Answer>> {
        if is_quiet(asked) {
            return Ok(None);
        }
        let line = from.line()?;
        let answer = match (asked.ask, line.as_str()) {
            (Ask::Get, "END") => Answer::Value(None),
            (Ask::Gets, "END") => Answer::Versioned(None),
            (Ask::Get | Ask::Gets, _) if line.starts_with("VALUE ") => hit(asked, &line, from)?,
            (Ask::Set(_), "STORED") => Answer::Done,
            (Ask::Add(_) | Ask::AppendExisting(_), "STORED") => Answer::Stored(true),
            (Ask::Add(_) | Ask::AppendExisting(_), "NOT_STORED") => Answer::Stored(false),
            (Ask::Delete, "DELETED") => Answer::Existed(true),
            (Ask::Delete, "NOT_FOUND") => Answer::Existed(false),
            (Ask::IncrementExisting, "NOT_FOUND") => Answer::Sum(None),
            (Ask::IncrementExisting, words) if words.contains("non-numeric") => Answer::NotANumber,
            (Ask::CompareAndSwap { .. }, "STORED") => Answer::Swap(Swap::Stored),
            (Ask::CompareAndSwap { .. }, "EXISTS") => Answer::Swap(Swap::Changed),
            (Ask::CompareAndSwap { .. }, "NOT_FOUND") => Answer::Swap(Swap::Absent),
            (Ask::IncrementExisting, digits) => {
                let sum = digits.parse().map_err(|_| bad(format!("answered by {digits:?}")))?;
                Answer::Sum(Some(sum))
            }
            (_, line) => return Err(bad(format!("answered by {line:?}"))),
        };
        Ok(Some(answer))
    }
}

/// `VALUE key flags length [version]`, the value, `END`.
fn hit(asked: &Asked, line: &str, from: &mut Replies) -> Result<Answer> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| {
        let number = words.get(at).and_then(|word| word.parse::<u64>().ok());
        number.ok_or_else(|| bad(format!("answered by {line:?}")))
    };
    if words[1] != asked.name {
        return Err(bad(format!("the value of another key: {line:?}")));
    }
    let value = Value::of(from.body(number(3)? as usize)?);
    let end = from.line()?;
    match (asked.ask, end.as_str()) {
        (Ask::Get, "END") => Ok(Answer::Value(Some(value))),
        (Ask::Gets, "END") => {
            let version = number(4)?.wrapping_sub(token_base(asked.name.as_bytes()));
            Ok(Answer::Versioned(Some((value, version))))
        }
        _ => Err(bad(format!("a value is followed by {end:?}"))),
    }
}
