//! Receive buffers that request slots borrow from: a large command stays where it was read until
//! its request is done.

use std::sync::Arc;

use budget::Kind;
use runtime::core::Core;

/// The buffers that request slots may borrow from, and the bytes booked for each.
#[derive(Default)]
pub(super) struct ReceiveBuffers(Vec<(Arc<Vec<u8>>, u64)>);

impl ReceiveBuffers {
    /// Keeps a buffer booked, until the last request slot that borrows from it is clear.
    pub fn keep(&mut self, core: &mut Core, receive_buffer: Arc<Vec<u8>>) {
        let booked_bytes = receive_buffer.capacity() as u64;
        core.ledger.force(Kind::Bodies, booked_bytes);
        self.0.push((receive_buffer, booked_bytes));
    }

    /// Releases those from which no request slot borrows any more.
    pub fn release(&mut self, core: &mut Core) {
        self.0.retain(|(receive_buffer, booked_bytes)| {
            let is_borrowed = Arc::strong_count(receive_buffer) > 1;
            if !is_borrowed {
                core.ledger.release(Kind::Bodies, *booked_bytes);
            }
            is_borrowed
        });
    }

    /// Whether no request slot borrows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
