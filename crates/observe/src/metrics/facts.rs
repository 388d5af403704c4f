//! The store's figures on its memory and on dropped entries: one list for INFO, `stats`, `/stats`
//! and `/metrics`, so that each figure has one name everywhere.
//!
//! ```text
//!  StoreStats ─▶ facts ─┬─▶ INFO, stats    dovetail_log_dead_bytes:4096
//!                       ├─▶ /stats         "log_dead_bytes": 4096
//!                       └─▶ /metrics       dovetail_log_space_bytes{state="dead"} 4096
//! ```

use std::fmt;

use serde_json::{Value, json};
use store::{LogSpace, StoreStats};

/// docs/formats/index-bucket.md.
const SLOTS_PER_BUCKET: u64 = 7;

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fact {
    /// Its name: with the unit last, without prefix and without `_total`.
    pub name: &'static str,
    /// Whether it is a gauge or a counter.
    pub kind: Kind,
    /// Its present value.
    pub amount: Amount,
}

/// The type of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
}

/// A figure's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A number of things or bytes.
    Count(u64),
    /// A part of a whole, or a quotient.
    Ratio(f64),
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Count(count) => count.fmt(formatter),
            Amount::Ratio(ratio) => write!(formatter, "{ratio:.4}"),
        }
    }
}

impl Fact {
    /// Its field in `/stats`.
    pub fn member(&self) -> (String, Value) {
        let name = match self.kind {
            Kind::Gauge => self.name.to_owned(),
            Kind::Counter => format!("{}_total", self.name),
        };
        match self.amount {
            Amount::Count(count) => (name, json!(count)),
            Amount::Ratio(ratio) => (name, json!(ratio)),
        }
    }
}

const fn gauge(name: &'static str, count: u64) -> Fact {
    Fact { name, kind: Kind::Gauge, amount: Amount::Count(count) }
}

const fn counter(name: &'static str, count: u64) -> Fact {
    Fact { name, kind: Kind::Counter, amount: Amount::Count(count) }
}

const fn ratio(name: &'static str, ratio: f64) -> Fact {
    Fact { name, kind: Kind::Gauge, amount: Amount::Ratio(ratio) }
}

/// The log's bytes by state, with the values of the label `state`.
pub fn log_space(space: &LogSpace) -> [(&'static str, u64); 6] {
    [
        ("free", space.free_bytes),
        ("open", space.open_bytes),
        ("waiting", space.waiting_bytes),
        ("live", space.live_bytes),
        ("dead", space.dead_bytes),
        ("tail", space.tail_bytes),
    ]
}

/// The part of the bytes of full segments that holds no live entry.
pub fn fragmentation(space: &LogSpace) -> f64 {
    let lost_bytes = space.dead_bytes + space.tail_bytes;
    lost_bytes as f64 / (space.live_bytes + lost_bytes).max(1) as f64
}

/// Items divided by the slots in the chains' first buckets: above 1, chains are longer. The heads
/// of a tree's index have no slots.
pub fn load(store: &StoreStats) -> f64 {
    if store.tree_nodes > 0 {
        return 0.0;
    }
    store.items as f64 / (store.index_heads * SLOTS_PER_BUCKET).max(1) as f64
}

/// Evicted items, by the values of the label `queue`. Only S3-FIFO has a small queue.
pub fn evicted_by_queue(store: &StoreStats) -> [(&'static str, u64); 2] {
    let main = store.evicted_by_log.saturating_sub(store.evicted_small);
    [("small", store.evicted_small), ("main", main)]
}

/// Every figure.
pub fn facts(store: &StoreStats) -> Vec<Fact> {
    let space = &store.space;
    let [(_, small), (_, main)] = evicted_by_queue(store);
    vec![
        gauge("log_free_bytes", space.free_bytes),
        gauge("log_open_bytes", space.open_bytes),
        gauge("log_waiting_bytes", space.waiting_bytes),
        gauge("log_live_bytes", space.live_bytes),
        gauge("log_dead_bytes", space.dead_bytes),
        gauge("log_tail_bytes", space.tail_bytes),
        gauge("log_small_live_bytes", space.small_live_bytes),
        ratio("log_fragmentation_ratio", fragmentation(space)),
        gauge("ghost_bytes", store.ghost_bytes),
        gauge("index_heads", store.index_heads),
        ratio("index_load_ratio", load(store)),
        gauge("index_overflow_buckets", store.index_overflow_buckets),
        gauge("tree_nodes", store.tree_nodes),
        gauge("index_partitions_resizing", store.index_partitions_resizing),
        counter("index_partitions_resized", store.index_partitions_resized),
        counter("evicted_small", small),
        counter("evicted_main", main),
        counter("promoted", store.promoted),
        counter("ghost_hits", store.ghost_hits),
        counter("dead_space_copied_bytes", store.dead_space_copied_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_the_log_add_up_to_it() {
        let space = LogSpace {
            free_bytes: 1,
            open_bytes: 20,
            waiting_bytes: 300,
            live_bytes: 4_000,
            dead_bytes: 50_000,
            tail_bytes: 600_000,
            ..LogSpace::default()
        };
        assert_eq!(log_space(&space).iter().map(|(_, bytes)| bytes).sum::<u64>(), 654_321);
    }

    #[test]
    fn fragmentation_is_what_full_segments_hold_in_vain() {
        assert_eq!(fragmentation(&LogSpace::default()), 0.0);
        let space = LogSpace { live_bytes: 6, dead_bytes: 3, tail_bytes: 1, ..LogSpace::default() };
        assert_eq!(fragmentation(&space), 0.4);
    }

    #[test]
    fn load_is_items_over_the_slots_of_first_buckets() {
        assert_eq!(load(&StoreStats::default()), 0.0);
        let store = StoreStats { items: 35, index_heads: 10, ..StoreStats::default() };
        assert_eq!(load(&store), 0.5);
        assert_eq!(load(&StoreStats { tree_nodes: 1, ..store }), 0.0);
    }

    #[test]
    fn the_queues_share_what_the_log_gave_up() {
        let store = StoreStats { evicted_by_log: 10, evicted_small: 7, ..StoreStats::default() };
        assert_eq!(evicted_by_queue(&store), [("small", 7), ("main", 3)]);
    }

    #[test]
    fn counters_are_named_as_totals_and_no_name_comes_twice() {
        let store = StoreStats { ghost_hits: 5, ..StoreStats::default() };
        let members: Vec<_> = facts(&store).iter().map(Fact::member).collect();
        assert!(members.contains(&("ghost_hits_total".to_owned(), json!(5))));
        let mut names: Vec<_> = members.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), members.len());
    }
}
