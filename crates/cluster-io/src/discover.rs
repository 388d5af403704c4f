//! Discovery: a server reads from the config store the cluster's settings and which manager leads.
//!
//! ```text
//!  config store ── read settings until there are any ──▶ Found::Settings, once
//!           ── read leader, watch, read again ─────▶ Found::Leader, at each change
//! ```
//!
//! A thread of its own makes the requests and waits; it reports to the code that started it by a
//! callback.
//!
//! # Invariants
//! D1: the settings are reported before any leader is.
//! D2: an error is reported when it begins or changes, not once a second.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::config_store::{Answer, Ask, Path, Request, Response, SessionId};
use config_store_zookeeper::Event;

use crate::config_store::{ConfigStore, Place};
use crate::settings::Stored;

/// A discovery.
#[derive(Clone, Debug)]
pub enum Found {
    /// The cluster's settings.
    Settings(Arc<Stored>),
    /// `HOST:PORT` of the leading manager; none while no manager leads.
    Leader(Option<String>),
    /// An error, for the log: one line. Discovery keeps trying.
    Trouble(String),
}

/// The session timeout of a client that only reads.
const SESSION: Duration = Duration::from_secs(10);

/// The time between two reads if nothing is watched or a notification was lost.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer that takes longer is regarded as lost.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The thread; dropping it ends it.
#[derive(Debug)]
pub struct Discovery {
    stop: Option<mpsc::Sender<Word>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Word {
    Event(Event),
    Stop,
}

impl Discovery {
    /// Starts discovery; its thread calls `announced` with each discovery.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start(
        place: &Place,
        told: impl Fn(Found) + Send + 'static,
    ) -> std::io::Result<Discovery> {
        let (words, heard) = mpsc::channel();
        let by_config_store = words.clone();
        let tell = move |event| {
            // If no receiver is left, the thread is ending.
            let _ = by_config_store.send(Word::Event(event));
        };
        let config_store = ConfigStore::look(place, tell)?;
        let seeker = Seeker::new(config_store, Box::new(told));
        let builder = std::thread::Builder::new().name("dovetail-seek".to_owned());
        let thread = Some(builder.spawn(move || seeker.run(&heard))?);
        Ok(Discovery { stop: Some(words), thread })
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(Word::Stop);
        }
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

struct Seeker {
    config_store: ConfigStore,
    told: Box<dyn Fn(Found) + Send>,
    session: Option<SessionId>,
    /// The awaited request, and when it was sent.
    asked: Option<(u64, Instant)>,
    /// The id of the watch that is set.
    watch: Option<u64>,
    next_id: u64,
    next: Step,
    has_settings: bool,
    leader: Option<Option<String>>,
    trouble: Option<String>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Settings,
    /// Set the watch: before each read of the leader, so that no change is missed between the two.
    Watch,
    Leader,
    /// Rest until the watch reports.
    Rest,
}

impl Seeker {
    fn new(config_store: ConfigStore, told: Box<dyn Fn(Found) + Send>) -> Seeker {
        Seeker {
            config_store,
            told,
            session: None,
            asked: None,
            watch: None,
            next_id: 1,
            next: Step::Open,
            has_settings: false,
            leader: None,
            trouble: None,
        }
    }

    fn run(mut self, heard: &mpsc::Receiver<Word>) {
        loop {
            self.step();
            let pause = if self.next == Step::Rest { 10 * PAUSE } else { PAUSE };
            match heard.recv_timeout(pause) {
                Ok(Word::Event(Event::Response(response))) => self.hear(response),
                Ok(Word::Event(Event::Trouble(line))) => {
                    // The error does not name its request: the watch may be gone too.
                    (self.asked, self.watch) = (None, None);
                    self.tell_trouble(line);
                    std::thread::sleep(PAUSE);
                }
                Ok(Word::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                // A watch may be lost with a connection, so the leader is read from time to time
                // anyway.
                Err(RecvTimeoutError::Timeout) if self.next == Step::Rest => {
                    self.next = Step::Leader;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn step(&mut self) {
        let is_waiting = self.asked.is_some_and(|(_, since)| since.elapsed() < ANSWER_MAX);
        if is_waiting {
            return;
        }
        let ask = match self.next {
            Step::Open => Ask::Open { timeout_ns: SESSION.as_nanos() as u64 },
            Step::Settings => Ask::Read(Path::Settings),
            Step::Watch => Ask::Watch(Path::Leader),
            Step::Leader => Ask::Read(Path::Leader),
            Step::Rest => return,
        };
        let id = self.next_id;
        self.next_id += 1;
        let session = if self.next == Step::Open { None } else { self.session };
        self.config_store.ask(Request { session, id, ask });
        if self.next == Step::Watch {
            // The watch is answered when the value changes; the read follows at once.
            self.watch = Some(id);
            self.next = Step::Leader;
            return self.step();
        }
        self.asked = Some((id, Instant::now()));
    }

    fn hear(&mut self, response: Response) {
        let is_watch = self.watch == Some(response.id);
        let is_asked = self.asked.is_some_and(|(id, _)| id == response.id);
        if !is_watch && !is_asked {
            return;
        }
        if is_asked {
            self.asked = None;
        }
        match response.answer {
            Answer::Opened(session) => {
                self.session = Some(session);
                self.next = if self.has_settings { Step::Watch } else { Step::Settings };
            }
            Answer::Expired => {
                self.session = None;
                self.watch = None;
                self.asked = None;
                self.next = Step::Open;
            }
            Answer::Changed(_) if is_watch => {
                self.watch = None;
                self.next = Step::Watch;
            }
            Answer::Value(_, bytes) if !self.has_settings => self.read_settings(bytes.as_deref()),
            Answer::Value(_, bytes) => self.read_leader(bytes.as_deref()),
            _ => {}
        }
    }

    fn read_settings(&mut self, bytes: Option<&[u8]>) {
        let Some(bytes) = bytes else {
            let line =
                "no settings in the config store yet: start `dovetail cm` with it, or all of --join"
                    .to_owned();
            self.tell_trouble(line);
            return std::thread::sleep(PAUSE);
        };
        match Stored::parse(&String::from_utf8_lossy(bytes)) {
            Ok(stored) => {
                self.has_settings = true;
                self.trouble = None;
                self.next = Step::Watch;
                (self.told)(Found::Settings(Arc::new(stored)));
            }
            Err(error) => {
                self.tell_trouble(error.to_string());
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn read_leader(&mut self, bytes: Option<&[u8]>) {
        let leader = bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        self.trouble = None;
        self.next = if self.watch.is_some() { Step::Rest } else { Step::Watch };
        if self.leader.as_ref() != Some(&leader) {
            self.leader = Some(leader.clone());
            (self.told)(Found::Leader(leader));
        }
    }

    fn tell_trouble(&mut self, line: String) {
        if self.trouble.as_ref() != Some(&line) {
            self.trouble = Some(line.clone());
            (self.told)(Found::Trouble(line));
        }
    }
}
