//! A server with the paper's platform, workload and four systems (Minos §5).
//!
//! ```text
//!  Poisson ─▶ receive queue of a core ─▶ core: request + packets ─▶ its send queue ─▶ 40 Gb/s
//!             GET: at random               HKH     its own queue
//!             PUT: by the key's hash       HKH+WS  its own, then another's
//!                                          SHO     what hand-off cores pass on, one at a time
//!                                          Minos   by `policy::size_class`
//! ```
//!
//! # Calibration
//! The paper states no costs. [`Costs`] is derived from its peaks: 7.0 Mops of HKH and 6.3 Mops of
//! Minos where cores are the limit (§6.2), 6.2 Mops at 93 % of the wire (§6.1, §6.4), 5.6 Mops of
//! SHO, a mean of 5 µs end to end without load (§5.4). Latencies under load are not fitted.
//!
//! # Trade-offs
//! Left out: the share of the wire that PUTs take towards the server, finite rings (no packet is
//! lost), cache misses of stolen and handed-over requests beyond a constant, the spinlocks of §4.2.

mod cores;
mod link;

use policy::size_class::{PACKET_PAYLOAD_MAX_BYTES, SizeController, SizeOptions, WorkerSizes};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::Operation;
use workload::profile::{MINOS_KEYS, Minos};
use workload::request::Requests;

use cores::Cores;
pub use link::PACKET_HEADER_BYTES;
use sim::latency::Latencies;

/// The number of cores of the paper's server.
pub const CORES: usize = 8;
/// 40 Gb/s.
pub const LINK_BYTES_PER_NS: f64 = 5.0;
/// Requests that a core reads from a queue at once (Minos §5.2).
pub const BATCH_MAX: usize = 32;

/// A design of §5.2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    /// Hardware sharding by key hash.
    Hkh,
    /// Software hand-off by this many cores.
    Sho(usize),
    /// Hardware sharding, and idle cores steal.
    HkhStealing,
    /// Size-aware sharding.
    Minos(MinosVariant),
}

/// The variant of Minos.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinosVariant {
    /// As evaluated in the paper.
    Paper,
    /// One size in this many is counted (§6.2).
    Sampling(u32),
    /// One core more for large requests, which takes single small ones when it has none (§6.1).
    LargeSteal,
}

/// The costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A request: receiving, hashing, looking up.
    pub request_ns: f64,
    /// A packet of its item.
    pub packet_ns: f64,
    /// Counting a size, and core 0's later work on it.
    pub profile_ns: f64,
    /// Passing a request to another core.
    pub hand_off_ns: f64,
    /// Taking one from another core.
    pub steal_ns: f64,
    /// Client, wires and switch, both ways.
    pub network_ns: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            request_ns: 750.0,
            packet_ns: 200.0,
            profile_ns: 90.0,
            hand_off_ns: 178.0,
            steal_ns: 200.0,
            network_ns: 4000.0,
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The design.
    pub system: System,
    /// One workload after the other, `epochs` each; usually one.
    pub phases: Vec<Minos>,
    /// Epochs of each phase.
    pub epochs: usize,
    /// Arrivals in millions a second.
    pub offered_mops: f64,
    /// The number of requests over all phases.
    pub requests: u64,
    /// The seed of requests, keys and arrivals.
    pub seed: u64,
    /// The costs of the platform.
    pub costs: Costs,
}

impl Setup {
    /// One workload, for four epochs: fewer requests would leave each with too few large ones to
    /// tell their share of the cost.
    pub fn steady(system: System, workload: Minos, offered_mops: f64, requests: u64) -> Setup {
        let costs = Costs::default();
        Setup { system, phases: vec![workload], epochs: 4, offered_mops, requests, seed: 1, costs }
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    at: f64,
    size_bytes: u64,
    /// Stands for the key's hash.
    key: u32,
    is_get: bool,
}

impl Request {
    /// Of its item: of the reply to a GET, of the request of a PUT.
    fn packets(&self) -> u64 {
        self.size_bytes.div_ceil(PACKET_PAYLOAD_MAX_BYTES).max(1)
    }
}

/// Items from here on are large to the workload, whatever the threshold is (§5.3).
const LARGE_MIN_BYTES: u64 = 1500;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Latencies of all requests after the warm-up, end to end, in ns.
    pub all: Latencies,
    /// Latencies of the large ones among them.
    pub large: Latencies,
    /// Answers in millions a second, over the whole run and the draining after it.
    pub answered_mops: f64,
    /// The used share of the wire's capacity while requests arrived.
    pub link_share: f64,
    /// From the last arrival to the last answer.
    pub drain_ns: f64,
    /// From the first arrival to the last.
    pub span_ns: f64,
    /// Requests answered by each core.
    pub core_requests: Vec<u64>,
    /// Item packets handled by each core.
    pub core_packets: Vec<u64>,
    /// The results of each epoch.
    pub windows: Vec<Window>,
}

/// One epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Latencies of all answers in it, in ns.
    pub p99_ns: u64,
    /// Cores for large requests only.
    pub large_cores: usize,
}

impl Outcome {
    /// Whether the server kept up: the backlog at the end was no more than 3 % of the run. The
    /// paper reports only loads without packet loss.
    pub fn is_sustained(&self) -> bool {
        self.drain_ns <= 0.03 * self.span_ns + 300_000.0
    }
}

/// The share of requests at the start that is not recorded.
const WARM_UP: f64 = 0.1;

/// Simulates `setup`.
pub fn run(setup: &Setup) -> Outcome {
    let mut source = Source::new(setup);
    let mut cores = Cores::new(setup);
    cores.train(&mut source.requests[0].clone());
    let span_ns = setup.requests as f64 * 1000.0 / setup.offered_mops;
    let epoch_ns = span_ns / (setup.epochs * setup.phases.len()) as f64;
    let mut outcome = Outcome::default();
    let record_from = WARM_UP * span_ns * if setup.phases.len() > 1 { 0.0 } else { 1.0 };
    let mut recorder =
        Recorder { window: Latencies::default(), record_from, network_ns: setup.costs.network_ns };
    let mut epoch_at = epoch_ns;
    let mut arrival = source.next();
    let mut last_answer_at = 0.0;
    loop {
        let arrival_at = arrival.map_or(f64::INFINITY, |request| request.at);
        let (core, core_at) = cores.next_finish();
        let now = arrival_at.min(core_at).min(cores.link.free_at);
        if epoch_at < now && arrival.is_some() {
            outcome.windows.push(recorder.end_window(cores.large_cores()));
            cores.end_epoch(epoch_at);
            epoch_at += epoch_ns;
        } else if now == f64::INFINITY {
            break;
        } else if now == cores.link.free_at {
            if let Some(request) = cores.finish_packet(now) {
                recorder.answer(now, &request, &mut outcome);
                last_answer_at = now;
            }
        } else if now == core_at {
            cores.finish(core, now);
        } else if let Some(request) = arrival {
            cores.arrive(request);
            arrival = source.next();
            if arrival.is_none() {
                outcome.span_ns = now;
                outcome.link_share = cores.link.sent_bytes / LINK_BYTES_PER_NS / now;
            }
        }
    }
    outcome.drain_ns = last_answer_at - outcome.span_ns;
    outcome.answered_mops = setup.requests as f64 / last_answer_at * 1000.0;
    (outcome.core_requests, outcome.core_packets) = (cores.requests, cores.packets);
    outcome
}

struct Recorder {
    window: Latencies,
    record_from: f64,
    network_ns: f64,
}

impl Recorder {
    fn answer(&mut self, now: f64, request: &Request, outcome: &mut Outcome) {
        let latency_ns = (now - request.at + self.network_ns) as u64;
        self.window.record(latency_ns);
        if request.at >= self.record_from {
            outcome.all.record(latency_ns);
            if request.size_bytes >= LARGE_MIN_BYTES {
                outcome.large.record(latency_ns);
            }
        }
    }

    fn end_window(&mut self, large_cores: usize) -> Window {
        let window = std::mem::take(&mut self.window);
        Window { p99_ns: window.quantile(0.99), large_cores }
    }
}

/// Poisson arrivals of the workload's requests.
struct Source {
    random: SmallRng,
    /// One per phase, over the same keys.
    requests: Vec<Requests>,
    now: f64,
    gap_mean_ns: f64,
    drawn: u64,
    count: u64,
}

impl Source {
    fn new(setup: &Setup) -> Source {
        let draw = |workload: &Minos| workload.profile("minos").requests(MINOS_KEYS, setup.seed);
        Source {
            random: SmallRng::seed_from_u64(setup.seed ^ ARRIVALS),
            requests: setup.phases.iter().map(draw).collect(),
            now: 0.0,
            gap_mean_ns: 1000.0 / setup.offered_mops,
            drawn: 0,
            count: setup.requests,
        }
    }

    fn next(&mut self) -> Option<Request> {
        if self.drawn == self.count {
            return None;
        }
        let phase = (self.drawn * self.requests.len() as u64 / self.count) as usize;
        self.drawn += 1;
        // 1 - [0, 1) is never 0, so the logarithm is finite.
        self.now += -(1.0 - self.random.random::<f64>()).ln() * self.gap_mean_ns;
        Some(request_of(self.now, &mut self.requests[phase]))
    }
}

/// Keeps the arrivals' stream apart from the requests'.
const ARRIVALS: u64 = 0x4d69_6e6f_7341_7272;

fn request_of(at: f64, requests: &mut Requests) -> Request {
    let drawn = requests.draw();
    Request {
        at,
        size_bytes: drawn.value_len_bytes as u64,
        key: (drawn.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
        is_get: matches!(drawn.operation, Operation::Read(_)),
    }
}

/// The controller of this server; unused by the other designs.
fn controller(system: System) -> (SizeController, Vec<WorkerSizes>) {
    let (extra_large_workers, every) = match system {
        System::Minos(MinosVariant::LargeSteal) => (1, 1),
        System::Minos(MinosVariant::Sampling(every)) => (0, every),
        _ => (0, 1),
    };
    let options = SizeOptions { extra_large_workers, ..SizeOptions::paper(CORES) };
    let sizes = (0..CORES).map(|_| WorkerSizes::new(every)).collect();
    (SizeController::new(options), sizes)
}
