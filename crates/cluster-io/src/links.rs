//! Links: control messages over TCP, between nodes and managers.
//!
//! ```text
//!  driver ── send ──▶ queue ─▶ dialer of HOST:PORT ─ connect, hand-shake ─▶ link ══ TCP ══▶ peer
//!         ◀─ event, wake ──────────────────────────────────────────────── link ◀═ TCP ═══ peer
//!                                                        acceptor ─ hand-shake ─▶ link
//!           one thread for all of a process: tokio, one task a dialer and one a link that came in
//! ```
//!
//! A message goes either to an address, which is dialled when there is a message to send, or back
//! over the link on which another message came. Delivery is not promised: a full queue, an absent
//! peer and a broken link all lose messages, and the state machines resend those that matter.
//!
//! # Invariants
//! L1: `send` waits for nothing (O1); each peer's queue is bounded; a message that does not fit is
//!     dropped.
//! L2: no message is delivered before both sides have proven the key, and the tag of each frame
//!     covers its position in the stream: no frame can be forged, repeated, left out or reflected
//!     (K25).
//! L3: a message names its receiver; another incarnation of a server does not get it.
//! L4: a peer of another format is refused before any message is exchanged, and one log line says
//!     so.
//! L5: a peer costs bounded memory and time: before its proof a few hundred bytes and two seconds,
//!     later one frame of at most [`FRAME_MAX_BYTES`] and no silence. At the bound on incoming
//!     links a new peer replaces the oldest one that has not proven the key, of the address with
//!     the most such links; it is refused only if all have proven the key.
//! L6: waiting messages are bounded in bytes as well. When the bytes waiting for a receiver reach
//!     the bound, another long message for it is refused; when those waiting for the driver do, no
//!     link is read.
//!
//! # Limits
//! Frames are authenticated, not encrypted: every host that can read the network reads values.

mod accept;
mod dial;
mod frame;
mod handshake;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use cluster::message::Hold;
use cluster::{Message, Peer};
use crossbeam_channel::Sender;
use tokio::sync::mpsc;

use crate::Key;
use stream::Hub;

pub use frame::FRAME_MAX_BYTES;
pub use handshake::FORMAT;

/// Messages on their way from the driver to the links' thread.
const COMMANDS_MAX: usize = 8192;

/// Of long messages, what may wait for one receiver before another one is added, ...
const WAITING_BYTES_MAX: usize = 4 << 20;

/// ... and for the driver, which takes them in at once if it is not behind.
const HEARD_BYTES_MAX: usize = 1 << 20;

/// Messages up to this length are bounded by their number alone.
const SHORT_BYTES: usize = 1 << 10;

/// A link of this process, for as long as it lasts; the id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The destination of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// `HOST:PORT`; dialled on demand, and again with growing pauses.
    Address(Arc<str>),
    /// Back over the link on which a message arrived; dropped if that link is gone.
    Link(LinkId),
}

impl Endpoint {
    /// The endpoint of `HOST:PORT`.
    pub fn address(text: &str) -> Endpoint {
        Endpoint::Address(text.into())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Address(address) => formatter.write_str(address),
            Endpoint::Link(link) => write!(formatter, "link {}", link.0),
        }
    }
}

/// An event for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A message for this incarnation of this server, or for a manager.
    Message {
        /// The sender, authenticated by the key.
        from: Peer,
        /// The link for an answer.
        link: LinkId,
        /// The message.
        message: Message,
        /// Until this is dropped the message's bytes count as waiting (L6).
        hold: Hold,
    },
    /// An operator's request, in bytes that `admin` decodes.
    Ask {
        /// The link for the answer.
        link: LinkId,
        /// An id that the answer repeats.
        id: u64,
        /// The request.
        bytes: Vec<u8>,
    },
    /// The answer to an operator.
    Answer {
        /// The id of the request.
        id: u64,
        /// The answer.
        bytes: Vec<u8>,
    },
}

/// A parcel to send.
#[derive(Debug)]
pub(crate) enum Parcel {
    Message { to: Peer, message: Message, _hold: (Hold, Option<Weight>) },
    Ask { id: u64, bytes: Vec<u8> },
    Answer { id: u64, bytes: Vec<u8> },
}

/// Bytes that count in a sum for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Weight {
    sum: Arc<AtomicUsize>,
    bytes: usize,
}

impl Weight {
    /// Adds to the sum.
    pub(crate) fn new(sum: &Arc<AtomicUsize>, bytes: usize) -> Weight {
        // Relaxed: the sum guards no other memory.
        sum.fetch_add(bytes, Ordering::Relaxed);
        Weight { sum: Arc::clone(sum), bytes }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Command {
    at: Endpoint,
    parcel: Parcel,
}

/// All links of a process. Dropping it closes them.
#[derive(Debug)]
pub struct Links {
    commands: Option<mpsc::Sender<Command>>,
    /// The bytes that have not left, by destination (L6).
    waiting: Mutex<HashMap<Endpoint, Arc<AtomicUsize>>>,
    address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Links {
    /// Starts the thread that runs all links.
    ///
    /// `events` receives what arrives; an event that finds it full is dropped. The links' thread
    /// calls `wake` after each. Without a `listen` address no peer can connect.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the operating system provides no thread.
    pub fn start(
        own: Peer,
        listen: Option<SocketAddr>,
        key: Key,
        events: Sender<LinkEvent>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Links> {
        let listener = listen.map(bound).transpose()?;
        let address = listener.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let run = move || {
            let hub = Hub::new(own, key, events, Box::new(wake));
            runtime.block_on(stream::serve(hub, listener, received));
            // A name lookup may take long, and no thread waits for its result any more.
            runtime.shutdown_background();
        };
        let builder = std::thread::Builder::new().name("dovetail-links".to_owned());
        let thread = Some(builder.spawn(run)?);
        let (commands, waiting) = (Some(commands), Mutex::default());
        Ok(Links { commands, waiting, address, thread })
    }

    /// The address that it listens on; if port 0 was requested, with the actual port.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Sends a message to a peer, if the peer is there (L3). Returns whether the message was queued
    /// (L1).
    pub fn send(&self, at: &Endpoint, to: Peer, message: Message) -> bool {
        self.send_held(at, to, message, Hold::default())
    }

    /// Like `send`, for a message whose memory its driver has booked until it has left.
    pub fn send_held(&self, at: &Endpoint, to: Peer, message: Message, hold: Hold) -> bool {
        let bytes = message.len_bytes() as usize;
        let weight = match bytes {
            0..=SHORT_BYTES => None,
            _ => match self.weigh(at, bytes) {
                Some(weight) => Some(weight),
                None => return false,
            },
        };
        self.push(at.clone(), Parcel::Message { to, message, _hold: (hold, weight) })
    }

    /// Counts a long message; none if the bound of bytes waiting for its receiver is reached.
    fn weigh(&self, at: &Endpoint, bytes: usize) -> Option<Weight> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.contains_key(at) {
            waiting.retain(|_, sum| Arc::strong_count(sum) > 1);
        }
        let sum = waiting.entry(at.clone()).or_default();
        (sum.load(Ordering::Relaxed) < WAITING_BYTES_MAX).then(|| Weight::new(sum, bytes))
    }

    /// Sends an operator's request to a manager.
    pub fn ask(&self, at: &Endpoint, id: u64, bytes: Vec<u8>) -> bool {
        self.push(at.clone(), Parcel::Ask { id, bytes })
    }

    /// Answers an operator.
    pub fn answer(&self, link: LinkId, id: u64, bytes: Vec<u8>) -> bool {
        self.push(Endpoint::Link(link), Parcel::Answer { id, bytes })
    }

    fn push(&self, at: Endpoint, parcel: Parcel) -> bool {
        let Some(commands) = &self.commands else { return false };
        commands.try_send(Command { at, parcel }).is_ok()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

/// The most connections that wait in the kernel to be accepted.
const BACKLOG_MAX: i32 = 4096;

/// Whether the content of a frame, which its tag has authenticated, is well-formed.
pub fn is_frame(content: &[u8]) -> bool {
    frame::read(content).is_some()
}

fn bound(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })?;
    // Strangers that connect all at once leave room for peers; the kernel caps the value at its own
    // maximum.
    rustix::net::listen(&listener, BACKLOG_MAX)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
