//! The direction of walks.

/// The direction of a walk over a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From `start` up.
    Forward,
    /// From `end` down.
    Reverse,
}
