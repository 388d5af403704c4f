//! The memory of a running server: its present size, its bounds, and how it is changed.
//!
//! ```text
//!  CONFIG SET maxmemory, cache_memlimit, SIGHUP ─▶ bounds ─▶ plan ─┬▶ client buffers
//!                                                                  └▶ store: log and index
//! ```
//!
//! # Invariants
//! I1: a refused change changes nothing, and the error names a number that would be accepted.
//! I2: one change at a time, so that all parts belong to one plan.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use base::ByteSize;
use budget::BufferBudget;
use budget::memory::MemoryPlan;
use config::Config;
use host::heap;
use host::memory_limits::MemoryLimits;
use host::process::Usage;
use store::{PageKind, SizeBounds, Store};

use super::Shared;

/// A running server can grow to so many times its initial memory: its tables of segments are made
/// for that.
const GROWTH_MAX: u64 = 8;

/// Free pages of the heap that may be resident beside a cap: enough for the buffers of a few large
/// values, and little beside what README promises.
fn kept_free_bytes(memory_bytes: u64) -> u64 {
    (4 << 20) + memory_bytes / 64
}

/// The cap, and how often it was changed.
#[derive(Debug)]
pub struct LiveMemory {
    /// The plan of the start.
    plan: MemoryPlan,
    memory_bytes: AtomicU64,
    /// I2.
    changing: Mutex<()>,
    changed_count: AtomicU64,
    refused_count: AtomicU64,
}

/// The bounds of the cap, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CapBounds {
    /// The minimum of the log: segments keep their size, and each worker has 64 of them (K14).
    least: u64,
    /// The memory that the items of a store need.
    for_items: u64,
    /// The memory that present clients, users and sessions need.
    for_clients: u64,
    /// The address space that was reserved at the start.
    room: u64,
    /// The memory that the machine or the cgroup can give now.
    machine: u64,
}

impl LiveMemory {
    pub(super) fn new(memory_bytes: u64, plan: MemoryPlan) -> LiveMemory {
        heap::keep_free(kept_free_bytes(memory_bytes));
        LiveMemory {
            plan,
            memory_bytes: AtomicU64::new(memory_bytes),
            changing: Mutex::new(()),
            changed_count: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
        }
    }

    /// How the memory was divided at the start; [`Shared::memory_bytes`] is the present cap.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Changes of the cap, and refused ones.
    pub fn changes(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.changed_count), count(&self.refused_count))
    }

    fn cap_bounds(&self, bounds: SizeBounds, budget: &BufferBudget) -> CapBounds {
        let limits = MemoryLimits::detect();
        let reachable_bytes = Usage::now().resident_bytes.saturating_add(limits.spare_bytes());
        CapBounds {
            least: self.plan.least_cap_bytes(bounds.least_bytes),
            for_items: self.plan.least_cap_bytes(bounds.items_bytes),
            for_clients: self.plan.least_cap_of(|plan| budget.fits_in(plan.limits())),
            room: self.plan.most_cap_bytes(bounds.most_bytes),
            machine: limits.memory_max_bytes().min(reachable_bytes) >> 20 << 20,
        }
    }
}

/// Address space to reserve for a store, so that a running server can grow; 0: it keeps its size.
pub(super) fn room_bytes(config: &Config, plan: &MemoryPlan, limits: MemoryLimits) -> u64 {
    if fixed_by(config).is_some() {
        return 0;
    }
    let most_bytes = config.memory_bytes.saturating_mul(GROWTH_MAX).min(limits.memory_max_bytes());
    plan.resized(most_bytes).map_or(0, |plan| plan.store_bytes())
}

/// The setting that fixes the size of the memory.
fn fixed_by(config: &Config) -> Option<&'static str> {
    let settings = [
        (config.data.is_some(), "--data-dir"),
        (config.warm_file.is_some(), "--warm-file"),
        (config.cluster.is_some(), "--cluster"),
    ];
    settings.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
}

/// The setting, or a property of the open store, that fixes the size of the memory.
fn fixed_reason(config: &Config, store: &Store) -> String {
    let by = fixed_by(config).map(str::to_owned).unwrap_or_else(|| match store.page_kind() {
        PageKind::Reserved => format!("{}, --huge-pages", PageKind::Reserved),
        _ => "several NUMA nodes, --numa, or all of the machine's memory".to_owned(),
    });
    format!("the memory of this server has a fixed size ({by}): restart it with another --memory")
}

fn refusal(bytes: u64, current_bytes: u64, bounds: CapBounds) -> Option<String> {
    let spelled = |bytes: u64| ByteSize { bytes };
    let least = |least: u64, why: &str| {
        Some(format!("{} is too little: give at least {}, {why}", spelled(bytes), spelled(least)))
    };
    let most = |most: u64, why: &str| {
        Some(format!("{} is too much: give at most {}, {why}", spelled(bytes), spelled(most)))
    };
    // The present cap is always accepted.
    let for_items = bounds.for_items.min(current_bytes);
    let for_clients = bounds.for_clients.min(current_bytes);
    match bytes {
        _ if bytes == current_bytes => None,
        0 => least(bounds.least, "a server without a limit is not offered"),
        _ if bytes < bounds.least => {
            let why = "which is 64 segments for each worker and the largest value; segments keep \
                       the size that --memory gave them at the start";
            least(bounds.least, why)
        }
        _ if bytes < for_items => {
            least(for_items, "which the stored items need, or delete some: --mode store")
        }
        _ if bytes < for_clients => {
            let why =
                "half of whose client buffers holds the connections, users and sessions there are";
            least(for_clients, why)
        }
        _ if bytes > bounds.room => {
            most(bounds.room, "the room that was reserved at the start, or restart with --memory")
        }
        _ if bytes > current_bytes && bytes > bounds.machine => {
            most(bounds.machine.max(current_bytes), "which this machine or its cgroup can give now")
        }
        _ => None,
    }
}

impl Shared {
    /// The present cap on log, index and buffers together.
    pub fn memory_bytes(&self) -> u64 {
        // Relaxed: a new cap may take effect a moment later.
        self.memory.memory_bytes.load(Ordering::Relaxed)
    }

    /// The cap's plan and its changes.
    pub fn memory(&self) -> &LiveMemory {
        &self.memory
    }

    /// Checks whether the server could have this cap now; the error names a cap that would be
    /// accepted (I1).
    pub fn check_memory(&self, bytes: u64) -> Result<(), String> {
        let refused = if bytes == self.memory_bytes() {
            None
        } else {
            match self.store.size_bounds() {
                None => Some(fixed_reason(&self.config, &self.store)),
                Some(bounds) => refusal(
                    bytes,
                    self.memory_bytes(),
                    self.memory.cap_bounds(bounds, &self.budget),
                ),
            }
        };
        match refused {
            None => Ok(()),
            Some(reason) => {
                self.memory.refused_count.fetch_add(1, Ordering::Relaxed);
                Err(reason)
            }
        }
    }

    /// Changes the cap. Returns at once, from any thread: workers give up surplus memory between
    /// their requests, while clients are served.
    pub fn set_memory(&self, bytes: u64) -> Result<(), String> {
        let _one_at_a_time = self.memory.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_memory(bytes)?;
        if bytes == self.memory_bytes() {
            return Ok(());
        }
        let plan = self.memory.plan.resized(bytes).ok_or("the parts of the memory do not fit")?;
        self.store.resize(plan.store_bytes()).map_err(|error| error.to_string())?;
        self.budget.follow(plan.limits());
        heap::keep_free(kept_free_bytes(bytes));
        self.memory.memory_bytes.store(bytes, Ordering::Relaxed);
        self.memory.changed_count.fetch_add(1, Ordering::Relaxed);
        tracing::info!("memory: {}", plan.words());
        self.store.wake_tender();
        self.wake_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use budget::{Kind, Reservation};
    use config::Config;
    use policy::Policies;
    use store::IndexKind;

    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: CapBounds = CapBounds {
        least: 64 * MIB,
        for_items: 100 * MIB,
        for_clients: 110 * MIB,
        room: 1024 * MIB,
        machine: 512 * MIB,
    };

    #[track_caller]
    fn check(mib: u64, current_mib: u64, want: Option<&str>) {
        let found = refusal(mib * MIB, current_mib * MIB, BOUNDS);
        match (&found, want) {
            (Some(found), Some(want)) => assert!(found.contains(want), "{found}"),
            _ => assert_eq!(found.as_deref(), want),
        }
    }

    #[test]
    fn a_refusal_names_the_number_that_would_do() {
        check(63, 200, Some("63MiB is too little: give at least 64MiB"));
        check(0, 200, Some("at least 64MiB, a server without a limit"));
        check(99, 200, Some("at least 100MiB, which the stored items need"));
        check(109, 200, Some("109MiB is too little: give at least 110MiB, half of whose client"));
        check(109, 105, None);
        check(95, 98, Some("95MiB is too little: give at least 98MiB, which the stored items"));
        check(104, 105, Some("at least 105MiB, half of whose client"));
        check(1025, 200, Some("1025MiB is too much: give at most 1GiB, the room"));
        check(513, 200, Some("at most 512MiB, which this machine"));
        check(513, 600, None);
        check(99, 80, None);
        check(63, 63, None);
        check(400, 200, None);
    }

    #[test]
    fn a_server_that_keeps_its_items_elsewhere_has_a_fixed_size() {
        let config = Config { warm_file: Some("/dev/shm/x".into()), ..Config::default() };
        assert_eq!(fixed_by(&config), Some("--warm-file"));
        assert_eq!(fixed_by(&Config::default()), None);
    }

    #[test]
    fn a_cap_divides_as_at_the_start_and_what_is_refused_changes_nothing() {
        let shared = Shared::new(Config { memory_bytes: 128 * MIB, ..Config::default() });
        let buffers_bytes = shared.buffer_budget().limit_bytes();
        let reason = shared.set_memory(16 * MIB).unwrap_err();
        assert!(reason.contains("16MiB is too little"), "{reason}");
        assert_eq!(shared.memory().changes(), (0, 1));
        shared.set_memory(256 * MIB).unwrap();
        let fresh =
            MemoryPlan::new(256 * MIB, MIB, budget::memory::IndexGrowth::WithItems).unwrap();
        assert_eq!(shared.buffer_budget().limit_bytes(), fresh.buffers_bytes);
        assert_eq!((shared.memory_bytes(), shared.memory().changes()), (256 * MIB, (1, 1)));
        shared.set_memory(128 * MIB).unwrap();
        assert_eq!(shared.buffer_budget().limit_bytes(), buffers_bytes);
    }

    #[test]
    fn a_cap_in_which_clients_that_stay_have_no_room_is_refused() {
        let shared = Shared::new(Config { memory_bytes: 1024 * MIB, ..Config::default() });
        let budget = shared.buffer_budget();
        let held_bytes = budget.kind_limit_bytes(Kind::Connections);
        let held = Reservation::try_new(budget, Kind::Connections, held_bytes).unwrap();
        let reason = shared.set_memory(320 * MIB).unwrap_err();
        assert!(reason.contains("half of whose client buffers"), "{reason}");
        assert_eq!(shared.memory_bytes(), 1024 * MIB);
        drop(held);
        shared.set_memory(320 * MIB).unwrap();
    }

    /// I1 on servers as they start, for every kind that has parts of its own.
    #[test]
    fn the_parts_of_a_server_stay_inside_its_memory() {
        for (threads, memory_mib) in [(1, 64), (4, 64), (4, 100), (8, 128), (16, 256)] {
            for index in [IndexKind::Hash, IndexKind::Tree] {
                for policies in ["crcw any", "d-crew size-aware", "crew steal", "erew key-hash"] {
                    let (write_policy, dispatch) = policies.split_once(' ').unwrap();
                    let (write_policy, dispatch) =
                        (write_policy.parse().unwrap(), dispatch.parse().unwrap());
                    let memory_bytes = memory_mib * MIB;
                    let base = Config { memory_bytes, threads, index, ..Config::default() };
                    let shared = Shared::new(Config {
                        policies: Policies::new(write_policy, dispatch),
                        ..base
                    });
                    let plan = shared.memory().plan();
                    let sum_bytes = plan.store_bytes()
                        + plan.buffers_bytes
                        + plan.forwardings_bytes
                        + plan.hot_set_bytes
                        + plan.workers_bytes;
                    assert_eq!(sum_bytes, memory_bytes, "{threads} {index:?} {policies}: {plan:?}");
                    assert_eq!(plan.hot_set_bytes > 0, shared.hot_keys().is_some());
                }
            }
        }
    }
}
