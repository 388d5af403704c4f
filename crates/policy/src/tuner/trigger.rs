//! The trigger: decides whether the load has changed lastingly. Only then is a search worth its
//! price.
//!
//! ```text
//!  rest (no verdict) ─▶ baseline: mean of the next windows ─▶ watch ─▶ changed 3 windows in a row
//!                            └─▶ changed since the search ─▶ search at once
//! ```
//!
//! The baseline does not follow the load. A moving baseline would absorb a slow drift for ever;
//! this one notices the drift once it has added up. The spread of the baseline's windows is the
//! load's noise; a change must be larger than that.

use super::{Cause, Measurement, SLO_OVER_RATIO_MAX, TunerRules};

#[derive(Debug)]
enum Phase {
    Resting {
        window_count: u32,
    },
    Averaging(Sums),
    /// `changed`: the last windows, all of which differ from the baseline.
    Watching {
        baseline: Baseline,
        changed: Sums,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    window_count: u32,
    score_rps: f64,
    /// The sum of the squared scores.
    score_square: f64,
    hot_share_ratio: f64,
    over_slo_ratio: f64,
}

/// A load, with which later windows are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    /// The throughput, reduced if the objective is missed ([`Measurement::score_rps`]).
    pub(super) score_rps: f64,
    pub(super) hot_share_ratio: f64,
    pub(super) over_slo_ratio: f64,
    /// The standard deviation of the score over its mean.
    pub(super) noise_ratio: f64,
}

/// Observes one measurement after another.
#[derive(Debug)]
pub(super) struct Trigger {
    phase: Phase,
    /// The load that the last search was for: a baseline that differs from it triggers a search, as
    /// does the first one of all.
    searched: Option<Baseline>,
}

impl Trigger {
    pub(super) fn at_start() -> Trigger {
        Trigger { phase: Phase::Averaging(Sums::default()), searched: None }
    }

    /// `searched`: the load that the search was for; `None`: no search has ended yet.
    pub(super) fn after_search(rest_window_count: u32, searched: Option<Baseline>) -> Trigger {
        Trigger { phase: Phase::Resting { window_count: rest_window_count }, searched }
    }

    /// The load that the last search was for.
    pub(super) fn searched(&self) -> Option<Baseline> {
        self.searched
    }

    /// Whether it makes no decision, because a search has just ended.
    pub(super) fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting { .. })
    }

    /// Notes a window without information: changes before and after it do not count as in a row,
    /// and a rest continues.
    pub(super) fn interrupt(&mut self) {
        match &mut self.phase {
            Phase::Resting { window_count } => *window_count = window_count.saturating_sub(1),
            Phase::Averaging(sums) => *sums = Sums::default(),
            Phase::Watching { changed, .. } => *changed = Sums::default(),
        }
    }

    /// Whether a search is due, and why; with the load that it is for.
    pub(super) fn observe(
        &mut self,
        rules: &TunerRules,
        measurement: Measurement,
    ) -> Option<(Cause, Baseline)> {
        match &mut self.phase {
            Phase::Resting { window_count } if *window_count > 1 => *window_count -= 1,
            Phase::Resting { .. } => self.phase = Phase::Averaging(Sums::default()),
            Phase::Averaging(sums) => {
                sums.add(measurement);
                if sums.window_count >= rules.baseline_window_count {
                    let baseline = sums.baseline();
                    self.phase = Phase::Watching { baseline, changed: Sums::default() };
                    let first = Cause::FirstBaseline { throughput_rps: baseline.score_rps };
                    let cause = match &self.searched {
                        None => Some(first),
                        Some(searched) => searched.changed_to(rules, &baseline),
                    };
                    return cause.map(|cause| (cause, baseline));
                }
            }
            Phase::Watching { baseline, changed } => {
                let cause = baseline.change(rules, measurement);
                match cause {
                    Some(_) => changed.add(measurement),
                    None => *changed = Sums::default(),
                }
                if changed.window_count >= rules.change_window_count {
                    // Too few windows to tell their noise.
                    let now = Baseline { noise_ratio: baseline.noise_ratio, ..changed.baseline() };
                    return cause.map(|cause| (cause, now));
                }
            }
        }
        None
    }
}

impl Sums {
    fn add(&mut self, measurement: Measurement) {
        self.window_count += 1;
        let score_rps = measurement.score_rps();
        self.score_rps += score_rps;
        self.score_square += score_rps * score_rps;
        self.hot_share_ratio += measurement.hot_share_ratio;
        self.over_slo_ratio += measurement.over_slo_ratio;
    }

    fn baseline(&self) -> Baseline {
        let window_count = f64::from(self.window_count);
        let score_rps = self.score_rps / window_count;
        let variance = self.score_square / window_count - score_rps * score_rps;
        Baseline {
            score_rps,
            hot_share_ratio: self.hot_share_ratio / window_count,
            over_slo_ratio: self.over_slo_ratio / window_count,
            // Rounding can leave a variance just below zero.
            noise_ratio: variance.max(0.0).sqrt() / score_rps.max(1.0),
        }
    }
}

impl Baseline {
    /// The load of one window.
    pub(super) fn of(window: Measurement, noise_ratio: f64) -> Baseline {
        Baseline {
            score_rps: window.score_rps(),
            hot_share_ratio: window.hot_share_ratio,
            over_slo_ratio: window.over_slo_ratio,
            noise_ratio,
        }
    }

    /// The change to one window.
    fn change(&self, rules: &TunerRules, now: Measurement) -> Option<Cause> {
        self.changed_to(rules, &Baseline::of(now, self.noise_ratio))
    }

    /// The change to another baseline.
    fn changed_to(&self, rules: &TunerRules, now: &Baseline) -> Option<Cause> {
        let score_change = (now.score_rps - self.score_rps).abs();
        let share_change = (now.hot_share_ratio - self.hot_share_ratio).abs();
        let noise_ratio = self.noise_ratio.max(now.noise_ratio);
        let change_ratio = rules.change_ratio.max(rules.noise_factor * noise_ratio);
        if score_change > change_ratio * self.score_rps {
            let (from_rps, to_rps) = (self.score_rps, now.score_rps);
            let (from_ratio, to_ratio) = (self.over_slo_ratio, now.over_slo_ratio);
            let (was_kept, is_kept) =
                (from_ratio <= SLO_OVER_RATIO_MAX, to_ratio <= SLO_OVER_RATIO_MAX);
            return Some(match was_kept == is_kept {
                true => Cause::Throughput { from_rps, to_rps },
                false => Cause::Slo { from_ratio, to_ratio },
            });
        }
        let (from_ratio, to_ratio) = (self.hot_share_ratio, now.hot_share_ratio);
        (share_change > rules.hot_share_change_ratio)
            .then_some(Cause::HotShare { from_ratio, to_ratio })
    }
}
