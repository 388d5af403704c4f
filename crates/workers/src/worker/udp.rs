//! memcached over UDP in a worker's round: datagrams become exchanges, and the worker answers them.
//!
//! # Invariants
//! I1: an exchange ends only in [`end_exchange`], unless it is cut.
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

use super::feed::feed;
use super::{Worker, finish, slow};

/// Receives per round, at most, so that connections have their turn too. The rest is reported
/// again.
const BURSTS_MAX: usize = 8;

/// Receives the datagrams that have arrived, and executes them.
pub(super) fn serve<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    for _ in 0..BURSTS_MAX {
        let Some(mut udp) = worker.udp.take() else { return };
        let count = udp.receive(worker.core.counters());
        if count > 0 {
            take_burst(worker, &mut udp, count);
        }
        worker.udp = Some(udp);
        if count == 0 {
            return;
        }
        finish::finish_touched(worker);
        if worker.core.is_spent() {
            return; // W1: unreceived datagrams wait as connections' bytes do.
        }
    }
}

/// Executes a burst as one batch.
fn take_burst<E: Home, P: Poller>(worker: &mut Worker<E, P>, udp: &mut UdpPort, count: usize) {
    worker.core.renew_passes(); // Behind the receive: acl A2.
    let slots: Vec<(usize, usize)> =
        (0..count).filter_map(|at| open_exchange(worker, udp, at).map(|slot| (slot, at))).collect();
    let mut gather = Gather::new(&mut worker.engine, &mut worker.core);
    let mut fed = Vec::with_capacity(slots.len());
    for (slot, at) in &slots {
        gather.core.begin_part(count == 1);
        fed.push(feed(&mut gather, *slot, udp.asked(*at)));
    }
    gather.finish();
    drop(gather);
    slow::look(worker);
    worker.engine.publish(&mut worker.core);
    for ((slot, at), fed) in slots.into_iter().zip(fed) {
        // It may be cut by now.
        let Some(connection) = worker.core.connections.get_mut(slot) else { continue };
        connection.input.need_bytes = fed.need_bytes;
        let rest = udp.asked(at).get(fed.consumed_bytes..).unwrap_or_default();
        if !rest.is_empty() {
            connection.input.held = rest.to_vec();
        }
    }
    udp.release();
}

fn open_exchange<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    udp: &mut UdpPort,
    at: usize,
) -> Option<usize> {
    let counters = worker.core.counters();
    counters.input_bytes.add(udp.landed(at).len() as u64);
    let is_dispatcher = worker.roles.is_dispatcher();
    let is_busy = !is_dispatcher || worker.core.ledger.is_over_in(Kind::Udp); // I2.
    let refused = match worker.core.doors.of(Door::MemcachedUdp) {
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
    if worker.core.cluster.is_some() {
        connection.awaiting.depth_max = DEPTH_AT_FIRST;
    }
    let slot = worker.core.connections.insert(connection);
    worker.core.touch(slot);
    worker.core.lend_buffer(slot);
    Some(slot)
}

/// Finishes an exchange that took part in the round: it is answered, or continues.
#[cold]
pub(super) fn finish_exchange<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &mut worker.core.connections[slot];
    connection.is_touched = false;
    if connection.ending != Ending::Now && goes_on(worker, slot) {
        return finish::book(worker, slot);
    }
    let Some(connection) = worker.core.connections.remove(slot) else { return };
    end_exchange(worker, connection);
}

/// Whether more is to come before the answer.
fn goes_on<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) -> bool {
    let connection = &worker.core.connections[slot];
    let unsent_bytes = connection.output.unsent_bytes();
    let is_allowed =
        connection.exchange.as_ref().is_none_or(|exchange| exchange.allows(unsent_bytes));
    let is_listing =
        matches!(&connection.protocol_state, ProtocolState::Memcached(it) if it.dump.is_some());
    if !is_allowed || (unsent_bytes > worker.core.output_limit_bytes && !is_listing) {
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
            worker.resumable.push(slot);
        }
        return true;
    }
    false
}

/// Answers an exchange, unless it was cut.
pub(super) fn end_exchange<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    mut connection: Connection,
) {
    worker.engine.abandon(&mut worker.core, &mut connection.awaiting);
    worker.core.ledger.rebook(&mut connection.booked, Books::default());
    let Some(udp) = &mut worker.udp else { return };
    let to = connection.exchange.as_ref().map(|exchange| exchange.to());
    if connection.ending != Ending::Now
        && let Some(exchange) = connection.exchange.take()
    {
        let counters = worker.core.shared.counters(worker.core.worker.index());
        udp.answer(&exchange, &mut connection.output, counters);
    }
    if let Some(buffer) = connection.output.take_buffer() {
        worker.core.return_buffer(buffer);
    }
    udp.close(connection, to);
}

/// Steers datagrams to the threads that poll from now on.
pub(super) fn steer<E: Home, P: Poller>(worker: &mut Worker<E, P>, dispatcher_count: usize) {
    if let Some(udp) = worker.udp.as_ref().filter(|_| worker.core.worker.index() == 0) {
        udp.steer(dispatcher_count);
    }
    cut_exchanges(worker);
}

/// Closes the UDP port; a client that waits for an answer asks again, and another worker
/// receives it.
pub(super) fn close<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    cut_exchanges(worker);
    if let Some(udp) = worker.udp.take() {
        // It fails only if it is not polled.
        let _ = worker.poller.remove(udp.as_fd());
        worker.core.ledger.release(Kind::Udp, udp.held_bytes());
    }
}

fn cut_exchanges<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.udp.is_none() {
        return;
    }
    for slot in worker.core.connections.slots() {
        if worker.core.connections[slot].exchange.is_some() {
            finish::close(worker, slot);
        }
    }
}
