//! A command, or a transaction, that is a group of a cluster: between its steps its worker serves
//! other clients.
//!
//! ```text
//!  Room: memory for what it stores ─▶ Begins: its shard, for it alone ─▶ it runs
//!                                        ─▶ Ends: on all copies ─▶ its replies are sent
//! ```

use std::time::Instant;

use budget::Reservation;
use cluster::Slot;
use commands::output::Output;
use replication::replicate::{GroupRoom, PendingGroup};

use crate::transaction::Transaction;

/// See the module's page.
pub struct GroupWalk {
    /// Of all its keys.
    pub slot: Slot,
    /// What is told if the outcome is unknown.
    pub in_doubt: InDoubt,
    /// The queued commands of a transaction. None: it is the command itself.
    pub transaction: Option<Box<Transaction>>,
    /// What it stores, if that was estimated.
    pub room: Option<GroupRoom>,
    /// What is kept of that.
    pub kept: Option<Reservation>,
    /// How often reads were begun again, because their shard had moved in the middle.
    pub repeat_count: u32,
    /// The next step.
    pub step: GroupStep,
}

/// What a client is told in the place of a group's replies if the outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InDoubt {
    /// It only reads: it is begun again some times; then, to send it again.
    SendAgain,
    /// One command that writes: that it may have happened.
    Uncertain,
    /// A transaction that writes: nothing. A closed connection says so best, because clients take
    /// any reply of EXEC for its outcome.
    Close,
}

/// The next step of a group.
pub enum GroupStep {
    /// It waits for room, since then.
    Room(Option<Instant>),
    /// It waits for its shard.
    Begins(PendingGroup),
    /// It waits until all copies have it, and then its replies are sent.
    Ends(PendingGroup, Output),
    /// Nothing is left.
    Over,
}

impl GroupWalk {
    /// A group that has not begun.
    pub fn new(slot: Slot, in_doubt: InDoubt, room: Option<GroupRoom>) -> GroupWalk {
        let (transaction, kept, step) = (None, None, GroupStep::Room(None));
        GroupWalk { slot, in_doubt, transaction, room, kept, repeat_count: 0, step }
    }

    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        let replies_bytes = match &self.step {
            GroupStep::Ends(_, replies) => replies.held_bytes(),
            _ => 0,
        };
        self.transaction.as_ref().map_or(0, |it| it.held_bytes()) + replies_bytes
    }
}
