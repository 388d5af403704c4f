//! Segments kept for a session that is about to write under the locks of several keys. Nothing is
//! reclaimed under those locks, so the segments that were freed for the session must still be free
//! when it writes.
//!
//! ```text
//!  free ─▶ kept for a place ─▶ its writes under locks (Purpose::Held)
//!             └ what is left when the locks are given back ─▶ free
//! ```
//!
//! # Invariants
//! P1: a kept segment is in state Using, and in `kept` with the place of its session: no other
//!     session takes it, moves it or reclaims it.
//! P2: all sessions together keep at most half of the log; the other half is for plain writes.

use super::{Allocator, Purpose};

/// A run of segments that is kept, by its first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    place: usize,
    first: u32,
}

impl Allocator {
    /// Keeps a run for the session of a place. False: no run is free for this purpose, or too much
    /// is kept (P2).
    pub(crate) fn keep(
        &mut self,
        (place, purpose): (usize, Purpose),
        run_len: u32,
        region: usize,
    ) -> bool {
        let kept_count: u32 = self.kept.iter().map(|kept| self.table.run_len(kept.first)).sum();
        if (kept_count + run_len) as usize > self.table.top() as usize / 2 {
            return false;
        }
        let first = self.take(run_len, purpose, region);
        self.kept.extend(first.map(|first| Kept { place, first }));
        first.is_some()
    }

    /// Whether segments are kept for a place.
    pub(crate) fn has_kept(&self, place: usize) -> bool {
        self.kept.iter().any(|kept| kept.place == place)
    }

    /// Frees all segments still kept for a place.
    pub(crate) fn end_keep(&mut self, place: usize) {
        while let Some(at) = self.kept.iter().position(|kept| kept.place == place) {
            let Kept { first, .. } = self.kept.swap_remove(at);
            self.give_back(first);
        }
    }

    /// Frees the beginning of the shortest kept run of a place that is long enough, to be taken at
    /// once. The rest of the run stays kept.
    pub(super) fn free_kept(&mut self, place: usize, run_len: u32) -> Option<u32> {
        let fits = |kept: &Kept| kept.place == place && self.table.run_len(kept.first) >= run_len;
        let all = self.kept.iter().enumerate().filter(|(_, kept)| fits(kept));
        let (at, _) = all.min_by_key(|(_, kept)| self.table.run_len(kept.first))?;
        let Kept { first, .. } = self.kept.swap_remove(at);
        if self.table.run_len(first) > run_len {
            self.table.split_run(first, run_len);
            self.kept.push(Kept { place, first: first + run_len });
        }
        // Not `make_free`: a shrinking log would park it.
        self.table.free_run(first);
        Some(first)
    }
}
