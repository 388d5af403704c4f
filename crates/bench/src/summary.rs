//! The measured results of a run, in the form that the reports need.

use hdrhistogram::Histogram;
use store::{PageKind, StoreStats};

use crate::tally::Tally;

/// The server's CPU time in the measured window.
#[derive(Clone, Debug)]
pub(crate) struct ServerCpu {
    pub(crate) pids: Vec<u32>,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
}

/// The counts of all threads, with the figures derived from them.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) total: Tally,
    pub(crate) thread_count: usize,
    /// `None`: the server is elsewhere, or the store is in this process.
    pub(crate) server_cpu: Option<ServerCpu>,
    /// Operations per second of CPU time: the embedded store only.
    pub(crate) ops_per_cpu_second: Option<f64>,
    /// The state of the embedded store at the end.
    pub(crate) store: Option<StoreStats>,
    /// The pages of its memory.
    pub(crate) pages: Option<PageKind>,
    pub(crate) was_interrupted: bool,
}

impl Summary {
    /// Adds the threads up.
    ///
    /// # Panics
    /// When there is no thread.
    pub(crate) fn new(tallies: &[Tally], server_cpu: Option<ServerCpu>) -> Summary {
        let (first, others) = tallies.split_first().expect("a run has a thread");
        let mut total = first.clone();
        for other in others {
            total.merge(other);
        }
        Summary {
            total,
            thread_count: tallies.len(),
            server_cpu,
            ops_per_cpu_second: None,
            store: None,
            pages: None,
            was_interrupted: false,
        }
    }

    /// The server's CPU time per operation.
    pub(crate) fn server_cpu_ns_per_op(&self) -> Option<f64> {
        let cpu = self.server_cpu.as_ref()?;
        let count = self.total.operation_count;
        (count > 0).then(|| cpu.cpu_ns as f64 / count as f64)
    }

    /// The server's CPU time in cores.
    pub(crate) fn server_cpu_share(&self) -> Option<f64> {
        let cpu = self.server_cpu.as_ref()?;
        Some(cpu.cpu_ns as f64 / cpu.wall_ns.max(1) as f64)
    }

    /// A client thread's CPU time in cores, on average; near 1 the client may be what limits the
    /// run.
    pub(crate) fn client_cpu_share(&self) -> f64 {
        let wall_ns = self.total.wall_seconds() * 1e9 * self.thread_count as f64;
        self.total.cpu_ns as f64 / wall_ns
    }

    /// The latency of quantile `quantile` (0 to 1).
    pub(crate) fn latency_us(&self, quantile: f64) -> f64 {
        quantile_us(&self.total.latency_ns, quantile)
    }

    /// The latencies of small values and of large ones, where the run had both. A request without
    /// an answer counts as small, so that no server looks better for it.
    pub(crate) fn latency_ns_by_size(&self) -> Option<[Histogram<u64>; 2]> {
        let large = self.total.latency_large_ns.clone();
        let mut small = self.total.latency_ns.clone();
        small.subtract(&large).expect("large values are among all");
        (!large.is_empty() && !small.is_empty()).then_some([small, large])
    }
}

pub(crate) fn quantile_us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    let found = histogram.value_at_quantile(quantile);
    // A bucket's upper edge may lie above the largest value in it.
    found.min(histogram.max()) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_told_apart_by_size_where_there_are_both() {
        let mut tally = Tally::new();
        tally.answer(1_000, false);
        let by_size = |tally: &Tally| {
            Summary::new(std::slice::from_ref(tally), None)
                .latency_ns_by_size()
                .map(|of| of.map(|latency_ns| (latency_ns.len(), latency_ns.max() / 1_000)))
        };
        assert_eq!(by_size(&tally), None, "there is no large value");
        tally.answer(500_000, true);
        tally.give_up(2_000);
        assert_eq!(by_size(&tally), Some([(2, 2), (1, 500)]));
    }
}
