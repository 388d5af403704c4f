//! A config store that the cluster's own servers keep (decision 0116).
//!
//! ```text
//!  server a:7600                                server b:7600            c:7600
//!  ┌─ host ──────────────────────────┐          ┌─ host ─┐               ...
//!  │ Member, its file, one port ═════╪═ links ══╪═ ...   │
//!  │    ▲ requests                   │          └────────┘
//!  └────┼────────────────────────────┘   ▲
//!   QuorumConfigStore (manager, discovery, │ `dovetail cluster`, servers that are no members)
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `place` | the members' addresses, and the key that they share |
//! | `host` | a member's thread, its file and its links |
//! | `client` | requests to the members, one after the other until one answers |
//! | `word` | the bytes between them |
//!
//! The manager of a member's server uses the same links and port.

mod client;
mod host;
mod place;
mod word;

pub use client::QuorumConfigStore;
pub use host::{Host, Membership};
pub use place::{PlaceError, QuorumPlace, state_folder};
