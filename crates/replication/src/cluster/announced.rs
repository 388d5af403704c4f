//! The cluster as it is announced to clients of Redis Cluster: nodes with ids, each master or
//! replica.
//!
//! ```text
//!  configuration                           announced
//!  shard 0   primary n1   backups n2 n3    n1 master of 0..511, n2 master of 512..1023
//!  shard 1   primary n1   backups n2 n3    n3 replica of n1, in both ranges
//!  shard 2   primary n2   backups n1 n3
//! ```
//!
//! # Invariants
//! T1: a node that is primary of a slot is announced as a master and as no node's replica, because
//!     clients keep one role per node and take the first that they see. Its copies of other slots
//!     are not announced. A node that only has copies is announced as a replica of the node of
//!     which it has the most copies.
//! T2: a node's id is a function of its name: it outlives the process.
//! T3: a range is announced only if its primary can be reached by RESP in the way in which the
//!     asking client has come: over TLS, or in clear text. Clients are never told a port of the
//!     other kind.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use base::hash::mix;
use cluster::slot::SLOT_COUNT;
use cluster::{Addresses, Configuration, NodeId, Role, Shard, Slot};

use super::View;

/// A configuration as seen by one node.
#[derive(Clone, Copy, Debug)]
pub struct Announced<'c> {
    configuration: &'c Configuration,
    own: NodeId,
    /// For a client that has come over TLS.
    is_tls: bool,
}

/// Slots that one node serves and the same replicas have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first slot.
    pub first: Slot,
    /// The last slot, inclusive.
    pub last: Slot,
    /// The node that serves it.
    pub primary: NodeId,
    /// Replicas that have it (T1).
    pub replicas: Vec<NodeId>,
}

/// 40 hexadecimal digits (T2). No two names have the same: `mix` is a bijection.
pub fn node_id(node: NodeId) -> String {
    digits_of(u64::from(node.name) | 0xd0fe_0000_0000_0000)
}

/// The id of what Redis calls a shard: a master and its replicas.
pub fn shard_id(master: NodeId) -> String {
    digits_of(u64::from(master.name) | 0x5a4d_0000_0000_0000)
}

fn digits_of(seed: u64) -> String {
    let mut digits = String::with_capacity(48);
    for word in [seed, seed.rotate_left(16), seed.rotate_left(32)].map(mix) {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{word:016x}");
    }
    digits.truncate(40);
    digits
}

impl<'c> Announced<'c> {
    /// The announcement by `own` of the configuration that it has installed.
    pub fn new(configuration: &'c Configuration, own: NodeId) -> Announced<'c> {
        Announced { configuration, own, is_tls: false }
    }

    /// The same for a client that has come over TLS or not (T3).
    pub fn over(self, is_tls: bool) -> Announced<'c> {
        Announced { is_tls, ..self }
    }

    /// The address of a node's RESP port, if it is a member and has one (T3).
    pub fn resp_of(&self, node: NodeId) -> Option<(&'c str, u16)> {
        let addresses = self.configuration.addresses(node)?;
        Some((addresses.host.as_str(), addresses.resp_port(self.is_tls)?))
    }

    /// All addresses of a node that can be reached by RESP in any way.
    pub fn reached(&self, node: NodeId) -> Option<&'c Addresses> {
        let addresses = self.configuration.addresses(node)?;
        (addresses.resp != 0 || addresses.tls_resp != 0).then_some(addresses)
    }

    /// The member with this id.
    pub fn node_of(&self, id: &[u8]) -> Option<NodeId> {
        self.members().find(|node| node_id(*node).as_bytes() == id)
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = NodeId> + 'c {
        self.configuration.members.iter().copied()
    }

    /// Members that are not announced as replicas (T1).
    pub fn masters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members().filter(|node| self.master_of(*node).is_none())
    }

    /// The master of a replica; `None`: the node is a master (T1).
    pub fn master_of(&self, node: NodeId) -> Option<NodeId> {
        if self.configuration.primary_count(node) > 0 {
            return None;
        }
        let mut copies_of = BTreeMap::<NodeId, usize>::new();
        for shard in &self.configuration.shards {
            if shard.backups.contains(&node) && self.configuration.has(shard.primary) {
                *copies_of.entry(shard.primary).or_default() += 1;
            }
        }
        // Of several with equally many, the first: every node announces the same.
        let most = copies_of.into_iter().max_by_key(|(primary, count)| (*count, Reverse(*primary)));
        most.map(|(primary, _)| primary)
    }

    /// The master of this node, if it is a replica.
    pub fn own_master(&self) -> Option<NodeId> {
        self.master_of(self.own)
    }

    /// The replicas of a master (T1).
    pub fn replicas_of(&self, master: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.members().filter(move |node| self.master_of(*node) == Some(master))
    }

    /// The nodes that have copies of the slots that this node serves, masters too: for INFO and
    /// ROLE.
    pub fn own_backups(&self) -> Vec<NodeId> {
        let own = self.configuration.shards.iter().filter(|shard| shard.primary == self.own);
        let mut backups: Vec<NodeId> = own.flat_map(|shard| shard.backups.clone()).collect();
        backups.sort_unstable();
        backups.dedup();
        backups
    }

    /// How many other nodes have each write of this node before it is answered.
    pub fn own_copies_min(&self) -> usize {
        let own = self.configuration.shards.iter().filter(|shard| shard.primary == self.own);
        own.map(|shard| shard.backups.len()).min().unwrap_or(0)
    }

    /// All ranges that a node serves (T3); adjacent ones of the same nodes are joined.
    pub fn ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let told_replicas: Vec<NodeId> = self
            .members()
            .filter(|node| self.master_of(*node).is_some() && self.resp_of(*node).is_some())
            .collect();
        for shard in &self.configuration.shards {
            if self.resp_of(shard.primary).is_none() {
                continue;
            }
            let is_told = |node: &NodeId| told_replicas.contains(node);
            let replicas = shard.backups.iter().copied().filter(is_told).collect();
            let (first, last, primary) = (shard.first, shard.last, shard.primary);
            match ranges.last_mut() {
                Some(before)
                    if before.last.0 + 1 == first.0
                        && (before.primary, &before.replicas) == (primary, &replicas) =>
                {
                    before.last = last;
                }
                _ => ranges.push(Range { first, last, primary, replicas }),
            }
        }
        ranges
    }

    /// The slots of a primary; adjacent ones are joined.
    pub fn slots_of(&self, primary: NodeId) -> Vec<(Slot, Slot)> {
        let mut slots: Vec<(Slot, Slot)> = Vec::new();
        for shard in self.configuration.shards.iter().filter(|shard| shard.primary == primary) {
            match slots.last_mut() {
                Some((_, last)) if last.0 + 1 == shard.first.0 => *last = shard.last,
                _ => slots.push((shard.first, shard.last)),
            }
        }
        slots
    }

    /// The newest epoch of the shards of which a node is primary.
    fn epoch_of(&self, node: NodeId) -> u16 {
        let own = self.configuration.shards.iter().filter(|shard| shard.primary == node);
        own.map(|shard| shard.epoch).max().unwrap_or(0)
    }

    /// A node's line of CLUSTER NODES, without the line's end.
    pub fn node_line(&self, node: NodeId, now_ms: u64) -> String {
        let unknown = Addresses::default();
        let addresses = self.configuration.addresses(node).unwrap_or(&unknown);
        let peer_port = addresses.peer.rsplit_once(':').map_or("0", |(_, port)| port);
        let master = self.master_of(node);
        let (myself, pong_ms) = if node == self.own { ("myself,", 0) } else { ("", now_ms) };
        let mut line = format!(
            "{} {}:{}@{peer_port} {myself}{} {} 0 {pong_ms} {} connected",
            node_id(node),
            addresses.host,
            addresses.resp_port(self.is_tls).unwrap_or(0),
            if master.is_some() { "slave" } else { "master" },
            master.map_or("-".to_owned(), node_id),
            self.epoch_of(master.unwrap_or(node)),
        );
        for (first, last) in self.slots_of(node) {
            let _ = match first == last {
                true => write!(line, " {}", first.0),
                false => write!(line, " {}-{}", first.0, last.0),
            };
        }
        line
    }

    /// The text of CLUSTER INFO.
    pub fn info(&self) -> String {
        let served = self.ranges().iter().map(|range| range.last.0 - range.first.0 + 1).sum();
        let masters = self.members().filter(|node| self.configuration.primary_count(*node) > 0);
        info_text(&InfoNumbers {
            assigned: SLOT_COUNT,
            served,
            nodes: self.configuration.members.len(),
            masters: masters.count(),
            term: self.configuration.term.0,
            epoch: self.epoch_of(self.own),
        })
    }
}

/// The number of shards that a node has in each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleCounts {
    /// Shards that it serves.
    pub primary: usize,
    /// Shards of which it has copies.
    pub backup: usize,
    /// Shards of which it is being given copies.
    pub joining: usize,
    /// Shards that it serves without having all of them yet.
    pub filling: usize,
}

impl RoleCounts {
    /// The counts of that node.
    pub fn of(configuration: &Configuration, node: NodeId) -> RoleCounts {
        let count = |role| {
            let shards = configuration.shards.iter();
            shards.filter(|shard| shard.role_of(node) == Some(role)).count()
        };
        let shards = configuration.shards.iter();
        let is_filling = |shard: &&Shard| shard.primary == node && shard.filling_from.is_some();
        RoleCounts {
            primary: count(Role::Primary),
            backup: count(Role::Backup),
            joining: count(Role::Joining),
            filling: shards.filter(is_filling).count(),
        }
    }
}

/// The nodes around this one, as ROLE and INFO show them: hosts and RESP ports.
#[derive(Debug, Default)]
pub struct Peers {
    /// The node that it is a replica of.
    pub master: Option<(String, u16)>,
    /// The nodes with copies of the slots that it serves, and how many bytes each has not
    /// acknowledged yet.
    pub backups: Vec<(String, u16, u64)>,
}

impl Peers {
    /// As this node knows them.
    pub fn of(view: &View) -> Peers {
        let Some(configuration) = view.configuration() else { return Peers::default() };
        let (announced, lag_bytes) =
            (Announced::new(&configuration, view.own()), view.figures().lag_bytes);
        let reach = |node: NodeId| {
            let (host, port) =
                announced.resp_of(node).or_else(|| announced.over(true).resp_of(node))?;
            Some((host.to_owned(), port))
        };
        let backup = |node: NodeId| {
            let (host, port) = reach(node)?;
            Some((host, port, lag_bytes.get(&node).copied().unwrap_or(0)))
        };
        Peers {
            master: announced.own_master().and_then(reach),
            backups: announced.own_backups().into_iter().filter_map(backup).collect(),
        }
    }
}

/// CLUSTER INFO of a node that has not joined yet.
pub fn info_before_joining() -> String {
    info_text(&InfoNumbers { nodes: 1, ..InfoNumbers::default() })
}

#[derive(Default)]
struct InfoNumbers {
    assigned: u16,
    served: u16,
    nodes: usize,
    masters: usize,
    term: u64,
    epoch: u16,
}

fn info_text(numbers: &InfoNumbers) -> String {
    let InfoNumbers { assigned, served, nodes, masters, term, epoch } = numbers;
    let state = if *served == SLOT_COUNT { "ok" } else { "fail" };
    let not_served = assigned - served;
    let lines = [
        format!("cluster_state:{state}"),
        format!("cluster_slots_assigned:{assigned}"),
        format!("cluster_slots_ok:{served}"),
        "cluster_slots_pfail:0".to_owned(),
        format!("cluster_slots_fail:{not_served}"),
        format!("cluster_known_nodes:{nodes}"),
        format!("cluster_size:{masters}"),
        format!("cluster_current_epoch:{term}"),
        format!("cluster_my_epoch:{epoch}"),
        // About Redis's own bus, which this server does not speak; clients look for the lines.
        "cluster_stats_messages_sent:0".to_owned(),
        "cluster_stats_messages_received:0".to_owned(),
        "total_cluster_links_buffer_limit_exceeded:0".to_owned(),
    ];
    lines.join("\r\n") + "\r\n"
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
