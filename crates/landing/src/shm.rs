//! Shared memory between client processes and the server on one host.
//!
//! ```text
//!   client                    region (a sealed memfd)                    server
//!   write ──▶ publish   ┌─ requests ─────────────────────┐   poll ──▶ arena ──▶ parse
//!                       │ head  tail  [frame][frame]...  │
//!   receive ◀───────────┤ replies                        ├── publish ◀── write
//!                       │ head  tail  [frame][frame]...  │
//!                       └─ sleep words ──────────────────┘
//!             ◀── Unix socket: the region, once; a byte to wake a sleeper; hang-up ──▶
//! ```
//!
//! The client connects to a Unix socket and receives a region of its own: two rings of frames, one
//! each way, and one word per side that says that it sleeps (docs/formats/shm-ring.md). From then
//! on a message costs no system call while both sides are awake.
//!
//! # Invariants
//! - R1 to R4 (shm/ring.rs): indexes and lengths are read once, checked, and only then used.
//! - S1 to S3 (shm/copy.rs): a region is only ever read and written as atomic words; bytes are
//!   parsed in a copy.
//! - D1 to D4 (shm/channel.rs): a sleeping side is woken by the doorbell.
//!
//! # Concurrency
//! Each end belongs to one thread at a time and may be moved between threads.
//!
//! # Limits
//! A frame with its length word takes at most a quarter of a ring. The server reads no request
//! while its longest reply might not fit, so it does not read from a client that does not read. The
//! number of clients is bounded, and so is their memory: twice the ring and a page for each.
//!
//! # What a hostile client can do
//! It may write anything anywhere in its region at any time, ring without end, and disconnect at
//! any moment. It then reads nonsense, loses its connection ([`Gone`]), or wastes what any client
//! may waste: its share of the server's turns. It cannot shrink the region under the server
//! (sealed), block a thread of the server (no descriptor is shared but the region's), or see
//! another client's region.

#[cfg(not(loom))]
mod acceptor;
mod channel;
#[cfg(not(loom))]
mod claim;
#[cfg(not(loom))]
mod client_end;
mod copy;
#[cfg(not(loom))]
mod handshake;
mod layout;
#[cfg(not(loom))]
mod link;
mod region;
mod ring;
#[cfg(not(loom))]
mod server_end;
#[cfg(not(loom))]
mod transport;
mod weaken;

#[cfg(not(loom))]
pub use self::{
    acceptor::{Accepted, Acceptor, AcceptorConfig, Access},
    channel::Armed,
    claim::{Claim, ListenError},
    client_end::{ClientConfig, ClientEnd, ConnectError, Woken},
    handshake::{BadWelcome, Refusal},
    layout::{BadRingSize, RING_BYTES_MAX, RING_BYTES_MIN, RingSize},
    link::{Frame, Gone, HangUp},
    region::NotARegion,
    ring::Fault,
    server_end::{Peer, ServerEnd},
    transport::{Shm, ShmConfig},
};
