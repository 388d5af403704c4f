//! A bitmap of segments in one state (free, parked or resident): one bit each, so that the next one
//! is found among any number of others without reading their rows.
//!
//! ```text
//!  word:  | 0: segments 0 to 63 | 1: 64 to 127 | ...      bit set: free
//!           ^ first_word: no bit is set below
//! ```
//!
//! # Limits
//! A search reads at most one word for 64 segments: 2,048 words for 512 GiB in segments of 4 MiB.

use std::ops::Range;

/// The free segments.
#[derive(Clone)]
pub(in crate::log) struct FreeSet {
    words: Vec<u64>,
    /// No segment of a word below this one is free: memory is touched in order, and reused there.
    first_word: usize,
}

impl FreeSet {
    /// None of `segment_count`.
    pub(in crate::log) fn none(segment_count: usize) -> FreeSet {
        let words = vec![0; segment_count.div_ceil(64)];
        FreeSet { first_word: words.len(), words }
    }

    /// All of them.
    pub(in crate::log) fn all(segment_count: usize) -> FreeSet {
        let mut set = FreeSet::none(segment_count);
        set.insert(0, segment_count);
        set
    }

    pub(in crate::log) fn contains(&self, segment: usize) -> bool {
        self.words[segment / 64] & (1 << (segment % 64)) != 0
    }

    /// The run of `len` from `first` on becomes free.
    pub(in crate::log) fn insert(&mut self, first: usize, len: usize) {
        (first..first + len).for_each(|segment| self.words[segment / 64] |= 1 << (segment % 64));
        self.first_word = self.first_word.min(first / 64);
    }

    /// The run of `len` from `first` on is taken.
    pub(in crate::log) fn remove(&mut self, first: usize, len: usize) {
        (first..first + len).for_each(|segment| self.words[segment / 64] &= !(1 << (segment % 64)));
        while self.words.get(self.first_word) == Some(&0) {
            self.first_word += 1;
        }
    }

    /// The lowest free run of `len` segments in `within`.
    pub(in crate::log) fn lowest_run(&self, len: usize, within: Range<usize>) -> Option<usize> {
        let (mut segment, mut found) = (within.start.max(self.first_word * 64), 0);
        while segment < within.end {
            if segment.is_multiple_of(64) && self.words[segment / 64] == 0 {
                (found, segment) = (0, segment + 64);
                continue;
            }
            found = if self.contains(segment) { found + 1 } else { 0 };
            segment += 1;
            if found == len {
                return Some(segment - len);
            }
        }
        None
    }

    /// The highest free segment in `within`.
    pub(in crate::log) fn highest(&self, within: Range<usize>) -> Option<usize> {
        let mut end = within.end;
        while end > within.start {
            let (word, bits) = ((end - 1) / 64, (end - 1) % 64 + 1);
            let below = self.words[word] & (u64::MAX >> (64 - bits));
            if below != 0 {
                let found = word * 64 + below.ilog2() as usize;
                return (found >= within.start).then_some(found);
            }
            end = word * 64;
        }
        None
    }

    /// The lowest segment that is in `other` too.
    pub(in crate::log) fn lowest_common(&self, other: &FreeSet) -> Option<usize> {
        let pairs = self.words.iter().zip(&other.words).enumerate().skip(self.first_word);
        let mut common = pairs.map(|(word, (left, right))| (word, left & right));
        let (word, bits) = common.find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Of the `count` lowest segments in `within` the first that is not in `other`.
    pub(in crate::log) fn lowest_without(
        &self,
        other: &FreeSet,
        within: Range<usize>,
        count: usize,
    ) -> Option<usize> {
        let mut left = count;
        let first_word = (within.start / 64).max(self.first_word);
        for word in first_word..within.end.div_ceil(64) {
            let above = u64::MAX << within.start.saturating_sub(word * 64);
            let below = u64::MAX >> 64_usize.saturating_sub(within.end - word * 64);
            let members = self.words[word] & above & below;
            let missing = members & !other.words[word];
            if missing != 0 {
                let bit = missing.trailing_zeros();
                let before = (members & !(u64::MAX << bit)).count_ones() as usize;
                return (before < left).then_some(word * 64 + bit as usize);
            }
            left = left.saturating_sub(members.count_ones() as usize);
        }
        None
    }

    pub(in crate::log) fn validate(&self) {
        let is_low = self.words[..self.first_word.min(self.words.len())].iter().all(|w| *w == 0);
        assert!(is_low, "no free segment below the first word");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_across_words_and_the_highest_from_above() {
        let mut set = FreeSet::all(200);
        set.remove(0, 200);
        assert_eq!((set.lowest_run(1, 0..200), set.highest(0..200)), (None, None));
        set.insert(62, 4);
        set.insert(130, 2);
        set.validate();
        assert_eq!(
            [1, 2, 4, 5].map(|len| set.lowest_run(len, 0..200)),
            [Some(62), Some(62), Some(62), None]
        );
        assert_eq!(
            [200, 131, 130, 64, 62].map(|end| set.highest(0..end)),
            [Some(131), Some(130), Some(65), Some(63), None]
        );
        set.remove(62, 3);
        set.validate();
        assert_eq!([1, 2].map(|len| set.lowest_run(len, 0..200)), [Some(65), Some(130)]);
    }

    #[test]
    fn two_sets_are_compared_from_below() {
        let (mut set, mut other) = (FreeSet::all(200), FreeSet::none(200));
        assert_eq!(set.lowest_common(&other), None);
        other.insert(3, 2);
        other.insert(130, 1);
        assert_eq!(set.lowest_common(&other), Some(3));
        set.remove(0, 5);
        assert_eq!(set.lowest_common(&other), Some(130));
        assert_eq!(set.lowest_without(&other, 130..200, 1), None);
        assert_eq!(set.lowest_without(&other, 130..200, 2), Some(131));
    }

    #[test]
    fn what_lies_outside_of_a_range_is_not_found_there() {
        let mut set = FreeSet::all(200);
        set.remove(70, 20);
        assert_eq!([60, 70, 80].map(|from| set.lowest_run(1, from..200)), [60, 90, 90].map(Some));
        assert_eq!(set.lowest_run(1, 70..90), None);
        assert_eq!(set.lowest_run(11, 60..200), Some(90), "ten lie before the gap");
        assert_eq!(set.lowest_run(5, 66..70), None, "it would reach beyond the end");
        assert_eq!([90, 91].map(|end| set.highest(70..end)), [None, Some(90)]);
    }
}
