//! The sizes by which requests are counted.

use store::request::{Op, Outcome, Request};

use super::Shape;
use crate::rmw::{Refusal, Rmw};

/// The size by which a request is counted: for a read that of its reply, so that asking for the
/// length of a large value is small, and for a write that of the stored value.
#[inline]
pub fn size_of(
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
