//! Each worker's counters of requests that workers send to one another.

use super::totals::totals;
use super::{Cell, WorkerCounters};

/// One worker's counters.
#[derive(Debug, Default)]
pub struct ForwardingCells {
    /// Requests that the router left with the worker that received them, executed in its batch.
    pub direct: Cell,
    /// Reads of hot keys that a dispatcher executed itself.
    pub hot_hits: Cell,
    /// Reads and ranges that began at a hot key's place in the tree.
    pub hot_in_place: Cell,
    /// Requests sent to another worker.
    pub sent: Cell,
    /// The number of times that requests were published to another worker.
    pub publications: Cell,
    /// Batches taken from rings, or forwarded for native clients, and executed.
    pub batches: Cell,
    /// Requests in those batches, including those that this worker sent to itself.
    pub served: Cell,
    /// Requests that this worker took from another worker's queue and executed.
    pub stolen: Cell,
    /// Small requests that this worker took while it had nothing large to do.
    pub helped: Cell,
    /// Requests in its rings when it last took a batch, without those of the batch.
    pub queue_depth: Cell,
    /// Times that the router found no worker: each held as many as the bound allows.
    pub queues_full: Cell,
    /// Times that the router found no worker because the write table had no room.
    pub write_table_full: Cell,
    /// Times that the router found no worker because another worker writes the partition.
    pub held_elsewhere: Cell,
    /// Writes that the write table counted (d-CREW).
    pub pins: Cell,
    /// Writes that an entry redirected or delayed.
    pub pin_conflicts: Cell,
    /// Entries opened by this worker minus those it freed, as an `i64`.
    pub pins_opened: Cell,
    /// Times that the thread changed its role.
    pub role_changes: Cell,
    /// Connections that other workers handed to it.
    pub connections_taken: Cell,
    /// Requests that the first worker passed on because their item was large.
    pub handed_on: Cell,
    /// Large replies sent by the worker that serves their size.
    pub lent: Cell,
    /// Bytes of these.
    pub lent_bytes: Cell,
}

totals! {
    /// The counters summed over the workers.
    pub struct ForwardingTotals of ForwardingCells;
    counters {
        /// Requests that the router left with the worker that received them.
        direct = direct,
        /// Reads of hot keys that dispatchers executed themselves.
        hot_hits = hot_hits,
        /// Reads and ranges that began at a hot key's place in the tree.
        hot_in_place = hot_in_place,
        /// Requests sent to another worker.
        sent = sent,
        /// Times that some were published.
        publications = publications,
        /// Batches taken from rings and executed.
        batches = batches,
        /// Requests in them.
        served = served,
        /// Requests that were executed by another worker than the one they waited for.
        stolen = stolen,
        /// Small requests that idle large workers executed.
        helped = helped,
        /// Writes that the write table counted.
        pins = pins,
        /// Writes that it redirected or delayed.
        pin_conflicts = pin_conflicts,
        /// Times that a thread changed its role.
        role_changes = role_changes,
        /// Connections that moved from one worker to another.
        connections_moved = connections_taken,
        /// Times that the router found no worker: each held as many as the bound allows.
        queues_full = queues_full,
        /// Times that the router found no worker because the write table had no room.
        write_table_full = write_table_full,
        /// Times that the router found no worker because another worker writes the partition.
        held_elsewhere = held_elsewhere,
        /// Requests handed on to a large worker.
        handed_on = handed_on,
        /// Replies sent by a large worker.
        lent = lent,
        /// Their bytes.
        lent_bytes = lent_bytes,
    }
    arrays {}
    others {
        /// By worker: requests that wait in its rings.
        queue_depth: Vec<u64>,
        /// Partitions with writes outstanding.
        pins_held: u64,
    }
}

impl ForwardingTotals {
    /// Of all workers.
    pub(super) fn sum<'a>(
        workers: impl Iterator<Item = &'a WorkerCounters> + Clone,
    ) -> ForwardingTotals {
        let depth = |worker: &WorkerCounters| worker.forwardings.queue_depth.get();
        ForwardingTotals {
            queue_depth: workers.clone().map(depth).collect(),
            pins_held: held(workers.clone()),
            ..ForwardingTotals::sum_rows(workers.map(|worker| &worker.forwardings))
        }
    }

    /// Times that the router found no worker, by the metric's word for the reason.
    pub fn busy(&self) -> [(&'static str, u64); 3] {
        [
            ("queues_full", self.queues_full),
            ("write_table_full", self.write_table_full),
            ("held_elsewhere", self.held_elsewhere),
        ]
    }
}

/// The cells are read one after the other, so the sum may be off by concurrent changes.
fn held<'a>(workers: impl Iterator<Item = &'a WorkerCounters>) -> u64 {
    let opened: i64 = workers.map(|worker| worker.forwardings.pins_opened.get() as i64).sum();
    u64::try_from(opened).unwrap_or(0)
}
