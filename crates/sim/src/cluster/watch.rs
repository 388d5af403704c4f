//! The invariants that are checked continuously while a run goes on.
//!
//! # Invariants
//! W1: at any time at most one server would answer clients for a shard (K22).
//! W2: under one term a shard has one primary.
//! W3: versions of a shard never go back, whichever primary assigns them (K1).
//! W4: the config store keeps the list of nodes that had all of a shard while too few other nodes
//!     have it (C6), except for a primary that has said that it goes on alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::config_store::Path;
use cluster::{Configuration, Message, NodeId, ShardId, Term, Version};

use crate::cluster::world::World;

/// The observations so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// For each shard the highest version, and its primary under each term.
    versions: BTreeMap<ShardId, Version>,
    primaries: BTreeMap<(ShardId, Term), NodeId>,
    /// Shards whose primary goes on without the waiting copies, by the term in which it said so.
    withheld: BTreeSet<(ShardId, Term)>,
    /// The last configuration in the config store, and its bytes.
    stored: Option<(Arc<[u8]>, Configuration)>,
}

impl Watch {
    /// Checks a sent message.
    pub(super) fn hear(&mut self, message: &Message) {
        if let Message::Withheld { term, shard } = message {
            self.withheld.insert((*shard, *term));
        }
    }

    /// W3, W2.
    fn serves(&mut self, shard: ShardId, term: Term, node: NodeId, at: Version) -> Option<String> {
        let first = *self.primaries.entry((shard, term)).or_insert(node);
        if first != node {
            let term = term.0;
            return Some(format!(
                "term {term}: shard {} has primaries {first} and {node}",
                shard.0
            ));
        }
        let highest = self.versions.entry(shard).or_default();
        if at < *highest {
            return Some(format!("versions of shard {} went back at {node}", shard.0));
        }
        *highest = at;
        None
    }

    /// W4.
    fn follows(&self, new: &Configuration, min_copies: usize) -> Option<String> {
        let (_, old) = self.stored.as_ref()?;
        for ((id, before), after) in old.shards().zip(&new.shards) {
            let (had, has) = (before.keepers().count(), after.keepers().count());
            if has < had.min(min_copies) && !self.withheld.contains(&(id, old.term)) {
                return Some(format!(
                    "term {}: shard {} names {has} that have all of it, and forgets {}",
                    new.term.0,
                    id.0,
                    had - has
                ));
            }
        }
        None
    }
}

impl World<'_> {
    /// Checks a server after it has acted (W1 to W3).
    pub(super) fn watch_primaries(&mut self, name: usize) {
        let Some(node) = &self.servers[name].node else { return };
        let Some(configuration) = node.configuration().cloned() else { return };
        let now = self.servers[name].clock.at(self.now_ns);
        for (shard, _) in configuration.shards() {
            let Some(node) = &self.servers[name].node else { return };
            if !node.serves(shard, now) {
                continue;
            }
            let version = node.version(shard).unwrap_or_default();
            let (term, id) = (node.term(), node.id());
            if let Some(text) = self.watch.serves(shard, term, id, version) {
                return self.fail(text);
            }
            let other = self.servers.iter().enumerate().find(|(other, server)| {
                let now = server.clock.at(self.now_ns);
                let is_awake = server.paused_until_ns <= self.now_ns;
                *other != name
                    && is_awake
                    && server.node.as_ref().is_some_and(|node| node.serves(shard, now))
            });
            if let Some((other, _)) = other {
                let text = format!("shard {} is served by n{name} and n{other}", shard.0);
                return self.fail(text);
            }
        }
    }

    /// Checks the config store after a possible write (W4).
    pub(super) fn watch_config_store(&mut self) {
        let Some(bytes) = self.config_store.value(Path::Configuration) else { return };
        if self.watch.stored.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, bytes)) {
            return;
        }
        let bytes = bytes.clone();
        let Ok(new) = Configuration::decode(&bytes) else {
            return self.fail("the config store holds what is no configuration".to_owned());
        };
        if let Some(text) = self.watch.follows(&new, self.settings.min_copies.into()) {
            self.fail(text);
        }
        self.watch.stored = Some((bytes, new));
    }

    /// The configuration in the config store.
    pub(super) fn stored(&self) -> Option<&Configuration> {
        self.watch.stored.as_ref().map(|(_, stored)| stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: u16) -> NodeId {
        NodeId { name, incarnation: 1 }
    }

    #[test]
    fn a_second_primary_of_a_term_and_a_version_that_goes_back_are_seen() {
        let mut watch = Watch::default();
        let version = Version::before_epoch;
        assert_eq!(watch.serves(ShardId(0), Term(1), node(1), version(2)), None);
        assert_eq!(watch.serves(ShardId(0), Term(2), node(2), version(2)), None);
        let wrong = watch.serves(ShardId(0), Term(2), node(1), version(2)).unwrap();
        assert!(wrong.contains("has primaries"), "{wrong}");
        let wrong = watch.serves(ShardId(0), Term(3), node(3), version(1)).unwrap();
        assert!(wrong.contains("went back"), "{wrong}");
        assert_eq!(watch.serves(ShardId(1), Term(3), node(3), version(1)), None);
    }

    #[test]
    fn a_config_store_that_forgets_the_full_copies_is_seen() {
        let (first, last) = (cluster::Slot(0), cluster::Slot(16_383));
        let named = |term, backups: &[u16], waiting: &[u16]| Configuration {
            term: Term(term),
            members: vec![node(1)],
            shards: vec![cluster::Shard {
                first,
                last,
                epoch: 1,
                primary: node(1),
                backups: backups.iter().copied().map(node).collect(),
                joining: None,
                filling_from: None,
                waiting: waiting.iter().copied().map(node).collect(),
            }],
            addresses: BTreeMap::new(),
        };
        let stored = Some((Arc::from([]), named(7, &[2, 3], &[])));
        let mut watch = Watch { stored, ..Watch::default() };
        assert_eq!(watch.follows(&named(8, &[2], &[]), 2), None);
        assert_eq!(watch.follows(&named(8, &[], &[2, 3]), 2), None);
        let wrong = watch.follows(&named(8, &[], &[]), 2).unwrap();
        assert!(wrong.contains("forgets 2"), "{wrong}");
        watch.hear(&Message::Withheld { term: Term(7), shard: ShardId(0) });
        assert_eq!(watch.follows(&named(8, &[], &[]), 2), None);
    }
}
