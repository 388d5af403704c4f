//! The observations that operators read over RESP and memcached: the slow log, latency events, and
//! the durations of commands.
//!
//! # Concurrency
//! Any thread, at any time; a request touches none of them unless it was slow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::UnixMillis;
use budget::BufferBudget;
use config::Config;
use counters::latency_monitor::LatencyMonitor;
use counters::{AdminCounters, LatencyCounts};
use dispatch::hot::session::HotSessions;
use host::process::{random_id, unix_now};
use sessions::auth_log::AuthLog;
use sessions::event_stream::EventStream;
use sessions::monitor::Monitors;
use sessions::slow_log::SlowLog;

/// All observations.
#[derive(Debug)]
pub struct Observations {
    /// SLOWLOG.
    pub slow_log: SlowLog,
    /// LATENCY LATEST and similar commands.
    pub latency_monitor: LatencyMonitor,
    /// ACL LOG.
    pub auth_log: AuthLog,
    /// The counts of refusals at the admin port.
    pub admin: AdminCounters,
    /// MONITOR.
    pub monitors: Monitors,
    /// HOTKEYS START.
    pub hot_sessions: HotSessions,
    /// memcached's `watch`.
    pub event_stream: EventStream,
    /// The replication id in INFO; DEBUG CHANGE-REPL-ID generates another.
    replication_id: Mutex<String>,
    /// When SAVE or BGSAVE last succeeded, or the start, in Unix milliseconds.
    saved_at: AtomicU64,
    /// The durations of commands when the totals were reset, by their positions.
    durations_baseline: Mutex<BTreeMap<usize, LatencyCounts>>,
}

impl Observations {
    /// The observations with the settings' limits.
    pub fn new(config: &Config, budget: &Arc<BufferBudget>) -> Observations {
        Observations {
            slow_log: SlowLog::new(config.slow_log.threshold_us, config.slow_log.len_max, budget),
            latency_monitor: LatencyMonitor::new(config.latency_monitor_ms),
            auth_log: AuthLog::new(budget),
            admin: AdminCounters::default(),
            monitors: Monitors::default(),
            hot_sessions: HotSessions::default(),
            event_stream: EventStream::default(),
            replication_id: Mutex::new(random_id()),
            saved_at: AtomicU64::new(unix_now().0),
            durations_baseline: Mutex::default(),
        }
    }

    /// The replication id: 40 hexadecimal digits.
    pub fn replication_id(&self) -> String {
        self.replication_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Draws another replication id, for DEBUG CHANGE-REPL-ID.
    pub fn change_replication_id(&self) {
        *self.replication_id.lock().unwrap_or_else(PoisonError::into_inner) = random_id();
    }

    /// When SAVE or BGSAVE last succeeded; before that, the time of the start.
    pub fn saved_at(&self) -> UnixMillis {
        UnixMillis(self.saved_at.load(Ordering::Relaxed))
    }

    /// A save has ended.
    pub fn note_save(&self, at: UnixMillis) {
        self.saved_at.store(at.0, Ordering::Relaxed);
    }

    /// The durations since the reset; `None`: there are none.
    pub fn durations_since_reset(
        &self,
        index: usize,
        now: Option<LatencyCounts>,
    ) -> Option<LatencyCounts> {
        let baseline = self.durations_baseline.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now?;
        let since = match baseline.get(&index) {
            Some(then) => now.since(then),
            None => now,
        };
        (since.samples > 0).then_some(since)
    }

    /// Makes these the baseline.
    pub fn reset_durations(&self, now: impl Iterator<Item = (usize, LatencyCounts)>) {
        *self.durations_baseline.lock().unwrap_or_else(PoisonError::into_inner) = now.collect();
    }
}
