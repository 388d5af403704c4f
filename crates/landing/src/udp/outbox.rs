//! The `sendmmsg` of waiting frames, joined where the kernel can cut them (UDP_SEGMENT).

use std::io;
use std::os::fd::RawFd;

use super::name::Name;
use crate::frames::{Frames, Joining, Run};
use crate::{Notice, Sender};

/// The maximum number of messages in one `sendmmsg`.
const BURST_MAX: usize = 64;

/// Room for one control message: the length of the segments.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control([u8; CONTROL_BYTES]);

impl Control {
    pub(crate) const EMPTY: Control = Control([0; CONTROL_BYTES]);
}

// SAFETY: arithmetic on a length.
pub(crate) const CONTROL_BYTES: usize =
    unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;

/// A send queue of fixed size.
pub(crate) struct Outbox {
    frames: Frames,
    batch: Batch,
    joining: Joining,
    notice: Option<Notice>,
    counters: SendCounters,
}

/// The counts since the transport was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Frames that the kernel took.
    pub frames: u64,
    /// Calls of `sendmmsg`.
    pub calls: u64,
    /// Frames that the kernel refused permanently (no route, peer gone); their senders send again.
    pub refused: u64,
}

impl Outbox {
    pub(crate) fn new(arena_bytes: usize, frames_max: usize, joining: Joining) -> Outbox {
        Outbox {
            frames: Frames::new(arena_bytes, frames_max),
            batch: Batch::new(),
            joining,
            notice: None,
            counters: SendCounters::default(),
        }
    }

    /// The waiting frames.
    pub(crate) fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }

    pub(crate) fn queued(&self) -> usize {
        self.frames.waiting().len()
    }

    pub(crate) fn counters(&self) -> SendCounters {
        self.counters
    }

    pub(crate) fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }

    /// Sends as much as the kernel takes; returns the number of frames that left or were refused.
    /// `socket_of` names the socket that leads to a peer, unless it is closed.
    pub(crate) fn flush(
        &mut self,
        socket_of: impl Fn(Sender) -> Option<RawFd>,
    ) -> io::Result<usize> {
        let before = self.queued();
        while self.queued() > 0 {
            let Some(socket) = self.gather(&socket_of) else {
                // There is no receiver to read it.
                self.frames.leave(1);
                self.counters.refused += 1;
                continue;
            };
            match self.batch.send(socket) {
                Ok(message_count) => self.leave(message_count),
                Err(error) => {
                    if !self.survive(error)? {
                        break;
                    }
                }
            }
        }
        let done = before - self.queued();
        self.frames.clear();
        Ok(done)
    }

    /// Fills the batch with messages of one socket, from the first frame that has not left; returns
    /// the socket, unless it is closed.
    fn gather(&mut self, socket_of: &impl Fn(Sender) -> Option<RawFd>) -> Option<RawFd> {
        self.batch.clear();
        let mut waiting = self.frames.waiting();
        let socket = socket_of(self.frames.to(waiting.start))?;
        while !waiting.is_empty() && !self.batch.is_full() {
            let to = self.frames.to(waiting.start);
            if socket_of(to) != Some(socket) {
                break;
            }
            let run = self.frames.run(waiting.start, self.joining);
            self.batch.push(to, self.frames.start(waiting.start), run);
            waiting.start += run.frame_count;
        }
        Some(socket)
    }

    /// Marks the first `message_count` messages of the batch as sent.
    fn leave(&mut self, message_count: usize) {
        let frame_count = self.batch.frame_count(message_count);
        self.frames.leave(frame_count);
        self.counters.frames += frame_count as u64;
        self.counters.calls += 1;
    }

    /// Handles the refusal of the batch's first message. Returns whether it makes sense to
    /// continue.
    fn survive(&mut self, error: io::Error) -> io::Result<bool> {
        let errno = error.raw_os_error().unwrap_or_default();
        match errno {
            libc::EINTR => Ok(true),
            libc::EAGAIN | libc::ENOBUFS => Ok(false),
            libc::EBADF | libc::ENOTSOCK | libc::EFAULT => Err(error),
            // The errors of a kernel or device that cannot segment; remembered, so that it costs
            // once.
            libc::EIO | libc::EINVAL | libc::EMSGSIZE if self.batch.frame_count(1) > 1 => {
                self.joining = Joining::Single;
                self.notice = Some(Notice::SegmentationOff { errno });
                Ok(true)
            }
            // This peer cannot be reached: others do not wait for it.
            _ => {
                let frame_count = self.batch.frame_count(1);
                self.frames.leave(frame_count);
                self.counters.refused += frame_count as u64;
                Ok(true)
            }
        }
    }
}

/// Arguments of `sendmmsg`, allocated once.
struct Batch {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    /// The number of frames of each message.
    frame_counts: Box<[usize]>,
    len: usize,
}

// SAFETY: the pointers in `headers` and `vectors` are set by `push` before `send` reads them; they
// lead into boxes of the same outbox, which move with it.
unsafe impl Send for Batch {}

impl Batch {
    fn new() -> Batch {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a `mmsghdr` of zeros is valid: null pointers and lengths of 0.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Batch {
            headers: vec![header; BURST_MAX].into_boxed_slice(),
            vectors: vec![empty; BURST_MAX].into_boxed_slice(),
            names: vec![Name::NONE; BURST_MAX].into_boxed_slice(),
            controls: vec![Control::EMPTY; BURST_MAX].into_boxed_slice(),
            frame_counts: vec![0; BURST_MAX].into_boxed_slice(),
            len: 0,
        }
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    fn is_full(&self) -> bool {
        self.len == BURST_MAX
    }

    /// The number of frames of the first messages.
    fn frame_count(&self, message_count: usize) -> usize {
        self.frame_counts[..message_count.min(self.len)].iter().sum()
    }

    fn push(&mut self, to: Sender, start: *mut u8, run: Run) {
        let index = self.len;
        self.vectors[index] = libc::iovec { iov_base: start.cast(), iov_len: run.bytes };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = &raw mut self.vectors[index];
        header.msg_iovlen = 1;
        (header.msg_name, header.msg_namelen) = (std::ptr::null_mut(), 0);
        if let Some(address) = to.as_address() {
            let (name, name_bytes) = Name::of(address);
            self.names[index] = name;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = name_bytes;
        }
        (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
        if run.frame_count > 1 {
            self.controls[index] = segment_control(run.segment_bytes);
            header.msg_control = (&raw mut self.controls[index]).cast();
            header.msg_controllen = CONTROL_BYTES;
        }
        self.frame_counts[index] = run.frame_count;
        self.len += 1;
    }

    fn send(&mut self, socket: RawFd) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the first `len` headers point to names, vectors and controls of this batch, and
        // the vectors into the arena of the outbox that owns it and is borrowed exclusively.
        let count =
            unsafe { libc::sendmmsg(socket, self.headers.as_mut_ptr(), self.len as u32, flags) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

/// "Cut this message into segments of that length."
pub(crate) fn segment_control(segment_bytes: usize) -> Control {
    let header = libc::cmsghdr {
        // SAFETY: arithmetic on a length.
        cmsg_len: unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) } as usize,
        cmsg_level: libc::SOL_UDP,
        cmsg_type: libc::UDP_SEGMENT,
    };
    let mut control = Control::EMPTY;
    // SAFETY: the area is aligned for a header and longer than one.
    unsafe { control.0.as_mut_ptr().cast::<libc::cmsghdr>().write(header) };
    let data_at = size_of::<libc::cmsghdr>();
    let segment = u16::try_from(segment_bytes).expect("a datagram is shorter than 64 KiB");
    control.0[data_at..data_at + 2].copy_from_slice(&segment.to_ne_bytes());
    control
}
