//! Orderly shutdown of a server: it asks others to take over first.
//!
//! ```text
//!  end() ─▶ Ending ──▶ managers     ◀── Install: others serve
//!           nothing in doubt: Ending, settled ──▶   ◀── Install: no member; or Ended
//!                                                  has_left(): the process may go
//! ```
//!
//! # Invariants
//! E1: until it has left, the server serves and keeps its data like any other: a process that exits
//!     without waiting loses nothing but time.

use base::Instant;

use crate::message::Message;
use crate::node::{Action, Node};
use crate::replica_store::ReplicaStore;
use crate::settings::after;

/// The last message sent about the shutdown.
#[derive(Debug)]
pub(super) struct Ending {
    told: Option<(bool, Instant)>,
    /// Whether a manager said that no more roles can be taken over.
    is_ended: bool,
}

impl<S: ReplicaStore> Node<S> {
    /// Begins an orderly shutdown of the process: asks others to serve the shards that it serves.
    /// The driver continues with ticks until [`Node::has_left`], or until its time is over.
    pub fn end(&mut self) {
        self.ending.get_or_insert(Ending { told: None, is_ended: false });
    }

    /// Whether the node is a member of the installed configuration.
    pub fn is_member(&self) -> bool {
        self.configuration.as_ref().is_some_and(|all| all.has(self.id))
    }

    /// Whether a shutdown was requested.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether a requested shutdown no longer disturbs any client, as far as that is possible.
    pub fn has_left(&self) -> bool {
        let Some(ending) = &self.ending else { return false };
        let owes = self.shards.values().any(|state| !state.in_doubt.is_empty());
        !owes && (ending.is_ended || !self.is_member())
    }

    pub(super) fn tell_ending(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let serves = self.shards.values().any(|state| state.primary.is_some());
        let owes = self.shards.values().any(|state| !state.in_doubt.is_empty());
        let is_settled = !serves && !owes;
        let pause_ns = self.settings.lease_ns / 4;
        let Some(ending) = &mut self.ending else { return };
        let is_known =
            |(said, at): (bool, Instant)| said == is_settled && now < after(at, pause_ns);
        if ending.told.is_some_and(is_known) {
            return;
        }
        ending.told = Some((is_settled, now));
        self.tell_managers(&Message::Ending { is_settled }, actions);
    }

    pub(super) fn ended(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.is_ended = true;
        }
    }
}
