//! The socket that frames land by: datagrams to and from other nodes.
//!
//! ```text
//!  land, acknowledge ─▶ one datagram in the making a peer ─▶ full, or the round ends ─▶ sendto
//!  recvfrom ─▶ opened (tag, K25) ─▶ frames: the node, by the lane they came on
//!                                └▶ acknowledgements: kept for the round
//! ```
//!
//! # Limits
//! What the socket does not take is lost, as on any network; the node lands it again. Frames are
//! copied out of the socket into the node's segments.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use cluster::datagram::{self, AckBuilder, Body, FrameBuilder, Key, Refused, Route};
use cluster::message::Lane;
use cluster::record::BlockId;
use cluster::{NodeId, Term};
use crossbeam_channel::{Receiver, Sender, unbounded};

/// The largest datagram of UDP.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Asked of the kernel for each direction.
const SOCKET_BYTES: usize = 8 << 20;

/// A node's address, looked up.
type Found = (NodeId, SocketAddr);

/// See the module's page.
pub(super) struct Landing {
    socket: UdpSocket,
    own: NodeId,
    key: Key,
    datagram_bytes: usize,
    peers: BTreeMap<NodeId, Peer>,
    acked: VecDeque<(NodeId, Term, Vec<BlockId>)>,
    /// Addresses of hosts' names.
    found: (Sender<Found>, Receiver<Found>),
    buffer: Vec<u8>,
    counters: Counters,
    /// That another release sends here.
    has_told_format: bool,
}

/// What is being made for one peer, under one term.
struct Peer {
    at: Option<SocketAddr>,
    term: Term,
    frames: FrameBuilder,
    acks: AckBuilder,
}

/// What the socket has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that left.
    pub sent: u64,
    /// Those that the socket did not take.
    pub lost: u64,
    /// Datagrams that came.
    pub received: u64,
    /// Those that are no peer's, or not for this life of this node.
    pub refused: u64,
}

impl Landing {
    /// Listens.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(
        at: SocketAddr,
        own: NodeId,
        key: Key,
        datagram_bytes: usize,
    ) -> io::Result<Landing> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let raw = socket2::SockRef::from(&socket);
        // As much as the kernel allows; less is only slower.
        let _ = raw.set_recv_buffer_size(SOCKET_BYTES);
        let _ = raw.set_send_buffer_size(SOCKET_BYTES);
        Ok(Landing {
            socket,
            own,
            key,
            datagram_bytes: datagram_bytes.min(DATAGRAM_BYTES_MAX),
            peers: BTreeMap::new(),
            acked: VecDeque::new(),
            found: unbounded(),
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            counters: Counters::default(),
            has_told_format: false,
        })
    }

    /// To be polled.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Another configuration: who is where. What is in the making under an older term is dropped,
    /// for nobody would take it any more.
    pub fn set_peers<'p>(&mut self, term: Term, peers: impl Iterator<Item = (NodeId, &'p str)>) {
        let limit_bytes = self.datagram_bytes;
        let mut old = std::mem::take(&mut self.peers);
        for (node, address) in peers {
            let at = old.remove(&node).and_then(|peer| peer.at).or(address.parse().ok());
            if at.is_none() {
                self.look_up(node, address);
            }
            let frames = FrameBuilder::new(limit_bytes);
            let acks = AckBuilder::new(limit_bytes);
            self.peers.insert(node, Peer { at, term, frames, acks });
        }
    }

    /// Looks a host's name up, which may take long, in a thread of its own.
    fn look_up(&mut self, node: NodeId, address: &str) {
        let (found, address) = (self.found.0.clone(), address.to_owned());
        let look = move || {
            if let Some(at) = address.to_socket_addrs().ok().and_then(|mut all| all.next()) {
                // The server may have ended meanwhile.
                let _ = found.send((node, at));
            }
        };
        // Without a thread it is looked up at the next configuration.
        let _ = std::thread::Builder::new().name("lookup".to_owned()).spawn(look);
    }

    /// Lands a frame at a peer.
    pub fn land(&mut self, to: NodeId, term: Term, frame: &[u8]) {
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.term == term) else { return };
        if !peer.frames.push(frame) {
            self.send_frames(to);
            if let Some(peer) = self.peers.get_mut(&to) {
                let _ = peer.frames.push(frame);
            }
        }
    }

    /// Tells a peer what has landed here.
    pub fn acknowledge(&mut self, to: NodeId, term: Term, blocks: &[BlockId]) {
        for block in blocks {
            let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.term == term) else {
                return;
            };
            if !peer.acks.push(*block) {
                self.send_acks(to);
                if let Some(peer) = self.peers.get_mut(&to) {
                    let _ = peer.acks.push(*block);
                }
            }
        }
    }

    /// Everything that is in the making leaves.
    pub fn send(&mut self) {
        while let Ok((node, at)) = self.found.1.try_recv() {
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.at = Some(at);
            }
        }
        let waiting =
            self.peers.iter().filter(|(_, peer)| !peer.frames.is_empty() || !peer.acks.is_empty());
        let waiting: Vec<NodeId> = waiting.map(|(node, _)| *node).collect();
        for to in waiting {
            self.send_frames(to);
            self.send_acks(to);
        }
    }

    fn send_frames(&mut self, to: NodeId) {
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| !peer.frames.is_empty()) else {
            return;
        };
        let route = Route { lane: Lane { from: self.own, term: peer.term }, to };
        let bytes = peer.frames.finish(route, &self.key);
        count_sent(&mut self.counters, send_to(&self.socket, bytes, peer.at));
    }

    fn send_acks(&mut self, to: NodeId) {
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| !peer.acks.is_empty()) else {
            return;
        };
        let route = Route { lane: Lane { from: self.own, term: peer.term }, to };
        let bytes = peer.acks.finish(route, &self.key);
        count_sent(&mut self.counters, send_to(&self.socket, bytes, peer.at));
    }

    /// At most so many datagrams: their frames go to `land`. Whether there may be more.
    pub fn receive(&mut self, datagram_max: usize, mut land: impl FnMut(Lane, &[u8])) -> bool {
        for _ in 0..datagram_max {
            let Ok((len_bytes, _)) = self.socket.recv_from(&mut self.buffer) else { return false };
            self.counters.received += 1;
            match datagram::open(&self.buffer[..len_bytes], self.own, &self.key) {
                Ok(datagram) => match datagram.body {
                    Body::Frames(frames) => frames.for_each(|frame| land(datagram.lane, frame)),
                    Body::Acks(acks) => {
                        let Lane { from, term } = datagram.lane;
                        self.acked.push_back((from, term, acks.collect()));
                    }
                },
                Err(error) => {
                    self.counters.refused += 1;
                    // Said once: the address of a datagram proves nothing, and anyone may send it.
                    let is_other = matches!(error, Refused::UnknownFormat { .. });
                    if is_other && !std::mem::replace(&mut self.has_told_format, true) {
                        tracing::warn!("{error}");
                    } else if !matches!(error, Refused::NotForUs { .. }) {
                        tracing::debug!("a datagram at the peers' port: {error}");
                    }
                }
            }
        }
        true
    }

    /// The next acknowledgement that has come.
    pub fn take_acked(&mut self) -> Option<(NodeId, Term, Vec<BlockId>)> {
        self.acked.pop_front()
    }
}

fn send_to(socket: &UdpSocket, bytes: &[u8], at: Option<SocketAddr>) -> bool {
    at.is_some_and(|at| socket.send_to(bytes, at).is_ok())
}

fn count_sent(counters: &mut Counters, is_sent: bool) {
    if is_sent {
        counters.sent += 1;
    } else {
        counters.lost += 1;
    }
}
