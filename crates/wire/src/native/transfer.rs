//! Large values: the sender cuts them into parts, the receiver pulls the parts.
//!
//! ```text
//!  get ──▶ first part, version, total ──▶ Pull::begin
//!          pull (span) ◀── next_span       one frame each; as many outstanding as the client likes
//!          part        ──▶ accept ──▶ More | Short | Done | Changed
//! ```
//!
//! The receiver requests as many parts as it can take, so its window paces the sender (N10). All
//! parts belong to one version; otherwise the pull begins again.

use thiserror::Error;

use super::assembly::{Assembly, BadPart, PART_UNIT_BYTES};
use super::header::HEADER_LEN_BYTES;
use super::layout::message_len_bytes;
use super::reply::{Reply, Status};
use super::request::{Part, Span};

/// The maximum number of words of any request or reply.
const WORD_COUNT_MAX: usize = 5;

/// The maximum length of a part in a frame that holds one message with such a key: a multiple of a
/// unit, 0 if nothing fits.
pub const fn part_room_bytes(frame_max_bytes: usize, key_len_bytes: usize) -> usize {
    let fixed_bytes = HEADER_LEN_BYTES + message_len_bytes(WORD_COUNT_MAX, key_len_bytes, 0);
    frame_max_bytes.saturating_sub(fixed_bytes) / PART_UNIT_BYTES * PART_UNIT_BYTES
}

/// The parts of a value of `total` bytes, each `part_bytes` long but for the last.
///
/// `part_bytes` is a multiple of [`PART_UNIT_BYTES`], as [`part_room_bytes`] gives it.
pub fn push_spans(total: u32, part_bytes: u32) -> impl Iterator<Item = Span> {
    assert!(part_bytes > 0 && (part_bytes as usize).is_multiple_of(PART_UNIT_BYTES));
    (0..total)
        .step_by(part_bytes as usize)
        .map(move |offset| Span { offset, len_bytes: part_bytes.min(total - offset) })
}

impl Span {
    /// This span as a part of a value of `total` bytes.
    pub fn part_of(self, total: u32) -> Part {
        Part { offset: self.offset, total }
    }

    /// The bytes of a value of `total` that a reply to a pull carries, if its frame has room for
    /// `room_bytes` of them: whole units, or up to the end. `None`: the pull requests bytes that no
    /// value has ([`Status::Malformed`]), or there is no room for a unit.
    pub fn within(self, total: u32, room_bytes: usize) -> Option<std::ops::Range<usize>> {
        let offset = self.offset as usize;
        let left_bytes = total.checked_sub(self.offset)? as usize;
        let mut len_bytes = (self.len_bytes as usize).min(left_bytes);
        if len_bytes > room_bytes || len_bytes < left_bytes {
            len_bytes = len_bytes.min(room_bytes) / PART_UNIT_BYTES * PART_UNIT_BYTES;
        }
        let is_whole = offset.is_multiple_of(PART_UNIT_BYTES) && len_bytes > 0;
        is_whole.then_some(offset..offset + len_bytes)
    }
}

/// A value that is being pulled.
#[derive(Clone, Debug)]
pub struct Pull {
    version: u64,
    assembly: Assembly,
    part_bytes: u32,
    next_offset: u32,
}

/// The result of a pulled part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStep {
    /// Other parts are missing.
    More,
    /// The server had less room than requested: pull this as well.
    Short(Span),
    /// All parts have arrived: [`Pull::into_bytes`].
    Done,
    /// The item was changed or deleted meanwhile: begin again with a get.
    Changed,
}

/// The server's reply cannot be a part of the value.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PullError {
    /// The value is larger than the client accepts.
    #[error("a value of {total} bytes is longer than the {max_bytes} that the client takes")]
    TooLarge {
        /// Its length.
        total: u32,
        /// The maximum.
        max_bytes: u32,
    },
    /// It has no first part, no version, or another one.
    #[error("the server's answer is not a part of the value that was asked for")]
    NotAPart,
    /// The part is at an invalid position.
    #[error(transparent)]
    BadPart(#[from] BadPart),
    /// The server refused.
    #[error("the server answered a part with {0:?}")]
    Refused(Status),
}

impl Pull {
    /// Begins with a get's reply that has [`Reply::part`]. Later parts are requested in pieces of
    /// `part_bytes`, a multiple of [`PART_UNIT_BYTES`].
    pub fn begin(first: &Reply<'_>, part_bytes: u32, max_bytes: u32) -> Result<Pull, PullError> {
        assert!(part_bytes > 0 && (part_bytes as usize).is_multiple_of(PART_UNIT_BYTES));
        let (Some(part), Some(version)) = (first.part, first.version) else {
            return Err(PullError::NotAPart);
        };
        if part.offset != 0 || first.status != Status::Ok {
            return Err(PullError::NotAPart);
        }
        if part.total > max_bytes {
            return Err(PullError::TooLarge { total: part.total, max_bytes });
        }
        let mut assembly = Assembly::new(part.total);
        assembly.put(part, first.value)?;
        let next_offset = first.value.len() as u32;
        Ok(Pull { version, assembly, part_bytes, next_offset })
    }

    /// The version of all parts; goes into each pull.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the first part was the whole value.
    pub fn is_done(&self) -> bool {
        self.assembly.is_complete()
    }

    /// The next span to request; `None`: everything was requested once.
    pub fn next_span(&mut self) -> Option<Span> {
        let left_bytes = self.assembly.total() - self.next_offset;
        let span = Span { offset: self.next_offset, len_bytes: left_bytes.min(self.part_bytes) };
        self.next_offset += span.len_bytes;
        (span.len_bytes > 0).then_some(span)
    }

    /// Accepts the reply to the pull of `span`. A repeated one does no harm.
    pub fn accept(&mut self, span: Span, reply: &Reply<'_>) -> Result<PullStep, PullError> {
        match reply.status {
            Status::Ok => {}
            Status::Changed | Status::Miss => return Ok(PullStep::Changed),
            status => return Err(PullError::Refused(status)),
        }
        let Some(part) = reply.part.filter(|part| part.offset == span.offset) else {
            return Err(PullError::NotAPart);
        };
        if reply.version.is_some_and(|version| version != self.version) {
            return Err(PullError::NotAPart);
        }
        self.assembly.put(part, reply.value)?;
        let got_bytes = reply.value.len() as u32;
        if self.assembly.is_complete() {
            Ok(PullStep::Done)
        } else if got_bytes < span.len_bytes {
            let offset = span.offset + got_bytes;
            Ok(PullStep::Short(Span { offset, len_bytes: span.len_bytes - got_bytes }))
        } else {
            Ok(PullStep::More)
        }
    }

    /// The value; whole after [`PullStep::Done`].
    pub fn into_bytes(self) -> Vec<u8> {
        self.assembly.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{PartLimits, PartOutcome, PartsIn, RequestId, SessionId};
    use base::Instant;

    const VERSION: u64 = 5;

    fn value(len_bytes: usize) -> Vec<u8> {
        (0..len_bytes).map(|index| ((index * 31) >> 3) as u8).collect()
    }

    /// A server's reply to a span, with room for so many bytes.
    fn answer(value: &[u8], span: Span, room_bytes: usize) -> Reply<'_> {
        let range = span.within(value.len() as u32, room_bytes).unwrap();
        Reply {
            version: Some(VERSION),
            part: Some(Part { offset: range.start as u32, total: value.len() as u32 }),
            value: &value[range],
            ..Reply::new(RequestId::Free(1), Status::Ok)
        }
    }

    const FIRST: Span = Span { offset: 0, len_bytes: u32::MAX };

    #[track_caller]
    fn check_pull(len_bytes: usize, part_bytes: u32, room_bytes: usize) {
        let value = value(len_bytes);
        let mut pull = Pull::begin(&answer(&value, FIRST, 700), part_bytes, 1 << 20).unwrap();
        // The newest first: replies come in any order.
        let mut asked = Vec::new();
        while let Some(span) = pull.next_span() {
            asked.push(span);
        }
        while let Some(span) = asked.pop() {
            let reply = answer(&value, span, room_bytes);
            match pull.accept(span, &reply).unwrap() {
                PullStep::Short(rest) => asked.push(rest),
                PullStep::Done => assert!(asked.is_empty()),
                PullStep::More => assert!(!asked.is_empty()),
                PullStep::Changed => panic!("nothing changed"),
            }
        }
        assert!(pull.is_done());
        assert!(pull.into_bytes() == value, "{len_bytes} in parts of {part_bytes}");
    }

    #[test]
    fn a_value_is_pulled_whole_whatever_room_the_server_has() {
        for len_bytes in [701, 1408, 10_000, 64 * 200] {
            for (part_bytes, room_bytes) in [(64, 64), (1344, 1400), (1344, 300), (65_472, 700)] {
                check_pull(len_bytes, part_bytes, room_bytes);
            }
        }
    }

    #[test]
    fn a_value_that_changes_is_pulled_anew() {
        let value = value(5000);
        let mut pull = Pull::begin(&answer(&value, FIRST, 700), 640, 1 << 20).unwrap();
        let span = pull.next_span().unwrap();
        for status in [Status::Changed, Status::Miss] {
            let reply = Reply::new(RequestId::Free(1), status);
            assert_eq!(pull.accept(span, &reply), Ok(PullStep::Changed));
        }
        let reply = Reply::new(RequestId::Free(1), Status::Busy);
        assert_eq!(pull.accept(span, &reply), Err(PullError::Refused(Status::Busy)));
    }

    #[test]
    fn what_is_no_part_of_the_value_is_refused() {
        let value = value(5000);
        let good = answer(&value, FIRST, 700);
        let begin = |reply: Reply<'_>| Pull::begin(&reply, 640, 6000).err();
        assert_eq!(begin(Reply { version: None, ..good }), Some(PullError::NotAPart));
        assert_eq!(begin(Reply { part: None, ..good }), Some(PullError::NotAPart));
        let part = Some(Part { offset: 64, total: 5000 });
        assert_eq!(begin(Reply { part, ..good }), Some(PullError::NotAPart));
        let part = Some(Part { offset: 0, total: 7000 });
        let too_large = PullError::TooLarge { total: 7000, max_bytes: 6000 };
        assert_eq!(begin(Reply { part, ..good }), Some(too_large));
        assert!(begin(Reply { value: &[], ..good }).is_some(), "no progress is no part");

        let mut pull = Pull::begin(&good, 640, 6000).unwrap();
        let span = pull.next_span().unwrap();
        let good = answer(&value, span, 640);
        assert_eq!(
            pull.accept(span, &Reply { version: Some(6), ..good }),
            Err(PullError::NotAPart)
        );
        assert_eq!(pull.accept(span, &Reply { part: None, ..good }), Err(PullError::NotAPart));
        let part = Some(Part { offset: span.offset, total: 5001 });
        assert!(pull.accept(span, &Reply { part, ..good }).is_err());
        assert!(pull.accept(span, &Reply { value: &[], ..good }).is_err());
        assert_eq!(pull.accept(span, &good), Ok(PullStep::More));
    }

    #[test]
    fn hostile_spans_have_no_bytes() {
        let span = |offset, len_bytes| Span { offset, len_bytes };
        assert_eq!(span(0, 64).within(100, 1000), Some(0..64));
        assert_eq!(span(64, 64).within(100, 1000), Some(64..100));
        assert_eq!(span(0, 99).within(100, 1000), Some(0..64), "whole units");
        assert_eq!(span(0, 100).within(100, 1000), Some(0..100));
        assert_eq!(span(0, 100).within(100, 99), Some(0..64));
        for (offset, len_bytes) in [(1, 64), (0, 0), (0, 63), (128, 64), (u32::MAX, u32::MAX)] {
            assert_eq!(span(offset, len_bytes).within(100, 1000), None, "{offset} {len_bytes}");
        }
        assert_eq!(FIRST.within(100, 63), None, "no room for a unit");
        assert_eq!(FIRST.within(0, 1000), None);
    }

    #[test]
    fn pushed_parts_arrive_whole() {
        for (len_bytes, part_bytes) in [(64, 64), (5000, 1344), (4992, 64), (100_000, 65_472)] {
            let value = value(len_bytes);
            let mut parts_in = PartsIn::new(PartLimits {
                budget_bytes: 1 << 20,
                session_max_bytes: 1 << 20,
                value_max_bytes: 1 << 20,
                transfer_count_max: 1,
                idle_ns: 1,
            });
            let total = len_bytes as u32;
            let name = (SessionId(1), 1);
            let outcomes: Vec<_> = push_spans(total, part_bytes)
                .map(|span| {
                    let start = span.offset as usize;
                    let bytes = &value[start..start + span.len_bytes as usize];
                    parts_in.accept(Instant { ns: 0 }, name, span.part_of(total), bytes)
                })
                .collect();
            assert_eq!(outcomes.last(), Some(&PartOutcome::Complete(value)));
            assert_eq!(outcomes.len(), len_bytes.div_ceil(part_bytes as usize));
        }
    }

    #[test]
    fn a_part_fills_its_frame_but_for_less_than_a_unit() {
        assert_eq!(part_room_bytes(1472, 16), 1344);
        assert_eq!(part_room_bytes(100, 16), 0);
        assert_eq!(part_room_bytes(0, 0), 0);
    }
}
