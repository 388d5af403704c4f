//! The places of clients in shared memory.

use std::sync::{Mutex, PoisonError};

use runtime::shm_client::SLOT_BITS;

/// Clients of a server, at most.
pub const CLIENTS_MAX: usize = 128;

const _: () = {
    assert!(CLIENTS_MAX <= 1 << SLOT_BITS);
    assert!(CLIENTS_MAX <= u128::BITS as usize, "each has a place");
};

/// The places of a server's clients: a client keeps its place, whichever worker serves it, so its
/// lane stays the same.
#[derive(Debug, Default)]
pub struct ShmPlaces(Mutex<u128>);

impl ShmPlaces {
    /// Takes a free place, if there is one.
    pub fn take(&self) -> Option<u32> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = taken.trailing_ones();
        *taken |= 1_u128.checked_shl(place)?;
        Some(place)
    }

    /// Gives a place back.
    pub fn give_back(&self, place: u32) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(*taken & 1 << place != 0, "given back once");
        *taken &= !(1 << place);
    }
}
