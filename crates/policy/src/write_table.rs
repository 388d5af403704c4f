//! The write table (C-4's Exclusive Writer Table): which worker writes which partition, while
//! writes are outstanding.
//!
//! ```text
//!  partition ──low bits──▶ set: one cache line of eight entries
//!
//!   0      1      2      3      4      5      6      7
//!  +------+------+------+------+------+------+------+------+
//!  | P held by 3, 2 out |      | Q claimed by dispatcher 1 |   (any order, any gaps)
//!  +------+------+------+------+------+------+------+------+
//!
//!  empty ──claim──▶ claimed ──hold──▶ held, 1 ──▶ held, 2 ──▶ ... ──last unpin──▶ empty
//!    ▲                 │
//!    └──cancelled or withdrawn
//! ```
//!
//! A write whose partition is held goes to the holder and adds one to its count. Any other write
//! may go to whichever worker the policy picks, and takes an entry. The last reply frees the entry
//! (C-4 §4.2, Fig. 5).
//!
//! # Invariants
//! I1: at most one entry *holds* a partition, and its count is the number of writes outstanding.
//! I2: a claimed entry names the dispatcher that wrote it, and only that dispatcher makes it held.
//!     A dispatcher has at most one claim, since it works on one request at a time.
//! I3: a dispatcher holds a claim only if it searched the whole set *after* it placed the claim,
//!     found its partition held nowhere, and cancelled every other claim on that partition that it
//!     met.
//! I4: the partition, and so the set, of an entry never changes while it is not empty.
//! I5: no refusal changes an entry.
//! I6: the first word says how many of the others are taken, or about to be. A dispatcher counts
//!     itself there before it claims one of them, and a dispatcher that empties one takes the count
//!     back afterwards. So while the first word is 0, the whole set is empty, and no dispatcher is
//!     about to claim in it.
//!
//! # Concurrency
//! Any number of dispatchers, each with its own handle; none ever waits for another. Every change
//! is one compare-and-swap of one word. A dispatcher enters an empty set by one swap of its first
//! word from 0 to held. By I6 the partition is held nowhere else at that instant, and a dispatcher
//! that enters the other words later counts itself in the first word, so after that swap, and finds
//! the entry there.
//!
//! A dispatcher enters a set that is not empty by a claim. Two words can't be compared at once, so
//! two dispatchers could fill two gaps of a set with one partition; I1 follows from I2 and I3:
//!
//!  1. Let X and Y claim one partition, X's claim being the earlier in the order of all
//!     sequentially consistent operations. Y searches after its own claim, so after X's.
//!  2. Y meets X's claim: it cancels it, X's hold fails (I2), and X begins again.
//!  3. Y meets X's held entry: Y withdraws its claim and adds one to that entry.
//!  4. Y meets neither: X's claim was cancelled or withdrawn, or its held entry is free again.
//!
//! In no case do both hold. A dispatcher that stops in the middle leaves a claim that the next one
//! cancels, and a count in the first word that only makes others claim. Two dispatchers that meet
//! at one partition at one instant may cancel each other; they back off.
//!
//! A new holder sees the writes of the previous holder: freeing is a Release, and the search that
//! found no entry is an Acquire of every word of the set, all of whose changes are
//! read-modify-writes and so continue the release. A dispatcher that swaps the first word from 0
//! acquires the writes released by taking back the count of an entry elsewhere in the set (I6).
//!
//! # Limits
//! 27-bit partitions, 65,536 workers and as many dispatchers, 131,071 writes outstanding per
//! partition. A full set or a full count is back-pressure ([`Pin::Full`]), never a wrong owner. So
//! are seven dispatchers at once about to claim the other words of one set.
//!
//! # Trade-offs
//! A new entry in an empty set costs one swap and no search; in another set it costs three swaps
//! and two searches of a line, and one more swap when it is freed. So the table pays while most
//! sets are empty. One word that packed a set of two short entries would always cost one swap, but
//! be full far more often for its memory (decision 0015).
//!
//! # References
//! C-4 §5.2 and Fig. 8; rules K5, K6; decision 0015.

mod word;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;

use base::sync::{Arc, AtomicU64, AtomicUsize, Backoff, Ordering};
use base::{PartitionId, WorkerId};

use word::{State, Word};

/// Entries of one set.
#[cfg(not(loom))]
const WAYS: usize = 8;
/// Small, so that a set fills up at once.
#[cfg(loom)]
const WAYS: usize = 2;

/// The destination of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// To the worker that already holds the partition.
    Existing(WorkerId),
    /// To the worker just chosen, which holds the partition from now on.
    New(WorkerId),
    /// None: the partition's set, or its entry's count, is full.
    Full,
    /// None: no worker holds the partition, and none was chosen.
    NoWorker,
}

/// The state of the partition after unpinning a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpin {
    /// Other writes of the partition are outstanding.
    Held,
    /// It was the last: any worker may write the partition next.
    Freed,
}

/// One cache line of entries.
#[cfg_attr(not(loom), repr(align(64)))]
struct Set([AtomicU64; WAYS]);

struct Shared {
    sets: Box<[Set]>,
    dispatchers: AtomicUsize,
}

/// One dispatcher's handle on the table.
pub struct WriteTable {
    shared: Arc<Shared>,
    /// The id in this handle's claims (I2).
    dispatcher: WorkerId,
    /// The number of entries opened here minus those freed here.
    opened: Cell<i64>,
}

impl WriteTable {
    /// An empty table of at least `entry_count` entries, and its first dispatcher's handle.
    ///
    /// Sets fill up before the table does: with four times as many entries as held partitions, one
    /// new write in 900 finds its set full; with eight times, one in 100,000 (Poisson).
    pub fn new(entry_count: usize) -> WriteTable {
        let set_count = WriteTable::capacity(entry_count) / WAYS;
        let sets = (0..set_count).map(|_| Set(std::array::from_fn(|_| AtomicU64::new(0))));
        let shared = Shared { sets: sets.collect(), dispatchers: AtomicUsize::new(1) };
        WriteTable { shared: Arc::new(shared), dispatcher: WorkerId(0), opened: Cell::new(0) }
    }

    /// The number of entries of a table of at least `entry_count`.
    pub fn capacity(entry_count: usize) -> usize {
        entry_count.div_ceil(WAYS).next_power_of_two() * WAYS
    }

    /// Another dispatcher's handle on the same table.
    pub fn for_another_dispatcher(&self) -> WriteTable {
        let id = self.shared.dispatchers.fetch_add(1, Ordering::Relaxed);
        let id = u16::try_from(id).expect("at most 65,536 handles are ever made");
        let shared = Arc::clone(&self.shared);
        WriteTable { shared, dispatcher: WorkerId(id), opened: Cell::new(0) }
    }

    /// Pins one more write of `partition` to its holder, or to the worker that `choose` returns.
    /// `choose` is called at most once, and only if no worker holds the partition.
    #[inline]
    pub fn pin(&self, partition: PartitionId, choose: impl FnOnce() -> Option<WorkerId>) -> Pin {
        let set = self.set(partition);
        let first = Word::load_first(&set.0[0]);
        if first.holds(partition) {
            if let Some(pin) = set.try_add(0, first) {
                return pin;
            }
        } else if first == Word::EMPTY {
            let Some(worker) = choose() else { return Pin::NoWorker };
            // By I6 the set is empty if this succeeds.
            if set.try_swap(0, Word::EMPTY, Word::held(partition, worker)) {
                self.opened.set(self.opened.get() + 1);
                return Pin::New(worker);
            }
            return self.pin_by_search(partition, || Some(worker));
        }
        self.pin_by_search(partition, choose)
    }

    /// The same if the set may not be empty.
    #[inline(never)]
    fn pin_by_search(
        &self,
        partition: PartitionId,
        choose: impl FnOnce() -> Option<WorkerId>,
    ) -> Pin {
        let set = self.set(partition);
        let mut choose = Some(choose);
        let mut chosen = None;
        let mut backoff = Backoff::new();
        loop {
            let free = match self.search(set, partition, None) {
                Search::Held { way, word } => match set.try_add(way, word) {
                    Some(pin) => return pin,
                    None => continue,
                },
                Search::Absent { free: 0 } => return Pin::Full,
                Search::Absent { free } => free.trailing_zeros() as usize,
            };
            if let Some(choose) = choose.take() {
                chosen = choose();
            }
            let Some(worker) = chosen else { return Pin::NoWorker };
            if free > 0 && !set.enter_rest() {
                return Pin::Full;
            }
            if self.try_hold(set, free, partition, worker) {
                self.opened.set(self.opened.get() + 1);
                return Pin::New(worker);
            }
            if free > 0 {
                set.leave_rest();
            }
            backoff.snooze();
        }
    }

    /// Unpins one write of `partition`, which has been answered.
    ///
    /// # Panics
    /// If none is outstanding.
    #[inline]
    pub fn unpin(&self, partition: PartitionId) -> Unpin {
        let set = self.set(partition);
        let mut first = Word::load_first(&set.0[0]);
        // The entry keeps its place while a write is outstanding (I4), so it is this one, however
        // the word changes.
        while first.holds(partition) {
            if set.try_swap(0, first, first.less_one()) {
                return self.unpinned(first);
            }
            first = Word::load_first(&set.0[0]);
        }
        self.unpin_by_search(partition)
    }

    /// The same if its entry is not the first of the set.
    #[inline(never)]
    fn unpin_by_search(&self, partition: PartitionId) -> Unpin {
        let set = self.set(partition);
        loop {
            let Search::Held { way, word } = self.search(set, partition, None) else {
                panic!("I1: no write of {partition:?} is outstanding");
            };
            if set.try_swap(way, word, word.less_one()) {
                let unpin = self.unpinned(word);
                if unpin == Unpin::Freed && way > 0 {
                    set.leave_rest();
                }
                return unpin;
            }
        }
    }

    /// Handles a held word that has one write less. Its swap was a Release: a dispatcher that pins
    /// the partition next sees the writes made under this entry.
    #[inline]
    fn unpinned(&self, before: Word) -> Unpin {
        if before.less_one().state() == State::Empty {
            self.opened.set(self.opened.get() - 1);
            return Unpin::Freed;
        }
        Unpin::Held
    }

    /// The worker that holds `partition` at the moment.
    pub fn holder(&self, partition: PartitionId) -> Option<WorkerId> {
        match self.search(self.set(partition), partition, None) {
            Search::Held { word, .. } => Some(word.id()),
            Search::Absent { .. } => None,
        }
    }

    /// The number of held partitions. It counts every entry, so it is not for use in each request.
    pub fn len(&self) -> usize {
        let words = self.shared.sets.iter().flat_map(|set| &set.0);
        words.filter(|word| Word::load(word).state() == State::Held).count()
    }

    /// Whether no partition is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries that this dispatcher opened minus those it freed: with one dispatcher
    /// it equals [`WriteTable::len`], with several their sum does. Costs nothing.
    #[inline]
    pub fn opened(&self) -> i64 {
        self.opened.get()
    }

    /// Recounts everything, while no dispatcher is active.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn validate(&self) {
        for (index, set) in self.shared.sets.iter().enumerate() {
            let words: Vec<Word> = set.0.iter().map(Word::load).collect();
            let taken = words.iter().filter(|word| word.state() != State::Empty);
            let mut partitions: Vec<PartitionId> = taken.clone().map(|w| w.partition()).collect();
            for word in taken {
                assert_eq!(word.state(), State::Held, "I2: a claim outlived its dispatcher's pin");
                assert_eq!(self.set_index(word.partition()), index, "I4");
            }
            let rest = words[1..].iter().filter(|word| word.state() != State::Empty).count();
            assert_eq!(words[0].rest(), rest, "I6");
            assert!(words[1..].iter().all(|word| word.rest() == 0), "I6: only the first counts");
            partitions.sort_unstable();
            assert!(partitions.windows(2).all(|two| two[0] != two[1]), "I1: held twice");
        }
    }

    #[inline]
    fn set_index(&self, partition: PartitionId) -> usize {
        partition.index() & (self.shared.sets.len() - 1)
    }

    #[inline]
    fn set(&self, partition: PartitionId) -> &Set {
        debug_assert!(partition.0 <= Word::PARTITION_MAX, "a partition has 27 bits");
        &self.shared.sets[self.set_index(partition)]
    }

    /// Searches the whole set except `own`, cancelling the claims of others on `partition`.
    #[inline]
    fn search(&self, set: &Set, partition: PartitionId, own: Option<usize>) -> Search {
        let mut free = 0;
        for way in 0..WAYS {
            if own == Some(way) {
                continue;
            }
            loop {
                let word = match own {
                    None => Word::load_first(&set.0[way]),
                    Some(_) => Word::load(&set.0[way]),
                };
                if word.state() == State::Empty {
                    free |= 1 << way;
                    break;
                }
                if word.partition() != partition {
                    break;
                }
                if word.state() == State::Held {
                    return Search::Held { way, word };
                }
                // Another dispatcher's claim: it is cancelled now, or has become something else.
                set.try_swap_entry(way, word, Word::EMPTY);
            }
        }
        Search::Absent { free }
    }

    /// Claims an entry, checks whether another dispatcher was there first, and holds the entry.
    #[inline]
    fn try_hold(&self, set: &Set, way: usize, partition: PartitionId, worker: WorkerId) -> bool {
        let claim = Word::claimed(partition, self.dispatcher);
        if !set.try_swap_entry(way, Word::EMPTY, claim) {
            return false;
        }
        // Loom treats sequentially consistent swaps and loads as acquire and release only.
        #[cfg(loom)]
        base::sync::fence(Ordering::SeqCst);
        match self.search(set, partition, Some(way)) {
            Search::Absent { .. } => set.try_swap_entry(way, claim, Word::held(partition, worker)),
            Search::Held { .. } => {
                // If this fails, the claim was cancelled; either way it is gone.
                set.try_swap_entry(way, claim, Word::EMPTY);
                false
            }
        }
    }
}

/// The result of searching a set for a partition.
enum Search {
    Held {
        way: usize,
        word: Word,
    },
    /// Bit w of `free` set: way w is empty.
    Absent {
        free: u32,
    },
}

impl Set {
    /// Adds one outstanding write; `None`: the entry has changed.
    #[inline]
    fn try_add(&self, way: usize, word: Word) -> Option<Pin> {
        let Some(more) = word.plus_one() else { return Some(Pin::Full) };
        self.try_swap(way, word, more).then(|| Pin::Existing(word.id()))
    }

    /// Counts this dispatcher in the first word, before it claims another (I6); false: the count is
    /// full.
    fn enter_rest(&self) -> bool {
        let mut first = Word::load_first(&self.0[0]);
        loop {
            let Some(more) = first.rest_plus_one() else { return false };
            if self.try_swap(0, first, more) {
                return true;
            }
            first = Word::load_first(&self.0[0]);
        }
    }

    /// Takes the count back: one of the other words is empty, or was never claimed (I6).
    fn leave_rest(&self) {
        loop {
            let first = Word::load_first(&self.0[0]);
            if self.try_swap(0, first, first.rest_less_one()) {
                return;
            }
        }
    }

    /// Swaps an entry, whatever the count beside it is.
    #[inline]
    fn try_swap_entry(&self, way: usize, from: Word, to: Word) -> bool {
        if way > 0 {
            return self.try_swap(way, from, to);
        }
        loop {
            let now = Word::load_first(&self.0[0]);
            if now.entry() != from.entry() {
                return false;
            }
            if self.try_swap(0, now, to.beside(now)) {
                return true;
            }
        }
    }

    /// Sequentially consistent: I3 relies on the order of claims and of the searches after them.
    #[inline]
    fn try_swap(&self, way: usize, from: Word, to: Word) -> bool {
        let (from, to) = (from.bits(), to.bits());
        self.0[way].compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
