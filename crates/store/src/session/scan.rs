//! Walking the whole index: SCAN, KEYS, RANDOMKEY, FLUSHALL.
//!
//! Buckets are visited in order of their keys' hashes (K9), each as of one moment, so that a key
//! that is present throughout is seen. A cursor is the next bucket's number.

use base::UnixMillis;

use super::Session;
use crate::index::slot::Slot;
use crate::request::Item;

/// Buckets that one call of `scan` looks at: about 4 MiB of index.
const SCAN_HEADS_MAX: u32 = 65_536;
/// Buckets that FLUSHALL empties between two quiescent points.
const FLUSH_HEADS: u32 = 64;

impl Session {
    /// Visits the items of the next buckets from `cursor` on (0: the start) until `item_target`
    /// items were visited or a bounded number of buckets; the next cursor (0: the end).
    pub fn scan(
        &mut self,
        now: UnixMillis,
        cursor: u64,
        item_target: usize,
        mut visit: impl FnMut(&Item<'_>),
    ) -> u64 {
        let head_count = self.inner.index.head_count();
        let Ok(first) = u32::try_from(cursor) else { return 0 };
        let end = first.saturating_add(SCAN_HEADS_MAX).min(head_count);
        let (mut visited, mut slots) = (0, Vec::new());
        let mut head = first;
        while head < end && visited < item_target.max(1) {
            visited += self.visit_chain(now, head, &mut slots, &mut visit);
            head += 1;
        }
        self.quiesce();
        if head < head_count { u64::from(head) } else { 0 }
    }

    fn visit_chain(
        &self,
        now: UnixMillis,
        head: u32,
        slots: &mut Vec<Slot>,
        visit: &mut impl FnMut(&Item<'_>),
    ) -> usize {
        if self.inner.index.is_empty(head) {
            return 0;
        }
        slots.clear();
        self.inner.index.collect(head, slots);
        let mut visited = 0;
        for slot in slots.iter() {
            // SAFETY: the slot was read since this session's last quiescent point.
            let entry = unsafe { self.inner.log.entry(slot.offset_bytes()) };
            if !entry.is_expired(now) {
                visit(&entry.see().item());
                visited += 1;
            }
        }
        visited
    }

    /// Visits one item, chosen by `random`; false: there is none.
    pub fn random_item(
        &mut self,
        now: UnixMillis,
        random: u64,
        mut visit: impl FnMut(&Item<'_>),
    ) -> bool {
        if self.inner.item_count(&self.local.counts) == 0 {
            return false;
        }
        let head_count = self.inner.index.head_count();
        let start = ((u128::from(random) * u128::from(head_count)) >> 64) as u32;
        let mut slots = Vec::new();
        for head in (start..head_count).chain(0..start) {
            slots.clear();
            if !self.inner.index.is_empty(head) {
                self.inner.index.collect(head, &mut slots);
            }
            let live = slots.iter().filter_map(|slot| {
                // SAFETY: the slot was read since this session's last quiescent point.
                let entry = unsafe { self.inner.log.entry(slot.offset_bytes()) };
                (!entry.is_expired(now)).then_some(entry)
            });
            let live: Vec<_> = live.collect();
            if !live.is_empty() {
                visit(&live[random as usize % live.len()].see().item());
                self.quiesce();
                return true;
            }
        }
        self.quiesce();
        false
    }

    /// Deletes every item that exists at the call. Items written meanwhile may go or stay.
    pub fn flush(&mut self) {
        let head_count = self.inner.index.head_count();
        let mut first = 0;
        while first < head_count {
            let end = first.saturating_add(FLUSH_HEADS).min(head_count);
            for head in first..end {
                self.flush_chain(head);
            }
            self.quiesce();
            self.local.free_retired(&self.inner);
            first = end;
        }
        self.local.publish_counts(&self.inner);
    }

    fn flush_chain(&mut self, head: u32) {
        let Session { inner, local } = self;
        if inner.index.is_empty(head) {
            return;
        }
        let mut chain = inner.index.lock(head);
        let mut removed = Vec::new();
        chain.entries(|position| removed.push(position));
        chain.clear(&mut local.unlinked);
        chain.finish();
        // After the slots: a segment that counts no live bytes may be retired at once.
        for position in removed {
            let entry = super::Local::entry_of(inner, position);
            local.count_removed(inner, position, entry);
        }
    }
}
