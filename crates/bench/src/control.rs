//! The phases of a run (warm up, measure, stop): the main thread sets them, the load threads poll
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::error::BenchError;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Populate,
    WarmUp,
    Measure,
    Stop,
}

/// The state shared by all threads of a run. Each field has one writer, or idempotent writes; it
/// publishes no other data, hence `Relaxed` throughout.
pub(crate) struct Control {
    clock: Instant,
    phase: AtomicU32,
    interrupted: Arc<AtomicBool>,
    /// Keys stored so far, for the progress bar.
    populated_count: AtomicU64,
    /// The number of threads that are ready for the next phase.
    ready_count: AtomicU32,
}

/// The interval of the main thread's checks.
const TICK: Duration = Duration::from_millis(20);

impl Control {
    pub(crate) fn new(interrupted: Arc<AtomicBool>) -> Control {
        Control {
            clock: Instant::now(),
            phase: AtomicU32::new(Phase::Populate as u32),
            interrupted,
            populated_count: AtomicU64::new(0),
            ready_count: AtomicU32::new(0),
        }
    }

    /// Nanoseconds since the run began.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Populate,
            1 => Phase::WarmUp,
            2 => Phase::Measure,
            _ => Phase::Stop,
        }
    }

    /// Sets the next phase; a stop is final.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u32, Ordering::Relaxed);
    }

    /// Ends the run; called by a thread that cannot go on.
    pub(crate) fn stop(&self) {
        self.enter(Phase::Stop);
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn add_populated(&self, count: u64) {
        self.populated_count.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn populated_count(&self) -> u64 {
        self.populated_count.load(Ordering::Relaxed)
    }

    /// A thread reports that it has stored its keys, and waits for the others.
    pub(crate) fn ready(&self) {
        self.ready_count.fetch_add(1, Ordering::Relaxed);
        while self.phase() == Phase::Populate {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The main thread waits for `thread_count` calls of [`Control::ready`], a stop or ^C.
    pub(crate) fn wait_ready(&self, thread_count: usize, mut tick: impl FnMut(u64)) {
        while (self.ready_count.load(Ordering::Relaxed) as usize) < thread_count {
            if self.is_interrupted() {
                self.stop();
            }
            if self.phase() == Phase::Stop {
                return;
            }
            tick(self.populated_count());
            std::thread::sleep(TICK);
        }
    }

    /// The main thread waits for `length`, unless the run stops earlier.
    pub(crate) fn pass(&self, length: Duration, mut tick: impl FnMut(Duration)) {
        let start = Instant::now();
        while self.phase() != Phase::Stop && !self.is_interrupted() {
            let passed = start.elapsed();
            let Some(left) = length.checked_sub(passed).filter(|left| !left.is_zero()) else {
                return;
            };
            tick(passed);
            std::thread::sleep(left.min(TICK));
        }
    }
}

/// ^C asks the run to end and report; a second ^C ends the process.
pub(crate) fn interrupt_flag() -> Result<Arc<AtomicBool>, BenchError> {
    let flag = Arc::new(AtomicBool::new(false));
    let failed = |source| BenchError::System { what: "cannot watch for ^C", source };
    let signal = signal_hook::consts::SIGINT;
    signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
        .map_err(failed)?;
    signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(failed)?;
    Ok(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_final() {
        let control = Control::new(Arc::default());
        control.stop();
        control.enter(Phase::Measure);
        assert_eq!(control.phase(), Phase::Stop);
    }

    #[test]
    fn an_interrupt_ends_every_wait() {
        let control = Control::new(Arc::new(AtomicBool::new(true)));
        control.pass(Duration::from_secs(3600), |_| {});
        control.wait_ready(1, |_| {});
        assert_eq!(control.phase(), Phase::Stop);
    }
}
