//! Quiescent-state reclamation: decides when memory that readers could still hold may be reused.
//!
//! ```text
//!  remover:  unlink X ── tag = ++global ─────────── all online sessions at >= tag? ── reuse X
//!  session:  ... batch ... quiesce: local = global ... batch ... park: local = OFFLINE ... unpark
//! ```
//!
//! # Invariants
//! I1: a session holds no reference into the log or to an overflow bucket across `quiesce` or
//!     `park`, nor while it is parked (K12).
//! I2: memory unlinked before `advance` returned `tag` is unreachable for every session whose local
//!     epoch is at least `tag`.
//!
//! # Concurrency
//! Only the session that owns a place writes its local epoch. Any thread may call `advance` and
//! `is_safe`.
//!
//! # Limits
//! A session that neither quiesces nor parks holds back all reuse. Workers quiesce between batches,
//! so the delay is one batch.

use base::sync::{AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;

/// The local epoch of a parked session: it holds nothing back.
const OFFLINE: u64 = u64::MAX;
/// The local epoch of a place that no session has.
const FREE: u64 = u64::MAX - 1;

/// The global epoch and one local epoch for each place.
pub struct Epochs {
    global: CachePadded<AtomicU64>,
    /// Padded: each line is written by one session.
    locals: Box<[CachePadded<AtomicU64>]>,
}

impl Epochs {
    /// All places are free.
    pub fn new(place_count: usize) -> Epochs {
        let free = || CachePadded::new(AtomicU64::new(FREE));
        Epochs {
            global: CachePadded::new(AtomicU64::new(1)),
            locals: (0..=place_count).map(|_| free()).collect(),
        }
    }

    #[inline]
    fn sessions(&self) -> &[CachePadded<AtomicU64>] {
        let place_count = self.locals.len() - 1;
        &self.locals[..place_count]
    }

    /// Takes the one place that is not for sessions; `None` if it is taken.
    pub fn join_aside(&self) -> Option<usize> {
        let place = self.locals.len() - 1;
        let free = &self.locals[place];
        free.compare_exchange(FREE, OFFLINE, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        self.unpark(place);
        Some(place)
    }

    /// Takes a free place; its session starts online.
    pub fn join(&self) -> Option<usize> {
        let place = self.sessions().iter().position(|local| {
            local.compare_exchange(FREE, OFFLINE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        self.unpark(place);
        Some(place)
    }

    /// Releases the place; its session holds no references any more.
    pub fn leave(&self, place: usize) {
        self.locals[place].store(FREE, Ordering::Release);
    }

    /// The number of places taken.
    #[inline]
    pub fn session_count(&self) -> usize {
        self.sessions().iter().filter(|local| local.load(Ordering::Relaxed) != FREE).count()
    }

    /// The session at `place` has dropped all its references.
    #[inline]
    pub fn quiesce(&self, place: usize) {
        // Acquire pairs with `advance`: memory unlinked before that epoch is not seen again.
        let global = self.global.load(Ordering::Acquire);
        // Release pairs with `is_safe`: this session's reads are over before the reuse.
        self.locals[place].store(global, Ordering::Release);
    }

    /// The session will hold no reference until `unpark`.
    #[inline]
    pub fn park(&self, place: usize) {
        self.locals[place].store(OFFLINE, Ordering::Release);
    }

    /// The session may take references again.
    #[inline]
    pub fn unpark(&self, place: usize) {
        let global = self.global.load(Ordering::Acquire);
        // Release, as in `park` before it: a thread that sees this store reuses memory only after
        // the reads that this session made before it slept, and after those of the previous session
        // of the place.
        self.locals[place].store(global, Ordering::Release);
        // Either `is_safe` sees this store, or this session's next reads see the unlinking: pairs
        // with the fence in `advance` (the two fences forbid store buffering).
        fence(Ordering::SeqCst);
    }

    /// Starts a new epoch after memory was unlinked; returns the tag for `is_safe`.
    #[inline]
    pub fn advance(&self) -> u64 {
        let tag = self.global.fetch_add(1, Ordering::AcqRel) + 1;
        fence(Ordering::SeqCst); // Pairs with the fence in `unpark`.
        tag
    }

    /// Whether no session can still hold memory that was unlinked before `tag` was drawn (I2).
    #[inline]
    pub fn is_safe(&self, tag: u64) -> bool {
        // Acquire pairs with the stores of `quiesce`, `park` and `leave`.
        self.locals.iter().all(|local| local.load(Ordering::Acquire) >= tag)
    }

    /// The last safe tag of those drawn before this call: one look at every place, for a caller
    /// with many tags to check.
    #[inline]
    pub fn safe_tag(&self) -> u64 {
        self.locals.iter().map(|local| local.load(Ordering::Acquire)).min().unwrap_or(OFFLINE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_online_session_holds_back_until_it_quiesces_or_parks() {
        let epochs = Epochs::new(2);
        let (a, b) = (epochs.join().unwrap(), epochs.join().unwrap());
        assert!(epochs.join().is_none(), "both places are taken");
        let tag = epochs.advance();
        assert!(!epochs.is_safe(tag));
        epochs.quiesce(a);
        assert!(!epochs.is_safe(tag));
        epochs.park(b);
        assert!(epochs.is_safe(tag));
        epochs.unpark(b);
        assert!(epochs.is_safe(tag), "b came online after the epoch");
        assert!(!epochs.is_safe(epochs.advance()));
        epochs.leave(a);
        epochs.leave(b);
        assert!(epochs.is_safe(epochs.advance()));
        assert!(epochs.join().is_some());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::Arc;
    use loom::cell::UnsafeCell;

    /// One cell that a slot names; the remover reuses it once the epoch says so. Loom's
    /// `UnsafeCell` fails the run if a read and the reuse could overlap.
    struct World {
        epochs: Epochs,
        slot: AtomicU64,
        cell: UnsafeCell<u64>,
    }

    fn read(world: &World) {
        if world.slot.load(Ordering::Acquire) == 1 {
            // SAFETY: loom checks that no write overlaps.
            let found = world.cell.with(|value| unsafe { *value });
            assert_eq!(found, 7, "the bytes of a published entry");
        }
    }

    fn check(reader: impl Fn(&World, usize) + Send + Sync + Clone + 'static) {
        loom::model(move || {
            let world = Arc::new(World {
                epochs: Epochs::new(2),
                slot: AtomicU64::new(1),
                cell: UnsafeCell::new(7),
            });
            let (reading, reader) = (world.clone(), reader.clone());
            let place = world.epochs.join().unwrap();
            let thread = loom::thread::spawn(move || reader(&reading, place));
            world.slot.store(0, Ordering::Release);
            let tag = world.epochs.advance();
            if world.epochs.is_safe(tag) {
                // SAFETY: loom checks that no read overlaps.
                world.cell.with_mut(|value| unsafe { *value = 8 });
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn reuse_never_overlaps_a_read_before_a_quiescent_point() {
        check(|world, place| {
            read(world);
            world.epochs.quiesce(place);
            read(world);
            world.epochs.quiesce(place);
        });
    }

    #[test]
    fn reuse_never_overlaps_a_read_of_a_session_that_slept() {
        check(|world, place| {
            world.epochs.park(place);
            world.epochs.unpark(place);
            read(world);
            world.epochs.leave(place);
        });
    }

    #[test]
    fn reuse_never_overlaps_a_read_before_a_sleep() {
        check(|world, place| {
            read(world);
            world.epochs.park(place);
            world.epochs.unpark(place);
        });
    }

    #[test]
    fn reuse_never_overlaps_a_read_of_a_session_whose_place_another_took() {
        check(|world, place| {
            read(world);
            world.epochs.leave(place);
            assert!(world.epochs.join().is_some());
        });
    }
}
