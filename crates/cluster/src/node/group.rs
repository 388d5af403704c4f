//! Groups of writes: none leaves before the last one is computed, and then all leave as one frame,
//! which lands as a whole or not at all.
//!
//! ```text
//!  hold_group ─ write 7 ─ write 8 ─ write 9 ─ release_group ─▶ frame [7][8][9] to each target
//!                held      held      held                       and again, until 9 is acknowledged
//! ```
//!
//! So a promotion gathers all of a group or nothing, whichever nodes have failed. If a group no
//! longer fits into a datagram, its writes leave at once, one by one like any others: part of such
//! a group may survive alone, but no delete without the values before it (H4).
//!
//! ```text
//!  RENAME of a long value:  put b, 300 blocks ─▶ on all copies, and durable ─▶ delete a
//! ```
//!
//! # Invariants
//! H1: while a group is open, only its own writes are executed in the shard (`Groups` of the
//!     driver), each computed on the one before, so that N5 keeps them together. A write that is
//!     still under way has been given up (`overdue`): its client was told that the outcome is
//!     unknown.
//! H2: a target that has not acknowledged the last write of a group is never sent one of them
//!     alone.
//! H3: held writes are in no log and no replica store, including this node's own: they are void if
//!     the node ceases to be primary, or if the group is dropped.
//! H4: of a group that leaves one by one, a delete is held until all values that precede it in the
//!     group are on all copies: the value that it deletes may be one of them, under another name
//!     (K21). A write that was computed on a held one is held until that one leaves, or until it is
//!     on all copies if the two do not fit into a datagram.
//! H5: the writes of one frame are in the replica store together, once all targets have each of
//!     them: a read of several keys sees all of them or none (K11).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use base::Instant;

use crate::ids::{NodeId, ShardId, Version};
use crate::message::Outcome;
use crate::node::primary::{Pending, Primary};
use crate::node::requests::{fits_with_chain, to_client};
use crate::node::shards::ShardState;
use crate::node::{Action, Node, pending};
use crate::record::Entry;
use crate::replica_store::ReplicaStore;

/// Groups that no longer fit into a datagram (H4).
#[derive(Debug, Default)]
pub(super) struct Loose {
    /// Whether the open group is one.
    pub(super) is_open: bool,
    /// Their values that are not on all copies yet.
    puts: BTreeSet<Version>,
    /// Writes that are held until others are on all copies, oldest first.
    behind: VecDeque<Version>,
}

impl Loose {
    /// Takes note of a write that begins.
    pub(super) fn begin(&mut self, pending: &Pending) {
        let version = pending.entry.version;
        if self.is_open && pending.entry.value.is_some() {
            self.puts.insert(version);
        }
        if pending.is_held {
            self.behind.push_back(version);
        }
    }

    /// Takes note that a write is on all copies.
    pub(super) fn end(&mut self, version: Version) {
        self.puts.remove(&version);
    }

    /// Whether a value precedes this write and is not on all copies yet.
    fn has_put_before(&self, version: Version) -> bool {
        self.puts.first().is_some_and(|first| *first < version)
    }
}

impl<S: ReplicaStore> Node<S> {
    /// Opens a group: writes of the shard belong together until [`Node::release_group`]. No client
    /// waits for any other write (H1).
    pub fn hold_group(&mut self, shard: ShardId) {
        if let Some(primary) = self.shards.primary_mut(shard) {
            primary.hold_group();
        }
    }

    /// Closes the group and sends the held writes, except those that wait for others (H4). Does
    /// nothing if no group is open.
    pub fn release_group(&mut self, shard: ShardId, now: Instant, actions: &mut Vec<Action>) {
        if let Some(primary) = self.shards.primary_mut(shard) {
            primary.loose.is_open = false;
        }
        send_group(self, shard, now, actions);
    }

    /// Gives the group up before all of it was computed: the held writes are void, and their
    /// versions are not assigned again. Does nothing if no group is open. Of a group that was too
    /// large for a datagram the rest follows what has left.
    pub fn drop_group(&mut self, shard: ShardId, actions: &mut Vec<Action>) {
        if let Some(state) = self.shards.get_mut(shard) {
            state.drop_group(actions);
        }
    }
}

/// Sends the writes of the open group, which has become too large for a datagram. The group's later
/// writes leave one by one.
pub(super) fn loosen_group<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    if let Some(primary) = node.shards.primary_mut(shard) {
        primary.loosen_group();
    }
    send_group(node, shard, now, actions);
}

fn send_group<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(primary) = node.shards.primary_mut(shard) else { return };
    let Some(versions) = primary.group.take() else { return };
    let Some(last) = versions.last().copied() else { return };
    let mut bytes = Vec::new();
    for version in &versions {
        let Some(pending) = primary.pending.get_mut(version) else { continue };
        pending.is_held = false;
        pending.goes_with = Some(last).filter(|last| last != version);
        pending.ends_group = *version == last && versions.len() > 1;
        pending.landed_at = now;
        if node.durable.takes_entries() {
            pending.entry.append(&mut bytes);
        }
    }
    node.durable.append(&bytes, actions);
    pending::land_at_all(node, shard, last, now, actions);
    for version in versions {
        pending::when_written(node, shard, version, now, actions);
    }
}

/// Sends the held writes that wait for no other any more, in their order (H4).
pub(super) fn send_behind<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let datagram_bytes = node.settings.datagram_bytes;
    let Some(primary) = node.shards.primary_mut(shard) else { return };
    // What completes meanwhile finds none here: one loop sends them all.
    let mut behind = std::mem::take(&mut primary.loose.behind);
    while let Some(primary) = node.shards.primary_mut(shard)
        && let Some(version) =
            behind.pop_front_if(|version| !primary.must_wait(*version, datagram_bytes))
    {
        let Some(pending) = primary.pending.get_mut(&version) else { continue };
        pending.is_held = false;
        pending.retry_count = 0;
        pending.targets.iter_mut().for_each(|(_, missing)| missing.moved_at = now);
        let mut bytes = Vec::new();
        if node.durable.takes_entries() {
            pending.entry.append(&mut bytes);
        }
        node.durable.append(&bytes, actions);
        pending::land_at_all(node, shard, version, now, actions);
        pending::when_written(node, shard, version, now, actions);
    }
    if let Some(primary) = node.shards.primary_mut(shard) {
        behind.append(&mut primary.loose.behind);
        primary.loose.behind = behind;
    }
}

/// The write's group, if it is to be installed now or later (H5); `None`: it goes alone, or is
/// installed.
pub(super) fn to_install<S: ReplicaStore>(
    node: &Node<S>,
    shard: ShardId,
    version: Version,
) -> Option<ToInstall> {
    let primary = node.shards.primary(shard)?;
    let pending = primary.pending.get(&version)?;
    if pending.is_installed || pending.goes_with.is_none() && !pending.ends_group {
        return None;
    }
    let last = pending.goes_with.unwrap_or(version);
    let (is_log, mut writes) = (node.durable.is_replica_store(), Vec::new());
    for (version, one) in primary.pending.range(..=last).rev() {
        if *version != last && one.goes_with != Some(last) {
            break;
        }
        let is_ready = one.is_everywhere() && !one.is_held && (is_log || one.is_written);
        if !is_ready {
            return Some(ToInstall::Later);
        }
        writes.push((*version, one.entry.clone()));
    }
    writes.reverse();
    let first = writes.first()?.0;
    let is_on_others = primary.pending.range(first..=last).any(|(_, one)| {
        one.after.is_some_and(|base| base < first && primary.pending.contains_key(&base)) // N5
    });
    match is_on_others || !node.has_copies(shard) {
        true => Some(ToInstall::Later),
        false => Some(ToInstall::Now(writes)),
    }
}

/// What becomes of a group whose writes are installed together.
pub(super) enum ToInstall {
    /// A target misses one of them, or a write that one was computed on is still under way.
    Later,
    /// All of them, oldest first.
    Now(Vec<(Version, Arc<Entry>)>),
}

impl ShardState {
    fn drop_group(&mut self, actions: &mut Vec<Action>) {
        let Some(primary) = self.primary.as_mut() else { return };
        primary.loose.is_open = false;
        for version in primary.group.take().into_iter().flatten().rev() {
            let Some(pending) = primary.pending.remove(&version) else { continue };
            debug_assert!(pending.is_held, "H3");
            primary.pending_bytes -= pending.len_bytes();
            primary.flush = primary.flush.filter(|flush| *flush != version);
            let key = &pending.entry.key;
            let earlier = primary.pending.iter().rev().find(|(_, one)| one.entry.key == *key);
            match earlier.map(|(earlier, _)| *earlier) {
                Some(earlier) => primary.newest.insert(key.clone(), earlier),
                None => primary.newest.remove(key),
            };
            let (client, sequence) = pending.reply_to;
            self.sessions.take_back(client, sequence);
            actions.push(to_client(client, sequence, Outcome::TryAgain));
        }
    }
}

impl Primary {
    fn hold_group(&mut self) {
        // What is computed on a held write of an earlier group, which was given up, cannot leave
        // with this one (H4).
        match self.loose.behind.is_empty() {
            true => self.group = Some(Vec::new()),
            false => self.loose.is_open = true,
        }
    }

    /// The open group has become too large for a datagram (H4).
    fn loosen_group(&mut self) {
        let held = self.group.iter().flatten();
        let puts = held.filter(|held| {
            self.pending.get(held).is_some_and(|pending| pending.entry.value.is_some())
        });
        self.loose.puts.extend(puts);
        self.loose.is_open = true;
    }

    /// The last write of an open group.
    pub(super) fn last_held(&self) -> Option<Version> {
        self.group.as_ref()?.last().copied()
    }

    /// Whether a write that begins is held, though no group is open that fits into a datagram (H4).
    pub(super) fn begins_behind(&self, pending: &Pending, datagram_bytes: usize) -> bool {
        self.has_before(pending) || self.loose.is_open && !self.fits(pending, datagram_bytes)
    }

    /// Whether a write that is held for H4 has to wait on.
    fn must_wait(&self, version: Version, datagram_bytes: usize) -> bool {
        self.pending
            .get(&version)
            .is_some_and(|pending| self.has_before(pending) || !self.fits(pending, datagram_bytes))
    }

    /// Whether a write would leave without values that precede it, or with a held write.
    fn has_before(&self, pending: &Pending) -> bool {
        let is_delete = pending.entry.value.is_none();
        let base = pending.after.and_then(|after| self.pending.get(&after));
        base.is_some_and(|base| base.is_held)
            || is_delete && self.loose.has_put_before(pending.entry.version)
    }

    /// Whether it fits into a datagram with the writes under way that it was computed on.
    fn fits(&self, pending: &Pending, datagram_bytes: usize) -> bool {
        let after = pending.after.filter(|after| self.pending.contains_key(after));
        after.is_none_or(|after| fits_with_chain(self, after, &pending.blocks, datagram_bytes))
    }

    /// Whether this write is sent to a target together with the last one of its group (H2).
    pub(super) fn goes_along(&self, version: Version, to: NodeId) -> bool {
        let with = self.pending.get(&version).and_then(|pending| pending.goes_with);
        let last = with.and_then(|last| self.pending.get(&last));
        let mut targets = last.into_iter().flat_map(|last| &last.targets);
        targets.any(|(of, missing)| *of == to && !missing.is_empty())
    }
}
