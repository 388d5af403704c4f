//! Counters of the store. Each session adds to its own set and readers sum the sets, so the request
//! path has no shared counter.

use base::sync::{AtomicU64, Ordering};

macro_rules! counts {
    ($($name:ident,)*) => {
        /// The changes of one session's counters since it last published them. Differences wrap,
        /// so that an item written by one session and removed by another cancels out in the sum.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counts {
            $(pub $name: u64,)*
        }

        const FIELDS: usize = [$(stringify!($name)),*].len();

        impl Counts {
            fn fields(&self) -> [u64; FIELDS] {
                [$(self.$name),*]
            }

            fn from_fields([$($name),*]: [u64; FIELDS]) -> Counts {
                Counts { $($name),* }
            }
        }
    };
}

counts! {
    items,
    items_with_expiry,
    entry_bytes,
    evicted_by_log,
    evicted_by_index,
    evicted_unread,
    expired,
    reinserted,
    cleaned_bytes,
    out_of_memory,
    evicted_small,
    promoted,
    ghost_hits,
    dead_space_copied_bytes,
}

/// One session's published counters; written by that session only.
#[derive(Default)]
pub(crate) struct SharedCounts([AtomicU64; FIELDS]);

impl SharedCounts {
    /// Adds the changes to the published counters and clears them.
    #[inline]
    pub(crate) fn publish(&self, counts: &mut Counts) {
        for (total, change) in self.0.iter().zip(counts.fields()) {
            if change != 0 {
                // Relaxed: one writer, and readers want no order between counters.
                let sum = total.load(Ordering::Relaxed).wrapping_add(change);
                total.store(sum, Ordering::Relaxed);
            }
        }
        *counts = Counts::default();
    }
}

/// The sum over all sessions, past and present.
pub(crate) fn fold<'a>(all: impl Iterator<Item = &'a SharedCounts>) -> Counts {
    let mut sums = [0_u64; FIELDS];
    for counts in all {
        for (sum, part) in sums.iter_mut().zip(&counts.0) {
            *sum = sum.wrapping_add(part.load(Ordering::Relaxed));
        }
    }
    Counts::from_fields(sums)
}

/// A store's contents and history, approximately as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Items, including expired ones that no session has met since.
    pub items: u64,
    /// Items with an expiry.
    pub items_with_expiry: u64,
    /// Bytes of live entries: headers, keys, values, padding.
    pub entry_bytes: u64,
    /// Bytes of the log's segments in use.
    pub log_used_bytes: u64,
    /// Bytes of all segments not lent to the index.
    pub log_bytes: u64,
    /// Bytes of index buckets in use.
    pub index_used_bytes: u64,
    /// Bytes of segments lent to the index now.
    pub index_bytes: u64,
    /// Chains of the index.
    pub index_heads: u64,
    /// Overflow buckets in chains, and lines of the index that wait to be reused.
    pub index_overflow_buckets: u64,
    /// Nodes of the tree, including spare ones and those waiting for reuse; 0: there is no tree,
    /// since a tree has at least its root.
    pub tree_nodes: u64,
    /// Partitions of the index that have changed size since the start.
    pub index_partitions_resized: u64,
    /// Partitions of the index that are changing size now.
    pub index_partitions_resizing: u64,
    /// Items dropped because the log was full.
    pub evicted_by_log: u64,
    /// Items dropped because their bucket was full.
    pub evicted_by_index: u64,
    /// Dropped items that were never read since they were written or moved.
    pub evicted_unread: u64,
    /// Items removed because they had expired.
    pub expired: u64,
    /// Entries kept by moving them out of a reclaimed segment (evict mode).
    pub reinserted: u64,
    /// Bytes that cleaning copied (clean mode).
    pub cleaned_bytes: u64,
    /// Writes refused for lack of space.
    pub out_of_memory: u64,
    /// The part of `evicted_by_log` that was dropped from the small queue (S3-FIFO); the rest was
    /// in main, or in the only queue.
    pub evicted_small: u64,
    /// The part of `reinserted` that moved from the small queue to main.
    pub promoted: u64,
    /// Writes that went straight to main because the small queue had evicted the key lately.
    pub ghost_hits: u64,
    /// Bytes of live entries copied out of mostly dead segments (evict mode).
    pub dead_space_copied_bytes: u64,
    /// The use of the log's bytes.
    pub space: LogSpace,
    /// Bytes of the ghost table.
    pub ghost_bytes: u64,
}

/// The use of the log's bytes; the sum is the log, without the segments lent to the index.
///
/// ```text
///  log = free + open + waiting + full segments (live + dead + tails)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSpace {
    /// Empty segments.
    pub free_bytes: u64,
    /// Segments that sessions append to, counted whole.
    pub open_bytes: u64,
    /// Segments without a live entry that are kept by a grace period or a slow reader.
    pub waiting_bytes: u64,
    /// Live entries of full segments.
    pub live_bytes: u64,
    /// Entries of full segments that were overwritten, deleted, or noticed to be expired.
    pub dead_bytes: u64,
    /// Unused ends of full segments into which no further entry fitted.
    pub tail_bytes: u64,
    /// The part of `tail_bytes` left by long entries, of more than a quarter of a segment.
    pub long_tail_bytes: u64,
    /// Live entries of segments of the small queue, including open ones (S3-FIFO).
    pub small_live_bytes: u64,
}
