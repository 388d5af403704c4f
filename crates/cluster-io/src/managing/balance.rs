//! Load reports of nodes, the progress of copies, and the shards that should move (Rowan-KV §4.6).
//!
//! ```text
//!  Statistics, every 500 ms a node ─▶ the last window of each ─▶ policy::rebalance ─▶ moves
//! ```
//!
//! # Invariants
//! W1: nothing moves while a change is under way, or before two whole windows have passed since.
//! W2: a node that is to leave is never a target, and no node is one while an operator has paused
//!     moves.

use std::collections::{BTreeMap, BTreeSet};

use base::Instant;
use cluster::message::ShardStatistics;
use cluster::{Configuration, NodeId, ShardId, Term};
use policy::rebalance::{RebalanceRules, ShardLoad, rebalance};

/// The time between two evaluations of the load.
const WINDOW_NS: u64 = 500_000_000;
/// With fewer requests in a window, counting all servers together, no server counts as busy.
const REQUESTS_MIN: f64 = 2_500.0;

/// An older window says nothing about the present.
const WINDOW_AGE_MAX_NS: u64 = 3 * WINDOW_NS;

/// The cost to a backup of landing and digesting a write, as a fraction of the primary's cost.
const BACKUP_PART: f64 = 0.25;

/// The state.
#[derive(Debug, Default)]
pub(super) struct Balance {
    windows: BTreeMap<NodeId, Window>,
    copies: BTreeMap<ShardId, Progress>,
    term: Term,
    changed_at: Instant,
    looked_at: Instant,
}

#[derive(Debug)]
struct Window {
    heard_at: Instant,
    window_ns: u64,
    shards: BTreeMap<ShardId, ShardStatistics>,
}

/// The progress of a copy that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    began: Instant,
    began_with: u64,
    heard_at: Instant,
    pub(super) entries: u64,
    pub(super) copied: u64,
}

impl Progress {
    /// The time until it is complete, by its speed so far.
    pub(super) fn left_ns(&self) -> Option<u64> {
        let done = self.copied.checked_sub(self.began_with).filter(|done| *done > 0)?;
        let time_ns = self.heard_at.ns - self.began.ns;
        let left = self.entries.saturating_sub(self.copied);
        u64::try_from(u128::from(time_ns) * u128::from(left) / u128::from(done)).ok()
    }
}

impl Balance {
    /// Takes in a node's report.
    pub(super) fn hear(
        &mut self,
        node: NodeId,
        window_ns: u64,
        statistics: Vec<ShardStatistics>,
        now: Instant,
    ) {
        for one in &statistics {
            let begun = Progress {
                began: now,
                began_with: one.copied,
                heard_at: now,
                entries: one.entries,
                copied: one.copied,
            };
            if one.copied == 0 {
                self.copies.remove(&one.shard);
            }
            let progress = self.copies.entry(one.shard).or_insert(begun);
            progress.heard_at = now;
            (progress.entries, progress.copied) = (one.entries, one.copied);
        }
        let shards = statistics.into_iter().map(|one| (one.shard, one)).collect();
        self.windows.insert(node, Window { heard_at: now, window_ns: window_ns.max(1), shards });
    }

    /// The progress of a shard's copy, as its primary reports it.
    pub(super) fn progress(&self, shard: ShardId) -> Option<&Progress> {
        self.copies.get(&shard)
    }

    /// A shard's requests per second: reads, writes.
    pub(super) fn rates(&self, node: NodeId, shard: ShardId, now: Instant) -> (f64, f64) {
        let window = self.windows.get(&node);
        let fresh = window.filter(|one| now.ns < one.heard_at.ns + WINDOW_AGE_MAX_NS);
        let Some((window, one)) = fresh.and_then(|one| Some((one, one.shards.get(&shard)?))) else {
            return (0.0, 0.0);
        };
        let seconds = window.window_ns as f64 / 1e9;
        (one.reads as f64 / seconds, one.writes as f64 / seconds)
    }

    /// The moves that the last windows call for; mostly none.
    pub(super) fn moves(
        &mut self,
        configuration: &Configuration,
        leaving: &BTreeSet<u16>,
        is_busy: bool,
        now: Instant,
    ) -> Vec<(ShardId, NodeId)> {
        if self.term != configuration.term || is_busy {
            (self.term, self.changed_at) = (configuration.term, now);
            self.windows.retain(|node, _| configuration.has(*node));
        }
        let is_due = now.ns >= self.looked_at.ns + WINDOW_NS;
        if !is_due || now.ns < self.changed_at.ns + 2 * WINDOW_NS {
            return Vec::new(); // W1
        }
        self.looked_at = now;
        let stays = |node: &&NodeId| !leaving.contains(&node.name);
        let servers: Vec<NodeId> = configuration.members.iter().filter(stays).copied().collect();
        let place = |node: NodeId| servers.iter().position(|server| *server == node);
        let mut base = vec![0.0; servers.len()];
        let mut loads = Vec::new();
        for (id, shard) in configuration.shards() {
            let (reads, writes) = self.rates(shard.primary, id, now);
            let per_window = WINDOW_NS as f64 / 1e9;
            for backup in shard.backups.iter().filter_map(|node| place(*node)) {
                base[backup] += writes * per_window * BACKUP_PART;
            }
            if let Some(server) = place(shard.primary) {
                let requests = (reads + writes) * per_window;
                loads.push(ShardLoad { shard: id.0, server, requests });
            }
        }
        let asked: f64 = loads.iter().map(|load| load.requests).sum();
        if asked < REQUESTS_MIN {
            return Vec::new(); // What is far below any limit is not worth a move.
        }
        let moves = rebalance(&base, &loads, &RebalanceRules::default());
        moves.iter().map(|one| (ShardId(one.shard), servers[one.target])).collect()
    }
}

#[cfg(test)]
mod tests {
    use cluster::Shard;
    use cluster::configuration::even_ranges;

    use super::*;

    const NONE: BTreeSet<u16> = BTreeSet::new();

    fn node(name: u16) -> NodeId {
        NodeId { name, incarnation: 1 }
    }

    /// Six shards of three nodes, two each.
    fn configuration() -> Configuration {
        let shard = |(index, (first, last)): (u16, _)| Shard {
            first,
            last,
            epoch: 1,
            primary: node(index % 3 + 1),
            backups: vec![node((index + 1) % 3 + 1)],
            joining: None,
            filling_from: None,
            waiting: Vec::new(),
        };
        let shards = (0..).zip(even_ranges(6)).map(shard).collect();
        let members = vec![node(1), node(2), node(3)];
        Configuration { term: Term(1), members, shards, addresses: BTreeMap::new() }
    }

    fn asked(shard: u16, reads: u64) -> ShardStatistics {
        ShardStatistics { shard: ShardId(shard), reads, ..ShardStatistics::default() }
    }

    fn at(windows: u64) -> Instant {
        Instant { ns: 1 + windows * WINDOW_NS }
    }

    fn loaded(balance: &mut Balance, now: Instant) {
        balance.hear(node(1), WINDOW_NS, vec![asked(0, 5000), asked(3, 5000)], now);
        balance.hear(node(2), WINDOW_NS, vec![asked(1, 1000)], now);
        balance.hear(node(3), WINDOW_NS, vec![asked(2, 1000)], now);
    }

    #[test]
    fn a_busy_node_gives_a_shard_away_after_two_windows() {
        let (mut balance, all) = (Balance::default(), configuration());
        loaded(&mut balance, at(1));
        assert_eq!(balance.moves(&all, &NONE, false, at(1)), [], "W1");
        loaded(&mut balance, at(3));
        let moves = balance.moves(&all, &NONE, false, at(3));
        assert_eq!(moves, [(ShardId(0), node(2))]);
        assert_eq!(balance.moves(&all, &NONE, true, at(5)), [], "a change is under way");
    }

    #[test]
    fn a_leaving_node_is_given_no_shard() {
        let (mut balance, all) = (Balance::default(), configuration());
        balance.moves(&all, &NONE, false, at(1));
        loaded(&mut balance, at(3));
        let moves = balance.moves(&all, &[2].into(), false, at(3));
        assert_eq!(moves, [(ShardId(0), node(3))], "W2");
    }

    #[test]
    fn old_windows_say_nothing() {
        let (mut balance, all) = (Balance::default(), configuration());
        balance.moves(&all, &NONE, false, at(1));
        loaded(&mut balance, at(1));
        assert_eq!(balance.moves(&all, &NONE, false, at(9)), []);
    }

    #[test]
    fn the_time_that_is_left_is_by_how_fast_it_was() {
        let mut balance = Balance::default();
        let copied = |copied| ShardStatistics { entries: 1000, copied, ..asked(0, 0) };
        balance.hear(node(1), WINDOW_NS, vec![copied(0)], at(1));
        assert_eq!(balance.progress(ShardId(0)).unwrap().left_ns(), None);
        balance.hear(node(1), WINDOW_NS, vec![copied(250)], at(2));
        assert_eq!(balance.progress(ShardId(0)).unwrap().left_ns(), Some(3 * WINDOW_NS));
    }
}
