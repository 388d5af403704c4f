//! Round-trip times: the estimate and the retransmission timeout of RFC 6298, and a histogram.

/// Smoothed round-trip time and its variation (RFC 6298 §2).
///
/// A retransmitted frame has a new number, so every sample is of one transmission and Karn's rule
/// is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RttEstimate {
    /// 0: no sample yet.
    smoothed_ns: u64,
    variation_ns: u64,
}

impl RttEstimate {
    /// Adds a sample.
    pub fn observe(&mut self, rtt_ns: u64) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = rtt_ns.max(1);
            self.variation_ns = rtt_ns / 2;
            return;
        }
        let error_ns = self.smoothed_ns.abs_diff(rtt_ns);
        self.variation_ns = self.variation_ns - self.variation_ns / 4 + error_ns / 4;
        self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + rtt_ns / 8).max(1);
    }

    /// `None` before the first sample.
    pub fn smoothed_ns(&self) -> Option<u64> {
        (self.smoothed_ns > 0).then_some(self.smoothed_ns)
    }

    /// The time after which a frame that later ones have overtaken counts as lost; `None` before
    /// the first sample.
    pub fn overtaken_after_ns(&self) -> Option<u64> {
        let smoothed_ns = self.smoothed_ns()?;
        Some(smoothed_ns + (smoothed_ns / 4).max(4 * self.variation_ns))
    }

    /// The time after which an unanswered frame counts as lost, within bounds; the upper bound
    /// before any sample.
    pub fn retransmit_after_ns(&self, min_ns: u64, first_ns: u64) -> u64 {
        match self.smoothed_ns() {
            None => first_ns,
            Some(smoothed_ns) => (smoothed_ns + 4 * self.variation_ns).max(min_ns),
        }
    }
}

const STEPS_PER_OCTAVE: usize = 4;
const OCTAVES: usize = 40;

/// Round trips, four buckets to a doubling, from 1 ns to 18 minutes: adding one costs a few
/// instructions and a line of cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RttHistogram {
    counts: [u32; OCTAVES * STEPS_PER_OCTAVE],
}

impl Default for RttHistogram {
    fn default() -> RttHistogram {
        RttHistogram { counts: [0; OCTAVES * STEPS_PER_OCTAVE] }
    }
}

impl RttHistogram {
    pub(crate) fn add(&mut self, rtt_ns: u64) {
        let bucket = Self::bucket(rtt_ns);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
    }

    /// The number of measured round trips.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The upper end of the bucket with this quantile (0 to 1); `None` without samples.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count);
        let mut below = 0;
        let found = self.counts.iter().position(|in_bucket| {
            below += u64::from(*in_bucket);
            below >= rank
        });
        found.map(Self::upper_ns)
    }

    fn bucket(rtt_ns: u64) -> usize {
        let rtt_ns = rtt_ns.max(STEPS_PER_OCTAVE as u64);
        let octave = rtt_ns.ilog2() as usize;
        let step = (rtt_ns >> (octave - 2)) as usize & (STEPS_PER_OCTAVE - 1);
        (octave * STEPS_PER_OCTAVE + step).min(OCTAVES * STEPS_PER_OCTAVE - 1)
    }

    fn upper_ns(bucket: usize) -> u64 {
        let (octave, step) = (bucket / STEPS_PER_OCTAVE, (bucket % STEPS_PER_OCTAVE) as u64);
        ((STEPS_PER_OCTAVE as u64 + step + 1) << octave.max(2)) / STEPS_PER_OCTAVE as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_the_estimate_and_later_ones_move_it() {
        let mut rtt = RttEstimate::default();
        assert_eq!(rtt.retransmit_after_ns(5, 1000), 1000);
        rtt.observe(100);
        assert_eq!(rtt.retransmit_after_ns(5, 1000), 300, "R + 4 * R/2");
        rtt.observe(180);
        assert_eq!(rtt.smoothed_ns(), Some(110));
        assert_eq!(rtt.retransmit_after_ns(5, 1000), 110 + 4 * (50 - 12 + 20));
        for _ in 0..200 {
            rtt.observe(80);
        }
        assert_eq!(rtt.retransmit_after_ns(500, 1000), 500, "the lower bound");
    }

    #[track_caller]
    fn check_bucket(rtt_ns: u64, upper_ns: u64) {
        let mut histogram = RttHistogram::default();
        histogram.add(rtt_ns);
        assert_eq!(histogram.quantile_ns(0.5), Some(upper_ns));
    }

    #[test]
    fn a_bucket_is_a_quarter_of_a_doubling() {
        check_bucket(0, 4);
        check_bucket(1024, 1279);
        check_bucket(1279, 1279);
        check_bucket(1280, 1535);
        check_bucket(20_000, 20_479);
        assert!(RttHistogram::default().quantile_ns(0.5).is_none());
        let mut histogram = RttHistogram::default();
        (1..=100).for_each(|us| histogram.add(us * 1000));
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.quantile_ns(0.99), Some(114_687));
    }

    #[test]
    fn no_round_trip_is_too_long_for_the_histogram() {
        let mut histogram = RttHistogram::default();
        histogram.add(u64::MAX);
        assert!(histogram.quantile_ns(1.0).is_some());
    }
}
