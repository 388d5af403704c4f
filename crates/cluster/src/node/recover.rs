//! Recovery of a node from its log: the data of its earlier incarnation (Rowan-KV §4.7).

use std::collections::BTreeMap;

use crate::configuration::Role;
use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Answer, Recovered};
use crate::node::Node;
use crate::node::assembly::Assembly;
use crate::node::sessions::outcome_of;
use crate::node::shards::ShardState;
use crate::record::{Check, Kind, Session, scan};
use crate::replica_store::ReplicaStore;
use crate::settings::Settings;

impl<S: ReplicaStore> Node<S> {
    /// A new incarnation over a recovered replica store that is the log. `shards` lists those it
    /// has data of, and the version up to which each is known to be on all copies.
    ///
    /// The next configuration decides in which shards it has a role.
    pub fn resume(
        id: NodeId,
        settings: Settings,
        manager_count: u16,
        replica_store: S,
        (recovered, shards): (Recovered, &[(ShardId, Version)]),
    ) -> Node<S> {
        let mut node = Node::new(id, settings, manager_count, replica_store);
        node.membership.recovered = recovered;
        for (shard, commit) in shards {
            let state = ShardState { commit: *commit, ..ShardState::new(Role::Backup, 0) };
            node.shards.insert(*shard, state);
        }
        node
    }

    /// A new incarnation from the log of an earlier one. Returns how much of the log is whole: the
    /// rest is a torn tail, to be cut before anything is appended.
    ///
    /// The next configuration decides in which shards it has a role. Any check except
    /// [`Check::Checksum`] is for the fault simulation, which must notice.
    pub fn recover(
        id: NodeId,
        earlier_incarnation: u32,
        (settings, check): (Settings, Check),
        manager_count: u16,
        replica_store: S,
        log: &[u8],
    ) -> (Node<S>, usize) {
        let mut node = Node::new(id, settings, manager_count, replica_store);
        node.check = check;
        let mut assembly = Assembly::default();
        // The damage before each shard's last beginning, and the incarnation of that beginning.
        let mut damage_before: BTreeMap<ShardId, (usize, u32)> = BTreeMap::new();
        let scanned = scan(log, node.check, |before, header, piece| {
            let shard = header.shard;
            if header.kind == Kind::Reset {
                let incarnation = header.version.bits() as u32;
                damage_before.insert(shard, (before.skipped_bytes, incarnation));
                node.shards.remove(shard);
                node.replica_store.clear(shard);
                assembly.forget(shard, Version::before_epoch(u16::MAX));
                return;
            }
            let state = node.shards.get_or_begin(shard, Role::Backup, 0);
            match header.kind {
                Kind::Session => {
                    let session = Session::from_block(header, piece);
                    let outcome = outcome_of(session.answered, session.integer);
                    let Session { sequence, version, .. } = session;
                    state.sessions.settle(session.client, Answer { sequence, version, outcome });
                }
                _ => {
                    if let Some(entry) = assembly.add(header, piece) {
                        state.sessions.settle_entry(&entry);
                        node.replica_store.install(std::sync::Arc::new(entry));
                        assembly.taken(header.shard, header.version);
                    }
                }
            }
        });
        node.membership.recovered = match scanned.skipped_bytes {
            0 => Recovered::Whole { since: 0, incarnation: earlier_incarnation },
            damage => {
                damage_before.retain(|_, (before, _)| *before == damage);
                let since = |(shard, (_, incarnation))| (shard, incarnation);
                let whole = damage_before.into_iter().map(since).collect();
                Recovered::Damaged { incarnation: earlier_incarnation, whole }
            }
        };
        (node, scanned.end_bytes)
    }
}
