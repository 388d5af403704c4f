//! A client of the native protocol, over UDP and shared memory, built on the crate `client`.

use std::io::{Error, Result};

use client::{Condition, Config, Expiry, Op, RequestError, Set, Status, Token, Want};

use super::{Client, PATIENCE, bad};
use crate::linearizable::load::Asked;
use crate::linearizable::model::{Answer, Ask, Swap};
use crate::linearizable::value::Value;

/// Connects to `native://HOST:PORT` or `shm:PATH`.
pub fn connect(target: &str) -> Result<Box<dyn Client>> {
    let config = Config { timeout_ns: PATIENCE.as_nanos() as u64, ..Config::default() };
    let client = client::Client::connect_with(target, config).map_err(Error::other)?;
    Ok(Box::new(Native { client }))
}

struct Native {
    client: client::Client,
}

impl Client for Native {
    fn talk(
        &mut self,
        pipeline: &[Asked],
        reply_count: usize,
        cut: usize,
        take: &mut dyn FnMut(usize, Option<Answer>),
    ) -> Result<()> {
        let connection = self.client.connection();
        let mut waiting: Vec<(Token, usize)> = Vec::new();
        for (index, asked) in pipeline.iter().enumerate() {
            let token = connection.submit(&op(asked), want(asked)).map_err(Error::other)?;
            waiting.push((token, index));
            if index == cut % pipeline.len() {
                // What follows goes into another frame.
                connection.poll()?;
            }
        }
        connection.poll()?;
        let left_count = pipeline.len() - reply_count;
        while waiting.len() > left_count {
            connection.wait(None)?;
            while let Some(completion) = connection.next_completion() {
                let place = waiting.iter().position(|(token, _)| *token == completion.token);
                let place = place.ok_or_else(|| bad("an answer without a request".to_owned()))?;
                let (_, index) = waiting.remove(place);
                match completion.result {
                    Ok(answer) => take(index, Some(answer_of(&pipeline[index], &answer)?)),
                    Err(RequestError::Unknown) => take(index, None),
                    Err(error) => return Err(Error::other(error)),
                }
            }
        }
        Ok(())
    }

    /// What was not sent by now never is.
    fn die(self: Box<Self>, _last: &Asked) {}
}

fn op(asked: &Asked) -> Op<'_> {
    let (key, value) = (asked.name.as_bytes(), &asked.bytes[..]);
    let set = |condition| {
        Op::Set(Set { key, value, client_flags: 0, expiry: Expiry::Never, condition, part: None })
    };
    match asked.ask {
        Ask::Get | Ask::Gets => Op::Get { key, touch: None },
        Ask::Set(_) => set(Condition::Always),
        Ask::Add(_) => set(Condition::IfAbsent),
        Ask::CompareAndSwap { version, .. } => set(Condition::IfVersion(version)),
        Ask::Delete => Op::Delete { key, version: None },
        Ask::Append(_) => Op::Append { key, value },
        Ask::Increment => Op::Incr { key, delta: 1 },
        other => panic!("the native protocol has no {other:?}"),
    }
}

fn want(asked: &Asked) -> Want {
    if asked.ask == Ask::Gets { Want::VERSION } else { Want::PLAIN }
}

fn answer_of(asked: &Asked, answer: &client::Answer<'_>) -> Result<Answer> {
    let value = || Value::of(answer.value);
    let number = answer.number.map(|number| number as u64);
    Ok(match (asked.ask, answer.status, number) {
        (Ask::Get, Status::Ok, _) => Answer::Value(Some(value())),
        (Ask::Get, Status::Miss, _) => Answer::Value(None),
        (Ask::Gets, Status::Ok, _) => match answer.version {
            Some(version) => Answer::Versioned(Some((value(), version))),
            None => return Err(bad("a version is missing".to_owned())),
        },
        (Ask::Gets, Status::Miss, _) => Answer::Versioned(None),
        (Ask::Set(_), Status::Ok, _) => Answer::Done,
        (Ask::Add(_), Status::Ok, _) => Answer::Stored(true),
        (Ask::Add(_), Status::NotStored, _) => Answer::Stored(false),
        (Ask::Delete, Status::Ok, _) => Answer::Existed(true),
        (Ask::Delete, Status::Miss, _) => Answer::Existed(false),
        (Ask::Append(_), Status::Ok, Some(len_bytes)) => Answer::Length(len_bytes),
        (Ask::Increment, Status::Ok, Some(sum)) => Answer::Sum(Some(sum)),
        (Ask::Increment, Status::NotANumber, _) => Answer::NotANumber,
        (Ask::CompareAndSwap { .. }, Status::Ok, _) => Answer::Swap(Swap::Stored),
        (Ask::CompareAndSwap { .. }, Status::VersionMismatch, _) => Answer::Swap(Swap::Changed),
        (Ask::CompareAndSwap { .. }, Status::Miss, _) => Answer::Swap(Swap::Absent),
        (ask, status, _) => return Err(bad(format!("{ask:?} was answered {status:?}"))),
    })
}
