//! What lies between the workers: every front's cells, every worker's bell.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::WorkerId;
use base::ring::{Bell, Receiver};
use crossbeam_utils::CachePadded;

use super::cell::Cells;
use super::layers::Layers;

/// Shared by all workers of a server that routes; lives as long as the last of them.
pub struct Fabric {
    /// By front.
    pub(super) cells: Vec<Cells>,
    /// By thread.
    pub(super) bells: Vec<CachePadded<Bell>>,
    /// Who may route to whom.
    pub(super) layers: Layers,
    /// Fronts that may still send something.
    fronts_open: AtomicUsize,
}

impl Fabric {
    /// Nothing is on the way.
    pub fn new(layers: Layers) -> Fabric {
        let thread_count = layers.first_back + layers.backs;
        Fabric {
            cells: (0..layers.fronts).map(|_| Cells::new()).collect(),
            bells: (0..thread_count).map(|_| CachePadded::new(Bell::new())).collect(),
            layers,
            fronts_open: AtomicUsize::new(layers.fronts),
        }
    }

    /// A front will send nothing more, and everything it sent is done; whether it was the last.
    pub(super) fn close_front(&self) -> bool {
        // AcqRel: whoever sees none left sees all that they did.
        self.fronts_open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether nothing more can be sent to anybody.
    pub(super) fn are_fronts_closed(&self) -> bool {
        self.fronts_open.load(Ordering::Acquire) == 0
    }
}

/// The receiving end of a ring, on its way to the worker that will serve it.
#[derive(Debug)]
pub struct Lane {
    /// Who sends.
    pub(super) front: WorkerId,
    /// Names cells of that front.
    pub(super) receiver: Receiver,
}
