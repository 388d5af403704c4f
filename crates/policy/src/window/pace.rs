//! How often batches are searched for writes of one key: a search costs each request some fifty
//! instructions, and most loads have no key that is written twice in a batch.
//!
//! ```text
//!  batches:  F F S . . S . . . . . . S ...  F: found enough, S: searched in vain
//!            each search in vain lengthens the pause before the next, to 2, 6, 14 and 30 batches
//! ```
//!
//! # Invariants
//! I1: behind a search that saves enough, or whose result is not noted, the next batch is searched.
//! I2: at most [`SearchPace::PAUSE_MAX`] batches pass without a search.
//! I3: searches come at odd distances, so that two kinds of batches by turns are both met.

/// The pace of one worker's searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchPace {
    /// Batches between two searches; even (I3).
    pause: u8,
    /// Batches until the next search.
    left: u8,
}

impl SearchPace {
    /// The longest pause, in batches.
    pub const PAUSE_MAX: u8 = 30;
    /// One write saved for so many requests pays for searching the batch and for running it
    /// without its superseded writes.
    const REQUESTS_PER_WRITE: usize = 16;

    /// Whether to search the batch that comes now.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        false
    }

    /// Notes the writes that a search of `request_count` requests can save; returns whether they
    /// are enough to save them.
    #[inline]
    pub fn note(&mut self, writes_saved: usize, request_count: usize) -> bool {
        let is_enough = writes_saved * Self::REQUESTS_PER_WRITE >= request_count;
        self.pause = match is_enough {
            true => 0,
            false => (2 * self.pause + 2).min(Self::PAUSE_MAX),
        };
        self.left = self.pause;
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of searches in so many batches, none of which finds anything.
    fn searches_in_vain(pace: &mut SearchPace, batches: usize) -> usize {
        (0..batches).filter(|_| pace.is_due() && !pace.note(0, 128)).count()
    }

    #[test]
    fn searches_in_vain_become_rare_and_never_stop() {
        let mut pace = SearchPace::default();
        assert_eq!(searches_in_vain(&mut pace, 1), 1);
        // Behind pauses of 2, 6, 14 and 30 batches.
        assert_eq!(searches_in_vain(&mut pace, 3 + 7 + 15 + 31), 4);
        assert_eq!(searches_in_vain(&mut pace, 310), 10);
    }

    #[test]
    fn a_find_makes_the_next_batch_searched() {
        let mut pace = SearchPace::default();
        searches_in_vain(&mut pace, 100);
        while !pace.is_due() {}
        assert!(pace.note(8, 128));
        assert_eq!(searches_in_vain(&mut pace, 1), 1);
        assert_eq!(searches_in_vain(&mut pace, 2), 0);
    }

    #[test]
    fn few_saved_writes_do_not_pay_for_a_long_batch() {
        let mut pace = SearchPace::default();
        assert!(!pace.note(7, 128) && !pace.is_due());
        assert!(SearchPace::default().note(1, 10));
    }

    /// Of batches of two kinds by turns, of which one has such a key, at least half are met.
    #[test]
    fn batches_by_turns_are_met() {
        for vain_before in [0, 77, 78] {
            let mut pace = SearchPace::default();
            searches_in_vain(&mut pace, vain_before);
            let found = (0..3000).filter(|batch| {
                let saved = if batch % 2 == 0 { 64 } else { 0 };
                pace.is_due() && pace.note(saved, 128)
            });
            assert!(found.count() >= 740, "{vain_before}");
        }
    }
}
