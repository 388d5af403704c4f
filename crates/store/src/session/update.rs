//! Read-modify-writes: decided and published under the key's bucket lock, so that they are atomic
//! for their key. When the log has no room, the session releases the lock, makes room, and decides
//! again.
//!
//! A new expiry copies its entry. In a full store the copy goes to the space that cleaning uses for
//! its copies, as long as cleaning has enough left: the copy frees about as much as it takes.

use base::{KeyHash, UnixMillis};
use index::hash::slot::Tag;
use index::hash::{Chain, IndexFull};

use super::Local;
use super::deletes::make_room_for_delete;
use super::execute::Call;
use super::expire::meet_expired;
use super::find::{find, find_locked, see_live};
use super::ordered::has_nodes_now;
use super::place::queue_for;
use super::write::{Ask, Found, asker, may_tell, too_large};
use crate::entry::{ALIGN_BYTES, Header, Meta, Seen, Shape};
use crate::inner::Inner;
use crate::log::{Appender, Purpose, Queue};
use crate::pieces::{Parts, Pieces};
use crate::pin::Pins;
use crate::request::{Effect, Item, LastUse, Outcome, Sink, Update, Use, stored_token};

/// Shorter values are made without asking whether there is a place for them.
const LONG_BYTES: usize = 16 << 10;

/// The result of one attempt at a write under the lock.
enum Attempt<'a, R> {
    Done(Outcome<'a, R>),
    /// The log has no segment for an entry of this length.
    NeedsRoom {
        len_bytes: usize,
        /// Whether it only changes an expiry.
        is_touch: bool,
    },
    /// The log has no segment for a delete of the key.
    NeedsRoomForDelete,
}

/// The space that a write under the lock uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    /// The open segments of all writes.
    Open,
    /// The segments of the entries that cleaning keeps.
    Survivors,
}

impl Local {
    pub(super) fn update<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        call: Call<'_>,
        key: &[u8],
        hash: KeyHash,
        update: &U,
        sink: &mut S,
    ) {
        let Call { inner, now, request_index, .. } = call;
        if update.may_read() && self.read_instead(call, key, hash, update, sink) {
            return;
        }
        let queue = queue_for(self, call, hash);
        let mut space = Space::Open;
        loop {
            self.nodes.prepare(inner);
            let mut seen = Seens::default();
            let attempt = {
                let (means, mut ask) = ((queue, space), asker(call, sink));
                self.try_update(call, (key, hash), update, means, (&mut seen, &mut ask))
            };
            match attempt {
                Attempt::Done(_) if self.nodes.is_short() => {
                    if !has_nodes_now(self, inner, now) {
                        sink.outcome(request_index, Outcome::OutOfMemory, Pins(inner));
                        break;
                    }
                }
                Attempt::Done(outcome) => {
                    sink.outcome(request_index, outcome, Pins(inner));
                    break;
                }
                Attempt::NeedsRoomForDelete => {
                    if !make_room_for_delete(self, inner, now, key.len()) {
                        sink.outcome(request_index, Outcome::OutOfMemory, Pins(inner));
                        break;
                    }
                }
                Attempt::NeedsRoom { len_bytes, is_touch } => {
                    let has_room = self.borrow_reserve(inner, len_bytes, queue)
                        || self.make_room_for(inner, now, len_bytes);
                    if has_room {
                        continue;
                    }
                    if is_touch && space == Space::Open {
                        space = Space::Survivors;
                    } else {
                        self.tally.counts.out_of_memory += 1;
                        sink.outcome(request_index, Outcome::OutOfMemory, Pins(inner));
                        break;
                    }
                }
            }
        }
        self.scratch.settle(&inner.scratch_room);
    }

    /// Answers an update that turns out to be a read; false: it is not one. Takes no lock, like any
    /// read (K9).
    #[inline(never)]
    fn read_instead<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        call: Call<'_>,
        key: &[u8],
        hash: KeyHash,
        update: &U,
        sink: &mut S,
    ) -> bool {
        let Call { inner, now, request_index, .. } = call;
        // A read without the lock would wait for ever for a chain that this session has locked.
        if !self.held.is_empty() {
            return false;
        }
        let found = find(inner, inner.index.head_of(hash), hash, key);
        let mut word = Default::default();
        let item = found
            .map(|(position, entry)| (position, entry, entry.read(&mut word)))
            .filter(|(_, _, item)| item.expires_at.is_none_or(|at| at > now));
        if !update.reads(item.as_ref().map(|(_, _, item)| item)) {
            return false;
        }
        match item {
            Some((position, entry, item)) => {
                inner.mark(position);
                sink.outcome(request_index, Outcome::Hit(item), Pins(inner));
                if update.usage() != Use::NoRead {
                    entry.note_use(LastUse::read(now));
                }
            }
            None => {
                sink.outcome(request_index, Outcome::Miss, Pins(inner));
                meet_expired(self, inner, now, hash, key);
            }
        }
        true
    }

    fn try_update<'a, 's, U: Update>(
        &mut self,
        call: Call<'a>,
        (key, hash): (&[u8], KeyHash),
        update: &U,
        (queue, space): (Queue, Space),
        (seen, ask): (&'s mut Seens<'a>, Ask<'_>),
    ) -> Attempt<'s, U::Refusal> {
        let Call { inner, now, guess, .. } = call;
        let (tag, chain) = (Tag::of(hash), self.held.lock_chain(inner, hash));
        let found = find_locked(inner, &chain, guess, tag, key);
        let Seens { old, new } = seen;
        *old = see_live(found.map(|(_, entry)| entry), now);
        let old = old.as_ref().map(Seen::item);
        if old.is_none() && found.is_some() {
            self.changes.gone(key);
        }
        let Some(mut pieces) = self.pieces_for((inner, now), update, old.as_ref()) else {
            return Attempt::Done(Outcome::OutOfMemory);
        };
        let verdict = update.apply_in_pieces(old.as_ref(), &mut pieces);
        let effect = verdict.effect(old.is_some(), now);
        let is_touch = matches!(effect, Effect::Touch { .. });
        let changes = !matches!(effect, Effect::Nothing | Effect::Refused(_));
        if changes && !may_tell(ask, old.as_ref()) {
            self.scratch.buffer = pieces.made;
            return Attempt::Done(Outcome::Untold);
        }
        let (client_flags, expires_at, token) = match (effect, old) {
            (Effect::Write { client_flags, expires_at, token }, _) => {
                (client_flags, expires_at, token)
            }
            (Effect::Touch { expires_at }, Some(item)) => {
                pieces.before = item.value;
                pieces.made.clear();
                pieces.after = [&[]; 2];
                (item.client_flags, expires_at, item.token)
            }
            (Effect::Nothing | Effect::Touch { .. }, _) => {
                self.scratch.buffer = pieces.made;
                return Attempt::Done(Outcome::Updated { old, new: None });
            }
            (Effect::Refused(why), _) => {
                self.scratch.buffer = pieces.made;
                return Attempt::Done(Outcome::Refused(why));
            }
            (Effect::Delete, _) => {
                self.scratch.buffer = pieces.made;
                return match self.delete_locked(inner, chain, found) {
                    true => Attempt::Done(Outcome::Deleted { old }),
                    false => Attempt::NeedsRoomForDelete,
                };
            }
        };
        let folded = token.map(|token| stored_token(token, client_flags));
        let (behind, client_flags) = match &folded {
            Some((token, client_flags)) => (&token[..], *client_flags),
            None => (&b""[..], client_flags),
        };
        let meta = Meta { version: chain.next_version(), client_flags, expires_at };
        let last_use = use_after(update.usage(), is_touch, old, now);
        let value = pieces.with(behind);
        let write = Write { key, tag, value, meta, last_use, queue, space };
        let written = self.write_locked(inner, chain, found, write);
        self.scratch.buffer = pieces.made;
        match written {
            Written::Entry(entry) => {
                let new = Some(new.insert(entry).item());
                Attempt::Done(Outcome::Updated { old, new })
            }
            Written::NoRoom { len_bytes } => Attempt::NeedsRoom { len_bytes, is_touch },
            Written::IndexFull => Attempt::Done(Outcome::OutOfMemory),
            Written::TooLarge { len_bytes } => Attempt::Done(too_large(inner, key, len_bytes)),
        }
    }

    /// Empty pieces, with room for the bytes that the update makes; `None`: no memory is left for
    /// them.
    fn pieces_for<'v, U: Update>(
        &mut self,
        (inner, now): (&Inner, UnixMillis),
        update: &U,
        old: Option<&Item<'_>>,
    ) -> Option<Pieces<'v>> {
        self.scratch.buffer.clear();
        let made_bytes = update.made_len_max(old);
        // A long value that would find no place is not made.
        let has_place = made_bytes <= LONG_BYTES || !self.lacks_room_for(inner, now, made_bytes);
        let has_room = has_place && self.scratch.make_room(&inner.scratch_room, made_bytes);
        self.tally.counts.out_of_memory += u64::from(!has_room);
        has_room.then(|| Pieces::in_buffer(std::mem::take(&mut self.scratch.buffer)))
    }

    fn write_locked<'a>(
        &mut self,
        inner: &'a Inner,
        mut chain: Chain<'_>,
        found: Found<'a>,
        write: Write<'_>,
    ) -> Written<'a> {
        let Write { key, tag, value, meta, last_use, queue, space } = write;
        let value_len = value.len_bytes();
        if !inner.fits(key.len(), value_len) {
            return Written::TooLarge { len_bytes: value_len as u64 };
        }
        let shape = Shape::new(key.len(), value_len, meta.client_flags, meta.expires_at.is_some());
        let replaces = inner.tuning.replaces_in_place;
        let shape = if replaces { shape } else { shape.at_rest() };
        let in_place = found.filter(|(_, entry)| replaces && entry.takes_in_place(shape));
        if let Some((position, entry)) = in_place {
            entry.replace_value(&value.word::<ALIGN_BYTES>()[..value_len], meta.version);
            entry.note_use(last_use);
            let seen = entry.see();
            inner.mark(position);
            chain.finish();
            self.changes.changed(key);
            return Written::Entry(seen);
        }
        let len_bytes = shape.len_bytes();
        // Under locks of several keys a session waits for no other (I2).
        let purpose = match self.held.is_empty() {
            true => Purpose::Write,
            false => Purpose::Held(self.place),
        };
        let (appender, purpose) = match space {
            Space::Open => (self.appenders.for_write(inner, queue), purpose),
            Space::Survivors => (&mut self.appenders.survivors, Purpose::Touch),
        };
        let Some(reservation) = appender.reserve(&inner.log, len_bytes, purpose) else {
            return Written::NoRoom { len_bytes };
        };
        Appender::fill_parts(&inner.log, &reservation, shape, key, value);
        let body_crc = inner.sum_parts(shape, key, value);
        let header = Header::noting(shape, meta, body_crc, last_use);
        Appender::write_header(&inner.log, &reservation, &header);
        match self.publish(inner, &mut chain, tag, found, &reservation, meta) {
            Ok(entry) => {
                let seen = entry.see();
                chain.finish();
                Written::Entry(seen)
            }
            Err(IndexFull) => {
                drop(chain);
                self.appenders.cancel(&inner.log, Some(reservation));
                self.tally.counts.out_of_memory += 1;
                Written::IndexFull
            }
        }
    }
}

/// The time of last use to note for a write that an update decided on.
fn use_after(usage: Use, is_touch: bool, old: Option<Item<'_>>, now: UnixMillis) -> LastUse {
    let written = LastUse::written(now);
    let before = old.map_or(LastUse::UNKNOWN, |item| item.last_use);
    match usage {
        Use::Read => written.as_read(),
        Use::Usual if !is_touch => written,
        Use::Usual | Use::NoRead => written.after(before),
    }
}

/// The old and the new state of a read-modify-write, as of the moment it held the lock.
#[derive(Default)]
struct Seens<'a> {
    old: Option<Seen<'a>>,
    new: Option<Seen<'a>>,
}

/// The result of a write under the lock.
enum Written<'a> {
    /// The key has this entry now.
    Entry(Seen<'a>),
    NoRoom {
        len_bytes: usize,
    },
    IndexFull,
    TooLarge {
        /// The length of the value.
        len_bytes: u64,
    },
}

/// The entry that a read-modify-write decided on.
struct Write<'w> {
    key: &'w [u8],
    tag: Tag,
    value: Parts<'w>,
    meta: Meta,
    last_use: LastUse,
    queue: Queue,
    space: Space,
}
