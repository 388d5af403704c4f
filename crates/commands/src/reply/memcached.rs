//! Outcomes as memcached text replies.

use store::request::{Item, Outcome};
use wire::memcached::{Encoder, Reply as Line};

use super::{Destination, Reply, Shape};
use crate::rmw::Refusal;

impl<D: Destination> Reply<'_, D> {
    #[inline]
    fn line(&mut self, line: Line) {
        self.to.append(|out| Encoder::new(out).reply(line));
    }

    /// A VALUE block if the key was found.
    #[inline]
    pub(super) fn mc_value(
        &mut self,
        outcome: Outcome<'_, Refusal>,
        with_cas: bool,
        is_last: bool,
    ) {
        match outcome {
            Outcome::Hit(item) if self.mc_block(&item, with_cas) => {}
            Outcome::Hit(_) | Outcome::Untold => return self.mc_no_room(is_last),
            // gat: the item as it is now; an exptime in the past leaves only the old one.
            Outcome::Updated { new: Some(item), .. } | Outcome::Deleted { old: Some(item) } => {
                self.note_touched(Shape::OldValue, &outcome);
                if !self.mc_block(&item, with_cas) {
                    return self.mc_no_room(is_last);
                }
            }
            Outcome::OutOfMemory => {
                return self.line(Line::OutOfMemory);
            }
            Outcome::Unwritable => {
                return self.line(Line::LogFailed);
            }
            _ => {}
        }
        if is_last {
            self.line(Line::End);
        }
    }

    /// An error ends the reply, so only the last value can be refused with one (`several` I3).
    #[cold]
    fn mc_no_room(&mut self, is_last: bool) {
        match is_last {
            true => self.line(Line::NoRoomForValue),
            false => self.to.cut(),
        }
    }

    /// Writes a VALUE block. False: there is no room for it.
    #[inline]
    fn mc_block(&mut self, item: &Item<'_>, with_cas: bool) -> bool {
        let cas = with_cas.then_some(item.cas());
        let (key, flags, value) = (item.key, item.client_flags as u32, item.value);
        if self.to.is_pinned(value.len()) {
            return self.pinned(
                item,
                |out| Encoder::new(out).value_header(key, flags, cas, value.len()),
                |out| Encoder::new(out).line_end(),
            );
        }
        self.to.append(|out| Encoder::new(out).value(key, flags, cas, value));
        true
    }

    /// set, add, replace, append, prepend, cas.
    #[inline]
    pub(super) fn mc_stored(&mut self, outcome: Outcome<'_, Refusal>) {
        if matches!(outcome, Outcome::Updated { .. }) {
            self.note_touched(Shape::McStored, &outcome);
        }
        let line = match outcome {
            Outcome::Stored { .. } | Outcome::Updated { .. } | Outcome::Deleted { .. } => {
                Line::Stored
            }
            Outcome::Miss => Line::NotFound,
            Outcome::VersionMismatch { .. } => Line::Exists,
            Outcome::OutOfMemory => Line::OutOfMemory,
            Outcome::Unwritable => Line::LogFailed,
            Outcome::TooLarge { .. } | Outcome::Refused(Refusal::TooLong) => Line::TooLarge,
            _ => Line::NotStored,
        };
        self.line(line);
    }

    /// delete, incr, decr, touch.
    pub(super) fn mc_rare(&mut self, shape: Shape, outcome: Outcome<'_, Refusal>) {
        let line = match (shape, outcome) {
            (Shape::McNothing, _) => return,
            (_, Outcome::OutOfMemory) => Line::OutOfMemory,
            (_, Outcome::Unwritable) => Line::LogFailed,
            (Shape::McDeleted, Outcome::Deleted { .. }) => Line::Deleted,
            (Shape::McTouched, Outcome::Updated { new: Some(_), .. } | Outcome::Deleted { .. }) => {
                Line::Touched
            }
            (Shape::McNumber, Outcome::Updated { new: Some(item), .. }) => {
                let digits = item.value.trim_ascii_end();
                return self.to.append(|out| {
                    out.extend_from_slice(digits);
                    Encoder::new(out).line_end();
                });
            }
            (Shape::McNumber, Outcome::Refused(Refusal::NotNumeric)) => Line::NotNumeric,
            _ => Line::NotFound,
        };
        self.line(line);
    }
}
