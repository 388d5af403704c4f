//! The counts of one thread in the measured window, and their sum over all threads.

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use store::Outcome;

/// Counts of one thread, or of all.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Keys read plus keys written; a read-modify-write is one.
    pub(crate) operation_count: u64,
    /// Requests: a multi-get is one.
    pub(crate) request_count: u64,
    pub(crate) hit_count: u64,
    pub(crate) miss_count: u64,
    /// Values that differ from the one written under their key.
    pub(crate) mismatch_count: u64,
    pub(crate) write_count: u64,
    /// Items that scans found.
    pub(crate) scanned_count: u64,
    /// Requests that the server refused.
    pub(crate) error_count: u64,
    /// The first refusal, in the server's words.
    pub(crate) error_first: Option<String>,
    /// Open loop: requests due in the window that had no answer when the run ended.
    pub(crate) unanswered_count: u64,
    /// Open loop: requests that were due in the window and never sent, since there was no room.
    pub(crate) dropped_count: u64,
    /// Nanoseconds from send (closed loop) or intended send (open loop) to the answer.
    pub(crate) latency_ns: Histogram<u64>,
    /// The latencies of these for large values, if sizes differ.
    pub(crate) latency_large_ns: Histogram<u64>,
    /// The window, on the run's clock.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// CPU time of the thread in the window.
    pub(crate) cpu_ns: u64,
    /// Operations a second, each thread by its own window; filled when the window closes.
    pub(crate) ops_per_second: f64,
    /// The embedded store's calls, when each one is timed.
    pub(crate) calls: Option<CallTimes>,
    /// The same, while the keys were stored.
    pub(crate) populate_calls: Option<CallTimes>,
    cpu_start_ns: u64,
}

/// The time of each call into the store: wall time, and CPU time of the thread, which excludes time
/// that other processes took.
#[derive(Clone, Debug)]
pub(crate) struct CallTimes {
    pub(crate) execute_wall_ns: Histogram<u64>,
    pub(crate) execute_cpu_ns: Histogram<u64>,
    pub(crate) maintain_wall_ns: Histogram<u64>,
    pub(crate) maintain_cpu_ns: Histogram<u64>,
    /// The control: arithmetic without memory, for as long in sum as `execute` took; its longest
    /// times are the machine's.
    pub(crate) control_wall_ns: Histogram<u64>,
    pub(crate) control_cpu_ns: Histogram<u64>,
}

impl CallTimes {
    pub(crate) fn new() -> CallTimes {
        CallTimes {
            execute_wall_ns: new_histogram(),
            execute_cpu_ns: new_histogram(),
            maintain_wall_ns: new_histogram(),
            maintain_cpu_ns: new_histogram(),
            control_wall_ns: new_histogram(),
            control_cpu_ns: new_histogram(),
        }
    }

    fn merge(&mut self, other: &CallTimes) {
        for (histogram, other) in [
            (&mut self.execute_wall_ns, &other.execute_wall_ns),
            (&mut self.execute_cpu_ns, &other.execute_cpu_ns),
            (&mut self.maintain_wall_ns, &other.maintain_wall_ns),
            (&mut self.maintain_cpu_ns, &other.maintain_cpu_ns),
            (&mut self.control_wall_ns, &other.control_wall_ns),
            (&mut self.control_cpu_ns, &other.control_cpu_ns),
        ] {
            histogram.add(other).expect("all histograms have the same bounds");
        }
    }

    /// Adds another thread's times to these, if there are any.
    fn merge_into(all: &mut Option<CallTimes>, other: Option<&CallTimes>) {
        match (all.as_mut(), other) {
            (Some(all), Some(other)) => all.merge(other),
            (None, Some(other)) => *all = Some(other.clone()),
            (_, None) => {}
        }
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NS, LATENCY_DIGITS)
        .expect("the bounds are constants that the histogram takes")
}

/// The longest distinguished latency: a longer one counts as this.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
const LATENCY_DIGITS: u8 = 3;

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            operation_count: 0,
            request_count: 0,
            hit_count: 0,
            miss_count: 0,
            mismatch_count: 0,
            write_count: 0,
            scanned_count: 0,
            error_count: 0,
            error_first: None,
            unanswered_count: 0,
            dropped_count: 0,
            latency_ns: new_histogram(),
            latency_large_ns: new_histogram(),
            start_ns: 0,
            end_ns: 0,
            cpu_ns: 0,
            ops_per_second: 0.0,
            calls: None,
            populate_calls: None,
            cpu_start_ns: 0,
        }
    }

    /// Forgets the warm-up: the window starts now, on the calling thread.
    pub(crate) fn open_window(&mut self, now_ns: u64) {
        *self = Tally::new();
        self.start_ns = now_ns;
        self.cpu_start_ns = thread_cpu_ns();
    }

    /// The window ends now, on the same thread.
    pub(crate) fn close_window(&mut self, now_ns: u64) {
        self.end_ns = now_ns;
        self.cpu_ns = thread_cpu_ns() - self.cpu_start_ns;
        self.ops_per_second = self.operation_count as f64 / self.wall_seconds();
    }

    /// Counts one answered request.
    #[inline]
    pub(crate) fn answer(&mut self, latency_ns: u64, is_large: bool) {
        self.request_count += 1;
        self.latency_ns.saturating_record(latency_ns);
        if is_large {
            self.latency_large_ns.saturating_record(latency_ns);
        }
    }

    /// Records the latency of `count` operations that one call served.
    pub(crate) fn sample(&mut self, latency_ns: u64, count: u64) {
        self.latency_ns.saturating_record_n(latency_ns, count);
    }

    /// Counts one request that has no answer after all this time.
    pub(crate) fn give_up(&mut self, latency_ns: u64) {
        self.unanswered_count += 1;
        self.latency_ns.saturating_record(latency_ns);
    }

    /// Counts one refused request.
    pub(crate) fn refuse(&mut self, words: impl FnOnce() -> String) {
        self.error_count += 1;
        self.error_first.get_or_insert_with(words);
    }

    /// Counts one item that a scan found, right or wrong.
    #[inline]
    pub(crate) fn scanned(&mut self, is_right: bool) {
        self.scanned_count += 1;
        self.mismatch_count += u64::from(!is_right);
    }

    /// Counts one request that the embedded store refused.
    #[cold]
    pub(crate) fn refuse_outcome<R>(&mut self, outcome: &Outcome<'_, R>) {
        self.refuse(|| match outcome {
            Outcome::OutOfMemory => "out of memory".to_owned(),
            Outcome::TooLarge { len_bytes, max_bytes } => {
                format!("a value of {len_bytes} bytes is above {max_bytes}")
            }
            _ => "an outcome that no request here can have".to_owned(),
        });
    }

    /// Adds another thread's counts. Throughputs add; windows span.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.operation_count += other.operation_count;
        self.request_count += other.request_count;
        self.hit_count += other.hit_count;
        self.miss_count += other.miss_count;
        self.mismatch_count += other.mismatch_count;
        self.write_count += other.write_count;
        self.scanned_count += other.scanned_count;
        self.error_count += other.error_count;
        if self.error_first.is_none() {
            self.error_first.clone_from(&other.error_first);
        }
        self.unanswered_count += other.unanswered_count;
        self.dropped_count += other.dropped_count;
        for (histogram, other) in [
            (&mut self.latency_ns, &other.latency_ns),
            (&mut self.latency_large_ns, &other.latency_large_ns),
        ] {
            histogram.add(other).expect("all histograms have the same bounds");
        }
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.cpu_ns += other.cpu_ns;
        self.ops_per_second += other.ops_per_second;
        CallTimes::merge_into(&mut self.calls, other.calls.as_ref());
        CallTimes::merge_into(&mut self.populate_calls, other.populate_calls.as_ref());
    }

    /// Length of the window; never 0, so that rates are finite.
    pub(crate) fn wall_seconds(&self) -> f64 {
        (self.end_ns.saturating_sub(self.start_ns)).max(1) as f64 / 1e9
    }

    /// The share of read keys that were found.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hit_count + self.miss_count;
        (reads > 0).then(|| self.hit_count as f64 / reads as f64)
    }
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
