//! Receive buffers that request slots borrow from: a large command stays where it was read until
//! its request is done.

use std::sync::Arc;

use budget::Kind;
use runtime::core::Core;

use super::Dispatcher;

impl Dispatcher {
    /// Keeps a buffer that request slots borrow from booked, until the last of them is clear.
    pub fn keep_receive_buffer(&mut self, core: &mut Core, receive_buffer: Arc<Vec<u8>>) {
        let booked_bytes = receive_buffer.capacity() as u64;
        core.ledger.force(Kind::Bodies, booked_bytes);
        self.receive_buffers.push((receive_buffer, booked_bytes));
    }

    pub(super) fn release_receive_buffers(&mut self, core: &mut Core) {
        self.receive_buffers.retain(|(receive_buffer, booked_bytes)| {
            let is_borrowed = Arc::strong_count(receive_buffer) > 1;
            if !is_borrowed {
                core.ledger.release(Kind::Bodies, *booked_bytes);
            }
            is_borrowed
        });
    }
}
