//! Switches that turn single optimisations off, to measure what each is worth; not for production.
//!
//! The store's answers are the same with any of these, except for [`crate::Item::last_use`]. Where
//! possible, the code reads a switch once a batch, so that being able to switch costs nothing.

/// The way in which stages 1 and 2 prefetch lines. The tree prefetches its nodes whatever this
/// says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Into all caches (`prefetcht0`).
    #[default]
    On,
    /// Into the nearest cache, to be evicted first (`prefetchnta`).
    NonTemporal,
    /// No prefetching: a batch is executed one request after the other.
    Off,
}

/// The optimisations that are on; by default all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The way in which stages 1 and 2 prefetch lines.
    pub prefetch: Prefetch,
    /// Stage 2 matches all tags of a bucket at once, not one slot after the other.
    pub matches_tags_at_once: bool,
    /// Appending prefetches the log's next lines.
    pub prefetches_append: bool,
    /// A value of at most eight bytes is replaced in place (decision 0019).
    pub replaces_in_place: bool,
    /// Each session counts live bytes in a lane of its own.
    pub counts_in_lanes: bool,
    /// In a store that is only in memory, entries hold their time of last use instead of their
    /// checksum. Off if no command needs it: a checksum finds bugs.
    pub notes_use: bool,
    /// Reads leave access marks only once the log is nearly full.
    pub marks_late: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            prefetch: Prefetch::On,
            matches_tags_at_once: true,
            prefetches_append: true,
            replaces_in_place: true,
            counts_in_lanes: true,
            notes_use: false,
            marks_late: true,
        }
    }
}

/// The choices that switches make, for the test that each takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A line was prefetched into all caches, ...
    Near,
    /// ... into the nearest, to be evicted first, ...
    NonTemporal,
    /// ... or for writing.
    ForWrite,
    /// Stage 2 matched a batch's tags at once, ...
    TagsAtOnce,
    /// ... or one slot after the other.
    TagBySlot,
}

/// Counts the choice made; does nothing outside of tests.
#[inline(always)]
pub(crate) fn took(_way: Way) {
    #[cfg(all(test, not(any(loom, miri))))]
    tests::TAKEN.with_borrow_mut(|taken| taken[_way as usize] += 1);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
