//! A trace in memory, with the next access of each request.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use workload::WorkloadError;
use workload::cache_trace::{Access, CacheRequest, GeneratedRequests, TraceError};

use crate::SimError;
use crate::cache::NextUse;
use crate::cache::queues::MixHasher;

/// No further look-up.
const NONE: u32 = u32::MAX;
/// Indexes are 32 bits; there are twice as many requests in 140 GiB.
const REQUESTS_MAX: usize = u32::MAX as usize - 1;

/// Requests, and what is known of all of them.
#[derive(Debug)]
pub struct Trace {
    requests: Vec<CacheRequest>,
    /// For each request the next look-up of its key, unless a write or delete comes before.
    next_uses: Vec<u32>,
    /// Distinct keys.
    pub object_count: u64,
    /// Bytes of all distinct keys and their first values.
    pub working_set_bytes: u64,
    /// Look-ups among the requests.
    pub look_count: u64,
    /// Whether anything has a lifetime.
    pub has_ttl: bool,
}

impl Trace {
    /// At most `request_max` of these requests; `name` is for errors.
    pub fn collect(
        name: &str,
        requests: impl Iterator<Item = Result<CacheRequest, TraceError>>,
        request_max: Option<u64>,
    ) -> Result<Trace, SimError> {
        let limit = request_max.map_or(REQUESTS_MAX, |max| (max as usize).min(REQUESTS_MAX));
        let collected: Result<Vec<CacheRequest>, TraceError> = requests.take(limit).collect();
        let bad = |what: String| SimError::BadParameter { what };
        let requests = collected.map_err(|error| bad(format!("{name}: {error}")))?;
        if requests.is_empty() {
            return Err(bad(format!("{name}: no requests in it")));
        }
        Ok(Trace::new(requests))
    }

    /// The requests of a generated cluster, `twitter-1` to `twitter-54`.
    pub fn generated(
        name: &str,
        request_count: u64,
        lasting_keys: Option<u64>,
        seed: u64,
    ) -> Result<Trace, SimError> {
        let bad = |error: WorkloadError| SimError::BadParameter { what: error.to_string() };
        let number = name.strip_prefix("twitter-").and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| SimError::BadParameter {
            what: format!("`{name}` is no cluster: write twitter-1 to twitter-54"),
        })?;
        let requests = GeneratedRequests::twitter(number, request_count, lasting_keys, seed);
        Trace::collect(name, requests.map_err(bad)?.map(Ok), None)
    }

    /// Finds the future and the totals.
    pub fn new(requests: Vec<CacheRequest>) -> Trace {
        assert!(requests.len() <= REQUESTS_MAX, "indexes are 32 bits");
        let mut next_uses = vec![NONE; requests.len()];
        let mut nexts: HashMap<u64, u32, BuildHasherDefault<MixHasher>> = HashMap::default();
        let (mut look_count, mut has_ttl) = (0, false);
        for (index, request) in requests.iter().enumerate().rev() {
            let is_look = request.access == Access::Look;
            let next = if is_look { index as u32 } else { NONE };
            next_uses[index] = nexts.insert(request.key, next).unwrap_or(NONE);
            look_count += u64::from(is_look);
            has_ttl |= request.ttl_s > 0;
        }
        let object_count = nexts.len() as u64;
        let mut working_set_bytes = 0;
        for request in &requests {
            if nexts.remove(&request.key).is_some() {
                working_set_bytes += request.item_bytes();
            }
        }
        Trace { requests, next_uses, object_count, working_set_bytes, look_count, has_ttl }
    }

    /// In their order.
    pub fn requests(&self) -> &[CacheRequest] {
        &self.requests
    }

    pub(crate) fn next_use(&self, index: usize) -> Option<NextUse> {
        let next = self.next_uses[index];
        let request = self.requests.get(next as usize).filter(|_| next != NONE)?;
        Some(NextUse { at: u64::from(next), time_ms: request.time_ms })
    }
}
