//! The plan of a closed window: which operations collapse, which are replayed, and the one write at
//! the end.
//!
//! ```text
//!  SET a    DEL     SET b    INCR      GET       SET c     APPEND d
//!  Stored   Removed Stored   Replayed  Replayed  Stored    Replayed
//!    │       found    │      on "b"    sees it     │       on "c"
//!    └───────┴────────┴── none of these reaches the store ──┘   └─▶ one write: "cd"
//! ```
//!
//! # Invariants
//! I1: operations keep the order in which they joined, and each has exactly one reply.
//! I2: a reply equals the reply that the operation would have got if the operations had run one by
//!     one.
//! I3: the store is loaded at most once, and only if a reply or the final value depends on it.
//! I4: the store is written at most once, and never when the operations changed nothing.
//! I5: no reply leaves before that write is done. Until then readers may return the old value, and
//!     unanswered writes are concurrent with such reads (C-4 §4.3.1, Fig. 7).
//!
//! # Limits
//! When the final write fails (no memory), the collapsed operations have no replies: the driver
//! executes the plan's operations one by one, as if there had been no window.

use super::operation::{Compactable, Effect};

/// The way in which an operation of a closed window is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// A SET that collapsed: done, whatever was there.
    Stored,
    /// A DEL that collapsed; earlier operations of the window determine what it found.
    Removed {
        /// Whether there was a value to remove.
        found: bool,
    },
    /// Computed on the running value.
    Replayed,
}

/// The operations of one key in order, each with the kind of its reply. Reused from window to
/// window.
#[derive(Debug)]
pub struct Plan<Op> {
    operations: Vec<Op>,
    replies: Vec<ReplyKind>,
}

impl<Op> Default for Plan<Op> {
    fn default() -> Self {
        Plan { operations: Vec::new(), replies: Vec::new() }
    }
}

/// The knowledge about the key's value without a lookup.
#[derive(Clone, Copy)]
enum Presence {
    Known(bool),
    Unknown,
}

impl<Op: Compactable> Plan<Op> {
    /// Takes over a window's operations; the plan's earlier contents are dropped.
    pub(super) fn refill(&mut self, operations: &mut Vec<Op>) {
        self.operations.clear();
        self.operations.append(operations);
        self.replies.clear();
        let mut presence = Presence::Unknown;
        for operation in &self.operations {
            let (reply, after) = answer(operation.effect(), presence);
            self.replies.push(reply);
            presence = after;
        }
    }

    /// A plan for the given operations, in order.
    pub fn of(mut operations: Vec<Op>) -> Plan<Op> {
        let mut plan = Plan::default();
        plan.refill(&mut operations);
        plan
    }

    /// The operations and the kinds of their replies, in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = (&Op, ReplyKind)> {
        self.operations.iter().zip(self.replies.iter().copied())
    }

    /// The operations alone.
    pub fn operations(&self) -> &[Op] {
        &self.operations
    }

    /// The number of its writes that the store never sees.
    pub fn writes_compacted(&self) -> usize {
        let write_count = self.operations.iter().filter(|op| op.effect().is_write()).count();
        write_count.saturating_sub(1)
    }
}

/// The kind of an operation's reply, and the knowledge about the value behind it.
fn answer(effect: Effect, before: Presence) -> (ReplyKind, Presence) {
    match (effect, before) {
        (Effect::Set, _) => (ReplyKind::Stored, Presence::Known(true)),
        (Effect::Delete, Presence::Known(found)) => {
            (ReplyKind::Removed { found }, Presence::Known(false))
        }
        (Effect::Delete, Presence::Unknown) => (ReplyKind::Replayed, Presence::Known(false)),
        (Effect::Read, before) => (ReplyKind::Replayed, before),
        (Effect::Modify, _) => (ReplyKind::Replayed, Presence::Unknown),
    }
}
