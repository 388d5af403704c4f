//! The facts that a node reports every 500 ms: to the manager, which moves shards by them (Rowan-KV
//! §4.6), and to the view, for people and metrics.

use std::collections::BTreeSet;

use base::Instant;
use budget::BufferBudget;
use cluster::message::ShardStatistics;
use cluster::{Message, Node, NodeId, Peer, ShardId};
use replication::cluster::replica_store::ServerReplicaStore;
use replication::cluster::view::{ReplicationFigures, View};
use replication::cluster::{room_bytes, room_bytes_for};
use replication::replicate::ControlRequest;
use runtime::shared::Shared;
use store::Store;

use super::control::Control;

const WINDOW_NS: u64 = 500_000_000;

/// The control thread's counts between two reports.
#[derive(Default)]
pub(super) struct Facts {
    told_at: Instant,
    /// By shard.
    counts: Vec<Count>,
    shown: BTreeSet<ShardId>,
    peers: BTreeSet<NodeId>,
    /// Bytes that may still be written before the log is too full to accept writes that all copies
    /// must have.
    room_bytes: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    writes: u64,
    bytes: u64,
    reads_before: u64,
}

impl Facts {
    /// Whether there is no room for the value of a control request: it is refused at once, because
    /// a write that has begun must end on every copy. `waiting_bytes` came before it, and are not
    /// in the log yet.
    pub fn is_full(
        &self,
        control_request: &ControlRequest,
        waiting_bytes: u64,
        budget: &BufferBudget,
    ) -> bool {
        control_request.is_filling()
            && !self.has_room(control_request.len_bytes(), waiting_bytes, budget)
    }

    /// Whether that many bytes can be accepted behind the waiting ones.
    pub fn has_room(&self, bytes: u64, waiting_bytes: u64, budget: &BufferBudget) -> bool {
        let room_bytes = self.room_bytes.unwrap_or(u64::MAX);
        bytes.saturating_add(waiting_bytes) <= room_bytes_for(bytes, room_bytes, budget)
    }

    /// Counts a request that went to the node.
    pub fn count(&mut self, shard: ShardId, is_read: bool, bytes: u64) {
        if self.counts.len() <= shard.index() {
            self.counts.resize(shard.index() + 1, Count::default());
        }
        let count = &mut self.counts[shard.index()];
        count.writes += u64::from(!is_read);
        count.bytes += bytes;
    }

    /// Checks how full the log is. Called at each tick.
    pub fn look_at_room(&mut self, store: &Store) {
        self.room_bytes = Some(room_bytes(store));
    }

    /// What the shards that this node serves have done since the last report.
    fn statistics(
        &mut self,
        node: &Node<ServerReplicaStore>,
        shared: &Shared,
        view: &View,
    ) -> Vec<ShardStatistics> {
        let Some(configuration) = node.configuration() else { return Vec::new() };
        let (store, numbers) = (shared.store(), node.replica_store().numbers());
        let (mut all, workers) = (Vec::new(), view.reads());
        self.counts.resize(configuration.shards.len(), Count::default());
        for (id, shard) in configuration.shards() {
            let reads: u64 = workers.iter().map(|of| of.sum(shard.first, shard.last)).sum();
            let count = &mut self.counts[id.index()];
            let Count { writes, bytes, reads_before } = *count;
            *count = Count { writes: 0, bytes: 0, reads_before: reads };
            if node.stage(id).is_none() {
                continue;
            }
            all.push(ShardStatistics {
                shard: id,
                reads: reads.saturating_sub(reads_before),
                writes,
                bytes,
                entries: numbers.key_count(store, id),
                copied: node.copied_entries(id).unwrap_or_default(),
            });
        }
        all
    }

    /// Updates the view's figures.
    fn show(&mut self, node: &Node<ServerReplicaStore>, view: &View, shards: &[ShardStatistics]) {
        let is_copied = |id: ShardId| {
            let shard = node.configuration().and_then(|configuration| configuration.shard(id));
            shard.is_some_and(|shard| shard.joining.is_some() || shard.filling_from.is_some())
        };
        let mut shown = BTreeSet::new();
        for one in shards.iter().filter(|one| is_copied(one.shard)) {
            let ratio = one.copied as f64 / one.entries.max(one.copied).max(1) as f64;
            view.set_progress(one.shard, Some(ratio));
            shown.insert(one.shard);
        }
        for ended in self.shown.difference(&shown) {
            view.set_progress(*ended, None);
        }
        self.shown = shown;
        let lags = node.lag_bytes();
        for (peer, bytes) in &lags {
            view.set_lag(*peer, Some(*bytes));
        }
        let peers: BTreeSet<NodeId> = lags.into_keys().collect();
        for gone in self.peers.difference(&peers) {
            view.set_lag(*gone, None);
        }
        self.peers = peers;
    }
}

/// Reports the facts every 500 ms.
pub(super) fn tell(control: &mut Control, now: Instant) {
    let window_ns = now.ns.saturating_sub(control.state.facts.told_at.ns);
    if window_ns < WINDOW_NS {
        return;
    }
    control.state.facts.told_at = now;
    let Some(configuration) = control.node.configuration().cloned() else { return };
    let shards = control.state.facts.statistics(&control.node, &control.shared, &control.view);
    let (term, own) = (configuration.term, control.node.id());
    control.state.facts.show(&control.node, &control.view, &shards);
    show_replication(control);
    if configuration.has(own) && !shards.is_empty() {
        let message = Message::Statistics { term, window_ns, shards };
        control.peers.tell_leader(Peer::Manager(0), message);
    }
}

fn show_replication(control: &Control) {
    let landed = control.node.landing_counters();
    let (mut datagrams, mut received_frames) = (control.landing.counters(), landed.landed);
    let mut streams = landed.streams;
    if let Some(inbound_logs) = &control.inbound_logs {
        let (counters, frames, inbound_log_streams) = inbound_logs.counters();
        datagrams = datagrams.plus(counters);
        received_frames += frames;
        streams = inbound_log_streams;
    }
    let figures = ReplicationFigures {
        scheme: control.node.scheme(),
        datagrams,
        sent_frames: control.landing.sent_frames,
        received_frames,
        streams,
    };
    control.view.set_replication(figures, control.node.replica_store().digest_figures());
}
