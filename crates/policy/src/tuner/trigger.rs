//! Has the load changed, and for good? Only then is a search worth its price.
//!
//! ```text
//!  rest (no verdict) ─▶ baseline: mean of the next windows ─▶ watch ─▶ changed 3 windows in a row
//! ```
//!
//! The baseline does not follow the load. A moving one would swallow a slow drift for ever; this
//! one notices it once it has added up.

use super::{Measurement, TunerRules};

#[derive(Debug)]
enum Phase {
    Resting { window_count: u32 },
    Averaging { sum: Measurement, window_count: u32 },
    Watching { baseline: Measurement, change_count: u32 },
}

/// Watches one measurement after another.
#[derive(Debug)]
pub(super) struct Trigger {
    phase: Phase,
    /// The first baseline is news in itself: nothing was ever tuned.
    fires_on_baseline: bool,
}

const NOTHING: Measurement = Measurement { throughput_rps: 0.0, hot_share_ratio: 0.0 };

impl Trigger {
    pub(super) fn at_start() -> Trigger {
        let phase = Phase::Averaging { sum: NOTHING, window_count: 0 };
        Trigger { phase, fires_on_baseline: true }
    }

    pub(super) fn after_search(rest_window_count: u32) -> Trigger {
        let phase = Phase::Resting { window_count: rest_window_count };
        Trigger { phase, fires_on_baseline: false }
    }

    /// Whether a search is due.
    pub(super) fn observe(&mut self, rules: &TunerRules, measurement: Measurement) -> bool {
        match &mut self.phase {
            Phase::Resting { window_count } if *window_count > 1 => *window_count -= 1,
            Phase::Resting { .. } => {
                self.phase = Phase::Averaging { sum: NOTHING, window_count: 0 };
            }
            Phase::Averaging { sum, window_count } => {
                sum.throughput_rps += measurement.throughput_rps;
                sum.hot_share_ratio += measurement.hot_share_ratio;
                *window_count += 1;
                if *window_count >= rules.baseline_window_count {
                    let baseline = mean(*sum, *window_count);
                    self.phase = Phase::Watching { baseline, change_count: 0 };
                    return self.fires_on_baseline;
                }
            }
            Phase::Watching { baseline, change_count } => {
                let is_other = has_changed(rules, baseline, &measurement);
                *change_count = if is_other { *change_count + 1 } else { 0 };
                return *change_count >= rules.change_window_count;
            }
        }
        false
    }
}

fn mean(sum: Measurement, window_count: u32) -> Measurement {
    let window_count = f64::from(window_count);
    Measurement {
        throughput_rps: sum.throughput_rps / window_count,
        hot_share_ratio: sum.hot_share_ratio / window_count,
    }
}

fn has_changed(rules: &TunerRules, baseline: &Measurement, now: &Measurement) -> bool {
    let throughput_change = (now.throughput_rps - baseline.throughput_rps).abs();
    let share_change = (now.hot_share_ratio - baseline.hot_share_ratio).abs();
    throughput_change > rules.change_ratio * baseline.throughput_rps
        || share_change > rules.hot_share_change_ratio
}
