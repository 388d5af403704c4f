//! The table of segments by itself.

use super::*;

fn take_used(allocator: &mut Allocator, run_len: u32) -> u32 {
    let segment = allocator.take(run_len, Purpose::Write).expect("the test leaves room");
    allocator.close(segment, 100 * u64::from(run_len));
    segment
}

fn free_now(allocator: &mut Allocator, victim: Victim) {
    allocator.retire(victim.segment, 1);
    assert!(!allocator.free_waiting(|_| true, |_| false));
    allocator.validate();
}

#[test]
fn segments_are_taken_from_the_bottom_and_reused_there() {
    let mut allocator = Allocator::new(8);
    assert_eq!([0, 1, 2].map(|_| take_used(&mut allocator, 1)), [0, 1, 2]);
    let oldest = allocator.claim_oldest().unwrap();
    assert_eq!(oldest.segment, 0);
    free_now(&mut allocator, oldest);
    assert_eq!(take_used(&mut allocator, 1), 0);
    assert_eq!(allocator.claim_oldest().unwrap().segment, 1, "age, not position, is what counts");
    assert_eq!(allocator.high_water(), 3);
}

#[test]
fn writes_leave_the_reserve_to_those_who_make_room() {
    let mut allocator = Allocator::new(8);
    allocator.set_reserve(2);
    for _ in 0..6 {
        take_used(&mut allocator, 1);
    }
    assert_eq!(allocator.take(1, Purpose::Write), None);
    assert!(allocator.take(1, Purpose::Reserve).is_some());
}

#[test]
fn a_run_is_contiguous_and_freed_as_one() {
    let mut allocator = Allocator::new(8);
    take_used(&mut allocator, 1);
    let run = take_used(&mut allocator, 3);
    assert_eq!((run, allocator.free_count()), (1, 4));
    assert_eq!(allocator.take(5, Purpose::Write), None);
    let victim = allocator.claim_sparsest(75, 100, |segment| u64::from(segment != run)).unwrap();
    assert_eq!(victim.segment, run);
    free_now(&mut allocator, victim);
    assert_eq!(allocator.free_count(), 7);
}

#[test]
fn cleaning_takes_the_sparsest_below_the_limit_and_never_a_live_run() {
    let mut allocator = Allocator::new(8);
    for _ in 0..3 {
        take_used(&mut allocator, 1);
    }
    take_used(&mut allocator, 2);
    let live = |segment: u32| [90, 60, 80, 50][segment as usize];
    let sparsest = allocator.claim_sparsest(75, 100, live).unwrap().segment;
    assert_eq!(sparsest, 1, "the run is sparser, but live, and does not stand in the way");
    assert_eq!(allocator.claim_sparsest(75, 100, live), None);
    assert_eq!(allocator.claim_sparsest(85, 100, live).unwrap().segment, 2);
}

#[test]
fn a_window_for_a_run_is_emptied_where_that_is_cheapest() {
    let mut allocator = Allocator::new(6);
    for _ in 0..6 {
        take_used(&mut allocator, 1);
    }
    let cost = |segment: u32, _| Some([9, 9, 1, 1, 9, 9][segment as usize]);
    let mut claimed = Vec::new();
    while allocator.take(2, Purpose::Write).is_none() {
        let victim = allocator.claim_in_window(2, cost).unwrap();
        claimed.push(victim.segment);
        free_now(&mut allocator, victim);
    }
    assert_eq!(claimed, [2, 3]);
}

#[test]
fn a_run_that_sticks_into_the_window_is_reclaimed_whole() {
    let mut allocator = Allocator::new(6);
    let run = take_used(&mut allocator, 4);
    take_used(&mut allocator, 1);
    let open = allocator.take(1, Purpose::Write).unwrap();
    assert_eq!(open, 5);
    let victim = allocator.claim_in_window(2, |_, sequence| Some(sequence)).unwrap();
    assert_eq!(victim.segment, run);
    free_now(&mut allocator, victim);
    assert!(allocator.take(2, Purpose::Write).is_some());
}
