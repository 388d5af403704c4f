//! One MICA server under load (open-loop clients, ports, receive queues, cores), and the search for
//! the highest load that it carries.
//!
//! ```text
//!  Poisson requests ─▶ partition, GET or PUT ─▶ policy::Router ─▶ core's port ─▶ queue ─▶ core
//! ```
//!
//! A core depends only on its own queue, so it is advanced only when a request reaches it. No event
//! queue is needed, and a probe of a million requests takes a tenth of a second.
//!
//! A load is carried when no core drops more than 1 % of its requests or ends with a growing queue,
//! and the 95th percentile of latency is within 100 µs (§5.4: "all the results shown so far are
//! guaranteed with the 95th percentile of latency being less than 100 µs"). The paper states no
//! share of losses. Its clients slow down before packets are lost, so one overloaded core limits
//! the server, and the cold cores starve.

use std::collections::VecDeque;

use base::{PartitionId, WorkerId};
use policy::routers::{AnyWorker, Crew, Erew};
use policy::{Access, Depths, Route, RouteRequest, Router};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::loads::{Loads, PartitionLoad};
use super::platform::{BATCH_MAX, CREW_READ_FACTOR, Costs, Platform};
use sim::latency::Latencies;

/// Descriptors of a receive queue.
const QUEUE_MAX: usize = 512;
/// Packets that wait for a port; beyond, they are lost.
const PORT_QUEUE_MAX: f64 = 1024.0;
/// §5.4.
const LATENCY_P95_MAX_NS: u64 = 100_000;
/// The allowed share of lost requests of a core.
const DROPPED_SHARE_MAX: f64 = 0.01;
/// A queue may end this long before it counts as growing.
const BACKLOG_FREE: f64 = 2.0 * BATCH_MAX as f64;
/// The share of a probe's requests that is served before counting begins.
const WARM_UP_SHARE: f64 = 0.2;

/// The cores that may read a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its owner alone.
    Erew,
    /// Every core.
    Crew,
}

/// A server, its load but for the rate, and the clock of every core.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server.
    pub platform: Platform,
    /// The policy of reads.
    pub mode: Mode,
    /// The share of GETs in all requests.
    pub get_share: f64,
    /// The load of each partition.
    pub loads: Loads,
    /// The clock of each core.
    pub clocks_ghz: Vec<f64>,
}

/// The result of a probe, or of the highest carried load.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests served a second, in millions.
    pub mrps: f64,
    /// Served on each core, in millions a second.
    pub core_mrps: Vec<f64>,
    /// Packets taken at a time, by core.
    pub core_batch: Vec<f64>,
    /// The 95th percentile.
    pub latency_p95_ns: u64,
    /// Whether the load was carried.
    pub is_carried: bool,
}

impl Setup {
    /// The highest load that the server carries, to half a per cent.
    pub fn saturate(&self, requests: u64, seed: u64) -> Outcome {
        let costs = self.core_costs();
        let estimate = self.estimate_mrps(&costs);
        let probe = |mrps: f64| self.probe(&costs, mrps, requests, seed);
        let (mut low, mut high) = (0.85 * estimate, 1.05 * estimate);
        let mut best = probe(low);
        while !best.is_carried {
            (low, high) = (0.8 * low, low);
            best = probe(low);
        }
        while high / low > 1.005 {
            let middle = f64::midpoint(low, high);
            let outcome = probe(middle);
            if outcome.is_carried {
                (low, best) = (middle, outcome);
            } else {
                high = middle;
            }
        }
        best
    }

    /// One run at an offered load.
    pub fn offer(&self, mrps: f64, requests: u64, seed: u64) -> Outcome {
        self.probe(&self.core_costs(), mrps, requests, seed)
    }

    /// The load at which the first core or port is busy all the time, by arithmetic: the start of
    /// the search.
    pub fn estimate_saturation_mrps(&self) -> f64 {
        self.estimate_mrps(&self.core_costs())
    }

    fn core_costs(&self) -> Vec<CoreCosts> {
        let cost = |(load, clock_ghz): (&PartitionLoad, &f64)| {
            let costs = Costs::at_clock(*clock_ghz);
            let own_ns = costs.request_ns(load.cached_share);
            let read_ns = match self.mode {
                Mode::Erew => own_ns,
                Mode::Crew => CREW_READ_FACTOR * costs.request_ns(self.loads.shared_cached_share),
            };
            CoreCosts { poll_ns: costs.poll_ns, read_ns, write_ns: own_ns }
        };
        self.loads.partitions.iter().zip(&self.clocks_ghz).map(cost).collect()
    }

    /// The shares of all requests, GETs and PUTs, that reach a core.
    fn core_shares(&self, core: usize) -> (f64, f64) {
        let owned = self.loads.partitions[core].share;
        let read = match self.mode {
            Mode::Erew => owned,
            Mode::Crew => 1.0 / self.platform.cores as f64,
        };
        (self.get_share * read, (1.0 - self.get_share) * owned)
    }

    fn estimate_mrps(&self, costs: &[CoreCosts]) -> f64 {
        let mut port_shares = vec![0.0; self.platform.ports()];
        let mut busiest_ns = 0.0_f64;
        for (core, costs) in costs.iter().enumerate() {
            let (read, write) = self.core_shares(core);
            let polls_ns = (read + write) * costs.poll_ns / BATCH_MAX as f64;
            busiest_ns = busiest_ns.max(read * costs.read_ns + write * costs.write_ns + polls_ns);
            port_shares[core / self.platform.cores_per_port] += read + write;
        }
        let port_share = port_shares.into_iter().fold(0.0, f64::max);
        1e3 / busiest_ns.max(port_share * self.platform.port_packet_ns())
    }

    fn probe(&self, costs: &[CoreCosts], mrps: f64, requests: u64, seed: u64) -> Outcome {
        match self.mode {
            Mode::Erew => Probe::new(self, costs, mrps, seed, Erew).run(requests),
            // Clients choose any core for a GET.
            Mode::Crew => Probe::new(self, costs, mrps, seed, Crew::over(AnyWorker)).run(requests),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct CoreCosts {
    poll_ns: f64,
    read_ns: f64,
    write_ns: f64,
}

/// A request in a receive queue.
#[derive(Clone, Copy, Debug)]
struct Packet {
    sent_ns: f64,
    /// The time when it passed the port.
    received_ns: f64,
    cost_ns: f64,
}

/// One core and its receive queue.
#[derive(Clone, Debug)]
struct Core {
    costs: CoreCosts,
    queue: VecDeque<Packet>,
    free_at_ns: f64,
    arrived: u64,
    dropped: u64,
    served: u64,
    polls: u64,
}

impl Core {
    fn new(costs: CoreCosts) -> Core {
        let queue = VecDeque::with_capacity(QUEUE_MAX);
        Core { costs, queue, free_at_ns: 0.0, arrived: 0, dropped: 0, served: 0, polls: 0 }
    }

    /// Serves every batch that starts by `now_ns`; replies leave when the batch is done.
    fn advance(&mut self, now_ns: f64, latencies: &mut Latencies) {
        while let Some(first) = self.queue.front() {
            let start_ns = first.received_ns.max(self.free_at_ns);
            if start_ns > now_ns {
                return;
            }
            let is_here = |packet: &&Packet| packet.received_ns <= start_ns;
            let count = self.queue.iter().take(BATCH_MAX).take_while(is_here).count();
            let work_ns: f64 = self.queue.iter().take(count).map(|packet| packet.cost_ns).sum();
            self.free_at_ns = start_ns + self.costs.poll_ns + work_ns;
            for packet in self.queue.drain(..count) {
                latencies.record((self.free_at_ns - packet.sent_ns) as u64);
            }
            self.served += count as u64;
            self.polls += 1;
        }
    }

    fn push(&mut self, sent_ns: f64, received_ns: f64, access: Access) {
        self.arrived += 1;
        if self.queue.len() >= QUEUE_MAX {
            self.dropped += 1;
            return;
        }
        let cost_ns = match access {
            Access::Read => self.costs.read_ns,
            Access::Write => self.costs.write_ns,
        };
        self.queue.push_back(Packet { sent_ns, received_ns, cost_ns });
    }

    fn clear_counts(&mut self) {
        (self.arrived, self.dropped, self.served, self.polls) = (0, 0, 0, 0);
    }

    fn keeps_up(&self) -> bool {
        let arrived = self.arrived as f64;
        let lost = self.dropped as f64 <= DROPPED_SHARE_MAX * arrived;
        lost && self.queue.len() as f64 <= BACKLOG_FREE + DROPPED_SHARE_MAX * arrived
    }
}

struct Probe<'a, R> {
    setup: &'a Setup,
    router: R,
    depths: Depths,
    random: SmallRng,
    /// The cumulative share of requests for this partition and those before it.
    shares_until: Vec<f64>,
    gap_mean_ns: f64,
    cores: Vec<Core>,
    port_free_at_ns: Vec<f64>,
    latencies: Latencies,
}

impl<'a, R: Router> Probe<'a, R> {
    fn new(setup: &'a Setup, costs: &[CoreCosts], mrps: f64, seed: u64, router: R) -> Probe<'a, R> {
        let mut until = 0.0;
        let shares = setup.loads.partitions.iter().map(|load| {
            until += load.share;
            until
        });
        Probe {
            setup,
            router,
            depths: Depths::new(setup.platform.cores),
            random: SmallRng::seed_from_u64(seed),
            shares_until: shares.collect(),
            gap_mean_ns: 1e3 / mrps,
            cores: costs.iter().map(|costs| Core::new(*costs)).collect(),
            port_free_at_ns: vec![0.0; setup.platform.ports()],
            latencies: Latencies::default(),
        }
    }

    fn run(mut self, requests: u64) -> Outcome {
        let warm_up = (requests as f64 * WARM_UP_SHARE) as u64;
        let mut now_ns = 0.0;
        for _ in 0..warm_up {
            now_ns += self.gap_ns();
            self.arrive(now_ns);
        }
        self.settle(now_ns);
        self.latencies = Latencies::default();
        self.cores.iter_mut().for_each(Core::clear_counts);
        let from_ns = now_ns;
        for _ in warm_up..requests {
            now_ns += self.gap_ns();
            self.arrive(now_ns);
        }
        self.settle(now_ns);
        self.outcome(now_ns - from_ns)
    }

    fn gap_ns(&mut self) -> f64 {
        let unit: f64 = self.random.random();
        -(1.0 - unit).ln() * self.gap_mean_ns
    }

    fn settle(&mut self, now_ns: f64) {
        self.cores.iter_mut().for_each(|core| core.advance(now_ns, &mut self.latencies));
    }

    fn arrive(&mut self, now_ns: f64) {
        let unit: f64 = self.random.random();
        let last = self.cores.len() - 1;
        let partition = self.shares_until.partition_point(|until| *until <= unit).min(last);
        let is_get = self.random.random::<f64>() < self.setup.get_share;
        let request = RouteRequest {
            partition: PartitionId(partition as u32),
            access: if is_get { Access::Read } else { Access::Write },
            size_bytes: None,
            // The client knows no queue lengths: it chooses any core.
            received_by: WorkerId(self.random.random_range(0..=last) as u16),
        };
        let Route::To(worker) = self.router.route(&request, &self.depths) else {
            unreachable!("owners take what comes, and readers what they receive")
        };
        let port = &mut self.port_free_at_ns[worker.index() / self.setup.platform.cores_per_port];
        let packet_ns = self.setup.platform.port_packet_ns();
        let core = &mut self.cores[worker.index()];
        let start_ns = port.max(now_ns);
        if start_ns - now_ns > PORT_QUEUE_MAX * packet_ns {
            core.arrived += 1;
            core.dropped += 1;
            return;
        }
        *port = start_ns + packet_ns;
        core.advance(start_ns, &mut self.latencies);
        core.push(now_ns, start_ns, request.access);
    }

    fn outcome(self, span_ns: f64) -> Outcome {
        let mrps = |core: &Core| core.served as f64 / span_ns * 1e3;
        let core_mrps: Vec<f64> = self.cores.iter().map(mrps).collect();
        let latency_p95_ns = self.latencies.quantile(0.95);
        let keeps_up = self.cores.iter().all(Core::keeps_up);
        Outcome {
            mrps: core_mrps.iter().sum(),
            core_mrps,
            core_batch: self
                .cores
                .iter()
                .map(|core| core.served as f64 / core.polls.max(1) as f64)
                .collect(),
            latency_p95_ns,
            is_carried: keeps_up && latency_p95_ns <= LATENCY_P95_MAX_NS,
        }
    }
}
