//! A run against the store in this process: the speed of the store without the limit of a network.
//!
//! ```text
//!  open ─▶ touch all memory ─▶ populate ─▶ warm up ─▶ measure
//!            thread: Work (forms batches) ─▶ Engine (a session, or nothing) ─▶ check ─▶ Tally
//! ```
//!
//! Each thread takes a batch of operations from its lane, forms keys, hashes and values, and passes
//! the batch to `Session::execute`. All of this is measured; only the trace is drawn in advance. A
//! run with target `null:` measures the harness alone: 3 ns a GET of 8-byte items, 4 ns when half
//! of the operations write.
//!
//! Latency is the time of the call that served the operation, with its whole batch, sampled about
//! once in 256 operations: reading the clock at every call would cost more than a GET.
//! `--latency every` times each call by itself nevertheless.

mod batch;
mod config;
mod engine;
mod fixed;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use base::{KeyHasher, UnixMillis};
use store::{Store, Tended};
use workload::Trace;

use crate::control::Control;
use crate::error::BenchError;
use crate::lane::Lane;
use crate::network::conduct;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::summary::Summary;
use crate::tally::Tally;
use crate::target::Target;

use engine::{Engine, Nothing, StoreEngine};
use thread::Thread;

/// A kind of operations, formed in batches.
trait Work {
    /// Serves the lane's next operations, at most `count`.
    fn serve<E: Engine>(
        &mut self,
        engine: &mut E,
        lane: &mut Lane<'_>,
        count: usize,
        now: UnixMillis,
        tally: &mut Tally,
    );
}

/// Opens the store of `plan` and runs the load.
pub(crate) fn run(
    plan: &Plan,
    control: &Control,
    progress: &Progress,
) -> Result<Summary, BenchError> {
    let run = Run { plan, control, progress };
    if plan.target == Target::Null {
        let hasher = KeyHasher::new(workload::scramble::mix(plan.draw.seed));
        let value_len_bytes = plan.value_sizes.len_mean_bytes() as usize;
        let mut summary = run.drive(&hasher, || Ok(Nothing::new(value_len_bytes)))?;
        // With `null:` every read finds the only value.
        summary.total.mismatch_count = 0;
        return Ok(summary);
    }
    let store =
        Store::open_tuned(config::store_config(plan), plan.embedded.tuning).map_err(failed)?;
    progress.phase("touching the memory");
    touch_memory(&store);
    let times_calls = plan.embedded.times_calls;
    let mut summary = run.drive(store.key_hasher(), || {
        let session = store.session().map_err(failed)?;
        Ok(StoreEngine::new(session, times_calls))
    })?;
    summary.store = Some(store.stats());
    summary.pages = Some(store.page_kind());
    Ok(summary)
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Store { reason: error.to_string() }
}

/// The first touch of a page takes microseconds, which are the kernel's and not the store's.
fn touch_memory(store: &Arc<Store>) {
    while store.tend_memory(u64::MAX, Duration::ZERO) == Tended::Populated {}
}

struct Run<'a> {
    plan: &'a Plan,
    control: &'a Control,
    progress: &'a Progress,
}

impl Run<'_> {
    fn drive<E: Engine>(
        &self,
        hasher: &KeyHasher,
        open: impl Fn() -> Result<E, BenchError> + Sync,
    ) -> Result<Summary, BenchError> {
        let Run { plan, control, progress } = *self;
        progress.phase("drawing the trace");
        let trace = Trace::draw(&plan.draw, plan.trace_len);
        let tallies = std::thread::scope(|scope| {
            let (trace, open) = (&trace, &open);
            let threads: Vec<_> = (0..plan.thread_count)
                .map(|index| {
                    scope.spawn(move || {
                        let thread = open().and_then(|engine| {
                            Thread::new(plan, control, engine, hasher).run(trace, index)
                        });
                        if thread.is_err() {
                            control.stop();
                        }
                        thread
                    })
                })
                .collect();
            let conducted = conduct(plan, control, progress, None);
            let mut tallies = Vec::new();
            for thread in threads {
                tallies.push(thread.join().expect("a load thread panicked")?);
            }
            conducted.map(|_| tallies)
        })?;
        let mut summary = Summary::new(&tallies, None);
        let cpu_seconds = summary.total.cpu_ns.max(1) as f64 / 1e9;
        summary.ops_per_cpu_second = Some(summary.total.operation_count as f64 / cpu_seconds);
        Ok(summary)
    }
}

#[cfg(test)]
mod tests;
