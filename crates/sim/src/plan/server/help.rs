//! Idle large workers that take small requests one at a time (Minos §6.1's alternative).
//!
//! A taken request counts for its helper from then on, so that the worker it was sent to has room
//! for another.

use base::WorkerId;
use policy::Router;
use policy::routers::Steal;

use super::Server;

impl<R: Router> Server<'_, R> {
    /// A large worker that has nothing to do, if it may take this request.
    pub(super) fn idle_helper(&self, index: u32) -> Option<WorkerId> {
        let (helping, plan) = self.shape.helping.as_ref()?;
        let request = self.request(&self.jobs.all()[index as usize]);
        if !helping.may_be_taken(&request, plan) {
            return None;
        }
        let mut helpers = (plan.small_workers..plan.worker_count).map(|id| WorkerId(id as u16));
        helpers.find(|helper| {
            let holds_large = self.workers[helper.index()].is_busy;
            helping.may_take(plan, *helper, holds_large)
        })
    }

    /// What an idle large worker takes: the oldest that it may of the next worker that has one, or
    /// of those that found no room anywhere.
    pub(super) fn help(&mut self, helper: WorkerId) -> Option<u32> {
        let (helping, plan) = self.shape.helping.clone()?;
        if !helping.may_take(&plan, helper, false) {
            return None;
        }
        let may_be_taken = |server: &Self, index: &u32| {
            helping.may_be_taken(&server.request(&server.jobs.all()[*index as usize]), &plan)
        };
        for victim in Steal::victims(helper, plan.worker_count) {
            let queue = &self.workers[victim.index()].queue;
            if let Some(place) = queue.iter().position(|index| may_be_taken(self, index)) {
                let index = self.workers[victim.index()].queue.remove(place)?;
                self.sent_instead(index, helper);
                return Some(index);
            }
        }
        let place = self.waiting.iter().position(|index| may_be_taken(self, index))?;
        let index = self.waiting.remove(place)?;
        self.depths.add(helper);
        self.sent_to[index as usize] = helper;
        Some(index)
    }

    /// A request that no other worker has room for.
    pub(super) fn begin_by_helper(&mut self, index: u32, helper: WorkerId, now: f64) {
        self.depths.add(helper);
        self.sent_to[index as usize] = helper;
        self.begin(index, helper.0, now);
    }

    /// A request that was sent to one worker is executed by a helper.
    pub(super) fn sent_instead(&mut self, index: u32, helper: WorkerId) {
        let sent_to = &mut self.sent_to[index as usize];
        self.depths.remove(std::mem::replace(sent_to, helper));
        self.depths.add(helper);
    }
}
