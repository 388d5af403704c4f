//! Sends of all lanes in one submission, on a ring of their own.
//!
//! # Invariants
//! V1: `uses` counts, for the first frame of each message, its outstanding completions: one for
//!     each plain send, two for one without a copy. While there are any, its bytes stay.
//! V2: a value is dropped once, when its message has no more uses.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{EnterFlags, IoUring, cqueue, opcode};

use crate::frames::{Frames, Joining, Run};
use crate::pinned::COPIED_MAX;
use crate::udp::SendCounters;
use crate::udp::outbox::{CONTROL_BYTES, Control, segment_control};
use crate::uring::{Unqueued, UringConfig};
use crate::{Lane, Notice, Pinned, Sender, ZeroCopy, ZeroCopyCounters};

/// The maximum number of messages in one submission.
const BURST_MAX: usize = 64;

/// IORING_SEND_ZC_REPORT_USAGE: the notification reports whether the bytes were copied (Linux 6.2).
const REPORT_USAGE: u16 = 8;
/// IORING_NOTIF_USAGE_ZC_COPIED: they were.
const WAS_COPIED: u32 = 1 << 31;

/// The target of a lane's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) descriptor: RawFd,
    pub(crate) is_stream: bool,
}

/// The send queue of all lanes. Frames of one stream leave one message at a time, so that a full
/// stream cannot change their order.
pub(crate) struct Sends {
    ring: IoUring,
    frames: Frames,
    headers: Box<[libc::msghdr]>,
    /// For each message: its bytes in the arena, and its value.
    vectors: Box<[[libc::iovec; 2]]>,
    controls: Box<[Control]>,
    /// By the index of a message's frame (V2).
    values: Box<[Option<Box<dyn Pinned>>]>,
    /// The outstanding completions (V1).
    uses: Box<[u8]>,
    /// The sum of all uses.
    pending: usize,
    /// Sends without a copy whose notification is outstanding.
    unnotified: usize,
    zero_copy: ZeroCopy,
    /// By lane: the number of notifications in a row that reported a copy.
    copied: Vec<u8>,
    zero_copies: ZeroCopyCounters,
    /// By lane: whether a message of a stream is outstanding.
    busy: Vec<bool>,
    is_segmenting: bool,
    notice: Option<Notice>,
    counters: SendCounters,
}

// SAFETY: the pointers in `headers` and `vectors` are set before each submission, during which the
// kernel copies them, and lead into boxes of the same value, which move with it.
unsafe impl Send for Sends {}

impl Sends {
    pub(crate) fn new(config: &UringConfig) -> io::Result<Sends> {
        let frames_max = config.send_frames_max;
        // SAFETY: a `msghdr` of zeros is valid: null pointers and lengths of 0.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let ring = IoUring::builder().setup_cqsize(2 * frames_max.max(256) as u32).build(256)?;
        Ok(Sends {
            ring,
            frames: Frames::new(config.send_bytes, frames_max),
            headers: vec![header; BURST_MAX].into_boxed_slice(),
            vectors: vec![[empty; 2]; BURST_MAX].into_boxed_slice(),
            controls: vec![Control::EMPTY; BURST_MAX].into_boxed_slice(),
            values: (0..frames_max).map(|_| None).collect(),
            uses: vec![0; frames_max].into_boxed_slice(),
            pending: 0,
            unnotified: 0,
            zero_copy: config.zero_copy,
            copied: Vec::new(),
            zero_copies: ZeroCopyCounters::default(),
            busy: Vec::new(),
            is_segmenting: true,
            notice: None,
            counters: SendCounters::default(),
        })
    }

    /// Adds a lane.
    pub(crate) fn add_lane(&mut self) {
        self.busy.push(false);
        self.copied.push(0);
    }

    pub(crate) fn unsettled(&self) -> usize {
        self.pending
    }

    pub(crate) fn zero_copy_counters(&self) -> ZeroCopyCounters {
        self.zero_copies
    }

    /// Queues a message whose value stays in place.
    pub(crate) fn queue_pinned(
        &mut self,
        to: Sender,
        head: &[u8],
        value: Box<dyn Pinned>,
    ) -> Result<(), Unqueued> {
        match self.frames.reserve(to, head.len()) {
            Ok(room) => room.copy_from_slice(head),
            Err(error) => return Err((error, value)),
        }
        let index = self.frames.commit_head(head.len());
        self.values[index] = Some(value);
        Ok(())
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

    /// Gives frames to the kernel until a stream is busy; returns their number.
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
        self.settle(target)?;
        Ok(before - self.queued())
    }

    /// Takes new completions; frees the bytes that the kernel no longer reads.
    pub(crate) fn settle(&mut self, target: impl Fn(Lane) -> Option<Target>) -> io::Result<()> {
        if self.pending > 0 {
            self.reap(&target)?;
        }
        if self.pending == 0 {
            self.frames.clear();
        }
        Ok(())
    }

    /// Writes entries for as many messages as fit, in order.
    fn gather(&mut self, target: &impl Fn(Lane) -> Option<Target>) -> usize {
        let (mut gathered, mut left) = (0, 0);
        let mut waiting = self.frames.waiting();
        while !waiting.is_empty() && gathered < BURST_MAX {
            let lane = self.frames.to(waiting.start).as_lane().expect("only lanes are queued");
            let Some(target) = target(lane) else {
                // The lane was closed since: there is no peer to read it.
                self.values[waiting.start] = None;
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
        let value: &[u8] = self.values[index].as_deref().map_or(&[], Pinned::bytes);
        let (len_bytes, streak) = (run.bytes + value.len(), self.copied[lane.0 as usize]);
        let is_zero_copy = self.zero_copy.is_for(len_bytes, streak);
        let is_segmented = run.frame_count > 1 && !target.is_stream;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = if is_segmented || !value.is_empty() {
            let head = libc::iovec { iov_base: start.cast(), iov_len: run.bytes };
            let rest = value.as_ptr().cast_mut().cast();
            self.vectors[slot] = [head, libc::iovec { iov_base: rest, iov_len: value.len() }];
            let header = &mut self.headers[slot];
            header.msg_iov = self.vectors[slot].as_mut_ptr();
            header.msg_iovlen = 2;
            (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
            if is_segmented {
                self.controls[slot] = segment_control(run.segment_bytes);
                header.msg_control = (&raw mut self.controls[slot]).cast();
                header.msg_controllen = CONTROL_BYTES;
            }
            let header = &raw const self.headers[slot];
            let flags = flags as u32;
            if is_zero_copy {
                opcode::SendMsgZc::new(descriptor, header).ioprio(REPORT_USAGE).flags(flags).build()
            } else {
                opcode::SendMsg::new(descriptor, header).flags(flags).build()
            }
        } else if is_zero_copy {
            let send = opcode::SendZc::new(descriptor, start, run.bytes as u32);
            send.zc_flags(REPORT_USAGE).flags(flags).build()
        } else {
            opcode::Send::new(descriptor, start, run.bytes as u32).flags(flags).build()
        };
        let tag =
            Tag { lane, index: index as u16, frame_count: run.frame_count as u8, is_zero_copy };
        // SAFETY: the header, vectors and control stay until the submission that follows, the bytes
        // in the arena and of the value until the message has no more uses (V1, V2).
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(tag.word())) };
        pushed.expect("a burst fits in the ring");
        let uses = 1 + u8::from(is_zero_copy);
        self.uses[index] += uses;
        self.pending += usize::from(uses);
        self.unnotified += usize::from(is_zero_copy);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.counters.calls += 1;
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // Entries that were not taken stay in the ring for the next submission.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes completions. A message that the kernel refused to segment is sent frame by frame; one
    /// that it cannot send without a copy is sent with a copy.
    fn reap(&mut self, target: &impl Fn(Lane) -> Option<Target>) -> io::Result<()> {
        loop {
            let Some(entry) = self.ring.completion().next() else { return Ok(()) };
            let tag = Tag::of_word(entry.user_data());
            if cqueue::notif(entry.flags()) {
                self.notified(tag, entry.result() as u32 & WAS_COPIED != 0);
                continue;
            }
            self.busy[tag.lane.0 as usize] = false;
            let count = u64::from(tag.frame_count);
            match -entry.result() {
                ..=0 => {
                    self.counters.frames += count;
                    self.zero_copies.taken += u64::from(tag.is_zero_copy);
                }
                errno @ (libc::EIO | libc::EINVAL | libc::EMSGSIZE) if count > 1 => {
                    if std::mem::replace(&mut self.is_segmenting, false) {
                        self.notice = Some(Notice::SegmentationOff { errno });
                    }
                    self.send_singly(tag, target)?;
                }
                libc::EOPNOTSUPP | libc::ENOMEM | libc::ENOBUFS
                    if tag.is_zero_copy && matches!(self.zero_copy, ZeroCopy::From { .. }) =>
                {
                    self.stop_zero_copies(tag.lane);
                    self.send_again(tag, target)?;
                }
                _ => self.counters.refused += count,
            }
            // With two uses the notification ends the second, if there will be one.
            let will_notify = cqueue::more(entry.flags());
            self.end_use(tag);
            if tag.is_zero_copy && !will_notify {
                self.unnotified -= 1;
                self.end_use(tag);
            }
        }
    }

    /// The kernel will not read a message's bytes again for one send.
    fn notified(&mut self, tag: Tag, was_copied: bool) {
        self.unnotified -= 1;
        self.zero_copies.let_go += 1;
        let streak = &mut self.copied[tag.lane.0 as usize];
        if was_copied {
            self.zero_copies.copied += 1;
            *streak = streak.saturating_add(1);
            if *streak == COPIED_MAX && matches!(self.zero_copy, ZeroCopy::From { .. }) {
                self.notice = Some(Notice::ZeroCopyOff { lane: tag.lane });
            }
        } else if *streak < COPIED_MAX {
            *streak = 0;
        }
        self.end_use(tag);
    }

    fn stop_zero_copies(&mut self, lane: Lane) {
        if std::mem::replace(&mut self.copied[lane.0 as usize], COPIED_MAX) < COPIED_MAX {
            self.notice = Some(Notice::ZeroCopyOff { lane });
        }
    }

    /// Ends one use of a message (V1, V2).
    fn end_use(&mut self, tag: Tag) {
        let index = usize::from(tag.index);
        self.uses[index] -= 1;
        self.pending -= 1;
        if self.uses[index] == 0 {
            self.values[index] = None;
        }
    }

    /// Sends a message again with the same contents, but in another way.
    fn send_again(&mut self, tag: Tag, target: &impl Fn(Lane) -> Option<Target>) -> io::Result<()> {
        let Some(target) = target(tag.lane) else {
            self.counters.refused += u64::from(tag.frame_count);
            return Ok(());
        };
        let index = usize::from(tag.index);
        let run = self.frames.run_of(index, usize::from(tag.frame_count));
        self.busy[tag.lane.0 as usize] = target.is_stream;
        self.push(0, index, tag.lane, target, run);
        self.submit()
    }

    /// Sends the frames of one message again, each by itself; their bytes still exist.
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

impl Sends {
    /// Ends all sends; returns whether the kernel certainly reads nothing of them any more.
    fn end_all(&mut self) -> bool {
        if !super::cancel_all(&self.ring) {
            return false;
        }
        if self.unnotified == 0 {
            return true;
        }
        // Cancelled sends are reported by completions, which this allows.
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed, and nothing is submitted.
        let _ = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, flags, None) };
        // There is no target for messages that would have to be sent again.
        self.reap(&|_| None).is_ok() && self.unnotified == 0
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        if !self.end_all() {
            // The kernel may still read from the arena and from values: they stay for good.
            std::mem::forget(std::mem::replace(&mut self.frames, Frames::new(0, 0)));
            std::mem::forget(std::mem::take(&mut self.values));
        }
    }
}

/// The frames that a completion is about.
#[derive(Clone, Copy)]
struct Tag {
    lane: Lane,
    index: u16,
    frame_count: u8,
    is_zero_copy: bool,
}

impl Tag {
    fn word(self) -> u64 {
        let low = u64::from(self.is_zero_copy) << 8 | u64::from(self.frame_count);
        u64::from(self.lane.0) << 32 | u64::from(self.index) << 16 | low
    }

    fn of_word(word: u64) -> Tag {
        Tag {
            lane: Lane((word >> 32) as u32),
            index: (word >> 16) as u16,
            frame_count: word as u8,
            is_zero_copy: word >> 8 & 1 == 1,
        }
    }
}
