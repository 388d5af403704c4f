//! Pressure: whether the processors could do more, from how busy the workers are in the time that
//! they could get.
//!
//! ```text
//!  a worker's time:   serving │ polling in vain │ asleep │ waiting for a processor
//!                     └─ U ──┘└────── to spare ─────────┘└── not its to use ──────┘
//!  busy = U / (all - waiting)             of the busiest worker
//!  used = 1 - (idle + polling) / all      of the processors that it may run on
//! ```
//!
//! On a processor of its own, a worker is busy when it serves all the time. On a shared one, beside
//! clients on the same machine or other workers, it never serves all the time, however many
//! requests arrive: part of the time it waits for the processor, and while it sleeps the processor
//! belongs to others, whose requests it waits for. Then the processors' idle share says whether
//! anything can be won: if they are used up, serving a request with less work serves more requests.
//!
//! # Limits
//! The kernel counts the processors' idle time in hundredths of a second, so two of them are known
//! to 5 % in [`LOOK_EVERY`]. Without such a count, the busiest worker's own clock is the only
//! measure. A quota of a cgroup shows as waiting.

use std::time::Duration;

use base::Instant;

/// Time between two reads of the kernel's counts: short against a search, and long against the
/// kernel's clock.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Processors that other processes use up mean nothing while a smaller fraction than this serves
/// requests.
const SERVING_RATIO_MIN: f64 = 0.25;

/// The kernel's counts for one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a processor.
    pub run_ns: u64,
    /// Time ready to run, without a processor.
    pub wait_ns: u64,
}

/// The kernel's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTimes {
    /// By worker; empty: the kernel does not report them.
    pub threads: Vec<ThreadTimes>,
    /// Processors that the workers may run on.
    pub processor_count: usize,
    /// The idle time of these together; `None`: the kernel does not report it.
    pub idle_ns: Option<u64>,
}

/// The state between looks.
#[derive(Debug, Default)]
pub struct Pressure {
    last: Option<(Instant, KernelTimes, Vec<u64>)>,
    /// The last result.
    ratio: f64,
}

impl Pressure {
    /// How busy the server is: 1 if it could not serve more in its present configuration. `busy_ns`
    /// are the workers' own clocks ([`counters::WorkerCounters::busy_ns`]); `read` asks the
    /// kernel, and is called once in [`LOOK_EVERY`].
    pub fn look(
        &mut self,
        now: Instant,
        busy_ns: &[u64],
        read: impl FnOnce() -> KernelTimes,
    ) -> f64 {
        let is_due = |(at, ..): &(Instant, _, _)| now.ns - at.ns >= LOOK_EVERY.as_nanos() as u64;
        if self.last.as_ref().is_none_or(is_due) {
            let times = read();
            if let Some((at, before, busy_before)) = &self.last {
                let serving = busy_ns.iter().zip(busy_before).map(|(now, then)| now - then);
                self.ratio = ratio(now.ns - at.ns, before, &times, serving);
            }
            self.last = Some((now, times, busy_ns.to_vec()));
        }
        self.ratio
    }
}

/// The busiest worker's ratio, or the processors' if that is larger and this server is the cause.
fn ratio(
    elapsed_ns: u64,
    before: &KernelTimes,
    now: &KernelTimes,
    serving_ns: impl Iterator<Item = u64>,
) -> f64 {
    let (mut busiest_ratio, mut all_serving_ns, mut all_polling_ns) = (0.0_f64, 0, 0);
    let threads = now.threads.iter().zip(&before.threads);
    for ((now, then), wall_ns) in threads.zip(serving_ns) {
        let run_ns = now.run_ns.saturating_sub(then.run_ns);
        let wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
        // The clock continues when a worker is preempted in the middle of a round.
        let serving_ns = wall_ns.min(run_ns);
        // Counts lag by up to a time slice: at least a tenth of the time is assumed usable.
        let could_ns = elapsed_ns.saturating_sub(wait_ns).max(elapsed_ns / 10);
        busiest_ratio = busiest_ratio.max(serving_ns as f64 / could_ns as f64);
        all_serving_ns += serving_ns;
        all_polling_ns += run_ns - serving_ns;
    }
    let all_ns = (elapsed_ns * now.processor_count as u64).max(1) as f64;
    let idle_ns = now.idle_ns.zip(before.idle_ns).map(|(now, then)| now.saturating_sub(then));
    let is_ours = all_serving_ns as f64 >= SERVING_RATIO_MIN * all_ns;
    let used_ratio = idle_ns
        .filter(|_| is_ours)
        .map_or(0.0, |idle_ns| 1.0 - (idle_ns + all_polling_ns) as f64 / all_ns);
    busiest_ratio.max(used_ratio).clamp(0.0, 1.0)
}

/// Nanoseconds of the kernel's clock in `/proc/stat`, the same on all machines that Linux runs on.
const TICK_NS: u64 = 10_000_000;

/// The two first words of `/proc/PID/task/TID/schedstat`.
pub fn parse_schedstat(text: &str) -> Option<ThreadTimes> {
    let mut words = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
    Some(ThreadTimes { run_ns: words.next()?, wait_ns: words.next()? })
}

/// The idle time of these processors together, from `/proc/stat`.
pub fn parse_idle_ns(text: &str, processors: &[usize]) -> Option<u64> {
    let mut idle_ns = None;
    for line in text.lines() {
        let Some((name, times)) = line.split_once(' ') else { continue };
        let Some(Ok(processor)) = name.strip_prefix("cpu").map(str::parse::<usize>) else {
            continue;
        };
        if processors.contains(&processor) {
            // user, nice, system, idle, iowait
            let mut times = times.split_ascii_whitespace().skip(3);
            let mut tick = || times.next().and_then(|word| word.parse::<u64>().ok());
            let ticks = tick()? + tick().unwrap_or(0);
            *idle_ns.get_or_insert(0) += ticks * TICK_NS;
        }
    }
    idle_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A second of two processors and two workers: the time that each runs, waits, and reports as
    /// served.
    #[track_caller]
    fn check(workers: [[u64; 3]; 2], idle_ms: Option<u64>, want: f64) {
        let threads = workers
            .map(|[run_ms, wait_ms, _]| ThreadTimes { run_ns: run_ms * MS, wait_ns: wait_ms * MS });
        let idle_ns = idle_ms.map(|ms| ms * MS);
        let now = KernelTimes { threads: threads.to_vec(), processor_count: 2, idle_ns };
        let threads = vec![ThreadTimes::default(); 2];
        let before = KernelTimes { threads, processor_count: 2, idle_ns: Some(0) };
        let serving = workers.into_iter().map(|[.., serving_ms]| serving_ms * MS);
        let found = ratio(1000 * MS, &before, &now, serving);
        assert!((found - want).abs() < 0.005, "{found}, not {want}");
    }

    #[test]
    fn a_worker_with_a_processor_of_its_own_is_as_busy_as_it_serves() {
        check([[1000, 0, 950], [1000, 0, 100]], Some(0), 0.95);
        check([[300, 0, 300], [100, 0, 100]], Some(1600), 0.3);
        // It polls in vain: the processor is taken, and has time to spare all the same.
        check([[1000, 0, 300], [1000, 0, 300]], Some(0), 0.3);
    }

    #[test]
    fn what_a_worker_waits_for_its_processor_is_not_its_to_use() {
        // Half of the time other threads have it; in its own half it serves. Its own clock
        // continues.
        check([[500, 500, 990], [500, 500, 400]], Some(0), 1.0);
        check([[500, 0, 500], [500, 0, 500]], Some(1000), 0.5);
    }

    #[test]
    fn workers_that_sleep_while_their_clients_have_the_processors_are_busy() {
        check([[520, 100, 500], [520, 100, 500]], Some(40), 0.96);
        check([[520, 100, 500], [520, 100, 500]], Some(600), 0.68);
        // Another process's work, beside a server that has little to do.
        check([[120, 100, 100], [120, 100, 100]], Some(0), 0.11);
    }

    #[test]
    fn a_kernel_that_says_nothing_leaves_the_workers_clocks() {
        check([[0, 0, 900], [0, 0, 900]], None, 0.0);
        let none = KernelTimes::default();
        assert_eq!(ratio(MS, &none, &none, [MS].into_iter()), 0.0);
    }

    #[test]
    fn the_kernel_is_asked_five_times_a_second() {
        let (mut pressure, mut asked_count) = (Pressure::default(), 0);
        for at_ms in (0..1000).step_by(10) {
            let run_ns = at_ms * MS;
            pressure.look(Instant { ns: at_ms * MS }, &[run_ns], || {
                asked_count += 1;
                let threads = vec![ThreadTimes { run_ns, wait_ns: 0 }];
                KernelTimes { threads, processor_count: 1, idle_ns: Some(0) }
            });
        }
        assert_eq!((asked_count, pressure.ratio), (5, 1.0));
    }

    #[test]
    fn the_kernels_words_are_read() {
        let times = ThreadTimes { run_ns: 12, wait_ns: 34 };
        assert_eq!(parse_schedstat("12 34 5\n"), Some(times));
        assert_eq!(parse_schedstat(""), None);
        let stat = "cpu  9 9 9 99 9\ncpu0 1 2 3 40 5 6\ncpu1 1 2 3 7 1 6\nintr 5 6 7 8\n";
        assert_eq!(parse_idle_ns(stat, &[0, 1]), Some(53 * TICK_NS));
        assert_eq!(parse_idle_ns(stat, &[1, 7]), Some(8 * TICK_NS));
        assert_eq!(parse_idle_ns("", &[0]), None);
    }
}
