//! Tests of the quality of eviction: the store's policies against exact ones on the same keys.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use base::UnixMillis;
use store::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request,
    Session, Set, Sink, Store, StoreConfig,
};

use crate::support;

/// The index that this copy of the suite runs with.
fn index_kind() -> IndexKind {
    support::index_kind(module_path!())
}

const NOW: UnixMillis = UnixMillis(1);

struct Cache {
    store: Arc<Store>,
    session: Session,
    value: Vec<u8>,
}

#[derive(Default)]
struct Seen {
    hits: u64,
}

impl Sink<NoUpdate> for Seen {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(_) => self.hits += 1,
            Outcome::OutOfMemory => panic!("a cache has room"),
            _ => {}
        }
    }
}

impl Cache {
    fn new(eviction: Eviction, log_bytes: u64, value_len_bytes: usize) -> Cache {
        let store = Store::open(StoreConfig {
            memory_bytes: log_bytes + (1 << 20),
            index_bytes: 1 << 20,
            eviction,
            huge_pages: HugePages::Auto,
            ..support::config(index_kind(), Mode::Evict)
        })
        .unwrap();
        let session = store.session().unwrap();
        Cache { store, session, value: vec![7; value_len_bytes] }
    }

    fn run(&mut self, id: u64, op: Op<'_, NoUpdate>) -> u64 {
        let key = id.to_le_bytes();
        let hash = self.store.key_hasher().hash(&key);
        let mut seen = Seen::default();
        self.session.execute(NOW, &[Request { key: &key, hash, op }], &mut seen);
        seen.hits
    }

    /// Reads each key and writes it after a miss; returns the miss ratio and the average number of
    /// items.
    fn replay(&mut self, ids: &[u64]) -> (f64, f64) {
        let (mut hits, mut held) = (0, 0);
        for (at, id) in ids.iter().enumerate() {
            let hit = self.run(*id, Op::Get);
            hits += hit;
            if hit == 0 {
                let value = std::mem::take(&mut self.value);
                let (expiry, condition) = (Expiry::Never, Condition::Always);
                let set = Set { value: &value, client_flags: 0, expiry, condition };
                self.run(*id, Op::Set(set));
                self.value = value;
            }
            while self.session.wants_room() && self.session.maintain(NOW) {}
            if at % 1000 == 0 && at >= ids.len() / 2 {
                held += self.store.stats().items;
            }
        }
        let samples = ids.len() - ids.len() / 2;
        (1.0 - hits as f64 / ids.len() as f64, held as f64 / (samples as f64 / 1000.0))
    }
}

/// S3-FIFO on single items (Yang et al., SOSP 2023, algorithm 1; one read promotes): a tenth for
/// the small queue, ghosts for nine tenths.
fn exact_s3_fifo(ids: &[u64], capacity: usize) -> f64 {
    let (small_max, ghost_max) = (capacity / 10, capacity * 9 / 10);
    let (mut small, mut main, mut ghosts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    let mut is_ghost: HashSet<u64> = HashSet::new();
    let mut reads: HashMap<u64, u8> = HashMap::new();
    let mut misses = 0;
    for id in ids {
        if let Some(reads) = reads.get_mut(id) {
            *reads = 3.min(*reads + 1);
            continue;
        }
        misses += 1;
        while small.len() + main.len() >= capacity {
            if small.len() >= small_max || main.is_empty() {
                let old = small.pop_front().unwrap();
                if reads[&old] > 0 {
                    reads.insert(old, 0);
                    main.push_back(old);
                    continue;
                }
                reads.remove(&old);
                is_ghost.insert(old);
                ghosts.push_back(old);
                if ghosts.len() > ghost_max {
                    is_ghost.remove(&ghosts.pop_front().unwrap());
                }
            } else {
                let old = main.pop_front().unwrap();
                match reads[&old] {
                    0 => reads.remove(&old),
                    left => {
                        main.push_back(old);
                        reads.insert(old, left - 1)
                    }
                };
            }
        }
        reads.insert(*id, 0);
        match is_ghost.remove(id) {
            true => main.push_back(*id),
            false => small.push_back(*id),
        }
    }
    misses as f64 / ids.len() as f64
}

/// Items drawn log-uniformly (Zipf with exponent 1) between runs of a scan that never comes back.
fn zipf_with_scans(count: usize) -> Vec<u64> {
    const ITEMS: f64 = 50_000.0;
    let mut next_scanned = 1 << 40;
    let mut is_scanned = |at: usize| (at % 2000 < 500).then(|| (next_scanned, next_scanned += 1).0);
    (0..count)
        .map(|at| {
            let unit = base::hash::mix(at as u64 + 1) as f64 / u64::MAX as f64;
            is_scanned(at).unwrap_or(ITEMS.powf(unit) as u64)
        })
        .collect()
}

#[test]
fn s3_fifo_chooses_better_than_one_queue_where_scans_pass_through() {
    let ids = zipf_with_scans(300_000);
    let miss_ratio = |eviction| Cache::new(eviction, 8 << 20, 3000).replay(&ids).0;
    let s3_fifo = miss_ratio(Eviction::S3Fifo);
    for other in [Eviction::Fifo, Eviction::LruApprox] {
        let one_queue = miss_ratio(other);
        assert!(s3_fifo + 0.02 < one_queue, "{s3_fifo} against {one_queue} of {other:?}");
    }
}

/// Replays scans through caches of three sizes: their miss ratios are those of the exact policy,
/// which holds as many items, but for `tolerance`.
#[track_caller]
fn check_close(eviction: Eviction, exact: fn(&[u64], usize) -> f64, tolerance: f64) {
    let ids = zipf_with_scans(300_000);
    for (log_bytes, value_len_bytes) in [(8 << 20, 3000), (16 << 20, 800), (8 << 20, 200)] {
        let mut cache = Cache::new(eviction, log_bytes, value_len_bytes);
        let (found, items_held) = cache.replay(&ids);
        let exact = exact(&ids, items_held as usize);
        let stats = cache.store.stats();
        assert!((found - exact).abs() < tolerance, "{found} against {exact}, {stats:?}");
        assert!(stats.reinserted > 1_000, "{stats:?}");
        cache.store.validate();
    }
}

#[test]
fn s3_fifo_on_segments_comes_close_to_the_exact_one() {
    check_close(Eviction::S3Fifo, exact_s3_fifo, 0.005);
}

/// The least recently used item goes.
fn exact_lru(ids: &[u64], capacity: usize) -> f64 {
    let mut order: BTreeMap<usize, u64> = BTreeMap::new();
    let mut used_at: HashMap<u64, usize> = HashMap::new();
    let mut misses = 0;
    for (at, id) in ids.iter().enumerate() {
        match used_at.insert(*id, at) {
            Some(before) => drop(order.remove(&before)),
            None => misses += 1,
        }
        order.insert(at, *id);
        if order.len() > capacity {
            let (_, oldest) = order.pop_first().unwrap();
            used_at.remove(&oldest);
        }
    }
    misses as f64 / ids.len() as f64
}

/// Segments that are mostly dead are cleaned before the oldest are dropped, so that the order is
/// not wholly that of use; here that misses less.
#[test]
fn lru_by_appending_anew_comes_close_to_the_exact_one() {
    check_close(Eviction::Lru, exact_lru, 0.015);
}

/// Marks of second chances keep what was used once since it was written as long as what is used
/// all the time; the order of use does not.
#[test]
fn an_lru_cache_drops_in_the_order_of_use() {
    for (eviction, keeps_order) in [(Eviction::Lru, true), (Eviction::Fifo, false)] {
        let mut cache = Cache::new(eviction, 8 << 20, 1000);
        let item_count = 5_000;
        let set = |cache: &mut Cache, id: u64| {
            let value = cache.value.clone();
            let (expiry, condition) = (Expiry::Never, Condition::Always);
            let set = Set { value: &value, client_flags: 0, expiry, condition };
            cache.run(id, Op::Set(set));
            while cache.session.wants_room() && cache.session.maintain(NOW) {}
        };
        (0..item_count).for_each(|id| set(&mut cache, id));
        // The oldest are used last.
        for id in (0..item_count).rev() {
            cache.run(id, Op::Get);
            while cache.session.wants_room() && cache.session.maintain(NOW) {}
        }
        (0..4_000).for_each(|id| set(&mut cache, 1 << 32 | id));
        let mut hits_of =
            |ids: std::ops::Range<u64>| ids.map(|id| cache.run(id, Op::Get)).sum::<u64>();
        let (used_last, used_first) = (hits_of(0..500), hits_of(item_count - 500..item_count));
        let found = format!("{eviction:?}: {used_last} of the last, {used_first} of the first");
        assert_eq!(used_last > 450 && used_first < 50, keeps_order, "{found}");
        cache.store.validate();
    }
}
