//! Tests of nodes message by message: the path of a write, of a retry, of a promotion.

mod cold;
mod groups;
mod later;
mod room;

use super::*;
use crate::configuration::{Shard, even_ranges};
use crate::ids::ClientId;
use crate::message::{Hold, Operation, Outcome, Request};
use crate::record::{Answered, Entry};
use crate::replica_store::{Above, Installed, MemoryReplicaStore};
use crate::scheme::Way;

const MS: u64 = 1_000_000;
const SHARD: ShardId = ShardId(0);

/// Nodes that get each other's messages at once, in order, unless a test removes some.
struct Bench {
    nodes: Vec<Node<MemoryReplicaStore>>,
    now: Instant,
    replies: Vec<(u64, Outcome)>,
    /// Frames that have not landed yet: from, to, term, way, bytes.
    frames: Vec<Flying>,
    /// The versions of the unions that were scattered.
    unions: Vec<Vec<Version>>,
}

type Flying = (NodeId, NodeId, Term, Way, Arc<[u8]>);

fn id(name: u16) -> NodeId {
    NodeId { name, incarnation: 1 }
}

fn configuration(term: u64, epoch: u16, primary: u16, backups: &[u16]) -> Arc<Configuration> {
    let (first, last) = even_ranges(1).next().unwrap();
    let backups: Vec<NodeId> = backups.iter().copied().map(id).collect();
    let mut members: Vec<NodeId> = backups.iter().copied().chain([id(primary)]).collect();
    members.sort_unstable();
    let primary = id(primary);
    let (joining, filling_from, waiting) = (None, None, Vec::new());
    let shard = Shard { first, last, epoch, primary, backups, joining, filling_from, waiting };
    let addresses = BTreeMap::new();
    Arc::new(Configuration { term: Term(term), members, shards: vec![shard], addresses })
}

impl Bench {
    /// Nodes 0 to 2; node 0 serves.
    fn new() -> Bench {
        Bench::by(Scheme::Rowan)
    }

    fn by(scheme: Scheme) -> Bench {
        Bench::with(Settings { scheme, ..Settings::default() })
    }

    fn with(settings: Settings) -> Bench {
        let node = |name| Node::new(id(name), settings, 1, MemoryReplicaStore::default());
        let nodes = (0..3).map(node).collect();
        let now = Instant { ns: MS };
        let mut bench =
            Bench { nodes, now, replies: Vec::new(), frames: Vec::new(), unions: Vec::new() };
        bench.install(&configuration(1, 1, 0, &[1, 2]), &[0, 1, 2]);
        bench
    }

    fn install(&mut self, configuration: &Arc<Configuration>, names: &[u16]) {
        let from = Peer::Manager(0);
        for name in names {
            let message = Message::Install(configuration.clone());
            self.input(*name, Event::Message { from, message });
        }
        for name in names {
            let (sent_at, term) = (self.now, configuration.term);
            let message = Message::Granted { sent_at, term, is_committed: true };
            self.input(*name, Event::Message { from, message });
        }
        // A question sent before the others had installed is sent again.
        self.now = after(self.now, 2 * MS);
        names.iter().for_each(|name| self.input(*name, Event::Tick));
    }

    fn input(&mut self, name: u16, event: Event<'_>) {
        let mut actions = Vec::new();
        let node = &mut self.nodes[usize::from(name)];
        node.input(event, self.now, &mut actions);
        if node.has_steps() {
            node.input(Event::Step, self.now, &mut actions);
        }
        self.act(name, actions);
    }

    fn act(&mut self, name: u16, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { to: Peer::Node(to), message } => {
                    if let Message::Scatter { contents, .. } = &message {
                        let versions = contents.entries.iter().map(|entry| entry.version);
                        self.unions.push(versions.collect());
                    }
                    let from = Peer::Node(id(name));
                    self.input(to.name, Event::Message { from, message });
                }
                Action::Send { message: Message::Reply { sequence, outcome }, .. } => {
                    self.replies.push((sequence, outcome));
                }
                Action::Land { to, term, way, bytes } => {
                    self.frames.push((id(name), to, term, way, bytes));
                }
                _ => {}
            }
        }
    }

    fn land(&mut self, is_wanted: impl Fn(NodeId) -> bool) {
        let (now, later) = self.frames.drain(..).partition(|(_, to, ..)| is_wanted(*to));
        self.frames = later;
        let now: Vec<Flying> = now;
        for (from, to, term, way, bytes) in now {
            self.input(to.name, Event::Landed { lane: Lane { from, term }, way, bytes: &bytes });
        }
    }

    fn ask(&mut self, name: u16, sequence: u64, operation: Operation) {
        self.ask_of(b"k", name, sequence, operation);
    }

    fn ask_of(&mut self, key: &[u8], name: u16, sequence: u64, operation: Operation) {
        let request = Request { client: ClientId(1), sequence, key: key.into(), operation };
        let from = Peer::Client(request.client);
        self.input(name, Event::Message { from, message: Message::Request(request) });
    }

    /// The nodes that the primary reports as overdue after this time.
    fn overdue_after(&mut self, after_ns: u64) -> Vec<NodeId> {
        self.now = after(self.now, after_ns);
        let mut actions = Vec::new();
        self.nodes[0].input(Event::Tick, self.now, &mut actions);
        let named = actions.into_iter().filter_map(|action| match action {
            Action::Send { message: Message::Overdue { node, .. }, .. } => Some(node),
            _ => None,
        });
        named.collect()
    }

    #[track_caller]
    fn expect(&mut self, want: &[(u64, Outcome)]) {
        assert_eq!(std::mem::take(&mut self.replies), want);
    }
}

fn put(text: &str) -> Operation {
    Operation::Put(text.as_bytes().into())
}

fn value(text: &str) -> Outcome {
    Outcome::Value(Some(text.as_bytes().into()))
}

#[test]
fn a_write_is_visible_and_answered_when_all_have_it() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.ask(0, 9, Operation::Get);
    bench.expect(&[(9, Outcome::Value(None))]);
    bench.land(|to| to == id(1));
    bench.expect(&[]);
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Done)]);
    bench.ask(0, 9, Operation::Get);
    bench.expect(&[(9, value("1"))]);
}

#[test]
fn a_flush_ends_after_what_is_older_and_nothing_newer_begins_meanwhile() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    let late: Vec<Flying> = bench.frames.extract_if(.., |frame| frame.1 == id(2)).collect();
    bench.land(|_| true);
    bench.ask(0, 2, Operation::Flush);
    bench.ask(0, 3, Operation::Increment(5));
    bench.land(|_| true);
    bench.expect(&[]);
    // The older write lands behind the flush.
    bench.frames.extend(late);
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Done), (2, Outcome::Done)]);
    bench.land(|_| true);
    bench.expect(&[(3, Outcome::Integer(5))]);
    for node in &mut bench.nodes {
        node.digest_all();
        let entries = node.replica_store().all_above(SHARD, Version::ZERO);
        let values: Vec<_> = entries.iter().filter_map(|entry| entry.value.as_deref()).collect();
        assert_eq!(values, [b"5"]);
    }
}

#[test]
fn what_is_on_all_copies_is_said_behind_what_landed_in_any_log() {
    for scheme in Scheme::ALL {
        let mut bench = Bench::by(scheme);
        bench.ask(0, 1, put("1"));
        bench.land(|_| true);
        bench.expect(&[(1, Outcome::Done)]);
        // Its CommitVer lands in another log, and nothing is digested yet.
        bench.now = after(bench.now, 20 * MS);
        bench.input(0, Event::Tick);
        bench.land(|_| true);
        bench.nodes[1].digest_all();
        let commit = bench.nodes[1].shards.commit_version(SHARD);
        assert!(commit > Some(Version::before_epoch(1)), "{scheme}");
        let found =
            bench.nodes[1].replica_store().get(SHARD, b"k").and_then(|entry| entry.value.clone());
        assert_eq!(found.as_deref(), Some(&b"1"[..]), "{scheme}");
        assert_eq!(bench.nodes[1].landing_counters().streams, 1, "{scheme}");
    }
}

#[test]
fn a_request_that_is_sent_again_is_answered_again_and_not_executed() {
    let mut bench = Bench::new();
    bench.ask(0, 1, Operation::Increment(5));
    bench.ask(0, 1, Operation::Increment(5));
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Integer(5))]);
    bench.ask(0, 1, Operation::Increment(5));
    bench.expect(&[(1, Outcome::Integer(5))]);
    assert_eq!(bench.nodes[0].version(SHARD).unwrap().bits() & 0xffff, 1);
}

#[test]
fn a_sum_lands_together_with_what_it_was_computed_on() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.frames.clear();
    bench.ask(0, 2, Operation::Increment(1));
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Done), (2, Outcome::Integer(2))]);
}

#[test]
fn a_node_without_a_lease_promises_nothing() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.now = after(bench.now, Settings::default().lease_ns);
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Unknown)]);
    bench.ask(0, 9, Operation::Get);
    bench.expect(&[(9, Outcome::TryAgain)]);
}

#[test]
fn a_new_primary_has_what_any_copy_had_and_the_old_term_is_fenced() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.land(|to| to == id(2));
    let late = std::mem::take(&mut bench.frames);
    bench.install(&configuration(2, 2, 1, &[2]), &[1, 2]);
    bench.ask(1, 9, Operation::Get);
    bench.expect(&[(9, value("1"))]);
    // Its client sends it again: it was executed.
    bench.ask(1, 1, put("1"));
    bench.expect(&[(1, Outcome::Done)]);
    bench.frames = late;
    bench.land(|_| true);
    assert_eq!(bench.nodes[1].landing_counters().fenced, 1);
    assert!(bench.nodes[1].version(SHARD) >= Some(Version::before_epoch(2)));
}

#[test]
fn with_too_few_copies_writes_are_refused_and_reads_go_on() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.land(|_| true);
    bench.ask(0, 2, put("2"));
    bench.install(&configuration(2, 1, 0, &[]), &[0]);
    bench.replies.clear();
    bench.ask(0, 3, put("3"));
    bench.ask(0, 9, Operation::Get);
    bench.expect(&[(3, Outcome::TooFewCopies), (9, value("1"))]);
}

#[test]
fn while_copies_wait_a_new_primary_shows_nothing_that_they_lack_and_they_keep_all() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.land(|_| true);
    // Only node 1 gets the second one, and no client gets an answer.
    bench.ask(0, 2, put("2"));
    bench.land(|to| to == id(1));
    bench.frames.clear();
    bench.replies.clear();
    let waiting = |term, primary, epoch, waiting: &[u16]| {
        let mut alone = (*configuration(term, epoch, primary, &[])).clone();
        alone.shards[0].waiting = waiting.iter().copied().map(id).collect();
        Arc::new(alone)
    };
    bench.install(&waiting(2, 1, 2, &[0, 2]), &[1]);
    bench.ask(1, 9, Operation::Get);
    bench.expect(&[(9, Outcome::TryAgain)]);
    // They install it, and so does the old primary; no data is lost.
    bench.install(&waiting(2, 1, 2, &[0, 2]), &[0, 2]);
    assert!(!bench.nodes[0].serves(SHARD, bench.now));
    bench.expect(&[]);
    bench.nodes[2].digest_all();
    let found =
        bench.nodes[2].replica_store().get(SHARD, b"k").and_then(|entry| entry.value.clone());
    assert_eq!(found.as_deref(), Some(&b"1"[..]));
    // The old primary is released: it cannot say anything about the writes under way.
    bench.install(&configuration(3, 3, 1, &[2]), &[0, 1, 2]);
    bench.expect(&[(2, Outcome::Unknown)]);
    bench.ask(1, 9, Operation::Get);
    bench.expect(&[(9, value("2"))]);
    let found =
        bench.nodes[2].replica_store().get(SHARD, b"k").and_then(|entry| entry.value.clone());
    assert_eq!(found.as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_primary_that_loses_its_copies_goes_on_with_reads_while_they_wait() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.land(|_| true);
    bench.replies.clear();
    let mut alone = (*configuration(2, 1, 0, &[])).clone();
    alone.shards[0].waiting = vec![id(1), id(2)];
    bench.install(&Arc::new(alone), &[0]);
    bench.ask(0, 9, Operation::Get);
    bench.ask(0, 3, put("3"));
    bench.expect(&[(9, value("1")), (3, Outcome::TooFewCopies)]);
}

#[test]
fn a_write_under_way_when_its_shard_moves_is_answered_when_all_copies_have_it() {
    let mut bench = Bench::new();
    bench.ask(0, 1, Operation::Increment(5));
    bench.frames.clear(); // No other node has it.
    bench.install(&configuration(2, 2, 1, &[0, 2]), &[0, 1, 2]);
    bench.expect(&[]);
    bench.now = after(bench.now, Settings::default().commit_interval_ns);
    bench.input(1, Event::Tick);
    bench.land(|_| true);
    (0..2).for_each(|name| bench.nodes[name].digest_all());
    bench.input(0, Event::Tick);
    bench.expect(&[(1, Outcome::Integer(5))]);
}

/// Actions of one event.
fn actions_of(node: &mut Node<MemoryReplicaStore>, event: Event<'_>, now: Instant) -> Vec<Action> {
    let mut actions = Vec::new();
    node.input(event, now, &mut actions);
    actions
}

#[test]
fn a_gather_that_comes_again_before_its_answer_has_left_is_answered_once_in_bounded_steps() {
    const ENTRIES: usize = 3_000;
    let mut bench = Bench::new();
    let now = bench.now;
    let version = |number: usize| {
        Version::from_bits(Version::before_epoch(2).bits() + number as u64 + 1).unwrap()
    };
    for number in 0..ENTRIES {
        let key: Arc<[u8]> = number.to_string().into_bytes().into();
        bench.nodes[1].replica_store.install(Arc::new(Entry { key, ..entry(version(number), 3) }));
    }
    let node = &mut bench.nodes[1];
    node.take_work();
    let gather = || Message::Gather { term: Term(1), shard: SHARD };
    for _ in 0..20 {
        let from = Peer::Node(id(0));
        let actions = actions_of(node, Event::Message { from, message: gather() }, now);
        assert_eq!((actions, node.take_work()), (Vec::new(), 0), "nothing is looked up at once");
    }
    let mut answers = Vec::new();
    while node.has_steps() {
        answers.extend(actions_of(node, Event::Step, now));
        assert!((1..=1_024).contains(&node.take_work()));
    }
    let found = answers.iter().map(|action| match action {
        Action::Send { message: Message::Gathered { contents, .. }, .. } => contents.entries.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(found.collect::<Vec<_>>(), [ENTRIES]);
}

#[test]
fn a_new_primary_asks_silent_copies_less_and_less_often() {
    let mut bench = Bench::new();
    let message = Message::Install(configuration(2, 2, 1, &[2]));
    let from = Peer::Manager(0);
    let node = &mut bench.nodes[1];
    let mut actions = actions_of(node, Event::Message { from, message }, bench.now);
    let settings = Settings::default();
    for tick in 1..=10 * settings.lease_ns / MS {
        let now = after(bench.now, tick * MS);
        actions.extend(actions_of(node, Event::Tick, now));
    }
    let is_gather =
        |action: &&Action| matches!(action, Action::Send { message: Message::Gather { .. }, .. });
    // At once, after 2 ms, 4 ms, 8 ms, and then once a lease.
    let count = actions.iter().filter(is_gather).count();
    assert!((8..=14).contains(&count), "{count}");
}

#[test]
fn a_backup_that_takes_nothing_is_named_to_the_managers() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("1"));
    bench.land(|to| to == id(1));
    let settings = Settings::default();
    assert_eq!(bench.overdue_after(settings.patience_ns() / 2), []);
    assert_eq!(bench.overdue_after(settings.patience_ns() / 2), [id(2)]);
    assert_eq!(bench.overdue_after(MS), [], "not with every tick");
    bench.land(|_| true);
    assert_eq!(bench.overdue_after(settings.patience_ns()), []);
}

#[test]
fn a_backup_that_takes_other_writes_has_longer_unless_its_log_is_full() {
    let patience_ns = Settings::default().patience_ns();
    let waiting = || {
        let mut bench = Bench::new();
        bench.ask(0, 1, put("1"));
        bench.land(|to| to == id(1));
        bench
    };
    let hear = |bench: &mut Bench, message| {
        let from = Peer::Node(id(2));
        bench.input(0, Event::Message { from, message });
    };
    let acked = || Message::Acked { term: Term(1), blocks: Vec::new() };
    let mut bench = waiting();
    for _ in 0..3 {
        hear(&mut bench, acked());
        assert_eq!(bench.overdue_after(patience_ns - MS), []);
    }
    (0..2).for_each(|_| hear(&mut bench, acked()));
    assert_eq!(bench.overdue_after(patience_ns), [id(2)]);
    let mut bench = waiting();
    assert_eq!(bench.overdue_after(patience_ns / 2), []);
    hear(&mut bench, acked());
    hear(&mut bench, Message::Crowded { term: Term(1), shard: SHARD });
    assert_eq!(bench.overdue_after(patience_ns / 2), [id(2)]);
}

/// A replica store that is the log, and refuses entries when a test says so.
#[derive(Debug, Default)]
struct TightReplicaStore {
    replica_store: MemoryReplicaStore,
    is_full: std::cell::Cell<bool>,
    /// Values beyond this length are refused too.
    room_bytes: std::cell::Cell<Option<usize>>,
    /// Whether there is no memory for assembling entries.
    lacks_memory: std::cell::Cell<bool>,
    /// A handle for each booking of that memory.
    held: Arc<()>,
}

impl ReplicaStore for TightReplicaStore {
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.replica_store.get(shard, key)
    }

    fn install(&mut self, entry: Arc<Entry>) -> Installed {
        let len_bytes = entry.value.as_ref().map_or(0, |value| value.len());
        let is_large = self.room_bytes.get().is_some_and(|room_bytes| len_bytes > room_bytes);
        match self.is_full.get() || is_large {
            true => Installed::NoRoom,
            false => self.replica_store.install(entry),
        }
    }

    fn try_hold(&self, _bytes: u64) -> Option<Hold> {
        (!self.lacks_memory.get()).then(|| Hold::new(Arc::clone(&self.held)))
    }

    fn is_log(&self) -> bool {
        true
    }

    fn above(&self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above> {
        self.replica_store.above(shard, floor, entry_max)
    }

    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> crate::replica_store::Part {
        self.replica_store.part(shard, cursor, entry_max)
    }

    fn clear(&mut self, shard: ShardId) {
        self.replica_store.clear(shard);
    }

    fn commit(&mut self, shard: ShardId, version: Version) {
        self.replica_store.commit(shard, version);
    }

    fn forget_deletes(&mut self, shard: ShardId, through: Version) {
        self.replica_store.forget_deletes(shard, through);
    }
}

fn entry(version: Version, len_bytes: usize) -> Entry {
    Entry {
        shard: SHARD,
        version,
        client: ClientId::NONE,
        sequence: 0,
        answered: Answered::Done,
        key: (*b"k").into(),
        value: Some(vec![7; len_bytes].into()),
        is_flush: false,
        client_flags: 0,
        expires_at: None,
    }
}

/// A backup, without room, of node 0; and its messages.
fn tight_backup() -> (Node<TightReplicaStore>, Vec<Action>) {
    let mut node = Node::new(id(1), Settings::default(), 1, TightReplicaStore::default());
    let from = Peer::Manager(0);
    let message = Message::Install(configuration(1, 1, 0, &[1, 2]));
    node.input(Event::Message { from, message }, Instant { ns: MS }, &mut Vec::new());
    node.replica_store().is_full.set(true);
    (node, Vec::new())
}

fn acked(actions: &[Action]) -> usize {
    let blocks = actions.iter().map(|action| match action {
        Action::Send { message: Message::Acked { blocks, .. }, .. } => blocks.len(),
        _ => 0,
    });
    blocks.sum()
}

#[test]
fn the_last_block_of_an_entry_without_room_makes_it_whole_when_it_comes_again() {
    let (mut node, mut actions) = tight_backup();
    let entry = entry(Version::before_epoch(1).next().unwrap(), 5_000);
    let blocks = entry.blocks(Settings::default().datagram_bytes);
    let lane = Lane { from: id(0), term: Term(1) };
    let way = Way { thread: 1, at: None };
    let now = Instant { ns: MS };
    for bytes in &blocks {
        node.input(Event::Landed { lane, way, bytes }, now, &mut actions);
    }
    assert_eq!(acked(&actions), blocks.len() - 1);
    let crowded = Message::Crowded { term: Term(1), shard: SHARD };
    assert!(actions.contains(&to_node(id(0), crowded)));
    node.replica_store().is_full.set(false);
    let bytes = blocks.last().unwrap();
    node.input(Event::Landed { lane, way, bytes }, now, &mut actions);
    assert_eq!(acked(&actions), blocks.len());
    assert_eq!(node.replica_store().get(SHARD, b"k").as_deref(), Some(&entry));
}

#[test]
fn what_a_worker_has_acknowledged_without_room_is_gathered_from_the_backlog() {
    let (mut node, mut actions) = tight_backup();
    let entry = entry(Version::before_epoch(1).next().unwrap(), 50);
    let lane = Lane { from: id(0), term: Term(1) };
    let blocks = entry.blocks(Settings::default().datagram_bytes);
    let now = Instant { ns: MS };
    node.input(Event::Executed { lane, bytes: &blocks[0] }, now, &mut actions);
    assert!(node.has_backlog() && node.replica_store().get(SHARD, b"k").is_none(), "W2");
    let message = Message::Gather { term: Term(1), shard: SHARD };
    node.input(Event::Message { from: Peer::Node(id(0)), message }, now, &mut actions);
    node.input(Event::Step, now, &mut actions);
    let gathered = actions.iter().find_map(|action| match action {
        Action::Send { message: Message::Gathered { contents, .. }, .. } => Some(contents),
        _ => None,
    });
    assert_eq!(gathered.unwrap().entries, [Arc::new(entry.clone())], "W1");
    node.replica_store().is_full.set(false);
    node.input(Event::Tick, now, &mut actions);
    assert!(!node.has_backlog());
    assert_eq!(node.replica_store().get(SHARD, b"k").as_deref(), Some(&entry));
}

#[test]
fn nothing_is_taken_of_a_frame_behind_what_has_no_room() {
    let (mut node, mut actions) = tight_backup();
    let first = Version::before_epoch(1).next().unwrap();
    let (large, small) = (entry(first, 500), entry(first.next().unwrap(), 5));
    node.replica_store().is_full.set(false);
    node.replica_store().room_bytes.set(Some(100));
    let mut frame = Vec::new();
    large.append(&mut frame);
    small.append(&mut frame);
    let (lane, way) = (Lane { from: id(0), term: Term(1) }, Way { thread: 1, at: None });
    let now = Instant { ns: MS };
    node.input(Event::Landed { lane, way, bytes: &frame }, now, &mut actions);
    assert_eq!((acked(&actions), node.replica_store().get(SHARD, b"k")), (0, None), "N5");
    node.replica_store().room_bytes.set(None);
    node.input(Event::Landed { lane, way, bytes: &frame }, now, &mut actions);
    assert_eq!(acked(&actions), 2);
}
