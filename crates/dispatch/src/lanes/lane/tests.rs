//! Tests of a lane, some of whose entries are executed before their turn.

use base::ring::ring;

use super::*;

#[test]
fn what_was_executed_ahead_is_skipped_and_the_tail_passes_in_order() {
    let (mut sender, receiver) = ring(64);
    let mut lane = Lane::new(WorkerId(0), 0, Arc::new(RequestSlots::default()), receiver);
    (0..6).for_each(|number| sender.push([number, 0]));
    sender.publish();
    assert_eq!(lane.waiting_count(), 6);
    assert_eq!(lane.take(), Some([0, 0]));
    // Places count from entry 1 now.
    lane.answer_ahead(1);
    lane.answer_ahead(3);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|place| lane.peek(place).is_some()),
        [true, false, true, false, true, false]
    );
    assert_eq!(lane.waiting_count(), 3);
    lane.pass_answered();
    lane.receiver.complete();
    assert_eq!(sender.reclaim(), Some([0, 0]));
    assert_eq!(sender.reclaim(), None, "the next in order is not executed");
    assert_eq!(lane.take(), Some([1, 0]));
    lane.pass_answered();
    lane.receiver.complete();
    assert_eq!([sender.reclaim(), sender.reclaim()], [Some([1, 0]), Some([2, 0])]);
    assert_eq!(sender.reclaim(), None);
    assert_eq!([lane.take(), lane.take(), lane.take()], [Some([3, 0]), Some([5, 0]), None]);
    lane.receiver.complete();
    assert_eq!(
        [sender.reclaim(), sender.reclaim(), sender.reclaim()].map(Option::unwrap),
        [[3, 0], [4, 0], [5, 0]]
    );
}

#[test]
fn the_last_place_can_be_executed_ahead_and_is_passed_at_the_end() {
    let (mut sender, receiver) = ring(64);
    let mut lane = Lane::new(WorkerId(0), 0, Arc::new(RequestSlots::default()), receiver);
    (0..40).for_each(|number| sender.push([number, 0]));
    sender.publish();
    assert_eq!(lane.waiting_count(), 40);
    let last = PLACES_AHEAD_MAX - 1;
    lane.answer_ahead(last);
    let taken: Vec<u64> = std::iter::from_fn(|| lane.take()).map(|[number, _]| number).collect();
    let want: Vec<u64> = (0..40).filter(|number| *number != last as u64).collect();
    assert_eq!(taken, want);
}
