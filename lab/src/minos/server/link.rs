//! The send side of the network card: a queue per core, and one wire that serves them packet by
//! packet.
//!
//! ```text
//!  core 0 ─▶ [ p p p ] ─┐
//!  core 1 ─▶ [ p ]     ─┼─ one packet each in turn ─▶ 40 Gb/s ─▶ latency is taken
//!  core 7 ─▶ [ ]       ─┘
//! ```
//!
//! This is the head-of-line blocking that stealing cannot undo: a reply that follows a large reply
//! of the same core waits for all its packets, up to 100 µs, whichever core received the request.

use std::collections::VecDeque;

use policy::size_class::PACKET_PAYLOAD_MAX_BYTES;

use super::Request;

/// Per packet, around the item: Ethernet with preamble and gap (38), IP and UDP (28).
pub const PACKET_HEADER_BYTES: f64 = 66.0;

/// Packets of one reply, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// The request.
    pub request: Request,
    /// How many packets, all but the last full.
    pub packets: u64,
    /// Item bytes in the last packet.
    pub last_bytes: u64,
    /// Whether the reply is complete with them.
    pub ends: bool,
}

/// The queues and the wire.
#[derive(Debug)]
pub struct Link {
    queues: Vec<VecDeque<Send>>,
    waiting: usize,
    turn: usize,
    bytes_per_ns: f64,
    /// The time when the packet on the wire has left; infinite: none.
    pub free_at: f64,
    /// Bytes of all packets, headers included.
    pub sent_bytes: f64,
}

impl Link {
    /// An idle wire.
    pub fn new(cores: usize, bytes_per_ns: f64) -> Link {
        Link {
            queues: vec![VecDeque::new(); cores],
            waiting: 0,
            turn: 0,
            bytes_per_ns,
            free_at: f64::INFINITY,
            sent_bytes: 0.0,
        }
    }

    /// Whether `core` has packets that have not left.
    pub fn is_sending(&self, core: usize) -> bool {
        !self.queues[core].is_empty()
    }

    /// The last reply that `core` sends, if it is sending.
    pub fn last(&self, core: usize) -> Option<&Request> {
        self.queues[core].back().map(|send| &send.request)
    }

    /// The core whose packet is on the wire.
    pub fn sender(&self) -> usize {
        self.turn
    }

    /// `core` has packets to send.
    pub fn push(&mut self, now: f64, core: usize, send: Send) {
        self.queues[core].push_back(send);
        self.waiting += 1;
        if self.free_at == f64::INFINITY {
            self.turn = core;
            self.start(now);
        }
    }

    /// The packet on the wire has left: returns the request, if it was the last of its reply.
    pub fn finish(&mut self) -> Option<Request> {
        let queue = &mut self.queues[self.turn];
        let send = queue.front_mut()?;
        send.packets -= 1;
        let mut answered = None;
        if send.packets == 0 {
            answered = send.ends.then_some(send.request);
            queue.pop_front();
            self.waiting -= 1;
        }
        let now = std::mem::replace(&mut self.free_at, f64::INFINITY);
        if self.waiting > 0 {
            let cores = self.queues.len();
            self.turn += 1;
            while self.queues[self.turn % cores].is_empty() {
                self.turn += 1;
            }
            self.turn %= cores;
            self.start(now);
        }
        answered
    }

    fn start(&mut self, now: f64) {
        let Some(send) = self.queues[self.turn].front() else { return };
        let is_last = send.packets == 1;
        let item_bytes = if is_last { send.last_bytes } else { PACKET_PAYLOAD_MAX_BYTES };
        let bytes = item_bytes as f64 + PACKET_HEADER_BYTES;
        self.sent_bytes += bytes;
        self.free_at = now + bytes / self.bytes_per_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Request, Send};

    const LARGE_PACKETS: u64 = 100;

    fn send(packets: u64) -> Send {
        let request = Request { at: 0.0, size_bytes: 1, key: 0, is_get: true };
        Send { request, packets, last_bytes: 1472, ends: true }
    }

    /// Packets on the wire until the one-packet reply of `core` has left, with a large reply before
    /// it at core 0.
    fn packets_until_answered(core: usize) -> u64 {
        let mut link = Link::new(2, 1538.0);
        link.push(0.0, 0, send(LARGE_PACKETS));
        link.push(0.0, core, Send { request: Request { key: 7, ..send(1).request }, ..send(1) });
        let mut packets = 0;
        loop {
            packets += 1;
            assert!((link.free_at - packets as f64).abs() < 1e-9, "a packet a nanosecond");
            if link.finish().is_some_and(|request| request.key == 7) {
                return packets;
            }
        }
    }

    #[test]
    fn a_small_reply_waits_behind_its_own_cores_large_one_and_no_other() {
        assert_eq!(packets_until_answered(0), LARGE_PACKETS + 1);
        assert_eq!(packets_until_answered(1), 2);
    }

    #[test]
    fn a_wire_with_nothing_to_send_is_free() {
        let mut link = Link::new(2, 1.0);
        link.push(5.0, 1, send(1));
        assert_eq!((link.free_at, link.is_sending(1)), (5.0 + 1538.0, true));
        assert!(link.finish().is_some());
        assert_eq!((link.free_at, link.is_sending(1)), (f64::INFINITY, false));
        assert_eq!(link.sent_bytes, 1538.0);
    }
}
