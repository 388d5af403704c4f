//! Balances that use only the queues, the key or the receiver.

use std::cell::Cell;

use base::WorkerId;

use super::{Balance, owner_of};
use crate::depths::Depths;
use crate::route::RouteRequest;

/// A request stays with the worker that received it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyWorker;

impl Balance for AnyWorker {
    #[inline]
    fn pick(&self, request: &RouteRequest, _depths: &Depths) -> Option<WorkerId> {
        Some(request.received_by)
    }

    fn keeps_reads(&self, _receiver: WorkerId) -> bool {
        true
    }
}

/// A request goes to its key's owner, although any worker might serve it.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHash;

impl Balance for KeyHash {
    #[inline]
    fn pick(&self, request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        Some(owner_of(request.partition, depths))
    }
}

/// The next worker in turn, whatever its depth (uTPS §3.3).
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    next: Cell<u16>,
}

impl RoundRobin {
    /// Starts at `first`: dispatchers that start at different workers do not meet at one.
    pub fn new(first: WorkerId) -> RoundRobin {
        RoundRobin { next: Cell::new(first.0) }
    }

    /// The worker whose turn it is.
    #[inline]
    fn turn(&self, depths: &Depths) -> WorkerId {
        let next = self.next.get();
        WorkerId(if usize::from(next) < depths.worker_count() { next } else { 0 })
    }
}

impl Balance for RoundRobin {
    #[inline]
    fn pick(&self, _request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        let worker = self.turn(depths);
        self.next.set(worker.0.wrapping_add(1));
        Some(worker)
    }

    #[inline]
    fn would_pick(&self, _request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        Some(self.turn(depths))
    }
}

/// The shortest queue, without a bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestQueue;

impl Balance for ShortestQueue {
    #[inline]
    fn pick(&self, _request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        Some(depths.shortest())
    }
}

/// JBSQ(n), join the bounded shortest queue: requests that cannot be placed wait in one queue in
/// front, which comes close to a single queue (C-4 §3).
#[derive(Clone, Copy, Debug)]
pub struct Jbsq {
    bound: u32,
}

impl Jbsq {
    /// At most `bound` requests with a worker, including the one it serves and those in flight. The
    /// unit is that of the driver's depths: requests, or batches (K15).
    ///
    /// # Panics
    /// With a bound of 0, under which nothing is ever served.
    pub fn new(bound: u32) -> Jbsq {
        assert!(bound > 0, "a bound of 0 serves nothing");
        Jbsq { bound }
    }
}

impl Balance for Jbsq {
    #[inline]
    fn pick(&self, _request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        depths.shortest_below(self.bound)
    }
}
