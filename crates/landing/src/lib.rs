//! The arrival of bytes: zones, and the transports that fill them.
//!
//! ```text
//!   senders          transport                      zone                        worker
//!  ─────────▶  udp: recvmmsg   buffers posted in address order
//!  ─────────▶  GRO, GSO   ──▶  ┌───────────┬───────────┬───────┐  ──▶  take, bytes
//!                              │ 0  1  2 3 │ 4  5      │       │       release, in order
//!                              └───────────┴───────────┴───────┘
//!  ◀───────────────────────────────────────── reserve, commit, flush   replies
//! ```
//!
//! A [`Zone`] is memory whose buffers are posted in increasing address order and filled front to
//! back; each message that has landed is a [`Completion`] `(sender, offset, length, number)`. A
//! zone is uTPS's receive buffer (uTPS §3.2.1) when its home is a ring of requests that stays in
//! cache, and Rowan's log (Rowan-KV §3.2) when its home is borrowed log segments. A [`Transport`]
//! lands arrived messages in a zone and sends queued ones. Nothing here copies, parses or allocates
//! between a datagram's arrival and its completion.
//!
//! Start with `zone.rs`, then `transport.rs`; docs/design/landing.md explains how it works.

mod board;
mod frames;
pub mod peers;
mod pinned;
mod region;
mod sender;
pub mod shm;
pub mod steer;
mod transport;
pub mod udp;
pub mod uring;
#[cfg(feature = "xdp")]
pub mod xdp;
mod zone;

pub use board::{ChangePending, Poster, Reader, board};
pub use pinned::{Pinned, ZeroCopy, ZeroCopyCounters};
pub use region::Region;
pub use sender::{Lane, Sender};
pub use transport::{Notice, SendError, Transport};
pub use zone::{
    Completion, Counters, Landed, LengthCheck, PostError, Spent, Window, Zone, ZoneSize,
};
