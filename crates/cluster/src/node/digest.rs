//! What has landed becomes part of the index: checked, put together, newest first.
//!
//! The control step ([`Node::land`]) only looks at headers and acknowledges; the digest checks sums
//! and senders, later and in order. Whoever needs the index complete digests all that has landed:
//! a change of configuration (N3) and a promotion.
//!
//! # Invariants
//! G1: a record counts if its sum is right and its lane's node was the shard's primary in the
//!     lane's term (K22).
//! G2: a record at or below what is on all copies is a repetition and is dropped, so that a delete
//!     need not be remembered for its sake (K2).
//! G3: an entry of several blocks is in the index once all of them are here (K14).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Instant;

use crate::configuration::Role;
use crate::ids::{ShardId, Version};
use crate::message::{Lane, Message, Peer};
use crate::node::durable::Held;
use crate::node::landing::{Frame, Landed};
use crate::node::{Action, Node};
use crate::record::{ALIGN_BYTES, BlockId, Entry, Header, Kind, block};
use crate::shelf::{Installed, Shelf};

/// Entries of which some blocks are here (G3).
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    parts: BTreeMap<(ShardId, Version), BTreeMap<u32, Vec<u8>>>,
}

impl Assembly {
    /// Adds a block; the entry, when it is the last one missing.
    pub(super) fn add(&mut self, header: &Header, piece: &[u8]) -> Option<Entry> {
        if header.block_count <= 1 {
            return Entry::from_body(header, piece);
        }
        let key = (header.shard, header.version);
        let pieces = self.parts.entry(key).or_default();
        pieces.insert(header.block, piece.to_vec());
        if pieces.len() < header.block_count as usize {
            return None;
        }
        let pieces = self.parts.remove(&key)?;
        let body: Vec<u8> = pieces.into_values().flatten().collect();
        Entry::from_body(header, &body)
    }

    /// Forgets a shard's blocks up to a version.
    pub(super) fn forget(&mut self, shard: ShardId, through: Version) {
        self.parts.retain(|(of, version), _| *of != shard || *version > through);
    }
}

impl<S: Shelf> Node<S> {
    /// A frame has come down: acknowledged by its headers, digested later.
    pub(super) fn land(&mut self, lane: Lane, bytes: &[u8], actions: &mut Vec<Action>) {
        if lane.term != self.term() {
            return self.landing.count_fenced(); // N3
        }
        let landed = self.landing.land(lane, bytes);
        if self.durable.is_shelf() {
            return self.land_on_shelf(lane, actions);
        }
        if landed == Landed::Whole {
            self.append(bytes, actions);
            let blocks = headers(bytes);
            if !blocks.is_empty() {
                let message = Message::Acked { term: lane.term, blocks };
                let held = Held::Send { to: Peer::Node(lane.from), message };
                // The clock matters to what is released to clients only.
                self.when_durable(held, Instant::default(), actions);
            }
        }
        let used_count = self.landing.used_count();
        if used_count > 0 {
            self.digest(used_count);
            self.reclaim();
        }
    }

    /// Where the shelf is the log, what has landed is installed first, and what was is
    /// acknowledged once that is durable. Of an entry of several blocks the one that made it whole
    /// is the last to be acknowledged.
    fn land_on_shelf(&mut self, lane: Lane, actions: &mut Vec<Action>) {
        let blocks = self.digest(self.landing.segment_count());
        self.reclaim();
        self.tell_crowded(lane, actions);
        if !blocks.is_empty() {
            self.count_change();
            let message = Message::Acked { term: lane.term, blocks };
            let held = Held::Send { to: Peer::Node(lane.from), message };
            self.when_durable(held, Instant::default(), actions);
        }
    }

    /// Brings all that has landed into the index.
    pub fn digest_all(&mut self) {
        self.digest(self.landing.segment_count());
        self.reclaim();
    }

    /// Returns the blocks that counted.
    fn digest(&mut self, segment_count: usize) -> Vec<BlockId> {
        let mut landing =
            std::mem::replace(&mut self.landing, crate::node::Landing::new(ALIGN_BYTES));
        let (mut dropped_count, mut taken) = (0, Vec::new());
        for segment in landing.segments_mut(segment_count) {
            for index in segment.digested..segment.frames.len() {
                let Frame { lane, start, len } = segment.frames[index];
                let mut frame = &segment.bytes[start..start + len];
                while !frame.is_empty() {
                    let Some((header, piece)) = block(frame, self.check) else {
                        dropped_count += 1;
                        break;
                    };
                    let highest = segment.highest.entry(header.shard).or_default();
                    if self.take(lane, &header, piece) {
                        *highest = header.version.max(*highest);
                        taken.push(header);
                    } else {
                        dropped_count += 1;
                    }
                    frame = frame.get(header.len_bytes()..).unwrap_or_default();
                }
            }
            segment.digested = segment.frames.len();
        }
        self.landing = landing;
        (0..dropped_count).for_each(|_| self.landing.count_dropped());
        let is_block = |header: &&Header| matches!(header.kind, Kind::Put | Kind::Delete);
        taken.iter().filter(is_block).map(Header::id).collect()
    }

    /// One record; whether it counts (G1).
    fn take(&mut self, lane: Lane, header: &Header, piece: &[u8]) -> bool {
        let is_of_primary = self.configuration.as_ref().is_some_and(|configuration| {
            let shard = configuration.shard(header.shard);
            configuration.term == lane.term && shard.is_some_and(|shard| shard.primary == lane.from)
        });
        let Some(state) = self.shards.get_mut(&header.shard) else { return false };
        let is_ready = !self.durable.is_shelf() || self.shelf.is_ready(header.shard);
        if !is_of_primary || state.role == Role::Primary || !is_ready {
            return false;
        }
        match header.kind {
            Kind::CommitVersion => {
                state.commit = state.commit.max(header.version);
                self.assembly.forget(header.shard, state.commit);
                self.tell_shelf(header.shard);
            }
            Kind::Put | Kind::Delete if header.version > state.commit => {
                if let Some(entry) = self.assembly.add(header, piece) {
                    let entry = Arc::new(entry);
                    if self.shelf.install(entry.clone()) == Installed::NoRoom {
                        self.crowded.insert(header.shard);
                        return false; // Its sender tries again.
                    }
                    state.sessions.settle_entry(&entry);
                }
            }
            // G2, or a mark that only the own log has.
            Kind::Put | Kind::Delete | Kind::Reset | Kind::Session => {}
        }
        true
    }

    fn reclaim(&mut self) {
        let shards = &self.shards;
        self.landing.reclaim(|shard, version| {
            shards.get(&shard).is_none_or(|state| version <= state.commit)
        });
    }
}

/// What a whole frame says that it holds, marks left out.
fn headers(bytes: &[u8]) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    let mut rest = bytes;
    while let Some(header) = Header::peek(rest) {
        if matches!(header.kind, Kind::Put | Kind::Delete) {
            blocks.push(header.id());
        }
        rest = rest.get(header.len_bytes()..).unwrap_or_default();
    }
    blocks
}
