//! A run against the store in this process: what the store can do when no network limits it.
//!
//! Each thread takes a batch of steps from its lane, forms keys and hashes, and hands the batch to
//! `Session::execute`. All of that is measured; only the trace was drawn before. The harness costs
//! about 3 ns an operation, most of it hashing, which a server pays too.
//!
//! Latency here is the time of the call that served the operation, batch and all, sampled about
//! once in 256 operations: reading the clock at every call would cost more than a GET.

mod batch;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::UnixMillis;
use store::{Eviction, Mode, Store, StoreConfig};
use workload::{ArrivalClock, Trace};

use crate::control::{Control, Phase};
use crate::error::BenchError;
use crate::lane::Lane;
use crate::pin::pin_thread;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::summary::Summary;
use crate::tally::Tally;

use batch::{Batch, DynamicKeys, FixedKeys, KeyBuffer};

/// Opens a store that suits `plan` and runs it.
pub(crate) fn run(
    plan: &Plan,
    control: &Control,
    progress: &Progress,
) -> Result<Summary, BenchError> {
    let failed = |reason: String| BenchError::Store { reason };
    let store = Store::open(store_config(plan)).map_err(|error| failed(error.to_string()))?;
    progress.phase("drawing the trace");
    let trace = Trace::draw(&plan.draw, plan.trace_len);
    let tallies = std::thread::scope(|scope| {
        let (store, trace) = (&store, &trace);
        let threads: Vec<_> = (0..plan.thread_count)
            .map(|index| {
                scope.spawn(move || {
                    let result = run_thread(plan, control, store, trace, index);
                    if result.is_err() {
                        control.stop();
                    }
                    result
                })
            })
            .collect();
        let conducted = conduct(plan, control, progress);
        let mut tallies = Vec::new();
        for thread in threads {
            tallies.push(thread.join().expect("a load thread panicked")?);
        }
        conducted.map(|()| tallies)
    })?;
    let mut summary = Summary::new(&tallies, None);
    let cpu_seconds = summary.total.cpu_ns.max(1) as f64 / 1e9;
    summary.ops_per_cpu_second = Some(summary.total.operation_count as f64 / cpu_seconds);
    Ok(summary)
}

/// The main thread's part: moves the phases on.
fn conduct(plan: &Plan, control: &Control, progress: &Progress) -> Result<(), BenchError> {
    progress.start_populating(if plan.populate { plan.draw.key_count } else { 0 });
    control.wait_ready(plan.thread_count, |count| progress.populated(count));
    progress.start_running(plan.warmup + plan.duration);
    control.enter(Phase::WarmUp);
    control.pass(plan.warmup, |passed| progress.running(passed));
    if control.is_interrupted() || control.phase() == Phase::Stop {
        control.stop();
        return Err(BenchError::Interrupted);
    }
    control.enter(Phase::Measure);
    control.pass(plan.duration, |passed| progress.running(plan.warmup + passed));
    control.stop();
    progress.finish();
    Ok(())
}

/// Index bytes a key: a little over two slots for each, so that few chains overflow.
const INDEX_BYTES_PER_KEY: u64 = 26;
/// Log bytes beyond the items: open segments, and room for the reclaimer to work ahead.
const LOG_SLACK_BYTES: u64 = 64 << 20;

fn store_config(plan: &Plan) -> StoreConfig {
    let keys = plan.draw.key_count;
    let value_len = plan.value_sizes.len_mean_bytes().ceil() as usize;
    let entry_bytes = store::entry_len_bytes(plan.key_format.len_bytes(), value_len) as u64;
    let index_wanted_bytes = keys.saturating_mul(INDEX_BYTES_PER_KEY);
    // Rewrites append: with room for every item several times over, reclaiming is rare.
    let is_read_only = plan.draw.mix.total() == plan.draw.mix.read;
    let rooms_percent = if is_read_only { 110 } else { 300 };
    let items_bytes = keys.saturating_mul(entry_bytes) / 100 * rooms_percent;
    let slack_bytes = LOG_SLACK_BYTES * plan.thread_count as u64;
    let wanted_bytes = items_bytes + index_wanted_bytes + slack_bytes;
    let memory_bytes = plan.embedded.memory_bytes.unwrap_or(wanted_bytes);
    StoreConfig {
        memory_bytes,
        index_bytes: index_wanted_bytes.clamp(memory_bytes / 64, memory_bytes / 4),
        mode: if plan.embedded.is_cache { Mode::Evict } else { Mode::Clean },
        eviction: Eviction::LruApprox,
        lossy_index: false,
        session_max: plan.thread_count,
        item_max_bytes: store::ITEM_MAX_BYTES,
        hash_seed: workload::scramble::mix(plan.draw.seed),
        batch: plan.embedded.batch,
    }
}

fn run_thread(
    plan: &Plan,
    control: &Control,
    store: &Arc<Store>,
    trace: &Trace,
    index: usize,
) -> Result<Tally, BenchError> {
    pin_thread(plan.cpu_of(index))?;
    let len_bytes = plan.key_format.len_bytes();
    match len_bytes {
        8 => Thread::new(plan, control, store, FixedKeys::<8>::new())?.run(trace, index),
        16 => Thread::new(plan, control, store, FixedKeys::<16>::new())?.run(trace, index),
        _ => Thread::new(plan, control, store, DynamicKeys::new(len_bytes))?.run(trace, index),
    }
}

/// Operations between two looks at the phase and the wall clock.
const LOOK_UP_OPERATIONS: usize = 4096;
/// Operations between two timed calls.
const SAMPLE_OPERATIONS: usize = 256;

struct Thread<'a, K> {
    plan: &'a Plan,
    control: &'a Control,
    session: store::Session,
    batch: Batch<'a, K>,
    tally: Tally,
    now: UnixMillis,
}

impl<'a, K: KeyBuffer> Thread<'a, K> {
    fn new(
        plan: &'a Plan,
        control: &'a Control,
        store: &'a Arc<Store>,
        keys: K,
    ) -> Result<Thread<'a, K>, BenchError> {
        let session =
            store.session().map_err(|error| BenchError::Store { reason: error.to_string() })?;
        let batch = Batch::new(store.key_hasher(), plan.key_format, &plan.value_sizes, keys);
        Ok(Thread { plan, control, session, batch, tally: Tally::new(), now: unix_now() })
    }

    fn run(mut self, trace: &Trace, index: usize) -> Result<Tally, BenchError> {
        if self.plan.populate {
            self.populate(index)?;
        }
        // A thread that waits holds nothing back.
        self.session.park();
        self.control.ready();
        self.session.unpark();
        if self.control.phase() == Phase::Stop {
            return Ok(self.tally);
        }
        let lane_count = self.plan.lane_count();
        let cursor = trace.cursor(index, lane_count);
        let lane = Lane::new(cursor, index, lane_count, self.plan.draw.key_count);
        match self.plan.open_loop {
            None => self.run_closed(lane),
            Some(open) => {
                let seed = self.plan.draw.seed.wrapping_add(index as u64 + 1);
                let per_second = open.per_second / self.plan.thread_count as f64;
                self.run_open(lane, ArrivalClock::new(open.arrivals, per_second, seed));
            }
        }
        Ok(self.tally)
    }

    fn populate(&mut self, index: usize) -> Result<(), BenchError> {
        let (end, step) = (self.plan.draw.key_count, self.plan.thread_count as u64);
        let mut ids = (index as u64..end).step_by(step as usize);
        let mut reported_count = 0;
        loop {
            let count = self.batch.store_keys(&mut ids, self.plan.embedded.batch);
            if count == 0 {
                break;
            }
            self.batch.execute(&mut self.session, self.now, &mut self.tally);
            if let Some(reply) = self.tally.error_first.take() {
                let reason = format!("{reply} while storing the keys: give it more --memory");
                return Err(BenchError::Store { reason });
            }
            if self.tally.write_count - reported_count >= LOOK_UP_OPERATIONS as u64 {
                self.control.add_populated(self.tally.write_count - reported_count);
                reported_count = self.tally.write_count;
                self.session.maintain(self.now);
                if self.control.phase() == Phase::Stop {
                    return Ok(());
                }
            }
        }
        self.control.add_populated(self.tally.write_count - reported_count);
        Ok(())
    }

    fn run_closed(&mut self, mut lane: Lane<'_>) {
        let size = self.plan.embedded.batch;
        let calls_per_look = (LOOK_UP_OPERATIONS / size).max(1);
        let calls_per_sample = (SAMPLE_OPERATIONS / size).max(1);
        let mut phase = self.control.phase();
        self.tally.open_window(self.control.now_ns());
        while self.look_up(&mut phase) {
            for call in 0..calls_per_look {
                self.batch.draw(&mut lane, size);
                if call % calls_per_sample == 0 {
                    let start_ns = self.control.now_ns();
                    self.batch.execute(&mut self.session, self.now, &mut self.tally);
                    let latency_ns = self.control.now_ns() - start_ns;
                    self.tally.sample(latency_ns, size as u64);
                } else {
                    self.batch.execute(&mut self.session, self.now, &mut self.tally);
                }
                self.batch.settle_inserts(&mut lane);
            }
            self.tally.request_count = self.tally.operation_count;
        }
        self.tally.close_window(self.control.now_ns());
    }

    /// Serves what is due, at most a batch at a time; latency counts from when it was due.
    fn run_open(&mut self, mut lane: Lane<'_>, mut clock: ArrivalClock) {
        let mut phase = self.control.phase();
        let zero_ns = self.control.now_ns();
        self.tally.open_window(zero_ns);
        let mut due_ns = Vec::with_capacity(self.plan.embedded.batch);
        while self.look_up(&mut phase) {
            for _ in 0..LOOK_UP_OPERATIONS / self.plan.embedded.batch {
                due_ns.clear();
                let now_ns = self.control.now_ns() - zero_ns;
                while due_ns.len() < self.plan.embedded.batch && clock.next_ns() <= now_ns {
                    due_ns.push(clock.next_ns());
                    clock.advance();
                }
                if due_ns.is_empty() {
                    self.wait(clock.next_ns() - now_ns);
                    break;
                }
                self.batch.draw(&mut lane, due_ns.len());
                self.batch.execute(&mut self.session, self.now, &mut self.tally);
                self.batch.settle_inserts(&mut lane);
                let done_ns = self.control.now_ns() - zero_ns;
                for due_ns in &due_ns {
                    self.tally.answer(done_ns - due_ns);
                }
            }
        }
        let end_ns = self.control.now_ns();
        self.tally.close_window(end_ns);
        while zero_ns + clock.next_ns() <= end_ns {
            self.tally.give_up(end_ns - zero_ns - clock.next_ns());
            clock.advance();
        }
    }

    /// Waits for the next arrival: spins over short gaps, which a sleep would overshoot.
    fn wait(&mut self, gap_ns: u64) {
        const SPIN_MAX_NS: u64 = 200_000;
        const SLEEP_MAX_NS: u64 = 10_000_000;
        if gap_ns > SPIN_MAX_NS {
            self.session.park();
            std::thread::sleep(Duration::from_nanos((gap_ns - SPIN_MAX_NS).min(SLEEP_MAX_NS)));
            self.session.unpark();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Between stretches of work: the phase, the wall clock, the store's housekeeping.
    fn look_up(&mut self, phase: &mut Phase) -> bool {
        let found = self.control.phase();
        if found == Phase::Stop {
            return false;
        }
        if found != *phase {
            *phase = found;
            self.tally.open_window(self.control.now_ns());
        }
        self.now = unix_now();
        self.session.maintain(self.now);
        true
    }
}

fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
