//! The reply frame in the making: one for each frame of requests, or more.
//!
//! ```text
//!  request frame 7 ─▶ replies ─▶ [ header: answered 7 | reply | reply | ... ] ─▶ outlet
//!  request frame 8 ─▶ replies ─▶ [ header: answered 8 | reply ... ]           ─▶ outlet
//! ```
//!
//! A frame of replies names the one frame that it answers, so that the client can measure the round
//! trip. Frames to one peer lie next to each other in the outlet and leave in one call.
//!
//! # Invariants
//! I1: at most one frame is open, and it is closed before a frame to another peer is opened.
//! I2: at a node of a cluster, replies of reads that this worker executed have frames of their own:
//!     they alone may turn out to be stale. Over an outlet that loses nothing these reads are then
//!     answered "busy", and replies of writes leave in any case.

use std::sync::Arc;

use budget::BufferBudget;
use counters::WorkerCounters;
use landing::Sender;
use wire::native::{Frame, FrameWriter, Header, Kind, Replies, Reply, Status, SteeringId, TagKey};

use super::sessions::Session;

/// Bound on the full replies to one frame of requests; further values are cut to their first unit,
/// and the client pulls the rest when it has room (N10). A frame of 500 small gets may name values
/// of many megabytes.
const FULL_REPLY_BYTES_MAX: usize = 256 << 10;

/// Whether replies that wait for other workers or for rings have no more room: half of what
/// replies have.
pub fn is_tight(budget: &BufferBudget) -> bool {
    let kind = budget::Kind::Replies;
    budget.kind_bytes(kind) > budget.kind_limit_bytes(kind) / 2
}

/// The destination of frames.
pub trait Outlet {
    /// The longest frame that it carries.
    fn frame_max_bytes(&self) -> usize;

    /// Queues a frame. A frame that cannot leave is dropped and counted; an outlet that may lose
    /// nothing keeps it.
    fn send(&mut self, to: Sender, frame: &[u8], counters: &WorkerCounters);

    /// Whether it may take further full values.
    fn is_generous(&self) -> bool {
        true
    }

    /// Whether its clients rely on each reply: they send nothing again by themselves.
    fn is_lossless(&self) -> bool {
        false
    }
}

/// The frame of requests to which replies belong.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'k> {
    /// Its session.
    pub session: &'k Arc<Session>,
    /// Its steering field, which the replies repeat.
    pub steering: SteeringId,
    /// Its number.
    pub number: u32,
}

/// A frame that waits.
struct Held {
    peer: Sender,
    frame: Vec<u8>,
    has_reads: bool,
}

/// Writes frames of replies.
pub struct Outgoing<'o, 'k, T> {
    buffer: &'o mut [u8],
    /// Length of the open frame; 0: none is open.
    len_bytes: usize,
    origin: Option<Origin<'k>>,
    /// Bytes written to this origin so far, over all its frames.
    origin_bytes: usize,
    outlet: &'o mut T,
    key: Option<&'o TagKey>,
    counters: &'o WorkerCounters,
    /// Frames that wait for the disk or the cluster's view, if replies have to.
    held: Option<Vec<Held>>,
    /// Whether the open frame is one of reads (I2).
    has_reads: bool,
}

impl<'o, 'k, T: Outlet> Outgoing<'o, 'k, T> {
    /// A writer without an open frame. The buffer holds the longest frame.
    pub fn new(
        buffer: &'o mut [u8],
        outlet: &'o mut T,
        key: Option<&'o TagKey>,
        counters: &'o WorkerCounters,
    ) -> Outgoing<'o, 'k, T> {
        let (len_bytes, origin, origin_bytes) = (0, None, 0);
        let (held, has_reads) = (None, false);
        Outgoing { buffer, len_bytes, origin, origin_bytes, outlet, key, counters, held, has_reads }
    }

    /// Makes the following replies answer this frame.
    #[inline]
    pub fn turn_to(&mut self, origin: &Origin<'k>) {
        let is_same = self.origin.is_some_and(|open| {
            Arc::ptr_eq(open.session, origin.session) && open.number == origin.number
        });
        if !is_same {
            self.close();
            self.origin = Some(*origin);
            self.origin_bytes = 0;
        }
    }

    /// The longest frame to the current peer.
    #[inline]
    fn frame_max_bytes(&self) -> usize {
        let peer_max_bytes = self.origin.map_or(0, |origin| origin.session.frame_max_bytes);
        peer_max_bytes.min(self.buffer.len())
    }

    /// The longest value that fits a reply with that many words and that key.
    pub fn value_room_bytes(&self, word_count: usize, key_len_bytes: usize) -> usize {
        let fixed_bytes = wire::native::HEADER_LEN_BYTES
            + wire::native::message_len_bytes(word_count, 0, 0)
            + key_len_bytes;
        (self.frame_max_bytes() & !7).saturating_sub(fixed_bytes)
    }

    /// Whether the current origin may have further full replies.
    #[inline]
    pub fn is_generous(&self) -> bool {
        self.origin_bytes <= FULL_REPLY_BYTES_MAX && self.outlet.is_generous()
    }

    /// Writes a reply to the current origin, in a new frame if the open one is full. Returns false
    /// if no frame can hold it.
    #[inline]
    pub fn push(&mut self, reply: &Reply<'_>) -> bool {
        self.push_to_open(reply) || self.push_to_fresh(reply)
    }

    #[inline]
    fn push_to_open(&mut self, reply: &Reply<'_>) -> bool {
        if self.len_bytes == 0 {
            return false;
        }
        let end = self.frame_max_bytes();
        let Some(mut writer) = FrameWriter::resume(&mut self.buffer[..end], self.len_bytes) else {
            return false;
        };
        let is_written = writer.push_reply(reply).is_ok();
        self.len_bytes = writer.len_bytes();
        is_written
    }

    fn push_to_fresh(&mut self, reply: &Reply<'_>) -> bool {
        self.close();
        let end = self.frame_max_bytes();
        let Some(origin) = self.origin else { return false };
        let header = Header {
            kind: Kind::Replies,
            steering: origin.steering,
            session: origin.session.id,
            number: origin.session.take_number(),
            answered: origin.number,
        };
        let Ok(mut writer) = FrameWriter::new(&mut self.buffer[..end], header) else {
            return false;
        };
        let is_written = writer.push_reply(reply).is_ok();
        self.len_bytes = writer.len_bytes();
        is_written
    }

    /// Finishes the open frame and hands it to the outlet.
    #[inline]
    pub fn close(&mut self) {
        let Some(origin) = self.origin.filter(|_| self.len_bytes > 0) else { return };
        let end = self.frame_max_bytes();
        let len_bytes = std::mem::take(&mut self.len_bytes);
        let Some(writer) = FrameWriter::resume(&mut self.buffer[..end], len_bytes) else { return };
        if writer.is_empty() {
            return;
        }
        let len_bytes = writer.finish(self.key);
        self.origin_bytes += len_bytes;
        self.counters.native.frames_out.add(1);
        self.counters.output_bytes.add(len_bytes as u64);
        let (peer, frame) = (origin.session.peer, &self.buffer[..len_bytes]);
        match &mut self.held {
            None => self.outlet.send(peer, frame, self.counters),
            Some(held) => {
                held.push(Held { peer, frame: frame.to_vec(), has_reads: self.has_reads });
            }
        }
    }

    /// From now on frames wait for [`Outgoing::release`].
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Whether frames wait.
    pub fn holds(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_empty()) || self.len_bytes > 0
    }

    /// Says whether the following replies are of reads that this worker executes (I2).
    pub fn begin_reads(&mut self, are_reads: bool) {
        if self.held.is_some() && self.has_reads != are_reads {
            self.close();
            self.has_reads = are_reads;
        }
    }

    /// Sends the waiting frames, including the open one; or drops them, as datagrams may be.
    /// `reads_are_good`: whether the replies of reads are not stale.
    #[cold]
    pub fn release(&mut self, may_leave: bool, reads_are_good: bool) {
        self.close();
        let held = self.held.as_mut().map(std::mem::take);
        for Held { peer, frame, has_reads } in held.into_iter().flatten().filter(|_| may_leave) {
            if !has_reads || reads_are_good {
                self.outlet.send(peer, &frame, self.counters);
            } else if self.outlet.is_lossless()
                && let Some(len_bytes) = put_off(&frame, self.key, self.buffer)
            {
                self.outlet.send(peer, &self.buffer[..len_bytes], self.counters);
            }
        }
    }
}

/// Writes a frame that answers "busy" to each request that `frame` answers; returns its length.
fn put_off(frame: &[u8], key: Option<&TagKey>, buffer: &mut [u8]) -> Option<usize> {
    let Frame { header, body, .. } = Frame::parse(frame, key).ok()?;
    let mut writer = FrameWriter::new(buffer, header).ok()?;
    for reply in Replies::new(body) {
        writer.push_reply(&Reply::new(reply.ok()?.id, Status::Busy)).ok()?;
    }
    Some(writer.finish(key))
}

#[cfg(test)]
mod tests {
    use wire::native::{RequestId, SessionId};

    use super::*;

    #[test]
    fn reads_that_are_put_off_keep_their_numbers_and_lose_their_values() {
        let (kind, steering) = (Kind::Replies, SteeringId(7));
        let header = Header { kind, steering, session: SessionId(3), number: 9, answered: 4 };
        let mut frame = [0; 256];
        let mut writer = FrameWriter::new(&mut frame, header).unwrap();
        for id in [RequestId::Free(5), RequestId::Free(6)] {
            let reply = Reply { value: b"stale", ..Reply::new(id, Status::Ok) };
            writer.push_reply(&reply).unwrap();
        }
        let len_bytes = writer.finish(None);
        let mut buffer = [0; 256];
        let busy_len_bytes = put_off(&frame[..len_bytes], None, &mut buffer).unwrap();
        let busy = Frame::parse(&buffer[..busy_len_bytes], None).unwrap();
        let replies: Vec<_> = Replies::new(busy.body).map(Result::unwrap).collect();
        let wanted = [RequestId::Free(5), RequestId::Free(6)];
        assert_eq!(busy.header, header);
        assert_eq!(replies, wanted.map(|id| Reply::new(id, Status::Busy)));
    }
}
