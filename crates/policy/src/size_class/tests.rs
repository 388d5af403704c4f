//! Tests of the controller by the paper's own workloads, and of the invariants for any sizes.

use base::{PartitionId, WorkerId};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};

use super::histogram::{CLASS_COUNT, class_of, size_max_of, size_middle_of, size_min_of};
use super::*;

/// Counts `(size, requests)` with one worker and ends an epoch.
fn plan_of(options: SizeOptions, requests: &[(u64, u32)]) -> SizePlan {
    let worker = WorkerSizes::new(1);
    for (size_bytes, count) in requests {
        (0..*count).for_each(|_| worker.record(*size_bytes));
    }
    let mut controller = SizeController::new(options);
    let plan = controller.end_epoch(&[worker]).clone();
    plan.validate();
    plan
}

/// Minos §5.3: 100,000 requests; tiny and small ones, and `large` ones up to 500 KB.
fn minos_requests(large: u32) -> Vec<(u64, u32)> {
    let mut requests: Vec<(u64, u32)> = (0..40_000).map(|i| (1 + i % 13, 1)).collect();
    requests.extend((0..u64::from(60_000 - large)).map(|i| (14 + i % 1387, 1)));
    let step = 498_500 / u64::from(large);
    requests.extend((0..u64::from(large)).map(|i| (1500 + i * step, 1)));
    requests
}

#[track_caller]
fn check_workers(large_percent: f64, want_small: usize) {
    let large = (large_percent * 1000.0) as u32;
    let plan = plan_of(SizeOptions::paper(8), &minos_requests(large));
    assert_eq!(plan.small_workers, want_small, "{large_percent} % large");
    assert!((1300..1500).contains(&plan.threshold_bytes), "{}", plan.threshold_bytes);
}

#[test]
fn the_default_workload_gives_one_large_worker_of_eight() {
    // Minos §6.1: "For this particular workload, it allocates only one core to the large requests."
    check_workers(0.125, 7);
}

#[test]
fn more_large_requests_take_more_workers() {
    check_workers(0.0625, 8);
    check_workers(0.25, 6);
    check_workers(0.5, 5);
    check_workers(0.75, 4);
}

#[test]
fn large_workers_own_contiguous_sizes_of_equal_packets() {
    let requests = minos_requests(750);
    let plan = plan_of(SizeOptions::paper(8), &requests);
    let mut packets = [0_u64; 8];
    for (size_bytes, _) in requests.iter().filter(|(size, _)| *size > plan.threshold_bytes) {
        let worker = plan.core_for(*size_bytes, PartitionId(0)).unwrap();
        packets[worker.index()] += Cost::default().of(*size_bytes);
    }
    assert_eq!(packets[..4], [0; 4], "large requests stay away from small workers");
    let (least, most) = (packets[4..].iter().min().unwrap(), packets[4..].iter().max().unwrap());
    assert!(*most < *least * 11 / 10, "{packets:?}");
    let ends: Vec<u64> = plan.large.iter().map(|range| range.size_max_bytes).collect();
    assert!(ends.is_sorted() && ends.len() == 4, "{ends:?}");
}

#[test]
fn with_all_small_the_last_worker_stands_by() {
    let plan = plan_of(SizeOptions::paper(4), &[(100, 100_000), (3000, 10)]);
    assert_eq!((plan.small_workers, plan.standby), (4, Some(WorkerId(3))));
    assert_eq!(plan.core_for(100, PartitionId(7)), None);
    assert_eq!(plan.core_for(3000, PartitionId(7)), Some(WorkerId(3)));
    assert!(plan.is_small(WorkerId(3)), "it serves small requests meanwhile");
    assert!(plan.reads_network(WorkerId(3), false));
    assert!(!plan.reads_network(WorkerId(3), true), "\"which then becomes a large core\"");
    assert!(plan.reads_network(WorkerId(2), true), "no other does");
}

#[test]
fn one_worker_alone_is_small_and_stands_by() {
    let plan = plan_of(SizeOptions::paper(1), &minos_requests(750));
    assert_eq!((plan.small_workers, plan.standby), (1, Some(WorkerId(0))));
}

#[test]
fn a_share_that_fills_its_workers_exactly_takes_no_further_one() {
    // 7000 bytes of small requests and 1000 of large ones: 7 of 8 workers.
    let options = SizeOptions { cost: Cost::Bytes, ..SizeOptions::paper(8) };
    let plan = plan_of(options, &[(1, 7000), (50, 20)]);
    assert_eq!((plan.small_workers, plan.large.len()), (7, 1));
}

/// A plan in which one large size has a little more than half of the cost.
fn half_and_half() -> SizePlan {
    let options = SizeOptions { cost: Cost::Bytes, ..SizeOptions::paper(8) };
    plan_of(options, &[(1, 19_000), (500, 40)])
}

#[test]
fn a_size_too_costly_for_one_worker_is_shared_by_key() {
    let plan = half_and_half();
    assert_eq!(plan.large.len(), 1);
    assert_eq!(plan.large[0].workers, 4);
    let workers: Vec<_> =
        (0..4).map(|key| plan.core_for(500, PartitionId(key)).unwrap().0).collect();
    assert_eq!(workers, [4, 5, 6, 7]);
}

#[test]
fn small_workers_drain_large_workers_queues_at_their_own_rate() {
    // Minos §3: B from its own queue, B over the number of small cores from a large core's.
    let plan = half_and_half();
    assert_eq!((plan.small_workers, plan.large_queue_batch(32)), (4, 8));
    let readers = (0..8).filter(|worker| plan.reads_network(WorkerId(*worker), false));
    assert!(readers.eq(0..4), "large workers never read");
}

#[test]
fn the_cost_function_moves_workers() {
    let requests = [(64, 10_000), (14_720, 90)];
    let with = |cost| plan_of(SizeOptions { cost, ..SizeOptions::paper(10) }, &requests);
    assert_eq!(with(Cost::default()).small_workers, 10); // 10,000 of 10,900 packets.
    assert_eq!(with(Cost::Bytes).small_workers, 4); // 640 of 1965 kB.
    let constant = Cost::ConstantAndBytes { constant_bytes: 192 };
    assert_eq!(with(constant).small_workers, 7); // 2560 of 3900 kB.
}

#[test]
fn packets_are_counted_as_they_travel() {
    for (size_bytes, want) in [(0, 1), (1, 1), (1472, 1), (1473, 2), (500_000, 340)] {
        assert_eq!(Cost::default().of(size_bytes), want);
    }
}

#[test]
fn the_new_epoch_weighs_nine_tenths() {
    // Sizes jump from 100 to 1000 bytes: 9 of 10 parts are new, so the 99th percentile moves at
    // once, while a lower one of 0.05 stays with the old tenth for an epoch.
    for (quantile, want) in [(0.99, 1000), (0.05, 100)] {
        let threshold = Threshold::Quantile(quantile);
        let mut controller =
            SizeController::new(SizeOptions { threshold, ..SizeOptions::paper(4) });
        let workers = [WorkerSizes::new(1)];
        (0..1000).for_each(|_| workers[0].record(100));
        controller.end_epoch(&workers);
        (0..1000).for_each(|_| workers[0].record(1000));
        let found = controller.end_epoch(&workers).threshold_bytes;
        assert_eq!(class_of(found), class_of(want), "{quantile}");
        (0..1000).for_each(|_| workers[0].record(1000));
        let found = controller.end_epoch(&workers).threshold_bytes;
        assert_eq!(class_of(found), class_of(1000), "one epoch later the old part is 1 %");
    }
}

#[test]
fn workers_counts_add_up() {
    let apart: Vec<WorkerSizes> = (0..3).map(|_| WorkerSizes::new(1)).collect();
    for (index, (size_bytes, _)) in minos_requests(500).into_iter().enumerate() {
        apart[index % 3].record(size_bytes);
    }
    let mut controller = SizeController::new(SizeOptions::paper(8));
    let want = plan_of(SizeOptions::paper(8), &minos_requests(500));
    assert_eq!(*controller.end_epoch(&apart), want);
}

#[test]
fn an_epoch_without_requests_changes_nothing() {
    let workers = [WorkerSizes::new(1)];
    let mut controller = SizeController::new(SizeOptions::paper(8));
    assert_eq!(*controller.end_epoch(&workers), SizePlan::all_small(8, u64::MAX));
    minos_requests(750).iter().for_each(|(size_bytes, _)| workers[0].record(*size_bytes));
    let busy = controller.end_epoch(&workers).clone();
    assert_eq!((busy.small_workers, controller.end_epoch(&workers)), (4, &busy));
}

#[test]
fn a_static_threshold_stays() {
    let threshold = Threshold::Static { bytes: 1450 };
    let options = SizeOptions { threshold, ..SizeOptions::paper(8) };
    assert_eq!(SizeController::new(options).plan().threshold_bytes, 1450);
    let plan = plan_of(options, &minos_requests(250));
    assert_eq!((plan.threshold_bytes, plan.small_workers), (1450, 6));
}

#[test]
fn a_sample_gives_the_same_plan() {
    let sampled = WorkerSizes::new(7);
    minos_requests(500).iter().for_each(|(size_bytes, _)| sampled.record(*size_bytes));
    let mut controller = SizeController::new(SizeOptions::paper(8));
    let want = plan_of(SizeOptions::paper(8), &minos_requests(500));
    let plan = controller.end_epoch(&[sampled]);
    assert_eq!(plan.small_workers, want.small_workers);
    assert!(class_of(plan.threshold_bytes).abs_diff(class_of(want.threshold_bytes)) <= 1);
}

#[test]
fn a_worker_without_samples_changes_nothing() {
    let silent = [WorkerSizes::new(0)];
    (0..100).for_each(|_| silent[0].record(9));
    let mut controller = SizeController::new(SizeOptions::paper(8));
    assert_eq!(*controller.end_epoch(&silent), SizePlan::all_small(8, u64::MAX));
}

#[test]
fn an_extra_large_worker_is_taken_from_the_small_ones() {
    let options = SizeOptions { extra_large_workers: 1, ..SizeOptions::paper(8) };
    assert_eq!(plan_of(options, &minos_requests(125)).small_workers, 6);
    assert_eq!(plan_of(options, &[(64, 1000)]).small_workers, 8, "nothing is large");
}

#[test]
fn classes_follow_each_other_without_a_gap() {
    assert_eq!((size_min_of(0), size_max_of(63), size_min_of(64)), (0, 63, 64));
    for class in 0..CLASS_COUNT {
        assert_eq!(class_of(size_min_of(class)), class);
        assert_eq!(class_of(size_max_of(class)), class);
        assert_eq!(class_of(size_middle_of(class)), class);
    }
    assert_eq!((class_of(u64::MAX), class_of(1 << 32)), (CLASS_COUNT - 1, CLASS_COUNT - 1));
}

fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![0..2000_u64, 0..1_000_000_u64, any::<u64>(), Just(u64::MAX), Just(0)]
}

fn any_options() -> impl Strategy<Value = SizeOptions> {
    let threshold = prop_oneof![
        (0.0..=1.0).prop_map(Threshold::Quantile),
        any_size().prop_map(|bytes| Threshold::Static { bytes }),
    ];
    let cost = prop_oneof![
        Just(Cost::default()),
        Just(Cost::Bytes),
        Just(Cost::ConstantAndBytes { constant_bytes: 500 }),
    ];
    (1..=64_usize, threshold, cost, 0.1..=1.0, 0..3_usize).prop_map(
        |(worker_count, threshold, cost, new_weight, extra_large_workers)| SizeOptions {
            worker_count,
            threshold,
            threshold_min_bytes: 0,
            cost,
            new_weight,
            extra_large_workers,
        },
    )
}

proptest! {
    /// I1 to I3 for any requests, over several epochs.
    #[test]
    fn each_size_belongs_to_exactly_one_core_class(
        options in any_options(),
        epochs in prop::collection::vec(prop::collection::vec(any_size(), 0..60), 1..4),
        asked in prop::collection::vec((any_size(), any::<u32>()), 1..40),
    ) {
        let workers = [WorkerSizes::new(1), WorkerSizes::new(2)];
        let mut controller = SizeController::new(options);
        for sizes in &epochs {
            for (index, size_bytes) in sizes.iter().enumerate() {
                workers[index % 2].record(*size_bytes);
            }
            let plan = controller.end_epoch(&workers);
            plan.validate();
            for (size_bytes, partition) in &asked {
                check_one_class(plan, *size_bytes, PartitionId(*partition));
            }
        }
    }
}

#[track_caller]
fn check_one_class(plan: &SizePlan, size_bytes: u64, partition: PartitionId) {
    let is_small = size_bytes <= plan.threshold_bytes;
    let mut low = plan.threshold_bytes;
    let mut owners = Vec::new();
    for range in &plan.large {
        if size_bytes > low && size_bytes <= range.size_max_bytes {
            owners.push(*range);
        }
        low = range.size_max_bytes;
    }
    match plan.core_for(size_bytes, partition) {
        None => assert!(is_small && owners.is_empty()),
        Some(worker) => {
            assert!(!is_small);
            match plan.standby {
                Some(standby) => assert_eq!(worker, standby),
                None => {
                    assert_eq!(owners.len(), 1);
                    let first = owners[0].first.index();
                    assert!((first..first + owners[0].workers).contains(&worker.index()));
                    assert!(!plan.is_small(worker));
                }
            }
        }
    }
}
