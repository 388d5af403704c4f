//! Queues of a device: completions, the channel that announces them, shared receives.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use base::sync::Arc;

use super::{Domain, Memory, SharedDevice, abi, checked, made, set_nonblocking};

/// A descriptor that becomes readable when an armed queue gets a completion.
pub struct Channel {
    channel: NonNull<abi::CompletionChannel>,
    device: SharedDevice,
}

// SAFETY: a channel is a descriptor and counters that libibverbs locks.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// A channel without queues.
    pub fn new(device: SharedDevice) -> io::Result<Channel> {
        // SAFETY: the context is open as long as the device.
        let channel = unsafe { (device.library.create_channel)(device.context.as_ptr()) };
        let channel = Channel { channel: made(channel)?, device };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    /// The descriptor for a poller.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor does not change.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: it is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes all its events.
    pub fn hear(&self) {
        let mut queue = std::ptr::null_mut();
        let mut user_context = std::ptr::null_mut();
        // SAFETY: the channel is open and does not block; the library writes two pointers.
        while unsafe {
            (self.device.library.get_queue_event)(
                self.channel.as_ptr(),
                &raw mut queue,
                &raw mut user_context,
            )
        } == 0
        {
            // SAFETY: the event was about this queue, which waits with its end until all of its
            // events are acknowledged; each is, once.
            unsafe { (self.device.library.acknowledge_queue_events)(queue, 1) };
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its queues have references to it, so they are gone.
        unsafe { (self.device.library.destroy_channel)(self.channel.as_ptr()) };
    }
}

/// The queue of finished requests.
pub struct CompletionQueue {
    pub(super) queue: NonNull<abi::CompletionQueue>,
    channel: Arc<Channel>,
}

// SAFETY: libibverbs' providers lock a queue while it is polled or armed.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue that holds that many.
    pub fn new(channel: &Arc<Channel>, completions_max: u32) -> io::Result<CompletionQueue> {
        let device = &channel.device;
        let count = c_int::try_from(completions_max).unwrap_or(c_int::MAX);
        // SAFETY: context and channel are open and of one device; no user context is kept.
        let queue = unsafe {
            (device.library.create_queue)(
                device.context.as_ptr(),
                count,
                std::ptr::null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        Ok(CompletionQueue { queue: made(queue)?, channel: channel.clone() })
    }

    /// Takes as many completions as there are and fit; returns their number.
    pub fn poll(&self, into: &mut [abi::WorkCompletion]) -> io::Result<usize> {
        let count = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        let poll = self.operations().poll_cq;
        // SAFETY: the queue is open, and the provider writes at most `count` completions.
        let code = unsafe { poll(self.queue.as_ptr(), count, into.as_mut_ptr()) };
        usize::try_from(code).map_err(|_| io::Error::other("a completion queue overflowed"))
    }

    /// Lets the next completion make the channel readable.
    pub fn arm(&self) -> io::Result<()> {
        let arm = self.operations().request_notify;
        // SAFETY: the queue is open.
        checked(unsafe { arm(self.queue.as_ptr(), 0) })
    }

    fn operations(&self) -> &abi::Operations {
        // SAFETY: the queue's context is the device's, which is kept open and whose table of
        // operations does not change.
        unsafe { &(*self.channel.device.context.as_ptr()).operations }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs have references to it, so they are gone.
        unsafe { (self.channel.device.library.destroy_queue)(self.queue.as_ptr()) };
    }
}

/// Receives that all connections of a domain share, used up in the order of posting.
pub struct SharedQueue {
    pub(super) queue: NonNull<abi::SharedQueue>,
    pub(super) domain: Arc<Domain>,
}

// SAFETY: libibverbs' providers lock a shared queue while receives are posted.
unsafe impl Send for SharedQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// A queue for that many receives.
    pub fn new(domain: &Arc<Domain>, requests_max: u32) -> io::Result<SharedQueue> {
        let attributes = abi::SharedQueueAttributes { requests_max, segments_max: 1, limit: 0 };
        let mut init = abi::SharedQueueInit { user_context: std::ptr::null_mut(), attributes };
        // SAFETY: the domain is open; the structure is read, and written with what was given.
        let queue = unsafe {
            (domain.device.library.create_shared_queue)(domain.domain.as_ptr(), &raw mut init)
        };
        Ok(SharedQueue { queue: made(queue)?, domain: domain.clone() })
    }

    /// Posts receives in that order. Each has an id, an address and a length; they go to the
    /// device as one list.
    ///
    /// # Safety
    /// No other code touches the bytes until the receive has completed, or the queue is gone.
    pub unsafe fn post(&self, memory: &Memory, slots: &[(u64, usize, u32)]) -> io::Result<()> {
        const LIST_MAX: usize = 32;
        for slots in slots.chunks(LIST_MAX) {
            let mut segments = [abi::Segment { address: 0, length: 0, local_key: 0 }; LIST_MAX];
            let mut requests = [const { NO_REQUEST }; LIST_MAX];
            for (segment, (_, offset_bytes, len_bytes)) in segments.iter_mut().zip(slots) {
                let address = memory.address(*offset_bytes);
                let local_key = memory.local_key();
                *segment = abi::Segment { address, length: *len_bytes, local_key };
            }
            let (first_request, first_segment) = (requests.as_mut_ptr(), segments.as_mut_ptr());
            for (index, (id, ..)) in slots.iter().enumerate() {
                // SAFETY: the entry lies in the array, which no other reference reaches.
                let request = unsafe { &mut *first_request.wrapping_add(index) };
                request.id = *id;
                request.segments = first_segment.wrapping_add(index);
                request.segment_count = 1;
                if index + 1 < slots.len() {
                    request.next = first_request.wrapping_add(index + 1);
                }
            }
            let mut refused = std::ptr::null_mut();
            // SAFETY: the context is open as long as the domain's device.
            let post =
                unsafe { (*self.domain.device.context.as_ptr()).operations.post_srq_receive };
            // SAFETY: the list ends with its last entry and lives during the call; the caller
            // leaves the bytes alone.
            checked(unsafe { post(self.queue.as_ptr(), first_request, &raw mut refused) })?;
        }
        Ok(())
    }

    /// Lets the device report once when fewer receives are left than that.
    pub fn arm_limit(&self, limit: u32) -> io::Result<()> {
        let mut attributes = abi::SharedQueueAttributes { requests_max: 0, segments_max: 0, limit };
        // SAFETY: the queue is open, and the structure is read as far as the mask says.
        checked(unsafe {
            (self.domain.device.library.modify_shared_queue)(
                self.queue.as_ptr(),
                &raw mut attributes,
                abi::SHARED_QUEUE_LIMIT,
            )
        })
    }
}

const NO_REQUEST: abi::ReceiveRequest = abi::ReceiveRequest {
    id: 0,
    next: std::ptr::null_mut(),
    segments: std::ptr::null_mut(),
    segment_count: 0,
};

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs have references to it, so they are gone.
        unsafe { (self.domain.device.library.destroy_shared_queue)(self.queue.as_ptr()) };
    }
}
