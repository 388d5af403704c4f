//! Requests of this server's own clients that its node has, or is to have once it serves.
//!
//! ```text
//!  errand ─▶ queue of its shard empty? ─yes─▶ node ─ Reply ─▶ given back
//!                      │ no                     │ TryAgain
//!                      ▼                        ▼
//!                 behind it              first of the queue, until the next look or the end of
//!                                        its patience
//! ```
//!
//! # Invariants
//! O1: requests of one shard reach the node in the order in which they came (K10).
//! O2: each is in the table exactly once, until it is given back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::Instant;
use cluster::ShardId;

use crate::hop::replicate::Errand;

/// Who waits, by ticket.
#[derive(Default)]
pub(super) struct Outstanding {
    tickets: Vec<Option<Waiter>>,
    free: Vec<u32>,
    /// Of each shard: tickets that the node has refused for now, oldest first.
    later: BTreeMap<ShardId, VecDeque<u32>>,
    next_sequence: u64,
}

/// One of them.
pub(super) struct Waiter {
    pub errand: Arc<Errand>,
    pub key: Arc<[u8]>,
    pub shard: ShardId,
    /// Tells a reply to this one from one to whoever had the ticket before.
    pub sequence: u64,
    pub came_at: Instant,
}

impl Outstanding {
    /// A new one; its ticket, and whether it may go to the node at once.
    pub fn add(
        &mut self,
        errand: Arc<Errand>,
        key: Arc<[u8]>,
        shard: ShardId,
        now: Instant,
    ) -> (u32, bool) {
        self.next_sequence += 1;
        let waiter = Waiter { errand, key, shard, sequence: self.next_sequence, came_at: now };
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.tickets.push(None);
            (self.tickets.len() - 1) as u32
        });
        self.tickets[ticket as usize] = Some(waiter);
        match self.later.get_mut(&shard) {
            Some(queue) => {
                queue.push_back(ticket); // O1
                (ticket, false)
            }
            None => (ticket, true),
        }
    }

    /// The waiter of a reply, if that is still awaited.
    pub fn get(&self, ticket: u32, sequence: u64) -> Option<&Waiter> {
        let waiter = self.tickets.get(ticket as usize)?.as_ref()?;
        (waiter.sequence == sequence).then_some(waiter)
    }

    /// The one with a ticket.
    pub fn at(&self, ticket: u32) -> Option<&Waiter> {
        self.tickets.get(ticket as usize)?.as_ref()
    }

    /// It is answered.
    pub fn remove(&mut self, ticket: u32) -> Option<Waiter> {
        let waiter = self.tickets.get_mut(ticket as usize)?.take()?;
        self.free.push(ticket);
        Some(waiter)
    }

    /// The node has refused it for now. Those that came later wait behind it.
    pub fn put_off(&mut self, ticket: u32) {
        let Some(waiter) = self.at(ticket) else { return };
        let (shard, sequence) = (waiter.shard, waiter.sequence);
        let sequence_of =
            |ticket: u32| self.tickets[ticket as usize].as_ref().map(|it| it.sequence);
        let place = self.later.get(&shard).map_or(0, |queue| {
            queue.iter().take_while(|other| sequence_of(**other) < Some(sequence)).count()
        });
        self.later.entry(shard).or_default().insert(place, ticket);
    }

    /// Shards with requests that were put off.
    pub fn shards_put_off(&self) -> Vec<ShardId> {
        self.later.keys().copied().collect()
    }

    /// The first of a shard that was put off leaves the queue.
    pub fn next_of(&mut self, shard: ShardId) -> Option<u32> {
        let queue = self.later.get_mut(&shard)?;
        let ticket = queue.pop_front();
        if ticket.is_none() {
            self.later.remove(&shard);
        }
        ticket
    }

    /// Whether the shard's queue begins with this one, or is behind it.
    pub fn is_put_off(&self, ticket: u32, shard: ShardId) -> bool {
        self.later.get(&shard).is_some_and(|queue| queue.front() == Some(&ticket))
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.tickets.len() - self.free.len()
    }
}
