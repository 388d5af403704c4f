//! How far a KV.RANGE has come.

use std::ops::Bound;
use std::sync::Arc;

use store::Direction;

use super::Gathered;
use crate::cluster::View;

/// A KV.RANGE that is being answered.
pub struct RangeWalk {
    pub start: Bound<Box<[u8]>>,
    pub end: Bound<Box<[u8]>>,
    pub direction: Direction,
    /// The rest of LIMIT.
    pub left_count: usize,
    pub is_keys_only: bool,
    pub found: Found,
}

/// The elements of the reply so far.
#[derive(Default)]
pub struct Found {
    pub gathered: Gathered,
    /// In a cluster: items of other nodes' slots, of which this node has copies, are left out.
    pub cluster: Option<Arc<View>>,
}

impl RangeWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        self.found.gathered.bytes.capacity()
    }

    pub fn go_behind(&mut self, resume_key: Vec<u8>, left_count: usize) {
        let bound = Bound::Excluded(resume_key.into_boxed_slice());
        match self.direction {
            Direction::Forward => self.start = bound,
            Direction::Reverse => self.end = bound,
        }
        self.left_count = left_count;
    }
}
