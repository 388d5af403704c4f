//! Reading: each ready connection is read once, into the arena or into a large command's own
//! buffer.
//!
//! ```text
//!  arena: [ conn 3: held | new ][ conn 7: new ][ conn 9: held | new ] ... free ...
//! ```
//!
//! # Invariants
//! I1: the unparsed rest of a region is copied to its connection before the arena is used again.
//! I2: a command longer than [`HELD_BYTES_MAX`] gets a buffer of its own. It is reserved from the
//!     budget as a whole before a byte is read into it, so that two half-read commands never wait
//!     for each other's room.

use std::cell::Cell;
use std::io::{self, Read};
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use budget::{Kind, Ledger};
use handlers::gather::Fed;
use host::poller::{Poller, Ready};
use runtime::connection::{Connection, Ending, Input};
use runtime::engine::Home;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Worker;

/// A longer incomplete command has its own buffer, so it is not copied into the arena at each read.
pub(super) const HELD_BYTES_MAX: usize = 16 << 10;

/// The longest command of a client that still has to log in: ten arguments of 16 KiB, as in Redis.
const STRANGER_BYTES_MAX: usize = 192 << 10;

/// Bytes that one round reads from one connection into the arena, at most.
pub(super) const READ_BYTES_MAX: usize = 32 << 10;

/// The same while the buffers are all but full: enough to tell how long the command is. Of a large
/// one that finds no room, no more than this waits beside those that have room.
const TIGHT_READ_BYTES_MAX: usize = 4 << 10;

/// Bytes of one connection that this round parses.
pub(super) struct Region {
    pub slot: usize,
    place: Place,
    /// How far parsing got.
    pub fed: Cell<Option<Fed>>,
    /// Whether the connection's output holds nothing but replies to these bytes, all of which are
    /// plain reads: a write that has happened must never be answered as one that has not.
    pub is_answer_alone: Cell<bool>,
    /// Whether, beyond that, they may be parsed again.
    pub may_repeat: Cell<bool>,
    /// The number of Redis commands among them that were run.
    pub command_count: Cell<usize>,
}

enum Place {
    Arena {
        start: usize,
        end: usize,
    },
    Own(Vec<u8>),
    /// The same, in a buffer from which requests may borrow beyond the round.
    Shared(Arc<Vec<u8>>),
}

impl Region {
    /// The buffer from which requests may still borrow after the round.
    #[inline]
    pub fn receive_buffer(&self) -> Option<&Arc<Vec<u8>>> {
        match &self.place {
            Place::Shared(bytes) => Some(bytes),
            Place::Arena { .. } | Place::Own(_) => None,
        }
    }

    /// The bytes of the commands taken from it, once it was parsed.
    pub fn taken<'r>(&'r self, arena: &'r [u8]) -> Option<&'r [u8]> {
        let fed = self.fed.get()?;
        Some(&self.bytes(arena)[fed.skipped_bytes..fed.consumed_bytes])
    }

    /// Its bytes.
    #[inline]
    pub fn bytes<'r>(&'r self, arena: &'r [u8]) -> &'r [u8] {
        match &self.place {
            Place::Arena { start, end } => &arena[*start..*end],
            Place::Own(bytes) => bytes,
            Place::Shared(bytes) => bytes,
        }
    }
}

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

impl<E: Home, P: Poller> Worker<E, P> {
    /// W1, W4: puts connections with small requests before those with large ones, the longest
    /// waiting of each first; in every other turn one of the latter goes before all.
    #[cold]
    pub(super) fn put_in_order(&mut self, ready: &mut [Ready], resumable: &mut [usize]) {
        if self.core.take_left_unread() {
            // W5: the first one to be read changes from turn to turn.
            let first = self.core.turn() as usize % ready.len().max(1);
            ready.rotate_left(first);
        }
        ready.sort_by_key(|event| self.is_slow(event.token));
        let connections = &self.core.connections;
        resumable.sort_by_key(|slot| {
            let waited = connections.get(*slot).map_or(0, |it| it.rounds_waited);
            (self.is_slow(*slot as u64), std::cmp::Reverse(waited))
        });
        if self.is_slow_first() {
            let first_slow = resumable.iter().position(|slot| self.is_slow(*slot as u64));
            if let Some(first_slow) = first_slow {
                resumable[..=first_slow].rotate_right(1);
            }
        }
    }

    fn is_slow_first(&self) -> bool {
        self.core.turn().is_multiple_of(2)
    }

    /// Whether a token is that of a connection with large requests.
    fn is_slow(&self, token: u64) -> bool {
        usize::try_from(token).is_ok_and(|slot| self.core.is_slow(slot))
    }

    /// Reads until the arena is full or no connection is ready any more; returns how much of the
    /// arena is used. Both lists are in order.
    pub(super) fn read_ready(
        &mut self,
        ready: &mut Peekable<impl Iterator<Item = Ready>>,
        resumable: &mut Peekable<impl Iterator<Item = usize>>,
    ) -> usize {
        debug_assert!(self.regions.is_empty(), "I1");
        let mut used_bytes = 0;
        // The lists alternate, and each is first in every other turn: connections that resume do
        // not delay connections with new bytes, nor the other way round.
        let mut is_slow_due = self.is_slow_first();
        let mut is_resumed_next = is_slow_due;
        while self.arena.len() - used_bytes >= HELD_BYTES_MAX + READ_BYTES_MAX {
            let is_resumed = match (ready.peek(), resumable.peek()) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(event), Some(slot)) => {
                    match (self.is_slow(event.token), self.is_slow(*slot as u64)) {
                        (true, false) => true,
                        (false, true) => std::mem::take(&mut is_slow_due),
                        _ => is_resumed_next,
                    }
                }
            };
            is_resumed_next = !is_resumed;
            if is_resumed {
                resumable.next().into_iter().for_each(|slot| self.resume(slot));
                continue;
            }
            let Some(event) = ready.next() else { break };
            match event.token {
                super::TOKEN_WAKER => self.take_control(),
                // Loans, ports and doorbells are handled elsewhere.
                dispatch::lanes::TOKEN_LOAN.. => {}
                token => used_bytes = self.read_event(token as usize, event, used_bytes),
            }
        }
        used_bytes
    }

    fn read_event(&mut self, slot: usize, event: Ready, used_bytes: usize) -> usize {
        // Closed earlier in this round.
        let Some(connection) = self.core.connections.get_mut(slot) else { return used_bytes };
        if connection.is_touched {
            return used_bytes; // Already resumed in this round.
        }
        self.core.touch(slot);
        let connection = &mut self.core.connections[slot];
        if event.broken && !connection.interest.read {
            // The client will not read the rest of its output.
            connection.ending = Ending::Now;
            return used_bytes;
        }
        if !event.read || connection.input_ended || !connection.interest.read {
            return used_bytes;
        }
        if self.core.ledger.is_over() {
            self.starve(slot);
            return used_bytes;
        }
        self.core.lend_buffer(slot);
        let connection = &self.core.connections[slot];
        if connection.tls.is_some() {
            self.read_sealed(slot, used_bytes)
        } else if connection.input.need_bytes > HELD_BYTES_MAX {
            self.read_own(slot);
            used_bytes
        } else {
            self.read_arena(slot, used_bytes)
        }
    }

    /// Reads into the arena, behind the connection's held bytes.
    #[inline]
    fn read_arena(&mut self, slot: usize, used_bytes: usize) -> usize {
        let connection = &mut self.core.connections[slot];
        let start = used_bytes;
        let held = &mut connection.input.held;
        debug_assert!(held.len() <= HELD_BYTES_MAX);
        let after_held = start + held.len();
        self.arena[start..after_held].copy_from_slice(held);
        // If the client is about to be held back, this leaves fewer unparsed bytes to keep.
        let read_bytes = arena_read_bytes(&self.core.ledger).min(self.core.output_limit_bytes);
        let free = &mut self.arena[after_held..after_held + read_bytes];
        let count = match arrived(
            recv(&connection.socket, free, RecvFlags::empty()).map(|(count, _)| count),
            read_bytes,
        ) {
            Arrived::Bytes(count) => count,
            Arrived::Nothing if !self.is_draining => return used_bytes,
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
        connection.input_ended = self.is_draining && count < read_bytes;
        let end = after_held + count;
        self.add_region(slot, Place::Arena { start, end }, count);
        end
    }

    /// Reads a slice of a large command into its own buffer; parses once it may be complete.
    fn read_own(&mut self, slot: usize) {
        let Some(bytes_max) = self.own_bytes_max() else { return };
        let connection = &mut self.core.connections[slot];
        let input = &mut connection.input;
        let room_bytes = input.held.capacity() - input.held.len();
        let want_bytes = room_bytes.min(bytes_max);
        let len_before = input.held.len();
        let mut socket = (&connection.socket).take(want_bytes as u64);
        let result = socket.read_to_end(&mut input.held);
        let count = input.held.len() - len_before;
        match result {
            Ok(_) if count < want_bytes => connection.input_ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.input_ended = self.is_draining;
            }
            Err(_) => connection.ending = Ending::Now,
        }
        self.end_own_read(slot, len_before);
    }

    /// Bytes that a turn may read into an own buffer (K16, W5); `None`: nothing now.
    pub(super) fn own_bytes_max(&mut self) -> Option<usize> {
        match self.core.read_bytes_max() {
            // A connection that is read a last time has no later turn.
            0 if self.is_draining => Some(READ_BYTES_MAX),
            0 => None,
            bytes_max => Some(bytes_max),
        }
    }

    /// Parses the bytes in an own buffer once they may be complete.
    pub(super) fn end_own_read(&mut self, slot: usize, len_before: usize) {
        let connection = &mut self.core.connections[slot];
        let count = connection.input.held.len() - len_before;
        if count > 0 {
            connection.client.set_active(self.core.now);
            self.core.note_read_long(count);
        }
        let input = &mut self.core.connections[slot].input;
        if input.held.len() >= input.need_bytes {
            let bytes = std::mem::take(&mut input.held);
            self.add_region(slot, Self::own(bytes), count);
        } else {
            self.core.counters().input_bytes.add(count as u64);
        }
    }

    fn own(bytes: Vec<u8>) -> Place {
        if E::ROUTES { Place::Shared(Arc::new(bytes)) } else { Place::Own(bytes) }
    }

    /// Adds decrypted bytes in the arena as a region.
    pub(super) fn add_arena_region(&mut self, slot: usize, start: usize, end: usize, count: usize) {
        self.add_region(slot, Place::Arena { start, end }, count);
    }

    #[inline]
    fn add_region(&mut self, slot: usize, place: Place, new_bytes: usize) {
        self.core.counters().input_bytes.add(new_bytes as u64);
        self.core.connections[slot].client.set_active(self.core.now);
        let (fed, command_count) = (Cell::new(None), Cell::new(0));
        let (is_answer_alone, may_repeat) = (Cell::default(), Cell::default());
        self.regions.push(Region { slot, place, fed, is_answer_alone, may_repeat, command_count });
    }

    /// Resumes a connection that was stopped in mid-input, with the bytes that it holds.
    fn resume(&mut self, slot: usize) {
        let Some(connection) = self.core.connections.get_mut(slot) else { return };
        let input = &mut connection.input;
        if connection.is_touched || input.held.is_empty() || input.need_bytes > input.held.len() {
            return;
        }
        let bytes = std::mem::take(&mut input.held);
        if Self::MEASURES {
            self.latency.resumed.push(slot);
        }
        self.core.touch(slot);
        self.core.lend_buffer(slot);
        self.add_region(slot, Self::own(bytes), 0);
    }

    /// I1: gives every connection its unparsed bytes back.
    pub(super) fn keep_rests(&mut self) {
        let mut regions = std::mem::take(&mut self.regions);
        for region in regions.drain(..) {
            let Some(fed) = region.fed.get() else { continue };
            let Region { slot, place, .. } = region;
            let input = &mut self.core.connections[slot].input;
            input.need_bytes = fed.need_bytes;
            match place {
                Place::Arena { start, end } => {
                    let rest = &self.arena[start + fed.consumed_bytes..end];
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
                        self.engine.keep_receive_buffer(&mut self.core, bytes);
                    }
                },
            }
            if fed.need_bytes > HELD_BYTES_MAX && !self.is_exchange(slot) {
                self.reserve_own(slot);
            }
        }
        self.regions = regions;
    }

    /// I2: reserves room for the whole command, or makes the connection wait.
    pub(super) fn reserve_own(&mut self, slot: usize) -> bool {
        let group_bytes_max = self.core.group_bytes_max();
        let connection = &mut self.core.connections[slot];
        let is_stranger = connection.is_stranger();
        let buffer_bytes = buffer_bytes(&connection.input);
        let want_bytes = wanted_bytes(connection, group_bytes_max);
        if connection.input.held.capacity() >= buffer_bytes {
            return true;
        }
        if is_stranger && buffer_bytes > STRANGER_BYTES_MAX {
            self.refuse_stranger(slot);
            return false;
        }
        if !self.core.ledger.could_hold(want_bytes) {
            self.refuse_too_large(slot);
            return false;
        }
        if connection.booked.of(Kind::Bodies) == 0 {
            connection.waited = Duration::ZERO; // Another command.
        }
        if !is_stranger && self.must_queue(slot) {
            self.starve(slot);
            return false;
        }
        let connection = &mut self.core.connections[slot];
        // Booked here as a whole; `finish` then finds the books in order.
        let kind = if is_stranger { Kind::Strangers } else { Kind::Bodies };
        let extra_bytes = want_bytes.saturating_sub(connection.booked.of(kind));
        if !self.core.ledger.try_reserve(kind, extra_bytes) {
            match kind {
                Kind::Strangers => self.refuse_stranger(slot),
                _ => self.starve(slot),
            }
            return false;
        }
        connection.booked.add(kind, extra_bytes);
        let copy_bytes = want_bytes - buffer_bytes as u64;
        if copy_bytes > 0 && self.core.ledger.try_turn(kind, Kind::Groups, copy_bytes) {
            connection.booked.take(kind, copy_bytes);
            connection.booked.add(Kind::Groups, copy_bytes);
            connection.reserve_copy(copy_bytes as usize);
        }
        let input = &mut connection.input;
        input.held.reserve_exact(buffer_bytes - input.held.len());
        true
    }
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
