//! Counters of native clients.

use super::{Cell, CommandTotals, Protocol, WorkerCounters};

/// One worker's counters of native clients, besides their commands.
#[derive(Debug, Default)]
pub struct NativeCells {
    /// Frames that arrived, including dropped ones.
    pub frames_in: Cell,
    /// Frames of replies.
    pub frames_out: Cell,
    /// Frames that were dropped, by [`DropReason`].
    drops: [Cell; DropReason::ALL.len()],
    /// Hellos that were answered with a challenge.
    pub challenges: Cell,
    /// Repeated writes that were answered with the remembered outcome.
    pub answered_again: Cell,
    /// Repeated writes that were dropped: under way, or settled.
    pub dropped_copies: Cell,
    /// Frames and requests that were answered busy (K18).
    pub busy: Cell,
    /// Of these, frames that were not executed because too many waited behind them.
    pub shed: Cell,
    /// Replies without room on their way out.
    pub lost_replies: Cell,
    /// The memory of the zone for datagrams.
    pub zone_bytes: Cell,
    /// Datagrams that were cut at a buffer's end (K20).
    pub truncated: Cell,
    /// Receives that found the zone full.
    pub starved: Cell,
    /// Datagrams that the kernel dropped because no worker took them in time.
    pub kernel_drops: Cell,
}

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It does not begin like a frame of this protocol.
    NotOurs,
    /// Its version is unknown to this server.
    Version,
    /// Its tag is wrong: the sender does not have the key.
    Tag,
    /// It is shorter than its header says.
    Truncated,
    /// It is inconsistent, or of a kind that only servers send.
    Malformed,
    /// Its session is unknown here.
    UnknownSession,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [DropReason; 6] = [
        DropReason::NotOurs,
        DropReason::Version,
        DropReason::Tag,
        DropReason::Truncated,
        DropReason::Malformed,
        DropReason::UnknownSession,
    ];

    /// As in metric labels.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::NotOurs => "not_ours",
            DropReason::Version => "version",
            DropReason::Tag => "tag",
            DropReason::Truncated => "truncated",
            DropReason::Malformed => "malformed",
            DropReason::UnknownSession => "unknown_session",
        }
    }
}

impl NativeCells {
    /// Counts a frame that is dropped.
    pub fn drop_frame(&self, reason: DropReason) {
        self.drops[reason as usize].add(1);
    }
}

/// The workers' counts of native clients, summed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeTotals {
    /// Sessions now.
    pub sessions: u64,
    /// Clients in shared memory now.
    pub shm_clients: u64,
    /// The memory of the zones for datagrams.
    pub zone_bytes: u64,
    /// The memory held for values that arrive in parts.
    pub transfer_bytes: u64,
    /// Frames that arrived.
    pub frames_in: u64,
    /// By worker: frames that arrived there.
    pub worker_frames_in: Vec<u64>,
    /// Frames of replies.
    pub frames_out: u64,
    /// Requests in the frames that arrived.
    pub requests: u64,
    /// Frames that were dropped, by reason.
    pub drops: [u64; DropReason::ALL.len()],
    /// Hellos that were answered with a challenge.
    pub challenges: u64,
    /// Repeated writes that were answered with the remembered outcome.
    pub answered_again: u64,
    /// Repeated writes that were dropped.
    pub dropped_copies: u64,
    /// Frames and requests that were answered busy.
    pub busy: u64,
    /// Of these, frames that were not executed because too many waited behind them.
    pub shed: u64,
    /// Replies without room on their way out.
    pub lost_replies: u64,
    /// Datagrams that were cut at a buffer's end.
    pub truncated: u64,
    /// Receives that found the zone full.
    pub starved: u64,
    /// Datagrams that the kernel dropped.
    pub kernel_drops: u64,
}

impl NativeTotals {
    /// The sums of native clients, with the requests that `commands` count.
    pub(super) fn of<'a>(
        commands: &[CommandTotals],
        workers: impl Iterator<Item = &'a WorkerCounters> + Clone,
    ) -> NativeTotals {
        let is_native = |command: &&CommandTotals| command.protocol == Protocol::Native;
        let requests = commands.iter().filter(is_native).map(|command| command.calls).sum();
        NativeTotals { requests, ..NativeTotals::sum(workers) }
    }

    /// Sums over workers; the caller fills in the numbers of open sessions and clients.
    pub(super) fn sum<'a>(
        workers: impl Iterator<Item = &'a WorkerCounters> + Clone,
    ) -> NativeTotals {
        let sum = |pick: fn(&NativeCells) -> &Cell| {
            workers.clone().map(|worker| pick(&worker.native).get()).sum::<u64>()
        };
        let drops = DropReason::ALL.map(|reason| {
            workers.clone().map(|worker| worker.native.drops[reason as usize].get()).sum()
        });
        let frames_in = |worker: &WorkerCounters| worker.native.frames_in.get();
        let worker_frames_in = workers.clone().map(frames_in).collect();
        NativeTotals {
            zone_bytes: sum(|native| &native.zone_bytes),
            frames_in: sum(|native| &native.frames_in),
            worker_frames_in,
            frames_out: sum(|native| &native.frames_out),
            drops,
            challenges: sum(|native| &native.challenges),
            answered_again: sum(|native| &native.answered_again),
            dropped_copies: sum(|native| &native.dropped_copies),
            busy: sum(|native| &native.busy),
            shed: sum(|native| &native.shed),
            lost_replies: sum(|native| &native.lost_replies),
            truncated: sum(|native| &native.truncated),
            starved: sum(|native| &native.starved),
            kernel_drops: sum(|native| &native.kernel_drops),
            ..NativeTotals::default()
        }
    }

    /// The counts since `baseline` was taken; the numbers of open sessions and clients stay.
    pub(super) fn since(mut self, baseline: &NativeTotals) -> NativeTotals {
        for (now, then) in self.drops.iter_mut().zip(baseline.drops) {
            *now = now.saturating_sub(then);
        }
        for (now, then) in self.worker_frames_in.iter_mut().zip(&baseline.worker_frames_in) {
            *now = now.saturating_sub(*then);
        }
        for (now, then) in [
            (&mut self.frames_in, baseline.frames_in),
            (&mut self.frames_out, baseline.frames_out),
            (&mut self.requests, baseline.requests),
            (&mut self.challenges, baseline.challenges),
            (&mut self.answered_again, baseline.answered_again),
            (&mut self.dropped_copies, baseline.dropped_copies),
            (&mut self.busy, baseline.busy),
            (&mut self.shed, baseline.shed),
            (&mut self.lost_replies, baseline.lost_replies),
            (&mut self.truncated, baseline.truncated),
            (&mut self.starved, baseline.starved),
            (&mut self.kernel_drops, baseline.kernel_drops),
        ] {
            *now = now.saturating_sub(then);
        }
        self
    }
}
