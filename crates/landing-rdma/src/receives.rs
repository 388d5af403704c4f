//! Receives: the zone's slots, given to the device in address order and settled in any order.
//!
//! ```text
//!   buffer    │ slot │ slot │ slot │ slot │ slot │ ...   each one receive
//!   number      40     41     42     43     44
//!               settled ─────▶│ waiting at the device ──▶│ posted next
//! ```
//!
//! # Invariants
//! S1: numbers count receives in the order of posting, which is that of the zone's buffers and, in
//!     each, of addresses.
//! S2: each receive is settled once, whether a message came or not.
//! S3: a buffer is closed when all of its slots are settled, so the device has no receive left that
//!     would write there.
//!
//! # Trade-offs
//! A slot takes one message, however short: stock verbs have no shared queue whose receives take
//! several (docs/design/landing.md). A message of several packets holds its receive until its last
//! packet, so later receives may complete first. Slots settle in any order; that costs the other
//! slots nothing but a later reuse of that buffer.

use std::io;

use base::sync::Arc;
use landing::{Lane, Window, Zone};

use crate::verbs::{Memory, SharedQueue};

/// The maximum number of receives in one call to the provider.
const LIST_MAX: usize = 64;

/// The slots of a zone that was lent.
pub struct Receives {
    queue: Arc<SharedQueue>,
    memory: Memory,
    slot_bytes: usize,
    slots_per_buffer: u64,
    /// The maximum number of receives that the device may hold.
    depth: u64,
    /// The zone's buffer that contains number 0.
    first_buffer: u64,
    posted: u64,
    settled: u64,
    /// By buffer: the number of slots that are not settled.
    left: Box<[u32]>,
    /// By number: whether it waits (S2).
    waiting: Box<[bool]>,
    list: Vec<(u64, usize, u32)>,
    /// The device reports when fewer wait than that; 0: it does not.
    limit: u64,
    is_limit_armed: bool,
}

impl Receives {
    /// Receives for a zone in this memory. Nothing is posted yet.
    pub fn new(
        queue: Arc<SharedQueue>,
        memory: Memory,
        zone: &Zone,
        slot_bytes: usize,
        depth: u64,
    ) -> Receives {
        let size = zone.size();
        let slots_per_buffer = size.buffer_bytes / slot_bytes;
        assert!(slots_per_buffer > 0, "a slot fits in a buffer");
        Receives {
            queue,
            memory,
            slot_bytes,
            slots_per_buffer: slots_per_buffer as u64,
            depth,
            first_buffer: zone.filling(),
            posted: 0,
            settled: 0,
            left: vec![0; size.buffer_count].into_boxed_slice(),
            waiting: vec![false; size.buffer_count * slots_per_buffer].into_boxed_slice(),
            list: Vec::with_capacity(LIST_MAX),
            limit: depth / 4,
            is_limit_armed: false,
        }
    }

    /// Gives the device as many slots as it has room for.
    pub fn post(&mut self, zone: &Zone) -> io::Result<()> {
        while self.waiting_count() < self.depth {
            let Some(offset_bytes) = self.offset_of(zone, self.posted) else { break };
            let (buffer, slot) = self.place(self.posted);
            if slot == 0 {
                self.left[buffer] = self.slots_per_buffer as u32;
            }
            let index = self.index(self.posted);
            self.waiting[index] = true;
            self.list.push((self.posted, offset_bytes, self.slot_bytes as u32));
            self.posted += 1;
            if self.list.len() == LIST_MAX {
                self.post_list()?;
            }
        }
        self.post_list()?;
        if !self.is_limit_armed && self.limit > 0 && self.waiting_count() > self.limit {
            self.queue.arm_limit(self.limit as u32)?;
            self.is_limit_armed = true;
        }
        Ok(())
    }

    fn post_list(&mut self) -> io::Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        // SAFETY: the slots are of posted buffers of a zone that was lent, so no other code writes
        // there, and none reads before they are settled (S3, Z6).
        unsafe { self.queue.post(&self.memory, &self.list) }?;
        self.list.clear();
        Ok(())
    }

    /// Settles the receive of that number, which has completed with a message of a lane, or without
    /// one.
    pub fn settle(
        &mut self,
        zone: &mut Zone,
        number: u64,
        message: Option<(Lane, usize)>,
    ) -> io::Result<()> {
        let index = self.index(number);
        let is_waiting = number < self.posted && std::mem::take(&mut self.waiting[index]);
        let offset_bytes = self.offset_of(zone, number).filter(|_| is_waiting);
        let Some(offset_bytes) = offset_bytes else {
            return Err(io::Error::other(
                "S2: the device completed a receive that it did not have",
            ));
        };
        self.settled += 1;
        if let Some((lane, len_bytes)) = message {
            let slot = Window { offset_bytes, len_bytes: self.slot_bytes };
            // SAFETY: the device has completed the receive of this slot, once (S2), so it writes
            // there no more, and the slot is this message's alone.
            unsafe { zone.land_in(lane.into(), slot, len_bytes) };
        }
        let (buffer, _) = self.place(number);
        self.left[buffer] -= 1;
        self.close_settled(zone);
        Ok(())
    }

    /// Closes settled buffers, oldest first (S3).
    fn close_settled(&mut self, zone: &mut Zone) {
        let filled_bytes = self.slots_per_buffer as usize * self.slot_bytes;
        loop {
            let behind = (zone.filling() + 1 - self.first_buffer) * self.slots_per_buffer;
            let (buffer, _) = self.place(behind - 1);
            if behind > self.posted || self.left[buffer] > 0 {
                return;
            }
            // SAFETY: all receives of the buffer have been posted and are settled.
            unsafe { zone.close_filled(filled_bytes) };
        }
    }

    /// Whether the device has no receive left.
    pub fn is_out(&self) -> bool {
        self.posted == self.settled
    }

    /// The device has reported that few receives are left, and will not report it again.
    pub fn limit_was_reached(&mut self) {
        self.is_limit_armed = false;
    }

    /// The number of receives that the device holds.
    pub fn waiting_count(&self) -> u64 {
        self.posted - self.settled
    }

    /// The offset of the slot of that number, while its buffer is posted.
    fn offset_of(&self, zone: &Zone, number: u64) -> Option<usize> {
        let sequence = self.first_buffer + number / self.slots_per_buffer;
        let slot = (number % self.slots_per_buffer) as usize;
        Some(zone.posted_at(sequence)? + slot * self.slot_bytes)
    }

    /// The index of its buffer, and its position in that buffer.
    fn place(&self, number: u64) -> (usize, u64) {
        let sequence = number / self.slots_per_buffer;
        ((sequence % self.left.len() as u64) as usize, number % self.slots_per_buffer)
    }

    fn index(&self, number: u64) -> usize {
        (number % self.waiting.len() as u64) as usize
    }
}
