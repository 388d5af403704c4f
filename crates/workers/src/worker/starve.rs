//! Full client buffers: which connections wait, which are refused. The next stage is `evict`.
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
mod starved;

use std::time::{Duration, Instant};

use budget::Kind;
use counters::Dialect;
use handlers::resp::{GivenUp, give_up};
use host::poller::Poller;
use runtime::connection::{Connection, Ending};
use runtime::engine::Home;

pub(super) use starved::{Starved, is_unfinished};

use self::starved::needs_own;
use super::{Worker, evict, finish, read};

/// The line for a half of a command whose client has sent too little of it.
/// How long a reader of large values waits for less than a quarter of the log to be pinned; then
/// its next command may pin of the second quarter.
const PINS_WAIT_MAX: Duration = Duration::from_millis(250);

const UNFINISHED: &[u8] =
    b"-ERR Protocol error: unfinished command while the client buffers are full\r\n";

/// The line for a command whose client has sent what it could.
const NO_ROOM: &[u8] = b"-ERR Protocol error: no room for this command in the client buffers\r\n";

/// Refuses a command that can never be buffered: it is skipped if its end is known.
pub(super) fn refuse_too_large<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &worker.core.connections[slot];
    let may_answer = connection.awaiting.is_empty() || worker.engine.can_refuse();
    let given_up = if may_answer { give_up(&mut worker.core, slot) } else { GivenUp::Endless };
    let limit_bytes = worker.core.shared.buffer_budget().limit_bytes();
    let reply = format!(
        "-ERR a command is larger than the client buffers of {limit_bytes} bytes (--memory)\r\n"
    );
    match given_up {
        GivenUp::Answered => say_refused(worker, slot, reply.as_bytes()),
        GivenUp::Quiet => worker.core.touch(slot),
        GivenUp::Endless => refuse_unfinished(worker, slot, reply.as_bytes()),
    }
}

/// Refuses a long command of a client that has not logged in, or one without room.
pub(super) fn refuse_stranger<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    if worker.core.connections[slot].turned_away.is_some() {
        return worker.core.touch(slot); // It is told another line.
    }
    refuse_unfinished(
        worker,
        slot,
        b"-NOAUTH Authentication required: no room for this command before it\r\n",
    );
}

/// Answers a command that has not arrived as a whole, and closes.
fn refuse_unfinished<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    resp_reply: &[u8],
) {
    worker.core.counters().protocol_errors.add(1);
    let connection = &mut worker.core.connections[slot];
    let reply: &[u8] = match connection.client.protocol {
        Dialect::Resp => resp_reply,
        Dialect::Memcached => b"SERVER_ERROR out of memory reading request\r\n",
    };
    let binary = handlers::memcached::binary::unfinished(connection);
    let reply = binary.as_deref().unwrap_or(reply);
    connection.ending = Ending::AfterFlush;
    say_refused(worker, slot, reply);
}

/// Adds a reply behind those that the connection awaits, if there is a place for it.
fn say_refused<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize, reply: &[u8]) {
    let connection = &mut worker.core.connections[slot];
    if connection.awaiting.is_empty() {
        connection.output.append(|out| out.extend_from_slice(reply));
    } else if worker.engine.can_refuse() {
        worker.engine.say(&mut worker.core, slot, &mut |out| out.extend_from_slice(reply));
    }
    worker.core.touch(slot);
}

/// While a quarter of the log is pinned, or replies have all but filled their share of the
/// buffers: closes the connections that hold some of it and whose clients have not read for
/// long, so that others get room and the log can be written.
pub(super) fn close_reply_holders<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.core.shared.store().is_pin_share_reached() {
        close_stalled_holders(worker, "a quarter of the log is pinned");
    } else if worker.core.ledger.is_tight_in(Kind::Replies) {
        close_stalled_holders(worker, "replies have filled their part of the client buffers");
    }
}

#[cold]
fn close_stalled_holders<E: Home, P: Poller>(worker: &mut Worker<E, P>, why: &str) {
    let now = Instant::now();
    if !worker.starved.begin_look_at_pins(now) {
        return;
    }
    let now_ms = worker.core.now.0;
    let time_max = worker.core.shared.config().starved_time_max;
    let has_stalled = |connection: &Connection| {
        let silent_ms = now_ms.saturating_sub(connection.client.last_active_at().0);
        // Booked bytes alone may be the buffer kept for its next reply, or a reply still in the
        // making.
        let is_unread = connection.interest.write && connection.booked.of(Kind::Replies) > 0;
        (is_unread || connection.output.pinned_bytes_max() > 0)
            && u128::from(silent_ms) >= time_max.as_millis()
    };
    let mut slots = worker.core.connections.slots();
    slots.retain(|slot| has_stalled(&worker.core.connections[*slot]));
    let closed_count = slots.len();
    for slot in slots {
        worker.core.counters().replies_refused.add(1);
        finish::close(worker, slot);
    }
    if closed_count > 0 {
        let seconds = time_max.as_secs();
        tracing::warn!(closed_count, "{why}: closed clients that read nothing for {seconds} s");
    }
}

/// Gives waiting connections room, if there is some.
pub(super) fn feed<E: Home, P: Poller>(worker: &mut Worker<E, P>, now: Instant) {
    let is_asked = worker.core.shared.buffer_budget().asked_bytes(worker.core.now) > 0;
    if worker.starved.is_empty() && !is_asked {
        worker.starved.set_stuck(&worker.core, 0);
        return;
    }
    let looks = worker.starved.begin_look(now);
    if looks {
        worker.starved.close_gone(&mut worker.core);
        make_room(worker, now);
        finish::finish_touched(worker);
    } else {
        worker.starved.put_aside(&mut worker.core);
    }
    worker.core.ledger.set_retrying(true);
    for slot in worker.starved.take_all() {
        let Some(connection) = worker.core.connections.get_mut(slot) else { continue };
        if !connection.is_starved {
            continue;
        }
        connection.is_starved = false;
        if connection.ending != Ending::Open {
            continue;
        }
        let needs_own = needs_own(connection);
        // Clients that come and go could hold the same share of the log for ever.
        connection.goes_past_pins =
            connection.starved_at.is_some_and(|at| now.duration_since(at) >= PINS_WAIT_MAX);
        let is_short = connection.is_large_reader
            && !connection.goes_past_pins
            && worker.core.shared.store().is_pin_share_reached();
        if is_short || worker.core.ledger.is_over() {
            worker.starved.add(&mut worker.core, slot);
        } else if !needs_own || read::reserve_own(worker, slot) {
            worker.starved.end_wait(&mut worker.core, slot, now);
            worker.core.touch(slot);
        }
    }
    worker.core.ledger.set_retrying(false);
    if looks {
        // Their room is there for the others then.
        for slot in worker.starved.late(&worker.core, now) {
            refuse_unfinished(worker, slot, NO_ROOM);
        }
    }
    finish::finish_touched(worker);
}

/// Makes room for the head of the line, here or at a worker that has asked for it: room is put
/// aside as it comes free, and commands that are too slow are refused. If hardly anything
/// moves, because commands wait that each have a part of their room, some of those are refused.
fn make_room<E: Home, P: Poller>(worker: &mut Worker<E, P>, now: Instant) {
    let time_max = worker.core.shared.config().starved_time_max;
    let (starved, core) = (&mut worker.starved, &mut worker.core);
    let holders = starved::holders(core);
    let slow = starved.slow(&holders, core.now, time_max);
    starved.note_stuck(core, &holders, &slow);
    starved.choose_head(core, now, time_max, &slow);
    let own_bytes = starved.put_aside(core);
    let budget = worker.core.ledger.budget();
    let missing_bytes = own_bytes.max(budget.asked_bytes(worker.core.now));
    let is_moving = budget.moving_bytes() >= missing_bytes;
    let head = worker.starved.head_slot();
    let mut yielding: Vec<(bool, u64, usize, bool)> = holders
        .iter()
        .filter(|holder| Some(holder.slot) != head && holder.booked_bytes > 0)
        .map(|holder| (holder, slow.contains(&holder.slot)))
        .filter(|(holder, is_slow)| *is_slow || holder.is_waiting && !is_moving)
        .map(|(it, is_slow)| (is_slow, it.booked_bytes, it.slot, it.is_unread))
        .collect();
    yielding.sort_unstable();
    // All that are slow make room for the whole line at once.
    let slow_bytes = if missing_bytes > 0 {
        missing_bytes.max(worker.starved.line_bytes(&worker.core))
    } else {
        0
    };
    let mut freed_bytes = 0;
    while let Some((is_slow, bytes, slot, is_unread)) = yielding.pop()
        && freed_bytes < if is_slow { slow_bytes } else { missing_bytes }
    {
        freed_bytes += bytes;
        refuse_unfinished(worker, slot, if is_unread { NO_ROOM } else { UNFINISHED });
    }
    if freed_bytes < own_bytes {
        let core = &worker.core;
        core.shared.buffer_budget().ask_for(own_bytes - freed_bytes, core.now);
        evict::wake_others(core);
    }
}
