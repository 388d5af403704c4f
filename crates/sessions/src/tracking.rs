//! Client-side caching: records which clients have read which keys, and notifies them when a key
//! changes.
//!
//! ```text
//!  a client that tracks ─ reads ─▶ table: key ─▶ its readers      (64 parts, each with a lock)
//!                                    │
//!  a batch has changed keys ─ take ──┘─▶ told: directly, or by the mailbox of the client's worker
//! ```
//!
//! # Invariants
//! T1: while no client tracks, a round costs one relaxed load, and a change of a key one look at
//!     the session's own option.
//! T2: no client tracks before every writing thread has seen that one is about to
//!     ([`Tracking::is_ready`]). From then on, all reads see the earlier writes of such a thread,
//!     and the thread looks up here each key that it writes.
//! T3: a client's key is in the table before it is read; a writer looks a key up after the write.
//!     Both take the lock of the key's part. So either the writer finds the reader, or the reader
//!     took the lock later than the writer and reads the new value.
//! T4: a message is put after the reply to the read that it is about: a gathering executes the
//!     reads it has registered before its worker takes or makes any message.
//! T5: a message is sent for every key that is taken out of the table. A flush takes keys out
//!     before it notifies, so a client that reads in between gets one message too many, not one too
//!     few.
//! T6: a message is never lost while its client is connected. Messages without room in a mailbox,
//!     or in the output of a client that does not read, become one message that everything has
//!     changed. No client is disconnected because of the writes of others.
//!
//! # Limits
//! The table holds at most `tracking-table-max-keys` keys, and takes at most a quarter of the
//! client buffers. Beyond that, the oldest keys of some part are reported as changed.

pub mod message;
mod prefixes;
mod registry;
pub mod table;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use budget::{BufferBudget, Kind, Reservation, UnderWay};
use commands::work::Work;
use crossbeam_utils::CachePadded;
pub use prefixes::ChangedKeys;
pub use prefixes::{Broadcast, Overlap};
use registry::Registry;
pub use registry::{Consent, Mode, Refused, Tracker, prefix_count_max};
use table::{Table, Taken};

/// Parts of the table.
const PARTS: usize = 64;

/// The maximum number of keys that one call removes after the setting was lowered; the next reads
/// continue.
const CROWDED_MAX: usize = 256;

/// The table's part of the client buffers.
const TABLE_PART: u64 = 4;

/// Keys that the store looks up in the time in which the table takes one in, or gives one up.
const REMEMBERED_KEYS: usize = 4;

/// A part books its memory in steps.
const BOOKED_STEP_BYTES: u64 = 16 << 10;

/// A part of the table, with the bytes booked for it.
struct Part {
    table: Table,
    booked: Reservation,
}

/// The clients that track, and the keys they have read.
pub struct Tracking {
    /// Odd while a client tracks or is about to; changes each time that this changes.
    word: AtomicU64,
    /// For each writing thread: the word that it last acted by.
    seen: Vec<CachePadded<AtomicU64>>,
    registry: Mutex<Registry>,
    parts: Vec<Mutex<Part>>,
    /// Chooses a key's part.
    hasher: std::hash::RandomState,
    keys: AtomicUsize,
    keys_max: AtomicU64,
    part_bytes_max: u64,
    /// Messages on their way to other workers.
    pub under_way: UnderWay,
    /// Messages that were put into an output or a mailbox, since the start.
    told: AtomicU64,
    /// Keys removed to make room for others, since the start.
    crowded_out: AtomicU64,
}

/// The totals of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableTotals {
    /// Keys.
    pub keys: usize,
    /// Pairs of a key and a client that has read it.
    pub items: usize,
    /// The memory they take.
    pub held_bytes: usize,
}

impl Tracking {
    /// A state without tracking clients; `thread_count` threads write, and the table holds
    /// `keys_max` keys.
    pub fn new(thread_count: usize, keys_max: u64, budget: &Arc<BufferBudget>) -> Tracking {
        let part = || {
            let booked = Reservation::empty(budget, Kind::Tracking);
            Mutex::new(Part { table: Table::default(), booked })
        };
        Tracking {
            word: AtomicU64::new(0),
            seen: (0..thread_count).map(|_| CachePadded::default()).collect(),
            registry: Mutex::default(),
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: std::hash::RandomState::new(),
            keys: AtomicUsize::new(0),
            keys_max: AtomicU64::new(keys_max),
            part_bytes_max: budget.limit_bytes() / TABLE_PART / PARTS as u64,
            under_way: UnderWay::default(),
            told: AtomicU64::new(0),
            crowded_out: AtomicU64::new(0),
        }
    }

    /// The word that threads act by; see [`is_on`].
    #[inline]
    pub fn word(&self) -> u64 {
        // Relaxed: a thread that is late is waited for (T2).
        self.word.load(Ordering::Relaxed)
    }

    /// Notes that a thread acts by that word: if the word is on, the thread looks up its writes
    /// from now on.
    pub fn set_seen(&self, thread: usize, word: u64) {
        // Release, with the Acquire of `is_ready`: the thread's earlier writes are visible to a
        // thread that finds it ready (T2).
        self.seen[thread].store(word, Ordering::Release);
    }

    /// A client is about to track. True: every writing thread knows that a client tracks. False:
    /// the client has to wait, and all threads must be woken.
    pub fn is_ready(&self, client_id: u64) -> bool {
        let mut registry = self.registry();
        if registry.begin(client_id) {
            self.word.fetch_add(1, Ordering::Relaxed);
        }
        // No thread changes it: this client is about to track.
        let word = self.word();
        debug_assert!(is_on(word), "somebody is about to track");
        drop(registry);
        self.seen.iter().all(|seen| seen.load(Ordering::Acquire) == word)
    }

    /// Begins tracking for the client, as `tracker` says, with additional prefixes if it
    /// broadcasts. Only after [`Tracking::is_ready`].
    pub fn start<'p>(
        &self,
        tracker: &Arc<Tracker>,
        more: &[&'p [u8]],
        budget: &Arc<BufferBudget>,
    ) -> Result<(), Refused<'p>> {
        self.registry().insert(tracker, more, budget)
    }

    /// The prefixes of a client, in their order.
    pub fn prefixes_of(&self, client_id: u64) -> Vec<Box<[u8]>> {
        self.registry().prefixes_of(client_id).cloned().collect()
    }

    /// Ends tracking for the client, if it tracked. It may start again at once.
    pub fn stop(&self, client_id: u64) {
        if is_on(self.word()) {
            self.registry().remove(client_id);
        }
    }

    /// Forgets a client that has disconnected, or begins anew.
    pub fn forget(&self, client_id: u64) {
        if !is_on(self.word()) {
            return;
        }
        let mut registry = self.registry();
        registry.remove(client_id);
        if registry.end(client_id) {
            self.word.fetch_add(1, Ordering::Relaxed);
            // No client tracks, so none needs a message.
            self.clear();
        }
    }

    /// The tracker of that client.
    pub fn tracker(&self, client_id: u64) -> Option<Arc<Tracker>> {
        if !is_on(self.word()) {
            return None;
        }
        self.registry().tracker(client_id).cloned()
    }

    /// Whether that client tracks by prefixes.
    pub fn is_broadcasting(&self, client_id: u64) -> bool {
        self.tracker(client_id).is_some_and(|tracker| tracker.is_broadcasting())
    }

    /// All trackers.
    pub fn trackers(&self) -> Vec<Arc<Tracker>> {
        self.registry().trackers().cloned().collect()
    }

    /// The number of trackers.
    pub fn tracker_count(&self) -> usize {
        self.registry().trackers().count()
    }

    /// The number of prefixes of all trackers.
    pub fn prefix_count(&self) -> usize {
        self.registry().prefixes.count()
    }

    /// A key has changed: records it under the prefixes that clients have named, for
    /// [`Tracking::broadcast_to`]. Returns the work that took.
    pub fn note_broadcast(&self, broadcast: &mut Broadcast, key: &[u8], by: Option<u64>) -> Work {
        self.registry().prefixes.note(broadcast, key, by)
    }

    /// The trackers that have named that prefix.
    pub fn broadcast_to(&self, prefix: &[u8]) -> Vec<Arc<Tracker>> {
        let registry = self.registry();
        let clients = registry.prefixes.clients_of(prefix);
        clients.filter_map(|client_id| registry.tracker(client_id).cloned()).collect()
    }

    /// Whether any tracker has named prefixes.
    pub fn has_prefixes(&self) -> bool {
        self.registry().prefixes.count() > 0
    }

    /// A client is about to read a key (T3). Keys for which there is no room any more are added to
    /// `crowded`: their readers must be notified, after the pending reads (T4). Returns its cost.
    pub fn remember(&self, key: &[u8], client_id: u64, crowded: &mut Vec<Taken>) -> Work {
        let index = self.part_of(key);
        let mut part = self.part(index);
        let crowded_before = crowded.len();
        let (is_new, others) = self.counted(&mut part, |part| {
            let before = part.table.key_count();
            let others = part.table.add(key, client_id);
            (part.table.key_count() > before, others)
        });
        self.counted(&mut part, |part| {
            while !part.has_room(self.part_bytes_max) {
                let Some(taken) = part.table.take_oldest() else { break };
                crowded.push(taken);
            }
        });
        drop(part);
        if is_new && self.is_full() {
            self.make_room(index, crowded);
        }
        let gone = (crowded.len() - crowded_before) as u64;
        if gone > 0 {
            self.crowded_out.fetch_add(gone, Ordering::Relaxed);
        }
        let mut work = Work::keys(REMEMBERED_KEYS * (1 + gone as usize));
        work += Work::bytes((others * size_of::<u64>()) as u64);
        work
    }

    /// A key has changed: takes out its readers, which must be notified. `keeps` made the change
    /// and does not want a message.
    pub fn take(&self, key: &[u8], keeps: Option<u64>) -> Option<Taken> {
        let mut part = self.part(self.part_of(key));
        self.counted(&mut part, |part| part.table.take(key, keeps))
    }

    /// Everything has changed (T5).
    pub fn clear(&self) {
        for index in 0..PARTS {
            self.counted(&mut self.part(index), |part| part.table.clear());
        }
    }

    /// The totals of the table.
    pub fn totals(&self) -> TableTotals {
        let mut totals = TableTotals::default();
        for index in 0..PARTS {
            let part = self.part(index);
            totals.keys += part.table.key_count();
            totals.items += part.table.item_count();
            totals.held_bytes += part.table.held_bytes();
        }
        totals
    }

    /// The maximum number of keys; 0: bounded by memory only.
    pub fn keys_max(&self) -> u64 {
        self.keys_max.load(Ordering::Relaxed)
    }

    /// Sets that maximum, from the next key on.
    pub fn set_keys_max(&self, keys_max: u64) {
        self.keys_max.store(keys_max, Ordering::Relaxed);
    }

    /// Messages since the start.
    pub fn told_total(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Counts further messages.
    pub fn count_told(&self, count: u64) {
        self.told.fetch_add(count, Ordering::Relaxed);
    }

    /// Keys removed to make room for others, since the start.
    pub fn crowded_out_total(&self) -> u64 {
        self.crowded_out.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        let keys_max = self.keys_max();
        keys_max > 0 && self.keys.load(Ordering::Relaxed) as u64 > keys_max
    }

    /// Removes the oldest keys of parts, beginning with the part after that of the latest key.
    fn make_room(&self, latest: usize, crowded: &mut Vec<Taken>) {
        for step in 1..=PARTS {
            let index = (latest + step) % PARTS;
            while self.is_full() && crowded.len() < CROWDED_MAX {
                let taken = self.counted(&mut self.part(index), |part| part.table.take_oldest());
                let Some(taken) = taken else { break };
                crowded.push(taken);
            }
        }
    }

    /// Changes a part, under its lock, and recounts its keys.
    fn counted<T>(&self, part: &mut Part, change: impl FnOnce(&mut Part) -> T) -> T {
        let before = part.table.key_count();
        let result = change(part);
        let after = part.table.key_count();
        // Relaxed: a bound that may be exceeded for a moment.
        self.keys.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        if after < before {
            part.shrink();
        }
        result
    }

    fn part_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % PARTS
    }

    fn part(&self, index: usize) -> MutexGuard<'_, Part> {
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Books the growth of the part; false: it has to shrink.
    fn has_room(&mut self, bytes_max: u64) -> bool {
        let held_bytes = self.table.held_bytes() as u64;
        if held_bytes <= self.booked.bytes() {
            return true;
        }
        let step_bytes = BOOKED_STEP_BYTES.min(bytes_max.max(1));
        let wanted = held_bytes.next_multiple_of(step_bytes);
        held_bytes <= bytes_max && self.booked.try_resize(wanted.min(bytes_max))
    }

    fn shrink(&mut self) {
        let held_bytes = self.table.held_bytes() as u64;
        if held_bytes + 2 * BOOKED_STEP_BYTES <= self.booked.bytes() || held_bytes == 0 {
            // Shrinking always succeeds.
            self.booked.try_resize(held_bytes);
        }
    }
}

/// Whether that word means that some client tracks.
#[inline]
pub fn is_on(word: u64) -> bool {
    word & 1 == 1
}
