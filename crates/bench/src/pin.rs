//! Pins client threads to CPUs.

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::BenchError;

/// Pins the calling thread, if a CPU is named.
pub(crate) fn pin_thread(cpu: Option<usize>) -> Result<(), BenchError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)
        .map_err(|_| BenchError::usage(format!("--pin names CPU {cpu}, which cannot be used here")))
}
