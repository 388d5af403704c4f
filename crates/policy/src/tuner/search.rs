//! One search: it trisects the threads for each cache size, then the ways once, then compares the
//! best configuration with the old one.
//!
//! ```text
//!  no MR layer ─▶ size 0: threads ─▶ size 1: threads ─▶ ... ─▶ ways ─▶ best, old, old, best
//!  (1 window)     └───── Trisection, hinted by the best split so far ──┘ (4 windows)
//! ```
//!
//! The best of dozens of noisy windows is partly luck. So it is measured again, on both sides of it
//! the old configuration, and the worse of its two windows has to beat the better of the old one's
//! by a margin: a load that rises or falls once in between makes neither look better. If the best
//! is far from its earlier result, the workload has changed meanwhile, and all measurements are
//! void. (Or the windows are very noisy: so the search does not restart for ever, and the last
//! windows decide.)

use super::{Configuration, Ranges, RunToCompletion, Trisection, TunerRules};

#[derive(Clone, Debug)]
enum Stage {
    NoLayer,
    Threads { cached_item_count: u32, trisection: Trisection },
    Ways { trisection: Trisection },
    Confirm { measured: [f64; 3], count: usize },
}

/// The results of the last windows of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confirmed {
    /// The new configuration's throughput, in the worse of its windows.
    pub best_rps: f64,
    /// The old configuration's throughput, in the better of its windows.
    pub incumbent_rps: f64,
}

/// Whether a search may restart if the workload changed during it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// It may restart.
    Allowed,
    /// It has restarted as often as allowed.
    UsedUp,
}

/// The step after a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Another window, under this configuration.
    Try(Configuration),
    /// The search has ended: this configuration is better than the old one.
    Adopt(Configuration, Confirmed),
    /// The search has ended: none is better than the old one.
    Keep(Option<Confirmed>),
    /// The search has ended: the workload changed meanwhile, and a restart is allowed.
    Contradicted,
}

/// A search in progress.
#[derive(Clone, Debug)]
pub(super) struct Search {
    stage: Stage,
    incumbent: Configuration,
    best: Configuration,
    best_rps: f64,
    restart: Restart,
}

impl Search {
    /// The number of windows at the end that compare the best configuration with the old one.
    pub(super) const CONFIRM_WINDOW_COUNT: u32 = 4;

    pub(super) fn new(
        ranges: &Ranges,
        rules: &TunerRules,
        incumbent: Configuration,
        restart: Restart,
    ) -> Search {
        let (stage, best_rps) = (Stage::NoLayer, f64::NEG_INFINITY);
        let mut search = Search { stage, incumbent, best: incumbent, best_rps, restart };
        if ranges.run_to_completion == RunToCompletion::Excluded {
            search.stage = search.threads(ranges, rules, 0);
        }
        search
    }

    /// Whether the search may restart.
    pub(super) fn restart(&self) -> Restart {
        self.restart
    }

    /// The configuration that the search began with.
    pub(super) fn incumbent(&self) -> Configuration {
        self.incumbent
    }

    /// The configuration for the next window.
    pub(super) fn next(&self) -> Configuration {
        let unfinished = "a stage that is over is left";
        match &self.stage {
            Stage::NoLayer => {
                Configuration { mr_thread_count: 0, cached_item_count: 0, ..self.incumbent }
            }
            Stage::Threads { cached_item_count, trisection } => Configuration {
                mr_thread_count: trisection.next().expect(unfinished),
                cached_item_count: *cached_item_count,
                ..self.incumbent
            },
            Stage::Ways { trisection } => {
                Configuration { mr_way_count: trisection.next().expect(unfinished), ..self.best }
            }
            Stage::Confirm { count: 1 | 2, .. } => self.incumbent,
            Stage::Confirm { .. } => self.best,
        }
    }

    /// Takes the result of the window under `next`. To be adopted, the best configuration must beat
    /// the old one by `gain_min_ratio`.
    pub(super) fn record(
        &mut self,
        ranges: &Ranges,
        rules: &TunerRules,
        gain_min_ratio: f64,
        rps: f64,
    ) -> Outcome {
        let tried = self.next();
        match &mut self.stage {
            Stage::Confirm { measured: [first_best_rps, one_rps, other_rps], count: 3 } => {
                let best_rps = first_best_rps.min(rps);
                let incumbent_rps = one_rps.max(*other_rps);
                let confirmed = Confirmed { best_rps, incumbent_rps };
                let is_better = best_rps > incumbent_rps * (1.0 + gain_min_ratio);
                return if is_better {
                    Outcome::Adopt(self.best, confirmed)
                } else {
                    Outcome::Keep(Some(confirmed))
                };
            }
            Stage::Confirm { measured, count } => {
                let is_other = (rps - self.best_rps).abs() > rules.change_ratio * self.best_rps;
                if *count == 0 && is_other && self.restart == Restart::Allowed {
                    return Outcome::Contradicted;
                }
                measured[*count] = rps;
                *count += 1;
            }
            Stage::Threads { trisection, .. } | Stage::Ways { trisection } => {
                trisection.record(rps);
                self.note(tried, rps);
                self.leave_finished_stage(ranges, rules);
            }
            Stage::NoLayer => {
                self.note(tried, rps);
                self.stage = self.threads(ranges, rules, 0);
            }
        }
        match self.stage {
            Stage::Confirm { .. } if self.best == self.incumbent => Outcome::Keep(None),
            _ => Outcome::Try(self.next()),
        }
    }

    fn note(&mut self, tried: Configuration, rps: f64) {
        if rps > self.best_rps {
            (self.best, self.best_rps) = (tried, rps);
        }
    }

    fn leave_finished_stage(&mut self, ranges: &Ranges, rules: &TunerRules) {
        self.stage = match &self.stage {
            Stage::Threads { cached_item_count, trisection } if trisection.next().is_none() => {
                let next_count = cached_item_count + ranges.cached_item_step;
                if next_count <= ranges.cached_item_count_max {
                    self.threads(ranges, rules, next_count)
                } else if ranges.mr_way_count.start() == ranges.mr_way_count.end() {
                    Stage::Confirm { measured: [0.0; 3], count: 0 }
                } else {
                    let hint = self.best.mr_way_count;
                    let ways = &ranges.mr_way_count;
                    Stage::Ways { trisection: Trisection::new(ways, hint, rules.tie_ratio) }
                }
            }
            Stage::Ways { trisection } if trisection.next().is_none() => {
                Stage::Confirm { measured: [0.0; 3], count: 0 }
            }
            _ => return,
        };
    }

    fn threads(&self, ranges: &Ranges, rules: &TunerRules, cached_item_count: u32) -> Stage {
        let hint = self.best.mr_thread_count;
        let trisection = Trisection::new(&ranges.mr_thread_count, hint, rules.tie_ratio);
        Stage::Threads { cached_item_count, trisection }
    }
}
