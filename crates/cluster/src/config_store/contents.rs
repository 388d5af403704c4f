//! What a config store keeps: values, claims, and sessions without a clock.
//!
//! ```text
//!  EmbeddedConfigStore  = Contents + the time at which each session was last heard
//!  a quorum's member    = Contents, replayed from a log that all members have (decision 0116)
//! ```
//!
//! # Invariants
//! A1: contents that took the same requests and endings in the same order are equal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config_store::{Answer, Ask, Path, Request, Response, SessionId, Stamp};

/// The most sessions at a time; a request to open another is answered `Expired`.
const SESSIONS_MAX: usize = 4096;

/// The most watches of a session on one path; another one replaces the oldest.
const WATCHES_MAX: usize = 4;

/// Values, claims and sessions. Requests are applied in the order in which they come (Z1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    sessions: BTreeMap<SessionId, Session>,
    session_count: u64,
    values: BTreeMap<Path, Value>,
}

/// A session's part of the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The silence after which it may be ended.
    pub timeout_ns: u64,
    /// The number of its requests.
    pub requests: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Value {
    stamp: Stamp,
    bytes: Option<Arc<[u8]>>,
    holder: Option<SessionId>,
    watchers: VecDeque<(SessionId, u64)>,
}

impl Contents {
    /// Applies one request; appends its answer, and the notifications of watching sessions, to
    /// `responses`.
    pub fn input(&mut self, request: Request, responses: &mut Vec<Response>) {
        let Request { session, id, ask } = request;
        let answer = match (session, ask) {
            (_, Ask::Open { timeout_ns }) => Some(self.open(timeout_ns)),
            (Some(session), ask) if self.hear(session) => self.serve(session, id, ask, responses),
            _ => Some(Answer::Expired),
        };
        responses.extend(answer.map(|answer| Response { session, id, answer }));
    }

    /// Ends a session: its claims are gone, and watching sessions are notified (Z3, Z4).
    pub fn end(&mut self, session: SessionId, responses: &mut Vec<Response>) {
        self.sessions.remove(&session);
        for (path, value) in &mut self.values {
            value.watchers.retain(|(watcher, _)| *watcher != session);
            if value.holder == Some(session) {
                value.holder = None; // Z3
                value.replace(*path, None, responses);
            }
        }
    }

    /// The open sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, Session)> + '_ {
        self.sessions.iter().map(|(id, session)| (*id, *session))
    }

    /// An open session.
    pub fn session(&self, session: SessionId) -> Option<Session> {
        self.sessions.get(&session).copied()
    }

    /// Whether a session is still to be notified by this request to watch.
    pub fn is_watching(&self, session: SessionId, id: u64) -> bool {
        self.values.values().any(|value| value.watchers.contains(&(session, id)))
    }

    /// The value of a path, for inspection.
    pub fn value(&self, path: Path) -> Option<&Arc<[u8]>> {
        self.values.get(&path)?.bytes.as_ref()
    }

    fn open(&mut self, timeout_ns: u64) -> Answer {
        if self.sessions.len() >= SESSIONS_MAX {
            return Answer::Expired;
        }
        self.session_count += 1;
        let session = SessionId(self.session_count);
        self.sessions.insert(session, Session { timeout_ns, requests: 1 });
        Answer::Opened(session)
    }

    fn hear(&mut self, session: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&session) else { return false };
        session.requests += 1;
        true
    }

    fn serve(
        &mut self,
        session: SessionId,
        id: u64,
        ask: Ask,
        responses: &mut Vec<Response>,
    ) -> Option<Answer> {
        match ask {
            Ask::Open { .. } | Ask::Beat => Some(Answer::Alive),
            Ask::Read(path) => {
                let value = self.values.entry(path).or_default();
                Some(Answer::Value(value.stamp, value.bytes.clone()))
            }
            Ask::Watch(path) => {
                self.values.entry(path).or_default().watch(session, id);
                None
            }
            Ask::Write { path, expected, value } => {
                let found = self.values.entry(path).or_default();
                if found.stamp != expected {
                    return Some(Answer::Conflict(found.stamp)); // Z2
                }
                Some(Answer::Written(found.replace(path, Some(value), responses)))
            }
            Ask::Claim { path, value } => {
                let found = self.values.entry(path).or_default();
                if found.holder.is_some_and(|holder| holder != session) {
                    return Some(Answer::Held); // Z3
                }
                if found.holder.is_none() {
                    found.holder = Some(session);
                    found.replace(path, Some(value), responses);
                }
                Some(Answer::Claimed)
            }
        }
    }
}

impl Value {
    fn watch(&mut self, session: SessionId, id: u64) {
        let is_its = |watcher: &(SessionId, u64)| watcher.0 == session;
        if self.watchers.iter().filter(|watcher| is_its(watcher)).count() >= WATCHES_MAX {
            let oldest = self.watchers.iter().position(is_its);
            oldest.and_then(|at| self.watchers.remove(at));
        }
        self.watchers.push_back((session, id));
    }

    fn replace(
        &mut self,
        path: Path,
        bytes: Option<Arc<[u8]>>,
        responses: &mut Vec<Response>,
    ) -> Stamp {
        self.stamp.0 += 1;
        self.bytes = bytes;
        let told = self.watchers.drain(..).map(|(session, id)| Response {
            session: Some(session),
            id,
            answer: Answer::Changed(path),
        });
        responses.extend(told); // Z4
        self.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(contents: &mut Contents, session: u64, id: u64, ask: Ask) -> Vec<(u64, Answer)> {
        let mut responses = Vec::new();
        let session = Some(SessionId(session));
        contents.input(Request { session, id, ask }, &mut responses);
        responses.into_iter().map(|response| (response.id, response.answer)).collect()
    }

    fn opened() -> Contents {
        let mut contents = Contents::default();
        ask(&mut contents, 0, 0, Ask::Open { timeout_ns: 1 });
        contents
    }

    #[test]
    fn the_newest_watches_of_a_session_are_kept() {
        let mut contents = opened();
        for id in 1..=6 {
            assert_eq!(ask(&mut contents, 1, id, Ask::Watch(Path::Leader)), []);
        }
        let watched: Vec<u64> =
            (1..=6).filter(|id| contents.is_watching(SessionId(1), *id)).collect();
        assert_eq!(watched, [3, 4, 5, 6]);
        let claim = Ask::Claim { path: Path::Leader, value: (*b"one").into() };
        let told = ask(&mut contents, 1, 7, claim);
        assert_eq!(told.len(), 5, "four notifications and the answer: {told:?}");
        assert!(!contents.is_watching(SessionId(1), 6));
    }

    #[test]
    fn sessions_are_bounded() {
        let mut contents = Contents::default();
        for _ in 0..SESSIONS_MAX {
            let answers = ask(&mut contents, 0, 0, Ask::Open { timeout_ns: 1 });
            assert!(matches!(answers[..], [(0, Answer::Opened(_))]), "{answers:?}");
        }
        let full = ask(&mut contents, 0, 0, Ask::Open { timeout_ns: 1 });
        assert_eq!(full, [(0, Answer::Expired)]);
        contents.end(SessionId(1), &mut Vec::new());
        let answers = ask(&mut contents, 0, 0, Ask::Open { timeout_ns: 1 });
        assert!(matches!(answers[..], [(0, Answer::Opened(_))]), "{answers:?}");
    }
}
