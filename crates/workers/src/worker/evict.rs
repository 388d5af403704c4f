//! Closes clients whose memory others need: while buffers are over their limit, or leave no room
//! for new connections.
//!
//! # Invariants
//! V1: a client is told why it is closed, if that can be the whole of a reply.
//! V2: workers whose clients hold the memory are woken, at most once in [`WAKE_EVERY`].

use std::time::{Duration, Instant};

use budget::{Kind, Outgrown};
use counters::Dialect;
use host::poller::Poller;
use runtime::connection::Ending;
use runtime::core::Core;
use runtime::engine::Home;
use rustix::net::{SendFlags, send};

use super::starve::is_unfinished;
use super::{Worker, finish, sealed};

/// How often other workers are woken because of the memory that their clients hold.
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// A client that reads takes some bytes of its replies within this time, and one that sends a
/// command sends some of it.
const STALLED_MS_MIN: u64 = 500;

/// A client that holds less is closed after those that hold more, and never for the sake of new
/// connections: it may be in the middle of a small command.
const WORTH_EVICTING_BYTES: u64 = 4 << 10;

/// As buffers fill, clients are closed one by one: one line of the log reports many.
const LOG_EVICTIONS_EVERY: Duration = Duration::from_secs(10);

/// What a worker remembers of the clients that it has closed.
#[derive(Default)]
pub(super) struct Evictions {
    /// When the log last reported closed clients, and how many closed since.
    logged_at: Option<Instant>,
    closed_unlogged: u64,
    /// When other workers were last woken because they hold more.
    woke_others_at: Option<Instant>,
}

impl Evictions {
    /// Reports closed clients, now or together with later ones.
    fn log(&mut self, closed_count: u64, outgrown: Outgrown) {
        self.closed_unlogged += closed_count;
        let may_log = self.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVICTIONS_EVERY);
        if closed_count > 0 && may_log {
            self.logged_at = Some(Instant::now());
            let closed_count = std::mem::take(&mut self.closed_unlogged);
            let of = outgrown.name();
            tracing::warn!(closed_count, of, "buffers are full: closed the clients that held most");
        }
    }

    /// Wakes other workers, because their clients hold the memory that is still over the limit.
    /// They may sleep, as their clients do not read, and would notice a second later. Until then no
    /// client is read here.
    pub fn wake_those_that_hold_more(&mut self, core: &Core) {
        let now = Instant::now();
        let was_lately = |at: Instant| now.duration_since(at) < WAKE_EVERY;
        if core.ledger.outgrown().is_none() || self.woke_others_at.is_some_and(was_lately) {
            return;
        }
        self.woke_others_at = Some(now);
        wake_others(core);
    }
}

/// Wakes all workers but this one.
pub(super) fn wake_others(core: &Core) {
    let others = 0..core.shared.config().threads;
    others.filter(|other| *other != core.worker.index()).for_each(|other| core.shared.wake(other));
}

/// Closes clients because the buffers, or those of one kind, are over their limit or leave no
/// room for new connections, so that the others are served (as Redis evicts clients). First go
/// clients that have not logged in, then those that have stalled in a reply or in a command,
/// then those that do not read their replies, then those with the most unfinished input (of a
/// part of the buffers: of those that hold more than a little, those silent for longest), at
/// once.
#[cold]
pub(super) fn close_clients<E: Home, P: Poller>(worker: &mut Worker<E, P>, outgrown: Outgrown) {
    let worker_count = worker.core.shared.config().threads;
    let (connections, now) = (&worker.core.connections, worker.core.now);
    let guilt = |slot: usize| {
        let connection = &connections[slot];
        let held = connection.booked.iter().filter(|(kind, _)| outgrown.is_of(*kind));
        let held_bytes: u64 = held.map(|(_, bytes)| bytes).sum();
        let is_worth_it = held_bytes >= WORTH_EVICTING_BYTES;
        let silent_ms = now.0.saturating_sub(connection.client.last_active_at().0);
        // A connection that waits for room is not read, whatever its client sends.
        let is_half = is_unfinished(connection) && !connection.is_starved;
        let has_stalled = (connection.interest.write || is_half) && silent_ms >= STALLED_MS_MIN;
        let is_first = (connection.is_stranger(), has_stalled, connection.interest.write);
        // Of a part, a stalled half of a command goes before one whose bytes still arrive.
        let stalled_ms = if outgrown == Outgrown::All { 0 } else { silent_ms };
        let helps = if outgrown == Outgrown::Arrivals { is_worth_it } else { held_bytes > 0 };
        helps.then_some((is_first, is_worth_it, stalled_ms, held_bytes, slot))
    };
    let mut guilty: Vec<_> = connections.slots().into_iter().filter_map(guilt).collect();
    guilty.sort_unstable();
    let mut closed_count = 0;
    while worker.core.ledger.is_to_shrink(outgrown, worker_count)
        && let Some((.., slot)) = guilty.pop()
    {
        closed_count += 1;
        let kind = match outgrown {
            Outgrown::All => Kind::Small,
            Outgrown::Kind(kind) => kind,
            Outgrown::Arrivals => Kind::Connections,
        };
        worker.core.shared.buffer_budget().note_refusal(kind);
        say_evicted(worker, slot);
        finish::close(worker, slot);
    }
    worker.evictions.log(closed_count, outgrown);
}

/// Tells a client that is about to be closed the reason, if that can be the whole of a reply:
/// nothing may stand before it.
fn say_evicted<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &mut worker.core.connections[slot];
    let is_next = connection.output.is_empty() && connection.awaiting.is_empty();
    let is_handshaking = connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
    if !is_next || is_handshaking || connection.exchange.is_some() {
        return;
    }
    let binary = handlers::memcached::binary::unfinished(connection);
    let line: &[u8] = match connection.client.protocol {
        Dialect::Resp => {
            b"-ERR client buffers are full: closed the clients that hold most of them, \
              a larger --memory has more room\r\n"
        }
        Dialect::Memcached => {
            b"SERVER_ERROR out of memory: client buffers are full: closed the clients that \
              hold most of them, a larger --memory has more room\r\n"
        }
    };
    let reply = binary.as_deref().unwrap_or(line);
    // It fits an empty socket buffer; if the client has left, its loss does no harm.
    if connection.tls.is_some() {
        connection.output.append(|out| out.extend_from_slice(reply));
        sealed::send_unsent(connection, usize::MAX, &mut 0);
    } else {
        let _ = send(&connection.socket, reply, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    // What it has sent is discarded: otherwise the system would discard the reply.
    connection.ending = Ending::AfterFlush;
}
