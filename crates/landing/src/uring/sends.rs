//! Sends of all lanes in one submission, by a ring of their own.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

use crate::frames::{Frames, Joining, Run};
use crate::udp::SendCounters;
use crate::udp::outbox::{CONTROL_BYTES, Control, segment_control};
use crate::{Lane, Notice};

/// Messages of one submission.
const BURST_MAX: usize = 64;

/// Where a lane's bytes go.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) descriptor: RawFd,
    pub(crate) is_stream: bool,
}

/// The send queue of all lanes. Frames of one stream leave one message at a time, so that a stream
/// that is full cannot change their order.
pub(crate) struct Sends {
    ring: IoUring,
    frames: Frames,
    headers: Box<[libc::msghdr]>,
    vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    /// Messages that the kernel still reads from.
    pending: usize,
    /// By lane: whether one of them is a stream's.
    busy: Vec<bool>,
    is_segmenting: bool,
    notice: Option<Notice>,
    counters: SendCounters,
}

// SAFETY: the pointers in `headers` and `vectors` are set before each submission, during which the
// kernel copies them, and lead into boxes of the same value, which move with it.
unsafe impl Send for Sends {}

impl Sends {
    pub(crate) fn new(arena_bytes: usize, frames_max: usize) -> io::Result<Sends> {
        // SAFETY: a `msghdr` of zeros is valid: null pointers and lengths of 0.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let ring = IoUring::builder().setup_cqsize(frames_max.max(256) as u32).build(256)?;
        Ok(Sends {
            ring,
            frames: Frames::new(arena_bytes, frames_max),
            headers: vec![header; BURST_MAX].into_boxed_slice(),
            vectors: vec![empty; BURST_MAX].into_boxed_slice(),
            controls: vec![Control::EMPTY; BURST_MAX].into_boxed_slice(),
            pending: 0,
            busy: Vec::new(),
            is_segmenting: true,
            notice: None,
            counters: SendCounters::default(),
        })
    }

    /// One lane more.
    pub(crate) fn add_lane(&mut self) {
        self.busy.push(false);
    }

    /// What waits.
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

    /// Hands frames to the kernel until a stream is busy; how many.
    pub(crate) fn flush(&mut self, target: impl Fn(Lane) -> Option<Target>) -> io::Result<usize> {
        let before = self.queued();
        loop {
            let gathered = self.gather(&target);
            if gathered == 0 {
                break;
            }
            self.submit()?;
            self.reap(&target)?;
        }
        self.reap(&target)?;
        if self.pending == 0 {
            self.frames.clear();
        }
        Ok(before - self.queued())
    }

    /// Writes entries for as many messages as fit, in order.
    fn gather(&mut self, target: &impl Fn(Lane) -> Option<Target>) -> usize {
        let (mut gathered, mut left) = (0, 0);
        let mut waiting = self.frames.waiting();
        while !waiting.is_empty() && gathered < BURST_MAX {
            let lane = self.frames.to(waiting.start).as_lane().expect("only lanes are queued");
            let Some(target) = target(lane) else {
                // Closed since: nobody is there to read it.
                self.counters.refused += 1;
                (left, waiting.start) = (left + 1, waiting.start + 1);
                continue;
            };
            let busy = &mut self.busy[lane.0 as usize];
            if target.is_stream && std::mem::replace(busy, true) {
                break;
            }
            let joining = match (target.is_stream, self.is_segmenting) {
                (true, _) => Joining::Stream,
                (false, true) => Joining::Segmented,
                (false, false) => Joining::Single,
            };
            let run = self.frames.run(waiting.start, joining);
            self.push(gathered, waiting.start, lane, target, run);
            gathered += 1;
            left += run.frame_count;
            waiting.start += run.frame_count;
        }
        self.frames.leave(left);
        gathered
    }

    fn push(&mut self, slot: usize, index: usize, lane: Lane, target: Target, run: Run) {
        let start = self.frames.start(index);
        let descriptor = Fd(target.descriptor);
        let is_segmented = run.frame_count > 1 && !target.is_stream;
        let entry = if is_segmented {
            self.vectors[slot] = libc::iovec { iov_base: start.cast(), iov_len: run.bytes };
            self.controls[slot] = segment_control(run.segment_bytes);
            let header = &mut self.headers[slot];
            header.msg_iov = &raw mut self.vectors[slot];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[slot]).cast();
            header.msg_controllen = CONTROL_BYTES;
            opcode::SendMsg::new(descriptor, &raw const self.headers[slot])
                .flags(libc::MSG_NOSIGNAL as u32)
                .build()
        } else {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            opcode::Send::new(descriptor, start, run.bytes as u32).flags(flags).build()
        };
        let tag = Tag { lane, index: index as u16, frame_count: run.frame_count as u16 };
        // SAFETY: the header, vector and control stay until the submission that follows, the bytes
        // until the message completes: `Frames::clear` waits for `pending` to reach 0.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(tag.word())) };
        pushed.expect("a burst fits in the ring");
        self.pending += 1;
    }

    fn submit(&mut self) -> io::Result<()> {
        self.counters.calls += 1;
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // What was not taken stays in the ring for the next submission.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes completions; what the kernel refused to segment is sent singly.
    fn reap(&mut self, target: &impl Fn(Lane) -> Option<Target>) -> io::Result<()> {
        loop {
            let Some(entry) = self.ring.completion().next() else { return Ok(()) };
            let (tag, result) = (Tag::of_word(entry.user_data()), entry.result());
            self.pending -= 1;
            self.busy[tag.lane.0 as usize] = false;
            let count = u64::from(tag.frame_count);
            match -result {
                ..=0 => self.counters.frames += count,
                errno @ (libc::EIO | libc::EINVAL | libc::EMSGSIZE) if count > 1 => {
                    if std::mem::replace(&mut self.is_segmenting, false) {
                        self.notice = Some(Notice::SegmentationOff { errno });
                    }
                    self.send_singly(tag, target)?;
                }
                _ => self.counters.refused += count,
            }
        }
    }

    /// Sends the frames of one message again, each by itself; their bytes are still there.
    fn send_singly(
        &mut self,
        tag: Tag,
        target: &impl Fn(Lane) -> Option<Target>,
    ) -> io::Result<()> {
        let Some(target) = target(tag.lane) else { return Ok(()) };
        let first = usize::from(tag.index);
        for index in first..first + usize::from(tag.frame_count) {
            let run = self.frames.run(index, Joining::Single);
            self.push(0, index, tag.lane, target, run);
        }
        self.submit()
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        if !super::cancel_all(&self.ring) {
            // The kernel may still read from the arena: it stays.
            std::mem::forget(std::mem::replace(&mut self.frames, Frames::new(0, 0)));
        }
    }
}

/// Which frames a completion is about.
#[derive(Clone, Copy)]
struct Tag {
    lane: Lane,
    index: u16,
    frame_count: u16,
}

impl Tag {
    fn word(self) -> u64 {
        u64::from(self.lane.0) << 32 | u64::from(self.index) << 16 | u64::from(self.frame_count)
    }

    fn of_word(word: u64) -> Tag {
        Tag {
            lane: Lane((word >> 32) as u32),
            index: (word >> 16) as u16,
            frame_count: word as u16,
        }
    }
}
