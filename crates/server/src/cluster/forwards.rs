//! Requests that another node executes for a client of this one: memcached's clients know no
//! redirects (`hop::replicate::forward`).
//!
//! ```text
//!  client ─ set k ─▶ this node ─ Forward ─▶ primary of k: a guest among its control requests
//!         ◀─ reply ──          ◀─ Forwarded ─ the reply's bytes; none: not served there
//! ```
//!
//! # Invariants
//! F1: a request is sent to another node once; if no answer comes, its outcome is unknown.
//! F2: a guest goes no further.
//! F3: so few are under way at a time that no link's queue is full of them, for what does not fit
//!     there is lost; others wait in the order of their shard.

use std::sync::Arc;

use base::Instant;
use cluster::{Configuration, Message, Slot};

use super::control::{Control, PATIENCE_NS};
use crate::hop::replicate::{ControlRequest, Refused};

/// A link's queue takes 1,024 messages, and its peer answers others too.
const FORWARDS_MAX: usize = 256;

impl Control {
    /// Whether the request went to the primary of its shard, or will; a guest goes no further.
    pub(super) fn forward(
        &mut self,
        ticket: u32,
        control_request: &ControlRequest,
        configuration: &Configuration,
    ) -> bool {
        if !control_request.is_forwarded() || self.guests.has(control_request) {
            return false;
        }
        let shard = configuration.shard(configuration.shard_of_slot(control_request.slot()));
        let Some(to) = shard.map(|shard| shard.primary).filter(|to| configuration.has(*to)) else {
            return false;
        };
        let Some(waiter) = self.state.outstanding.at(ticket) else { return false };
        let id = waiter.sequence;
        if self.state.forwards.len() >= FORWARDS_MAX {
            self.state.outstanding.put_off(ticket);
            return true;
        }
        self.state.forwards.insert(id, ticket);
        self.tell(to, Message::Forward { id, bytes: control_request.to_bytes().into() });
        true
    }

    pub(super) fn forwarded(&mut self, id: u64, reply: Option<Arc<[u8]>>) {
        if self.state.flushes.forwarded(id, reply.as_deref()) {
            return;
        }
        let Some(ticket) = self.state.forwards.remove(&id) else { return };
        let Some(waiter) = self.state.outstanding.get(ticket, id) else { return };
        let Some(control_request) = waiter.control_request.clone() else { return };
        match reply {
            Some(reply) => {
                control_request.answer(&reply);
                self.finish(ticket, &control_request, None);
            }
            // The map has changed there, or will here: it is asked again.
            None => self.state.outstanding.put_off(ticket),
        }
    }

    /// Gives up what another node has had for too long: its outcome is unknown.
    pub(super) fn give_up_forwards(&mut self, now: Instant) {
        let is_late = |ticket: &u32| {
            let waiter = self.state.outstanding.at(*ticket);
            waiter.is_none_or(|waiter| now.ns.saturating_sub(waiter.came_at.ns) >= PATIENCE_NS)
        };
        let late: Vec<(u64, u32)> = self
            .state
            .forwards
            .iter()
            .filter(|(_, ticket)| is_late(ticket))
            .map(|(id, ticket)| (*id, *ticket))
            .collect();
        for (id, ticket) in late {
            self.state.forwards.remove(&id);
            let waiter = self.state.outstanding.get(ticket, id);
            let Some(control_request) = waiter.and_then(|waiter| waiter.control_request.clone())
            else {
                continue;
            };
            let why = if control_request.is_read() { Refused::Down } else { Refused::Uncertain };
            self.finish(ticket, &control_request, Some(why));
        }
    }
}

/// Where a slot is served, for a client of this node.
pub(super) fn elsewhere(configuration: &Configuration, slot: Slot) -> Refused {
    let shard = configuration.shard(configuration.shard_of_slot(slot));
    let primary = shard.map(|shard| shard.primary).filter(|node| configuration.has(*node));
    let addresses = primary.and_then(|node| configuration.addresses(node));
    match addresses.filter(|addresses| addresses.resp != 0) {
        Some(at) => Refused::Moved { slot: slot.0, address: format!("{}:{}", at.host, at.resp) },
        None => Refused::Down,
    }
}
