//! Walks over the whole index: SCAN, KEYS, RANDOMKEY.
//!
//! A walk visits chains in order of their keys' hashes (K9), each as of one moment, so that it sees
//! every key that is present throughout, whatever size the index has and gets meanwhile. A cursor
//! is the first hash not yet visited, without its low 16 bits: heads differ above bit 28.

use base::{KeyHash, UnixMillis};
use index::hash::slot::Slot;

use super::Session;
use super::ordered_walk::{random_ordered, scan_ordered};
use super::pace::quiesce_after_reads;
use crate::cursor::UnknownCursor;
use crate::entry::Entry;
use crate::request::Item;

/// The buckets that one call of `scan` visits: about 4 MiB of index.
const SCAN_HEADS_MAX: u32 = 65_536;
/// The low bits of a hash that a cursor omits.
const CURSOR_SHIFT: u32 = 16;

/// The result of looking for an item at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Whether one was found.
    pub is_found: bool,
    /// The number of buckets visited.
    pub visited: u64,
}

impl Session {
    /// Visits the items of the next buckets from `cursor` on (0: the start), until `item_target`
    /// items or a bounded number of buckets were visited; returns the next cursor (0: the end).
    pub fn scan(
        &mut self,
        now: UnixMillis,
        cursor: u64,
        item_target: usize,
        visit: impl FnMut(&Item<'_>),
    ) -> Result<u64, UnknownCursor> {
        self.scan_within(now, cursor, (item_target, SCAN_HEADS_MAX), visit)
    }

    /// [`Session::scan`] that visits at most `bucket_max` buckets of a hash index.
    ///
    /// # Errors
    /// As for `scan`.
    pub fn scan_within(
        &mut self,
        now: UnixMillis,
        cursor: u64,
        (item_target, bucket_max): (usize, u32),
        mut visit: impl FnMut(&Item<'_>),
    ) -> Result<u64, UnknownCursor> {
        self.scan_bounded(now, cursor, &[], (item_target, bucket_max), |item| {
            visit(item);
            true
        })
    }

    /// [`Session::scan`] of the keys that start with `prefix`. With a tree the walk goes straight
    /// to them; a hash index is walked as a whole, and `visit` gets only matching items. It also
    /// ends, after the present bucket, once `visit` returns that it has enough; the tree continues
    /// to the end of the call.
    ///
    /// # Errors
    /// As for `scan`.
    pub fn scan_while(
        &mut self,
        now: UnixMillis,
        cursor: u64,
        prefix: &[u8],
        item_target: usize,
        visit: impl FnMut(&Item<'_>) -> bool,
    ) -> Result<u64, UnknownCursor> {
        self.scan_bounded(now, cursor, prefix, (item_target, SCAN_HEADS_MAX), visit)
    }

    fn scan_bounded(
        &mut self,
        now: UnixMillis,
        cursor: u64,
        prefix: &[u8],
        (item_target, bucket_max): (usize, u32),
        mut visit: impl FnMut(&Item<'_>) -> bool,
    ) -> Result<u64, UnknownCursor> {
        if self.inner.tree.is_some() {
            let visit = |item: &Item<'_>| {
                visit(item);
            };
            return scan_ordered(self, now, cursor, prefix, item_target, visit);
        }
        if cursor >> (u64::BITS - CURSOR_SHIFT) != 0 {
            return Ok(0);
        }
        let mut next = Some(KeyHash(cursor << CURSOR_SHIFT));
        let (mut heads, mut visited, mut slots, mut goes_on) = (0, 0, Vec::new(), true);
        while let Some(hash) = next
            && heads < bucket_max.max(1)
            && visited < item_target.max(1)
            && goes_on
        {
            slots.clear();
            let place = self.inner.index.collect(hash, &mut slots);
            // Two chains may have become one since the cursor was given: its first half was
            // visited.
            let is_whole = place.first_hash(hash) == hash;
            for entry in self.live_entries(now, &slots) {
                if is_whole || self.inner.hasher.hash(entry.key()) >= hash {
                    let seen = entry.see();
                    goes_on &= !seen.item().key.starts_with(prefix) || visit(&seen.item());
                    visited += 1;
                }
            }
            heads += 1;
            next = place.next_hash(hash);
        }
        quiesce_after_reads(&mut self.local, &self.inner, now);
        Ok(next.map_or(0, |hash| hash.0 >> CURSOR_SHIFT))
    }

    /// The entries that were collected since this session's last quiescent point.
    fn live_entries<'a>(
        &'a self,
        now: UnixMillis,
        slots: &'a [Slot],
    ) -> impl Iterator<Item = Entry<'a>> {
        let entries = slots.iter().map(|slot| {
            // SAFETY: the slot was read since this session's last quiescent point.
            unsafe { self.inner.log.entry(slot.offset_bytes()) }
        });
        entries.filter(move |entry| !entry.is_expired(now))
    }

    /// Visits one item, chosen by `random`, unless `heads_max` buckets of a hash index hold none.
    pub fn random_item(
        &mut self,
        now: UnixMillis,
        random: u64,
        heads_max: u64,
        mut visit: impl FnMut(&Item<'_>),
    ) -> Drawn {
        if self.inner.item_count(&self.local.tally.counts) == 0 {
            return Drawn { is_found: false, visited: 0 };
        }
        if self.inner.tree.is_some() {
            let is_found = random_ordered(self, now, random, visit);
            return Drawn { is_found, visited: 1 };
        }
        let start = KeyHash(random);
        let mut slots = Vec::new();
        let (mut next, mut has_wrapped) = (Some(start), false);
        let (mut is_found, mut visited) = (false, 0);
        while let Some(hash) = next
            && !is_found
            && visited < heads_max
            && !(has_wrapped && hash > start)
        {
            visited += 1;
            slots.clear();
            let place = self.inner.index.collect(hash, &mut slots);
            let live: Vec<_> = self.live_entries(now, &slots).collect();
            if !live.is_empty() {
                // The high bits have chosen the chain.
                visit(&live[(random & 0xffff_ffff) as usize % live.len()].see().item());
                is_found = true;
            }
            next = place.next_hash(hash);
            if next.is_none() && !has_wrapped {
                (next, has_wrapped) = (Some(KeyHash(0)), true);
            }
        }
        quiesce_after_reads(&mut self.local, &self.inner, now);
        Drawn { is_found, visited }
    }
}
