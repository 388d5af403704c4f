//! One queue of a device: the memory of its frames, which the sockets of all workers on it share.
//!
//! ```text
//!   frames   │ 0 ... receive_count-1        │ receive_count ...               │
//!            └ with the kernel (fill ring),  └ spare, or with a worker, or on
//!              or in a worker's receive ring   the way out until the completion ring
//! ```
//!
//! Q1: a frame is in one place. The thread that took its number out of a ring or of `spare` has
//!     exclusive use of its bytes.
//! Q2: receive rings of all workers together are shorter than the fill ring has frames, so a worker
//!     that does not receive never takes the last frame from the others.
//!
//! The kernel lets one fill ring and one completion ring serve all sockets of a queue. A lock
//! protects them; a worker takes it once for a burst, because frames are free as soon as they are
//! copied.

use std::io;

use base::sync::{Arc, Mutex, MutexGuard};

use super::Mode;
use super::ring::Ring;
use super::socket::{Place, Socket};
use crate::Region;

/// Bytes of a frame: a packet of 1500 bytes and the 256 that the kernel keeps before it. The kernel
/// allows 2048 and 4096.
const SMALL_FRAME_BYTES: usize = 2048;
const LARGE_FRAME_BYTES: usize = 4096;
const KERNEL_BYTES: usize = 256;

/// The mapping offset of each ring.
const FILL_RING: u64 = libc::XDP_UMEM_PGOFF_FILL_RING;
const COMPLETION_RING: u64 = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
const RECEIVE_RING: u64 = libc::XDP_PGOFF_RX_RING as u64;
const SEND_RING: u64 = libc::XDP_PGOFF_TX_RING as u64;

/// The parameters that all queues share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) worker_count: u32,
    /// Entries of each worker's receive and send ring.
    pub(super) ring_len: u32,
    pub(super) frame_bytes: usize,
    pub(super) mode: Mode,
}

impl Plan {
    fn receive_count(&self) -> u32 {
        self.ring_len * (self.worker_count + 1)
    }

    fn frame_count(&self) -> u32 {
        self.receive_count() + self.ring_len * self.worker_count
    }
}

/// The length of frames for packets of that length; the longest one if none suffices.
pub(super) fn frame_bytes_for(packet_bytes: usize) -> usize {
    let is_small = packet_bytes + KERNEL_BYTES <= SMALL_FRAME_BYTES;
    if is_small { SMALL_FRAME_BYTES } else { LARGE_FRAME_BYTES }
}

/// The longest packet that fits in a frame.
pub(super) fn packet_bytes_max(frame_bytes: usize) -> usize {
    frame_bytes - KERNEL_BYTES
}

/// A queue's memory and rings of frames.
pub(super) struct Queue {
    pub(super) region: Region,
    pub(super) frame_bytes: usize,
    frames: Mutex<Frames>,
}

/// The owner of each frame.
pub(super) struct Frames {
    fill: Ring<u64>,
    completed: Ring<u64>,
    /// Frames for sending.
    spare: Vec<u64>,
}

/// One worker's socket on a queue.
pub(super) struct Port {
    pub(super) socket: Socket,
    pub(super) received: Ring<libc::xdp_desc>,
    pub(super) sends: Ring<libc::xdp_desc>,
    pub(super) queue: Arc<Queue>,
    /// The kernel copies its frames.
    pub(super) is_copied: bool,
}

/// Opens a queue with a socket for each worker.
pub(super) fn open(place: Place, plan: &Plan) -> io::Result<Vec<Port>> {
    let region = Region::memory(plan.frame_count() as usize * plan.frame_bytes)?;
    let first = Socket::new()?;
    first.register(region.at(0), region.len_bytes(), plan.frame_bytes as u32)?;
    let fill_len = plan.receive_count().next_power_of_two();
    let completed_len = (plan.ring_len * plan.worker_count).next_power_of_two();
    first.make_ring(libc::XDP_UMEM_FILL_RING, fill_len)?;
    first.make_ring(libc::XDP_UMEM_COMPLETION_RING, completed_len)?;
    let offsets = first.offsets()?;
    let mut fill = Ring::map(&first, FILL_RING, offsets.fr, fill_len)?;
    let completed = Ring::map(&first, COMPLETION_RING, offsets.cr, completed_len)?;
    let address = |frame: u32| u64::from(frame) * plan.frame_bytes as u64;
    for frame in 0..plan.receive_count() {
        let has_room = fill.put(address(frame));
        assert!(has_room, "Q2: the fill ring holds all frames that receive");
    }
    fill.publish();
    let spare = (plan.receive_count()..plan.frame_count()).rev().map(address).collect();
    let frames = Mutex::new(Frames { fill, completed, spare });
    let queue = Arc::new(Queue { region, frame_bytes: plan.frame_bytes, frames });
    let rings = rings(&first, plan.ring_len)?;
    first.bind(place, plan.mode)?;
    let is_copied = !first.is_zero_copy()?;
    let port = |socket, (received, sends): Rings| Port {
        socket,
        received,
        sends,
        queue: queue.clone(),
        is_copied,
    };
    let mut ports = vec![port(first, rings)];
    for _ in 1..plan.worker_count {
        let socket = Socket::new()?;
        let rings = self::rings(&socket, plan.ring_len)?;
        socket.bind_beside(place, &ports[0].socket)?;
        ports.push(port(socket, rings));
    }
    Ok(ports)
}

type Rings = (Ring<libc::xdp_desc>, Ring<libc::xdp_desc>);

/// A socket's own rings, receive and send.
fn rings(socket: &Socket, len: u32) -> io::Result<Rings> {
    socket.make_ring(libc::XDP_RX_RING, len)?;
    socket.make_ring(libc::XDP_TX_RING, len)?;
    let offsets = socket.offsets()?;
    let received = Ring::map(socket, RECEIVE_RING, offsets.rx, len)?;
    Ok((received, Ring::map(socket, SEND_RING, offsets.tx, len)?))
}

impl Queue {
    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().expect("no thread panics while it moves frames")
    }

    /// Gives the kernel frames to receive into again; returns whether it must be notified.
    pub(super) fn fill(&self, addresses: &mut Vec<u64>) -> bool {
        let mut frames = self.frames();
        for address in addresses.drain(..) {
            let has_room = frames.fill.put(address);
            debug_assert!(has_room, "Q2: the fill ring holds all frames that receive");
        }
        frames.fill.publish();
        frames.fill.needs_wakeup()
    }

    /// Takes frames for sending, up to the list's capacity.
    pub(super) fn take_spare(&self, addresses: &mut Vec<u64>) {
        let mut frames = self.frames();
        while let Some(address) = frames.completed.peek() {
            frames.completed.take();
            frames.spare.push(address);
        }
        frames.completed.give_back();
        while addresses.len() < addresses.capacity()
            && let Some(address) = frames.spare.pop()
        {
            addresses.push(address);
        }
    }

    /// The frame that contains an address from the kernel.
    pub(super) fn frame_of(&self, address: u64) -> u64 {
        address & !(self.frame_bytes as u64 - 1)
    }
}
