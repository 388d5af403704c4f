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
//! # Invariants
//! Q1: a group that its worker has given up releases its shard at once: a connection that closes
//!     holds up no other.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError, unbounded};

use super::channel::AnswerTo;
use super::{ControlChannel, GroupAnswer, GroupCall};

/// For so long a worker waits for the answer to a call. Most come sooner; a look later costs more.
pub(super) const ANSWERS_AT_ONCE: Duration = Duration::from_millis(2);

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
}

impl PendingGroup {
    /// A new group of a worker, which has made no call, and what its first call takes along.
    pub fn new(channel: &Arc<ControlChannel>, dispatcher: usize) -> (PendingGroup, AnswerTo) {
        let (sender, answers) = unbounded();
        let (channel, id) = (Arc::clone(channel), channel.next_group());
        let (is_over, is_bad) = (false, false);
        let group = PendingGroup { channel, dispatcher, id, answers, is_over, is_bad };
        (group, AnswerTo { dispatcher, sender })
    }

    /// The answer to the last call, if it has come.
    pub fn answer(&self) -> Option<GroupAnswer> {
        match self.answers.try_recv() {
            Ok(answer) => Some(self.checked(answer)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(GroupAnswer::Bad),
        }
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
