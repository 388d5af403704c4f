//! Each worker's counters of TLS connections.

use super::Cell;
use super::totals::totals;

/// One worker's counters.
#[derive(Debug, Default)]
pub struct TlsCells {
    /// Successful handshakes.
    pub handshakes: Cell,
    /// Connections that were closed: no TLS, another version, or an invalid certificate.
    pub refused: Cell,
    /// Connections whose handshake took too long.
    pub late: Cell,
    /// Handshakes that were ended because their part of the client buffers was full.
    pub crowded_out: Cell,
}

totals! {
    /// The counters summed over the workers.
    pub struct TlsTotals of TlsCells;
    counters {
        /// Successful handshakes.
        handshakes = handshakes,
        /// Connections that were closed.
        refused = refused,
        /// Connections whose handshake took too long.
        late = late,
        /// Handshakes that were ended for want of room.
        crowded_out = crowded_out,
    }
    arrays {}
    others {}
}
