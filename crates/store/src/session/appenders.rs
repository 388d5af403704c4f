//! A session's open segments: one appender for clients' writes, one for entries that reclaiming
//! moves.
//!
//! ```text
//!  one queue:   writes ─▶ clients' entries     survivors ─▶ entries that were moved
//!  two queues:  writes ─▶ small                survivors ─▶ main: moved, or known to the ghosts
//! ```
//!
//! # Invariants
//! A1: old entries stay apart from new ones: the survivors' segments die slowly.
//! A2: a reservation goes back to, or is published by, the appender that made it.

use crate::inner::Inner;
use crate::log::{Appender, Lane, Log, Queue, Reservation, Role};

/// Both appenders.
pub(super) struct Appenders {
    /// For clients' writes; to the small queue, if there are two.
    pub writes: Appender,
    /// For entries that reclaiming moves. With two queues, for everything that belongs into main.
    pub survivors: Appender,
}

impl Appenders {
    /// Without open segments; they are opened in `region`, while there is room.
    pub(super) fn new(inner: &Inner, lane: Lane, region: usize) -> Appenders {
        let ahead = inner.tuning.prefetches_append;
        let write_queue = if inner.ghosts.is_some() { Queue::Small } else { Queue::Main };
        let mut appenders = Appenders {
            writes: Appender::new(Role::Writes, write_queue, lane, ahead),
            survivors: Appender::new(Role::Survivors, Queue::Main, lane, ahead),
        };
        appenders.prefer(region);
        appenders
    }

    /// Opens segments of a region, while there is room.
    pub(super) fn prefer(&mut self, region: usize) {
        self.writes.prefer(region);
        self.survivors.prefer(region);
    }

    /// The appender for a client's write to `queue`.
    #[inline]
    pub(super) fn for_write(&mut self, inner: &Inner, queue: Queue) -> &mut Appender {
        match queue {
            Queue::Main if inner.ghosts.is_some() => &mut self.survivors,
            _ => &mut self.writes,
        }
    }

    /// The appender that made a reservation (A2).
    #[inline]
    pub(super) fn by_role(&mut self, role: Role) -> &mut Appender {
        match role {
            Role::Writes => &mut self.writes,
            Role::Survivors => &mut self.survivors,
        }
    }

    /// Gives a reservation back.
    pub(super) fn cancel(&mut self, log: &Log, reservation: Option<Reservation>) {
        if let Some(reservation) = reservation {
            self.by_role(reservation.role).cancel(log, reservation);
        }
    }

    /// The bytes that writes of any queue find free in open segments.
    pub(super) fn room_bytes(&self, inner: &Inner) -> u64 {
        match inner.ghosts.is_some() {
            true => self.writes.room_bytes().min(self.survivors.room_bytes()),
            false => self.writes.room_bytes(),
        }
    }

    /// The bytes appended since the session began.
    pub(super) fn appended_bytes(&self) -> u64 {
        self.writes.appended_bytes() + self.survivors.appended_bytes()
    }

    /// Publishes live bytes that are counted here so far.
    #[inline]
    pub(super) fn publish_live(&mut self, log: &Log) {
        self.writes.publish_live(log);
        self.survivors.publish_live(log);
    }

    /// Closes both open segments.
    pub(super) fn close(&mut self, log: &Log) {
        self.writes.close(log);
        self.survivors.close(log);
    }
}
