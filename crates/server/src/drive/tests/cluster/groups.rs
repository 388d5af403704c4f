//! Groups whose slot moves: the replies that their clients get. A thread with one answer for each
//! call plays the control thread.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use cluster::Version;
use cluster::message::Change;
use config::ClusterConfig;
use crossbeam_channel::{Receiver, Sender, unbounded};
use replication::replicate::{Ends, GroupAnswer, GroupCall, RequestChange};

use super::*;

const UNCERTAIN: &str = "-UNCERTAIN this node ceased to be the slot's primary while the write was \
                         under way: it may have happened or not\r\n";

/// When the slot of each group moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Before the group has begun.
    Refused,
    /// While its requests are executed.
    NotRun,
    /// Before all copies have its writes.
    NotEverywhere,
}

/// The settings of a node whose control thread is played here.
pub(super) fn cluster() -> ClusterConfig {
    ClusterConfig {
        config_store: cluster_io::Place::File("/".into()),
        membership: None,
        peer: ([127, 0, 0, 1], 0).into(),
        advertise: None,
        name: Some(2),
        copies: None,
        min_copies: None,
        replication: None,
        digest_threads: 0,
    }
}

/// Answers groups, and executes single writes on empty keys, until the bench is gone.
fn play(mut ends: Ends, fate: Fate, shared: &Arc<runtime::shared::Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut groups = BTreeMap::new();
        loop {
            crossbeam_channel::select! {
                recv(ends.groups) -> call => {
                    let Ok((group, call)) = call else { return };
                    let answer = answer_to(&call, fate);
                    if let GroupCall::Begin(_, answer_to) = call {
                        groups.insert(group, answer_to);
                    }
                    if let Some(answer_to) = groups.get(&group) {
                        ends.answer(answer_to, answer);
                    }
                }
                recv(ends.control_requests) -> control_request => {
                    let Ok(control_request) = control_request else { return };
                    let change = RequestChange::new(control_request, shared.control_means());
                    change.compute(None, Version::ZERO);
                    ends.give_back(&change);
                }
            }
        }
    })
}

fn answer_to(call: &GroupCall, fate: Fate) -> GroupAnswer {
    let is_lost = match call {
        GroupCall::Begin(..) => fate == Fate::Refused,
        GroupCall::Run(changes) if fate == Fate::NotEverywhere => {
            for change in changes {
                change.compute(None, Version::ZERO);
            }
            false
        }
        _ => true,
    };
    if is_lost { GroupAnswer::Bad } else { GroupAnswer::Good }
}

/// All replies to `asks`, in which `|` separates commands, and to PING; `None`: the connection was
/// closed.
fn told(fate: Fate, view: &Arc<View>, asks: &str) -> Option<String> {
    let (channel, ends) = ControlChannel::new(THREADS).unwrap();
    let mut bench = Bench::of(Some(Arc::clone(view)), Some(channel), store::IndexKind::Hash);
    let _control = play(ends, fate, bench.drive.shared());
    let lines = asks.replace('|', "\r\n");
    bench.client.write_all(format!("{lines}\r\nPING\r\n").as_bytes()).unwrap();
    let mut all = String::new();
    for _ in 0..100_000 {
        bench.turn();
        all += &bench.received()?;
        if all.ends_with("+PONG\r\n") {
            return Some(all);
        }
        std::thread::yield_now();
    }
    panic!("{asks}: {all:?}");
}

const WRITES: [&str; 9] = [
    "MSET bar 1 {bar}2 2",
    "MSETNX bar 1 {bar}2 2",
    "MSETEX 2 bar 1 {bar}2 2",
    "COPY bar {bar}2 REPLACE",
    "RENAME bar {bar}2",
    "BITOP NOT bar {bar}2",
    "BITFIELD bar SET u8 0 1",
    "DEL bar {bar}2",
    "UNLINK bar {bar}2",
];

#[test]
fn one_write_on_several_keys_that_a_move_overtakes_is_uncertain() {
    let view = view_of(2);
    for asks in WRITES {
        for fate in [Fate::NotRun, Fate::NotEverywhere] {
            let want = format!("{UNCERTAIN}+PONG\r\n");
            assert_eq!(told(fate, &view, asks), Some(want), "{asks}");
        }
    }
}

#[test]
fn replies_before_a_write_that_is_uncertain_stay() {
    let view = view_of(2);
    let want = format!("+OK\r\n{UNCERTAIN}+OK\r\n{UNCERTAIN}+PONG\r\n");
    let asks = "SET bar 1|MSETEX 2 bar 1 {bar}2 2|SET bar 2|DEL bar {bar}2";
    assert_eq!(told(Fate::NotEverywhere, &view, asks), Some(want));
}

/// Clients take any reply of EXEC for its outcome.
#[test]
fn a_transaction_that_a_move_overtakes_is_closed() {
    let asks = "MULTI|SET bar 1|EXEC";
    assert_eq!(told(Fate::NotEverywhere, &view_of(2), asks), None);
}

#[test]
fn a_group_whose_slot_has_moved_before_it_began_is_redirected() {
    let view = view_of(2);
    let mut configuration = recorded_cluster();
    configuration.shards[0].primary = node(1);
    // The control thread publishes places after the configuration.
    view.set_configuration(Arc::new(configuration));
    let slot = Slot::of(b"bar").0;
    let moved = format!("-MOVED {slot} 127.0.0.1:7302\r\n");
    for asks in WRITES {
        let want = format!("{moved}+PONG\r\n");
        assert_eq!(told(Fate::Refused, &view, asks), Some(want), "{asks}");
    }
    let transaction = told(Fate::Refused, &view, "MULTI|SET bar 1|EXEC");
    assert_eq!(transaction, Some(format!("+OK\r\n+QUEUED\r\n{moved}+PONG\r\n")));
}

/// A control thread that answers the begin and the end of a group only when it is told to, and says
/// which call it has got.
fn play_slowly(mut ends: Ends, go: Receiver<()>, said: Sender<&'static str>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut groups = BTreeMap::new();
        while let Ok((group, call)) = ends.groups.recv() {
            let word = match call {
                GroupCall::Begin(_, answer_to) => {
                    groups.insert(group, answer_to);
                    "begin"
                }
                GroupCall::Run(changes) => {
                    for change in &changes {
                        change.compute(None, Version::ZERO);
                        let _ = said.send("request");
                    }
                    "run"
                }
                GroupCall::Keep(..) => "keep",
                GroupCall::End { .. } => "end",
                GroupCall::Flush { .. } => "flush",
                GroupCall::Cancel => "cancel",
                GroupCall::Moved(_) => "moved",
            };
            let _ = said.send(word);
            let waits = ["begin", "end"].contains(&word);
            if !["cancel", "moved"].contains(&word) && (!waits || go.recv().is_ok()) {
                ends.answer(&groups[&group], GroupAnswer::Good);
            }
        }
    })
}

struct Slow {
    bench: Bench,
    go: Sender<()>,
    said: Receiver<&'static str>,
}

impl Slow {
    fn new() -> Slow {
        let (channel, ends) = ControlChannel::new(THREADS).unwrap();
        let bench = Bench::of(Some(view_of(2)), Some(channel), store::IndexKind::Hash);
        let ((go, told), (say, said)) = (unbounded(), unbounded());
        play_slowly(ends, told, say);
        Slow { bench, go, said }
    }

    fn send(&mut self, asks: &str) {
        let lines = asks.replace('|', "\r\n");
        self.bench.client.write_all(format!("{lines}\r\n").as_bytes()).unwrap();
    }

    /// Runs turns until the control thread has got this call, and no group was given up.
    #[track_caller]
    fn until(&mut self, call: &str) {
        self.until_beside(call, |_| ());
    }

    /// The same; something else is done before each turn.
    #[track_caller]
    fn until_beside(&mut self, call: &str, mut beside: impl FnMut(&mut Bench)) {
        for _ in 0..1_000_000 {
            match self.said.try_recv() {
                Ok(got) if got == call => return,
                Ok(got) => {
                    let is_late = got == "cancel" || call == "request" && got == "end";
                    assert!(!is_late, "{got} before {call}");
                }
                Err(_) => {}
            }
            beside(&mut self.bench);
            self.bench.turn();
            std::thread::yield_now();
        }
        panic!("no call to {call}");
    }

    /// Asks over another connection of the same worker.
    fn asks(&mut self, client: &mut TcpStream, line: &str, want: &str) {
        client.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut bytes = [0; 64];
        loop {
            self.bench.turn();
            match client.read(&mut bytes) {
                Ok(count) => return assert_eq!(&bytes[..count], want.as_bytes()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }
}

#[test]
fn a_worker_serves_its_other_clients_while_a_group_waits() {
    for (asks, before, want) in [
        ("PING|MSET bar 1 {bar}2 2", "+PONG\r\n", "+OK\r\n"),
        ("MULTI|SET bar 1|GET bar|EXEC", "+OK\r\n+QUEUED\r\n+QUEUED\r\n", "*2\r\n+OK\r\n"),
    ] {
        let mut slow = Slow::new();
        let mut other = Bench::connect(&mut slow.bench.drive, Dialect::Resp);
        slow.send(asks);
        let mut all = String::new();
        for call in ["begin", "end"] {
            slow.until(call);
            slow.asks(&mut other, "PING", "+PONG\r\n");
            all += &slow.bench.received().unwrap();
            assert!(!all.contains(want), "{asks}: before all copies have it");
            slow.go.send(()).unwrap();
        }
        while !all.contains(want) {
            slow.bench.turn();
            all += &slow.bench.received().unwrap();
        }
        assert!(all.starts_with(&format!("{before}{want}")), "{asks}: {all:?}");
    }
}

/// Whatever another connection of the worker asks in the same round.
#[test]
fn requests_of_a_group_that_goes_on_are_executed_in_it() {
    let all = [
        "DEL bar {bar}2 {bar}3 {bar}4",
        "MSET bar 1 {bar}2 2 {bar}3 3 {bar}4 4",
        "MULTI|SET bar 1|DEL {bar}2|SET {bar}3 3|DEL {bar}4|EXEC",
    ];
    // Which connection comes first changes from turn to turn.
    for (asks, turns) in all.into_iter().flat_map(|asks| (0..8).map(move |turns| (asks, turns))) {
        let mut slow = Slow::new();
        let mut last = Bench::connect(&mut slow.bench.drive, Dialect::Resp);
        last.write_all(format!("{}\r\n", asks.replace('|', "\r\n")).as_bytes()).unwrap();
        slow.until("begin");
        (0..turns).for_each(|_| slow.bench.turn());
        slow.go.send(()).unwrap();
        let mut bytes = [0; 1 << 10];
        for _ in 0..4 {
            slow.until_beside("request", |bench| {
                // It may go to another worker, and is served first.
                bench.client.write_all(b"GET bar\r\n").unwrap();
                let _ = bench.client.read(&mut bytes);
            });
        }
        slow.until("end");
    }
}

#[test]
fn a_write_past_the_router_does_not_wait_for_a_group_of_its_worker() {
    let mut slow = Slow::new();
    let mut other = Bench::connect(&mut slow.bench.drive, Dialect::Resp);
    slow.send("MSET bar 1 {bar}2 2");
    slow.until("begin");
    for writes in ["CLIENT REPLY SKIP\r\nINCR {bar}3\r\n", "WATCH {bar}4\r\nSET {bar}3 1\r\n"] {
        let mut quiet = Bench::connect(&mut slow.bench.drive, Dialect::Resp);
        quiet.write_all(writes.as_bytes()).unwrap();
        slow.asks(&mut other, "PING", "+PONG\r\n");
    }
    // Each is a group of its own, which has begun.
    (0..2).for_each(|_| slow.go.send(()).unwrap());
    slow.until("begin");
    slow.until("begin");
}

#[test]
fn a_connection_that_is_closed_gives_up_the_group_that_it_waits_for() {
    for asks in ["MSET bar 1 {bar}2 2", "MULTI|SET bar 1|EXEC"] {
        let mut slow = Slow::new();
        slow.send(asks);
        slow.until("begin");
        let mut other = Bench::connect(&mut slow.bench.drive, Dialect::Resp);
        slow.asks(&mut other, "CLIENT KILL TYPE normal", ":1\r\n");
        slow.go.send(()).unwrap(); // The next call is read after the answer to this one.
        slow.until("cancel");
    }
}

#[test]
fn a_slot_of_this_node_is_served_before_its_place_is_published() {
    let view = view_of(2);
    for place in [Place::Elsewhere, Place::Nowhere] {
        view.set_place(Slot::of(b"bar"), place);
        let want = Some("+OK\r\n+PONG\r\n".to_owned());
        assert_eq!(told(Fate::NotRun, &view, "SET bar 1"), want);
        for reads in ["MGET bar {bar}2", "EXISTS bar {bar}2"] {
            let told = told(Fate::NotRun, &view, reads).unwrap();
            assert!(told.starts_with("-TRYAGAIN"), "only the control thread may read: {told}");
        }
    }
}
