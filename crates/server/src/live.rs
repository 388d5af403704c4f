//! The settings that CONFIG SET changes while the server runs, and that CONFIG REWRITE writes to
//! the file.
//!
//! # Concurrency
//! Any thread, at any time. A worker reads a number here when it accepts a connection, and nothing
//! for a request. The file is written by the worker that executes the command, under the lock of
//! the changed settings: two concurrent rewrites run one after the other.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::clients::ClientsMax;
use crate::config::Config;
use crate::log_level::{LogLevel, SetLogLevel};

/// The settings, by their keys.
pub const LIVE_SETTINGS: [&str; 14] = [
    "threads",
    "cr-threads",
    "memory",
    "slo",
    "hot-set",
    "max-connections",
    "max-connections-per-address",
    "requirepass",
    "idle-timeout",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "tracking-table-max-keys",
    "latency-monitor-threshold",
    "log",
];

/// Puts values that have changed, each with its key, into a configuration file.
pub type RewriteFile = fn(&Path, &BTreeMap<&'static str, String>) -> io::Result<()>;

/// What the process around a server has and does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hooks {
    /// How CONFIG REWRITE changes values in the file; `None`: it does not.
    pub rewrite_file: Option<RewriteFile>,
    /// Least level of log lines, as the process was started.
    pub log_level: LogLevel,
    /// How CONFIG SET changes it; `None`: nothing is logged by levels.
    pub set_log_level: Option<SetLogLevel>,
    /// Called at the start, once: until then the process may end at once and nothing is lost, from
    /// then on the server has to be stopped.
    pub before_begin: Option<fn()>,
}

/// What has no better home than the list of what can be changed.
#[derive(Debug)]
pub struct Live {
    max_connections: AtomicUsize,
    /// 0: as many as there may be.
    max_per_address: AtomicUsize,
    /// 0: off.
    idle_timeout_ms: AtomicU64,
    log_level: AtomicU8,
    set_log_level: Option<SetLogLevel>,
    /// As they were given last, in the spelling of the file.
    changed: Mutex<BTreeMap<&'static str, String>>,
}

impl Live {
    /// As started.
    pub(crate) fn new(config: &Config) -> Live {
        Live {
            max_connections: AtomicUsize::new(config.max_connections),
            max_per_address: AtomicUsize::new(config.max_connections_per_address),
            idle_timeout_ms: AtomicU64::new(config.idle_timeout_ms),
            log_level: AtomicU8::new(config.hooks.log_level.number()),
            set_log_level: config.hooks.set_log_level,
            changed: Mutex::default(),
        }
    }

    /// Connections that may be open at one time.
    pub fn max_connections(&self) -> usize {
        // Relaxed: one connection sooner or later.
        self.max_connections.load(Ordering::Relaxed)
    }

    /// The same of one address; 0: no more than that.
    pub fn max_connections_per_address(&self) -> usize {
        self.max_per_address.load(Ordering::Relaxed)
    }

    pub(crate) fn clients_max(&self) -> ClientsMax {
        let (all, per_address) = (self.max_connections(), self.max_connections_per_address());
        ClientsMax { all, per_address }
    }

    /// Holds for the next connection; those that are open stay.
    pub(crate) fn set_max_connections_per_address(&self, count: usize) {
        self.max_per_address.store(count, Ordering::Relaxed);
    }

    /// Holds for the next connection; those that are open stay.
    pub(crate) fn set_max_connections(&self, count: usize) {
        self.max_connections.store(count, Ordering::Relaxed);
    }

    /// After so long without a byte either way a connection is closed; 0: never.
    #[inline]
    pub fn idle_timeout_ms(&self) -> u64 {
        // Relaxed: a pass sooner or later.
        self.idle_timeout_ms.load(Ordering::Relaxed)
    }

    /// The same as the file spells it.
    pub fn idle_timeout_text(&self) -> String {
        match self.idle_timeout_ms() {
            0 => "off".to_owned(),
            ms => base::format_duration(std::time::Duration::from_millis(ms)),
        }
    }

    /// Holds for connections that are open, too. Workers that sleep are to be woken.
    pub(crate) fn set_idle_timeout_ms(&self, ms: u64) {
        self.idle_timeout_ms.store(ms, Ordering::Relaxed);
    }

    /// Least level of log lines.
    pub fn log_level(&self) -> LogLevel {
        LogLevel::of_number(self.log_level.load(Ordering::Relaxed))
    }

    /// Holds for the next line.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.log_level.store(level.number(), Ordering::Relaxed);
        if let Some(set) = self.set_log_level {
            set(level.name());
        }
    }

    /// Remembers what was set, for the file.
    pub(crate) fn note(&self, changes: Vec<(&'static str, String)>) {
        debug_assert!(changes.iter().all(|(key, _)| LIVE_SETTINGS.contains(key)));
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).extend(changes);
    }

    /// Writes what was set since the start.
    pub(crate) fn write_to(&self, path: &Path, rewrite: RewriteFile) -> io::Result<()> {
        // A copy: CONFIG SET does not wait for the disk.
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rewrite(path, &changed)
    }
}
