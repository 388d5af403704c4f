//! Where a round gives the sampler of latencies its times (S1, S2 of `slo`).
//!
//! For a worker whose type takes no times this compiles to nothing.

use base::Instant;
use counters::{CommandIndex, Dialect};
use host::poller::Poller;
use runtime::connection::Ending;
use runtime::engine::Home;
use runtime::slo::{Round, Sampler};
use wire::Parsed;
use wire::resp::{Limits, Parser, next_command};

use super::Worker;

/// A worker's state for the sampler.
pub(super) struct Latency {
    sampler: Sampler,
    origin: std::time::Instant,
    /// Whether it has slept since the last round.
    pub has_slept: bool,
    /// Connections whose bytes of this round arrived in an earlier one.
    pub resumed: Vec<usize>,
    /// The first command of the read that is timed, if its duration is to be counted.
    command: Option<CommandIndex>,
}

impl Latency {
    pub(super) fn new(origin: std::time::Instant) -> Latency {
        Latency {
            sampler: Sampler::default(),
            origin,
            has_slept: false,
            resumed: Vec::new(),
            command: None,
        }
    }

    fn at(&self, now: std::time::Instant) -> Instant {
        Instant { ns: now.duration_since(self.origin).as_nanos() as u64 }
    }
}

/// The target without an objective.
const NO_TARGET_NS: u64 = u64::MAX;

/// The command with which a Redis client's bytes begin.
fn first_command(bytes: &[u8]) -> Option<CommandIndex> {
    match next_command(&mut Parser::default(), bytes, &Limits::new(usize::MAX)) {
        Parsed::Done { value: Ok(command), .. } => command.id().map(CommandIndex::resp),
        _ => None,
    }
}

pub(super) fn begin<E: Home, P: Poller>(worker: &mut Worker<E, P>, started_at: std::time::Instant) {
    let round = match (worker.latency.has_slept, worker.polling.has_polled()) {
        (true, _) => Round::Woken,
        (false, true) => Round::Asked,
        (false, false) => Round::Unasked,
    };
    worker.latency.has_slept = false;
    let now = worker.latency.at(started_at);
    let target_ns = match worker.core.shared.slo().target_ns() {
        // A round is not the whole time of a routed request: reads are sampled all the same.
        0 if E::ROUTES => NO_TARGET_NS,
        target_ns => target_ns,
    };
    worker.latency.sampler.begin(now, round, target_ns);
}

/// Picks a read to time. Called after parsing, before the unparsed rests are put away.
pub(super) fn time_a_read<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let read_count = worker.regions.all.len();
    let Some(first) = worker.latency.sampler.wants(read_count) else {
        return worker.latency.resumed.clear();
    };
    let resumed = &worker.latency.resumed;
    let mut reads = worker.regions.all[first..].iter().chain(&worker.regions.all[..first]);
    let picked = reads.find(|read| {
        let is_answered = read.fed.get().is_some_and(|fed| fed.consumed_bytes > fed.skipped_bytes);
        is_answered && !resumed.contains(&read.slot)
    });
    if let Some(read) = picked {
        let slot = read.slot;
        let connection = &worker.core.connections[slot];
        let is_counted = E::ROUTES && connection.client.protocol == Dialect::Resp;
        let bytes = read.taken(&worker.regions.arena).unwrap_or_default();
        worker.latency.command = if is_counted { first_command(bytes) } else { None };
        let reply_mark = connection.awaiting.reply_mark();
        worker.latency.sampler.start(slot, connection.client.id, reply_mark);
    }
    worker.latency.resumed.clear();
}

/// Called at the end of a round that found work.
pub(super) fn end<E: Home, P: Poller>(worker: &mut Worker<E, P>, now: std::time::Instant) {
    let Some(timed) = worker.latency.sampler.timed() else { return };
    let connection = worker.core.connections.get_mut(timed.slot);
    let same = connection.filter(|found| found.client.id == timed.client_id);
    let Some(connection) = same.filter(|found| found.ending == Ending::Open) else {
        return worker.latency.sampler.forget();
    };
    if !connection.awaiting.has_got(timed.reply_mark) || connection.is_lent {
        return;
    }
    let now = worker.latency.at(now);
    if let Some((took_ns, target_ns)) = worker.latency.sampler.answered(now) {
        let counters = worker.core.counters();
        if target_ns != NO_TARGET_NS {
            counters.latency.record(took_ns, target_ns);
        }
        if let Some(command) = worker.latency.command.take() {
            let cells = &counters.durations[command.position()];
            cells.get_or_init(Box::default).record_many(took_ns, 1);
        }
    }
}
