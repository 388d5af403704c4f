//! The budget of client buffers: what clients cause is booked here, by kind, before it is
//! allocated; what small commands and their replies hold, at the end of the round (I1). It starts
//! no thread. It says which kind has outgrown its part; `workers` closes clients.
//!
//! Not booked, but bounded: bytes in mailboxes between workers (`under_way`); each worker's buffers
//! for receiving and for native frames, and up to 1 KiB of each request and reply between workers
//! (`memory` plans for them); deletes that a replica store remembers.
//!
//! ```text
//!  kind        the kinds of bytes; which are standing, which passing
//!  ledger      one worker's part, with grants; what has outgrown
//!  books       the sums of each kind, for people
//!  memory      the plan that divides `--memory`
//! ```
//!
//! ```text
//!  client buffers: one number of bytes, a part of `--memory`
//!  +-------------------------------+---------------------------+-----------+----------+
//!  | standing kinds, at most 1/2   | passing kinds             | kept 1/16 | kept 1/8 |
//!  | ACL, tracking, names, ...     | bodies, replies, UDP, ... | arrivals  | small    |
//!  +-------------------------------+---------------------------+ alone     | commands |
//!  | all but small commands and arrivals                       |           | alone    |
//!  +-----------------------------------------------------------+-----------+----------+
//!  Arrivals are connections and TLS handshakes: standing kinds, which take more than their
//!  sixteenth where there is room.
//!
//!  A cluster's node takes a quarter off first, for what lands of other nodes' writes (I4), and an
//!  eighth for what goes past its part alone (I1).
//!
//!  BufferBudget (shared, atomic) ─┬─ grants, 64 KiB if it can ─▶ Ledger (one per worker, plain)
//!                                 └─ exact ─────────────────────▶ Reservation (no worker's)
//! ```
//!
//! Each worker books the buffers of its connections in a ledger of its own. That ledger touches the
//! shared numbers only when a grant runs out, much of one lies idle, or a new turn begins, so that
//! small buffers come and go without shared writes.
//! Memory that belongs to no worker (users, sessions, rings) is a [`Reservation`] of exactly its
//! bytes.
//!
//! # Invariants
//! I1: the sum of all grants is at most the budget, and the sum of each kind at most its sub-limit.
//!     Exceptions: one write of a cluster's node at a time, one forward, one guest (a request that
//!     another node forwarded here; `try_grow_or_alone`); the value that is being made (`forced`);
//!     the oldest reply of other nodes, or write of a group (`past`); the last value of a group
//!     (`grow_towards`); a user that replaces another (`try_grow_beside`); and replies to commands
//!     already executed, and bytes that exist already: those of small commands at the end of a
//!     round, of requests from other workers, of datagrams (`force`). While the last are booked
//!     past the budget, no client is read. The replies made in one gathering take at most half of
//!     the free bytes; each worker may exceed that by 1 MiB, one batch and one reply
//!     (`Core::begin_replies`, decision 0093).
//! I2: a reservation is released exactly once, with the same number of bytes and kind.
//! I3: the last eighth is granted to small commands alone (K27).
//! I4: writes of other nodes have a part of their own, so that they never wait for clients of this
//!     one. Clients may wait for them.
//! I5: of connections and TLS handshakes a sixteenth has room whatever other kinds hold, so that
//!     clients that fill the buffers do not keep others from connecting. Once it is full, other
//!     kinds leave some room below the limit. A connection that finds none makes some: the
//!     clients that hold most of requests and replies are closed ([`Outgrown::Arrivals`]).
//!
//! The limit, and with it each sub-limit, follows `--memory` while the server runs. Parts that are
//! planned at the start (native transfers, tables of tracking, buffers of UDP) keep the size they
//! began with.

#![forbid(unsafe_code)]

mod books;
mod kind;
mod ledger;
pub mod memory;
mod under_way;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{UnixMillis, WorkerId};
use store::{ScratchRoom, Store};

pub use books::Books;
pub use kind::{Class, Kind};
pub use ledger::{Ledger, Outgrown};
pub use under_way::UnderWay;

/// What the buffers may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of clients.
    pub clients_bytes: u64,
    /// Of writes of other nodes that land here.
    pub landing_bytes: u64,
}

/// The limit of all kinds but small commands together: seven eighths (I3).
fn arrivals_part(limit_bytes: u64) -> u64 {
    limit_bytes - limit_bytes / 8
}

/// The bytes of that which no other kinds take (I5).
fn kept_for_arrivals(limit_bytes: u64) -> u64 {
    limit_bytes / 16
}

/// The maximum for the kinds other than small commands, where there are no connections.
pub fn large_part(limit_bytes: u64) -> u64 {
    arrivals_part(limit_bytes) - kept_for_arrivals(limit_bytes)
}

/// Room that is always left for arrivals: for some TLS handshakes, or some dozens of connections.
fn room_for_arrivals(limit_bytes: u64) -> u64 {
    ARRIVAL_ROOM_BYTES.min(kept_for_arrivals(limit_bytes) / 4)
}

/// The maximum of all buffers for the standing kinds together.
fn standing_part(limit_bytes: u64) -> u64 {
    limit_bytes / 2
}

/// The maximum of a cluster node's buffers for landing writes of other nodes (I4). A write is
/// usually copied to two other nodes, so a node with three copies of each shard takes in as much as
/// it sends: its own writes may take half of this.
pub fn landing_part(buffers_bytes: u64) -> u64 {
    buffers_bytes / 4
}

/// See [`room_for_arrivals`].
const ARRIVAL_ROOM_BYTES: u64 = 64 << 10;

/// How long a request for room holds; it is repeated more often than that.
const ASKED_MS_MAX: u64 = 150;

/// The granted bytes of one kind, and the number of refusals.
#[derive(Debug, Default)]
struct Cell {
    granted_bytes: AtomicU64,
    refusals: AtomicU64,
}

/// One kind at one moment, as metrics and INFO show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindNumbers {
    /// Which.
    pub kind: Kind,
    /// Granted now.
    pub bytes: u64,
    /// The most that may be granted.
    pub limit_bytes: u64,
    /// The number of refused requests for room.
    pub refusals: u64,
}

/// All client buffers together.
#[derive(Debug)]
pub struct BufferBudget {
    limit_bytes: AtomicU64,
    /// The limit of landing writes, beside that (I4).
    landing_limit_bytes: AtomicU64,
    granted_bytes: AtomicU64,
    /// Of all kinds but small commands.
    large_bytes: AtomicU64,
    /// Of the standing kinds.
    standing_bytes: AtomicU64,
    /// A connection had no room because of other kinds, and it was not seen since that there is.
    is_arrival_refused: AtomicBool,
    /// What a worker lacks for a command that waits, and when it asked the others for it.
    asked_bytes: AtomicU64,
    asked_at_ms: AtomicU64,
    /// The worker whose oldest command takes all room that comes free, plus one, and when it last
    /// did; 0: none.
    turn_of: AtomicU64,
    turn_at_ms: AtomicU64,
    /// The room of large commands that wait for more of it, or arrive too slowly.
    stuck_bytes: AtomicU64,
    kinds: [Cell; Kind::COUNT],
}

impl BufferBudget {
    /// A budget of `limit_bytes`, nothing of it granted.
    pub fn new(limit_bytes: u64) -> BufferBudget {
        BufferBudget {
            limit_bytes: AtomicU64::new(limit_bytes),
            landing_limit_bytes: AtomicU64::new(0),
            granted_bytes: AtomicU64::new(0),
            large_bytes: AtomicU64::new(0),
            standing_bytes: AtomicU64::new(0),
            is_arrival_refused: AtomicBool::new(false),
            asked_bytes: AtomicU64::new(0),
            asked_at_ms: AtomicU64::new(0),
            turn_of: AtomicU64::new(0),
            turn_at_ms: AtomicU64::new(0),
            stuck_bytes: AtomicU64::new(0),
            kinds: Default::default(),
        }
    }

    /// A budget with those limits; the store books the buffers in which it makes long
    /// values.
    pub fn new_for(limits: Limits, store: &Store) -> Arc<BufferBudget> {
        let budget = Arc::new(BufferBudget::new(0));
        budget.follow(limits);
        store.book_scratch(Scratch(Arc::clone(&budget)));
        budget
    }

    /// The maximum that may be granted, landing writes excluded.
    pub fn limit_bytes(&self) -> u64 {
        // Relaxed: the number guards no other memory.
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Adopts other limits. Bytes granted beyond them come back as clients take their
    /// replies; until then no client is read (I1).
    pub fn follow(&self, limits: Limits) {
        self.set_limits(limits.clients_bytes, limits.landing_bytes);
    }

    fn set_limits(&self, limit_bytes: u64, landing_limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.landing_limit_bytes.store(landing_limit_bytes, Ordering::Relaxed);
    }

    /// Whether the standing kinds fit their part of such limits.
    pub fn fits_in(&self, limits: Limits) -> bool {
        self.standing_bytes.load(Ordering::Relaxed) <= standing_part(limits.clients_bytes)
    }

    /// The bytes granted now, landing writes excluded; at most some grants per worker more than the
    /// buffers take.
    pub fn granted_bytes(&self) -> u64 {
        self.granted_bytes.load(Ordering::Relaxed)
    }

    /// All granted bytes.
    pub fn booked_bytes(&self) -> u64 {
        self.granted_bytes() + self.kind_bytes(Kind::Landing)
    }

    /// The sub-limit of a kind.
    pub fn kind_limit_bytes(&self, kind: Kind) -> u64 {
        match kind.class() {
            Class::Apart => self.landing_limit_bytes.load(Ordering::Relaxed),
            _ => kind.share_of(self.limit_bytes()),
        }
    }

    /// What is granted of a kind now.
    pub fn kind_bytes(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].granted_bytes.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more fit into the part of a kind, whatever other kinds hold.
    pub fn has_part_for(&self, kind: Kind, bytes: u64) -> bool {
        self.kind_bytes(kind) + bytes <= self.kind_limit_bytes(kind)
    }

    /// All kinds at this moment.
    pub fn kinds(&self) -> impl Iterator<Item = KindNumbers> {
        Kind::ALL.into_iter().map(|kind| KindNumbers {
            kind,
            bytes: self.kind_bytes(kind),
            limit_bytes: self.kind_limit_bytes(kind),
            refusals: self.kinds[kind as usize].refusals.load(Ordering::Relaxed),
        })
    }

    /// The numbers that a grant of this kind counts in, each with its limit.
    fn counts(&self, kind: Kind) -> impl Iterator<Item = (&AtomicU64, u64)> + Clone {
        let (limit_bytes, class) = (self.limit_bytes(), kind.class());
        let kept_bytes = if kind.arrives() { 0 } else { self.kept_for_arrivals() };
        let large = (&self.large_bytes, arrivals_part(limit_bytes) - kept_bytes);
        let standing = (&self.standing_bytes, standing_part(limit_bytes) - kept_bytes);
        [
            Some((&self.kinds[kind as usize].granted_bytes, self.kind_limit_bytes(kind))),
            (class == Class::Standing).then_some(standing),
            matches!(class, Class::Passing | Class::Standing).then_some(large),
            (class != Class::Apart).then_some((&self.granted_bytes, limit_bytes)),
        ]
        .into_iter()
        .flatten()
    }

    /// All or nothing.
    fn try_grant(&self, kind: Kind, bytes: u64) -> bool {
        let counts = self.counts(kind);
        for (at, (count, limit_bytes)) in counts.clone().enumerate() {
            // Relaxed: the numbers guard no other memory.
            let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
                granted.checked_add(bytes).filter(|sum| *sum <= limit_bytes)
            });
            if added.is_err() {
                for (count, _) in counts.take(at) {
                    count.fetch_sub(bytes, Ordering::Relaxed);
                }
                return false;
            }
        }
        true
    }

    /// Turns granted bytes into those of another kind of the same class: their sum stays.
    fn try_turn(&self, from: Kind, to: Kind, bytes: u64) -> bool {
        debug_assert_eq!(from.class(), to.class(), "the sums of classes stay");
        let limit_bytes = self.kind_limit_bytes(to);
        // Relaxed: the numbers guard no other memory.
        let added = self.kinds[to as usize].granted_bytes.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |granted| granted.checked_add(bytes).filter(|sum| *sum <= limit_bytes),
        );
        if added.is_ok() {
            self.kinds[from as usize].granted_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        added.is_ok()
    }

    /// Grants past every limit, if nothing of its kind is granted.
    fn try_grant_alone(&self, kind: Kind, bytes: u64) -> bool {
        let booked = &self.kinds[kind as usize].granted_bytes;
        // Relaxed: the numbers guard no other memory.
        let taken = booked.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            self.counts(kind).skip(1).for_each(|(count, _)| {
                count.fetch_add(bytes, Ordering::Relaxed);
            });
        }
        taken.is_ok()
    }

    fn force_grant(&self, kind: Kind, bytes: u64) {
        self.counts(kind).for_each(|(count, _)| {
            count.fetch_add(bytes, Ordering::Relaxed);
        });
    }

    fn give_back(&self, kind: Kind, bytes: u64) {
        self.counts(kind).for_each(|(count, _)| {
            count.fetch_sub(bytes, Ordering::Relaxed);
        });
    }

    /// What arrivals have not taken of their sixteenth; at least the room that makes closing
    /// clients for their sake needless.
    fn kept_for_arrivals(&self) -> u64 {
        let limit_bytes = self.limit_bytes();
        let arrived_bytes = self.kind_bytes(Kind::Connections) + self.kind_bytes(Kind::Handshakes);
        let left_bytes = kept_for_arrivals(limit_bytes).saturating_sub(arrived_bytes);
        left_bytes.max(2 * room_for_arrivals(limit_bytes))
    }

    /// Notes that a connection or a handshake had no room because of other kinds.
    #[cold]
    pub fn note_refused_arrival(&self) {
        self.is_arrival_refused.store(true, Ordering::Relaxed);
    }

    /// Whether clients that hold requests and replies leave no room for connections that came (I5).
    #[inline]
    fn is_short_of_arrivals(&self) -> bool {
        // Relaxed: the flag guards no other memory.
        self.is_arrival_refused.load(Ordering::Relaxed) && self.is_still_short_of_arrivals()
    }

    #[cold]
    fn is_still_short_of_arrivals(&self) -> bool {
        let limit_bytes = self.limit_bytes();
        let room_bytes = room_for_arrivals(limit_bytes);
        // Relaxed: the numbers guard no other memory.
        let large_bytes = self.large_bytes.load(Ordering::Relaxed);
        // Small commands may fill what large ones leave.
        let is_full = large_bytes + room_bytes > arrivals_part(limit_bytes)
            || self.granted_bytes() + room_bytes > limit_bytes;
        if !is_full {
            self.is_arrival_refused.store(false, Ordering::Relaxed);
        }
        is_full && self.could_make_room()
    }

    fn could_make_room(&self) -> bool {
        let of_clients = Kind::ALL.into_iter().filter(|kind| Outgrown::Arrivals.is_of(*kind));
        let held_bytes: u64 = of_clients.map(|kind| self.kind_bytes(kind)).sum();
        self.kind_bytes(Kind::Connections) < self.kind_limit_bytes(Kind::Connections)
            && held_bytes >= self.limit_bytes() / 8
    }

    /// Asks all workers for room that their clients hold and do not fill. The latest request
    /// counts.
    pub fn ask_for(&self, bytes: u64, now: UnixMillis) {
        // Relaxed: the numbers guard no other memory, and a request is repeated while it holds.
        self.asked_bytes.store(bytes, Ordering::Relaxed);
        self.asked_at_ms.store(now.0, Ordering::Relaxed);
    }

    /// What a worker has asked for lately; 0: nothing.
    #[inline]
    pub fn asked_bytes(&self, now: UnixMillis) -> u64 {
        let asked_at_ms = self.asked_at_ms.load(Ordering::Relaxed);
        let is_late = now.0.saturating_sub(asked_at_ms) > ASKED_MS_MAX;
        if is_late { 0 } else { self.asked_bytes.load(Ordering::Relaxed) }
    }

    /// Gives a worker's oldest command the right to all room that comes free, or renews it; false:
    /// another worker's has it.
    pub fn take_turn(&self, worker: WorkerId, now: UnixMillis) -> bool {
        let own = u64::from(worker.0) + 1;
        // Relaxed: the numbers guard no other memory. Two workers that both find an old turn may
        // both take it; the next look of one finds the other's.
        let holder = self.turn_of.load(Ordering::Relaxed);
        if holder != own && self.turn(now).is_some() {
            return false;
        }
        self.turn_of.store(own, Ordering::Relaxed);
        self.turn_at_ms.store(now.0, Ordering::Relaxed);
        true
    }

    /// Ends this worker's turn.
    pub fn end_turn(&self, worker: WorkerId) {
        let own = u64::from(worker.0) + 1;
        let _ = self.turn_of.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The worker that has the turn.
    pub fn turn(&self, now: UnixMillis) -> Option<WorkerId> {
        let holder = self.turn_of.load(Ordering::Relaxed).checked_sub(1)?;
        let is_late = now.0.saturating_sub(self.turn_at_ms.load(Ordering::Relaxed)) > ASKED_MS_MAX;
        (!is_late).then_some(WorkerId(holder as u16))
    }

    /// Replaces what a worker noted of room that is stuck.
    pub fn note_stuck(&self, before_bytes: u64, now_bytes: u64) {
        self.stuck_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Ordering::Relaxed);
    }

    /// The room of large commands that arrive, and will be free soon.
    pub fn moving_bytes(&self) -> u64 {
        let stuck_bytes = self.stuck_bytes.load(Ordering::Relaxed);
        self.kind_bytes(Kind::Bodies).saturating_sub(stuck_bytes)
    }

    /// Counts a refused request for room of this kind.
    pub fn note_refusal(&self, kind: Kind) {
        self.kinds[kind as usize].refusals.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes that [`Reservation::grow_towards`] takes at once.
const GROWN_BYTES: u64 = 64 << 10;

/// Bytes that are held as long as this lives, by no worker in particular.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<BufferBudget>,
    kind: Kind,
    bytes: u64,
}

impl Reservation {
    /// Takes `bytes` if they are free.
    pub fn try_new(budget: &Arc<BufferBudget>, kind: Kind, bytes: u64) -> Option<Reservation> {
        let mut reservation = Reservation::empty(budget, kind);
        reservation.try_resize(bytes).then_some(reservation)
    }

    /// Takes `bytes` if its kind is within its part, which it may exceed by this once.
    pub fn past(budget: &Arc<BufferBudget>, kind: Kind, bytes: u64) -> Option<Reservation> {
        let is_within = budget.kind_bytes(kind) <= budget.kind_limit_bytes(kind);
        is_within.then(|| Reservation::forced(budget, kind, bytes))
    }

    /// Takes `bytes` whatever is free: for a short time, and one at a time.
    pub fn forced(budget: &Arc<BufferBudget>, kind: Kind, bytes: u64) -> Reservation {
        budget.force_grant(kind, bytes);
        Reservation { budget: Arc::clone(budget), kind, bytes }
    }

    /// Holds nothing yet.
    pub fn empty(budget: &Arc<BufferBudget>, kind: Kind) -> Reservation {
        Reservation { budget: Arc::clone(budget), kind, bytes: 0 }
    }

    /// What is held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sub-limit of its kind.
    pub fn limit_bytes(&self) -> u64 {
        self.budget.kind_limit_bytes(self.kind)
    }

    /// Grows within the part of its kind, even if other kinds have filled the budget: for small
    /// amounts that must not wait for others.
    pub fn try_grow_beside(&mut self, bytes: u64) -> bool {
        let more_bytes = bytes.saturating_sub(self.bytes);
        let has_room = self.budget.has_part_for(self.kind, more_bytes);
        if has_room {
            self.budget.force_grant(self.kind, more_bytes);
            self.bytes += more_bytes;
        }
        has_room
    }

    /// Turns into bytes of another kind of the same class, no more than are held, if that kind is
    /// within its part; else it stays as it is. For a moment both are booked.
    pub fn try_turn_into(&mut self, kind: Kind, bytes: u64) -> bool {
        debug_assert!(kind.class() == self.kind.class() && bytes <= self.bytes);
        let has_room = self.budget.has_part_for(kind, bytes);
        if has_room {
            self.budget.force_grant(kind, bytes);
            self.budget.give_back(self.kind, self.bytes);
            (self.kind, self.bytes) = (kind, bytes);
        } else {
            self.budget.note_refusal(kind);
        }
        has_room
    }

    /// Grows if there is room, or if nothing of its kind is booked: one at a time exceeds every
    /// limit rather than wait for ever (I1), because the holders of those bytes may be waiting for
    /// it.
    pub fn try_grow_or_alone(&mut self, bytes: u64) -> bool {
        if self.try_resize(bytes) {
            return true;
        }
        let more_bytes = bytes.saturating_sub(self.bytes);
        let has_grown = self.budget.try_grant_alone(self.kind, more_bytes);
        if has_grown {
            self.bytes = bytes;
        }
        has_grown
    }

    /// Grows towards `bytes` by what is free, and past the part of its kind for the last
    /// `past_bytes` of them. Returns whether it has reached them.
    pub fn grow_towards(&mut self, bytes: u64, past_bytes: u64) -> bool {
        while self.bytes < bytes {
            let more_bytes = (bytes - self.bytes).min(GROWN_BYTES);
            if !self.budget.try_grant(self.kind, more_bytes) {
                break;
            }
            self.bytes += more_bytes;
        }
        let rest_bytes = bytes.saturating_sub(self.bytes);
        let is_within = self.budget.kind_bytes(self.kind) <= self.limit_bytes();
        let is_reached = rest_bytes == 0 || (is_within && rest_bytes <= past_bytes);
        if is_reached {
            self.budget.force_grant(self.kind, rest_bytes);
            self.bytes += rest_bytes;
        }
        is_reached
    }

    /// Whether [`Reservation::try_grow_or_alone`] could be granted so many bytes now.
    pub fn could_take(budget: &BufferBudget, kind: Kind, bytes: u64) -> bool {
        let fits =
            |(count, limit): (&AtomicU64, u64)| count.load(Ordering::Relaxed) + bytes <= limit;
        budget.kind_bytes(kind) == 0 || budget.counts(kind).all(fits)
    }

    /// Grows if there is room, or shrinks.
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes && !self.budget.try_grant(self.kind, bytes - self.bytes) {
            self.budget.note_refusal(self.kind);
            return false;
        }
        self.budget.give_back(self.kind, self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.kind, self.bytes);
    }
}

/// The store's way to book the long values that updates make.
struct Scratch(Arc<BufferBudget>);

impl ScratchRoom for Scratch {
    fn try_take(&self, bytes: usize) -> bool {
        let has_room = self.0.try_grant(Kind::Scratch, bytes as u64);
        if !has_room {
            self.0.note_refusal(Kind::Scratch);
        }
        has_room
    }

    fn give_back(&self, bytes: usize) {
        self.0.give_back(Kind::Scratch, bytes as u64);
    }
}

#[cfg(test)]
mod tests;
