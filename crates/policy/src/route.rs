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

/// A request's effect on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Replaces, changes or deletes it.
    Write,
}

/// The properties of a request that a router may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRequest {
    /// The key's id in the write table: the hash bits that all index sizes have in common (K5).
    pub partition: PartitionId,
    /// Whether it reads or writes.
    pub access: Access,
    /// The size of the item, if it is known: a PUT carries it, a GET learns it at the index (Minos
    /// §3).
    pub size_bytes: Option<u64>,
    /// The worker that parsed the request.
    pub received_by: WorkerId,
}

/// The result of routing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this worker's queue.
    To(WorkerId),
    /// To no worker yet: ask again after a completion.
    Busy(Busy),
}

/// The reason why a request must wait (back-pressure, never a wrong owner).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Every worker that may serve it has reached the bound.
    QueuesFull,
    /// The write table has no room for the partition.
    WriteTableFull,
    /// It must follow an earlier request to one worker, and another worker writes its partition.
    HeldElsewhere,
}

/// One dispatcher's operations on the write table since its router was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinCounts {
    /// Writes sent, each counted by an entry.
    pub pins: u64,
    /// Those of them that went to another worker than they would have without the entry.
    pub diverted: u64,
    /// Entries opened minus entries freed: below 0 if other dispatchers opened entries that this
    /// one freed.
    pub opened: i64,
}

/// Picks the worker that executes a request.
pub trait Router {
    /// The worker, or the reason why there is none at the moment.
    fn route(&self, request: &RouteRequest, depths: &Depths) -> Route;

    /// Routes a request whose connection has an earlier one on the same key with worker `holder`:
    /// it goes there too, so that it sees the earlier one's effect, or it waits (K10).
    fn follow(&self, _request: &RouteRequest, holder: WorkerId, _depths: &Depths) -> Route {
        Route::To(holder)
    }

    /// Whether a read of unknown size stays with `receiver`, a worker that executes, whatever its
    /// depth: then the driver need not call this router for it, and the depths need not count it.
    fn keeps_reads(&self, _receiver: WorkerId) -> bool {
        false
    }

    /// Notes that a write's reply has left: its pin on the partition is released. Reads pin
    /// nothing, so calling this for them is allowed and not needed.
    fn finish(&self, _request: &RouteRequest, _worker: WorkerId) {}

    /// The counts of this router at the write table; `None`: it has no table.
    fn pin_counts(&self) -> Option<PinCounts> {
        None
    }

    /// Sets the plan of a new epoch of sizes; routers that do not use sizes ignore it.
    fn set_plan(&mut self, _plan: &Arc<SizePlan>) {}
}
