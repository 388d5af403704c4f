//! One end of a reliable connection: a queue of sends, and a share in the receives of all.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use base::sync::Arc;

use super::{CompletionQueue, Memory, SharedQueue, abi, checked, made};

/// The maximum number of requests under way.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairSize {
    /// Requests that are not completed.
    pub requests_max: u32,
    /// Bytes of a message that may travel within its request.
    pub inline_bytes_max: u32,
}

/// The description of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its queue pair's number.
    pub number: u32,
    /// The first packet number that it sends.
    pub packet: u32,
    /// Its address on the fabric.
    pub gid: [u8; 16],
    /// Its local id, where the fabric is InfiniBand.
    pub lid: u16,
    /// The code of the longest packet that its port carries.
    pub mtu: u8,
    /// The maximum number of reads it answers at a time.
    pub reads_max: u8,
}

/// How a connection behaves when its peer does not answer or has no receive posted.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// An unanswered packet is sent again after 4.096 us times two to the power of this.
    pub timeout: u8,
    /// The number of times; then the connection is broken.
    pub retry_count: u8,
    /// The time that peers are told to wait if no receive is posted: a code of the standard's
    /// table.
    pub not_ready_timer: u8,
    /// How often a message is sent again to a peer that has no receive posted; 7: for ever.
    pub not_ready_retry_count: u8,
}

/// The port and address by which a connection leaves this host.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The device's port.
    pub port: u8,
    /// Which of the port's addresses is used.
    pub gid_index: u8,
    /// Whether the link is Ethernet, so that addresses are needed.
    pub is_ethernet: bool,
    /// The code of the longest packet that the port carries.
    pub mtu: u8,
    /// The maximum number of reads that this end sends and answers at a time.
    pub reads_max: u8,
}

/// One end of a connection.
pub struct QueuePair {
    pair: NonNull<abi::QueuePair>,
    shared: Arc<SharedQueue>,
    /// Kept open as long as the pair.
    _queues: [Arc<CompletionQueue>; 2],
    inline_bytes_max: u32,
}

// SAFETY: libibverbs' providers lock a pair while requests are posted.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A pair without a connection.
    pub fn new(
        shared: &Arc<SharedQueue>,
        sends: &Arc<CompletionQueue>,
        receives: &Arc<CompletionQueue>,
        size: QueuePairSize,
        port: u8,
    ) -> io::Result<QueuePair> {
        let mut init = abi::QueuePairInit {
            user_context: std::ptr::null_mut(),
            send_queue: sends.queue.as_ptr(),
            receive_queue: receives.queue.as_ptr(),
            shared_queue: shared.queue.as_ptr(),
            sizes: abi::QueuePairSizes {
                send_requests_max: size.requests_max,
                receive_requests_max: 0,
                send_segments_max: 1,
                receive_segments_max: 0,
                inline_bytes_max: size.inline_bytes_max,
            },
            kind: abi::KIND_RELIABLE,
            signals_all: 0,
        };
        let domain = &shared.domain;
        // SAFETY: the domain and all queues are open and of one device; the structure is read, and
        // written with what was given.
        let pair =
            unsafe { (domain.device.library.create_pair)(domain.domain.as_ptr(), &raw mut init) };
        let pair = QueuePair {
            pair: made(pair)?,
            shared: shared.clone(),
            _queues: [sends.clone(), receives.clone()],
            inline_bytes_max: init.sizes.inline_bytes_max,
        };
        let mut attributes = no_attributes();
        attributes.state = abi::STATE_INIT;
        attributes.port = port;
        attributes.access = abi::ACCESS_REMOTE_READ as u32;
        let mask = abi::MASK_STATE | abi::MASK_KEY_INDEX | abi::MASK_PORT | abi::MASK_ACCESS;
        pair.modify(&mut attributes, mask)?;
        Ok(pair)
    }

    /// The number by which peers name it.
    pub fn number(&self) -> u32 {
        // SAFETY: the pair lives as long as `self`, and its number does not change.
        unsafe { (*self.pair.as_ptr()).number }
    }

    /// Bytes of a message that may travel within its request.
    pub fn inline_bytes_max(&self) -> u32 {
        self.inline_bytes_max
    }

    /// Connects it: it receives from that peer, and sends to it, from now on.
    pub fn connect(&self, exit: Exit, packet: u32, peer: &Peer, timing: Timing) -> io::Result<()> {
        let mut attributes = no_attributes();
        attributes.state = abi::STATE_READY_TO_RECEIVE;
        attributes.path_mtu = u32::from(exit.mtu.min(peer.mtu));
        attributes.destination = peer.number;
        attributes.receive_packet = peer.packet;
        attributes.reads_answered_max = exit.reads_max;
        attributes.not_ready_timer = timing.not_ready_timer;
        attributes.address.port = exit.port;
        attributes.address.destination_lid = peer.lid;
        attributes.address.is_global = u8::from(exit.is_ethernet);
        attributes.address.route.destination = peer.gid;
        attributes.address.route.source_index = exit.gid_index;
        attributes.address.route.hop_limit = 64;
        let mask = abi::MASK_STATE
            | abi::MASK_ADDRESS
            | abi::MASK_PATH_MTU
            | abi::MASK_DESTINATION
            | abi::MASK_RECEIVE_PACKET
            | abi::MASK_READS_ANSWERED
            | abi::MASK_NOT_READY_TIMER;
        self.modify(&mut attributes, mask)?;
        attributes.state = abi::STATE_READY_TO_SEND;
        attributes.send_packet = packet;
        attributes.timeout = timing.timeout;
        attributes.retry_count = timing.retry_count;
        attributes.not_ready_retry_count = timing.not_ready_retry_count;
        attributes.reads_asked_max = exit.reads_max.min(peer.reads_max);
        let mask = abi::MASK_STATE
            | abi::MASK_SEND_PACKET
            | abi::MASK_TIMEOUT
            | abi::MASK_RETRY_COUNT
            | abi::MASK_NOT_READY_RETRY
            | abi::MASK_READS_ASKED;
        self.modify(&mut attributes, mask)
    }

    /// Breaks it: requests under way complete with an error, and nothing more is received.
    pub fn stop(&self) -> io::Result<()> {
        let mut attributes = no_attributes();
        attributes.state = abi::STATE_ERROR;
        self.modify(&mut attributes, abi::MASK_STATE)
    }

    /// Posts a list of requests, which the device hears of once.
    ///
    /// # Safety
    /// The requests and what they point to are a list that ends, valid during the call. No thread
    /// writes the bytes to send, or touches those to be read into, until the requests completed.
    pub unsafe fn post(&self, first: *mut abi::SendRequest) -> io::Result<()> {
        // SAFETY: the context is open as long as the domain's device.
        let post = unsafe { (*self.shared.domain.device.context.as_ptr()).operations.post_send };
        let mut refused = std::ptr::null_mut();
        // SAFETY: the pair is open; the caller vouches for the list.
        checked(unsafe { post(self.pair.as_ptr(), first, &raw mut refused) })
    }

    fn modify(&self, attributes: &mut abi::QueuePairAttributes, mask: c_int) -> io::Result<()> {
        let library = self.shared.domain.device.library;
        // SAFETY: the pair is open, and the structure is read as far as the mask says.
        checked(unsafe { (library.modify_pair)(self.pair.as_ptr(), attributes, mask) })
    }
}

/// The segment for bytes of a registered region.
pub fn segment(memory: &Memory, offset_bytes: usize, len_bytes: u32) -> abi::Segment {
    let address = memory.address(offset_bytes);
    abi::Segment { address, length: len_bytes, local_key: memory.local_key() }
}

fn no_attributes() -> abi::QueuePairAttributes {
    // SAFETY: the structure is plain integers, for which zeros are a value.
    unsafe { std::mem::zeroed() }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the pair was made by `create_pair` and is destroyed once.
        unsafe { (self.shared.domain.device.library.destroy_pair)(self.pair.as_ptr()) };
    }
}
