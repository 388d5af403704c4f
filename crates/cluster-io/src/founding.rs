//! Founding: the first manager writes the settings of a cluster, all others find them.
//!
//! ```text
//!  flags ─┐                        ┌ nothing there: defaults, flags, a new key ─▶ write if nothing
//!         ├─▶ read settings ───────┤
//!         │                        └ there: each flag that was given must say the same
//! ```
//!
//! # Invariants
//! G1: two managers that start at once end with the same settings: one write takes effect (Z2).
//! G2: a flag that contradicts the stored settings is refused with both values; nothing changes.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use base::format_duration;
use cluster::config_store::{Answer, Ask, Path, Request, Response, SessionId, Stamp};
use cluster::{Durability, Scheme, Settings};
use config_store_zookeeper::Event;
use thiserror::Error;
use tracing::{info, warn};

use crate::Key;
use crate::config_store::{ConfigStore, Place};
use crate::settings::{SettingsError, Stored, check, durability_word};

/// An operator's choices; none means "as stored, or the default".
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The name of the cluster.
    pub name: Option<String>,
    /// The number of copies of each shard.
    pub copies: Option<u8>,
    /// With fewer complete copies, writes are refused.
    pub min_copies: Option<u8>,
    /// The number of nodes that the first configuration waits for.
    pub first_nodes: Option<u8>,
    /// The number of ranges of slots.
    pub shards: Option<u16>,
    /// How long a node may serve without a message from the manager.
    pub lease: Option<Duration>,
    /// How long the config store keeps a silent manager's session.
    pub session: Option<Duration>,
    /// The time after which an unacknowledged landed write is sent again.
    pub retry: Option<Duration>,
    /// The time to wait for absent nodes after a cold start.
    pub grace: Option<Duration>,
    /// The number of shards copied at the same time.
    pub copies_at_once: Option<u16>,
    /// The meaning of an acknowledgement.
    pub durability: Option<Durability>,
    /// How entries travel to backups.
    pub replication: Option<Scheme>,
    /// Whether shards move by load.
    pub rebalance: Option<bool>,
    /// The meaning of an acknowledgement in a new cluster, where `durability` is not said.
    pub first_durability: Option<Durability>,
    /// The session of managers in a new cluster, where `session` is not said.
    pub first_session: Option<Duration>,
    /// The cluster's key; none: a new one is drawn.
    pub key: Option<Key>,
}

/// The reason why there are no settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FoundingError {
    /// An error in the stored or in the wanted settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A flag contradicts the config store (G2).
    #[error(
        "--{flag} {wanted} contradicts the cluster, which has {stored} since its first manager \
         started: leave the flag out"
    )]
    Contradiction {
        /// The flag, without its dashes.
        flag: &'static str,
        /// The given value.
        wanted: String,
        /// The stored value.
        stored: String,
    },
    /// The given key is not the cluster's.
    #[error("the cluster was made with another key than this server has: give all the same one")]
    OtherKey,
    /// The operating system provides no thread or no random bytes.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The process is being stopped.
    #[error("stopped before the config store answered")]
    Stopped,
}

impl Wanted {
    /// Makes the settings of a new cluster.
    ///
    /// # Errors
    /// If the choices contradict each other, or there are no random bytes.
    pub fn fresh(&self) -> Result<Stored, FoundingError> {
        let default = Stored::defaults();
        let ns = |time: Option<Duration>, or_ns| time.map_or(or_ns, |time| time.as_nanos() as u64);
        let copies = self.copies.unwrap_or(default.copies);
        let lease_ns = ns(self.lease, default.lease_ns);
        let settings = Settings {
            lease_ns,
            session_ns: ns(self.session.or(self.first_session), default.session_ns.max(lease_ns)),
            retry_ns: ns(self.retry, default.retry_ns.min(lease_ns / 4)),
            grace_ns: ns(self.grace, default.grace_ns.max(2 * lease_ns)),
            copies,
            min_copies: self.min_copies.unwrap_or(default.min_copies.min(copies)),
            first_nodes: self.first_nodes.unwrap_or(copies),
            shards: self.shards.unwrap_or(default.shards),
            copies_at_once: self.copies_at_once.unwrap_or(default.copies_at_once),
            durability: self.durability.or(self.first_durability).unwrap_or(default.durability),
            scheme: self.replication.unwrap_or(default.scheme),
            ..default
        };
        check(&settings)?;
        let name = self.name.clone().unwrap_or_else(|| "dovetail".to_owned());
        let rebalance = self.rebalance.unwrap_or(true);
        let key = self.key.clone().map_or_else(Key::random, Ok)?;
        Ok(Stored { name, key, rebalance, settings })
    }

    /// Checks that a cluster's settings match the choices (G2).
    ///
    /// # Errors
    /// The first choice that does not match.
    pub fn compare(&self, stored: &Stored) -> Result<(), FoundingError> {
        let settings = &stored.settings;
        let word = |durability| durability_word(durability).to_owned();
        let switch = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let spelled = |time_ns| format_duration(Duration::from_nanos(time_ns));
        let time = |time: Option<Duration>| time.map(format_duration);
        let pairs = [
            ("name", self.name.clone(), stored.name.clone()),
            ("copies", self.copies.map(|n| n.to_string()), settings.copies.to_string()),
            ("min-copies", self.min_copies.map(|n| n.to_string()), settings.min_copies.to_string()),
            (
                "first-nodes",
                self.first_nodes.map(|n| n.to_string()),
                settings.first_nodes.to_string(),
            ),
            ("shards", self.shards.map(|n| n.to_string()), settings.shards.to_string()),
            ("lease", time(self.lease), spelled(settings.lease_ns)),
            ("session", time(self.session), spelled(settings.session_ns)),
            ("retry", time(self.retry), spelled(settings.retry_ns)),
            ("grace", time(self.grace), spelled(settings.grace_ns)),
            (
                "copies-at-once",
                self.copies_at_once.map(|n| n.to_string()),
                settings.copies_at_once.to_string(),
            ),
            ("durability", self.durability.map(word), word(settings.durability)),
            (
                "replication",
                self.replication.map(|scheme| scheme.to_string()),
                settings.scheme.to_string(),
            ),
            ("rebalance", self.rebalance.map(switch), switch(stored.rebalance)),
        ];
        for (flag, wanted, stored) in pairs {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != stored) {
                return Err(FoundingError::Contradiction { flag, wanted, stored });
            }
        }
        match self.key.as_ref().is_none_or(|key| *key == stored.key) {
            true => Ok(()),
            false => Err(FoundingError::OtherKey),
        }
    }
}

/// The session timeout while founding.
const SESSION: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// An answer that takes longer is regarded as lost.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Finds the cluster's settings, or writes them; tries until the config store answers.
///
/// # Errors
/// If settings contradict each other, or `is_stopped` returns true.
pub fn settle(
    place: &Place,
    wanted: &Wanted,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Stored, FoundingError> {
    let (told, events) = mpsc::channel();
    // If no receiver is left, the config store is being dropped.
    let config_store = ConfigStore::start(place, move |event| drop(told.send(event)))?;
    let mut founder = Founder { config_store, events, is_stopped, next_id: 1, trouble: None };
    loop {
        let Some(session) = founder.open()? else { continue };
        match founder.read(session)? {
            None => {}
            Some((_, Some(bytes))) => {
                let stored = Stored::parse(&String::from_utf8_lossy(&bytes))?;
                wanted.compare(&stored)?;
                return Ok(stored);
            }
            Some((stamp, None)) => {
                let fresh = wanted.fresh()?;
                if founder.write(session, stamp, &fresh)? {
                    let name = &fresh.name;
                    info!(config_store = %place, name, "a new cluster: its settings are written");
                    return Ok(fresh);
                }
            }
        }
    }
}

/// A value and its stamp; no value if none was written.
type Found = (Stamp, Option<Arc<[u8]>>);

struct Founder<'a> {
    config_store: ConfigStore,
    events: mpsc::Receiver<Event>,
    is_stopped: &'a dyn Fn() -> bool,
    next_id: u64,
    trouble: Option<String>,
}

impl Founder<'_> {
    fn open(&mut self) -> Result<Option<SessionId>, FoundingError> {
        match self.ask(None, Ask::Open { timeout_ns: SESSION.as_nanos() as u64 })? {
            Some(Answer::Opened(session)) => Ok(Some(session)),
            _ => Ok(None),
        }
    }

    fn read(&mut self, session: SessionId) -> Result<Option<Found>, FoundingError> {
        match self.ask(Some(session), Ask::Read(Path::Settings))? {
            Some(Answer::Value(stamp, bytes)) => Ok(Some((stamp, bytes))),
            _ => Ok(None),
        }
    }

    /// Writes the settings if none are stored (G1). Returns whether these took effect. If not, or
    /// if that is unknown, reading tells which did.
    fn write(
        &mut self,
        session: SessionId,
        expected: Stamp,
        fresh: &Stored,
    ) -> Result<bool, FoundingError> {
        let value = fresh.to_text().into_bytes().into();
        let ask = Ask::Write { path: Path::Settings, expected, value };
        Ok(matches!(self.ask(Some(session), ask)?, Some(Answer::Written(_))))
    }

    /// Sends a request and waits for its answer; none after an error, once a pause is over.
    fn ask(
        &mut self,
        session: Option<SessionId>,
        ask: Ask,
    ) -> Result<Option<Answer>, FoundingError> {
        let id = self.next_id;
        self.next_id += 1;
        self.config_store.ask(Request { session, id, ask });
        let asked_at = Instant::now();
        while asked_at.elapsed() < ANSWER_MAX {
            if (self.is_stopped)() {
                return Err(FoundingError::Stopped);
            }
            match self.events.recv_timeout(PAUSE) {
                Ok(Event::Response(Response { id: answered, answer, .. })) if answered == id => {
                    return Ok(Some(answer));
                }
                Ok(Event::Response(_)) | Err(_) => {}
                Ok(Event::Trouble(line)) => {
                    if self.trouble.as_ref() != Some(&line) {
                        warn!("{line}");
                        self.trouble = Some(line);
                    }
                    std::thread::sleep(PAUSE);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &tempfile::TempDir) -> Place {
        Place::File(folder.path().to_owned())
    }

    fn settled(place: &Place, wanted: &Wanted) -> Result<Stored, String> {
        settle(place, wanted, &|| false).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_writes_and_all_others_find_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let start = |_| {
            let place = place.clone();
            std::thread::spawn(move || settled(&place, &Wanted::default()).unwrap().to_text())
        };
        let threads: Vec<_> = (0..4).map(start).collect();
        let texts: Vec<String> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(texts.iter().all(|text| *text == texts[0]), "G1: {texts:?}");
    }

    #[test]
    fn a_flag_that_contradicts_is_refused_with_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let two = Wanted { copies: Some(2), ..Wanted::default() };
        let stored = settled(&place, &two).unwrap();
        assert_eq!((stored.settings.copies, stored.settings.first_nodes), (2, 2));
        assert_eq!(settled(&place, &two).unwrap().to_text(), stored.to_text());
        let three = Wanted { copies: Some(3), ..Wanted::default() };
        let want = "--copies 3 contradicts the cluster, which has 2 since its first manager \
                    started: leave the flag out";
        assert_eq!(settled(&place, &three).unwrap_err(), want);
    }

    #[test]
    fn what_cannot_be_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let wrong = Wanted { copies: Some(2), min_copies: Some(3), ..Wanted::default() };
        let line = settled(&place, &wrong).unwrap_err();
        assert!(line.contains("min-copies = 3 is wrong"), "{line}");
        assert!(settled(&place, &Wanted::default()).is_ok());
    }
}
