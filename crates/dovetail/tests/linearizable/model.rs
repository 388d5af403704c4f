//! A model of one key as a sequential object: the effect and the answer of each request.

use crate::linearizable::value::Value;

/// What is asked of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ask {
    Get,
    /// Get with the version (memcached's CAS token).
    Gets,
    Set(Value),
    /// Sets if the key is absent (SETNX, add).
    Add(Value),
    /// Sets and answers what was there (GETSET).
    Exchange(Value),
    /// Deletes and answers what was there (GETDEL).
    Take,
    Delete,
    /// Puts bytes behind the value; an absent key becomes them (Redis).
    Append(Value),
    /// The same; an absent key stays absent (memcached).
    AppendExisting(Value),
    /// Adds 1; an absent key becomes 1 (Redis).
    Increment,
    /// Adds 1; an absent key stays absent (memcached).
    IncrementExisting,
    /// Sets if the version is still this one.
    CompareAndSwap {
        version: u64,
        value: Value,
    },
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Value(Option<Value>),
    Versioned(Option<(Value, u64)>),
    Done,
    Existed(bool),
    Stored(bool),
    Length(u64),
    Sum(Option<u64>),
    NotANumber,
    Swap(Swap),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Swap {
    Stored,
    Changed,
    Absent,
}

/// One key. Versions are the server's to choose, so the object learns the current one from the
/// first answer that names it; a version that was learnt of another state never matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    value: Option<Value>,
    version: Option<u64>,
}

impl Register {
    /// What the key is after `ask`, if `answer` is what it answers; an answer that no client saw
    /// may have been any.
    pub fn step(self, ask: Ask, answer: Option<Answer>) -> Option<Register> {
        if let (Ask::Gets, Some(Answer::Versioned(Some((value, version))))) = (ask, answer) {
            let is_same = self.version.is_none_or(|known| known == version);
            let is_right = is_same && self.value == Some(value);
            return is_right.then_some(Register { version: Some(version), ..self });
        }
        let (next, right) = self.invoke(ask);
        answer.is_none_or(|answer| answer == right).then_some(next)
    }

    /// Whether the request can change neither the key nor what is known of it.
    pub fn is_pure(ask: Ask) -> bool {
        ask == Ask::Get
    }

    /// The key after `ask`, and the answer with the version left open.
    fn invoke(self, ask: Ask) -> (Register, Answer) {
        let written = |value: Value| Register { value: Some(value), version: None };
        let absent = Register::default();
        match ask {
            Ask::Get => (self, Answer::Value(self.value)),
            Ask::Gets => (self, Answer::Versioned(self.value.zip(self.version))),
            Ask::Set(value) => (written(value), Answer::Done),
            Ask::Add(value) => match self.value {
                None => (written(value), Answer::Stored(true)),
                Some(_) => (self, Answer::Stored(false)),
            },
            Ask::Exchange(value) => (written(value), Answer::Value(self.value)),
            Ask::Take => (absent, Answer::Value(self.value)),
            Ask::Delete => (absent, Answer::Existed(self.value.is_some())),
            Ask::Append(tail) => {
                let value = self.value.map_or(tail, |value| value.followed_by(tail));
                (written(value), Answer::Length(value.len_bytes()))
            }
            Ask::AppendExisting(tail) => match self.value {
                None => (self, Answer::Stored(false)),
                Some(value) => (written(value.followed_by(tail)), Answer::Stored(true)),
            },
            Ask::Increment | Ask::IncrementExisting => self.increment(ask),
            Ask::CompareAndSwap { version, value } => match self.value {
                None => (self, Answer::Swap(Swap::Absent)),
                Some(_) if self.version != Some(version) => (self, Answer::Swap(Swap::Changed)),
                Some(_) => (written(value), Answer::Swap(Swap::Stored)),
            },
        }
    }

    fn increment(self, ask: Ask) -> (Register, Answer) {
        let before = match self.value {
            None if ask == Ask::IncrementExisting => return (self, Answer::Sum(None)),
            None => Some(0),
            Some(value) => value.as_number(),
        };
        match before {
            None => (self, Answer::NotANumber),
            Some(before) => {
                let after = before + 1;
                let next = Register { value: Some(Value::number(after)), version: None };
                (next, Answer::Sum(Some(after)))
            }
        }
    }
}
