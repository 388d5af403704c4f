//! One run of the model, for one point: the balancer's side; [`cores`] has the cores' side.
//!
//! ```text
//!            input ring                    AT_CORE lane               DONE lane
//!  arrivals ───────────▶ balance ──────────────────────▶ core's ring ─────────▶ latency
//!                         ▲  inbox of completions ◀────────────────────── COMPLETED lane
//! ```
//!
//! # Invariants
//! I1: a request counts in the queue depths from its dispatch until its completion arrives.
//! I2: every dispatched request is finished exactly once at the router.
//! I3: an honest run ends when every request that arrived has been answered.

mod cores;

use std::collections::VecDeque;

use base::{PartitionId, WorkerId};
use policy::routers::{Crew, DCrew, Erew, Jbsq, ShortestQueue};
use policy::window::WindowRules;
use policy::{Access, Busy, Depths, Route, RouteRequest, Router, WriteTable};

use self::cores::Cores;
use super::streams::{ArtifactStreams, OwnStreams, Streams};
use super::{Balance, PointOptions, PointResult, Policy};
use crate::figure::Fidelity;
use sim::engine::Engine;
use sim::latency::Latencies;

/// Delay from generation to the balancer.
const TO_BALANCER_NS: f64 = 1.0;
/// Delay from the balancer to a core, and back.
const TO_CORE_NS: f64 = 30.0;
/// Mean service time with the fixed cost (C-4 §3.1): it defines load 1.0.
const SERVICE_MEAN_NS: f64 = 700.0;
/// T_fixed, and the time to add a write to a window (T_comp).
const FIXED_NS: f64 = 100.0;
/// The SLO in mean service times.
const SLO_RATIO: u64 = 10;

/// Events of constant delay.
const AT_CORE: usize = 0;
const DONE: usize = 1;
const COMPLETED: usize = 2;
const LANES: usize = 3;

/// Most waiting requests to skip because their set of the write table is full.
const LOOK_AHEAD_MAX: usize = 64;

/// One request.
#[derive(Clone, Copy, Debug)]
struct Request {
    generated_ns: f64,
    rank: u64,
    partition: PartitionId,
    access: Access,
    /// The artifact's mark that ends a run; no request.
    is_end: bool,
}

/// The events.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request reaches a core.
    AtCore(u16, Request),
    /// A core has spun until its bucket was even.
    SpinEnded(u16),
    /// The key-value part of a read has ended: versions are compared.
    ReadEnded(u16),
    /// A request has been served.
    Served(u16),
    /// A write has been added to a window.
    Joined(u16),
    /// The next reply of a closing window leaves.
    Replied(u16),
    /// A window's time may be up.
    Timer(u16),
    /// The balancer learns of a completion.
    Completed(u16, Request),
}

/// The parameters of a run besides its router and its streams.
#[derive(Clone, Copy, Debug)]
struct Setup {
    /// Cores.
    pub workers: usize,
    /// Mean time between arrivals.
    pub gap_mean_ns: f64,
    /// Number of arriving requests.
    pub requests: u64,
    /// The model.
    pub fidelity: Fidelity,
    /// The queue bound for which the artifact's balancer waits; `None`: it never waits.
    pub bound: Option<u32>,
    /// Dependent writes are compacted by these rules.
    pub rules: Option<WindowRules>,
    /// Whether readers compare versions, because another core may write.
    pub is_versioned: bool,
}

/// Runs a point whose options have been checked.
pub(super) fn run(options: &PointOptions) -> PointResult {
    match options.fidelity {
        Fidelity::Artifact => with_streams(options, ArtifactStreams::new(options)),
        Fidelity::Honest => with_streams(options, OwnStreams::new(options)),
    }
}

fn setup(options: &PointOptions) -> Setup {
    let rules = match options.fidelity {
        Fidelity::Artifact => WindowRules::artifact(),
        Fidelity::Honest => WindowRules::honest(SERVICE_MEAN_NS as u64, SLO_RATIO),
    };
    Setup {
        workers: options.workers,
        gap_mean_ns: SERVICE_MEAN_NS / options.workers as f64 / options.load,
        requests: options.requests,
        fidelity: options.fidelity,
        bound: match (options.balance, options.policy) {
            (_, Policy::Erew) | (Balance::Unbounded, _) => None,
            (Balance::Bounded(bound), _) => Some(bound),
        },
        rules: options.compaction.then_some(rules),
        is_versioned: matches!(options.policy, Policy::Crew | Policy::DCrew),
    }
}

fn with_streams(options: &PointOptions, streams: impl Streams) -> PointResult {
    let setup = setup(options);
    let bound = match options.balance {
        Balance::Bounded(bound) => bound,
        Balance::Unbounded => u32::MAX,
    };
    match (options.policy, options.balance) {
        (Policy::Erew, _) => simulate(setup, streams, Erew, |_| 0),
        (Policy::Crew, _) => simulate(setup, streams, Crew::<Jbsq>::new(bound), |_| 0),
        (Policy::Ideal, Balance::Unbounded) => simulate(setup, streams, ShortestQueue, |_| 0),
        (Policy::Ideal, Balance::Bounded(_)) => simulate(setup, streams, Jbsq::new(bound), |_| 0),
        (Policy::DCrew, _) => {
            let table = WriteTable::new(entry_count(options));
            simulate(setup, streams, DCrew::<Jbsq>::new(bound, table), held)
        }
    }
}

/// Number of partitions in a single dispatcher's table.
fn held<B: policy::routers::Balance>(router: &DCrew<B>) -> u64 {
    router.table().opened().max(0) as u64
}

/// C-4 §5.2 provides two entries a worker, in a table that is searched as a whole. Ours is
/// searched a set at a time: with sixteen a full set is one in a million (decision 0015). The
/// artifact's never overflows, so its model gets sets that never fill.
fn entry_count(options: &PointOptions) -> usize {
    let per_worker = match options.fidelity {
        Fidelity::Honest => 16,
        Fidelity::Artifact => 64,
    };
    options.workers * per_worker
}

/// Runs a setup to its end; `held` returns the fill of the router's write table.
fn simulate<S: Streams, R: Router>(
    setup: Setup,
    streams: S,
    router: R,
    held: fn(&R) -> u64,
) -> PointResult {
    Model::new(setup, streams, (router, held)).run()
}

struct Model<S, R> {
    setup: Setup,
    streams: S,
    router: R,
    held_now: fn(&R) -> u64,
    depths: Depths,
    engine: Engine<Event, LANES>,
    cores: Cores,
    balancer: Balancer,
    /// The next request, and the time it reaches the balancer.
    arrival: Option<(f64, Request)>,
    generated: u64,
    latencies: Latencies,
    /// Latencies beyond the end of the artifact's histogram.
    dropped: u64,
    last_completion_ns: f64,
    held: Held,
}

/// The requests that wait at the balancer.
#[derive(Default)]
struct Balancer {
    input: VecDeque<Request>,
    /// Completions that have arrived but the balancer has not read (artifact).
    inbox: VecDeque<(u16, Request)>,
    /// All queues are full.
    is_blocked: bool,
}

/// The fill of the write table.
#[derive(Default)]
struct Held {
    sum: u64,
    count: u64,
    max: u64,
}

impl<S: Streams, R: Router> Model<S, R> {
    fn new(setup: Setup, streams: S, (router, held_now): (R, fn(&R) -> u64)) -> Self {
        let mut model = Model {
            setup,
            cores: Cores::new(&setup),
            depths: Depths::new(setup.workers),
            engine: Engine::default(),
            balancer: Balancer::default(),
            arrival: None,
            generated: 0,
            latencies: Latencies::default(),
            dropped: 0,
            last_completion_ns: 0.0,
            held: Held::default(),
            streams,
            router,
            held_now,
        };
        model.generate(0.0);
        model
    }

    fn run(mut self) -> PointResult {
        let started = std::time::Instant::now();
        loop {
            let engine_at = self.engine.next_at();
            match self.arrival {
                Some((at, request)) if at <= engine_at => {
                    self.on_arrival(at, request);
                    self.generate_next(at);
                }
                _ => match self.engine.pop() {
                    Some((now, event)) => self.on_event(now, event),
                    None => break,
                },
            }
        }
        self.result(started.elapsed().as_secs_f64())
    }

    fn is_artifact(&self) -> bool {
        self.setup.fidelity == Fidelity::Artifact
    }

    fn generate(&mut self, generated_ns: f64) {
        let drawn = self.streams.request();
        let request = Request {
            generated_ns,
            rank: drawn.rank,
            partition: drawn.partition,
            access: drawn.access,
            is_end: false,
        };
        self.arrival = Some((generated_ns + TO_BALANCER_NS, request));
        self.generated += 1;
    }

    /// The request after the one that has just reached the balancer.
    fn generate_next(&mut self, arrived_ns: f64) {
        self.arrival = None;
        if self.generated == self.setup.requests && self.is_artifact() {
            self.generated += 1;
            let end = Request {
                generated_ns: arrived_ns,
                rank: u64::MAX,
                partition: PartitionId(0),
                access: Access::Read,
                is_end: true,
            };
            self.balancer.input.push_back(end);
            if !self.balancer.is_blocked {
                self.balance(arrived_ns);
            }
        }
        let goes_on = match self.setup.fidelity {
            Fidelity::Honest => self.generated < self.setup.requests,
            // The run goes on until core 0 has reached the end mark.
            Fidelity::Artifact => !self.cores.has_ended(),
        };
        if goes_on {
            let gap_ns = self.streams.gap() * self.setup.gap_mean_ns;
            self.generate(arrived_ns - TO_BALANCER_NS + gap_ns);
        }
    }

    fn on_event(&mut self, now: f64, event: Event) {
        match event {
            Event::Completed(core, request) => self.on_completion(now, core, request),
            Event::AtCore(core, request) => self.arrive_at_core(now, core, request),
            Event::SpinEnded(core) => self.begin(now, core),
            Event::ReadEnded(core) => self.end_read(now, core),
            Event::Served(core) => self.end_service(now, core),
            Event::Joined(core) => self.end_join(now, core),
            Event::Replied(core) => self.reply_next(now, core),
            Event::Timer(core) => self.look_at_windows(now, core),
        }
    }

    fn on_arrival(&mut self, now: f64, request: Request) {
        if self.is_artifact() {
            self.balancer.input.push_back(request);
            if !self.balancer.is_blocked {
                self.balance(now);
            }
        } else if self.dispatch(now, request).is_err() {
            self.balancer.input.push_back(request);
        }
    }

    /// Dispatches all waiting requests, as the artifact's balancer does.
    ///
    /// The artifact's balancer reads its completions only after a dispatch, so a decision may use a
    /// view that is one arrival old; and while all queues are full it waits, with all requests
    /// behind. The honest balancer sees each completion at once, and lets a request that need not
    /// wait pass those that must.
    fn balance(&mut self, now: f64) {
        while let Some(request) = self.balancer.input.pop_front() {
            // Some queue has room, and the artifact's write table is never full.
            let sent = self.dispatch(now, request);
            debug_assert_eq!(sent, Ok(()));
            while let Some((core, request)) = self.balancer.inbox.pop_front() {
                self.complete(core, &request);
            }
            if self.is_full() {
                self.balancer.is_blocked = true;
                return;
            }
        }
    }

    /// Sends the requests that now have room, in the order of arrival.
    fn balance_waiting(&mut self, now: f64) {
        let mut place = 0;
        while let Some(request) = self.balancer.input.get(place).copied() {
            match self.dispatch(now, request) {
                Ok(()) => {
                    self.balancer.input.remove(place);
                }
                // All waiting requests need a queue with room, or else an entry as well.
                Err(Busy::QueuesFull) => return,
                Err(_) if place < LOOK_AHEAD_MAX => place += 1,
                Err(_) => return,
            }
        }
    }

    /// Whether no request can be balanced (JBSQ).
    fn is_full(&self) -> bool {
        self.setup.bound.is_some_and(|bound| self.depths.all_at_least(bound))
    }

    /// Asks the router, and sends the request to its choice.
    fn dispatch(&mut self, now: f64, request: Request) -> Result<(), Busy> {
        let worker = if request.is_end {
            WorkerId(0)
        } else {
            let worker = match self.router.route(&routed(&request), &self.depths) {
                Route::To(worker) => worker,
                Route::Busy(why) => return Err(why),
            };
            self.depths.add(worker);
            let held = (self.held_now)(&self.router);
            self.held.sum += held;
            self.held.count += 1;
            self.held.max = self.held.max.max(held);
            worker
        };
        self.engine.push_lane(AT_CORE, now + TO_CORE_NS, Event::AtCore(worker.0, request));
        Ok(())
    }

    fn on_completion(&mut self, now: f64, core: u16, request: Request) {
        if !self.is_artifact() {
            self.complete(core, &request);
            if !self.balancer.input.is_empty() {
                self.balance_waiting(now);
            }
            return;
        }
        if !self.balancer.is_blocked {
            self.balancer.inbox.push_back((core, request));
            return;
        }
        self.complete(core, &request);
        if !self.is_full() {
            self.balancer.is_blocked = false;
            self.balance(now);
        }
    }

    fn complete(&mut self, core: u16, request: &Request) {
        let worker = WorkerId(core);
        self.depths.remove(worker);
        self.router.finish(&routed(request), worker);
    }

    /// Ends a request's service: records its latency, and informs the balancer.
    fn answer(&mut self, now: f64, core: u16, request: Request) {
        let latency_ns = now - request.generated_ns;
        self.last_completion_ns = now;
        if self.is_artifact() {
            self.cores.watch_overload(core, latency_ns);
            // The artifact's histogram ends here.
            if latency_ns < 131_072.0 {
                self.latencies.record(latency_ns as u64);
            } else {
                self.dropped += 1;
            }
        } else {
            self.latencies.record(latency_ns as u64);
        }
        self.engine.push_lane(COMPLETED, now + TO_CORE_NS, Event::Completed(core, request));
    }

    fn result(self, real_seconds: f64) -> PointResult {
        let requests = self.latencies.count();
        PointResult {
            p50_ns: self.latencies.quantile(0.5),
            p90_ns: self.latencies.quantile(0.9),
            p99_ns: self.latencies.quantile(0.99),
            p999_ns: self.latencies.quantile(0.999),
            throughput_rps: requests as f64 / (self.last_completion_ns * 1e-9),
            ewt_avg: self.held.sum as f64 / self.held.count.max(1) as f64,
            ewt_max: self.held.max,
            windows: self.cores.window_count,
            writes_compacted: self.cores.compacted_count,
            requests,
            simulated_requests_per_second: requests as f64 / real_seconds,
            dropped: self.dropped,
            latencies: self.latencies,
        }
    }
}

/// The state that the router may read.
fn routed(request: &Request) -> RouteRequest {
    RouteRequest {
        partition: request.partition,
        access: request.access,
        size_bytes: None,
        received_by: WorkerId(0),
    }
}
