//! Encodes the outcomes of a batch as reply bytes, directly into each connection's output.

mod binary;
mod memcached;
mod meta;
mod resp;
mod size;

use std::ops::Range;

use base::UnixMillis;
use counters::{CommandCells, CommandIndex, WorkerCounters};
use store::pin::{PinnedValue, Pins};
use store::request::{Item, Outcome};
use wire::resp::{BitRange, BitSearch, ErrorCode, InvalidTime, Protocol, Unit};

use crate::compaction::Tells;

use crate::rmw::Refusal;
use crate::work::{SMALL_FLOAT_DIGITS, digits_as_bytes};

pub use binary::BinaryShape;
pub use meta::{MetaKind, MetaShape};
pub use size::size_of;

/// The form of the reply to one request. The variants say which outcome gives what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// GET: the value or null.
    Value,
    /// SET GET, GETSET, GETDEL, GETEX: the old value or null.
    OldValue,
    /// GETEX with a bad time: null, or an error if the key exists.
    RefusedTime(InvalidTime),
    /// SET: OK, or null if its condition did not hold.
    Stored,
    /// SETNX, EXPIRE, PERSIST: 1 if something was done, 0 if not.
    Done,
    /// DEL, EXISTS, TOUCH: how many of several keys existed.
    Count {
        /// Of the command's keys: send the sum.
        is_last: bool,
    },
    /// MSET: OK once all are stored.
    AllStored {
        /// Of the command's pairs: send the reply.
        is_last: bool,
    },
    /// INCR: the new value as an integer.
    NewInteger,
    /// INCRBYFLOAT: the new value.
    NewValue,
    /// APPEND, SETRANGE: the new length.
    NewLength,
    /// STRLEN.
    Length,
    /// GETRANGE.
    Range {
        /// Inclusive; negative from the end.
        start: i64,
        /// Inclusive; negative from the end.
        end: i64,
    },
    /// SET with a comparison: OK, or null if it did not hold.
    StoredIf,
    /// DIGEST.
    Digest,
    /// DUMP.
    Dump,
    /// SETBIT: what the bit was.
    OldBit {
        /// Which.
        offset_bits: u64,
    },
    /// GETBIT.
    Bit {
        /// Which.
        offset_bits: u64,
    },
    /// BITCOUNT.
    BitCount(Option<BitRange>),
    /// BITPOS.
    BitPosition(BitSearch),
    /// TYPE.
    TypeName,
    /// TTL and friends.
    ExpiresIn(Unit),
    /// OBJECT ENCODING.
    Encoding,
    /// OBJECT FREQ: an error for a key that exists, because uses are not counted.
    AccessFrequency,
    /// OBJECT REFCOUNT: 1 for a key that exists.
    ReferenceCount,
    /// OBJECT IDLETIME, in seconds.
    IdleTime,
    /// MEMORY USAGE.
    MemoryUsage,
    /// memcached get, gets, gat, gats: a VALUE block or nothing; END after the last key.
    McValue {
        /// With the CAS token.
        with_cas: bool,
        /// Of the command's keys.
        is_last: bool,
    },
    /// memcached set, add, replace, append, prepend, cas.
    McStored,
    /// memcached delete.
    McDeleted,
    /// memcached incr, decr.
    McNumber,
    /// memcached touch.
    McTouched,
    /// memcached: a refused set deletes what was there; the refusal has been sent.
    McNothing,
    /// memcached's meta commands.
    Meta(MetaShape),
    /// memcached's binary protocol.
    Binary(BinaryShape),
}

impl Shape {
    /// Whether it is a reply of memcached's protocol.
    pub fn is_memcached(self) -> bool {
        matches!(
            self,
            Shape::McValue { .. }
                | Shape::McStored
                | Shape::McDeleted
                | Shape::McNumber
                | Shape::McTouched
                | Shape::McNothing
                | Shape::Meta(_)
                | Shape::Binary(_)
        )
    }

    /// The note for this reply among the notes of the batch, and the same shape for that note
    /// alone.
    pub fn noted(self, notes: &[u8]) -> (Shape, &[u8]) {
        match self {
            Shape::Meta(meta) => (Shape::Meta(meta.with_note_at_start()), meta.note(notes)),
            Shape::Binary(binary) => {
                (Shape::Binary(binary.with_note_at_start()), binary.note(notes))
            }
            other => (other, b""),
        }
    }

    /// The maximum number of bytes of the item's value in a reply of this shape.
    pub fn value_bytes_max(self) -> u64 {
        match self {
            Shape::Value | Shape::OldValue | Shape::Dump | Shape::McValue { .. } => u64::MAX,
            Shape::Range { start, end } if start >= 0 && end >= 0 => {
                end.saturating_sub(start).saturating_add(1).max(0) as u64
            }
            Shape::Range { .. } => u64::MAX,
            Shape::Meta(meta) if meta.with_value => u64::MAX,
            Shape::Binary(binary) if binary.has_value() => u64::MAX,
            _ => 0,
        }
    }

    /// Whether a reply of this shape is computed from the whole value.
    fn reads_value(self) -> bool {
        matches!(self, Shape::BitCount(_) | Shape::BitPosition(_) | Shape::Digest | Shape::Dump)
    }

    /// Whether a change that is answered this way reports a value, so that it needs room for that
    /// before it takes effect ([`Sink::may_tell`]).
    ///
    /// [`Sink::may_tell`]: store::request::Sink::may_tell
    pub fn tells_value_of_change(self) -> bool {
        match self {
            Shape::OldValue | Shape::McValue { .. } => true,
            Shape::Meta(meta) => meta.kind == MetaKind::Get && meta.with_value,
            Shape::Binary(binary) => binary.has_value(),
            _ => false,
        }
    }

    /// What a reply of this shape reports, beyond whether something was done.
    pub fn tells(self) -> Tells {
        match self {
            Shape::OldValue | Shape::OldBit { .. } | Shape::RefusedTime(_) => Tells::Old,
            Shape::McValue { with_cas: true, .. } => Tells::Version,
            Shape::Meta(meta) if meta.with_version => Tells::Version,
            Shape::Binary(binary) if binary.tells_version() => Tells::Version,
            _ => Tells::Nothing,
        }
    }
}

/// How a request will be answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The connection.
    pub slot: usize,
    /// The command, for its counters.
    pub command: CommandIndex,
    /// Whether no reply is sent.
    pub is_quiet: bool,
    /// The form of the reply.
    pub shape: Shape,
}

/// The common reply of one command's several requests, in the making.
///
/// It is a worker's and not a sink's because a batch may fill up in mid-command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Keys that counted.
    pub count: i64,
    /// A write found no space.
    pub out_of_memory: bool,
    /// A write was refused because the log cannot be written.
    pub unwritable: bool,
    /// A value was too long.
    pub too_large: bool,
}

/// A request of the batch that waits for its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// The connection.
    pub slot: u32,
    /// For its counters.
    pub command: CommandIndex,
    /// Nothing is sent.
    pub is_quiet: bool,
    /// Nothing is sent, or a client subscribes to items.
    pub is_special: bool,
    /// What is sent.
    pub shape: Shape,
}

/// The target of a reply's bytes: a connection's output, or the buffer that carries them to its
/// worker.
pub trait Destination {
    /// Appends by `encode`, which may only append to what it is given.
    fn append<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T;

    /// The RESP version to encode in.
    fn protocol(&self) -> Protocol;

    /// Whether a value of that length is sent from the log (K12).
    fn is_pinned(&mut self, value_len_bytes: usize) -> bool;

    /// Announces a value for which [`Destination::is_pinned`] was true.
    fn expect_large(&mut self);

    /// Records that a request has read or copied so many bytes of a large value.
    fn touched(&mut self, _bytes: usize) {}

    /// Sends a value without copying it; at most once in a reply.
    fn push_pinned(&mut self, value: PinnedValue);

    /// Whether so many bytes of a value that cannot be pinned may be copied: they are booked, or
    /// few.
    fn may_copy(&mut self, len_bytes: usize) -> bool;

    /// A part of a reply has no room and no substitute: no reply follows.
    fn cut(&mut self);
}

/// Values up to this length are included in the cost of their key.
pub const TOUCHED_BYTES_MIN: usize = 4 << 10;

/// The bytes of values that a request has read or copied. An update that wrote nothing may have
/// compared the whole old value.
pub fn touched_bytes(shape: Shape, outcome: &Outcome<'_, Refusal>) -> usize {
    match outcome {
        Outcome::Updated { .. } => {
            let bytes = updated_bytes(outcome);
            // Only INCRBYFLOAT gives this outcome: both values are numbers.
            let is_long_sum = shape == Shape::NewValue && bytes > SMALL_FLOAT_DIGITS;
            if is_long_sum { digits_as_bytes(bytes) as usize } else { bytes }
        }
        Outcome::Hit(item) if shape.reads_value() => item.value.len(),
        _ => 0,
    }
}

/// The lengths of the value before an update and after it.
pub fn updated_bytes(outcome: &Outcome<'_, Refusal>) -> usize {
    let len = |item: &Option<Item<'_>>| item.as_ref().map_or(0, |item| item.value.len());
    match outcome {
        Outcome::Updated { old, new } => len(old) + len(new),
        _ => 0,
    }
}

/// The maximum length of the reply after a value.
const TAIL_BYTES_MAX: usize = 64;

/// Everything that the reply to one request needs.
pub struct Reply<'r, D> {
    /// Where it goes.
    pub to: D,
    /// Sums over several requests of one command.
    pub tally: &'r mut Tally,
    /// Where [`Shape::noted`] looks.
    pub notes: &'r [u8],
    /// To keep what is not copied.
    pub pins: Pins<'r>,
    /// The batch's time.
    pub now: UnixMillis,
}

/// Counts hits and misses. A write that finds no key counts as a miss only if the key had to exist.
#[inline]
pub fn count(
    counters: &WorkerCounters,
    command: CommandIndex,
    outcome: &Outcome<'_, Refusal>,
    shape: Shape,
) {
    let cells = counters.command(command);
    match outcome {
        // The key was found, but the reply is an error.
        Outcome::Hit(_) if matches!(shape, Shape::AccessFrequency | Shape::RefusedTime(_)) => {
            cells.hits.add(1);
            counters.failed(command, ErrorCode::Err);
        }
        Outcome::Hit(_) => cells.hits.add(1),
        Outcome::Miss => cells.misses.add(1),
        Outcome::Updated { .. } | Outcome::Deleted { .. } => count_update(cells, outcome, shape),
        Outcome::Refused(Refusal::Absent) => cells.misses.add(1),
        Outcome::Refused(_) | Outcome::TooLarge { .. } | Outcome::VersionMismatch { .. } => {
            counters.failed(command, ErrorCode::Err);
        }
        Outcome::OutOfMemory => counters.failed(command, ErrorCode::Oom),
        Outcome::Untold => counters.failed(command, ErrorCode::Err),
        Outcome::Unwritable => counters.failed(command, ErrorCode::MisConf),
        Outcome::Stored { old, .. } if shape == Shape::OldValue => count_old(cells, old.is_some()),
        Outcome::Stored { .. } => {}
        Outcome::NotStored { old } => {
            counters.kept(command);
            if shape == Shape::OldValue {
                count_old(cells, old.is_some());
            }
        }
    }
}

/// Counts a write that reports the old value as a read of it.
#[cold]
fn count_old(cells: &CommandCells, was_there: bool) {
    if was_there { cells.hits.add(1) } else { cells.misses.add(1) }
}

#[cold]
fn count_update(cells: &CommandCells, outcome: &Outcome<'_, Refusal>, shape: Shape) {
    let (old, is_made) = match outcome {
        Outcome::Updated { old, new } => (old, new.is_some()),
        Outcome::Deleted { old } => (old, false),
        _ => return,
    };
    let creates = match shape {
        Shape::NewInteger | Shape::NewValue | Shape::NewLength | Shape::OldBit { .. } => true,
        // A value with an expiry in the past was stored all the same.
        Shape::McStored | Shape::Meta(MetaShape { kind: MetaKind::Set, .. }) => {
            is_made || matches!(outcome, Outcome::Deleted { .. })
        }
        Shape::Binary(_) => is_made,
        _ => false,
    };
    if old.is_some() {
        cells.hits.add(1);
    } else if !creates {
        cells.misses.add(1);
    }
}

impl<D: Destination> Reply<'_, D> {
    /// Makes the reply of a shape for an outcome.
    #[inline]
    pub fn answer(&mut self, shape: Shape, outcome: Outcome<'_, Refusal>) {
        match shape {
            Shape::Value => self.value(outcome),
            Shape::Stored => self.stored(outcome),
            Shape::McValue { with_cas, is_last } => self.mc_value(outcome, with_cas, is_last),
            Shape::McStored => self.mc_stored(outcome),
            shape => self.rare(shape, outcome),
        }
    }

    /// Records the bytes of values that a request has read or copied, if they exceed a key's share.
    pub(super) fn note_touched(&mut self, shape: Shape, outcome: &Outcome<'_, Refusal>) {
        let bytes = touched_bytes(shape, outcome);
        if bytes >= TOUCHED_BYTES_MIN {
            self.to.touched(bytes);
        }
    }

    /// Sends a value between two encoded pieces without copying it. If slow readers have half of
    /// the log pinned, a copy is booked first. False: there is no room for that either, and nothing
    /// is sent.
    #[cold]
    #[must_use]
    fn pinned(
        &mut self,
        item: &Item<'_>,
        head: impl FnOnce(&mut Vec<u8>),
        tail: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        self.pinned_part(item, 0..item.value.len(), head, tail)
    }

    /// Sends a part of the value that way.
    #[cold]
    #[must_use]
    fn pinned_part(
        &mut self,
        item: &Item<'_>,
        part: Range<usize>,
        head: impl FnOnce(&mut Vec<u8>),
        tail: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        self.to.expect_large();
        let pinned = self.pins.try_pin(item);
        if pinned.is_none() && !self.to.may_copy(part.len()) {
            return false;
        }
        self.to.append(head);
        match pinned {
            Some(mut pinned) => {
                pinned.narrow(part);
                self.to.push_pinned(pinned);
            }
            None => self.to.append(|out| {
                // As much as was booked, and the line's end.
                out.reserve_exact(part.len() + TAIL_BYTES_MAX);
                out.extend_from_slice(&item.value[part]);
            }),
        }
        self.to.append(tail);
        true
    }
}

impl<D: Destination> Destination for &mut D {
    #[inline]
    fn append<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        (**self).append(encode)
    }

    #[inline]
    fn protocol(&self) -> Protocol {
        (**self).protocol()
    }

    #[inline]
    fn is_pinned(&mut self, value_len_bytes: usize) -> bool {
        (**self).is_pinned(value_len_bytes)
    }

    fn expect_large(&mut self) {
        (**self).expect_large();
    }

    fn touched(&mut self, bytes: usize) {
        (**self).touched(bytes);
    }

    fn push_pinned(&mut self, value: PinnedValue) {
        (**self).push_pinned(value);
    }

    fn may_copy(&mut self, len_bytes: usize) -> bool {
        (**self).may_copy(len_bytes)
    }

    fn cut(&mut self) {
        (**self).cut();
    }
}
