//! The state that the primary of a shard keeps: its stage, its counter, and the writes under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;

use crate::ids::{ClientId, NodeId, Version};
use crate::message::{Contents, Hold, Outcome, Request};
use crate::node::copy::{CopyOut, NS_PER_BYTE};
use crate::node::filling::Filling;
use crate::node::group::Loose;
use crate::record::{Cut, Entry};
use crate::settings::{Settings, after};

/// A primary's state, from its promotion on.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) stage: Stage,
    /// The last version that it assigned.
    pub(super) last: Version,
    /// Writes under way. They are boxed, so that the map's own nodes stay small and the allocator
    /// has them in its cache.
    pub(super) pending: BTreeMap<Version, Box<Pending>>,
    /// The total length of their blocks.
    pub(super) pending_bytes: usize,
    /// The newest write under way, by key (K6).
    pub(super) newest: BTreeMap<Arc<[u8]>, Version>,
    /// Writes of the group that is open, none of which has left (`group`).
    pub(super) group: Option<Vec<Version>>,
    pub(super) loose: Loose,
    /// The flush under way; it is then the last write (F1 of `flush`).
    pub(super) flush: Option<Version>,
    /// Requests that wait for a write under way, by that write's version.
    pub(super) waiting: BTreeMap<Version, Vec<Request>>,
    pub(super) waiting_count: usize,
    /// The CommitVer last announced to the targets, and when.
    pub(super) told: (Version, Instant),
    pub(super) copy: Option<CopyOut>,
    pub(super) filling: Option<Filling>,
    /// When all present copies were alike while others still wait (P3).
    pub(super) withheld_since: Option<Instant>,
    /// When a copy last had no room.
    pub(super) crowded_at: Option<Instant>,
    /// When the present stage began.
    pub(super) stage_since: Instant,
    pub(super) asking: Asking,
}

/// The progress of the promotion (Rowan-KV §4.5, phase 2).
#[derive(Debug)]
pub(super) enum Stage {
    /// All copies, this one too, are asked for their entries.
    Gathering { missing: BTreeSet<NodeId>, contents: Contents },
    /// All copies, and this node's own log, are given the union of the entries.
    Scattering { missing: BTreeSet<NodeId>, contents: Contents },
    /// All copies are alike.
    Serving,
}

/// When copies were last asked for the answers that the present stage waits for, and how long they
/// have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    at: Instant,
    pause_ns: u64,
}

impl Asking {
    /// Notes that copies were asked now. The wait doubles with each request in vain, up to a lease
    /// plus the time that the request's bytes take.
    pub(super) fn again(&mut self, now: Instant, settings: &Settings, len_bytes: u64) {
        let longest_ns = settings.lease_ns + len_bytes * NS_PER_BYTE;
        let first_ns = 2 * settings.retry_ns + len_bytes * NS_PER_BYTE;
        self.pause_ns = (2 * self.pause_ns).clamp(first_ns, longest_ns.max(first_ns));
        self.at = now;
    }

    /// Whether the time for an answer is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= after(self.at, self.pause_ns)
    }
}

/// A write that is not yet on all targets.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) entry: Arc<Entry>,
    pub(super) blocks: Cut,
    /// The driver's booking of its memory.
    pub(super) _hold: Hold,
    pub(super) targets: Vec<(NodeId, Missing)>,
    /// Whether it waits for the rest of its group (H3), or for earlier writes of it (H4).
    pub(super) is_held: bool,
    /// The last write of its group, if that is another one.
    pub(super) goes_with: Option<Version>,
    /// Whether it is the last write of a group of several.
    pub(super) ends_group: bool,
    /// Whether another write was computed on this one.
    pub(super) is_base: bool,
    /// Whether the replica store has it already.
    pub(super) is_installed: bool,
    /// Whether the node's own log has it.
    pub(super) is_written: bool,
    /// The write that this one was computed on, if that one was under way (N5).
    pub(super) after: Option<Version>,
    pub(super) outcome: Outcome,
    /// The client that made the request, and the request's sequence number.
    pub(super) reply_to: (ClientId, u64),
    pub(super) landed_at: Instant,
    pub(super) begun_at: Instant,
    /// Whether its client has been told that the outcome is unknown.
    pub(super) is_given_up: bool,
    /// How often it was sent again since any part of it was acknowledged.
    pub(super) retry_count: u8,
}

/// The blocks of one write that one target has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    blocks: Blocks,
    /// When one of them was last acknowledged, or when the first could have been.
    pub(super) moved_at: Instant,
    /// Whether any was acknowledged.
    has_moved: bool,
    /// Blocks below this index are on their way, or have arrived.
    pub(super) sent: u32,
}

/// A set of blocks that needs no allocation for a single block, as almost every write has.
#[derive(Clone, Debug)]
enum Blocks {
    /// Whether the only block is in the set.
    Only(bool),
    Several(BTreeSet<u32>),
}

impl Missing {
    /// The set of all of `block_count` blocks.
    pub(super) fn all(block_count: usize, now: Instant) -> Missing {
        let blocks = match block_count {
            1 => Blocks::Only(true),
            count => Blocks::Several((0..count as u32).collect()),
        };
        Missing { blocks, moved_at: now, has_moved: false, sent: 0 }
    }

    /// Whether no block is missing.
    pub(super) fn is_empty(&self) -> bool {
        match &self.blocks {
            Blocks::Only(is_missing) => !is_missing,
            Blocks::Several(blocks) => blocks.is_empty(),
        }
    }

    /// Removes a block that has arrived.
    pub(super) fn remove(&mut self, block: u32, now: Instant) {
        self.moved_at = now;
        self.has_moved = true;
        match &mut self.blocks {
            Blocks::Only(is_missing) => *is_missing &= block != 0,
            Blocks::Several(blocks) => {
                blocks.remove(&block);
            }
        }
    }

    /// Treats all missing blocks as lost, so that they are sent again. If none has arrived yet, the
    /// first block goes alone, because the target may have no memory to begin the entry.
    pub(super) fn take_again(&mut self, is_first: bool, take: impl FnMut(u32)) {
        self.sent = 0;
        self.take_of(if is_first || self.has_moved { WINDOW_BLOCKS } else { 1 }, take);
    }

    /// The blocks that may be sent now: at most one window is on its way at a time, so that a large
    /// entry does not flood its targets' sockets.
    pub(super) fn take_window(&mut self, take: impl FnMut(u32)) {
        self.take_of(WINDOW_BLOCKS, take);
    }

    fn take_of(&mut self, window_blocks: usize, mut take: impl FnMut(u32)) {
        let from = self.sent;
        match &self.blocks {
            Blocks::Only(false) => {}
            Blocks::Only(true) => {
                self.sent = 1;
                (from == 0).then(|| take(0));
            }
            Blocks::Several(blocks) => {
                for block in blocks.iter().take(window_blocks) {
                    self.sent = block + 1;
                    if *block >= from {
                        take(*block);
                    }
                }
            }
        }
    }
}

/// The window: blocks of one entry on their way to one target.
pub(super) const WINDOW_BLOCKS: usize = 64;

/// How often the wait for an answer doubles at most.
const DOUBLINGS_MAX: u8 = 3;

impl Pending {
    /// A write that was not sent to any target yet.
    pub(super) fn new(
        entry: Arc<Entry>,
        blocks: Cut,
        outcome: Outcome,
        reply_to: (ClientId, u64),
        now: Instant,
    ) -> Pending {
        Pending {
            entry,
            blocks,
            _hold: Hold::default(),
            targets: Vec::new(),
            is_held: false,
            goes_with: None,
            ends_group: false,
            is_base: false,
            is_installed: false,
            is_written: false,
            after: None,
            outcome,
            reply_to,
            landed_at: now,
            begun_at: now,
            is_given_up: false,
            retry_count: 0,
        }
    }

    /// The time from sending to sending again: receivers that are behind are not sent more.
    pub(super) fn patience_ns(&self, retry_ns: u64) -> u64 {
        retry_ns << self.retry_count.min(DOUBLINGS_MAX)
    }

    /// Whether every target has it (N2, without the own log).
    pub(super) fn is_everywhere(&self) -> bool {
        self.targets.iter().all(|(_, missing)| missing.is_empty())
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.entry.len_bytes_as(&self.blocks)
    }

    /// One of its blocks.
    pub(super) fn block(&self, block: u32) -> Arc<[u8]> {
        self.entry.block(&self.blocks, block)
    }

    pub(super) fn all_missing(&self, now: Instant) -> Missing {
        Missing::all(self.blocks.count(), now)
    }
}

impl Primary {
    pub(super) fn new(stage: Stage, epoch: u16, now: Instant) -> Primary {
        Primary {
            stage,
            last: Version::before_epoch(epoch),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            newest: BTreeMap::new(),
            group: None,
            loose: Loose::default(),
            flush: None,
            waiting: BTreeMap::new(),
            waiting_count: 0,
            told: (Version::ZERO, Instant::default()),
            copy: None,
            filling: None,
            withheld_since: None,
            crowded_at: None,
            stage_since: now,
            asking: Asking::default(),
        }
    }

    /// Whether a request for that key waits for its newest write.
    pub(super) fn has_waiting(&self, newest: Version, key: &[u8]) -> bool {
        let waiting = self.waiting.get(&newest);
        waiting.is_some_and(|waiting| waiting.iter().any(|request| *request.key == *key))
    }

    /// Makes a request wait until a write under way is on all copies; then it is executed anew.
    pub(super) fn wait(&mut self, after: Version, request: Request) {
        self.waiting.entry(after).or_default().push(request);
        self.waiting_count += 1;
    }

    /// The requests that waited for this write.
    pub(super) fn take_waiting(&mut self, after: Version) -> Vec<Request> {
        let waiting = self.waiting.remove(&after).unwrap_or_default();
        self.waiting_count -= waiting.len();
        waiting
    }

    /// Whether the shard may be copied to other nodes: it is served, or its union is in this
    /// replica store and has been missing on others for long.
    pub(super) fn may_copy(&self, now: Instant, patience_ns: u64) -> bool {
        match self.stage {
            Stage::Gathering { .. } => false,
            Stage::Scattering { .. } => now >= after(self.stage_since, patience_ns),
            Stage::Serving => true,
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Serving)
    }

    /// The highest version such that it and all below are on all copies.
    pub(super) fn commit(&self) -> Version {
        self.pending.keys().next().map_or(self.last, |first| first.previous())
    }

    /// The writes under way that a write was computed on, newest first.
    pub(super) fn chain(&self, version: Option<Version>) -> impl Iterator<Item = &Pending> {
        let pending = |version: Option<Version>| self.pending.get(&version?).map(Box::as_ref);
        std::iter::successors(pending(version), move |later| pending(later.after))
    }
}
