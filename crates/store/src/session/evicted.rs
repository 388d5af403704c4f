//! The list of evicted items, for a caller that watches evictions.
//!
//! # Invariants
//! I1: while no caller watches, an eviction costs one look at the session's own option.
//! I2: at most [`KEPT_MAX`] are kept between two looks; the others are only counted.

use super::{Local, Session};
use crate::entry::Entry;
use crate::request::Evicted;

/// The most entries kept.
const KEPT_MAX: usize = 1024;

/// Entries evicted since the last look.
#[derive(Debug, Default)]
pub(super) struct EvictedLately {
    kept: Vec<Evicted>,
    lost: u64,
}

impl Session {
    /// Whether evicted entries are kept for [`Session::take_evicted`] from now on.
    pub fn record_evictions(&mut self, is_watched: bool) {
        if is_watched != self.local.evicted.is_some() {
            self.local.evicted = is_watched.then(Box::default);
        }
    }

    /// Visits the entries evicted since the last call, and returns how many more were evicted.
    pub fn take_evicted(&mut self, mut visit: impl FnMut(&Evicted)) -> u64 {
        let Some(evicted) = &mut self.local.evicted else { return 0 };
        evicted.kept.drain(..).for_each(|entry| visit(&entry));
        std::mem::take(&mut evicted.lost)
    }
}

impl Local {
    /// Notes an evicted entry.
    #[inline]
    pub(super) fn note_evicted(&mut self, entry: Entry<'_>) {
        if self.evicted.is_some() {
            self.keep_evicted(entry);
        }
    }

    #[cold]
    fn keep_evicted(&mut self, entry: Entry<'_>) {
        let Some(evicted) = &mut self.evicted else { return };
        if evicted.kept.len() == KEPT_MAX {
            evicted.lost += 1;
            return;
        }
        let seen = entry.see();
        let item = seen.item();
        evicted.kept.push(Evicted {
            key: item.key.into(),
            value_len_bytes: item.value.len(),
            expires_at: item.expires_at,
            last_use: item.last_use,
        });
    }
}
