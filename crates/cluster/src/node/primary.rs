//! The state that the primary of a shard keeps: its stage, its counter, and the writes under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;

use crate::ids::{ClientId, NodeId, Version};
use crate::message::{Contents, Hold, Outcome, Request};
use crate::node::copy::{CopyOut, NS_PER_BYTE};
use crate::node::filling::Filling;
use crate::record::{Cut, Entry};
use crate::settings::{Settings, after};

/// A primary, from its promotion on.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) stage: Stage,
    /// The last version that was given.
    pub(super) last: Version,
    /// In boxes: what they lie in stays small, and an allocator gives that from its cache.
    pub(super) pending: BTreeMap<Version, Box<Pending>>,
    /// Of all blocks of these.
    pub(super) pending_bytes: usize,
    /// The newest write under way, by key (K6).
    pub(super) newest: BTreeMap<Arc<[u8]>, Version>,
    /// Writes of the group that is open, none of which has left (`group`).
    pub(super) group: Option<Vec<Version>>,
    /// The flush under way: then it is the last one (F1 of `flush`).
    pub(super) flush: Option<Version>,
    /// Requests that wait for a write under way, by that.
    pub(super) waiting: BTreeMap<Version, Vec<Request>>,
    pub(super) waiting_count: usize,
    /// What targets were last told to be on all copies, and when.
    pub(super) told: (Version, Instant),
    pub(super) copy: Option<CopyOut>,
    pub(super) filling: Option<Filling>,
    /// All that are here are alike, and copies wait (P3).
    pub(super) withheld_since: Option<Instant>,
    /// When a copy last had no room.
    pub(super) crowded_at: Option<Instant>,
    /// When the present stage began.
    pub(super) stage_since: Instant,
    pub(super) asking: Asking,
}

/// How far the promotion is (Rowan-KV §4.5, phase 2).
#[derive(Debug)]
pub(super) enum Stage {
    /// All copies are asked what they have, this one too.
    Gathering { missing: BTreeSet<NodeId>, contents: Contents },
    /// Everyone, this node's own log included, is given what any of them had.
    Scattering { missing: BTreeSet<NodeId>, contents: Contents },
    /// All copies are alike.
    Serving,
}

/// When copies were last asked for what the present stage waits for, and how long they are given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    at: Instant,
    pause_ns: u64,
}

impl Asking {
    /// Asked now: with each time in vain twice as long is waited, but a lease at most and the time
    /// that the question's bytes take.
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

/// A write that is not yet everywhere.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) entry: Arc<Entry>,
    pub(super) blocks: Cut,
    /// Its driver's books of it.
    pub(super) _hold: Hold,
    pub(super) targets: Vec<(NodeId, Missing)>,
    /// Whether it waits for the rest of its group (H3).
    pub(super) is_held: bool,
    /// The last one of its group, if that is another.
    pub(super) goes_with: Option<Version>,
    /// Whether another write was computed on this one.
    pub(super) is_base: bool,
    /// Whether the replica store has it already, which is the log.
    pub(super) is_installed: bool,
    /// Whether the own log has it.
    pub(super) is_written: bool,
    /// The write that this one was computed on, if that was under way (N5).
    pub(super) after: Option<Version>,
    pub(super) outcome: Outcome,
    /// The client that asked, and which of its requests this is.
    pub(super) reply_to: (ClientId, u64),
    pub(super) landed_at: Instant,
    pub(super) begun_at: Instant,
    /// Whether its client has been told that the outcome is unknown.
    pub(super) is_given_up: bool,
    /// How often it was landed again since anything of it was acknowledged.
    pub(super) retry_count: u8,
}

/// Of one write, what one target has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    blocks: Blocks,
    /// When one of them was last acknowledged, or could have been first.
    pub(super) moved_at: Instant,
    /// Whether any was.
    has_moved: bool,
    /// Those below are on their way, or there.
    pub(super) sent: u32,
}

/// A set of blocks that costs nothing for what has only one, as almost every write.
#[derive(Clone, Debug)]
enum Blocks {
    /// Whether the only one is in it.
    Only(bool),
    Several(BTreeSet<u32>),
}

impl Missing {
    /// All of so many.
    pub(super) fn all(block_count: usize, now: Instant) -> Missing {
        let blocks = match block_count {
            1 => Blocks::Only(true),
            count => Blocks::Several((0..count as u32).collect()),
        };
        Missing { blocks, moved_at: now, has_moved: false, sent: 0 }
    }

    /// Whether nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        match &self.blocks {
            Blocks::Only(is_missing) => !is_missing,
            Blocks::Several(blocks) => blocks.is_empty(),
        }
    }

    /// A block is there.
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

    /// Nothing is on its way any more: what is missing goes out anew. Where none has got there the
    /// first block goes alone, for the target may have no memory to begin the entry.
    pub(super) fn take_again(&mut self, is_first: bool, take: impl FnMut(u32)) {
        self.sent = 0;
        self.take_of(if is_first || self.has_moved { WINDOW_BLOCKS } else { 1 }, take);
    }

    /// The blocks that may go out now: no more than a window is on its way at a time, so that a
    /// large entry does not flood its targets' sockets.
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

/// Blocks of one entry that are on their way to one target.
pub(super) const WINDOW_BLOCKS: usize = 64;

/// Each time that no answer comes, the wait doubles; but so often at most.
const DOUBLINGS_MAX: u8 = 3;

impl Pending {
    /// One that no target has been sent.
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

    /// How long after its landing it is landed again: receivers that are behind are not given more.
    pub(super) fn patience_ns(&self, retry_ns: u64) -> u64 {
        retry_ns << self.retry_count.min(DOUBLINGS_MAX)
    }

    /// N2, but for the own log.
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

    /// Whether a request of that key waits for its newest write.
    pub(super) fn has_waiting(&self, newest: Version, key: &[u8]) -> bool {
        let waiting = self.waiting.get(&newest);
        waiting.is_some_and(|waiting| waiting.iter().any(|request| *request.key == *key))
    }

    /// Whether others may be given copies: of a shard that is served, or whose union is on this
    /// replica store and for long not on all others.
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

    /// What a write under way was computed on, newest first.
    pub(super) fn chain(&self, version: Option<Version>) -> impl Iterator<Item = &Pending> {
        let pending = |version: Option<Version>| self.pending.get(&version?).map(Box::as_ref);
        std::iter::successors(pending(version), move |later| pending(later.after))
    }
}
