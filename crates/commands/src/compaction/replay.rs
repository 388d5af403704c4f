//! Replays the requests of a group on a running value: computes the outcome of each, and the one
//! write at the end.
//!
//! # Invariants
//! I1: each request gets the outcome that the store would have given it, had the requests of the
//!     group run one by one; versions excepted (I5 of the module above).
//! I2: nothing is written before [`Executor::write`], so the group can be given up until then.
//! I3: no value is made or kept that is longer than [`SCRATCH_BYTES_MAX`]: such a group is given up
//!     before, for this memory is not booked. Nor is one as long as [`TOLD_BYTES_MIN`] kept: a
//!     reply that tells it needs room before the group's write.

use base::UnixMillis;
use policy::window::{Change, Executor, FinalWrite};
use store::pin::Pins;
use store::request::{
    Condition, Effect, Expiry, Item, Op, Outcome, Request, Set, Sink, TOLD_BYTES_MIN, Unmet,
    Update, Verdict, fold_token,
};
use store::{Pieces, Session};

use super::SCRATCH_BYTES_MAX;
use super::find::Member;
use super::merge::{Kept, KeptItem};
use crate::rmw::{Refusal, Rmw};

/// A longer stored value is not read: a few requests that change it would need more room than there
/// is.
const LOOKED_BYTES_MAX: usize = SCRATCH_BYTES_MAX / 16;

/// Why a group runs one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// Its values are too long to be kept aside.
    TooLong,
    /// Its write was refused, or the key had changed.
    Refused,
}

/// The store's item when the replay looked.
#[derive(Clone, Copy)]
enum Looked {
    /// It has not looked.
    No,
    Absent,
    Version(u64),
}

pub(super) struct Replay<'x> {
    session: &'x mut Session,
    now: UnixMillis,
    /// Values of the batch's kept items; only grows.
    scratch: &'x mut Vec<u8>,
    /// The value that an update writes.
    value: &'x mut Vec<u8>,
    looked: Looked,
    is_too_long: bool,
}

impl<'x> Replay<'x> {
    pub fn new(
        session: &'x mut Session,
        now: UnixMillis,
        scratch: &'x mut Vec<u8>,
        value: &'x mut Vec<u8>,
    ) -> Replay<'x> {
        Replay { session, now, scratch, value, looked: Looked::No, is_too_long: false }
    }

    /// Whether some value was too long to be kept aside: then all outcomes are invalid.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Keeps a value aside.
    fn keep(
        &mut self,
        value: &[u8],
        client_flags: u64,
        version: u64,
        expires_at: Option<UnixMillis>,
    ) -> KeptItem {
        let start = self.scratch.len();
        if value.len() >= TOLD_BYTES_MIN || start + value.len() > SCRATCH_BYTES_MAX {
            // The outcomes from here on are discarded.
            self.is_too_long = true;
        } else {
            self.scratch.extend_from_slice(value);
        }
        KeptItem { value: start..self.scratch.len(), client_flags, version, expires_at }
    }

    /// The value that an operation leaves, or why it is too large.
    fn leave(
        &mut self,
        key: &[u8],
        value: &[u8],
        client_flags: u64,
        expires_at: Option<UnixMillis>,
    ) -> Result<KeptItem, Kept> {
        match self.too_large(key, value) {
            Some(too_large) => Err(too_large),
            None => Ok(self.keep(value, client_flags, 0, expires_at)),
        }
    }

    fn too_large(&self, key: &[u8], value: &[u8]) -> Option<Kept> {
        let max_bytes = self.session.value_max_bytes(key.len());
        let len_bytes = value.len() as u64;
        (len_bytes > max_bytes).then_some(Kept::TooLarge { len_bytes, max_bytes })
    }

    fn set(&mut self, key: &[u8], set: &Set<'_>, value: &mut Option<KeptItem>) -> (Kept, Change) {
        if let Some(too_large) = self.too_large(key, set.value) {
            return (too_large, Change::Unchanged);
        }
        let old = value.as_ref().map(|old| old.item(key, self.scratch));
        if let Some(unmet) = set.condition.unmet(old.as_ref()) {
            let refused = match (unmet, value.clone()) {
                (Unmet::NotStored, old) => Kept::NotStored { old },
                (Unmet::OtherVersion, Some(old)) => Kept::VersionMismatch { old },
                (Unmet::Miss | Unmet::OtherVersion, _) => Kept::Miss,
            };
            return (refused, Change::Unchanged);
        }
        let expires_at = set.expiry.after(old.and_then(|old| old.expires_at));
        let new = self.keep(set.value, set.client_flags, 0, expires_at);
        let lives = expires_at.is_none_or(|at| at > self.now);
        let old = std::mem::replace(value, lives.then_some(new));
        (Kept::Stored { old }, Change::Changed)
    }

    fn update(
        &mut self,
        key: &[u8],
        update: &Rmw<'_>,
        value: &mut Option<KeptItem>,
    ) -> (Kept, Change) {
        let old = value.as_ref().map(|old| old.item(key, self.scratch));
        if update.made_len_max(old.as_ref()) > SCRATCH_BYTES_MAX {
            return self.give_up();
        }
        let mut pieces = Pieces::in_buffer(std::mem::take(self.value));
        let verdict = update.apply_in_pieces(old.as_ref(), &mut pieces);
        if pieces.len_bytes() > SCRATCH_BYTES_MAX {
            *self.value = pieces.made;
            return self.give_up();
        }
        let mut bytes = pieces.gathered();
        let result = self.carry_out(key, verdict, &mut bytes, value);
        *self.value = bytes;
        result
    }

    /// I3: the outcomes from here on are discarded.
    fn give_up(&mut self) -> (Kept, Change) {
        self.is_too_long = true;
        (Kept::Miss, Change::Unchanged)
    }

    fn carry_out(
        &mut self,
        key: &[u8],
        verdict: Verdict<Refusal>,
        bytes: &mut Vec<u8>,
        value: &mut Option<KeptItem>,
    ) -> (Kept, Change) {
        let old = value.clone();
        let new = match (verdict.effect(old.is_some(), self.now), &old) {
            (Effect::Write { client_flags, expires_at, token }, _) => {
                let client_flags =
                    token.map_or(client_flags, |token| fold_token(token, bytes, client_flags));
                self.leave(key, bytes, client_flags, expires_at)
            }
            (Effect::Touch { expires_at }, Some(old)) => {
                Ok(KeptItem { version: 0, expires_at, ..old.clone() })
            }
            (Effect::Nothing | Effect::Touch { .. }, _) => {
                return (Kept::Updated { old, new: None }, Change::Unchanged);
            }
            (Effect::Refused(why), _) => return (Kept::Refused(why), Change::Unchanged),
            (Effect::Delete, _) => {
                *value = None;
                return (Kept::Deleted { old }, Change::Changed);
            }
        };
        match new {
            Ok(new) => {
                *value = Some(new.clone());
                (Kept::Updated { old, new: Some(new) }, Change::Changed)
            }
            Err(too_large) => (too_large, Change::Unchanged),
        }
    }

    /// Runs one request for the replay itself; returns whether the store executed it.
    fn run(&mut self, member: &Member<'_>, op: Op<'_, Rmw<'_>>) -> Result<(), GivenUp> {
        let Request { key, hash, .. } = *member.request;
        let mut done = IsDone { deletes: matches!(op, Op::Delete), is_done: false };
        self.session.execute(self.now, &[Request { key, hash, op }], &mut done);
        if done.is_done { Ok(()) } else { Err(GivenUp::Refused) }
    }

    /// Leaves no value, if the key has not changed since the replay looked.
    fn remove(&mut self, member: &Member<'_>) -> Result<(), GivenUp> {
        match self.looked {
            Looked::No => self.run(member, Op::Delete),
            Looked::Absent => Ok(()),
            Looked::Version(version) => self.run(member, Op::Update(Rmw::DeleteVersion(version))),
        }
    }

    /// Leaves a value, if the key has not changed since the replay looked.
    fn put(&mut self, member: &Member<'_>, set: Set<'_>) -> Result<(), GivenUp> {
        let condition = match self.looked {
            Looked::No => Condition::Always,
            Looked::Absent => Condition::IfAbsent,
            Looked::Version(version) => Condition::IfVersion(version),
        };
        self.run(member, Op::Set(Set { condition, ..set }))
    }
}

impl<'r> Executor<Member<'r>> for Replay<'_> {
    type Value = KeptItem;
    type Reply = Kept;
    type Error = GivenUp;

    fn load(&mut self, member: &Member<'r>) -> Option<KeptItem> {
        let Request { key, hash, .. } = *member.request;
        let request = Request { key, hash, op: Op::<Rmw<'_>>::Get };
        let mut taken = Taken { scratch: self.scratch, item: None, is_too_long: false };
        self.session.execute(self.now, &[request], &mut taken);
        self.is_too_long |= taken.is_too_long;
        let item = taken.item;
        self.looked = item.as_ref().map_or(Looked::Absent, |item| Looked::Version(item.version));
        item
    }

    fn value_of(&mut self, member: &Member<'r>) -> KeptItem {
        let Op::Set(set) = member.request.op else {
            unreachable!("asked of a SET");
        };
        let expires_at = match set.expiry {
            Expiry::At(at) => Some(at),
            Expiry::Never | Expiry::Keep => None,
        };
        self.keep(set.value, set.client_flags, 0, expires_at)
    }

    fn replay(&mut self, member: &Member<'r>, value: &mut Option<KeptItem>) -> (Kept, Change) {
        if self.is_too_long {
            return self.give_up();
        }
        let key = member.request.key;
        match &member.request.op {
            Op::Get => {
                let kept = value.clone().map_or(Kept::Miss, Kept::Hit);
                (kept, Change::Unchanged)
            }
            Op::Set(set) => self.set(key, set, value),
            Op::Delete => match value.take() {
                Some(old) => (Kept::Deleted { old: Some(old) }, Change::Changed),
                None => (Kept::Miss, Change::Unchanged),
            },
            Op::Update(update) => self.update(key, update, value),
        }
    }

    fn reply_stored(&mut self, member: &Member<'r>) -> Kept {
        if let Request { key, op: Op::Set(set), .. } = member.request {
            self.is_too_long |= self.too_large(key, set.value).is_some();
        }
        Kept::Stored { old: None }
    }

    fn reply_removed(&mut self, _: &Member<'r>, found: bool) -> Kept {
        if !found {
            return Kept::Miss;
        }
        // No reply contains the old value, only that it existed.
        let old = KeptItem { value: 0..0, client_flags: 0, version: 0, expires_at: None };
        Kept::Deleted { old: Some(old) }
    }

    fn write(&mut self, write: FinalWrite<'_, Member<'r>, KeptItem>) -> Result<(), GivenUp> {
        if self.is_too_long {
            return Err(GivenUp::TooLong);
        }
        match write {
            FinalWrite::Operation(member) => match member.request.op {
                Op::Set(set) => self.put(member, set),
                _ => self.remove(member),
            },
            FinalWrite::Value { operation, value: None } => self.remove(operation),
            FinalWrite::Value { operation, value: Some(item) } => {
                let scratch = std::mem::take(self.scratch);
                let set = Set {
                    value: &scratch[item.value],
                    client_flags: item.client_flags,
                    expiry: item.expires_at.map_or(Expiry::Never, Expiry::At),
                    condition: Condition::Always,
                };
                let written = self.put(operation, set);
                *self.scratch = scratch;
                written
            }
        }
    }
}

/// Copies the item that the replay found.
struct Taken<'t> {
    scratch: &'t mut Vec<u8>,
    item: Option<KeptItem>,
    is_too_long: bool,
}

impl Sink<Refusal> for Taken<'_> {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        let Outcome::Hit(item) = outcome else { return };
        let Item { version, expires_at, .. } = item;
        let (value, client_flags) = item.folded();
        let start = self.scratch.len();
        let is_long = value.len() > LOOKED_BYTES_MAX;
        self.is_too_long = is_long || start + value.len() > SCRATCH_BYTES_MAX;
        if !self.is_too_long {
            self.scratch.extend_from_slice(&value);
        }
        let value = start..self.scratch.len();
        self.item = Some(KeptItem { value, client_flags, version, expires_at });
    }
}

/// Whether a write was done.
struct IsDone {
    /// A plain delete: an absent key is a success.
    deletes: bool,
    is_done: bool,
}

impl Sink<Refusal> for IsDone {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        self.is_done = match outcome {
            Outcome::Stored { .. } | Outcome::Deleted { .. } => true,
            Outcome::Miss => self.deletes,
            _ => false,
        };
    }
}

#[cfg(test)]
mod tests;
