//! `--idle-timeout`: closes connections that neither send nor take the output that waits for them.
//!
//! ```text
//!  pass: slots 0..255, 256..511, ... a part per housekeeping step ─▶ the earliest end of all
//!  next pass: at that time, or when the setting has changed
//! ```
//!
//! # Invariants
//! I1: a connection is closed only if for as long as the setting says no byte was read from it and
//!     none was sent to it. It is never closed while other threads execute its requests, nor if it
//!     only listens: a MONITOR, an event stream, a subscriber (as in Redis). Invalidation messages
//!     to a tracking client count as its own traffic.
//! I2: without the setting, a pass costs one comparison per housekeeping; with it, an idle worker
//!     wakes when the next connection is due, and not before.

use std::time::Duration;

use base::UnixMillis;
use host::poller::Poller;
use runtime::connection::{Connection, Ending};
use runtime::engine::Home;

use super::{Worker, finish};

/// Connections that one step examines: some 10 us, if none is in the cache.
const STEP_SLOTS: usize = 256;
/// Time until an overdue connection that was spared is examined again.
const SPARED_MS: u64 = 1000;
/// Time between two passes.
const PASS_EVERY_MS: u64 = 50;

/// The progress of this worker's pass.
#[derive(Debug, Default)]
pub(super) struct IdlePass {
    /// The setting for which the other fields hold, in milliseconds; 0: off.
    timeout_ms: u64,
    /// Where the pass continues; 0: between two of them.
    next_slot: usize,
    /// The earliest end among the connections that this pass has examined.
    earliest_ms: u64,
    /// When the next pass begins.
    next_at_ms: u64,
}

impl IdlePass {
    /// How long no connection is due.
    pub(super) fn sleep_max(&self, timeout_ms: u64, now: UnixMillis) -> Option<Duration> {
        if timeout_ms == 0 {
            return None;
        }
        let is_changed = timeout_ms != self.timeout_ms;
        let at_ms = if is_changed || self.next_slot > 0 { 0 } else { self.next_at_ms };
        Some(Duration::from_millis(at_ms.saturating_sub(now.0).max(1)))
    }
}

/// Does a step of the pass, if one is due.
pub(super) fn close_some<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let timeout_ms = worker.core.shared.live().idle_timeout_ms();
    if timeout_ms == 0 && worker.idle.timeout_ms == 0 {
        return; // I2
    }
    step(worker, timeout_ms);
}

#[cold]
fn step<E: Home, P: Poller>(worker: &mut Worker<E, P>, timeout_ms: u64) {
    let now_ms = worker.core.now.0;
    if timeout_ms != worker.idle.timeout_ms {
        worker.idle = IdlePass { timeout_ms, earliest_ms: u64::MAX, ..IdlePass::default() };
    }
    if timeout_ms == 0 || (worker.idle.next_slot == 0 && now_ms < worker.idle.next_at_ms) {
        return;
    }
    let first = worker.idle.next_slot;
    for slot in first..first + STEP_SLOTS {
        let Some(connection) = worker.core.connections.get(slot) else { continue };
        let due_ms = connection.client.last_active_at().0.saturating_add(timeout_ms);
        if due_ms <= now_ms && is_idle(worker, connection) {
            tracing::debug!(client = connection.client.id, "closed: idle");
            worker.core.counters().idle_closed.add(1);
            finish::close(worker, slot);
        } else {
            // An overdue connection that was spared is examined again after a while.
            let due_ms = if due_ms <= now_ms { now_ms + SPARED_MS } else { due_ms };
            worker.idle.earliest_ms = worker.idle.earliest_ms.min(due_ms);
        }
    }
    worker.idle.next_slot = first + STEP_SLOTS;
    if worker.idle.next_slot < worker.core.connections.end() {
        return;
    }
    // A connection that arrives from now on is due later than any could be now.
    let latest_ms = now_ms.saturating_add(timeout_ms);
    worker.idle.next_at_ms = worker.idle.earliest_ms.min(latest_ms).max(now_ms + PASS_EVERY_MS);
    (worker.idle.next_slot, worker.idle.earliest_ms) = (0, u64::MAX);
}

/// Whether a connection may be closed as idle (I1).
fn is_idle<E: Home, P: Poller>(worker: &Worker<E, P>, connection: &Connection) -> bool {
    let is_served = !connection.awaiting.is_empty() || connection.is_lent;
    connection.ending != Ending::Now
        && !is_served
        && connection.exchange.is_none()
        && worker.core.pauses.current().is_none()
        && !connection.client.is_subscribed()
        && !worker.core.shared.observations().monitors.has(connection.client.id)
        && !worker.core.shared.observations().event_stream.has(connection.client.id)
}
