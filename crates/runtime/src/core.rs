//! The state of a worker that its commands work on, apart from the store's session.

pub mod flushing;
pub mod resting;
pub mod tell;
pub mod timing;
pub mod turn;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{KeyHash, KeyHasher, UnixMillis, WorkerId};
use budget::{Kind, Ledger};
use commands::reply::Tally;
use commands::work::Work;
use counters::WorkerCounters;
use replication::cluster::View;
use sessions::acl;
use sessions::doors::{Access, Answers, Door, denial};
use sessions::event_stream::Lines;
use wire::memcached::EventTopics;

use crate::connection::{Connection, Ending, ProtocolState};
use crate::group_replies::GroupReplies;
use crate::pause::Pauses;
use crate::shared::Shared;
use crate::slab::Slab;
use flushing::Flushing;
use resting::Resting;
use tell::Telling;
use timing::Timing;
use turn::Turn;

/// The number of buffers that a worker keeps for reuse, and the largest one worth keeping.
const POOL_BUFFERS_MAX: usize = 64;
const POOL_BUFFER_BYTES_MIN: usize = 4 << 10;
const POOL_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Unsent bytes that each client may have, however many clients there are.
const OUTPUT_LIMIT_BYTES_MIN: usize = 16 << 10;

/// The commands in so many bytes take less than the part of a turn.
const SHORT_INPUT_BYTES_MAX: usize = 1 << 10;

/// The maximum part of the client buffers for one transaction, and for its replies.
const GROUP_BUFFER_PART: u64 = 4;

/// Bytes that the replies of one gathering may take, however full the buffers are.
const MADE_BYTES_MIN: usize = 1 << 20;

/// One worker's connections, buffers and counters.
pub struct Core {
    /// The state that all threads share.
    pub shared: Arc<Shared>,
    /// This worker.
    pub worker: WorkerId,
    /// The store's hasher.
    pub hasher: KeyHasher,
    /// The largest value.
    pub value_max_bytes: u64,
    /// A client with more unsent bytes is not read.
    pub output_limit_bytes: usize,
    /// A client with this many unsent bytes begins no command: one more than the limit, or 0 while
    /// its part or the turn is spent (W1, W2).
    parse_stop_bytes: usize,
    /// The turn, and its cost.
    pub turn: Turn,
    /// The connection whose long command other workers execute, by its slot and its client, and the
    /// mark of the reply.
    long_elsewhere: (usize, u64, u32),
    /// Bytes of large values that the batch has read or copied.
    pub touched_bytes: u64,
    /// A client that gets more copied bytes in answer to one command is closed.
    pub output_copied_bytes_max: usize,
    /// Its connections.
    pub connections: Slab<Connection>,
    /// Connections that the round has to finish: send, give buffers back, close.
    pub touched: Vec<usize>,
    /// Empty output buffers.
    pub pool: Vec<Vec<u8>>,
    /// Its share of the buffer budget.
    pub ledger: Ledger,
    /// The room for the replies of the transaction that runs.
    pub group_replies: Option<GroupReplies>,
    /// The memory in which commands of the transaction that runs make long values, one after the
    /// other: booked before the first.
    pub group_scratch_bytes: u64,
    /// Bytes of this gathering's replies that are not sent, as far as they were counted.
    pub made_bytes: usize,
    /// Beyond this many, no other connection is fed before these have been sent.
    pub made_bytes_max: usize,
    /// Some connections are not fed, because those replies have been made, or much of the log is
    /// pinned.
    pub holds_back: bool,
    /// Connections that wait until less of the log is pinned.
    pub short_of_pins: Vec<usize>,
    /// The round's wall-clock time.
    pub now: UnixMillis,
    /// The users of the RESP port, as of the last check of connections.
    pub acl: Arc<acl::Table>,
    acl_seen: u64,
    /// Connections whose reply waits.
    pub resting: Resting,
    /// Those of them, by slot and client, that wait for an answer to their group.
    pub waiting_groups: BTreeMap<usize, u64>,
    /// The flushes under way.
    pub flushing: Flushing,
    /// Some users may not read all keys.
    pub has_limited_users: bool,
    /// The answers of all doors, as of the last check.
    pub doors: Answers,
    /// CLIENT PAUSE.
    pub pauses: Pauses,
    /// Whether any client tracks, or is about to.
    pub is_tracked: bool,
    /// Disables the fast path while CLIENT PAUSE or tracking is active.
    pub has_exceptions: bool,
    /// Invalidations for tracking clients.
    pub telling: Telling,
    /// Number of the batch in the making; 0 is never one.
    pub batch_id: u64,
    /// Times of the round's commands.
    pub timing: Timing,
    /// The topics to which clients subscribed when the round began.
    pub event_topics: EventTopics,
    /// Whether these topics include the outcomes of requests.
    pub shows_items: bool,
    /// Lines for clients of memcached's `watch`.
    pub lines: Lines,
    /// The sum over several requests of one command.
    pub tally: Tally,
    /// The bytes that the replies to the batch's meta commands repeat.
    pub notes: Vec<u8>,
    /// The view of the cluster, if this server is one of its nodes.
    pub cluster: Option<Arc<View>>,
    /// Whether a read of a cluster's slot was executed here since replies last left.
    pub has_read_here: bool,
    /// How often it was checked whether such reads may be answered.
    pub reads_checked: u64,
    /// The connection of the last command that was noted as a read here, and its note before.
    pub noted_read: Option<(usize, Option<u64>)>,
    /// Since when they may not be, and are taken back.
    pub taken_back_since: Option<UnixMillis>,
    /// When the log last failed, as the replies to native clients know it
    /// ([`Gate`](replication::durable::Gate)).
    pub native_refusals_seen: Cell<u64>,
    /// Work for native clients' requests, in this turn.
    pub native_work: Cell<Work>,
    /// The value of [`View::generation`] when the round began.
    pub places_seen: u64,
}

impl Core {
    /// A worker without connections.
    pub fn new(shared: Arc<Shared>, worker: WorkerId) -> Core {
        let config = shared.config();
        let acl_seen = shared.acl().generation();
        Core {
            worker,
            hasher: shared.store().key_hasher().clone(),
            value_max_bytes: config.max_item_size_bytes,
            output_limit_bytes: OUTPUT_LIMIT_BYTES_MIN,
            parse_stop_bytes: OUTPUT_LIMIT_BYTES_MIN + 1,
            turn: Turn::default(),
            group_replies: None,
            group_scratch_bytes: 0,
            touched_bytes: 0,
            output_copied_bytes_max: usize::try_from(shared.buffer_budget().limit_bytes() / 2)
                .unwrap_or(usize::MAX),
            connections: Slab::default(),
            touched: Vec::new(),
            pool: Vec::new(),
            ledger: Ledger::new(Arc::clone(shared.buffer_budget())),
            made_bytes: 0,
            made_bytes_max: MADE_BYTES_MIN,
            holds_back: false,
            long_elsewhere: (usize::MAX, 0, 0),
            short_of_pins: Vec::new(),
            now: UnixMillis(0),
            acl: shared.acl().table(),
            acl_seen,
            resting: Resting::default(),
            waiting_groups: BTreeMap::new(),
            flushing: Flushing::default(),
            has_limited_users: shared.acl().table().has_limited_users(),
            doors: shared.doors(),
            pauses: Pauses::default(),
            is_tracked: false,
            has_exceptions: false,
            telling: Telling::default(),
            batch_id: 1,
            timing: Timing::default(),
            event_topics: EventTopics::NONE,
            shows_items: false,
            lines: Lines::default(),
            tally: Tally::default(),
            notes: Vec::new(),
            cluster: shared.cluster().cloned(),
            has_read_here: false,
            reads_checked: 0,
            noted_read: None,
            taken_back_since: None,
            native_refusals_seen: Cell::new(0),
            native_work: Cell::default(),
            places_seen: 0,
            shared,
        }
    }

    /// The bytes that one transaction may take of the client buffers, and its replies.
    pub fn group_bytes_max(&self) -> u64 {
        self.shared.buffer_budget().limit_bytes() / GROUP_BUFFER_PART
    }

    /// Books memory in which one command works: out of its transaction's, or by itself. False:
    /// there is none.
    pub fn try_scratch(&mut self, kind: Kind, bytes: u64) -> bool {
        bytes <= self.group_scratch_bytes || self.ledger.try_reserve(kind, bytes)
    }

    /// Releases what [`Core::try_scratch`] has booked.
    pub fn end_scratch(&mut self, kind: Kind, bytes: u64) {
        if bytes > self.group_scratch_bytes {
            self.ledger.release(kind, bytes);
        }
    }

    /// Takes room for a long reply that a transaction has made; false: there is none.
    pub fn draw_made_reply(&mut self, slot: usize, bytes: u64) -> bool {
        let connection = &mut self.connections[slot];
        connection.output.trim();
        let (ledger, books) = (&mut self.ledger, &mut connection.booked);
        self.group_replies.as_mut().is_none_or(|it| it.draw_made(ledger, books, bytes))
    }

    /// Sets the output limit. A client may have unsent an eighth of what is free of three quarters
    /// of the buffers, and at most `Config::output_limit_bytes`. The fuller the buffers, the sooner
    /// a client that does not read is held back, so that many of them cannot fill everything (the
    /// dynamic thresholds of network switches).
    #[inline]
    fn share_output_limit(&mut self) {
        let budget = self.shared.buffer_budget();
        let limit_bytes = output_share(budget.limit_bytes(), budget.granted_bytes())
            .min(self.shared.config().output_limit_bytes);
        self.output_limit_bytes =
            usize::try_from(limit_bytes).unwrap_or(usize::MAX).max(OUTPUT_LIMIT_BYTES_MIN);
        self.parse_stop_bytes = self.output_limit_bytes.saturating_add(1);
    }

    /// Begins a turn.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.turn.begin();
        self.share_output_limit();
    }

    /// Begins to feed a connection: it has a part of the turn, so that many connections with large
    /// requests leave room for others in each.
    #[inline]
    pub fn begin_part(&mut self, is_alone: bool) {
        self.turn.begin_part(is_alone);
        if !self.is_spent() {
            self.parse_stop_bytes = self.output_limit_bytes.saturating_add(1);
        }
    }

    /// Ends the feeding of a connection: the cost since then decides its place in later turns.
    #[inline]
    pub fn end_part(&mut self, slot: usize, before: Work) {
        let is_long = self.turn.work.is_long_since(before);
        let connection = &mut self.connections[slot];
        if connection.is_slow != is_long {
            connection.is_slow = is_long || connection.sliced_in_turn == self.turn.number();
        }
    }

    /// Puts a connection that is about to make a large request behind those with small ones.
    #[cold]
    pub fn slow_down(&mut self, slot: usize) {
        self.connections[slot].is_slow = true;
    }

    /// Whether connections with small requests go before this one.
    pub fn is_slow(&self, slot: usize) -> bool {
        self.connections.get(slot).is_some_and(|it| it.is_slow)
    }

    /// Notes that a long command is about to be sent to other workers. Returns false if an earlier
    /// one is not answered.
    pub fn begin_long_elsewhere(&mut self, slot: usize) -> bool {
        let (earlier, earlier_id, mark) = self.long_elsewhere;
        let is_under_way = self.connections.get(earlier).is_some_and(|connection| {
            connection.client.id == earlier_id && !connection.awaiting.has_got(mark)
        });
        if !is_under_way {
            let connection = &self.connections[slot];
            // All replies that it awaits, and this one; later requests do not count.
            let mark = connection.awaiting.reply_mark().wrapping_add(1);
            self.long_elsewhere = (slot, connection.client.id, mark);
        }
        !is_under_way
    }

    /// Ends a turn; the largest cost of a turn is kept.
    #[inline]
    pub fn end_turn(&mut self) {
        self.charge(self.native_work.take());
        let most = &self.counters().turn_work_units_max;
        let units = self.turn.work.units();
        if units > most.get() {
            most.set(units);
        }
    }

    /// Notes that a connection used its part of the turn for a slice of an unfinished command.
    pub fn note_slice(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        connection.sliced_in_turn = self.turn.number();
        connection.is_slow = true;
    }

    /// Called if a turn was spent before all could begin a command: notes whether this connection
    /// waited. One that has sent much is then expected to cost much: among its bytes may be a
    /// command on many keys, or many commands.
    pub fn note_waited(&mut self, slot: usize, consumed_bytes: usize, input_bytes: usize) {
        let connection = &mut self.connections[slot];
        let has_waited = consumed_bytes == 0 && connection.sliced_in_turn != self.turn.number();
        connection.is_slow |= has_waited && input_bytes > SHORT_INPUT_BYTES_MAX;
        connection.rounds_waited =
            if has_waited { connection.rounds_waited.saturating_add(1) } else { 0 };
    }

    /// Counts work of this turn.
    #[inline]
    pub fn charge(&mut self, work: Work) {
        if self.turn.add(work) {
            self.parse_stop_bytes = 0;
        }
    }

    /// Charges a long command that was parsed; it is not charged again with the others
    /// ([`Core::charge_fed`]).
    pub fn charge_parsed(&mut self, command_bytes: u64) {
        self.charge(Work::bytes(command_bytes));
        self.turn.note_charged(command_bytes);
    }

    /// Charges the parsed bytes of all connections.
    #[inline]
    pub fn charge_fed(&mut self, consumed_bytes: u64) {
        let uncharged_bytes = self.turn.take_uncharged(consumed_bytes);
        self.charge(Work::bytes(uncharged_bytes));
    }

    /// The cost of the turn so far.
    pub fn work(&self) -> Work {
        self.turn.work
    }

    /// Whether the turn begins no further command.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.turn.work.is_spent()
    }

    /// Called when a condition that keeps plain commands from the fast path has changed.
    pub fn note_exceptions(&mut self) {
        self.has_exceptions = self.pauses.current().is_some() || self.is_tracked;
    }

    /// Checks the rights of connections again if the users have changed.
    #[inline]
    pub fn renew_passes(&mut self) {
        if self.shared.acl().generation() != self.acl_seen {
            self.renew_passes_now(None);
        }
    }

    /// The same in any case, after a change by connection `own`, which still gets its answer.
    #[cold]
    pub fn renew_passes_now(&mut self, own: Option<usize>) {
        // First: a later change makes another number.
        self.acl_seen = self.shared.acl().generation();
        self.acl = self.shared.acl().table();
        self.has_limited_users = self.acl.has_limited_users();
        self.doors = self.shared.doors();
        self.shared.close_doors();
        for slot in self.connections.slots() {
            if self.renew_pass(slot) == acl::Fate::Closes {
                let is_own = own == Some(slot);
                self.connections[slot].ending =
                    if is_own { Ending::AfterFlush } else { Ending::Now };
                self.touch(slot);
            }
        }
    }

    /// Handles a client from beyond loopback that has shown no password, where strangers are let in
    /// from loopback only: it is told so behind the replies that are under way, and what is left of
    /// its EXEC is not run. True: its connection ends.
    pub fn turn_away_stranger(&mut self, slot: usize) -> bool {
        let connection = &self.connections[slot];
        if connection.turned_away.is_some() {
            return true;
        }
        let access = self.doors.of(connection.door());
        let is_stranger = access == Access::LoopbackOnly
            && !connection.client.peer.is_local()
            && connection.exchange.is_none()
            && !connection.is_known();
        if is_stranger {
            self.counters().doors.turn_away(access.is_closed());
            let connection = &mut self.connections[slot];
            connection.turn_away(denial(connection.client.protocol, access));
            self.touch(slot);
        }
        is_stranger
    }

    /// Checks one connection; also one that arrives from another worker, which may not have seen a
    /// change.
    pub fn renew_pass(&mut self, slot: usize) -> acl::Fate {
        if self.turn_away_stranger(slot) {
            return acl::Fate::GoesOn; // To its end, and without a user.
        }
        let needs_auth = self.doors.of(Door::Memcached).asks_login();
        let has_rights = self.shared.users().is_some() || self.acl.default().is_unrestricted();
        let connection = &mut self.connections[slot];
        let client_id = connection.client.id;
        let (fate, may_read_events) = match &mut connection.protocol_state {
            ProtocolState::Resp(resp) => {
                let fate = resp.pass.renew(&self.acl);
                (
                    fate,
                    !self.shared.observations().monitors.has(client_id)
                        || resp.pass.may_monitor(&self.acl),
                )
            }
            ProtocolState::Memcached(memcached) => {
                memcached.needs_auth = (memcached.needs_auth && needs_auth) || !has_rights;
                let reads_events = self.shared.observations().event_stream.has(client_id);
                (acl::Fate::GoesOn, !(reads_events && memcached.needs_auth))
            }
        };
        // Redis continues to show it: it closes the clients of a deleted user, no others.
        if may_read_events { fate } else { acl::Fate::Closes }
    }

    /// This worker's counters.
    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        self.shared.counters(self.worker.index())
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// Puts a connection on the list of those that the round finishes.
    #[inline]
    pub fn touch(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        if !connection.is_touched {
            connection.is_touched = true;
            self.touched.push(slot);
        }
    }

    /// Gives a connection a buffer for its replies.
    #[inline(always)]
    pub fn lend_buffer(&mut self, slot: usize) {
        let output = &mut self.connections[slot].output;
        if !output.has_buffer() {
            let fresh = || Vec::with_capacity(POOL_BUFFER_BYTES_MIN);
            output.lend_buffer(self.pool.pop().unwrap_or_else(fresh));
        }
    }

    /// Takes an empty buffer back.
    #[inline]
    pub fn return_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= POOL_BUFFER_BYTES_MAX && self.pool.len() < POOL_BUFFERS_MAX {
            self.pool.push(buffer);
        }
    }

    /// Begins a gathering: its replies may take this worker's share of half of the free buffers, so
    /// that the bytes booked for it later are there (K27).
    #[inline]
    pub fn begin_replies(&mut self) {
        let budget = self.shared.buffer_budget();
        let free_bytes = reply_bytes_free(budget.limit_bytes(), budget.granted_bytes());
        let part_bytes = free_bytes / 2 / self.shared.config().threads.max(1) as u64;
        self.made_bytes_max = usize::try_from(part_bytes).unwrap_or(usize::MAX).max(MADE_BYTES_MIN);
        self.made_bytes = 0;
        self.holds_back = self.shared.store().is_pin_share_reached();
    }

    /// Counts reply bytes that were made, at most.
    #[inline]
    pub fn made(&mut self, bytes_max: usize) {
        self.made_bytes += bytes_max;
        if self.made_bytes > self.made_bytes_max {
            self.count_replies();
        }
    }

    /// Counts the unsent bytes of this gathering's connections.
    #[cold]
    fn count_replies(&mut self) {
        let encoded = |slot: &usize| self.connections[*slot].output.encoded_bytes();
        self.made_bytes = self.touched.iter().map(encoded).sum();
        self.holds_back |= self.made_bytes > self.made_bytes_max;
    }

    /// Notes that a read of a cluster's slot is executed here for a connection.
    pub fn note_read_here(&mut self, slot: usize) {
        self.has_read_here = true;
        let before = self.connections[slot].read_here_at.replace(self.reads_checked);
        self.noted_read = Some((slot, before));
    }

    /// Takes back the note of the command that has just begun: the control thread reads for it.
    pub fn forget_read_here(&mut self, slot: usize) {
        if let Some((_, before)) = self.noted_read.take_if(|(noted, _)| *noted == slot) {
            self.connections[slot].read_here_at = before;
        }
    }

    /// Whether a connection is fed in this gathering.
    #[inline]
    pub fn may_feed(&mut self, slot: usize) -> bool {
        !self.holds_back || self.may_feed_now(slot)
    }

    #[cold]
    fn may_feed_now(&mut self, slot: usize) -> bool {
        let connection = &self.connections[slot];
        if connection.exchange.is_some() {
            return true; // A datagram is answered at once or never.
        }
        if self.made_bytes > self.made_bytes_max {
            return false;
        }
        let waits = connection.is_large_reader
            && connection.ending == Ending::Open
            && self.shared.store().is_pin_share_reached();
        let goes_past = std::mem::take(&mut self.connections[slot].goes_past_pins);
        if waits && !goes_past {
            self.short_of_pins.push(slot);
        }
        !waits || goes_past
    }

    /// Whether a connection may continue to parse: it is open and its client reads its replies.
    #[inline]
    pub fn may_parse(&self, slot: usize) -> bool {
        let connection = &self.connections[slot];
        connection.ending == Ending::Open
            && connection.output.unsent_bytes() < self.parse_stop_bytes
    }
}

/// An eighth of the free part of three quarters of the buffers; the last quarter is for requests.
fn output_share(buffers_bytes: u64, granted_bytes: u64) -> u64 {
    reply_bytes_free(buffers_bytes, granted_bytes) / 8
}

/// The free bytes of the three quarters.
fn reply_bytes_free(buffers_bytes: u64, granted_bytes: u64) -> u64 {
    (buffers_bytes / 4 * 3).saturating_sub(granted_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clients_that_do_not_read_never_fill_the_buffers() {
        let (buffers_bytes, mut granted_bytes) = (16 << 20, 0);
        for _ in 0..1000 {
            granted_bytes += output_share(buffers_bytes, granted_bytes);
        }
        assert!(granted_bytes <= buffers_bytes / 4 * 3);
        assert_eq!(output_share(buffers_bytes, buffers_bytes + 1), 0);
    }
}
