//! The next configuration, computed from the present one and the known facts: a pure function.
//!
//! | what happened | what follows |
//! |---|---|
//! | a backup or a joining node died | it is left out |
//! | a primary died | the full copy with the fewest shards to serve becomes primary, epoch + 1 |
//! | a primary died while it was filling | the node it filled from becomes primary again |
//! | the node that a primary filled from died | another full copy takes its place |
//! | too few copies for writes are left while a primary fills | its source serves again |
//! | too few full copies are left | those that died are listed as waiting, until there are enough |
//! | all full copies died | the shard waits, listed as it was, until one of them is back |
//! | an operator gives such a shard up | it begins empty, epoch + 1 |
//! | a copy that waited is back | it becomes a backup, epoch + 1: all gather and scatter |
//! | a node has joined a shard | it becomes a backup |
//! | a node holds a shard up | it is replaced, see `overdue` |
//! | a shard has too few copies | the node with the fewest roles joins, a few at a time |
//! | a server says that it ends | what it has goes to others, see `ending` |
//! | a node is to leave | its shards go to others, see `leave` |
//! | a shard is to move | its target becomes primary, at once if it is a backup, else filling |
//!
//! The first eight happen whenever they must; the others only while all nodes serve.

mod ending;
mod leave;
mod overdue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::addresses::Addresses;
use crate::configuration::{Configuration, Role, Shard, even_ranges};
use crate::ids::{NodeId, ShardId, Term};
use crate::message::Recovered;
use crate::settings::Settings;

/// The facts that the manager knows.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// The live nodes, members and others, and the data that each started with.
    pub(super) live: &'a BTreeMap<NodeId, Recovered>,
    /// The addresses of these and other nodes.
    pub(super) addresses: &'a BTreeMap<NodeId, Arc<Addresses>>,
    /// Joined nodes, reported by primaries under the present term.
    pub(super) joined: &'a BTreeSet<(ShardId, NodeId)>,
    /// Filled shards, reported by primaries under the present term.
    pub(super) filled: &'a BTreeSet<ShardId>,
    /// Shards reported under the present term as not served for long because copies wait.
    pub(super) withheld: &'a BTreeSet<ShardId>,
    /// Nodes reported under the present term as holding a shard up.
    pub(super) overdue: &'a BTreeSet<(ShardId, NodeId)>,
    /// Pairs of a primary and a node that it does not get as a copy for some time, because the node
    /// held a shard up.
    pub(super) backing_off: &'a BTreeSet<(NodeId, NodeId)>,
    /// Moves that an operator or the balancer wants.
    pub(super) moves: &'a mut VecDeque<(ShardId, NodeId)>,
    /// Names of nodes that an operator wants to stop.
    pub(super) leaving: &'a BTreeSet<u16>,
    /// Servers that are shutting down, and whether no client waits for an answer of theirs.
    pub(super) ending: &'a BTreeMap<NodeId, bool>,
    /// Whether an operator paused the making of copies.
    pub(super) is_paused: bool,
    /// Shards to be served empty if no node has them.
    pub(super) abandoned: &'a BTreeSet<ShardId>,
    /// Whether the present configuration is committed.
    pub(super) may_grow: bool,
    /// Whether to go on without the nodes that have not come back.
    pub(super) is_grace_over: bool,
}

/// The first configuration of a cluster.
pub(super) fn first(
    live: &BTreeMap<NodeId, Recovered>,
    addresses: &BTreeMap<NodeId, Arc<Addresses>>,
    settings: &Settings,
) -> Configuration {
    let members: Vec<NodeId> = live.keys().copied().collect();
    let copies = usize::from(settings.copies).min(members.len());
    let shard = |(index, (first, last))| {
        let at = |step: usize| members[(index + step) % members.len()];
        let backups = (1..copies).map(at).collect();
        let (joining, filling_from, waiting) = (None, None, Vec::new());
        Shard { first, last, epoch: 1, primary: at(0), backups, joining, filling_from, waiting }
    };
    let shards = even_ranges(settings.shards).enumerate().map(shard).collect();
    let none = BTreeMap::new();
    let addresses = addresses_of(&members, &none, addresses);
    Configuration { term: Term(1), members, shards, addresses }
}

/// The address of each member: as in the previous configuration, else as it announced (C5).
fn addresses_of(
    members: &[NodeId],
    before: &BTreeMap<NodeId, Arc<Addresses>>,
    announced: &BTreeMap<NodeId, Arc<Addresses>>,
) -> BTreeMap<NodeId, Arc<Addresses>> {
    let of = |node: &NodeId| before.get(node).or_else(|| announced.get(node)).cloned();
    members.iter().filter_map(|node| Some((*node, of(node)?))).collect()
}

/// The next configuration, if anything is to change.
pub(super) fn next(
    current: &Configuration,
    facts: Facts<'_>,
    settings: &Settings,
) -> Option<Configuration> {
    let mut new = current.clone();
    new.members.retain(|member| facts.live.contains_key(member));
    for index in 0..new.shards.len() {
        bury(&mut new, index, &facts, settings);
    }
    // All members are gone, and no other node brings a shard back: the nodes that are here wait for
    // it.
    if new.members.is_empty() && facts.is_grace_over {
        admit(&mut new, facts.live);
    }
    if facts.may_grow {
        admit_staying(&mut new, &facts);
        finish(&mut new, &facts, settings);
        readmit(&mut new, &facts, settings);
        overdue::replace(&mut new, facts.overdue, settings);
        move_one(&mut new, facts.moves, facts.ending, settings);
        leave::leave(&mut new, facts.leaving, settings);
        if !facts.is_paused {
            enlist(&mut new, &facts, settings);
        }
        overdue::trim(&mut new, &facts, settings);
        ending::end(&mut new, facts.ending, settings);
    }
    new.addresses = addresses_of(&new.members, &current.addresses, facts.addresses);
    if new == *current || new.members.is_empty() {
        return None;
    }
    new.term = current.term.next();
    debug_assert_eq!(new.validate(), Ok(()));
    Some(new)
}

/// Removes dead nodes from one shard.
fn bury(new: &mut Configuration, index: usize, facts: &Facts<'_>, settings: &Settings) {
    let listed = new.shards[index].clone();
    let lives = |node: &NodeId| new.members.binary_search(node).is_ok();
    let mut shard = listed.clone();
    shard.backups.retain(lives);
    shard.joining = shard.joining.filter(lives);
    if !lives(&shard.primary) {
        let heir = match listed.filling_from.filter(lives) {
            Some(source) => Some(source),
            None => shard.backups.iter().copied().min_by_key(|node| new.primary_count(*node)),
        };
        match heir {
            Some(heir) => crown(&mut shard, heir),
            None => return revive(new, index, facts, settings),
        }
    }
    if let Some(source) = shard.filling_from.filter(|source| !shard.backups.contains(source)) {
        shard.filling_from = shard.backups.first().copied();
        if shard.filling_from.is_none() {
            return revive(new, index, facts, settings);
        }
        debug_assert_ne!(shard.filling_from, Some(source));
    }
    roll_back(&mut shard, settings);
    shard.waiting = waiting(&listed, &shard, settings);
    new.shards[index] = shard;
}

/// Rolls a filling back: too few copies are left for the writes that the filling waits for, and no
/// copy is made while it lasts, so the source serves again (decision 0054).
fn roll_back(shard: &mut Shard, settings: &Settings) {
    let is_short = shard.full_copies().count() < usize::from(settings.min_copies);
    if let Some(source) = shard.filling_from.filter(|_| is_short) {
        crown(shard, source);
    }
}

/// Nodes that had all of a shard and are not its copies now, while there are too few copies (C6).
fn waiting(before: &Shard, now: &Shard, settings: &Settings) -> Vec<NodeId> {
    if now.full_copies().count() >= usize::from(settings.min_copies) {
        return Vec::new();
    }
    before.keepers().filter(|node| now.role_of(*node).is_none()).collect()
}

/// Makes a backup primary; the old primary is gone.
fn crown(shard: &mut Shard, heir: NodeId) {
    shard.backups.retain(|node| *node != heir);
    shard.primary = heir;
    shard.epoch += 1;
    shard.filling_from = None;
}

/// The present incarnation of that node, if it is here with all its data of the shard.
pub(super) fn back(
    node: NodeId,
    id: ShardId,
    live: &BTreeMap<NodeId, Recovered>,
) -> Option<NodeId> {
    let is_back = |(live, recovered): &(&NodeId, &Recovered)| {
        // A later incarnation that was never listed has the data of the listed one.
        let is_next = live.name == node.name && recovered.has_all(id, node.incarnation);
        **live == node || is_next
    };
    live.iter().find(is_back).map(|(live, _)| *live)
}

/// Revives a shard of which no member has a full copy: a node that had one, and is back with all of
/// it, takes over.
fn revive(new: &mut Configuration, index: usize, facts: &Facts<'_>, settings: &Settings) {
    let id = ShardId(index as u16);
    let keepers: Vec<NodeId> = new.shards[index].keepers().collect();
    let (mut returned, mut away) = (Vec::new(), Vec::new());
    for keeper in keepers {
        match back(keeper, id, facts.live) {
            Some(node) if returned.contains(&node) => {}
            Some(node) => returned.push(node),
            None => away.push(keeper),
        }
    }
    returned.truncate(settings.copies.into());
    if returned.is_empty() && facts.abandoned.contains(&id) {
        return begin_empty(new, index, settings);
    }
    if returned.is_empty() || !(away.is_empty() || facts.is_grace_over) {
        return;
    }
    for node in &returned {
        if let Err(place) = new.members.binary_search(node) {
            new.members.insert(place, *node);
        }
    }
    let shard = &mut new.shards[index];
    shard.primary = returned[0];
    shard.backups = returned[1..].to_vec();
    shard.joining = None;
    shard.filling_from = None;
    shard.waiting = if returned.len() < settings.min_copies.into() { away } else { Vec::new() };
    shard.epoch += 1;
}

/// Starts a shard empty after an operator gave its data up: a new epoch, at the nodes with the
/// fewest roles.
fn begin_empty(new: &mut Configuration, index: usize, settings: &Settings) {
    let mut nodes = new.members.clone();
    nodes.sort_by_key(|node| (new.primary_count(*node), new.role_count(*node)));
    nodes.truncate(settings.copies.into());
    let Some((primary, backups)) = nodes.split_first() else { return };
    let shard = &mut new.shards[index];
    shard.primary = *primary;
    shard.backups = backups.to_vec();
    shard.joining = None;
    shard.filling_from = None;
    shard.waiting.clear();
    shard.epoch += 1;
}

/// Makes backups of waiting copies that are back. The epoch is a new one, so that all copies are
/// made alike; nothing is copied. Copies stop waiting once there are enough copies, or once reads
/// have waited long enough.
fn readmit(new: &mut Configuration, facts: &Facts<'_>, settings: &Settings) {
    let (copies, min_copies) = (usize::from(settings.copies), usize::from(settings.min_copies));
    for index in 0..new.shards.len() {
        let id = ShardId(index as u16);
        let shard = &new.shards[index];
        if shard.waiting.is_empty() || !new.has(shard.primary) {
            continue;
        }
        let room = copies.saturating_sub(shard.full_copies().count());
        let returned = shard.waiting.iter().filter_map(|node| back(*node, id, facts.live));
        let is_free =
            |node: &NodeId| !matches!(shard.role_of(*node), Some(Role::Primary | Role::Backup));
        let returned: Vec<NodeId> = returned.filter(is_free).take(room).collect();
        let shard = &mut new.shards[index];
        if shard.filling_from.is_none() && !returned.is_empty() {
            shard.waiting.retain(|node| !returned.iter().any(|back| back.name == node.name));
            shard.joining = shard.joining.filter(|node| !returned.contains(node));
            shard.backups.extend(returned);
            shard.epoch += 1;
            if shard.nodes().count() > copies {
                shard.joining = None;
            }
        }
        if shard.full_copies().count() >= min_copies || facts.withheld.contains(&id) {
            shard.waiting.clear();
        }
    }
}

/// Makes every live node a member.
fn admit(new: &mut Configuration, live: &BTreeMap<NodeId, Recovered>) {
    new.members = live.keys().copied().collect();
}

/// Like `admit`, but without nodes that are shutting down, unless they are members or a shard waits
/// for their data: `readmit` gives them its copy again, and only members have copies.
fn admit_staying(new: &mut Configuration, facts: &Facts<'_>) {
    let is_needed = |node: &NodeId| new.shards.iter().any(|shard| shard.needs(node.name));
    let stays =
        |node: &&NodeId| new.has(**node) || !facts.ending.contains_key(*node) || is_needed(node);
    new.members = facts.live.keys().filter(stays).copied().collect();
}

/// Completes joins and fillings that have ended.
fn finish(new: &mut Configuration, facts: &Facts<'_>, settings: &Settings) {
    let backup_max = usize::from(settings.copies) - 1;
    for (index, shard) in new.shards.iter_mut().enumerate() {
        let id = ShardId(index as u16);
        if let Some(node) = shard.joining.filter(|node| facts.joined.contains(&(id, *node))) {
            shard.joining = None;
            shard.backups.push(node);
        }
        if facts.filled.contains(&id)
            && let Some(source) = shard.filling_from.take()
            && shard.backups.len() > backup_max
        {
            shard.backups.retain(|node| *node != source);
        }
    }
}

/// Makes the oldest wanted move that is possible. An impossible one is dropped.
fn move_one(
    new: &mut Configuration,
    moves: &mut VecDeque<(ShardId, NodeId)>,
    ending: &BTreeMap<NodeId, bool>,
    settings: &Settings,
) {
    let is_moving = new.shards.iter().any(|shard| shard.filling_from.is_some());
    let Some((id, target)) = moves.front().copied().filter(|_| !is_moving) else { return };
    let is_here = new.has(target) && !ending.contains_key(&target);
    let is_member = is_here && new.shard(id).is_some_and(|shard| new.has(shard.primary));
    let Some(shard) = new.shards.get_mut(id.index()).filter(|_| is_member) else {
        moves.pop_front();
        return;
    };
    if shard.joining.is_some() {
        return;
    }
    moves.pop_front();
    let source = shard.primary;
    if source == target || shard.full_copies().count() < usize::from(settings.min_copies) {
        return;
    }
    let was_backup = shard.backups.contains(&target);
    shard.backups.retain(|node| *node != target);
    shard.backups.insert(0, source);
    shard.primary = target;
    shard.epoch += 1;
    shard.filling_from = (!was_backup).then_some(source);
}

/// Adds backups to shards that have too few.
fn enlist(new: &mut Configuration, facts: &Facts<'_>, settings: &Settings) {
    let stays =
        |node: &NodeId| !facts.leaving.contains(&node.name) && !facts.ending.contains_key(node);
    let under_way = new.shards.iter().filter(|shard| shard.joining.is_some()).count();
    let mut room = usize::from(settings.copies_at_once).saturating_sub(under_way);
    for index in 0..new.shards.len() {
        let shard = &new.shards[index];
        let id = ShardId(index as u16);
        let takes = |node: &NodeId| stays(node) && !facts.overdue.contains(&(id, *node));
        let node_count = shard.nodes().filter(takes).count();
        let is_wanted = node_count < usize::from(settings.copies)
            && shard.joining.is_none()
            && shard.filling_from.is_none()
            && new.has(shard.primary);
        if !is_wanted || room == 0 {
            continue;
        }
        let is_backing_off = |node: &NodeId| facts.backing_off.contains(&(shard.primary, *node));
        let is_free = |node: &&NodeId| {
            stays(node) && shard.role_of(**node).is_none() && !is_backing_off(node)
        };
        let free = new.members.iter().filter(is_free);
        let joining = free.copied().min_by_key(|node| new.role_count(*node));
        room -= usize::from(joining.is_some());
        new.shards[index].joining = joining;
    }
}

#[cfg(test)]
mod tests;
