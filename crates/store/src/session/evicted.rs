//! The list of evicted items, for a caller that watches evictions.
//!
//! # Invariants
//! I1: while no caller watches, an eviction costs one look at the session's own option.
//! I2: at most [`KEPT_MAX`] are kept between two looks; the others are only counted.

use crate::entry::Entry;
use crate::request::Evicted;

/// The most entries kept.
const KEPT_MAX: usize = 1024;

/// Entries evicted since the last look.
#[derive(Debug, Default)]
struct EvictedLately {
    kept: Vec<Evicted>,
    lost: u64,
}

/// A session's evictions, while a caller watches them.
#[derive(Default)]
pub(super) struct EvictionNotes(Option<Box<EvictedLately>>);

impl EvictionNotes {
    /// Begins or ends the noting of evictions.
    pub(super) fn set(&mut self, is_watched: bool) {
        if is_watched != self.0.is_some() {
            self.0 = is_watched.then(Box::default);
        }
    }

    /// Visits the entries noted, and returns how many more were evicted.
    pub(super) fn take(&mut self, mut visit: impl FnMut(&Evicted)) -> u64 {
        let Some(evicted) = &mut self.0 else { return 0 };
        evicted.kept.drain(..).for_each(|entry| visit(&entry));
        std::mem::take(&mut evicted.lost)
    }

    /// Notes an evicted entry.
    #[inline]
    pub(super) fn note(&mut self, entry: Entry<'_>) {
        if let Some(evicted) = &mut self.0 {
            evicted.keep(entry);
        }
    }
}

impl EvictedLately {
    #[cold]
    fn keep(&mut self, entry: Entry<'_>) {
        if self.kept.len() == KEPT_MAX {
            self.lost += 1;
            return;
        }
        let seen = entry.see();
        let item = seen.item();
        self.kept.push(Evicted {
            key: item.key.into(),
            value_len_bytes: item.value.len(),
            expires_at: item.expires_at,
            last_use: item.last_use,
        });
    }
}
