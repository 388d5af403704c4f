//! The sink of a batch: encodes each outcome into the output of its connection.

use base::UnixMillis;
use budget::{Books, Kind, Ledger};
use commands::compaction::{Answering, Tells};
use commands::output::{PIN_VALUE_BYTES_MIN, PIN_VALUE_BYTES_MIN_OVER_LIMIT};
use commands::reply::{
    Destination, Pending, Reply, Shape, TOUCHED_BYTES_MIN, Tally, count, touched_bytes,
};
use commands::rmw::Refusal;
use counters::WorkerCounters;
use sessions::event_stream::Seen;
use store::pin::{PinnedValue, Pins};
use store::request::{Item, Outcome, Sink};
use wire::resp::Protocol;

use crate::connection::{Connection, Ending};
use crate::core::Core;
use crate::group_replies::{DRAWN_BYTES_MIN, GroupReplies};
use crate::slab::Slab;

/// The sink that encodes the outcomes of one batch.
pub struct ReplySink<'s> {
    /// The worker's.
    pub connections: &'s mut Slab<Connection>,
    /// In the order of the requests.
    pub pendings: &'s [Pending],
    /// The worker's.
    pub counters: &'s WorkerCounters,
    /// Sums over several requests.
    pub tally: &'s mut Tally,
    /// The bounds of the replies.
    pub room: Room<'s>,
    /// The parts of their commands that replies of the batch repeat.
    pub notes: &'s [u8],
    /// The round's time.
    pub now: UnixMillis,
    /// The results of the requests, while a client subscribes to items.
    pub seen: Option<&'s mut Vec<Seen>>,
    told: Told,
}

/// What is kept for a reply to a change, until its outcome comes ([`Sink::may_tell`]).
#[derive(Default)]
struct Told {
    /// One of the following.
    is_kept: bool,
    /// As long as it is kept, its segment can be pinned again.
    pinned: Option<PinnedValue>,
    /// There is room for a copy of so many bytes.
    booked_bytes: usize,
}

/// The bounds on the replies of a gathering, and what they have cost.
pub struct Room<'s> {
    /// The worker's: a value that cannot be pinned is booked before it is copied.
    pub ledger: &'s mut Ledger,
    /// In a transaction: the room for its replies.
    group: Option<&'s mut GroupReplies>,
    /// Values of this length are pinned, or drawn from the transaction's room.
    looked_at_bytes_min: usize,
    counters: &'s WorkerCounters,
    /// Of the gathering ([`Core::made`]).
    made_bytes: &'s mut usize,
    /// Beyond this, values are pinned rather than copied.
    made_bytes_max: usize,
    /// Bytes of large values that were read or copied.
    touched_bytes: &'s mut u64,
    /// The limit of unsent bytes; beyond it values are pinned rather than copied.
    output_limit_bytes: usize,
    /// The limit of copied bytes; a client whose single command would exceed it is closed.
    output_copied_bytes_max: usize,
}

impl<'s> ReplySink<'s> {
    /// A sink for requests that `pendings` describe.
    #[inline]
    pub fn new(core: &'s mut Core, pendings: &'s [Pending]) -> ReplySink<'s> {
        let counters = core.shared.counters(core.worker.index());
        let room = Room {
            ledger: &mut core.ledger,
            looked_at_bytes_min: match core.group_replies {
                Some(_) => DRAWN_BYTES_MIN,
                None => PIN_VALUE_BYTES_MIN_OVER_LIMIT,
            },
            group: core.group_replies.as_mut(),
            counters,
            made_bytes: &mut core.made_bytes,
            made_bytes_max: core.made_bytes_max,
            touched_bytes: &mut core.touched_bytes,
            output_limit_bytes: core.output_limit_bytes,
            output_copied_bytes_max: core.output_copied_bytes_max,
        };
        ReplySink {
            connections: &mut core.connections,
            pendings,
            counters,
            tally: &mut core.tally,
            room,
            notes: &core.notes,
            now: core.now,
            seen: core.shows_items.then_some(&mut core.lines.seen),
            told: Told::default(),
        }
    }
}

impl Room<'_> {
    /// Books a copied value for its connection: out of what its transaction has booked, or by
    /// itself.
    fn try_reserve(&mut self, books: &mut Books, bytes: u64) -> bool {
        if let Some(group) = &mut self.group {
            return group.draw(self.ledger, books, bytes);
        }
        let has_room = self.ledger.try_reserve(Kind::Replies, bytes);
        if has_room {
            books.add(Kind::Replies, bytes);
        }
        has_room
    }
}

/// The output of a connection of this worker.
struct Direct<'r, 's> {
    connection: &'r mut Connection,
    room: &'r mut Room<'s>,
    pin_bytes_min: usize,
    /// A copy is booked already.
    has_room: bool,
}

impl Answering for ReplySink<'_> {
    fn tells(&self, request_index: usize) -> Tells {
        // `watch` tells of the item that each write has found.
        match self.seen {
            Some(_) => Tells::Version,
            None => self.pendings[request_index].shape.tells(),
        }
    }

    fn opened(&self, windows: usize) {
        self.counters.compaction.open.set(windows as u64);
    }

    fn connection(&self, request_index: usize) -> u64 {
        u64::from(self.pendings[request_index].slot)
    }
}

impl Destination for Direct<'_, '_> {
    #[inline]
    fn append<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.connection.output.append(encode)
    }

    #[inline]
    fn protocol(&self) -> Protocol {
        self.connection.protocol()
    }

    #[inline]
    fn is_pinned(&mut self, value_len_bytes: usize) -> bool {
        value_len_bytes >= self.room.looked_at_bytes_min && self.is_rather_pinned(value_len_bytes)
    }

    fn expect_large(&mut self) {
        self.connection.is_large_reader = true;
    }

    fn touched(&mut self, bytes: usize) {
        // The following requests are no longer gathered: each is weighed before the next.
        self.connection.is_large_reader |= bytes >= PIN_VALUE_BYTES_MIN;
        *self.room.touched_bytes += bytes as u64;
    }

    fn push_pinned(&mut self, value: PinnedValue) {
        self.connection.output.push_pinned(value);
    }

    #[cold]
    fn may_copy(&mut self, len_bytes: usize) -> bool {
        let bytes = len_bytes as u64;
        if self.has_room || len_bytes < PIN_VALUE_BYTES_MIN && self.room.group.is_none() {
            return true; // A batch of these is 8 MiB.
        }
        // Beyond the limit the connection would be closed, and lose its pending replies.
        let copied_bytes = self.connection.output.encoded_bytes() + len_bytes;
        let has_room = copied_bytes <= self.room.output_copied_bytes_max
            && self.room.try_reserve(&mut self.connection.booked, bytes);
        if has_room {
            self.touched(FRESH_COPY_READS * len_bytes);
        } else {
            self.room.counters.replies_refused.add(1);
        }
        has_room
    }

    #[cold]
    fn cut(&mut self) {
        self.connection.ending = Ending::Now;
    }
}

impl<'r, 's> Direct<'r, 's> {
    fn new(
        connection: &'r mut Connection,
        room: &'r mut Room<'s>,
        pin_bytes_min: usize,
    ) -> Direct<'r, 's> {
        Direct { connection, room, pin_bytes_min, has_room: false }
    }

    /// Middle-sized values are copied as long as the client takes its replies and the gathering may
    /// make more of them.
    #[inline(never)]
    fn is_rather_pinned(&mut self, value_len_bytes: usize) -> bool {
        if value_len_bytes >= self.pin_bytes_min {
            return true;
        }
        *self.room.made_bytes += value_len_bytes;
        let is_pinned = value_len_bytes >= PIN_VALUE_BYTES_MIN_OVER_LIMIT
            && (*self.room.made_bytes > self.room.made_bytes_max
                || self.connection.output.unsent_bytes() > self.room.output_limit_bytes);
        // Without room for a copy it is pinned, however short.
        is_pinned
            || self.room.group.is_some()
                && !self.room.try_reserve(&mut self.connection.booked, value_len_bytes as u64)
    }
}

/// A copy into fresh memory costs as much as so many reads: the kernel clears each page first, and
/// takes it back later.
const FRESH_COPY_READS: usize = 3;

impl Sink<Refusal> for ReplySink<'_> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        self.answer(request_index, outcome, pins, PIN_VALUE_BYTES_MIN);
    }

    #[cold]
    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        let pending = &self.pendings[request_index];
        if !pending.shape.tells_value_of_change() || pending.is_quiet {
            return true;
        }
        // Other shapes tell the new item, which may lie elsewhere.
        let tells_old = pending.shape == Shape::OldValue;
        self.told.pinned = pins.try_pin(old).filter(|_| tells_old || pins.have_room());
        let len_bytes = old.value.len();
        if self.told.pinned.is_none() && self.told.booked_bytes < len_bytes {
            let connection = &mut self.connections[pending.slot as usize];
            let mut to = Direct::new(connection, &mut self.room, PIN_VALUE_BYTES_MIN);
            if to.may_copy(len_bytes) {
                self.told.booked_bytes = len_bytes;
            }
        }
        let is_pinned = self.told.pinned.is_some();
        self.told.is_kept = is_pinned || self.told.booked_bytes > 0;
        is_pinned || self.told.booked_bytes >= len_bytes
    }
}

impl ReplySink<'_> {
    /// Encodes one outcome; values of at least `pin_bytes_min` are sent from the log.
    #[inline(always)]
    pub fn answer(
        &mut self,
        request_index: usize,
        outcome: Outcome<'_, Refusal>,
        pins: Pins<'_>,
        pin_bytes_min: usize,
    ) {
        let pendings = self.pendings;
        let pending = &pendings[request_index];
        count(self.counters, pending.command, &outcome, pending.shape);
        if pending.is_special && self.is_silent(pending, &outcome) {
            return;
        }
        let connection = &mut self.connections[pending.slot as usize];
        if connection.output.encoded_bytes() > self.room.output_copied_bytes_max
            && self.room.group.is_none()
        {
            // Only one command with a great many keys comes here: others stop at the limit, and
            // replies of a transaction are booked.
            connection.ending = Ending::Now;
            return;
        }
        let has_room = self.told.is_kept && self.told.booked_bytes > 0;
        let to = Direct { has_room, ..Direct::new(connection, &mut self.room, pin_bytes_min) };
        let mut reply = Reply { to, tally: self.tally, notes: self.notes, pins, now: self.now };
        reply.answer(pending.shape, outcome);
        if self.told.is_kept {
            self.told = Told::default();
        }
    }
}

impl ReplySink<'_> {
    /// Whether nothing is sent; records the outcome for subscribers.
    #[cold]
    fn is_silent(&mut self, pending: &Pending, outcome: &Outcome<'_, Refusal>) -> bool {
        if let Some(seen) = &mut self.seen {
            seen.push(Seen::of(outcome));
        }
        if pending.is_quiet {
            // The sums of quiet commands must not leak into the next command's.
            *self.tally = Tally::default();
            // Work counts, whether or not a reply is sent.
            let bytes = touched_bytes(pending.shape, outcome);
            if bytes >= TOUCHED_BYTES_MIN {
                let connection = &mut self.connections[pending.slot as usize];
                let room = &mut self.room;
                Direct::new(connection, room, PIN_VALUE_BYTES_MIN).touched(bytes);
            }
        }
        pending.is_quiet
    }
}
