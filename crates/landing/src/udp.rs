//! UDP by `recvmmsg` straight into the zone and `sendmmsg`, with GRO and GSO.
//!
//! A bare datagram pair costs 1.7 us on a kernel's UDP whatever its size, so the number of bytes
//! per message matters. Consecutive frames to one peer leave as one message, which the kernel (or
//! the device) cuts; datagrams of one sender that the kernel has joined arrive as one message,
//! which is cut here, without a copy.
//!
//! A socket is connected or not. A connected one has one peer, `Lane(0)`, and is a fence: no other
//! sender's datagrams arrive (K19, K22). On an unconnected one the sender is an address.

mod inbox;
mod lanes;
pub(crate) mod name;
pub(crate) mod outbox;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use self::inbox::Inbox;
pub use self::lanes::{ReceiveCounters, UdpLanes};
use self::outbox::Outbox;
pub use self::outbox::SendCounters;
use crate::frames::Joining;
use crate::{Lane, Notice, SendError, Sender, Transport, Zone};

/// The longest payload of a datagram that both families carry.
pub const DATAGRAM_BYTES_MAX: usize = 65_487;

/// Whether the kernel may join and cut datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// If it can.
    #[default]
    Auto,
    /// Never: each datagram by itself, and zones with short buffers.
    Off,
}

/// The configuration of a UDP transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The longest frame, to send and to receive.
    pub frame_bytes_max: usize,
    /// GSO and GRO.
    pub offload: Offload,
    /// The maximum number of messages in one receive.
    pub burst_max: usize,
    /// The bytes of the send queue.
    pub send_bytes: usize,
    /// The frames of the send queue.
    pub send_frames_max: usize,
    /// The size of the kernel's buffers for the socket in each direction, as far as it allows.
    pub kernel_bytes: usize,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            frame_bytes_max: 8192,
            offload: Offload::Auto,
            burst_max: 32,
            send_bytes: 512 << 10,
            send_frames_max: 1024,
            kernel_bytes: 4 << 20,
        }
    }
}

impl UdpConfig {
    /// The configuration within valid bounds.
    pub(crate) fn clamped(self) -> UdpConfig {
        let frame_bytes_max = self.frame_bytes_max.clamp(1, DATAGRAM_BYTES_MAX);
        UdpConfig {
            frame_bytes_max,
            burst_max: self.burst_max.clamp(1, 1024),
            send_bytes: self.send_bytes.max(frame_bytes_max),
            send_frames_max: self.send_frames_max.max(1),
            ..self
        }
    }

    fn inbox(&self, is_coalesced: bool) -> Inbox {
        Inbox::new(self.burst_max, self.frame_bytes_max, is_coalesced)
    }

    pub(crate) fn outbox(&self) -> Outbox {
        let joining = match self.offload {
            Offload::Auto => Joining::Segmented,
            Offload::Off => Joining::Single,
        };
        Outbox::new(self.send_bytes, self.send_frames_max, joining)
    }
}

/// One UDP socket.
pub struct Udp {
    socket: UdpSocket,
    /// The lane of a connected socket.
    lane: Option<Lane>,
    inbox: Inbox,
    outbox: Outbox,
    frame_bytes_max: usize,
    notice: Option<Notice>,
}

impl Udp {
    /// A socket that receives from any sender.
    pub fn bind(address: SocketAddr, config: UdpConfig) -> io::Result<Udp> {
        Udp::from_socket(UdpSocket::bind(address)?, config)
    }

    /// A socket that receives from `peer` alone, which is `Lane(0)`.
    pub fn connect(local: SocketAddr, peer: SocketAddr, config: UdpConfig) -> io::Result<Udp> {
        let socket = UdpSocket::bind(local)?;
        socket.connect(peer)?;
        Udp::from_socket(socket, config)
    }

    /// A socket that is open already, connected or not; see [`steer`](crate::steer).
    pub fn from_socket(socket: UdpSocket, config: UdpConfig) -> io::Result<Udp> {
        let config = config.clamped();
        socket.set_nonblocking(true)?;
        let notice = prepare(&socket, &config)?;
        let is_coalesced = config.offload == Offload::Auto && notice.is_none();
        let lane = socket.peer_addr().is_ok().then_some(Lane(0));
        Ok(Udp {
            socket,
            lane,
            inbox: config.inbox(is_coalesced),
            outbox: config.outbox(),
            frame_bytes_max: config.frame_bytes_max,
            notice,
        })
    }

    /// The address it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The minimum size of its zone's buffers.
    pub fn buffer_bytes_min(&self) -> usize {
        self.inbox.slot_bytes()
    }

    /// The counts of sent messages.
    pub fn send_counters(&self) -> SendCounters {
        self.outbox.counters()
    }

    /// Datagrams that the kernel dropped because they were not received in time.
    pub fn kernel_drops(&self) -> io::Result<u64> {
        Ok(self.kernel_queue()?.dropped)
    }

    /// The state of the kernel's receive queue.
    pub fn kernel_queue(&self) -> io::Result<KernelQueue> {
        kernel_queue(&self.socket)
    }
}

impl Transport for Udp {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        self.inbox.receive(self.socket.as_raw_fd(), self.lane, zone, usize::MAX)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        let is_known = match self.lane {
            Some(lane) => to == lane.into(),
            None => to.as_lane().is_none(),
        };
        if !is_known {
            return Err(SendError::NoPeer);
        }
        SendError::check_len(bytes_max, self.frame_bytes_max)?;
        self.outbox.frames().reserve(to, bytes_max)
    }

    fn commit(&mut self, len_bytes: usize) {
        self.outbox.frames().commit(len_bytes);
    }

    fn flush(&mut self) -> io::Result<usize> {
        let socket = self.socket.as_raw_fd();
        self.outbox.flush(|_| Some(socket))
    }

    fn queued(&self) -> usize {
        self.outbox.queued()
    }

    fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take().or_else(|| self.outbox.take_notice())
    }
}

/// Sets a socket's buffers, and lets the kernel join datagrams if it can and is allowed to.
pub(crate) fn prepare(socket: &UdpSocket, config: &UdpConfig) -> io::Result<Option<Notice>> {
    let reference = socket2::SockRef::from(socket);
    // Best effort: the kernel gives what `rmem_max` and `wmem_max` allow.
    reference.set_recv_buffer_size(config.kernel_bytes)?;
    reference.set_send_buffer_size(config.kernel_bytes)?;
    if config.offload == Offload::Off {
        return Ok(None);
    }
    Ok(enable_coalescing(socket).err().map(|error| {
        let errno = error.raw_os_error().unwrap_or_default();
        Notice::CoalescingOff { errno }
    }))
}

/// The kernel's receive queue of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelQueue {
    /// Its present memory, including the kernel's own structures. While the queue is being emptied,
    /// up to a quarter of `max_bytes` more than it holds.
    pub used_bytes: u64,
    /// The maximum; beyond it datagrams are dropped.
    pub max_bytes: u64,
    /// Datagrams that were dropped so far.
    pub dropped: u64,
}

/// Reads the state of a socket's receive queue.
pub(crate) fn kernel_queue(socket: &UdpSocket) -> io::Result<KernelQueue> {
    // SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF, SK_MEMINFO_DROPS.
    const USED: usize = 0;
    const MAX: usize = 1;
    const DROPS: usize = 8;
    let mut values = [0_u32; DROPS + 1];
    let mut len_bytes = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len_bytes` into `values` and says how many.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    let value = |index: usize| u64::from(values[index]);
    Ok(KernelQueue { used_bytes: value(USED), max_bytes: value(MAX), dropped: value(DROPS) })
}

/// Lets the kernel join datagrams of one sender (UDP_GRO, Linux 5.0).
fn enable_coalescing(socket: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is a C int, which is read during the call.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Loom models atomics, not zones shared with a kernel.
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
