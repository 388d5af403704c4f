//! A group between its worker's calls: the worker serves its other clients while the control thread
//! has not answered.
//!
//! ```text
//!  Begin ─▶ answered within [`ANSWERS_AT_ONCE`]  ─ yes ─▶ Run ... ─▶ End ─▶ the same
//!                    │ no                                             │ no
//!                    └▶ PendingGroup: its connection waits,           └▶ PendingGroup, with the
//!                       the worker looks again later                     replies beside it
//!  dropped ─▶ Cancel: what has not ended leaves its shard, with nothing done
//! ```
//!
//! The control thread wakes a worker that sleeps for each answer.
//!
//! # Invariants
//! Q1: a group that its worker has given up releases its shard at once: a connection that closes
//!     holds up no other.
//! Q2: a worker does not wait for a begin while a connection of its own waits for one: that may
//!     hold what the other needs. Where it cannot but wait, it gives its connections' groups up
//!     first, and they begin again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError, unbounded};

use super::channel::AnswerTo;
use super::{ControlChannel, GroupAnswer, GroupCall};

/// For so long a worker waits for the answer to a call. Most come sooner; a look later costs more.
pub(super) const ANSWERS_AT_ONCE: Duration = Duration::from_millis(1);

/// See the module's page.
pub struct PendingGroup {
    channel: Arc<ControlChannel>,
    pub(super) dispatcher: usize,
    pub(super) id: u64,
    /// Ends when the control thread has forgotten the group.
    pub(super) answers: Receiver<GroupAnswer>,
    /// It holds no shard, and waits for none.
    pub(super) is_over: bool,
    /// Its replies may not be sent, whatever the answer.
    pub(super) is_bad: bool,
    /// Its worker has given it up, to wait for another group itself (Q2).
    pub(super) is_given_up: Arc<AtomicBool>,
}

impl PendingGroup {
    /// A new group of a worker, which has made no call, and what its first call takes along.
    pub fn new(
        channel: &Arc<ControlChannel>,
        dispatcher: usize,
        answered: &Arc<AtomicU64>,
    ) -> (PendingGroup, AnswerTo) {
        let (sender, answers) = unbounded();
        let (channel, id) = (Arc::clone(channel), channel.next_group());
        let (is_over, is_bad) = (false, false);
        let group = PendingGroup {
            channel,
            dispatcher,
            id,
            answers,
            is_over,
            is_bad,
            is_given_up: Arc::default(),
        };
        (group, AnswerTo { dispatcher, sender, answered: Arc::clone(answered) })
    }

    /// The answer to the last call, if it has come.
    pub fn answer(&self) -> Option<GroupAnswer> {
        match self.answers.try_recv() {
            Ok(answer) => Some(self.checked(answer)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(GroupAnswer::Bad),
        }
    }

    /// Whether the answer to the last call has come.
    pub fn has_answer(&self) -> bool {
        !self.answers.is_empty() || self.is_given_up()
    }

    /// Whether it has to begin again.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// The same, if its replies may be sent.
    pub(super) fn checked(&self, answer: GroupAnswer) -> GroupAnswer {
        if self.is_bad { GroupAnswer::Bad } else { answer }
    }
}

impl Drop for PendingGroup {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.send_group(self.id, GroupCall::Cancel);
        }
    }
}
