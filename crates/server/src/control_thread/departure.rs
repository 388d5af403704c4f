//! Departure: a server that is to stop first lets other nodes take over, so that no client waits
//! for a lease.
//!
//! ```text
//!  owner ─ ask ─▶ control thread: Node::end, ticks ─ Node::has_left ─▶ owner stops workers
//! ```
//!
//! # Invariants
//! D1: clients are served throughout; an owner that stops waiting loses only time.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

/// The owner's end.
pub(super) struct Asking {
    ask: Sender<()>,
    left: Receiver<bool>,
}

/// The control thread's end.
pub(super) struct Departure {
    asked: Receiver<()>,
    left: Sender<bool>,
}

pub(super) fn departure() -> (Asking, Departure) {
    let (ask, asked) = crossbeam_channel::bounded(1);
    let (left, has_left) = crossbeam_channel::bounded(1);
    (Asking { ask, left: has_left }, Departure { asked, left })
}

impl Asking {
    /// Asks for the departure; the caller then wakes the control thread.
    pub fn ask(&self) {
        let _ = self.ask.try_send(()); // Full: it has been asked.
    }

    /// Waits, at most this long; returns whether other nodes have everything.
    pub fn wait(&self, limit: Duration) -> bool {
        self.left.recv_timeout(limit).unwrap_or(false)
    }
}

impl Departure {
    pub fn is_asked(&self) -> bool {
        self.asked.try_recv().is_ok()
    }

    /// Reports that waiting is over, and whether other nodes have taken over.
    pub fn tell(&self, has_gone: bool) {
        let _ = self.left.try_send(has_gone); // Full: it has been reported.
    }
}
