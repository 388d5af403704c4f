//! Clients' sessions: the last answers to each client, so that no request is executed twice (K24).

use std::collections::BTreeMap;

use crate::ids::ClientId;
use crate::message::{Answer, Outcome};
use crate::record::{Answered, Entry, Session, parse_integer};

/// The sessions of one shard. A client has one write under way at a time; its next write replaces
/// the memory of the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    answers: BTreeMap<ClientId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    answer: Answer,
    is_pending: bool,
}

/// Whether a request was seen before, and with which result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Never,
    /// It is under way and will be answered.
    Pending,
    /// It was executed.
    Answered(Outcome),
    /// A later request of the client was seen: the client does not wait for this one any more.
    Overtaken,
}

impl Sessions {
    pub(super) fn look_up(&self, client: ClientId, sequence: u64) -> Seen {
        match self.answers.get(&client) {
            Some(known) if known.answer.sequence > sequence => Seen::Overtaken,
            Some(known) if known.answer.sequence == sequence && known.is_pending => Seen::Pending,
            Some(known) if known.answer.sequence == sequence => {
                Seen::Answered(known.answer.outcome.clone())
            }
            _ => Seen::Never,
        }
    }

    /// Notes that a write of the client is under way.
    pub(super) fn begin(&mut self, client: ClientId, answer: Answer) {
        self.answers.insert(client, Known { answer, is_pending: true });
    }

    /// Notes that a write under way was given up without being executed.
    pub(super) fn take_back(&mut self, client: ClientId, sequence: u64) {
        let known = self.answers.get(&client);
        if known.is_some_and(|known| known.is_pending && known.answer.sequence == sequence) {
            self.answers.remove(&client);
        }
    }

    /// Notes that a write of the client was executed, here or elsewhere.
    pub(super) fn settle(&mut self, client: ClientId, answer: Answer) {
        let is_news =
            self.answers.get(&client).is_none_or(|known| known.answer.sequence <= answer.sequence);
        if is_news {
            self.answers.insert(client, Known { answer, is_pending: false });
        }
    }

    pub(super) fn settle_entry(&mut self, entry: &Entry) {
        if entry.client.is_anonymous() {
            return;
        }
        self.settle(entry.client, answer_of(entry));
    }

    /// The executed writes, without those under way.
    pub(super) fn settled(&self) -> Vec<(ClientId, Answer)> {
        let settled = self.answers.iter().filter(|(_, known)| !known.is_pending);
        settled.map(|(client, known)| (*client, known.answer.clone())).collect()
    }
}

/// The answer that the client of an entry got or would have got.
fn answer_of(entry: &Entry) -> Answer {
    let integer = entry.value.as_deref().and_then(parse_integer);
    let outcome = outcome_of(entry.answered, integer);
    Answer { sequence: entry.sequence, version: entry.version, outcome }
}

pub(super) fn outcome_of(answered: Answered, integer: Option<i64>) -> Outcome {
    match answered {
        Answered::Done => Outcome::Done,
        Answered::Integer => Outcome::Integer(integer.unwrap_or_default()),
        Answered::Deleted(was_there) => Outcome::Deleted(was_there),
    }
}

/// Encodes an answer as a record of a log.
pub(super) fn record_of(shard: crate::ids::ShardId, client: ClientId, answer: &Answer) -> Session {
    let (answered, integer) = match answer.outcome {
        Outcome::Integer(integer) => (Answered::Integer, Some(integer)),
        Outcome::Deleted(was_there) => (Answered::Deleted(was_there), None),
        _ => (Answered::Done, None),
    };
    let Answer { sequence, version, .. } = *answer;
    Session { shard, version, client, sequence, answered, integer }
}
