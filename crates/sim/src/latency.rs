//! Latency histogram of a run: counts every request, and gives quantiles to 0.1 %.

/// Counts of latencies in log-linear classes: exact below 2048 units, then 1024 classes for each
/// factor of two.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    max: u64,
}

const CLASS_BITS: u32 = 11;

impl Latencies {
    /// Counts one latency, in whole units (nanoseconds, or thousandths of a service time).
    #[inline]
    pub fn record(&mut self, latency: u64) {
        let class = class_of(latency);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.count += 1;
        self.sum += latency as f64;
        self.max = self.max.max(latency);
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 when there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The top of the class that holds the `quantile` (0 to 1); 0 when there are none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile * self.count as f64 + 0.5) as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top_of(class);
            }
        }
        0
    }

    /// The quantile of these and `late_count` more that are later than all; `None`: it is among
    /// those.
    pub fn quantile_beside(&self, quantile: f64, late_count: u64) -> Option<u64> {
        let all = (self.count + late_count) as f64;
        let rank = (quantile * all + 0.5) as u64;
        (rank <= self.count).then(|| self.quantile(rank as f64 / self.count.max(1) as f64))
    }

    /// Adds another run's.
    pub fn merge(&mut self, other: &Latencies) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

/// Below `2^CLASS_BITS` one class per unit; above, `2^(CLASS_BITS-1)` classes per factor of two.
fn class_of(latency: u64) -> usize {
    let shift = (64 - latency.leading_zeros()).saturating_sub(CLASS_BITS);
    ((u64::from(shift) << (CLASS_BITS - 1)) + (latency >> shift)) as usize
}

fn top_of(class: usize) -> u64 {
    let half = 1_usize << (CLASS_BITS - 1);
    let shift = (class / half).saturating_sub(1);
    let low = (class - shift * half) as u64;
    ((low + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::{Latencies, class_of, top_of};

    #[test]
    fn classes_follow_each_other_and_hold_what_they_say() {
        let mut last = 0;
        for latency in (0..100_000).chain((17..40).map(|bit| 1_u64 << bit)) {
            let class = class_of(latency);
            let top = top_of(class);
            assert!(top >= latency && (top - latency) as f64 <= latency as f64 / 1024.0);
            assert_eq!(class_of(top), class);
            if latency < 100_000 {
                assert!(class == last || class == last + 1, "{latency}");
                last = class;
            }
        }
    }

    #[test]
    fn quantiles_are_the_ranks() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|latency| latencies.record(latency));
        for (quantile, want) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            assert_eq!(latencies.quantile(quantile), want);
        }
        assert_eq!((latencies.count(), latencies.max(), latencies.mean()), (1000, 1000, 500.5));
        assert_eq!(Latencies::default().quantile(0.99), 0);
        assert_eq!(latencies.quantile_beside(0.99, 0), Some(990));
        assert_eq!(latencies.quantile_beside(0.9, 100), Some(990));
        assert_eq!(latencies.quantile_beside(0.99, 100), None);
    }
}
