//! Software hand-off: some workers only receive, the others take one request at a time (Minos
//! §5.2, "SHO").

use std::ops::Range;

use base::WorkerId;

use super::Balance;
use crate::depths::Depths;
use crate::route::RouteRequest;

/// Workers `0..hand_off_workers` receive and hand over; the others execute, one request at a time,
/// so a request is bound to a worker only when that worker is idle.
#[derive(Clone, Copy, Debug)]
pub struct HandOff {
    hand_off_workers: u16,
}

impl HandOff {
    /// Makes the first `hand_off_workers` workers hand over; at least one other must be left.
    pub fn new(hand_off_workers: u16) -> HandOff {
        HandOff { hand_off_workers }
    }

    /// The workers that receive: clients send to these only.
    pub fn receivers(&self) -> Range<u16> {
        0..self.hand_off_workers
    }
}

impl Balance for HandOff {
    #[inline]
    fn pick(&self, _request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        depths.shortest_of(self.hand_off_workers..u16::MAX, 1)
    }
}
