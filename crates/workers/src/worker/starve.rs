//! Full client buffers: which connections wait, are refused, are closed.
//!
//! ```text
//!  large command, no room ─▶ starved: not read ─▶ room: continues
//!                                              ├▶ its client has left: closed
//!                                              ├▶ no room for a while: the head of the line gets
//!                                              │  what is free, and what the slow have
//!                                              └▶ no room for long: refused
//! ```
//!
//! # Invariants
//! I1: a starved connection is in `Starved`. It is not read, so nothing else reports its end.
//! I2: while a command waits, no other keeps room that it fills more slowly than it takes to send
//!     the whole within the longest wait, on any worker.
//! I3: no command waits for room for more than the longest wait, in all, and some looks: of those
//!     that have, the older half is refused at each.
//! I4: of the heads that have waited longest, one at a time takes room, of all workers: two could
//!     each have half of what they need.

mod line;
mod pace;

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use budget::{Kind, Outgrown};
use counters::Dialect;
use handlers::resp::{GivenUp, give_up};
use host::poller::Poller;
use runtime::connection::{Connection, Ending};
use runtime::engine::Home;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{SendFlags, send};

use self::line::{Line, Patience, Waiting};
use self::pace::{Holder, Paces};
use super::Worker;
use super::read::{HELD_BYTES_MAX, READ_BYTES_MAX, wanted_bytes};

/// How often waiting connections are checked for clients that have left.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often other workers are woken because of the memory that their clients hold.
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// A client that reads takes some bytes of its replies within this time, and one that sends a
/// command sends some of it.
const STALLED_MS_MIN: u64 = 500;

/// After this part of the longest wait the shortest command that waits may be the head of the line,
/// and after that the oldest. The latter is also how long a command may be too slow.
const SHORT_PART: u32 = 16;
const LONG_PART: u32 = 4;

/// A command longer than this part of the buffers waits until its room is free at once, unless it
/// is the oldest.
const PUT_ASIDE_PART: u64 = 16;

const PUT_ASIDE_STEP_BYTES: u64 = 64 << 10;

/// A client that holds less is closed after those that hold more, and never for the sake of new
/// connections: it may be in the middle of a small command.
const WORTH_EVICTING_BYTES: u64 = 4 << 10;

/// The line for a half of a command whose client has sent too little of it.
const UNFINISHED: &[u8] =
    b"-ERR Protocol error: unfinished command while the client buffers are full\r\n";

/// The line for a command whose client has sent what it could.
const NO_ROOM: &[u8] = b"-ERR Protocol error: no room for this command in the client buffers\r\n";

/// As buffers fill, clients are closed one by one: one line of the log reports many.
const LOG_EVICTIONS_EVERY: Duration = Duration::from_secs(10);

/// The connections that wait for room in the buffers.
pub(super) struct Starved {
    /// Connections that are not read until there is room.
    slots: Vec<usize>,
    line: Line,
    looked_at: Instant,
    /// When connections that hold pins were last examined.
    looked_at_pins: Instant,
    /// When other workers were last woken because they hold more.
    woke_others_at: Option<Instant>,
    /// How fast the commands arrive that have room.
    paces: Paces,
    /// Of the room of commands that wait or are too slow, what the budget knows of this worker.
    stuck_bytes: u64,
    /// When the log last reported closed clients, and how many closed since.
    logged_at: Option<Instant>,
    closed_unlogged: u64,
}

impl Starved {
    pub(super) fn new(now: Instant) -> Starved {
        Starved {
            slots: Vec::new(),
            line: Line::default(),
            looked_at: now,
            looked_at_pins: now,
            woke_others_at: None,
            paces: Paces::default(),
            stuck_bytes: 0,
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
        let given_up = if may_answer { give_up(&mut self.core, slot) } else { GivenUp::Endless };
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
        let binary = handlers::memcached::binary::unfinished(connection);
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
        }
    }

    /// Gives waiting connections room, if there is some.
    pub(super) fn feed_starved(&mut self, now: Instant) {
        let is_asked = self.core.shared.buffer_budget().asked_bytes(self.core.now) > 0;
        if self.starved.is_empty() && !is_asked {
            self.set_stuck(0);
            return;
        }
        let looks = now.duration_since(self.starved.looked_at) >= LOOK_EVERY;
        if looks {
            self.starved.looked_at = now;
            self.close_gone();
            self.make_room(now);
            self.finish_touched();
        } else {
            self.put_aside();
        }
        self.core.ledger.set_retrying(true);
        for slot in std::mem::take(&mut self.starved.slots) {
            let Some(connection) = self.core.connections.get_mut(slot) else { continue };
            if !connection.is_starved {
                continue;
            }
            connection.is_starved = false;
            if connection.ending != Ending::Open {
                continue;
            }
            let needs_own = needs_own(connection);
            let is_short =
                connection.is_large_reader && self.core.shared.store().is_pin_share_reached();
            if is_short || self.core.ledger.is_over() {
                self.starve(slot);
            } else if !needs_own || self.reserve_own(slot) {
                self.end_wait(slot, now);
                self.core.touch(slot);
            }
        }
        self.core.ledger.set_retrying(false);
        if looks {
            self.refuse_late(now);
        }
        self.finish_touched();
    }

    /// Notes that a connection got room.
    fn end_wait(&mut self, slot: usize, now: Instant) {
        let connection = &mut self.core.connections[slot];
        if let Some(since) = connection.starved_at.take() {
            connection.waited += now.duration_since(since);
        }
        let head = self.starved.line.head().filter(|head| head.slot == slot);
        if head.is_some_and(|head| head.is_oldest) {
            self.core.shared.buffer_budget().end_turn(self.core.worker);
        }
        self.starved.line.leave(slot);
    }

    /// Whether room is kept for another command than this one, which has none so far (I4).
    pub(super) fn must_queue(&self, slot: usize) -> bool {
        let turn = self.core.shared.buffer_budget().turn(self.core.now);
        let is_own = self.starved.line.head().is_some_and(|head| head.slot == slot);
        let has_room = self.core.connections[slot].booked.of(Kind::Bodies) > 0;
        turn.is_some_and(|worker| !(has_room || is_own && worker == self.core.worker))
    }

    /// Makes room for the head of the line, here or at a worker that has asked for it: room is put
    /// aside as it comes free, and commands that are too slow are refused. If hardly anything
    /// moves, because commands wait that each have a part of their room, some of those are refused.
    fn make_room(&mut self, now: Instant) {
        let time_max = self.core.shared.config().starved_time_max;
        let holders = self.holders();
        let window_ms = (time_max / LONG_PART).as_millis() as u64;
        let slow = self.starved.paces.slow(&holders, self.core.now.0, window_ms);
        let slow: HashSet<usize> = slow.into_iter().collect();
        self.note_stuck(&holders, &slow);
        self.choose_head(now, time_max, &slow);
        let own_bytes = self.put_aside();
        let budget = self.core.ledger.budget();
        let missing_bytes = own_bytes.max(budget.asked_bytes(self.core.now));
        let is_moving = budget.moving_bytes() >= missing_bytes;
        let head = self.starved.line.head().map(|head| head.slot);
        let mut yielding: Vec<(bool, u64, usize, bool)> = holders
            .iter()
            .filter(|holder| Some(holder.slot) != head && holder.booked_bytes > 0)
            .map(|holder| (holder, slow.contains(&holder.slot)))
            .filter(|(holder, is_slow)| *is_slow || holder.is_waiting && !is_moving)
            .map(|(it, is_slow)| (is_slow, it.booked_bytes, it.slot, it.is_unread))
            .collect();
        yielding.sort_unstable();
        // All that are slow make room for the whole line at once.
        let slow_bytes = if missing_bytes > 0 { missing_bytes.max(self.line_bytes()) } else { 0 };
        let mut freed_bytes = 0;
        while let Some((is_slow, bytes, slot, is_unread)) = yielding.pop()
            && freed_bytes < if is_slow { slow_bytes } else { missing_bytes }
        {
            freed_bytes += bytes;
            self.refuse_unfinished(slot, if is_unread { NO_ROOM } else { UNFINISHED });
        }
        if freed_bytes < own_bytes {
            self.ask_others(own_bytes - freed_bytes);
        }
    }

    /// The room that all commands in the line lack.
    fn line_bytes(&self) -> u64 {
        let waiting = self.starved.slots.iter();
        let waiting = waiting.filter_map(|slot| self.core.connections.get(*slot));
        let group_max = self.core.group_bytes_max();
        let lack = |it: &Connection| {
            wanted_bytes(it, group_max).saturating_sub(it.booked.of(Kind::Bodies))
        };
        waiting.filter(|it| is_in_line(it)).map(lack).sum()
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

    /// The connections that hold or wait for room for half of a command.
    fn holders(&self) -> Vec<Holder> {
        let connections = &self.core.connections;
        let holder = |slot: usize| {
            let connection = &connections[slot];
            let is_waiting = is_in_line(connection);
            if !is_waiting && !is_unfinished(connection) {
                return None;
            }
            // Where turns are long, bytes wait in the socket of a command that has room, too.
            let unread_bytes = ioctl_fionread(&connection.socket).unwrap_or(0);
            let arrived_bytes = connection.input.held.len() as u64 + unread_bytes;
            let is_enough = arrived_bytes >= connection.input.need_bytes as u64;
            Some(Holder {
                slot,
                client_id: connection.client.id,
                held_bytes: arrived_bytes,
                room_bytes: connection.input.held.capacity() as u64,
                booked_bytes: connection.booked.of(Kind::Bodies),
                active_at_ms: connection.client.last_active_at().0,
                is_waiting,
                is_unread: is_enough || unread_bytes >= READ_BYTES_MAX as u64,
            })
        };
        connections.slots().into_iter().filter_map(holder).collect()
    }

    /// Tells the budget how much room commands hold that wait for more, or that are too slow.
    fn note_stuck(&mut self, holders: &[Holder], slow: &HashSet<usize>) {
        let connections = &self.core.connections;
        let waiting = self.starved.slots.iter().filter_map(|slot| connections.get(*slot));
        let waiting_bytes: u64 =
            waiting.filter(|it| it.is_starved).map(|it| it.booked.of(Kind::Bodies)).sum();
        let is_slow = |it: &&Holder| !it.is_waiting && slow.contains(&it.slot);
        let slow_bytes: u64 = holders.iter().filter(is_slow).map(|it| it.booked_bytes).sum();
        self.set_stuck(waiting_bytes + slow_bytes);
    }

    fn set_stuck(&mut self, bytes: u64) {
        if bytes != self.starved.stuck_bytes {
            self.core.ledger.budget().note_stuck(self.starved.stuck_bytes, bytes);
            self.starved.stuck_bytes = bytes;
        }
    }

    /// Chooses the command that gets the next room, of those whose clients send; what was put aside
    /// for another is free again.
    fn choose_head(&mut self, now: Instant, time_max: Duration, slow: &HashSet<usize>) {
        let before = self.starved.line.head();
        let group_bytes_max = self.core.group_bytes_max();
        // Connections that were closed in this round are still among the slots.
        let connections = &self.core.connections;
        let waiting = self.starved.slots.iter().filter_map(|slot| {
            let connection = connections.get(*slot)?;
            let has_bytes = connection.input.held.capacity() as u64;
            (is_in_line(connection) && !slow.contains(slot)).then(|| Waiting {
                slot: *slot,
                client_id: connection.client.id,
                has_bytes,
                missing_bytes: wanted_bytes(connection, group_bytes_max).saturating_sub(has_bytes),
                waited: waited(connection, now),
            })
        });
        let waiting: Vec<Waiting> = waiting.collect();
        let patience = Patience { short: time_max / SHORT_PART, long: time_max / LONG_PART };
        self.starved.line.choose(&waiting, patience);
        let head = self.starved.line.head();
        if let Some(before) = before.filter(|before| Some(*before) != head) {
            if before.is_oldest {
                self.core.shared.buffer_budget().end_turn(self.core.worker);
            }
            self.give_back_aside(before.slot, before.client_id);
        }
        let place = head.and_then(|head| self.starved.slots.iter().position(|it| *it == head.slot));
        if let Some(place) = place {
            self.starved.slots.swap(0, place);
        }
    }

    /// Gives back what is booked for a waiting command beyond its buffer.
    fn give_back_aside(&mut self, slot: usize, client_id: u64) {
        let Some(connection) = self.core.connections.get_mut(slot) else { return };
        if connection.client.id != client_id || !connection.is_starved {
            return; // Its bookings follow what it holds, at the end of a round.
        }
        let aside_bytes = connection.booked.of(Kind::Bodies);
        let aside_bytes = aside_bytes.saturating_sub(connection.input.held.capacity() as u64);
        connection.booked.take(Kind::Bodies, aside_bytes);
        self.core.ledger.release(Kind::Bodies, aside_bytes);
    }

    /// Books free room for the head of the line, as far as there is some; returns how many bytes it
    /// still lacks.
    fn put_aside(&mut self) -> u64 {
        let Some(head) = self.starved.line.head() else { return 0 };
        let group_bytes_max = self.core.group_bytes_max();
        let Some(connection) = self.core.connections.get_mut(head.slot) else { return 0 };
        if connection.client.id != head.client_id || !connection.is_starved {
            return 0;
        }
        let budget = self.core.ledger.budget();
        if head.is_oldest && !budget.take_turn(self.core.worker, self.core.now) {
            return 0;
        }
        let want_bytes = wanted_bytes(connection, group_bytes_max);
        let mut missing_bytes = want_bytes.saturating_sub(connection.booked.of(Kind::Bodies));
        let is_short = want_bytes <= budget.limit_bytes() / PUT_ASIDE_PART;
        if !head.is_oldest && !is_short {
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

    /// Refuses the older half of the commands that have waited for too long (I3), so that their
    /// room is there for the others.
    fn refuse_late(&mut self, now: Instant) {
        let time_max = self.core.shared.config().starved_time_max;
        let connections = &self.core.connections;
        let mut late = self.starved.slots.clone();
        late.retain(|slot| {
            connections.get(*slot).is_some_and(|connection| {
                is_in_line(connection) && waited(connection, now) >= time_max
            })
        });
        late.sort_by_key(|slot| std::cmp::Reverse(waited(&connections[*slot], now)));
        late.truncate(late.len().div_ceil(2));
        for slot in late {
            self.refuse_unfinished(slot, NO_ROOM);
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

/// Whether a waiting connection needs a buffer of its own. Others have their command, and wait
/// until readers release values, or until the buffers are below their limit.
fn needs_own(connection: &Connection) -> bool {
    connection.input.need_bytes > HELD_BYTES_MAX
}

/// Whether a connection waits for room for its command.
fn is_in_line(connection: &Connection) -> bool {
    connection.is_starved && connection.ending == Ending::Open && needs_own(connection)
}

/// How long the command of a waiting connection has waited, in all.
fn waited(connection: &Connection, now: Instant) -> Duration {
    let since = connection.starved_at.map_or(Duration::ZERO, |at| now.duration_since(at));
    connection.waited + since
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
