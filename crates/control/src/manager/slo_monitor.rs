//! Each second: how many of the sampled requests were in time, and whether that is a change to
//! report.
//!
//! ```text
//!  cells ─▶ the last second's counts ─▶ Lately ─▶ /stats, /metrics, page, top
//!                                          └─▶ kept or broken, three seconds in a row ─▶ decisions
//! ```

use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use counters::LatencyCounts;
use dispatch::published::Lately;
use runtime::shared::Shared;
use runtime::slo::Slo;

use super::{Controller, Decision, Observed};

const EPOCH: Duration = Duration::from_secs(1);

/// The number of seconds in a row that must agree before the decision log gets an entry.
const AGREEING_EPOCHS: u32 = 3;

/// With fewer samples a hundredth is meaningless.
const SAMPLES_MIN: u64 = 100;

/// The controller, which runs each second.
pub struct SloMonitor {
    shared: Arc<Shared>,
    before: Option<Before>,
    notice: Notice,
}

/// The state at the last look.
struct Before {
    at: Instant,
    request_count: u64,
    counts: LatencyCounts,
}

impl SloMonitor {
    /// For this server.
    pub fn new(shared: Arc<Shared>) -> SloMonitor {
        SloMonitor { shared, before: None, notice: Notice::default() }
    }
}

impl Controller for SloMonitor {
    fn name(&self) -> &'static str {
        "slo"
    }

    fn period(&self) -> Duration {
        EPOCH
    }

    fn tick(&mut self, now: Instant, observed: &Observed) -> Option<Decision> {
        let target_ns = self.shared.slo().target_ns();
        let counts = Slo::counts(self.shared.all_counters());
        let request_count = observed.request_count;
        let next = Before { at: now, request_count, counts };
        let is_new = self.notice.aim(target_ns);
        if target_ns == 0 || is_new {
            self.shared.control().slo.set(None);
            self.before = Some(next);
            return None;
        }
        let before = self.before.replace(next)?;
        let counts = self.before.as_ref()?.counts.since(&before.counts);
        let seconds = (now.ns - before.at.ns) as f64 / 1e9;
        let requests = request_count.saturating_sub(before.request_count);
        let lately = lately(target_ns, &counts, requests as f64 / seconds);
        let shown = &self.shared.control().slo;
        if lately.samples == 0 && shown.get().is_none() {
            return None;
        }
        shown.set(Some(lately));
        self.notice.see(&lately)
    }

    /// Drops the measurements, which are no longer of the last second; measuring starts again.
    fn rest(&mut self) {
        self.before = None;
        let shown = &self.shared.control().slo;
        shown.set(shown.get().map(|lately| Lately { target_ns: lately.target_ns, ..EMPTY }));
    }
}

/// A second without samples.
const EMPTY: Lately = Lately {
    target_ns: 0,
    samples: 0,
    over_ratio: 0.0,
    latency_ns_p50: None,
    latency_ns_p99: None,
    throughput_rps: 0.0,
    goodput_rps: 0.0,
};

fn lately(target_ns: u64, counts: &LatencyCounts, throughput_rps: f64) -> Lately {
    if counts.samples == 0 {
        return Lately { target_ns, throughput_rps, ..EMPTY };
    }
    let over_ratio = counts.over_ratio();
    Lately {
        target_ns,
        samples: counts.samples,
        over_ratio,
        latency_ns_p50: counts.quantile_ns(0.5),
        latency_ns_p99: counts.quantile_ns(0.99),
        throughput_rps,
        goodput_rps: throughput_rps * (1.0 - over_ratio),
    }
}

/// An objective that is newly kept or broken is reported once that lasts.
#[derive(Debug, Default)]
struct Notice {
    target_ns: u64,
    /// The objective counts as kept until it is broken.
    was_broken: bool,
    other_count: u32,
}

impl Notice {
    /// Whether the objective has changed.
    fn aim(&mut self, target_ns: u64) -> bool {
        if self.target_ns == target_ns {
            return false;
        }
        *self = Notice { target_ns, ..Notice::default() };
        true
    }

    fn see(&mut self, lately: &Lately) -> Option<Decision> {
        if lately.samples < SAMPLES_MIN {
            return None;
        }
        let is_other = lately.is_kept() == self.was_broken;
        self.other_count = if is_other { self.other_count + 1 } else { 0 };
        if self.other_count < AGREEING_EPOCHS {
            return None;
        }
        (self.was_broken, self.other_count) = (!self.was_broken, 0);
        let target = base::format_duration(Duration::from_nanos(lately.target_ns));
        let verb = if self.was_broken { "broken" } else { "kept again" };
        let (p50_ns, p99_ns) = (lately.latency_ns_p50?, lately.latency_ns_p99?);
        let (over_pct, p99_us) = (100.0 * lately.over_ratio, p99_ns / 1000);
        Some(Decision {
            what: Vec::new(),
            change: format!("the SLO of {target} is {verb}"),
            reason: format!("{over_pct:.1} % took longer, p99 {p99_us} us"),
            inputs: vec![
                ("over_ratio", lately.over_ratio),
                ("latency_ns_p50", p50_ns as f64),
                ("latency_ns_p99", p99_ns as f64),
                ("throughput_rps", lately.throughput_rps),
                ("goodput_rps", lately.goodput_rps),
                ("samples", lately.samples as f64),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use config::Config;

    use super::*;

    const TARGET: Duration = Duration::from_millis(1);

    fn second(over_ratio: f64) -> Lately {
        let target_ns = TARGET.as_nanos() as u64;
        let latency_ns = Some(target_ns);
        Lately {
            samples: 1000,
            over_ratio,
            latency_ns_p50: latency_ns,
            latency_ns_p99: latency_ns,
            target_ns,
            ..EMPTY
        }
    }

    #[test]
    fn a_broken_objective_is_told_once_it_lasts_and_so_is_its_end() {
        let mut notice = Notice::default();
        let mut tell = |over_ratio| notice.see(&second(over_ratio)).map(|note| note.change);
        assert_eq!([tell(0.0), tell(0.5), tell(0.5), tell(0.01)], [const { None }; 4]);
        assert_eq!([tell(0.02), tell(0.02)], [None, None]);
        assert_eq!(tell(0.02).as_deref(), Some("the SLO of 1ms is broken"));
        assert_eq!([tell(0.02), tell(0.0), tell(0.0)], [const { None }; 3]);
        assert_eq!(tell(0.0).as_deref(), Some("the SLO of 1ms is kept again"));
    }

    #[test]
    fn a_load_that_swings_about_the_objective_is_no_news() {
        let mut notice = Notice::default();
        let told = (0..10_000).filter_map(|at| notice.see(&second([0.0, 0.2, 0.2][at % 3])));
        assert_eq!(told.count(), 0);
    }

    /// Samples of one worker in one virtual second, `over` of them too late.
    fn sample(shared: &Shared, count: u64, over: u64) {
        let (cells, target_ns) = (&shared.counters(0).latency, shared.slo().target_ns());
        (0..count).for_each(|at| {
            cells.record(if at < over { 2 * target_ns } else { target_ns / 10 }, target_ns);
        });
    }

    #[test]
    fn goodput_is_what_was_answered_in_time() {
        let config = Config { slo: Some(TARGET), ..Config::default() };
        let shared = Arc::new(Shared::new(config));
        let mut monitor = SloMonitor::new(Arc::clone(&shared));
        let mut tick = |seconds: u64, request_count| {
            let observed = Observed { request_count, ..Observed::default() };
            monitor.tick(Instant { ns: seconds * 1_000_000_000 }, &observed)
        };
        tick(0, 0);
        tick(1, 1_000);
        assert_eq!(shared.control().slo.get(), None);
        sample(&shared, 200, 50);
        tick(3, 9_000);
        let lately = shared.control().slo.get().unwrap();
        assert_eq!((lately.samples, lately.over_ratio), (200, 0.25));
        assert_eq!((lately.throughput_rps, lately.goodput_rps), (4_000.0, 3_000.0));
        let target_ns = Some(TARGET.as_nanos() as u64);
        assert!(lately.latency_ns_p99 > target_ns && !lately.is_kept());
        assert!(lately.latency_ns_p50.is_some() && lately.latency_ns_p50 < target_ns);
        shared.slo().set(Some(2 * TARGET)).unwrap();
        tick(4, 10_000);
        assert_eq!(shared.control().slo.get(), None, "another objective, nothing sampled yet");
    }

    #[test]
    fn what_was_measured_does_not_outlast_its_second() {
        let config = Config { slo: Some(TARGET), ..Config::default() };
        let shared = Arc::new(Shared::new(config));
        let mut monitor = SloMonitor::new(Arc::clone(&shared));
        let observed = |request_count| Observed { request_count, ..Observed::default() };
        let at = |seconds: u64| Instant { ns: seconds * 1_000_000_000 };
        let target_ns = TARGET.as_nanos() as u64;
        let shown = || shared.control().slo.get().unwrap();
        let serve = |monitor: &mut SloMonitor, second: u64| {
            sample(&shared, 200, 50);
            monitor.tick(at(second), &observed(1_000 * second));
        };
        monitor.tick(at(0), &observed(0));
        serve(&mut monitor, 1);
        assert_eq!(shown().goodput_rps, 750.0);
        monitor.tick(at(2), &observed(2_000));
        assert_eq!(shown(), Lately { target_ns, throughput_rps: 1_000.0, ..EMPTY }, "no samples");
        serve(&mut monitor, 3);
        assert!(shown().goodput_rps > 0.0);
        monitor.rest();
        assert_eq!(shown(), Lately { target_ns, ..EMPTY }, "no traffic");
        serve(&mut monitor, 60);
        assert_eq!(shown().samples, 0, "how long that took is unknown");
        serve(&mut monitor, 61);
        assert_eq!((shown().samples, shown().goodput_rps), (200, 750.0));
    }
}
