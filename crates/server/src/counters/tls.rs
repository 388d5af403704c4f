//! Each worker's counters of TLS connections.

use super::{Cell, WorkerCounters};

/// One worker's.
#[derive(Debug, Default)]
pub struct TlsCells {
    /// Handshakes that ended well.
    pub handshakes: Cell,
    /// Connections that were cut: no TLS, another version, a certificate that is not right.
    pub refused: Cell,
    /// Connections that took too long to begin.
    pub late: Cell,
    /// Handshakes that were cut because their part of the client buffers was full.
    pub crowded_out: Cell,
}

/// Summed over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsTotals {
    /// Handshakes that ended well.
    pub handshakes: u64,
    /// Connections that were cut.
    pub refused: u64,
    /// Connections that took too long.
    pub late: u64,
    /// Handshakes that were cut for want of room.
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
