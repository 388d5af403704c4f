//! The end of a round for each connection that took part: send, give buffers back, close.

use std::os::fd::AsFd;
use std::sync::Arc;

use budget::Books;
use commands::output::Output;
use counters::Dialect;
use handlers::gather::Fed;
use host::poller::{Interest, Poller};
use replication::cluster;
use replication::durable::Passage;
use runtime::connection::{Connection, Ending, Framing, ProtocolState};
use runtime::engine::Home;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use wire::resp::ErrorReply;

use super::Worker;
use super::lend::Sender;

/// Unread bytes that are discarded before a close. Closing with unread bytes would reset the
/// connection, and the client could lose our last reply.
const DISCARD_BYTES_MAX: usize = 1 << 20;

/// How long plain reads are taken back, one round after the other, before their clients are told.
/// A move of a shard takes less; a node that was stopped waits longer for its next lease.
const TAKEN_BACK_MS_MAX: u64 = 50;

/// The error in the place of a read that the node may not answer.
const OVERTAKEN_MEMCACHED: &str =
    "SERVER_ERROR this node lost the slot or its lease while it read: send it again\r\n";

/// Sending up to this many bytes is included in the cost of the commands.
const SENT_UNCOUNTED_BYTES_MAX: usize = 64 << 10;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Finishes every touched connection.
    pub(super) fn finish_touched(&mut self) {
        if self.core.has_read_here {
            self.look_at_lease();
        }
        if self.gate.is_some() {
            self.pass_gate();
        }
        while let Some(slot) = self.core.touched.pop() {
            self.finish(slot);
        }
    }

    /// At a node of a cluster: checks, behind their execution, that this node could answer the
    /// reads executed here (K22). It could not if a lease has ended or a shard has moved in the
    /// middle of a round: then the connections whose replies wait are cut.
    fn look_at_lease(&mut self) {
        self.core.has_read_here = false;
        if !self.could_answer() {
            self.cut_readers();
        }
        self.core.reads_checked += 1;
    }

    /// The same while the round's bytes are still there: plain reads are taken back, and their
    /// bytes are parsed again in the next round, which knows the new places. A node that is cut off
    /// has a lease no more and learns of no new places, so its clients are told after some time.
    #[inline]
    pub(super) fn look_at_reads(&mut self) {
        if !self.core.has_read_here {
            return;
        }
        if self.could_answer() {
            self.core.taken_back_since = None;
            self.core.has_read_here = false;
            self.core.reads_checked += 1;
            return;
        }
        let now = self.core.now;
        let since = *self.core.taken_back_since.get_or_insert(now);
        if now.0.abs_diff(since.0) <= TAKEN_BACK_MS_MAX {
            self.take_back_reads();
        }
        self.tell_overtaken();
        self.look_at_lease();
    }

    fn could_answer(&self) -> bool {
        let seen = self.core.places_seen;
        self.core.shared.cluster().is_none_or(|view| {
            view.generation() == seen && view.may_answer(cluster::clock::now().ns)
        })
    }

    #[cold]
    fn take_back_reads(&mut self) {
        let checked = Some(self.core.reads_checked);
        for region in self.regions.iter().filter(|region| region.may_repeat.get()) {
            let connection = &mut self.core.connections[region.slot];
            let has_read = connection.read_here_at == checked;
            if !has_read || connection.ending != Ending::Open || connection.is_lent {
                continue;
            }
            let mut awaiting = std::mem::take(&mut connection.awaiting);
            self.engine.abandon(&mut self.core, &mut awaiting);
            let connection = &mut self.core.connections[region.slot];
            connection.awaiting = awaiting;
            connection.output = Output::default();
            connection.read_here_at = None;
            connection.parse_anew();
            region.fed.set(Some(Fed::up_to(0, 0)));
        }
    }

    /// Replaces what may not leave by errors, where no earlier reply stands before it: one for each
    /// reply, or a last one where it is not known how many the client waits for.
    fn tell_overtaken(&mut self) {
        let checked = Some(self.core.reads_checked);
        let in_resp = format!("-{}\r\n", ErrorReply::SlotLost);
        for region in self.regions.iter().filter(|region| region.is_answer_alone.get()) {
            let connection = &mut self.core.connections[region.slot];
            if connection.read_here_at != checked || connection.is_lent {
                continue;
            }
            let is_whole = connection.has_whole_replies();
            let (line, count) = match &connection.protocol_state {
                ProtocolState::Resp(_) if is_whole => (&*in_resp, region.command_count.get()),
                ProtocolState::Resp(_) => (&*in_resp, 0),
                ProtocolState::Memcached(state) if state.framing != Framing::Binary => {
                    (OVERTAKEN_MEMCACHED, 0)
                }
                ProtocolState::Memcached(_) => continue,
            };
            let mut awaiting = std::mem::take(&mut connection.awaiting);
            self.engine.abandon(&mut self.core, &mut awaiting);
            let connection = &mut self.core.connections[region.slot];
            connection.awaiting = awaiting;
            connection.read_here_at = None;
            connection.output = Output::default();
            connection
                .output
                .append(|out| out.extend_from_slice(line.repeat(count.max(1)).as_bytes()));
            if count == 0 {
                connection.ending = Ending::AfterFlush;
            }
        }
    }

    #[cold]
    fn cut_readers(&mut self) {
        let checked = Some(self.core.reads_checked);
        for slot in &self.core.touched {
            let connection = self.core.connections.get_mut(*slot);
            if let Some(connection) = connection.filter(|open| open.read_here_at == checked) {
                connection.ending = Ending::Now;
            }
        }
    }

    /// Lets the touched connections' replies out only if their writes are on the disk, or if writes
    /// are refused. When refusing begins, connections with a write that is answered or under way
    /// are cut (I1 of durable.rs).
    #[cold]
    fn pass_gate(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        let has_said = |slot: &usize| {
            let connection = self.core.connections.get_mut(*slot);
            connection.is_some_and(|connection| !connection.output.is_empty())
        };
        let speakers: Vec<usize> = self.core.touched.iter().copied().filter(has_said).collect();
        if speakers.is_empty() {
            return;
        }
        match gate.pass(self.engine.own_session()) {
            Passage::Durable => {
                for slot in speakers {
                    let connection = &mut self.core.connections[slot];
                    connection.has_written &= !connection.awaiting.is_empty();
                }
            }
            Passage::Refusing => {}
            Passage::Failed => self.cut_writers(),
        }
    }

    /// Cuts connections with a write that is answered or under way, because the log has failed.
    #[cold]
    pub(super) fn cut_writers(&mut self) {
        let mut count = 0;
        for slot in self.core.connections.slots() {
            let connection = &mut self.core.connections[slot];
            let is_waiting = !connection.output.is_empty() || !connection.awaiting.is_empty();
            if connection.is_lent || connection.has_written && is_waiting {
                connection.ending = Ending::Now;
                self.core.touch(slot);
                count += 1;
            }
        }
        if count > 0 {
            tracing::error!("{count} connections are closed: their writes are not in the log");
        }
    }

    fn finish(&mut self, slot: usize) {
        if self.core.connections.get(slot).is_some_and(|open| open.exchange.is_some()) {
            return self.finish_exchange(slot);
        }
        let sender = if E::ROUTES { self.sender_of(slot) } else { Sender::Own };
        let long_bytes_max = self.core.send_bytes_max();
        let Some(connection) = self.core.connections.get_mut(slot) else { return };
        connection.is_touched = false;
        let mut is_blocked = sender != Sender::Own;
        if sender == Sender::Own
            && !matches!(connection.ending, Ending::Now | Ending::Resting)
            && (!connection.output.is_empty() || connection.tls.is_some())
        {
            let is_long = connection.output.unsent_bytes() > SENT_UNCOUNTED_BYTES_MAX;
            let (mut sent_bytes, bytes_max) =
                (0, if is_long { long_bytes_max } else { usize::MAX });
            is_blocked = Self::send_unsent(connection, bytes_max, &mut sent_bytes);
            if sent_bytes > 0 && connection.interest.write {
                connection.client.set_active(self.core.now); // Slow, not idle.
            }
            self.core.counters().output_bytes.add(sent_bytes);
            if is_long {
                self.core.note_sent(sent_bytes);
            }
            if E::ROUTES && !is_blocked {
                self.engine.deliver_more(&mut self.core, slot);
            }
        }
        let connection = &mut self.core.connections[slot];
        let can_resume = connection.ending == Ending::Open
            && !connection.is_starved
            && !connection.is_held
            && !connection.input.held.is_empty()
            && connection.input.need_bytes <= connection.input.held.len()
            && connection.awaiting.may_go_on()
            && connection.output.unsent_bytes() <= self.core.output_limit_bytes;
        let is_done = match connection.ending {
            Ending::Open => {
                connection.input_ended
                    && (self.is_draining || !connection.is_held)
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
            return self.close(slot);
        }
        if let Some(buffer) = connection.output.take_buffer() {
            self.core.return_buffer(buffer);
        }
        self.book(slot);
        if can_resume {
            self.resumable.push(slot);
        }
        let connection = &self.core.connections[slot];
        let has_unparsed = connection.input.need_bytes <= connection.input.held.len()
            && !connection.input.held.is_empty();
        let read = connection.ending == Ending::Open
            && !connection.input_ended
            && !connection.is_starved
            && !has_unparsed
            && connection.output.unsent_bytes() <= self.core.output_limit_bytes;
        let write = is_blocked && sender != Sender::Lent;
        self.poll_for(slot, Interest { read, write });
    }

    /// Sets the poller's interest, if it has changed.
    fn poll_for(&mut self, slot: usize, interest: Interest) {
        let connection = &mut self.core.connections[slot];
        if connection.interest == interest {
            return;
        }
        connection.interest = interest;
        let changed = self.poller.modify(connection.socket.as_fd(), slot as u64, interest);
        if changed.is_err() {
            self.close(slot);
        }
    }

    /// Updates the bookings to the bytes that the connection holds.
    #[inline]
    pub(super) fn book(&mut self, slot: usize) {
        let connection = &self.core.connections[slot];
        if !(connection.holds_nothing() && connection.booked.is_empty()) {
            self.rebook(slot);
        }
    }

    #[inline(never)]
    fn rebook(&mut self, slot: usize) {
        let connection = &mut self.core.connections[slot];
        let held = connection.books();
        self.core.ledger.rebook(&mut connection.booked, held);
    }

    /// Closes a connection and forgets it.
    pub(super) fn close(&mut self, slot: usize) {
        if E::ROUTES && self.core.connections.get_mut(slot).is_some_and(|open| open.is_lent) {
            self.cut_loan(slot);
        }
        self.show_connection_end(slot);
        let Some(mut connection) = self.core.connections.remove(slot) else { return };
        if connection.exchange.is_some() {
            connection.ending = Ending::Now;
            return self.end_exchange(connection);
        }
        self.engine.abandon(&mut self.core, &mut connection.awaiting);
        self.core.ledger.rebook(&mut connection.booked, Books::default());
        self.core.shared.clients().remove(connection.client.id);
        self.core.shared.monitors().remove(connection.client.id);
        self.core.shared.event_stream().remove(connection.client.id);
        self.core.shared.tracking().forget(connection.client.id);
        if self.core.is_tracked {
            self.core.tell_of_end(connection.client.id);
        }
        if connection.ending != Ending::Now
            && let Some(tls) = &mut connection.tls
        {
            tls.close(connection.socket.as_fd());
        }
        if connection.ending == Ending::AfterFlush {
            self.end_sending(connection);
        }
    }

    /// Closes a connection whose client shall read the last reply: what has arrived is thrown away,
    /// and if more may come, the socket lingers.
    fn end_sending(&mut self, connection: Connection) {
        let (mut discarded_bytes, mut is_open) = (0, true);
        while is_open && discarded_bytes < DISCARD_BYTES_MAX {
            match recv(&connection.socket, &mut *self.arena, RecvFlags::empty()) {
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
            && !self.is_draining
            && self.poller.remove(connection.socket.as_fd()).is_ok()
        {
            self.lingering.add(connection.socket);
        }
    }

    fn show_connection_end(&mut self, slot: usize) {
        let Some(connection) = self.core.connections.get(slot) else { return };
        if connection.exchange.is_none() && connection.client.protocol == Dialect::Memcached {
            let is_garbled = match &connection.protocol_state {
                ProtocolState::Memcached(memcached) => memcached.is_garbled,
                ProtocolState::Resp(_) => false,
            };
            let reason = match connection.ending {
                _ if self.is_draining => "shutdown",
                _ if is_garbled => "error",
                Ending::Now => "error",
                Ending::Open | Ending::Resting | Ending::AfterFlush => "normal",
            };
            let client = Arc::clone(&connection.client);
            self.show_connection(&client, Some(reason));
        }
    }

    /// Closes all connections at the end of the worker.
    pub(super) fn close_all(&mut self) {
        for slot in self.core.connections.slots() {
            self.close(slot);
        }
    }

    /// Resumes all connections that were stopped in mid-input: a pause is over.
    pub(super) fn resume_all(&mut self) {
        for slot in self.core.connections.slots() {
            self.core.connections[slot].is_held = false;
            self.core.touch(slot);
        }
        self.finish_touched();
    }
}
