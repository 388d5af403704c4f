//! The end of a round for each connection that took part: send, give buffers back, close.

use std::os::fd::AsFd;
use std::sync::Arc;

use budget::Books;
use commands::output::{CALL_BYTES_MAX, Output, PIN_VALUE_BYTES_MIN, Sent};
use commands::work::Work;
use counters::Dialect;
use handlers::gather::Fed;
use host::poller::{Interest, Poller};
use replication::cluster;
use replication::durable::Passage;
use runtime::connection::{Connection, Ending, Framing, ProtocolState};
use runtime::core::tell;
use runtime::engine::Home;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use wire::resp::ErrorReply;

use super::bulk::Way;
use super::lend::Sender;
use super::{Worker, bulk, events, lend, sealed, udp};

/// Unread bytes that are discarded before a close. Closing with unread bytes would reset the
/// connection, and the client could lose our last reply.
const DISCARD_BYTES_MAX: usize = 1 << 20;

/// How long plain reads are taken back, one round after the other, before their clients are told.
/// A move of a shard takes less; a node that was stopped waits longer for its next lease.
const TAKEN_BACK_MS_MAX: u64 = 50;

/// The error in the place of a read that the node may not answer.
const OVERTAKEN_MEMCACHED: &str =
    "SERVER_ERROR this node lost the slot or its lease while it read: send it again\r\n";

/// Finishes every touched connection.
pub(super) fn finish_touched<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.core.has_read_here {
        look_at_lease(worker);
    }
    if worker.gate.is_some() {
        pass_gate(worker);
    }
    while let Some(slot) = worker.core.touched.pop() {
        finish(worker, slot);
    }
}

/// At a node of a cluster: checks, behind their execution, that this node could answer the
/// reads executed here (K22). It could not if a lease has ended or a shard has moved in the
/// middle of a round: then the connections whose replies wait are cut.
fn look_at_lease<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    worker.core.has_read_here = false;
    if !could_answer(worker) {
        cut_readers(worker);
    }
    worker.core.reads_checked += 1;
}

/// The same while the round's bytes are still there: plain reads are taken back, and their
/// bytes are parsed again in the next round, which knows the new places. A node that is cut off
/// has a lease no more and learns of no new places, so its clients are told after some time.
#[inline]
pub(super) fn look_at_reads<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if !worker.core.has_read_here {
        return;
    }
    if could_answer(worker) {
        worker.core.taken_back_since = None;
        worker.core.has_read_here = false;
        worker.core.reads_checked += 1;
        return;
    }
    let now = worker.core.now;
    let since = *worker.core.taken_back_since.get_or_insert(now);
    if now.0.abs_diff(since.0) <= TAKEN_BACK_MS_MAX {
        take_back_reads(worker);
    }
    tell_overtaken(worker);
    look_at_lease(worker);
}

fn could_answer<E: Home, P: Poller>(worker: &Worker<E, P>) -> bool {
    let seen = worker.core.places_seen;
    worker
        .core
        .shared
        .cluster()
        .is_none_or(|view| view.generation() == seen && view.may_answer(cluster::clock::now().ns))
}

#[cold]
fn take_back_reads<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let checked = Some(worker.core.reads_checked);
    for region in worker.regions.all.iter().filter(|region| region.may_repeat.get()) {
        let connection = &worker.core.connections[region.slot];
        let (client_id, is_in_group) = (connection.client.id, connection.pending_group().is_some());
        let is_open = connection.ending == Ending::Open || is_in_group;
        if connection.read_here_at != checked || !is_open || connection.is_lent {
            continue;
        }
        // A group of reads, which is given up, and read again behind them.
        worker.core.end_rest(region.slot, client_id, Ending::Open);
        let connection = &mut worker.core.connections[region.slot];
        let mut awaiting = std::mem::take(&mut connection.awaiting);
        worker.engine.abandon(&mut worker.core, &mut awaiting);
        let connection = &mut worker.core.connections[region.slot];
        connection.awaiting = awaiting;
        connection.output = Output::default();
        connection.read_here_at = None;
        connection.parse_anew();
        region.fed.set(Some(Fed::up_to(0, 0)));
    }
}

/// Replaces what may not leave by errors, where no earlier reply stands before it: one for each
/// reply, or a last one where it is not known how many the client waits for.
fn tell_overtaken<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let checked = Some(worker.core.reads_checked);
    let in_resp = format!("-{}\r\n", ErrorReply::SlotLost);
    for region in worker.regions.all.iter().filter(|region| region.is_answer_alone.get()) {
        let connection = &mut worker.core.connections[region.slot];
        if connection.read_here_at != checked
            || connection.is_lent
            || connection.pending_group().is_some()
        {
            continue;
        }
        let is_whole = connection.has_whole_replies();
        let line = match &connection.protocol_state {
            ProtocolState::Resp(_) => &*in_resp,
            // An error is the reply of a quiet command too.
            ProtocolState::Memcached(state) if state.framing != Framing::Binary => {
                OVERTAKEN_MEMCACHED
            }
            ProtocolState::Memcached(_) => continue,
        };
        let count = if is_whole { region.command_count.get() } else { 0 };
        let mut awaiting = std::mem::take(&mut connection.awaiting);
        worker.engine.abandon(&mut worker.core, &mut awaiting);
        let connection = &mut worker.core.connections[region.slot];
        connection.awaiting = awaiting;
        connection.read_here_at = None;
        connection.output = Output::default();
        connection.output.append(|out| out.extend_from_slice(line.repeat(count.max(1)).as_bytes()));
        if count == 0 {
            connection.ending = Ending::AfterFlush;
        }
    }
}

#[cold]
fn cut_readers<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let checked = Some(worker.core.reads_checked);
    for slot in &worker.core.touched {
        let connection = worker.core.connections.get_mut(*slot);
        if let Some(connection) = connection.filter(|open| open.read_here_at == checked) {
            connection.ending = Ending::Now;
        }
    }
}

/// Lets the touched connections' replies out only if their writes are on the disk, or if writes
/// are refused. When refusing begins, connections with a write that is answered or under way
/// are cut (I1 of durable.rs).
#[cold]
fn pass_gate<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let Some(gate) = &mut worker.gate else { return };
    let has_said = |slot: &usize| {
        let connection = worker.core.connections.get_mut(*slot);
        connection.is_some_and(|connection| !connection.output.is_empty())
    };
    let speakers: Vec<usize> = worker.core.touched.iter().copied().filter(has_said).collect();
    if speakers.is_empty() {
        return;
    }
    match gate.pass(worker.engine.own_session()) {
        Passage::Durable => {
            for slot in speakers {
                let connection = &mut worker.core.connections[slot];
                connection.has_written &= !connection.awaiting.is_empty();
            }
        }
        Passage::Refusing => {}
        Passage::Failed => cut_writers(worker),
    }
}

/// Cuts connections with a write that is answered or under way, because the log has failed.
#[cold]
pub(super) fn cut_writers<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let mut count = 0;
    for slot in worker.core.connections.slots() {
        let connection = &mut worker.core.connections[slot];
        let is_waiting = !connection.output.is_empty() || !connection.awaiting.is_empty();
        if connection.is_lent || connection.has_written && is_waiting {
            connection.ending = Ending::Now;
            worker.core.touch(slot);
            count += 1;
        }
    }
    if count > 0 {
        tracing::error!("{count} connections are closed: their writes are not in the log");
    }
}

fn finish<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    if worker.core.connections.get(slot).is_some_and(|open| open.exchange.is_some()) {
        return udp::finish_exchange(worker, slot);
    }
    let sender = if E::ROUTES { lend::sender_of(worker, slot) } else { Sender::Own };
    let Some(connection) = worker.core.connections.get_mut(slot) else { return };
    connection.is_touched = false;
    let is_blocked = sender != Sender::Own || send(worker, slot);
    let connection = &mut worker.core.connections[slot];
    let can_resume = connection.ending == Ending::Open
        && !connection.is_starved
        && !connection.is_held
        && !connection.input.held.is_empty()
        && connection.input.need_bytes <= connection.input.held.len()
        && connection.awaiting.may_go_on()
        && (connection.output.unsent_bytes() <= worker.core.output_limit_bytes
            || connection.pending_group().is_some());
    let is_done = match connection.ending {
        Ending::Open => {
            connection.input_ended
                && (worker.is_draining || !connection.is_held)
                && !can_resume
                && !is_blocked
                && connection.awaiting.is_empty()
                && connection.awaiting.may_go_on()
        }
        Ending::Resting => false,
        Ending::AfterFlush => !is_blocked && connection.awaiting.is_empty(),
        Ending::Now => true,
    };
    if is_done {
        return close(worker, slot);
    }
    if let Some(buffer) = connection.output.take_buffer() {
        worker.core.return_buffer(buffer);
    }
    book(worker, slot);
    if can_resume {
        worker.resumable.push(slot);
    }
    let connection = &worker.core.connections[slot];
    let has_unparsed = connection.input.need_bytes <= connection.input.held.len()
        && !connection.input.held.is_empty();
    let read = connection.ending == Ending::Open
        && !connection.input_ended
        && !connection.is_starved
        && !has_unparsed
        && connection.output.unsent_bytes() <= worker.core.output_limit_bytes;
    let write = is_blocked && sender != Sender::Lent;
    // What is in bulk's queue, that decides (its B3).
    let (known, in_bulk) = (connection.interest, connection.in_bulk);
    let interest = Interest {
        read: if in_bulk.receives { known.read } else { read },
        write: if in_bulk.sends { known.write } else { write },
    };
    poll_for(worker, slot, interest);
}

/// Sends what the connection's socket takes; returns whether there is more. A long output is sent
/// later in the round, in turn with others (bulk.rs).
#[inline]
fn send<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) -> bool {
    if worker.core.connections[slot].turned_away.is_some() {
        tell_turned_away(worker, slot);
    }
    let connection = &worker.core.connections[slot];
    if matches!(connection.ending, Ending::Now | Ending::Resting)
        || (connection.output.is_empty() && connection.tls.is_none())
    {
        return false;
    }
    if connection.in_bulk.sends {
        return true;
    }
    if is_long(connection) {
        if !connection.interest.write {
            bulk::add(worker, slot, Way::Send);
        }
        return true;
    }
    send_some(worker, slot, usize::MAX).0 != Sent::All
}

/// Whether the connection's output is sent in turn with others: one with a large value. All else
/// leaves as fast as turns make it, for it takes room in the buffers.
#[inline]
pub(super) fn is_long(connection: &Connection) -> bool {
    let output = &connection.output;
    output.unsent_bytes() > CALL_BYTES_MAX && output.pinned_bytes_max() >= PIN_VALUE_BYTES_MIN
}

/// Sends at most so many bytes; returns how that ended, and how many were sent.
pub(super) fn send_some<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    bytes_max: usize,
) -> (Sent, usize) {
    let connection = &mut worker.core.connections[slot];
    let was_long = connection.output.unsent_bytes() > CALL_BYTES_MAX;
    let mut sent_bytes = 0;
    let sent = sealed::send_unsent(connection, bytes_max, &mut sent_bytes);
    if sent_bytes > 0 && (connection.interest.write || connection.in_bulk.sends) {
        connection.client.set_active(worker.core.now); // Slow, not idle.
    }
    worker.core.counters().output_bytes.add(sent_bytes);
    if was_long {
        worker.core.charge(Work::bytes(sent_bytes)); // Of short ones, the commands' cost has it.
    }
    if E::ROUTES && sent == Sent::All {
        worker.engine.deliver_more(&mut worker.core, slot);
    }
    (sent, sent_bytes as usize)
}

/// Tells a client that a door has turned it away, once all earlier replies are there.
#[cold]
fn tell_turned_away<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &mut worker.core.connections[slot];
    connection.end_turned_away();
    if connection.awaiting.is_empty()
        && let Some(line) = connection.take_denial()
    {
        worker.core.lend_buffer(slot);
        worker.core.connections[slot].output.append(|out| out.extend_from_slice(line));
    }
}

/// Sets the poller's interest, if it has changed.
pub(super) fn poll_for<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    interest: Interest,
) {
    let connection = &mut worker.core.connections[slot];
    if connection.interest == interest {
        return;
    }
    connection.interest = interest;
    let changed = worker.poller.modify(connection.socket.as_fd(), slot as u64, interest);
    if changed.is_err() {
        close(worker, slot);
    }
}

/// Updates the bookings to the bytes that the connection holds.
#[inline]
pub(super) fn book<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &worker.core.connections[slot];
    if !(connection.holds_nothing() && connection.booked.is_empty()) {
        rebook(worker, slot);
    }
}

#[inline(never)]
fn rebook<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &mut worker.core.connections[slot];
    let held = connection.books();
    worker.core.ledger.rebook(&mut connection.booked, held);
}

/// Closes a connection and forgets it.
pub(super) fn close<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    if E::ROUTES && worker.core.connections.get_mut(slot).is_some_and(|open| open.is_lent) {
        lend::cut(worker, slot);
    }
    show_connection_end(worker, slot);
    let Some(mut connection) = worker.core.connections.remove(slot) else { return };
    if connection.exchange.is_some() {
        connection.ending = Ending::Now;
        return udp::end_exchange(worker, connection);
    }
    worker.engine.abandon(&mut worker.core, &mut connection.awaiting);
    worker.core.ledger.rebook(&mut connection.booked, Books::default());
    worker.core.shared.clients().remove(connection.client.id);
    worker.core.shared.observations().monitors.remove(connection.client.id);
    worker.core.shared.observations().event_stream.remove(connection.client.id);
    worker.core.shared.tracking().forget(connection.client.id);
    if worker.core.is_tracked {
        tell::send_end(&mut worker.core, connection.client.id);
    }
    if connection.ending != Ending::Now
        && let Some(tls) = &mut connection.tls
    {
        tls.close(connection.socket.as_fd());
    }
    if connection.ending == Ending::AfterFlush {
        end_sending(worker, connection);
    }
}

/// Closes a connection whose client shall read the last reply: what has arrived is thrown away,
/// and if more may come, the socket lingers.
fn end_sending<E: Home, P: Poller>(worker: &mut Worker<E, P>, connection: Connection) {
    let (mut discarded_bytes, mut is_open) = (0, true);
    while is_open && discarded_bytes < DISCARD_BYTES_MAX {
        match recv(&connection.socket, &mut *worker.regions.arena, RecvFlags::empty()) {
            Ok((count @ 1.., _)) => discarded_bytes += count,
            Err(Errno::AGAIN) => break,
            Ok(_) | Err(_) => is_open = false,
        }
    }
    // The client may have left already.
    let _ = shutdown(&connection.socket, Shutdown::Write);
    let is_sending = discarded_bytes > 0 || connection.input.is_unfinished();
    if is_open
        && is_sending
        && !worker.is_draining
        && worker.poller.remove(connection.socket.as_fd()).is_ok()
    {
        worker.lingering.add(connection.socket);
    }
}

fn show_connection_end<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let Some(connection) = worker.core.connections.get(slot) else { return };
    if connection.exchange.is_none() && connection.client.protocol == Dialect::Memcached {
        let is_garbled = match &connection.protocol_state {
            ProtocolState::Memcached(memcached) => memcached.is_garbled,
            ProtocolState::Resp(_) => false,
        };
        let reason = match connection.ending {
            _ if worker.is_draining => "shutdown",
            _ if is_garbled => "error",
            Ending::Now => "error",
            Ending::Open | Ending::Resting | Ending::AfterFlush => "normal",
        };
        let client = Arc::clone(&connection.client);
        events::show_connection(worker, &client, Some(reason));
    }
}

/// Closes all connections at the end of the worker.
pub(super) fn close_all<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    for slot in worker.core.connections.slots() {
        close(worker, slot);
    }
}

/// Resumes all connections that were stopped in mid-input: a pause is over.
pub(super) fn resume_all<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    for slot in worker.core.connections.slots() {
        worker.core.connections[slot].is_held = false;
        worker.core.touch(slot);
    }
    finish_touched(worker);
}
