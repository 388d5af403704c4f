//! The ledger in which the memory of long values is booked while updates make them.

use std::fmt;

/// Books the memory in which updates make long values.
pub trait ScratchRoom: Send + Sync {
    /// Books `bytes`; returns false, and books none, if there is no room.
    fn try_take(&self, bytes: usize) -> bool;

    /// Releases `bytes`.
    fn give_back(&self, bytes: usize);
}

/// The ledger in which long buffers are booked.
pub struct ScratchBooks(pub Box<dyn ScratchRoom>);

impl fmt::Debug for ScratchBooks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ScratchBooks")
    }
}
