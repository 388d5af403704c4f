//! For tests: string commands, and a plain store of one value per key that runs them.

use std::collections::BTreeMap;

use base::KeyHash;

use super::execute::{Change, Executor, FinalWrite};
use super::operation::{Compactable, ConnectionId, Effect};

/// The commands that the rules name (K8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Get,
    Set(&'static str),
    SetExpiring(&'static str),
    SetNx(&'static str),
    SetXx(&'static str),
    SetGet(&'static str),
    SetKeepTtl(&'static str),
    Del,
    GetDel,
    Incr,
    Append(&'static str),
    Cas { token: u64, bytes: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub id: usize,
    pub key: &'static str,
    pub connection: u64,
    pub command: Command,
}

/// The reply to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Nil,
    Bytes(Vec<u8>),
    Integer(i64),
    NotAnInteger,
    Exists,
    NotFound,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub bytes: Vec<u8>,
    pub expires: bool,
    /// `None` while no token has been assigned to it.
    pub version: Option<u64>,
}

/// One value per key, and the number of accesses.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub values: BTreeMap<&'static str, Value>,
    pub next_version: u64,
    pub load_count: usize,
    pub write_count: usize,
    pub is_full: bool,
}

pub fn operation(id: usize, connection: u64, command: Command) -> Operation {
    Operation { id, key: "key", connection, command }
}

impl Compactable for Operation {
    /// All keys share one hash, so that only a full comparison distinguishes them (K8).
    fn key_hash(&self) -> KeyHash {
        KeyHash(7)
    }

    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    fn effect(&self) -> Effect {
        match self.command {
            Command::Get => Effect::Read,
            Command::Set(_) | Command::SetExpiring(_) => Effect::Set,
            Command::Del => Effect::Delete,
            _ => Effect::Modify,
        }
    }

    fn connection(&self) -> ConnectionId {
        ConnectionId(self.connection)
    }
}

impl Command {
    /// Executes the command on `value`, as Redis and memcached require.
    pub fn run(&self, value: &mut Option<Value>) -> (Answer, Change) {
        let found = value.clone();
        let before = || found.clone().map_or(Answer::Nil, |value| Answer::Bytes(value.bytes));
        let answer = match self {
            Command::Get => before(),
            Command::Set(bytes) => put(value, bytes, false),
            Command::SetExpiring(bytes) => put(value, bytes, true),
            Command::SetNx(_) if found.is_some() => Answer::Nil,
            Command::SetNx(bytes) => put(value, bytes, false),
            Command::SetXx(_) if found.is_none() => Answer::Nil,
            Command::SetXx(bytes) => put(value, bytes, false),
            Command::SetGet(bytes) => {
                put(value, bytes, false);
                before()
            }
            Command::SetKeepTtl(bytes) => {
                put(value, bytes, found.as_ref().is_some_and(|value| value.expires))
            }
            Command::Del => {
                *value = None;
                Answer::Integer(i64::from(found.is_some()))
            }
            Command::GetDel => {
                *value = None;
                before()
            }
            Command::Incr => increment(value),
            Command::Append(bytes) => append(value, bytes),
            Command::Cas { token, bytes } => compare_and_set(value, *token, bytes),
        };
        let change = if *value == found { Change::Unchanged } else { Change::Changed };
        (answer, change)
    }
}

fn put(value: &mut Option<Value>, bytes: &str, expires: bool) -> Answer {
    *value = Some(Value { bytes: bytes.into(), expires, version: None });
    Answer::Ok
}

fn increment(value: &mut Option<Value>) -> Answer {
    let bytes = value.as_ref().map_or(&b"0"[..], |value| &value.bytes);
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
    let Some(sum) = number.and_then(|number| number.checked_add(1)) else {
        return Answer::NotAnInteger;
    };
    let expires = value.as_ref().is_some_and(|value| value.expires);
    put(value, &sum.to_string(), expires);
    Answer::Integer(sum)
}

fn append(value: &mut Option<Value>, bytes: &str) -> Answer {
    let mut value_after =
        value.take().unwrap_or(Value { bytes: vec![], expires: false, version: None });
    value_after.bytes.extend_from_slice(bytes.as_bytes());
    value_after.version = None;
    let len_bytes = value_after.bytes.len() as i64;
    *value = Some(value_after);
    Answer::Integer(len_bytes)
}

fn compare_and_set(value: &mut Option<Value>, token: u64, bytes: &str) -> Answer {
    match value {
        None => Answer::NotFound,
        Some(found) if found.version != Some(token) => Answer::Exists,
        Some(_) => put(value, bytes, false),
    }
}

impl Store {
    /// Executes one operation by itself, without windows.
    pub fn run(&mut self, operation: &Operation) -> Answer {
        let mut value = self.values.get(operation.key).cloned();
        let (answer, change) = operation.command.run(&mut value);
        if change == Change::Changed {
            self.put(operation.key, value);
        }
        answer
    }

    fn put(&mut self, key: &'static str, value: Option<Value>) {
        self.write_count += 1;
        self.next_version += 1;
        let version = Some(self.next_version);
        match value {
            Some(value) => self.values.insert(key, Value { version, ..value }),
            None => self.values.remove(key),
        };
    }

    /// Bytes and expiry of every key; versions differ, because windows write less often.
    pub fn contents(&self) -> Vec<(&'static str, Vec<u8>, bool)> {
        self.values.iter().map(|(key, v)| (*key, v.bytes.clone(), v.expires)).collect()
    }
}

impl Executor<Operation> for Store {
    type Value = Value;
    type Reply = (usize, Answer);
    type Error = ();

    fn load(&mut self, operation: &Operation) -> Option<Value> {
        self.load_count += 1;
        self.values.get(operation.key).cloned()
    }

    fn value_of(&mut self, set: &Operation) -> Value {
        let mut value = None;
        set.command.run(&mut value);
        value.expect("a SET leaves a value")
    }

    fn replay(
        &mut self,
        operation: &Operation,
        value: &mut Option<Value>,
    ) -> ((usize, Answer), Change) {
        let (answer, change) = operation.command.run(value);
        ((operation.id, answer), change)
    }

    fn reply_stored(&mut self, set: &Operation) -> (usize, Answer) {
        (set.id, Answer::Ok)
    }

    fn reply_removed(&mut self, delete: &Operation, found: bool) -> (usize, Answer) {
        (delete.id, Answer::Integer(i64::from(found)))
    }

    fn write(&mut self, write: FinalWrite<'_, Operation, Value>) -> Result<(), ()> {
        if self.is_full {
            return Err(());
        }
        match write {
            FinalWrite::Operation(operation) => {
                self.run(operation);
            }
            FinalWrite::Value { operation, value } => self.put(operation.key, value),
        }
        Ok(())
    }
}
