//! Decides whether a load has a hot set at all, and when to look again.
//!
//! ```text
//!  samples of the epoch ──is_due──▶ counts ──select──▶ how many of the ranked keys are hot
//!
//!  share of the hot keys   0 ······· 10 % ······· 20 % ·······▶
//!                              off ◀──┤  as before  ├──▶ on
//! ```
//!
//! Under uniform keys the most frequent ones are those that chance has sampled two or three times.
//! So a key counts as hot only if it was sampled [`COUNT_MIN`] times, and a hot set begins only if
//! the hot keys together drew a fifth of the samples. It ends below a tenth, and after an epoch
//! with few samples, so that an idle server has none.

/// A key that was sampled less often may be among the most frequent by chance.
pub const COUNT_MIN: u32 = 5;

/// A hot set begins when its keys draw this share of the samples.
pub const ON_SHARE_RATIO: f64 = 0.2;

/// It ends below this share.
pub const OFF_SHARE_RATIO: f64 = 0.1;

/// With fewer samples an epoch says nothing about how keys are chosen.
pub const SAMPLES_MIN: u64 = 128;

/// An epoch lasts at least this long, and then until it has [`EPOCH_SAMPLES`].
pub const EPOCH_MS_MIN: u64 = 100;

/// It lasts at most this long, however few its samples.
pub const EPOCH_MS_MAX: u64 = 400;

/// Enough samples to see a key that draws one request in a thousand eight times.
pub const EPOCH_SAMPLES: u64 = 8192;

/// Whether the epoch may end.
pub fn is_due(elapsed_ms: u64, epoch_sample_count: u64) -> bool {
    elapsed_ms >= EPOCH_MS_MAX
        || (elapsed_ms >= EPOCH_MS_MIN && epoch_sample_count >= EPOCH_SAMPLES)
}

/// The numbers of samples.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// The samples in the epoch that ends.
    pub of_epoch: u64,
    /// The samples that the counts are from: including those of earlier epochs, halved with the
    /// counts.
    pub counted: u64,
}

/// Whether there is a hot set, with hysteresis.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worth {
    is_on: bool,
}

impl Worth {
    /// How many of the keys are hot, most frequent first: at most `size`, and none if a hot set is
    /// not worth the lookups.
    pub fn select(
        &mut self,
        counts: impl Iterator<Item = u32>,
        samples: Samples,
        size: usize,
    ) -> usize {
        let (key_count, hot_count) = frequent(counts, size);
        let least_ratio = if self.is_on { OFF_SHARE_RATIO } else { ON_SHARE_RATIO };
        let is_enough = hot_count as f64 >= least_ratio * samples.counted as f64;
        self.is_on = key_count > 0 && samples.of_epoch >= SAMPLES_MIN && is_enough;
        if self.is_on { key_count } else { 0 }
    }

    /// Like `select`, for another size within an epoch: the decision whether a hot set is worth it
    /// stays.
    pub fn resize(&self, counts: impl Iterator<Item = u32>, size: usize) -> usize {
        if self.is_on { frequent(counts, size).0 } else { 0 }
    }
}

/// The number of the first `size` keys that are not there by chance, and the sum of their samples.
pub fn frequent(counts: impl Iterator<Item = u32>, size: usize) -> (usize, u64) {
    let counts = counts.take(size).take_while(|count| *count >= COUNT_MIN);
    counts.fold((0, 0), |(keys, samples), count| (keys + 1, samples + u64::from(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THOUSAND: Samples = Samples { of_epoch: 1000, counted: 1000 };

    /// A hot set of at most 4 keys whose counts are parts of 1,000 samples.
    #[track_caller]
    fn check(worth: &mut Worth, counts: &[u32], want: usize) {
        assert_eq!(worth.select(counts.iter().copied(), THOUSAND, 4), want, "{counts:?}");
    }

    #[test]
    fn a_hot_set_begins_at_a_fifth_of_the_samples_and_ends_below_a_tenth() {
        let worth = &mut Worth::default();
        check(worth, &[100, 99], 0);
        check(worth, &[100, 100], 2);
        check(worth, &[60, 40], 2);
        check(worth, &[60, 39], 0);
        check(worth, &[100, 60], 0);
    }

    #[test]
    fn keys_beyond_the_size_and_keys_of_chance_do_not_count() {
        let worth = &mut Worth::default();
        check(worth, &[49, 49, 49, 49, 49, 49], 0);
        check(worth, &[50, 50, 50, 50, 50, 50], 4);
        check(worth, &[150, COUNT_MIN, COUNT_MIN - 1], 2);
        assert_eq!(worth.select([500].into_iter(), THOUSAND, 0), 0);
    }

    #[test]
    fn an_epoch_of_few_samples_has_no_hot_set_whatever_was_counted_before() {
        let worth = &mut Worth::default();
        let mut select =
            |of_epoch| worth.select([900].into_iter(), Samples { of_epoch, counted: 1000 }, 4);
        assert_eq!([select(SAMPLES_MIN), select(SAMPLES_MIN - 1), select(0)], [1, 0, 0]);
    }

    #[test]
    fn a_load_about_the_threshold_switches_once() {
        let worth = &mut Worth::default();
        let sizes = (0..100).map(|epoch| {
            let hot = if epoch % 2 == 0 { 205 } else { 195 };
            worth.select([hot].into_iter(), THOUSAND, 4)
        });
        assert!(sizes.into_iter().all(|size| size == 1));
    }

    #[test]
    fn an_epoch_ends_with_enough_samples_or_after_its_longest_time() {
        assert!(!is_due(99, 1 << 20));
        assert!(is_due(100, EPOCH_SAMPLES));
        assert!(!is_due(399, EPOCH_SAMPLES - 1));
        assert!(is_due(400, 0));
    }
}
