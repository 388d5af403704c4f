//! Streams of policy events: several dispatchers route and finish under d-CREW, against a list.

use base::sync::Arc;
use base::{PartitionId, WorkerId};
use policy::routers::{DCrew, SizeAwareJbsq};
use policy::size_class::SizePlan;
use policy::{Access, Busy, Depths, Route, RouteRequest, Router, WriteTable};

const WORKERS: usize = 6;
const DISPATCHERS: usize = 3;
/// 64 partitions in 16 entries, so that sets fill up.
const ENTRIES: usize = 16;
const BOUND: u32 = 2;

/// What was sent: by which dispatcher, what, to which worker.
type Outstanding = Vec<(usize, RouteRequest, WorkerId)>;

/// An input is a list of `event (1 byte) | partition (1 byte)`. An event's lowest two bits choose:
/// 0, 1: a write is routed, 2: a read, 3: what the rest of the bits points at finishes. Of a routed
/// request the next bits are the dispatcher, and the top bit says that it is large.
pub fn policy_events(data: &[u8]) {
    let table = WriteTable::new(ENTRIES);
    let plan = Arc::new(SizePlan::all_small(WORKERS, 1400));
    let dispatcher = |_| {
        let balance = SizeAwareJbsq::new(BOUND, Arc::clone(&plan));
        (DCrew::over(balance, table.for_another_dispatcher()), Depths::new(WORKERS))
    };
    let mut dispatchers: Vec<_> = (0..DISPATCHERS).map(dispatcher).collect();
    let mut outstanding = Outstanding::new();
    for event in data.chunks_exact(2) {
        if event[0] & 3 == 3 {
            let place = usize::from(event[0] >> 2);
            if !outstanding.is_empty() {
                let (index, request, worker) = outstanding.swap_remove(place % outstanding.len());
                dispatchers[index].0.finish(&request, worker);
                dispatchers[index].1.remove(worker);
            }
        } else {
            let index = usize::from(event[0] >> 2) % DISPATCHERS;
            let (router, depths) = &mut dispatchers[index];
            route(router, depths, &mut outstanding, (index, request_of(event)));
        }
        validate(&table, &dispatchers, &outstanding);
    }
    for (index, request, worker) in outstanding {
        dispatchers[index].0.finish(&request, worker);
    }
    assert!(table.is_empty(), "every pin unpinned leaves an empty table");
}

fn request_of(event: &[u8]) -> RouteRequest {
    RouteRequest {
        partition: PartitionId(u32::from(event[1] % 64)),
        access: if event[0] & 3 == 2 { Access::Read } else { Access::Write },
        size_bytes: (event[0] & 0x80 != 0).then_some(100_000),
        received_by: WorkerId(0),
    }
}

fn route(
    router: &impl Router,
    depths: &mut Depths,
    outstanding: &mut Outstanding,
    (index, request): (usize, RouteRequest),
) {
    let writer = writer_of(outstanding, request.partition);
    let is_write = request.access == Access::Write;
    match router.route(&request, depths) {
        Route::To(worker) => {
            assert!(worker.index() < WORKERS);
            assert!(!is_write || writer.is_none_or(|writer| writer == worker), "two writers");
            depths.add(worker);
            let is_free = (!is_write || writer.is_none()) && request.size_bytes.is_none();
            assert!(!is_free || depths.of(worker) <= BOUND, "what is balanced keeps the bound");
            outstanding.push((index, request, worker));
        }
        Route::Busy(Busy::QueuesFull) => {
            assert!(depths.all_at_least(BOUND) && request.size_bytes.is_none());
            assert!(!is_write || writer.is_none(), "its writer takes it at any depth");
        }
        Route::Busy(why) => assert!(why == Busy::WriteTableFull && is_write && writer.is_none()),
    }
}

fn writer_of(outstanding: &Outstanding, partition: PartitionId) -> Option<WorkerId> {
    let is_write =
        |request: &RouteRequest| request.access == Access::Write && request.partition == partition;
    outstanding.iter().find(|(_, request, _)| is_write(request)).map(|(_, _, worker)| *worker)
}

/// The table and the depths say what the list says.
fn validate<R>(table: &WriteTable, dispatchers: &[(R, Depths)], outstanding: &Outstanding) {
    table.validate();
    let partitions = (0..64).map(PartitionId);
    let mut held_count = 0;
    for partition in partitions {
        let writer = writer_of(outstanding, partition);
        assert_eq!(table.holder(partition), writer);
        held_count += usize::from(writer.is_some());
    }
    assert_eq!(table.len(), held_count);
    for (index, (_, depths)) in dispatchers.iter().enumerate() {
        let sent = outstanding.iter().filter(|(by, _, _)| *by == index).count() as u32;
        let held = (0..WORKERS as u16).map(|worker| depths.of(WorkerId(worker))).sum::<u32>();
        assert_eq!(held, sent, "no request is lost");
    }
}
