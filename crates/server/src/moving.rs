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

use crate::budget::Reservation;
use crate::connection::{Connection, ProtocolState};
use crate::forwarding::Awaiting;

/// Everything that a worker knows of a connection.
pub struct Moving {
    /// In no worker's slab.
    pub connection: Connection,
    /// What its buffers take.
    pub booked: Vec<Reservation>,
}

impl Moving {
    /// Takes a connection out of its worker's own terms.
    pub fn pack(mut connection: Connection, booked: Vec<Reservation>) -> Moving {
        debug_assert!(connection.awaiting.is_empty(), "I1");
        // Waits of the worker's: for a cell, for a batch.
        connection.awaiting = Awaiting::default();
        connection.batch_id = 0;
        connection.is_touched = false;
        Moving { connection, booked }
    }

    /// What in it names its position at a worker.
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
