//! The direct path: what the router leaves with the worker that received it is executed there,
//! in the batch that is gathered, without a cell or a ring.
//!
//! ```text
//!  parse ─▶ ask ─┬─ this worker, and the connection waits for nothing ─▶ batch ─▶ output
//!                └─ else ─▶ cell ─▶ ring ─▶ ... ─▶ cell ─▶ output
//! ```
//!
//! # Invariants
//! D1: a request of the batch counts in the depths of its worker until the batch is executed, so
//!     that a bound sees it.
//! D2: the router's `finish` is called once for each request that it left here, after the reply
//!     is written (K6).
//! D3: a change that copies what is there gets a cell where sizes matter: a large worker may have
//!     to execute it (`back::sizing`). A large read costs nothing but its reply, which is lent.
//! D4: when a request joins the batch its connection waits for nothing: its reply may go straight
//!     to the output (K10).
//!
//! # References
//! Decision 0033.

use arrayvec::ArrayVec;
use base::WorkerId;
use policy::{Access, Route, RouteRequest};
use store::request::{Op, Request};

use super::{Front, NO_TICKET};
use crate::core::Core;
use crate::engine::Asked;
use crate::gather::BATCH_REQUESTS_MAX;
use crate::rmw::Rmw;

/// The requests of a batch in the making that the router was asked about.
#[derive(Default)]
pub struct Here {
    questions: ArrayVec<RouteRequest, BATCH_REQUESTS_MAX>,
}

impl Front {
    /// Where a request goes, and whether that is the batch that is being gathered here.
    #[inline]
    pub fn ask(
        &mut self,
        core: &Core,
        here: &mut Here,
        slot: usize,
        request: &Request<'_, Rmw<'_>>,
    ) -> Asked {
        let question = self.question(request);
        let awaiting = &core.connections[slot].awaiting;
        if !awaiting.is_empty() {
            let route = self.route(awaiting, request.hash, NO_TICKET, &question);
            return Asked { question, route, is_here: false };
        }
        let route = self.decider.route(&question, &self.depths);
        let is_here = self.own_worker.is_some_and(|own| route == Route::To(own))
            && (self.by_size.is_none() || !may_be_large(request));
        if is_here {
            self.depths.add(question.received_by);
            here.questions.push(question);
        }
        Asked { question, route, is_here }
    }

    /// The batch is executed and its replies are written.
    #[inline]
    pub fn finish(&mut self, core: &Core, here: &mut Here) {
        let Some(own) = self.own_worker else { return };
        core.counters().hops.direct.add(here.questions.len() as u64);
        for question in here.questions.drain(..) {
            self.depths.remove(own); // D1.
            self.decider.finish(&question, own); // D2.
        }
    }

    /// What the router is asked.
    #[inline]
    fn question(&mut self, request: &Request<'_, Rmw<'_>>) -> RouteRequest {
        let (access, size_bytes) = match &request.op {
            Op::Get => (Access::Read, None),
            Op::Set(set) => (Access::Write, Some((request.key.len() + set.value.len()) as u64)),
            Op::Delete | Op::Update(_) => (Access::Write, None),
        };
        let received_by = self.own_worker.unwrap_or_else(|| {
            // Between two layers nobody receives who could execute: each back in turn.
            self.next_receiver = (self.next_receiver + 1) % self.plan.backs as u16;
            WorkerId(self.next_receiver)
        });
        let partition = request.hash.partition(self.partition_bits);
        RouteRequest { partition, access, size_bytes, received_by }
    }
}

/// Whether what it costs depends on what is there, and nobody knows yet how large that is.
#[inline]
fn may_be_large(request: &Request<'_, Rmw<'_>>) -> bool {
    matches!(&request.op, Op::Update(update) if update.copies_value())
}
