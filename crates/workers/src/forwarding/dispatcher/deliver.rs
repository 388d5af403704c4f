//! Delivery: moves completed replies into their connection's output, in the connection's order.
//!
//! Replies from other nodes are copies whose length is unknown until they arrive: if a client's
//! output has no room for them, they wait in their request slots until the client has read.
//!
//! # Invariants
//! E1: if a connection's first reply is complete and waits for room, its slot is among `holders`.
//! E2: replies stop waiting once the client buffers are over their budget or other connections need
//!     request slots: a client that does not read is then cut, as everywhere (K12).
//! E3: a large reply waits as soon as the client's unsent bytes exceed its output limit; short
//!     replies, of which there are many, wait only once the copies are too many for one client.

use commands::output::PIN_VALUE_BYTES_MIN;
use commands::reply::Shape;
use dispatch::lanes::awaiting::{NO_TICKET, Wait};
use dispatch::lanes::request_slot::RequestSlot;
use dispatch::sizes::LENT_BYTES_MIN;
use handlers::memcached::several;
use runtime::connection::{Connection, Ending};
use runtime::core::Core;

use super::{Dispatcher, REQUEST_SLOTS_RESERVED, State};

/// Delivers to a connection the completed replies that are next in its order (I2).
pub(super) fn deliver(dispatcher: &mut Dispatcher, core: &mut Core, slot: usize) {
    core.lend_buffer(slot);
    core.touch(slot);
    let pin_bytes_min =
        if dispatcher.by_size.is_some() { LENT_BYTES_MIN } else { PIN_VALUE_BYTES_MIN };
    loop {
        let connection = &mut core.connections[slot];
        let index = connection.awaiting.first;
        if index == NO_TICKET || dispatcher.tickets[index].state != State::Done {
            break;
        }
        // SAFETY: the ticket is done, so the dispatcher holds the request slot again (I1).
        let request_slot = unsafe { &mut *dispatcher.tickets.request_slot(index) };
        let copied_bytes_max = core.output_copied_bytes_max;
        let owed_bytes = connection.output.encoded_bytes();
        let is_full = owed_bytes > copied_bytes_max;
        let owed_bytes_max = match request_slot.reply.len() >= PIN_VALUE_BYTES_MIN {
            true => core.output_limit_bytes.min(copied_bytes_max), // E3
            false => copied_bytes_max,
        };
        if owed_bytes > owed_bytes_max && may_hold(dispatcher, core) {
            if !dispatcher.holders.contains(&slot) {
                dispatcher.holders.push(slot);
            }
            break;
        }
        let connection = &mut core.connections[slot];
        connection.awaiting.first = dispatcher.tickets[index].next;
        connection.awaiting.got_one();
        if dispatcher.replicated.is_some() {
            let room_bytes = core.output_limit_bytes.min(copied_bytes_max / 2);
            connection.awaiting.fits(request_slot.reply.len(), room_bytes);
        }
        if is_full {
            connection.ending = Ending::Now;
        } else if dispatcher.replicated.is_some() && put_out_part(connection, request_slot) {
            // A part of a reply, written by `put_out_part`.
        } else if request_slot.is_cut {
            connection.ending = Ending::Now;
        } else {
            put_out(connection, request_slot, core.output_limit_bytes, pin_bytes_min);
        }
        dispatcher.tickets.release(core, index);
    }
    let awaiting = &mut core.connections[slot].awaiting;
    if awaiting.is_empty() {
        let wait = awaiting.wait;
        awaiting.clear();
        // It is still in the list of those connections.
        if wait == Wait::RequestSlots {
            awaiting.wait = wait;
        }
    } else if awaiting.wait == Wait::Depth && awaiting.count <= awaiting.depth_max / 2 {
        awaiting.wait = Wait::Nothing;
    }
}

/// Whether replies of a connection whose output is full may wait (E2).
#[cold]
fn may_hold(dispatcher: &Dispatcher, core: &Core) -> bool {
    dispatcher.replicated.is_some()
        && !core.ledger.is_over()
        && dispatcher.short.is_empty()
        && dispatcher.tickets.free_count() > REQUEST_SLOTS_RESERVED
}

#[cold]
pub(super) fn deliver_held(dispatcher: &mut Dispatcher, core: &mut Core, slot: usize) {
    if let Some(at) = dispatcher.holders.iter().position(|holder| *holder == slot) {
        dispatcher.holders.swap_remove(at);
        deliver(dispatcher, core, slot);
        dispatcher.feed_short(core);
    }
}

/// Cuts clients that do not read, because other connections need request slots (E2).
#[cold]
pub(super) fn cut_holders(dispatcher: &mut Dispatcher, core: &mut Core) {
    for slot in std::mem::take(&mut dispatcher.holders) {
        // The slot may hold another connection by now.
        let Some(connection) = core.connections.get_mut(slot) else { continue };
        let first = dispatcher.tickets.get(connection.awaiting.first);
        if first.is_none_or(|ticket| ticket.state != State::Done) {
            continue;
        }
        let is_full = connection.output.encoded_bytes() > core.output_copied_bytes_max;
        if is_full || connection.interest.write {
            connection.ending = Ending::Now;
            core.touch(slot);
        } else {
            dispatcher.holders.push(slot); // Nothing was sent to it yet: it may still read.
        }
    }
}

/// For memcached's gets of several keys: handles the reply to one of them. Returns false if it only
/// has to be appended.
fn put_out_part(connection: &mut Connection, request_slot: &RequestSlot) -> bool {
    match request_slot.shape {
        Shape::McValue { is_last, .. } => several::put_out_part(
            connection,
            &request_slot.reply,
            (is_last, request_slot.pinned.is_some()),
        ),
        _ => false,
    }
}

/// Appends a reply to the connection's output. A pinned value is copied if it is short and the
/// client reads its replies.
#[inline]
fn put_out(
    connection: &mut Connection,
    request_slot: &mut RequestSlot,
    output_limit_bytes: usize,
    pin_bytes_min: usize,
) {
    let output = &mut connection.output;
    let Some(value) = request_slot.pinned.take() else {
        return output.append(|out| out.extend_from_slice(&request_slot.reply));
    };
    let (head, rest) = request_slot.reply.split_at(request_slot.split_bytes);
    output.append(|out| out.extend_from_slice(head));
    if value.len() >= pin_bytes_min || output.unsent_bytes() > output_limit_bytes {
        connection.is_large_reader = true;
        output.push_pinned(value);
    } else {
        output.append(|out| out.extend_from_slice(&value));
    }
    output.append(|out| out.extend_from_slice(rest));
}
