//! Client-side caching in a worker's round: whether any client tracks, and when invalidations are
//! sent.
//!
//! # Invariants
//! I1: while no client tracks, a round looks at one word.
//! I2: invalidations for a gathering's changes are sent before its replies leave; those for the
//!     round's other changes at the round's end. Those that a turn has no time for follow in the
//!     next ones.

use host::poller::Poller;
use runtime::core::tell;
use runtime::engine::Home;
use sessions::tracking::is_on;

use super::Worker;

/// Takes up whether any client tracks. Called when a round begins.
#[inline]
pub(super) fn look_at_trackers<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.core.shared.tracking().word() != worker.core.telling.seen {
        take_up_tracking(worker);
    }
    worker.core.telling.begin_turn();
    if worker.core.telling.is_waiting() {
        tell::send_waiting(&mut worker.core);
    }
    if worker.core.telling.has_more() {
        tell::send_late(&mut worker.core);
    }
}

#[cold]
fn take_up_tracking<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let tracking = worker.core.shared.tracking();
    let word = tracking.word();
    worker.core.telling.seen = word;
    worker.core.is_tracked = is_on(word);
    worker.core.note_exceptions();
    worker.engine.own_session().record_changes(is_on(word));
    // Last: from now on this worker looks up the keys that it writes (tracking T2).
    worker.core.shared.tracking().set_seen(worker.core.worker.index(), word);
}

/// Sends the invalidations for changes since the last call (I2).
#[inline]
pub(super) fn tell_changes<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.core.is_tracked {
        tell_changes_now(worker);
    }
}

#[cold]
fn tell_changes_now<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    worker.engine.own_session().take_changes(&mut worker.core.telling.changes);
    tell::look_up(&mut worker.core, None);
    tell::send(&mut worker.core);
    tell::send_broadcast(&mut worker.core);
}
