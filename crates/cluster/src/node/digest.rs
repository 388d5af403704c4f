//! The digest: landed entries become part of the index, after being checked and assembled, newest
//! first.
//!
//! The control step ([`land`]) only looks at headers and acknowledges. The digest checks sums
//! and senders, later and in order. A step that needs the index complete digests all landed entries
//! first: a change of configuration (N3) and a promotion.
//!
//! # Invariants
//! G1: a record counts if its sum is right and its lane's node was the shard's primary in the
//!     lane's term (K22).
//! G2: a record at or below CommitVer, the version up to which all copies have everything, is a
//!     repetition and is dropped, so that no delete need be remembered because of it (K2).
//! G3: an entry of several blocks is in the index once all of them are here (K14).
//! G4: where the replica store is the log and one log takes all frames, a frame is digested when it
//!     lands: an entry that the replica store does not take is not acknowledged, and nothing is
//!     left of it. An entry that the replica store installs later is acknowledged then (`later`).

use std::sync::Arc;

use base::Instant;

use crate::configuration::Role;
use crate::message::{Lane, Message, Peer};
use crate::node::durable::Held;
use crate::node::landing::{self, Frame, Segment};
use crate::node::{Action, Node, durable, later};
use crate::record::{BlockId, Entry, Header, Kind, block};
use crate::replica_store::{Installed, Landed, ReplicaStore};
use crate::scheme::Way;

/// Whether a record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Not,
    Now,
    /// Not known yet (`later`).
    Later,
}

impl From<bool> for Taken {
    fn from(counts: bool) -> Taken {
        if counts { Taken::Now } else { Taken::Not }
    }
}

impl From<Installed> for Taken {
    fn from(installed: Installed) -> Taken {
        match installed {
            Installed::Newest | Installed::Older => Taken::Now,
            Installed::NoRoom => Taken::Not,
            Installed::Later => Taken::Later,
        }
    }
}

/// The position in each log up to which a digest goes.
#[derive(Clone, Copy, Debug)]
enum Until {
    Used,
    End,
}

impl<S: ReplicaStore> Node<S> {
    /// Digests everything that has landed into the index.
    pub fn digest_all(&mut self) {
        digest(self, Until::End);
        reclaim(self);
    }
}

/// Lands a frame: it is acknowledged by its headers and digested later.
pub(super) fn land<S: ReplicaStore>(
    node: &mut Node<S>,
    lane: Lane,
    way: Way,
    bytes: &[u8],
    actions: &mut Vec<Action>,
) {
    if lane.term != node.term() {
        return node.logs.count_fenced(); // N3
    }
    if node.durable.is_replica_store() && node.logs.are_one() {
        return land_at_once(node, lane, bytes, actions);
    }
    let landed = node.logs.land(lane, way, bytes);
    if node.durable.is_replica_store() {
        return land_on_replica_store(node, lane, actions);
    }
    if landed == landing::Landed::Whole {
        node.durable.append(bytes, actions);
        if node.durable.is_on() {
            let blocks: Vec<BlockId> = headers(bytes).collect();
            if !blocks.is_empty() {
                let message = Message::Acked { term: lane.term, blocks };
                let held = Held::Send { to: Peer::Node(lane.from), message };
                // The time matters only to answers that are released to clients.
                durable::when_durable(node, held, Instant::default(), actions);
            }
        } else {
            acknowledge(lane, headers(bytes), actions);
        }
    }
    if node.logs.orders_digest(way) {
        node.digest_all();
    } else if node.logs.has_used() {
        digest(node, Until::Used);
        reclaim(node);
    }
}

/// Takes over a frame that another thread of this node has taken in and acknowledged. Entries
/// without room go to the backlog (`backlog`).
pub(super) fn executed<S: ReplicaStore>(node: &mut Node<S>, lane: Lane, bytes: &[u8]) {
    if lane.term != node.term() {
        return node.logs.count_fenced(); // N3
    }
    node.backlog.is_taking = true;
    let dropped_count = digest_frame(node, lane, bytes, |_, _| {});
    node.backlog.is_taking = false;
    node.logs.count_dropped(dropped_count);
}

/// Where the replica store is the log: installs landed entries first, and acknowledges the
/// installed ones once they are durable. Of an entry of several blocks, the block that completed it
/// is acknowledged last.
fn land_on_replica_store<S: ReplicaStore>(
    node: &mut Node<S>,
    lane: Lane,
    actions: &mut Vec<Action>,
) {
    let blocks = digest(node, Until::End);
    reclaim(node);
    acknowledge_installed(node, lane, &blocks, actions);
}

/// The same if all frames land in one log: its order is that of arrival, so no frame needs to lie
/// in a segment first (G4).
fn land_at_once<S: ReplicaStore>(
    node: &mut Node<S>,
    lane: Lane,
    bytes: &[u8],
    actions: &mut Vec<Action>,
) {
    let mut blocks = std::mem::take(&mut node.installed);
    let dropped_count = digest_frame(node, lane, bytes, |header, taken| {
        if taken == Taken::Now && header.kind.is_write() {
            blocks.push(header.id());
        }
    });
    node.logs.count_passed(dropped_count);
    acknowledge_installed(node, lane, &blocks, actions);
    blocks.clear();
    node.installed = blocks; // Its memory.
}

pub(super) fn acknowledge_installed<S: ReplicaStore>(
    node: &mut Node<S>,
    lane: Lane,
    blocks: &[BlockId],
    actions: &mut Vec<Action>,
) {
    node.backlog.tell_crowded(lane, actions);
    if blocks.is_empty() {
        return;
    }
    node.durable.count_change();
    if !node.durable.is_on() {
        return acknowledge(lane, blocks.iter().copied(), actions);
    }
    let message = Message::Acked { term: lane.term, blocks: blocks.to_vec() };
    let held = Held::Send { to: Peer::Node(lane.from), message };
    durable::when_durable(node, held, Instant::default(), actions);
}

/// Digests up to a position. Returns the blocks that counted. The log of marks is the last one
/// (L4).
fn digest<S: ReplicaStore>(node: &mut Node<S>, until: Until) -> Vec<BlockId> {
    let mut logs = std::mem::take(&mut node.logs.logs);
    let (mut dropped_count, mut taken) = (0, Vec::new());
    for log in logs.values_mut().rev() {
        let segment_count = match until {
            Until::Used => log.used_count(),
            Until::End => log.segment_count(),
        };
        for segment in log.segments_mut(segment_count) {
            dropped_count += digest_segment(node, segment, &mut taken);
        }
    }
    node.logs.logs = logs;
    node.logs.count_dropped(dropped_count);
    taken
}

/// Digests one segment. Returns the number of records left out.
fn digest_segment<S: ReplicaStore>(
    node: &mut Node<S>,
    segment: &mut Segment,
    taken: &mut Vec<BlockId>,
) -> u64 {
    let mut dropped_count = 0;
    let Segment { bytes, frames, digested, highest } = segment;
    for Frame { lane, start, len } in &frames[*digested..] {
        let frame = &bytes[*start..start + len];
        dropped_count += digest_frame(node, *lane, frame, |header, came| {
            let highest = highest.entry(header.shard).or_default();
            if came != Taken::Not {
                *highest = header.version.max(*highest);
            }
            if came == Taken::Now && header.kind.is_write() {
                taken.push(header.id());
            }
        });
    }
    *digested = frames.len();
    dropped_count
}

/// Digests the records of a frame. Returns the number left out.
fn digest_frame<S: ReplicaStore>(
    node: &mut Node<S>,
    lane: Lane,
    mut frame: &[u8],
    mut seen: impl FnMut(&Header, Taken),
) -> u64 {
    let (mut dropped_count, mut follows) = (0, false);
    while !frame.is_empty() {
        let Some((header, piece)) = block(frame, node.check) else {
            return dropped_count + 1;
        };
        let landed = Landed { lane, block: header.id(), follows };
        let taken = take(node, landed, &header, piece);
        dropped_count += u64::from(taken == Taken::Not);
        follows |= taken == Taken::Later;
        seen(&header, taken);
        if taken == Taken::Not && header.kind.is_write() {
            return dropped_count; // What comes behind it may be computed on it (N5).
        }
        frame = frame.get(header.len_bytes()..).unwrap_or_default();
    }
    dropped_count
}

/// Takes one record. Returns whether it counts (G1).
fn take<S: ReplicaStore>(
    node: &mut Node<S>,
    landed: Landed,
    header: &Header,
    piece: &[u8],
) -> Taken {
    let lane = landed.lane;
    let is_of_primary = node.membership.configuration.as_ref().is_some_and(|configuration| {
        let shard = configuration.shard(header.shard);
        configuration.term == lane.term && shard.is_some_and(|shard| shard.primary == lane.from)
    });
    let Some(state) = node.shards.get_mut(header.shard) else { return Taken::Not };
    // An entry that is acknowledged already waits in the replica store until that is ready.
    let is_ready = node.backlog.is_taking
        || !node.durable.is_replica_store()
        || node.replica_store.is_ready(header.shard);
    if !is_of_primary || state.role == Role::Primary || !is_ready {
        return Taken::Not;
    }
    match header.kind {
        Kind::CommitVersion => {
            state.commit = state.commit.max(header.version);
            node.assembly.forget(header.shard, state.commit);
            state.tell_commit(header.shard, &mut node.replica_store);
        }
        Kind::Put | Kind::Delete | Kind::Flush if header.version > state.commit => {
            if let Some(plain) = header.plain(piece) {
                let installed = node.backlog.take_in(landed, &plain, &mut node.replica_store);
                if installed != Installed::NoRoom {
                    return installed.into();
                }
                let entry = Entry::from_body(header, piece);
                return node.backlog.has_no_room(header.shard, entry.map(Arc::new)).into();
            }
            if node.assembly.is_whole(header) {
                return Taken::Now;
            }
            if header.place().is_none() {
                return Taken::Not;
            }
            // Only an entry that is not acknowledged yet may be refused.
            let may_refuse = node.durable.is_replica_store() && !node.backlog.is_taking;
            if may_refuse
                && !node.assembly.has_room(header, |bytes| node.replica_store.try_hold(bytes))
            {
                return Taken::Not;
            }
            if let Some(entry) = node.assembly.add(header, piece) {
                let entry = Arc::new(entry);
                let installed = node.backlog.take_in_entry(landed, &entry, &mut node.replica_store);
                if installed == Installed::Later
                    || installed == Installed::NoRoom
                        && !node.backlog.has_no_room(header.shard, Some(entry.clone()))
                {
                    return installed.into(); // Its sender tries again where there is no room.
                }
                later::entry_taken(node, (header.shard, header.version), &entry);
            }
        }
        // A repetition (G2), or a mark that only the node's own log has.
        Kind::Put | Kind::Delete | Kind::Flush | Kind::Reset | Kind::Session => {}
    }
    Taken::Now
}

fn reclaim<S: ReplicaStore>(node: &mut Node<S>) {
    let shards = &node.shards;
    node.logs
        .reclaim(|shard, version| shards.get(shard).is_none_or(|state| version <= state.commit));
}

/// The blocks that a whole frame says it holds, without marks.
fn headers(bytes: &[u8]) -> impl Iterator<Item = BlockId> + '_ {
    let mut rest = bytes;
    let headers = std::iter::from_fn(move || {
        let header = Header::peek(rest)?;
        rest = rest.get(header.len_bytes()..).unwrap_or_default();
        Some(header)
    });
    headers.filter(|header| header.kind.is_write()).map(|it| it.id())
}

/// Adds to one message the acknowledgements of all frames that landed one after the other on a
/// lane, as long as the driver has not taken that message.
fn acknowledge(lane: Lane, landed: impl Iterator<Item = BlockId>, actions: &mut Vec<Action>) {
    let mut landed = landed.peekable();
    if landed.peek().is_none() {
        return;
    }
    if let Some(Action::Send { to: Peer::Node(to), message: Message::Acked { term, blocks } }) =
        actions.last_mut()
        && (*to, *term) == (lane.from, lane.term)
    {
        return blocks.extend(landed);
    }
    let message = Message::Acked { term: lane.term, blocks: landed.collect() };
    actions.push(Action::Send { to: Peer::Node(lane.from), message });
}
