//! One `recvmmsg` straight into a zone.
//!
//! ```text
//!   window   ├─ slot ───┼─ slot ───┼─ slot ───┤        one datagram may land in each slot
//!            │▒▒▒▒▒     │▒▒▒▒▒▒▒▒▒ │          │
//!            └─────────────────────┴ the next call starts here
//! ```
//!
//! Lengths are not known before the call, so each datagram gets a slot as long as the longest. With
//! UDP_GRO that is 64 KiB, and the kernel may write many datagrams of one sender into a slot, back
//! to back: each becomes a completion of its own.

use std::io;
use std::os::fd::RawFd;

use super::name::{NAME_BYTES, Name};
use crate::{Landed, Lane, Sender, Zone};

/// The maximum that UDP_GRO joins: a slot of this length never cuts a datagram.
pub(crate) const COALESCED_BYTES_MAX: usize = 1 << 16;

/// The maximum number of datagrams that the kernel joins (UDP_MAX_SEGMENTS; UDP_GRO_CNT_MAX is 64).
const COALESCED_COUNT_MAX: usize = 128;

/// The next call starts on a cache line of its own.
const LINE_BYTES: usize = 64;

/// Room for one control message: the length of the joined datagrams.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Arguments of `recvmmsg`, allocated once.
pub(crate) struct Inbox {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    slot_bytes: usize,
    is_coalesced: bool,
}

// SAFETY: the pointers in `headers` and `vectors` are set by each `receive` before its call reads
// them; those in `headers` lead into boxes of the same inbox, which move with it.
unsafe impl Send for Inbox {}

impl Inbox {
    pub(crate) fn new(burst_max: usize, frame_bytes_max: usize, is_coalesced: bool) -> Inbox {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a `mmsghdr` of zeros is valid: null pointers and lengths of 0.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let headers = vec![header; burst_max].into_boxed_slice();
        let vectors = vec![empty; burst_max].into_boxed_slice();
        let names = vec![Name::NONE; burst_max].into_boxed_slice();
        let controls = vec![Control([0; 64]); burst_max].into_boxed_slice();
        let slot_bytes = if is_coalesced { COALESCED_BYTES_MAX } else { frame_bytes_max };
        Inbox { headers, vectors, names, controls, slot_bytes, is_coalesced }
    }

    /// The minimum length of a zone's buffers.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Whether datagrams of one sender arrive joined.
    pub(crate) fn is_coalesced(&self) -> bool {
        self.is_coalesced
    }

    /// Lands waiting messages of the socket, at most those of one call, in at most `slots_max`
    /// slots. `lane` names the sender of a connected socket.
    pub(crate) fn receive(
        &mut self,
        socket: RawFd,
        lane: Option<Lane>,
        zone: &mut Zone,
        slots_max: usize,
    ) -> io::Result<usize> {
        if zone.size().buffer_bytes < self.slot_bytes {
            let message = format!("the zone's buffers are shorter than {} bytes", self.slot_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let each = if self.is_coalesced { COALESCED_COUNT_MAX } else { 1 };
        let Some(window) = zone.window_for(self.slot_bytes, each) else { return Ok(0) };
        let slot_count = (window.len_bytes / self.slot_bytes)
            .min(zone.completions_free() / each)
            .min(self.headers.len())
            .min(slots_max);
        for index in 0..slot_count {
            let start = zone.address(window.offset_bytes + index * self.slot_bytes);
            self.vectors[index] = libc::iovec { iov_base: start.cast(), iov_len: self.slot_bytes };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = NAME_BYTES;
            header.msg_control = (&raw mut self.controls[index]).cast();
            header.msg_controllen = size_of::<Control>();
        }
        // SAFETY: the first `slot_count` headers point to names, vectors and controls of this
        // inbox, and the vectors to disjoint slots of the window, whose bytes belong to no
        // completion; the zone is borrowed exclusively, so no other code touches them in the call.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                self.headers.as_mut_ptr(),
                slot_count as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(self.land(count, lane, zone)),
            Err(_) => quiet(io::Error::last_os_error()).map(|()| 0),
        }
    }

    /// Makes completions of the datagrams in the first `count` slots.
    fn land(&self, count: usize, lane: Option<Lane>, zone: &mut Zone) -> usize {
        let (mut landed, mut filled_bytes) = (0, 0);
        for index in 0..count {
            let header = &self.headers[index];
            let len_bytes = header.msg_len as usize;
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                zone.count_truncated();
                continue;
            }
            let sender = lane.map(Sender::from).or_else(|| self.names[index].sender());
            let (Some(sender), 1..) = (sender, len_bytes) else { continue };
            let segment_bytes = self.segment_bytes(index).unwrap_or(len_bytes);
            let mut skip_bytes = index * self.slot_bytes - filled_bytes;
            let mut left_bytes = len_bytes;
            while left_bytes > 0 {
                let bytes = left_bytes.min(segment_bytes);
                landed += usize::from(zone.land(sender, skip_bytes, bytes) == Landed::Completed);
                left_bytes -= bytes;
                skip_bytes = 0;
            }
            filled_bytes = index * self.slot_bytes + len_bytes;
        }
        align(zone, filled_bytes);
        landed
    }

    /// The length of each of the datagrams that the kernel joined in a slot, if it joined any.
    fn segment_bytes(&self, index: usize) -> Option<usize> {
        let header = &self.headers[index].msg_hdr;
        if !self.is_coalesced || header.msg_controllen == 0 {
            return None;
        }
        // SAFETY: the kernel has filled the header's control area and said how far.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: not null, so it is a whole control message header inside the area.
            let message = unsafe { *control };
            if message.cmsg_level == libc::SOL_UDP && message.cmsg_type == libc::UDP_GRO {
                // SAFETY: the data of this kind is a C int, and lies in the area.
                let data = unsafe { libc::CMSG_DATA(control) }.cast::<libc::c_int>();
                // SAFETY: as above.
                let segment_bytes = unsafe { data.read_unaligned() };
                return usize::try_from(segment_bytes).ok().filter(|bytes| *bytes > 0);
            }
            // SAFETY: `control` is a message of this header.
            control = unsafe { libc::CMSG_NXTHDR(header, control) };
        }
        None
    }
}

/// Continues at the next cache line, unless the buffer ended.
fn align(zone: &mut Zone, filled_bytes: usize) {
    if let Some(window) = zone.window()
        && filled_bytes > 0
    {
        let skip_bytes = window.offset_bytes.next_multiple_of(LINE_BYTES) - window.offset_bytes;
        zone.skip(skip_bytes.min(window.len_bytes));
    }
}

/// Errors of a datagram socket that are harmless: nothing there, a signal, or that an earlier
/// datagram found no receiver.
fn quiet(error: io::Error) -> io::Result<()> {
    let code = error.raw_os_error().unwrap_or_default();
    let is_quiet = matches!(
        code,
        libc::EAGAIN
            | libc::EINTR
            | libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EMSGSIZE
    );
    if is_quiet { Ok(()) } else { Err(error) }
}
