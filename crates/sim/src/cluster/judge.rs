//! The checks at the end of a run: all shards serve again, copies are equal, and one order explains
//! every answer.

use std::collections::BTreeMap;

use cluster::{Configuration, NodeId, ShardId};

use crate::cluster::Report;
use crate::cluster::client::{Client, Mode, Sizes};
use crate::cluster::linearizable::{self, Record, Verdict};
use crate::cluster::scenario::MS;
use crate::cluster::world::{Happening, World};

/// The time limit for everything to serve again after all faults are healed.
const PATIENCE_NS: u64 = 5_000 * MS;
/// Time for announcements of CommitVer, and for the last retries.
const SETTLE_NS: u64 = 60 * MS;
const STEP_NS: u64 = 20 * MS;

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Everything served again, or should have.
    Whole,
    /// More servers died than a design with this number of copies survives (K23).
    BeyondPromise,
}

impl World<'_> {
    /// The whole run.
    pub(super) fn run(mut self) -> Report {
        self.run_until(self.scenario.faults_end_ns);
        self.heal();
        let deadline_ns = self.now_ns + PATIENCE_NS;
        while self.failure.is_none() && !self.is_settled() {
            if self.now_ns >= deadline_ns {
                if self.has_lost_a_shard() {
                    return self.report(Ending::BeyondPromise);
                }
                self.fail(self.why_unsettled());
            }
            self.run_until(self.now_ns + STEP_NS);
        }
        self.run_until(self.now_ns + SETTLE_NS);
        self.read_all(deadline_ns);
        if self.failure.is_none() {
            self.compare_copies();
            self.look_for_leftovers();
        }
        self.report(Ending::Whole)
    }

    /// Whether every full copy of a shard that the config store knows is gone for good, its disk
    /// rotten if it had one: the manager left out the copies that it could not reach, and the last
    /// one that it could reach died too.
    fn has_lost_a_shard(&self) -> bool {
        let is_gone = |copy: NodeId| {
            let server = &self.servers[usize::from(copy.name)];
            let is_on_disk =
                self.scenario.is_durable && copy.incarnation > server.rotten_through_incarnation;
            server.incarnation != copy.incarnation && !is_on_disk
        };
        self.stored().is_some_and(|all| all.shards.iter().any(|shard| shard.keepers().all(is_gone)))
    }

    fn is_settled(&self) -> bool {
        self.clients.iter().all(Client::is_done)
            && self.committed().is_some_and(|now| self.is_whole(now))
    }

    fn committed(&self) -> Option<&Configuration> {
        let leads = |manager: &&cluster::Manager| manager.is_committed();
        let manager = self.offices.iter().filter_map(|office| office.manager.as_ref()).find(leads);
        manager?.configuration().map(|configuration| &**configuration)
    }

    fn is_whole(&self, configuration: &Configuration) -> bool {
        let copies = self.servers.len().min(usize::from(self.settings.copies));
        configuration.shards.iter().all(|shard| {
            shard.full_copies().count() == copies
                && shard.nodes().all(|node| configuration.has(node))
                && shard.joining.is_none()
                && shard.filling_from.is_none()
        })
    }

    fn why_unsettled(&self) -> String {
        let left = self.clients.iter().filter(|client| !client.is_done()).count();
        let configuration = self.stored().map(|stored| stored.to_string()).unwrap_or_default();
        format!("not whole after {} ms: {left} clients wait; {configuration}", PATIENCE_NS / MS)
    }

    /// One more client reads every key.
    fn read_all(&mut self, deadline_ns: u64) {
        let id = self.clients.len() as u64 + 1;
        let sizes = Sizes {
            nodes: self.servers.len(),
            managers: self.offices.len(),
            keys: self.scenario.keys,
            shards: self.scenario.shards,
            requests: 0,
            has_groups: false,
        };
        self.clients.push(Client::new(id, self.options.seed, Mode::ReadsAll, sizes));
        let client = self.clients.len() - 1;
        self.push(self.now_ns + 1, Happening::Client { client, message: None });
        while self.failure.is_none() && !self.clients[client].is_done() {
            if self.now_ns >= deadline_ns + PATIENCE_NS {
                self.fail("the last reads are not answered".to_owned());
            }
            self.run_until(self.now_ns + STEP_NS);
        }
    }

    /// Entries of several blocks are completed or forgotten: otherwise their memory would never be
    /// freed.
    fn look_for_leftovers(&mut self) {
        let nodes = self.servers.iter().filter_map(|server| server.node.as_ref());
        let counts = nodes.map(|node| (node.id(), node.replica_store().assembling_count()));
        if let Some((node, count)) = counts.into_iter().find(|(_, count)| *count > 0) {
            self.fail(format!("{node} still puts {count} entries together"));
        }
    }

    fn compare_copies(&mut self) {
        let Some(configuration) = self.committed().cloned() else { return };
        for (id, shard) in configuration.shards() {
            let copies: Vec<NodeId> = shard.full_copies().collect();
            let contents: Vec<_> = copies.iter().map(|copy| self.contents(*copy, id)).collect();
            for (copy, found) in copies.iter().zip(&contents) {
                if *found != contents[0] {
                    let text = format!(
                        "shard {}: {copy} has {found:?}, {} has {:?}",
                        id.0, copies[0], contents[0]
                    );
                    return self.fail(text);
                }
            }
        }
    }

    fn contents(&mut self, copy: NodeId, shard: ShardId) -> BTreeMap<String, (u64, String)> {
        let Some(node) = &mut self.servers[usize::from(copy.name)].node else {
            return BTreeMap::new();
        };
        node.digest_all();
        let mut entries = node.replica_store().all_of(shard);
        // Each node forgets deletes as soon as it knows that they are everywhere.
        entries.retain(|entry| entry.value.is_some());
        let line = |entry: &std::sync::Arc<cluster::record::Entry>| {
            let value = entry.value.as_deref().unwrap_or_default();
            let value = String::from_utf8_lossy(value).trim_end().to_owned();
            (String::from_utf8_lossy(&entry.key).into_owned(), (entry.version.bits(), value))
        };
        entries.iter().map(line).collect()
    }

    fn report(mut self, ending: Ending) -> Report {
        let records: Vec<Record> =
            self.clients.iter().flat_map(|client| client.records.iter().cloned()).collect();
        let mut is_undecided = false;
        if self.failure.is_none() {
            match linearizable::check(&records) {
                Verdict::Linearizable => {}
                Verdict::Unknown => is_undecided = true,
                Verdict::Broken { key, history } => {
                    self.fail(format!("no order explains key {key}:\n{history}"));
                }
            }
        }
        let nodes = self.servers.iter().filter_map(|server| server.node.as_ref());
        let term_count = nodes.map(|node| node.term().0).max().unwrap_or(0);
        Report {
            seed: self.options.seed,
            failure: self.failure,
            is_undecided,
            is_beyond_promise: ending == Ending::BeyondPromise,
            fault_count: self.scenario.faults.len(),
            struck_count: self.struck,
            left_count: self.left,
            request_count: records.len(),
            group_count: self.group_count,
            unanswered_count: records.iter().filter(|record| record.answer.is_none()).count(),
            event_count: self.event_count,
            term_count,
            simulated_ns: self.now_ns,
        }
    }
}
