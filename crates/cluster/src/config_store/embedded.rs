//! A config store in memory: for a single node, for tests and for the fault simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Instant;

use crate::config_store::{Answer, Contents, Path, Request, Response, SessionId};
use crate::settings::after;

/// The whole config store. Requests are applied in the order in which they come (Z1).
#[derive(Debug, Default)]
pub struct EmbeddedConfigStore {
    contents: Contents,
    /// When each session was last heard.
    heard: BTreeMap<SessionId, Instant>,
}

impl EmbeddedConfigStore {
    /// Applies one request; appends its answer, and the notifications of watching sessions, to
    /// `responses`.
    pub fn input(&mut self, request: Request, now: Instant, responses: &mut Vec<Response>) {
        self.expire(now, responses);
        let session = request.session;
        let first = responses.len();
        self.contents.input(request, responses);
        let opened = responses[first..].iter().find_map(|response| match response.answer {
            Answer::Opened(session) => Some(session),
            _ => None,
        });
        let is_open = |session: &SessionId| self.contents.session(*session).is_some();
        if let Some(session) = opened.or(session).filter(is_open) {
            self.heard.insert(session, now);
        }
    }

    /// Ends the sessions that have been silent for longer than their timeouts.
    pub fn expire(&mut self, now: Instant, responses: &mut Vec<Response>) {
        let over: Vec<SessionId> = self
            .contents
            .sessions()
            .filter(|(id, session)| {
                self.heard.get(id).is_none_or(|heard| after(*heard, session.timeout_ns) <= now)
            })
            .map(|(id, _)| id)
            .collect();
        for session in over {
            self.contents.end(session, responses);
            self.heard.remove(&session);
        }
    }

    /// The value of a path, for inspection.
    pub fn value(&self, path: Path) -> Option<&Arc<[u8]>> {
        self.contents.value(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_store::{Ask, Stamp};

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
