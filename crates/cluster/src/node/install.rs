//! Installation of a new configuration: fence the old term, change roles, answer (Rowan-KV §4.5,
//! phase 1).
//!
//! | before ╲ now | primary | backup | joining | nothing |
//! |---|---|---|---|---|
//! | nothing | promote | begin | begin, empty | - |
//! | primary, same epoch | new targets | - | - | forget |
//! | primary, other epoch | demote, promote | demote | demote, empty | forget |
//! | backup | promote | stay | empty | forget |
//! | joining, same epoch | promote | stay | stay | forget |
//! | joining, other epoch | promote | stay | empty | forget |

use std::sync::Arc;

use base::Instant;

use crate::configuration::{Configuration, Role, Shard};
use crate::ids::{ShardId, Version};
use crate::message::Message;
use crate::node::{Action, Node, ShardState};
use crate::record::{Kind, append_mark};
use crate::replica_store::ReplicaStore;

impl<S: ReplicaStore> Node<S> {
    pub(super) fn install(
        &mut self,
        new: Arc<Configuration>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let term = new.term;
        if term > self.term() {
            self.digest_all(); // N3
            self.digest_later(actions);
            self.logs.begin();
            self.ways.begin();
            self.answers.clear();
            self.acked_at.retain(|node, _| new.has(*node));
            let old = self.configuration.replace(new.clone());
            self.is_committed = false;
            actions.push(Action::Fence { term });
            for (id, shard) in new.shards() {
                let before = old.as_ref().and_then(|old| old.shard(id));
                self.change_role(id, before, shard, now, actions);
            }
        }
        if term == self.term() {
            self.tell_managers(&Message::Installed { term }, actions);
        }
    }

    fn change_role(
        &mut self,
        id: ShardId,
        before: Option<&Shard>,
        shard: &Shard,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let had = self.shards.get(&id).map(|state| (state.role, state.epoch));
        let same_epoch = had.is_some_and(|(_, epoch)| epoch == shard.epoch);
        match shard.role_of(self.id) {
            // A shard that waits for this server, or its earlier incarnation, needs the data that
            // is here.
            None if shard.needs(self.id.name) => self.rest(id, now, actions),
            None => self.forget(id, had.is_some(), actions),
            Some(Role::Joining) => {
                if had != Some((Role::Joining, shard.epoch)) {
                    self.forget(id, true, actions);
                    self.shards.insert(id, ShardState::new(Role::Joining, shard.epoch));
                }
            }
            Some(Role::Backup) => {
                self.demote(id, now, actions);
                if !same_epoch {
                    // Incomplete entries of an earlier epoch: the primary of that epoch sends no
                    // more of them.
                    self.assembly.forget(id, Version::before_epoch(shard.epoch));
                }
                self.begin_role(id, Role::Backup, shard.epoch);
            }
            Some(Role::Primary) if same_epoch && had.is_some_and(|had| had.0 == Role::Primary) => {
                self.retarget(id, before, now, actions);
                self.follow_copy(id, before, shard);
                self.follow_promotion(id, shard, now, actions);
                self.follow_filling(id, shard, actions);
            }
            Some(Role::Primary) => {
                self.demote(id, now, actions);
                if had.is_none() && shard.filling_from.is_some() {
                    self.mark_beginning(id, actions); // It begins empty, as one that joins does.
                }
                self.begin_role(id, Role::Primary, shard.epoch);
                self.assembly.forget(id, Version::before_epoch(shard.epoch));
                self.promote(id, shard, now, actions);
            }
        }
    }

    /// Keeps all data of a shard in which the node has no role for now.
    fn rest(&mut self, id: ShardId, now: Instant, actions: &mut Vec<Action>) {
        self.demote(id, now, actions);
        if let Some(state) = self.shards.get_mut(&id) {
            state.role = Role::Backup;
        }
    }

    fn begin_role(&mut self, id: ShardId, role: Role, epoch: u16) {
        let state = self.shards.entry(id).or_insert_with(|| ShardState::new(role, epoch));
        state.role = role;
        state.epoch = epoch;
    }

    /// Drops all data of a shard; the log records it, so that a recovery does not bring the data
    /// back.
    fn forget(&mut self, id: ShardId, has_data: bool, actions: &mut Vec<Action>) {
        self.demote(id, Instant::default(), actions);
        self.backlog.forget(id);
        if let Some(mut state) = self.shards.remove(&id) {
            state.in_doubt.give_up(actions);
        }
        self.replica_store.clear(id);
        self.assembly.forget(id, Version::before_epoch(u16::MAX));
        if has_data {
            self.mark_beginning(id, actions);
        }
    }

    /// Marks a beginning: later entries of the shard do not depend on earlier ones in the log.
    fn mark_beginning(&mut self, id: ShardId, actions: &mut Vec<Action>) {
        if self.durable.is_replica_store() {
            return self.count_change();
        }
        let mut bytes = Vec::new();
        // The mark names its incarnation: an incarnation listed earlier has more data than what
        // follows.
        let incarnation = Version::from_bits(self.id.incarnation.into()).unwrap_or(Version::ZERO);
        append_mark(Kind::Reset, id, incarnation, &mut bytes);
        self.append(&bytes, actions);
    }
}
