//! Each worker's counters of requests that workers send to one another.

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
    /// Batches taken from rings and executed.
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

/// The counters summed over the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardingTotals {
    /// Requests that the router left with the worker that received them.
    pub direct: u64,
    /// Reads of hot keys that dispatchers executed themselves.
    pub hot_hits: u64,
    /// Reads and ranges that began at a hot key's place in the tree.
    pub hot_in_place: u64,
    /// Requests sent to another worker.
    pub sent: u64,
    /// Times that some were published.
    pub publications: u64,
    /// Batches taken from rings and executed.
    pub batches: u64,
    /// Requests in them.
    pub served: u64,
    /// Requests that were executed by another worker than the one they waited for.
    pub stolen: u64,
    /// Small requests that idle large workers executed.
    pub helped: u64,
    /// By worker: requests that wait in its rings.
    pub queue_depth: Vec<u64>,
    /// Writes that the write table counted.
    pub pins: u64,
    /// Writes that it redirected or delayed.
    pub pin_conflicts: u64,
    /// Partitions with writes outstanding.
    pub pins_held: u64,
    /// Times that a thread changed its role.
    pub role_changes: u64,
    /// Connections that moved from one worker to another.
    pub connections_moved: u64,
    /// Times that the router found no worker, by the metric's word for the reason.
    pub busy: [(&'static str, u64); 3],
    /// Requests handed on to a large worker.
    pub handed_on: u64,
    /// Replies sent by a large worker.
    pub lent: u64,
    /// Their bytes.
    pub lent_bytes: u64,
}

impl ForwardingTotals {
    pub(super) fn sum<'a>(
        workers: impl Iterator<Item = &'a WorkerCounters> + Clone,
    ) -> ForwardingTotals {
        let sum = |pick: fn(&ForwardingCells) -> &Cell| {
            workers.clone().map(|worker| pick(&worker.forwardings).get()).sum::<u64>()
        };
        ForwardingTotals {
            direct: sum(|forwardings| &forwardings.direct),
            hot_hits: sum(|forwardings| &forwardings.hot_hits),
            hot_in_place: sum(|forwardings| &forwardings.hot_in_place),
            sent: sum(|forwardings| &forwardings.sent),
            publications: sum(|forwardings| &forwardings.publications),
            batches: sum(|forwardings| &forwardings.batches),
            served: sum(|forwardings| &forwardings.served),
            stolen: sum(|forwardings| &forwardings.stolen),
            helped: sum(|forwardings| &forwardings.helped),
            queue_depth: workers
                .clone()
                .map(|worker| worker.forwardings.queue_depth.get())
                .collect(),
            pins: sum(|forwardings| &forwardings.pins),
            pin_conflicts: sum(|forwardings| &forwardings.pin_conflicts),
            pins_held: held(workers.clone()),
            role_changes: sum(|forwardings| &forwardings.role_changes),
            connections_moved: sum(|forwardings| &forwardings.connections_taken),
            busy: [
                ("queues_full", sum(|forwardings| &forwardings.queues_full)),
                ("write_table_full", sum(|forwardings| &forwardings.write_table_full)),
                ("held_elsewhere", sum(|forwardings| &forwardings.held_elsewhere)),
            ],
            handed_on: sum(|forwardings| &forwardings.handed_on),
            lent: sum(|forwardings| &forwardings.lent),
            lent_bytes: sum(|forwardings| &forwardings.lent_bytes),
        }
    }

    /// The counts since `baseline`; the depths are the present ones.
    pub(super) fn since(mut self, baseline: &ForwardingTotals) -> ForwardingTotals {
        for (now, then) in [
            (&mut self.direct, baseline.direct),
            (&mut self.hot_hits, baseline.hot_hits),
            (&mut self.hot_in_place, baseline.hot_in_place),
            (&mut self.sent, baseline.sent),
            (&mut self.publications, baseline.publications),
            (&mut self.batches, baseline.batches),
            (&mut self.served, baseline.served),
            (&mut self.stolen, baseline.stolen),
            (&mut self.helped, baseline.helped),
            (&mut self.pins, baseline.pins),
            (&mut self.pin_conflicts, baseline.pin_conflicts),
            (&mut self.role_changes, baseline.role_changes),
            (&mut self.connections_moved, baseline.connections_moved),
            (&mut self.handed_on, baseline.handed_on),
            (&mut self.lent, baseline.lent),
            (&mut self.lent_bytes, baseline.lent_bytes),
        ] {
            *now = now.saturating_sub(then);
        }
        for ((_, now), (_, then)) in self.busy.iter_mut().zip(&baseline.busy) {
            *now = now.saturating_sub(*then);
        }
        self
    }
}

/// The cells are read one after the other, so the sum may be off by concurrent changes.
fn held<'a>(workers: impl Iterator<Item = &'a WorkerCounters>) -> u64 {
    let opened: i64 = workers.map(|worker| worker.forwardings.pins_opened.get() as i64).sum();
    u64::try_from(opened).unwrap_or(0)
}
