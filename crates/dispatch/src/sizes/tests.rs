//! Tests of epochs, plans and their readers.

use super::*;

/// The plans and the counts of four workers.
struct Counted {
    sizes: Sizes,
    workers: [WorkerSizes; 4],
}

impl Counted {
    fn of(&self, worker: usize) -> &WorkerSizes {
        &self.workers[worker]
    }

    fn end_epoch(&self) -> Option<SizeChange> {
        self.sizes.end_epoch(self.workers.iter(), true)
    }

    fn plan(&self) -> Arc<SizePlan> {
        self.sizes.plan()
    }
}

fn sizes(threshold: Threshold) -> Counted {
    let sizes = Sizes::new(&Config { size_threshold: threshold, ..Config::default() }, 4);
    Counted { sizes, workers: [(); 4].map(|()| WorkerSizes::new(1)) }
}

/// 96 small requests and 4 of 400 kB: most of the cost is large.
fn count_a_mix(sizes: &Counted) {
    for request in 0..100 {
        sizes.of(request % 4).record(if request < 96 { 100 } else { 400_000 });
    }
}

/// As many epochs as a worker needs to get another part.
fn two_epochs(sizes: &Counted) -> Option<SizeChange> {
    let changes = [(); 2].map(|()| {
        count_a_mix(sizes);
        sizes.end_epoch()
    });
    changes.into_iter().flatten().next_back()
}

#[test]
fn only_a_new_plan_is_published_and_readers_see_it_at_their_next_look() {
    let sizes = sizes(Threshold::Quantile(0.9));
    let mut reader = PlanReader::new(&sizes.sizes);
    assert!(sizes.end_epoch().is_none(), "nothing was asked");
    count_a_mix(&sizes);
    assert!(!reader.renew(&sizes.sizes));
    assert!(sizes.end_epoch().unwrap().moves_workers());
    assert!(reader.renew(&sizes.sizes));
    assert_eq!(reader.plan().small_workers, 1);
    assert!(!reader.renew(&sizes.sizes));
    count_a_mix(&sizes);
    assert!(sizes.end_epoch().is_none(), "the same again");
    assert!(!reader.renew(&sizes.sizes));
}

/// I2.
#[test]
fn a_reader_that_meets_the_publisher_keeps_its_plan_and_looks_again() {
    let sizes = sizes(Threshold::Quantile(0.9));
    let mut reader = PlanReader::new(&sizes.sizes);
    count_a_mix(&sizes);
    sizes.end_epoch().unwrap();
    let publishing = sizes.sizes.plan.lock().unwrap();
    assert!(!reader.renew(&sizes.sizes));
    assert_eq!(reader.plan().small_workers, 4);
    drop(publishing);
    assert!(reader.renew(&sizes.sizes));
    assert_eq!(reader.plan().small_workers, 1);
}

#[test]
fn other_threads_get_a_plan_of_their_own_from_the_same_sizes() {
    let sizes = sizes(Threshold::Quantile(0.9));
    let mut reader = PlanReader::new(&sizes.sizes);
    two_epochs(&sizes).unwrap();
    sizes.sizes.set_workers(2);
    assert!(reader.renew(&sizes.sizes));
    assert_eq!((reader.plan().worker_count, reader.plan().small_workers), (2, 1));
}

#[test]
fn auto_stays_above_what_fits_one_packet_and_a_given_threshold_is_kept() {
    for (threshold, want_bytes) in
        [(Threshold::Quantile(0.5), 1472), (Threshold::Static { bytes: 70 }, 70)]
    {
        let sizes = sizes(threshold);
        two_epochs(&sizes).unwrap();
        assert_eq!(sizes.plan().threshold_bytes, want_bytes);
    }
}

#[test]
fn the_reason_says_where_small_ends_and_which_workers_are_small() {
    let sizes = sizes(Threshold::Static { bytes: 1000 });
    assert_eq!(
        two_epochs(&sizes).unwrap().to_string(),
        "small items are up to 1000 bytes and 8.2 % of the cost: 1 of 4 workers serve them"
    );
}

#[test]
fn the_histogram_sums_the_workers() {
    let sizes = sizes(Threshold::Quantile(0.99));
    count_a_mix(&sizes);
    let counted: Vec<(u64, u32)> = sum(sizes.workers.iter())
        .iter()
        .map(|class| (class.size_min_bytes, class.requests))
        .collect();
    assert_eq!(counted, [(100, 96), (393_216, 4)]);
}

/// The workers that were small after each epoch of a load.
fn small_workers_after(epochs: &[bool]) -> Vec<usize> {
    let sizes = sizes(Threshold::Static { bytes: 1000 });
    let mut small_workers = Vec::new();
    for is_large in epochs {
        for request in 0..100 {
            sizes.of(request % 4).record(if request < 50 || !is_large { 100 } else { 400_000 });
        }
        sizes.end_epoch();
        small_workers.push(sizes.plan().small_workers);
    }
    small_workers
}

/// An epoch's counts weigh a tenth in the next one, so the load of every other second is still felt
/// in between; the threshold between two plans is crossed only once.
#[test]
fn a_load_that_swings_each_second_moves_workers_once_and_one_that_lasts_moves_them() {
    assert_eq!(small_workers_after(&[false, true, true, true]), [4, 4, 1, 1]);
    let swinging: Vec<bool> = (0..30).map(|second| second % 2 == 1).collect();
    let small_workers = small_workers_after(&swinging);
    let moves = small_workers.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(moves, 1, "{small_workers:?}");
}
