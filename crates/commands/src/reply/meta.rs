//! Outcomes as replies to memcached's meta commands.

use base::UnixMillis;
use store::entry_len_bytes;
use store::request::{Item, LastUse, Outcome, STALE, WON};
use wire::memcached::{Encoder, MetaEcho, MetaShown, Reply as Line};

use super::{Destination, Reply};
use crate::rmw::Refusal;

/// The meta command of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKind {
    /// mg.
    Get,
    /// ms.
    Set,
    /// md.
    Delete,
    /// ma.
    Count,
    /// me.
    Debug,
}

/// The form of the reply to a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaShape {
    /// The command.
    pub kind: MetaKind,
    /// With the item's value.
    pub with_value: bool,
    /// With a CAS token, shown or compared.
    pub with_version: bool,
    /// The usual outcome is not sent: a miss of mg, the success of the others.
    pub is_quiet: bool,
    /// The start of the note with the fields that the reply repeats ([`MetaEcho`]).
    pub note_start: u32,
    /// The length of the note.
    pub note_len: u16,
}

impl MetaShape {
    /// Its note, among those of the batch.
    pub fn note(self, notes: &[u8]) -> &[u8] {
        let start = self.note_start as usize;
        notes.get(start..start + usize::from(self.note_len)).unwrap_or_default()
    }

    /// The same shape for a note that is alone.
    pub fn with_note_at_start(self) -> MetaShape {
        MetaShape { note_start: 0, ..self }
    }
}

impl<D: Destination> Reply<'_, D> {
    /// mg, ms, md, ma and me.
    pub(super) fn meta(&mut self, shape: MetaShape, outcome: Outcome<'_, Refusal>) {
        let notes = self.notes;
        let echo = MetaEcho::read(shape.note(notes)).expect("the request was noted when it came");
        let line = match outcome {
            Outcome::OutOfMemory => Line::OutOfMemory,
            Outcome::Untold => Line::NoRoomForValue,
            Outcome::Unwritable => Line::LogFailed,
            Outcome::TooLarge { .. } | Outcome::Refused(Refusal::TooLong) => Line::TooLarge,
            Outcome::Refused(Refusal::NotNumeric) => Line::NotNumeric,
            _ => {
                return match shape.kind {
                    MetaKind::Get => self.meta_got(shape, &echo, outcome),
                    MetaKind::Set => self.meta_stored(shape, &echo, &outcome),
                    MetaKind::Delete => self.meta_deleted(shape, &echo, &outcome),
                    MetaKind::Count => self.meta_counted(shape, &echo, &outcome),
                    MetaKind::Debug => self.meta_debugged(&echo, &outcome),
                };
            }
        };
        self.to.append(|out| Encoder::new(out).reply(line));
    }

    fn meta_got(&mut self, shape: MetaShape, echo: &MetaEcho<'_>, outcome: Outcome<'_, Refusal>) {
        let is_gone = matches!(outcome, Outcome::Deleted { .. });
        let (old, new) = match outcome {
            Outcome::Hit(item) => (Some(item), None),
            Outcome::Updated { old, new } => (old, new),
            Outcome::Deleted { old: None } => {
                // Created with an expiry in the past.
                let shown =
                    MetaShown { is_created: true, is_won: true, ..shown(&NOTHING, self.now) };
                return self.meta_item(echo, &NOTHING, &shown);
            }
            Outcome::Deleted { old } => (old, None),
            _ => (None, None),
        };
        let is_created = old.is_none();
        let Some(item) = new.or(old) else {
            if !shape.is_quiet {
                self.to.append(|out| Encoder::new(out).meta_status(b"EN", echo, None));
            }
            return;
        };
        let marks = old.map_or(0, |old| old.client_flags);
        // An item with an expiry in the past is reported as it was.
        let is_won =
            marks & WON == 0 && (item.client_flags & WON != 0 || (is_gone && marks & STALE != 0));
        let before = old.map_or(LastUse::UNKNOWN, |old| old.last_use);
        let shown = MetaShown {
            is_read: before.is_read(),
            idle_seconds: before.seconds_ago(self.now),
            expires_at: old.and_then(|old| old.expires_at),
            is_created,
            is_won,
            is_stale: marks & STALE != 0,
            has_winner: marks & WON != 0,
            ..shown(&item, self.now)
        };
        self.meta_item(echo, &item, &shown);
    }

    fn meta_item(&mut self, echo: &MetaEcho<'_>, item: &Item<'_>, shown: &MetaShown) {
        let (value, now) = (item.value, self.now);
        if !echo.has(b'v') {
            return self.to.append(|out| Encoder::new(out).meta_hit(echo, shown, now));
        }
        if self.to.is_pinned(value.len()) {
            let is_sent = self.pinned(
                item,
                |out| Encoder::new(out).meta_hit(echo, shown, now),
                |out| Encoder::new(out).line_end(),
            );
            if !is_sent {
                self.to.append(|out| Encoder::new(out).reply(Line::NoRoomForValue));
            }
            return;
        }
        self.to.append(|out| {
            out.reserve(value.len());
            let mut encoder = Encoder::new(out);
            encoder.meta_hit(echo, shown, now);
            out.extend_from_slice(value);
            Encoder::new(out).line_end();
        });
    }

    fn meta_stored(
        &mut self,
        shape: MetaShape,
        echo: &MetaEcho<'_>,
        outcome: &Outcome<'_, Refusal>,
    ) {
        let (status, version) = match outcome {
            Outcome::Stored { version, .. } => (b"HD", echo.token_base() + *version),
            Outcome::Updated { new: Some(new), .. } => (b"HD", new.cas()),
            Outcome::Deleted { .. } => (b"HD", 0),
            Outcome::VersionMismatch { .. } | Outcome::Refused(Refusal::OtherVersion(_)) => {
                (b"EX", 0)
            }
            Outcome::Miss | Outcome::Updated { .. } => (b"NF", 0),
            _ => (b"NS", 0),
        };
        self.meta_status(shape, echo, status, Some(version));
    }

    fn meta_deleted(
        &mut self,
        shape: MetaShape,
        echo: &MetaEcho<'_>,
        outcome: &Outcome<'_, Refusal>,
    ) {
        let status = match outcome {
            Outcome::Deleted { .. } | Outcome::Updated { new: Some(_), .. } => b"HD",
            Outcome::Refused(Refusal::OtherVersion(_)) => b"EX",
            _ => b"NF",
        };
        self.meta_status(shape, echo, status, None);
    }

    fn meta_counted(
        &mut self,
        shape: MetaShape,
        echo: &MetaEcho<'_>,
        outcome: &Outcome<'_, Refusal>,
    ) {
        let (old, new) = match outcome {
            Outcome::Updated { old, new: Some(new) } => (*old, *new),
            // Its expiry is in the past; no client will see its new count.
            Outcome::Deleted { old } => (*old, old.unwrap_or(NOTHING)),
            Outcome::Refused(Refusal::OtherVersion(_)) => {
                return self.meta_status(shape, echo, b"EX", None);
            }
            _ => return self.meta_status(shape, echo, b"NF", None),
        };
        if shape.is_quiet && old.is_some() {
            return;
        }
        let expires_at = old.and_then(|old| old.expires_at);
        let shown = MetaShown { expires_at, is_created: old.is_none(), ..shown(&new, self.now) };
        let (number, now) = (new.value.trim_ascii_end(), self.now);
        self.to.append(|out| Encoder::new(out).meta_number(echo, number, &shown, now));
    }

    fn meta_debugged(&mut self, echo: &MetaEcho<'_>, outcome: &Outcome<'_, Refusal>) {
        let now = self.now;
        match outcome {
            Outcome::Hit(item) | Outcome::Updated { old: Some(item), .. } => {
                let size_bytes = entry_len_bytes(item.key.len(), item.value.len());
                let shown = shown(item, now);
                self.to.append(|out| Encoder::new(out).meta_debug(echo, &shown, size_bytes, now));
            }
            _ => self.to.append(|out| Encoder::new(out).meta_debug_miss()),
        }
    }

    fn meta_status(
        &mut self,
        shape: MetaShape,
        echo: &MetaEcho<'_>,
        status: &[u8; 2],
        version: Option<u64>,
    ) {
        if !(shape.is_quiet && status == b"HD") {
            self.to.append(|out| Encoder::new(out).meta_status(status, echo, version));
        }
    }
}

/// An item that no longer exists.
const NOTHING: Item<'static> = Item {
    key: b"",
    value: b"",
    client_flags: 0,
    version: 0,
    token: Some(0),
    shard: 0,
    expires_at: None,
    last_use: LastUse::UNKNOWN,
};

fn shown(item: &Item<'_>, now: UnixMillis) -> MetaShown {
    MetaShown {
        len_bytes: item.value.len(),
        client_flags: item.client_flags as u32,
        version: item.cas(),
        expires_at: item.expires_at,
        is_read: item.last_use.is_read(),
        idle_seconds: item.last_use.seconds_ago(now),
        is_created: false,
        is_won: false,
        is_stale: false,
        has_winner: false,
    }
}
