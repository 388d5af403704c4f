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

impl Ending {
    /// Notes that no more roles can be taken over.
    pub(super) fn ended(&mut self) {
        self.is_ended = true;
    }

    /// Whether managers are to be told now; then it is noted as told.
    fn is_news(&mut self, is_settled: bool, now: Instant, pause_ns: u64) -> bool {
        let is_known =
            |(said, at): (bool, Instant)| said == is_settled && now < after(at, pause_ns);
        let is_news = !self.told.is_some_and(is_known);
        if is_news {
            self.told = Some((is_settled, now));
        }
        is_news
    }
}

impl<S: ReplicaStore> Node<S> {
    /// Begins an orderly shutdown of the process: asks others to serve the shards that it serves.
    /// The driver continues with ticks until [`Node::has_left`], or until its time is over.
    pub fn end(&mut self) {
        self.ending.get_or_insert(Ending { told: None, is_ended: false });
    }

    /// Whether a shutdown was requested.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether a requested shutdown no longer disturbs any client, as far as that is possible.
    pub fn has_left(&self) -> bool {
        let Some(ending) = &self.ending else { return false };
        !self.shards.have_doubts() && (ending.is_ended || !self.is_member())
    }
}

pub(super) fn tell_ending<S: ReplicaStore>(
    node: &mut Node<S>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let serves = node.shards.primaries().next().is_some();
    let is_settled = !serves && !node.shards.have_doubts();
    let pause_ns = node.settings.lease_ns / 4;
    if node.ending.as_mut().is_some_and(|ending| ending.is_news(is_settled, now, pause_ns)) {
        node.membership.tell_managers(&Message::Ending { is_settled }, actions);
    }
}
