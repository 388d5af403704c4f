//! Compaction's windows alone: whatever is received, and whenever they close, replies are those of
//! a plain map.
//!
//! ```text
//!  bytes ─▶ steps ─▶ queue ─▶ Windows ─▶ Run, or Close ─▶ Plan::execute ─▶ replies, store
//!                                                                │
//!                            a map, in the order in which operations come out: the same
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use base::{Instant, KeyHash};
use policy::window::{
    Action, Ahead, Change, Compactable, ConnectionId, Effect, Executor, FinalWrite, Plan,
    WindowRules, Windows,
};

const WINDOWS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Get,
    Set(i64),
    Delete,
    Increase(i64),
    SetIfAbsent(i64),
    /// Replaces this value by the next.
    Compare(i64),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    /// Its place among all that were received.
    number: usize,
    key: [u8; 1],
    connection: u64,
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Value(Option<i64>),
    Stored,
    Removed(bool),
    Done(bool),
}

impl Compactable for Operation {
    /// Two keys share a hash, which is not a key (K8).
    fn key_hash(&self) -> KeyHash {
        KeyHash(u64::from(self.key[0] / 2))
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn effect(&self) -> Effect {
        match self.command {
            Command::Get => Effect::Read,
            Command::Set(_) => Effect::Set,
            Command::Delete => Effect::Delete,
            Command::Increase(_) | Command::SetIfAbsent(_) | Command::Compare(_) => Effect::Modify,
        }
    }

    fn connection(&self) -> ConnectionId {
        ConnectionId(self.connection)
    }
}

/// What a command makes of a value.
fn apply(command: Command, value: &mut Option<i64>) -> Reply {
    match command {
        Command::Get => Reply::Value(*value),
        Command::Set(new) => {
            *value = Some(new);
            Reply::Stored
        }
        Command::Delete => Reply::Removed(value.take().is_some()),
        Command::Increase(by) => {
            *value = Some(value.unwrap_or(0).wrapping_add(by));
            Reply::Value(*value)
        }
        Command::SetIfAbsent(new) => {
            let is_absent = value.is_none();
            *value = value.or(Some(new));
            Reply::Done(is_absent)
        }
        Command::Compare(old) => {
            let matches = *value == Some(old);
            *value = if matches { Some(old + 1) } else { *value };
            Reply::Done(matches)
        }
    }
}

/// What a worker has, besides its windows.
#[derive(Default)]
struct Store {
    values: BTreeMap<u8, i64>,
    model: BTreeMap<u8, i64>,
    /// In the order in which they came out.
    out: Vec<Operation>,
}

fn put(values: &mut BTreeMap<u8, i64>, key: u8, value: Option<i64>) {
    match value {
        Some(value) => _ = values.insert(key, value),
        None => _ = values.remove(&key),
    }
}

impl Executor<Operation> for Store {
    type Value = i64;
    type Reply = Reply;
    type Error = Infallible;

    fn load(&mut self, operation: &Operation) -> Option<i64> {
        self.values.get(&operation.key[0]).copied()
    }

    fn value_of(&mut self, set: &Operation) -> i64 {
        let Command::Set(value) = set.command else { panic!("{set:?} is no SET") };
        value
    }

    fn replay(&mut self, operation: &Operation, value: &mut Option<i64>) -> (Reply, Change) {
        let before = *value;
        let reply = apply(operation.command, value);
        (reply, if *value == before { Change::Unchanged } else { Change::Changed })
    }

    fn reply_stored(&mut self, _: &Operation) -> Reply {
        Reply::Stored
    }

    fn reply_removed(&mut self, _: &Operation, found: bool) -> Reply {
        Reply::Removed(found)
    }

    fn write(&mut self, write: FinalWrite<'_, Operation, i64>) -> Result<(), Infallible> {
        match write {
            FinalWrite::Operation(operation) => _ = self.run(operation),
            FinalWrite::Value { operation, value } => {
                put(&mut self.values, operation.key[0], value);
            }
        }
        Ok(())
    }
}

impl Store {
    fn run(&mut self, operation: &Operation) -> Reply {
        let mut value = self.values.get(&operation.key[0]).copied();
        let reply = apply(operation.command, &mut value);
        put(&mut self.values, operation.key[0], value);
        reply
    }

    /// An operation has come out with a reply: it is that of the map.
    fn check(&mut self, operation: Operation, reply: Reply) {
        let mut value = self.model.get(&operation.key[0]).copied();
        assert_eq!(reply, apply(operation.command, &mut value), "{operation:?}");
        put(&mut self.model, operation.key[0], value);
        self.out.push(operation);
    }

    fn carry_out(&mut self, windows: &mut Windows<Operation>, actions: Vec<Action<Operation>>) {
        for action in actions {
            match action {
                Action::Run(operation) => {
                    let reply = self.run(&operation);
                    self.check(operation, reply);
                }
                Action::Close { window, .. } => {
                    let (mut plan, mut replies) = (Plan::default(), Vec::new());
                    windows.take(window, &mut plan);
                    let Ok(()) = plan.execute(self, &mut replies);
                    let operations = plan.operations().to_vec();
                    assert_eq!(operations.len(), replies.len(), "one reply each");
                    for (operation, reply) in operations.into_iter().zip(replies) {
                        self.check(operation, reply);
                    }
                }
                Action::ArmTimer { .. } => {}
            }
        }
        assert_eq!(self.values, self.model, "what is stored is what was answered");
        windows.validate();
    }

    /// Writes of a key come out in the order in which they were received, and so does everything
    /// that one connection asks about a key; nothing is lost and nothing done twice.
    fn check_order(&self, received_count: usize) {
        let mut is_out = vec![false; received_count];
        for operation in &self.out {
            assert!(!std::mem::replace(&mut is_out[operation.number], true), "{operation:?} twice");
        }
        assert!(is_out.iter().all(|is_out| *is_out), "one is lost");
        let mut last_write = BTreeMap::new();
        let mut last_of_connection = BTreeMap::new();
        for Operation { number, key, connection, .. } in &self.out {
            let before = last_of_connection.insert((*key, *connection), *number);
            assert!(before < Some(*number), "K10");
        }
        for operation in self.out.iter().filter(|operation| operation.effect().is_write()) {
            let before = last_write.insert(operation.key, operation.number);
            assert!(before < Some(operation.number), "a write has overtaken another");
        }
    }
}

/// An input is `service time | SLO | hold | steps of 3 bytes`.
pub fn windows(data: &[u8]) {
    let Some(([service, slo, hold], steps)) = data.split_first_chunk() else { return };
    let mut rules = WindowRules::honest(1 + u64::from(*service), 2 + u64::from(slo % 30));
    rules.hold_ns = u64::from(*hold) * 4;
    rules.batch_max = 2 + usize::from(slo / 30);
    let mut windows = Windows::new(rules, WINDOWS_MAX);
    let (mut store, mut queue, mut now) = (Store::default(), VecDeque::new(), 0_u64);
    let mut received_count = 0;
    for [what, actor, how] in steps.as_chunks::<3>().0 {
        let mut actions = Vec::new();
        let value = i64::from(how % 4);
        let command = match what % 12 {
            0 | 1 => Some(Command::Get),
            2 | 3 => Some(Command::Set(value)),
            4 => Some(Command::Delete),
            5 | 6 => Some(Command::Increase(value)),
            7 => Some(Command::SetIfAbsent(value)),
            8 => Some(Command::Compare(value)),
            _ => None,
        };
        if let Some(command) = command {
            let (key, connection) = ([actor % 5], u64::from(actor / 5 % 3));
            queue.push_back(Operation { number: received_count, key, connection, command });
            received_count += 1;
            continue;
        }
        match what % 12 {
            9 => serve(&mut windows, &mut store, &mut queue, now, 1 + usize::from(actor % 8)),
            10 => {
                now += u64::from(*how) * 8;
                let at = Instant { ns: now };
                windows.drain(at, ahead(&queue, 0), &mut actions);
                store.carry_out(&mut windows, std::mem::take(&mut actions));
                windows.elapse(at, &mut actions);
            }
            _ => {
                let connection = u64::from(actor % 3);
                windows.close_where(|operation| operation.connection == connection, &mut actions);
            }
        }
        store.carry_out(&mut windows, actions);
    }
    serve(&mut windows, &mut store, &mut queue, now, usize::MAX);
    // Each window has a timer, and closes when it has rung for the last time.
    for _ in 0..2 * WINDOWS_MAX {
        let Some(at) = windows.rings_next_at() else { break };
        let mut actions = Vec::new();
        now = now.max(at.ns);
        windows.elapse(Instant { ns: now }, &mut actions);
        store.carry_out(&mut windows, actions);
    }
    assert_eq!(windows.open_count(), 0, "a window stays open");
    store.check_order(received_count);
}

/// What waits behind the first `skipped` of the queue: all of it in the queue.
fn ahead(
    queue: &VecDeque<Operation>,
    skipped: usize,
) -> Ahead<
    std::iter::Empty<&Operation>,
    std::iter::Skip<std::collections::vec_deque::Iter<'_, Operation>>,
> {
    Ahead { batch: std::iter::empty(), queued: queue.iter().skip(skipped) }
}

/// Takes up to so many operations from the queue.
fn serve(
    windows: &mut Windows<Operation>,
    store: &mut Store,
    queue: &mut VecDeque<Operation>,
    now: u64,
    count_max: usize,
) {
    for _ in 0..count_max {
        let Some(operation) = queue.pop_front() else { return };
        let mut actions = Vec::new();
        windows.admit(Instant { ns: now }, operation, ahead(queue, 0), &mut actions);
        store.carry_out(windows, actions);
    }
}
