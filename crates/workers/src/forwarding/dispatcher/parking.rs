//! Parked requests: those that found no worker. They are routed again, oldest first, whenever a
//! request completes.
//!
//! # Invariants
//! W1: parked requests are ordered by arrival. So none waits for one behind it, and the first waits
//!     only for requests in flight: however few are tried at a time, each is placed eventually.

use std::collections::VecDeque;

use runtime::core::Core;

use super::tickets::Tickets;
use super::{Dispatcher, Wait};

/// Failed tries of parked requests, after which the rest waits for the next completion.
const TRIES_MAX: usize = 16;

/// The parked requests, oldest first.
#[derive(Default)]
pub(super) struct Parked(VecDeque<u32>);

impl Parked {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parks the request that has arrived last.
    pub fn push(&mut self, index: u32) {
        self.0.push_back(index);
    }

    /// Parks a request again that was in flight, before those that arrived after it (W1): they may
    /// be waiting for it.
    pub fn push_again(&mut self, core: &mut Core, tickets: &Tickets, index: u32) {
        let slot = tickets[index].slot as usize;
        core.connections[slot].awaiting.wait = Wait::Parked;
        let order = order_of(tickets, index);
        let place = self.0.partition_point(|parked| order_of(tickets, *parked) < order);
        self.0.insert(place, index);
    }

    /// Forgets a request.
    pub fn forget(&mut self, index: u32) {
        self.0.retain(|parked| *parked != index);
    }
}

/// When a parked request arrived, relative to others.
fn order_of(tickets: &Tickets, index: u32) -> u64 {
    // SAFETY: the ticket is parked, so the dispatcher holds the request slot (I1).
    unsafe { (*tickets.request_slot(index)).order }
}

/// Routes parked requests again, oldest first.
pub(super) fn try_parked(dispatcher: &mut Dispatcher, core: &mut Core) -> bool {
    let mut has_placed = false;
    let mut failed_count = 0;
    let mut left = dispatcher.parked.0.len();
    let mut at = 0;
    while left > 0 && failed_count < TRIES_MAX {
        left -= 1;
        let index = dispatcher.parked.0[at];
        if !dispatcher.place(core, index) {
            failed_count += 1;
            at += 1;
            continue;
        }
        dispatcher.parked.0.remove(at);
        has_placed = true;
        let slot = dispatcher.tickets[index].slot as usize;
        core.connections[slot].awaiting.wait = Wait::Nothing;
        core.touch(slot);
    }
    if has_placed {
        dispatcher.publish(core);
    }
    has_placed
}
