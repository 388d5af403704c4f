//! The interface of every router: picks the worker for a request.
//!
//! ```text
//!                       ┌────────── Depths: outstanding per worker, kept by the driver
//!                       ▼
//!  RouteRequest ──▶ Router::route ──▶ Route::To(worker)   the driver enqueues, depths.add(worker)
//!                       ▲        └──▶ Route::Busy(why)    the driver waits for a completion
//!                       │
//!                 Router::finish ◀── the request's reply has left, depths.remove(worker)
//! ```
//!
//! # Invariants
//! I1: routing is for speed; the store is correct under any route (every bucket has its own lock).
//! I2: a request that was answered `To` is finished exactly once, with the same fields.
//! I3: a router never names a worker that the depths do not have.
//! I4: a request that was answered `Busy` has left no state behind.
//!
//! # Concurrency
//! Each dispatcher has its own router and its own view of the depths. Dispatchers share only the
//! write table; a router holds it by a handle of its own, so that no request touches a shared
//! counter.
//!
//! # References
//! C-4 §4.2; rules K6, K10, K15.

use base::sync::Arc;
use base::{PartitionId, WorkerId};

use crate::depths::Depths;
use crate::size_class::SizePlan;

/// What a request does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Replaces, changes or deletes it.
    Write,
}

/// What a router may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRequest {
    /// The key's id in the write table: the hash bits that all index sizes have in common (K5).
    pub partition: PartitionId,
    /// Whether it reads or writes.
    pub access: Access,
    /// Of the item, when it is known: a PUT carries it, a GET learns it at the index (Minos §3).
    pub size_bytes: Option<u64>,
    /// The worker that parsed the request.
    pub received_by: WorkerId,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this worker's queue.
    To(WorkerId),
    /// Nowhere yet: ask again after a completion.
    Busy(Busy),
}

/// Why a request must wait (back-pressure, never a wrong owner).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Every worker that may serve it holds as many requests as the bound allows.
    QueuesFull,
    /// The write table has no room for the partition.
    WriteTableFull,
    /// It must follow an earlier request to one worker, and another one writes its partition.
    HeldElsewhere,
}

/// What one dispatcher did at the write table since its router was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinCounts {
    /// Writes that were sent, and so counted by an entry.
    pub pins: u64,
    /// Those of them that went to another worker than they would have without the entry.
    pub diverted: u64,
    /// Entries opened less those freed: below 0 where others opened what this one freed.
    pub opened: i64,
}

/// Decides which worker executes a request.
pub trait Router {
    /// The worker, or why there is none at the moment.
    fn route(&self, request: &RouteRequest, depths: &Depths) -> Route;

    /// The same for a request whose connection has an earlier one on the same key with `holder`:
    /// it goes there too, so that it sees that one's effect, or it waits (K10).
    fn follow(&self, _request: &RouteRequest, holder: WorkerId, _depths: &Depths) -> Route {
        Route::To(holder)
    }

    /// Whether a read of unknown size stays with `receiver`, a worker that executes, whatever that
    /// one holds: then this router need not be asked about it, and the depths need not count it.
    fn keeps_reads(&self, _receiver: WorkerId) -> bool {
        false
    }

    /// A write's reply has left: whatever pinned its key may go. Reads pin nothing, so telling of
    /// them is allowed and not needed.
    fn finish(&self, _request: &RouteRequest, _worker: WorkerId) {}

    /// What has happened at the write table through this router; `None`: it has no table.
    fn pin_counts(&self) -> Option<PinCounts> {
        None
    }

    /// A new epoch of sizes begins; of no interest to a router that does not look at sizes.
    fn set_plan(&mut self, _plan: &Arc<SizePlan>) {}
}
