//! Encodes a batch's outcomes as replies, directly into the outgoing frame.

use std::cell::Cell;

use commands::compaction::{Answering, Tells};
use commands::reply::{self, size_of, updated_bytes};
use commands::rmw::{Refusal, Rmw};
use commands::work::{Work, add_work};
use counters::{CommandCells, CommandIndex, WorkerCounters};
use policy::size_class::WorkerSizes;
use store::pin::Pins;
use store::request::{Item, Outcome, Request, Sink};
use wire::native::{PART_UNIT_BYTES, Part, Remembered, Reply, RequestId, Span, Status, Want};

use super::FRAME_MAX_BYTES;
use super::outgoing::{Origin, Outgoing, Outlet};

/// The form of the reply to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// get, with or without touch: the item.
    Item,
    /// pull: a part of this version.
    Pulled {
        /// The version of which the client has parts.
        version: u64,
        /// The requested part.
        span: Span,
    },
    /// touch that only looks: whether the key exists.
    Presence,
    /// set: whether the value was stored.
    Stored,
    /// delete, touch: whether the key existed.
    Done,
    /// incr: the sum.
    Sum,
    /// append, prepend: the new length.
    Length,
}

/// One request of the batch that awaits its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Its id.
    pub id: RequestId,
    /// The parts of the item that the reply carries.
    pub want: Want,
    /// The form of the reply.
    pub shape: Shape,
    /// The position of its frame among the batch's frames.
    pub origin: u16,
    /// The command, for its counters.
    pub command: CommandIndex,
    /// It is executed only if the item has a certain version.
    pub is_conditional: bool,
}

/// Encodes the outcomes of one batch.
pub struct Answers<'s, 'o, 'k, T> {
    /// In the order of the requests.
    pub pendings: &'s [Pending],
    /// The requests, and where their sizes are counted, if they are.
    pub sizes: Option<(&'s [Request<'s, Rmw<'s>>], &'s WorkerSizes)>,
    /// The frames of the requests.
    pub origins: &'s [Origin<'k>],
    /// Where replies are written.
    pub out: &'s mut Outgoing<'o, 'k, T>,
    /// The worker's counters.
    pub counters: &'s WorkerCounters,
    /// `Core::native_work`.
    pub work: &'s Cell<Work>,
}

impl<T: Outlet> Answering for Answers<'_, '_, '_, T> {
    /// A value may leave in parts that its version holds together, and the reply to a write refused
    /// because of its version carries the item's version.
    fn tells(&self, request_index: usize) -> Tells {
        let pending = &self.pendings[request_index];
        let is_conditional = pending.want.contains(Want::VERSION) || pending.is_conditional;
        match pending.shape {
            Shape::Item | Shape::Pulled { .. } => Tells::Version,
            _ if is_conditional => Tells::Version,
            _ => Tells::Nothing,
        }
    }

    // Reads are never part of a group here, so their connection does not matter.
}

impl<T: Outlet> Sink<Refusal> for Answers<'_, '_, '_, T> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        let pending = &self.pendings[request_index];
        let cells = self.counters.command(pending.command);
        if let Some((requests, sizes)) = self.sizes
            && let Some(size_bytes) =
                size_of(counted_as(pending), &requests[request_index], &outcome)
        {
            sizes.record(size_bytes);
        }
        self.out.turn_to(&self.origins[usize::from(pending.origin)]);
        match (pending.shape, &outcome) {
            (Shape::Item, Outcome::Hit(item)) => {
                cells.hits.add(1);
                self.item(pending, item);
            }
            _ => self.rare(pending, cells, &outcome),
        }
    }
}

impl<T: Outlet> Answers<'_, '_, '_, T> {
    #[inline]
    fn item(&mut self, pending: &Pending, item: &Item<'_>) {
        let mut reply = described(pending, item);
        if pending.want.contains(Want::NO_VALUE) {
            reply.number = Some(item.value.len() as i64);
            return self.say(&reply);
        }
        reply.value = item.value;
        if item.value.len() > PART_UNIT_BYTES && !self.out.is_generous() {
            return self.first_part(pending, item);
        }
        if !self.out.push(&reply) {
            self.first_part(pending, item);
        }
    }

    /// The beginning of a value for which the frame has no room: the client pulls the rest.
    #[cold]
    fn first_part(&mut self, pending: &Pending, item: &Item<'_>) {
        // Up to four words: version, flags, expiry, part.
        let mut room_bytes = self.out.value_room_bytes(4, 0);
        if !self.out.is_generous() {
            room_bytes = PART_UNIT_BYTES;
        }
        let total = item.value.len() as u32;
        let span = Span { offset: 0, len_bytes: total };
        let Some(range) = span.within(total, room_bytes) else {
            return self.say(&Reply::new(pending.id, Status::TooLarge));
        };
        let reply = Reply {
            version: Some(item.version),
            part: Some(Part { offset: 0, total }),
            value: &item.value[range],
            ..described(pending, item)
        };
        self.say(&reply);
    }

    /// A later part, if the value still has the version of which the client has parts.
    fn pulled(&mut self, pending: &Pending, item: &Item<'_>, version: u64, span: Span) {
        if item.version != version {
            return self.say(&Reply::new(pending.id, Status::Changed));
        }
        let mut room_bytes = self.out.value_room_bytes(4, 0);
        if !self.out.is_generous() {
            room_bytes = PART_UNIT_BYTES;
        }
        let total = item.value.len() as u32;
        let Some(range) = span.within(total, room_bytes) else {
            return self.say(&Reply::new(pending.id, Status::Malformed));
        };
        let reply = Reply {
            version: Some(item.version).filter(|_| pending.want.contains(Want::VERSION)),
            part: Some(span.part_of(total)),
            value: &item.value[range],
            ..described(pending, item)
        };
        self.say(&reply);
    }

    /// All outcomes but the hit of a get.
    fn rare(&mut self, pending: &Pending, cells: &CommandCells, outcome: &Outcome<'_, Refusal>) {
        let touched_bytes = updated_bytes(outcome);
        if touched_bytes > 0 {
            add_work(self.work, Work::bytes(touched_bytes as u64));
        }
        match (pending.shape, outcome) {
            (Shape::Pulled { version, span }, Outcome::Hit(item)) => {
                cells.hits.add(1);
                self.pulled(pending, item, version, span);
            }
            // A get that touched: the item as it is now, or as it was when it expired.
            (
                Shape::Item,
                Outcome::Updated { new: Some(item), .. } | Outcome::Deleted { old: Some(item) },
            ) => {
                cells.hits.add(1);
                self.item(pending, item);
            }
            _ => {
                let reply = written(pending, outcome);
                count(cells, pending.shape, reply.status);
                self.settle(pending, &reply);
            }
        }
    }

    /// Remembers the outcome of an at-most-once write, and answers.
    fn settle(&mut self, pending: &Pending, reply: &Reply<'_>) {
        if let RequestId::Once(sequence) = pending.id {
            let session = self.origins[usize::from(pending.origin)].session;
            session.once().once.record(sequence, Remembered::of(reply));
        }
        self.say(reply);
    }

    fn say(&mut self, reply: &Reply<'_>) {
        let is_written = self.out.push(reply);
        debug_assert!(is_written, "a reply without a value fits any frame");
    }
}

/// The form of a reply with as much of the value: longer values come in parts.
fn counted_as(pending: &Pending) -> reply::Shape {
    let has_value = matches!(pending.shape, Shape::Item | Shape::Pulled { .. });
    match has_value && !pending.want.contains(Want::NO_VALUE) {
        true => reply::Shape::Range { start: 0, end: FRAME_MAX_BYTES as i64 - 1 },
        false => reply::Shape::Length,
    }
}

/// A success with the requested parts of an item, except its value.
#[inline]
fn described<'i>(pending: &Pending, item: &Item<'_>) -> Reply<'i> {
    let want = pending.want;
    let mut reply = Reply::new(pending.id, Status::Ok);
    if want != Want::PLAIN {
        if want.contains(Want::VERSION) {
            reply.version = Some(item.version);
        }
        if want.contains(Want::CLIENT_FLAGS) {
            reply.client_flags = item.client_flags as u32; // Without marks.
        }
        if want.contains(Want::EXPIRY) {
            reply.expires_at = item.expires_at;
        }
    }
    reply
}

/// The reply to a write, or to a look that found nothing.
fn written(pending: &Pending, outcome: &Outcome<'_, Refusal>) -> Reply<'static> {
    let wants_version = pending.want.contains(Want::VERSION);
    let say = |status| Reply::new(pending.id, status);
    let with_version =
        |status, version| Reply { version: Some(version), ..Reply::new(pending.id, status) };
    match outcome {
        Outcome::Hit(_) => say(Status::Ok),
        Outcome::Miss => say(Status::Miss),
        Outcome::Stored { version, .. } if wants_version => with_version(Status::Ok, *version),
        Outcome::Stored { .. } => say(Status::Ok),
        Outcome::NotStored { .. } => say(Status::NotStored),
        Outcome::VersionMismatch { old } => with_version(Status::VersionMismatch, old.version),
        Outcome::Deleted { old: Some(_) } => say(Status::Ok),
        // A set that had expired when it arrived, of a key that did not exist.
        Outcome::Deleted { old: None } if pending.shape == Shape::Stored => say(Status::Ok),
        Outcome::Deleted { old: None } => say(Status::Miss),
        Outcome::Updated { new: None, .. } => say(Status::Miss),
        Outcome::Updated { new: Some(item), .. } => Reply {
            version: Some(item.version).filter(|_| wants_version),
            number: number_of(pending.shape, item),
            ..say(Status::Ok)
        },
        Outcome::Refused(Refusal::OtherVersion(version)) => {
            with_version(Status::VersionMismatch, *version)
        }
        Outcome::Refused(refusal) => say(refusal_status(*refusal)),
        Outcome::OutOfMemory => say(Status::OutOfMemory),
        Outcome::Untold | Outcome::Unwritable => say(Status::Busy),
        Outcome::TooLarge { .. } => say(Status::TooLarge),
    }
}

fn number_of(shape: Shape, item: &Item<'_>) -> Option<i64> {
    match shape {
        Shape::Length => Some(item.value.len() as i64),
        Shape::Sum => wire::resp::number::parse_i64(item.value),
        _ => None,
    }
}

fn refusal_status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotAnInteger
        | Refusal::NotNumeric
        | Refusal::NotAFloat
        | Refusal::FloatOverflow => Status::NotANumber,
        Refusal::IntegerOverflow => Status::OutOfRange,
        Refusal::TooLong => Status::TooLarge,
        Refusal::Absent => Status::Miss,
        Refusal::Present => Status::NotStored,
        Refusal::OtherVersion(_) => Status::VersionMismatch,
    }
}

/// Counts hits and misses where a key has to exist, and refusals.
fn count(cells: &CommandCells, shape: Shape, status: Status) {
    match (status, shape) {
        (Status::Ok, Shape::Done | Shape::Presence) => cells.hits.add(1),
        (Status::Miss, _) => cells.misses.add(1),
        (Status::Ok | Status::NotStored, _) => {}
        _ => cells.errors.add(1),
    }
}
