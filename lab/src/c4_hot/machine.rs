//! The two machines of the hot-thread model: the paper's, and the one that was measured.
//!
//! The costs of the paper's machine, and the origin of each number:
//!
//! | number | value | from |
//! |---|---|---|
//! | `transfer_ns` | 35 | Table 1, 2 GHz: 3 legs of 5.25 hops at 3 cycles, LLC 11, L1 4 twice |
//! | `serial_ns` | 2 | Table 1: the supplying L1's 4 cycles (a 16-byte link's 5 flits: 2.5) |
//! | `sharer_ns` | 0.5 | one cycle for each invalidation that the directory sends |
//! | `next_line_ns` | 5 | assumed: 32 misses in flight hide most of each further line |
//! | uncached 16/512 | 650 | 64 cores over Fig. 9's 91 MRPS, at 93 % of them busy |
//! | `fixed_ns` | 50 | Eq. 1 solved for its A = 3.9 with 908 ns, 10 writes a window and T_comp |
//! | `join_ns` | 100 | T_comp, §3.2 |
//! | cached 16/512 | 173 | calibrated: the hottest thread unloaded, 908 / 2.4 = 378 ns (Fig. 11b) |
//!
//! The contention is not calibrated: it follows from the first four numbers. Over item sizes, the
//! cached and the uncached part grow with the number of lines; the constant of 45 ns is the
//! remainder of Table 2's 363 MRPS for 8/8 items.

use policy::Access;
use policy::window::{CloseWhen, WindowRules};

use sim::SimError;
use sim::measure::{Batching, CostTable, LineTransfer};

/// An item size in the notation of C-4 §7.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemSize {
    pub(crate) name: &'static str,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    /// Lines of the item with its header, and one for its bucket with the version.
    pub(crate) line_count: u32,
}

pub(crate) const TINY: ItemSize =
    ItemSize { name: "8/8", key_bytes: 8, value_bytes: 8, line_count: 2 };
pub(crate) const MEDIUM: ItemSize =
    ItemSize { name: "16/128", key_bytes: 16, value_bytes: 128, line_count: 4 };
pub(crate) const LARGE: ItemSize =
    ItemSize { name: "16/512", key_bytes: 16, value_bytes: 512, line_count: 10 };

/// The data set whose items are counted: 1.6 million of 512 bytes (C-4 §6, §7.3).
const DATA_BYTES: u64 = 819_200_000;

impl ItemSize {
    /// The number of items that fill the same data set.
    pub(crate) fn key_count(self) -> u64 {
        DATA_BYTES / (self.value_bytes + if self.value_bytes < 512 { self.key_bytes } else { 0 })
    }
}

/// The costs of one core and of its lines, for items of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The name in the reports.
    pub(crate) name: &'static str,
    pub(crate) core_count: usize,
    /// The part of T_kvs before the item itself: parse, hash, find.
    pub(crate) lookup_ns: f64,
    /// The part that copies the item if it is in the core's own cache: a write's version is odd
    /// during it.
    pub(crate) access_ns: f64,
    /// The extra T_kvs for an item that is in no core's own cache.
    pub(crate) miss_ns: f64,
    /// The number of hottest items that stay in every core's own cache until a core writes them.
    pub(crate) cached_ranks: u64,
    /// T_fixed: answering.
    pub(crate) fixed_ns: f64,
    /// T_comp: adding a write to a window.
    pub(crate) join_ns: f64,
    pub(crate) line_count: u32,
    pub(crate) law: LineTransfer,
    pub(crate) update: Update,
}

/// The way a store replaces an item that other cores read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// In place, under a version: readers wait while it is odd and read again if it has changed,
    /// and the writer takes all lines of the item (MICA, and so C-4).
    InPlace,
    /// A new entry, then one slot of the bucket: readers never wait, and the writer takes the
    /// bucket's line. Readers fetch that line, and then the new entry's.
    Swap,
}

const CORE_COUNT: usize = 64;
const FIXED_NS: f64 = 50.0;
const JOIN_NS: f64 = 100.0;

const PAPER_LAW: LineTransfer =
    LineTransfer { transfer_ns: 35.0, next_line_ns: 5.0, serial_ns: 2.0, sharer_ns: 0.5 };
const PAPER_LOOKUP_NS: f64 = 45.0;
const PAPER_ACCESS_LINE_NS: f64 = 12.8;
const PAPER_MISS_LINE_NS: f64 = 42.7;
/// 64 KiB of 64-byte lines (C-4 Table 1).
const PAPER_CACHE_LINES: u64 = 1024;
/// 48 KiB.
const MEASURED_CACHE_LINES: u64 = 768;

impl Machine {
    /// C-4's 64 simulated cores.
    pub(crate) fn of_paper(size: ItemSize) -> Machine {
        let lines = f64::from(size.line_count);
        Machine {
            name: "paper",
            core_count: CORE_COUNT,
            lookup_ns: PAPER_LOOKUP_NS,
            access_ns: PAPER_ACCESS_LINE_NS * lines,
            miss_ns: PAPER_MISS_LINE_NS * lines,
            cached_ranks: PAPER_CACHE_LINES / u64::from(size.line_count),
            fixed_ns: FIXED_NS,
            join_ns: JOIN_NS,
            line_count: size.line_count,
            law: PAPER_LAW,
            update: Update::InPlace,
        }
    }

    /// 64 cores like the measured ones: the times of the real store and the real lines, and updates
    /// as that store makes them.
    ///
    /// A full batch hides the misses, so it stands for a cached item; a single request shows them.
    /// The look-up is taken as half of the smallest item's time. The costs of answering and of
    /// joining a window are the paper's: the measured store does neither.
    pub(crate) fn measured(size: ItemSize) -> Result<Machine, SimError> {
        let table = CostTable::committed()?;
        let mean_ns = |size_bytes, batching| {
            let of = |access| table.mean_ns(access, size_bytes, batching);
            (of(Access::Read) + of(Access::Write)) / 2.0
        };
        let size_bytes = size.key_bytes + size.value_bytes;
        let cached_ns = mean_ns(size_bytes, Batching::Full);
        let lookup_ns = mean_ns(TINY.key_bytes + TINY.value_bytes, Batching::Full) / 2.0;
        Ok(Machine {
            name: "measured",
            core_count: CORE_COUNT,
            lookup_ns,
            access_ns: cached_ns - lookup_ns,
            miss_ns: (mean_ns(size_bytes, Batching::One) - cached_ns).max(0.0),
            cached_ranks: MEASURED_CACHE_LINES / u64::from(size.line_count),
            fixed_ns: FIXED_NS,
            join_ns: JOIN_NS,
            line_count: size.line_count,
            law: table.line_transfer().unwrap_or(PAPER_LAW),
            update: Update::Swap,
        })
    }

    /// The mean service time, of an uncached item, that defines the objective.
    pub(crate) fn service_mean_ns(&self) -> f64 {
        self.lookup_ns + self.access_ns + self.miss_ns + self.fixed_ns
    }

    /// The allowed 99th percentile.
    pub(crate) fn slo_ns(&self, slo_ratio: u64) -> f64 {
        self.service_mean_ns() * slo_ratio as f64
    }

    /// The product's rules: a window closes once its key is drained.
    pub(crate) fn early_windows(&self) -> WindowRules {
        WindowRules::honest(self.service_mean_ns() as u64, 10)
    }

    /// The rules of C-4's server: a window stays open until its deadline (§5.3, §7.2).
    pub(crate) fn deadline_windows(&self) -> WindowRules {
        WindowRules { close: CloseWhen::Deadline, ..self.early_windows() }
    }
}

#[cfg(test)]
mod tests {
    use super::{LARGE, MEDIUM, Machine, TINY};

    #[test]
    fn the_papers_machine_has_the_papers_stated_times() {
        let large = Machine::of_paper(LARGE);
        assert!((large.service_mean_ns() - 650.0).abs() < 1.0);
        let cached_ns = large.lookup_ns + large.access_ns;
        assert!((cached_ns - 173.0).abs() < 1.0);
        // 378 ns unloaded: the cached item, its answer, and taking it from some 16 readers.
        let unloaded_ns = cached_ns + large.fixed_ns + large.law.take_ns(large.line_count, 16);
        assert!((unloaded_ns - 378.0).abs() < 15.0, "{unloaded_ns}");
        assert_eq!(LARGE.key_count(), 1_600_000);
    }

    #[test]
    fn larger_items_take_longer_on_both_machines() {
        for of in [|size| Ok(Machine::of_paper(size)), Machine::measured] {
            let [tiny, medium, large] = [TINY, MEDIUM, LARGE].map(|size| of(size).unwrap());
            assert!(tiny.access_ns > 0.0 && tiny.lookup_ns > 0.0 && tiny.miss_ns > 0.0);
            assert!(tiny.service_mean_ns() < medium.service_mean_ns());
            assert!(medium.service_mean_ns() < large.service_mean_ns());
        }
    }
}
