//! Outstanding requests of this server's own clients: the node has them, or gets them once it
//! serves.
//!
//! ```text
//!  control request ─▶ queue of its shard empty? ─yes─▶ node ─ Reply ─▶ given back
//!                      │ no                     │ TryAgain
//!                      ▼                        ▼
//!                 behind it              first of the queue, until the next look or the end of
//!                                        its patience
//! ```
//!
//! # Invariants
//! O1: requests of one shard reach the node in the order of their arrival (K10).
//! O2: each is in the table exactly once, until it is given back.
//! O3: while a shard is held, every request for it goes into its queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::Instant;
use cluster::ShardId;
use replication::replicate::RequestChange;

/// The outstanding requests, by ticket.
#[derive(Default)]
pub(super) struct Outstanding {
    tickets: Vec<Option<Waiter>>,
    free: Vec<u32>,
    /// By shard: tickets that the node has refused for now, oldest first.
    later: BTreeMap<ShardId, VecDeque<u32>>,
    held: Option<ShardId>,
    /// By shard number: how many requests the node has.
    asked: Vec<u32>,
    next_sequence: u64,
    /// Bytes of the values that waiting requests store.
    filling_bytes: u64,
}

/// One outstanding request.
pub(super) struct Waiter {
    /// None: a request of a group.
    pub control_request: Option<Arc<RequestChange>>,
    pub key: Arc<[u8]>,
    pub shard: ShardId,
    /// Tells a reply to this request from a reply to the ticket's previous one.
    pub sequence: u64,
    pub came_at: Instant,
    /// When another node was first asked.
    pub sent_at: Option<Instant>,
    filling_bytes: u64,
}

impl Outstanding {
    /// Adds a request; returns its ticket, and whether it may go to the node at once.
    pub fn add(
        &mut self,
        control_request: Arc<RequestChange>,
        key: Arc<[u8]>,
        shard: ShardId,
        now: Instant,
    ) -> (u32, bool) {
        let ticket = self.insert(Some(control_request), key, shard, now);
        if let Some(queue) = self.later.get_mut(&shard) {
            queue.push_back(ticket); // O1
            return (ticket, false);
        }
        if self.held == Some(shard) {
            self.later.entry(shard).or_default().push_back(ticket); // O3
            return (ticket, false);
        }
        (ticket, true)
    }

    /// Adds a request of the group that holds the shard.
    pub fn add_group(&mut self, key: Arc<[u8]>, shard: ShardId, now: Instant) -> u32 {
        self.insert(None, key, shard, now)
    }

    fn insert(
        &mut self,
        control_request: Option<Arc<RequestChange>>,
        key: Arc<[u8]>,
        shard: ShardId,
        now: Instant,
    ) -> u32 {
        self.next_sequence += 1;
        let filling =
            control_request.as_ref().filter(|control_request| control_request.is_filling());
        let filling_bytes = filling.map_or(0, |control_request| control_request.len_bytes());
        self.filling_bytes += filling_bytes;
        let sequence = self.next_sequence;
        let (came_at, sent_at) = (now, None);
        let waiter =
            Waiter { control_request, key, shard, sequence, came_at, sent_at, filling_bytes };
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.tickets.push(None);
            (self.tickets.len() - 1) as u32
        });
        self.tickets[ticket as usize] = Some(waiter);
        ticket
    }

    /// The request of a reply, if that is still awaited.
    pub fn get(&self, ticket: u32, sequence: u64) -> Option<&Waiter> {
        let waiter = self.tickets.get(ticket as usize)?.as_ref()?;
        (waiter.sequence == sequence).then_some(waiter)
    }

    /// The request with a ticket.
    pub fn at(&self, ticket: u32) -> Option<&Waiter> {
        self.tickets.get(ticket as usize)?.as_ref()
    }

    /// Whether it is a read, and all other reads came after it.
    pub fn is_oldest_read(&self, ticket: u32) -> bool {
        let sequence_of = |waiter: &Waiter| {
            let is_read = waiter
                .control_request
                .as_ref()
                .is_some_and(|control_request| control_request.is_read());
            is_read.then_some(waiter.sequence)
        };
        let own = self.at(ticket).and_then(sequence_of);
        let mut others = self.tickets.iter().flatten().filter_map(sequence_of);
        own.is_some_and(|own| others.all(|other| own <= other))
    }

    /// Notes that another node is asked.
    pub fn note_sent(&mut self, ticket: u32, now: Instant) {
        if let Some(waiter) = self.tickets.get_mut(ticket as usize).and_then(Option::as_mut) {
            waiter.sent_at.get_or_insert(now);
        }
    }

    /// Counts a request that the node is asked for.
    pub fn count_asked(&mut self, shard: ShardId) {
        if self.asked.len() <= shard.index() {
            self.asked.resize(shard.index() + 1, 0);
        }
        self.asked[shard.index()] += 1;
    }

    /// Counts any answer of the node.
    pub fn count_answered(&mut self, shard: ShardId) {
        if let Some(count) = self.asked.get_mut(shard.index()) {
            *count = count.saturating_sub(1);
        }
    }

    /// How many requests of a shard the node has.
    pub fn asked_count(&self, shard: ShardId) -> u32 {
        self.asked.get(shard.index()).copied().unwrap_or_default()
    }

    /// Removes an answered request.
    pub fn remove(&mut self, ticket: u32) -> Option<Waiter> {
        let waiter = self.tickets.get_mut(ticket as usize)?.take()?;
        self.free.push(ticket);
        self.filling_bytes -= waiter.filling_bytes;
        Some(waiter)
    }

    /// Puts off a request that the node has refused for now. Later ones wait behind it.
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

    /// Whether an earlier request was put off.
    pub fn is_behind(&self, ticket: u32) -> bool {
        let Some(waiter) = self.at(ticket) else { return false };
        let first = self.later.get(&waiter.shard).and_then(|queue| queue.front());
        first.and_then(|first| self.at(*first)).is_some_and(|it| it.sequence < waiter.sequence)
    }

    /// Shards with requests that were put off, except the one that is held.
    pub fn shards_put_off(&self) -> Vec<ShardId> {
        self.later.keys().copied().filter(|shard| self.held != Some(*shard)).collect()
    }

    /// Takes the first put-off request of a shard out of its queue.
    pub fn next_of(&mut self, shard: ShardId) -> Option<u32> {
        let queue = self.later.get_mut(&shard)?;
        let ticket = queue.pop_front();
        if ticket.is_none() {
            self.later.remove(&shard);
        }
        ticket
    }

    /// Whether the shard's queue begins with this one.
    pub fn is_put_off(&self, ticket: u32, shard: ShardId) -> bool {
        self.later.get(&shard).is_some_and(|queue| queue.front() == Some(&ticket))
    }

    /// A group holds the shard from now on (O3).
    pub fn hold(&mut self, shard: ShardId) {
        self.held = Some(shard);
    }

    /// Whether a group holds the shard.
    pub fn is_held(&self, shard: ShardId) -> bool {
        self.held == Some(shard)
    }

    /// The group releases the shard.
    pub fn let_go(&mut self, shard: ShardId) {
        debug_assert_eq!(self.held, Some(shard));
        self.held = None;
    }

    /// Bytes of the values that waiting requests store: the log does not have them yet.
    pub fn filling_bytes(&self) -> u64 {
        self.filling_bytes
    }

    /// The number of outstanding requests.
    pub fn count(&self) -> usize {
        self.tickets.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn add(outstanding: &mut Outstanding) -> u32 {
        outstanding.add_group(Arc::from(&b"k"[..]), SHARD, Instant::default())
    }

    #[test]
    fn what_is_put_off_comes_back_in_the_order_in_which_it_came() {
        let mut outstanding = Outstanding::default();
        let tickets: Vec<u32> = (0..3).map(|_| add(&mut outstanding)).collect();
        // The node refuses the second, then the first.
        outstanding.put_off(tickets[1]);
        outstanding.put_off(tickets[0]);
        outstanding.put_off(tickets[2]);
        let order: Vec<u32> = std::iter::from_fn(|| outstanding.next_of(SHARD)).collect();
        assert_eq!(order, tickets);
        assert!(outstanding.shards_put_off().is_empty());
    }

    #[test]
    fn a_held_shard_is_not_tried_again() {
        let mut outstanding = Outstanding::default();
        let ticket = add(&mut outstanding);
        outstanding.put_off(ticket);
        outstanding.hold(SHARD);
        assert!(outstanding.shards_put_off().is_empty());
        outstanding.let_go(SHARD);
        assert_eq!(outstanding.shards_put_off(), [SHARD]);
    }
}
