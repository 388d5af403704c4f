//! The configuration: the members, and the role of each in every shard (Rowan-KV §4.5).
//!
//! ```text
//!  term 7     members  n1.1  n2.1  n4.2
//!  shard 0    slots     0 ..  255    epoch 3   primary n1   backups n2, n4
//!  shard 1    slots   256 ..  511    epoch 5   primary n4   backups n1         joining n2
//!  shard 2    slots   512 ..  767    epoch 2   primary n2   backups n1, n4     filling from n1
//! ```
//!
//! # Invariants
//! C1: shards lie in order of their slots and cover all 16,384.
//! C2: a node has at most one role in a shard.
//! C3: the primary and every backup hold every write ever acknowledged for a shard; a *joining*
//!     node does not yet. A primary that is *filling* does not either, but the node it fills from
//!     does.
//! C4: the epoch of a shard grows with each new primary.
//! C5: addresses are those of members; they do not change during a node's life.
//! C6: while fewer than `min_copies` full copies are members, the copies that fell silent last are
//!     listed as *waiting*: they too hold every write ever acknowledged or shown for the shard
//!     (decision 0056).

mod codec;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::addresses::Addresses;
use crate::ids::{NodeId, ShardId, Term};
use crate::slot::{SLOT_COUNT, Slot};

pub use codec::DecodeError;
pub(crate) use codec::{put_addresses, split_addresses};

/// The members and their roles, at one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The term: each configuration has the next one.
    pub term: Term,
    /// The live nodes, sorted.
    pub members: Vec<NodeId>,
    /// In order of their slots; a shard's id is its position.
    pub shards: Vec<Shard>,
    /// The members' addresses, as they announced them.
    pub addresses: BTreeMap<NodeId, Arc<Addresses>>,
}

/// One range of slots, and the nodes with its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The first slot.
    pub first: Slot,
    /// The last slot, inclusive.
    pub last: Slot,
    /// The number of primaries the shard has had (C4).
    pub epoch: u16,
    /// The node that serves it, if that is a member.
    pub primary: NodeId,
    /// The other nodes that have all of it.
    pub backups: Vec<NodeId>,
    /// The node that is to become a backup, and already gets all writes.
    pub joining: Option<NodeId>,
    /// The primary's source until it has all of the shard: one of the backups.
    pub filling_from: Option<NodeId>,
    /// Nodes that have all of it and are away (C6).
    pub waiting: Vec<NodeId>,
}

/// The role of a node in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves it.
    Primary,
    /// Has all of it.
    Backup,
    /// Is being sent all of it.
    Joining,
}

impl Shard {
    /// The node's role in this shard, if it has one.
    pub fn role_of(&self, node: NodeId) -> Option<Role> {
        if self.primary == node {
            return Some(Role::Primary);
        }
        if self.backups.contains(&node) {
            return Some(Role::Backup);
        }
        (self.joining == Some(node)).then_some(Role::Joining)
    }

    /// The nodes that have all of it: the primary first, unless it is filling.
    pub fn full_copies(&self) -> impl Iterator<Item = NodeId> + '_ {
        let primary = self.filling_from.is_none().then_some(self.primary);
        primary.into_iter().chain(self.backups.iter().copied())
    }

    /// The nodes at which the primary lands its writes.
    pub fn targets(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.backups.iter().copied().chain(self.joining)
    }

    /// Every node that has all acknowledged data of the shard, members and others (C6).
    pub fn keepers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.full_copies().chain(self.waiting.iter().copied())
    }

    /// Whether a node of that name has a role, or is waited for: its data must stay.
    pub fn needs(&self, name: u16) -> bool {
        self.nodes().chain(self.waiting.iter().copied()).any(|node| node.name == name)
    }

    /// All nodes with a role.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::once(self.primary).chain(self.targets())
    }
}

impl Configuration {
    /// Whether the node is one of the members.
    pub fn has(&self, node: NodeId) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    /// The addresses of the node, if it is a member that has announced them.
    pub fn addresses(&self, node: NodeId) -> Option<&Addresses> {
        self.addresses.get(&node).map(Arc::as_ref)
    }

    /// The shard with that id.
    pub fn shard(&self, id: ShardId) -> Option<&Shard> {
        self.shards.get(id.index())
    }

    /// All shards with their ids.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, &Shard)> {
        (0..).map(ShardId).zip(&self.shards)
    }

    /// The shard of a slot.
    pub fn shard_of_slot(&self, slot: Slot) -> ShardId {
        // C1: one of them has it.
        ShardId(self.shards.partition_point(|shard| shard.last < slot) as u16)
    }

    /// The shard of a key.
    pub fn shard_of(&self, key: &[u8]) -> ShardId {
        self.shard_of_slot(Slot::of(key))
    }

    /// How many shards the node is primary of.
    pub fn primary_count(&self, node: NodeId) -> usize {
        self.shards.iter().filter(|shard| shard.primary == node).count()
    }

    /// How many shards the node has a role in.
    pub fn role_count(&self, node: NodeId) -> usize {
        self.shards.iter().filter(|shard| shard.role_of(node).is_some()).count()
    }

    /// Checks C1, C2 and C5, and that the sources of fillings are backups.
    pub fn validate(&self) -> Result<(), String> {
        if !self.members.is_sorted_by(|one, next| one < next) {
            return Err("members are not sorted".to_owned());
        }
        for (node, addresses) in &self.addresses {
            if !self.has(*node) || !addresses.is_valid() {
                return Err(format!("C5: {node} is no member, or its addresses are too long"));
            }
        }
        let mut next_slot = 0;
        for (id, shard) in self.shards() {
            if shard.first.0 != next_slot || shard.last < shard.first {
                return Err(format!("C1: shard {} does not begin at slot {next_slot}", id.0));
            }
            next_slot = shard.last.0 + 1;
            let mut nodes: Vec<NodeId> =
                shard.nodes().chain(shard.waiting.iter().copied()).collect();
            nodes.sort_unstable();
            if !nodes.is_sorted_by(|one, next| one < next) {
                return Err(format!("C2: a node has two roles in shard {}", id.0));
            }
            if shard.filling_from.is_some_and(|source| !shard.backups.contains(&source)) {
                return Err(format!("C3: shard {} fills from a node that has not all", id.0));
            }
        }
        if next_slot == SLOT_COUNT { Ok(()) } else { Err("C1: slots are missing".to_owned()) }
    }
}

impl fmt::Display for Configuration {
    /// Formats the configuration in one line: the term, the members, and each shard as
    /// `0:n1+n2~n4?n3`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "term {}:", self.term.0)?;
        for member in &self.members {
            write!(formatter, " {member}")?;
        }
        for (id, shard) in self.shards() {
            write!(formatter, " | {}e{}:{}", id.0, shard.epoch, shard.primary)?;
            for backup in &shard.backups {
                write!(formatter, "+{backup}")?;
            }
            if let Some(joining) = shard.joining {
                write!(formatter, "~{joining}")?;
            }
            if let Some(source) = shard.filling_from {
                write!(formatter, "<{source}")?;
            }
            for waiting in &shard.waiting {
                write!(formatter, "?{waiting}")?;
            }
        }
        Ok(())
    }
}

/// Divides the slots into `shard_count` ranges, as evenly as possible.
pub fn even_ranges(shard_count: u16) -> impl Iterator<Item = (Slot, Slot)> {
    assert!((1..=SLOT_COUNT).contains(&shard_count));
    let edge = move |shard: u16| {
        (u32::from(shard) * u32::from(SLOT_COUNT) / u32::from(shard_count)) as u16
    };
    (0..shard_count).map(move |shard| (Slot(edge(shard)), Slot(edge(shard + 1) - 1)))
}

/// The range among these that holds a slot.
pub fn even_shard(shard_count: u16, slot: Slot) -> ShardId {
    let at = even_ranges(shard_count).position(|(_, last)| slot <= last);
    ShardId(at.expect("the ranges cover all slots") as u16)
}

#[cfg(test)]
mod tests;
