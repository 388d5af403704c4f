//! A connection that moves from one worker to another.
//!
//! ```text
//!  worker i: nothing awaited ─▶ not polled ─▶ Moving ──mailbox──▶ worker j: polled, finished
//!                                       counted in Transit ─────────────────▶ uncounted
//! ```
//!
//! # Invariants
//! I1: the connection has no request in flight to other workers, so its input, its output and its
//!     protocol's state are all of it.
//! I2: its buffers stay booked during the move.

use std::fmt;

use budget::Reservation;
use dispatch::lanes::Awaiting;

use crate::connection::{Connection, ProtocolState};

/// The whole state of a connection that moves.
pub struct Moving {
    /// The connection, in no worker's slab.
    pub connection: Connection,
    /// The bookings of its buffers.
    pub booked: Vec<Reservation>,
}

impl Moving {
    /// Removes a connection's references to its worker.
    pub fn pack(mut connection: Connection, booked: Vec<Reservation>) -> Moving {
        debug_assert!(connection.awaiting.is_empty(), "I1");
        // Waits at the worker: for a request slot, for a batch.
        connection.awaiting = Awaiting::default();
        connection.batch_id = 0;
        connection.is_touched = false;
        Moving { connection, booked }
    }

    /// Updates the connection's references to its slot at a worker.
    pub fn settle_at(connection: &mut Connection, slot: usize) {
        if let ProtocolState::Resp(resp) = &mut connection.protocol_state
            && let Some(slices) = &mut resp.slices
        {
            slices.move_to(slot);
        }
    }
}

impl fmt::Debug for Moving {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Moving(client {})", self.connection.client.id)
    }
}
