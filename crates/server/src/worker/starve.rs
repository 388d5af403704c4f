//! Full client buffers: which connections wait, are refused, are closed.
//!
//! ```text
//!  large command, no room ─▶ starved: not read ─▶ room: continues
//!                                              ├▶ its client has left: closed
//!                                              ├▶ no room for a while: it is put aside for the
//!                                              │  shortest command, and the slow are refused
//!                                              └▶ no room for long: those that wait longest
//!                                                 are refused
//! ```
//!
//! # Invariants
//! I1: a starved connection is in `Starved`. It is not read, so nothing else reports its end.
//! I2: while a command waits, no other keeps room that it fills more slowly than it takes to send
//!     the whole within the longest wait, on any worker.

mod pace;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{SendFlags, send};

use self::pace::{Holder, Paces};
use super::Worker;
use super::read::{HELD_BYTES_MAX, wanted_bytes};
use crate::budget::{Kind, Outgrown};
use crate::connection::{Connection, Ending};
use crate::counters::Dialect;
use crate::engine::Home;
use crate::poller::Poller;
use crate::resp::GivenUp;

/// How often waiting connections are checked for clients that have left.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often other workers are woken because of the memory that their clients hold.
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// A client that reads takes some bytes of its replies within this time, and one that sends a
/// command sends some of it.
const STALLED_MS_MIN: u64 = 500;

/// After this part of the longest wait, room is put aside for the shortest command that waits, and
/// taken from clients that hold half of a command ...
const LATE_PART: u32 = 16;

/// ... if they have been too slow for this part and so many looks in a row found no room, ...
const SLOW_PART: u32 = 4;
const SLOW_LOOKS: u32 = 2;

/// ... or if they wait themselves, and so many looks in a row found no room.
const WAITING_LOOKS: u32 = 20;

/// A command longer than this part of the buffers waits until its room is free at once.
const PUT_ASIDE_PART: u64 = 16;

const PUT_ASIDE_STEP_BYTES: u64 = 64 << 10;

/// A client that holds less is closed after those that hold more, and never for the sake of new
/// connections: it may be in the middle of a small command.
const WORTH_EVICTING_BYTES: u64 = 4 << 10;

/// As buffers fill, clients are closed one by one: one line of the log reports many.
const LOG_EVICTIONS_EVERY: Duration = Duration::from_secs(10);

/// The connections that wait for room in the buffers.
pub(super) struct Starved {
    /// Connections that are not read until there is room.
    slots: Vec<usize>,
    since: Option<Instant>,
    looked_at: Instant,
    /// When connections that hold pins were last examined.
    looked_at_pins: Instant,
    /// When other workers were last woken because they hold more.
    woke_others_at: Option<Instant>,
    /// How fast the commands arrive that have room.
    paces: Paces,
    /// When a waiting connection was last given room, and the number of looks since then.
    fed_at: Option<Instant>,
    looks_in_vain: u32,
    /// When the log last reported closed clients, and how many closed since.
    logged_at: Option<Instant>,
    closed_unlogged: u64,
}

impl Starved {
    pub(super) fn new(now: Instant) -> Starved {
        Starved {
            slots: Vec::new(),
            since: None,
            looked_at: now,
            looked_at_pins: now,
            woke_others_at: None,
            paces: Paces::default(),
            fed_at: None,
            looks_in_vain: 0,
            logged_at: None,
            closed_unlogged: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl<E: Home, P: Poller> Worker<E, P> {
    /// Refuses a command that can never be buffered: it is skipped if its end is known.
    pub(super) fn refuse_too_large(&mut self, slot: usize) {
        let connection = &self.core.connections[slot];
        let may_answer = connection.awaiting.is_empty() || self.engine.can_refuse();
        let given_up = if may_answer { self.core.give_up(slot) } else { GivenUp::Endless };
        let limit_bytes = self.core.shared.buffer_budget().limit_bytes();
        let reply = format!(
            "-ERR a command is larger than the client buffers of {limit_bytes} bytes (--memory)\r\n"
        );
        match given_up {
            GivenUp::Answered => self.say_refused(slot, reply.as_bytes()),
            GivenUp::Quiet => self.core.touch(slot),
            GivenUp::Endless => self.refuse_unfinished(slot, reply.as_bytes()),
        }
    }

    /// Refuses a long command of a client that has not logged in, or one without room.
    pub(super) fn refuse_stranger(&mut self, slot: usize) {
        self.refuse_unfinished(
            slot,
            b"-NOAUTH Authentication required: no room for this command before it\r\n",
        );
    }

    /// Answers a command that has not arrived as a whole, and closes.
    fn refuse_unfinished(&mut self, slot: usize, resp_reply: &[u8]) {
        self.core.counters().protocol_errors.add(1);
        let connection = &mut self.core.connections[slot];
        let reply: &[u8] = match connection.client.protocol {
            Dialect::Resp => resp_reply,
            Dialect::Memcached => b"SERVER_ERROR out of memory reading request\r\n",
        };
        let binary = crate::memcached::binary::unfinished(connection);
        let reply = binary.as_deref().unwrap_or(reply);
        connection.ending = Ending::AfterFlush;
        self.say_refused(slot, reply);
    }

    /// Adds a reply behind those that the connection awaits, if there is a place for it.
    fn say_refused(&mut self, slot: usize, reply: &[u8]) {
        let connection = &mut self.core.connections[slot];
        if connection.awaiting.is_empty() {
            connection.output.append(|out| out.extend_from_slice(reply));
        } else if self.engine.can_refuse() {
            self.engine.say(&mut self.core, slot, |out| out.extend_from_slice(reply));
        }
        self.core.touch(slot);
    }

    /// Makes readers of large values wait while a quarter of the log is pinned.
    #[inline]
    pub(super) fn starve_short_of_pins(&mut self) {
        while let Some(slot) = self.core.short_of_pins.pop() {
            self.starve(slot);
        }
    }

    /// While a quarter of the log is pinned, or replies have all but filled their share of the
    /// buffers: closes the connections that hold some of it and whose clients have not read for
    /// long, so that others get room and the log can be written.
    pub(super) fn close_reply_holders(&mut self) {
        if self.core.shared.store().is_pin_share_reached() {
            self.close_stalled_holders("a quarter of the log is pinned");
        } else if self.core.ledger.is_tight_in(Kind::Replies) {
            self.close_stalled_holders("replies have filled their part of the client buffers");
        }
    }

    #[cold]
    fn close_stalled_holders(&mut self, why: &str) {
        let now = Instant::now();
        if now.duration_since(self.starved.looked_at_pins) < LOOK_EVERY {
            return;
        }
        self.starved.looked_at_pins = now;
        let now_ms = self.core.now.0;
        let time_max = self.core.shared.config().starved_time_max;
        let has_stalled = |connection: &Connection| {
            let silent_ms = now_ms.saturating_sub(connection.client.last_active_at().0);
            // Booked bytes alone may be the buffer kept for its next reply, or a reply still in the
            // making.
            let is_unread = connection.interest.write && connection.booked.of(Kind::Replies) > 0;
            (is_unread || connection.output.pinned_bytes_max() > 0)
                && u128::from(silent_ms) >= time_max.as_millis()
        };
        let mut slots = self.core.connections.slots();
        slots.retain(|slot| has_stalled(&self.core.connections[*slot]));
        let closed_count = slots.len();
        for slot in slots {
            self.core.counters().replies_refused.add(1);
            self.close(slot);
        }
        if closed_count > 0 {
            let seconds = time_max.as_secs();
            tracing::warn!(closed_count, "{why}: closed clients that read nothing for {seconds} s");
        }
    }

    /// Stops reading a connection until there is room in the buffers.
    pub(super) fn starve(&mut self, slot: usize) {
        let connection = &mut self.core.connections[slot];
        if !connection.is_starved {
            connection.is_starved = true;
            connection.starved_at.get_or_insert_with(Instant::now);
            self.starved.slots.push(slot);
            self.starved.since.get_or_insert_with(Instant::now);
        }
    }

    /// Gives waiting connections room, if there is some.
    pub(super) fn feed_starved(&mut self, now: Instant) {
        let is_asked = self.core.shared.buffer_budget().asked_bytes(self.core.now) > 0;
        if self.starved.is_empty() && !is_asked {
            return;
        }
        let since = self.starved.since.unwrap_or(now);
        let is_late = now.duration_since(since) >= self.core.shared.config().starved_time_max;
        let mut has_refused = false;
        if now.duration_since(self.starved.looked_at) >= LOOK_EVERY {
            self.starved.looked_at = now;
            self.starved.looks_in_vain += 1;
            self.close_gone();
            has_refused = self.make_room(now);
            self.finish_touched();
        }
        self.core.ledger.set_retrying(true);
        for slot in std::mem::take(&mut self.starved.slots) {
            let Some(connection) = self.core.connections.get_mut(slot) else { continue };
            if !connection.is_starved {
                continue;
            }
            connection.is_starved = false;
            let needs_own = connection.input.need_bytes > HELD_BYTES_MAX;
            let is_short =
                connection.is_large_reader && self.core.shared.store().is_pin_share_reached();
            if is_short || self.core.ledger.is_over() {
                self.starve(slot);
            } else if !needs_own || self.reserve_own(slot) {
                self.core.connections[slot].starved_at = None;
                (self.starved.fed_at, self.starved.looks_in_vain) = (Some(now), 0);
                self.core.touch(slot);
            }
        }
        self.core.ledger.set_retrying(false);
        if self.starved.is_empty() {
            (self.starved.since, self.starved.looks_in_vain) = (None, 0);
        } else if is_late && self.starved.looked_at == now && !has_refused {
            // After a refusal the next look shows whether those that got the room have stalled too.
            self.refuse_late(now);
        }
        self.finish_touched();
    }

    /// Makes room for the shortest command that has waited for a while, here or at a worker that
    /// has asked for it; returns whether a client was refused. Other commands take their room bit
    /// by bit as they arrive, so that enough for a whole one may never be free at once.
    fn make_room(&mut self, now: Instant) -> bool {
        let time_max = self.core.shared.config().starved_time_max;
        let slow = self.slow_holders(time_max);
        let shortest = self.shortest_late(now, time_max);
        let own_bytes = shortest.map_or(0, |slot| self.put_aside(slot));
        let asked_bytes = self.core.shared.buffer_budget().asked_bytes(self.core.now);
        let missing_bytes = own_bytes.max(asked_bytes);
        let looks_in_vain = self.starved.looks_in_vain;
        let has_waited = asked_bytes > 0 || looks_in_vain >= SLOW_LOOKS;
        let connections = &self.core.connections;
        let may_yield = |slot: &usize| {
            let connection = &connections[*slot];
            let is_in_the_way = match connection.is_starved {
                true => looks_in_vain >= WAITING_LOOKS,
                false => has_waited && slow.contains(slot),
            };
            Some(*slot) != shortest && is_unfinished(connection) && is_in_the_way
        };
        let mut holders = connections.slots();
        holders.retain(may_yield);
        holders.sort_by_key(|slot| std::cmp::Reverse(connections[*slot].booked.of(Kind::Bodies)));
        let mut freed_bytes = 0;
        let enough = holders.iter().take_while(|slot| {
            let is_short = freed_bytes < missing_bytes;
            freed_bytes += connections[**slot].booked.of(Kind::Bodies);
            is_short
        });
        let refused_count = enough.count();
        for slot in &holders[..refused_count] {
            self.refuse_unfinished(
                *slot,
                b"-ERR Protocol error: unfinished command while the client buffers are full\r\n",
            );
        }
        if freed_bytes < own_bytes && looks_in_vain >= SLOW_LOOKS {
            self.ask_others(own_bytes - freed_bytes);
        }
        refused_count > 0
    }

    /// Asks the other workers for room that their clients hold.
    fn ask_others(&self, missing_bytes: u64) {
        let shared = &self.core.shared;
        shared.buffer_budget().ask_for(missing_bytes, self.core.now);
        let others = 0..shared.config().threads;
        others.filter(|other| *other != self.core.worker.index()).for_each(|other| {
            shared.wake(other);
        });
    }

    /// The connections whose half of a command arrives too slowly to keep its room.
    fn slow_holders(&mut self, time_max: Duration) -> Vec<usize> {
        let connections = &self.core.connections;
        let holder = |slot: usize| {
            let connection = &connections[slot];
            let is_holder = is_unfinished(connection) && !connection.is_starved;
            is_holder.then(|| Holder {
                slot,
                client_id: connection.client.id,
                held_bytes: connection.input.held.len() as u64,
                room_bytes: connection.input.held.capacity() as u64,
                active_at_ms: connection.client.last_active_at().0,
            })
        };
        let holders: Vec<Holder> = connections.slots().into_iter().filter_map(holder).collect();
        let window_ms = (time_max / SLOW_PART).as_millis() as u64;
        self.starved.paces.slow(&holders, self.core.now.0, window_ms)
    }

    /// The connection whose command is the shortest of those that have waited for a while, and
    /// comes first when room is given.
    fn shortest_late(&mut self, now: Instant, time_max: Duration) -> Option<usize> {
        // Connections that were closed in this round are still among the slots.
        let connections = &self.core.connections;
        let waiting = self.starved.slots.iter().enumerate().filter_map(|(at, slot)| {
            let connection = connections.get(*slot)?;
            let is_late = now.duration_since(connection.starved_at?) >= time_max / LATE_PART;
            let waits = connection.is_starved && !waits_for_pins(connection);
            (is_late && waits).then_some((wanted_bytes(&connection.input), *slot, at))
        });
        let (_, slot, at) = waiting.min()?;
        self.starved.slots.swap(0, at);
        Some(slot)
    }

    /// Books free room for a waiting command, as far as there is some and the command is short;
    /// returns how many bytes it still lacks.
    fn put_aside(&mut self, slot: usize) -> u64 {
        let connection = &mut self.core.connections[slot];
        let want_bytes = wanted_bytes(&connection.input) as u64;
        let mut missing_bytes = want_bytes.saturating_sub(connection.booked.of(Kind::Bodies));
        let limit_bytes = self.core.shared.buffer_budget().limit_bytes();
        let is_short = want_bytes <= limit_bytes / PUT_ASIDE_PART;
        // Others wait until the buffers are below their limit.
        if !is_short || connection.input.need_bytes <= HELD_BYTES_MAX {
            return missing_bytes;
        }
        self.core.ledger.set_retrying(true);
        while missing_bytes > 0 {
            let step_bytes = missing_bytes.min(PUT_ASIDE_STEP_BYTES);
            if !self.core.ledger.try_reserve(Kind::Bodies, step_bytes) {
                break;
            }
            connection.booked.add(Kind::Bodies, step_bytes);
            missing_bytes -= step_bytes;
        }
        self.core.ledger.set_retrying(false);
        missing_bytes
    }

    /// Refuses the older half of the connections that have waited for too long, so that their
    /// memory is room for the others: two clients may each have half of a command and wait for the
    /// other's room, and a thousand may have a little of theirs. The next look refuses half of the
    /// rest, but the last of them waits until those that were just given room have had their time:
    /// they may have stalled, and are then the ones to refuse.
    fn refuse_late(&mut self, now: Instant) {
        let time_max = self.core.shared.config().starved_time_max;
        let connections = &self.core.connections;
        let since = |slot: &usize| connections[*slot].starved_at;
        let is_late = |slot: &usize| {
            let has_waited = since(slot).is_some_and(|at| now.duration_since(at) >= time_max);
            has_waited && !waits_for_pins(&connections[*slot])
        };
        let mut late: Vec<usize> = self.starved.slots.iter().copied().filter(is_late).collect();
        late.sort_by_key(since);
        let was_fed = self.starved.fed_at.is_some_and(|at| now.duration_since(at) < time_max);
        late.truncate(if was_fed { late.len() / 2 } else { late.len().div_ceil(2) });
        for slot in late {
            self.refuse_unfinished(
                slot,
                b"-ERR Protocol error: no room for this command in the client buffers\r\n",
            );
        }
    }

    /// Closes the waiting connections whose command will never be complete (I1).
    fn close_gone(&mut self) {
        for slot in self.starved.slots.clone() {
            let Some(connection) = self.core.connections.get_mut(slot) else { continue };
            if connection.is_starved && can_never_finish(connection) {
                connection.ending = Ending::AfterFlush;
                self.core.touch(slot);
            }
        }
    }

    /// Closes clients because the buffers, or those of one kind, are over their limit or leave no
    /// room for new connections, so that the others are served (as Redis evicts clients). First go
    /// clients that have not logged in, then those that have stalled in a reply or in a command,
    /// then those that do not read their replies, then those with the most unfinished input (of a
    /// part of the buffers: of those that hold more than a little, those silent for longest), at
    /// once.
    #[cold]
    pub(super) fn evict_clients(&mut self, outgrown: Outgrown) {
        let worker_count = self.core.shared.config().threads;
        let (connections, now) = (&self.core.connections, self.core.now);
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
        while self.core.ledger.is_to_shrink(outgrown, worker_count)
            && let Some((.., slot)) = guilty.pop()
        {
            closed_count += 1;
            let kind = match outgrown {
                Outgrown::All => Kind::Small,
                Outgrown::Kind(kind) => kind,
                Outgrown::Arrivals => Kind::Connections,
            };
            self.core.shared.buffer_budget().note_refusal(kind);
            self.say_evicted(slot);
            self.close(slot);
        }
        self.starved.closed_unlogged += closed_count;
        let may_log = self.starved.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVICTIONS_EVERY);
        if closed_count > 0 && may_log {
            self.starved.logged_at = Some(Instant::now());
            let closed_count = std::mem::take(&mut self.starved.closed_unlogged);
            let of = outgrown.name();
            tracing::warn!(closed_count, of, "buffers are full: closed the clients that held most");
        }
    }

    /// Tells a client that is about to be closed the reason, if that can be the whole of a reply:
    /// nothing may stand before it.
    fn say_evicted(&mut self, slot: usize) {
        let connection = &mut self.core.connections[slot];
        let is_next = connection.output.is_empty() && connection.awaiting.is_empty();
        let is_handshaking = connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        if !is_next || is_handshaking || connection.exchange.is_some() {
            return;
        }
        let binary = crate::memcached::binary::unfinished(connection);
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
            Self::send_unsent(connection, usize::MAX, &mut 0);
        } else {
            let _ = send(&connection.socket, reply, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        // What it has sent is discarded: otherwise the system would discard the reply.
        connection.ending = Ending::AfterFlush;
    }

    /// Wakes other workers, because their clients hold the memory that is still over the limit.
    /// They may sleep, as their clients do not read, and would notice a second later. Until then no
    /// client is read here.
    pub(super) fn wake_those_that_hold_more(&mut self) {
        let now = Instant::now();
        let was_lately = |at: Instant| now.duration_since(at) < WAKE_EVERY;
        if self.core.ledger.outgrown().is_none()
            || self.starved.woke_others_at.is_some_and(was_lately)
        {
            return;
        }
        self.starved.woke_others_at = Some(now);
        let shared = &self.core.shared;
        let others = 0..shared.config().threads;
        others.filter(|other| *other != self.core.worker.index()).for_each(|other| {
            shared.wake(other);
        });
    }
}

/// Whether the buffers hold a part of a large command of this connection.
fn is_unfinished(connection: &Connection) -> bool {
    connection.ending == Ending::Open
        && connection.input.held.capacity() > HELD_BYTES_MAX
        && connection.input.need_bytes > connection.input.held.len()
}

/// Whether a waiting connection has its command, and waits until readers release values.
fn waits_for_pins(connection: &Connection) -> bool {
    connection.is_large_reader && connection.input.need_bytes <= HELD_BYTES_MAX
}

/// Whether the client has closed, or its sending half, and has sent no complete command. Its bytes
/// and its end may be waiting in the socket, which is not read.
fn can_never_finish(connection: &Connection) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(connection.socket.as_fd(), PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if !matches!(poll(&mut polled, Some(&at_once)), Ok(1..)) {
        return false;
    }
    if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
        return true;
    }
    let unread_bytes = ioctl_fionread(&connection.socket).unwrap_or(0);
    connection.input.held.len() as u64 + unread_bytes < connection.input.need_bytes as u64
}
