//! The cluster's config store in ZooKeeper: `cluster::config_store` (decision 0055).
//!
//! ```text
//!  manager ─ Request ─▶ channel ─▶ thread: tokio, one ZooKeeper client a session ─▶ ensemble
//!          ◀ Response ─ channel ◀─┘
//!
//!  ROOT/configuration   a node; its version + 1 is the stamp
//!  ROOT/settings        a node, written once
//!  ROOT/leader          an ephemeral node: gone with the session that made it
//! ```
//!
//! # Invariants
//! R1 (Z1, Z2): a read follows a `sync`, so that it sees every earlier write; a write names the
//!     version that it replaces.
//! R2 (Z5): a caller that got an answer may rely on the session for the time it asked for. Answers
//!     come through the ensemble's leader, but the leader learns of a client's heartbeat up to a
//!     tick later than the client's own server. So the session that is requested from ZooKeeper
//!     lasts two ticks longer than the one that is promised.
//! R3: a lost answer is no answer: the caller reads to learn what happened. Nothing is sent twice
//!     here.
//!
//! # Limits
//! Values are small (ZooKeeper takes 1 MiB). A session of ZooKeeper lasts two ticks at least, so a
//! manager's failover takes four: 2 s with `tickTime=500`, 8 s with its default of 2000.
#![forbid(unsafe_code)]

mod ask;
mod session;

use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::config_store::{Request, Response};
use thiserror::Error;

/// The address of the config store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `HOST:PORT,HOST:PORT,...`.
    pub hosts: String,
    /// The node below which all others lie, such as `/dovetail/production`.
    pub root: String,
    /// `user:password` of ZooKeeper's digest scheme; without one, every host that reaches the
    /// ensemble may change the nodes (K25).
    pub digest: Option<String>,
}

/// The reason why a text is not the address of a config store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Another scheme, or none.
    #[error("`{text}` is no config store: write zk://HOST:PORT,HOST:PORT/PATH")]
    Scheme {
        /// The given text.
        text: String,
    },
    /// No path, or one that ZooKeeper does not take.
    #[error("`{text}` names no node: write a path behind the hosts, e.g. {text}/dovetail")]
    Path {
        /// The given text, without the invalid part.
        text: String,
    },
    /// A host without its port.
    #[error("`{host}` is no HOST:PORT; ZooKeeper's port is 2181 by default: {host}:2181")]
    Host {
        /// The given host.
        host: String,
    },
}

impl std::str::FromStr for Place {
    type Err = PlaceError;

    /// Parses `zk://HOST:PORT,HOST:PORT/PATH`, optionally with `USER:PASSWORD@` before the hosts.
    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let scheme = || PlaceError::Scheme { text: text.to_owned() };
        let rest = text.strip_prefix("zk://").ok_or_else(scheme)?;
        let (digest, rest) = match rest.split_once('@') {
            Some((digest, rest)) => (Some(digest.to_owned()), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.is_empty() {
            return Err(scheme());
        }
        for host in hosts.split(',') {
            let port = host.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                return Err(PlaceError::Host { host: host.to_owned() });
            }
        }
        let is_good = |part: &str| {
            !part.is_empty() && !matches!(part, "." | "..") && !part.contains(char::is_control)
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        if !path.split('/').all(is_good) {
            return Err(PlaceError::Path { text: format!("zk://{hosts}") });
        }
        Ok(Place { hosts: hosts.to_owned(), root: format!("/{path}"), digest })
    }
}

/// A config store: requests go in, responses and errors come out. Dropping it ends its sessions.
#[derive(Debug)]
pub struct ZooKeeperConfigStore {
    requests: Option<tokio::sync::mpsc::UnboundedSender<Request>>,
    events: mpsc::Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

/// An event of the config store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A response for the manager.
    Response(Response),
    /// Why a request got no answer, for the log: one line.
    Trouble(String),
}

impl ZooKeeperConfigStore {
    /// Starts the thread; it connects only when a session is requested.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start(place: Place) -> std::io::Result<ZooKeeperConfigStore> {
        let (told, events) = mpsc::channel();
        let tell = move |event| {
            // If no receiver is left, the config store is being dropped.
            let _ = told.send(event);
        };
        let mut config_store = ZooKeeperConfigStore::start_with(place, tell)?;
        config_store.events = events;
        Ok(config_store)
    }

    /// Like `start`, for a caller that wants a callback, in the config store's thread, instead of
    /// polling.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start_with(
        place: Place,
        told: impl Fn(Event) + Send + 'static,
    ) -> std::io::Result<ZooKeeperConfigStore> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (requests, received) = tokio::sync::mpsc::unbounded_channel();
        let (_, events) = mpsc::channel();
        let run = move || runtime.block_on(session::serve(place, received, Rc::new(told)));
        let builder = std::thread::Builder::new().name("dovetail-zk".to_owned());
        let thread = Some(builder.spawn(run)?);
        Ok(ZooKeeperConfigStore { requests: Some(requests), events, thread })
    }

    /// Sends a request; the answer is an event, if it comes.
    pub fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The thread ends only with this handle.
            let _ = requests.send(request);
        }
    }

    /// The next event, if one is there.
    pub fn poll(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The next event within `time`.
    pub fn wait(&self, time: Duration) -> Option<Event> {
        self.events.recv_timeout(time).ok()
    }
}

impl Drop for ZooKeeperConfigStore {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<(&str, &str, Option<&str>), &str>) {
        let found = text.parse::<Place>().map_err(|error| error.to_string());
        let want = want.map(|(hosts, root, digest)| Place {
            hosts: hosts.to_owned(),
            root: root.to_owned(),
            digest: digest.map(str::to_owned),
        });
        assert_eq!(found, want.map_err(str::to_owned));
    }

    #[test]
    fn a_place_has_hosts_and_a_node() {
        check("zk://a:1/x", Ok(("a:1", "/x", None)));
        check("zk://a:1,b:2/x/y/", Ok(("a:1,b:2", "/x/y", None)));
        check("zk://me:secret@a:1/x", Ok(("a:1", "/x", Some("me:secret"))));
        check("zk://[::1]:2181/x", Ok(("[::1]:2181", "/x", None)));
    }

    #[test]
    fn anything_else_is_told_what_would_be_right() {
        let scheme = "is no config store: write zk://HOST:PORT,HOST:PORT/PATH";
        check("a:1/x", Err(&format!("`a:1/x` {scheme}")));
        check("zk:///x", Err(&format!("`zk:///x` {scheme}")));
        let path = "names no node: write a path behind the hosts, e.g. zk://a:1/dovetail";
        check("zk://a:1", Err(&format!("`zk://a:1` {path}")));
        check("zk://a:1/", Err(&format!("`zk://a:1` {path}")));
        check("zk://a:1/x//y", Err(&format!("`zk://a:1` {path}")));
        check("zk://a:1/../y", Err(&format!("`zk://a:1` {path}")));
        let host = "is no HOST:PORT; ZooKeeper's port is 2181 by default: a:2181";
        check("zk://a/x", Err(&format!("`a` {host}")));
    }
}
