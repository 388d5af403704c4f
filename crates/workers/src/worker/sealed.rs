//! TLS connections: their reads, their sends, and the time limit of their handshake.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use budget::{Kind, Outgrown, Reservation};
use commands::output::Sent;
use host::poller::Poller;
use runtime::connection::{Connection, Ending};
use runtime::core::Core;
use runtime::engine::Home;
use sessions::clients::TooMany;
use sessions::tls::{HANDSHAKE_BYTES, Received, Stream, append, fill};

use super::accept::too_many_line;
use super::read::{READ_BYTES_MAX, arena_read_bytes};
use super::regions::Place;
use super::{Worker, evict, finish, read};

/// Bytes read from a socket at a time. Together with a record that had begun, they decrypt to less
/// than [`READ_BYTES_MAX`].
const SEALED_READ_BYTES: usize = 15 << 10;

/// A client whose handshake takes longer is cut off.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Handshakes that are under way, the oldest first. Some of them may have ended since.
#[derive(Default)]
pub(super) struct Handshakes(VecDeque<Handshake>);

impl Handshakes {
    /// Adds that of a TLS connection, unless it has ended.
    pub fn add(&mut self, slot: usize, connection: &Connection) {
        if connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            let (until, client_id) = (Instant::now() + HANDSHAKE_TIME_MAX, connection.client.id);
            self.0.push_back(Handshake { until, slot, client_id });
        }
    }

    /// Takes the oldest one.
    fn take_oldest(&mut self) -> Option<Handshake> {
        self.0.pop_front()
    }

    /// Takes one that takes too long.
    #[inline]
    fn take_late(&mut self, now: Instant) -> Option<Handshake> {
        let is_late = self.0.front().is_some_and(|first| first.until <= now);
        if is_late { self.0.pop_front() } else { None }
    }
}

struct Handshake {
    until: Instant,
    slot: usize,
    client_id: u64,
}

impl Handshake {
    /// Whether the handshake of this client, if it still has the slot, has not ended.
    fn is_unfinished(&self, core: &Core) -> bool {
        core.connections.get(self.slot).is_some_and(|connection| {
            let is_handshaking = connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
            connection.client.id == self.client_id && is_handshaking
        })
    }
}

/// The TLS state of a new connection of such a port; `None`: there is no room for it.
pub(super) fn begin<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    is_tls: bool,
) -> Option<Option<Box<Stream>>> {
    if !is_tls {
        return Some(None);
    }
    let booked = book_handshake(worker)?;
    let accepted = worker.core.shared.tls()?.accept(booked);
    accepted.ok().map(Box::new).map(Some)
}

/// Books a handshake. Where requests and replies of other clients leave no room for it, some of
/// those are closed first, as for any new connection; where handshakes fill their own part, the
/// oldest is.
fn book_handshake<E: Home, P: Poller>(worker: &mut Worker<E, P>) -> Option<Reservation> {
    let budget = Arc::clone(worker.core.shared.buffer_budget());
    let mut booked = Reservation::empty(&budget, Kind::Handshakes);
    let is_of_others = budget.has_part_for(Kind::Handshakes, HANDSHAKE_BYTES);
    if !booked.try_resize(HANDSHAKE_BYTES) && is_of_others {
        budget.note_refused_arrival();
        evict::close_clients(worker, Outgrown::Arrivals);
    }
    while !booked.try_resize(HANDSHAKE_BYTES) {
        if !crowd_out_handshake(worker) {
            return None;
        }
    }
    Some(booked)
}

/// Cuts the oldest unfinished handshake of this worker. Returns false if there is none.
#[cold]
fn crowd_out_handshake<E: Home, P: Poller>(worker: &mut Worker<E, P>) -> bool {
    while let Some(handshake) = worker.handshakes.take_oldest() {
        if handshake.is_unfinished(&worker.core) {
            worker.core.counters().tls.crowded_out.add(1);
            cut_off(worker, handshake.slot);
            return true;
        }
    }
    false
}

/// Cuts off clients whose handshake takes too long. A sleeping worker checks every second.
#[inline]
pub(super) fn cut_late<E: Home, P: Poller>(worker: &mut Worker<E, P>, now: Instant) {
    while let Some(handshake) = worker.handshakes.take_late(now) {
        if handshake.is_unfinished(&worker.core) {
            worker.core.counters().tls.late.add(1);
            cut_off(worker, handshake.slot);
        }
    }
}

/// Closes a connection. Its reason is counted before: a client that sees the end finds it in
/// the metrics.
#[cold]
fn cut_off<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    worker.core.connections[slot].ending = Ending::Now;
    finish::close(worker, slot);
}

/// Reads once into the arena and decrypts, as `read_arena` does for plain connections; returns how
/// much of the arena is used.
#[inline(never)]
pub(super) fn open_arena<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    used_bytes: usize,
) -> usize {
    let connection = &mut worker.core.connections[slot];
    let Some(tls) = &mut connection.tls else { return used_bytes };
    let held = &mut connection.input.held;
    let after_held = used_bytes + held.len();
    worker.regions.arena[used_bytes..after_held].copy_from_slice(held);
    let free = &mut worker.regions.arena[after_held..after_held + READ_BYTES_MAX];
    let (mut sealed, mut count) = ([0; SEALED_READ_BYTES], 0);
    let take = |reader: rustls::Reader<'_>| count += fill(reader, &mut free[count..]);
    // A connection that is read a last time has no later turn.
    let tight_bytes = arena_read_bytes(&worker.core.ledger);
    let sealed_bytes = if worker.is_draining { usize::MAX } else { tight_bytes };
    let sealed_bytes = sealed_bytes.min(SEALED_READ_BYTES);
    let received = tls.receive(&connection.socket, &mut sealed[..sealed_bytes], take);
    note_received(&mut worker.core, slot, &received, worker.is_draining);
    if count == 0 {
        return used_bytes;
    }
    worker.core.connections[slot].input.held = Vec::new();
    let place = Place::Arena { start: used_bytes, end: after_held + count };
    worker.regions.add(&worker.core, slot, place, count);
    after_held + count
}

/// The same into a long command's own buffer, at most about `bytes_max`; returns how much, and
/// whether there may be more.
pub(super) fn open_own<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    bytes_max: usize,
) -> (usize, bool) {
    let len_before = worker.core.connections[slot].input.held.len();
    let mut sealed = [0; SEALED_READ_BYTES];
    let (count, has_more) = loop {
        let Connection { tls, input, socket, .. } = &mut worker.core.connections[slot];
        let Some(tls) = tls else { return (0, false) };
        let take = |reader: rustls::Reader<'_>| append(reader, &mut input.held);
        let received = tls.receive(socket, &mut sealed, take);
        let is_whole = input.held.len() >= input.need_bytes;
        let count = input.held.len() - len_before;
        note_received(&mut worker.core, slot, &received, worker.is_draining);
        let may_have_more = matches!(received, Received::Sealed(SEALED_READ_BYTES)) && !is_whole;
        if !may_have_more || count >= bytes_max {
            break (count, may_have_more);
        }
    };
    read::end_own_read(worker, slot, len_before);
    (count, has_more)
}

fn note_received(core: &mut Core, slot: usize, received: &Received, is_draining: bool) {
    let counters = core.shared.counters(core.worker.index());
    let connection = &mut core.connections[slot];
    let Some(tls) = &mut connection.tls else { return };
    let (was_handshaking, has_ended) = (tls.is_handshaking(), tls.take_handshake());
    if has_ended {
        counters.tls.handshakes.add(1);
    }
    if was_handshaking && !tls.book() {
        counters.tls.crowded_out.add(1);
        if tls.is_handshaking() {
            core.shared.buffer_budget().note_refused_arrival();
            connection.ending = Ending::Now;
            return;
        }
        // It can be told: connections fill their part.
        let line = too_many_line(connection.client.protocol, TooMany::NoRoom);
        connection.output.append(|out| out.extend_from_slice(line));
        connection.ending = Ending::AfterFlush;
        return core.touch(slot);
    }
    match received {
        Received::Sealed(count) => {
            connection.input_ended |= is_draining && *count < SEALED_READ_BYTES;
        }
        Received::Nothing => connection.input_ended |= is_draining,
        Received::End => connection.input_ended = true,
        Received::Broken => connection.ending = Ending::Now,
        Received::Refused(error) => {
            tracing::debug!(client = %connection.client.peer, "TLS: {error}");
            counters.tls.refused.add(1);
            // A client that does not speak TLS would take an alert for a reply.
            if !is_plain(error) {
                tls.alert(connection.socket.as_fd());
            }
            connection.ending = Ending::Now;
        }
    }
}

/// Sends a connection's output, at most about `bytes_max`. A broken socket counts as sent.
#[inline]
pub(super) fn send_unsent(
    connection: &mut Connection,
    bytes_max: usize,
    sent_bytes: &mut u64,
) -> Sent {
    let Connection { tls, output, socket, .. } = connection;
    let sent = match tls {
        None if bytes_max < usize::MAX => output.send_slice(socket.as_fd(), bytes_max, sent_bytes),
        None => output.send(socket.as_fd(), sent_bytes),
        Some(tls) => tls.send(output, socket.as_fd(), bytes_max, sent_bytes),
    };
    sent.unwrap_or_else(|_| {
        connection.ending = Ending::Now;
        Sent::All
    })
}

/// Whether the first bytes were no TLS record.
fn is_plain(error: &rustls::Error) -> bool {
    use rustls::{Error, InvalidMessage};
    matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType))
}
