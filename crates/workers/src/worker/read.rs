//! Reading: each ready connection is read once, into the arena or into a large command's own
//! buffer.
//!
//! # Invariants
//! I1: the unparsed rest of a region is copied to its connection before the arena is used again.
//! I2: a command longer than [`HELD_BYTES_MAX`] gets a buffer of its own. It is reserved from the
//!     budget as a whole before a byte is read into it, so that two half-read commands never wait
//!     for each other's room.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use budget::{Kind, Ledger};
use host::poller::{Poller, Ready};
use runtime::connection::{Connection, Ending, Input};
use runtime::engine::Home;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::bulk::Way;
use super::regions::{Place, Region};
use super::{Worker, bulk, control, finish, sealed, starve};

/// A longer incomplete command has its own buffer, so it is not copied into the arena at each read.
pub(super) const HELD_BYTES_MAX: usize = 16 << 10;

/// The longest command of a client that still has to log in: ten arguments of 16 KiB, as in Redis.
const STRANGER_BYTES_MAX: usize = 192 << 10;

/// Bytes that one round reads from one connection into the arena, at most.
pub(super) const READ_BYTES_MAX: usize = 32 << 10;

/// The same while the buffers are all but full: enough to tell how long the command is. Of a large
/// one that finds no room, no more than this waits beside those that have room.
const TIGHT_READ_BYTES_MAX: usize = 4 << 10;

/// The result of a read.
enum Arrived {
    Bytes(usize),
    Nothing,
    End,
    Broken,
}

fn arrived(result: Result<usize, Errno>, wanted_bytes: usize) -> Arrived {
    match result {
        Ok(0) if wanted_bytes > 0 => Arrived::End,
        Ok(count) => Arrived::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Arrived::Nothing,
        Err(_) => Arrived::Broken,
    }
}

/// W1, W4: puts connections with small requests before those with large ones, the longest
/// waiting of each first; in every other turn one of the latter goes before all.
#[cold]
pub(super) fn put_in_order<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    ready: &mut [Ready],
    resumable: &mut [usize],
) {
    ready.sort_by_key(|event| is_slow(worker, event.token));
    let connections = &worker.core.connections;
    resumable.sort_by_key(|slot| {
        let waited = connections.get(*slot).map_or(0, |it| it.rounds_waited);
        (is_slow(worker, *slot as u64), std::cmp::Reverse(waited))
    });
    if is_slow_first(worker) {
        let first_slow = resumable.iter().position(|slot| is_slow(worker, *slot as u64));
        if let Some(first_slow) = first_slow {
            resumable[..=first_slow].rotate_right(1);
        }
    }
}

fn is_slow_first<E: Home, P: Poller>(worker: &Worker<E, P>) -> bool {
    worker.core.turn.number().is_multiple_of(2)
}

/// Whether a token is that of a connection with large requests.
fn is_slow<E: Home, P: Poller>(worker: &Worker<E, P>, token: u64) -> bool {
    usize::try_from(token).is_ok_and(|slot| worker.core.is_slow(slot))
}

/// Reads until the arena is full or no connection is ready any more; returns how much of the
/// arena is used. Both lists are in order.
pub(super) fn read_ready<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    ready: &mut Peekable<impl Iterator<Item = Ready>>,
    resumable: &mut Peekable<impl Iterator<Item = usize>>,
) -> usize {
    debug_assert!(worker.regions.all.is_empty(), "I1");
    let mut used_bytes = 0;
    // The lists alternate, and each is first in every other turn: connections that resume do
    // not delay connections with new bytes, nor the other way round.
    let mut is_slow_due = is_slow_first(worker);
    let mut is_resumed_next = is_slow_due;
    while worker.regions.arena.len() - used_bytes >= HELD_BYTES_MAX + READ_BYTES_MAX {
        let is_resumed = match (ready.peek(), resumable.peek()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(event), Some(slot)) => {
                match (is_slow(worker, event.token), is_slow(worker, *slot as u64)) {
                    (true, false) => true,
                    (false, true) => std::mem::take(&mut is_slow_due),
                    _ => is_resumed_next,
                }
            }
        };
        is_resumed_next = !is_resumed;
        if is_resumed {
            resumable.next().into_iter().for_each(|slot| resume(worker, slot));
            continue;
        }
        let Some(event) = ready.next() else { break };
        match event.token {
            super::TOKEN_WAKER => control::take(worker),
            // Loans, ports and doorbells are handled elsewhere.
            dispatch::lanes::TOKEN_LOAN.. => {}
            token => used_bytes = read_event(worker, token as usize, event, used_bytes),
        }
    }
    used_bytes
}

fn read_event<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    event: Ready,
    used_bytes: usize,
) -> usize {
    // Closed earlier in this round.
    let Some(connection) = worker.core.connections.get_mut(slot) else { return used_bytes };
    if connection.is_touched {
        return used_bytes; // Already resumed in this round.
    }
    worker.core.touch(slot);
    let connection = &mut worker.core.connections[slot];
    if event.broken && !connection.interest.read {
        // The client will not read the rest of its output.
        connection.ending = Ending::Now;
        return used_bytes;
    }
    let is_sent_later = event.write && connection.interest.write && finish::is_long(connection);
    let is_read = event.read && !connection.input_ended && connection.interest.read;
    let is_own = connection.input.need_bytes > HELD_BYTES_MAX;
    if is_sent_later {
        bulk::add(worker, slot, Way::Send);
    }
    if !is_read {
        return used_bytes;
    }
    if is_own {
        bulk::add(worker, slot, Way::Receive);
        return used_bytes;
    }
    if worker.core.ledger.is_over() {
        worker.starved.add(&mut worker.core, slot);
        return used_bytes;
    }
    worker.core.lend_buffer(slot);
    let connection = &worker.core.connections[slot];
    match connection.tls.is_some() {
        true => sealed::open_arena(worker, slot, used_bytes),
        false => read_arena(worker, slot, used_bytes),
    }
}

/// Reads into the arena, behind the connection's held bytes.
#[inline]
fn read_arena<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    used_bytes: usize,
) -> usize {
    let connection = &mut worker.core.connections[slot];
    let start = used_bytes;
    let held = &mut connection.input.held;
    debug_assert!(held.len() <= HELD_BYTES_MAX);
    let after_held = start + held.len();
    worker.regions.arena[start..after_held].copy_from_slice(held);
    // If the client is about to be held back, this leaves fewer unparsed bytes to keep.
    let read_bytes = arena_read_bytes(&worker.core.ledger).min(worker.core.output_limit_bytes);
    let free = &mut worker.regions.arena[after_held..after_held + read_bytes];
    let count = match arrived(
        recv(&connection.socket, free, RecvFlags::empty()).map(|(count, _)| count),
        read_bytes,
    ) {
        Arrived::Bytes(count) => count,
        Arrived::Nothing if !worker.is_draining => return used_bytes,
        Arrived::Nothing | Arrived::End => {
            connection.input_ended = true;
            return used_bytes;
        }
        Arrived::Broken => {
            connection.ending = Ending::Now;
            return used_bytes;
        }
    };
    if held.capacity() > 0 {
        *held = Vec::new();
    }
    connection.input_ended = worker.is_draining && count < read_bytes;
    let end = after_held + count;
    worker.regions.add(&worker.core, slot, Place::Arena { start, end }, count);
    end
}

/// Reads at most so much of a long command into its own buffer, and parses it once it may be
/// complete; returns how much, and whether there may be more.
pub(super) fn read_own<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    bytes_max: usize,
) -> (usize, bool) {
    let connection = &mut worker.core.connections[slot];
    let input = &mut connection.input;
    let room_bytes = input.held.capacity() - input.held.len();
    let want_bytes = room_bytes.min(bytes_max);
    let len_before = input.held.len();
    // One call: the standard library's own loop begins with 8 KiB each time.
    input.held.resize(len_before + want_bytes, 0);
    let received = recv(&connection.socket, &mut input.held[len_before..], RecvFlags::empty());
    let arrived = arrived(received.map(|(count, _)| count), want_bytes);
    let count = if let Arrived::Bytes(count) = arrived { count } else { 0 };
    input.held.truncate(len_before + count);
    let is_unfinished = input.held.len() < input.need_bytes;
    match arrived {
        // What the socket had is taken: no second call to learn that.
        Arrived::Bytes(_) => connection.input_ended = worker.is_draining && count < want_bytes,
        Arrived::Nothing => connection.input_ended = worker.is_draining,
        Arrived::End => connection.input_ended = true,
        Arrived::Broken => connection.ending = Ending::Now,
    }
    let has_more = count == want_bytes && is_unfinished;
    end_own_read(worker, slot, len_before);
    (count, has_more)
}

/// Parses the bytes in an own buffer once they may be complete.
pub(super) fn end_own_read<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    len_before: usize,
) {
    let connection = &mut worker.core.connections[slot];
    let count = connection.input.held.len() - len_before;
    if count > 0 {
        connection.client.set_active(worker.core.now);
    }
    let input = &mut worker.core.connections[slot].input;
    if input.held.len() >= input.need_bytes {
        let bytes = std::mem::take(&mut input.held);
        worker.regions.add(&worker.core, slot, own::<E>(bytes), count);
    } else {
        worker.core.counters().input_bytes.add(count as u64);
    }
}

fn own<E: Home>(bytes: Vec<u8>) -> Place {
    if E::ROUTES { Place::Shared(Arc::new(bytes)) } else { Place::Own(bytes) }
}

/// Resumes a connection that was stopped in mid-input, with the bytes that it holds.
fn resume<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let Some(connection) = worker.core.connections.get_mut(slot) else { return };
    let input = &mut connection.input;
    if connection.is_touched || input.held.is_empty() || input.need_bytes > input.held.len() {
        return;
    }
    let bytes = std::mem::take(&mut input.held);
    if Worker::<E, P>::MEASURES {
        worker.latency.resumed.push(slot);
    }
    worker.core.touch(slot);
    worker.core.lend_buffer(slot);
    worker.regions.add(&worker.core, slot, own::<E>(bytes), 0);
}

/// I1: gives every connection its unparsed bytes back.
pub(super) fn keep_rests<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let mut regions = std::mem::take(&mut worker.regions.all);
    for region in regions.drain(..) {
        let Some(fed) = region.fed.get() else { continue };
        let Region { slot, place, .. } = region;
        let input = &mut worker.core.connections[slot].input;
        input.need_bytes = fed.need_bytes;
        match place {
            Place::Arena { start, end } => {
                let rest = &worker.regions.arena[start + fed.consumed_bytes..end];
                if !rest.is_empty() {
                    input.held.extend_from_slice(rest);
                }
            }
            Place::Own(bytes) => input.keep_from(fed.consumed_bytes, bytes),
            Place::Shared(bytes) => match Arc::try_unwrap(bytes) {
                Ok(bytes) => input.keep_from(fed.consumed_bytes, bytes),
                Err(bytes) => {
                    if fed.consumed_bytes < bytes.len() {
                        input.held = bytes[fed.consumed_bytes..].to_vec();
                    }
                    worker.engine.keep_receive_buffer(&mut worker.core, bytes);
                }
            },
        }
        if fed.need_bytes > HELD_BYTES_MAX && worker.core.connections[slot].exchange.is_none() {
            reserve_own(worker, slot);
        }
    }
    worker.regions.all = regions;
}

/// I2: reserves room for the whole command, or makes the connection wait.
pub(super) fn reserve_own<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) -> bool {
    let group_bytes_max = worker.core.group_bytes_max();
    let connection = &mut worker.core.connections[slot];
    let is_stranger = connection.is_stranger();
    let buffer_bytes = buffer_bytes(&connection.input);
    let want_bytes = wanted_bytes(connection, group_bytes_max);
    if connection.input.held.capacity() >= buffer_bytes {
        return true;
    }
    if is_stranger && buffer_bytes > STRANGER_BYTES_MAX {
        starve::refuse_stranger(worker, slot);
        return false;
    }
    if !worker.core.ledger.could_hold(want_bytes) {
        starve::refuse_too_large(worker, slot);
        return false;
    }
    if connection.booked.of(Kind::Bodies) == 0 {
        connection.waited = Duration::ZERO; // Another command.
    }
    if !is_stranger && worker.starved.must_queue(&worker.core, slot) {
        worker.starved.add(&mut worker.core, slot);
        return false;
    }
    let connection = &mut worker.core.connections[slot];
    // Booked here as a whole; `finish` then finds the books in order.
    let kind = if is_stranger { Kind::Strangers } else { Kind::Bodies };
    let extra_bytes = want_bytes.saturating_sub(connection.booked.of(kind));
    if !worker.core.ledger.try_reserve(kind, extra_bytes) {
        match kind {
            Kind::Strangers => starve::refuse_stranger(worker, slot),
            _ => worker.starved.add(&mut worker.core, slot),
        }
        return false;
    }
    connection.booked.add(kind, extra_bytes);
    let copy_bytes = want_bytes - buffer_bytes as u64;
    if copy_bytes > 0 && worker.core.ledger.try_turn(kind, Kind::Groups, copy_bytes) {
        connection.booked.take(kind, copy_bytes);
        connection.booked.add(Kind::Groups, copy_bytes);
        connection.reserve_copy(copy_bytes as usize);
    }
    let input = &mut connection.input;
    input.held.reserve_exact(buffer_bytes - input.held.len());
    true
}

/// Bytes that one round reads from one connection into the arena, at most.
#[inline]
pub(super) fn arena_read_bytes(ledger: &Ledger) -> usize {
    if ledger.is_tight() { TIGHT_READ_BYTES_MAX } else { READ_BYTES_MAX }
}

/// The buffer that a command takes as a whole, as far as that is known: one whose length is not
/// known yet grows by more than a read at a time.
fn buffer_bytes(input: &Input) -> usize {
    input.need_bytes.max(input.held.len() + READ_BYTES_MAX)
}

/// The room that a command takes: its buffer, and the copy that MULTI keeps of it.
pub(super) fn wanted_bytes(connection: &Connection, group_bytes_max: u64) -> u64 {
    (buffer_bytes(&connection.input) + connection.copy_bytes(group_bytes_max)) as u64
}
