//! At most once: by cases, and against a model over random streams of copies.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn outcome(version: u64) -> Remembered {
    Remembered { status: Status::Ok, version: Some(version), number: None }
}

#[test]
fn the_first_copy_is_executed_and_later_ones_get_its_answer() {
    let mut once = Once::new(1024);
    assert_eq!(once.admit(0), Admission::Execute);
    assert_eq!(once.admit(0), Admission::UnderWay);
    once.record(0, outcome(7));
    assert_eq!(once.admit(0), Admission::Again(outcome(7)));
    assert_eq!(once.look(1), Admission::Execute);
    assert_eq!(once.admit(1), Admission::Execute, "looking admits nothing");
}

/// A client writes 1, copies of that are delayed; it writes 2 and gets its reply.
#[test]
fn a_late_copy_cannot_undo_a_newer_write() {
    let mut once = Once::new(1024);
    assert_eq!(once.admit(5), Admission::Execute);
    once.record(5, outcome(1));
    once.raise_low_water(6);
    assert_eq!(once.admit(6), Admission::Execute);
    assert_eq!(once.admit(5), Admission::BelowLowWater);
    // The frame with the low-water mark may have been lost: then the outcome is still remembered.
    let mut once = Once::new(1024);
    assert_eq!(once.admit(5), Admission::Execute);
    once.record(5, outcome(1));
    assert_eq!(once.admit(6), Admission::Execute);
    assert_eq!(once.admit(5), Admission::Again(outcome(1)));
}

#[test]
fn a_write_that_was_given_up_is_never_executed() {
    let mut once = Once::new(4);
    once.raise_low_water(1);
    assert_eq!(once.admit(0), Admission::BelowLowWater);
    once.record(0, outcome(1));
    once.forget(0);
    assert_eq!(once.admit(0), Admission::BelowLowWater);
}

#[test]
fn a_low_water_mark_never_sinks() {
    let mut once = Once::new(4);
    once.raise_low_water(10);
    once.raise_low_water(3);
    assert_eq!(once.low_water(), 10);
    assert_eq!(once.admit(9), Admission::BelowLowWater);
}

#[test]
fn a_number_beyond_the_window_waits() {
    let mut once = Once::new(100);
    assert_eq!(once.admit(100), Admission::OutsideWindow);
    assert_eq!(once.admit(99), Admission::Execute);
    once.raise_low_water(1);
    assert_eq!(once.admit(100), Admission::Execute);
    assert_eq!(once.admit(u32::MAX), Admission::OutsideWindow);
    once.validate();
}

#[test]
fn the_highest_low_water_takes_no_memory_and_ends_the_session() {
    let mut once = Once::new(1024);
    assert_eq!(once.held_bytes(), 0, "a session that never writes has no slots");
    assert_eq!(once.admit(3), Admission::Execute);
    once.raise_low_water(u32::MAX);
    assert_eq!(once.admit(u32::MAX - 1), Admission::BelowLowWater);
    assert_eq!(once.admit(u32::MAX), Admission::Execute);
    once.record(u32::MAX, outcome(1));
    assert_eq!(once.admit(u32::MAX), Admission::Again(outcome(1)));
    assert_eq!(once.held_bytes(), 1024);
    once.validate();
}

#[test]
fn what_was_not_executed_may_come_again() {
    let mut once = Once::new(8);
    assert_eq!(once.admit(2), Admission::Execute);
    once.forget(2);
    assert_eq!(once.admit(2), Admission::Execute);
    once.record(2, outcome(5));
    once.forget(2);
    assert_eq!(once.admit(2), Admission::Again(outcome(5)), "what was executed stays");
}

#[test]
fn memory_grows_with_what_is_outstanding_up_to_the_window() {
    let mut once = Once::new(1024);
    assert_eq!(once.admit(0), Admission::Execute);
    assert_eq!(once.held_bytes(), 64 * 16);
    once.record(0, outcome(11));
    assert_eq!(once.admit(1023), Admission::Execute);
    assert_eq!(once.held_bytes(), 1024 * 16);
    assert_eq!(once.admit(0), Admission::Again(outcome(11)), "growth moves what is remembered");
    assert_eq!(once.admit(1023), Admission::UnderWay);
    once.validate();
}

#[track_caller]
fn check_kept(outcome: Remembered) {
    let mut once = Once::new(8);
    assert_eq!(once.admit(0), Admission::Execute);
    once.record(0, outcome);
    assert_eq!(once.admit(0), Admission::Again(outcome));
    assert_eq!(Remembered::of(&outcome.reply(0)), outcome);
    assert_eq!(outcome.reply(3).id, RequestId::Once(3));
}

#[test]
fn an_outcome_is_kept_exactly() {
    for byte in 0..=u8::MAX {
        let Some(status) = Status::from_byte(byte) else { continue };
        check_kept(Remembered { status, version: None, number: None });
        check_kept(Remembered { status, version: Some((1 << 48) - 1), number: Some(i64::MIN) });
        check_kept(Remembered { status, version: None, number: Some(0) });
        check_kept(Remembered { status, version: Some(1), number: None });
    }
}

#[derive(Clone, Debug)]
enum Event {
    Copy(u32),
    Finish(u32),
    LowWater(u32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_u32..300).prop_map(Event::Copy),
        3 => (0_u32..300).prop_map(Event::Finish),
        1 => (0_u32..300).prop_map(Event::LowWater),
    ];
    vec(event, 0..400)
}

proptest! {
    /// The model: a map that forgets nothing, and the highest low-water mark.
    #[test]
    fn nothing_is_executed_twice(events in events(), window in 1_u32..200) {
        let mut once = Once::new(window);
        let mut executed: HashMap<u32, Option<Remembered>> = HashMap::new();
        let mut low_water = 0;
        for event in events {
            match event {
                Event::Copy(sequence) => {
                    let want = if sequence < low_water {
                        Admission::BelowLowWater
                    } else if sequence - low_water >= window {
                        Admission::OutsideWindow
                    } else {
                        match executed.get(&sequence) {
                            None => Admission::Execute,
                            Some(None) => Admission::UnderWay,
                            Some(Some(outcome)) => Admission::Again(*outcome),
                        }
                    };
                    prop_assert_eq!(once.admit(sequence), want);
                    if want == Admission::Execute {
                        executed.insert(sequence, None);
                    }
                }
                Event::Finish(sequence) => {
                    let new = outcome(u64::from(sequence) + 1);
                    once.record(sequence, new);
                    if let Some(slot @ None) = executed.get_mut(&sequence) {
                        *slot = Some(new);
                    }
                }
                Event::LowWater(new) => {
                    once.raise_low_water(new);
                    low_water = low_water.max(new);
                }
            }
            once.validate();
        }
    }
}
