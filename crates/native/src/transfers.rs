//! Values that arrive in parts. They are assembled in memory that counts as client buffers.
//!
//! # Concurrency
//! One lock for all workers: a part is large, and transfers are few.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::Instant;
use budget::{BufferBudget, Kind, Reservation};
use wire::native::{Assembly, Part, PartLimits, PartOutcome, PartsIn, SessionId, Status};

/// Bytes of parts that a client may have under way; the welcome states it. It is less than a
/// socket's default receive buffer, so that one client's parts are not lost there.
pub const PART_WINDOW_BYTES: u32 = 128 << 10;

/// A transfer that gets no part for this long is dropped.
const IDLE_NS: u64 = 10_000_000_000;

/// Transfers at a time, however small: each costs a place in a map.
const TRANSFER_COUNT_MAX: usize = 1024;

/// All transfers.
#[derive(Debug)]
pub struct Transfers {
    parts: Mutex<Booked>,
    budget: Arc<BufferBudget>,
    value_max_bytes: u64,
}

#[derive(Debug)]
struct Booked {
    parts: PartsIn,
    /// Covers `parts.held_bytes()`.
    reservation: Option<Reservation>,
}

impl Transfers {
    /// Without transfers. Together they take at most half of the client buffers, and one session's
    /// at most a quarter, unless a single value needs more.
    pub fn new(budget: Arc<BufferBudget>, value_max_bytes: u64) -> Transfers {
        let value_cost_bytes = Assembly::cost_bytes(u32::try_from(value_max_bytes).unwrap_or(0));
        let limits = PartLimits {
            budget_bytes: (budget.limit_bytes() / 2).max(value_cost_bytes),
            session_max_bytes: (budget.limit_bytes() / 4).max(value_cost_bytes),
            value_max_bytes,
            transfer_count_max: TRANSFER_COUNT_MAX,
            idle_ns: IDLE_NS,
        };
        let parts = Mutex::new(Booked { parts: PartsIn::new(limits), reservation: None });
        Transfers { parts, budget, value_max_bytes }
    }

    fn locked(&self) -> MutexGuard<'_, Booked> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a part of the write `name`.
    pub fn accept(
        &self,
        now: Instant,
        name: (SessionId, u32),
        part: Part,
        value: &[u8],
    ) -> PartOutcome {
        let mut booked = self.locked();
        // Too large a value is refused below, and not for want of room.
        let is_possible = u64::from(part.total) <= self.value_max_bytes;
        if is_possible && !booked.parts.is_under_way(name) {
            let cost_bytes = Assembly::cost_bytes(part.total);
            let held_bytes = booked.parts.held_bytes();
            if !booked.cover(&self.budget, held_bytes + cost_bytes) {
                return PartOutcome::Refused(Status::Busy);
            }
        }
        let outcome = booked.parts.accept(now, name, part, value);
        let held_bytes = booked.parts.held_bytes();
        // Bytes that were held already need no more room.
        booked.cover(&self.budget, held_bytes);
        outcome
    }

    /// Drops idle transfers.
    pub fn expire(&self, now: Instant) {
        let mut booked = self.locked();
        if booked.parts.expire(now) > 0 {
            let held_bytes = booked.parts.held_bytes();
            booked.cover(&self.budget, held_bytes);
        }
    }

    /// Drops the transfers of a session that ended.
    pub fn end_session(&self, session: SessionId) {
        let mut booked = self.locked();
        if booked.parts.end_session(session) > 0 {
            let held_bytes = booked.parts.held_bytes();
            booked.cover(&self.budget, held_bytes);
        }
    }

    /// Bytes held for transfers.
    pub fn held_bytes(&self) -> u64 {
        self.locked().parts.held_bytes()
    }
}

impl Booked {
    /// Resizes the reservation to `want_bytes`; returns false if there is no room for more.
    fn cover(&mut self, budget: &Arc<BufferBudget>, want_bytes: u64) -> bool {
        match &mut self.reservation {
            Some(reservation) => reservation.try_resize(want_bytes),
            None => {
                self.reservation = Reservation::try_new(budget, Kind::Transfers, want_bytes);
                self.reservation.is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant { ns: 5 };

    fn name(sequence: u32) -> (SessionId, u32) {
        (SessionId(9), sequence)
    }

    #[test]
    fn a_transfer_is_booked_until_it_is_whole() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let transfers = Transfers::new(Arc::clone(&budget), 1 << 18);
        let part = |offset| Part { offset, total: 256 };
        let first = transfers.accept(NOW, name(1), part(128), &[7; 128]);
        assert_eq!(first, PartOutcome::Taken { missing_bytes: 128 });
        assert_eq!(budget.granted_bytes(), Assembly::cost_bytes(256));
        let second = transfers.accept(NOW, name(1), part(0), &[7; 128]);
        assert_eq!(second, PartOutcome::Complete(vec![7; 256]));
        assert_eq!((budget.granted_bytes(), transfers.held_bytes()), (0, 0));
    }

    #[test]
    fn full_buffers_are_busy_for_new_transfers_and_not_for_begun_ones() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let transfers = Transfers::new(Arc::clone(&budget), 1 << 18);
        let part = |offset| Part { offset, total: 256 };
        transfers.accept(NOW, name(1), part(0), &[7; 64]);
        let left_bytes = budget.kind_limit_bytes(Kind::Transfers) - budget.granted_bytes();
        let _others = Reservation::try_new(&budget, Kind::Transfers, left_bytes).unwrap();
        let refused = transfers.accept(NOW, name(2), part(0), &[7; 64]);
        assert_eq!(refused, PartOutcome::Refused(Status::Busy));
        let more = transfers.accept(NOW, name(1), part(64), &[7; 64]);
        assert_eq!(more, PartOutcome::Taken { missing_bytes: 128 });
        transfers.expire(Instant { ns: NOW.ns + IDLE_NS + 1 });
        assert_eq!(transfers.held_bytes(), 0);
        assert_eq!(budget.granted_bytes(), left_bytes);
    }

    #[test]
    fn a_session_that_ends_takes_its_transfers_along() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let transfers = Transfers::new(Arc::clone(&budget), 1 << 18);
        transfers.accept(NOW, name(1), Part { offset: 0, total: 256 }, &[7; 64]);
        transfers.end_session(SessionId(8));
        assert!(transfers.held_bytes() > 0);
        transfers.end_session(SessionId(9));
        assert_eq!((transfers.held_bytes(), budget.granted_bytes()), (0, 0));
    }
}
