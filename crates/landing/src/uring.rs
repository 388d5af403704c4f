//! io_uring: one ring of buffers shared by all sockets, filled piece by piece.
//!
//! ```text
//!   socket 0 ─ multishot receive ─┐      buffers, given in the order of posting
//!   socket 1 ─ multishot receive ─┼──▶  │ 0 │ 2 │ 0 │ 1 │ ...  the kernel appends
//!   socket 2 ─ multishot receive ─┘                 completions: lane and length
//! ```
//!
//! It is the kernel's own multi-packet shared receive queue (Rowan-KV §3.2): with incremental
//! consumption (IOU_PBUF_RING_INC, Linux 6.12) messages of all sockets land back to back, without a
//! copy in user space, and the number of the receiver's calls does not grow with the number of
//! sockets. Each socket is a lane (K19): a UDP socket connected to one peer, or a TCP connection.
//!
//! # Invariants
//! U1: completions come in the order in which the buffers were filled, so the sum of their lengths
//!     gives the position of each message; the buffer id of each completion is checked against
//!     that.
//! U2: the zone's memory outlives the kernel's use of it: it is shared, and dropping a transport
//!     first cancels all receives.
//!
//! # Limits
//! A datagram that does not fit in the rest of a buffer is cut, and the kernel does not report it.
//! A second case: a receive that found its socket empty remembers how much of the buffer was left
//! then, and its next datagram is cut to that even in a fresh buffer (seen on Linux 6.18). So the
//! zone's length check is applied to every datagram (K20), and senders send cut ones again. A
//! socket that is not connected needs another receive, one that names the sender: [`UringUdp`].
//!
//! # References
//! Decision 0024: its purpose and the measurements.
//!
//! # Concurrency
//! The first thread that receives owns the transport from then on.

mod buffers;
mod sends;
mod unconnected;

use std::fmt;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::sync::Arc;
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{EnterFlags, IoUring, cqueue, opcode};
use rustix::event::EventfdFlags;

use self::buffers::{BufferRing, GROUP};
use self::sends::{Sends, Target};
pub use self::unconnected::UringUdp;
use crate::udp::SendCounters;
use crate::{
    Landed, Lane, Notice, Pinned, Region, SendError, Sender, Transport, ZeroCopy, ZeroCopyCounters,
    Zone,
};

/// The configuration of an io_uring transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringConfig {
    /// The longest frame to send.
    pub frame_bytes_max: usize,
    /// The maximum number of messages in one receive.
    pub burst_max: usize,
    /// The maximum number of completions that wait in the kernel's queue.
    pub queue_max: u32,
    /// The bytes of the send queue.
    pub send_bytes: usize,
    /// The frames of the send queue, at most 65536.
    pub send_frames_max: usize,
    /// The messages that are sent without a copy.
    pub zero_copy: ZeroCopy,
}

impl Default for UringConfig {
    fn default() -> UringConfig {
        UringConfig {
            frame_bytes_max: 8192,
            burst_max: 256,
            queue_max: 8192,
            send_bytes: 512 << 10,
            send_frames_max: 1024,
            zero_copy: ZeroCopy::default(),
        }
    }
}

/// A message that was not queued, and its value.
pub type Unqueued = (SendError, Box<dyn Pinned>);

/// This kernel, or its settings, does not support it; another transport works.
#[derive(Debug)]
pub struct Unavailable(io::Error);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "io_uring with incremental buffer rings is not available (it needs Linux 6.12): {}; \
             receiving by recvmmsg",
            self.0
        )
    }
}

impl std::error::Error for Unavailable {}

struct Socket {
    descriptor: OwnedFd,
    is_stream: bool,
}

/// A lane's socket, and the state of its receive in the kernel.
struct Connection {
    /// `None` once it is closed.
    socket: Option<Socket>,
    /// Whether a receive is armed.
    is_armed: bool,
}

/// Sockets that share one ring of buffers, those of a zone.
pub struct Uring {
    ring: IoUring,
    bell: Bell,
    is_enabled: bool,
    buffers: BufferRing,
    /// Keeps the zone's memory (U2).
    region: Arc<Region>,
    lanes: Vec<Connection>,
    unarmed_count: usize,
    closed: Vec<Lane>,
    sends: Sends,
    config: UringConfig,
}

impl Uring {
    /// A transport that fills this zone, without sockets yet.
    pub fn new(zone: &mut Zone, config: UringConfig) -> Result<Uring, Unavailable> {
        let ring = receive_ring(config.queue_max).map_err(Unavailable)?;
        let bell = Bell::of(&ring).map_err(Unavailable)?;
        let buffers = BufferRing::register(&ring, zone).map_err(Unavailable)?;
        let sends = Sends::new(&config).map_err(Unavailable)?;
        Ok(Uring {
            ring,
            bell,
            is_enabled: false,
            buffers,
            region: zone.lend(),
            lanes: Vec::new(),
            unarmed_count: 0,
            closed: Vec::new(),
            sends,
            config,
        })
    }

    /// Receives from a UDP socket that is connected to one peer. Each message is a completion.
    pub fn add_datagrams(&mut self, socket: UdpSocket) -> io::Result<Lane> {
        socket.peer_addr()?;
        socket.set_nonblocking(false)?;
        Ok(self.add(Socket { descriptor: socket.into(), is_stream: false }))
    }

    /// Receives from a TCP connection. Its completions are pieces of the stream, cut anywhere.
    pub fn add_stream(&mut self, socket: TcpStream) -> io::Result<Lane> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        Ok(self.add(Socket { descriptor: socket.into(), is_stream: true }))
    }

    fn add(&mut self, socket: Socket) -> Lane {
        let lane = Lane(u32::try_from(self.lanes.len()).expect("descriptors are fewer"));
        self.lanes.push(Connection { socket: Some(socket), is_armed: false });
        self.unarmed_count += 1;
        self.sends.add_lane();
        lane
    }

    /// A lane whose peer has disconnected, or that [`close`](Uring::close) closed: everything that
    /// had arrived from it has landed (K22). Its position is not given to another.
    pub fn take_closed(&mut self) -> Option<Lane> {
        self.closed.pop()
    }

    /// Stops receiving from a lane. Everything that has arrived lands before `take_closed` names
    /// it.
    pub fn close(&mut self, lane: Lane) -> io::Result<()> {
        let Some(connection) = self.lanes.get(lane.0 as usize) else { return Ok(()) };
        if connection.is_armed {
            let cancel = CancelBuilder::user_data(u64::from(lane.0));
            return not_found_is_fine(self.ring.submitter().register_sync_cancel(None, cancel));
        }
        self.end(lane);
        Ok(())
    }

    /// The counts of sent messages.
    pub fn send_counters(&self) -> SendCounters {
        self.sends.counters()
    }

    /// The number of outstanding completions of sends: while there are any, `receive` or `flush`
    /// may release values.
    pub fn unsettled(&self) -> usize {
        self.sends.unsettled()
    }

    /// The counts of sends without a copy.
    pub fn zero_copy_counters(&self) -> ZeroCopyCounters {
        self.sends.zero_copy_counters()
    }

    /// Queues a message of `head` and `value`. The bytes of `value` are not copied to the queue:
    /// they stay in place, and `value` is dropped as soon as the kernel has released them, which
    /// `receive` and `flush` notice. On a stream the value may be longer than a frame.
    pub fn queue_pinned(
        &mut self,
        to: Sender,
        head: &[u8],
        value: Box<dyn Pinned>,
    ) -> Result<(), Unqueued> {
        let (len_bytes, is_stream) = (head.len() + value.bytes().len(), self.is_stream(to));
        let max_bytes = if is_stream { u32::MAX as usize } else { self.config.frame_bytes_max };
        if self.socket_of(to).is_none() {
            return Err((SendError::NoPeer, value));
        }
        if len_bytes > max_bytes {
            return Err((SendError::TooLong { len_bytes, max_bytes }, value));
        }
        self.sends.queue_pinned(to, head, value)
    }

    fn socket_of(&self, to: Sender) -> Option<&Socket> {
        self.lanes.get(to.as_lane()?.0 as usize)?.socket.as_ref()
    }

    fn is_stream(&self, to: Sender) -> bool {
        self.socket_of(to).is_some_and(|socket| socket.is_stream)
    }

    fn end(&mut self, lane: Lane) {
        let connection = &mut self.lanes[lane.0 as usize];
        if connection.socket.take().is_some() {
            self.unarmed_count -= 1;
            self.closed.push(lane);
        }
    }

    /// Arms a receive for each lane that has none.
    fn arm(&mut self) -> io::Result<()> {
        for index in 0..self.lanes.len() {
            let connection = &mut self.lanes[index];
            let (false, Some(socket)) = (connection.is_armed, &connection.socket) else { continue };
            let descriptor = Fd(socket.descriptor.as_raw_fd());
            let entry = opcode::RecvMulti::new(descriptor, GROUP).build().user_data(index as u64);
            // SAFETY: the entry points to no memory; buffers come from the ring of buffers.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                break;
            }
            self.lanes[index].is_armed = true;
            self.unarmed_count -= 1;
        }
        Ok(())
    }

    /// Takes completions, as far as the zone has room.
    fn reap(&mut self, zone: &mut Zone) -> io::Result<usize> {
        let mut landed = 0;
        for _ in 0..self.config.burst_max {
            if zone.completions_free() == 0 {
                zone.count_starved();
                break;
            }
            let Some(entry) = self.ring.completion().next() else { break };
            landed += usize::from(self.complete(zone, &entry)?);
        }
        Ok(landed)
    }

    /// Handles one completion of a receive. Returns whether a message landed.
    fn complete(&mut self, zone: &mut Zone, entry: &cqueue::Entry) -> io::Result<bool> {
        let index = entry.user_data() as usize;
        let lane = Lane(index as u32);
        let is_stream = self.lanes[index].socket.as_ref().is_some_and(|socket| socket.is_stream);
        if !cqueue::more(entry.flags()) {
            self.lanes[index].is_armed = false;
            self.unarmed_count += 1;
        }
        match entry.result() {
            length @ 1.. => {
                let sequence = zone.filling();
                if cqueue::buffer_select(entry.flags()) != Some(self.buffers.id(sequence)) {
                    return Err(io::Error::other("U1: the kernel filled another buffer"));
                }
                let has_landed = land(zone, lane, length as usize, is_stream);
                let is_over = zone.filling() != sequence;
                if is_over == cqueue::buffer_more(entry.flags()) {
                    return Err(io::Error::other("U1: the kernel filled a buffer differently"));
                }
                return Ok(has_landed);
            }
            0 if is_stream => self.end(lane),
            code if code == -libc::ENOBUFS => zone.count_starved(),
            code if code == -libc::ECANCELED || (code < 0 && is_stream) => self.end(lane),
            // An empty datagram, or an error of an earlier one that found no receiver: armed again.
            _ => {}
        }
        Ok(false)
    }
}

/// The target of a lane's bytes, unless it is closed.
fn target(lanes: &[Connection], lane: Lane) -> Option<Target> {
    let socket = lanes[lane.0 as usize].socket.as_ref()?;
    Some(Target { descriptor: socket.descriptor.as_raw_fd(), is_stream: socket.is_stream })
}

fn land(zone: &mut Zone, lane: Lane, len_bytes: usize, is_stream: bool) -> bool {
    if is_stream {
        zone.land_piece(lane.into(), len_bytes);
        return true;
    }
    zone.land_unsure(lane.into(), len_bytes) == Landed::Completed
}

impl Transport for Uring {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        assert!(
            Arc::ptr_eq(&self.region, &zone.region()),
            "a transport fills the zone it was made for"
        );
        if !self.is_enabled {
            self.ring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        self.buffers.give(zone);
        if self.unarmed_count > 0 && zone.window().is_some() {
            self.arm()?;
        }
        enter(&mut self.ring)?;
        let lanes = &self.lanes;
        self.sends.settle(|lane| target(lanes, lane))?;
        self.reap(zone)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        if self.socket_of(to).is_none() {
            return Err(SendError::NoPeer);
        }
        SendError::check_len(bytes_max, self.config.frame_bytes_max)?;
        self.sends.frames().reserve(to, bytes_max)
    }

    fn commit(&mut self, len_bytes: usize) {
        self.sends.frames().commit(len_bytes);
    }

    fn flush(&mut self) -> io::Result<usize> {
        let lanes = &self.lanes;
        self.sends.flush(|lane| target(lanes, lane))
    }

    fn queued(&self) -> usize {
        self.sends.queued()
    }

    fn frame_bytes_max(&self) -> usize {
        self.config.frame_bytes_max
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }

    fn may_sleep(&mut self) -> bool {
        self.bell.may_sleep(&mut self.ring) && self.unarmed_count == 0
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.sends.take_notice()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !let_go(&self.ring, self.is_enabled) {
            // U2: receives may still be armed, so the memory that they write to stays for good.
            std::mem::forget(self.region.clone());
        }
    }
}

/// A ring for receives. The first task that uses it is the issuer, whichever thread made the ring.
fn receive_ring(queue_max: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(queue_max)
        .build(256)
}

/// An eventfd that the kernel signals when a ring has work. A ring whose completions wait for its
/// task to enter the kernel (`DEFER_TASKRUN`) does not wake a thread that polls the ring's own
/// descriptor.
struct Bell(OwnedFd);

impl Bell {
    fn of(ring: &IoUring) -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)?;
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        Ok(Bell(bell))
    }

    /// Whether there is no work, and the next event will signal.
    fn may_sleep(&self, ring: &mut IoUring) -> bool {
        // Cleared before the check: an event after it signals again. It fails only when no signal
        // is pending.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
        !ring.submission().taskrun() && ring.completion().is_empty()
    }
}

/// Submits entries, and lets the kernel do pending work.
fn enter(ring: &mut IoUring) -> io::Result<()> {
    let submission = ring.submission();
    let (waiting, is_work_due) = (submission.len(), submission.taskrun());
    let is_overflown = submission.cq_overflow();
    drop(submission);
    if waiting == 0 && !is_work_due && !is_overflown {
        return Ok(());
    }
    let flags = EnterFlags::GETEVENTS.bits();
    // SAFETY: no argument is passed, and what the entries point to lives during the call.
    let entered =
        unsafe { ring.submitter().enter::<libc::sigset_t>(waiting as u32, 0, flags, None) };
    match entered {
        Ok(_) => Ok(()),
        // Completions wait to be taken: the entries stay for the next call.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EINTR)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets the kernel end all receives of a ring that is dropped; returns whether that is certain.
fn let_go(ring: &IoUring, is_enabled: bool) -> bool {
    if is_enabled && !cancel_all(ring) {
        return false;
    }
    // The kernel releases the sockets now, as far as it does at all before the ring is closed.
    let flags = EnterFlags::GETEVENTS.bits();
    // SAFETY: no argument is passed, and nothing is submitted.
    let _ = unsafe { ring.submitter().enter::<libc::sigset_t>(0, 0, flags, None) };
    true
}

/// Ends all requests of a ring; returns whether that is certain.
fn cancel_all(ring: &IoUring) -> bool {
    let cancel = CancelBuilder::any();
    not_found_is_fine(ring.submitter().register_sync_cancel(None, cancel)).is_ok()
}

fn not_found_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

// Loom models atomics, not zones shared with a kernel.
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
