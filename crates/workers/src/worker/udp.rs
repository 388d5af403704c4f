//! memcached over UDP in a worker's round: datagrams become exchanges, and the worker answers them.
//!
//! # Invariants
//! I1: an exchange ends only in [`Worker::end_exchange`], unless it is cut.
//! I2: a datagram is executed by the worker that received it, or by the one that the router names;
//!     a worker that does not poll drops datagrams that still reach it.

use budget::{Books, Kind};
use counters::UdpDrop;
use dispatch::lanes::DEPTH_AT_FIRST;
use handlers::gather::Gather;
use handlers::memcached::udp::UdpPort;
use host::poller::Poller;
use runtime::connection::{Connection, Ending, ProtocolState};
use runtime::engine::Home;
use sessions::doors::{Access, Door};

use super::Worker;
use super::feed::feed;

/// Receives per round, at most, so that connections have their turn too. The rest is reported
/// again.
const BURSTS_MAX: usize = 8;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Receives the datagrams that have arrived, and executes them.
    pub(super) fn serve_udp(&mut self) {
        for _ in 0..BURSTS_MAX {
            let Some(mut udp) = self.udp.take() else { return };
            let count = udp.receive(self.core.counters());
            if count > 0 {
                self.take_burst(&mut udp, count);
            }
            self.udp = Some(udp);
            if count == 0 {
                return;
            }
            self.finish_touched();
            if self.core.is_spent() {
                return; // W1: unreceived datagrams wait as connections' bytes do.
            }
        }
    }

    /// Executes a burst as one batch.
    fn take_burst(&mut self, udp: &mut UdpPort, count: usize) {
        self.core.renew_passes(); // Behind the receive: acl A2.
        let slots: Vec<(usize, usize)> = (0..count)
            .filter_map(|at| self.open_exchange(udp, at).map(|slot| (slot, at)))
            .collect();
        let mut gather = Gather::new(&mut self.engine, &mut self.core);
        let mut fed = Vec::with_capacity(slots.len());
        for (slot, at) in &slots {
            gather.core.begin_part(count == 1);
            fed.push(feed(&mut gather, *slot, udp.asked(*at)));
        }
        gather.finish();
        drop(gather);
        self.look_at_slowness();
        self.engine.publish(&mut self.core);
        for ((slot, at), fed) in slots.into_iter().zip(fed) {
            // It may be cut by now.
            let Some(connection) = self.core.connections.get_mut(slot) else { continue };
            connection.input.need_bytes = fed.need_bytes;
            let rest = udp.asked(at).get(fed.consumed_bytes..).unwrap_or_default();
            if !rest.is_empty() {
                connection.input.held = rest.to_vec();
            }
        }
        udp.release();
    }

    fn open_exchange(&mut self, udp: &mut UdpPort, at: usize) -> Option<usize> {
        let counters = self.core.counters();
        counters.input_bytes.add(udp.landed(at).len() as u64);
        let is_dispatcher = self.member.plan().is_dispatcher(self.core.worker.index());
        let is_busy = !is_dispatcher || self.core.ledger.is_over_in(Kind::Udp); // I2.
        let refused = match self.core.doors.of(Door::MemcachedUdp) {
            Access::Closed | Access::AfterLogin => Some(UdpDrop::Auth),
            Access::LoopbackOnly if !udp.is_from_loopback(at) => Some(UdpDrop::Protected),
            _ => Some(UdpDrop::Busy).filter(|_| is_busy),
        };
        let mut connection = match refused.map_or_else(|| udp.open(at), Err) {
            Ok(connection) => connection,
            Err(reason) => {
                counters.udp.drop_datagram(reason);
                return None;
            }
        };
        if self.core.cluster.is_some() {
            connection.awaiting.depth_max = DEPTH_AT_FIRST;
        }
        let slot = self.core.connections.insert(connection);
        self.core.touch(slot);
        self.core.lend_buffer(slot);
        Some(slot)
    }

    /// Finishes an exchange that took part in the round: it is answered, or continues.
    #[cold]
    pub(super) fn finish_exchange(&mut self, slot: usize) {
        let connection = &mut self.core.connections[slot];
        connection.is_touched = false;
        if connection.ending != Ending::Now && self.goes_on(slot) {
            return self.book(slot);
        }
        let Some(connection) = self.core.connections.remove(slot) else { return };
        self.end_exchange(connection);
    }

    /// Whether more is to come before the answer.
    fn goes_on(&mut self, slot: usize) -> bool {
        let connection = &self.core.connections[slot];
        let unsent_bytes = connection.output.unsent_bytes();
        let is_allowed =
            connection.exchange.as_ref().is_none_or(|exchange| exchange.allows(unsent_bytes));
        let is_listing =
            matches!(&connection.protocol_state, ProtocolState::Memcached(it) if it.dump.is_some());
        if !is_allowed || (unsent_bytes > self.core.output_limit_bytes && !is_listing) {
            return false; // However it continued, it could not be answered.
        }
        if connection.ending == Ending::Resting {
            return true;
        }
        if !connection.awaiting.is_empty() || !connection.awaiting.may_go_on() {
            return true;
        }
        let input = &connection.input;
        let is_whole = !input.held.is_empty() && input.need_bytes <= input.held.len();
        if connection.ending == Ending::Open && is_whole {
            // After a pause all connections are looked at.
            if !connection.is_held {
                self.resumable.push(slot);
            }
            return true;
        }
        false
    }

    /// Whether a connection is a request that arrived by datagram: no more input follows.
    pub(super) fn is_exchange(&self, slot: usize) -> bool {
        self.core.connections[slot].exchange.is_some()
    }

    /// Answers an exchange, unless it was cut.
    pub(super) fn end_exchange(&mut self, mut connection: Connection) {
        self.engine.abandon(&mut self.core, &mut connection.awaiting);
        self.core.ledger.rebook(&mut connection.booked, Books::default());
        let Some(udp) = &mut self.udp else { return };
        let to = connection.exchange.as_ref().map(|exchange| exchange.to());
        if connection.ending != Ending::Now
            && let Some(exchange) = connection.exchange.take()
        {
            let counters = self.core.shared.counters(self.core.worker.index());
            udp.answer(&exchange, &mut connection.output, counters);
        }
        if let Some(buffer) = connection.output.take_buffer() {
            self.core.return_buffer(buffer);
        }
        udp.close(connection, to);
    }

    /// Steers datagrams to the threads that poll from now on.
    pub(super) fn steer_udp(&mut self, dispatcher_count: usize) {
        if let Some(udp) = self.udp.as_ref().filter(|_| self.core.worker.index() == 0) {
            udp.steer(dispatcher_count);
        }
        self.cut_exchanges();
    }

    /// Closes the UDP port; a client that waits for an answer asks again, and another worker
    /// receives it.
    pub(super) fn close_udp(&mut self) {
        self.cut_exchanges();
        if let Some(udp) = self.udp.take() {
            // It fails only if it is not polled.
            let _ = self.poller.remove(udp.as_fd());
            self.core.ledger.release(Kind::Udp, udp.held_bytes());
        }
    }

    fn cut_exchanges(&mut self) {
        if self.udp.is_none() {
            return;
        }
        for slot in self.core.connections.slots() {
            if self.core.connections[slot].exchange.is_some() {
                self.close(slot);
            }
        }
    }
}
