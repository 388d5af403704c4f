//! Pushed values: hostile parts, bounded memory, and any order of arrival.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SESSION: SessionId = SessionId(1);
const LIMITS: PartLimits = PartLimits {
    budget_bytes: 10_000,
    session_max_bytes: 6000,
    value_max_bytes: 5000,
    transfer_count_max: 3,
    idle_ns: 100,
};

fn at(ns: u64) -> Instant {
    Instant { ns }
}

#[track_caller]
fn check(parts: &mut PartsIn, offset: u32, total: u32, len_bytes: usize, want: &PartOutcome) {
    let found = parts.accept(at(0), (SESSION, 7), Part { offset, total }, &vec![9; len_bytes]);
    assert_eq!(&found, want, "{len_bytes} bytes at {offset} of {total}");
    parts.validate();
}

#[test]
fn parts_in_any_order_with_repeats_and_overlaps_make_a_value() {
    let mut parts = PartsIn::new(LIMITS);
    let taken = |missing_bytes| PartOutcome::Taken { missing_bytes };
    check(&mut parts, 128, 200, 72, &taken(128));
    check(&mut parts, 128, 200, 72, &taken(128));
    check(&mut parts, 64, 200, 64, &taken(64));
    check(&mut parts, 64, 200, 136, &taken(64));
    check(&mut parts, 0, 200, 128, &PartOutcome::Complete(vec![9; 200]));
    assert_eq!((parts.held_bytes(), parts.transfers.len()), (0, 0));
}

#[test]
fn hostile_offsets_are_refused_and_begin_nothing() {
    let mut parts = PartsIn::new(LIMITS);
    let malformed = PartOutcome::Refused(Status::Malformed);
    check(&mut parts, 1, 200, 64, &malformed);
    check(&mut parts, 0, 200, 63, &malformed);
    check(&mut parts, 0, 200, 0, &malformed);
    check(&mut parts, 0, 0, 0, &malformed);
    check(&mut parts, 192, 200, 64, &malformed);
    check(&mut parts, 256, 200, 64, &malformed);
    check(&mut parts, u32::MAX - 63, u32::MAX, 64, &malformed);
    check(&mut parts, !63, 200, 64, &malformed);
    assert_eq!(parts.transfers.len(), 0);
}

#[test]
fn a_value_does_not_change_its_length() {
    let mut parts = PartsIn::new(LIMITS);
    check(&mut parts, 0, 200, 64, &PartOutcome::Taken { missing_bytes: 192 });
    check(&mut parts, 64, 256, 64, &PartOutcome::Refused(Status::Malformed));
    check(&mut parts, 64, 128, 64, &PartOutcome::Refused(Status::Malformed));
    check(&mut parts, 128, 200, 72, &PartOutcome::Taken { missing_bytes: 64 });
}

#[test]
fn what_is_above_the_limits_is_too_large_or_busy() {
    let mut parts = PartsIn::new(LIMITS);
    let mut begin = |session, sequence, total| {
        let part = Part { offset: 0, total };
        let outcome = parts.accept(at(0), (SessionId(session), sequence), part, &[0; 64]);
        parts.validate();
        outcome
    };
    let is_taken = |outcome| matches!(outcome, PartOutcome::Taken { .. });
    assert_eq!(begin(1, 0, 5001), PartOutcome::Refused(Status::TooLarge));
    assert_eq!(begin(1, 0, u32::MAX), PartOutcome::Refused(Status::TooLarge));
    assert!(is_taken(begin(1, 0, 5000)));
    assert_eq!(begin(1, 1, 1000), PartOutcome::Refused(Status::Busy), "the session's share");
    assert!(is_taken(begin(2, 1, 3000)));
    assert_eq!(begin(3, 1, 3000), PartOutcome::Refused(Status::Busy), "the budget");
    assert!(is_taken(begin(3, 1, 100)));
    assert_eq!(begin(4, 1, 100), PartOutcome::Refused(Status::Busy), "the count");
    assert_eq!(begin(1, 0, 5000), PartOutcome::Taken { missing_bytes: 4992 }, "begun can go on");
}

#[test]
fn what_is_not_continued_is_dropped() {
    let mut parts = PartsIn::new(LIMITS);
    let part = Part { offset: 0, total: 1000 };
    for (ns, sequence) in [(0, 1), (50, 2)] {
        parts.accept(at(ns), (SESSION, sequence), part, &[0; 64]);
    }
    assert_eq!(parts.expire(at(100)), 0);
    assert_eq!(parts.expire(at(101)), 1);
    parts.validate();
    parts.accept(at(120), (SESSION, 2), part, &[0; 64]);
    assert_eq!(parts.expire(at(200)), 0, "a part keeps its transfer alive");
    assert_eq!(parts.end_session(SessionId(2)), 0);
    assert_eq!(parts.end_session(SESSION), 1);
    assert_eq!(parts.held_bytes(), 0);
}

proptest! {
    /// The model: the value itself. Parts of random size at random units, until all is there.
    #[test]
    fn any_cut_of_a_value_gives_the_value(
        value in vec(any::<u8>(), 1..4000),
        cuts in vec((0_usize..64, 1_usize..9), 1..200),
    ) {
        let mut parts = PartsIn::new(LIMITS);
        let total = value.len() as u32;
        let in_order = (0..value.len().div_ceil(64)).map(|unit| (unit, 1));
        for (unit, count) in cuts.into_iter().chain(in_order) {
            let start = unit * 64;
            if start >= value.len() {
                continue;
            }
            let end = (start + count * 64).min(value.len());
            let part = Part { offset: start as u32, total };
            match parts.accept(at(0), (SESSION, 1), part, &value[start..end]) {
                PartOutcome::Taken { missing_bytes } => prop_assert!(missing_bytes > 0),
                PartOutcome::Complete(found) => {
                    prop_assert_eq!(found, value);
                    return Ok(());
                }
                PartOutcome::Refused(status) => prop_assert!(false, "{:?}", status),
            }
            parts.validate();
        }
        prop_assert!(false, "the last part completes the value");
    }
}
