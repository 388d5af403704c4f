//! The choice of the next request for an idle core: the whole difference between the four designs.

use base::WorkerId;
use policy::{Dispatch, WritePolicy};
use policy::{Helping, LargeHelp};

use super::{BATCH_MAX, CORES, Cores, MinosVariant, Request, System, Taken, Work};

impl Cores {
    /// The next request for `core`, if there is one that it may take.
    pub(super) fn take(&mut self, core: usize) -> Option<Taken> {
        match self.system {
            System::Hkh => self.take_own(core).map(at_once),
            System::HkhStealing => self.take_own(core).map(at_once).or_else(|| self.steal(core)),
            System::Sho(hand_offs) => self.take_handed(core, hand_offs).map(at_once),
            System::Minos(variant) => self.take_by_size(core, variant),
        }
    }

    /// From its batch; the next batch comes from its receive queue.
    fn take_own(&mut self, core: usize) -> Option<Request> {
        if self.batch[core].is_empty() {
            self.read(core, core, BATCH_MAX);
        }
        self.batch[core].pop_front()
    }

    /// Moves up to `count_max` requests from a receive queue to a core's batch.
    fn read(&mut self, queue: usize, core: usize, count_max: usize) {
        let count = count_max.min(self.receive[queue].len());
        self.batch[core].extend(self.receive[queue].drain(..count));
    }

    /// Takes a request from another core's batch or, if all are empty, a batch from a receive queue
    /// (§5.2).
    fn steal(&mut self, core: usize) -> Option<Taken> {
        let others = (1..CORES).map(|step| (core + step) % CORES);
        let stolen = others.clone().find_map(|other| self.batch[other].pop_front());
        let stolen = stolen.or_else(|| {
            let victim = others.clone().find(|other| !self.receive[*other].is_empty())?;
            self.read(victim, core, BATCH_MAX);
            self.batch[core].pop_front()
        });
        let extra_ns = self.costs.steal_ns;
        stolen.map(|request| Taken { request, extra_ns, is_sorted: true })
    }

    /// SHO: a hand-off core takes from the network, a worker takes a handed-off request.
    fn take_handed(&mut self, core: usize, hand_offs: usize) -> Option<Request> {
        if core < hand_offs {
            return self.receive[core].pop_front();
        }
        self.turn += 1;
        let turn = self.turn;
        (0..hand_offs).find_map(|step| self.batch[(turn + step) % hand_offs].pop_front())
    }

    /// Minos §3. What a core read before it became a large one, it still serves or passes on.
    fn take_by_size(&mut self, core: usize, variant: MinosVariant) -> Option<Taken> {
        let unsorted = |request| Taken { request, extra_ns: 0.0, is_sorted: false };
        if let Some(request) = self.batch[core].pop_front() {
            return Some(unsorted(request));
        }
        if self.is_large_now(core) {
            let sorted = self.large[core].pop_front().map(at_once);
            return match variant {
                MinosVariant::LargeSteal => sorted.or_else(|| self.take_one(core).map(unsorted)),
                _ => sorted,
            };
        }
        self.read(core, core, BATCH_MAX);
        let share = self.controller.plan().large_queue_batch(BATCH_MAX);
        for queue in (0..CORES).filter(|queue| *queue != core) {
            if !self.receive[queue].is_empty() && self.is_large_now(queue) {
                self.read(queue, core, share);
            }
        }
        let read = self.batch[core].pop_front().map(unsorted);
        // Requests left over from a time as a large core wait until there are no others.
        read.or_else(|| self.large[core].pop_front().map(at_once))
    }

    /// A large core without large requests takes a single one: first from queues of large cores.
    /// Not while its last large reply is being sent: the small one would wait behind it.
    fn take_one(&mut self, core: usize) -> Option<Request> {
        let holds_large = self.link.is_sending(core);
        let helping = Helping::new(LargeHelp::On, WritePolicy::Crew, Dispatch::SizeAware)?;
        if !helping.may_take(self.controller.plan(), WorkerId(core as u16), holds_large) {
            return None;
        }
        (1..=CORES).find_map(|step| self.receive[(core + CORES - step) % CORES].pop_front())
    }

    /// Whether `core` does not read from the network now.
    pub(super) fn is_large_now(&self, core: usize) -> bool {
        let plan = self.controller.plan();
        let is_large = |request: &Request| request.size_bytes > plan.threshold_bytes;
        let serves_large = match &self.work[core] {
            Some(Work::Serve { request, .. }) => is_large(request),
            _ => false,
        };
        let holds_large = serves_large
            || !self.large[core].is_empty()
            || self.link.last(core).is_some_and(is_large);
        !plan.reads_network(WorkerId(core as u16), holds_large)
    }
}

fn at_once(request: Request) -> Taken {
    Taken { request, extra_ns: 0.0, is_sorted: true }
}
