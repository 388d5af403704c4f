//! Replies that are known go into their connection's output, in its order.

use super::{Front, PER_CONNECTION_MAX, State};
use crate::connection::{Connection, Ending};
use crate::core::Core;
use crate::hop::awaiting::{NO_TICKET, Wait};
use crate::hop::cell::Cell;
use crate::output::PIN_VALUE_BYTES_MIN;
use crate::sizes::LENT_BYTES_MIN;

impl Front {
    /// Gives a connection the replies that are next in its order (I2).
    pub(super) fn deliver(&mut self, core: &mut Core, slot: usize) {
        core.lend_buffer(slot);
        core.touch(slot);
        let pin_bytes_min =
            if self.by_size.is_some() { LENT_BYTES_MIN } else { PIN_VALUE_BYTES_MIN };
        loop {
            let connection = &mut core.connections[slot];
            let index = connection.awaiting.first;
            if index == NO_TICKET || self.tickets[index as usize].state != State::Done {
                break;
            }
            connection.awaiting.first = self.tickets[index as usize].next;
            connection.awaiting.got_one();
            // SAFETY: the ticket is done, so the front holds the cell again (I1).
            let cell = unsafe { &mut *self.cell(index) };
            let copied_bytes_max = core.output_copied_bytes_max;
            if connection.output.encoded_bytes() > copied_bytes_max {
                connection.ending = Ending::Now;
            } else {
                put_out(connection, cell, core.output_limit_bytes, pin_bytes_min);
            }
            self.release(core, index);
        }
        let awaiting = &mut core.connections[slot].awaiting;
        if awaiting.is_empty() {
            let wait = awaiting.wait;
            awaiting.clear();
            // It still stands in the list of those.
            if wait == Wait::Cells {
                awaiting.wait = wait;
            }
        } else if awaiting.wait == Wait::Depth && awaiting.count <= PER_CONNECTION_MAX / 2 {
            awaiting.wait = Wait::Nothing;
        }
    }
}

/// Puts a reply behind the connection's others. A value that waits pinned is copied if it is short
/// and the client takes its replies.
#[inline]
fn put_out(
    connection: &mut Connection,
    cell: &mut Cell,
    output_limit_bytes: usize,
    pin_bytes_min: usize,
) {
    let output = &mut connection.output;
    let Some(value) = cell.pinned.take() else {
        return output.append(|out| out.extend_from_slice(&cell.reply));
    };
    let (head, rest) = cell.reply.split_at(cell.split_bytes);
    output.append(|out| out.extend_from_slice(head));
    if value.len() >= pin_bytes_min || output.unsent_bytes() > output_limit_bytes {
        connection.is_large_reader = true;
        output.push_pinned(value);
    } else {
        output.append(|out| out.extend_from_slice(&value));
    }
    output.append(|out| out.extend_from_slice(rest));
}
