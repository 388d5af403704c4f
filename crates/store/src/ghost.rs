//! The ghost table: keys that the small queue evicted lately. When such a key is written again, it
//! goes straight to the main queue (S3-FIFO).
//!
//! ```text
//!  hash ──high bits──▶ line of 16 words (64 bytes)
//!       └─bits 16..32: fingerprint
//!  word:  31          16 15            0
//!         +-------------+--------------+
//!         | fingerprint | inserted at  |   0: empty
//!         +-------------+--------------+
//! ```
//!
//! "Inserted at" counts insertions in steps of `2^unit_shift`, modulo 2^16. A word counts while it
//! is among the `window` youngest. The window is nine tenths of the cache's items, as many as the
//! main queue has room for.
//!
//! # Invariants
//! I1: a word is 0, or names a key that was inserted with that fingerprint and step.
//! I2: an insert into a full line overwrites the line's oldest word.
//!
//! # Concurrency
//! All sessions share the table. Every word is one atomic that is complete by itself, so nothing
//! can tear. When two sessions store to the same word, one insertion is lost; and a key that one
//! session removes while another looks may be found twice. Either costs one wrong choice of a
//! queue, never an item. All orderings are Relaxed, since a word publishes nothing.
//!
//! # Limits
//! The table takes a sixty-fourth of the store's memory, four bytes a key. With items of less than
//! about 250 bytes it remembers fewer keys than main holds. One key in 4,000 is mistaken for
//! another.
//!
//! # References
//! Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, §4 (the ghost is a
//! table of fingerprints with the time of insertion).

use base::KeyHash;
use base::sync::{AtomicU32, AtomicU64, Ordering};

/// Words of one line.
#[cfg(not(loom))]
const WORDS: usize = 16;
/// Small, to bound the model checker's run.
#[cfg(loom)]
const WORDS: usize = 2;
/// The ghost table takes one part in this many of the store's memory.
pub(crate) const MEMORY_SHARE: u64 = 64;
/// The number of steps that the whole table can distinguish: far fewer than the 2^16 at which they
/// wrap, so that no word in a line that is still written to survives the wrap.
const STEPS_PER_TABLE: u64 = 4096;

/// One cache line of ghosts.
#[repr(C, align(64))]
struct Line([AtomicU32; WORDS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

/// Fingerprints of keys that the small queue evicted.
pub(crate) struct GhostTable {
    lines: Box<[Line]>,
    /// The number of insertions so far, as of the sessions' last steps.
    inserted: AtomicU64,
    /// How many of the youngest insertions count.
    window: AtomicU64,
    unit_shift: u32,
}

impl GhostTable {
    /// An empty table of at most `bytes`, one line at least.
    pub(crate) fn new(bytes: u64) -> GhostTable {
        let line_count = (bytes / size_of::<Line>() as u64).max(1);
        let capacity = line_count * WORDS as u64;
        GhostTable {
            lines: empty_lines(usize::try_from(line_count).expect("64-bit addresses")),
            inserted: AtomicU64::new(0),
            window: AtomicU64::new(capacity),
            unit_shift: (capacity / STEPS_PER_TABLE).max(1).ilog2(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.lines.len() * size_of::<Line>()) as u64
    }

    fn capacity(&self) -> u64 {
        (self.lines.len() * WORDS) as u64
    }

    #[inline]
    fn line(&self, hash: KeyHash) -> &Line {
        let line = (u128::from(hash.0) * self.lines.len() as u128) >> 64;
        &self.lines[line as usize]
    }

    /// Prefetches the line that [`GhostTable::take`] will read.
    #[inline]
    pub(crate) fn address(&self, hash: KeyHash) -> *const u8 {
        std::ptr::from_ref(self.line(hash)).cast()
    }

    fn step_now(&self) -> u16 {
        (self.inserted.load(Ordering::Relaxed) >> self.unit_shift) as u16
    }

    /// Remembers a key. Other keys age by it only at [`GhostTable::advance`].
    pub(crate) fn insert(&self, hash: KeyHash) {
        let (line, now) = (self.line(hash), self.step_now());
        let fingerprint = fingerprint_of(hash);
        let mut place = 0;
        let mut oldest = 0;
        for (index, word) in line.0.iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            // The key's own word first, then an empty one, then the oldest (I2).
            let age = match word {
                _ if (word >> 16) as u16 == fingerprint => u32::MAX,
                0 => u32::MAX - 1,
                _ => u32::from(now.wrapping_sub(word as u16)),
            };
            if age >= oldest {
                (oldest, place) = (age, index);
            }
        }
        let word = (u32::from(fingerprint) << 16) | u32::from(now);
        line.0[place].store(word, Ordering::Relaxed);
    }

    /// Ages the keys by `count` insertions.
    pub(crate) fn advance(&self, count: u64) {
        self.inserted.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets how many of the youngest keys count from now on.
    pub(crate) fn set_window(&self, keys: u64) {
        self.window.store(keys.min(self.capacity()), Ordering::Relaxed);
    }

    /// Whether the key was evicted lately; this removes it from the table.
    #[inline]
    pub(crate) fn take(&self, hash: KeyHash) -> bool {
        let fingerprint = fingerprint_of(hash);
        for place in &self.line(hash).0 {
            let word = place.load(Ordering::Relaxed);
            if (word >> 16) as u16 == fingerprint {
                return self.take_word(place, word);
            }
        }
        false
    }

    fn take_word(&self, place: &AtomicU32, word: u32) -> bool {
        let age = u64::from(self.step_now().wrapping_sub(word as u16));
        let counts = age <= self.window.load(Ordering::Relaxed) >> self.unit_shift;
        // The exchange fails if another key has taken the place by now.
        let _ = place.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
        counts
    }
}

/// The part of the hash that neither selects the line nor is the index's tag; never 0 (I1).
#[inline]
fn fingerprint_of(hash: KeyHash) -> u16 {
    ((hash.0 >> 16) as u16).max(1)
}

#[cfg(not(loom))]
fn empty_lines(count: usize) -> Box<[Line]> {
    let lines = Box::<[Line]>::new_zeroed_slice(count);
    // SAFETY: a line is atomics only, for which zero bytes are a value. Zeroed by the allocator, so
    // that a large table costs no memory before it is used.
    unsafe { lines.assume_init() }
}

#[cfg(loom)]
fn empty_lines(count: usize) -> Box<[Line]> {
    (0..count).map(|_| Line(std::array::from_fn(|_| AtomicU32::new(0)))).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ops::Range;

    use super::*;

    fn hash(id: u64) -> KeyHash {
        KeyHash(base::hash::mix(id))
    }

    fn insert(ghosts: &GhostTable, ids: Range<u64>) {
        for id in ids {
            ghosts.insert(hash(id));
            ghosts.advance(1);
        }
    }

    fn found(ghosts: &GhostTable, ids: Range<u64>) -> usize {
        ids.filter(|id| ghosts.take(hash(*id))).count()
    }

    #[test]
    fn a_key_is_found_once_after_it_was_given_up() {
        let ghosts = GhostTable::new(64 << 10);
        insert(&ghosts, 0..1000);
        assert_eq!(found(&ghosts, 0..1000), 1000);
        assert_eq!(found(&ghosts, 0..1000), 0, "taking forgets");
        let end = if cfg!(miri) { 1500 } else { 101_000 };
        assert!(found(&ghosts, 1000..end) < 50, "strangers share a fingerprint seldom");
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn only_the_youngest_keys_of_the_window_count() {
        let ghosts = GhostTable::new(64 << 10);
        ghosts.set_window(2000);
        insert(&ghosts, 0..8000);
        assert_eq!(found(&ghosts, 6010..8000), 1990);
        assert!(found(&ghosts, 0..5990) < 20);
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn a_full_table_forgets_the_oldest() {
        let ghosts = GhostTable::new(64 << 10);
        let capacity = ghosts.capacity();
        insert(&ghosts, 0..4 * capacity);
        let young = found(&ghosts, 4 * capacity - capacity / 2..4 * capacity);
        assert!(young as u64 > capacity * 48 / 100, "{young} of {}", capacity / 2);
        assert!((found(&ghosts, 0..2 * capacity) as u64) < capacity / 100);
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn steps_that_wrap_bring_no_key_back() {
        let ghosts = GhostTable::new(64);
        assert_eq!((ghosts.capacity(), ghosts.unit_shift), (16, 0));
        ghosts.set_window(8);
        insert(&ghosts, 0..100);
        let mut back = 0;
        for id in 0..200_000 {
            insert(&ghosts, id + 100..id + 101);
            back += found(&ghosts, id..id + 1);
        }
        assert!(back < 100, "{back} keys came back; chance brings about 24");
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn sessions_at_once_find_only_what_was_inserted() {
        let ghosts = GhostTable::new(4 << 10);
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let ghosts = &ghosts;
                scope.spawn(move || {
                    // Even ids go in, odd ones never do.
                    for round in 0..20_000 {
                        ghosts.insert(hash(2 * ((round * 7 + thread) % 500)));
                        ghosts.advance(1);
                        assert!(!ghosts.take(hash(2 * (round % 300) + 1)));
                    }
                });
            }
        });
        assert!(found(&ghosts, 0..1000) > 300);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::Arc;

    /// Two sessions in one line: whatever they overwrite, what is found was inserted (I1).
    #[test]
    fn racing_sessions_forget_but_never_invent() {
        loom::model(|| {
            let ghosts = Arc::new(GhostTable::new(1));
            let key = |fingerprint: u64| KeyHash(fingerprint << 16);
            let other = ghosts.clone();
            let thread = loom::thread::spawn(move || {
                other.insert(key(1));
                other.advance(1);
                assert!(!other.take(key(3)));
            });
            ghosts.insert(key(2));
            ghosts.advance(1);
            let _ = ghosts.take(key(1));
            assert!(!ghosts.take(key(4)));
            thread.join().unwrap();
            assert!(!ghosts.take(key(3)) && !ghosts.take(key(4)));
        });
    }
}
