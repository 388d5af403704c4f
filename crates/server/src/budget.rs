//! The buffer budget: client input and output of all workers stay under one number of bytes.
//!
//! ```text
//!  BufferBudget (shared, atomic) ──grants of 256 KiB and more──▶ Ledger (one per worker, plain)
//! ```
//!
//! A worker books each buffer in its own ledger, which touches the shared number only when a grant
//! runs out, so that small buffers come and go without shared writes.
//!
//! # Invariants
//! I1: the sum of all grants is at most the budget, except for replies that are already owed:
//!     those are booked past it (`force`), and no client is read until the books balance. What one
//!     gathering makes stays within half of what is free, give or take 1 MiB, one batch and one
//!     reply a worker (`Core::begin_replies`, decision 0093).
//! I2: what is reserved is released exactly once, with the same number of bytes.
//!
//! The limit follows `--memory` while the server runs; parts of it that are planned at the start
//! (native transfers, tables of tracking) keep the size that they began with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that move between the shared budget and a ledger at a time.
const GRANT_BYTES: u64 = 256 << 10;

/// Of all buffers, what large commands may take.
pub fn large_part(limit_bytes: u64) -> u64 {
    limit_bytes - limit_bytes / 8
}

/// All workers' buffers together.
#[derive(Debug)]
pub struct BufferBudget {
    limit_bytes: AtomicU64,
    granted_bytes: AtomicU64,
}

impl BufferBudget {
    /// A budget of `limit_bytes`, nothing of it granted.
    pub fn new(limit_bytes: u64) -> BufferBudget {
        BufferBudget { limit_bytes: AtomicU64::new(limit_bytes), granted_bytes: AtomicU64::new(0) }
    }

    /// The most that may be granted.
    pub fn limit_bytes(&self) -> u64 {
        // Relaxed: the number guards no other memory.
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Another limit, from now on. What is granted beyond it comes back as clients take their
    /// answers; until then no client is read (I1).
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What is granted now; at most a grant per worker above what buffers take.
    pub fn granted_bytes(&self) -> u64 {
        self.granted_bytes.load(Ordering::Relaxed)
    }

    /// What large commands may take together: the rest stays for everybody else's small ones.
    pub fn large_limit_bytes(&self) -> u64 {
        large_part(self.limit_bytes())
    }

    /// All or nothing.
    fn try_grant(&self, bytes: u64) -> bool {
        // Relaxed: the number guards no other memory.
        self.granted_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
                granted.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes())
            })
            .is_ok()
    }

    fn force_grant(&self, bytes: u64) {
        self.granted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.granted_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are held for as long as this lives, by no worker in particular.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<BufferBudget>,
    bytes: u64,
}

impl Reservation {
    /// Takes `bytes` if they are free.
    pub fn try_new(budget: &Arc<BufferBudget>, bytes: u64) -> Option<Reservation> {
        let reservation = || Reservation { budget: Arc::clone(budget), bytes };
        budget.try_grant(bytes).then(reservation)
    }

    /// The same within what large commands may take.
    pub fn try_new_large(budget: &Arc<BufferBudget>, bytes: u64) -> Option<Reservation> {
        let fits = budget.granted_bytes().saturating_add(bytes) <= budget.large_limit_bytes();
        if fits { Reservation::try_new(budget, bytes) } else { None }
    }

    /// What is held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows if there is room, or shrinks.
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes && !self.budget.try_grant(bytes - self.bytes) {
            return false;
        }
        self.budget.give_back(self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// One worker's part of the budget.
#[derive(Debug)]
pub struct Ledger {
    budget: Arc<BufferBudget>,
    granted_bytes: u64,
    used_bytes: u64,
}

impl Ledger {
    /// An empty part.
    pub fn new(budget: Arc<BufferBudget>) -> Ledger {
        Ledger { budget, granted_bytes: 0, used_bytes: 0 }
    }

    /// What this is a part of.
    pub fn budget(&self) -> &Arc<BufferBudget> {
        &self.budget
    }

    /// Books `bytes` if they fit, all or nothing.
    pub fn try_reserve(&mut self, bytes: u64) -> bool {
        let missing = (self.used_bytes + bytes).saturating_sub(self.granted_bytes);
        if missing > 0 {
            let generous = missing.max(GRANT_BYTES);
            let granted = if self.budget.try_grant(generous) {
                generous
            } else if self.budget.try_grant(missing) {
                missing
            } else {
                return false;
            };
            self.granted_bytes += granted;
        }
        self.used_bytes += bytes;
        true
    }

    /// Books `bytes` of a large command if they fit into what large commands may take.
    pub fn try_reserve_large(&mut self, bytes: u64) -> bool {
        let fits =
            self.budget.granted_bytes().saturating_add(bytes) <= self.budget.large_limit_bytes();
        fits && self.try_reserve(bytes)
    }

    /// Books `bytes` even past the budget: for replies that are owed (I1).
    pub fn force(&mut self, bytes: u64) {
        if !self.try_reserve(bytes) {
            let missing = (self.used_bytes + bytes).saturating_sub(self.granted_bytes);
            self.budget.force_grant(missing);
            self.granted_bytes += missing;
            self.used_bytes += bytes;
        }
    }

    /// Gives back what was reserved (I2).
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used_bytes, "I2: released more than was reserved");
        self.used_bytes -= bytes;
        let idle_bytes = self.granted_bytes - self.used_bytes;
        if idle_bytes >= 2 * GRANT_BYTES {
            let surplus = idle_bytes - GRANT_BYTES;
            self.granted_bytes -= surplus;
            self.budget.give_back(surplus);
        }
    }

    /// Hands over what is reserved here, without a moment at which it belongs to nobody.
    pub fn part_with(&mut self, bytes: u64) -> Reservation {
        debug_assert!(bytes <= self.used_bytes, "I2: parted with more than was reserved");
        self.used_bytes -= bytes;
        self.granted_bytes -= bytes;
        Reservation { budget: Arc::clone(&self.budget), bytes }
    }

    /// Takes what another worker has parted with.
    pub fn take_over(&mut self, mut reservation: Reservation) {
        let bytes = std::mem::take(&mut reservation.bytes);
        self.granted_bytes += bytes;
        self.used_bytes += bytes;
    }

    /// Whether the budget is exhausted: no client should be read now.
    pub fn is_over(&self) -> bool {
        self.budget.granted_bytes() > self.budget.limit_bytes()
    }

    /// Whether a command of `bytes` could ever be reserved.
    pub fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.budget.large_limit_bytes()
    }

    /// What this worker's buffers take.
    #[cfg(test)]
    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Whether this worker takes more than its part of the budget among `worker_count`. If the
    /// budget is exhausted, that is true of at least one.
    pub fn is_above_share(&self, worker_count: usize) -> bool {
        let share_bytes = self.budget.limit_bytes() / worker_count.max(1) as u64;
        self.used_bytes + 2 * GRANT_BYTES >= share_bytes
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.budget.give_back(self.granted_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(limit_bytes: u64) -> (Arc<BufferBudget>, Ledger) {
        let budget = Arc::new(BufferBudget::new(limit_bytes));
        (Arc::clone(&budget), Ledger::new(budget))
    }

    #[test]
    fn reserving_is_all_or_nothing() {
        let (_, mut ledger) = ledger(1000);
        assert!(ledger.try_reserve(600));
        assert!(!ledger.try_reserve(401));
        assert!(ledger.try_reserve(400));
        assert_eq!(ledger.used_bytes(), 1000);
    }

    #[test]
    fn one_workers_grant_does_not_starve_another_for_long() {
        let (budget, mut first) = ledger(GRANT_BYTES);
        let mut second = Ledger::new(Arc::clone(&budget));
        assert!(first.try_reserve(1));
        assert!(!second.try_reserve(1));
        drop(first);
        assert!(second.try_reserve(1));
    }

    #[test]
    fn large_commands_leave_room_for_small_ones() {
        let (_, mut ledger) = ledger(8 << 20);
        assert!(ledger.could_hold(7 << 20));
        assert!(!ledger.could_hold((7 << 20) + 1));
        assert!(ledger.try_reserve_large(6 << 20));
        assert!(!ledger.try_reserve_large(2 << 20));
        assert!(ledger.try_reserve(1 << 20));
    }

    #[test]
    fn released_bytes_return_to_the_budget() {
        let (budget, mut ledger) = ledger(64 << 20);
        assert!(ledger.try_reserve(40 << 20));
        ledger.release(40 << 20);
        assert!(budget.granted_bytes() <= 2 * GRANT_BYTES);
    }

    #[test]
    fn what_is_handed_over_stays_booked() {
        let (budget, mut first) = ledger(1000);
        let mut second = Ledger::new(Arc::clone(&budget));
        assert!(first.try_reserve(900));
        let on_its_way = first.part_with(900);
        assert!(!second.try_reserve(101));
        second.take_over(on_its_way);
        assert_eq!((first.used_bytes(), second.used_bytes()), (0, 900));
        drop(first);
        assert_eq!(budget.granted_bytes(), 900);
        drop(second.part_with(900));
        assert_eq!(budget.granted_bytes(), 0, "a connection that is lost on its way");
    }

    #[test]
    fn a_lower_limit_refuses_until_enough_was_released() {
        let (budget, mut ledger) = ledger(1000);
        assert!(ledger.try_reserve(900));
        budget.set_limit_bytes(500);
        assert!(ledger.is_over() && !ledger.try_reserve(101));
        drop(ledger);
        let mut ledger = Ledger::new(Arc::clone(&budget));
        assert!(ledger.try_reserve(500) && !ledger.is_over());
    }

    #[test]
    fn owed_replies_go_past_the_budget_and_show() {
        let (budget, mut ledger) = ledger(1000);
        ledger.force(1500);
        assert!(ledger.is_over());
        assert!(!ledger.try_reserve(1));
        ledger.release(1500);
        drop(ledger);
        assert_eq!(budget.granted_bytes(), 0);
    }
}
