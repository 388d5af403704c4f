//! What a front shows of its part of the write table: added to its worker's cells once a round, so
//! that no request touches what others read.

use policy::{Busy, PinCounts, Route};

use super::Front;
use crate::core::Core;

impl Front {
    /// Once a round.
    #[inline]
    pub fn show_pins(&mut self, core: &Core) {
        let Some(now) = self.decider.pin_counts() else { return };
        let shown = std::mem::replace(&mut self.pins_shown, now);
        if now == shown {
            return;
        }
        let hops = &core.counters().hops;
        hops.pins.add(now.pins - shown.pins);
        hops.pin_conflicts.add(now.diverted - shown.diverted);
        // Below 0 in one cell, never in the sum over them.
        hops.pins_opened.set(now.opened as u64);
    }

    /// The router goes; its table is empty by now, whoever freed what this front had opened.
    pub(super) fn end_pins(&mut self, core: &Core) {
        self.show_pins(core);
        self.pins_shown = PinCounts::default();
        core.counters().hops.pins_opened.set(0);
    }

    /// A request found no worker when it was asked about first.
    pub(super) fn note_wait(&self, core: &Core, route: Route) {
        if let Route::Busy(Busy::WriteTableFull | Busy::HeldElsewhere) = route {
            core.counters().hops.pin_conflicts.add(1);
        }
    }
}
