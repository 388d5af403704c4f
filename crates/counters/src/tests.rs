//! Names and sums of the counters.

use super::*;

#[test]
fn commands_read_or_write_or_neither() {
    let check = |wanted: (Protocol, &str), want| {
        let mut all = (0..CommandIndex::COUNT).map(|at| (CommandIndex::describe(at), at));
        let (_, at) = all.find(|(found, _)| *found == wanted).unwrap();
        assert_eq!(CommandIndex::access(at), want, "{wanted:?}");
    };
    check((Protocol::Resp, "mget"), Some(Access::Read));
    check((Protocol::Resp, "incr"), Some(Access::Write));
    check((Protocol::Resp, "ping"), None);
    check((Protocol::Memcached, "gets"), Some(Access::Read));
    check((Protocol::Memcached, "touch"), Some(Access::Write));
    check((Protocol::Memcached, "stats"), None);
    check((Protocol::Native, "pull"), Some(Access::Read));
    check((Protocol::Native, "set"), Some(Access::Write));
    check((Protocol::Native, "unknown"), None);
}

#[test]
fn totals_sum_over_workers_and_keep_the_protocols_apart() {
    let workers = [WorkerCounters::new(), WorkerCounters::new()];
    for (worker, amount) in workers.iter().zip([2, 3]) {
        worker.command(CommandIndex::resp(CommandId::Get)).calls.add(amount);
        worker.command(CommandIndex::memcached(MemcachedCommand::Get)).hits.add(1);
        worker.input_bytes.add(amount);
    }
    let totals = Totals::sum(workers.iter());
    assert_eq!(totals.command(Protocol::Resp, "get").unwrap().calls, 5);
    assert_eq!(totals.command(Protocol::Memcached, "get").unwrap().calls, 0);
    assert_eq!(totals.command(Protocol::Memcached, "get").unwrap().hits, 2);
    assert_eq!((totals.calls(), totals.lookups(), totals.net_input_bytes), (5, (2, 0), 5));
}

#[test]
fn a_baseline_takes_every_group_of_counters_back() {
    let worker = WorkerCounters::new();
    worker.doors.protected.add(1);
    worker.rejected.add(1);
    worker.tls.handshakes.add(1);
    worker.udp.drop_datagram(UdpDrop::Busy);
    worker.udp.datagrams_in.add(1);
    worker.native.drop_frame(DropReason::Tag);
    worker.native.frames_in.add(1);
    worker.forwardings.held_elsewhere.add(1);
    worker.compaction.by_writes[2].add(1);
    worker.errors_by_code[3].add(1);
    worker.busy_ns.add(1);
    worker.command(CommandIndex::resp(CommandId::Get)).calls.add(1);
    let baseline = Totals::sum([&worker].into_iter());
    assert_eq!(baseline.rejected(), 2);
    assert_eq!(baseline.forwardings.busy().map(|(_, count)| count), [0, 0, 1]);
    let none = Totals::sum([&WorkerCounters::new()].into_iter());
    assert_eq!(baseline.clone().since(&baseline), none);
    worker.doors.closed.add(2);
    assert_eq!(Totals::sum([&worker].into_iter()).since(&baseline).rejected(), 2);
}

#[test]
fn every_memcached_command_has_its_name() {
    let index = CommandIndex::memcached(MemcachedCommand::Mn);
    assert_eq!(CommandIndex::describe(usize::from(index.0)), (Protocol::Memcached, "mn"));
    let index = CommandIndex::UNKNOWN_RESP;
    assert_eq!(CommandIndex::describe(usize::from(index.0)), (Protocol::Resp, "unknown"));
}
