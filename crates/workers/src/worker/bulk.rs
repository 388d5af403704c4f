//! Long replies and long commands (K16): in each round a little of them moves, in turn, behind all
//! small work.
//!
//! ```text
//!  queue: [ 3 sends | 7 receives | 9 sends ] ◀── a long reply; bytes of a long command are there
//!             │
//!             │ one system call of it, within the round's bytes
//!             ├▶ there is more:            to the end of the queue
//!             ├▶ the socket is full/empty: the poller reports it, then to the end of the queue
//!             └▶ that was all:             its next command
//! ```
//!
//! # Invariants
//! B1: no system call moves more than [`CALL_BYTES_MAX`] of a client's bytes.
//! B2: a round moves the [`Work::bulk_bytes_max`] of the work before it: bulk gets its part of the
//!     time beside costly commands, and beside cheap ones small requests wait for one such call. A
//!     command that becomes whole in this way is run at once, and its bytes count as moved.
//!     Where less than an eighth of the client buffers is left, a round moves what it may at most:
//!     what waits here holds them.
//! B3: between rounds the poller does not report what is in the queue.
//! B4: each moves up to that many bytes in its turn, and at least half as many if it has them, so
//!     all that wait get about as much.
//!
//! # Trade-offs
//! A reply of 1 MB leaves in 16 calls instead of one, with a look at the poller between them
//! (decision 0109).
//!
//! # References
//! Minos §3: small requests do not wait for large ones.
//!
//! [`Work::bulk_bytes_max`]: commands::work::Work::bulk_bytes_max

use std::collections::VecDeque;

use commands::output::{CALL_BYTES_MAX, Sent};
use commands::work::BULK_BYTES_MAX;
use counters::BulkCells;
use host::poller::{Interest, Poller};
use runtime::connection::{Connection, Ending};
use runtime::core::Core;
use runtime::engine::Home;
use socket2::SockRef;

use super::read::HELD_BYTES_MAX;
use super::{Worker, finish, lend, read, sealed};

/// A round ends with fewer bytes left: a system call for few costs as much as one for many.
const CALL_BYTES_MIN: usize = CALL_BYTES_MAX / 2;

/// A socket takes no more of a long reply than this beyond what is on its way: what it has taken
/// is outside of the budget, and the connection's next reply waits behind it.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// A system call costs at least as much as this many bytes.
const MOVED_BYTES_MIN: usize = 4 << 10;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To send its output.
    Send,
    /// To receive more of a long command.
    Receive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    slot: usize,
    client_id: u64,
    way: Way,
}

/// The queue of a worker.
#[derive(Default)]
pub(super) struct Bulk {
    queue: VecDeque<Place>,
    /// Those that came in this round: the poller still reports them.
    fresh: Vec<Place>,
    /// What the last round moved, or the work of commands that became whole by it.
    moved_bytes: u64,
}

impl Bulk {
    /// At the start of a round: what the round before it moved, while requests came.
    #[inline]
    pub fn note_waits(&mut self, counters: &BulkCells, has_requests: bool) {
        let bytes = std::mem::take(&mut self.moved_bytes);
        if bytes > 0 && has_requests {
            counters.add(bytes);
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Puts a connection at the end of the queue, unless it is there.
#[cold]
pub(super) fn add<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize, way: Way) {
    let connection = &mut worker.core.connections[slot];
    if way == Way::Send && !std::mem::replace(&mut connection.in_bulk.is_limited, true) {
        // Sockets that are not TCP's refuse it.
        let _ = SockRef::from(&connection.socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }
    if !std::mem::replace(flag(connection, way), true) {
        let place = Place { slot, client_id: connection.client.id, way };
        worker.bulk.queue.push_back(place);
        worker.bulk.fresh.push(place);
    }
}

fn flag(connection: &mut Connection, way: Way) -> &mut bool {
    match way {
        Way::Send => &mut connection.in_bulk.sends,
        Way::Receive => &mut connection.in_bulk.receives,
    }
}

/// The connection that has this place, if it still does.
fn connection_at(core: &mut Core, place: Place) -> Option<&mut Connection> {
    let connection = core.connections.get_mut(place.slot)?;
    let is_it = connection.client.id == place.client_id && *flag(connection, place.way);
    is_it.then_some(connection)
}

/// Moves this round's bytes (B2): the queue's and those of lent sockets, each first in every other
/// round.
pub(super) fn serve<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let mut left_bytes = match worker.core.ledger.is_tight() {
        true => BULK_BYTES_MAX,
        false => worker.core.work().bulk_bytes_max(),
    };
    let are_loans_first = worker.core.turn.number().is_multiple_of(2);
    if E::ROUTES && are_loans_first {
        left_bytes = serve_loans(worker, left_bytes);
    }
    if !worker.bulk.is_empty() {
        left_bytes = serve_queue(worker, left_bytes);
    }
    if E::ROUTES && !are_loans_first {
        serve_loans(worker, left_bytes);
    }
}

fn serve_loans<E: Home, P: Poller>(worker: &mut Worker<E, P>, bytes_max: usize) -> usize {
    let left_bytes = lend::send_slices(worker, bytes_max);
    worker.bulk.moved_bytes += (bytes_max - left_bytes) as u64;
    left_bytes
}

#[cold]
fn serve_queue<E: Home, P: Poller>(worker: &mut Worker<E, P>, mut left_bytes: usize) -> usize {
    while left_bytes >= CALL_BYTES_MIN
        && let Some(place) = worker.bulk.queue.pop_front()
    {
        if connection_at(&mut worker.core, place).is_none() {
            continue;
        }
        let before = worker.core.work();
        let bytes_max = left_bytes.min(CALL_BYTES_MAX);
        let (moved_bytes, has_more) = match place.way {
            Way::Send => send(worker, place.slot, bytes_max),
            Way::Receive => receive(worker, place.slot, bytes_max),
        };
        if has_more {
            worker.bulk.queue.push_back(place);
        } else if let Some(connection) = connection_at(&mut worker.core, place) {
            *flag(connection, place.way) = false;
        }
        let has_command = !worker.regions.all.is_empty();
        if has_command {
            worker.gather(0); // It is there as a whole.
        }
        worker.core.touch(place.slot);
        finish::finish_touched(worker);
        let cost_bytes = match has_command {
            true => moved_bytes.max(worker.core.work().bytes_since(before) as usize),
            false => moved_bytes,
        };
        let cost_bytes = cost_bytes.max(MOVED_BYTES_MIN);
        worker.bulk.moved_bytes += cost_bytes as u64;
        left_bytes = left_bytes.saturating_sub(cost_bytes);
    }
    stop_polling(worker);
    left_bytes
}

/// B3.
fn stop_polling<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let mut fresh = std::mem::take(&mut worker.bulk.fresh);
    for place in fresh.drain(..) {
        let Some(connection) = connection_at(&mut worker.core, place) else { continue };
        let Interest { read, write } = connection.interest;
        let interest = match place.way {
            Way::Send => Interest { read, write: false },
            Way::Receive => Interest { read: false, write },
        };
        finish::poll_for(worker, place.slot, interest);
    }
    worker.bulk.fresh = fresh;
}

/// Sends from a long reply; returns how much, and whether the socket takes more of it.
fn send<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    bytes_max: usize,
) -> (usize, bool) {
    let connection = &mut worker.core.connections[slot];
    if connection.is_lent || matches!(connection.ending, Ending::Now | Ending::Resting) {
        return (0, false);
    }
    let (sent, sent_bytes) = finish::send_some(worker, slot, bytes_max);
    if sent == Sent::Blocked {
        let interest = Interest { write: true, ..worker.core.connections[slot].interest };
        finish::poll_for(worker, slot, interest);
    }
    (sent_bytes, sent == Sent::Part)
}

/// Receives more of a long command; returns how much, and whether there may be more of it.
fn receive<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    bytes_max: usize,
) -> (usize, bool) {
    let output_limit_bytes = worker.core.output_limit_bytes;
    let connection = &worker.core.connections[slot];
    let is_read = connection.ending == Ending::Open
        && !connection.input_ended
        && !connection.is_starved
        && connection.input.need_bytes > HELD_BYTES_MAX
        && connection.output.unsent_bytes() <= output_limit_bytes;
    if !is_read {
        return (0, false);
    }
    if worker.core.ledger.is_over() {
        worker.starved.add(&mut worker.core, slot);
        return (0, false);
    }
    worker.core.lend_buffer(slot);
    match worker.core.connections[slot].tls.is_some() {
        true => sealed::open_own(worker, slot, bytes_max),
        false => read::read_own(worker, slot, bytes_max),
    }
}
