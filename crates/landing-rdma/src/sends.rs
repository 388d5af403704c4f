//! Frames to send: buffers that the device reads, a queue for each lane, and batches of requests.
//!
//! ```text
//!   a lane's frames   │ on the way ... │ queued ... │      a list through the buffers
//!                      oldest ────────▶ unposted ─▶ youngest
//! ```
//!
//! A batch is one list of requests for each lane, so the device is notified once (one doorbell).
//! The completion of the last request implies that all before it are done too, since a connection
//! keeps their order; so only a few requests ask for a completion (selective signalling).
//!
//! # Invariants
//! F1 (sends/slots.rs): a buffer is free, reserved, or in the list of one lane.
//! F2: the bytes of a posted frame are left alone until it is acknowledged, or until its queue pair
//!     is gone.

mod slots;

use std::io;

use base::sync::Arc;
use landing::{Lane, Region, SendError};

pub use self::slots::Outbox;
use self::slots::Slots;

use crate::Acknowledge;
use crate::handshake::Fence;
use crate::verbs::{Domain, Memory, QueuePair, abi, segment};

/// The maximum number of frames in one list of requests.
const BATCH_MAX: usize = 32;
/// The result of a READ after a batch, which is never looked at.
const FENCE_BYTES: usize = 8;

/// The counts of sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub frames: u64,
    pub doorbells: u64,
    pub signalled: u64,
    pub reads: u64,
}

/// The rule for completions.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Which sends request a completion.
    pub acknowledge: Acknowledge,
    /// With `Lazily`: one of so many.
    pub unsignalled_max: u32,
}

/// The buffers of all lanes.
pub struct Sends {
    memory: Memory,
    region: Arc<Region>,
    buffer_bytes: usize,
    slots: Slots,
    reserved: Option<(Lane, usize)>,
    rule: Rule,
    sent: Sent,
}

impl Sends {
    /// So many buffers, registered with the device.
    pub fn new(
        domain: &Arc<Domain>,
        buffer_count: usize,
        buffer_bytes: usize,
        rule: Rule,
    ) -> io::Result<Sends> {
        let region = Arc::new(Region::memory(buffer_count * buffer_bytes + FENCE_BYTES)?);
        let memory = Memory::landing(domain, &region)?;
        let (slots, sent) = (Slots::new(buffer_count), Sent::default());
        Ok(Sends { memory, region, buffer_bytes, slots, reserved: None, rule, sent })
    }

    /// Room in the first free buffer.
    pub fn reserve(&mut self, lane: Lane, bytes_max: usize) -> Result<&mut [u8], SendError> {
        assert!(bytes_max <= self.buffer_bytes, "a frame fits in a buffer");
        let index = self.slots.reserve().ok_or(SendError::Full)?;
        self.reserved = Some((lane, bytes_max));
        let start = self.region.start();
        // SAFETY: the buffer lies in the region, by the length that the region was made with.
        let start = unsafe { start.add(index * self.buffer_bytes) };
        // SAFETY: the buffer is free (F1), so no device and no other code touches it (F2);
        // `self` is borrowed as long as the slice. A region is initialised.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes_max) })
    }

    /// Whether no buffer is free.
    pub fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Cancels the reservation.
    pub fn cancel(&mut self) {
        self.reserved = None;
        self.slots.cancel();
    }

    /// The lane of the reservation.
    pub fn reserved_lane(&self) -> Option<Lane> {
        self.reserved.map(|(lane, _)| lane)
    }

    /// Queues the first bytes of the reserved buffer, after the lane's other frames.
    pub fn commit(&mut self, outbox: &mut Outbox, len_bytes: usize) {
        let (_, bytes_max) = self.reserved.take().expect("room is reserved before it is committed");
        assert!(len_bytes <= bytes_max, "a frame fits in what was reserved");
        self.slots.push(outbox, len_bytes as u32);
    }

    /// Posts all frames that are queued for a lane.
    pub fn post(
        &mut self,
        lane: Lane,
        outbox: &mut Outbox,
        pair: &QueuePair,
        fence: Fence,
    ) -> io::Result<()> {
        while outbox.queued() > 0 {
            self.post_batch(lane, outbox, pair, fence)?;
        }
        Ok(())
    }

    fn post_batch(
        &mut self,
        lane: Lane,
        outbox: &mut Outbox,
        pair: &QueuePair,
        fence: Fence,
    ) -> io::Result<()> {
        let mut requests = [const { NO_REQUEST }; BATCH_MAX + 1];
        let mut segments = [abi::Segment { address: 0, length: 0, local_key: 0 }; BATCH_MAX + 1];
        let before = *outbox;
        let mut count = 0;
        while count < BATCH_MAX
            && let Some((index, len_bytes)) = self.slots.take_queued(outbox)
        {
            segments[count] = segment(&self.memory, index * self.buffer_bytes, len_bytes);
            let is_inline = len_bytes <= pair.inline_bytes_max();
            let is_signalled = self.is_signalled(outbox);
            self.sent.signalled += u64::from(is_signalled);
            requests[count].id = id(lane, outbox.posted);
            requests[count].operation = abi::OPERATION_SEND;
            // Some devices take a segment without bytes for one of 2 GiB.
            requests[count].segment_count = i32::from(len_bytes > 0);
            requests[count].flags = if is_inline { abi::SEND_INLINE } else { 0 }
                | if is_signalled { abi::SEND_SIGNALED } else { 0 };
            count += 1;
        }
        let frames = count;
        if self.rule.acknowledge == Acknowledge::Persistent {
            let offset_bytes = self.slots.len() * self.buffer_bytes;
            segments[count] = segment(&self.memory, offset_bytes, FENCE_BYTES as u32);
            requests[count].id = id(lane, outbox.posted);
            requests[count].operation = abi::OPERATION_READ;
            requests[count].segment_count = 1;
            requests[count].flags = abi::SEND_SIGNALED;
            requests[count].remote_address = fence.address;
            requests[count].remote_key = fence.key;
            count += 1;
        }
        let (first_request, first_segment) = (requests.as_mut_ptr(), segments.as_mut_ptr());
        for index in 0..count {
            // SAFETY: the entry lies in the array, which no other reference reaches.
            let request = unsafe { &mut *first_request.wrapping_add(index) };
            request.segments = first_segment.wrapping_add(index);
            if index + 1 < count {
                request.next = first_request.wrapping_add(index + 1);
            }
        }
        // SAFETY: the list ends at `count` and lives during the call. Its buffers are in the
        // lane's list until they are acknowledged or the pair is gone (F2). What the READ brings
        // goes behind all buffers, where no code looks.
        let posted = unsafe { pair.post(first_request) };
        if posted.is_err() {
            // Some of the list may have been taken: the caller closes the lane.
            *outbox = before.all_under_way();
            return posted;
        }
        self.sent.frames += frames as u64;
        self.sent.reads += (count - frames) as u64;
        self.sent.doorbells += 1;
        Ok(())
    }

    /// Whether the frame just taken for a batch requests a completion.
    fn is_signalled(&self, outbox: &mut Outbox) -> bool {
        outbox.unsignalled += 1;
        let is_due = match self.rule.acknowledge {
            Acknowledge::Lazily => outbox.unsignalled >= self.rule.unsignalled_max,
            // The last of each list of requests.
            Acknowledge::Batches => {
                outbox.queued() == 0 || outbox.unsignalled as usize >= BATCH_MAX
            }
            Acknowledge::Persistent => false,
        };
        if is_due {
            outbox.unsignalled = 0;
        }
        is_due
    }

    /// Frees the lane's frames up to that one, which have been acknowledged.
    pub fn acknowledge(&mut self, outbox: &mut Outbox, id: u64) {
        self.slots.acknowledge(outbox, id as u32);
    }

    /// Frees all buffers of a lane whose queue pair is gone. Returns the number of frames.
    pub fn forget(&mut self, outbox: &mut Outbox) -> usize {
        self.slots.forget(outbox)
    }

    /// The counts of sends.
    pub fn sent(&self) -> Sent {
        self.sent
    }
}

/// A request's id: its lane, and the number of the lane's frames up to it.
fn id(lane: Lane, posted: u64) -> u64 {
    u64::from(lane.0) << 32 | u64::from(posted as u32)
}

/// The lane in a request's id.
pub fn lane_of(id: u64) -> Lane {
    Lane((id >> 32) as u32)
}

const NO_REQUEST: abi::SendRequest = abi::SendRequest {
    id: 0,
    next: std::ptr::null_mut(),
    segments: std::ptr::null_mut(),
    segment_count: 0,
    operation: 0,
    flags: 0,
    immediate: 0,
    remote_address: 0,
    remote_key: 0,
    rest: [0; 9],
};
