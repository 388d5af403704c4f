//! A config store in memory: for a single node, for tests and for the fault simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Instant;

use crate::config_store::{Answer, Ask, Path, Request, Response, SessionId, Stamp};
use crate::settings::after;

/// The whole config store. Requests are applied in the order in which they come (Z1).
#[derive(Debug, Default)]
pub struct EmbeddedConfigStore {
    sessions: BTreeMap<SessionId, Session>,
    session_count: u64,
    values: BTreeMap<Path, Value>,
}

#[derive(Debug)]
struct Session {
    timeout_ns: u64,
    expires_at: Instant,
}

#[derive(Debug, Default)]
struct Value {
    stamp: Stamp,
    bytes: Option<Arc<[u8]>>,
    holder: Option<SessionId>,
    watchers: Vec<(SessionId, u64)>,
}

impl EmbeddedConfigStore {
    /// Applies one request; appends its answer, and the notifications of watching sessions, to
    /// `responses`.
    pub fn input(&mut self, request: Request, now: Instant, responses: &mut Vec<Response>) {
        self.expire(now, responses);
        let Request { session, id, ask } = request;
        let answer = match (session, ask) {
            (_, Ask::Open { timeout_ns }) => self.open(timeout_ns, now),
            (Some(session), ask) if self.beat(session, now) => {
                self.serve(session, id, ask, responses)
            }
            _ => Some(Answer::Expired),
        };
        responses.extend(answer.map(|answer| Response { session, id, answer }));
    }

    /// Ends the sessions that have been silent for longer than their timeouts.
    pub fn expire(&mut self, now: Instant, responses: &mut Vec<Response>) {
        let is_over = |session: &Session| session.expires_at <= now;
        let over: Vec<SessionId> =
            self.sessions.iter().filter(|(_, one)| is_over(one)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|session| self.end(session, responses));
    }

    /// The value of a path, for inspection.
    pub fn value(&self, path: Path) -> Option<&Arc<[u8]>> {
        self.values.get(&path)?.bytes.as_ref()
    }

    fn open(&mut self, timeout_ns: u64, now: Instant) -> Option<Answer> {
        self.session_count += 1;
        let session = SessionId(self.session_count);
        let expires_at = after(now, timeout_ns);
        self.sessions.insert(session, Session { timeout_ns, expires_at });
        Some(Answer::Opened(session))
    }

    fn beat(&mut self, session: SessionId, now: Instant) -> bool {
        let Some(session) = self.sessions.get_mut(&session) else { return false };
        session.expires_at = after(now, session.timeout_ns);
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
                self.values.entry(path).or_default().watchers.push((session, id));
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

    fn end(&mut self, session: SessionId, responses: &mut Vec<Response>) {
        self.sessions.remove(&session);
        for (path, value) in &mut self.values {
            value.watchers.retain(|(watcher, _)| *watcher != session);
            if value.holder == Some(session) {
                value.holder = None; // Z3
                value.replace(*path, None, responses);
            }
        }
    }
}

impl Value {
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

    struct Bench {
        config_store: EmbeddedConfigStore,
        now: Instant,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { config_store: EmbeddedConfigStore::default(), now: Instant { ns: 0 } }
        }

        fn ask(&mut self, session: Option<SessionId>, ask: Ask) -> Vec<Answer> {
            let mut responses = Vec::new();
            self.config_store.input(Request { session, id: 1, ask }, self.now, &mut responses);
            responses.into_iter().map(|response| response.answer).collect()
        }

        fn open(&mut self) -> Option<SessionId> {
            let answers = self.ask(None, Ask::Open { timeout_ns: 100 });
            let [Answer::Opened(session)] = answers[..] else { panic!("{answers:?}") };
            Some(session)
        }
    }

    fn claim() -> Ask {
        Ask::Claim { path: Path::Leader, value: (*b"one").into() }
    }

    fn write(expected: u64) -> Ask {
        let (path, expected) = (Path::Configuration, Stamp(expected));
        Ask::Write { path, expected, value: (*b"new").into() }
    }

    #[test]
    fn a_write_needs_the_stamp_that_is_there() {
        let mut bench = Bench::new();
        let session = bench.open();
        assert_eq!(bench.ask(session, write(1)), [Answer::Conflict(Stamp(0))]);
        assert_eq!(bench.ask(session, write(0)), [Answer::Written(Stamp(1))]);
        assert_eq!(bench.ask(session, write(0)), [Answer::Conflict(Stamp(1))]);
        let want = Answer::Value(Stamp(1), Some((*b"new").into()));
        assert_eq!(bench.ask(session, Ask::Read(Path::Configuration)), [want]);
    }

    #[test]
    fn a_claim_ends_with_its_session_and_watchers_hear_of_it() {
        let mut bench = Bench::new();
        let (one, two) = (bench.open(), bench.open());
        assert_eq!(bench.ask(one, claim()), [Answer::Claimed]);
        assert_eq!(bench.ask(two, claim()), [Answer::Held]);
        assert_eq!(bench.ask(two, Ask::Watch(Path::Leader)), []);
        bench.now.ns = 60;
        assert_eq!(bench.ask(two, Ask::Beat), [Answer::Alive]);
        bench.now.ns = 120;
        let told = [Answer::Changed(Path::Leader), Answer::Alive];
        assert_eq!(bench.ask(two, Ask::Beat), told);
        assert_eq!(bench.ask(one, Ask::Beat), [Answer::Expired]);
        assert_eq!(bench.ask(two, claim()), [Answer::Claimed]);
    }
}
