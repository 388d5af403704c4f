//! Outcomes as responses of memcached's binary protocol.
//!
//! ```text
//!  loud   every outcome is answered
//!  quiet  reads: hits only       the others: failures only
//! ```

use store::request::{Item, Outcome};
use wire::memcached::binary::{Encoder, Head, Status, Verb};

use super::{Destination, Reply};
use crate::rmw::{Refusal, parse_decimal};

/// The form of the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryShape {
    /// The header to repeat; its opcode names the request.
    pub head: Head,
    /// The start of the note: the key that a miss repeats, the initial value of a counter, or the
    /// base of a SET's token.
    pub note_start: u32,
    /// The length of the note.
    pub note_len: u8,
}

impl BinaryShape {
    /// Its note, among those of the batch.
    pub fn note(self, notes: &[u8]) -> &[u8] {
        let start = self.note_start as usize;
        notes.get(start..start + usize::from(self.note_len)).unwrap_or_default()
    }

    /// The same shape for a note that is alone.
    pub fn with_note_at_start(self) -> BinaryShape {
        BinaryShape { note_start: 0, ..self }
    }

    /// Whether a hit is answered with its value.
    pub fn has_value(self) -> bool {
        use Verb::{Get, GetAndTouch, GetKey, GetKeyAndTouch};
        matches!(self.verb(), Some((Get | GetKey | GetAndTouch | GetKeyAndTouch, _)))
    }

    /// Whether the response contains the token: all do but those to deletes and quiet successful
    /// writes.
    pub fn tells_version(self) -> bool {
        match self.verb() {
            Some((Verb::Delete, _)) => false,
            Some((_, is_quiet)) => !is_quiet || self.has_value(),
            None => false,
        }
    }

    fn verb(self) -> Option<(Verb, bool)> {
        Verb::of(self.head.opcode)
    }
}

impl<D: Destination> Reply<'_, D> {
    /// Any request on a key.
    pub(super) fn binary(&mut self, shape: BinaryShape, outcome: Outcome<'_, Refusal>) {
        use Verb::{Decrement, Get, GetAndTouch, GetKey, GetKeyAndTouch, Increment, Touch};
        let Some((verb, is_quiet)) = shape.verb() else { return };
        let status = match outcome {
            Outcome::OutOfMemory | Outcome::Untold => Some(Status::OutOfMemory),
            Outcome::Unwritable => Some(Status::Internal),
            Outcome::TooLarge { .. } => Some(Status::TooLarge),
            Outcome::Refused(Refusal::NotNumeric) => Some(Status::NotNumeric),
            Outcome::Refused(Refusal::OtherVersion(_)) | Outcome::VersionMismatch { .. } => {
                Some(Status::Exists)
            }
            _ => None,
        };
        if let Some(status) = status {
            return self.binary_refused(shape, status);
        }
        match verb {
            Get | GetKey | Touch | GetAndTouch | GetKeyAndTouch => {
                self.binary_read(shape, (verb, is_quiet), &outcome);
            }
            Increment | Decrement => self.binary_counted(shape, is_quiet, &outcome),
            _ => match written(verb, shape.note(self.notes), &outcome) {
                Ok(_) if is_quiet => {}
                Ok(cas) => self.to.append(|out| Encoder::new(out, shape.head).done(cas)),
                Err(status) => self.binary_refused(shape, status),
            },
        }
    }

    fn binary_refused(&mut self, shape: BinaryShape, status: Status) {
        self.to.append(|out| Encoder::new(out, shape.head).refuse(status));
    }

    fn binary_read(
        &mut self,
        shape: BinaryShape,
        (verb, is_quiet): (Verb, bool),
        outcome: &Outcome<'_, Refusal>,
    ) {
        // gat: the item as it is now; an exptime in the past leaves only the old one.
        let found = match outcome {
            Outcome::Hit(item) => Some(item),
            Outcome::Updated { new, .. } => new.as_ref(),
            Outcome::Deleted { old } => old.as_ref(),
            _ => None,
        };
        match found {
            Some(item) if verb == Verb::Touch => self.to.append(|out| {
                let flags = item.client_flags as u32;
                Encoder::new(out, shape.head).item_front(flags, item.cas(), b"", 0);
            }),
            Some(item) => self.binary_item(shape.head, item, verb.tells_key()),
            None if is_quiet => {}
            None if verb.tells_key() => {
                let key = shape.note(self.notes);
                self.to.append(|out| Encoder::new(out, shape.head).key_not_found(key));
            }
            None => self.binary_refused(shape, Status::NotFound),
        }
    }

    fn binary_item(&mut self, head: Head, item: &Item<'_>, tells_key: bool) {
        let (flags, cas, value) = (item.client_flags as u32, item.cas(), item.value);
        let key = if tells_key { item.key } else { b"" };
        let front =
            |out: &mut Vec<u8>| Encoder::new(out, head).item_front(flags, cas, key, value.len());
        if self.to.is_pinned(value.len()) {
            if !self.pinned(item, front, |_| {}) {
                self.to.append(|out| Encoder::new(out, head).refuse(Status::OutOfMemory));
            }
            return;
        }
        self.to.append(|out| {
            front(out);
            out.extend_from_slice(value);
        });
    }

    fn binary_counted(
        &mut self,
        shape: BinaryShape,
        is_quiet: bool,
        outcome: &Outcome<'_, Refusal>,
    ) {
        let (number, cas) = match outcome {
            Outcome::Updated { new: Some(item), .. } => {
                (parse_decimal(item.value).unwrap_or(0), item.cas())
            }
            // Created with an expiry in the past.
            Outcome::Deleted { .. } => {
                let initial = shape.note(self.notes).try_into().unwrap_or_default();
                (u64::from_be_bytes(initial), 0)
            }
            _ => return self.binary_refused(shape, Status::NotFound),
        };
        if !is_quiet {
            self.to.append(|out| Encoder::new(out, shape.head).number(number, cas));
        }
    }
}

/// The token after a write, or why there is none. The note of a SET is its token's base.
fn written(verb: Verb, note: &[u8], outcome: &Outcome<'_, Refusal>) -> Result<u64, Status> {
    match outcome {
        Outcome::Stored { version, .. } => {
            Ok(u64::from_be_bytes(note.try_into().unwrap_or_default()) + *version)
        }
        Outcome::Updated { new: Some(item), .. } => Ok(item.cas()),
        Outcome::Deleted { .. } => Ok(0),
        Outcome::Miss => Err(Status::NotFound),
        _ => Err(match verb {
            Verb::Add => Status::Exists,
            Verb::Replace | Verb::Delete => Status::NotFound,
            _ => Status::NotStored,
        }),
    }
}
