//! One run of the hot-thread model: 64 cores, CREW, and the lines of hot items that move between
//! them.
//!
//! ```text
//!  arrivals ─▶ balancer ── reads: shortest queue below 2, writes: owner ─▶ core's FIFO
//!                                                                            │
//!   read:  look-up ▶ spin while a write is under way ▶ fetch ▶ version moved? again : T_fixed
//!   write: look-up ▶ wait for earlier fetches ▶ take, version odd ────────────▶ T_fixed
//!   compacted write: T_comp ... window closes: one write, then T_fixed for each reply
//! ```
//!
//! A store that swaps entries instead of writing in place has neither the spin nor the second read.
//!
//! # Invariants
//! I1: every request that arrives before the end is completed and counted once.
//! I2: a core does one thing at a time; `Core::work` is its current work.
//!
//! # Trade-offs
//! Flight times and a bound on the owner's queue are left out: an overloaded run shows as
//! overloaded. Lines are followed for the items that fit a core's own cache; misses on the others
//! are part of T_kvs.

use std::cell::Cell;
use std::collections::VecDeque;

use base::ids::PartitionBits;
use base::{KeyHash, PartitionId, WorkerId};
use policy::routers::{Balance, Crew, owner_of};
use policy::window::{InSight, OpenWindow, WindowRules, WriteStep};
use policy::{Access, Depths, Route, RouteRequest, Router};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::{Popularity, RankSampler};

use crate::c4_hot::machine::{Machine, Update};
use sim::engine::{EventQueue, instant};
use sim::latency::Latencies;
use sim::measure::SharedItem;

/// JBSQ(2): a read is not sent to a core that holds two requests (C-4 §6).
const READ_DEPTH_MAX: u32 = 2;

/// One point.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub(crate) machine: Machine,
    /// Exponent of the keys' popularity.
    pub(crate) zipf: f64,
    pub(crate) key_count: u64,
    pub(crate) write_share_ratio: f64,
    /// Million requests a second.
    pub(crate) load_mrps: f64,
    /// `None`: no compaction.
    pub(crate) windows: Option<WindowRules>,
    pub(crate) requests: u64,
    pub(crate) seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunResult {
    pub(crate) latencies: Latencies,
    /// The result of each core; the hottest item's owner is `hot_core`.
    pub(crate) cores: Vec<CoreResult>,
    pub(crate) hot_core: usize,
    /// Writes that joined a window, per window.
    pub(crate) window_length_mean: f64,
    /// Number of reads that found their item changed.
    pub(crate) retry_count: u64,
}

/// One core's second half of a run: the first fills queues and caches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoreResult {
    /// Requests answered.
    pub(crate) answered: u64,
    /// Busy time.
    pub(crate) busy_ns: f64,
    /// Length of the counted part.
    pub(crate) elapsed_ns: f64,
}

impl CoreResult {
    /// Time on the core per request.
    pub(crate) fn service_mean_ns(&self) -> f64 {
        if self.answered == 0 { f64::NAN } else { self.busy_ns / self.answered as f64 }
    }

    /// Million requests a second.
    pub(crate) fn mrps(&self) -> f64 {
        self.answered as f64 / self.elapsed_ns * 1000.0
    }

    /// 0 to 100.
    pub(crate) fn busy_pct(&self) -> f64 {
        self.busy_ns / self.elapsed_ns * 100.0
    }
}

impl RunResult {
    /// The mean over all cores but the hot one, weighted by requests.
    pub(crate) fn others_service_mean_ns(&self) -> f64 {
        let others = self.cores.iter().enumerate().filter(|(core, _)| *core != self.hot_core);
        let (busy_ns, answered) = others.fold((0.0, 0), |(busy_ns, answered), (_, core)| {
            (busy_ns + core.busy_ns, answered + core.answered)
        });
        busy_ns / answered as f64
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrived_ns: f64,
    rank: u64,
    is_write: bool,
}

impl Request {
    fn to_route(self) -> RouteRequest {
        RouteRequest {
            partition: partition(self.rank),
            access: if self.is_write { Access::Write } else { Access::Read },
            size_bytes: None,
            received_by: WorkerId(0),
        }
    }
}

/// JBSQ whose ties go to the first core after the last one chosen, so that reads spread evenly over
/// the cores as in C-4's Fig. 12.
#[derive(Debug, Default)]
struct TurningJbsq {
    next_core: Cell<u16>,
}

impl Balance for TurningJbsq {
    fn pick(&self, _request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        let (start, end) = (self.next_core.get(), depths.worker_count() as u16);
        let behind = depths.shortest_of(start..end, READ_DEPTH_MAX);
        let before = depths.shortest_of(0..start, READ_DEPTH_MAX);
        let depth = |worker: Option<WorkerId>| worker.map_or(u32::MAX, |it| depths.of(it));
        let worker = if depth(before) < depth(behind) { before } else { behind }?;
        self.next_core.set((worker.0 + 1) % end);
        Some(worker)
    }
}

enum Event {
    Arrive,
    Step { core: usize },
    WindowDue { core: usize },
}

/// The current work of a core.
enum Work {
    Idle,
    /// Everything of T_kvs but the item itself.
    Lookup {
        request: Request,
    },
    /// Ends with the version check.
    Read {
        request: Request,
        version: u64,
    },
    /// Answers a read.
    Reply {
        request: Request,
    },
    /// Adding to an open window, or opening one.
    Join {
        rank: u64,
        opens: bool,
    },
    /// Waits for its turn at the item's lines.
    Ask {
        rank: u64,
        batch: VecDeque<Request>,
        take_ns: f64,
    },
    /// The one write of all that are in `batch`, then their replies.
    Write {
        batch: VecDeque<Request>,
    },
}

struct Window {
    rank: u64,
    open: OpenWindow,
    batch: VecDeque<Request>,
}

struct Core {
    queue: VecDeque<Request>,
    work: Work,
    windows: Vec<Window>,
    result: CoreResult,
}

/// The lines of a hot item; `bucket` is apart from `entry` only if updates swap ([`Update`]).
#[derive(Clone, Copy, Default)]
struct Item {
    bucket: SharedItem,
    entry: SharedItem,
    version: u64,
    write_ends_ns: f64,
}

impl Item {
    /// The extra time of a read that begins now, compared with its own cache.
    fn read_ns(&mut self, machine: &Machine, now_ns: f64, core: usize) -> f64 {
        let (law, lines) = (&machine.law, machine.line_count);
        match machine.update {
            Update::InPlace => self.entry.read_ns(law, now_ns, core, lines),
            Update::Swap => {
                let found_ns = self.bucket.read_ns(law, now_ns, core, 1);
                found_ns + self.entry.read_ns(law, now_ns + found_ns, core, lines - 1)
            }
        }
    }

    /// The same for a write: the wait, during which readers' copies are valid, and the transfer.
    fn ask_ns(&mut self, machine: &Machine, now_ns: f64, core: usize) -> (f64, f64) {
        let (law, lines) = (&machine.law, machine.line_count);
        match machine.update {
            Update::InPlace => self.entry.ask_ns(law, now_ns, core, lines),
            Update::Swap => self.bucket.ask_ns(law, now_ns, core, 1),
        }
    }

    /// The writer has the requested lines, and needs `time_ns` to write.
    fn own(&mut self, update: Update, now_ns: f64, core: usize, time_ns: f64) {
        if update == Update::Swap {
            self.bucket.own(core);
            // Other lines than before: no other core has ever asked for them.
            self.entry = SharedItem::default();
        }
        self.entry.own(core);
        self.version += 1;
        self.write_ends_ns = now_ns + time_ns;
    }
}

struct Model<'a> {
    options: &'a RunOptions,
    events: EventQueue<Event>,
    depths: Depths,
    router: Crew<TurningJbsq>,
    /// Reads that found all cores full, and the requests behind them.
    waiting: VecDeque<Request>,
    cores: Vec<Core>,
    items: Vec<Item>,
    ranks: RankSampler,
    random: SmallRng,
    arrived: u64,
    latencies: Latencies,
    counting_since_ns: Option<f64>,
    last_ns: f64,
    window_count: u64,
    compacted_count: u64,
    retry_count: u64,
}

/// Runs one point to its end.
pub(crate) fn run(options: &RunOptions) -> RunResult {
    let core_count = options.machine.core_count;
    let core = || Core {
        queue: VecDeque::new(),
        work: Work::Idle,
        windows: Vec::new(),
        result: CoreResult::default(),
    };
    let mut model = Model {
        options,
        events: EventQueue::default(),
        depths: Depths::new(core_count),
        router: Crew::over(TurningJbsq::default()),
        waiting: VecDeque::new(),
        cores: (0..core_count).map(|_| core()).collect(),
        items: vec![Item::default(); options.machine.cached_ranks as usize],
        ranks: RankSampler::new(Popularity::Zipf { exponent: options.zipf }, options.key_count),
        random: SmallRng::seed_from_u64(options.seed),
        arrived: 0,
        latencies: Latencies::default(),
        counting_since_ns: None,
        last_ns: 0.0,
        window_count: 0,
        compacted_count: 0,
        retry_count: 0,
    };
    model.events.push(0.0, Event::Arrive);
    while let Some((now_ns, event)) = model.events.pop() {
        match event {
            Event::Arrive => model.arrive(now_ns),
            Event::Step { core } => model.step(core, now_ns),
            Event::WindowDue { core } => {
                if matches!(model.cores[core].work, Work::Idle) {
                    model.begin(core, now_ns);
                }
            }
        }
    }
    model.into_result()
}

impl Model<'_> {
    fn arrive(&mut self, now_ns: f64) {
        let rank = self.ranks.draw(&mut self.random);
        let is_write = self.random.random::<f64>() < self.options.write_share_ratio;
        self.waiting.push_back(Request { arrived_ns: now_ns, rank, is_write });
        self.arrived += 1;
        if self.arrived * 2 >= self.options.requests && self.counting_since_ns.is_none() {
            self.counting_since_ns = Some(now_ns);
        }
        if self.arrived < self.options.requests {
            let gap_ns =
                -(1.0 - self.random.random::<f64>()).ln() * 1000.0 / self.options.load_mrps;
            self.events.push(now_ns + gap_ns, Event::Arrive);
        } else {
            self.last_ns = now_ns;
        }
        self.dispatch(now_ns);
    }

    /// Sends what can be sent, in order.
    fn dispatch(&mut self, now_ns: f64) {
        while let Some(request) = self.waiting.front().copied() {
            let Route::To(worker) = self.router.route(&request.to_route(), &self.depths) else {
                return;
            };
            self.waiting.pop_front();
            self.depths.add(worker);
            let core = worker.index();
            self.cores[core].queue.push_back(request);
            if matches!(self.cores[core].work, Work::Idle) {
                self.begin(core, now_ns);
            }
        }
    }

    /// Does `work` for `time_ns`.
    fn do_for(&mut self, core: usize, work: Work, now_ns: f64, time_ns: f64) {
        let end_ns = now_ns + time_ns;
        if let Some(since_ns) = self.counting_since_ns {
            // Arrivals have an end: work done after it belongs to no load.
            let until_ns = if self.last_ns > 0.0 { end_ns.min(self.last_ns) } else { end_ns };
            self.cores[core].result.busy_ns += (until_ns - now_ns.max(since_ns)).max(0.0);
        }
        self.cores[core].work = work;
        self.events.push(end_ns, Event::Step { core });
    }

    /// The core is free: closes a window that is due, else takes its next request.
    fn begin(&mut self, core: usize, now_ns: f64) {
        self.cores[core].work = Work::Idle;
        if let Some(rules) = self.options.windows {
            let due = |window: &Window| rules.on_time(instant(now_ns), &window.open);
            if let Some(index) = self.cores[core].windows.iter().position(due) {
                return self.close(core, index, now_ns);
            }
        }
        match self.cores[core].queue.pop_front() {
            Some(request) if request.is_write => self.begin_write(core, request, now_ns),
            Some(request) => self.look_up(core, request, now_ns),
            None => self.drained(core, now_ns),
        }
    }

    /// No request is queued: a window may close because no more will come.
    fn drained(&mut self, core: usize, now_ns: f64) {
        let Some(rules) = self.options.windows else { return };
        let closes = |window: &Window| {
            rules.on_round(instant(now_ns), &window.open, |_| InSight::Nothing).is_some()
        };
        if let Some(index) = self.cores[core].windows.iter().position(closes) {
            self.close(core, index, now_ns);
        }
    }

    fn look_up(&mut self, core: usize, request: Request, now_ns: f64) {
        let machine = &self.options.machine;
        let is_cached = request.rank < machine.cached_ranks;
        let mean_ns = machine.lookup_ns + if is_cached { 0.0 } else { machine.miss_ns };
        // C-4 draws T_kvs evenly between 2/3 and 4/3 of its mean (§3.1).
        let time_ns = mean_ns * (2.0 / 3.0 + self.random.random::<f64>() * 2.0 / 3.0);
        self.do_for(core, Work::Lookup { request }, now_ns, time_ns);
    }

    /// Copies the item; while it is being written a copy is useless, so the reader spins.
    fn read(&mut self, core: usize, request: Request, now_ns: f64) {
        let machine = &self.options.machine;
        let (mut time_ns, mut version) = (machine.access_ns, 0);
        if let Some(item) = self.items.get_mut(request.rank as usize) {
            let spun_ns = match machine.update {
                Update::InPlace => (item.write_ends_ns - now_ns).max(0.0),
                Update::Swap => 0.0,
            };
            time_ns += spun_ns + item.read_ns(machine, now_ns + spun_ns, core);
            version = item.version;
        }
        self.do_for(core, Work::Read { request, version }, now_ns, time_ns);
    }

    fn begin_write(&mut self, core: usize, request: Request, now_ns: f64) {
        let step = match &self.options.windows {
            None => WriteStep::RunNow,
            Some(rules) => {
                let of = &self.cores[core];
                let open = of.windows.iter().find(|window| window.rank == request.rank);
                rules.on_write(open.map(|window| &window.open), |_| {
                    is_queued(&of.queue, request.rank, rules.queue_scan_max)
                })
            }
        };
        match step {
            WriteStep::RunNow => self.look_up(core, request, now_ns),
            WriteStep::Open => self.open(core, request, now_ns),
            WriteStep::Join => self.join(core, request, now_ns),
        }
    }

    /// Requests the item's lines, to write it once for all of `batch`.
    fn ask(&mut self, core: usize, rank: u64, batch: VecDeque<Request>, now_ns: f64) {
        let machine = &self.options.machine;
        let item = self.items.get_mut(rank as usize);
        let (wait_ns, take_ns) = item.map_or((0.0, 0.0), |item| item.ask_ns(machine, now_ns, core));
        self.do_for(core, Work::Ask { rank, batch, take_ns }, now_ns, wait_ns);
    }

    /// The lines arrive, and the version is odd until the item is written.
    fn write(
        &mut self,
        core: usize,
        rank: u64,
        batch: VecDeque<Request>,
        now_ns: f64,
        take_ns: f64,
    ) {
        let time_ns = take_ns + self.options.machine.access_ns;
        if let Some(item) = self.items.get_mut(rank as usize) {
            item.own(self.options.machine.update, now_ns, core, time_ns);
        }
        self.do_for(core, Work::Write { batch }, now_ns, time_ns);
    }

    fn open(&mut self, core: usize, request: Request, now_ns: f64) {
        let Some(rules) = self.options.windows else { return };
        let open = rules.open(instant(now_ns));
        for look_at in [rules.looks_at(&open), rules.closes_at(&open)] {
            self.events.push((look_at.ns as f64).max(now_ns), Event::WindowDue { core });
        }
        let batch = VecDeque::from([request]);
        self.cores[core].windows.push(Window { rank: request.rank, open, batch });
        self.window_count += 1;
        self.compacted_count += 1;
        let work = Work::Join { rank: request.rank, opens: true };
        self.do_for(core, work, now_ns, self.options.machine.join_ns);
    }

    fn join(&mut self, core: usize, request: Request, now_ns: f64) {
        let Some(rules) = self.options.windows else { return };
        let windows = &mut self.cores[core].windows;
        if let Some(window) = windows.iter_mut().find(|window| window.rank == request.rank) {
            rules.join(&mut window.open);
            window.batch.push_back(request);
        }
        self.compacted_count += 1;
        let work = Work::Join { rank: request.rank, opens: false };
        self.do_for(core, work, now_ns, self.options.machine.join_ns);
    }

    /// One write for all, then a reply for each.
    fn close(&mut self, core: usize, index: usize, now_ns: f64) {
        let window = self.cores[core].windows.swap_remove(index);
        // The window keeps the item's place: no second look-up.
        self.ask(core, window.rank, window.batch, now_ns);
    }

    fn step(&mut self, core: usize, now_ns: f64) {
        let reply_ns = self.options.machine.fixed_ns;
        match std::mem::replace(&mut self.cores[core].work, Work::Idle) {
            Work::Idle => {}
            Work::Lookup { request } if request.is_write => {
                self.ask(core, request.rank, VecDeque::from([request]), now_ns);
            }
            Work::Ask { rank, batch, take_ns } => self.write(core, rank, batch, now_ns, take_ns),
            Work::Lookup { request } => self.read(core, request, now_ns),
            Work::Read { request, version } => {
                let item = self.items.get(request.rank as usize);
                let has_moved = item.is_some_and(|item| item.version != version);
                if has_moved && self.options.machine.update == Update::InPlace {
                    self.retry_count += 1;
                    return self.read(core, request, now_ns);
                }
                self.do_for(core, Work::Reply { request }, now_ns, reply_ns);
            }
            Work::Reply { request } => {
                self.complete(core, request, now_ns);
                self.begin(core, now_ns);
                self.dispatch(now_ns);
            }
            Work::Join { rank, opens } => self.joined(core, rank, opens, now_ns),
            Work::Write { mut batch } => {
                let Some(request) = batch.pop_front() else {
                    self.begin(core, now_ns);
                    return self.dispatch(now_ns);
                };
                self.do_for(core, Work::Write { batch }, now_ns, reply_ns);
                self.complete(core, request, now_ns + reply_ns);
            }
        }
    }

    fn joined(&mut self, core: usize, rank: u64, opens: bool, now_ns: f64) {
        let Some(rules) = self.options.windows else { return };
        let of = &self.cores[core];
        let index = of.windows.iter().position(|window| window.rank == rank);
        let Some(index) = index.filter(|_| !opens) else { return self.begin(core, now_ns) };
        let in_sight = |_| match of.queue.is_empty() {
            true => InSight::Nothing,
            false if is_queued(&of.queue, rank, rules.queue_scan_max) => InSight::SameKey,
            false => InSight::OtherKeys,
        };
        match rules.after_join(instant(now_ns), &of.windows[index].open, in_sight) {
            Some(_) => self.close(core, index, now_ns),
            None => self.begin(core, now_ns),
        }
    }

    fn complete(&mut self, core: usize, request: Request, now_ns: f64) {
        self.latencies.record((now_ns - request.arrived_ns) as u64);
        self.depths.remove(WorkerId(core as u16));
        let is_after_the_end = self.last_ns > 0.0 && now_ns > self.last_ns;
        if self.counting_since_ns.is_some() && !is_after_the_end {
            self.cores[core].result.answered += 1;
        }
    }

    fn into_result(self) -> RunResult {
        let elapsed_ns = self.last_ns - self.counting_since_ns.unwrap_or(0.0);
        let cores = self.cores.iter().map(|core| CoreResult { elapsed_ns, ..core.result });
        RunResult {
            hot_core: owner_of(partition(0), &self.depths).index(),
            cores: cores.collect(),
            latencies: self.latencies,
            window_length_mean: self.compacted_count as f64 / self.window_count.max(1) as f64,
            retry_count: self.retry_count,
        }
    }
}

/// The bucket that an item lies in, of C-4's 2^20 (§6).
fn partition(rank: u64) -> PartitionId {
    KeyHash(workload::scramble::mix(rank)).partition(PartitionBits::MAX)
}

/// Whether a write of the same item is among the first queued ones.
fn is_queued(queue: &VecDeque<Request>, rank: u64, scan_max: usize) -> bool {
    queue.iter().take(scan_max).any(|queued| queued.is_write && queued.rank == rank)
}
