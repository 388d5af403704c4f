//! The cores: the next request of each under each design, and its service time.
//!
//! ```text
//!  receive[core] ──▶ batch[core] ──▶ work ──▶ link, or large[other core]
//!     SHO: hand-off core's receive ──▶ its batch ──▶ any worker
//!     Minos: a large core's receive ──▶ a share to each small core's batch
//! ```
//!
//! A core processes a reply of many packets [`BATCH_MAX`] packets at a time, so that the wire
//! starts before the core is done.

mod take;

use std::collections::VecDeque;

use base::{PartitionId, WorkerId};
use policy::size_class::{PACKET_PAYLOAD_MAX_BYTES, SizeController, WorkerSizes};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::request::Requests;

use super::link::{Link, Send};
use super::{
    BATCH_MAX, CORES, Costs, LINK_BYTES_PER_NS, MinosVariant, Request, Setup, System, controller,
    request_of,
};

/// The current step of a core.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Serving it; this many packets are left.
    Serve { request: Request, packets_left: u64 },
    /// Passing it on: to the large core that owns its size, or to all workers (SHO).
    HandOff { request: Request, to: usize },
}

/// A request taken by a core.
#[derive(Clone, Copy, Debug)]
struct Taken {
    request: Request,
    /// The cost of taking it.
    extra_ns: f64,
    /// Whether the core that owns its size has it (Minos).
    is_sorted: bool,
}

/// All cores, their queues and the wire.
#[derive(Debug)]
pub(super) struct Cores {
    system: System,
    costs: Costs,
    /// The end of each core's step; infinite: idle.
    finish_at: [f64; CORES],
    work: [Option<Work>; CORES],
    /// The network card's queues.
    receive: Vec<VecDeque<Request>>,
    /// Requests read from the network: for the core itself, except for thieves and SHO's workers.
    batch: Vec<VecDeque<Request>>,
    /// Large requests for each core (Minos).
    large: Vec<VecDeque<Request>>,
    controller: SizeController,
    sizes: Vec<WorkerSizes>,
    /// The core to try first, so that no core is preferred.
    turn: usize,
    random: SmallRng,
    pub(super) link: Link,
    pub(super) requests: Vec<u64>,
    pub(super) packets: Vec<u64>,
}

impl Cores {
    pub(super) fn new(setup: &Setup) -> Cores {
        let (controller, sizes) = controller(setup.system);
        let queues = || vec![VecDeque::new(); CORES];
        Cores {
            system: setup.system,
            costs: setup.costs,
            finish_at: [f64::INFINITY; CORES],
            work: [None; CORES],
            receive: queues(),
            batch: queues(),
            large: queues(),
            controller,
            sizes,
            turn: 0,
            random: SmallRng::seed_from_u64(!setup.seed),
            link: Link::new(CORES, LINK_BYTES_PER_NS),
            requests: vec![0; CORES],
            packets: vec![0; CORES],
        }
    }

    /// Shows the controller as many counted sizes as it would have seen before the run.
    pub(super) fn train(&mut self, requests: &mut Requests) {
        const COUNTED: usize = 50_000;
        let every = match self.system {
            System::Minos(MinosVariant::Sampling(every)) => every as usize,
            _ => 1,
        };
        for index in 0..COUNTED * every {
            self.sizes[index % CORES].record(request_of(0.0, requests).size_bytes);
        }
        self.controller.end_epoch(&self.sizes);
    }

    pub(super) fn end_epoch(&mut self, now: f64) {
        self.controller.end_epoch(&self.sizes);
        // Roles may have changed: idle cores search again.
        (0..CORES).for_each(|core| self.wake(core, now));
    }

    pub(super) fn large_cores(&self) -> usize {
        self.controller.plan().large_workers()
    }

    /// The core whose step ends first, and when.
    pub(super) fn next_finish(&self) -> (usize, f64) {
        let mut least = 0;
        for core in 1..CORES {
            if self.finish_at[core] < self.finish_at[least] {
                least = core;
            }
        }
        (least, self.finish_at[least])
    }

    /// A request reaches the network card (N1: GET at random, PUT by the key's hash).
    pub(super) fn arrive(&mut self, request: Request) {
        let queues = if let System::Sho(hand_offs) = self.system { hand_offs } else { CORES };
        let unit = if request.is_get { self.random.random::<u32>() } else { request.key };
        let queue = ((u64::from(unit) * queues as u64) >> 32) as usize;
        let now = request.at;
        self.receive[queue].push_back(request);
        self.wake(queue, now);
        let others_may_take = match self.system {
            System::Hkh | System::Sho(_) => false,
            System::HkhStealing => true,
            System::Minos(variant) => {
                self.is_large_now(queue) || variant == MinosVariant::LargeSteal
            }
        };
        if others_may_take && !self.receive[queue].is_empty() {
            self.wake_anyone(now);
        }
    }

    /// A packet has left at `now`: returns the request it answered, if it was the last one.
    pub(super) fn finish_packet(&mut self, now: f64) -> Option<Request> {
        let core = self.link.sender();
        let answered = self.link.finish();
        if !self.link.is_sending(core) {
            // A core that kept away from small requests until its packets were gone.
            self.wake(core, now);
        }
        answered
    }

    /// A core's step ends at `now`.
    pub(super) fn finish(&mut self, core: usize, now: f64) {
        match self.work[core].take() {
            Some(Work::Serve { request, packets_left }) => {
                self.finish_packets(core, now, request, packets_left);
            }
            Some(Work::HandOff { request, to }) => {
                if matches!(self.system, System::Sho(_)) {
                    self.batch[core].push_back(request);
                    self.wake_anyone(now);
                } else {
                    self.large[to].push_back(request);
                    self.wake(to, now);
                }
            }
            None => {}
        }
        self.finish_at[core] = f64::INFINITY;
        self.wake(core, now);
    }

    fn finish_packets(&mut self, core: usize, now: f64, request: Request, packets_left: u64) {
        let step = packets_left.min(BATCH_MAX as u64);
        let left = packets_left - step;
        self.packets[core] += step;
        if request.is_get {
            let whole_bytes = (request.packets() - 1) * PACKET_PAYLOAD_MAX_BYTES;
            let last_bytes =
                if left == 0 { request.size_bytes - whole_bytes } else { PACKET_PAYLOAD_MAX_BYTES };
            self.link.push(now, core, Send { request, packets: step, last_bytes, ends: left == 0 });
        } else if left == 0 {
            self.link.push(now, core, Send { request, packets: 1, last_bytes: 0, ends: true });
        }
        if left == 0 {
            self.requests[core] += 1;
        } else {
            self.work[core] = Some(Work::Serve { request, packets_left: left });
        }
    }

    /// Wakes one idle core that finds work; readers of the network first, in turn.
    fn wake_anyone(&mut self, now: f64) {
        let readers = match self.system {
            System::Minos(_) => self.controller.plan().small_workers,
            _ => CORES,
        };
        self.turn += 1;
        let first = self.turn;
        let in_turn = (0..readers).map(|step| (first + step) % readers);
        for core in in_turn.chain(readers..CORES) {
            if self.finish_at[core] == f64::INFINITY {
                self.wake(core, now);
                if self.finish_at[core] != f64::INFINITY {
                    return;
                }
            }
        }
    }

    /// Lets `core` continue, if it has no step in progress.
    fn wake(&mut self, core: usize, now: f64) {
        if self.finish_at[core] != f64::INFINITY {
            return;
        }
        if let Some(Work::Serve { packets_left, .. }) = self.work[core] {
            let step = packets_left.min(BATCH_MAX as u64) as f64;
            self.finish_at[core] = now + step * self.costs.packet_ns;
            return;
        }
        if let Some(taken) = self.take(core) {
            self.start(core, now, taken);
        }
    }

    fn start(&mut self, core: usize, now: f64, taken: Taken) {
        let Taken { request, mut extra_ns, is_sorted } = taken;
        let mut hand_off_to = None;
        match self.system {
            System::Sho(hand_offs) if core < hand_offs => {
                self.work[core] = Some(Work::HandOff { request, to: core });
                self.finish_at[core] = now + self.costs.hand_off_ns;
                return;
            }
            System::Minos(variant) if !is_sorted => {
                self.sizes[core].record(request.size_bytes);
                extra_ns += self.profile_ns(variant);
                let plan = self.controller.plan();
                let owner = plan.core_for(request.size_bytes, PartitionId(request.key));
                hand_off_to = owner.map(WorkerId::index).filter(|owner| *owner != core);
            }
            _ => {}
        }
        if let Some(to) = hand_off_to {
            // The request was received and its size looked up: half of what a request costs.
            let until = now + extra_ns + self.costs.request_ns / 2.0 + self.costs.hand_off_ns;
            self.work[core] = Some(Work::HandOff { request, to });
            self.finish_at[core] = until;
            return;
        }
        let packets_left = request.packets();
        let step = packets_left.min(BATCH_MAX as u64) as f64;
        self.work[core] = Some(Work::Serve { request, packets_left });
        self.finish_at[core] = now + extra_ns + self.costs.request_ns + step * self.costs.packet_ns;
    }

    fn profile_ns(&self, variant: MinosVariant) -> f64 {
        match variant {
            MinosVariant::Sampling(every) => self.costs.profile_ns / f64::from(every),
            MinosVariant::Paper | MinosVariant::LargeSteal => self.costs.profile_ns,
        }
    }
}
