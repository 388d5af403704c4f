//! memcached's meta commands on the old item of a key.
//!
//! ```text
//!  mg N R T   miss: an empty item that is won      hit: won if stale or ending soon; new time
//!  ms C I     the token's own item: as set             a newer item: stored, but stale
//!  ms MA MP   joined, or made if N says so
//!  md I x     stale instead of gone; empty instead of gone
//!  ma         counted, or made if N says so
//! ```
//!
//! An item is *stale* or *won* by marks beside its client flags ([`STALE`], [`WON`]): the marks are
//! part of the item, so they are logged and replicated like values. A client that wins has written
//! the item, which therefore has another CAS token from then on, unless a client had chosen the
//! token (E): a chosen token stays until the next value.

use base::UnixMillis;
use store::Pieces;
use store::request::{Item, MARKS_MASK, STALE, Update, Verdict, WON};

use super::memcached::{pad, parse_decimal};
use super::{Bounded, Refusal, Rmw, Side, text};

/// A new expiry for an item, if one was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewExpiry(u64);

impl NewExpiry {
    /// None was requested.
    pub const KEPT: NewExpiry = NewExpiry(u64::MAX);
    /// No expiry.
    pub const NEVER: NewExpiry = NewExpiry(u64::MAX - 1);

    /// The given time, or never.
    pub fn at(expires_at: Option<UnixMillis>) -> NewExpiry {
        expires_at.map_or(NewExpiry::NEVER, |at| NewExpiry(at.0.min(NewExpiry::NEVER.0 - 1)))
    }

    /// The number for other nodes.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The expiry from such a number.
    pub fn from_bits(bits: u64) -> NewExpiry {
        NewExpiry(bits)
    }

    /// The expiry, if one was requested.
    pub fn get(self) -> Option<Option<UnixMillis>> {
        match self {
            NewExpiry::KEPT => None,
            NewExpiry::NEVER => Some(None),
            NewExpiry(at) => Some(Some(UnixMillis(at))),
        }
    }

    fn or(self, old: Option<UnixMillis>) -> Option<UnixMillis> {
        self.get().unwrap_or(old)
    }

    fn is_asked(self) -> bool {
        self != NewExpiry::KEPT
    }
}

/// The effect of a look at an item on its time of last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regard {
    /// It counts as a read.
    Read,
    /// No effect: mg with u.
    Unnoted,
    /// No effect, and no client wins by it: me, and OBJECT.
    Look,
}

/// mg, for the cases in which it may change the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaGet {
    /// N.
    pub vivify: NewExpiry,
    /// T.
    pub touch: NewExpiry,
    /// R: the client wins an item that expires earlier.
    pub recache: NewExpiry,
    /// T is before R.
    pub is_touched_first: bool,
    /// Whether it is a read.
    pub regard: Regard,
}

impl MetaGet {
    /// A look that changes nothing.
    pub const LOOK: MetaGet = MetaGet {
        vivify: NewExpiry::KEPT,
        touch: NewExpiry::KEPT,
        recache: NewExpiry::KEPT,
        is_touched_first: false,
        regard: Regard::Look,
    };

    pub(super) fn may_read(&self) -> bool {
        !self.touch.is_asked()
    }

    pub(super) fn reads(&self, old: Option<&Item<'_>>) -> bool {
        match old {
            None => !self.vivify.is_asked(),
            Some(item) => self.may_read() && !self.wins(item),
        }
    }

    fn wins(&self, item: &Item<'_>) -> bool {
        if item.client_flags & WON != 0 || self.regard == Regard::Look {
            return false;
        }
        let looked_at =
            if self.is_touched_first { self.touch.or(item.expires_at) } else { item.expires_at };
        let ends_soon = match (looked_at, self.recache.get()) {
            // In seconds, as memcached counts: an item that was just set is not won by its own
            // time.
            (Some(at), Some(Some(limit))) => at.0.div_ceil(1000) < limit.0.div_ceil(1000),
            _ => false,
        };
        ends_soon || item.client_flags & STALE != 0
    }

    pub(super) fn apply<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Refusal> {
        let Some(item) = old else {
            return match self.vivify.get() {
                None => Verdict::Keep,
                Some(expires_at) => Verdict::Write { client_flags: WON, expires_at },
            };
        };
        let expires_at = self.touch.or(item.expires_at);
        if self.wins(item) {
            pieces.before = item.value;
            let client_flags = item.client_flags | WON;
            // Another value gets another token; this value is the same.
            return match item.token {
                None => Verdict::Write { client_flags, expires_at },
                Some(token) => Verdict::WriteToken { client_flags, expires_at, token },
            };
        }
        if self.touch.is_asked() { Verdict::Touch { expires_at } } else { Verdict::Keep }
    }
}

/// The condition for ms to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No condition.
    None,
    /// Mode E.
    Absent,
    /// Mode R.
    Present,
    /// C.
    SameToken,
    /// C and I: with an older token the item is stored as stale.
    SameOrOlderToken,
}

/// A meta command with E: the item it writes gets the client's own CAS token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named<'a> {
    /// The command without E.
    pub update: Rmw<'a>,
    /// The token.
    pub token: u64,
}

impl Named<'_> {
    pub(super) fn apply<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Refusal> {
        match self.update.apply_in_pieces(old, pieces) {
            // A client that wins an item does not change its value.
            verdict if old.is_some() && matches!(self.update, Rmw::MetaGet(_)) => verdict,
            Verdict::Write { client_flags, expires_at } => {
                Verdict::WriteToken { client_flags, expires_at, token: self.token }
            }
            verdict => verdict,
        }
    }
}

/// ms as an update: it gives a token (E), or its own may be an older one (C and I).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaStore<'a> {
    /// The new bytes.
    pub value: &'a [u8],
    /// The new flags.
    pub client_flags: u32,
    /// The new time.
    pub expiry: NewExpiry,
    /// The condition.
    pub guard: Guard,
    /// C.
    pub version: u64,
}

impl MetaStore<'_> {
    pub(super) fn apply<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Refusal> {
        let flags = u64::from(self.client_flags);
        let (client_flags, expires_at) = match (self.guard, old) {
            (Guard::SameToken | Guard::SameOrOlderToken, None) => return Verdict::Keep,
            (Guard::Absent, Some(_)) => return Verdict::Refuse(Refusal::Present),
            (Guard::Present, None) => return Verdict::Refuse(Refusal::Absent),
            (Guard::SameOrOlderToken, Some(item)) if (1..item.cas()).contains(&self.version) => {
                // The newer item keeps its time and its winner.
                (flags | STALE | item.client_flags & WON, item.expires_at)
            }
            (Guard::SameToken | Guard::SameOrOlderToken, Some(item))
                if self.version != item.cas() =>
            {
                return Verdict::Refuse(Refusal::OtherVersion(item.cas()));
            }
            _ => (flags, self.expiry.or(None)),
        };
        pieces.before = self.value;
        Verdict::Write { client_flags, expires_at }
    }
}

/// ms that appends or prepends, with a token or to a key that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaJoin<'a> {
    /// The new bytes.
    pub bytes: &'a [u8],
    /// The maximum length of the whole value.
    pub max_bytes: u32,
    /// The token to compare; 0: any.
    pub version: u64,
    /// N.
    pub vivify: NewExpiry,
    /// The flags of a created item.
    pub client_flags: u32,
}

impl MetaJoin<'_> {
    pub(super) fn apply<'v>(
        &'v self,
        side: Side,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Refusal> {
        match (old, self.vivify.get()) {
            (None, None) => Verdict::Refuse(Refusal::Absent),
            (None, Some(expires_at)) => {
                pieces.before = self.bytes;
                Verdict::Write { client_flags: self.client_flags.into(), expires_at }
            }
            (Some(item), _) if self.version != 0 && self.version != item.cas() => {
                Verdict::Refuse(Refusal::OtherVersion(item.cas()))
            }
            (Some(item), _) => {
                let part = Bounded { bytes: self.bytes, max_bytes: self.max_bytes.into() };
                text::join(Some(item), part, side, pieces)
            }
        }
    }
}

/// md that leaves an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaInvalidate {
    /// C.
    pub version: Option<u64>,
    /// T.
    pub touch: NewExpiry,
    /// I.
    pub makes_stale: bool,
    /// x.
    pub removes_value: bool,
}

impl MetaInvalidate {
    pub(super) fn apply<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Refusal> {
        let Some(item) = old else { return Verdict::Keep };
        if self.version.is_some_and(|version| version != item.cas()) {
            return Verdict::Refuse(Refusal::OtherVersion(item.cas()));
        }
        let mark = if self.makes_stale { STALE } else { 0 };
        if self.removes_value {
            return Verdict::Write { client_flags: mark, expires_at: self.touch.or(None) };
        }
        pieces.before = item.value;
        // The next client may win.
        let client_flags = item.client_flags & !WON | mark;
        Verdict::Write { client_flags, expires_at: self.touch.or(item.expires_at) }
    }
}

/// The direction in which ma counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// incr.
    Up,
    /// decr.
    Down,
}

/// ma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaCount {
    /// The amount.
    pub delta: u64,
    /// The token to compare; 0: any.
    pub version: u64,
    /// N.
    pub vivify: NewExpiry,
    /// The initial value.
    pub initial: u64,
    /// T.
    pub touch: NewExpiry,
}

impl MetaCount {
    pub(super) fn apply(
        &self,
        way: Way,
        old: Option<&Item<'_>>,
        value: &mut Vec<u8>,
    ) -> Verdict<Refusal> {
        let Some(item) = old else {
            let Some(expires_at) = self.vivify.get() else {
                return Verdict::Refuse(Refusal::Absent);
            };
            value.extend_from_slice(itoa::Buffer::new().format(self.initial).as_bytes());
            return Verdict::Write { client_flags: 0, expires_at };
        };
        if !item.value.is_empty() && self.version != 0 && self.version != item.cas() {
            return Verdict::Refuse(Refusal::OtherVersion(item.cas()));
        }
        let Some(number) = parse_decimal(item.value) else {
            return Verdict::Refuse(Refusal::NotNumeric);
        };
        let number = match way {
            Way::Down => number.saturating_sub(self.delta),
            Way::Up => number.wrapping_add(self.delta),
        };
        let client_flags = pad(item, number, value);
        Verdict::Write { client_flags, expires_at: self.touch.or(item.expires_at) }
    }
}

/// The client flags of a new value, without the marks of the old one.
pub(super) fn unmarked(client_flags: u64) -> u64 {
    client_flags & !MARKS_MASK
}

#[cfg(test)]
mod tests;
