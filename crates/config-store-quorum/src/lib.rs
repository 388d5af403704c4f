//! The cluster's config store in its own servers: each member keeps a copy of one log, and an entry
//! counts once a majority has it on disk (decision 0116).
//!
//! ```text
//!  request ─▶ Member ── command ─▶ log of omnipaxos ── Send ─▶ other members
//!                │                     │ Persist: on disk before anything is sent
//!  response ◀── Contents ◀── decided ──┘
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `member` | the state machine: requests in, responses out, sessions that end |
//! | `settling` | what a member without a file must know before it takes part |
//! | `command` | the entries of the log, and how they change the contents |
//! | `log` | the log in memory, and what of it is to be written |
//! | `journal` | the bytes of a member's file, and reading them back |
//!
//! Like all of `cluster`, the member has no clock, thread, socket or file: `cluster-io` drives it
//! with real ones, the tests and `sim` with ones that fail.
//!
//! # Invariants
//! Q1: a member acknowledges nothing before it is on its disk: a `Persist` comes before the `Send`
//!     that depends on it, and is carried out first.
//! Q2: all members apply the same commands in the same order (Z1); a response is sent for a command
//!     that was applied.
//! Q3: a session is ended by a command that names the number of its requests: a request that came
//!     before it in the log keeps the session (Z5).
//! Q4: damaged bytes of a file are an error and never a panic; of a message they are dropped. Links
//!     prove that a message is a member's.
#![forbid(unsafe_code)]

mod command;
mod journal;
mod log;
pub mod member;
mod settling;

pub use journal::{JournalError, Recovered};
pub use member::{Action, Event, Member, Settings};
