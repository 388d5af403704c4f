//! One worker's part of the budget: plain numbers, refilled by grants.

use std::sync::Arc;

use super::{Books, BufferBudget, Class, Kind, Reservation, large_part};

/// Bytes of a kind that move between the shared budget and a ledger at a time.
pub(super) const GRANT_BYTES: u64 = 64 << 10;

/// Which buffers have outgrown their part, so that clients are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgrown {
    /// All together.
    All,
    /// Those of a kind that grows without a check.
    Kind(Kind),
    /// Passing ones, which leave no room for new connections (I5 of `budget`).
    Arrivals,
}

/// One kind's part.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    granted_bytes: u64,
    used_bytes: u64,
}

/// One worker's part of the budget.
#[derive(Debug)]
pub struct Ledger {
    budget: Arc<BufferBudget>,
    parts: [Part; Kind::COUNT],
    /// Requests that were refused before ask again: they are not counted twice.
    is_retrying: bool,
}

impl Ledger {
    /// An empty part.
    pub fn new(budget: Arc<BufferBudget>) -> Ledger {
        Ledger { budget, parts: [Part::default(); Kind::COUNT], is_retrying: false }
    }

    /// The shared budget.
    pub fn budget(&self) -> &Arc<BufferBudget> {
        &self.budget
    }

    /// Says whether requests that were refused before ask again from now on.
    pub fn set_retrying(&mut self, is_retrying: bool) {
        self.is_retrying = is_retrying;
    }

    /// Books `bytes` if they fit, all or nothing.
    pub fn try_reserve(&mut self, kind: Kind, bytes: u64) -> bool {
        let part = &mut self.parts[kind as usize];
        let missing = (part.used_bytes + bytes).saturating_sub(part.granted_bytes);
        if missing > 0 {
            let generous = missing.max(GRANT_BYTES);
            let granted = if self.budget.try_grant(kind, generous) {
                generous
            } else if self.budget.try_grant(kind, missing) {
                missing
            } else {
                if !self.is_retrying {
                    self.budget.note_refusal(kind);
                }
                return false;
            };
            part.granted_bytes += granted;
        }
        part.used_bytes += bytes;
        true
    }

    /// Books `bytes` even past the budget: for bytes that exist already (I1).
    pub fn force(&mut self, kind: Kind, bytes: u64) {
        let part = &mut self.parts[kind as usize];
        let missing = (part.used_bytes + bytes).saturating_sub(part.granted_bytes);
        if missing > 0 {
            let granted = match self.budget.try_grant(kind, missing.max(GRANT_BYTES)) {
                true => missing.max(GRANT_BYTES),
                false => {
                    self.budget.force_grant(kind, missing);
                    missing
                }
            };
            part.granted_bytes += granted;
        }
        part.used_bytes += bytes;
    }

    /// Releases reserved bytes (I2).
    pub fn release(&mut self, kind: Kind, bytes: u64) {
        let part = &mut self.parts[kind as usize];
        debug_assert!(bytes <= part.used_bytes, "I2: released more than was reserved");
        part.used_bytes -= bytes;
        let idle_bytes = part.granted_bytes - part.used_bytes;
        if idle_bytes >= 2 * GRANT_BYTES {
            let surplus = idle_bytes - GRANT_BYTES;
            part.granted_bytes -= surplus;
            self.budget.give_back(kind, surplus);
        }
    }

    /// Turns booked bytes into bytes of another kind of the same class: nothing can take them in
    /// between. False: that kind has no room, and nothing is changed.
    pub fn try_turn(&mut self, from: Kind, to: Kind, bytes: u64) -> bool {
        if !self.budget.try_turn(from, to, bytes) {
            return false;
        }
        let part = &mut self.parts[from as usize];
        debug_assert!(bytes <= part.used_bytes, "I2: turned more than was reserved");
        part.granted_bytes -= bytes;
        part.used_bytes -= bytes;
        let part = &mut self.parts[to as usize];
        part.granted_bytes += bytes;
        part.used_bytes += bytes;
        true
    }

    /// Gives back what was granted ahead of use.
    pub fn return_idle(&mut self) {
        for (kind, part) in Kind::ALL.into_iter().zip(&mut self.parts) {
            let idle_bytes = part.granted_bytes - part.used_bytes;
            if idle_bytes > 0 {
                part.granted_bytes = part.used_bytes;
                self.budget.give_back(kind, idle_bytes);
            }
        }
    }

    /// Updates a connection's books to the bytes it holds now.
    #[inline]
    pub fn rebook(&mut self, books: &mut Books, held: Books) {
        if *books != held {
            self.rebook_changed(std::mem::replace(books, held), held);
        }
    }

    #[cold]
    fn rebook_changed(&mut self, before: Books, held: Books) {
        for ((kind, before), (_, after)) in before.iter().zip(held.iter()) {
            self.release(kind, before.saturating_sub(after));
            self.force(kind, after.saturating_sub(before));
        }
    }

    /// Gives away everything that a connection has booked.
    pub fn part_with_books(&mut self, books: Books) -> Vec<Reservation> {
        let booked = books.iter().filter(|(_, bytes)| *bytes > 0);
        booked.map(|(kind, bytes)| self.part_with(kind, bytes)).collect()
    }

    /// Gives away reserved bytes, which belong to a thread at every moment.
    fn part_with(&mut self, kind: Kind, bytes: u64) -> Reservation {
        let part = &mut self.parts[kind as usize];
        debug_assert!(bytes <= part.used_bytes, "I2: parted with more than was reserved");
        part.used_bytes -= bytes;
        part.granted_bytes -= bytes;
        Reservation { budget: Arc::clone(&self.budget), kind, bytes }
    }

    /// Takes the bytes that another worker has given away.
    pub fn take_over(&mut self, mut reservation: Reservation) {
        let bytes = std::mem::take(&mut reservation.bytes);
        let part = &mut self.parts[reservation.kind as usize];
        part.granted_bytes += bytes;
        part.used_bytes += bytes;
    }

    /// Whether the budget is exhausted: no client should be read now.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.budget.granted_bytes() > self.budget.limit_bytes()
    }

    /// Whether less than an eighth of the budget is left.
    pub fn is_tight(&self) -> bool {
        let limit_bytes = self.budget.limit_bytes();
        self.budget.granted_bytes() > limit_bytes - limit_bytes / 8
    }

    /// Whether a kind is beyond its sub-limit.
    pub fn is_over_in(&self, kind: Kind) -> bool {
        self.budget.kind_bytes(kind) > self.budget.kind_limit_bytes(kind)
    }

    /// Whether less than an eighth of a kind's part is left.
    pub fn is_tight_in(&self, kind: Kind) -> bool {
        let limit_bytes = self.budget.kind_limit_bytes(kind);
        self.budget.kind_bytes(kind) > limit_bytes - limit_bytes / 8
    }

    /// Whether a command of `bytes` could ever be reserved.
    pub fn could_hold(&self, bytes: u64) -> bool {
        bytes <= large_part(self.budget.limit_bytes())
    }

    /// The bytes that this worker has booked, of all kinds.
    #[cfg(test)]
    pub fn used_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.used_bytes).sum()
    }

    /// Which buffers have outgrown their part, if any: small commands are read before their length
    /// is known.
    #[inline]
    pub fn outgrown(&self) -> Option<Outgrown> {
        if self.is_over() {
            return Some(Outgrown::All);
        }
        if self.budget.is_short_of_arrivals() {
            return Some(Outgrown::Arrivals);
        }
        let grown = [Kind::Small, Kind::Strangers].into_iter().find(|kind| self.is_over_in(*kind));
        grown.map(Outgrown::Kind)
    }

    /// Whether that still holds, and this worker has booked more of it than others on average.
    /// While it holds, that is true of at least one worker.
    pub fn is_to_shrink(&self, outgrown: Outgrown, worker_count: usize) -> bool {
        let holds = match outgrown {
            Outgrown::All => self.is_over(),
            Outgrown::Kind(kind) => self.is_over_in(kind),
            Outgrown::Arrivals => self.budget.is_short_of_arrivals(),
        };
        let (mut own_bytes, mut all_bytes) = (0, 0);
        for of in Kind::ALL.into_iter().filter(|of| outgrown.is_of(*of)) {
            own_bytes += self.parts[of as usize].granted_bytes;
            all_bytes += self.budget.kind_bytes(of);
        }
        holds && own_bytes >= all_bytes / worker_count.max(1) as u64
    }
}

impl Outgrown {
    /// Whether closing clients releases bytes of that kind and helps.
    pub fn is_of(self, kind: Kind) -> bool {
        match self {
            Outgrown::All => kind.class() != Class::Standing && kind != Kind::Transfers,
            Outgrown::Kind(of) => kind == of,
            Outgrown::Arrivals => {
                use Kind::{Bodies, Groups, Replies, Small, Strangers};
                matches!(kind, Small | Strangers | Bodies | Replies | Groups)
            }
        }
    }

    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Outgrown::All => "client buffers",
            Outgrown::Kind(kind) => kind.name(),
            Outgrown::Arrivals => "what new connections need",
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for (kind, part) in Kind::ALL.into_iter().zip(&self.parts) {
            self.budget.give_back(kind, part.granted_bytes);
        }
    }
}
