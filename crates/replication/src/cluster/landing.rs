//! The node's landing socket: frames to other nodes' backup logs, frames from other nodes, and
//! acknowledgements, sent as the cluster's scheme requires (decision 0064).
//!
//! ```text
//!  land, acknowledge ─▶ one datagram in the making a peer ─▶ full: kept ─▶ round ends ─┐
//!        rpc, write, share: a datagram for each frame ────────────────────────────────┼▶ socket
//!        batch: one in the making for each thread ─▶ 256 bytes, or 5 us old ──────────┘
//!  socket ─▶ opened (tag, K25) ─▶ frames: the node, by the lane and the way they came on
//!                              └▶ acknowledgements: kept for the round
//! ```
//!
//! # Invariants
//! L1: a round's frames alternate between peers, so each peer's full datagrams are kept and then
//!     queued side by side: the kernel takes them as one message.
//!
//! # Limits
//! A datagram that the socket does not take is lost, as on any network; the node lands its entries
//! again.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::Instant;
use cluster::datagram::{self, AckBuilder, Body, FrameBuilder, Frames, Key, Refused, Route};
use cluster::message::Lane;
use cluster::record::BlockId;
use cluster::{NodeId, Scheme, Term, Way};
use crossbeam_channel::{Receiver, Sender, unbounded};

use super::lookup;
use super::socket::{Counters, DATAGRAM_BYTES_MAX, Socket};

/// More than the kernel takes as one message.
const FULL_BYTES_MAX: usize = 128 << 10;

/// A node's address, looked up.
type Found = (NodeId, SocketAddr);

/// See the module's page.
pub struct Landing {
    socket: Socket,
    scheme: Scheme,
    own: NodeId,
    key: Key,
    datagram_bytes: usize,
    peers: BTreeMap<NodeId, Peer>,
    acked: VecDeque<(NodeId, Term, Vec<BlockId>)>,
    /// Channel for the looked-up addresses of host names.
    found: (Sender<Found>, Receiver<Found>),
    /// Threads look up as long as this is held: until the next configuration.
    looking: Arc<()>,
    /// Frames with entries that left.
    pub sent_frames: u64,
    /// Whether batches wait for their time.
    has_batches: bool,
    /// Whether it was logged that another release sends to this socket.
    has_told_format: bool,
}

/// The frames in the making for one peer, under one term.
struct Peer {
    at: Option<SocketAddr>,
    term: Term,
    frames: FrameBuilder,
    full: Full,
    acks: AckBuilder,
    /// By receiving thread.
    batches: BTreeMap<u16, Batch>,
}

/// Full datagrams, one behind the other (L1).
#[derive(Default)]
struct Full {
    bytes: Vec<u8>,
    lens_bytes: Vec<usize>,
}

impl Full {
    fn keep(&mut self, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.lens_bytes.push(datagram.len());
    }

    fn leave(&mut self, socket: &mut Socket, at: Option<SocketAddr>) {
        let mut rest = &self.bytes[..];
        for len_bytes in self.lens_bytes.drain(..) {
            let (datagram, later) = rest.split_at(len_bytes);
            queue(socket, at, datagram);
            rest = later;
        }
        self.bytes.clear();
    }
}

/// Frames that follow each other in one log.
struct Batch {
    frames: FrameBuilder,
    /// The way of the first frame.
    way: Way,
    since: Instant,
}

impl Batch {
    fn next_at(&self) -> Option<u64> {
        Some(self.way.at? + self.frames.len_bytes() as u64)
    }
}

impl Landing {
    /// A landing over the peers' socket.
    pub fn new(
        socket: Socket,
        (own, key): (NodeId, Key),
        (scheme, datagram_bytes): (Scheme, usize),
    ) -> Landing {
        Landing {
            socket,
            scheme,
            own,
            key,
            datagram_bytes: datagram_bytes.min(DATAGRAM_BYTES_MAX),
            peers: BTreeMap::new(),
            acked: VecDeque::new(),
            found: unbounded(),
            looking: Arc::new(()),
            sent_frames: 0,
            has_batches: false,
            has_told_format: false,
        }
    }

    /// The descriptor for a poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes up another configuration: the address of each node. Frames in the making under an
    /// older term are dropped, because no node would accept them any more.
    pub fn set_peers<'p>(&mut self, term: Term, peers: impl Iterator<Item = (NodeId, &'p str)>) {
        let limit_bytes = self.datagram_bytes;
        self.looking = Arc::new(());
        let mut old = std::mem::take(&mut self.peers);
        for (node, address) in peers {
            let at = old.remove(&node).and_then(|peer| peer.at).or(address.parse().ok());
            if at.is_none() {
                self.look_up(node, address);
            }
            let frames = FrameBuilder::new(limit_bytes);
            let (acks, batches) = (AckBuilder::new(limit_bytes), BTreeMap::new());
            let full = Full::default();
            self.peers.insert(node, Peer { at, term, frames, full, acks, batches });
        }
    }

    /// Looks a host's name up in a separate thread, because that may take long.
    fn look_up(&mut self, node: NodeId, address: &str) {
        let (found, address) = (self.found.0.clone(), address.to_owned());
        let wanted = Arc::downgrade(&self.looking);
        let look = move || {
            let resolve = || address.to_socket_addrs().map(|mut all| all.next());
            if let Some(at) = lookup::until_found(&address, resolve, &wanted, std::thread::sleep) {
                let _ = found.send((node, at)); // The server may have ended meanwhile.
            }
        };
        // Without a thread it is looked up at the next configuration.
        let _ = std::thread::Builder::new().name("lookup".to_owned()).spawn(look);
    }

    /// Lands a frame at a peer.
    pub fn land(&mut self, to: NodeId, term: Term, way: Way, frame: &[u8], now: Instant) {
        let Landing { socket, own, key, .. } = self;
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.term == term) else { return };
        let route = Route { lane: Lane { from: *own, term }, to };
        self.sent_frames += u64::from(!way.is_mark());
        match self.scheme {
            Scheme::Batch if !way.is_mark() => {
                let limit_bytes = self.datagram_bytes;
                let make = || Batch { frames: FrameBuilder::new(limit_bytes), way, since: now };
                let batch = peer.batches.entry(way.thread).or_insert_with(make);
                let at = peer.at;
                let mut leave = |batch: &mut Batch| {
                    queue(socket, at, batch.frames.finish(route, batch.way, key));
                };
                let is_begun = !batch.frames.is_empty();
                let joins = is_begun && batch.next_at() == way.at && batch.frames.push(frame);
                if !joins {
                    if is_begun {
                        leave(batch);
                    }
                    (batch.way, batch.since) = (way, now);
                    let _ = batch.frames.push(frame); // An empty one always has room.
                }
                if batch.frames.len_bytes() >= Scheme::BATCH_BYTES {
                    leave(batch);
                } else {
                    self.has_batches = true;
                }
            }
            Scheme::Rowan | Scheme::Batch => push(socket, peer, route, Way::MARK, (frame, key)),
            _ if way.is_mark() => push(socket, peer, route, Way::MARK, (frame, key)),
            Scheme::Rpc | Scheme::Write | Scheme::Share => {
                flush_frames(socket, peer, route, key);
                push(socket, peer, route, way, (frame, key));
                queue(socket, peer.at, peer.frames.finish(route, way, key));
            }
        }
    }

    /// Acknowledges landed blocks to a peer.
    pub fn acknowledge(&mut self, to: NodeId, term: Term, blocks: &[BlockId]) {
        let Landing { socket, own, key, .. } = self;
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.term == term) else { return };
        let route = Route { lane: Lane { from: *own, term }, to };
        for block in blocks {
            if !peer.acks.push(*block) {
                queue(socket, peer.at, peer.acks.finish(route, key));
                let _ = peer.acks.push(*block); // An empty one always has room.
            }
        }
    }

    /// Sends everything in the making, except batches whose time has not come.
    pub fn send(&mut self, now: Instant) {
        while let Ok((node, at)) = self.found.1.try_recv() {
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.at = Some(at);
            }
        }
        let Landing { socket, own, key, peers, .. } = self;
        let mut has_batches = false;
        for (to, peer) in peers {
            let route = Route { lane: Lane { from: *own, term: peer.term }, to: *to };
            flush_frames(socket, peer, route, key);
            if !peer.acks.is_empty() {
                queue(socket, peer.at, peer.acks.finish(route, key));
            }
            for batch in peer.batches.values_mut().filter(|batch| !batch.frames.is_empty()) {
                if now.ns < batch.since.ns.saturating_add(Scheme::BATCH_NS) {
                    has_batches = true;
                } else {
                    queue(socket, peer.at, batch.frames.finish(route, batch.way, key));
                }
            }
        }
        self.has_batches = has_batches;
        self.socket.flush();
    }

    /// Whether something will leave soon without further calls.
    pub fn has_unsent(&self) -> bool {
        self.has_batches || self.socket.has_unsent()
    }

    /// Receives about that many datagrams: their frames go to `land`, with the way of the first
    /// one. Returns whether there may be more.
    pub fn receive(
        &mut self,
        datagram_max: usize,
        mut land: impl FnMut(Lane, Way, Frames<'_>),
    ) -> bool {
        let mut received = 0;
        while received < datagram_max {
            let (mut refused, own, key) = (0, self.own, &self.key);
            let (acked, has_told_format) = (&mut self.acked, &mut self.has_told_format);
            let count = self.socket.receive(|_, bytes| match datagram::open(bytes, own, key) {
                Ok(datagram) => match datagram.body {
                    Body::Frames(frames) => land(datagram.lane, datagram.way, frames),
                    Body::Acks(acks) => {
                        let Lane { from, term } = datagram.lane;
                        acked.push_back((from, term, acks.collect()));
                    }
                },
                Err(error) => {
                    refused += 1;
                    // Logged once: a datagram's address proves nothing, and any host may send it.
                    let is_other = matches!(error, Refused::UnknownFormat { .. });
                    if is_other && !std::mem::replace(has_told_format, true) {
                        tracing::warn!("{error}");
                    } else if !matches!(error, Refused::NotForUs { .. }) {
                        tracing::debug!("a datagram at the peers' port: {error}");
                    }
                }
            });
            self.socket.count_refused(refused);
            // Datagrams that arrived while the last ones were taken in belong to this round, and
            // need no wait.
            if count == 0 {
                return false; // The poller reports later arrivals.
            }
            received += count;
        }
        true
    }

    /// The next acknowledgement that has arrived.
    pub fn take_acked(&mut self) -> Option<(NodeId, Term, Vec<BlockId>)> {
        self.acked.pop_front()
    }

    /// The socket's counters.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }
}

/// Adds a frame to the datagram in the making.
fn push(socket: &mut Socket, peer: &mut Peer, route: Route, way: Way, (frame, key): (&[u8], &Key)) {
    if !peer.frames.push(frame) {
        peer.full.keep(peer.frames.finish(route, way, key));
        if peer.full.bytes.len() >= FULL_BYTES_MAX {
            peer.full.leave(socket, peer.at);
        }
        let _ = peer.frames.push(frame); // An empty one always has room.
    }
}

fn flush_frames(socket: &mut Socket, peer: &mut Peer, route: Route, key: &Key) {
    peer.full.leave(socket, peer.at);
    if !peer.frames.is_empty() {
        queue(socket, peer.at, peer.frames.finish(route, Way::MARK, key));
    }
}

fn queue(socket: &mut Socket, at: Option<SocketAddr>, bytes: &[u8]) {
    match at {
        Some(at) => socket.queue(landing::Sender::address(at), bytes),
        None => socket.count_lost(),
    }
}
