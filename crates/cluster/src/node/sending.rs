//! What a primary sends to the targets of its writes: blocks, each the way that the scheme says,
//! and announcements of CommitVer.
//!
//! ```text
//!  version      9           10          11 (computed on 10)
//!  n2           ─           block 0     block 0          what is not acknowledged
//!  n4           block 1,2   ─           block 0
//!  frame to n2                          [10][11]         N5: 10 goes along until n2 has it
//!  frame to n4  [9.1] [9.2]             [11]
//! ```
//!
//! # Invariants
//! V1: a block that a target has acknowledged is not sent to it alone again; at most it goes along
//!     with a later write that was computed on it.
//! V2: an announcement that did not change is repeated, because the last one may have been lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Instant;

use crate::ids::{NodeId, Term, Version};
use crate::node::Action;
use crate::node::membership::Membership;
use crate::node::primary::Primary;
use crate::node::shards::Shards;
use crate::record::{BlockId, Kind, append_mark};
use crate::scheme::{Way, Ways};
use crate::settings::{Settings, after};

/// An unchanged CommitVer is announced again after this time (V2).
const TELL_AGAIN_NS: u64 = 500_000_000;

/// The ways to the targets, and when CommitVer was last announced.
#[derive(Debug)]
pub(super) struct Sending {
    ways: Ways,
    /// Blocks of a write while it is landed, by target; at other times only their reused memory.
    wanted: Vec<(NodeId, u32)>,
    commit_told_at: Instant,
}

impl Sending {
    pub(super) fn new(settings: &Settings) -> Sending {
        let ways = Ways::new(settings.scheme, settings.segment_bytes);
        Sending { ways, wanted: Vec::new(), commit_told_at: Instant::default() }
    }

    /// Begins a new term.
    pub(super) fn begin(&mut self) {
        self.ways.begin();
    }

    /// Sends the missing blocks of one write, from the first block, to every target that misses
    /// any.
    pub(super) fn land_at_all(
        &mut self,
        primary: &mut Primary,
        (term, version): (Term, Version),
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(pending) = primary.pending.get_mut(&version).filter(|one| !one.is_held) else {
            return;
        };
        pending.landed_at = now;
        let (has_last, is_first) = (pending.goes_with.is_some(), pending.retry_count == 0);
        for (to, missing) in &mut pending.targets {
            missing.take_again(is_first, |block| self.wanted.push((*to, block)));
        }
        if has_last {
            self.wanted.retain(|(to, _)| !primary.goes_along(version, *to)); // H2
        }
        self.land_wanted(primary, (term, version), actions);
    }

    /// Notes that a target has acknowledged a block of a write, and sends it the next ones. Returns
    /// whether it has the whole write now.
    pub(super) fn acked(
        &mut self,
        primary: &mut Primary,
        (from, block): (NodeId, &BlockId),
        (term, now): (Term, Instant),
        actions: &mut Vec<Action>,
    ) -> bool {
        let BlockId { version, block, .. } = block;
        let Some(pending) = primary.pending.get_mut(version) else { return false };
        let target = pending.targets.iter_mut().find(|(to, _)| *to == from);
        let Some((_, missing)) = target else { return false };
        missing.remove(*block, now);
        pending.retry_count = 0;
        if missing.is_empty() {
            return true;
        }
        pending.landed_at = now; // It goes on.
        missing.take_window(|block| self.wanted.push((from, block)));
        self.land_wanted(primary, (term, *version), actions);
        false
    }

    fn land_wanted(
        &mut self,
        primary: &Primary,
        (term, version): (Term, Version),
        actions: &mut Vec<Action>,
    ) {
        let thread = primary.pending.get(&version).map_or(1, |pending| pending.reply_to.0.thread());
        for (to, block) in self.wanted.drain(..) {
            let bytes = frame(primary, version, block, to);
            let way = self.ways.of(to, thread, bytes.len());
            actions.push(Action::Land { to, term, way, bytes });
        }
    }

    /// Announces CommitVer to all targets, if that is due (Rowan-KV §4.4).
    pub(super) fn tell_commit(
        &mut self,
        shards: &mut Shards,
        membership: &Membership,
        settings: &Settings,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if now < after(self.commit_told_at, settings.commit_interval_ns) {
            return;
        }
        self.commit_told_at = now;
        let Some(configuration) = &membership.configuration else { return };
        let mut frames: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
        let is_stale = |at| now >= after(at, TELL_AGAIN_NS);
        for (shard, commit, primary) in shards.serving_mut() {
            if primary.told.0 == commit && !is_stale(primary.told.1) {
                continue;
            }
            primary.told = (commit, now);
            for to in configuration.shard(shard).iter().flat_map(|shard| shard.targets()) {
                append_mark(Kind::CommitVersion, shard, commit, frames.entry(to).or_default());
            }
        }
        let term = configuration.term;
        let datagram_bytes = settings.datagram_bytes / 64 * 64;
        for (to, bytes) in frames {
            let frames = bytes.chunks(datagram_bytes);
            let way = Way::MARK;
            let land = |bytes: &[u8]| Action::Land { to, term, way, bytes: bytes.into() };
            actions.extend(frames.map(land));
        }
    }
}

/// The frame of one block for one target, with the writes it was computed on that the target lacks
/// (N5).
fn frame(primary: &Primary, version: Version, block: u32, to: NodeId) -> Arc<[u8]> {
    if let Some(alone) = primary.pending.get(&version).filter(|one| one.after.is_none()) {
        return alone.block(block);
    }
    let mut bytes = Vec::new();
    for (depth, pending) in primary.chain(Some(version)).enumerate() {
        let is_wanted = match depth {
            0 => true,
            _ => pending.targets.iter().any(|(of, missing)| *of == to && !missing.is_empty()),
        };
        let index = if depth == 0 { block } else { 0 };
        if is_wanted {
            bytes.splice(0..0, pending.block(index).iter().copied());
        }
    }
    bytes.into()
}
