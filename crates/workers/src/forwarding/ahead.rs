//! Windows over the queue: queued requests on a key that the current full batch writes are executed
//! with that batch (C-4 §4.3; K8).
//!
//! ```text
//!  taken batch    SET h   GET x   SET h             window of h
//!  lane 0 waits   GET y   SET h   SET z   GET h     SET h, GET h join; GET y and SET z wait
//!  lane 1 waits   SET h                             SET h joins
//!                 ╰──── at most 32 slots ────╯
//! ```
//!
//! The ring's entries hold the keys' hashes, so looking costs eight bytes a slot; the request slot
//! is read only if its hash is one of the batch's. A request that joins is answered in its request
//! slot at once and skipped when its turn comes, so the ring's tail passes it in order.
//!
//! # Invariants
//! I1: of a lane's requests with one hash, those that join are the oldest waiting ones, so their
//!     order is kept (K10). Reads therefore join as well: a read between two writes of its
//!     connection must not see the second one.
//! I2: joining decides nothing about compaction, which compares keys in full (I4 of `compaction`):
//!     a request that joined and is not compacted is executed as part of the batch.
//!
//! # Limits
//! [`SLOTS_MAX`] slots over all lanes, and windows of [`KEYS_MAX`] keys.
//!
//! # Trade-offs
//! A window never waits: it closes when no further request on its key is in sight (C-4 §7.2;
//! decision 0038 says why no window is held open). A request that joins may overtake a request on
//! another key; both were waiting, so they are concurrent.

use arrayvec::ArrayVec;
use commands::compaction::may_open;
use commands::work::BATCH_REQUESTS_MAX;
use config::Compacts;
use dispatch::lanes::lane::{Lane, PLACES_AHEAD_MAX};
use dispatch::lanes::request_slot;

/// Queued slots that are examined behind a batch, at most (K8).
const SLOTS_MAX: usize = 32;
/// Keys of one batch that queued requests may join, at most.
const KEYS_MAX: usize = 8;
/// Requests of a batch and of those that join it, at most.
pub(super) const REQUEST_SLOTS_MAX: usize = store::BATCH_MAX + SLOTS_MAX;

const _: () = {
    assert!(REQUEST_SLOTS_MAX <= BATCH_REQUESTS_MAX, "compaction takes so many");
    assert!(SLOTS_MAX <= PLACES_AHEAD_MAX, "a lane remembers so many");
};

/// The request slots of one batch, in the order of execution.
pub(super) type RequestSlots = ArrayVec<*mut request_slot::RequestSlot, REQUEST_SLOTS_MAX>;

/// The keys of a batch with enough writes to search the queue for.
pub(super) struct Keys {
    /// Their hashes, and how many writes of each are known.
    found: ArrayVec<(u64, u8), KEYS_MAX>,
    /// A bit for each hash, so that most slots cost one test.
    filter: u64,
    compacts: Compacts,
}

#[inline]
fn bit_of(hash: u64) -> u64 {
    // Not the lowest bits: those belong to the tag.
    1 << (hash >> 20 & 63)
}

impl Keys {
    /// The keys of a batch; `None`: none of its writes may open a window.
    #[inline]
    pub fn of(
        compacts: Compacts,
        request_slots: &[*mut request_slot::RequestSlot],
    ) -> Option<Keys> {
        let mut keys = Keys { found: ArrayVec::new(), filter: 0, compacts };
        for request_slot in request_slots {
            // SAFETY: the entry that names the request slot was taken and is not completed, so it
            // is this worker's (Request slot's I1), and no thread refers to it mutably now.
            let request = unsafe { &**request_slot }.request();
            if may_open(compacts, &request.op) {
                keys.add(request.hash.0);
            }
        }
        (!keys.found.is_empty()).then_some(keys)
    }

    fn add(&mut self, hash: u64) {
        if let Some(at) = self.position(hash) {
            self.found[at].1 = self.found[at].1.saturating_add(1);
        } else if self.found.try_push((hash, 1)).is_ok() {
            self.filter |= bit_of(hash);
        }
    }

    #[inline]
    fn position(&self, hash: u64) -> Option<usize> {
        if self.filter & bit_of(hash) == 0 {
            return None;
        }
        self.found.iter().position(|(known, _)| *known == hash)
    }

    fn is_worth_joining(&self, at: usize) -> bool {
        self.found[at].1 >= self.compacts.writes_min()
    }
}

/// A waiting request whose key the batch writes.
struct Follower {
    lane: usize,
    place: usize,
    /// Index in [`Keys::found`].
    key: usize,
    request_slot: *mut request_slot::RequestSlot,
}

/// Appends to `request_slots` the requests for one of `keys` that wait in the lanes, from
/// `first_lane` on. Returns whether more requests wait than may be examined.
#[cold]
pub(super) fn join(
    mut keys: Keys,
    lanes: &mut [Lane],
    first_lane: usize,
    request_slots: &mut RequestSlots,
) -> bool {
    let mut followers: ArrayVec<Follower, SLOTS_MAX> = ArrayVec::new();
    let mut slots_left = SLOTS_MAX;
    let mut is_cut = false;
    for step in 0..lanes.len() {
        let at = (first_lane + step) % lanes.len();
        let lane = &mut lanes[at];
        let waiting_count = lane.receiver.waiting_count() as usize;
        is_cut |= waiting_count > slots_left;
        for place in 0..waiting_count.min(slots_left) {
            slots_left -= 1;
            let Some([hash, index]) = lane.peek(place) else { continue };
            let Some(key) = keys.position(hash) else { continue };
            let request_slot = lane.request_slots.at(index as u32);
            // SAFETY: the entry that names the request slot is published and not completed, so it
            // is this worker's (Request slot's I1), and no thread refers to it mutably now.
            let request = unsafe { &*request_slot }.request();
            if may_open(keys.compacts, &request.op) {
                keys.found[key].1 = keys.found[key].1.saturating_add(1);
            }
            followers.push(Follower { lane: at, place, key, request_slot });
        }
    }
    for follower in followers.iter().filter(|follower| keys.is_worth_joining(follower.key)) {
        lanes[follower.lane].answer_ahead(follower.place);
        request_slots.push(follower.request_slot);
    }
    is_cut
}

#[cfg(test)]
mod tests;
