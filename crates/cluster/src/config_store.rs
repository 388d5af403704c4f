//! The interface of the config store, which holds the configuration: a few small values in a system
//! that is already reliable. ZooKeeper is one; the embedded one here is another (decision 0053).
//!
//! ```text
//!  manager ── Request { session, id, ask } ──▶ config store ── Response { id, answer } ──▶ manager
//!             open, beat                                 opened, alive, expired
//!             read, write if unchanged, watch            value, written, conflict, changed
//!             claim (gone with its session)              claimed, held
//! ```
//!
//! # Invariants
//! Z1: all requests take effect one after the other (linearizable).
//! Z2: a write takes effect only if the value still has the stamp that the writer names.
//! Z3: at most one live session holds a claim; an expired session's claims are gone before any
//!     other session gets them.
//! Z4: a session that watches a path is notified once of a change, and watches again if it wants
//!     more.
//! Z5: a session is not ended before it has been silent for its whole timeout (V1 of the manager).

mod embedded;

use std::sync::Arc;

pub use embedded::EmbeddedConfigStore;

/// A connection's identity, kept alive by beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// How often a value was written; 0 before it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

/// What the config store knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// The encoded configuration.
    Configuration,
    /// Which manager leads: a claim.
    Leader,
    /// What the operator chose for the whole cluster, written once.
    Settings,
}

/// What a session wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A session that expires when it has been silent for so long.
    Open {
        /// The time.
        timeout_ns: u64,
    },
    /// To stay.
    Beat,
    /// The value and its stamp.
    Read(Path),
    /// To replace the value (Z2).
    Write {
        /// Which.
        path: Path,
        /// What it has been so far.
        expected: Stamp,
        /// What it is to be.
        value: Arc<[u8]>,
    },
    /// To hold a path for as long as the session lives (Z3).
    Claim {
        /// Which.
        path: Path,
        /// Names the holder, for others to read.
        value: Arc<[u8]>,
    },
    /// To be told of the next change (Z4).
    Watch(Path),
}

/// One message to the config store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The session that asks; none only to open one.
    pub session: Option<SessionId>,
    /// Chosen by the sender; comes back with the answer.
    pub id: u64,
    /// What.
    pub ask: Ask,
}

/// What the config store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The session is there.
    Opened(SessionId),
    /// The session lives on.
    Alive,
    /// The session is gone, and its claims with it.
    Expired,
    /// What is there, if anything ever was.
    Value(Stamp, Option<Arc<[u8]>>),
    /// It was replaced; this is its stamp now.
    Written(Stamp),
    /// It was not: its stamp is another.
    Conflict(Stamp),
    /// The session holds it.
    Claimed,
    /// Another session holds it.
    Held,
    /// A watched path changed.
    Changed(Path),
}

/// One message from the config store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The session that asked; none if the request had none.
    pub session: Option<SessionId>,
    /// Of the request.
    pub id: u64,
    /// What.
    pub answer: Answer,
}
