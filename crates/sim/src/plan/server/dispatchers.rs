//! Two layers: cores that receive and reply, in front of the workers that execute (μTPS §3).
//!
//! ```text
//!  arrival ─▶ dispatcher: receive ─▶ hot read? ─yes─▶ store, reply ─────────────────▶ latency
//!                                      │no                                     ▲
//!                                      └▶ router ─▶ worker ─▶ dispatcher: reply ┘
//! ```
//!
//! A dispatcher does its work in the order in which it becomes due, so the time at which it is free
//! describes it fully. Half of a request's network cost is receiving, half replying.

use policy::Access;

use super::{Event, Server};
use crate::plan::jobs::Job;
use policy::Router;

impl<R: Router> Server<'_, R> {
    pub(super) fn receive_by_dispatcher(&mut self, index: u32, now: f64) {
        let job = self.jobs.all()[index as usize];
        let dispatcher = self.dispatcher_of(&job);
        let costs = &self.shape.costs;
        // Hot writes go to the worker that holds the key (K7).
        if job.hot.is_some() && job.access == Access::Read {
            let request_ns = costs.request_ns;
            let core = (self.shape.workers + dispatcher) as u16;
            let store_ns = self.store_ns(&job, core, now);
            let done_at = self.occupy_dispatcher(dispatcher, now, request_ns + store_ns);
            self.events.push(done_at, Event::ServedByDispatcher(index));
        } else {
            let duration_ns = (costs.request_ns + costs.layer_forwarding_ns) / 2.0;
            let done_at = self.occupy_dispatcher(dispatcher, now, duration_ns);
            self.events.push(done_at, Event::HandedOff(index));
        }
    }

    pub(super) fn reply_by_dispatcher(&mut self, index: u32, now: f64) {
        let dispatcher = self.dispatcher_of(&self.jobs.all()[index as usize]);
        let done_at = self.occupy_dispatcher(dispatcher, now, self.shape.costs.request_ns / 2.0);
        self.events.push(done_at, Event::Replied(index));
    }

    fn dispatcher_of(&self, job: &Job) -> usize {
        (job.receiver * self.shape.dispatchers as f64) as usize
    }

    /// When it is done.
    fn occupy_dispatcher(&mut self, dispatcher: usize, now: f64, duration_ns: f64) -> f64 {
        let free_at = &mut self.dispatcher_free_at[dispatcher];
        *free_at = free_at.max(now) + duration_ns;
        *free_at
    }
}
