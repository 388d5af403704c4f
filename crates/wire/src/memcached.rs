//! memcached's protocols as memcached 1.6.18 speaks them: text and meta here (see
//! docs/formats/memcached-text.md), binary in [`binary`]; both also in datagrams ([`datagram`]).
//!
//! ```text
//!  input ──▶ Parser::next_command ──▶ Done(Ok(Command))        execute, reply unless noreply
//!                                 ├─▶ Done(Err(Rejection))     reply, skip swallow_bytes, go on
//!                                 ├─▶ NeedMore                 the body's length is in it
//!                                 └─▶ Bad(ProtocolError)       reply, close
//! ```

mod administration;
pub mod binary;
mod command;
pub mod datagram;
pub mod meta;
mod parser;
mod reply;
mod verbs;
mod watch;
mod words;

pub use administration::DumpKind;
pub use command::{
    Arithmetic, Delete, Keys, Limits, ProtocolError, Rejection, Retrieve, StatsKind, Store,
    StoreVerb, Touch,
};
pub use command::{RELATIVE_EXPTIME_MAX_S, expiry_from_exptime};
pub use meta::{Meta, MetaEcho, MetaFlags, MetaMode, MetaShown, MetaVerb};
pub use parser::{NextCommand, Parser, next_command};
pub use reply::{DumpedFacts, Encoder, Reply};
pub use verbs::Command;
pub use watch::{EventTopics, push_uri_encoded};
