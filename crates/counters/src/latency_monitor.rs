//! The events of LATENCY: when something took longer than `latency-monitor-threshold`, and how
//! long.
//!
//! ```text
//!  command ──┐
//!  batch ────┼─ beyond the threshold ─▶ one sample a second, 160 at most, and the worst ever
//! ```
//!
//! # Invariants
//! M1: without a threshold (0, the default) nothing is kept and no lock is taken.
//! M2: two samples of one second are merged into one, the longer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::UnixMillis;

/// Samples of one event, as in Redis.
const SAMPLES_MAX: usize = 160;

/// The events that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Requests that ran together.
    Batch,
    /// A command that ran by itself.
    Command,
}

impl Kind {
    /// Its name in LATENCY.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Batch => "batch",
            Kind::Command => "command",
        }
    }

    fn named(name: &[u8]) -> Option<Kind> {
        [Kind::Batch, Kind::Command].into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Unix time.
    pub at_seconds: u64,
    /// The duration.
    pub took_ms: u64,
}

/// The samples of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Oldest first.
    pub samples: VecDeque<Sample>,
    /// The worst ever.
    pub worst_ms: u64,
}

/// The events, as all threads see them.
#[derive(Debug, Default)]
pub struct LatencyMonitor {
    threshold_ms: AtomicU64,
    events: Mutex<BTreeMap<Kind, Event>>,
}

impl LatencyMonitor {
    /// Samples events that take `threshold_ms` or more, unless that is 0.
    pub fn new(threshold_ms: u64) -> LatencyMonitor {
        LatencyMonitor { threshold_ms: AtomicU64::new(threshold_ms), events: Mutex::default() }
    }

    /// The threshold in milliseconds; 0: nothing is sampled.
    pub fn threshold_ms(&self) -> u64 {
        // Relaxed: a change may take effect one command later.
        self.threshold_ms.load(Ordering::Relaxed)
    }

    /// Sets the threshold from now on.
    pub fn set_threshold_ms(&self, threshold_ms: u64) {
        self.threshold_ms.store(threshold_ms, Ordering::Relaxed);
    }

    /// The duration from which an event is sampled; `None`: none is.
    #[inline]
    pub fn threshold(&self) -> Option<Duration> {
        let threshold_ms = self.threshold_ms();
        (threshold_ms > 0).then(|| Duration::from_millis(threshold_ms))
    }

    /// Adds a sample for an event that took so long.
    #[cold]
    pub fn add(&self, kind: Kind, now: UnixMillis, took: Duration) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let sample = Sample { at_seconds: now.0 / 1000, took_ms };
        let mut events = self.lock();
        let event = events.entry(kind).or_default();
        event.worst_ms = event.worst_ms.max(took_ms);
        if let Some(last) = event.samples.back_mut()
            && last.at_seconds == sample.at_seconds
        {
            last.took_ms = last.took_ms.max(took_ms);
            return;
        }
        if event.samples.len() == SAMPLES_MAX {
            event.samples.pop_front();
        }
        event.samples.push_back(sample);
    }

    /// All events that have samples.
    pub fn events(&self) -> Vec<(&'static str, Event)> {
        self.lock().iter().map(|(kind, event)| (kind.name(), event.clone())).collect()
    }

    /// One event; `None`: it has no samples.
    pub fn event(&self, name: &[u8]) -> Option<(&'static str, Event)> {
        let kind = Kind::named(name)?;
        self.lock().get(&kind).map(|event| (kind.name(), event.clone()))
    }

    /// Removes the samples of an event; returns whether there were any.
    pub fn reset(&self, name: &[u8]) -> bool {
        Kind::named(name).is_some_and(|kind| self.lock().remove(&kind).is_some())
    }

    /// Removes all samples; returns the number of events.
    pub fn reset_all(&self) -> usize {
        std::mem::take(&mut *self.lock()).len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// LATENCY DOCTOR: a summary of the samples.
pub fn report(threshold_ms: u64, events: &[(&'static str, Event)]) -> String {
    if threshold_ms == 0 && events.is_empty() {
        return "Latency is not watched. CONFIG SET latency-monitor-threshold <milliseconds> \
                watches it.\n"
            .to_owned();
    }
    if events.is_empty() {
        return format!("Nothing has taken {threshold_ms} ms or more.\n");
    }
    let mut text = String::new();
    for (at, (name, event)) in events.iter().enumerate() {
        let count = event.samples.len() as u64;
        let sum_ms: u64 = event.samples.iter().map(|sample| sample.took_ms).sum();
        let average_ms = sum_ms / count.max(1);
        let off_ms: u64 =
            event.samples.iter().map(|sample| sample.took_ms.abs_diff(average_ms)).sum();
        text.push_str(&format!(
            "{}. {name}: {count} latency spikes (average {average_ms}ms, mean deviation {}ms). \
             Worst all time event {}ms.\n",
            at + 1,
            off_ms / count.max(1),
            event.worst_ms,
        ));
    }
    text.push_str(
        "SLOWLOG GET names the commands; /metrics has dovetail_command_duration_seconds.\n",
    );
    text
}

/// The rows of LATENCY GRAPH.
const GRAPH_ROWS: usize = 4;

/// The maximum number of samples that LATENCY GRAPH shows.
const GRAPH_COLUMNS: usize = 80;

/// LATENCY GRAPH: a column for each sample, its age below.
pub fn graph(name: &str, event: &Event, now: UnixMillis) -> String {
    let skipped = event.samples.len().saturating_sub(GRAPH_COLUMNS);
    let samples: Vec<Sample> = event.samples.iter().skip(skipped).copied().collect();
    let high = samples.iter().map(|sample| sample.took_ms).max().unwrap_or(0);
    let low = samples.iter().map(|sample| sample.took_ms).min().unwrap_or(0);
    let worst = event.worst_ms;
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {worst} ms)\n");
    text.push_str(&"-".repeat(GRAPH_COLUMNS));
    text.push('\n');
    let height = |sample: &Sample| {
        let above = (sample.took_ms - low) as f64 / (high - low).max(1) as f64;
        1 + (above * (GRAPH_ROWS - 1) as f64).round() as usize
    };
    for row in (1..=GRAPH_ROWS).rev() {
        let mark = |sample: &Sample| if height(sample) >= row { '#' } else { ' ' };
        text.push_str(samples.iter().map(mark).collect::<String>().trim_end());
        text.push('\n');
    }
    let ages: Vec<String> =
        samples.iter().map(|sample| age(now.0 / 1000, sample.at_seconds)).collect();
    text.push('\n');
    let rows = ages.iter().map(String::len).max().unwrap_or(0);
    for row in 0..rows {
        let mark = |age: &String| age.as_bytes().get(row).map_or(' ', |byte| char::from(*byte));
        text.push_str(ages.iter().map(mark).collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

fn age(now_seconds: u64, at_seconds: u64) -> String {
    match now_seconds.saturating_sub(at_seconds) {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_and_the_worst_is_kept() {
        let monitor = LatencyMonitor::default();
        assert_eq!(monitor.threshold(), None);
        for (at, ms) in [(1_000, 5), (1_500, 9), (1_900, 7), (3_000, 6)] {
            monitor.add(Kind::Command, UnixMillis(at), Duration::from_millis(ms));
        }
        let (name, event) = monitor.event(b"command").unwrap();
        let samples: Vec<_> =
            event.samples.iter().map(|sample| (sample.at_seconds, sample.took_ms)).collect();
        assert_eq!((name, samples, event.worst_ms), ("command", vec![(1, 9), (3, 6)], 9));
        assert_eq!((monitor.reset(b"batch"), monitor.reset(b"nosuch")), (false, false));
        assert_eq!((monitor.reset_all(), monitor.event(b"command")), (1, None));
    }

    #[test]
    fn an_event_keeps_its_newest_samples() {
        let monitor = LatencyMonitor::default();
        for second in 0..200 {
            monitor.add(Kind::Batch, UnixMillis(second * 1000), Duration::from_millis(1));
        }
        let (_, event) = monitor.event(b"batch").unwrap();
        assert_eq!((event.samples.len(), event.samples[0].at_seconds), (SAMPLES_MAX, 40));
    }

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        let samples = [(100, 10), (130, 40), (160, 20)];
        let samples =
            samples.map(|(at_seconds, took_ms)| Sample { at_seconds, took_ms }).into_iter();
        let event = Event { samples: samples.collect(), worst_ms: 50 };
        let text = graph("command", &event, UnixMillis(165_000));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "command - high 40 ms, low 10 ms (all time high 50 ms)");
        assert_eq!(&lines[2..], [" #", " #", " ##", "###", "", "135", "m5s", " s"]);
        assert!(report(0, &[]).contains("latency-monitor-threshold"));
        assert!(report(1, &[("command", event)]).contains("average 23ms"));
    }
}
