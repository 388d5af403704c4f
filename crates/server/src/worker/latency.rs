//! Where a round tells the sampler of latencies what it needs (S1, S2 of `slo`).
//!
//! A worker whose type takes no times compiles to nothing here.

use base::Instant;

use super::Worker;
use crate::connection::Ending;
use crate::engine::Home;
use crate::poller::Poller;
use crate::slo::{Round, Sampler};

/// What a worker keeps for it.
pub(super) struct Latency {
    sampler: Sampler,
    origin: std::time::Instant,
    /// Since the last round.
    pub has_slept: bool,
    /// Connections whose bytes of this round came in an earlier one.
    pub resumed: Vec<usize>,
}

impl Latency {
    pub(super) fn new(origin: std::time::Instant) -> Latency {
        Latency { sampler: Sampler::default(), origin, has_slept: false, resumed: Vec::new() }
    }

    fn at(&self, now: std::time::Instant) -> Instant {
        Instant { ns: now.duration_since(self.origin).as_nanos() as u64 }
    }
}

impl<E: Home, P: Poller> Worker<E, P> {
    /// Whether this kind of worker can take times.
    pub(super) const MEASURES: bool = E::ROUTES || P::MEASURES;

    pub(super) fn begin_latency(&mut self, started_at: std::time::Instant) {
        let round = match (self.latency.has_slept, self.rounds_without_wait) {
            (true, _) => Round::Woken,
            (false, 0) => Round::Asked,
            (false, _) => Round::Unasked,
        };
        self.latency.has_slept = false;
        let now = self.latency.at(started_at);
        self.latency.sampler.begin(now, round, self.core.shared.slo().target_ns());
    }

    /// After parsing, before what is left of the reads is put away.
    pub(super) fn watch_latency(&mut self) {
        let read_count = self.regions.len();
        let Some(first) = self.latency.sampler.wants(read_count) else {
            return self.latency.resumed.clear();
        };
        let resumed = &self.latency.resumed;
        let mut reads = self.regions[first..].iter().chain(&self.regions[..first]);
        let picked = reads.find(|read| {
            let is_answered = read.fed.get().is_some_and(|fed| fed.consumed_bytes > 0);
            is_answered && !resumed.contains(&read.slot)
        });
        if let Some(slot) = picked.map(|read| read.slot) {
            let connection = &self.core.connections[slot];
            let reply_mark = connection.awaiting.reply_mark();
            self.latency.sampler.watch(slot, connection.client.id, reply_mark);
        }
        self.latency.resumed.clear();
    }

    /// The end of a round that found something to do.
    pub(super) fn end_latency(&mut self, now: std::time::Instant) {
        let Some(watched) = self.latency.sampler.watched() else { return };
        let connection = self.core.connections.get_mut(watched.slot);
        let same = connection.filter(|found| found.client.id == watched.client_id);
        let Some(connection) = same.filter(|found| found.ending == Ending::Open) else {
            return self.latency.sampler.forget();
        };
        if !connection.awaiting.has_got(watched.reply_mark) || connection.is_lent {
            return;
        }
        let now = self.latency.at(now);
        if let Some((took_ns, target_ns)) = self.latency.sampler.answered(now) {
            self.core.counters().latency.record(took_ns, target_ns);
        }
    }
}
