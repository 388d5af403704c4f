//! A client of a quorum: it asks one member after the other until one answers.
//!
//! # Invariants
//! C1: a request is sent once. Without an answer in time the next member is tried for the next
//!     request, and an event says so: the caller decides what to repeat.
//! C2: dropping it closes its sessions, so that their claims are free at once.
//! C3: a member counts as silent if nothing came from it for [`ANSWER_MAX`] while a request waits.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::config_store::{Answer, Ask, Request, SessionId};
use cluster::{ClientId, Peer};
use config_store_zookeeper::Event;
use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};

use crate::key::random_bytes;
use crate::links::{Endpoint, LinkEvent, Links};
use crate::quorum::place::{QuorumPlace, state_folder};
use crate::quorum::word::{self, Reply, Word};

/// The time that a member has to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The time for the answer to a closing session.
const CLOSE_MAX: Duration = Duration::from_millis(300);

/// The most answers that wait to be taken.
const EVENTS_MAX: usize = 1024;

/// A quorum, asked over links. Dropping it ends its sessions.
#[derive(Debug)]
pub struct QuorumConfigStore {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl QuorumConfigStore {
    /// Starts the thread; its first member is the one of this machine, if there is one.
    ///
    /// # Errors
    /// If there is no key, or the operating system provides no thread.
    pub fn start(
        place: &QuorumPlace,
        told: impl Fn(Event) + Send + 'static,
    ) -> io::Result<QuorumConfigStore> {
        let key = place.key(state_folder().as_deref()).map_err(io::Error::other)?;
        let mark = place.mark(&key);
        let (heard, events) = bounded(EVENTS_MAX);
        let id = random_bytes()?.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let links = Links::start(Peer::Client(ClientId(id)), None, key, heard, || {})?;
        let (requests, asked) = unbounded();
        let current = place.own.or_else(|| place.members_here().first().copied()).unwrap_or(0);
        let client = Client {
            place: place.clone(),
            mark,
            links,
            current,
            heard_at: Instant::now(),
            waiting: BTreeMap::new(),
            sessions: Vec::new(),
        };
        let run = move || client.run(&asked, &events, &told);
        let builder = std::thread::Builder::new().name("dovetail-conf".to_owned());
        Ok(QuorumConfigStore { requests: Some(requests), thread: Some(builder.spawn(run)?) })
    }

    /// Sends a request; the answer is an event, if it comes.
    pub fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The thread ends only with this handle.
            let _ = requests.send(request);
        }
    }
}

impl Drop for QuorumConfigStore {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

struct Client {
    place: QuorumPlace,
    mark: u64,
    links: Links,
    /// The index of the member that is asked.
    current: usize,
    /// When anything came from it.
    heard_at: Instant,
    /// When each request without an answer was sent.
    waiting: BTreeMap<(Option<SessionId>, u64), Instant>,
    /// The open sessions.
    sessions: Vec<SessionId>,
}

impl Client {
    fn run(
        mut self,
        asked: &Receiver<Request>,
        events: &Receiver<LinkEvent>,
        told: &impl Fn(Event),
    ) {
        loop {
            let until = self.silent_at();
            let pause = until.map_or(Duration::from_secs(60), |until| {
                until.saturating_duration_since(Instant::now())
            });
            select! {
                recv(asked) -> request => match request {
                    Ok(request) => self.send(request),
                    Err(_) => return self.close(events),
                },
                recv(events) -> event => {
                    if let Ok(LinkEvent::Answer { bytes, .. }) = event {
                        self.heard_at = Instant::now();
                        self.hear(&bytes, told);
                    }
                }
                default(pause) => {}
            }
            if self.silent_at().is_some_and(|until| until <= Instant::now()) {
                let line = format!("{} does not answer", self.member());
                self.try_next(line, told);
            }
        }
    }

    /// When the member counts as silent; none while no request waits (C3).
    fn silent_at(&self) -> Option<Instant> {
        let oldest = self.waiting.values().min()?;
        Some((*oldest).max(self.heard_at) + ANSWER_MAX)
    }

    fn member(&self) -> &str {
        self.place.members.get(self.current).map_or("?", String::as_str)
    }

    fn send(&mut self, request: Request) {
        if !matches!(request.ask, Ask::Watch(_)) {
            self.waiting.insert((request.session, request.id), Instant::now());
        }
        let word = Word::Request { quorum: self.mark, request };
        self.links.ask(&Endpoint::address(self.member()), 0, word::encode(&word));
    }

    fn hear(&mut self, bytes: &[u8], told: &impl Fn(Event)) {
        match word::decode(bytes) {
            Some(Reply::Response(response)) => {
                let is_awaited = self.waiting.remove(&(response.session, response.id)).is_some();
                match response.answer {
                    Answer::Opened(session) => self.sessions.push(session),
                    Answer::Expired => {
                        self.sessions.retain(|session| Some(*session) != response.session);
                    }
                    _ => {}
                }
                if is_awaited || matches!(response.answer, Answer::Changed(_)) {
                    told(Event::Response(response));
                }
            }
            Some(Reply::Waits { asked, line })
                if asked.is_none_or(|asked| self.waiting.contains_key(&asked)) =>
            {
                self.try_next(line, told);
            }
            Some(Reply::Waits { .. }) | None => {}
        }
    }

    /// Gives up what is under way, and asks the next member from now on (C1).
    fn try_next(&mut self, line: String, told: &impl Fn(Event)) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.clear();
        self.current = (self.current + 1) % self.place.members.len().max(1);
        told(Event::Trouble(format!("config store {}: {line}", self.place)));
    }

    /// Closes the sessions (C2).
    fn close(self, events: &Receiver<LinkEvent>) {
        let until = Instant::now() + CLOSE_MAX;
        for session in &self.sessions {
            let word = Word::Close { quorum: self.mark, session: *session };
            self.links.ask(&Endpoint::address(self.member()), 0, word::encode(&word));
        }
        let mut open = self.sessions;
        while !open.is_empty()
            && let Ok(event) = events.recv_deadline(until)
        {
            if let LinkEvent::Answer { bytes, .. } = event
                && let Some(Reply::Response(response)) = word::decode(&bytes)
                && response.answer == Answer::Expired
            {
                open.retain(|session| Some(*session) != response.session);
            }
        }
    }
}
