//! The look-ahead: searches for a waiting request that depends on this one.
//!
//! ```text
//!  taken batch                     the worker's queue
//!  ┌──────┬────┬────┬────┐         ┌────┬────┬─ ─ ─┬────┬ ─ ─
//!  │ this │    │    │    │         │    │    │     │ 32 │ not looked at
//!  └──────┴────┴────┴────┘         └────┴────┴─ ─ ─┴────┴ ─ ─
//!          └─── batch ───┘          └───── queued ─────┘
//! ```
//!
//! The search is bounded (K8): the taken batch, whose requests are in the cache anyway, and
//! `queue_scan_max` slots beyond it.

use super::operation::{Compactable, has_same_key};
use super::rules::{Dependent, InSight};

/// The requests behind the present one. The iterators are cheap to clone, and restart when cloned.
#[derive(Clone, Debug)]
pub struct Ahead<Batch, Queued> {
    /// The rest of the batch that the worker has taken.
    pub batch: Batch,
    /// The requests in the worker's queue; only the first `queue_scan_max` are searched.
    pub queued: Queued,
}

/// No requests are waiting.
pub type Idle<Op> = Ahead<std::iter::Empty<Op>, std::iter::Empty<Op>>;

impl<Op> Idle<Op> {
    /// An empty batch and an empty queue.
    pub fn idle() -> Idle<Op> {
        Ahead { batch: std::iter::empty(), queued: std::iter::empty() }
    }
}

impl<Batch, Queued, Op> Ahead<Batch, Queued>
where
    Batch: Iterator<Item = Op>,
    Queued: Iterator<Item = Op>,
    Op: Compactable,
{
    /// The dependent requests in sight for `operation`; stops at the first one of the same key.
    pub(super) fn look(
        self,
        operation: &impl Compactable,
        dependent: Dependent,
        queue_scan_max: usize,
    ) -> InSight {
        let mut in_sight = InSight::Nothing;
        for other in self.batch.chain(self.queued.take(queue_scan_max)) {
            let counts = dependent == Dependent::Any || other.effect().is_write();
            if counts && has_same_key(operation, &other) {
                return InSight::SameKey;
            }
            in_sight = InSight::OtherKeys;
        }
        in_sight
    }
}
