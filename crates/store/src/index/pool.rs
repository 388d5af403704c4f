//! The pool of overflow buckets: never-used ones by a counter, returned ones by a list that is
//! threaded through their words.
//!
//! # Limits
//! A mutex guards it: a bucket is taken about once in a thousand inserts.

use base::sync::{Mutex, MutexGuard, Ordering};

use super::memory::BucketMemory;
use super::slot::Slot;
use super::{SLOTS, bucket::Bucket};

/// End of the free list.
const NONE: u32 = u32::MAX;

pub(super) struct Pool {
    state: Mutex<State>,
}

struct State {
    /// The next bucket that was never used.
    fresh: u32,
    end: u32,
    /// First of the returned ones.
    returned: u32,
    used_count: u64,
}

impl Pool {
    /// A pool of the buckets `start..end`.
    pub(super) fn new(start: u32, end: u32) -> Pool {
        Pool { state: Mutex::new(State { fresh: start, end, returned: NONE, used_count: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code that holds this lock panics")
    }

    pub(super) fn used_count(&self) -> u64 {
        self.state().used_count
    }

    /// An empty bucket that no chain holds.
    pub(super) fn take(&self, memory: &BucketMemory) -> Option<u32> {
        let mut state = self.state();
        let bucket = if state.returned != NONE {
            let bucket = state.returned;
            state.returned = memory[bucket].word.load(Ordering::Relaxed) as u32;
            bucket
        } else if state.fresh < state.end {
            state.fresh += 1;
            state.fresh - 1
        } else {
            return None;
        };
        state.used_count += 1;
        drop(state);
        clear(&memory[bucket]);
        Some(bucket)
    }

    /// Takes back a bucket that no reader can be in any more.
    pub(super) fn give(&self, memory: &BucketMemory, bucket: u32) {
        let mut state = self.state();
        memory[bucket].word.store(u64::from(state.returned), Ordering::Relaxed);
        state.returned = bucket;
        state.used_count -= 1;
    }
}

fn clear(bucket: &Bucket) {
    for index in 0..SLOTS {
        bucket.set_slot(index, Slot::EMPTY);
    }
}
