//! One run of a server: its id, its time, and whether it ends.
//!
//! # Invariants
//! R1: a run that stops never goes on; one that aborts stops as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use host::process::random_id;

/// The run of a server.
#[derive(Debug)]
pub struct Run {
    id: String,
    started: Instant,
    is_stopping: AtomicBool,
    is_aborting: AtomicBool,
    shutdown: (Sender<()>, Receiver<()>),
}

impl Run {
    /// A run that begins now.
    pub(crate) fn new() -> Run {
        Run {
            id: random_id(),
            started: Instant::now(),
            is_stopping: AtomicBool::new(false),
            is_aborting: AtomicBool::new(false),
            shutdown: crossbeam_channel::bounded(1),
        }
    }

    /// The run id: 40 hexadecimal digits, new at each start.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the server is draining.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Whether connections that are not drained yet are to be cut.
    #[inline]
    pub fn is_aborting(&self) -> bool {
        self.is_aborting.load(Ordering::Acquire)
    }

    /// The server is draining from now on.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Connections are to be cut; the caller stops the run as well (R1).
    pub(crate) fn abort(&self) {
        self.is_aborting.store(true, Ordering::Release);
    }

    /// Receives a message for each SHUTDOWN.
    pub fn shutdown_requests(&self) -> Receiver<()> {
        self.shutdown.1.clone()
    }

    /// Requests the shutdown for a client. A second request changes nothing.
    pub fn request_shutdown(&self) {
        let _ = self.shutdown.0.try_send(());
    }
}
