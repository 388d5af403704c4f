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

mod contents;
mod embedded;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use contents::{Contents, Session};
pub use embedded::EmbeddedConfigStore;

/// A session's identity, kept alive by beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// The number of times a value was written; 0 before the first write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp(pub u64);

/// The names of values in the config store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Path {
    /// The encoded configuration.
    Configuration,
    /// The claim of the leading manager.
    Leader,
    /// The operator's settings for the whole cluster, written once.
    Settings,
}

/// A session's request to the config store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Opens a session that expires after this long without a message.
    Open {
        /// The session's timeout.
        timeout_ns: u64,
    },
    /// Keeps the session alive.
    Beat,
    /// Reads a value and its stamp.
    Read(Path),
    /// Replaces a value (Z2).
    Write {
        /// The value's name.
        path: Path,
        /// The stamp that the value must still have.
        expected: Stamp,
        /// The new value.
        value: Arc<[u8]>,
    },
    /// Claims a path for as long as the session lives (Z3).
    Claim {
        /// The path.
        path: Path,
        /// The holder's name, for others to read.
        value: Arc<[u8]>,
    },
    /// Asks to be notified of the next change (Z4).
    Watch(Path),
}

/// One message to the config store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The session that sends it; none only for a request to open one.
    pub session: Option<SessionId>,
    /// Chosen by the sender; the answer repeats it.
    pub id: u64,
    /// The request.
    pub ask: Ask,
}

/// An answer of the config store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The session is open.
    Opened(SessionId),
    /// The session is still alive.
    Alive,
    /// The session is gone, and its claims with it.
    Expired,
    /// The value and its stamp; no value if none was ever written.
    Value(Stamp, Option<Arc<[u8]>>),
    /// The value was replaced; this is its new stamp.
    Written(Stamp),
    /// The value was not replaced: its stamp is this one.
    Conflict(Stamp),
    /// The session holds the claim.
    Claimed,
    /// Another session holds the claim.
    Held,
    /// A watched path changed.
    Changed(Path),
}

/// One message from the config store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The session that sent the request; none if the request had none.
    pub session: Option<SessionId>,
    /// The id of the request.
    pub id: u64,
    /// The answer.
    pub answer: Answer,
}
