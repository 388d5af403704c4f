//! One load thread of the embedded store: stores its share of the keys, then serves its lane.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{KeyHasher, UnixMillis};
use workload::mix::Reads;
use workload::{ArrivalClock, KeyStyle, Trace};

use super::Work;
use super::batch::Batch;
use super::engine::Engine;
use super::fixed::Fixed;
use crate::apart::Takes;
use crate::control::{Control, Phase};
use crate::error::BenchError;
use crate::lane::Lane;
use crate::pin::pin_thread;
use crate::plan::Plan;
use crate::tally::Tally;

/// Operations between two checks of the phase and the wall clock.
const LOOK_UP_OPERATIONS: usize = 4096;
/// Operations between two timed calls.
const SAMPLE_OPERATIONS: usize = 256;

pub(super) struct Thread<'a, E> {
    plan: &'a Plan,
    control: &'a Control,
    engine: E,
    hasher: &'a KeyHasher,
    tally: Tally,
    now: UnixMillis,
}

impl<'a, E: Engine> Thread<'a, E> {
    pub(super) fn new(
        plan: &'a Plan,
        control: &'a Control,
        engine: E,
        hasher: &'a KeyHasher,
    ) -> Thread<'a, E> {
        Thread { plan, control, engine, hasher, tally: Tally::new(), now: unix_now() }
    }

    pub(super) fn run(mut self, trace: &Trace, index: usize) -> Result<Tally, BenchError> {
        pin_thread(self.plan.cpu_of(index))?;
        let plan = self.plan;
        let mut batch = Batch::new(self.hasher, plan);
        if plan.populate {
            self.populate(&mut batch, index)?;
        }
        let populate_calls = self.engine.take_calls();
        // A waiting thread holds no resource of the store.
        self.engine.park();
        self.control.ready();
        self.engine.unpark();
        if self.control.phase() == Phase::Stop {
            return Ok(self.tally);
        }
        let lane_count = plan.lane_count();
        let cursor = trace.cursor(index, lane_count);
        let lane = Lane::new(cursor, index, lane_count, plan.draw.key_count, Takes::All);
        match plan.open_loop {
            None => self.run_closed(lane, batch),
            Some(open) => {
                let seed = plan.draw.seed.wrapping_add(index as u64 + 1);
                let per_second = open.per_second / plan.thread_count as f64;
                self.run_open(lane, batch, ArrivalClock::new(open.arrivals, per_second, seed));
            }
        }
        self.tally.populate_calls = populate_calls;
        Ok(self.tally)
    }

    fn populate(&mut self, batch: &mut Batch<'_>, index: usize) -> Result<(), BenchError> {
        let (end, step) = (self.plan.draw.key_count, self.plan.thread_count as u64);
        let mut ids = (index as u64..end).step_by(step as usize);
        let mut reported_count = 0;
        loop {
            let count = batch.store_keys(&mut ids, self.plan.embedded.batch);
            if count == 0 {
                break;
            }
            batch.execute(&mut self.engine, self.now, &mut self.tally);
            if let Some(reply) = self.tally.error_first.take() {
                let reason = format!("{reply} while storing the keys: give it more --memory");
                return Err(BenchError::Store { reason });
            }
            if self.tally.write_count - reported_count >= LOOK_UP_OPERATIONS as u64 {
                self.control.add_populated(self.tally.write_count - reported_count);
                reported_count = self.tally.write_count;
                self.engine.maintain(self.now);
                if self.control.phase() == Phase::Stop {
                    return Ok(());
                }
            }
        }
        self.control.add_populated(self.tally.write_count - reported_count);
        Ok(())
    }

    /// Chooses once the way to form batches.
    fn run_closed(&mut self, lane: Lane<'_>, batch: Batch<'_>) {
        let Plan { key_format, value_sizes, draw, .. } = self.plan;
        let hasher = self.hasher;
        let mix = &draw.mix;
        let is_plain = self.plan.embedded.ttl.is_none()
            && mix.read + mix.update == mix.total()
            && mix.reads == Reads::Popular
            && key_format.style() == KeyStyle::Binary;
        let writes = mix.update > 0;
        match (is_plain, key_format.len_max_bytes(), value_sizes.len_fixed_bytes(), writes) {
            (true, 8, Some(8), false) => self.load(lane, Fixed::<8, 8, false>::new(hasher)),
            (true, 8, Some(8), true) => self.load(lane, Fixed::<8, 8, true>::new(hasher)),
            (true, 16, Some(64), false) => self.load(lane, Fixed::<16, 64, false>::new(hasher)),
            (true, 16, Some(64), true) => self.load(lane, Fixed::<16, 64, true>::new(hasher)),
            _ => self.load(lane, batch),
        }
    }

    fn load<W: Work>(&mut self, mut lane: Lane<'_>, mut work: W) {
        let size = self.plan.embedded.batch;
        let calls_per_look = (LOOK_UP_OPERATIONS / size).max(1);
        let calls_per_sample = (SAMPLE_OPERATIONS / size).max(1);
        let mut phase = self.control.phase();
        self.open_window();
        while self.look_up(&mut phase) {
            for call in 0..calls_per_look {
                let start_ns = (call % calls_per_sample == 0).then(|| self.control.now_ns());
                work.serve(&mut self.engine, &mut lane, size, self.now, &mut self.tally);
                if let Some(start_ns) = start_ns {
                    self.tally.sample(self.control.now_ns() - start_ns, size as u64);
                }
            }
            self.tally.request_count = self.tally.operation_count;
        }
        self.close_window();
    }

    /// Serves the due operations, at most a batch at a time; latency counts from the due time.
    fn run_open(&mut self, mut lane: Lane<'_>, mut batch: Batch<'_>, mut clock: ArrivalClock) {
        let mut phase = self.control.phase();
        self.open_window();
        let zero_ns = self.control.now_ns();
        let size = self.plan.embedded.batch;
        let mut due_ns = Vec::with_capacity(size);
        while self.look_up(&mut phase) {
            for _ in 0..LOOK_UP_OPERATIONS / size {
                due_ns.clear();
                let now_ns = self.control.now_ns() - zero_ns;
                while due_ns.len() < size && clock.next_ns() <= now_ns {
                    due_ns.push(clock.next_ns());
                    clock.advance();
                }
                if due_ns.is_empty() {
                    self.wait(clock.next_ns() - now_ns);
                    break;
                }
                let count = due_ns.len();
                batch.serve(&mut self.engine, &mut lane, count, self.now, &mut self.tally);
                let done_ns = self.control.now_ns() - zero_ns;
                for due_ns in &due_ns {
                    self.tally.answer(done_ns - due_ns, false);
                }
            }
        }
        self.close_window();
        let end_ns = self.tally.end_ns;
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
            self.engine.park();
            std::thread::sleep(Duration::from_nanos((gap_ns - SPIN_MAX_NS).min(SLEEP_MAX_NS)));
            self.engine.unpark();
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
            self.open_window();
        }
        self.now = unix_now();
        self.engine.maintain(self.now);
        true
    }

    fn open_window(&mut self) {
        self.engine.take_calls();
        self.tally.open_window(self.control.now_ns());
    }

    fn close_window(&mut self) {
        self.tally.close_window(self.control.now_ns());
        self.tally.calls = self.engine.take_calls();
    }
}

fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(since.as_millis() as u64)
}
