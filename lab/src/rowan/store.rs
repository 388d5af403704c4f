//! A cluster of stores: servers with workers, a control thread and persistent memory each.
//!
//! ```text
//!  clients ─▶ a worker of the primary: CPU, own log ══▶ each backup, by scheme
//!     ▲             ▲                                   rowan, write, batch, share: NIC ─▶ memory
//!     │             └───────── acknowledgements ◀────── rpc: a worker there: CPU, log of its own
//!     └── answer ── the same worker: CPU
//! ```
//!
//! Clients are a closed loop: each waits for its answer and then asks again at once. Keys are
//! spread by hash, so requests are even over the servers (§6.3 saw no imbalance either).
//!
//! # What is known and what is fitted
//! Known: §6.1's servers, the memory of [`super::dimm`], a round trip of 2 us, 18 ns a message. CPU
//! costs: see [`super::costs`]. Fitted: the time until a remote write is persisted, beside the
//! round trip (Fig. 11: 6.6 us), and the cost of amplification: memory that reads and writes lines
//! needlessly answers later than the buffer's model says, and the paper gives the effect in two
//! places (Fig. 11: 11.5 us; 1.61 times fewer PUTs).
//!
//! # Trade-offs
//! Left out: digest and clean threads, which have cores of their own; caches, so skewed and
//! uniform keys are alike; the clients' own limits.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::scramble::mix;

use super::costs::{Costs, Scheme};
use super::dimm::LINE_BYTES;
use super::streams::{LOG_BYTES, MESSAGE_NS, Memory, exponential, jitter, take};
use super::sweep::ROUND_TRIP_NS;
use sim::engine::EventQueue;
use sim::latency::Latencies;

/// §6.1.
pub(super) const SERVERS: usize = 6;
pub(super) const WORKERS: usize = 24;
pub(super) const COPIES: usize = 3;
/// The part of a worker's time for a PUT before it sends to its backups.
const BEFORE_SHARE: f64 = 0.7;
/// The constant part of its CPU time.
const FIXED_SHARE: f64 = 0.8;
/// Batches are sent when they are as long, or as old (§6.1).
const BATCH_BYTES: u64 = 256;
const BATCH_WAIT_NS: f64 = 5_000.0;
/// The time from arrival in memory to its acknowledgement: the read that flushes.
const PERSIST_NS: f64 = 1_000.0;
/// For DMA without DDIO, in the mean, for each message that comes within a nanosecond. Fitted to
/// Fig. 11's 6.6 us.
const DMA_WAIT_NS: f64 = 260_000.0;
/// The number of messages whose gaps give the message rate.
const RATE_MESSAGES: f64 = 256.0;
/// The extra mean wait of remote writes for each line's worth of amplification above 1. Fitted to
/// Fig. 11's 11.5 us.
const REMOTE_WAIT_NS: f64 = 16_000.0;
/// The extra wait of a worker for its own log, likewise. Fitted to 1.61 times fewer PUTs.
const LOCAL_WAIT_NS: f64 = 3_400.0;
/// Share-KV's amplification is the paper's (1.28 to 1.39) for entries that are no whole lines: our
/// network does not reorder so far as to break up its lines.
const SHARE_EXCESS: f64 = 0.335;
/// Amplification is that of about this many of the last bytes.
const WINDOW_BYTES: f64 = 1e6;

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub scheme: Scheme,
    pub costs: Costs,
    pub workers: usize,
    pub copies: usize,
    pub dimms: usize,
    /// Entries' lengths in a log are drawn evenly from these.
    pub sizes: Vec<u64>,
    pub put_share: f64,
    /// Clients for each worker.
    pub clients: usize,
    pub requests: u64,
    pub seed: u64,
}

/// The result of a run, without its first third.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub mops: f64,
    pub put: Latencies,
    pub get: Latencies,
    /// The time from the primary's sending to the acknowledgement.
    pub persistence: Latencies,
    pub amplification: f64,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    asked_ns: f64,
    is_put: bool,
    server: usize,
    worker: usize,
    len_bytes: u64,
    missing: usize,
}

/// The tasks of a worker or control thread.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Executes a GET, or a PUT up to the own log.
    Begin(usize),
    /// A backup's part, for the request of another server.
    Replicate {
        request: usize,
        sent_ns: f64,
    },
    /// Answers.
    End(usize),
    /// The control thread's first part of a PUT, and its last.
    Land(usize),
    Complete(usize),
}

#[derive(Debug)]
enum Event {
    /// A client's request arrives at its worker.
    Arrive(usize),
    /// The task's CPU time is over.
    Ran { server: usize, thread: usize, task: Task },
    /// The worker's own log contains its write.
    Logged { server: usize, thread: usize, task: Task },
    /// Entries arrive at a backup's NIC.
    Landed { at: usize, log: usize, address: u64, batch: Batch },
    /// A backup has a request's entry.
    Acked { request: usize },
    /// A batch has waited for long enough.
    Flush { slot: usize, stamp: u64 },
    /// An RPC arrives at a worker.
    Called { at: usize, request: usize, sent_ns: f64 },
}

/// Entries that go to one backup together.
#[derive(Clone, Debug, Default)]
struct Batch {
    requests: Vec<usize>,
    len_bytes: u64,
    sent_ns: f64,
}

#[derive(Debug, Default)]
struct Thread {
    tasks: VecDeque<Task>,
    is_busy: bool,
}

struct Server {
    /// Workers, and the control thread behind them.
    threads: Vec<Thread>,
    memory: Memory,
    /// Logs: own ones, then those of others.
    ends: Vec<u64>,
    nic_free_ns: f64,
    /// The recent mean time between two writes of other servers.
    gap_ns: f64,
    heard_ns: f64,
    /// Of the recent past: bytes asked for, bytes of the media.
    recent: (f64, f64),
    seen: (u64, u64),
}

struct Cluster<'a> {
    setup: &'a Setup,
    random: SmallRng,
    now_ns: f64,
    events: EventQueue<Event>,
    servers: Vec<Server>,
    requests: Vec<Request>,
    /// By source thread and backup.
    batches: Vec<(Batch, u64)>,
    done: u64,
    since_ns: f64,
    bytes_before: (u64, u64),
    least_excess: f64,
    found: Outcome,
}

/// Runs it.
pub(super) fn run(setup: &Setup) -> Outcome {
    let mut cluster = Cluster::new(setup);
    while cluster.done < setup.requests {
        let Some((now_ns, event)) = cluster.events.pop() else { break };
        cluster.now_ns = now_ns;
        cluster.happen(event);
    }
    cluster.outcome()
}

impl<'a> Cluster<'a> {
    fn new(setup: &'a Setup) -> Cluster<'a> {
        let mut random = SmallRng::seed_from_u64(mix(setup.seed));
        // Own logs; those of others, at the most one for each of their workers.
        let log_count = setup.workers * (SERVERS + 1) + SERVERS;
        let servers = (0..SERVERS).map(|_| Server {
            threads: (0..=setup.workers).map(|_| Thread::default()).collect(),
            memory: Memory::new(setup.dimms),
            ends: (0..log_count as u64)
                .map(|log| {
                    let line = random.random_range(0..LOG_BYTES / 2 / LINE_BYTES);
                    log * LOG_BYTES + line * LINE_BYTES
                })
                .collect(),
            nic_free_ns: 0.0,
            gap_ns: 1_000.0,
            heard_ns: 0.0,
            recent: (1.0, 1.0),
            seen: (0, 0),
        });
        let servers: Vec<Server> = servers.collect();
        let client_count = setup.clients * setup.workers * SERVERS;
        let found = Outcome {
            mops: 0.0,
            put: Latencies::default(),
            get: Latencies::default(),
            persistence: Latencies::default(),
            amplification: 0.0,
        };
        let mut cluster = Cluster {
            setup,
            random,
            now_ns: 0.0,
            events: EventQueue::default(),
            servers,
            requests: vec![Request::default(); client_count],
            batches: vec![Default::default(); SERVERS * SERVERS * setup.workers],
            done: 0,
            since_ns: 0.0,
            bytes_before: (0, 0),
            least_excess: least_excess(setup),
            found,
        };
        for client in 0..client_count {
            cluster.now_ns = client as f64; // Not all at once.
            cluster.ask(client);
        }
        cluster.now_ns = 0.0;
        cluster
    }

    fn way_ns(&mut self) -> f64 {
        ROUND_TRIP_NS / 2.0 * jitter(&mut self.random)
    }

    /// A client sends its next request.
    fn ask(&mut self, client: usize) {
        let setup = self.setup;
        self.requests[client] = Request {
            asked_ns: self.now_ns,
            is_put: self.random.random::<f64>() < setup.put_share,
            server: self.random.random_range(0..SERVERS),
            worker: client % setup.workers,
            len_bytes: setup.sizes[self.random.random_range(0..setup.sizes.len())],
            missing: setup.copies - 1,
        };
        let at_ns = self.now_ns + self.way_ns();
        self.events.push(at_ns, Event::Arrive(client));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(request) => {
                let Request { server, worker, .. } = self.requests[request];
                self.queue(server, worker, Task::Begin(request));
            }
            Event::Ran { server, thread, task } => self.ran(server, thread, task),
            Event::Logged { server, thread, task } => {
                self.logged(server, task);
                self.next(server, thread);
            }
            Event::Landed { at, log, address, batch } => self.landed(at, log, address, batch),
            Event::Acked { request } => self.acked(request),
            Event::Flush { slot, stamp } if self.batches[slot].1 == stamp => self.flush(slot),
            Event::Flush { .. } => {}
            Event::Called { at, request, sent_ns } => {
                let worker = self.requests[request].worker;
                self.queue(at, worker, Task::Replicate { request, sent_ns });
            }
        }
    }

    fn queue(&mut self, server: usize, thread: usize, task: Task) {
        let found = &mut self.servers[server].threads[thread];
        found.tasks.push_back(task);
        if !found.is_busy {
            self.next(server, thread);
        }
    }

    /// The thread continues with its next task.
    fn next(&mut self, server: usize, thread: usize) {
        let found = &mut self.servers[server].threads[thread];
        let task = found.tasks.pop_front();
        found.is_busy = task.is_some();
        let Some(task) = task else { return };
        let costs = &self.setup.costs;
        let control_us = costs.primary_control_us / 2.0;
        let us = match task {
            Task::Begin(request) if !self.requests[request].is_put => costs.get_worker_us,
            Task::Begin(_) => costs.primary_worker_us * BEFORE_SHARE,
            Task::End(_) => costs.primary_worker_us * (1.0 - BEFORE_SHARE),
            Task::Replicate { .. } if thread == self.setup.workers => costs.backup_control_us,
            Task::Replicate { .. } => costs.backup_worker_us,
            Task::Land(_) | Task::Complete(_) => control_us,
        };
        let cpu_ns =
            us * 1_000.0 * (FIXED_SHARE + (1.0 - FIXED_SHARE) * exponential(&mut self.random));
        self.events.push(self.now_ns + cpu_ns, Event::Ran { server, thread, task });
    }

    fn ran(&mut self, server: usize, thread: usize, task: Task) {
        match task {
            Task::Begin(request) if self.requests[request].is_put => {
                self.log(server, thread, thread, self.requests[request].len_bytes, task);
            }
            Task::Replicate { request, .. } if thread < self.setup.workers => {
                let log = self.setup.workers + thread;
                self.log(server, thread, log, self.requests[request].len_bytes, task);
            }
            Task::Replicate { request, sent_ns } => {
                self.persisted(request, sent_ns, self.now_ns);
                self.next(server, thread);
            }
            Task::Begin(request) | Task::End(request) => {
                self.answer(request);
                self.next(server, thread);
            }
            Task::Land(request) => {
                self.replicate(request);
                self.next(server, thread);
            }
            Task::Complete(request) => {
                let Request { server: home, worker, .. } = self.requests[request];
                self.queue(home, worker, Task::End(request));
                self.next(server, thread);
            }
        }
    }

    /// A worker appends to a log of its own machine, and waits for it.
    fn log(&mut self, server: usize, thread: usize, log: usize, len_bytes: u64, task: Task) {
        let address = take(&mut self.servers[server].ends[log], len_bytes);
        let done_ns = self.servers[server].memory.write(address, len_bytes, self.now_ns, false);
        let at_ns = done_ns + LOCAL_WAIT_NS * self.excess(server);
        self.events.push(at_ns, Event::Logged { server, thread, task });
    }

    /// The recent amplification: media bytes over requested bytes.
    fn excess(&mut self, server: usize) -> f64 {
        let server = &mut self.servers[server];
        let (request, media) = server.memory.bytes();
        let (new_request, new_media) =
            ((request - server.seen.0) as f64, (media - server.seen.1) as f64);
        server.seen = (request, media);
        let stays = 1.0 - (new_request / WINDOW_BYTES).min(1.0);
        server.recent.0 = server.recent.0 * stays + new_request;
        server.recent.1 = server.recent.1 * stays + new_media;
        (server.recent.1 / server.recent.0 - 1.0).clamp(self.least_excess, 3.0)
    }

    fn logged(&mut self, server: usize, task: Task) {
        match task {
            Task::Replicate { request, sent_ns } => self.persisted(request, sent_ns, self.now_ns),
            Task::Begin(request) if self.setup.costs.primary_control_us > 0.0 => {
                self.queue(server, self.setup.workers, Task::Land(request));
            }
            Task::Begin(request) => self.replicate(request),
            _ => {}
        }
    }

    /// The primary sends the entry to its backups.
    fn replicate(&mut self, request: usize) {
        let Request { server, worker, len_bytes, missing, .. } = self.requests[request];
        if missing == 0 {
            return self.finish(request);
        }
        let first = self.random.random_range(0..SERVERS - 1);
        for step in 0..missing {
            let to = (server + 1 + (first + step) % (SERVERS - 1)) % SERVERS;
            if self.setup.scheme == Scheme::Rpc {
                let (at_ns, sent_ns) = (self.now_ns + self.way_ns(), self.now_ns);
                self.events.push(at_ns, Event::Called { at: to, request, sent_ns });
                continue;
            }
            let slot = (server * self.setup.workers + worker) * SERVERS + to;
            let (batch, stamp) = &mut self.batches[slot];
            batch.requests.push(request);
            batch.len_bytes += len_bytes;
            if self.setup.scheme != Scheme::Batch || batch.len_bytes > BATCH_BYTES {
                self.flush(slot);
            } else if batch.requests.len() == 1 {
                let stamp = *stamp;
                self.events.push(self.now_ns + BATCH_WAIT_NS, Event::Flush { slot, stamp });
            }
        }
    }

    fn flush(&mut self, slot: usize) {
        let (batch, stamp) = &mut self.batches[slot];
        *stamp += 1;
        let mut batch = std::mem::take(batch);
        batch.sent_ns = self.now_ns;
        let (thread, to) = (slot / SERVERS, slot % SERVERS);
        let (from, others) = (thread / self.setup.workers, 2 * self.setup.workers);
        let log = match self.setup.scheme {
            Scheme::Rowan | Scheme::Rpc => others,
            Scheme::Share => others + from,
            Scheme::Write | Scheme::Batch => self.setup.workers + thread,
        };
        let address = match self.setup.scheme {
            Scheme::Rowan | Scheme::Rpc => 0, // Chosen where it arrives.
            _ => take(&mut self.servers[to].ends[log], batch.len_bytes),
        };
        let at_ns = self.now_ns + self.way_ns();
        self.events.push(at_ns, Event::Landed { at: to, log, address, batch });
    }

    fn landed(&mut self, at: usize, log: usize, address: u64, batch: Batch) {
        let server = &mut self.servers[at];
        server.nic_free_ns = server.nic_free_ns.max(self.now_ns) + MESSAGE_NS;
        let address = match self.setup.scheme {
            Scheme::Rowan => take(&mut server.ends[log], batch.len_bytes),
            _ => address,
        };
        let done_ns = server.memory.write(address, batch.len_bytes, server.nic_free_ns, true);
        server.gap_ns += (self.now_ns - server.heard_ns - server.gap_ns) / RATE_MESSAGES;
        server.heard_ns = self.now_ns;
        let mean_ns = DMA_WAIT_NS / server.gap_ns + REMOTE_WAIT_NS * self.excess(at);
        // Of three stages.
        let waits: f64 = (0..3).map(|_| exponential(&mut self.random) / 3.0).sum();
        let done_ns = done_ns + PERSIST_NS + mean_ns * waits;
        for request in batch.requests {
            let has_control = self.setup.costs.backup_control_us > 0.0;
            if has_control {
                let task = Task::Replicate { request, sent_ns: batch.sent_ns };
                self.queue(at, self.setup.workers, task);
            } else {
                self.persisted(request, batch.sent_ns, done_ns);
            }
        }
    }

    /// A backup has the entry and acknowledges it.
    fn persisted(&mut self, request: usize, sent_ns: f64, at_ns: f64) {
        let heard_ns = at_ns + self.way_ns();
        self.found.persistence.record((heard_ns - sent_ns) as u64);
        self.events.push(heard_ns, Event::Acked { request });
    }

    fn acked(&mut self, request: usize) {
        self.requests[request].missing -= 1;
        if self.requests[request].missing == 0 {
            self.finish(request);
        }
    }

    /// All copies exist.
    fn finish(&mut self, request: usize) {
        let Request { server, worker, .. } = self.requests[request];
        if self.setup.costs.primary_control_us > 0.0 {
            self.queue(server, self.setup.workers, Task::Complete(request));
        } else {
            self.queue(server, worker, Task::End(request));
        }
    }

    fn answer(&mut self, request: usize) {
        let Request { asked_ns, is_put, .. } = self.requests[request];
        let latency_ns = (self.now_ns + self.way_ns() - asked_ns) as u64;
        let latencies = if is_put { &mut self.found.put } else { &mut self.found.get };
        latencies.record(latency_ns);
        self.done += 1;
        if self.done == self.setup.requests / 3 {
            self.since_ns = self.now_ns;
            self.bytes_before = self.bytes();
            self.found.put = Latencies::default();
            self.found.get = Latencies::default();
            self.found.persistence = Latencies::default();
        }
        self.ask(request);
    }

    fn bytes(&self) -> (u64, u64) {
        self.servers.iter().fold((0, 0), |(request, media), server| {
            let bytes = server.memory.bytes();
            (request + bytes.0, media + bytes.1)
        })
    }

    fn outcome(mut self) -> Outcome {
        let (request, media) = self.bytes();
        let request = request - self.bytes_before.0;
        let media = media - self.bytes_before.1;
        let count = self.done - self.setup.requests / 3;
        self.found.mops = count as f64 / (self.now_ns - self.since_ns) * 1_000.0;
        self.found.amplification = media as f64 / request.max(1) as f64;
        self.found
    }
}

/// The network's effect on Share-KV's lines.
fn least_excess(setup: &Setup) -> f64 {
    let torn = setup.sizes.iter().filter(|bytes| !bytes.is_multiple_of(LINE_BYTES)).count();
    match setup.scheme {
        Scheme::Share => SHARE_EXCESS * torn as f64 / setup.sizes.len().max(1) as f64,
        _ => 0.0,
    }
}
