//! Parked requests: those that found no worker. They are routed again, oldest first, whenever a
//! request completes.
//!
//! # Invariants
//! W1: parked requests are ordered by arrival. So none waits for one behind it, and the first waits
//!     only for requests in flight: however few are tried at a time, each is placed eventually.

use runtime::core::Core;

use super::{Dispatcher, Wait};

/// Failed tries of parked requests, after which the rest waits for the next completion.
const TRIES_MAX: usize = 16;

impl Dispatcher {
    /// Parks a request again that was in flight, before those that arrived after it (W1): they may
    /// be waiting for it.
    pub(super) fn park_again(&mut self, core: &mut Core, index: u32) {
        let slot = self.tickets[index as usize].slot as usize;
        core.connections[slot].awaiting.wait = Wait::Parked;
        let order = self.order(index);
        let place = self.parked.partition_point(|parked| self.order(*parked) < order);
        self.parked.insert(place, index);
    }

    /// When a parked request arrived, relative to others.
    fn order(&self, index: u32) -> u64 {
        // SAFETY: the ticket is parked, so the dispatcher holds the request slot (I1).
        unsafe { (*self.request_slot(index)).order }
    }

    /// Routes parked requests again, oldest first.
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
