//! What the primary of a shard keeps: its stage, its counter, and the writes under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::Instant;

use crate::ids::{NodeId, Version};
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
    /// Requests that wait for a write under way.
    pub(super) waiting: VecDeque<Request>,
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
    /// What each target has not acknowledged.
    pub(super) targets: BTreeMap<NodeId, BTreeSet<u32>>,
    /// Whether the own log has it.
    pub(super) is_written: bool,
    /// The write that this one was computed on, if that was under way (N5).
    pub(super) after: Option<Version>,
    pub(super) outcome: Outcome,
    pub(super) landed_at: Instant,
}

impl Pending {
    /// N2.
    pub(super) fn is_everywhere(&self) -> bool {
        self.is_written && self.targets.values().all(BTreeSet::is_empty)
    }

    pub(super) fn all_blocks(&self) -> BTreeSet<u32> {
        (0..self.blocks.len() as u32).collect()
    }
}

impl Primary {
    pub(super) fn new(stage: Stage, epoch: u16) -> Primary {
        Primary {
            stage,
            last: Version::before_epoch(epoch),
            pending: BTreeMap::new(),
            newest: BTreeMap::new(),
            waiting: VecDeque::new(),
            copy: None,
            filling: None,
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
        let pending = |version: Option<Version>| self.pending.get(&version?);
        std::iter::successors(pending(version), move |later| pending(later.after))
    }
}
