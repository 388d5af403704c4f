//! Writes under way: landed at every target, sent again, acknowledged, completed.
//!
//! ```text
//!  version      9           10          11 (computed on 10)
//!  n2           ─           block 0     block 0          what is not acknowledged
//!  n4           block 1,2   ─           block 0
//!  frame to n2                          [10][11]         N5: 10 goes along until n2 has it
//!  frame to n4  [9.1] [9.2]             [11]
//! ```

use std::sync::Arc;

use base::Instant;

use crate::configuration::{Role, Shard};
use crate::ids::{NodeId, ShardId, Term, Version};
use crate::message::{Message, Outcome, Request};
use crate::node::durable::Held;
use crate::node::filling::Filling;
use crate::node::primary::{Pending, Primary};
use crate::node::requests::{answer, to_client};
use crate::node::{Action, Node};
use crate::record::{BlockId, Kind, append_mark};
use crate::replica_store::{Installed, ReplicaStore};
use crate::scheme::{Way, Ways};
use crate::settings::after;

/// An unchanged CommitVer is announced again after this time, because the message may have been
/// lost.
const TELL_AGAIN_NS: u64 = 500_000_000;

impl<S: ReplicaStore> Node<S> {
    /// Sends the missing blocks of one write, from the first block, to every target that misses
    /// any.
    pub(super) fn land_at_all(
        &mut self,
        shard: ShardId,
        version: Version,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let term = self.term();
        let Node { shards, ways, wanted, .. } = self;
        let primary = shards.get_mut(&shard).and_then(|state| state.primary.as_mut());
        let Some(primary) = primary else { return };
        let Some(pending) = primary.pending.get_mut(&version).filter(|one| !one.is_held) else {
            return;
        };
        pending.landed_at = now;
        let (has_last, is_first) = (pending.goes_with.is_some(), pending.retry_count == 0);
        for (to, missing) in &mut pending.targets {
            missing.take_again(is_first, |block| wanted.push((*to, block)));
        }
        if has_last {
            wanted.retain(|(to, _)| !primary.goes_along(version, *to)); // H2
        }
        land_blocks(primary, ways, (term, version), wanted, actions);
    }

    /// Sends again the blocks that were not acknowledged in time.
    pub(super) fn resend(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let retry_ns = self.settings.retry_ns;
        let mut late = Vec::new();
        for (shard, state) in &self.shards {
            let pending = state.primary.iter().flat_map(|primary| &primary.pending);
            let is_late = |one: &Pending| now >= after(one.landed_at, one.patience_ns(retry_ns));
            let of_shard = pending.filter(|(_, one)| is_late(one));
            late.extend(of_shard.map(|(version, _)| (*shard, *version)));
        }
        for (shard, version) in late {
            if let Some(primary) = self.primary_mut(shard)
                && let Some(pending) = primary.pending.get_mut(&version)
            {
                pending.retry_count = pending.retry_count.saturating_add(1);
            }
            self.land_at_all(shard, version, now, actions);
            self.complete(shard, version, now, actions);
            self.give_up(shard, version, now, actions);
        }
    }

    pub(super) fn acked(
        &mut self,
        from: NodeId,
        blocks: &[BlockId],
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let term = self.term();
        if self.configuration.as_ref().is_some_and(|configuration| configuration.has(from)) {
            self.acked_at.insert(from, now);
        }
        for BlockId { shard, version, block } in blocks {
            let Node { shards, ways, wanted, .. } = self;
            let primary = shards.get_mut(shard).and_then(|state| state.primary.as_mut());
            let Some(primary) = primary else { continue };
            let Some(pending) = primary.pending.get_mut(version) else { continue };
            let target = pending.targets.iter_mut().find(|(to, _)| *to == from);
            let Some((_, missing)) = target else { continue };
            missing.remove(*block, now);
            pending.retry_count = 0;
            if missing.is_empty() {
                self.complete(*shard, *version, now, actions);
                continue;
            }
            pending.landed_at = now; // It goes on.
            missing.take_window(|block| wanted.push((from, block)));
            land_blocks(primary, ways, (term, *version), wanted, actions);
        }
    }

    /// Notes that the node's own log has a write.
    pub(super) fn written(
        &mut self,
        shard: ShardId,
        version: Version,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(primary) = self.primary_mut(shard) else { return };
        if let Some(pending) = primary.pending.get_mut(&version) {
            pending.is_written = true;
            self.complete(shard, version, now, actions);
        }
    }

    /// If a write is on all targets (N2), makes it visible and answers it; then does the same for
    /// the writes that were computed on it.
    pub(super) fn complete(
        &mut self,
        shard: ShardId,
        version: Version,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let has_copies = self.has_copies(shard);
        let Some(state) = self.shards.get_mut(&shard) else { return };
        let Some(primary) = state.primary.as_mut() else { return };
        let Some(pending) = primary.pending.get(&version) else { return };
        let has_base = pending.after.is_some_and(|base| primary.pending.contains_key(&base));
        let is_first =
            primary.pending.first_key_value().is_some_and(|(first, _)| *first == version);
        let is_early = pending.entry.is_flush && !is_first; // F1
        let must_wait = has_base || is_early || pending.is_held;
        if !pending.is_everywhere() || must_wait || !has_copies {
            return;
        }
        if !pending.is_written {
            return self.write_to_replica_store(shard, version, now, actions);
        }
        let Some(pending) = primary.pending.remove(&version) else { return };
        primary.pending_bytes -= pending.len_bytes();
        primary.flush = primary.flush.filter(|flush| *flush != version);
        primary.loose.end(version);
        if let Some(newest) = primary.newest.remove(&pending.entry.key).filter(|it| *it > version) {
            primary.newest.insert(pending.entry.key.clone(), newest);
        }
        let before = state.commit;
        state.commit = before.max(primary.commit());
        let has_grown = state.commit > before;
        state.sessions.settle_entry(&pending.entry);
        let later = pending.is_base.then(|| primary.pending.range(version..));
        let next: Vec<Version> = later
            .into_iter()
            .flatten()
            .filter(|(_, later)| later.after == Some(version))
            .map(|(later, _)| *later)
            .collect();
        let waiting = primary.waiting.remove(&version).unwrap_or_default();
        primary.waiting_count -= waiting.len();
        let (client, sequence) = pending.reply_to;
        if !pending.is_installed {
            self.replica_store.install(pending.entry);
        }
        if has_grown {
            self.tell_replica_store(shard);
        }
        if !pending.is_given_up {
            self.reply(client, sequence, pending.outcome, now, actions);
        }
        next.into_iter().for_each(|later| self.complete(shard, later, now, actions));
        self.send_behind(shard, now, actions);
        self.request_in_turn(waiting, now, actions);
        self.complete_flush(shard, now, actions);
    }

    /// Executes waiting requests in their order. If one must be retried, so must those behind it
    /// (K10).
    fn request_in_turn(&mut self, waiting: Vec<Request>, now: Instant, actions: &mut Vec<Action>) {
        let mut is_put_off = false;
        for request in waiting {
            if is_put_off {
                answer(&request, Outcome::TryAgain, actions);
                continue;
            }
            let before = actions.len();
            self.request(request, now, actions);
            is_put_off = actions[before..].iter().any(|action| {
                let Action::Send { message: Message::Reply { outcome, .. }, .. } = action else {
                    return false;
                };
                *outcome == Outcome::TryAgain
            });
        }
    }

    /// Installs a write that all targets have in the replica store, if that is the log. The write
    /// is answered, and counts as being on all copies, once it is on the medium here too.
    fn write_to_replica_store(
        &mut self,
        shard: ShardId,
        version: Version,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let is_replica_store = self.durable.is_replica_store();
        let Some(primary) = self.primary_mut(shard) else { return };
        let Some(pending) = primary.pending.get_mut(&version) else { return };
        if !is_replica_store || pending.is_installed {
            return;
        }
        let entry = pending.entry.clone();
        if self.replica_store.install(entry) == Installed::NoRoom {
            if let Some(primary) = self.primary_mut(shard) {
                primary.crowded_at = Some(now);
            }
            return; // Tried again with the next tick that finds it late.
        }
        if let Some(primary) = self.primary_mut(shard)
            && let Some(pending) = primary.pending.get_mut(&version)
        {
            pending.is_installed = true;
        }
        self.count_change();
        self.when_durable(Held::Written { shard, version }, now, actions);
    }

    /// Whether there are as many full copies as a write needs (K23). If a copy dies, a write under
    /// way waits for the next one to join.
    pub fn has_copies(&self, shard: ShardId) -> bool {
        let copy_count = self.shard(shard).map_or(0, |shard| shard.full_copies().count());
        copy_count >= usize::from(self.settings.min_copies)
    }

    /// Gives the writes under way new targets. Acknowledgements of a target that keeps its role
    /// still count.
    pub(super) fn retarget(
        &mut self,
        shard: ShardId,
        before: Option<&Shard>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(after) = self.shard(shard).cloned() else { return };
        let Some(primary) = self.primary_mut(shard) else { return };
        primary.told = (Version::ZERO, now); // Not to all of the new ones.
        let stays = |node: NodeId| match before.and_then(|shard| shard.role_of(node)) {
            Some(Role::Joining) => true,
            Some(Role::Backup) => after.role_of(node) == Some(Role::Backup),
            _ => false,
        };
        for pending in primary.pending.values_mut() {
            let all = pending.all_missing(now);
            let before = std::mem::take(&mut pending.targets);
            let missing_at = |node: NodeId| {
                let known = before.iter().find(|(of, _)| *of == node && stays(node));
                (node, known.map_or_else(|| all.clone(), |(_, missing)| missing.clone()))
            };
            pending.targets = after.targets().map(missing_at).collect();
        }
        let versions: Vec<Version> = primary.pending.keys().copied().collect();
        for version in versions {
            self.land_at_all(shard, version, now, actions);
            self.complete(shard, version, now, actions);
        }
    }

    /// Ends the role of primary: writes under way may take effect, and their clients learn the
    /// outcome later (`in_doubt`). Waiting requests were not executed.
    pub(super) fn demote(&mut self, shard: ShardId, now: Instant, actions: &mut Vec<Action>) {
        let Some(state) = self.shards.get_mut(&shard) else { return };
        let Some(primary) = state.primary.take() else { return };
        for pending in primary.pending.into_values() {
            if pending.is_held {
                let (client, sequence) = pending.reply_to;
                actions.push(to_client(client, sequence, Outcome::Unknown));
                continue; // H3
            }
            state.sessions.settle_entry(&pending.entry);
            let version = pending.entry.version;
            let is_kept = pending.is_installed
                || self.replica_store.install(pending.entry) != Installed::NoRoom;
            let (client, sequence) = pending.reply_to;
            match is_kept {
                _ if pending.is_given_up => {}
                true => state.in_doubt.put(version, (client, sequence), pending.outcome, now),
                false => actions.push(to_client(client, sequence, Outcome::Unknown)),
            }
        }
        let fetching = primary.filling.into_iter().flat_map(Filling::into_requests);
        let waiting = primary.waiting.into_values().flatten().chain(fetching);
        waiting.for_each(|request| answer(&request, Outcome::TryAgain, actions));
    }

    /// Announces CommitVer to all targets (Rowan-KV §4.4).
    pub(super) fn tell_commit(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if now < after(self.commit_told_at, self.settings.commit_interval_ns) {
            return;
        }
        self.commit_told_at = now;
        let Some(configuration) = &self.configuration else { return };
        let mut frames: std::collections::BTreeMap<NodeId, Vec<u8>> = Default::default();
        let is_stale = |at| now >= after(at, TELL_AGAIN_NS);
        for (shard, state) in &mut self.shards {
            let commit = state.commit;
            let Some(primary) = state.primary.as_mut().filter(|primary| primary.is_serving())
            else {
                continue;
            };
            if primary.told.0 == commit && !is_stale(primary.told.1) {
                continue;
            }
            primary.told = (commit, now);
            for to in configuration.shard(*shard).iter().flat_map(|shard| shard.targets()) {
                append_mark(Kind::CommitVersion, *shard, commit, frames.entry(to).or_default());
            }
        }
        let term = configuration.term;
        let datagram_bytes = self.settings.datagram_bytes / 64 * 64;
        for (to, bytes) in frames {
            let frames = bytes.chunks(datagram_bytes);
            let way = Way::MARK;
            let land = |bytes: &[u8]| Action::Land { to, term, way, bytes: bytes.into() };
            actions.extend(frames.map(land));
        }
    }
}

fn land_blocks(
    primary: &Primary,
    ways: &mut Ways,
    (term, version): (Term, Version),
    wanted: &mut Vec<(NodeId, u32)>,
    actions: &mut Vec<Action>,
) {
    let thread = primary.pending.get(&version).map_or(1, |pending| pending.reply_to.0.thread());
    for (to, block) in wanted.drain(..) {
        let bytes = frame(primary, version, block, to);
        let way = ways.of(to, thread, bytes.len());
        actions.push(Action::Land { to, term, way, bytes });
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
