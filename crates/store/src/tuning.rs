//! Switches that turn single optimisations off, to measure what each is worth; not for production.
//!
//! The store's answers are the same with any of these, except for [`crate::Item::last_use`]. Where
//! possible, the code reads a switch once a batch, so that being able to switch costs nothing.

/// How stages 1 and 2 ask for lines (M5). The tree asks for its nodes whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Into all caches (`prefetcht0`).
    #[default]
    On,
    /// Into the nearest, and out of it first (`prefetchnta`).
    NonTemporal,
    /// Not at all: a batch is executed one request after the other.
    Off,
}

/// Which optimisations are on; by default all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How stages 1 and 2 ask for lines.
    pub prefetch: Prefetch,
    /// Stage 2 matches the tags of a bucket at once, not one slot after the other.
    pub matches_tags_at_once: bool,
    /// Appending asks for the log's next lines ahead.
    pub prefetches_append: bool,
    /// A value of at most eight bytes is replaced where it lies (decision 0019).
    pub replaces_in_place: bool,
    /// Each session counts live bytes in a lane of its own.
    pub counts_in_lanes: bool,
    /// Entries of a store that is in memory alone say when they were used last, in the place of
    /// their checksum. Off where no command needs it: a checksum finds mistakes.
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

/// What a switch decides about, for the test that each takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A line was asked for into all caches, ...
    Near,
    /// ... out of the nearest first, ...
    NonTemporal,
    /// ... or to be written.
    ForWrite,
    /// Stage 2 matched a batch's tags at once, ...
    TagsAtOnce,
    /// ... or one slot after the other.
    TagBySlot,
}

/// Notes which way was taken; nothing outside of tests.
#[inline(always)]
pub(crate) fn took(_way: Way) {
    #[cfg(all(test, not(any(loom, miri))))]
    tests::TAKEN.with_borrow_mut(|taken| taken[_way as usize] += 1);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
