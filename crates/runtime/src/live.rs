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
use std::sync::{Mutex, MutexGuard, PoisonError};

use config::{Config, RewriteFile};
use config::{LogLevel, SetLogLevel};
use sessions::clients::ClientsMax;

/// Live settings that no other module keeps, and the list of changed ones.
#[derive(Debug)]
pub struct Live {
    max_connections: AtomicUsize,
    /// 0: no limit.
    max_per_address: AtomicUsize,
    /// 0: off.
    idle_timeout_ms: AtomicU64,
    log_level: AtomicU8,
    set_log_level: Option<SetLogLevel>,
    /// Held while the settings of one command, or of one reading of the file, are applied.
    applying: Mutex<()>,
    /// The last values set, in the spelling of the file.
    changed: Mutex<BTreeMap<&'static str, String>>,
}

impl Live {
    /// The settings at the start.
    pub fn new(config: &Config) -> Live {
        Live {
            max_connections: AtomicUsize::new(config.max_connections),
            max_per_address: AtomicUsize::new(config.max_connections_per_address),
            idle_timeout_ms: AtomicU64::new(config.idle_timeout_ms),
            log_level: AtomicU8::new(config.hooks.log_level.number()),
            set_log_level: config.hooks.set_log_level,
            applying: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    /// The maximum number of open connections.
    pub fn max_connections(&self) -> usize {
        // Relaxed: a change may take effect one connection later.
        self.max_connections.load(Ordering::Relaxed)
    }

    /// The maximum number of open connections of one address; 0: no further limit.
    pub fn max_connections_per_address(&self) -> usize {
        self.max_per_address.load(Ordering::Relaxed)
    }

    /// How many clients there may be.
    pub fn clients_max(&self) -> ClientsMax {
        let (all, per_address) = (self.max_connections(), self.max_connections_per_address());
        ClientsMax { all, per_address }
    }

    /// Takes effect from the next connection on; open ones stay.
    pub fn set_max_connections_per_address(&self, count: usize) {
        self.max_per_address.store(count, Ordering::Relaxed);
    }

    /// Takes effect from the next connection on; open ones stay.
    pub fn set_max_connections(&self, count: usize) {
        self.max_connections.store(count, Ordering::Relaxed);
    }

    /// The time without a byte in either direction after which a connection is closed; 0: never.
    #[inline]
    pub fn idle_timeout_ms(&self) -> u64 {
        // Relaxed: a change may take effect one pass later.
        self.idle_timeout_ms.load(Ordering::Relaxed)
    }

    /// That time in the spelling of the file.
    pub fn idle_timeout_text(&self) -> String {
        match self.idle_timeout_ms() {
            0 => "off".to_owned(),
            ms => base::format_duration(std::time::Duration::from_millis(ms)),
        }
    }

    /// Also takes effect for open connections. Sleeping workers must be woken.
    pub fn set_idle_timeout_ms(&self, ms: u64) {
        self.idle_timeout_ms.store(ms, Ordering::Relaxed);
    }

    /// The present log level.
    pub fn log_level(&self) -> LogLevel {
        LogLevel::of_number(self.log_level.load(Ordering::Relaxed))
    }

    /// Takes effect from the next line on.
    pub fn set_log_level(&self, level: LogLevel) {
        self.log_level.store(level.number(), Ordering::Relaxed);
        if let Some(set) = self.set_log_level {
            set(level.name());
        }
    }

    /// Lets no other command apply settings meanwhile: its checks would hold no more.
    pub fn begin_applying(&self) -> MutexGuard<'_, ()> {
        self.applying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers changed settings, for the file.
    pub fn note(&self, changes: Vec<(&'static str, String)>) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).extend(changes);
    }

    /// Writes the settings that changed since the start.
    pub fn write_to(&self, path: &Path, rewrite: RewriteFile) -> io::Result<()> {
        // A copy, so that CONFIG SET does not wait for the disk.
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rewrite(path, &changed)
    }
}
