//! What the primary of a shard keeps: its stage, its counter, and the writes under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;

use crate::ids::{ClientId, NodeId, Version};
use crate::message::{Contents, Outcome, Request};
use crate::node::copy::CopyOut;
use crate::node::filling::Filling;
use crate::record::Entry;

/// A primary, from its promotion on.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) stage: Stage,
    /// The last version that was given.
    pub(super) last: Version,
    pub(super) pending: BTreeMap<Version, Pending>,
    /// The newest write under way, by key (K6).
    pub(super) newest: BTreeMap<Arc<[u8]>, Version>,
    /// Requests that wait for a write under way, by that.
    pub(super) waiting: BTreeMap<Version, Vec<Request>>,
    pub(super) waiting_count: usize,
    /// What targets were last told to be on all copies, and when.
    pub(super) told: (Version, Instant),
    pub(super) copy: Option<CopyOut>,
    pub(super) filling: Option<Filling>,
}

/// How far the promotion is (Rowan-KV §4.5, phase 2).
#[derive(Debug)]
pub(super) enum Stage {
    /// Backups are asked what they have.
    Gathering { missing: BTreeSet<NodeId>, contents: Contents, asked_at: Instant },
    /// Everyone, this node's own log included, is given what any of them had.
    Scattering { missing: BTreeSet<NodeId>, contents: Contents, asked_at: Instant },
    /// All copies are alike.
    Serving,
}

/// A write that is not yet everywhere.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) entry: Arc<Entry>,
    pub(super) blocks: Vec<Arc<[u8]>>,
    pub(super) targets: BTreeMap<NodeId, Missing>,
    /// Whether the shelf has it already, which is the log.
    pub(super) is_installed: bool,
    /// Whether the own log has it.
    pub(super) is_written: bool,
    /// The write that this one was computed on, if that was under way (N5).
    pub(super) after: Option<Version>,
    pub(super) outcome: Outcome,
    /// Who asked, as which of its requests.
    pub(super) reply_to: (ClientId, u64),
    pub(super) landed_at: Instant,
}

/// Of one write, what one target has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) blocks: BTreeSet<u32>,
    /// Those below are on their way, or there.
    pub(super) sent: u32,
}

impl Missing {
    /// The blocks that may go out now: no more than a window is on its way at a time, so that a
    /// large entry does not flood its targets' sockets.
    pub(super) fn take_window(&mut self) -> Vec<u32> {
        let window: Vec<u32> = self.blocks.iter().take(WINDOW_BLOCKS).copied().collect();
        let from = std::mem::replace(&mut self.sent, window.last().map_or(0, |last| last + 1));
        window.into_iter().filter(|block| *block >= from).collect()
    }
}

/// Blocks of one entry that are on their way to one target.
pub(super) const WINDOW_BLOCKS: usize = 64;

impl Pending {
    /// N2, but for the own log.
    pub(super) fn is_everywhere(&self) -> bool {
        self.targets.values().all(|missing| missing.blocks.is_empty())
    }

    pub(super) fn all_missing(&self) -> Missing {
        Missing { blocks: (0..self.blocks.len() as u32).collect(), sent: 0 }
    }
}

impl Primary {
    pub(super) fn new(stage: Stage, epoch: u16) -> Primary {
        Primary {
            stage,
            last: Version::before_epoch(epoch),
            pending: BTreeMap::new(),
            newest: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_count: 0,
            told: (Version::ZERO, Instant::default()),
            copy: None,
            filling: None,
        }
    }

    /// Whether a request of that key waits for its newest write.
    pub(super) fn has_waiting(&self, newest: Version, key: &[u8]) -> bool {
        let waiting = self.waiting.get(&newest);
        waiting.is_some_and(|waiting| waiting.iter().any(|request| *request.key == *key))
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
        let pending = |version: Option<Version>| self.pending.get(&version?);
        std::iter::successors(pending(version), move |later| pending(later.after))
    }
}
