//! A dispatcher's tickets: its own state of each of its request slots, which of them are free, and
//! their order within a connection.
//!
//! The invariants I1 and I2 are those of [`dispatcher`](super).

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use base::{KeyHash, PartitionId, WorkerId};
use budget::Kind;
use dispatch::lanes::awaiting::{Awaiting, NO_TICKET};
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::request_slot::{REQUEST_SLOTS, RequestSlot, RequestSlots};
use policy::{Access, RouteRequest};
use runtime::core::Core;

/// Request slots that stay free for refusals, of which a client can cause one only.
pub(super) const REQUEST_SLOTS_RESERVED: usize = 32;

/// Of a ticket whose connection is closed.
pub(super) const NO_CONNECTION: u32 = u32::MAX;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// It waits for a worker.
    Parked,
    Sent,
    /// It is in the batch in the making (`direct`).
    Here,
    /// A large worker may take it (`helped`).
    Offered,
    /// The control thread has it (`replicated`).
    Replicating,
    Done,
}

/// The dispatcher's state of a request slot.
pub(super) struct Ticket {
    pub state: State,
    /// The connection, or [`NO_CONNECTION`] once it is closed.
    pub slot: u32,
    pub next: u32,
    /// The router's worker, once it is sent.
    pub worker: WorkerId,
    pub hash: KeyHash,
    pub request: RouteRequest,
    /// Booked in the client buffers' budget.
    pub booked_bytes: u64,
}

impl Ticket {
    /// Whether it is not executed yet, as far as the dispatcher knows, and not in its batch.
    #[inline]
    fn is_on_its_way(&self) -> bool {
        matches!(self.state, State::Sent | State::Parked | State::Offered | State::Replicating)
    }
}

/// The tickets of a dispatcher, one for each request slot.
pub(super) struct Tickets {
    request_slots: Arc<RequestSlots>,
    all: Vec<Ticket>,
    free: Vec<u32>,
    /// The order of the next request that takes a request slot.
    next_order: u64,
    /// The bytes that a free request slot keeps, at most.
    kept_bytes_max: usize,
}

impl Tickets {
    /// All are free.
    pub fn new(fabric: &Fabric, own: WorkerId) -> Tickets {
        let ticket = |_| Ticket {
            state: State::Free,
            slot: NO_CONNECTION,
            next: NO_TICKET,
            worker: own,
            hash: KeyHash(0),
            request: RouteRequest {
                partition: PartitionId(0),
                access: Access::Read,
                size_bytes: None,
                received_by: own,
            },
            booked_bytes: 0,
        };
        Tickets {
            request_slots: fabric.request_slots_of(own.index()),
            all: (0..REQUEST_SLOTS).map(ticket).collect(),
            // The slot freed last is used first, while it is in the cache.
            free: (0..REQUEST_SLOTS as u32).rev().collect(),
            next_order: 0,
            kept_bytes_max: fabric.kept_bytes_max,
        }
    }

    /// Whether no request is in flight and no connection waits.
    #[inline]
    pub fn are_all_free(&self) -> bool {
        self.free.len() == REQUEST_SLOTS
    }

    /// How many are free.
    #[inline]
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Takes a free one, which the caller has seen.
    #[inline]
    pub fn take(&mut self) -> u32 {
        self.free.pop().expect("the caller has seen a free slot")
    }

    /// The order of a request that takes a request slot now.
    #[inline]
    pub fn take_order(&mut self) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        order
    }

    /// The ticket of that index, if there is one.
    pub fn get(&self, index: u32) -> Option<&Ticket> {
        self.all.get(index as usize)
    }

    /// The request slots.
    #[inline]
    pub fn request_slots(&self) -> &Arc<RequestSlots> {
        &self.request_slots
    }

    #[inline]
    pub fn request_slot(&self, index: u32) -> *mut RequestSlot {
        self.request_slots.at(index)
    }

    #[inline]
    pub fn append(&mut self, awaiting: &mut Awaiting, index: u32) {
        if awaiting.is_empty() {
            awaiting.first = index;
        } else {
            self.all[awaiting.last as usize].next = index;
        }
        awaiting.last = index;
        awaiting.count += 1;
    }

    /// The connection's last request on that key before `ticket`, if it is not executed yet (I3).
    #[inline]
    pub fn before(&self, awaiting: &Awaiting, hash: KeyHash, ticket: u32) -> Option<u32> {
        if awaiting.filter & Awaiting::bit_of(hash) == 0 {
            return None;
        }
        let mut found = None;
        let mut index = awaiting.first;
        while index != NO_TICKET && index != ticket {
            let ticket = &self.all[index as usize];
            if ticket.is_on_its_way() && ticket.hash == hash {
                found = Some(index);
            }
            index = ticket.next;
        }
        found
    }

    /// Frees a request slot for another request.
    #[inline]
    pub fn release(&mut self, core: &mut Core, index: u32) {
        // SAFETY: the ticket is parked or done, so the dispatcher holds the request slot (I1).
        let request_slot = unsafe { &mut *self.request_slot(index) };
        request_slot.clear(self.kept_bytes_max);
        let ticket = &mut self.all[index as usize];
        ticket.state = State::Free;
        core.ledger.release(Kind::Bodies, std::mem::take(&mut ticket.booked_bytes));
        self.free.push(index);
    }
}

impl Index<u32> for Tickets {
    type Output = Ticket;

    #[inline]
    fn index(&self, index: u32) -> &Ticket {
        &self.all[index as usize]
    }
}

impl IndexMut<u32> for Tickets {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Ticket {
        &mut self.all[index as usize]
    }
}
