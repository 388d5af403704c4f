//! The sizes of requests that a worker executes where it received them.

use policy::size_class::WorkerSizes;
use store::pin::Pins;
use store::request::{Op, Outcome, Request, Sink};

use super::LENT_BYTES_MIN;
use crate::compaction::{Answering, Tells};
use crate::reply::{ReplySink, Shape};
use crate::rmw::{Refusal, Rmw};

/// The size that a request counts with: a read that of its reply, so that the length of a large
/// value is a small one, and a write that of what it has stored.
#[inline]
pub(crate) fn size_of(
    shape: Shape,
    request: &Request<'_, Rmw<'_>>,
    outcome: &Outcome<'_, Refusal>,
) -> Option<u64> {
    let value_bytes = match (outcome, &request.op) {
        (Outcome::Hit(item), _) => (item.value.len() as u64).min(shape.value_bytes_max()),
        (Outcome::Updated { new: Some(item), .. }, _) => item.value.len() as u64,
        (Outcome::Stored { .. }, Op::Set(set)) => set.value.len() as u64,
        _ => return None,
    };
    Some(request.key.len() as u64 + value_bytes)
}

/// Writes replies and counts sizes. Values that may be large are not copied: their socket is lent.
pub(crate) struct SizedSink<'s, 'r> {
    /// Encodes.
    pub replies: ReplySink<'s>,
    /// The batch.
    pub requests: &'s [Request<'r, Rmw<'r>>],
    /// The worker's.
    pub counts: &'s WorkerSizes,
}

impl Answering for SizedSink<'_, '_> {
    fn tells(&self, request_index: usize) -> Tells {
        self.replies.tells(request_index)
    }

    fn connection(&self, request_index: usize) -> u64 {
        self.replies.connection(request_index)
    }
}

impl Sink<Refusal> for SizedSink<'_, '_> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        let shape = self.replies.pendings[request_index].shape;
        if let Some(size_bytes) = size_of(shape, &self.requests[request_index], &outcome) {
            self.counts.record(size_bytes);
        }
        self.replies.answer(request_index, outcome, pins, LENT_BYTES_MIN);
    }
}
