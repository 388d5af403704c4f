//! Resizing a store while it is in use.
//!
//! ```text
//!  address space:  | segment 0 | ... | usable - 1 | parked ...                        | room
//!  resize:    grow: parked segments are free again
//!             shrink: free segments are parked; sessions reclaim the rest a step at a time
//!  tend_memory: the pages of parked segments go back to the kernel
//! ```
//!
//! Segments keep their size (K14), and so does the ghost table. The index may borrow half of the
//! present segments; one that has more returns them as its items go.
//!
//! # Limits
//! A shrinking cache evicts until it fits. A shrinking store drops nothing: it refuses a size that
//! its items do not fit, and it refuses writes that come faster than cleaning frees segments.

use std::sync::Arc;
use std::time::Duration;

use index::placement::NodeShare;

use crate::config::{Mode, OpenError, StoreConfig};
use crate::ghost::GhostTable;
use crate::inner::Inner;
use crate::log::{Tended, segment_count_min};
use crate::session::low_water;
use crate::store::{Begin, Store, keep_reserve, lent_max_of, reserve_of};
use crate::tuning::Tuning;

/// The fewest segments for each session (K14).
const SEGMENTS_PER_SESSION: u64 = 64;
/// A store can be cleaned up to this live share without copying more than it frees.
const FULL_PCT: u64 = 85;

/// The sizes that a store can have, in bytes of [`StoreConfig::memory_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeBounds {
    /// 64 segments a session, or the number it was opened with.
    pub least_bytes: u64,
    /// The size that its items need now; 0 for a cache.
    pub items_bytes: u64,
    /// The address space that it was opened with.
    pub most_bytes: u64,
}

/// The reason why a store keeps its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoResize {
    /// It was opened with a fixed size, or could not get more address space.
    #[error("the store was opened with a fixed size")]
    Fixed,
    /// The requested size is out of bounds.
    #[error("the store can have {} to {} bytes", .0.least_bytes.max(.0.items_bytes), .0.most_bytes)]
    OutOfBounds(SizeBounds),
}

impl Store {
    /// [`Store::open_on_nodes`] with address space for `room_bytes`, so that [`Store::resize`] can
    /// give the store as much. Memory on several nodes and reserved huge pages have a fixed size.
    pub fn open_with_room(
        config: StoreConfig,
        tuning: Tuning,
        nodes: &[NodeShare],
        room_bytes: u64,
    ) -> Result<Arc<Store>, OpenError> {
        Store::open_at(config, tuning, nodes, Begin::Empty { room_bytes })
    }

    /// The memory that it may use now: as opened, or as last resized.
    pub fn memory_bytes(&self) -> u64 {
        let inner = &self.inner;
        match inner.log.row_count() == inner.opened_segments {
            true => inner.config.memory_bytes,
            false => inner.bytes_of(u64::from(inner.log.segment_count())),
        }
    }

    /// The sizes that it can have; `None`: its size is fixed.
    pub fn size_bounds(&self) -> Option<SizeBounds> {
        let inner = &self.inner;
        let (row_count, opened) = (inner.log.row_count(), u64::from(inner.opened_segments));
        (u64::from(row_count) > opened).then(|| {
            let sessions = inner.config.session_max as u64;
            let least = (SEGMENTS_PER_SESSION * sessions).min(opened);
            SizeBounds {
                least_bytes: inner.bytes_of(least.max(segment_count_min(sessions as usize))),
                items_bytes: inner.bytes_of_items(),
                most_bytes: inner.bytes_of(u64::from(row_count)),
            }
        })
    }

    /// Sets the memory that the store may use. Returns at once: when it shrinks, sessions give up
    /// the surplus between their requests.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), NoResize> {
        let inner = &self.inner;
        let bounds = self.size_bounds().ok_or(NoResize::Fixed)?;
        let least_bytes = match memory_bytes < self.memory_bytes() {
            true => bounds.least_bytes.max(bounds.items_bytes),
            false => bounds.least_bytes,
        };
        if !(least_bytes..=bounds.most_bytes).contains(&memory_bytes) {
            return Err(NoResize::OutOfBounds(bounds));
        }
        let log_bytes = memory_bytes - inner.ghosts.as_ref().map_or(0, GhostTable::bytes);
        let usable = (log_bytes / inner.log.segment_bytes()) as u32;
        let lent_max = lent_max_of(&inner.config, inner.log.segment_bytes(), usable);
        inner.log.resize(usable, (low_water(inner, 1), lent_max));
        keep_reserve(&inner.log, &inner.config);
        Ok(())
    }

    /// The bytes that a shrinking store still has to give up.
    pub fn surplus_bytes(&self) -> u64 {
        let log = &self.inner.log;
        u64::from(log.allocator().shortage()) * log.segment_bytes()
    }

    /// Does one task for the log's memory, on a thread for that purpose: returns the pages of a
    /// segment that the log gave up to the kernel, or makes a segment resident ahead of the
    /// writers, since the first touch of a page costs several microseconds. With nothing to do it
    /// waits for the next segment to be taken, at most `limit`.
    ///
    /// The next `ahead_bytes` that writes will take are kept resident; with 0 nothing is populated.
    pub fn tend_memory(&self, ahead_bytes: u64, limit: Duration) -> Tended {
        let log = &self.inner.log;
        let ahead = match ahead_bytes {
            0 => 0,
            _ => u32::try_from(ahead_bytes / log.segment_bytes()).unwrap_or(u32::MAX).max(1),
        };
        let tended = log.tend_memory(ahead);
        if tended == Tended::Rested {
            log.wait_taken(limit);
        }
        tended
    }

    /// Ends a wait in [`Store::tend_memory`].
    pub fn wake_tender(&self) {
        self.inner.log.wake_waiters();
    }
}

impl Inner {
    /// The bytes of log, index and ghosts, with a log of `segments`.
    fn bytes_of(&self, segments: u64) -> u64 {
        let ghost_bytes = self.ghosts.as_ref().map_or(0, GhostTable::bytes);
        segments * self.log.segment_bytes() + ghost_bytes
    }

    /// The least size that fits the items of a store, with room to clean it; 0 for a cache.
    fn bytes_of_items(&self) -> u64 {
        if self.config.mode == Mode::Evict {
            return 0;
        }
        let space = self.log.space();
        let kept_bytes = space.live_bytes + space.long_tail_bytes + space.open_bytes;
        let full_bytes = kept_bytes * 100 / FULL_PCT;
        let reserve = reserve_of(&self.log, &self.config);
        let beside = reserve.segments + low_water(self, 1) + self.log.allocator().lent_count();
        self.bytes_of(full_bytes.div_ceil(self.log.segment_bytes()) + u64::from(beside))
    }
}
