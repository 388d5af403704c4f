//! Which segments are free: one bit each, so that the next one is found among any number of others
//! without a look at their rows.
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
pub(super) struct FreeSet {
    words: Vec<u64>,
    /// No segment of a word below this one is free: memory is touched in order, and reused there.
    first_word: usize,
}

impl FreeSet {
    /// All of them.
    pub(super) fn all(segment_count: usize) -> FreeSet {
        let mut set = FreeSet { words: vec![0; segment_count.div_ceil(64)], first_word: 0 };
        set.insert(0, segment_count);
        set
    }

    pub(super) fn contains(&self, segment: usize) -> bool {
        self.words[segment / 64] & (1 << (segment % 64)) != 0
    }

    /// The run of `len` from `first` on becomes free.
    pub(super) fn insert(&mut self, first: usize, len: usize) {
        (first..first + len).for_each(|segment| self.words[segment / 64] |= 1 << (segment % 64));
        self.first_word = self.first_word.min(first / 64);
    }

    /// The run of `len` from `first` on is taken.
    pub(super) fn remove(&mut self, first: usize, len: usize) {
        (first..first + len).for_each(|segment| self.words[segment / 64] &= !(1 << (segment % 64)));
        while self.words.get(self.first_word) == Some(&0) {
            self.first_word += 1;
        }
    }

    /// The lowest free run of `len` segments in `within`.
    pub(super) fn lowest_run(&self, len: usize, within: Range<usize>) -> Option<usize> {
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
    pub(super) fn highest(&self, within: Range<usize>) -> Option<usize> {
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

    pub(super) fn validate(&self) {
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
