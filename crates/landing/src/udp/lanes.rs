//! Many connected sockets, one for each peer (K19), by `recvmmsg` into one zone.
//!
//! ```text
//!   socket 0 ─┐        readable: 0, 2
//!   socket 1 ─┼─ epoll ──────────────▶ recvmmsg(0), recvmmsg(2) ──▶ zone
//!   socket 2 ─┘
//! ```
//!
//! This is the counterpart of `uring` on kernels without incremental rings of buffers (before Linux
//! 6.12): the same lanes, the same fence around each peer, the same zone. It costs a call for each
//! readable socket. Slots are as long as a frame, or 64 KiB with GRO, so a zone has gaps unless
//! each call is given one slot (`burst_max` of 1; docs/results/landing.md).
//!
//! # Limits
//! One receive takes from at most `SOCKETS_MAX` sockets, and `burst_max` messages, or one of each.
//! Frames leave in the order in which they were queued: a peer's socket that takes no more delays
//! the others' frames until the next flush.

use std::io;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use super::inbox::{COALESCED_BYTES_MAX, Inbox};
use super::outbox::Outbox;
use super::{Offload, SendCounters, UdpConfig, prepare};
use crate::{Lane, Notice, SendError, Sender, Transport, Zone};

/// The maximum number of sockets that one receive takes from.
const SOCKETS_MAX: usize = 64;

/// The counts of receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Looks for readable sockets.
    pub looks: u64,
    /// Calls of `recvmmsg`: one for each readable socket.
    pub calls: u64,
    /// Messages that landed in these calls.
    pub messages: u64,
}

/// Connected UDP sockets that share a zone.
pub struct UdpLanes {
    /// By lane; `None` once it is closed.
    sockets: Vec<Option<UdpSocket>>,
    /// The epoll of all sockets.
    readable: OwnedFd,
    /// Made with the first socket, which shows whether the kernel can join datagrams.
    inbox: Option<Inbox>,
    outbox: Outbox,
    closed: Vec<Lane>,
    /// Which of the readable sockets is first in the next receive.
    turn: usize,
    counters: ReceiveCounters,
    notice: Option<Notice>,
    config: UdpConfig,
}

impl UdpLanes {
    /// A transport without sockets.
    pub fn new(config: UdpConfig) -> io::Result<UdpLanes> {
        let config = config.clamped();
        Ok(UdpLanes {
            sockets: Vec::new(),
            readable: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            inbox: None,
            outbox: config.outbox(),
            closed: Vec::new(),
            turn: 0,
            counters: ReceiveCounters::default(),
            notice: None,
            config,
        })
    }

    /// Receives from a UDP socket that is connected to one peer.
    pub fn add_datagrams(&mut self, socket: UdpSocket) -> io::Result<Lane> {
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        let notice = prepare(&socket, &self.config)?;
        let is_coalesced = self.config.offload == Offload::Auto && notice.is_none();
        let inbox = self.inbox.get_or_insert_with(|| self.config.inbox(is_coalesced));
        if inbox.is_coalesced() && !is_coalesced {
            return Err(io::Error::other(
                "this socket's datagrams cannot be joined as the others'",
            ));
        }
        self.notice = self.notice.or(notice);
        let lane = Lane(u32::try_from(self.sockets.len()).expect("descriptors are fewer"));
        let data = epoll::EventData::new_u64(u64::from(lane.0));
        epoll::add(&self.readable, &socket, data, epoll::EventFlags::IN)?;
        self.sockets.push(Some(socket));
        Ok(lane)
    }

    /// A lane that [`close`](UdpLanes::close) closed. Its position is not given to another.
    pub fn take_closed(&mut self) -> Option<Lane> {
        self.closed.pop()
    }

    /// Stops receiving from a lane at once: messages still in its socket do not land (K22).
    pub fn close(&mut self, lane: Lane) {
        let socket = self.sockets.get_mut(lane.0 as usize).and_then(Option::take);
        // Closing it removes it from the set of readable sockets.
        self.closed.extend(socket.map(|_| lane));
    }

    /// The minimum size of its zone's buffers.
    pub fn buffer_bytes_min(&self) -> usize {
        match (&self.inbox, self.config.offload) {
            (Some(inbox), _) => inbox.slot_bytes(),
            (None, Offload::Auto) => COALESCED_BYTES_MAX,
            (None, Offload::Off) => self.config.frame_bytes_max,
        }
    }

    /// The counts of receives.
    pub fn receive_counters(&self) -> ReceiveCounters {
        self.counters
    }

    /// The counts of sent messages.
    pub fn send_counters(&self) -> SendCounters {
        self.outbox.counters()
    }
}

impl Transport for UdpLanes {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        let Some(inbox) = &mut self.inbox else { return Ok(0) };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::uninit() }; SOCKETS_MAX];
        self.counters.looks += 1;
        let (readable, _) = match epoll::wait(&self.readable, &mut room, Some(&now)) {
            Err(rustix::io::Errno::INTR) => return Ok(0),
            waited => waited?,
        };
        let count = readable.len();
        let each_max = self.config.burst_max / count.max(1);
        let mut landed = 0;
        for step in 0..count {
            // In turns, since a zone may have room for the first few only.
            let lane = Lane(readable[(self.turn + step) % count].data.u64() as u32);
            let socket = self.sockets.get(lane.0 as usize).and_then(Option::as_ref);
            let Some(socket) = socket else { continue };
            self.counters.calls += 1;
            landed += inbox.receive(socket.as_raw_fd(), Some(lane), zone, each_max.max(1))?;
        }
        self.turn = self.turn.wrapping_add(1);
        self.counters.messages += landed as u64;
        Ok(landed)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        let socket = to.as_lane().and_then(|lane| self.sockets.get(lane.0 as usize));
        if socket.is_none_or(Option::is_none) {
            return Err(SendError::NoPeer);
        }
        SendError::check_len(bytes_max, self.config.frame_bytes_max)?;
        self.outbox.frames().reserve(to, bytes_max)
    }

    fn commit(&mut self, len_bytes: usize) {
        self.outbox.frames().commit(len_bytes);
    }

    fn flush(&mut self) -> io::Result<usize> {
        let sockets = &self.sockets;
        self.outbox.flush(|to| {
            let lane = to.as_lane()?;
            sockets.get(lane.0 as usize)?.as_ref().map(UdpSocket::as_raw_fd)
        })
    }

    fn queued(&self) -> usize {
        self.outbox.queued()
    }

    fn frame_bytes_max(&self) -> usize {
        self.config.frame_bytes_max
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take().or_else(|| self.outbox.take_notice())
    }
}

// Loom models atomics, not zones shared with a kernel.
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
