//! How far a KV.RANGE has come.

use std::ops::Bound;
use std::sync::Arc;

use replication::cluster::View;
use store::Direction;

use super::Gathered;

/// A KV.RANGE that is being answered.
pub struct RangeWalk {
    /// Where the range begins.
    pub start: Bound<Box<[u8]>>,
    /// Where it ends.
    pub end: Bound<Box<[u8]>>,
    /// Up or down.
    pub direction: Direction,
    /// The rest of LIMIT.
    pub left_count: usize,
    /// Without values.
    pub is_keys_only: bool,
    /// What the last step found.
    pub found: Found,
}

/// The elements of the reply so far.
#[derive(Default)]
pub struct Found {
    /// The reply so far.
    pub gathered: Gathered,
    /// In a cluster: items of other nodes' slots, of which this node has copies, are left out.
    pub cluster: Option<Arc<View>>,
}

impl RangeWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        self.found.gathered.bytes.capacity()
    }

    /// Goes on behind a key.
    pub fn go_behind(&mut self, resume_key: Vec<u8>, left_count: usize) {
        let bound = Bound::Excluded(resume_key.into_boxed_slice());
        match self.direction {
            Direction::Forward => self.start = bound,
            Direction::Reverse => self.end = bound,
        }
        self.left_count = left_count;
    }
}
