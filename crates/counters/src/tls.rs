//! Each worker's counters of TLS connections.

use super::{Cell, WorkerCounters};

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

/// The counters summed over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsTotals {
    /// Successful handshakes.
    pub handshakes: u64,
    /// Connections that were closed.
    pub refused: u64,
    /// Connections whose handshake took too long.
    pub late: u64,
    /// Handshakes that were ended for want of room.
    pub crowded_out: u64,
}

impl TlsTotals {
    /// Of all workers.
    pub(super) fn sum<'a>(workers: impl Iterator<Item = &'a WorkerCounters> + Clone) -> TlsTotals {
        let sum = |pick: fn(&TlsCells) -> &Cell| {
            workers.clone().map(|worker| pick(&worker.tls).get()).sum::<u64>()
        };
        TlsTotals {
            handshakes: sum(|tls| &tls.handshakes),
            refused: sum(|tls| &tls.refused),
            late: sum(|tls| &tls.late),
            crowded_out: sum(|tls| &tls.crowded_out),
        }
    }
}
