//! What executes a batch: a whole session, or some of its keys under their locks.
//!
//! Commands are written once, against this trait; inside EXEC they run on locked keys.

use base::{KeyHash, PartitionBits, UnixMillis, WorkerId};
use policy::{Access, Depths, Route, RouteRequest, Router};
use store::request::Request;
use store::{LockedSession, Session};

use crate::compaction::{Answering, Compacted, Compaction};
use crate::rmw::Rmw;

/// Executes batches of requests.
pub trait Engine {
    /// Whether this worker executes requests on that key itself.
    fn accepts(&self, hash: KeyHash) -> bool;

    /// The key is in the batch that is gathered: its bucket may be fetched from memory.
    fn prefetch(&mut self, hash: KeyHash);

    /// Executes a batch, in order.
    fn execute<S: Answering>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    );

    /// What compaction has done since the last call.
    fn take_compacted(&mut self) -> Compacted {
        Compacted::default()
    }

    /// The session, unless keys are locked.
    fn session(&mut self) -> Option<&mut Session>;
}

/// A session, and the policy that says which requests come here.
pub struct RunToCompletion<R> {
    /// The worker's.
    pub session: Session,
    /// Chosen at start-up.
    pub router: R,
    /// The store's.
    pub partition_bits: PartitionBits,
    /// Of the workers' queues; none where requests run to completion.
    pub depths: Depths,
    /// This worker.
    pub worker: WorkerId,
    /// Several writes of a key in one batch become one; `None`: switched off.
    pub compaction: Option<Compaction>,
}

impl<R: Router> Engine for RunToCompletion<R> {
    #[inline]
    fn accepts(&self, hash: KeyHash) -> bool {
        // A worker that serves what it receives has no queues, and tells reads from writes later.
        let request = RouteRequest {
            partition: hash.partition(self.partition_bits),
            access: Access::Write,
            size_bytes: None,
            received_by: self.worker,
        };
        self.router.route(&request, &self.depths) == Route::To(self.worker)
    }

    #[inline]
    fn prefetch(&mut self, hash: KeyHash) {
        self.session.prefetch(hash);
    }

    #[inline]
    fn execute<S: Answering>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        match &mut self.compaction {
            Some(compaction) => compaction.execute(&mut self.session, now, requests, sink),
            None => self.session.execute(now, requests, sink),
        }
    }

    #[inline]
    fn take_compacted(&mut self) -> Compacted {
        self.compaction.as_mut().map(Compaction::take_counted).unwrap_or_default()
    }

    fn session(&mut self) -> Option<&mut Session> {
        Some(&mut self.session)
    }
}

impl Engine for LockedSession<'_> {
    fn accepts(&self, _hash: KeyHash) -> bool {
        true
    }

    /// Taking the locks has brought the buckets.
    fn prefetch(&mut self, _hash: KeyHash) {}

    fn execute<S: Answering>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        LockedSession::execute(self, now, requests, sink);
    }

    fn session(&mut self) -> Option<&mut Session> {
        None
    }
}
