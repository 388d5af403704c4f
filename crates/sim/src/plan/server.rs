//! One simulated server under one load: workers, queues, windows, stealing, hand-off, line
//! transfers.
//!
//! ```text
//!  arrivals ─▶ (hand-off cores) ─▶ policy::Router, policy::Depths ─▶ queue ─▶ worker ─▶ latency
//!          └─▶ (dispatchers)   ──┘   │ Busy: waits for a completion             │
//!                  ▲                 └──────────────────◀───────────────────────┤
//!                  └───────────────────── replies, with two layers ◀────────────┘
//! ```
//!
//! A request costs its worker the network's share, the measured time of the store, a forwarding if
//! another worker received it, and the transfer of lines that other cores hold. Depths are seen
//! exactly.
//!
//! # Invariants
//! I1: every request that arrives is answered once and counted once.
//! I2: a busy worker has exactly one pending event; an idle one has an empty queue.

mod dispatchers;
mod help;

use std::collections::VecDeque;

use base::WorkerId;
use base::sync::Arc;
use policy::Helping;
use policy::routers::{Queue, Steal};
use policy::size_class::SizePlan;
use policy::window::{Dependent, InSight, OpenWindow, WindowRules, WriteStep};
use policy::{Access, Depths, Route, RouteRequest, Router};

use crate::engine::{EventQueue, instant};
use crate::latency::Latencies;
use crate::measure::{LineTransfer, SharedItem};
use crate::plan::jobs::{Job, Jobs};

/// Most waiting requests to skip because the write table has no room for theirs.
const LOOK_AHEAD_MAX: usize = 64;
const LINE_BYTES: u64 = 64;

/// The costs of a request besides the store's own time. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Receiving, parsing, replying.
    pub request_ns: f64,
    /// A forwarding: passing to another worker than the receiving one.
    pub forwarding_ns: f64,
    /// Crossing from one layer to the other and back, both sides together.
    pub layer_forwarding_ns: f64,
    /// Being added to a compaction window.
    pub join_ns: f64,
    /// Lines that other cores hold.
    pub lines: LineTransfer,
}

/// The parameters of a server besides its router.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub workers: usize,
    /// Cores beside the workers that receive, serve hot reads and send replies; 0: the workers do.
    pub dispatchers: usize,
    /// The first of the workers only receive and hand off; 0: every worker receives.
    pub hand_off_workers: usize,
    /// The way idle workers steal; `None`: they do not.
    pub stealing: Option<Steal>,
    /// Whether idle large workers take small requests, and which workers are large; `None`: they do
    /// not.
    pub helping: Option<(Helping, Arc<SizePlan>)>,
    pub windows: Option<WindowRules>,
    pub costs: Costs,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub latencies: Latencies,
    /// Whether the work was done soon after the last arrival, so that a longer run would look
    /// alike.
    pub is_sustained: bool,
}

/// The share of the run's length that a server that keeps up may need to finish after the last
/// arrival. The load of its busiest worker is no measure: the shortest queue's lowest index, and
/// the owner of a hot key whose next window waits, are always busy and yet keep up.
const DRAIN_SHARE_MAX: f64 = 0.02;

enum Event {
    HandedOff(u32),
    /// A dispatcher is done with the reply.
    Replied(u32),
    /// A dispatcher has served it alone.
    ServedByDispatcher(u32),
    Served(u16),
    Joined(u16),
    Closed(u16),
    Timer(u16),
}

#[derive(Default)]
struct Worker {
    /// The requests sent to it.
    queue: VecDeque<u32>,
    /// The requests that it has read and not begun, if idle workers steal.
    software: VecDeque<u32>,
    is_busy: bool,
    current: u32,
    windows: Vec<Window>,
    closing: Vec<u32>,
}

struct Window {
    key: u32,
    state: OpenWindow,
    batch: Vec<u32>,
}

struct Server<'a, R> {
    jobs: &'a Jobs,
    shape: &'a Shape,
    router: R,
    depths: Depths,
    events: EventQueue<Event>,
    workers: Vec<Worker>,
    /// The number of requests in the workers' two queues, if idle workers steal.
    received: Depths,
    read: Depths,
    waiting: VecDeque<u32>,
    hand_off_free_at: Vec<f64>,
    dispatcher_free_at: Vec<f64>,
    shared: Vec<SharedItem>,
    arrived_at: Vec<f64>,
    /// The router's choice for each request, whichever worker executes it.
    sent_to: Vec<WorkerId>,
    latencies: Latencies,
}

/// Offers all jobs at `rate` requests a nanosecond.
pub(super) fn run(jobs: &Jobs, shape: &Shape, router: impl Router, rate: f64) -> Outcome {
    let server = Server {
        jobs,
        shape,
        router,
        depths: Depths::new(shape.workers),
        received: Depths::new(shape.workers),
        read: Depths::new(shape.workers),
        events: EventQueue::default(),
        workers: (0..shape.workers).map(|_| Worker::default()).collect(),
        waiting: VecDeque::new(),
        hand_off_free_at: vec![0.0; shape.hand_off_workers],
        dispatcher_free_at: vec![0.0; shape.dispatchers],
        shared: vec![SharedItem::default(); jobs.hot_key_count()],
        arrived_at: vec![0.0; jobs.all().len()],
        sent_to: vec![WorkerId(0); jobs.all().len()],
        latencies: Latencies::default(),
    };
    server.run(rate)
}

impl<R: Router> Server<'_, R> {
    fn run(mut self, rate: f64) -> Outcome {
        let mut now = 0.0;
        for (index, job) in self.jobs.all().iter().enumerate() {
            now += job.gap / rate;
            while self.events.peek_at().is_some_and(|at| at <= now) {
                self.step();
            }
            self.arrived_at[index] = now;
            self.arrive(index as u32, now);
        }
        let mut ended = now;
        while let Some(at) = self.events.peek_at() {
            ended = at;
            self.step();
        }
        debug_assert_eq!(self.latencies.count(), self.jobs.all().len() as u64, "I1");
        let drain_max_ns = self.jobs.store_max_ns() + DRAIN_SHARE_MAX * now;
        let is_sustained = ended - now <= drain_max_ns;
        Outcome { latencies: self.latencies, is_sustained }
    }

    fn step(&mut self) {
        let Some((now, event)) = self.events.pop() else { return };
        match event {
            Event::HandedOff(index) => self.dispatch_or_wait(index, now),
            Event::Replied(index) => {
                self.answer(index, now);
                self.dispatch_waiting(now);
            }
            Event::ServedByDispatcher(index) => self.record(index, now),
            Event::Served(worker) => {
                let index = self.workers[usize::from(worker)].current;
                self.finish(index, now);
                self.take_next(worker, now);
            }
            Event::Joined(worker) => self.end_join(worker, now),
            Event::Closed(worker) => {
                let closing = std::mem::take(&mut self.workers[usize::from(worker)].closing);
                closing.into_iter().for_each(|index| self.finish(index, now));
                self.take_next(worker, now);
            }
            Event::Timer(worker) => {
                if !self.workers[usize::from(worker)].is_busy {
                    self.close_due(worker, now);
                }
            }
        }
    }

    fn arrive(&mut self, index: u32, now: f64) {
        if self.shape.dispatchers > 0 {
            return self.receive_by_dispatcher(index, now);
        }
        let hand_off_workers = self.hand_off_free_at.len();
        if hand_off_workers == 0 {
            return self.dispatch_or_wait(index, now);
        }
        let receive_ns = self.shape.costs.request_ns / 2.0;
        let receiver = self.receiver(&self.jobs.all()[index as usize]).index();
        let free_at = &mut self.hand_off_free_at[receiver];
        *free_at = free_at.max(now) + receive_ns;
        self.events.push(*free_at, Event::HandedOff(index));
    }

    fn dispatch_or_wait(&mut self, index: u32, now: f64) {
        if self.dispatch(index, now) {
            return;
        }
        match self.idle_helper(index) {
            Some(helper) => self.begin_by_helper(index, helper, now),
            None => self.waiting.push_back(index),
        }
    }

    /// Whether there was room.
    fn dispatch(&mut self, index: u32, now: f64) -> bool {
        let job = self.jobs.all()[index as usize];
        let Route::To(worker) = self.router.route(&self.request(&job), &self.depths) else {
            return false;
        };
        self.depths.add(worker);
        self.sent_to[index as usize] = worker;
        self.enqueue(index, worker.0, now);
        true
    }

    /// Between two layers no receiver can execute: some worker stands for the receiver.
    fn receiver(&self, job: &Job) -> WorkerId {
        let receivers = match self.shape.hand_off_workers {
            0 => self.shape.workers,
            hand_off_workers => hand_off_workers,
        };
        WorkerId((job.receiver * receivers as f64) as u16)
    }

    fn request(&self, job: &Job) -> RouteRequest {
        RouteRequest {
            partition: job.partition,
            access: job.access,
            size_bytes: Some(job.size_bytes),
            received_by: self.receiver(job),
        }
    }

    fn enqueue(&mut self, index: u32, worker: u16, now: f64) {
        if !self.workers[usize::from(worker)].is_busy {
            return self.begin(index, worker, now);
        }
        if let Some(helper) = self.idle_helper(index) {
            self.sent_instead(index, helper);
            return self.begin(index, helper.0, now);
        }
        self.workers[usize::from(worker)].queue.push_back(index);
        if self.shape.stealing.is_some() {
            self.received.add(WorkerId(worker));
            if let Some(thief) = self.workers.iter().position(|worker| !worker.is_busy) {
                self.take_next(thief as u16, now);
            }
        }
    }

    fn begin(&mut self, index: u32, worker: u16, now: f64) {
        let job = self.jobs.all()[index as usize];
        self.workers[usize::from(worker)].current = index;
        if job.access == Access::Write
            && let Some(rules) = self.shape.windows
        {
            let of = &self.workers[usize::from(worker)];
            let place = of.windows.iter().position(|window| window.key == job.key);
            let open = place.map(|place| &of.windows[place].state);
            let step = rules.on_write(open, |counts| {
                self.in_sight(of, job.key, &rules, counts) == InSight::SameKey
            });
            if step != WriteStep::RunNow {
                return self.add_to_window(index, worker, now, place);
            }
        }
        let duration_ns = self.overhead_ns(&job, worker) + self.store_ns(&job, worker, now);
        self.work(worker, now, duration_ns, Event::Served(worker));
    }

    fn work(&mut self, worker: u16, now: f64, duration_ns: f64, then: Event) {
        let of = &mut self.workers[usize::from(worker)];
        of.is_busy = true;
        self.events.push(now + duration_ns, then);
    }

    /// The network's share, and the forwarding when another worker received the request.
    fn overhead_ns(&self, job: &Job, worker: u16) -> f64 {
        let costs = &self.shape.costs;
        if self.shape.dispatchers > 0 {
            return costs.layer_forwarding_ns / 2.0;
        }
        if self.shape.hand_off_workers > 0 {
            return costs.request_ns / 2.0 + costs.forwarding_ns;
        }
        let forwarding_ns = if self.receiver(job).0 == worker { 0.0 } else { costs.forwarding_ns };
        costs.request_ns + forwarding_ns
    }

    fn store_ns(&mut self, job: &Job, worker: u16, now: f64) -> f64 {
        let Some(hot) = job.hot else { return job.store_ns };
        let law = &self.shape.costs.lines;
        let item = &mut self.shared[hot as usize];
        let core = usize::from(worker);
        let transfer_ns = match job.access {
            // The index's line, and the new item's from the cache of the core that wrote it.
            Access::Read => {
                let lines = 1 + job.size_bytes.div_ceil(LINE_BYTES) as u32;
                item.read_ns(law, now, core, lines)
            }
            // A write appends to its worker's own log and swaps one slot: only the index's line is
            // taken from others.
            Access::Write => item.write_ns(law, now, core, 1),
        };
        job.store_ns + transfer_ns
    }

    /// A worker has executed a request: the reply leaves, from here or by the dispatcher.
    fn finish(&mut self, index: u32, now: f64) {
        if self.shape.dispatchers > 0 {
            self.reply_by_dispatcher(index, now);
        } else {
            self.answer(index, now);
        }
    }

    fn record(&mut self, index: u32, now: f64) {
        let latency_ns = now - self.arrived_at[index as usize];
        self.latencies.record(latency_ns as u64);
    }

    fn answer(&mut self, index: u32, now: f64) {
        self.record(index, now);
        let worker = self.sent_to[index as usize];
        self.depths.remove(worker);
        self.router.finish(&self.request(&self.jobs.all()[index as usize]), worker);
    }

    /// Gives a free worker its next work: a due window, its queue, another queue, or nothing.
    fn take_next(&mut self, worker: u16, now: f64) {
        // While the worker still counts as busy, so that no request overtakes its worker's queue.
        self.dispatch_waiting(now);
        self.workers[usize::from(worker)].is_busy = false;
        if self.close_due(worker, now) {
            return;
        }
        let next = match self.shape.stealing {
            Some(steal) => self.steal(steal, WorkerId(worker)),
            None => {
                let own = self.workers[usize::from(worker)].queue.pop_front();
                own.or_else(|| self.help(WorkerId(worker)))
            }
        };
        if let Some(index) = next {
            self.begin(index, worker, now);
        }
    }

    /// A worker's next request under stealing: its own queues first, then those of others.
    fn steal(&mut self, steal: Steal, worker: WorkerId) -> Option<u32> {
        loop {
            let take = steal.next(worker, &self.read, &self.received)?;
            let from = &mut self.workers[take.from.index()];
            if take.queue == Queue::Software {
                self.read.remove(take.from);
                return from.software.pop_front();
            }
            let count = from.queue.len().min(take.count_max as usize);
            let batch: Vec<u32> = from.queue.drain(..count).collect();
            for index in batch {
                self.received.remove(take.from);
                self.read.add(worker);
                self.workers[worker.index()].software.push_back(index);
            }
        }
    }

    /// Sends the requests that now have room, in the order of arrival. A request whose set of the
    /// write table is full lets others pass.
    fn dispatch_waiting(&mut self, now: f64) {
        let mut place = 0;
        while place < LOOK_AHEAD_MAX.min(self.waiting.len()) {
            let index = self.waiting[place];
            if self.dispatch(index, now) {
                self.waiting.remove(place);
            } else {
                place += 1;
            }
        }
    }
}

/// Compaction windows (C-4 §4.3).
impl<R: Router> Server<'_, R> {
    fn in_sight(&self, of: &Worker, key: u32, rules: &WindowRules, counts: Dependent) -> InSight {
        let depends = |index: &u32| {
            let job = &self.jobs.all()[*index as usize];
            job.key == key && (counts == Dependent::Any || job.access == Access::Write)
        };
        match of.queue.iter().take(rules.queue_scan_max).any(depends) {
            true => InSight::SameKey,
            false if of.queue.is_empty() => InSight::Nothing,
            false => InSight::OtherKeys,
        }
    }

    fn add_to_window(&mut self, index: u32, worker: u16, now: f64, place: Option<usize>) {
        let Some(rules) = self.shape.windows else { return };
        let job = self.jobs.all()[index as usize];
        let of = &mut self.workers[usize::from(worker)];
        match place {
            Some(place) => {
                rules.join(&mut of.windows[place].state);
                of.windows[place].batch.push(index);
            }
            None => {
                let state = rules.open(instant(now));
                for look_at in [rules.looks_at(&state), rules.closes_at(&state)] {
                    self.events.push((look_at.ns as f64).max(now), Event::Timer(worker));
                }
                of.windows.push(Window { key: job.key, state, batch: vec![index] });
            }
        }
        let duration_ns = self.overhead_ns(&job, worker) + self.shape.costs.join_ns;
        self.work(worker, now, duration_ns, Event::Joined(worker));
    }

    fn end_join(&mut self, worker: u16, now: f64) {
        let Some(rules) = self.shape.windows else { return };
        let of = &self.workers[usize::from(worker)];
        let key = self.jobs.all()[of.current as usize].key;
        if let Some(place) = of.windows.iter().position(|window| window.key == key) {
            let in_sight = |counts| self.in_sight(of, key, &rules, counts);
            if rules.after_join(instant(now), &of.windows[place].state, in_sight).is_some() {
                return self.close(worker, place, now);
            }
        }
        self.take_next(worker, now);
    }

    /// Closes a window whose time is up or that would gather nothing more; returns whether there
    /// was one.
    fn close_due(&mut self, worker: u16, now: f64) -> bool {
        let Some(rules) = self.shape.windows else { return false };
        let of = &self.workers[usize::from(worker)];
        let is_due = |window: &Window| {
            let in_sight = |counts| self.in_sight(of, window.key, &rules, counts);
            rules.on_time(instant(now), &window.state)
                || rules.on_round(instant(now), &window.state, in_sight).is_some()
        };
        let Some(place) = of.windows.iter().position(is_due) else { return false };
        self.close(worker, place, now);
        true
    }

    /// One write for all of the window, and then all replies.
    fn close(&mut self, worker: u16, place: usize, now: f64) {
        let window = self.workers[usize::from(worker)].windows.swap_remove(place);
        let last = window.batch[window.batch.len() - 1];
        let job = self.jobs.all()[last as usize];
        self.workers[usize::from(worker)].closing = window.batch;
        let duration_ns = self.store_ns(&job, worker, now);
        self.work(worker, now, duration_ns, Event::Closed(worker));
    }
}
