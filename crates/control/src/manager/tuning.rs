//! The tuner on a running server: windows of 10 ms in, roles, hot set and cache ways out.
//!
//! ```text
//!  Observed ─▶ window: requests/s, busiest thread ─▶ policy::tuner ─▶ Configuration ─▶ Knobs
//!                 ▲ begins anew until the knobs have settled               │
//!                 └────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! I1: a window begins when all settings have taken effect: roles, and the hot set's size.
//! I2: a setting turned by hand stays as it is: the tuner leaves it alone until `auto` is set.
//!
//! # Trade-offs
//! While no thread is busy throughout, ten windows are looked at as one: a server with time to
//! spare has nothing to win, and its manager wakes ten times a second instead of a hundred.
//!
//! # References
//! uTPS §3.5; `policy::tuner`, where the search and its hysteresis are.

use std::time::Duration;

use base::Instant;
use dispatch::published::TunerView;
use policy::tuner::{
    Configuration, Event, Measurement, Ranges, Tried, Tuner, TunerRules, surely_over_ratio,
};
use policy::{Dispatch, Policies, WritePolicy};

use super::{Controller, Decision, Observed};

/// Length of a window under load.
pub const WINDOW: Duration = Duration::from_millis(10);

/// Length of a window while no thread is busy throughout.
const WINDOW_AT_EASE: Duration = Duration::from_millis(100);

/// A window that became longer than this spans a pause, and is ignored.
const WINDOW_MAX: Duration = Duration::from_millis(500);

/// Time between two looks while new settings are not in force yet; roles take less, a hot set is
/// chosen in the manager's next round.
const SETTLE_LOOK: Duration = Duration::from_millis(1);

/// After this time, settings that are not in force yet are checked less often.
const SETTLE_MAX: Duration = Duration::from_millis(50);

/// Time between two looks while the threads are set by hand.
const LOOK_BY_HAND: Duration = Duration::from_secs(1);

/// The knobs that the tuner turns.
pub trait Knobs: Send {
    /// The ranges of the knobs, and their positions; `None`: all are set by hand.
    fn ranges(&mut self) -> Option<(Ranges, Configuration)>;

    /// Whether the positions differ from those set last, because an operator turned a knob. After
    /// one positive answer it is false until the next time.
    fn were_turned(&mut self) -> bool;

    /// Called when a search begins.
    fn prepare(&mut self);

    /// Turns the knobs that are not set by hand to the positions of the start: those on trial have
    /// not been shown to be better.
    fn reset(&mut self);

    /// Turns the knobs.
    fn set(&mut self, configuration: &Configuration) -> Result<(), String>;

    /// Whether the positions are in force on every thread.
    fn are_settled(&self) -> bool;

    /// The largest hot set worth trying now.
    fn cached_item_count_max(&self) -> u32;

    /// How busy the server is, given the busy ratio of its busiest thread's own clock.
    fn busy_ratio(&mut self, now: Instant, observed: &Observed, busiest_ratio: f64) -> f64;

    /// The fraction of all accesses that goes to the keys tracked as hot.
    fn hot_share_ratio(&self) -> f64;
}

/// The controller.
pub struct Tuning<K, S> {
    knobs: K,
    rules: TunerRules,
    /// `None` while all knobs are set by hand.
    tuner: Option<Tuner>,
    window: Option<Window>,
    /// When the knobs were turned last; until that is in force.
    set_at: Option<Instant>,
    period: Duration,
    show: S,
}

/// The start of a window.
struct Window {
    at: Instant,
    began: Observed,
}

impl<K: Knobs, S: Fn(Option<TunerView>) + Send> Tuning<K, S> {
    /// Begins with the knobs in their present positions.
    pub fn new(mut knobs: K, rules: TunerRules, show: S) -> Tuning<K, S> {
        let tuner = open(&mut knobs, rules);
        Tuning { knobs, rules, tuner, window: None, set_at: None, period: WINDOW, show }
    }

    /// An operator turned a knob: starts again, or stops.
    fn begin_anew(&mut self) -> Decision {
        let had_tuner = self.tuner.is_some();
        self.knobs.reset();
        self.tuner = open(&mut self.knobs, self.rules);
        (self.window, self.set_at, self.period) = (None, None, WINDOW);
        let change = match (&self.tuner, had_tuner) {
            (Some(tuner), _) => format!("the tuner begins anew at {}", tuner.configuration()),
            (None, _) => "the tuner lets go".to_owned(),
        };
        let reason = "a knob was turned by hand".to_owned();
        Decision { what: Vec::new(), change, reason, inputs: Vec::new() }
    }

    /// Begins no window before the settings are in force (I1). A configuration has one window's
    /// time, counted from when it is set: the time until it is in force is taken from that, up to a
    /// half.
    fn wait_settled(&mut self, now: Instant) -> bool {
        let waited = |at: Instant| Duration::from_nanos(now.ns - at.ns);
        if !self.knobs.are_settled() {
            let set_at = *self.set_at.get_or_insert(now);
            self.window = None;
            self.period = if waited(set_at) < SETTLE_MAX { SETTLE_LOOK } else { WINDOW };
            return false;
        }
        if let Some(set_at) = self.set_at.take() {
            self.window = None;
            self.period = WINDOW.saturating_sub(waited(set_at)).max(WINDOW / 2);
        }
        true
    }

    /// Ends the window that has passed; `None` if it is to be ignored.
    fn end_window(&mut self, now: Instant, observed: &Observed) -> Option<(Measurement, u32)> {
        let next = Window { at: now, began: observed.clone() };
        let window = self.window.replace(next)?;
        let elapsed = Duration::from_nanos(now.ns - window.at.ns);
        if elapsed.is_zero() || elapsed > WINDOW_MAX {
            return None;
        }
        let seconds = elapsed.as_secs_f64();
        let busiest_ns = observed.busy_ns.iter().zip(&window.began.busy_ns);
        let busiest_ns = busiest_ns.map(|(now, then)| now.saturating_sub(*then)).max().unwrap_or(0);
        let busiest_ratio = (busiest_ns as f64 / 1e9 / seconds).min(1.0);
        let request_count = observed.request_count.saturating_sub(window.began.request_count);
        let measurement = Measurement {
            throughput_rps: request_count as f64 / seconds,
            hot_share_ratio: self.knobs.hot_share_ratio(),
            busy_ratio: self.knobs.busy_ratio(now, observed, busiest_ratio),
            over_slo_ratio: surely_over_ratio(
                observed.latency_samples.saturating_sub(window.began.latency_samples),
                observed.latency_over.saturating_sub(window.began.latency_over),
            ),
        };
        let window_count = (seconds / WINDOW.as_secs_f64()).round().max(1.0) as u32;
        Some((measurement, window_count))
    }
}

/// A tuner for the knobs that may be turned.
fn open(knobs: &mut impl Knobs, rules: TunerRules) -> Option<Tuner> {
    let (ranges, configuration) = knobs.ranges()?;
    Some(Tuner::new(ranges, rules, configuration))
}

impl<K: Knobs, S: Fn(Option<TunerView>) + Send> Controller for Tuning<K, S> {
    fn name(&self) -> &'static str {
        "tuner"
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn tick(&mut self, now: Instant, observed: &Observed) -> Option<Decision> {
        if self.knobs.were_turned() {
            return Some(self.begin_anew()); // I2
        }
        if self.tuner.is_some() && !self.wait_settled(now) {
            return None;
        }
        let measured = self.end_window(now, observed);
        let Some(tuner) = &mut self.tuner else {
            self.period = LOOK_BY_HAND;
            (self.show)(None);
            return None;
        };
        let (measurement, window_count) = measured?;
        let is_at_ease = !tuner.is_searching() && measurement.is_at_ease(&self.rules);
        self.period = if is_at_ease { WINDOW_AT_EASE } else { WINDOW };
        let before = tuner.configuration();
        tuner.limit_cached_items(self.knobs.cached_item_count_max());
        // Each window at ease counts as several; rests are counted in windows.
        for _ in 0..if is_at_ease { window_count } else { 1 } {
            tuner.feed(measurement);
        }
        let configuration = tuner.configuration();
        let event = tuner.take_event();
        if matches!(event, Some(Event::Begun { .. } | Event::Restarted)) {
            self.knobs.prepare();
        }
        let state = if tuner.is_searching() { "searching" } else { "watching" };
        let counters = tuner.counters();
        (self.show)(Some(TunerView { state, configuration, counters, measurement }));
        if configuration != before {
            (self.set_at, self.period) = (Some(now), SETTLE_LOOK);
        }
        if configuration != before
            && let Err(reason) = self.knobs.set(&configuration)
        {
            self.tuner = None;
            self.knobs.reset();
            let change = "the tuner stops".to_owned();
            return Some(Decision { what: Vec::new(), change, reason, inputs: Vec::new() });
        }
        event.map(|event| told(&event, &measurement))
    }
}

/// An event as an entry of the decision log.
fn told(event: &Event, measurement: &Measurement) -> Decision {
    let mut inputs = vec![
        ("throughput_rps", measurement.throughput_rps),
        ("hot_share_ratio", measurement.hot_share_ratio),
        ("busy_ratio", measurement.busy_ratio),
        ("over_slo_ratio", measurement.over_slo_ratio),
    ];
    let (what, change, reason) = match event {
        Event::Begun { cause } => (Vec::new(), "a search begins".to_owned(), cause.to_string()),
        Event::Restarted => {
            let reason = "the workload changed during the search".to_owned();
            (Vec::new(), "the search begins anew".to_owned(), reason)
        }
        Event::GivenUp => {
            let reason = "there are no requests any more".to_owned();
            (Vec::new(), "the search is given up".to_owned(), reason)
        }
        Event::Kept { configuration, confirmed, tried } => {
            tell_tried(&mut inputs, tried);
            let reason = match confirmed {
                Some(confirmed) => {
                    inputs.push(("best_rps", confirmed.best_rps));
                    inputs.push(("old_rps", confirmed.incumbent_rps));
                    "the best that was found is no better than the load's noise".to_owned()
                }
                None => "nothing else served more".to_owned(),
            };
            (Vec::new(), format!("{configuration} stay"), reason)
        }
        Event::Adopted { from, to, confirmed, tried } => {
            tell_tried(&mut inputs, tried);
            inputs.push(("best_rps", confirmed.best_rps));
            inputs.push(("old_rps", confirmed.incumbent_rps));
            let gain_pct = 100.0 * (confirmed.best_rps / confirmed.incumbent_rps.max(1.0) - 1.0);
            let reason = format!("it served {gain_pct:.0} % more, side by side");
            (turned(from, to), format!("from {from} to {to}"), reason)
        }
    };
    Decision { what, change, reason, inputs }
}

/// What each candidate served, in the windows before the last ones.
fn tell_tried(inputs: &mut Vec<(&'static str, f64)>, tried: &Tried) {
    let one_layer = tried.one_layer.iter();
    inputs.extend(one_layer.map(|(policies, rps)| (name_of(*policies), *rps)));
    inputs.extend(tried.two_layers_rps.map(|rps| ("two_layers_rps", rps)));
}

fn name_of(policies: Policies) -> &'static str {
    match (policies.write_policy, policies.dispatch) {
        (WritePolicy::Crcw, Dispatch::Any) => "crcw_any_rps",
        (WritePolicy::DCrew, Dispatch::Any) => "d_crew_any_rps",
        (WritePolicy::Crcw, Dispatch::SizeAware) => "crcw_size_aware_rps",
        (WritePolicy::DCrew, Dispatch::SizeAware) => "d_crew_size_aware_rps",
        _ => "one_layer_rps",
    }
}

/// The changed knobs, as words of the label `what`.
fn turned(from: &Configuration, to: &Configuration) -> Vec<&'static str> {
    [
        ("policies", from.policies != to.policies),
        ("threads", from.mr_thread_count != to.mr_thread_count),
        ("hot_set", from.cached_item_count != to.cached_item_count),
        ("ways", from.mr_way_count != to.mr_way_count),
    ]
    .into_iter()
    .filter_map(|(what, is_other)| is_other.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests;
