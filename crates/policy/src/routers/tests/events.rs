//! Tests with random streams of routing and finishing, by several dispatchers at once.
//!
//! The model is a list of the outstanding requests. After each step it gives the writer of each
//! partition, the depth of each worker, and the entries that the write table must have.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const WORKERS: u16 = 5;
const DISPATCHERS: usize = 3;

/// The properties of a router.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// No partition has writes outstanding with two workers.
    has_one_writer: bool,
    /// No request that may be balanced is sent to a worker that holds this many.
    bound: Option<u32>,
    /// Whether writes of a partition may wait for room in the table.
    may_fill_up: bool,
}

/// One dispatcher routes a request, or one outstanding request (modulo their number) finishes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Route { dispatcher: usize, request: RouteRequest },
    Finish { which: usize },
}

fn any_request() -> impl Strategy<Value = RouteRequest> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let size_bytes = prop_oneof![Just(None), Just(Some(100)), (0..200_000_u64).prop_map(Some)];
    (0..40_u32, access, size_bytes, 0..WORKERS).prop_map(
        |(partition, access, size_bytes, worker)| {
            let (partition, received_by) = (PartitionId(partition), WorkerId(worker));
            RouteRequest { partition, access, size_bytes, received_by }
        },
    )
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let route = (0..DISPATCHERS, any_request())
        .prop_map(|(dispatcher, request)| Step::Route { dispatcher, request });
    let finish =
        any::<prop::sample::Index>().prop_map(|which| Step::Finish { which: which.index(1 << 20) });
    prop::collection::vec(prop_oneof![3 => route, 2 => finish], 1..200)
}

/// The outstanding requests: the sender, the request, and its worker.
type Outstanding = Vec<(usize, RouteRequest, WorkerId)>;

struct Run<R> {
    routers: Vec<R>,
    depths: Vec<Depths>,
    outstanding: Outstanding,
    rules: Rules,
}

impl<R: Router> Run<R> {
    fn new(rules: Rules, router: impl FnMut(usize) -> R) -> Run<R> {
        let depths = vec![Depths::new(usize::from(WORKERS)); DISPATCHERS];
        let routers = (0..DISPATCHERS).map(router).collect();
        Run { routers, depths, outstanding: Vec::new(), rules }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Route { dispatcher, request } => self.route(dispatcher, request),
            Step::Finish { which } if !self.outstanding.is_empty() => {
                self.finish(which % self.outstanding.len());
            }
            Step::Finish { .. } => {}
        }
    }

    fn route(&mut self, dispatcher: usize, request: RouteRequest) {
        let depths = &self.depths[dispatcher];
        let writer = self.writer(&request);
        match self.routers[dispatcher].route(&request, depths) {
            Route::To(worker) => {
                assert!(worker.0 < WORKERS, "a worker that there is");
                let is_write = request.access == Access::Write;
                if let (true, true, Some(writer)) = (self.rules.has_one_writer, is_write, writer) {
                    assert_eq!(worker, writer, "two writers of {request:?}");
                }
                self.depths[dispatcher].add(worker);
                self.outstanding.push((dispatcher, request, worker));
            }
            Route::Busy(Busy::QueuesFull) => {
                let bound = self.rules.bound.expect("only a bound makes queues full");
                assert!((0..WORKERS).any(|worker| depths.of(WorkerId(worker)) >= bound));
                let is_bound_to_one = self.rules.has_one_writer
                    && request.access == Access::Write
                    && writer.is_some();
                assert!(!is_bound_to_one, "its writer takes it at any depth");
            }
            Route::Busy(Busy::WriteTableFull) => {
                assert!(self.rules.may_fill_up && writer.is_none(), "room was promised");
            }
            Route::Busy(Busy::HeldElsewhere) => panic!("nothing was to be followed"),
        }
    }

    fn finish(&mut self, index: usize) {
        let (dispatcher, request, worker) = self.outstanding.swap_remove(index);
        self.routers[dispatcher].finish(&request, worker);
        self.depths[dispatcher].remove(worker);
    }

    /// The worker with outstanding writes of the request's partition.
    fn writer(&self, request: &RouteRequest) -> Option<WorkerId> {
        let of_same = |other: &RouteRequest| {
            other.access == Access::Write && other.partition == request.partition
        };
        self.outstanding.iter().find(|(_, other, _)| of_same(other)).map(|(_, _, worker)| *worker)
    }

    /// Checks that no request was lost: the depths count exactly the outstanding ones.
    fn validate(&self) {
        let mut held = BTreeMap::<(usize, WorkerId), u32>::new();
        for (dispatcher, _, worker) in &self.outstanding {
            *held.entry((*dispatcher, *worker)).or_default() += 1;
        }
        for (dispatcher, depths) in self.depths.iter().enumerate() {
            depths.validate();
            for worker in (0..WORKERS).map(WorkerId) {
                let want = held.get(&(dispatcher, worker)).copied().unwrap_or(0);
                assert_eq!(depths.of(worker), want);
            }
        }
    }

    fn run(mut self, steps: &[Step], at_each: impl Fn(&Run<R>)) {
        for step in steps {
            self.take(*step);
            self.validate();
            at_each(&self);
        }
        while !self.outstanding.is_empty() {
            self.finish(0);
        }
        at_each(&self);
    }
}

/// Checks that the table's entries are the partitions with outstanding writes.
fn check_table<B: Balance>(run: &Run<DCrew<B>>) {
    let table = run.routers[0].table();
    table.validate();
    let writes = run.outstanding.iter().filter(|(_, request, _)| request.access == Access::Write);
    let held: BTreeMap<PartitionId, WorkerId> =
        writes.map(|(_, request, worker)| (request.partition, *worker)).collect();
    assert_eq!(table.len(), held.len());
    for (partition, worker) in held {
        assert_eq!(table.holder(partition), Some(worker));
    }
}

const FREE: Rules = Rules { has_one_writer: false, bound: None, may_fill_up: false };
const OWNED: Rules = Rules { has_one_writer: true, ..FREE };

fn plan() -> Arc<SizePlan> {
    let first = WorkerId(3);
    let large = vec![LargeRange { size_max_bytes: u64::MAX, first, workers: 2 }];
    let plan = SizePlan {
        threshold_bytes: 1400,
        worker_count: usize::from(WORKERS),
        small_workers: 3,
        large,
        standby: None,
    };
    plan.validate();
    Arc::new(plan)
}

proptest! {
    #[test]
    fn a_partition_never_has_two_writers_under_erew(steps in any_steps()) {
        Run::new(OWNED, |_| Erew).run(&steps, |_| {});
    }

    #[test]
    fn a_partition_never_has_two_writers_under_crew(steps in any_steps(), bound in 1..4_u32) {
        let rules = Rules { bound: Some(bound), ..OWNED };
        Run::new(rules, |_| Crew::new(bound)).run(&steps, |_| {});
    }

    #[test]
    fn a_partition_never_has_two_writers_under_dcrew(
        steps in any_steps(),
        bound in 1..4_u32,
        entries in prop_oneof![Just(8_usize), Just(16), Just(64)],
    ) {
        // 40 partitions are five to a set of eight in the largest table.
        let rules = Rules { bound: Some(bound), may_fill_up: entries < 64, ..OWNED };
        let table = WriteTable::new(entries);
        let run = Run::new(rules, |_| DCrew::new(bound, table.for_another_dispatcher()));
        run.run(&steps, check_table);
    }

    #[test]
    fn a_partition_never_has_two_writers_under_the_joint_default(
        steps in any_steps(),
        bound in 1..4_u32,
    ) {
        let rules = Rules { bound: Some(bound), ..OWNED };
        let table = WriteTable::new(64);
        let router = |_| {
            let balance = SizeAwareJbsq::new(bound, plan());
            DCrew::over(balance, table.for_another_dispatcher())
        };
        Run::new(rules, router).run(&steps, check_table);
    }

    #[test]
    fn no_request_is_lost_where_anyone_may_write(steps in any_steps(), bound in 1..4_u32) {
        let bounded = Rules { bound: Some(bound), ..FREE };
        Run::new(FREE, |_| AnyWorker).run(&steps, |_| {});
        Run::new(FREE, |_| ShortestQueue).run(&steps, |_| {});
        Run::new(FREE, |first| RoundRobin::new(WorkerId(first as u16))).run(&steps, |_| {});
        Run::new(FREE, |_| SizeAware::new(plan())).run(&steps, |_| {});
        Run::new(bounded, |_| Jbsq::new(bound)).run(&steps, |run| {
            for depths in &run.depths {
                assert!((0..WORKERS).all(|worker| depths.of(WorkerId(worker)) <= bound));
            }
        });
        let one = Rules { bound: Some(1), ..FREE };
        Run::new(one, |_| HandOff::new(2)).run(&steps, |run| {
            for depths in &run.depths {
                assert!((0..WORKERS).all(|w| depths.of(WorkerId(w)) <= u32::from(w >= 2)));
            }
        });
    }

    /// CREW may balance reads only: they leave no worker above the bound.
    #[test]
    fn what_is_balanced_respects_the_bound(steps in any_steps(), bound in 1..4_u32) {
        let rules = Rules { bound: Some(bound), ..OWNED };
        let mut run = Run::new(rules, |_| Crew::new(bound));
        for step in steps {
            let before = run.outstanding.len();
            run.take(step);
            if let Some((dispatcher, request, worker)) = run.outstanding.get(before)
                && request.access == Access::Read
            {
                prop_assert!(run.depths[*dispatcher].of(*worker) <= bound);
            }
        }
    }

    /// Small requests reach no large worker, large ones only theirs.
    #[test]
    fn sizes_do_not_mix(steps in any_steps()) {
        Run::new(FREE, |_| SizeAware::new(plan())).run(&steps, |run| {
            for (_, request, worker) in &run.outstanding {
                let is_large = request.size_bytes.is_some_and(|size| size > 1400);
                assert_eq!(worker.0 >= 3, is_large, "{request:?}");
            }
        });
    }
}
