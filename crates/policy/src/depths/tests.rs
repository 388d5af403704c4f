//! Tests of depths against a plain scan of the counts.

use proptest::prelude::*;

use super::*;

/// Adds to the workers named, in order.
fn depths(worker_count: usize, sent: &[u16]) -> Depths {
    let mut depths = Depths::new(worker_count);
    sent.iter().for_each(|worker| depths.add(WorkerId(*worker)));
    depths.validate();
    depths
}

#[track_caller]
fn check(sent: &[u16], want: u16) {
    assert_eq!(depths(4, sent).shortest(), WorkerId(want));
}

#[test]
fn of_workers_that_hold_the_same_the_first_is_the_shortest() {
    check(&[], 0);
    check(&[0], 1);
    check(&[0, 1, 2, 3], 0);
    check(&[0, 1, 3], 2);
    check(&[2, 1, 0, 3, 0, 1], 2);
}

#[test]
fn a_bound_leaves_no_worker_once_all_hold_it() {
    let mut depths = depths(2, &[0, 1, 0]);
    assert_eq!(depths.shortest_below(1), None);
    assert_eq!(depths.shortest_below(2), Some(WorkerId(1)));
    depths.add(WorkerId(1));
    assert!(depths.all_at_least(2) && !depths.all_at_least(3));
    assert_eq!(depths.shortest_below(2), None);
    depths.remove(WorkerId(0));
    assert_eq!(depths.shortest_below(2), Some(WorkerId(0)));
}

#[test]
fn no_worker_is_shortest_of_none() {
    assert_eq!(depths(3, &[]).shortest_of(1..1, 9), None);
    assert_eq!(depths(3, &[]).shortest_of(3..9, 9), None);
}

#[test]
fn many_answers_at_once_are_as_many_one_by_one() {
    let sent = [0, 0, 0, 0, 0, 0, 0, 1, 1]; // Worker 0 is at `DEEP` and beyond.
    for answered in 0..=7 {
        let (mut at_once, mut one_by_one) = (depths(3, &sent), depths(3, &sent));
        at_once.remove_many(WorkerId(0), answered);
        (0..answered).for_each(|_| one_by_one.remove(WorkerId(0)));
        at_once.validate();
        assert_eq!(at_once.of(WorkerId(0)), 7 - answered);
        assert_eq!(at_once.shortest(), one_by_one.shortest());
    }
}

#[test]
#[should_panic(expected = "has answered more than it was sent")]
fn an_answer_to_nothing_is_refused() {
    depths(2, &[0]).remove(WorkerId(1));
}

/// The worker of a range with the smallest depth, found by a scan.
fn shortest_by_scan(counts: &[u32], range: Range<u16>, bound: u32) -> Option<WorkerId> {
    range
        .filter(|worker| counts.get(usize::from(*worker)).is_some_and(|count| *count < bound))
        .min_by_key(|worker| counts[usize::from(*worker)])
        .map(WorkerId)
}

/// An event of one worker (both numbers modulo the count), then a query.
#[derive(Clone, Copy, Debug)]
struct Step {
    action: u8,
    worker: u16,
    range_ends: [u16; 2],
    bound: u32,
}

fn any_step() -> impl Strategy<Value = Step> {
    (0..4_u8, any::<u16>(), any::<[u16; 2]>(), 0..12_u32)
        .prop_map(|(action, worker, range_ends, bound)| Step { action, worker, range_ends, bound })
}

proptest! {
    // With few workers, most depths exceed DEEP.
    #[test]
    fn every_answer_is_that_of_a_scan(
        worker_count in prop_oneof![1..=9_u16, Just(64), Just(65), Just(240)],
        steps in prop::collection::vec(any_step(), 1..300),
    ) {
        let mut depths = Depths::new(usize::from(worker_count));
        let mut counts = vec![0_u32; usize::from(worker_count)];
        for Step { action, worker, range_ends, bound } in steps {
            let id = WorkerId(worker % worker_count);
            if action == 0 && counts[id.index()] > 0 {
                counts[id.index()] -= 1;
                depths.remove(id);
            } else {
                counts[id.index()] += 1;
                depths.add(id);
            }
            depths.validate();
            let scan = |range, bound| shortest_by_scan(&counts, range, bound);
            let all = 0..worker_count;
            let [start, end] = range_ends.map(|end| end % (worker_count + 1));
            prop_assert_eq!(depths.of(id), counts[id.index()]);
            prop_assert_eq!(Some(depths.shortest()), scan(all.clone(), u32::MAX));
            prop_assert_eq!(depths.shortest_below(bound), scan(all.clone(), bound));
            prop_assert_eq!(depths.shortest_of(start..end, bound), scan(start..end, bound));
            let ring = (id.0 + 1..worker_count).chain(0..id.0);
            let busy = ring.map(WorkerId).find(|worker| counts[worker.index()] > 0);
            prop_assert_eq!(depths.next_busy(id), busy);
            prop_assert_eq!(depths.all_at_least(bound), scan(all, bound).is_none());
        }
    }
}
