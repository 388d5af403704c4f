//! A UDP socket open to any sender, by io_uring: each message has its sender in front.
//!
//! ```text
//!   buffer   │ head │ datagram │ head │ datagrams, joined │ head │ datagram, cut │ next buffer
//!              72 B                                                            └ or filler
//!   head     │ lengths, flags 16 │ address 32 │ length of the joined ones 24 │
//! ```
//!
//! One multishot `recvmsg` fills an incremental ring of buffers. It fails permanently on the rest
//! of a buffer that is shorter than a head. So that rest is then filled by a receive from a private
//! socket pair, and the kernel goes on with the next buffer. Sends use `sendmmsg`, as those of
//! [`Udp`](crate::udp::Udp): one call for a batch.
//!
//! # Invariants
//! U1, U2 as in uring.rs.
//!
//! # Limits
//! A message that crosses a buffer's end is cut there, and this receive reports it: nothing of a
//! cut datagram lands (K20). Of joined datagrams, those before the cut do land. So each buffer
//! costs one datagram, which its sender sends again: buffers should be long.
//!
//! # References
//! Decision 0024: why `recvmmsg` is the default for requests.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use base::sync::Arc;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{BufferRing, GROUP};
use super::{Bell, Unavailable, enter, let_go, receive_ring};
use crate::udp::name::{NAME_BYTES, Name};
use crate::udp::outbox::Outbox;
use crate::udp::{self, KernelQueue, SendCounters, UdpConfig};
use crate::{Landed, Notice, Region, SendError, Sender, Transport, Zone};

/// `io_uring_recvmsg_out`: four words.
const LENGTHS_BYTES: usize = 16;
/// Room for an address; the part after it stays aligned.
const NAME_ROOM_BYTES: usize = 32;
/// Room for one control message with a C int.
const CONTROL_ROOM_BYTES: usize = 24;
const HEAD_BYTES: usize = LENGTHS_BYTES + NAME_ROOM_BYTES + CONTROL_ROOM_BYTES;

const _: () = {
    assert!(NAME_ROOM_BYTES >= NAME_BYTES as usize);
    // SAFETY: arithmetic on a length.
    assert!(unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) } <= 24);
    assert!(HEAD_BYTES == 72);
};

/// The maximum number of datagrams that the kernel joins (UDP_MAX_SEGMENTS).
const JOINED_COUNT_MAX: usize = 128;

/// The maximum number of completions that wait in the kernel's queue.
const QUEUE_MAX: u32 = 8192;

/// The kind of a completion.
const RECEIVE: u64 = 0;
const FILLER: u64 = 1;

/// An unconnected UDP socket on an io_uring.
pub struct UringUdp {
    ring: IoUring,
    bell: Bell,
    is_enabled: bool,
    buffers: BufferRing,
    /// Keeps the zone's memory (U2).
    region: Arc<Region>,
    socket: UdpSocket,
    /// Bytes written to the first come out of the second, and fill the rest of a buffer.
    filler: (UnixStream, UnixStream),
    is_armed: bool,
    outbox: Outbox,
    frame_bytes_max: usize,
    burst_max: usize,
    notice: Option<Notice>,
}

/// The kernel's head before a datagram, or before several that it has joined.
struct Head {
    sender: Option<Sender>,
    is_cut: bool,
    /// The length of each joined datagram but the last.
    segment_bytes: Option<usize>,
}

impl UringUdp {
    /// A transport that fills this zone from a socket that is open and not connected. The socket
    /// comes back with the error, for another transport.
    pub fn new(
        zone: &mut Zone,
        socket: UdpSocket,
        config: UdpConfig,
    ) -> Result<UringUdp, (UdpSocket, Unavailable)> {
        let config = config.clamped();
        let parts = || {
            let ring = receive_ring(QUEUE_MAX)?;
            let bell = Bell::of(&ring)?;
            let buffers = BufferRing::register(&ring, zone)?;
            let filler = UnixStream::pair()?;
            // Not set back on failure: a transport of another kind wants the same.
            socket.set_nonblocking(false)?;
            let notice = udp::prepare(&socket, &config)?;
            Ok((ring, bell, buffers, filler, notice))
        };
        let (ring, bell, buffers, filler, notice) = match parts() {
            Ok(parts) => parts,
            Err(error) => return Err((socket, Unavailable(error))),
        };
        Ok(UringUdp {
            ring,
            bell,
            is_enabled: false,
            buffers,
            region: zone.lend(),
            socket,
            filler,
            is_armed: false,
            outbox: config.outbox(),
            frame_bytes_max: config.frame_bytes_max,
            burst_max: config.burst_max,
            notice,
        })
    }

    /// The address it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The counts of sent messages.
    pub fn send_counters(&self) -> SendCounters {
        self.outbox.counters()
    }

    /// The state of the kernel's receive queue.
    pub fn kernel_queue(&self) -> io::Result<KernelQueue> {
        udp::kernel_queue(&self.socket)
    }

    /// Arms the receive; the rest of a buffer that is too short for a head is filled first.
    fn arm(&mut self, zone: &Zone) -> io::Result<()> {
        let Some(window) = zone.window() else { return Ok(()) };
        if window.len_bytes < HEAD_BYTES {
            self.filler.0.write_all(&[0; HEAD_BYTES][..window.len_bytes])?;
            let descriptor = Fd(self.filler.1.as_raw_fd());
            let len = window.len_bytes as u32;
            let entry = opcode::Recv::new(descriptor, std::ptr::null_mut(), len).buf_group(GROUP);
            let flags = squeue::Flags::BUFFER_SELECT;
            let entry = entry.build().flags(flags).user_data(FILLER);
            // SAFETY: the entry points to no memory; its buffer comes from the ring of buffers.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("few entries wait");
        }
        // SAFETY: a `msghdr` of zeros is valid: null pointers and lengths of 0.
        let mut template: libc::msghdr = unsafe { std::mem::zeroed() };
        template.msg_namelen = NAME_ROOM_BYTES as u32;
        template.msg_controllen = CONTROL_ROOM_BYTES as _;
        let descriptor = Fd(self.socket.as_raw_fd());
        let entry = opcode::RecvMsgMulti::new(descriptor, &raw const template, GROUP).build();
        // SAFETY: the kernel copies the template when the entry is submitted, which `enter` does
        // while it lives; buffers come from the ring of buffers.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(RECEIVE)) };
        pushed.expect("few entries wait");
        self.is_armed = true;
        enter(&mut self.ring)
    }

    /// Takes completions, as far as the zone has room.
    fn reap(&mut self, zone: &mut Zone) -> io::Result<usize> {
        let mut landed = 0;
        for _ in 0..self.burst_max {
            if zone.completions_free() < JOINED_COUNT_MAX {
                zone.count_starved();
                break;
            }
            let Some(entry) = self.ring.completion().next() else { break };
            landed += self.complete(zone, &entry)?;
        }
        Ok(landed)
    }

    /// Handles one completion. Returns the number of messages that landed.
    fn complete(&mut self, zone: &mut Zone, entry: &cqueue::Entry) -> io::Result<usize> {
        let is_filler = entry.user_data() == FILLER;
        if !is_filler && !cqueue::more(entry.flags()) {
            self.is_armed = false;
        }
        let filled_bytes = match entry.result() {
            filled_bytes @ 1.. => filled_bytes as usize,
            // No buffer, a rest that is shorter than a head, or an error of an earlier reply.
            code if code == -libc::ENOBUFS => {
                zone.count_starved();
                return Ok(0);
            }
            0 => return Ok(0),
            code if [libc::EFAULT, libc::EINTR, libc::EAGAIN, libc::ECONNREFUSED]
                .contains(&-code) =>
            {
                return Ok(0);
            }
            code => return Err(io::Error::from_raw_os_error(-code)),
        };
        let sequence = zone.filling();
        if cqueue::buffer_select(entry.flags()) != Some(self.buffers.id(sequence)) {
            return Err(io::Error::other("U1: the kernel filled another buffer"));
        }
        let landed = if is_filler {
            zone.skip(filled_bytes);
            0
        } else {
            land(zone, filled_bytes)
        };
        let is_over = zone.filling() != sequence;
        if is_over == cqueue::buffer_more(entry.flags()) {
            return Err(io::Error::other("U1: the kernel filled a buffer differently"));
        }
        Ok(landed)
    }
}

/// Makes completions of the first bytes of the window: a head, then datagrams.
fn land(zone: &mut Zone, filled_bytes: usize) -> usize {
    let window = zone.window().expect("a message lands in a posted buffer");
    let message = zone.lent_bytes(window.offset_bytes, filled_bytes);
    let head = Head::parse(message).filter(|head| head.sender.is_some());
    let (Some(head), Some(mut left_bytes)) = (head, filled_bytes.checked_sub(HEAD_BYTES)) else {
        zone.skip(filled_bytes);
        return 0;
    };
    let sender = head.sender.expect("looked at above");
    let segment_bytes = head.segment_bytes.unwrap_or(left_bytes).max(1);
    let (mut landed, mut skip_bytes) = (0, HEAD_BYTES);
    while left_bytes > 0 {
        let bytes = left_bytes.min(segment_bytes);
        left_bytes -= bytes;
        if head.is_cut && left_bytes == 0 {
            skip_bytes += bytes;
            break;
        }
        landed += usize::from(zone.land(sender, skip_bytes, bytes) == Landed::Completed);
        skip_bytes = 0;
    }
    if head.is_cut {
        zone.count_truncated();
    }
    if skip_bytes > 0 {
        zone.skip(skip_bytes);
    }
    landed
}

impl Head {
    fn parse(message: &[u8]) -> Option<Head> {
        let head = message.first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|index| head[at + index]));
        let (name_len, control_len, flags) = (word(0) as usize, word(4) as usize, word(12));
        let name_end = LENGTHS_BYTES + name_len.min(NAME_BYTES as usize);
        let control_at = LENGTHS_BYTES + NAME_ROOM_BYTES;
        let control = head.get(control_at..control_at + control_len)?;
        Some(Head {
            sender: Name::from_bytes(&head[LENGTHS_BYTES..name_end]).sender(),
            is_cut: flags & libc::MSG_TRUNC as u32 != 0,
            segment_bytes: segment_bytes(control),
        })
    }
}

/// The length in a UDP_GRO control message, if there is one.
fn segment_bytes(control: &[u8]) -> Option<usize> {
    const LEVEL_AT: usize = std::mem::offset_of!(libc::cmsghdr, cmsg_level);
    const TYPE_AT: usize = std::mem::offset_of!(libc::cmsghdr, cmsg_type);
    let word = |at: usize| Some(libc::c_int::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    if word(LEVEL_AT)? != libc::SOL_UDP || word(TYPE_AT)? != libc::UDP_GRO {
        return None;
    }
    let segment_bytes = word(size_of::<libc::cmsghdr>())?;
    usize::try_from(segment_bytes).ok().filter(|bytes| *bytes > 0)
}

impl Transport for UringUdp {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        assert!(
            Arc::ptr_eq(&self.region, &zone.region()),
            "a transport fills the zone it was made for"
        );
        if !self.is_enabled {
            self.ring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        let mut landed = 0;
        // The first turn may only find that a buffer has ended; the second continues with the next.
        for _ in 0..2 {
            self.buffers.give(zone);
            if self.is_armed {
                enter(&mut self.ring)?;
            } else {
                self.arm(zone)?;
            }
            landed += self.reap(zone)?;
            if landed > 0 || self.is_armed {
                break;
            }
        }
        Ok(landed)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        if to.as_lane().is_some() {
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
        self.bell.0.as_fd()
    }

    fn may_sleep(&mut self) -> bool {
        self.bell.may_sleep(&mut self.ring) && self.is_armed
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take().or_else(|| self.outbox.take_notice())
    }
}

impl Drop for UringUdp {
    fn drop(&mut self) {
        if !let_go(&self.ring, self.is_enabled) {
            // U2: the receive may still be armed, so the memory that it writes to stays for good.
            std::mem::forget(self.region.clone());
        }
    }
}

// Loom models atomics, not zones shared with a kernel.
#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::ZoneSize;
    use crate::udp::Offload;

    /// Frames begin with their length.
    fn is_whole(frame: &[u8]) -> bool {
        frame.first_chunk().is_some_and(|len| usize::from(u16::from_le_bytes(*len)) == frame.len())
    }

    fn frame(value: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![value; len];
        bytes[..2].copy_from_slice(&(len as u16).to_le_bytes());
        bytes
    }

    /// A transport on a zone, unless this kernel does not support it.
    fn open(buffer_bytes: usize, offload: Offload) -> Option<(UringUdp, Zone)> {
        let size = ZoneSize { buffer_bytes, buffer_count: 4, completions_max: 256 };
        let mut zone = Zone::ring(size, Box::new(is_whole)).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let config = UdpConfig { offload, ..UdpConfig::default() };
        match UringUdp::new(&mut zone, socket, config) {
            Ok(uring) => Some((uring, zone)),
            Err((_, unavailable)) => {
                println!("skipped: {unavailable}");
                None
            }
        }
    }

    fn peer(uring: &UringUdp, offload: Offload) -> udp::Udp {
        let to = uring.local_address().unwrap();
        let config = UdpConfig { offload, ..UdpConfig::default() };
        udp::Udp::connect("127.0.0.1:0".parse().unwrap(), to, config).unwrap()
    }

    /// Receives until no more arrives. Loopback delivers inside the send call.
    fn receive_all(uring: &mut UringUdp, zone: &mut Zone) -> Vec<(Sender, Vec<u8>)> {
        let mut all = Vec::new();
        while uring.receive(zone).unwrap() > 0 {
            while let Some(completion) = zone.take() {
                all.push((completion.sender(), zone.bytes(&completion).to_vec()));
            }
            zone.release_taken();
        }
        all
    }

    #[test]
    fn each_message_names_its_sender_and_its_answer_goes_there() {
        let Some((mut uring, mut zone)) = open(1 << 16, Offload::Auto) else { return };
        assert!(!uring.may_sleep(), "the first receive arms it");
        assert_eq!(uring.receive(&mut zone).unwrap(), 0);
        assert!(uring.may_sleep());
        let mut peers = [peer(&uring, Offload::Auto), peer(&uring, Offload::Auto)];
        for (peer, value) in peers.iter_mut().zip([3, 4]) {
            peer.queue(crate::Lane(0).into(), &frame(value, 100)).unwrap();
            peer.flush().unwrap();
        }
        let landed = receive_all(&mut uring, &mut zone);
        assert_eq!(landed.len(), 2);
        for ((sender, bytes), peer) in landed.iter().zip(&peers) {
            assert_eq!(sender.as_address(), Some(peer.local_address().unwrap()));
            uring.queue(*sender, bytes).unwrap();
        }
        assert_eq!((uring.flush().unwrap(), uring.queued()), (2, 0));
        let size = ZoneSize::default();
        for (peer, value) in peers.iter_mut().zip([3, 4]) {
            let mut zone = Zone::ring(size, Box::new(is_whole)).unwrap();
            assert_eq!(peer.receive(&mut zone).unwrap(), 1);
            let completion = zone.take().unwrap();
            assert_eq!(zone.bytes(&completion), frame(value, 100));
        }
    }

    #[test]
    fn joined_datagrams_are_messages_of_their_own() {
        let Some((mut uring, mut zone)) = open(1 << 17, Offload::Auto) else { return };
        let mut peer = peer(&uring, Offload::Auto);
        for value in 0..40 {
            peer.queue(crate::Lane(0).into(), &frame(value, 200)).unwrap();
        }
        peer.queue(crate::Lane(0).into(), &frame(40, 120)).unwrap();
        peer.flush().unwrap();
        let landed = receive_all(&mut uring, &mut zone);
        let want: Vec<_> = (0..40).map(|value| frame(value, 200)).chain([frame(40, 120)]).collect();
        assert_eq!(landed.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), want);
        // On loopback the kernel has cut nothing: one head before all of them.
        assert_eq!(zone.counters().skipped_bytes, HEAD_BYTES as u64);
    }

    #[test]
    fn the_rest_of_a_buffer_is_filled_however_short_it_is() {
        for len in [8, 9, 50, 71, 72, 73, 100, 183, 184] {
            let Some((mut uring, mut zone)) = open(512, Offload::Off) else { return };
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(uring.local_address().unwrap()).unwrap();
            let mut landed = Vec::new();
            for value in 0..60 {
                // Cut datagrams are sent again, as a client would.
                for _ in 0..2 {
                    socket.send(&frame(value, len)).unwrap();
                    let new = receive_all(&mut uring, &mut zone);
                    landed.extend(new.into_iter().map(|(_, bytes)| bytes));
                    if landed.len() > usize::from(value) {
                        break;
                    }
                }
            }
            let want: Vec<_> = (0..60).map(|value| frame(value, len)).collect();
            assert_eq!(landed, want, "frames of {len} bytes");
        }
    }

    #[test]
    fn a_sleeping_thread_is_woken_by_what_arrives() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some((mut uring, mut zone)) = open(1 << 16, Offload::Auto) else { return };
        let mut peer = peer(&uring, Offload::Auto);
        let (go, may_go) = std::sync::mpsc::channel();
        let sender = std::thread::spawn(move || {
            for value in may_go {
                peer.queue(crate::Lane(0).into(), &frame(value, 100)).unwrap();
                peer.flush().unwrap();
            }
        });
        // Some arrive while it is awake, and some while it sleeps.
        for value in 0..200 {
            assert_eq!(receive_all(&mut uring, &mut zone), []);
            assert!(uring.may_sleep());
            go.send(value).unwrap();
            let mut landed = Vec::new();
            while landed.is_empty() {
                let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
                let mut polled = [PollFd::from_borrowed_fd(uring.as_fd(), PollFlags::IN)];
                assert_eq!(poll(&mut polled, Some(&patience)).unwrap(), 1, "it sleeps on");
                landed = receive_all(&mut uring, &mut zone);
                uring.may_sleep();
            }
            assert_eq!(landed[0].1, frame(value, 100));
        }
        drop(go);
        sender.join().unwrap();
    }
}
