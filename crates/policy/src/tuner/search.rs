//! One search: it tries each policy without layers, trisects the threads for each cache size, then
//! the ways once, then compares the best configuration with the old one.
//!
//! ```text
//!  policies ─▶ size 0: threads ─▶ size 1: threads ─▶ ... ─▶ ways ─▶ best, old, old, best, ...
//!              └───── Trisection, hinted by the best split so far ──┘  (2, 8, 32 or 128 pairs)
//! ```
//!
//! The best of dozens of noisy windows is partly luck. So it is measured again, in pairs with the
//! old configuration whose order changes, so that a load that rises or falls makes neither look
//! better. If windows hardly differ, 2 pairs may do: the worse window of the best has to beat the
//! better one of the old by a margin. Otherwise more pairs follow, until the mean difference is
//! four to six times its error, or a gain is unlikely. If the best is far from its earlier result,
//! the workload has changed meanwhile, and all measurements are void. (Or the windows are very
//! noisy: so the search does not restart for ever, and the last windows decide.)

use super::{Configuration, Ranges, RunToCompletion, Trisection, TunerRules};
use crate::routers::Policies;

/// Windows whose noise exceeds this are repeated, and their mean counts.
const REPEATED_NOISE_RATIO: f64 = 0.05;

/// The most windows for one configuration.
const REPEATS_MAX: u32 = 9;

/// A search that would take more windows than this before the confirmation repeats fewer.
const TRIED_WINDOWS_MAX: u32 = 200;

/// A mean difference of more than this many times its error is not taken for luck, however often it
/// is looked at.
const ERRORS_TO_ADOPT: f64 = 4.0;

/// So much more, divided by the number of pairs: the error of few pairs is not well known.
const ERRORS_OF_FEW_PAIRS: f64 = 16.0;

/// If even the mean difference plus this many errors is no worthwhile gain, the old one stays.
const ERRORS_TO_KEEP: f64 = 2.0;

#[derive(Clone, Debug)]
enum Stage {
    NoLayer { index: usize },
    Threads { cached_item_count: u32, trisection: Trisection },
    Ways { trisection: Trisection },
    Confirm(Pairs),
}

/// The results of the last windows of a search: means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confirmed {
    /// The new configuration's throughput.
    pub best_rps: f64,
    /// The old configuration's throughput.
    pub incumbent_rps: f64,
}

/// The throughputs that a search has measured before its last windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    /// Without layers, by policies.
    pub one_layer: Vec<(Policies, f64)>,
    /// The best of two layers, if any were tried.
    pub two_layers_rps: Option<f64>,
}

impl Tried {
    /// The throughput of a configuration without layers, if it was tried.
    pub(super) fn rps_of(&self, configuration: &Configuration) -> Option<f64> {
        let is_one = |(policies, _): &&(Policies, f64)| *policies == configuration.policies;
        let found = self.one_layer.iter().find(is_one)?;
        (configuration.mr_thread_count == 0).then_some(found.1)
    }
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

/// What a search begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// The configuration in force.
    pub(super) incumbent: Configuration,
    /// The load's noise: the standard deviation of windows over their mean.
    pub(super) noise_ratio: f64,
    /// Whether the search may restart.
    pub(super) restart: Restart,
}

/// A search in progress.
#[derive(Clone, Debug)]
pub(super) struct Search {
    stage: Stage,
    begin: Begin,
    best: Configuration,
    best_rps: f64,
    tried: Tried,
    /// Windows for each configuration, and those of the present one so far.
    repeats: u32,
    repeated: u32,
    repeated_rps: f64,
}

impl Search {
    /// Pairs of windows that compare the best configuration with the old one, at least.
    pub(super) const CONFIRM_PAIRS_MIN: u32 = 2;

    /// The same, at most.
    pub(super) const CONFIRM_PAIRS_MAX: u32 = 128;

    /// Windows for one configuration, at most, where so many configurations may be tried.
    pub(super) fn repeats_max(point_count: u32) -> u32 {
        (TRIED_WINDOWS_MAX / point_count.max(1)).clamp(1, REPEATS_MAX)
    }

    pub(super) fn new(ranges: &Ranges, rules: &TunerRules, begin: Begin) -> Search {
        let wanted = (begin.noise_ratio / REPEATED_NOISE_RATIO).powi(2).ceil();
        let repeats_max = f64::from(Search::repeats_max(ranges.point_count_max()));
        let mut search = Search {
            stage: Stage::NoLayer { index: 0 },
            begin,
            best: begin.incumbent,
            best_rps: f64::NEG_INFINITY,
            tried: Tried::default(),
            repeats: wanted.clamp(1.0, repeats_max) as u32,
            repeated: 0,
            repeated_rps: 0.0,
        };
        if ranges.run_to_completion == RunToCompletion::Excluded {
            search.stage = search.threads(ranges, rules, 0);
        }
        search
    }

    /// Whether the search may restart.
    pub(super) fn restart(&self) -> Restart {
        self.begin.restart
    }

    /// The configuration that the search began with.
    pub(super) fn incumbent(&self) -> Configuration {
        self.begin.incumbent
    }

    /// What was measured, at the end of the search.
    pub(super) fn take_tried(&mut self, outcome: &Outcome) -> Tried {
        match outcome {
            Outcome::Try(_) => Tried::default(),
            _ => std::mem::take(&mut self.tried),
        }
    }

    /// The configuration for the next window.
    pub(super) fn next(&self, ranges: &Ranges) -> Configuration {
        let unfinished = "a stage that is over is left";
        let incumbent = self.begin.incumbent;
        match &self.stage {
            Stage::NoLayer { index } => Configuration {
                policies: ranges.policies[*index],
                mr_thread_count: 0,
                cached_item_count: 0,
                ..incumbent
            },
            Stage::Threads { cached_item_count, trisection } => Configuration {
                policies: ranges.policies[0],
                mr_thread_count: trisection.next().expect(unfinished),
                cached_item_count: *cached_item_count,
                ..incumbent
            },
            Stage::Ways { trisection } => {
                Configuration { mr_way_count: trisection.next().expect(unfinished), ..self.best }
            }
            Stage::Confirm(pairs) if pairs.is_incumbents_turn() => incumbent,
            Stage::Confirm(_) => self.best,
        }
    }

    /// Takes the result of the window under `next`.
    pub(super) fn record(&mut self, ranges: &Ranges, rules: &TunerRules, rps: f64) -> Outcome {
        if let Stage::Confirm(pairs) = &mut self.stage {
            let change_ratio = rules.change_ratio.max(rules.noise_factor * self.begin.noise_ratio);
            let is_other = (rps - self.best_rps).abs() > change_ratio * self.best_rps;
            if pairs.is_empty() && is_other && self.begin.restart == Restart::Allowed {
                return Outcome::Contradicted;
            }
            pairs.add(rps);
            return match pairs.verdict(rules, self.begin.noise_ratio) {
                None => Outcome::Try(self.next(ranges)),
                Some((true, confirmed)) => Outcome::Adopt(self.best, confirmed),
                Some((false, confirmed)) => Outcome::Keep(Some(confirmed)),
            };
        }
        self.repeated += 1;
        self.repeated_rps += rps;
        if self.repeated == self.repeats {
            let mean_rps = self.repeated_rps / f64::from(self.repeats);
            (self.repeated, self.repeated_rps) = (0, 0.0);
            self.leave_point(ranges, rules, mean_rps);
        }
        match self.stage {
            Stage::Confirm(_) if self.best == self.begin.incumbent => Outcome::Keep(None),
            _ => Outcome::Try(self.next(ranges)),
        }
    }

    /// Ends the windows of one configuration.
    fn leave_point(&mut self, ranges: &Ranges, rules: &TunerRules, rps: f64) {
        let point = self.next(ranges);
        if rps > self.best_rps {
            (self.best, self.best_rps) = (point, rps);
        }
        match &mut self.stage {
            Stage::NoLayer { index } => {
                *index += 1;
                let is_over = *index == ranges.policies.len();
                self.tried.one_layer.push((point.policies, rps));
                if is_over {
                    self.stage = self.threads(ranges, rules, 0);
                }
            }
            Stage::Threads { trisection, .. } | Stage::Ways { trisection } => {
                trisection.record(rps);
                if point.mr_thread_count > 0 {
                    let so_far_rps = self.tried.two_layers_rps.unwrap_or(rps);
                    self.tried.two_layers_rps = Some(so_far_rps.max(rps));
                }
                self.leave_finished_stage(ranges, rules);
            }
            Stage::Confirm(_) => {}
        }
    }

    fn leave_finished_stage(&mut self, ranges: &Ranges, rules: &TunerRules) {
        self.stage = match &self.stage {
            Stage::Threads { cached_item_count, trisection } if trisection.next().is_none() => {
                let next_count = cached_item_count + ranges.cached_item_step;
                if next_count <= ranges.cached_item_count_max {
                    self.threads(ranges, rules, next_count)
                } else if ranges.mr_way_count.start() == ranges.mr_way_count.end() {
                    Stage::Confirm(Pairs::default())
                } else {
                    let hint = self.best.mr_way_count;
                    let ways = &ranges.mr_way_count;
                    Stage::Ways { trisection: Trisection::new(ways, hint, rules.tie_ratio) }
                }
            }
            Stage::Ways { trisection } if trisection.next().is_none() => {
                Stage::Confirm(Pairs::default())
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

/// Windows of the best configuration and the old one, in pairs: best, old, old, best, and so on.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    window_count: u32,
    /// The first window of a pair.
    first_rps: f64,
    best_sum_rps: f64,
    incumbent_sum_rps: f64,
    /// The sum of the squares of best minus old.
    difference_square: f64,
    /// The worst window of the best, and the best window of the old.
    best_min_rps: f64,
    incumbent_max_rps: f64,
}

impl Pairs {
    fn is_empty(&self) -> bool {
        self.window_count == 0
    }

    fn is_incumbents_turn(&self) -> bool {
        matches!(self.window_count % 4, 1 | 2)
    }

    fn add(&mut self, rps: f64) {
        if self.is_incumbents_turn() {
            self.incumbent_sum_rps += rps;
            self.incumbent_max_rps = self.incumbent_max_rps.max(rps);
        } else {
            self.best_min_rps = if self.is_empty() { rps } else { self.best_min_rps.min(rps) };
            self.best_sum_rps += rps;
        }
        if self.window_count.is_multiple_of(2) {
            self.first_rps = rps;
        } else {
            // The sign does not matter to the square.
            self.difference_square += (rps - self.first_rps).powi(2);
        }
        self.window_count += 1;
    }

    /// After 2, 8, 32 and 128 pairs: whether the best is adopted; `None`: more pairs have to tell.
    fn verdict(&self, rules: &TunerRules, noise_ratio: f64) -> Option<(bool, Confirmed)> {
        let pair_count = self.window_count / 2;
        let looks = [Search::CONFIRM_PAIRS_MIN, 8, 32, Search::CONFIRM_PAIRS_MAX];
        if !self.window_count.is_multiple_of(2) || !looks.contains(&pair_count) {
            return None;
        }
        let pairs = f64::from(pair_count);
        let (best_rps, incumbent_rps) = (self.best_sum_rps / pairs, self.incumbent_sum_rps / pairs);
        let confirmed = Confirmed { best_rps, incumbent_rps };
        let difference_rps = best_rps - incumbent_rps;
        let gain_ratio = difference_rps / incumbent_rps.max(1.0);
        let variance = (self.difference_square / pairs - difference_rps.powi(2)).max(0.0);
        let of_pairs_ratio = (variance / pairs).sqrt() / incumbent_rps.max(1.0);
        // Few pairs may be alike by luck.
        let error_ratio = of_pairs_ratio.max(noise_ratio * (2.0 / pairs).sqrt());
        let is_better = if pair_count == Search::CONFIRM_PAIRS_MIN {
            let margin_ratio = rules.gain_min_ratio.max(ERRORS_TO_ADOPT * noise_ratio);
            let is_quiet = noise_ratio <= REPEATED_NOISE_RATIO;
            is_quiet && self.best_min_rps > self.incumbent_max_rps * (1.0 + margin_ratio)
        } else {
            let errors = ERRORS_TO_ADOPT + ERRORS_OF_FEW_PAIRS / pairs;
            gain_ratio > rules.gain_min_ratio.max(errors * error_ratio)
        };
        let is_hopeless = gain_ratio + ERRORS_TO_KEEP * error_ratio < rules.gain_min_ratio;
        let is_last = pair_count == Search::CONFIRM_PAIRS_MAX;
        (is_better || is_hopeless || is_last).then_some((is_better, confirmed))
    }
}
