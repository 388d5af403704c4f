//! The read-modify-writes of both protocols: pure functions from a key's old state to its new one.
//!
//! ```text
//!  old item (or none) ──▶ Rmw::apply ──▶ Verdict: keep, write, touch, delete, refuse
//! ```
//!
//! The store runs them under the key's bucket lock, so concurrent increments of two clients are
//! never lost, whichever protocol each of them speaks.
//!
//! # Invariants
//! I1: an update depends only on itself and the old item: no clock, no randomness. It may run more
//!     than once before it takes effect.

pub mod bits;
pub mod compare;
mod expiry;
mod memcached;
pub mod meta;
mod number;
mod text;

use base::UnixMillis;
use store::Pieces;
use store::request::{Item, NoUpdate, Op, Update, Use, Verdict};
use wire::resp::{Comparison, ErrorReply, ExpireCondition};

use compare::PackedExpiry;
pub use memcached::parse_decimal;

// A batch holds many operations: rare ones must not enlarge the common ones.
const _: () = assert!(size_of::<Op<'_, Rmw<'_>>>() == size_of::<Op<'_, NoUpdate>>());

use meta::{MetaCount, MetaGet, MetaInvalidate, MetaJoin, MetaStore, Named, Regard, Way};

/// One read-modify-write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rmw<'a> {
    /// INCR, DECR, INCRBY, DECRBY.
    IncrementBy(i64),
    /// INCRBYFLOAT; the increment is a valid number.
    IncrementByFloat(&'a [u8]),
    /// APPEND: creates an absent key.
    Append(Bounded<'a>),
    /// The native prepend: creates an absent key.
    Prepend(Bounded<'a>),
    /// The native delete of one version.
    DeleteVersion(u64),
    /// SETRANGE: fills with zero bytes up to the offset.
    SetRange {
        /// Where the bytes go.
        offset_bytes: u64,
        /// The bytes and the longest result.
        value: Bounded<'a>,
    },
    /// SETBIT: fills with zero bytes up to the bit.
    SetBit {
        /// Checked against the longest value.
        offset_bits: u64,
        /// What is written.
        bit: bool,
    },
    /// SET with IFEQ, IFNE, IFDEQ or IFDNE.
    SetIf {
        /// The condition on the old value.
        comparison: Comparison<'a>,
        /// The new one.
        value: &'a [u8],
        /// Its expiry.
        expiry: PackedExpiry,
    },
    /// DELEX with a condition, DELIFEQ.
    DeleteIf(Comparison<'a>),
    /// GETEX and `gat`, `touch`: an absent key stays absent.
    SetExpiry(Option<UnixMillis>),
    /// The EXPIRE family.
    Expire {
        /// The new time.
        at: UnixMillis,
        /// NX, XX, GT, LT.
        condition: ExpireCondition,
    },
    /// PERSIST, and GETEX with it: a key without an expiry does not change.
    Persist,
    /// memcached's append: an absent key is refused.
    Join(Bounded<'a>, Side),
    /// memcached's incr: wraps at 2^64.
    Increase(u64),
    /// memcached's decr: stops at 0.
    Decrease(u64),
    /// mg.
    MetaGet(MetaGet),
    /// md and binary delete with a CAS token.
    DeleteToken(u64),
    /// ms with a token to give, or with an older one.
    MetaStore(MetaStore<'a>),
    /// ms that appends.
    MetaAppend(MetaJoin<'a>),
    /// ms that prepends.
    MetaPrepend(MetaJoin<'a>),
    /// md that leaves an item.
    MetaInvalidate(MetaInvalidate),
    /// ma that adds.
    MetaIncrease(MetaCount),
    /// ma that subtracts.
    MetaDecrease(MetaCount),
    /// One of those with E: stored elsewhere, so that it does not enlarge those without.
    Named(&'a Named<'a>),
}

impl Rmw<'_> {
    /// Whether its cost grows with the old value, which it copies.
    pub fn copies_value(&self) -> bool {
        match self {
            Rmw::Append(_)
            | Rmw::Prepend(_)
            | Rmw::SetRange { .. }
            | Rmw::SetBit { .. }
            | Rmw::Join(..)
            | Rmw::SetExpiry(_)
            | Rmw::Expire { .. }
            | Rmw::Persist
            | Rmw::MetaAppend(_)
            | Rmw::MetaPrepend(_)
            | Rmw::MetaInvalidate(_) => true,
            Rmw::MetaGet(get) => !get.may_read(),
            Rmw::Named(named) => named.update.copies_value(),
            Rmw::MetaStore(_) | Rmw::MetaIncrease(_) | Rmw::MetaDecrease(_) => false,
            Rmw::IncrementBy(_)
            | Rmw::IncrementByFloat(_)
            | Rmw::DeleteVersion(_)
            | Rmw::DeleteToken(_)
            | Rmw::SetIf { .. }
            | Rmw::DeleteIf(_)
            | Rmw::Increase(_)
            | Rmw::Decrease(_) => false,
        }
    }
}

/// Whether the cost of a request grows with the old value.
#[inline]
pub fn copies_value(op: &Op<'_, Rmw<'_>>) -> bool {
    matches!(op, Op::Update(update) if update.copies_value())
}

/// Whether a request may be answered with an item that it does not change.
#[inline]
pub fn may_be_read(op: &Op<'_, Rmw<'_>>) -> bool {
    match op {
        Op::Get => true,
        Op::Update(update) => update.may_read(),
        Op::Set(_) | Op::Delete => false,
    }
}

/// On which side of the old value the new bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// append.
    Behind,
    /// prepend.
    Before,
}

/// Bytes to put into a value, and the maximum length of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded<'a> {
    /// The new bytes.
    pub bytes: &'a [u8],
    /// Of the whole value, inclusive.
    pub max_bytes: u64,
}

/// Why an update was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The value is not a 64-bit integer.
    NotAnInteger,
    /// The sum is outside of 64 bits.
    IntegerOverflow,
    /// The value is not a number.
    NotAFloat,
    /// The sum is not a finite number.
    FloatOverflow,
    /// The value would become too long.
    TooLong,
    /// memcached: the key does not exist.
    Absent,
    /// memcached: the value is not a decimal number.
    NotNumeric,
    /// memcached: the key exists.
    Present,
    /// The item has this version, or CAS token, instead of the requested one.
    OtherVersion(u64),
}

impl Refusal {
    /// The answer on the RESP port.
    pub fn error_reply(self) -> ErrorReply<'static> {
        match self {
            // No RESP command asks for a version.
            Refusal::NotAnInteger | Refusal::NotNumeric | Refusal::OtherVersion(_) => {
                ErrorReply::NotAnInteger
            }
            Refusal::IntegerOverflow => ErrorReply::IntegerOverflow,
            Refusal::NotAFloat => ErrorReply::NotAFloat,
            Refusal::FloatOverflow => ErrorReply::FloatOverflow,
            Refusal::TooLong => ErrorReply::StringTooLong,
            // Nor that a key be absent, by an update.
            Refusal::Absent | Refusal::Present => ErrorReply::NoSuchKey,
        }
    }
}

impl Update for Rmw<'_> {
    type Refusal = Refusal;

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<Refusal> {
        let mut pieces = Pieces::in_buffer(std::mem::take(value));
        let verdict = self.apply_in_pieces(old, &mut pieces);
        *value = pieces.gathered();
        verdict
    }

    fn apply_in_pieces<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Refusal> {
        match *self {
            Rmw::IncrementBy(delta) => number::increment(old, delta, &mut pieces.made),
            Rmw::IncrementByFloat(increment) => {
                number::increment_float(old, increment, &mut pieces.made)
            }
            Rmw::Append(tail) => text::join(old, tail, Side::Behind, pieces),
            Rmw::Prepend(head) => text::join(old, head, Side::Before, pieces),
            Rmw::DeleteVersion(version) => delete_if(old, |item| item.version, version),
            Rmw::DeleteToken(token) => delete_if(old, |item| item.cas(), token),
            Rmw::SetRange { offset_bytes, value } => {
                text::set_range(old, offset_bytes, value, pieces)
            }
            Rmw::SetBit { offset_bits, bit } => bits::set(old, offset_bits, bit, pieces),
            Rmw::SetIf { comparison, value, expiry } => {
                compare::set(old, comparison, (value, expiry), pieces)
            }
            Rmw::DeleteIf(comparison) => compare::delete(old, comparison),
            Rmw::SetExpiry(expires_at) => expiry::set(old, expires_at),
            Rmw::Expire { at, condition } => expiry::expire(old, at, condition),
            Rmw::Persist => expiry::persist(old),
            Rmw::Join(part, side) => memcached::join(old, part, side, pieces),
            Rmw::Increase(delta) => {
                memcached::arithmetic(old, &mut pieces.made, |n| n.wrapping_add(delta))
            }
            Rmw::Decrease(delta) => {
                memcached::arithmetic(old, &mut pieces.made, |n| n.saturating_sub(delta))
            }
            Rmw::MetaGet(ref get) => get.apply(old, pieces),
            Rmw::MetaStore(ref store) => store.apply(old, pieces),
            Rmw::MetaAppend(ref join) => join.apply(Side::Behind, old, pieces),
            Rmw::MetaPrepend(ref join) => join.apply(Side::Before, old, pieces),
            Rmw::MetaInvalidate(ref invalidate) => invalidate.apply(old, pieces),
            Rmw::MetaIncrease(count) => count.apply(Way::Up, old, &mut pieces.made),
            Rmw::MetaDecrease(count) => count.apply(Way::Down, old, &mut pieces.made),
            Rmw::Named(named) => named.apply(old, pieces),
        }
    }

    fn made_len_max(&self, old: Option<&Item<'_>>) -> usize {
        let old_len = old.map_or(0, |old| old.value.len());
        match self {
            Rmw::SetRange { offset_bytes, value } => {
                text::gap_before_range(old_len, *offset_bytes, *value)
            }
            Rmw::SetBit { offset_bits, bit } => bits::made_len(old, *offset_bits, *bit),
            Rmw::Named(named) => named.update.made_len_max(old),
            Rmw::Increase(_) | Rmw::Decrease(_) | Rmw::MetaIncrease(_) | Rmw::MetaDecrease(_) => {
                old_len
            }
            // Numbers are short; whole values are written from where they are, without a buffer.
            Rmw::IncrementBy(_)
            | Rmw::IncrementByFloat(_)
            | Rmw::Append(_)
            | Rmw::Prepend(_)
            | Rmw::Join(..)
            | Rmw::SetIf { .. }
            | Rmw::MetaGet(_)
            | Rmw::MetaStore(_)
            | Rmw::MetaAppend(_)
            | Rmw::MetaPrepend(_)
            | Rmw::MetaInvalidate(_)
            | Rmw::DeleteVersion(_)
            | Rmw::DeleteToken(_)
            | Rmw::DeleteIf(_)
            | Rmw::SetExpiry(_)
            | Rmw::Expire { .. }
            | Rmw::Persist => 0,
        }
    }

    #[inline]
    fn may_read(&self) -> bool {
        match self {
            Rmw::MetaGet(get) => get.may_read(),
            Rmw::Named(named) => named.update.may_read(),
            _ => false,
        }
    }

    fn reads(&self, old: Option<&Item<'_>>) -> bool {
        match self {
            Rmw::MetaGet(get) => get.reads(old),
            Rmw::Named(named) => named.update.reads(old),
            _ => false,
        }
    }

    fn usage(&self) -> Use {
        match self {
            Rmw::MetaGet(get) if get.regard != Regard::Read => Use::NoRead,
            Rmw::MetaGet(_) | Rmw::SetExpiry(_) | Rmw::Persist => Use::Read,
            Rmw::Increase(_)
            | Rmw::Decrease(_)
            | Rmw::MetaIncrease(_)
            | Rmw::MetaDecrease(_)
            | Rmw::MetaInvalidate(_) => Use::NoRead,
            Rmw::Named(named) => named.update.usage(),
            _ => Use::Usual,
        }
    }
}

fn delete_if(
    old: Option<&Item<'_>>,
    number_of: impl Fn(&Item<'_>) -> u64,
    wanted: u64,
) -> Verdict<Refusal> {
    match old {
        None => Verdict::Keep,
        Some(old) if number_of(old) == wanted => Verdict::Delete,
        Some(old) => Verdict::Refuse(Refusal::OtherVersion(number_of(old))),
    }
}

/// Writes the new value and keeps the other properties of the old item.
fn write_keeping<R>(old: Option<&Item<'_>>) -> Verdict<R> {
    match old {
        None => Verdict::Write { client_flags: 0, expires_at: None },
        Some(old) => Verdict::Write {
            client_flags: meta::unmarked(old.client_flags),
            expires_at: old.expires_at,
        },
    }
}

#[cfg(test)]
mod tests;
