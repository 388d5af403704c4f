//! Tests of routers by the papers' own examples; the submodules test properties of all routers.

mod choice;
mod events;

use super::*;
use crate::route::{Access, PinCounts};
use crate::size_class::{LargeRange, SizePlan};
use crate::write_table::WriteTable;
use base::sync::Arc;

fn request(access: Access, partition: u32) -> RouteRequest {
    let partition = PartitionId(partition);
    RouteRequest { partition, access, size_bytes: None, received_by: WorkerId(0) }
}

fn read(partition: u32) -> RouteRequest {
    request(Access::Read, partition)
}

fn write(partition: u32) -> RouteRequest {
    request(Access::Write, partition)
}

fn received_by(worker: u16, request: RouteRequest) -> RouteRequest {
    RouteRequest { received_by: WorkerId(worker), ..request }
}

fn of_size(size_bytes: u64, request: RouteRequest) -> RouteRequest {
    RouteRequest { size_bytes: Some(size_bytes), ..request }
}

const FULL: Route = Route::Busy(Busy::QueuesFull);

fn to(worker: u16) -> Route {
    Route::To(WorkerId(worker))
}

/// Routes all requests, one after another, and finishes none.
#[track_caller]
fn check<R: Router>(router: &R, worker_count: usize, steps: &[(RouteRequest, Route)]) -> Depths {
    let mut depths = Depths::new(worker_count);
    for (step, (request, want)) in steps.iter().enumerate() {
        let route = router.route(request, &depths);
        assert_eq!(route, *want, "step {step}: {request:?}");
        if let Route::To(worker) = route {
            depths.add(worker);
        }
    }
    depths
}

/// MICA Fig. 2, left.
#[test]
fn under_erew_the_owner_reads_and_writes() {
    check(&Erew, 4, &[(read(6), to(2)), (write(6), to(2)), (read(6), to(2)), (read(9), to(1))]);
}

/// MICA Fig. 2, right.
#[test]
fn under_crew_anyone_reads_and_the_owner_writes() {
    let crew = Crew::over(AnyWorker);
    check(&crew, 4, &[(received_by(3, read(6)), to(3)), (received_by(3, write(6)), to(2))]);
}

/// C-4 §3: reads join the shortest queue, writes pass the bound.
#[test]
fn under_crew_writes_ignore_the_bound_and_reads_wait_for_it() {
    let steps = [
        (write(0), to(0)),
        (write(0), to(0)),
        (write(0), to(0)),
        (read(0), to(1)),
        (read(0), to(1)),
        (read(1), FULL),
        (write(1), to(1)),
    ];
    check(&Crew::new(2), 2, &steps);
}

#[test]
fn a_bounded_balance_fills_worker_after_worker_and_stops() {
    let steps = [(read(9), to(0)), (write(9), to(1)), (read(9), to(0)), (write(9), to(1))];
    let full = [(read(9), FULL), (write(9), FULL)];
    check(&Jbsq::new(2), 2, &[&steps[..], &full[..]].concat());
    check(&ShortestQueue, 2, &[&steps[..], &[(read(9), to(0))]].concat());
}

/// C-4 Fig. 5: W1 and W2 target P1 and PN, which CREW gives to one thread. d-CREW gives them to T1
/// and T2, keeps them there while they are outstanding, and frees both by their replies.
#[test]
fn independent_writes_are_balanced_and_stick_while_outstanding() {
    let (p1, pn) = (2, 66);
    check(&Crew::new(2), 64, &[(write(p1), to(2)), (write(pn), to(2))]);

    let dcrew = DCrew::new(2, WriteTable::new(128));
    let mut depths =
        check(&dcrew, 64, &[(write(p1), to(0)), (write(pn), to(1)), (write(p1), to(0))]);
    assert_eq!(dcrew.table().len(), 2);
    for (worker, partition) in [(0, p1), (1, pn), (0, p1)] {
        depths.remove(WorkerId(worker));
        dcrew.finish(&write(partition), WorkerId(worker));
    }
    assert!(dcrew.table().is_empty());
    depths.add(WorkerId(0));
    assert_eq!(dcrew.route(&write(p1), &depths), to(1), "anyone may write it now");
}

/// C-4 Fig. 8: W2 hits the entry that W1 made, whatever the queues look like.
#[test]
fn dependent_writes_follow_the_first_past_the_bound() {
    let dcrew = DCrew::new(2, WriteTable::new(128));
    let steps = [
        (write(7), to(0)),
        (write(7), to(0)),
        (write(7), to(0)),
        (read(7), to(1)),
        (write(8), to(1)),
        (read(7), FULL),
        (write(9), FULL),
        (write(7), to(0)),
    ];
    check(&dcrew, 2, &steps);
    assert_eq!(dcrew.table().len(), 2, "a write that waits holds nothing");
}

/// A writer with a long queue gets no more; what goes elsewhere counts in the entry, and the writes
/// of a connection stay in order.
#[test]
fn writes_are_balanced_past_a_writer_with_a_long_queue() {
    let dcrew = DCrew::over(AnyWorker, WriteTable::new(128)).bounded(3);
    let by = |worker: u16| received_by(worker, write(7));
    let mut depths = Depths::new(3);
    let mut sent = Vec::new();
    for (receiver, want) in [(0, 0), (1, 0), (2, 0), (1, 0), (1, 1), (2, 2), (0, 0)] {
        let route = dcrew.route(&by(receiver), &depths);
        assert_eq!(route, to(want));
        depths.add(WorkerId(want));
        sent.push(want);
    }
    assert_eq!(dcrew.follow(&by(1), WorkerId(1), &depths), to(1), "the writer's queue is long");
    depths.add(WorkerId(1));
    sent.push(1);
    for worker in sent.drain(..7) {
        depths.remove(WorkerId(worker));
        dcrew.finish(&by(worker), WorkerId(worker));
    }
    assert_eq!(dcrew.table().len(), 1, "one write is outstanding");
    let elsewhere = dcrew.follow(&by(2), WorkerId(2), &depths);
    assert_eq!(elsewhere, Route::Busy(Busy::HeldElsewhere), "it is short again");
    dcrew.finish(&by(1), WorkerId(1));
    assert!(dcrew.table().is_empty());
}

#[test]
fn a_full_write_table_makes_new_partitions_wait() {
    let dcrew = DCrew::new(100, WriteTable::new(8));
    let held: Vec<_> = (0..8).map(|id| (write(id), to((id % 2) as u16))).collect();
    let full = (write(8), Route::Busy(Busy::WriteTableFull));
    check(&dcrew, 2, &[&held[..], &[full, (read(8), to(0)), (write(3), to(1))]].concat());
}

/// C-4 §4.2 estimates 90 writes outstanding at 200 MRPS, 75 % writes and 600 ns each, and §5.2
/// provides 128 entries for 64 threads; here every worker of 64 is full of distinct writes.
#[test]
fn a_table_of_eight_entries_a_worker_takes_two_writes_of_each() {
    let dcrew = DCrew::new(2, WriteTable::new(8 * 64));
    let scattered = |id: u32| write(id.wrapping_mul(0x9e37_79b1) >> 5);
    let steps: Vec<_> = (0..128).map(|id| (scattered(id), to((id % 64) as u16))).collect();
    check(&dcrew, 64, &steps);
    assert_eq!(dcrew.table().len(), 128);
}

#[test]
fn round_robin_takes_every_worker_in_turn() {
    let steps = [2, 0, 1, 2].map(|worker| (write(5), to(worker)));
    check(&RoundRobin::new(WorkerId(2)), 3, &steps);
}

/// Minos §5.2: one request at a time, and none at the workers that hand over.
#[test]
fn hand_off_binds_a_request_to_an_idle_worker() {
    let hand_off = HandOff::new(1);
    let mut depths = check(&hand_off, 3, &[(read(1), to(1)), (write(1), to(2)), (read(1), FULL)]);
    depths.remove(WorkerId(2));
    assert_eq!(hand_off.route(&read(1), &depths), to(2));
    assert_eq!(hand_off.receivers(), 0..1);
}

/// Minos §5.2, HKH+WS: own requests first, then one of another's software queue, and only when all
/// of those are empty a batch of another's receive queue.
#[test]
fn a_thief_takes_one_begun_batch_before_it_reads_another_queue() {
    let steal = Steal::new(32);
    let mut software = Depths::new(4);
    let mut receive = Depths::new(4);
    let take = |worker: u16, software: &Depths, receive: &Depths| {
        let take = steal.next(WorkerId(worker), software, receive)?;
        Some((take.from.0, take.queue, take.count_max))
    };
    assert_eq!(take(2, &software, &receive), None);
    receive.add(WorkerId(1));
    assert_eq!(take(2, &software, &receive), Some((1, Queue::Receive, 32)));
    software.add(WorkerId(0));
    assert_eq!(take(2, &software, &receive), Some((0, Queue::Software, 1)));
    software.add(WorkerId(3));
    assert_eq!(take(2, &software, &receive), Some((3, Queue::Software, 1)));
    receive.add(WorkerId(2));
    assert_eq!(take(2, &software, &receive), Some((2, Queue::Receive, 32)));
    software.add(WorkerId(2));
    assert_eq!(take(2, &software, &receive), Some((2, Queue::Software, 1)));
}

/// A thief that checks the queues one by one finds the same worker as one that knows the lengths of
/// all queues.
#[test]
fn victims_stand_in_a_ring() {
    let victims = |thief| Steal::victims(WorkerId(thief), 4).map(|worker| worker.0);
    assert_eq!(victims(2).collect::<Vec<_>>(), [3, 0, 1]);
    assert_eq!(Steal::victims(WorkerId(0), 1).next(), None);
    let none = Depths::new(4);
    for busy in 0..16_u16 {
        let mut software = Depths::new(4);
        (0..4).filter(|worker| busy & 1 << worker != 0).for_each(|w| software.add(WorkerId(w)));
        for thief in (0..4).filter(|thief| busy & 1 << thief == 0) {
            let found =
                Steal::new(1).next(WorkerId(thief), &software, &none).map(|take| take.from.0);
            assert_eq!(victims(thief).find(|victim| busy & 1 << victim != 0), found);
        }
    }
}

/// Eight workers: six small ones, one for up to 100 KB and one for the rest.
fn two_large() -> Arc<SizePlan> {
    let range =
        |size_max_bytes, worker| LargeRange { size_max_bytes, first: WorkerId(worker), workers: 1 };
    let plan = SizePlan {
        threshold_bytes: 1400,
        worker_count: 8,
        small_workers: 6,
        large: vec![range(100_000, 6), range(u64::MAX, 7)],
        standby: None,
    };
    plan.validate();
    Arc::new(plan)
}

/// Checks: worker, size if it is known, destination; the receiver's depth is `held`.
#[track_caller]
fn check_local(received: u16, size_bytes: Option<u64>, held: u32, want: Option<u16>) {
    let router = SizeAwareJbsq::new(64, two_large()).staying();
    let mut depths = Depths::new(8);
    (0..held).for_each(|_| depths.add(WorkerId(received)));
    for request in [read(3), write(3)] {
        let request = RouteRequest { size_bytes, ..received_by(received, request) };
        let want = want.map_or(Route::Busy(Busy::QueuesFull), to);
        assert_eq!(router.route(&request, &depths), want, "{request:?}");
    }
}

#[test]
fn small_requests_stay_with_a_receiver_that_executes_until_its_bound() {
    check_local(4, None, 0, Some(4));
    check_local(4, Some(1400), 63, Some(4));
    check_local(4, Some(1400), 64, Some(0));
    check_local(0, None, 64, Some(1));
    // Large ones go to the worker of their range, whether it received them or not.
    check_local(4, Some(1401), 0, Some(6));
    check_local(7, Some(200_000), 64, Some(7));
    // A large worker keeps no small request.
    check_local(7, Some(10), 0, Some(0));
    let router = SizeAwareJbsq::new(1, two_large()).staying();
    let mut depths = Depths::new(8);
    (0..6).for_each(|worker| depths.add(WorkerId(worker)));
    let route = router.route(&received_by(2, read(3)), &depths);
    assert_eq!(route, Route::Busy(Busy::QueuesFull), "no large worker takes small requests");
}

#[test]
fn a_router_that_need_not_be_asked_about_reads_leaves_them_with_the_receiver() {
    let asks = |router: &dyn Router| [4, 7].map(|worker| !router.keeps_reads(WorkerId(worker)));
    assert_eq!(asks(&AnyWorker), [false, false]);
    assert_eq!(asks(&SizeAware::new(two_large())), [false, true]);
    assert_eq!(asks(&DCrew::over(AnyWorker, WriteTable::new(64))), [false, false]);
    let local = DCrew::over(SizeAwareJbsq::new(64, two_large()).staying(), WriteTable::new(64));
    assert_eq!(asks(&local), [false, true]);
    let others: [&dyn Router; 5] =
        [&Jbsq::new(9), &Crew::new(9), &KeyHash, &Erew, &Crew::over(Steal::new(9))];
    for bound in others {
        assert_eq!(asks(bound), [true, true]);
    }
}

/// Minos §3: a GET stays until its size is known, a PUT carries its size.
#[test]
fn large_requests_go_to_the_worker_of_their_range() {
    let router = SizeAware::new(two_large());
    let steps = [
        (received_by(3, read(5)), to(3)),
        (received_by(3, of_size(1400, read(5))), to(3)),
        (received_by(3, of_size(1401, read(5))), to(6)),
        (received_by(3, of_size(100_001, read(5))), to(7)),
        (of_size(500_000, write(5)), to(7)),
        (of_size(13, write(5)), to(5)),
    ];
    check(&router, 8, &steps);
}

/// Minos §4.2: PUTs whose master is a large core are served by any small one.
#[test]
fn large_workers_serve_nothing_small() {
    let router = SizeAware::new(two_large());
    let steps = [
        (received_by(3, write(7)), to(3)),
        (received_by(6, write(7)), to(1)),
        (received_by(7, read(8)), to(2)),
    ];
    check(&router, 8, &steps);
}

/// Minos §3: with all workers small, one stands by for a large request.
#[test]
fn on_standby_the_last_worker_serves_both() {
    let router = SizeAware::new(Arc::new(SizePlan::all_small(4, 1400)));
    let steps = [(write(3), to(3)), (of_size(9000, write(1)), to(3)), (write(1), to(1))];
    check(&router, 4, &steps);
}

/// The joint: small writes are balanced among small workers, large ones go to theirs, and a
/// partition keeps its writer whatever the size of the next write.
#[test]
fn size_aware_dcrew_has_one_writer_per_partition_and_no_small_request_at_a_large_worker() {
    let router = DCrew::over(SizeAwareJbsq::new(1, two_large()), WriteTable::new(128));
    let steps = [
        (of_size(100, write(1)), to(0)),
        (of_size(100, write(2)), to(1)),
        (of_size(50_000, write(3)), to(6)),
        (of_size(50_000, write(4)), to(6)),
        (of_size(50_000, write(1)), to(0)),
        (of_size(100, write(3)), to(6)),
        (read(3), to(2)),
        (read(3), to(3)),
        (read(3), to(4)),
        (read(3), to(5)),
        (read(3), FULL),
        (of_size(90_000, read(3)), to(6)),
    ];
    check(&router, 8, &steps);
}

/// `SET a 1; GET a` in one pipeline: the GET follows. A write follows only if it may (K6, K10).
#[test]
fn a_request_follows_its_connections_earlier_one_on_the_same_key() {
    let depths = Depths::new(4);
    let elsewhere = Route::Busy(Busy::HeldElsewhere);
    let (mine, other) = (WorkerId(3), WorkerId(1));

    assert_eq!(AnyWorker.follow(&write(6), mine, &depths), to(3));
    let crew = Crew::new(2);
    assert_eq!(crew.follow(&read(6), mine, &depths), to(3));
    assert_eq!(crew.follow(&write(6), mine, &depths), elsewhere);
    assert_eq!(crew.follow(&write(7), mine, &depths), to(3));

    let dcrew = DCrew::new(2, WriteTable::new(8));
    assert_eq!(dcrew.follow(&read(6), mine, &depths), to(3));
    assert_eq!(dcrew.follow(&write(6), mine, &depths), to(3));
    assert_eq!(dcrew.follow(&write(6), mine, &depths), to(3));
    assert_eq!(dcrew.follow(&write(6), other, &depths), elsewhere);
    dcrew.finish(&write(6), mine);
    dcrew.finish(&write(6), mine);
    assert!(dcrew.table().is_empty(), "a refusal holds nothing");
}

#[test]
fn a_dcrew_router_counts_its_pins_and_what_the_table_sent_elsewhere() {
    let router = DCrew::over(RoundRobin::new(WorkerId(0)), WriteTable::new(64));
    let counts = |pins, diverted, opened| Some(PinCounts { pins, diverted, opened });
    // Partition 5's second write would be worker 1's turn, its third one too: being sent elsewhere
    // costs no worker a turn. Partition 6 then goes there, and 5's fourth is worker 0's anyway.
    let steps = [
        (write(5), to(0)),
        (write(5), to(0)),
        (write(5), to(0)),
        (read(7), to(1)),
        (write(5), to(0)),
        (write(6), to(0)),
    ];
    let depths = check(&router, 2, &steps);
    assert_eq!(router.pin_counts(), counts(5, 2, 2));
    let waits = router.follow(&write(5), WorkerId(1), &depths);
    assert_eq!(waits, Route::Busy(Busy::HeldElsewhere));
    assert_eq!(router.follow(&write(5), WorkerId(0), &depths), to(0));
    assert_eq!(router.pin_counts(), counts(6, 2, 2));
    for partition in [5, 5, 5, 5, 5, 6] {
        router.finish(&write(partition), WorkerId(0));
    }
    assert_eq!(router.pin_counts(), counts(6, 2, 0));
    assert_eq!(Router::pin_counts(&Erew), None);
}
