//! The engine that serves batches: a session of the store, or no store at all.
//!
//! The empty engine ([`Nothing`], target `null:`) measures the harness's own cost: requests are
//! drawn, formed and hashed as usual, and for each the harness checks a value that lies in the
//! cache.

use std::hint::black_box;
use std::ops::Bound;
use std::time::Instant;

use base::{KeyHash, UnixMillis};
use store::{Item, NoOrder, Op, Range, RangeSink, Request, Session, Sink, Update};

use crate::tally::{CallTimes, thread_cpu_ns};

/// Receives the answers of [`Nothing`], which has no log to borrow an outcome from.
pub(super) trait Answers {
    /// The read at `place` found `value`.
    fn read(&mut self, place: usize, value: &[u8]);
    /// This many writes were executed.
    fn wrote(&mut self, count: u64);
}

/// Serves requests.
pub(super) trait Engine {
    /// Announces the hash of a request of the batch that is being formed.
    fn prefetch(&mut self, hash: KeyHash);
    /// Serves the requests in order.
    fn execute<U: Update, S: Sink<U::Refusal> + Answers>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    );
    /// Passes key and value of the items of each range, in order.
    fn scan(
        &mut self,
        now: UnixMillis,
        ranges: &[Range<'_>],
        show: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), NoOrder>;
    /// Housekeeping between batches.
    fn maintain(&mut self, now: UnixMillis);
    /// Before a wait.
    fn park(&mut self);
    /// After a wait.
    fn unpark(&mut self);
    /// The times of calls since the last query, if they are recorded.
    fn take_calls(&mut self) -> Option<CallTimes>;
}

/// The store.
pub(super) struct StoreEngine {
    session: Session,
    calls: Option<CallTimes>,
    /// CPU time of `execute` for which the control has not run yet.
    control_owed_ns: u64,
}

impl StoreEngine {
    /// `times_calls`: whether each call is timed, which costs about half a microsecond a call.
    pub(super) fn new(session: Session, times_calls: bool) -> StoreEngine {
        StoreEngine { session, calls: times_calls.then(CallTimes::new), control_owed_ns: 0 }
    }
}

/// Passes items on, and records the ranges for which one call was not enough.
struct Shown<'r, F> {
    ranges: &'r [Range<'r>],
    show: F,
    /// Index of the range, items that were visited, the last key.
    rests: Vec<(usize, usize, Vec<u8>)>,
}

impl<F: FnMut(&[u8], &[u8])> RangeSink for Shown<'_, F> {
    #[inline]
    fn item(&mut self, _range_index: usize, item: &Item<'_>) {
        (self.show)(item.key, item.value);
    }

    fn ended(&mut self, range_index: usize, visited: usize, resume_key: Option<&[u8]>) {
        let is_short = visited < self.ranges[range_index].item_limit;
        if let Some(key) = resume_key.filter(|_| is_short) {
            self.rests.push((range_index, visited, key.to_vec()));
        }
    }
}

impl StoreEngine {
    /// Records a timed call and gives the control the same time.
    fn executed(&mut self, started: &Started) {
        let Some(calls) = &mut self.calls else { return };
        let (wall_ns, cpu_ns) = started.wall_and_cpu_ns();
        calls.execute_wall_ns.saturating_record(wall_ns);
        calls.execute_cpu_ns.saturating_record(cpu_ns);
        self.control_owed_ns += cpu_ns;
        while self.control_owed_ns > 0 {
            let started = Started::now();
            black_box(compute());
            let (wall_ns, cpu_ns) = started.wall_and_cpu_ns();
            calls.control_wall_ns.saturating_record(wall_ns);
            calls.control_cpu_ns.saturating_record(cpu_ns);
            self.control_owed_ns = self.control_owed_ns.saturating_sub(cpu_ns);
        }
    }

    /// Reads the rest of a long range, call after call.
    fn scan_rest(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visited: usize,
        key: Vec<u8>,
        show: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), NoOrder> {
        let (mut left, mut key) = (range.item_limit - visited, key);
        while left > 0 {
            let rest = Range { item_limit: left, ..range.after(&key) };
            let found = self.session.range(now, &rest, |item| show(item.key, item.value))?;
            left = left.saturating_sub(found.visited);
            let Some(next) = found.resume_key else { break };
            key = next;
        }
        Ok(())
    }
}

/// The clocks before a call.
struct Started {
    wall: Instant,
    cpu_ns: u64,
}

impl Started {
    fn now() -> Started {
        Started { wall: Instant::now(), cpu_ns: thread_cpu_ns() }
    }

    fn wall_and_cpu_ns(&self) -> (u64, u64) {
        let cpu_ns = thread_cpu_ns() - self.cpu_ns;
        (self.wall.elapsed().as_nanos() as u64, cpu_ns)
    }
}

/// About as long as a batch of 32: arithmetic on one number, no memory.
fn compute() -> u64 {
    const STEPS: u64 = 1024;
    (0..STEPS).fold(black_box(1), |number: u64, step| {
        black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step)
    })
}

impl Engine for StoreEngine {
    #[inline(always)]
    fn prefetch(&mut self, hash: KeyHash) {
        self.session.prefetch(hash);
    }

    #[inline(always)]
    fn execute<U: Update, S: Sink<U::Refusal> + Answers>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    ) {
        let started = self.calls.is_some().then(Started::now);
        self.session.execute(now, requests, sink);
        if let Some(started) = started {
            self.executed(&started);
        }
    }

    fn scan(
        &mut self,
        now: UnixMillis,
        ranges: &[Range<'_>],
        show: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), NoOrder> {
        let started = self.calls.is_some().then(Started::now);
        let mut shown = Shown { ranges, show, rests: Vec::new() };
        self.session.ranges(now, ranges, &mut shown)?;
        let Shown { mut show, rests, .. } = shown;
        for (range_index, visited, key) in rests {
            self.scan_rest(now, &ranges[range_index], visited, key, &mut show)?;
        }
        if let Some(started) = started {
            self.executed(&started);
        }
        Ok(())
    }

    fn maintain(&mut self, now: UnixMillis) {
        let Some(calls) = &mut self.calls else {
            self.session.maintain(now);
            return;
        };
        let started = Started::now();
        self.session.maintain(now);
        let (wall_ns, cpu_ns) = started.wall_and_cpu_ns();
        calls.maintain_wall_ns.saturating_record(wall_ns);
        calls.maintain_cpu_ns.saturating_record(cpu_ns);
    }

    fn park(&mut self) {
        self.session.park();
    }

    fn unpark(&mut self) {
        self.session.unpark();
    }

    fn take_calls(&mut self) -> Option<CallTimes> {
        self.calls.as_mut().map(|calls| std::mem::replace(calls, CallTimes::new()))
    }
}

/// Answers without a look-up: every read finds the same value, whose check runs and is ignored.
pub(super) struct Nothing {
    value: Vec<u8>,
}

impl Nothing {
    pub(super) fn new(value_len_bytes: usize) -> Nothing {
        Nothing { value: vec![0; value_len_bytes] }
    }
}

impl Engine for Nothing {
    #[inline(always)]
    fn prefetch(&mut self, _hash: KeyHash) {}

    #[inline(always)]
    fn execute<U: Update, S: Sink<U::Refusal> + Answers>(
        &mut self,
        _now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    ) {
        let value = black_box(self.value.as_slice());
        for (place, request) in black_box(requests).iter().enumerate() {
            sink.read(place, value);
            // No branch: the store and not the harness should mispredict which requests write.
            sink.wrote(u64::from(matches!(request.op, Op::Set(_))));
        }
    }

    fn scan(
        &mut self,
        _now: UnixMillis,
        ranges: &[Range<'_>],
        mut show: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), NoOrder> {
        for range in ranges {
            let (Bound::Included(key) | Bound::Excluded(key)) = range.start else { continue };
            for _ in 0..range.item_limit {
                show(black_box(key), black_box(&self.value));
            }
        }
        Ok(())
    }

    fn maintain(&mut self, _now: UnixMillis) {}

    fn park(&mut self) {}

    fn unpark(&mut self) {}

    fn take_calls(&mut self) -> Option<CallTimes> {
        None
    }
}
