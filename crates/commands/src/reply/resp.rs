//! Outcomes as RESP replies.

use std::ops::Range;

use store::request::{Item, Outcome};
use wire::resp::number::parse_i64;
use wire::resp::{CommandId, Encoder, ErrorReply, Unit, dump};

use super::Tally;
use super::{Destination, Reply, Shape};
use crate::rmw::{Refusal, bits, compare};

/// The log space of an item besides its key and value.
const ITEM_OVERHEAD_BYTES: usize = 32 + 8;

/// Redis embeds strings up to this length into their object.
const EMBEDDED_STRING_BYTES_MAX: usize = 44;

impl<D: Destination> Reply<'_, D> {
    #[inline]
    fn encode<T>(&mut self, encode: impl FnOnce(&mut Encoder<'_>) -> T) -> T {
        let protocol = self.to.protocol();
        self.to.append(|out| encode(&mut Encoder::new(out, protocol)))
    }

    fn error(&mut self, error: &ErrorReply) {
        self.encode(|encoder| encoder.error(error));
    }

    #[inline]
    fn bulk(&mut self, item: &Item<'_>) {
        self.bulk_part(item, 0..item.value.len());
    }

    #[inline(always)]
    fn bulk_part(&mut self, item: &Item<'_>, part: Range<usize>) {
        match self.to.is_pinned(part.len()) {
            true => self.bulk_pinned(item, part),
            false => self.encode(|encoder| encoder.bulk(&item.value[part])),
        }
    }

    #[cold]
    #[inline(never)]
    fn bulk_pinned(&mut self, item: &Item<'_>, part: Range<usize>) {
        let (protocol, len_bytes) = (self.to.protocol(), part.len());
        let is_sent = self.pinned_part(
            item,
            part,
            |out| Encoder::new(out, protocol).bulk_header(len_bytes),
            |out| Encoder::new(out, protocol).line_end(),
        );
        if !is_sent {
            self.error(&NO_ROOM);
        }
    }

    #[inline]
    fn bulk_or_null(&mut self, item: Option<Item<'_>>) {
        match item {
            Some(item) => self.bulk(&item),
            None => self.encode(|encoder| encoder.null()),
        }
    }

    /// GET.
    #[inline]
    pub(super) fn value(&mut self, outcome: Outcome<'_, Refusal>) {
        match outcome {
            Outcome::Hit(item) => self.bulk(&item),
            _ => self.encode(|encoder| encoder.null()),
        }
    }

    /// SET.
    #[inline]
    pub(super) fn stored(&mut self, outcome: Outcome<'_, Refusal>) {
        match outcome {
            Outcome::Stored { .. } | Outcome::Deleted { .. } => self.encode(|encoder| encoder.ok()),
            Outcome::OutOfMemory | Outcome::TooLarge { .. } | Outcome::Unwritable => {
                self.no_space(&outcome);
            }
            _ => self.encode(|encoder| encoder.null()),
        }
    }

    #[cold]
    fn no_space(&mut self, outcome: &Outcome<'_, Refusal>) {
        let error = match outcome {
            Outcome::TooLarge { .. } => ErrorReply::StringTooLong,
            Outcome::Unwritable => ErrorReply::LogFailed,
            _ => ErrorReply::OutOfMemory,
        };
        self.error(&error);
    }

    /// Everything but GET and SET.
    pub(super) fn rare(&mut self, shape: Shape, outcome: Outcome<'_, Refusal>) {
        self.note_touched(shape, &outcome);
        match (&outcome, shape) {
            (_, Shape::McDeleted | Shape::McNumber | Shape::McTouched | Shape::McNothing) => {
                return self.mc_rare(shape, outcome);
            }
            (_, Shape::Meta(meta)) => return self.meta(meta, outcome),
            (_, Shape::Binary(binary)) => return self.binary(binary, outcome),
            (_, Shape::AllStored { is_last }) => return self.all_stored(&outcome, is_last),
            (Outcome::Unwritable | Outcome::OutOfMemory, Shape::Count { is_last }) => {
                return self.count_failed(&outcome, is_last);
            }
            (Outcome::OutOfMemory | Outcome::TooLarge { .. } | Outcome::Unwritable, _) => {
                return self.no_space(&outcome);
            }
            (Outcome::Refused(refusal), _) => return self.error(&refusal.error_reply()),
            (Outcome::Untold, _) => return self.error(&NO_ROOM),
            _ => {}
        }
        match shape {
            Shape::OldValue => self.bulk_or_null(old_of(&outcome)),
            Shape::Done => {
                let is_done = matches!(
                    outcome,
                    Outcome::Stored { .. }
                        | Outcome::Deleted { .. }
                        | Outcome::Updated { new: Some(_), .. }
                );
                self.encode(|encoder| encoder.integer(i64::from(is_done)));
            }
            Shape::StoredIf => match outcome {
                Outcome::Updated { new: None, .. } => self.encode(|encoder| encoder.null()),
                _ => self.encode(|encoder| encoder.ok()),
            },
            Shape::OldBit { offset_bits } => {
                let old = old_of(&outcome);
                let bit = old.is_some_and(|old| bits::bit(old.value, offset_bits));
                self.encode(|encoder| encoder.integer(i64::from(bit)));
            }
            Shape::Count { is_last } => self.count_key(&outcome, is_last),
            Shape::NewInteger | Shape::NewValue | Shape::NewLength => {
                self.updated(shape, &outcome);
            }
            shape => self.described(shape, hit(&outcome)),
        }
    }

    fn all_stored(&mut self, outcome: &Outcome<'_, Refusal>, is_last: bool) {
        match outcome {
            Outcome::OutOfMemory => self.tally.out_of_memory = true,
            Outcome::Unwritable => self.tally.unwritable = true,
            Outcome::TooLarge { .. } => self.tally.too_large = true,
            _ => {}
        }
        if !is_last {
            return;
        }
        let tally = std::mem::take(self.tally);
        if tally.unwritable {
            self.error(&ErrorReply::LogFailed);
        } else if tally.out_of_memory {
            self.error(&ErrorReply::OutOfMemory);
        } else if tally.too_large {
            self.error(&ErrorReply::StringTooLong);
        } else {
            self.encode(|encoder| encoder.ok());
        }
    }

    /// Counts a key of several that could not be deleted: one reply for all of them, at the last.
    #[cold]
    fn count_failed(&mut self, outcome: &Outcome<'_, Refusal>, is_last: bool) {
        match outcome {
            Outcome::Unwritable => self.tally.unwritable = true,
            _ => self.tally.out_of_memory = true,
        }
        self.count_key(outcome, is_last);
    }

    #[cold]
    fn tally_error(&mut self, tally: Tally) {
        self.error(match tally.unwritable {
            true => &ErrorReply::LogFailed,
            false => &ErrorReply::OutOfMemory,
        });
    }

    fn count_key(&mut self, outcome: &Outcome<'_, Refusal>, is_last: bool) {
        let was_there = matches!(outcome, Outcome::Hit(_) | Outcome::Deleted { .. });
        self.tally.count += i64::from(was_there);
        if is_last {
            let tally = std::mem::take(self.tally);
            if tally.unwritable || tally.out_of_memory {
                return self.tally_error(tally);
            }
            let count = tally.count;
            self.encode(|encoder| encoder.integer(count));
        }
    }

    fn updated(&mut self, shape: Shape, outcome: &Outcome<'_, Refusal>) {
        // SETRANGE without bytes keeps the key: its length is the old one.
        let item = match outcome {
            Outcome::Updated { new: Some(new), .. } => Some(*new),
            other => old_of(other),
        };
        let value = item.as_ref().map_or(&b""[..], |item| item.value);
        match (shape, &item) {
            (Shape::NewInteger, _) => {
                let number = parse_i64(value).unwrap_or(0);
                self.encode(|encoder| encoder.integer(number));
            }
            (Shape::NewValue, Some(item)) => self.bulk(item),
            _ => self.encode(|encoder| encoder.integer(value.len() as i64)),
        }
    }

    /// DUMP; a large value is sent from the log.
    fn dump(&mut self, item: &Item<'_>) {
        if self.to.is_pinned(item.value.len())
            && let Some((head, footer)) = dump::frame(item.value)
        {
            let protocol = self.to.protocol();
            let len_bytes = head.len() + item.value.len() + footer.len();
            let is_sent = self.pinned(
                item,
                |out| {
                    Encoder::new(out, protocol).bulk_header(len_bytes);
                    out.extend_from_slice(&head);
                },
                |out| {
                    out.extend_from_slice(&footer);
                    Encoder::new(out, protocol).line_end();
                },
            );
            if !is_sent {
                self.error(&NO_ROOM);
            }
            return;
        }
        let mut payload = Vec::new();
        dump::save(item.value, &mut payload);
        self.encode(|encoder| encoder.bulk(&payload));
    }

    /// Commands that look at an item without sending it.
    fn described(&mut self, shape: Shape, item: Option<&Item<'_>>) {
        let now = self.now;
        let value = item.map_or(&b""[..], |item| item.value);
        match (shape, item) {
            (Shape::Length, _) => self.encode(|encoder| encoder.integer(value.len() as i64)),
            (Shape::Range { start, end }, Some(item)) => {
                self.bulk_part(item, clamp_range(start, end, value.len()));
            }
            (Shape::Range { .. }, None) => self.encode(|encoder| encoder.bulk(b"")),
            (Shape::Bit { offset_bits }, _) => {
                let bit = bits::bit(value, offset_bits);
                self.encode(|encoder| encoder.integer(i64::from(bit)));
            }
            (Shape::BitCount(range), _) => {
                let count = bits::count(value, range) as i64;
                self.encode(|encoder| encoder.integer(count));
            }
            (Shape::BitPosition(search), item) => {
                let position = bits::position(item.map(|item| item.value), search);
                self.encode(|encoder| encoder.integer(position));
            }
            (Shape::Digest, Some(_)) => {
                let digest = format!("{:016x}", compare::digest(value));
                self.encode(|encoder| encoder.bulk(digest.as_bytes()));
            }
            (Shape::Dump, Some(item)) => self.dump(item),
            (Shape::TypeName, _) => {
                let name = if item.is_some() { "string" } else { "none" };
                self.encode(|encoder| encoder.simple(name));
            }
            (Shape::ExpiresIn(unit), item) => {
                let answer = time_answer(unit, now, item);
                self.encode(|encoder| encoder.integer(answer));
            }
            (Shape::Encoding, Some(_)) => {
                self.encode(|encoder| encoder.bulk(encoding(value).as_bytes()));
            }
            (Shape::AccessFrequency, Some(_)) => self.error(&ErrorReply::NoAccessFrequency),
            (Shape::ReferenceCount, Some(_)) => self.encode(|encoder| encoder.integer(1)),
            (Shape::IdleTime, Some(item)) => {
                let seconds = item.last_use.seconds_ago(now);
                self.encode(|encoder| encoder.integer(seconds.cast_signed()));
            }
            (Shape::RefusedTime(reason), Some(_)) => {
                self.error(&reason.error_reply(CommandId::GetEx));
            }
            (Shape::MemoryUsage, Some(item)) => {
                let bytes = item.key.len() + value.len() + ITEM_OVERHEAD_BYTES;
                self.encode(|encoder| encoder.integer(bytes as i64));
            }
            // OBJECT, MEMORY USAGE, DIGEST and DUMP of an absent key.
            _ => self.encode(|encoder| encoder.null()),
        }
    }
}

/// The reply in place of a large value that can be neither pinned nor copied; one that was to be
/// deleted or replaced is still there ([`Sink::may_tell`]).
///
/// [`Sink::may_tell`]: store::request::Sink::may_tell
const NO_ROOM: ErrorReply<'static> = ErrorReply::Other(
    "no room for this reply: slow readers hold half of the log, and the client buffers, a part of \
     maxmemory, are full: try again",
);

fn hit<'o, 'i>(outcome: &'o Outcome<'i, Refusal>) -> Option<&'o Item<'i>> {
    match outcome {
        // A look under locks (`MetaGet::LOOK`) changes nothing.
        Outcome::Hit(item) | Outcome::Updated { old: Some(item), new: None } => Some(item),
        _ => None,
    }
}

fn old_of<'i>(outcome: &Outcome<'i, Refusal>) -> Option<Item<'i>> {
    match outcome {
        Outcome::Stored { old, .. }
        | Outcome::NotStored { old }
        | Outcome::Deleted { old }
        | Outcome::Updated { old, .. } => *old,
        Outcome::Hit(item) | Outcome::VersionMismatch { old: item } => Some(*item),
        _ => None,
    }
}

/// -2: no key, -1: no expiry.
fn time_answer(unit: Unit, now: base::UnixMillis, item: Option<&Item<'_>>) -> i64 {
    match item {
        None => -2,
        Some(Item { expires_at: None, .. }) => -1,
        Some(Item { expires_at: Some(at), .. }) => unit.answer(now, *at),
    }
}

/// The encoding in which Redis stores such a string.
fn encoding(value: &[u8]) -> &'static str {
    if value.len() <= 20 && parse_i64(value).is_some() {
        "int"
    } else if value.len() <= EMBEDDED_STRING_BYTES_MAX {
        "embstr"
    } else {
        "raw"
    }
}

/// GETRANGE's bounds, inclusive and negative from the end, as a range of the value.
fn clamp_range(start: i64, end: i64, len: usize) -> Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_start = |position: i64| {
        if position < 0 { position.saturating_add(len).max(0) } else { position }
    };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    // Both are between 0 and `len` now.
    if start > end || len == 0 { 0..0 } else { start as usize..end as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_range(start: i64, end: i64, want: &str) {
        let value = "This is a string";
        assert_eq!(&value[clamp_range(start, end, value.len())], want);
    }

    #[test]
    fn ranges_are_cut_to_the_value() {
        check_range(0, 3, "This");
        check_range(-3, -1, "ing");
        check_range(0, -1, "This is a string");
        check_range(10, 100, "string");
        check_range(5, 3, "");
        check_range(-1, -5, "");
        check_range(-100, 2, "Thi");
        check_range(16, 20, "");
        check_range(i64::MIN, i64::MAX, "This is a string");
        assert_eq!(clamp_range(0, -1, 0), 0..0);
    }

    #[test]
    fn encodings_are_those_of_redis() {
        assert_eq!(encoding(b"12"), "int");
        assert_eq!(encoding(b"-9223372036854775808"), "int");
        assert_eq!(encoding(b"012"), "embstr");
        assert_eq!(encoding(&[b'x'; 44]), "embstr");
        assert_eq!(encoding(&[b'x'; 45]), "raw");
    }
}
