//! The service-level objective (`--slo`): the time within which requests are to be answered, the
//! share that is, and where that is shown.
//!
//! ```text
//!  worker: one read in flight is timed ─▶ Sampler ─▶ LatencyCells
//!            ┌───────────────────────────────────────────────┘
//!            ├─▶ tuner: each window's share
//!            └─▶ SloMonitor: each second's share, p50, p99, goodput ─▶ /metrics, /stats, decisions
//! ```
//!
//! # What is measured
//! From the earliest time at which the last bytes of a read can have arrived until the end of the
//! round in which its last reply was handed to the socket. If the worker was asleep, those bytes
//! woke it. If it was awake, they may have arrived any time since it last asked the sockets, and
//! that moment counts: the reported time is an upper bound, too high by half a round on average,
//! and never flatters.
//!
//! # Invariants
//! S1: no clock is read for it: a round has its two times anyway.
//! S2: a worker that runs to completion, and was started without `--slo`, has no trace of it: the
//!     poller's type says whether times are taken.
//! S3: one read is timed at a time, so that the cost of a round does not grow with its requests.
//! S4: a worker that routes samples without an objective too, for the commands' durations.
//!
//! # Limits
//! Native clients are not sampled; they share the rounds of clients that are. Not measured: bytes
//! that wait unparsed because their connection has its maximum of requests in flight, output that a
//! client leaves unread, and the time that the kernel takes to wake a worker.
//!
//! # References
//! C-4 §3.1 and Minos §5.4: throughput counts under an SLO on the 99th percentile. Decision 0041.

mod sampler;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counters::{LatencyCounts, WorkerCounters};

pub use sampler::{Round, Sampler};

/// The shortest and the longest objective.
pub const SLO_MIN: Duration = Duration::from_micros(1);
/// See [`SLO_MIN`].
pub const SLO_MAX: Duration = Duration::from_secs(60);

/// The objective, as all threads see it.
#[derive(Debug)]
pub struct Slo {
    /// 0: none.
    target_ns: AtomicU64,
    is_measurable: bool,
}

/// Why an objective cannot be set now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SloError {
    /// The time is out of range.
    #[error("{}", self.reason())]
    OutOfRange,
    /// A number without a unit: some read it as seconds, others as milliseconds.
    #[error("{}", self.reason())]
    NoUnit,
    /// The workers were created without the means to measure (S2).
    #[error("{}", self.reason())]
    NotMeasured,
}

impl SloError {
    /// The remedy.
    pub fn reason(self) -> &'static str {
        match self {
            SloError::OutOfRange => "argument must be off or a time from 1us to 60s, e.g. 1ms",
            SloError::NoUnit => "write a unit: 5ms, 5us, 5s",
            SloError::NotMeasured => {
                "start the server with --slo: its threads take no times without"
            }
        }
    }
}

impl Slo {
    /// The objective at a server's start. Workers that route can begin to measure at any time.
    pub fn new(target: Option<Duration>, is_routed: bool) -> Slo {
        let target_ns = AtomicU64::new(target.map_or(0, ns_of));
        Slo { target_ns, is_measurable: is_routed || target.is_some() }
    }

    /// The objective; `None`: there is none.
    pub fn target(&self) -> Option<Duration> {
        match self.target_ns() {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    /// The latencies of sampled requests, over these workers; none without `--slo`.
    pub fn counts<'a>(workers: impl Iterator<Item = &'a WorkerCounters>) -> LatencyCounts {
        LatencyCounts::sum(workers.map(|worker| &worker.latency))
    }

    /// The same in nanoseconds; 0: there is none.
    #[inline]
    pub fn target_ns(&self) -> u64 {
        // Relaxed: a round sooner or later does not matter.
        self.target_ns.load(Ordering::Relaxed)
    }

    /// Whether latencies are measured, or could be.
    pub fn is_measurable(&self) -> bool {
        self.is_measurable
    }

    /// Whether that objective could be set.
    pub fn check(&self, target: Option<Duration>) -> Result<(), SloError> {
        match target {
            None => Ok(()),
            Some(time) if !(SLO_MIN..=SLO_MAX).contains(&time) => Err(SloError::OutOfRange),
            Some(_) if !self.is_measurable => Err(SloError::NotMeasured),
            Some(_) => Ok(()),
        }
    }

    /// Sets the objective; it holds from the workers' next rounds on.
    pub fn set(&self, target: Option<Duration>) -> Result<(), SloError> {
        self.check(target)?;
        self.target_ns.store(target.map_or(0, ns_of), Ordering::Relaxed);
        Ok(())
    }

    /// As CONFIG GET shows it.
    pub fn text(&self) -> String {
        self.target().map_or("off".to_owned(), base::format_duration)
    }
}

fn ns_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses `off` or a time.
pub fn parse(text: &[u8]) -> Result<Option<Duration>, SloError> {
    if text.eq_ignore_ascii_case(b"off") {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| SloError::OutOfRange)?;
    if base::is_unit_missing(text) {
        return Err(SloError::NoUnit);
    }
    base::parse_duration(text).map(Some).map_err(|_| SloError::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_off_or_a_time_in_its_bounds() {
        let check = |text: &str, want: Result<Option<Duration>, SloError>| {
            let slo = Slo::new(None, true);
            let found = parse(text.as_bytes()).and_then(|target| {
                slo.set(target)?;
                Ok(slo.target())
            });
            assert_eq!(found, want, "{text}");
        };
        check("off", Ok(None));
        check("OFF", Ok(None));
        check("1ms", Ok(Some(Duration::from_millis(1))));
        check("1.5 ms", Ok(Some(Duration::from_micros(1500))));
        check("60s", Ok(Some(SLO_MAX)));
        for text in ["5", "0.5", " 5 "] {
            check(text, Err(SloError::NoUnit));
        }
        for text in ["61s", "999ns", "0s", "0", "soon", "-1ms", ""] {
            check(text, Err(SloError::OutOfRange));
        }
    }

    #[test]
    fn workers_without_the_means_to_measure_take_no_objective() {
        let slo = Slo::new(None, false);
        assert_eq!(slo.set(Some(SLO_MAX)), Err(SloError::NotMeasured));
        assert_eq!((slo.set(None), slo.text()), (Ok(()), "off".to_owned()));
        let started_with = Slo::new(Some(SLO_MAX), false);
        assert_eq!(started_with.set(Some(SLO_MIN)), Ok(()));
        assert_eq!(started_with.text(), "1us");
    }
}
