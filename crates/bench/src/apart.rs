//! Requests for large values on threads and connections of their own (`--large-threads`).
//!
//! ```text
//!  due requests ─┬ value up to 1400 bytes ─▶ --threads,       --connections
//!  (open loop)   └ larger                 ─▶ --large-threads, as many connections a thread
//! ```
//!
//! A thread that reads 500 KB, and a connection behind such a reply, delay small requests in the
//! client: then no server shows better latencies than the client's own. Each class has its own
//! clock with its share of the rate: the arrivals of all together are the same Poisson process.
//!
//! Threads of large values run at the lowest priority: where both share a core, small requests
//! find it free.

use workload::{Operation, Trace, ValueSizes};

use crate::error::BenchError;
use crate::items::is_large;

/// The requests of a trace that a thread sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes<'a> {
    All,
    Small(&'a ValueSizes),
    Large(&'a ValueSizes),
}

impl Takes<'_> {
    /// Whether requests for this key are among them.
    #[inline]
    pub(crate) fn has(self, id: u64) -> bool {
        match self {
            Takes::All => true,
            Takes::Small(sizes) => !is_large(sizes, id),
            Takes::Large(sizes) => is_large(sizes, id),
        }
    }

    /// The part of the trace's requests that are among them. A trace without one is refused.
    pub(crate) fn share(self, trace: &Trace) -> Result<f64, BenchError> {
        if matches!(self, Takes::All) {
            return Ok(1.0);
        }
        let mut cursor = trace.cursor(0, 1);
        let count = (0..trace.len()).filter(|_| self.has_request(cursor.advance())).count();
        if count == 0 {
            let size = if matches!(self, Takes::Small(_)) { "up to" } else { "above" };
            return Err(BenchError::usage(format!(
                "--large-threads: no request of this workload is for a value {size} 1400 bytes"
            )));
        }
        Ok(count as f64 / trace.len() as f64)
    }

    fn has_request(self, operation: Operation) -> bool {
        match operation {
            Operation::Read(id) | Operation::Update(id) | Operation::ReadModifyWrite(id) => {
                self.has(id)
            }
            Operation::Scan { id, .. } => self.has(id),
            // The plan refuses workloads with inserts.
            Operation::ReadLatest(_) | Operation::Insert => false,
        }
    }
}

/// Gives way to the process's other threads.
pub(crate) fn give_way() {
    const LOWEST: i32 = 19;
    // On Linux "the process" of this call is the calling thread; to give way is always allowed.
    let _ = rustix::process::setpriority_process(None, LOWEST);
}

#[cfg(test)]
mod tests {
    use workload::Profile;

    use super::*;
    use crate::lane::{Lane, Step};

    #[test]
    fn lanes_split_a_trace_by_the_size_of_values() {
        let profile: Profile = "minos".parse().unwrap();
        let trace = Trace::draw(&profile.draw(20_000, 1), 200_000);
        let sizes: ValueSizes = "64:1599,2000:1".parse().unwrap();
        let (small, large) = (Takes::Small(&sizes), Takes::Large(&sizes));
        let shares = (small.share(&trace).unwrap(), large.share(&trace).unwrap());
        assert!((shares.0 + shares.1 - 1.0).abs() < 1e-9 && shares.1 > 0.0, "{shares:?}");
        for (takes, want_large) in [(small, false), (large, true)] {
            let mut lane = Lane::new(trace.cursor(1, 3), 1, 3, 20_000, takes);
            for _ in 0..100 {
                let (Step::Read(id) | Step::Update(id)) = lane.advance() else {
                    panic!("not in the mix")
                };
                assert_eq!(is_large(&sizes, id), want_large);
                assert_eq!(is_large(&sizes, lane.advance_id()), want_large);
            }
        }
        let sizes: ValueSizes = "64".parse().unwrap();
        let error = Takes::Large(&sizes).share(&trace).unwrap_err().to_string();
        assert!(error.contains("above 1400 bytes"), "{error}");
        let sizes: ValueSizes = "2000".parse().unwrap();
        assert!(Takes::Small(&sizes).share(&trace).is_err());
    }
}
