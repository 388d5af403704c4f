//! The durations of commands, taken from the two clock readings that a round makes anyway.
//!
//! ```text
//!  wait ─▶│ read ─ gather ─ execute ─ ... ─ send │─▶ wait
//!         └──────────── one round ───────────────┘
//!           durations: each command of the round took all of it (last byte in to last byte out)
//!           spent:     the commands share it (what commandstats calls usec)
//! ```
//!
//! # Invariants
//! T1: a request sets one bit; the counts of calls at the end of a round tell which commands ran,
//!     and how often.
//! T2: the sum of the time spent by commands is at most the worker's busy time.
//!
//! # Limits
//! A command's time begins with the round that read its last byte. A command that came while the
//! worker was busy has waited in the socket before; `--slo` samples that wait. Where requests are
//! routed, a round ends before the answers of the other workers are in: there, durations are those
//! of the sampled reads.
//!
//! # References
//! Decision 0041 for the samples; the classes are those of [`counters::LatencyCells`].

use std::time::{Duration, Instant};

use commands::work::Work;
use counters::latency_monitor::Kind;
use counters::{CommandIndex, WorkerCounters};
use sessions::slow_log::{cut_args, is_timed_alone};
use wire::Parsed;
use wire::resp::{Limits, Parser, Spec};

use crate::core::Core;

/// A worker's state for timing.
#[derive(Debug)]
pub struct Timing {
    /// Calls of each command at the end of the last round.
    seen: Box<[u64]>,
    /// Commands of this round, with their calls.
    ran: Vec<(usize, u64)>,
    /// The time in this round of commands that ran by themselves.
    alone: Duration,
    /// The same time in this gathering, so that the time of its batches can be computed.
    alone_in_batch: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            seen: vec![0; CommandIndex::COUNT].into_boxed_slice(),
            ran: Vec::new(),
            alone: Duration::ZERO,
            alone_in_batch: Duration::ZERO,
        }
    }
}

impl Timing {
    /// Ends a round that took `took`; `is_whole`: its commands were answered in it.
    pub fn close_round(&mut self, counters: &WorkerCounters, took: Duration, is_whole: bool) {
        let alone = std::mem::take(&mut self.alone);
        self.alone_in_batch = Duration::ZERO;
        self.ran.clear();
        let (seen, ran) = (&mut self.seen, &mut self.ran);
        let mut shared_calls = 0;
        counters.take_ran(|index| {
            let calls = counters.commands[index].calls.get();
            let count = calls.wrapping_sub(std::mem::replace(&mut seen[index], calls));
            shared_calls += if is_alone(index) { 0 } else { count };
            ran.push((index, count));
        });
        let took_ns = nanoseconds(took);
        let share_ns = nanoseconds(took.saturating_sub(alone)).checked_div(shared_calls);
        for (index, count) in ran.iter().copied() {
            if let Some(share_ns) = share_ns.filter(|_| !is_alone(index)) {
                counters.spent_ns[index].add(share_ns * count);
            }
            if is_whole {
                counters.durations[index].get_or_init(Box::default).record_many(took_ns, count);
            }
        }
    }

    /// Ends a gathering; returns the part of its time that its batches took.
    pub fn close_batch(&mut self, took: Duration) -> Duration {
        took.saturating_sub(std::mem::take(&mut self.alone_in_batch))
    }
}

/// Whether the command at a position is timed by itself.
fn is_alone(index: usize) -> bool {
    Spec::all().get(index).is_some_and(is_timed_alone)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Records a command that ran by itself; `raw` are its bytes.
pub fn ran_alone(core: &mut Core, slot: usize, index: CommandIndex, began: Instant, raw: &[u8]) {
    let took = began.elapsed();
    core.charge(Work::elapsed(took));
    core.timing.alone += took;
    core.timing.alone_in_batch += took;
    core.counters().spent_ns[index.position()].add(nanoseconds(took));
    let shared = &core.shared;
    if shared.observations().latency_monitor.threshold().is_some_and(|threshold| took >= threshold)
    {
        shared.observations().latency_monitor.add(Kind::Command, core.now, took);
    }
    if shared.observations().slow_log.threshold().is_some_and(|threshold| took >= threshold) {
        log_alone(core, slot, took, raw);
    }
}

#[cold]
fn log_alone(core: &Core, slot: usize, took: Duration, raw: &[u8]) {
    // Its limits were checked when it was framed.
    let parsed = Parser::default().parse(raw, &Limits::new(usize::MAX));
    let (Parsed::Done { value, .. }, Some(connection)) = (parsed, core.connections.get(slot))
    else {
        return;
    };
    let args = cut_args(value.iter(), 0);
    core.shared.observations().slow_log.add(&connection.client, core.now, took, args);
}

/// The commands of one gathering.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    longest: Option<(usize, &'a [u8])>,
    count: usize,
}

impl<'a> Batch<'a> {
    /// Adds the bytes that a Redis client sent and that were executed.
    pub fn add(&mut self, slot: usize, mut bytes: &'a [u8]) {
        let limits = Limits::new(usize::MAX);
        while !bytes.is_empty() {
            let parsed = Parser::default().parse(bytes, &limits);
            let Parsed::Done { value, consumed_bytes } = parsed else { return };
            let (raw, rest) = bytes.split_at(consumed_bytes);
            bytes = rest;
            let name = value.get(0).unwrap_or_default();
            if Spec::by_name(name).is_none_or(is_timed_alone) {
                continue;
            }
            self.count += 1;
            if self.longest.is_none_or(|(_, longest)| raw.len() > longest.len()) {
                self.longest = Some((slot, raw));
            }
        }
    }

    /// Logs a batch that took too long.
    pub fn log(&self, core: &Core, took: Duration) {
        let Some((slot, raw)) = self.longest else { return };
        let parsed = Parser::default().parse(raw, &Limits::new(usize::MAX));
        let (Parsed::Done { value, .. }, Some(connection)) = (parsed, core.connections.get(slot))
        else {
            return;
        };
        let args = cut_args(value.iter(), self.count - 1);
        core.shared.observations().slow_log.add(&connection.client, core.now, took, args);
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::CommandId;

    use super::*;

    const ROUND: Duration = Duration::from_micros(100);

    fn spent(counters: &WorkerCounters, id: CommandId) -> u64 {
        counters.spent_ns[CommandIndex::resp(id).position()].get()
    }

    fn durations(counters: &WorkerCounters, id: CommandId) -> Option<(u64, u64)> {
        let cells = counters.durations[CommandIndex::resp(id).position()].get()?;
        let counts = counters::LatencyCounts::sum([&**cells].into_iter());
        Some((counts.samples, counts.sum_ns))
    }

    #[test]
    fn commands_share_a_round_and_each_took_all_of_it() {
        let (counters, mut timing) = (WorkerCounters::new(), Timing::default());
        for id in [CommandId::Get, CommandId::Get, CommandId::Set, CommandId::Get] {
            counters.called(CommandIndex::resp(id));
        }
        timing.close_round(&counters, ROUND, true);
        assert_eq!(spent(&counters, CommandId::Get), 75_000);
        assert_eq!(spent(&counters, CommandId::Set), 25_000);
        assert_eq!(durations(&counters, CommandId::Get), Some((3, 300_000)));
        assert_eq!(durations(&counters, CommandId::Ping), None);
        counters.called(CommandIndex::resp(CommandId::Set));
        timing.close_round(&counters, ROUND, false);
        assert_eq!(spent(&counters, CommandId::Set), 125_000);
        assert_eq!(durations(&counters, CommandId::Set), Some((1, 100_000)), "not whole");
    }

    #[test]
    fn what_runs_by_itself_has_no_part_in_what_is_shared() {
        let (counters, mut timing) = (WorkerCounters::new(), Timing::default());
        counters.called(CommandIndex::resp(CommandId::Get));
        counters.called(CommandIndex::resp(CommandId::Keys));
        timing.alone = Duration::from_micros(90);
        timing.alone_in_batch = Duration::from_micros(90);
        assert_eq!(timing.close_batch(ROUND), Duration::from_micros(10));
        timing.close_round(&counters, ROUND, true);
        assert_eq!(spent(&counters, CommandId::Get), 10_000);
        assert_eq!(spent(&counters, CommandId::Keys), 0, "counted where it ran");
        assert_eq!(durations(&counters, CommandId::Keys), Some((1, 100_000)));
    }

    #[test]
    fn the_longest_command_stands_for_a_batch() {
        let mut batch = Batch::default();
        batch.add(
            3,
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nKEYS *********************\r\nSET a 1234567\r\n",
        );
        batch.add(4, b"GET bb\r\nGE");
        let (slot, raw) = batch.longest.unwrap();
        assert_eq!((batch.count, slot), (3, 3));
        assert!(raw.starts_with(b"*2"), "{raw:?}");
    }
}
