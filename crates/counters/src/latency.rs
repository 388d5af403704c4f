//! Latencies of sampled requests: counts by time, four classes to a doubling.
//!
//! ```text
//!  unit: 256 ns      0 1 2 3 | 4 5 6 7 | 8 .. | .. 14 | ...      17 s and more
//!  class             0 1 2 3 | 4 5 6 7 | 8  9   10  11 | ...      103
//! ```
//!
//! A quantile is reported as the upper bound of its class, at most a quarter above the truth.

use crate::Cell;

/// The number of classes of times.
pub const CLASS_COUNT: usize = 104;

/// The unit is 2 to this power, in nanoseconds.
const UNIT_BITS: u32 = 8;

/// Classes to a doubling, as a power of two.
const STEP_BITS: u32 = 2;

const _: () = assert!(CLASS_COUNT.is_multiple_of(1 << STEP_BITS));

/// The class of a time.
#[inline]
pub fn class_of(ns: u64) -> usize {
    let units = ns >> UNIT_BITS;
    if units < 1 << STEP_BITS {
        return units as usize;
    }
    let exponent = units.ilog2();
    let step = (units >> (exponent - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    let class = ((exponent - STEP_BITS + 1) << STEP_BITS) as usize + step as usize;
    class.min(CLASS_COUNT - 1)
}

/// The first time beyond a class.
pub fn class_end_ns(class: usize) -> u64 {
    let (steps, step) = (class >> STEP_BITS, class & ((1 << STEP_BITS) - 1));
    if steps == 0 {
        return (step as u64 + 1) << UNIT_BITS;
    }
    ((1 << STEP_BITS) + step as u64 + 1) << (steps as u32 - 1 + UNIT_BITS)
}

/// One worker's counts.
#[derive(Debug)]
pub struct LatencyCells {
    by_class: [Cell; CLASS_COUNT],
    samples: Cell,
    over: Cell,
    sum_ns: Cell,
}

impl Default for LatencyCells {
    fn default() -> LatencyCells {
        LatencyCells {
            by_class: std::array::from_fn(|_| Cell::default()),
            samples: Cell::default(),
            over: Cell::default(),
            sum_ns: Cell::default(),
        }
    }
}

impl LatencyCells {
    /// Records a request that took this long and was to take at most `target_ns`.
    #[inline]
    pub fn record(&self, ns: u64, target_ns: u64) {
        self.by_class[class_of(ns)].add(1);
        self.over.add(u64::from(ns > target_ns));
        self.sum_ns.add(ns);
        self.samples.add(1);
    }

    /// Records a number of requests that took this long each, without an objective.
    #[inline]
    pub fn record_many(&self, ns: u64, count: u64) {
        self.by_class[class_of(ns)].add(count);
        self.sum_ns.add(ns.saturating_mul(count));
        self.samples.add(count);
    }

    /// The number of sampled requests, and of those that took too long.
    pub fn samples_and_over(&self) -> (u64, u64) {
        (self.samples.get(), self.over.get())
    }
}

/// Counts of several workers, or of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts {
    /// By class.
    pub by_class: Box<[u64]>,
    /// Sampled requests.
    pub samples: u64,
    /// Those that took longer than the objective at their time.
    pub over: u64,
    /// The sum of their times.
    pub sum_ns: u64,
}

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        let by_class = vec![0; CLASS_COUNT].into_boxed_slice();
        LatencyCounts { by_class, samples: 0, over: 0, sum_ns: 0 }
    }
}

impl LatencyCounts {
    /// Sums over workers.
    pub fn sum<'a>(workers: impl Iterator<Item = &'a LatencyCells>) -> LatencyCounts {
        let mut counts = LatencyCounts::default();
        for cells in workers {
            for (sum, cell) in counts.by_class.iter_mut().zip(&cells.by_class) {
                *sum += cell.get();
            }
            counts.samples += cells.samples.get();
            counts.over += cells.over.get();
            counts.sum_ns += cells.sum_ns.get();
        }
        counts
    }

    /// The counts since `before`.
    pub fn since(&self, before: &LatencyCounts) -> LatencyCounts {
        let by_class = self.by_class.iter().zip(&before.by_class);
        LatencyCounts {
            by_class: by_class.map(|(now, then)| now.saturating_sub(*then)).collect(),
            samples: self.samples.saturating_sub(before.samples),
            over: self.over.saturating_sub(before.over),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }

    /// The time within which this fraction of the samples was answered; `None` without samples.
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let count: u64 = self.by_class.iter().sum();
        let wanted = ((count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let class = self.by_class.iter().position(|samples| {
            seen += samples;
            seen >= wanted
        })?;
        Some(class_end_ns(class))
    }

    /// The fraction that took too long; 0 without samples.
    pub fn over_ratio(&self) -> f64 {
        self.over as f64 / self.samples.max(1) as f64
    }

    /// For a histogram: bounds that double, each with the count of all samples at or below it.
    pub fn doublings(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut count = 0;
        self.by_class.chunks(1 << STEP_BITS).enumerate().map(move |(at, classes)| {
            count += classes.iter().sum::<u64>();
            (class_end_ns(((at + 1) << STEP_BITS) - 1), count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_one_another_and_end_where_the_next_begins() {
        for class in 0..CLASS_COUNT - 1 {
            let end_ns = class_end_ns(class);
            assert_eq!((class_of(end_ns - 1), class_of(end_ns)), (class, class + 1));
        }
        assert_eq!((class_of(0), class_of(u64::MAX)), (0, CLASS_COUNT - 1));
        assert!(class_end_ns(CLASS_COUNT - 1) > 17_000_000_000);
    }

    #[test]
    fn a_quantile_is_at_most_a_quarter_above_the_truth() {
        let cells = LatencyCells::default();
        (1..=1000).for_each(|us| cells.record(us * 1000, 900_000));
        let counts = LatencyCounts::sum([&cells].into_iter());
        for (part, truth_ns) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let told_ns = counts.quantile_ns(part).unwrap();
            assert!((truth_ns..truth_ns * 5 / 4).contains(&told_ns), "{part}: {told_ns}");
        }
        assert_eq!((counts.over, counts.over_ratio()), (100, 0.1));
        assert_eq!(LatencyCounts::default().quantile_ns(0.5), None);
    }

    #[test]
    fn workers_add_up_and_what_was_before_is_taken_off() {
        let cells = [LatencyCells::default(), LatencyCells::default()];
        cells[0].record(1_000, 2_000);
        let before = LatencyCounts::sum(cells.iter());
        cells[0].record(3_000, 2_000);
        cells[1].record(5_000, 2_000);
        let since = LatencyCounts::sum(cells.iter()).since(&before);
        assert_eq!((since.samples, since.over, since.sum_ns), (2, 2, 8_000));
        let (_, last) = since.doublings().last().unwrap();
        assert_eq!(last, 2);
    }
}
