//! Two layers: cores that receive and reply, before the workers that execute (μTPS §3).
//!
//! ```text
//!  arrival ─▶ front: receive ─▶ hot read? ─yes─▶ store, reply ─────────────────▶ latency
//!                                 │no                                     ▲
//!                                 └▶ router ─▶ worker ─▶ front: reply ────┘
//! ```
//!
//! A front does one thing after another in the order in which it falls due, so when it is free
//! says all about it. Half of a request's network cost is receiving it, half replying.

use policy::Access;

use super::{Event, Server};
use crate::plan::jobs::Job;
use policy::Router;

impl<R: Router> Server<'_, R> {
    pub(super) fn receive_by_front(&mut self, index: u32, now: f64) {
        let job = self.jobs.all()[index as usize];
        let front = self.front_of(&job);
        let costs = &self.shape.costs;
        // Hot writes go to the worker that holds the key (K7).
        if job.hot.is_some() && job.access == Access::Read {
            let request_ns = costs.request_ns;
            let core = (self.shape.workers + front) as u16;
            let store_ns = self.store_ns(&job, core, now);
            let done_at = self.occupy_front(front, now, request_ns + store_ns);
            self.events.push(done_at, Event::ServedByFront(index));
        } else {
            let duration_ns = (costs.request_ns + costs.layer_hop_ns) / 2.0;
            let done_at = self.occupy_front(front, now, duration_ns);
            self.events.push(done_at, Event::HandedOff(index));
        }
    }

    pub(super) fn reply_by_front(&mut self, index: u32, now: f64) {
        let front = self.front_of(&self.jobs.all()[index as usize]);
        let done_at = self.occupy_front(front, now, self.shape.costs.request_ns / 2.0);
        self.events.push(done_at, Event::Replied(index));
    }

    fn front_of(&self, job: &Job) -> usize {
        (job.receiver * self.shape.fronts as f64) as usize
    }

    /// When it is done.
    fn occupy_front(&mut self, front: usize, now: f64, duration_ns: f64) -> f64 {
        let free_at = &mut self.front_free_at[front];
        *free_at = free_at.max(now) + duration_ns;
        *free_at
    }
}
