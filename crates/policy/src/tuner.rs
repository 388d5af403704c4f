//! The auto-tuner: finds the policies of routing, the threads per layer, the number of cached items
//! and the cache ways by trying them (uTPS §3.5).
//!
//! ```text
//!   window after window (10 ms)          ┌─────────────────── Search ───────────────────────┐
//!  Measurement ─▶ Trigger ── changed? ──▶│ each policy; for each cache size the threads;    │
//!                    ▲      3 in a row   │ then the ways, apart; then best against incumbent│
//!                    │                   └──────┬──────────────────────────────┬────────────┘
//!                    └───── rest, new baseline ─┘ adopted or not               └▶ Configuration
//! ```
//!
//! The tuner receives one measurement per window, taken under [`Tuner::configuration`], and returns
//! the configuration for the next window. It uses neither threads nor clocks.
//!
//! # How many windows a search takes
//! uTPS's server has 28 threads (27 splits), caches up to 10,000 items by steps of 1,000 (11 sizes)
//! and 12 ways: 11 x 7 + 5, one for no memory-resident threads at all, and 4 to confirm = 87
//! windows, 0.87 s. The paper says 0.9 s. Thirds would need two new measurements per step; points
//! at Fibonacci distances also cut the range in three, but one of the two is measured already.
//!
//! These are the windows of a load without noise. If windows differ by more than a twentieth, each
//! point is the mean of several, and the confirmation goes on until the difference of the two is
//! several times its own error, or for [`Search::CONFIRM_PAIRS_MAX`] pairs (`search`).
//!
//! # Invariants
//! I1: the ranges bound the number of windows of a search ([`Ranges::noisy_windows_max`]; on a load
//!     without noise [`Ranges::windows_max`]).
//! I2: each emitted configuration lies within the ranges. Under two layers the policies are the
//!     first of [`Ranges::policies`].
//! I3: a search ends with either a configuration that beat the old one in windows side by side, or
//!     the old one.
//! I4: whatever the load does, searches take at most a tenth of the time: each is followed by a
//!     rest of nine times its windows ([`TunerRules::rest_factor`]). The least rest doubles with
//!     each search that comes soon after another, up to [`TunerRules::rest_window_count_max`], and
//!     a calm of [`TunerRules::calm_window_count`] windows makes it short again.
//! I5: windows in which no worker is busy throughout start no search: there is nothing to gain,
//!     unless the latency objective is missed ([`Measurement::is_at_ease`]).
//!
//! # Limits
//! The throughput must be unimodal in the threads, for one cache size, and in the ways. A plateau
//! is fine, unless it reaches from a measured point to the foot of the hill where the best known
//! split stands. In the number of cached items any curve is fine: all sizes are tried.
//!
//! # Trade-offs
//! A search runs on live traffic, most of it in configurations that are worse than the best. So it
//! starts only after a change that lasts and that is larger than the load's own noise, and each
//! search soon after another doubles the time to the next: a load that swings must not keep the
//! server searching. The price: a load that swings every few seconds is served for up to a minute
//! by the configuration that suited only one of its phases.
//!
//! # References
//! uTPS §3.5, §5.5.2 (Fig. 14); K17.

mod event;
mod search;
mod trigger;
mod trisection;

use std::ops::RangeInclusive;

use crate::routers::Policies;

pub use event::{Cause, Event};
use search::{Begin, Outcome, Restart, Search};
pub use search::{Confirmed, Tried};
use trigger::{Baseline, Trigger};
pub use trisection::Trisection;

/// The parameters that the tuner sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Which worker executes a request.
    pub policies: Policies,
    /// Threads of the memory-resident layer; the rest belong to the cache-resident one.
    pub mr_thread_count: u32,
    /// Items that the cache-resident layer keeps.
    pub cached_item_count: u32,
    /// Cache ways that the memory-resident layer may use.
    pub mr_way_count: u32,
}

/// The measurements of one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Requests answered per second.
    pub throughput_rps: f64,
    /// The share of the accesses that went to the tracked hot keys; to all of them, so that it does
    /// not change with the configuration ([`crate::hot_set::HotSet::tracked_share_ratio`]).
    pub hot_share_ratio: f64,
    /// The share of the window for which its busiest thread was busy. Below
    /// [`TunerRules::busy_ratio_min`] no configuration serves more, because there are no more
    /// requests.
    pub busy_ratio: f64,
    /// The share of the requests that surely took longer than the objective
    /// ([`surely_over_ratio`]); 0 without an objective.
    pub over_slo_ratio: f64,
}

/// An objective is met while 99 of 100 requests are in time (C-4 §3.1, Minos §5.4).
pub const SLO_OVER_RATIO_MAX: f64 = 0.01;

/// The share of late requests, estimated from few samples: the count minus two standard deviations,
/// so that a late request or two in a short window prove nothing.
pub fn surely_over_ratio(sample_count: u64, over_count: u64) -> f64 {
    let over = over_count as f64;
    (over - 2.0 * over.sqrt()).max(0.0) / sample_count.max(1) as f64
}

impl Measurement {
    /// Whether the objective is met.
    pub fn keeps_slo(&self) -> bool {
        self.over_slo_ratio <= SLO_OVER_RATIO_MAX
    }

    /// The score to maximise: the throughput, reduced the further the objective is missed. So any
    /// configuration that meets it beats one that misses it without serving more, and the path to
    /// it leads uphill.
    pub fn score_rps(&self) -> f64 {
        self.throughput_rps * (SLO_OVER_RATIO_MAX / self.over_slo_ratio).min(1.0)
    }

    /// Whether there is nothing to gain (I5).
    pub fn is_at_ease(&self, rules: &TunerRules) -> bool {
        self.busy_ratio < rules.busy_ratio_min && self.keeps_slo()
    }
}

/// Whether a search also tries a configuration without a memory-resident layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunToCompletion {
    /// Once per search, outside the trisection, because the throughput jumps there.
    Tried,
    /// Never.
    Excluded,
}

/// The ranges of the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The policies without a memory-resident layer; at least one. The first of them goes with two
    /// layers.
    pub policies: Vec<Policies>,
    /// At least one thread in either layer.
    pub mr_thread_count: RangeInclusive<u32>,
    /// From none to this many, in steps.
    pub cached_item_count_max: u32,
    /// The step between two cache sizes.
    pub cached_item_step: u32,
    /// A range of one value if the machine has no such control.
    pub mr_way_count: RangeInclusive<u32>,
    /// Whether zero threads are allowed (K17).
    pub run_to_completion: RunToCompletion,
}

/// The rules for when the tuner searches, and for what it accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerRules {
    /// The number of windows whose mean is the baseline.
    pub baseline_window_count: u32,
    /// A change of throughput against the baseline by this fraction counts.
    pub change_ratio: f64,
    /// A change of the hot share by this much counts.
    pub hot_share_change_ratio: f64,
    /// This many windows in a row must show a change.
    pub change_window_count: u32,
    /// The least number of windows after a search in which no other starts.
    pub rest_window_count: u32,
    /// At least this many windows of rest for each window of the search.
    pub rest_factor: u32,
    /// The longest rest, after searches in quick succession.
    pub rest_window_count_max: u32,
    /// After this many windows without a search following a rest, the next rest is a short one
    /// again.
    pub calm_window_count: u32,
    /// A change or gain must exceed the load's own noise (its standard deviation from window to
    /// window) by this factor.
    pub noise_factor: f64,
    /// A new configuration must beat the old one by this fraction.
    pub gain_min_ratio: f64,
    /// Throughputs that differ by no more than this fraction are equal.
    pub tie_ratio: f64,
    /// The number of windows ignored after each change of configuration.
    pub ignored_window_count: u32,
    /// How often a search restarts at most because the workload changed meanwhile.
    pub restart_max: u32,
    /// Below this the server is idle, and no conclusion is drawn.
    pub idle_throughput_rps: f64,
    /// Below this the server has time to spare, and no conclusion is drawn either (I5).
    pub busy_ratio_min: f64,
    /// After this many windows in a row below the idle throughput, a search is given up.
    pub idle_window_count: u32,
}

impl Default for TunerRules {
    /// For windows of 10 ms: detects a change within 0.3 s, as uTPS does, and rests for a second.
    fn default() -> Self {
        TunerRules {
            baseline_window_count: 8,
            change_ratio: 0.10,
            hot_share_change_ratio: 0.10,
            change_window_count: 3,
            rest_window_count: 100,
            rest_factor: 9,
            rest_window_count_max: 6_400,
            calm_window_count: 2_000,
            noise_factor: 2.0,
            gain_min_ratio: 0.02,
            tie_ratio: 0.01,
            ignored_window_count: 0,
            restart_max: 1,
            idle_throughput_rps: 1_000.0,
            busy_ratio_min: 0.8,
            idle_window_count: 3,
        }
    }
}

impl Ranges {
    /// The most windows of one search on a load without noise, without restarts and ignored
    /// windows.
    pub fn windows_max(&self) -> u32 {
        self.point_count_max() + 2 * Search::CONFIRM_PAIRS_MIN
    }

    /// The most windows of one search on any load, without restarts and ignored windows.
    pub fn noisy_windows_max(&self) -> u32 {
        let points = self.point_count_max();
        points * Search::repeats_max(points) + 2 * Search::CONFIRM_PAIRS_MAX
    }

    /// The most configurations that a search tries.
    fn point_count_max(&self) -> u32 {
        let threads = Trisection::steps_max(&self.mr_thread_count);
        let size_count = self.cached_item_count_max / self.cached_item_step + 1;
        let ways = Trisection::steps_max(&self.mr_way_count);
        let apart = match self.run_to_completion {
            RunToCompletion::Tried => self.policies.len() as u32,
            RunToCompletion::Excluded => 0,
        };
        size_count * threads + ways + apart
    }

    /// Whether a configuration lies within the ranges.
    pub fn contain(&self, configuration: &Configuration) -> bool {
        let Configuration { policies, mr_thread_count, cached_item_count, mr_way_count } =
            configuration;
        let has_place = match (mr_thread_count, self.run_to_completion) {
            (0, RunToCompletion::Tried) => self.policies.contains(policies),
            _ => {
                self.mr_thread_count.contains(mr_thread_count)
                    && self.policies.first() == Some(policies)
            }
        };
        has_place
            && *cached_item_count <= self.cached_item_count_max
            && self.mr_way_count.contains(mr_way_count)
    }
}

/// The tuner's counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunerCounters {
    /// Searches begun, without restarts.
    pub search_count: u64,
    /// Searches that restarted because the workload changed.
    pub restart_count: u64,
    /// Searches that ended with another configuration.
    pub adopted_count: u64,
    /// Windows spent searching.
    pub search_window_count: u64,
}

#[derive(Debug)]
enum State {
    Watching,
    Searching { search: Box<Search>, underway: Underway, idle_window_count: u32 },
}

/// A search, apart from what it tries.
#[derive(Clone, Copy, Debug)]
struct Underway {
    /// The load that it is for.
    begun: Baseline,
    restart_count: u32,
    /// Windows so far, with those before a restart.
    window_count: u32,
}

/// The state machine.
#[derive(Debug)]
pub struct Tuner {
    ranges: Ranges,
    rules: TunerRules,
    state: State,
    trigger: Trigger,
    configuration: Configuration,
    ignore_window_count: u32,
    /// The length of the next rest.
    rest_window_count: u32,
    /// The number of windows since the last rest.
    calm_window_count: u32,
    /// The noise of the load before the search.
    noise_ratio: f64,
    event: Option<Event>,
    counters: TunerCounters,
}

impl Tuner {
    /// Starts with `configuration`; the first baseline starts the first search.
    pub fn new(ranges: Ranges, rules: TunerRules, configuration: Configuration) -> Tuner {
        assert!(ranges.contain(&configuration), "I2: the first configuration is out of range");
        assert!(ranges.cached_item_step > 0 && *ranges.mr_thread_count.start() > 0);
        assert!(!ranges.policies.is_empty());
        Tuner {
            trigger: Trigger::at_start(),
            rest_window_count: rules.rest_window_count,
            ranges,
            rules,
            state: State::Watching,
            configuration,
            ignore_window_count: 0,
            calm_window_count: 0,
            noise_ratio: 0.0,
            event: None,
            counters: TunerCounters::default(),
        }
    }

    /// The configuration for the next window.
    pub fn configuration(&self) -> Configuration {
        self.configuration
    }

    /// Lowers the number of items worth trying. A search under way keeps its range, and the
    /// configuration in force stays within it (I2).
    pub fn limit_cached_items(&mut self, item_count_max: u32) {
        if !self.is_searching() {
            let item_count_max = item_count_max.max(self.configuration.cached_item_count);
            self.ranges.cached_item_count_max = item_count_max;
        }
    }

    /// Whether configurations are being tried.
    pub fn is_searching(&self) -> bool {
        matches!(self.state, State::Searching { .. })
    }

    /// The counters since the start.
    pub fn counters(&self) -> TunerCounters {
        self.counters
    }

    /// The event that the last window caused; returned once.
    pub fn take_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// Takes one window's measurement; returns the configuration to change to, if it changes.
    pub fn feed(&mut self, measurement: Measurement) -> Option<Configuration> {
        let Measurement { throughput_rps, hot_share_ratio, busy_ratio, over_slo_ratio } =
            measurement;
        let figures = [throughput_rps, hot_share_ratio, busy_ratio, over_slo_ratio];
        assert!(figures.iter().all(|figure| figure.is_finite()));
        self.counters.search_window_count += u64::from(self.is_searching());
        if self.ignore_window_count > 0 {
            self.ignore_window_count -= 1;
            return None;
        }
        let before = self.configuration;
        if self.is_searching() {
            self.go_on(measurement)
        } else {
            self.watch(measurement)
        }
        let changes = self.configuration != before;
        if changes {
            debug_assert!(self.ranges.contain(&self.configuration), "I2");
            self.ignore_window_count = self.rules.ignored_window_count;
        }
        changes.then_some(self.configuration)
    }

    fn watch(&mut self, measurement: Measurement) {
        self.calm_window_count += u32::from(!self.trigger.is_resting());
        if self.calm_window_count >= self.rules.calm_window_count {
            self.rest_window_count = self.rules.rest_window_count; // I4
        }
        let has_nothing_to_win = measurement.throughput_rps < self.rules.idle_throughput_rps
            || measurement.is_at_ease(&self.rules);
        if has_nothing_to_win {
            self.trigger.interrupt(); // I5
            return;
        }
        if let Some((cause, begun)) = self.trigger.observe(&self.rules, measurement) {
            self.counters.search_count += 1;
            self.noise_ratio = begun.noise_ratio;
            self.event = Some(Event::Begun { cause });
            self.search(Underway { begun, restart_count: 0, window_count: 0 });
        }
    }

    fn go_on(&mut self, measurement: Measurement) {
        let State::Searching { search, underway, idle_window_count } = &mut self.state else {
            return;
        };
        underway.window_count += 1;
        let is_idle = measurement.throughput_rps < self.rules.idle_throughput_rps;
        *idle_window_count = if is_idle { *idle_window_count + 1 } else { 0 };
        let (incumbent, underway) = (search.incumbent(), *underway);
        if *idle_window_count >= self.rules.idle_window_count {
            self.event = Some(Event::GivenUp);
            // It has found nothing about its load.
            return self.settle(incumbent, incumbent, (self.trigger.searched(), underway));
        }
        let moved_ratio = (measurement.hot_share_ratio - underway.begun.hot_share_ratio).abs();
        let outcome = search.record(&self.ranges, &self.rules, measurement.score_rps());
        let has_changed =
            moved_ratio > self.rules.hot_share_change_ratio || outcome == Outcome::Contradicted;
        if has_changed && search.restart() == Restart::Allowed {
            self.counters.restart_count += 1;
            self.event = Some(Event::Restarted);
            self.configuration = incumbent;
            // The throughput is that of a configuration on trial; `follow` takes a better one.
            let begun = Baseline::of(measurement, self.noise_ratio);
            self.search(Underway { begun, restart_count: underway.restart_count + 1, ..underway });
        } else {
            let tried = search.take_tried(&outcome);
            self.follow(outcome, (incumbent, underway), tried);
        }
    }

    fn follow(
        &mut self,
        outcome: Outcome,
        (incumbent, underway): (Configuration, Underway),
        tried: Tried,
    ) {
        let begun = underway.begun;
        // What the configuration that stays serves of this load.
        let begun_rps = match underway.restart_count {
            0 => begun.score_rps,
            _ => tried.rps_of(&incumbent).unwrap_or(begun.score_rps),
        };
        let (configuration, event, score_rps) = match outcome {
            Outcome::Try(configuration) => return self.configuration = configuration,
            Outcome::Keep(Some(confirmed)) => {
                let confirmed_rps = confirmed.incumbent_rps;
                let confirmed = Some(confirmed);
                (
                    incumbent,
                    Event::Kept { configuration: incumbent, confirmed, tried },
                    confirmed_rps,
                )
            }
            Outcome::Keep(None) | Outcome::Contradicted => {
                let confirmed = None;
                (incumbent, Event::Kept { configuration: incumbent, confirmed, tried }, begun_rps)
            }
            Outcome::Adopt(to, confirmed) => {
                let event = Event::Adopted { from: incumbent, to, confirmed, tried };
                (to, event, confirmed.best_rps)
            }
        };
        self.event = Some(event);
        let searched = Baseline { score_rps, ..begun };
        self.settle(configuration, incumbent, (Some(searched), underway));
    }

    /// Begins a search from the present configuration.
    fn search(&mut self, underway: Underway) {
        let is_allowed = underway.restart_count < self.rules.restart_max;
        let restart = if is_allowed { Restart::Allowed } else { Restart::UsedUp };
        let begin = Begin { incumbent: self.configuration, noise_ratio: self.noise_ratio, restart };
        let search = Box::new(Search::new(&self.ranges, &self.rules, begin));
        self.configuration = search.next(&self.ranges);
        self.state = State::Searching { search, underway, idle_window_count: 0 };
    }

    /// Ends a search; the rest after it is many times as long, and if another search follows soon,
    /// the rest after that is twice as long (I4).
    fn settle(
        &mut self,
        configuration: Configuration,
        incumbent: Configuration,
        (searched, underway): (Option<Baseline>, Underway),
    ) {
        let of_search = underway.window_count.saturating_mul(self.rules.rest_factor);
        let rest_window_count = self.rest_window_count.max(of_search);
        self.trigger = Trigger::after_search(rest_window_count, searched);
        self.rest_window_count =
            self.rest_window_count.saturating_mul(2).min(self.rules.rest_window_count_max);
        self.calm_window_count = 0;
        self.counters.adopted_count += u64::from(configuration != incumbent);
        self.configuration = configuration;
        self.state = State::Watching;
    }
}

#[cfg(test)]
mod tests;
