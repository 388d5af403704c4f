//! lru_crawler metadump and mgdump: list all keys, one slice per turn, as the client reads them.
//! stats cachedump lists some of them, and stats conns lists the connections.
//!
//! ```text
//!  turn 1: metadump all ─▶ some lines, sent                DumpWalk: its place, kept with the
//!  turn 2: (the output has drained) ─▶ some lines, sent    connection, its line still the first
//!  turn n: the last lines, END, and the line is consumed   of the input
//! ```
//!
//! # Invariants
//! I1: while a connection has a [`DumpWalk`], its input begins with the command's line.
//! I2: a slice that is not the last ends only where no further command may begin: the turn is
//!     spent, or the output is full. So no command is parsed after it, and no request is
//!     outstanding.
//! I3: a walk is plain data and names no slot: it moves with its connection to another worker.
//! I4: a dump requested by a datagram is answered as a whole or refused: its list is bounded by the
//!     exchange's own limit, not by the output's.

use std::ops::Bound;

use base::UnixMillis;
use commands::work::{TURN_STEPS, Work};
use counters::{Dialect, MemcachedCommand};
use replication::cluster::View;
use replication::cluster::is_own;
use runtime::connection::Connection;
use runtime::core::Core;
use runtime::walks::DumpWalk;
use runtime::walks::dump::{List, Place, Wanted};
use store::request::{Item, LastUse};
use store::{Direction, IndexKind, Range, Session, entry_len_bytes};
use wire::memcached::{DumpKind, DumpedFacts, Encoder, Reply};

use super::stats::list_connection;
use crate::gather::Gather;
use crate::memcached::caller;

/// The number of items that one call on an ordered index visits.
const ORDERED_STEP: usize = 64;

/// The number of calls on a hash index that make up a turn: each looks at a bounded part of the
/// index, which may be empty.
const HASHED_CALLS_PER_TURN: u64 = 4;

/// The number of clients taken from the registry under one lock.
const CLIENTS_AT_ONCE: usize = 64;

/// The maximum length of memcached's `stats cachedump`.
const ITEMS_BYTES_MAX: usize = 2 << 20;

/// One call of the store for a walk.
struct Step<'s> {
    wanted: &'s mut Wanted,
    cluster: Option<&'s View>,
    now: UnixMillis,
    lines: &'s mut Vec<u8>,
    lines_start: usize,
    /// Whether the output is full after so many bytes of lines.
    is_full: &'s dyn Fn(usize) -> bool,
    /// The cost of the turn so far.
    turn: Work,
    /// The cost of this call, besides the items.
    call: Work,
    visited: usize,
}

impl Step<'_> {
    fn see(&mut self, item: &Item<'_>) {
        self.visited += 1;
        if self.wanted.is_nothing() || !is_own(self.cluster, item) {
            return;
        }
        let len_before = self.lines.len();
        if let List::Keys(kind) = self.wanted.list {
            line_of(kind, item, self.now, self.lines);
        }
        let line_bytes = self.lines.len() - len_before;
        self.wanted.left_count -= usize::from(line_bytes > 0);
        self.wanted.left_bytes = self.wanted.left_bytes.saturating_sub(line_bytes);
    }

    fn lines_bytes(&self) -> usize {
        self.lines.len() - self.lines_start
    }

    fn cost(&self) -> Work {
        let mut cost = self.call;
        cost += Work::visited(self.visited);
        // Lines consist of numbers, and of keys that are encoded byte by byte.
        cost += Work::steps(self.lines_bytes() as u64);
        cost
    }

    fn has_enough(&self) -> bool {
        let mut turn = self.turn;
        turn += self.cost();
        turn.is_spent() || (self.is_full)(self.lines_bytes()) || self.wanted.is_nothing()
    }

    /// Visits the items after `last`; returns the key at which it stopped, if there are more.
    fn visit_ordered(&mut self, session: &mut Session, last: Option<&[u8]>) -> Option<Vec<u8>> {
        let range = Range {
            start: last.map_or(Bound::Unbounded, Bound::Excluded),
            end: Bound::Unbounded,
            direction: Direction::Forward,
            item_limit: ORDERED_STEP,
        };
        let mut stopped_at = None;
        let end = session.range(self.now, &range, |item| {
            if stopped_at.is_none() {
                self.see(item);
                stopped_at = self.has_enough().then(|| item.key.to_vec());
            }
        });
        debug_assert!(end.is_ok(), "an index that is configured as a tree has an order");
        stopped_at.or(end.ok().and_then(|end| end.resume_key))
    }

    /// Visits the items from a cursor on; returns the next cursor, 0 at the end.
    fn visit_hashed(&mut self, session: &mut Session, cursor: u64) -> u64 {
        let next = session.scan_while(self.now, cursor, &[], usize::MAX, |item| {
            self.see(item);
            !self.has_enough()
        });
        // A hash index accepts every cursor.
        next.unwrap_or(0)
    }

    /// Visits some items from a place on; returns the place after them.
    fn visit(&mut self, session: &mut Session, place: &Place) -> Place {
        match place {
            Place::Ordered(last) => {
                self.call = Work::keys(1);
                let last = self.visit_ordered(session, last.as_deref());
                last.map_or(Place::End, |last| Place::Ordered(Some(last)))
            }
            Place::Hashed(cursor) => {
                self.call = Work::steps(TURN_STEPS / HASHED_CALLS_PER_TURN);
                match self.visit_hashed(session, *cursor) {
                    0 => Place::End,
                    cursor => Place::Hashed(cursor),
                }
            }
            Place::Clients { .. } | Place::End => Place::End,
        }
    }
}

/// Lists the keys of this server; in a cluster those that it serves.
pub(super) fn dump(gather: &mut Gather<'_, '_>, slot: usize, kind: DumpKind) {
    let (command, left_count, left_bytes) = match kind {
        DumpKind::Items { class: 1, count_max: 0 } => {
            (MemcachedCommand::Stats, usize::MAX, ITEMS_BYTES_MAX)
        }
        DumpKind::Items { class: 1, count_max } => {
            (MemcachedCommand::Stats, count_max as usize, ITEMS_BYTES_MAX)
        }
        DumpKind::Items { .. } => (MemcachedCommand::Stats, 0, 0),
        DumpKind::Facts | DumpKind::Gets => (MemcachedCommand::LruCrawler, usize::MAX, usize::MAX),
    };
    let place = match gather.core.shared.config().index {
        IndexKind::Tree => Place::Ordered(None),
        IndexKind::Hash => Place::Hashed(0),
    };
    let wanted = Wanted { list: List::Keys(kind), left_count, left_bytes };
    begin_dump(gather, slot, command, place, wanted);
}

/// stats conns.
pub(super) fn dump_connections(gather: &mut Gather<'_, '_>, slot: usize) {
    let place = Place::Clients { id: 0, end_id: gather.core.shared.clients().last_id() };
    let (left_count, left_bytes) = (usize::MAX, usize::MAX);
    let wanted = Wanted { list: List::Connections, left_count, left_bytes };
    begin_dump(gather, slot, MemcachedCommand::Stats, place, wanted);
}

fn begin_dump(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    command: MemcachedCommand,
    place: Place,
    wanted: Wanted,
) {
    caller(gather, slot, command, false);
    gather.settle(slot);
    let walk = DumpWalk { place, wanted, command_bytes: 0 };
    dump_slice(gather, slot, Box::new(walk));
}

/// Continues a list; returns the number of consumed input bytes: none, or those of its line
/// (I1).
#[cold]
pub(super) fn dump_on(gather: &mut Gather<'_, '_>, slot: usize) -> usize {
    if !may_list(gather, slot) {
        return 0;
    }
    let Some(walk) = gather.core.connections[slot].memcached().dump.take() else { return 0 };
    let command_bytes = walk.command_bytes;
    dump_slice(gather, slot, walk);
    match gather.core.connections[slot].memcached().dump.is_some() {
        true => 0,
        false => command_bytes,
    }
}

/// The bytes that are not consumed of the last command, which has that length.
#[inline]
pub(super) fn dump_left_bytes(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    command_bytes: usize,
) -> usize {
    let Some(walk) = &mut gather.core.connections[slot].memcached().dump else { return 0 };
    walk.command_bytes = command_bytes;
    command_bytes
}

/// Whether lines may be added: see I2 and I4.
fn may_list(gather: &Gather<'_, '_>, slot: usize) -> bool {
    match gather.core.connections[slot].exchange {
        Some(_) => !gather.core.is_spent(),
        None => gather.core.may_parse(slot),
    }
}

/// Lists as much as the turn and the output take.
fn dump_slice(gather: &mut Gather<'_, '_>, slot: usize, mut walk: Box<DumpWalk>) {
    debug_assert!(gather.core.connections[slot].awaiting.is_empty(), "I2");
    gather.core.note_slice(slot);
    while !walk.is_over() && may_list(gather, slot) {
        match walk.place {
            Place::Clients { id, end_id } => {
                walk.place = clients_step(gather, slot, (id, end_id));
            }
            _ => dump_step(gather, slot, &mut walk),
        }
    }
    let connection = &mut gather.core.connections[slot];
    if walk.is_over() {
        let end = match walk.wanted.list {
            List::Keys(DumpKind::Gets) => Reply::MetaMiss,
            _ => Reply::End,
        };
        connection.output.append(|out| Encoder::new(out).reply(end));
    } else {
        connection.memcached().dump = Some(walk);
    }
    let made_bytes = connection.output.encoded_bytes();
    gather.core.made(made_bytes);
}

/// Lists some clients with ids behind one; returns the place after them.
fn clients_step(gather: &mut Gather<'_, '_>, slot: usize, (id, end_id): (u64, u64)) -> Place {
    let clients = gather.core.shared.clients().between(id, end_id, CLIENTS_AT_ONCE);
    let Core { connections, now, .. } = &mut *gather.core;
    let Connection { exchange, output, .. } = &mut connections[slot];
    let told = output.append(|lines| {
        let told = clients.iter().filter(|client| client.protocol == Dialect::Memcached);
        told.map(|client| list_connection(lines, client, *now)).count()
    });
    let unsent_bytes = output.unsent_bytes();
    let is_refused = exchange.as_deref().is_some_and(|exchange| !exchange.allows(unsent_bytes));
    gather.core.charge(Work::clients(clients.len().max(1), told));
    match clients.last() {
        Some(last) if clients.len() == CLIENTS_AT_ONCE && !is_refused => {
            Place::Clients { id: last.id, end_id }
        }
        _ => Place::End,
    }
}

fn dump_step(gather: &mut Gather<'_, '_>, slot: usize, walk: &mut DumpWalk) {
    let (now, turn) = (gather.core.now, gather.core.work());
    let Some(session) = gather.engine.session() else {
        debug_assert!(false, "commands on all keys never run under locks");
        walk.place = Place::End;
        return;
    };
    let Core { connections, cluster, output_limit_bytes, .. } = &mut *gather.core;
    let Connection { exchange, output, .. } = &mut connections[slot];
    let unsent_bytes = output.unsent_bytes();
    let exchange = exchange.as_deref();
    let is_full = |lines_bytes: usize| match exchange {
        Some(exchange) => !exchange.allows(unsent_bytes + lines_bytes),
        None => unsent_bytes + lines_bytes > *output_limit_bytes,
    };
    let (cluster, DumpWalk { place, wanted, .. }) = (cluster.as_deref(), &mut *walk);
    let (cost, lines_bytes) = output.append(|lines| {
        let (lines_start, is_full, call) = (lines.len(), &is_full, Work::default());
        let mut step =
            Step { wanted, cluster, now, lines, lines_start, is_full, turn, call, visited: 0 };
        *place = step.visit(session, place);
        (step.cost(), step.lines_bytes())
    });
    if exchange.is_some() && is_full(lines_bytes) {
        walk.place = Place::End; // I4: it is refused.
    }
    gather.core.charge(cost);
}

fn line_of(kind: DumpKind, item: &Item<'_>, now: UnixMillis, lines: &mut Vec<u8>) {
    let mut encoder = Encoder::new(lines);
    match kind {
        DumpKind::Gets => encoder.dumped_get(item.key),
        DumpKind::Items { .. } => {
            let expires_at_s = item.expires_at.map(|at| at.0.div_ceil(1000));
            encoder.dumped_item(item.key, item.value.len(), expires_at_s);
        }
        DumpKind::Facts => {
            let is_known = item.last_use != LastUse::UNKNOWN;
            let used_at_s = (now.0 / 1000).saturating_sub(item.last_use.seconds_ago(now));
            let facts = DumpedFacts {
                expires_at_s: item.expires_at.map(|at| at.0.div_ceil(1000)),
                used_at_s: if is_known { used_at_s } else { 0 },
                is_read: item.last_use.is_read(),
                version: item.cas(),
                size_bytes: entry_len_bytes(item.key.len(), item.value.len()),
            };
            encoder.dumped_facts(item.key, facts);
        }
    }
}
