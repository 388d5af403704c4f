//! Tests of windows by C-4's own examples, and by random streams against a store without windows.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::window::rules::CloseWhen;
use crate::window::sample::{Answer, Command, Operation, Store};

/// S = 600 ns and an SLO of 10 S, as C-4 §3 has it; closes 4,800 ns after it opened.
fn rules() -> WindowRules {
    WindowRules::honest(600, 10).held_for(0)
}

/// A worker with a queue, a store and the windows between them.
struct Worker {
    now: Instant,
    windows: Windows<Operation>,
    store: Store,
    queue: VecDeque<Operation>,
    timers: Vec<(WindowId, Instant)>,
    replies: Vec<(usize, Answer)>,
    plan: Plan<Operation>,
    /// The operations of each closed window, and the reason for closing.
    closed: Vec<(usize, CloseReason)>,
    next_id: usize,
}

impl Worker {
    fn new(rules: WindowRules, windows_max: usize) -> Worker {
        Worker {
            now: Instant { ns: 1_000_000 },
            windows: Windows::new(rules, windows_max),
            store: Store::default(),
            queue: VecDeque::new(),
            timers: Vec::new(),
            replies: Vec::new(),
            plan: Plan::default(),
            closed: Vec::new(),
            next_id: 0,
        }
    }

    /// A request arrives; returns its id.
    fn receive(&mut self, key: &'static str, connection: u64, command: Command) -> usize {
        let id = self.next_id;
        self.next_id += 1;
        self.queue.push_back(Operation { id, key, connection, command });
        id
    }

    /// Takes a batch from the queue and serves it.
    fn serve(&mut self, batch_max: usize) {
        let take = self.queue.len().min(batch_max);
        let batch: Vec<_> = self.queue.drain(..take).collect();
        for (index, operation) in batch.iter().enumerate() {
            let mut actions = Vec::new();
            let ahead = Ahead { batch: batch[index + 1..].iter(), queued: self.queue.iter() };
            self.windows.admit(self.now, operation.clone(), ahead, &mut actions);
            self.carry_out(actions);
        }
    }

    fn elapse(&mut self, ns: u64) {
        self.now.ns += ns;
        let mut actions = Vec::new();
        self.windows.elapse(self.now, &mut actions);
        self.carry_out(actions);
    }

    fn drain(&mut self) {
        let mut actions = Vec::new();
        let ahead = Ahead { batch: [].iter(), queued: self.queue.iter() };
        self.windows.drain(self.now, ahead, &mut actions);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action<Operation>>) {
        for action in actions {
            match action {
                Action::Run(operation) => {
                    let answer = self.store.run(&operation);
                    self.replies.push((operation.id, answer));
                }
                Action::ArmTimer { window, at } => self.timers.push((window, at)),
                Action::Close { window, reason } => {
                    self.windows.take(window, &mut self.plan);
                    self.closed.push((self.plan.operations().len(), reason));
                    self.plan.execute(&mut self.store, &mut self.replies).expect("there is room");
                }
            }
        }
        self.windows.validate();
    }

    fn value(&self, key: &str) -> Option<&[u8]> {
        self.store.values.get(key).map(|value| &value.bytes[..])
    }

    /// The ids of the answered requests, in the order of their answers.
    fn answered(&self) -> Vec<usize> {
        self.replies.iter().map(|(id, _)| *id).collect()
    }
}

/// C-4 §4.3.1, Fig. 7, execution E2: the answers to both SETs wait for the window's end, so that
/// the GET may return the old value.
#[test]
fn a_read_within_a_window_returns_the_old_value_and_no_set_is_answered_before_it() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 4);
    let (alice, bob, carol) = (1, 2, 3);
    worker.receive("K", 0, Command::Set("0"));
    worker.serve(1);
    let set_by_alice = worker.receive("K", alice, Command::Set("1"));
    let get_by_carol = worker.receive("K", carol, Command::Get);
    let set_by_bob = worker.receive("K", bob, Command::Set("2"));
    worker.serve(3);
    assert_eq!(worker.replies[1..], [(get_by_carol, Answer::Bytes(b"0".into()))]);
    worker.elapse(10_000);
    assert_eq!(worker.replies[2..], [(set_by_alice, Answer::Ok), (set_by_bob, Answer::Ok)]);
    assert_eq!(worker.value("K"), Some(&b"2"[..]));
    let get_later = worker.receive("K", carol, Command::Get);
    worker.serve(1);
    assert_eq!(worker.replies.last(), Some(&(get_later, Answer::Bytes(b"2".into()))));
}

/// C-4 §4.3, Fig. 6: step 1 finds a second write in the queue, step 2 collects all that arrive
/// meanwhile, step 3 stores once.
#[test]
fn all_writes_of_a_window_become_one() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 4);
    for (connection, value) in ["1", "2", "3", "4"].into_iter().enumerate() {
        worker.receive("K", connection as u64, Command::Set(value));
        worker.receive("other", connection as u64, Command::Set(value));
    }
    worker.serve(8);
    worker.receive("K", 9, Command::Set("5"));
    worker.serve(8);
    worker.elapse(10_000);
    assert_eq!(worker.store.write_count, 2, "one for each key");
    let mut closed = worker.closed.clone();
    closed.sort_by_key(|(count, _)| *count);
    assert_eq!(closed, [(4, CloseReason::Deadline), (5, CloseReason::Deadline)]);
    let counters = worker.windows.counters();
    assert_eq!((counters.opened_count, counters.writes_compacted_count), (2, 3 + 4));
}

#[test]
fn a_write_with_nothing_behind_it_runs_at_once() {
    let mut worker = Worker::new(rules(), 4);
    worker.receive("K", 0, Command::Set("1"));
    worker.receive("K", 0, Command::Get);
    worker.serve(2);
    assert_eq!(worker.answered(), [0, 1]);
    assert_eq!(worker.windows.counters().opened_count, 0);
}

#[test]
fn a_timer_is_armed_at_opening_and_closes_the_window_when_it_rings() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 4);
    worker.receive("K", 0, Command::Set("1"));
    worker.receive("K", 1, Command::Set("2"));
    worker.serve(2);
    let [(_, rings_at)] = worker.timers[..] else { panic!("one timer") };
    assert_eq!(rings_at.ns - worker.now.ns, 5_400 - 600);
    assert_eq!(worker.windows.rings_next_at(), Some(rings_at));
    worker.elapse(4_799);
    assert_eq!(worker.answered(), []);
    worker.elapse(1);
    assert_eq!(worker.answered(), [0, 1]);
    assert_eq!(worker.windows.rings_next_at(), None);
}

#[test]
fn a_window_closes_early_behind_the_last_write_in_sight() {
    let mut worker = Worker::new(rules(), 4);
    worker.receive("K", 0, Command::Incr);
    worker.receive("K", 1, Command::Incr);
    worker.serve(2);
    assert_eq!(worker.replies, [(0, Answer::Integer(1)), (1, Answer::Integer(2))]);
    assert_eq!(worker.closed, [(2, CloseReason::Early)]);
}

#[test]
fn a_window_whose_key_went_elsewhere_closes_when_the_round_is_over() {
    let mut worker = Worker::new(rules(), 4);
    worker.receive("K", 0, Command::Set("1"));
    worker.receive("K", 1, Command::Set("2"));
    worker.serve(1);
    worker.queue.clear();
    assert_eq!(worker.windows.open_count(), 1);
    worker.drain();
    assert_eq!(worker.closed, [(1, CloseReason::Early)]);
}

/// Decision 0017: requests that arrive within the hold are gathered; after it the queue decides.
#[test]
fn a_held_window_gathers_what_comes_within_its_hold() {
    let mut worker = Worker::new(rules().held_for(1_800), 4);
    worker.receive("K", 0, Command::Incr);
    worker.receive("K", 1, Command::Incr);
    worker.serve(2);
    worker.elapse(1_000);
    worker.drain();
    worker.receive("K", 2, Command::Incr);
    worker.serve(1);
    assert_eq!(worker.answered(), []);
    assert_eq!(worker.timers[0].1.ns, 1_000_000 + 1_800);
    worker.elapse(800);
    assert_eq!(worker.timers[1].1.ns, 1_000_000 + 4_800, "the timer rang, and is set to the end");
    worker.drain();
    assert_eq!(worker.closed, [(3, CloseReason::Early)]);
}

#[test]
fn a_full_window_closes_and_the_next_write_opens_another() {
    let mut worker = Worker::new(WindowRules { batch_max: 3, ..rules() }, 4);
    for _ in 0..5 {
        worker.receive("K", 0, Command::Incr);
    }
    worker.serve(5);
    assert_eq!(worker.closed, [(3, CloseReason::Full), (2, CloseReason::Early)]);
    assert_eq!(worker.value("K"), Some(&b"5"[..]));
}

/// K8: all keys of these tests share one hash.
#[test]
fn another_key_with_the_same_hash_does_not_join() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 4);
    worker.receive("K", 0, Command::Set("1"));
    worker.receive("L", 1, Command::Set("2"));
    worker.receive("K", 2, Command::Set("3"));
    worker.serve(3);
    assert_eq!(worker.answered(), [1]);
    assert_eq!(worker.value("L"), Some(&b"2"[..]));
}

/// K8: the taken batch and 32 slots beyond it.
#[test]
fn the_queue_is_searched_32_slots_deep() {
    for (others_count, opened_count) in [(31, 1), (32, 0)] {
        let mut worker = Worker::new(rules(), 4);
        worker.receive("K", 0, Command::Set("1"));
        for _ in 0..others_count {
            worker.receive("other", 0, Command::Get);
        }
        worker.receive("K", 0, Command::Set("2"));
        worker.serve(1);
        assert_eq!(worker.windows.counters().opened_count, opened_count, "{others_count}");
    }
}

/// Barriers (K10).
#[test]
fn a_connection_reads_its_own_write_although_the_window_is_open() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 4);
    let mine = 1;
    worker.receive("K", mine, Command::Set("1"));
    worker.receive("K", mine, Command::Get);
    worker.receive("K", 2, Command::Set("2"));
    worker.serve(3);
    worker.elapse(10_000);
    let read = (1, Answer::Bytes(b"1".into()));
    assert_eq!(worker.replies, [(0, Answer::Ok), read, (2, Answer::Ok)]);
}

#[test]
fn a_barrier_closes_the_windows_of_its_connection_only() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 4);
    for (key, connection) in [("K", 1), ("K", 2), ("L", 3), ("L", 4)] {
        worker.receive(key, connection, Command::Set("1"));
    }
    worker.serve(4);
    let mut actions = Vec::new();
    worker.windows.close_where(|operation| operation.connection == 2, &mut actions);
    worker.carry_out(actions);
    assert_eq!(worker.answered(), [0, 1]);
    assert_eq!(worker.closed, [(2, CloseReason::Barrier)]);
}

#[test]
fn when_all_windows_are_in_use_writes_run_at_once() {
    let mut worker = Worker::new(WindowRules { close: CloseWhen::Deadline, ..rules() }, 1);
    for key in ["K", "K", "L", "L"] {
        worker.receive(key, 0, Command::Set("1"));
    }
    worker.serve(4);
    assert_eq!(worker.answered(), [2, 3]);
    assert_eq!(worker.windows.counters().refused_count, 1);
}

#[test]
#[should_panic(expected = "I4")]
fn a_closed_window_must_be_taken_before_anything_else_is_admitted() {
    let mut worker = Worker::new(rules(), 4);
    let mut actions = Vec::new();
    worker.receive("K", 0, Command::Set("1"));
    worker.receive("K", 0, Command::Set("2"));
    worker.serve(1);
    worker.windows.elapse(Instant { ns: u64::MAX / 2 }, &mut actions);
    worker.serve(1);
}

#[derive(Clone, Debug)]
enum Event {
    Receive { key: &'static str, connection: u64, command: Command },
    Serve { batch_max: usize },
    Elapse { ns: u64 },
    Drain,
}

fn any_event() -> impl Strategy<Value = Event> {
    let command = prop_oneof![
        2 => Just(Command::Get),
        2 => Just(Command::Set("7")),
        1 => Just(Command::Del),
        1 => Just(Command::SetNx("1")),
        3 => Just(Command::Incr),
    ];
    let key = prop::sample::select(vec!["K", "L", "M"]);
    prop_oneof![
        6 => (key, 0..4_u64, command)
            .prop_map(|(key, connection, command)| Event::Receive { key, connection, command }),
        3 => (1..8_usize).prop_map(|batch_max| Event::Serve { batch_max }),
        1 => (1..3_000_u64).prop_map(|ns| Event::Elapse { ns }),
        1 => Just(Event::Drain),
    ]
}

fn any_rules() -> impl Strategy<Value = WindowRules> {
    let close = vec![CloseWhen::Deadline, CloseWhen::KeyDrained, CloseWhen::QueueEmpty];
    (prop::sample::select(close), 2..6_usize).prop_map(|(close, batch_max)| WindowRules {
        close,
        batch_max,
        ..rules()
    })
}

fn run_stream(rules: WindowRules, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut worker = Worker::new(rules, 2);
    let mut received = Vec::new();
    for event in events {
        match event {
            Event::Receive { key, connection, command } => {
                let id = worker.receive(key, connection, command.clone());
                received.push(Operation { id, key, connection, command });
            }
            Event::Serve { batch_max } => worker.serve(batch_max),
            Event::Elapse { ns } => {
                worker.elapse(ns);
                let rings_next_at = worker.windows.rings_next_at();
                prop_assert!(rings_next_at.is_none_or(|at| at > worker.now), "I3");
            }
            Event::Drain => worker.drain(),
        }
    }
    worker.serve(usize::MAX);
    worker.elapse(rules.deadline_ns);
    prop_assert_eq!(worker.windows.open_count(), 0, "a window always closes");
    check_order(&worker, &received)?;
    check_answers(&worker, &received)
}

/// Checks that each operation is answered once, and that writes of a key, and one connection's
/// requests for a key, are answered in the order of arrival.
fn check_order(worker: &Worker, received: &[Operation]) -> Result<(), TestCaseError> {
    let answered: Vec<_> = worker.replies.iter().map(|(id, _)| &received[*id]).collect();
    for key in ["K", "L", "M"] {
        let of_key = || answered.iter().filter(|one| one.key == key);
        let writes = of_key().filter(|one| one.effect().is_write());
        prop_assert!(writes.is_sorted_by_key(|one| one.id));
        for connection in 0..4 {
            let asked = of_key().filter(|one| one.connection == connection);
            prop_assert!(asked.is_sorted_by_key(|one| one.id));
        }
    }
    let mut ids = worker.answered();
    ids.sort_unstable();
    prop_assert_eq!(ids, (0..received.len()).collect::<Vec<_>>());
    Ok(())
}

/// Checks that each write is answered as by a store without windows. Each read returns the value of
/// a write that is no older than the last one answered before the read, and no older than its
/// connection's own.
fn check_answers(worker: &Worker, received: &[Operation]) -> Result<(), TestCaseError> {
    let mut one_by_one = Store::default();
    // The store after each operation, so that a read can be checked against any moment.
    let mut moments = vec![one_by_one.clone()];
    for operation in received {
        let (place, (_, answer)) = (worker.replies.iter().enumerate())
            .find(|(_, (id, _))| *id == operation.id)
            .expect("answered");
        let want = one_by_one.run(operation);
        moments.push(one_by_one.clone());
        if operation.effect().is_write() {
            prop_assert_eq!(answer, &want, "{:?}", operation);
            continue;
        }
        let is_write_before = |id: usize| {
            let other = &received[id];
            id < operation.id && other.key == operation.key && other.effect().is_write()
        };
        let answered_before = worker.replies[..place].iter().map(|(id, _)| *id);
        let own = (0..operation.id).filter(|id| received[*id].connection == operation.connection);
        let seen = answered_before.chain(own).filter(|id| is_write_before(*id)).max();
        let oldest = seen.map_or(0, |id| id + 1);
        let legal = moments[oldest..].iter().any(|store| store.clone().run(operation) == *answer);
        prop_assert!(legal, "{:?} was answered {:?}", operation, answer);
    }
    prop_assert_eq!(worker.store.contents(), one_by_one.contents());
    Ok(())
}

proptest! {
    #[test]
    fn windows_lose_nothing_reorder_nothing_and_always_close(
        rules in any_rules(),
        events in prop::collection::vec(any_event(), 1..60),
    ) {
        run_stream(rules, events)?;
    }
}
