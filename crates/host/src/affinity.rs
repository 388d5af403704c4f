//! CPU pinning: worker `i` runs on the `i`-th CPU of the inherited affinity mask.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Whether worker `i` stays on the `i`-th processor of the inherited affinity mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// On, if there is a processor for each worker.
    Auto,
    /// On; more workers than processors are refused.
    On,
    /// The kernel schedules workers freely.
    Off,
}

/// The CPU for each worker, inside the mask that the process was started with; empty: the kernel
/// schedules workers freely.
pub fn plan(pin: Pin, worker_count: usize) -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(mask) => choose(pin, worker_count, &processors(&mask)),
        Err(_) => Vec::new(),
    }
}

/// The number of CPUs that this process may use; 1 if the kernel does not report it.
pub fn processor_count() -> usize {
    sched_getaffinity(None).map_or(1, |mask| mask.count().max(1) as usize)
}

/// The CPUs that the process may use; empty: the kernel does not report them.
pub fn allowed() -> Vec<usize> {
    sched_getaffinity(None).map(|mask| processors(&mask)).unwrap_or_default()
}

/// Pins the calling thread to one CPU.
pub fn pin_current_thread(processor: usize) -> io::Result<()> {
    let mut mask = CpuSet::new();
    mask.set(processor);
    Ok(sched_setaffinity(None, &mask)?)
}

fn processors(mask: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| mask.is_set(*processor)).collect()
}

fn choose(pin: Pin, worker_count: usize, processors: &[usize]) -> Vec<usize> {
    let pins = match pin {
        Pin::Off => false,
        Pin::On => !processors.is_empty(),
        Pin::Auto => worker_count <= processors.len(),
    };
    if pins { processors.iter().copied().take(worker_count).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_pins_only_when_each_worker_has_its_own_processor() {
        assert_eq!(choose(Pin::Auto, 2, &[4, 6, 7]), [4, 6]);
        assert!(choose(Pin::Auto, 4, &[4, 6, 7]).is_empty());
    }

    #[test]
    fn on_pins_and_off_never_does() {
        assert_eq!(choose(Pin::On, 2, &[4, 6, 7]), [4, 6]);
        assert!(choose(Pin::Off, 1, &[4, 6, 7]).is_empty());
        assert!(choose(Pin::On, 1, &[]).is_empty());
    }

    #[test]
    fn the_inherited_mask_is_not_empty() {
        assert_eq!(plan(Pin::On, 1).len(), 1);
        assert!(processor_count() >= 1);
    }
}
