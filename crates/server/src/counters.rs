//! What each worker counts, and the sum over all workers.
//!
//! ```text
//!  worker 0: [ cells ]──┐
//!  worker 1: [ cells ]──┼─ relaxed loads ─▶ Totals   (folded when somebody asks)
//!  worker 2: [ cells ]──┘
//! ```
//!
//! # Invariants
//! I1: a cell has one writer, its worker, which adds by a load and a store; nothing on the data
//!     path is an atomic read-modify-write.
//! I2: sums are exact once the workers are quiet and may trail by a few operations before that.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Adds `amount`; only the owning worker calls this (I1).
    #[inline]
    pub fn add(&self, amount: u64) {
        // Relaxed: one writer, and readers only sum.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// The value, as of some recent moment.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which protocol a command or a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2 or RESP3.
    Resp,
    /// memcached text.
    Memcached,
}

impl Protocol {
    /// As in metric labels and settings.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Resp => "resp",
            Protocol::Memcached => "memcached",
        }
    }
}

/// One command's counts, summed over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTotals {
    /// The port it came from.
    pub protocol: Protocol,
    /// In lower case.
    pub name: &'static str,
    /// Times it ran.
    pub calls: u64,
    /// Keys that it found.
    pub hits: u64,
    /// Keys that it did not find.
    pub misses: u64,
    /// Error replies.
    pub errors: u64,
}

/// Everything that the workers count, summed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// One entry for each command of each protocol, also those never called.
    pub commands: Vec<CommandTotals>,
    /// Connections open now, Redis clients.
    pub connections_resp: u64,
    /// Connections open now, memcached clients.
    pub connections_memcached: u64,
    /// Connections accepted since the start.
    pub connections_total: u64,
    /// Connections refused because there were `max_connections` already.
    pub connections_rejected: u64,
    /// Bytes read from clients.
    pub net_input_bytes: u64,
    /// Bytes written to clients.
    pub net_output_bytes: u64,
    /// Batches that went to the store.
    pub batches: u64,
    /// Store requests in those batches.
    pub batch_requests: u64,
    /// Requests that broke the protocol.
    pub protocol_errors: u64,
    /// Failed and successful attempts to log in.
    pub auth_attempts: u64,
    /// Of these, failed.
    pub auth_errors: u64,
}
