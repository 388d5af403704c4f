//! The memory plan: divides one number of bytes among the index, the log, client buffers, and the
//! queues between workers.
//!
//! ```text
//!  memory_bytes
//!  +--------------------------------------+-----------------------------+---------+
//!  |  buffers                             |  log                     <--|  index  |
//!  |  max(1/8, min(40 MiB, 1/4 - 8 MiB))  |  the rest                   |  1/64   |
//!  +--------------------------------------+-----------------------------+---------+
//!      taken from the log where needed: forwardings, hot set, workers
//! ```
//!
//! The index starts with a 64th and takes more memory from the log as items come (decision 0018). A
//! lossy index does not grow: it has an eighth from the start. Where requests are routed, request
//! slots and rings take memory from the log, at most an eighth. The counting and publishing of hot
//! keys takes some 5 MiB, and 144 KiB per thread; over a tree, where the hot keys are also kept in
//! an array, some 6.2 MiB, and 300 KiB per thread. Each worker above the fourth takes 2 MiB for
//! what no ledger books: its receive buffer, and what the heap keeps for its thread. Where native
//! clients are served, it takes 1.5 MiB more.
//!
//! Servers of medium size give a larger part to buffers: one command of the largest default size,
//! 32 MiB, should fit while it arrives. The smallest servers do not, because of their hit ratio: at
//! 64 MiB, a quarter for buffers caused 1.01 to 1.48 times memcached's misses on three of five
//! traces.
//!
//! # Invariants
//! I1: the six parts add up to `memory_bytes`.
//! I2: a value of `item_size_max_bytes` fits the log and, with its command around it, the buffers.

use base::ByteSize;
use store::NeededMemory;

use crate::{Limits, landing_part, large_part};

/// The least memory a server starts with.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

const BUFFERS_COMFORT_BYTES: u64 = 40 << 20;

/// The part of that quarter that the smallest servers keep for the log.
const BUFFERS_SPARED_BYTES: u64 = 8 << 20;

/// Room around a value in a command: its key (at most 64 KiB), its options, and the read-ahead.
const COMMAND_OVERHEAD_BYTES: u64 = 256 << 10;

/// Fraction of the log that one item may take. An item larger than a segment takes a run of
/// contiguous segments (K14), and a run that is half of the log may never come free.
const LOG_PART_OF_ITEM: u64 = 4;

/// The index's part if it is lossy, and the part that the largest item leaves to one that grows.
const INDEX_PART: u64 = 8;

/// The maximum part of the memory between workers. With less than half of it, the buffers of
/// request slots keep less between two requests.
const FORWARDINGS_PART_MAX: u64 = 8;
const FORWARDINGS_COMFORT_PART: u64 = 16;

/// The maximum part of the memory that finds hot keys.
const HOT_SET_PART_MAX: u64 = 8;

/// What a worker has beside the cap: its receive buffer of 256 KiB, the blocks that the heap keeps
/// for its thread, and the room that blocks of unlike lengths leave between them. Measured with
/// sixteen workers under unlike clients: some 2 MiB each.
const WORKER_OWN_BYTES: u64 = 2 << 20;
/// What a worker has besides if it serves native clients: a send queue of 512 KiB, two frames of
/// 64 KiB, the datagrams of one receive, and 512 KiB for shared memory. Measured: 1.2 to 1.5 MiB.
const WORKER_NATIVE_BYTES: u64 = 1536 << 10;
/// Workers whose own memory fits beside the cap, with the program itself.
const WORKERS_BESIDE_CAP: u64 = 4;
/// The maximum part of the memory that is the workers' own.
const WORKERS_PART_MAX: u64 = 4;

/// The maximum part of the client buffers for one value in a cluster: a write takes up to three
/// times its length at its primary, and once more at a copy.
const BUFFERS_PART_OF_REPLICATED: u64 = 8;

/// More memory than any machine has.
const CAP_MAX_BYTES: u64 = 1 << 50;

/// Whether the index follows the number of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexGrowth {
    /// It takes memory from the log and gives it back.
    WithItems,
    /// It keeps its size: a lossy index.
    None,
}

/// Bytes that each of a request slot's two buffers keeps between two requests, if memory allows.
pub const KEPT_BYTES_MAX: usize = 1 << 10;

/// The most memory that forwarding takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardingMemory {
    /// Independent of the requests' length.
    pub fixed_bytes: u64,
    /// Request slots; each has two buffers, which keep some bytes.
    pub request_slot_count: u64,
}

/// The division of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The initial size of the hash index.
    pub index_bytes: u64,
    /// Client input and output, over all workers.
    pub buffers_bytes: u64,
    /// The initial size of the log.
    pub log_bytes: u64,
    /// Request slots and rings between workers, at most.
    pub forwardings_bytes: u64,
    /// The memory that finds hot keys, at most.
    pub hot_set_bytes: u64,
    /// What workers have for themselves, and no ledger books.
    pub workers_bytes: u64,
    /// The bytes that each buffer of a request slot keeps between two requests.
    pub request_slot_kept_bytes_max: usize,
    /// The largest value that fits the plan; at most the configured one.
    pub item_size_max_bytes: u64,
    /// Whether other nodes' writes land here.
    pub has_copies: bool,
}

/// Everything that a plan depends on besides the cap.
pub struct Planner {
    /// The largest value that is configured.
    pub item_size_wanted_bytes: u64,
    /// How the index grows.
    pub index: IndexGrowth,
    /// What request slots and rings take.
    pub forwardings: ForwardingMemory,
    /// What finding hot keys takes, at most.
    pub hot_set_bytes: u64,
    /// The number of workers.
    pub workers: usize,
    /// Whether they serve native clients, by datagrams or through shared memory.
    pub has_native: bool,
    /// Whether other nodes' writes land here.
    pub has_copies: bool,
}

impl Planner {
    /// Divides `memory_bytes`; `None`: they are too few.
    pub fn plan(&self, memory_bytes: u64) -> Option<MemoryPlan> {
        MemoryPlan::new(memory_bytes, self.item_size_wanted_bytes, self.index)
            .and_then(|plan| plan.with_forwardings(self.forwardings))
            .and_then(|plan| plan.with_hot_set(self.hot_set_bytes))
            .and_then(|plan| plan.with_workers(self.workers_bytes()))
            .map(|plan| if self.has_copies { plan.with_copies() } else { plan })
    }

    /// The least memory that has a plan.
    pub fn least(&self) -> ByteSize {
        let least_bytes = MemoryPlan::least_bytes(self.forwardings, self.hot_set_bytes);
        ByteSize { bytes: least_bytes.max(self.workers_bytes() * WORKERS_PART_MAX) }
    }

    /// What workers have for themselves beyond what fits beside the cap.
    fn workers_bytes(&self) -> u64 {
        let native_bytes = if self.has_native { WORKER_NATIVE_BYTES } else { 0 };
        let workers = (self.workers as u64).saturating_sub(WORKERS_BESIDE_CAP);
        workers * (WORKER_OWN_BYTES + native_bytes)
    }

    /// The least `--memory`, in whole MiB, whose store has so many bytes at the start.
    fn least_cap(&self, store_bytes: u64) -> ByteSize {
        let has_enough = |plan: MemoryPlan| plan.store_bytes() >= store_bytes;
        let mib = first_mib(|mib| self.plan(mib << 20).is_some_and(has_enough));
        ByteSize { bytes: mib << 20 }
    }

    /// Says which `--memory` would do for data that does not fit into the given one.
    pub fn advice(&self, given_bytes: u64, needed: &NeededMemory) -> String {
        let given = ByteSize { bytes: given_bytes };
        let enough = self.least_cap(needed.enough_bytes);
        format!(
            "its data does not fit into --memory {given}: give --memory {enough}, or the \
             --index, --threads and --numa that it was written with"
        )
    }
}

impl MemoryPlan {
    /// Divides `memory_bytes`; `None` below [`MEMORY_BYTES_MIN`].
    pub fn new(
        memory_bytes: u64,
        item_size_wanted_bytes: u64,
        index: IndexGrowth,
    ) -> Option<MemoryPlan> {
        if memory_bytes < MEMORY_BYTES_MIN {
            return None;
        }
        let index_bytes = match index {
            IndexGrowth::WithItems => memory_bytes / 64,
            IndexGrowth::None => memory_bytes / INDEX_PART,
        };
        let buffers_bytes = buffers_bytes_of(memory_bytes);
        let log_bytes = memory_bytes - index_bytes - buffers_bytes;
        let item_size_max_bytes = item_size_wanted_bytes
            .min(value_max_of_buffers(buffers_bytes))
            .min((memory_bytes - buffers_bytes - memory_bytes / INDEX_PART) / LOG_PART_OF_ITEM);
        Some(MemoryPlan {
            index_bytes,
            buffers_bytes,
            log_bytes,
            forwardings_bytes: 0,
            hot_set_bytes: 0,
            workers_bytes: 0,
            request_slot_kept_bytes_max: 0,
            item_size_max_bytes,
            has_copies: false,
        })
    }

    /// The plan for another cap, while the server runs: buffers in proportion, or as they began if
    /// the largest value needs that, and the rest for the log. `None`: its parts, or its largest
    /// value, need more.
    pub fn resized(self, memory_bytes: u64) -> Option<MemoryPlan> {
        if memory_bytes < MEMORY_BYTES_MIN {
            return None;
        }
        let buffers_bytes = match buffers_bytes_of(memory_bytes) {
            bytes if self.value_max_of(bytes) >= self.item_size_max_bytes => bytes,
            _ => self.buffers_bytes,
        };
        let fixed_bytes =
            self.index_bytes + self.forwardings_bytes + self.hot_set_bytes + self.workers_bytes;
        let log_bytes = memory_bytes.checked_sub(buffers_bytes + fixed_bytes)?;
        let fits = log_bytes / LOG_PART_OF_ITEM >= self.item_size_max_bytes
            && self.forwardings_bytes <= memory_bytes / FORWARDINGS_PART_MAX
            && self.hot_set_bytes <= memory_bytes / HOT_SET_PART_MAX
            && self.workers_bytes <= memory_bytes / WORKERS_PART_MAX;
        fits.then_some(MemoryPlan { buffers_bytes, log_bytes, ..self })
    }

    /// The least cap, in whole MiB, that gives the store so many bytes.
    pub fn least_cap_bytes(self, store_bytes: u64) -> u64 {
        self.least_cap_of(|plan| plan.store_bytes() >= store_bytes)
    }

    /// The least cap, in whole MiB, whose plan has enough of a quantity that grows with it.
    pub fn least_cap_of(self, has_enough: impl Fn(MemoryPlan) -> bool) -> u64 {
        first_mib(|mib| self.resized(mib << 20).is_some_and(&has_enough)) << 20
    }

    /// The largest cap, in whole MiB, that gives the store at most so many bytes.
    pub fn most_cap_bytes(self, store_bytes: u64) -> u64 {
        let has_more = |mib: &u64| {
            self.resized(mib << 20).is_some_and(|plan| plan.store_bytes() > store_bytes)
        };
        first_mib(has_more).saturating_sub(1) << 20
    }

    /// Takes the memory between workers from the log; `None`: it is more than an eighth of all.
    pub fn with_forwardings(self, forwardings: ForwardingMemory) -> Option<MemoryPlan> {
        let memory_bytes = self.store_bytes() + self.buffers_bytes;
        let spare_bytes =
            (memory_bytes / FORWARDINGS_COMFORT_PART).saturating_sub(forwardings.fixed_bytes);
        let kept_bytes =
            (spare_bytes / (2 * forwardings.request_slot_count.max(1))).min(KEPT_BYTES_MAX as u64);
        let forwardings_bytes =
            forwardings.fixed_bytes + 2 * forwardings.request_slot_count * kept_bytes;
        let log_bytes = self.log_bytes - forwardings_bytes.min(self.log_bytes);
        let fits = forwardings_bytes <= memory_bytes / FORWARDINGS_PART_MAX;
        fits.then_some(MemoryPlan {
            log_bytes,
            forwardings_bytes,
            request_slot_kept_bytes_max: kept_bytes as usize,
            item_size_max_bytes: self.item_size_max_bytes.min(log_bytes / LOG_PART_OF_ITEM),
            ..self
        })
    }

    /// Takes the memory that finds hot keys from the log; `None`: it is more than an eighth of all.
    pub fn with_hot_set(self, hot_set_bytes: u64) -> Option<MemoryPlan> {
        let memory_bytes = self.store_bytes() + self.buffers_bytes + self.forwardings_bytes;
        let log_bytes = self.log_bytes - hot_set_bytes.min(self.log_bytes);
        let fits = hot_set_bytes <= memory_bytes / HOT_SET_PART_MAX;
        fits.then_some(MemoryPlan {
            log_bytes,
            hot_set_bytes,
            item_size_max_bytes: self.item_size_max_bytes.min(log_bytes / LOG_PART_OF_ITEM),
            ..self
        })
    }

    /// Takes what workers have for themselves from the log; `None`: it is more than a quarter.
    fn with_workers(self, workers_bytes: u64) -> Option<MemoryPlan> {
        let memory_bytes =
            self.store_bytes() + self.buffers_bytes + self.forwardings_bytes + self.hot_set_bytes;
        let log_bytes = self.log_bytes.saturating_sub(workers_bytes);
        let fits = workers_bytes <= memory_bytes / WORKERS_PART_MAX;
        fits.then_some(MemoryPlan {
            log_bytes,
            workers_bytes,
            item_size_max_bytes: self.item_size_max_bytes.min(log_bytes / LOG_PART_OF_ITEM),
            ..self
        })
    }

    /// Lowers the largest value to one that a cluster's node can write and take in beside all else:
    /// each value is held several times until all copies have it.
    pub fn with_copies(self) -> MemoryPlan {
        let plan = MemoryPlan { has_copies: true, ..self };
        let item_size_max_bytes =
            self.item_size_max_bytes.min(plan.value_max_of(self.buffers_bytes));
        MemoryPlan { item_size_max_bytes, ..plan }
    }

    /// The part of the client buffers that is kept for other nodes' writes.
    pub fn landing_bytes(&self) -> u64 {
        if self.has_copies { landing_part(self.buffers_bytes) } else { 0 }
    }

    /// The limits of the client buffers.
    pub fn limits(&self) -> Limits {
        Limits { clients_bytes: self.clients_bytes(), landing_bytes: self.landing_bytes() }
    }

    /// The rest of them, less one value of the largest size: one write, forward and guest at a time
    /// goes past its part.
    pub fn clients_bytes(&self) -> u64 {
        let spared_bytes = if self.has_copies { self.value_max_of(self.buffers_bytes) } else { 0 };
        self.buffers_bytes - self.landing_bytes() - spared_bytes
    }

    /// The largest value that fits buffers of that size.
    fn value_max_of(&self, buffers_bytes: u64) -> u64 {
        match self.has_copies {
            true => buffers_bytes / BUFFERS_PART_OF_REPLICATED,
            false => value_max_of_buffers(buffers_bytes),
        }
    }

    /// The least memory that has a plan.
    pub fn least_bytes(forwardings: ForwardingMemory, hot_set_bytes: u64) -> u64 {
        let parts =
            [forwardings.fixed_bytes * FORWARDINGS_PART_MAX, hot_set_bytes * HOT_SET_PART_MAX];
        let least = parts.map(|bytes| bytes.next_multiple_of(1 << 20));
        MEMORY_BYTES_MIN.max(least[0]).max(least[1])
    }

    /// The parts, for one line of the log.
    pub fn words(&self) -> String {
        let parts = [
            ("log", self.log_bytes),
            ("index", self.index_bytes),
            ("client buffers", self.buffers_bytes),
            ("between threads", self.forwardings_bytes),
            ("hot set", self.hot_set_bytes),
            ("workers", self.workers_bytes),
        ];
        let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let parts: Vec<_> =
            parts.map(|(name, bytes)| format!("{name} {:.1} MiB", mib(bytes))).collect();
        parts.join(", ")
    }

    /// The memory of the store: index and log.
    pub fn store_bytes(&self) -> u64 {
        self.index_bytes + self.log_bytes
    }
}

/// The part of the memory for client buffers.
fn buffers_bytes_of(memory_bytes: u64) -> u64 {
    let comfort_bytes = BUFFERS_COMFORT_BYTES.min(memory_bytes / 4 - BUFFERS_SPARED_BYTES);
    comfort_bytes.max(memory_bytes / 8)
}

/// The largest value that fits client buffers with its command.
fn value_max_of_buffers(buffers_bytes: u64) -> u64 {
    let part_bytes = large_part(buffers_bytes).saturating_sub(COMMAND_OVERHEAD_BYTES);
    part_bytes.min(largest_beside_others(buffers_bytes))
}

/// The least number of MiB for which `holds`, which then holds for all larger ones.
fn first_mib(holds: impl Fn(&u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, CAP_MAX_BYTES >> 20);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(&middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

/// The largest value that can arrive while other connections hold buffers too. A connection whose
/// value fills small buffers completely is closed as soon as another one has a part of them.
fn largest_beside_others(buffers_bytes: u64) -> u64 {
    match buffers_bytes < BUFFERS_COMFORT_BYTES {
        true => buffers_bytes / 8 * 5,
        false => buffers_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[track_caller]
    fn check(memory_mib: u64, index: IndexGrowth, want_mib: [u64; 4]) {
        let plan = MemoryPlan::new(memory_mib * MIB, 32 * MIB, index).unwrap();
        let found =
            [plan.index_bytes, plan.buffers_bytes, plan.log_bytes, plan.item_size_max_bytes];
        assert_eq!(found.map(|bytes| bytes / MIB), want_mib);
        assert_eq!(plan.store_bytes() + plan.buffers_bytes, memory_mib * MIB, "I1");
    }

    #[test]
    fn the_parts_of_small_middling_and_large_servers() {
        check(64, IndexGrowth::WithItems, [1, 8, 55, 5]);
        check(128, IndexGrowth::WithItems, [2, 24, 102, 15]);
        check(256, IndexGrowth::WithItems, [4, 40, 212, 32]);
        check(1024, IndexGrowth::WithItems, [16, 128, 880, 32]);
    }

    #[test]
    fn an_index_that_cannot_grow_has_an_eighth() {
        check(64, IndexGrowth::None, [8, 8, 48, 5]);
        check(192, IndexGrowth::None, [24, 40, 128, 32]);
        check(1024, IndexGrowth::None, [128, 128, 768, 32]);
    }

    #[test]
    fn a_clusters_node_has_values_and_a_part_for_what_lands_by_its_buffers() {
        let plan = MemoryPlan::new(64 * MIB, 32 * MIB, IndexGrowth::WithItems).unwrap();
        let plan = plan.with_copies();
        assert_eq!((plan.item_size_max_bytes, plan.landing_bytes()), (MIB, 2 * MIB));
        assert_eq!(plan.clients_bytes(), 5 * MIB);
        let large = MemoryPlan::new(1024 * MIB, 32 * MIB, IndexGrowth::WithItems).unwrap();
        let large = large.with_copies();
        assert_eq!(large.item_size_max_bytes, 16 * MIB);
        let smaller = large.resized(256 * MIB).unwrap();
        assert_eq!(smaller.buffers_bytes, large.buffers_bytes, "a value of 16 MiB needs them");
    }

    #[track_caller]
    fn check_forwardings(
        memory_mib: u64,
        forwardings: ForwardingMemory,
        want: Option<(u64, usize)>,
    ) {
        let plain = MemoryPlan::new(memory_mib * MIB, MIB, IndexGrowth::WithItems).unwrap();
        let plan = plain.with_forwardings(forwardings);
        assert_eq!(
            plan.map(|plan| (plan.forwardings_bytes, plan.request_slot_kept_bytes_max)),
            want
        );
        if let Some(plan) = plan {
            let sum_bytes = plan.store_bytes() + plan.buffers_bytes + plan.forwardings_bytes;
            assert_eq!(sum_bytes, memory_mib * MIB, "I1");
        }
        assert_eq!(want.is_some(), memory_mib * MIB >= MemoryPlan::least_bytes(forwardings, 0));
    }

    #[test]
    fn what_lies_between_workers_is_taken_from_the_log() {
        let forwardings = |fixed_mib, request_slot_count| ForwardingMemory {
            fixed_bytes: fixed_mib * MIB,
            request_slot_count,
        };
        check_forwardings(64, forwardings(0, 0), Some((0, KEPT_BYTES_MAX)));
        check_forwardings(64, forwardings(2, 4096), Some((4 * MIB, 256)));
        check_forwardings(1024, forwardings(2, 4096), Some((10 * MIB, KEPT_BYTES_MAX)));
        check_forwardings(64, forwardings(8, 4096), Some((8 * MIB, 0)));
        check_forwardings(64, forwardings(9, 4096), None);
    }

    #[test]
    fn what_finds_hot_keys_is_taken_from_the_log() {
        let forwardings = ForwardingMemory { fixed_bytes: 2 * MIB, request_slot_count: 4096 };
        let plain = MemoryPlan::new(64 * MIB, MIB, IndexGrowth::WithItems).unwrap();
        let plan = plain
            .with_forwardings(forwardings)
            .and_then(|plan| plan.with_hot_set(5 * MIB))
            .unwrap();
        assert_eq!((plan.hot_set_bytes, plan.log_bytes), (5 * MIB, plain.log_bytes - 9 * MIB));
        let parts_bytes = plan.store_bytes() + plan.buffers_bytes + plan.forwardings_bytes;
        assert_eq!(parts_bytes + plan.hot_set_bytes, 64 * MIB, "I1");
        assert_eq!(plain.with_hot_set(8 * MIB + 1), None);
        assert_eq!(MemoryPlan::least_bytes(forwardings, 8 * MIB + 1), 65 * MIB);
    }

    #[test]
    fn another_cap_keeps_the_parts_that_are_fixed_and_its_inverse_is_found() {
        let forwardings = ForwardingMemory { fixed_bytes: 2 * MIB, request_slot_count: 4096 };
        let plan = MemoryPlan::new(256 * MIB, 8 * MIB, IndexGrowth::WithItems)
            .and_then(|plan| plan.with_forwardings(forwardings))
            .and_then(|plan| plan.with_hot_set(5 * MIB))
            .unwrap();
        assert_eq!(plan.resized(256 * MIB), Some(plan));
        for mib in [128, 200, 255, 300, 1024, 5000] {
            let resized = plan.resized(mib * MIB).unwrap();
            let parts_bytes = resized.store_bytes() + resized.buffers_bytes;
            assert_eq!(
                parts_bytes + resized.forwardings_bytes + resized.hot_set_bytes,
                mib * MIB,
                "I1"
            );
            assert_eq!(resized.forwardings_bytes, plan.forwardings_bytes);
            assert_eq!(plan.least_cap_bytes(resized.store_bytes()), mib * MIB);
            assert_eq!(plan.most_cap_bytes(resized.store_bytes()), mib * MIB);
        }
        let least_bytes = plan.least_cap_bytes(0);
        assert!(plan.resized(least_bytes).is_some() && plan.resized(least_bytes - MIB).is_none());
        assert!(least_bytes > 64 * MIB, "a value of 8 MiB needs more");
        let small = MemoryPlan::new(128 * MIB, 32 * MIB, IndexGrowth::WithItems).unwrap();
        let smaller = small.resized(100 * MIB).unwrap();
        assert_eq!(smaller.buffers_bytes, small.buffers_bytes, "a value of 15 MiB needs them");
    }

    #[test]
    fn memory_below_the_least_has_no_plan() {
        assert_eq!(MemoryPlan::new(MEMORY_BYTES_MIN - 1, MIB, IndexGrowth::WithItems), None);
    }

    #[test]
    fn a_value_is_never_larger_than_asked_for() {
        let plan = MemoryPlan::new(1 << 40, 512 * MIB, IndexGrowth::WithItems).unwrap();
        assert_eq!(plan.item_size_max_bytes, 512 * MIB);
    }

    #[test]
    fn workers_above_the_fourth_take_their_own_from_the_log() {
        let plain = MemoryPlan::new(64 * MIB, MIB, IndexGrowth::WithItems).unwrap();
        let planner = |workers, has_native| Planner {
            item_size_wanted_bytes: MIB,
            index: IndexGrowth::WithItems,
            forwardings: ForwardingMemory::default(),
            hot_set_bytes: 0,
            workers,
            has_native,
            has_copies: false,
        };
        let four = planner(4, true).plan(64 * MIB).unwrap();
        assert_eq!((four.workers_bytes, four.log_bytes), (0, plain.log_bytes));
        for (workers, has_native) in [(12, false), (8, true)] {
            let plan = planner(workers, has_native).plan(64 * MIB).unwrap();
            let own_bytes = if has_native { 14 * MIB } else { 16 * MIB };
            assert_eq!(
                (plan.workers_bytes, plan.log_bytes),
                (own_bytes, plain.log_bytes - own_bytes)
            );
            assert_eq!(plan.store_bytes() + plan.buffers_bytes + own_bytes, 64 * MIB, "I1");
        }
        // More than a quarter is refused.
        for (workers, has_native, least_mib) in [(13, false, 72), (16, true, 168)] {
            let planner = planner(workers, has_native);
            assert_eq!(planner.least(), ByteSize { bytes: least_mib * MIB });
            assert!(planner.plan(least_mib * MIB).is_some());
            assert!(planner.plan((least_mib - 1) * MIB).is_none());
        }
    }
}
