//! Inbound logs: workers as backups, under the scheme `rpc` (decision 0064). Each worker receives
//! entries at a socket of its own, appends them to a log of its own and acknowledges them. The
//! control thread digests the logs.
//!
//! ```text
//!  peer ─ entry, thread 3 ─▶ kernel: by the datagram's thread ─▶ socket of worker (3-1) mod n
//!                                                                 Receiver: tag, checksum, term
//!       ◀─ acknowledgement ───────────────────────────────────────┤
//!                                                                 ▼
//!                                                     inbound log ─▶ control thread: digest
//! ```
//!
//! # Invariants
//! D1: an inbound log accepts entries only under the term for which it is open. It is closed, and
//!     emptied into the node, before another configuration is installed (N3): entries acknowledged
//!     under a term are digested under it.
//! D2: inbound logs are emptied before the node gets a message or an announcement of what is on all
//!     copies (L4 of cluster::node::landing): so the node has every entry that was acknowledged
//!     before that was sent.
//! D3: with `fsync` a receiver acknowledges nothing: the node does, once the entry is on the medium
//!     (K21).
//! D4: a worker that waits for the control thread receives entries meanwhile. It waits for writes
//!     that workers of other nodes have to take in, and these may wait in the same way: otherwise
//!     all of them would wait for each other.

use std::io;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Instant;
use cluster::datagram::{AckBuilder, Body, Key, Route, open};
use cluster::message::Lane;
use cluster::node::{Action, Event};
use cluster::record::{BlockId, Check, block};
use cluster::{Node, NodeId, Term, Way};
use host::poller::Waker;
use landing::Sender;

use super::ServerReplicaStore;
use super::socket::{Counters, FULL_COUNT, Socket};

/// Bytes that a worker keeps for the control thread; further entries are not accepted, and sent
/// again.
const INBOUND_BYTES_MAX: usize = 4 << 20;
/// System calls in one round of a worker.
const BURSTS_MAX: usize = 4;
/// A waiting worker looks at what it waits for at least this often: a control thread that has ended
/// wakes no worker.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The inbound logs of all workers.
pub struct InboundLogs {
    inbound_logs: Vec<Mutex<InboundLog>>,
}

/// One worker's inbound log; see D1.
#[derive(Default)]
struct InboundLog {
    term: Option<Term>,
    taken: Taken,
    counters: Counters,
    frame_count: u64,
}

/// Frames in the order of their arrival.
#[derive(Default)]
pub struct Taken {
    bytes: Vec<u8>,
    frames: Vec<(Lane, Way, usize)>,
}

impl Taken {
    /// The frames, each with its lane and its way.
    pub fn iter(&self) -> impl Iterator<Item = (Lane, Way, &[u8])> {
        let mut rest = &self.bytes[..];
        self.frames.iter().map(move |(lane, way, len_bytes)| {
            let (frame, later) = rest.split_at(*len_bytes);
            rest = later;
            (*lane, *way, frame)
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}

impl InboundLogs {
    fn new(count: usize) -> InboundLogs {
        InboundLogs { inbound_logs: (0..count).map(|_| Mutex::default()).collect() }
    }

    fn inbound_log(&self, index: usize) -> MutexGuard<'_, InboundLog> {
        self.inbound_logs[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the logs for entries of this term (D1).
    pub fn open(&self, term: Term) {
        (0..self.inbound_logs.len()).for_each(|index| self.inbound_log(index).term = Some(term));
    }

    /// Closes the logs.
    pub fn close(&self) {
        (0..self.inbound_logs.len()).for_each(|index| self.inbound_log(index).term = None);
    }

    /// Empties the logs.
    pub fn empty(&self, spare: &mut Taken, mut each: impl FnMut(&Taken)) {
        for index in 0..self.inbound_logs.len() {
            spare.clear();
            std::mem::swap(&mut self.inbound_log(index).taken, spare);
            if !spare.frames.is_empty() {
                each(spare);
            }
        }
    }

    /// Datagrams, entries, and how many of the inbound logs have ever accepted one.
    pub fn counters(&self) -> (Counters, u64, u64) {
        let mut sum = (Counters::default(), 0, 0);
        for index in 0..self.inbound_logs.len() {
            let inbound_log = self.inbound_log(index);
            let streams = sum.2 + u64::from(inbound_log.frame_count > 0);
            sum = (sum.0.plus(inbound_log.counters), sum.1 + inbound_log.frame_count, streams);
        }
        sum
    }
}

/// A worker's part. It is created with the node, and taken by the worker when that starts.
pub struct Receiver {
    index: usize,
    own: NodeId,
    key: Key,
    socket: Socket,
    inbound_logs: Arc<InboundLogs>,
    acks: AckBuilder,
    /// Wakes the control thread for entries that this receiver may not acknowledge (D3).
    waker: Option<Waker>,
    /// Wakes its worker while that waits (D4).
    awaited: Waker,
}

/// The identity with which a receiver answers.
#[derive(Clone, Copy)]
pub struct Post<'k> {
    /// This node.
    pub own: NodeId,
    /// The key that signs its datagrams.
    pub key: &'k Key,
    /// The length of its longest datagram.
    pub datagram_bytes: usize,
}

/// A receiver for each of these sockets, and the control thread's side of them.
///
/// # Errors
/// The system gives no memory, or no descriptor.
pub fn receivers(
    sockets: Vec<UdpSocket>,
    post: Post<'_>,
    waker: Option<&Waker>,
) -> io::Result<(Arc<InboundLogs>, Vec<Receiver>)> {
    let inbound_logs = Arc::new(InboundLogs::new(sockets.len()));
    let make = |(index, socket)| {
        Ok(Receiver {
            index,
            own: post.own,
            key: *post.key,
            socket: Socket::new(socket)?,
            inbound_logs: Arc::clone(&inbound_logs),
            acks: AckBuilder::new(post.datagram_bytes),
            waker: waker.cloned(),
            awaited: Waker::new()?,
        })
    };
    let receivers = sockets.into_iter().enumerate().map(make).collect::<io::Result<_>>()?;
    Ok((inbound_logs, receivers))
}

/// Gives the node the entries of the inbound logs. It acknowledges those that were not acknowledged
/// (D3) itself.
pub fn empty(
    inbound_logs: &InboundLogs,
    node: &mut Node<ServerReplicaStore>,
    spare: &mut Taken,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let is_acknowledged = !node.is_durable();
    inbound_logs.empty(spare, |taken| {
        for (lane, way, bytes) in taken.iter() {
            let event = match is_acknowledged {
                true => Event::Executed { lane, bytes },
                false => Event::Landed { lane, way, bytes },
            };
            node.input(event, now, actions);
        }
    });
}

impl Receiver {
    /// The descriptor for its worker's poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Wakes a worker that waits in [`Receiver::serve_until`].
    pub fn awaited(&self) -> &Waker {
        &self.awaited
    }

    /// Waits until something is found or the time is over, and serves meanwhile (D4). Whatever
    /// makes it be found wakes [`Receiver::awaited`] afterwards, or ends for good.
    pub fn serve_until<T>(
        &mut self,
        deadline: std::time::Instant,
        mut find: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            let found = find();
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if found.is_some() || left.is_zero() {
                return found;
            }
            let look_after = left.min(LOOK_EVERY);
            if let Err(error) = self.awaited.wait_beside(self.socket.as_fd(), look_after) {
                // This cannot happen with valid descriptors.
                tracing::error!("a worker cannot poll for entries: {error}");
                std::thread::sleep(LOOK_EVERY);
            }
            self.awaited.reset();
            self.serve();
        }
    }

    /// Receives entries, and acknowledges them.
    pub fn serve(&mut self) {
        let Receiver { index, own, key, socket, inbound_logs, acks, waker, .. } = self;
        let (mut answers, mut refused, mut has_any) = (Vec::new(), 0, false);
        for _ in 0..BURSTS_MAX {
            let mut inbound_log = inbound_logs.inbound_log(*index);
            let count = socket.receive(|sender, bytes| {
                let Ok(datagram) = open(bytes, *own, key) else {
                    refused += 1;
                    return;
                };
                let Body::Frames(frames) = datagram.body else { return };
                let (lane, way) = (datagram.lane, datagram.way);
                for frame in frames {
                    if inbound_log.take(lane, way, frame) {
                        has_any = true;
                        answers.push((sender, lane, ids(frame)));
                    }
                }
            });
            socket.count_refused(std::mem::take(&mut refused));
            inbound_log.counters = socket.counters();
            drop(inbound_log);
            match waker {
                Some(waker) if has_any => waker.wake(),
                Some(_) => {}
                None => {
                    answers.drain(..).for_each(|answer| reply(socket, acks, (*own, key), answer))
                }
            }
            answers.clear();
            socket.flush();
            if count < FULL_COUNT {
                break; // The poller reports later arrivals.
            }
        }
    }
}

/// The receiver of the acknowledgement, the lane, and the blocks.
type Answer = (Sender, Lane, Vec<BlockId>);

/// Acknowledges one entry.
fn reply(socket: &mut Socket, acks: &mut AckBuilder, (own, key): (NodeId, &Key), answer: Answer) {
    let (sender, Lane { from, term }, blocks) = answer;
    let route = Route { lane: Lane { from: own, term }, to: from };
    for block in blocks {
        if !acks.push(block) {
            socket.queue(sender, acks.finish(route, key));
            let _ = acks.push(block); // An empty one always has room.
        }
    }
    if !acks.is_empty() {
        socket.queue(sender, acks.finish(route, key));
    }
}

/// The blocks of a frame whose checksums are right; marks are not blocks.
fn ids(frame: &[u8]) -> Vec<BlockId> {
    let (mut ids, mut rest) = (Vec::with_capacity(1), frame);
    while let Some((header, _)) = block(rest, Check::Checksum) {
        if header.kind.is_write() {
            ids.push(header.id());
        }
        rest = rest.get(header.len_bytes()..).unwrap_or_default();
    }
    ids
}

impl InboundLog {
    /// Appends a frame; returns whether there was room and it is of the open term (D1).
    fn take(&mut self, lane: Lane, way: Way, frame: &[u8]) -> bool {
        let has_room = self.taken.bytes.len() + frame.len() <= INBOUND_BYTES_MAX;
        if self.term != Some(lane.term) || !has_room {
            return false;
        }
        self.taken.bytes.extend_from_slice(frame);
        self.taken.frames.push((lane, way, frame.len()));
        self.frame_count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use cluster::datagram::FrameBuilder;
    use cluster::record::{Answered, Entry};
    use cluster::{ClientId, ShardId, Slot, Version};

    use super::*;
    use crate::cluster::socket::DATAGRAM_BYTES_MAX;
    use crate::replicate::{ControlChannel, GroupAnswer, GroupCall, PendingGroup};

    fn node(name: u16) -> NodeId {
        NodeId { name, incarnation: 1 }
    }

    /// A write as a peer sends it to a worker.
    fn entry_of(shard: ShardId, version: Version) -> Arc<[u8]> {
        let entry = Entry {
            shard,
            version,
            client: ClientId::NONE,
            sequence: 0,
            answered: Answered::Done,
            key: Arc::from(&b"key"[..]),
            value: Some(Arc::from(&b"value"[..])),
            is_flush: false,
            client_flags: 0,
            expires_at: None,
        };
        entry.blocks(DATAGRAM_BYTES_MAX).remove(0)
    }

    /// Calls as a worker that waits until it is answered.
    fn ask_to_begin(
        channel: &Arc<ControlChannel>,
        receiver: Option<&mut Receiver>,
    ) -> Option<GroupAnswer> {
        let (group, answer_to) = PendingGroup::new(channel, 0, &Arc::default());
        let call = GroupCall::Begin(Slot(0), answer_to);
        channel.ask(&group, call, receiver, Duration::from_secs(30))
    }

    /// D4: two nodes are in this place at once if each has a group of its own under way.
    #[test]
    fn a_worker_that_waits_for_its_group_takes_in_what_peers_write() {
        let (own, peer) = (node(1), node(2));
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (socket, at_peer) = (bind(), bind());
        let (to, key) = (socket.local_addr().expect("bound"), Key::insecure());
        let post = Post { own, key: &key, datagram_bytes: DATAGRAM_BYTES_MAX };
        let (inbound_logs, mut all) = receivers(vec![socket], post, None).expect("memory");
        let mut receiver = all.pop().expect("one");
        inbound_logs.open(Term(1));
        let (channel, mut ends) = ControlChannel::new(1).expect("descriptors");
        let channel = Arc::new(channel);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| ask_to_begin(&channel, Some(&mut receiver)));
            // A group's end is answered once all copies have it: not before the peer goes on.
            let (_, call) = ends.groups.recv().expect("the worker's call");
            let GroupCall::Begin(_, answer_to) = call else { panic!("no group begins") };
            let mut frames = FrameBuilder::new(DATAGRAM_BYTES_MAX);
            let (shard, version) = (ShardId(0), Version::before_epoch(1).next().expect("a first"));
            assert!(frames.push(&entry_of(shard, version)));
            let route = Route { lane: Lane { from: peer, term: Term(1) }, to: own };
            let sent = frames.finish(route, Way { thread: 1, at: None }, &key);
            at_peer.send_to(sent, to).expect("sent");
            let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
            at_peer.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            let answer = at_peer.recv(&mut bytes);
            ends.answer(&answer_to, GroupAnswer::Good); // The worker ends in any case.
            assert_eq!(worker.join().expect("it ends"), Some(GroupAnswer::Good));
            let len_bytes = answer.expect("the waiting worker acknowledges");
            let datagram = open(&bytes[..len_bytes], peer, &key).expect("of the worker");
            let Body::Acks(acks) = datagram.body else { panic!("no acknowledgement") };
            assert_eq!(acks.collect::<Vec<_>>(), [BlockId { shard, version, block: 0 }]);
        });
        assert_eq!(inbound_logs.counters().1, 1);
    }

    #[test]
    fn a_waiting_worker_learns_that_the_control_thread_has_ended() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (own, key) = (NodeId::default(), Key::insecure());
        let post = Post { own, key: &key, datagram_bytes: DATAGRAM_BYTES_MAX };
        let (_, mut all) = receivers(vec![socket], post, None).expect("memory");
        let (channel, ends) = ControlChannel::new(1).expect("descriptors");
        let channel = Arc::new(channel);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| ask_to_begin(&channel, all.first_mut()));
            drop(ends.groups.recv().expect("the worker's call"));
            drop(ends);
            assert_eq!(worker.join().expect("it ends"), Some(GroupAnswer::Bad));
        });
    }

    #[test]
    fn a_inbound_log_takes_what_is_of_its_term_and_gives_it_away_once() {
        let inbound_logs = InboundLogs::new(2);
        let lane = |term| Lane { from: NodeId::default(), term: Term(term) };
        let way = Way { thread: 1, at: None };
        assert!(!inbound_logs.inbound_log(0).take(lane(1), way, &[1; 64]), "closed");
        inbound_logs.open(Term(2));
        assert!(!inbound_logs.inbound_log(0).take(lane(1), way, &[1; 64]), "an older term");
        assert!(inbound_logs.inbound_log(0).take(lane(2), way, &[1; 64]));
        assert!(inbound_logs.inbound_log(0).take(lane(2), way, &[2; 128]));
        inbound_logs.close();
        assert!(!inbound_logs.inbound_log(1).take(lane(2), way, &[1; 64]), "closed again");
        let (mut spare, mut seen) = (Taken::default(), Vec::new());
        let mut empty = || {
            inbound_logs.empty(&mut spare, |taken| {
                seen.extend(taken.iter().map(|(lane, _, frame)| (lane, frame.to_vec())));
            });
        };
        empty();
        empty();
        assert_eq!(seen, [(lane(2), vec![1; 64]), (lane(2), vec![2; 128])]);
        assert_eq!(inbound_logs.counters().1, 2);
    }
}
