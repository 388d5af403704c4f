//! Counters of native clients.

use super::totals::totals;
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

totals! {
    /// The workers' counts of native clients, summed.
    pub struct NativeTotals of NativeCells;
    counters {
        /// Frames that arrived.
        frames_in = frames_in,
        /// Frames of replies.
        frames_out = frames_out,
        /// Hellos that were answered with a challenge.
        challenges = challenges,
        /// Repeated writes that were answered with the remembered outcome.
        answered_again = answered_again,
        /// Repeated writes that were dropped.
        dropped_copies = dropped_copies,
        /// Frames and requests that were answered busy.
        busy = busy,
        /// Of these, frames that were not executed because too many waited behind them.
        shed = shed,
        /// Replies without room on their way out.
        lost_replies = lost_replies,
        /// Datagrams that were cut at a buffer's end.
        truncated = truncated,
        /// Receives that found the zone full.
        starved = starved,
        /// Datagrams that the kernel dropped.
        kernel_drops = kernel_drops,
    }
    arrays {
        /// Frames that were dropped, by reason.
        drops = drops: DropReason::ALL.len(),
    }
    others {
        /// Sessions now.
        sessions: u64,
        /// Clients in shared memory now.
        shm_clients: u64,
        /// The memory of the zones for datagrams.
        zone_bytes: u64,
        /// The memory held for values that arrive in parts.
        transfer_bytes: u64,
        /// By worker: frames that arrived there.
        worker_frames_in: Vec<u64>,
        /// Requests in the frames that arrived.
        requests: u64,
    }
}

impl NativeTotals {
    /// The sums of native clients, with the requests that `commands` count; the caller fills in the
    /// numbers of open sessions and clients.
    pub(super) fn of<'a>(
        commands: &[CommandTotals],
        workers: impl Iterator<Item = &'a WorkerCounters> + Clone,
    ) -> NativeTotals {
        let is_native = |command: &&CommandTotals| command.protocol == Protocol::Native;
        let cells = workers.map(|worker| &worker.native);
        NativeTotals {
            requests: commands.iter().filter(is_native).map(|command| command.calls).sum(),
            zone_bytes: cells.clone().map(|native| native.zone_bytes.get()).sum(),
            worker_frames_in: cells.clone().map(|native| native.frames_in.get()).collect(),
            ..NativeTotals::sum_rows(cells)
        }
    }

    /// The counts since `baseline` was taken; the numbers of open sessions and clients stay.
    pub(super) fn since(mut self, baseline: &NativeTotals) -> NativeTotals {
        self.subtract(baseline);
        self.requests = self.requests.saturating_sub(baseline.requests);
        for (now, then) in self.worker_frames_in.iter_mut().zip(&baseline.worker_frames_in) {
            *now = now.saturating_sub(*then);
        }
        self
    }
}
