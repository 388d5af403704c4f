//! Client-side caching in a worker's round: whether any client tracks, and when invalidations are
//! sent.
//!
//! # Invariants
//! I1: while no client tracks, a round looks at one word.
//! I2: invalidations for a gathering's changes are sent before its replies leave; those for the
//!     round's other changes at the round's end. Those that a turn has no time for follow in the
//!     next ones.

use host::poller::Poller;
use runtime::engine::Home;
use sessions::tracking::is_on;

use super::Worker;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Takes up whether any client tracks. Called when a round begins.
    #[inline]
    pub(super) fn look_at_trackers(&mut self) {
        if self.core.shared.tracking().word() != self.core.telling.seen {
            self.take_up_tracking();
        }
        self.core.telling.begin_turn();
        if self.core.telling.is_waiting() {
            self.core.tell_waiting();
        }
        if self.core.telling.has_more() {
            self.core.tell_late();
        }
    }

    #[cold]
    fn take_up_tracking(&mut self) {
        let tracking = self.core.shared.tracking();
        let word = tracking.word();
        self.core.telling.seen = word;
        self.core.is_tracked = is_on(word);
        self.core.note_exceptions();
        self.engine.own_session().record_changes(is_on(word));
        // Last: from now on this worker looks up the keys that it writes (tracking T2).
        self.core.shared.tracking().set_seen(self.core.worker.index(), word);
    }

    /// Sends the invalidations for changes since the last call (I2).
    #[inline]
    pub(super) fn tell_changes(&mut self) {
        if self.core.is_tracked {
            self.tell_changes_now();
        }
    }

    #[cold]
    fn tell_changes_now(&mut self) {
        self.engine.own_session().take_changes(&mut self.core.telling.changes);
        self.core.look_up_changes(None);
        self.core.tell();
        self.core.tell_broadcast();
    }
}
