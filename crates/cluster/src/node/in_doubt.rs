//! Writes in doubt: those under way when their primary ceased to be one. Each is answered once its
//! outcome is known.
//!
//! ```text
//!  primary, epoch 4:  write 9 lands ─┐ a new epoch
//!  backup:            9 is on the own replica store, so it is in the union that all copies get
//!                     CommitVer of epoch 5 has come: 9 is on all copies ─▶ its answer
//! ```
//!
//! So a planned move, or a primary whose lease had ended for a moment, leaves no client in doubt.
//!
//! # Invariants
//! A1: a write in doubt is in this node's replica store, and this node has been a full copy ever
//!     since: each promotion gathers it. So once CommitVer has reached its version it is on all
//!     copies, in its place in the order, and the answer computed for it is true.
//! A2: a node that ceases to be a copy, or receives nothing for long, answers that the outcome is
//!     unknown.

use base::Instant;

use crate::ids::{ClientId, Version};
use crate::message::Outcome;
use crate::node::Action;
use crate::node::requests::to_client;

/// The writes in doubt of one shard.
#[derive(Debug, Default)]
pub(super) struct InDoubt(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    version: Version,
    reply_to: (ClientId, u64),
    outcome: Outcome,
    since: Instant,
}

impl InDoubt {
    pub(super) fn put(
        &mut self,
        version: Version,
        reply_to: (ClientId, u64),
        outcome: Outcome,
        since: Instant,
    ) {
        self.0.push(Waiting { version, reply_to, outcome, since });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers all of them as unknown (A2).
    pub(super) fn give_up(&mut self, actions: &mut Vec<Action>) {
        let unknown = |one: Waiting| to_client(one.reply_to.0, one.reply_to.1, Outcome::Unknown);
        actions.extend(self.0.drain(..).map(unknown));
    }

    /// Answers the writes that are on all copies, and answers as unknown those that have waited too
    /// long.
    pub(super) fn leave(
        &mut self,
        commit: Version,
        late: impl Fn(Instant) -> bool,
        out: &mut Vec<Action>,
    ) {
        self.0.retain(|one| {
            let outcome = match one.version <= commit {
                true => one.outcome.clone(),
                false if late(one.since) => Outcome::Unknown,
                false => return true,
            };
            out.push(to_client(one.reply_to.0, one.reply_to.1, outcome));
            false
        });
    }
}
