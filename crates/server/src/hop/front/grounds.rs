//! Buffers that cells borrow from: large commands stay where they were read until they are done.

use std::sync::Arc;

use super::Front;
use crate::budget::Kind;
use crate::core::Core;

impl Front {
    /// A buffer that cells borrow from is booked until the last of them is clear.
    pub fn keep_ground(&mut self, core: &mut Core, ground: Arc<Vec<u8>>) {
        let booked_bytes = ground.capacity() as u64;
        core.ledger.force(Kind::Bodies, booked_bytes);
        self.grounds.push((ground, booked_bytes));
    }

    pub(super) fn release_grounds(&mut self, core: &mut Core) {
        self.grounds.retain(|(ground, booked_bytes)| {
            let is_borrowed = Arc::strong_count(ground) > 1;
            if !is_borrowed {
                core.ledger.release(Kind::Bodies, *booked_bytes);
            }
            is_borrowed
        });
    }
}
