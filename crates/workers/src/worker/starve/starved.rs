//! The connections that wait for room in the buffers: their line, its head, and how much room each
//! lacks.
//!
//! The invariants are those of [`starve`](super).

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use base::UnixMillis;
use budget::Kind;
use runtime::connection::{Connection, Ending};
use runtime::core::Core;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;

use super::line::{Line, Patience, Waiting};
use super::pace::{Holder, Paces};
use crate::worker::read::{HELD_BYTES_MAX, READ_BYTES_MAX, wanted_bytes};

/// How often waiting connections are checked for clients that have left.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After this part of the longest wait the shortest command that waits may be the head of the line,
/// and after that the oldest. The latter is also how long a command may be too slow.
const SHORT_PART: u32 = 16;
const LONG_PART: u32 = 4;

/// A command longer than this part of the buffers waits until its room is free at once, unless it
/// is the oldest.
const PUT_ASIDE_PART: u64 = 16;

const PUT_ASIDE_STEP_BYTES: u64 = 64 << 10;

/// The connections that wait for room in the buffers.
pub(in crate::worker) struct Starved {
    /// Connections that are not read until there is room.
    slots: Vec<usize>,
    line: Line,
    looked_at: Instant,
    /// When connections that hold pins were last examined.
    looked_at_pins: Instant,
    /// How fast the commands arrive that have room.
    paces: Paces,
    /// Of the room of commands that wait or are too slow, what the budget knows of this worker.
    stuck_bytes: u64,
}

impl Starved {
    /// No connection waits.
    pub fn new(now: Instant) -> Starved {
        Starved {
            slots: Vec::new(),
            line: Line::default(),
            looked_at: now,
            looked_at_pins: now,
            paces: Paces::default(),
            stuck_bytes: 0,
        }
    }

    /// Whether no connection waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Stops reading a connection until there is room in the buffers.
    pub fn add(&mut self, core: &mut Core, slot: usize) {
        let connection = &mut core.connections[slot];
        if !connection.is_starved {
            connection.is_starved = true;
            connection.starved_at.get_or_insert_with(Instant::now);
            self.slots.push(slot);
        }
    }

    /// Makes readers of large values wait while a quarter of the log is pinned.
    #[inline]
    pub fn add_short_of_pins(&mut self, core: &mut Core) {
        while let Some(slot) = core.short_of_pins.pop() {
            self.add(core, slot);
        }
    }

    /// Whether room is kept for another command than this one, which has none so far (I4).
    pub fn must_queue(&self, core: &Core, slot: usize) -> bool {
        let turn = core.shared.buffer_budget().turn(core.now);
        let is_own = self.line.head().is_some_and(|head| head.slot == slot);
        let has_room = core.connections[slot].booked.of(Kind::Bodies) > 0;
        turn.is_some_and(|holder| !(has_room || is_own && holder == core.worker))
    }

    /// Closes the waiting connections whose command will never be complete (I1).
    pub fn close_gone(&self, core: &mut Core) {
        for slot in self.slots.clone() {
            let Some(connection) = core.connections.get_mut(slot) else { continue };
            if connection.is_starved && can_never_finish(connection) {
                connection.ending = Ending::AfterFlush;
                core.touch(slot);
            }
        }
    }

    /// Notes that a connection got room.
    pub fn end_wait(&mut self, core: &mut Core, slot: usize, now: Instant) {
        let connection = &mut core.connections[slot];
        if let Some(since) = connection.starved_at.take() {
            connection.waited += now.duration_since(since);
        }
        let head = self.line.head().filter(|head| head.slot == slot);
        if head.is_some_and(|head| head.is_oldest) {
            core.shared.buffer_budget().end_turn(core.worker);
        }
        self.line.leave(slot);
    }

    /// The room that all commands in the line lack.
    pub fn line_bytes(&self, core: &Core) -> u64 {
        let waiting = self.slots.iter();
        let waiting = waiting.filter_map(|slot| core.connections.get(*slot));
        let group_max = core.group_bytes_max();
        let lack = |it: &Connection| {
            wanted_bytes(it, group_max).saturating_sub(it.booked.of(Kind::Bodies))
        };
        waiting.filter(|it| is_in_line(it)).map(lack).sum()
    }

    /// Tells the budget how much room commands hold that wait for more, or that are too slow.
    pub(super) fn note_stuck(&mut self, core: &Core, holders: &[Holder], slow: &HashSet<usize>) {
        let connections = &core.connections;
        let waiting = self.slots.iter().filter_map(|slot| connections.get(*slot));
        let waiting_bytes: u64 =
            waiting.filter(|it| it.is_starved).map(|it| it.booked.of(Kind::Bodies)).sum();
        let is_slow = |it: &&Holder| !it.is_waiting && slow.contains(&it.slot);
        let slow_bytes: u64 = holders.iter().filter(is_slow).map(|it| it.booked_bytes).sum();
        self.set_stuck(core, waiting_bytes + slow_bytes);
    }

    pub(super) fn set_stuck(&mut self, core: &Core, bytes: u64) {
        if bytes != self.stuck_bytes {
            core.ledger.budget().note_stuck(self.stuck_bytes, bytes);
            self.stuck_bytes = bytes;
        }
    }

    /// Chooses the command that gets the next room, of those whose clients send; what was put aside
    /// for another is free again.
    pub fn choose_head(
        &mut self,
        core: &mut Core,
        now: Instant,
        time_max: Duration,
        slow: &HashSet<usize>,
    ) {
        let before = self.line.head();
        let group_bytes_max = core.group_bytes_max();
        // Connections that were closed in this round are still among the slots.
        let connections = &core.connections;
        let waiting = self.slots.iter().filter_map(|slot| {
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
        self.line.choose(&waiting, patience);
        let head = self.line.head();
        if let Some(before) = before.filter(|before| Some(*before) != head) {
            if before.is_oldest {
                core.shared.buffer_budget().end_turn(core.worker);
            }
            give_back_aside(core, before.slot, before.client_id);
        }
        let place = head.and_then(|head| self.slots.iter().position(|it| *it == head.slot));
        if let Some(place) = place {
            self.slots.swap(0, place);
        }
    }

    /// Books free room for the head of the line, as far as there is some; returns how many bytes it
    /// still lacks.
    pub fn put_aside(&self, core: &mut Core) -> u64 {
        let Some(head) = self.line.head() else { return 0 };
        let group_bytes_max = core.group_bytes_max();
        let Some(connection) = core.connections.get_mut(head.slot) else { return 0 };
        if connection.client.id != head.client_id || !connection.is_starved {
            return 0;
        }
        let budget = core.ledger.budget();
        if head.is_oldest && !budget.take_turn(core.worker, core.now) {
            return 0;
        }
        let want_bytes = wanted_bytes(connection, group_bytes_max);
        let mut missing_bytes = want_bytes.saturating_sub(connection.booked.of(Kind::Bodies));
        let is_short = want_bytes <= budget.limit_bytes() / PUT_ASIDE_PART;
        if !head.is_oldest && !is_short {
            return missing_bytes;
        }
        core.ledger.set_retrying(true);
        while missing_bytes > 0 {
            let step_bytes = missing_bytes.min(PUT_ASIDE_STEP_BYTES);
            if !core.ledger.try_reserve(Kind::Bodies, step_bytes) {
                break;
            }
            connection.booked.add(Kind::Bodies, step_bytes);
            missing_bytes -= step_bytes;
        }
        core.ledger.set_retrying(false);
        missing_bytes
    }

    /// Whether the connections are due for a look, which then counts as done.
    pub fn begin_look(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.looked_at) >= LOOK_EVERY;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// The same of the connections that hold pins.
    pub fn begin_look_at_pins(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.looked_at_pins) >= LOOK_EVERY;
        if is_due {
            self.looked_at_pins = now;
        }
        is_due
    }

    /// Takes the connections, to try each again.
    pub fn take_all(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.slots)
    }

    /// The head of the line.
    pub fn head_slot(&self) -> Option<usize> {
        self.line.head().map(|head| head.slot)
    }

    /// The slots of the commands that arrive too slowly, of these.
    pub(super) fn slow(
        &mut self,
        holders: &[Holder],
        now: UnixMillis,
        time_max: Duration,
    ) -> HashSet<usize> {
        let window_ms = (time_max / LONG_PART).as_millis() as u64;
        self.paces.slow(holders, now.0, window_ms).into_iter().collect()
    }

    /// The older half of the commands that have waited for too long (I3).
    pub fn late(&self, core: &Core, now: Instant) -> Vec<usize> {
        let time_max = core.shared.config().starved_time_max;
        let connections = &core.connections;
        let mut late = self.slots.clone();
        late.retain(|slot| {
            connections.get(*slot).is_some_and(|connection| {
                is_in_line(connection) && waited(connection, now) >= time_max
            })
        });
        late.sort_by_key(|slot| std::cmp::Reverse(waited(&connections[*slot], now)));
        late.truncate(late.len().div_ceil(2));
        late
    }
}

/// Gives back what is booked for a waiting command beyond its buffer.
fn give_back_aside(core: &mut Core, slot: usize, client_id: u64) {
    let Some(connection) = core.connections.get_mut(slot) else { return };
    if connection.client.id != client_id || !connection.is_starved {
        return; // Its bookings follow what it holds, at the end of a round.
    }
    let aside_bytes = connection.booked.of(Kind::Bodies);
    let aside_bytes = aside_bytes.saturating_sub(connection.input.held.capacity() as u64);
    connection.booked.take(Kind::Bodies, aside_bytes);
    core.ledger.release(Kind::Bodies, aside_bytes);
}

/// The connections that hold or wait for room for half of a command.
pub(super) fn holders(core: &Core) -> Vec<Holder> {
    let connections = &core.connections;
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

/// Whether the buffers hold a part of a large command of this connection.
pub(in crate::worker) fn is_unfinished(connection: &Connection) -> bool {
    connection.ending == Ending::Open
        && connection.input.held.capacity() > HELD_BYTES_MAX
        && connection.input.need_bytes > connection.input.held.len()
}

/// Whether a waiting connection needs a buffer of its own. Others have their command, and wait
/// until readers release values, or until the buffers are below their limit.
pub(in crate::worker) fn needs_own(connection: &Connection) -> bool {
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
