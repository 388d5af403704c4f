//! Requests that found no worker: each asks again, oldest first, when something is done.
//!
//! # Invariants
//! W1: parked requests stand in the order in which they came. So none waits for one that stands
//!     behind it, and the first of them waits for what is on its way only: whatever few are tried,
//!     some day one of them goes.

use super::{Dispatcher, Wait};
use crate::core::Core;

/// Parked requests that are tried in vain before the rest has to wait for the next completion.
const TRIES_MAX: usize = 16;

impl Dispatcher {
    /// A request that was on its way is parked again, before those that came after it (W1): they
    /// may be waiting for it.
    pub(super) fn park_again(&mut self, core: &mut Core, index: u32) {
        let slot = self.tickets[index as usize].slot as usize;
        core.connections[slot].awaiting.wait = Wait::Parked;
        let order = self.order(index);
        let place = self.parked.partition_point(|parked| self.order(*parked) < order);
        self.parked.insert(place, index);
    }

    /// When a parked request came.
    fn order(&self, index: u32) -> u64 {
        // SAFETY: the ticket is parked, so the dispatcher holds the request slot (I1).
        unsafe { (*self.request_slot(index)).order }
    }

    /// Requests that found no worker ask again, oldest first.
    pub(super) fn try_parked(&mut self, core: &mut Core) -> bool {
        let mut has_placed = false;
        let mut failed_count = 0;
        let mut left = self.parked.len();
        let mut at = 0;
        while left > 0 && failed_count < TRIES_MAX {
            left -= 1;
            let index = self.parked[at];
            if !self.place(core, index) {
                failed_count += 1;
                at += 1;
                continue;
            }
            self.parked.remove(at);
            has_placed = true;
            let slot = self.tickets[index as usize].slot as usize;
            core.connections[slot].awaiting.wait = Wait::Nothing;
            core.touch(slot);
        }
        if has_placed {
            self.publish(core);
        }
        has_placed
    }
}
