//! Keeps requests on one key in order (K10): a request waits behind an unanswered write of its key.
//!
//! ```text
//!  place (hash of the key)   writing   first ──▶ next ──▶ last      blocked slots
//! ```
//!
//! Keys that share a place wait for each other needlessly; there are four places per request. Reads
//! do not delay later requests: a client that sends a write while a read of its key is unanswered
//! may see either value.
//!
//! # Invariants
//! O1: at most one write of a place is in flight; a place without one blocks no request.

use base::KeyHasher;

use super::slots::{NONE, Slots};

#[derive(Clone, Copy, Debug)]
struct Place {
    is_writing: bool,
    first: u32,
    last: u32,
}

const EMPTY: Place = Place { is_writing: false, first: NONE, last: NONE };

#[derive(Debug)]
pub(super) struct Order {
    /// Empty if order is not kept.
    places: Vec<Place>,
    hasher: KeyHasher,
}

impl Order {
    pub fn new(request_count: usize, is_kept: bool, seed: u64) -> Order {
        let count = if is_kept { (request_count * 4).next_power_of_two() } else { 0 };
        Order { places: vec![EMPTY; count], hasher: KeyHasher::new(seed) }
    }

    /// Returns whether the request may be sent; otherwise it is blocked now.
    pub fn admit(&mut self, slots: &mut Slots, index: u32) -> bool {
        if self.places.is_empty() {
            return true;
        }
        let slot = slots.get_mut(index);
        let is_write = slot.stored.changes_data();
        let number = self.hasher.hash(slot.key()).0 as usize & (self.places.len() - 1);
        let place = &mut self.places[number];
        if place.is_writing {
            let last = std::mem::replace(&mut place.last, index);
            if last == NONE {
                place.first = index;
            } else {
                slots.get_mut(last).next = index;
            }
            slots.get_mut(index).order_place = number as u32;
            return false;
        }
        if is_write {
            place.is_writing = true;
            slot.order_place = number as u32;
        }
        true
    }

    /// After the end of a write, takes a blocked request of its place that may be sent now. Call
    /// this until it returns none.
    pub fn release(&mut self, slots: &mut Slots, place: u32) -> Option<u32> {
        let place = self.places.get_mut(place as usize)?;
        let index = place.first;
        if place.is_writing || index == NONE {
            return None;
        }
        let slot = slots.get_mut(index);
        place.first = std::mem::replace(&mut slot.next, NONE);
        if place.first == NONE {
            place.last = NONE;
        }
        if slot.stored.changes_data() {
            place.is_writing = true;
        } else {
            slot.order_place = NONE;
        }
        Some(index)
    }

    /// Records the end of the write of this place.
    pub fn settle(&mut self, place: u32) {
        if let Some(place) = self.places.get_mut(place as usize) {
            debug_assert!(place.is_writing, "O1");
            place.is_writing = false;
        }
    }
}

impl Order {
    /// Forgets everything: all requests have ended.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
    }
}
