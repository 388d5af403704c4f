//! Pure decisions: which worker serves a request. No clock, thread, socket or global.
//!
//! ```text
//!  RouteRequest { hash, received_by } ──▶ Router::route ──▶ WorkerId
//! ```
//!
//! A router is chosen once, at start-up, and the worker's loop is generic over it, so that a
//! policy costs a request nothing but its own arithmetic. Later policies (partitioned by key,
//! one writer at a time, by size) arrive here as further routers.
//!
//! # Invariants
//! I1: routing is for speed; the store is correct under any route (every bucket has its own lock).
//! I2: equal requests on one connection get equal routes while one of them is outstanding (K10).

#![forbid(unsafe_code)]

use base::{KeyHash, WorkerId};

/// What a router may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRequest {
    /// Of the request's key.
    pub hash: KeyHash,
    /// The worker that parsed the request.
    pub received_by: WorkerId,
}

/// Decides which worker executes a request.
pub trait Router {
    /// Pure: the same router state and request give the same worker.
    fn route(&self, request: RouteRequest) -> WorkerId;
}

/// Any worker serves any key: a request stays with the worker that received it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyWorker;

impl Router for AnyWorker {
    #[inline]
    fn route(&self, request: RouteRequest) -> WorkerId {
        request.received_by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_worker_keeps_a_request_where_it_arrived() {
        for id in [0, 1, 63] {
            let received_by = WorkerId(id);
            let request = RouteRequest { hash: KeyHash(u64::MAX / 3), received_by };
            assert_eq!(AnyWorker.route(request), received_by);
        }
    }
}
