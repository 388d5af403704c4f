//! The worker for a request of a native client. Such a request needs no ticket: its frame is no
//! connection, and replies have no order (`native::forward`).
//!
//! # Invariants
//! N1: a request that the router has placed counts in the depths of its worker until it is settled,
//!     and the router's `finish` is called once for each (I2 of `policy::route`).
//! N2: where the router finds no worker, the receiver executes the request, or under two layers the
//!     executor whose turn it is: a frame has no connection that could stop reading. Such a request
//!     counts in no depth, so that it takes no place from connections' requests, which wait for
//!     one. The number of requests is bounded by the worker that sends them (`forward`, F3).

use base::{PartitionId, WorkerId};
use policy::{Access, Route, RouteRequest};
use runtime::core::Core;
use runtime::engine::{Picked, Picking};

use super::{Dispatcher, count_busy};

impl Dispatcher {
    /// Whether workers can be picked now.
    pub fn can_pick(&self) -> bool {
        !self.is_parked && self.replicated.is_none() && self.offering.is_none()
    }

    /// Picks the worker for a request; `None`: it stays, and nothing is to be settled.
    #[inline]
    pub fn pick(&mut self, core: &Core, picking: Picking<'_>) -> Option<Picked> {
        let Picking { hash, key, access, size_bytes, follows } = picking;
        self.note(hash, key);
        let is_free_read = follows.is_none() && access == Access::Read;
        if is_free_read && self.keeps_reads {
            core.counters().forwardings.direct.add(1);
            return None;
        }
        let partition = hash.partition(self.partition_bits);
        let received_by = self.receiver();
        let question = RouteRequest { partition, access, size_bytes, received_by };
        if is_free_read && self.own_worker.is_none() && self.is_hot_read(&question, hash) {
            core.counters().forwardings.hot_hits.add(1);
            return None;
        }
        let route = match follows {
            Some(worker) => self.decider.follow(&question, worker, &self.depths),
            None => self.decider.route(&question, &self.depths),
        };
        match route {
            Route::To(worker) => Some(self.take_picked(worker, question, true)),
            Route::Busy(why) => {
                count_busy(core, why);
                Some(self.take_picked(follows.unwrap_or(received_by), question, false)) // N2
            }
        }
    }

    /// Picks an executor for a range, which any may walk; `None`: this thread executes.
    pub fn pick_for_range(&mut self) -> Option<Picked> {
        if self.own_worker.is_some() {
            return None;
        }
        let worker = self.receiver();
        let (partition, access) = (PartitionId(0), Access::Read);
        let question = RouteRequest { partition, access, size_bytes: None, received_by: worker };
        Some(self.take_picked(worker, question, false))
    }

    fn take_picked(&mut self, worker: WorkerId, question: RouteRequest, is_asked: bool) -> Picked {
        if is_asked {
            self.depths.add(worker);
        }
        self.picked_count += 1;
        Picked { worker, thread: self.thread_of(worker), question, is_asked }
    }

    /// Settles a request that was picked (N1).
    #[inline]
    pub fn settle_picked(&mut self, picked: &Picked) {
        self.picked_count -= 1;
        if picked.is_asked {
            self.depths.remove(picked.worker);
            self.decider.finish(&picked.question, picked.worker);
        }
    }
}
