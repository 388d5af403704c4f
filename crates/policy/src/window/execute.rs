//! Executes a closed window on a running value, with at most one load and one write.
//!
//! ```text
//!            ┌──── Stored: not looked at yet ── load when it is first needed ──┐
//!  origin ───┼──── Operation(i): what SET or DEL number i leaves ──────────────┼──▶ running value
//!            └──── Changed: a replayed operation made it ──────────────────────┘
//!
//!  at the end:  Stored ─▶ no write    Operation(i) ─▶ run operation i    Changed ─▶ put the value
//! ```
//!
//! The blind write that remains is executed as it came, so that its attributes (flags, expiry) are
//! handled as always.

use super::operation::{Compactable, Effect};
use super::plan::{Plan, ReplyKind};

/// Whether a replayed operation changed the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It did not: a read, an error, a failed condition.
    Unchanged,
    /// It changed or removed the value.
    Changed,
}

/// The one write of a window.
#[derive(Debug)]
pub enum FinalWrite<'a, Op, Value> {
    /// Execute this SET or DEL unchanged.
    Operation(&'a Op),
    /// Store this value, which `operation` was the last to change; `None` removes the key.
    Value {
        /// The last operation that changed the value.
        operation: &'a Op,
        /// The value that it left.
        value: Option<Value>,
    },
}

/// The store behind a window, and the effects of its operations.
pub trait Executor<Op> {
    /// A value outside the store, with every attribute that operations use: bytes, version, expiry.
    type Value;
    /// A reply to an operation.
    type Reply;
    /// The reason why the store refused a write.
    type Error;

    /// The store's value under the operation's key.
    fn load(&mut self, operation: &Op) -> Option<Self::Value>;

    /// The value that a SET leaves. Its version has not been assigned yet: a CAS on it must not
    /// match.
    fn value_of(&mut self, set: &Op) -> Self::Value;

    /// Executes any operation on a value.
    fn replay(&mut self, operation: &Op, value: &mut Option<Self::Value>) -> (Self::Reply, Change);

    /// The reply of a SET that collapsed.
    fn reply_stored(&mut self, set: &Op) -> Self::Reply;

    /// The reply of a DEL that collapsed.
    fn reply_removed(&mut self, delete: &Op, found: bool) -> Self::Reply;

    /// Writes to the store, once.
    fn write(&mut self, write: FinalWrite<'_, Op, Self::Value>) -> Result<(), Self::Error>;
}

/// The source of the running value; for an operation, its index.
enum Origin {
    Stored,
    Operation(usize),
    Changed(usize),
}

struct Running<Value> {
    origin: Origin,
    /// `None`: no operation has needed the value since `origin` was set.
    value: Option<Option<Value>>,
}

impl<Op: Compactable> Plan<Op> {
    /// Executes the plan and appends one reply per operation, in order. They may be sent once this
    /// has returned (I5). After an error none is appended: execute the operations one by one.
    pub fn execute<E: Executor<Op>>(
        &self,
        executor: &mut E,
        replies: &mut Vec<E::Reply>,
    ) -> Result<(), E::Error> {
        let reply_count_before = replies.len();
        let mut running = Running { origin: Origin::Stored, value: None };
        for (index, (operation, reply)) in self.steps().enumerate() {
            replies.push(match reply {
                ReplyKind::Stored => executor.reply_stored(operation),
                ReplyKind::Removed { found } => executor.reply_removed(operation, found),
                ReplyKind::Replayed => self.replay(index, executor, &mut running),
            });
            let leaves_its_own = match reply {
                ReplyKind::Stored => true,
                ReplyKind::Removed { found } => found,
                ReplyKind::Replayed => false,
            };
            if leaves_its_own {
                running = Running { origin: Origin::Operation(index), value: None };
            }
        }
        let written = self.write(executor, running);
        if written.is_err() {
            replies.truncate(reply_count_before);
        }
        written
    }

    fn replay<E: Executor<Op>>(
        &self,
        index: usize,
        executor: &mut E,
        running: &mut Running<E::Value>,
    ) -> E::Reply {
        let operation = &self.operations()[index];
        let mut value = running.value.take().unwrap_or_else(|| match running.origin {
            Origin::Stored => executor.load(operation),
            Origin::Operation(left_by) => self.value_left_by(left_by, executor),
            Origin::Changed(_) => unreachable!("a changed value is at hand"),
        });
        let (reply, change) = executor.replay(operation, &mut value);
        if change == Change::Changed {
            debug_assert!(operation.effect().is_write(), "a read changed the value");
            running.origin = Origin::Changed(index);
        }
        running.value = Some(value);
        reply
    }

    fn value_left_by<E: Executor<Op>>(&self, index: usize, executor: &mut E) -> Option<E::Value> {
        let operation = &self.operations()[index];
        (operation.effect() == Effect::Set).then(|| executor.value_of(operation))
    }

    fn write<E: Executor<Op>>(
        &self,
        executor: &mut E,
        running: Running<E::Value>,
    ) -> Result<(), E::Error> {
        match running.origin {
            Origin::Stored => Ok(()),
            Origin::Operation(index) => {
                executor.write(FinalWrite::Operation(&self.operations()[index]))
            }
            Origin::Changed(index) => {
                let operation = &self.operations()[index];
                let value = running.value.expect("a changed value is at hand");
                executor.write(FinalWrite::Value { operation, value })
            }
        }
    }
}

#[cfg(test)]
mod tests;
