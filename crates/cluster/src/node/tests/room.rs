//! Tests of the memory that writes take while under way: it is requested first and returned
//! afterwards.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::message::{Change, ChangeKind, Changed, Compute, Contents};

/// Makes a value if there is memory for it.
#[derive(Default)]
struct Making {
    has_room: AtomicBool,
    held: Arc<()>,
}

impl Change for Making {
    fn compute(&self, _current: Option<&Entry>, _version: Version) -> Changed {
        match self.has_room.load(Ordering::Relaxed) {
            true => Changed::Value { value: [7; 9].into(), client_flags: 0, expires_at: None },
            false => Changed::NoRoom,
        }
    }

    fn kind(&self) -> ChangeKind {
        ChangeKind::Update
    }

    fn hold(&self) -> Hold {
        Hold::new(Arc::clone(&self.held))
    }
}

#[test]
fn a_write_without_memory_is_asked_again_and_its_books_end_with_it() {
    let (mut bench, making) = (Bench::new(), Arc::new(Making::default()));
    bench.frames.clear();
    bench.ask(0, 1, Operation::Compute(Compute(making.clone())));
    assert_eq!(bench.replies, [(1, Outcome::TryAgain)]);
    assert!(bench.frames.is_empty() && Arc::strong_count(&making.held) == 1);
    making.has_room.store(true, Ordering::Relaxed);
    bench.ask(0, 2, Operation::Compute(Compute(making.clone())));
    assert_eq!(Arc::strong_count(&making.held), 2, "held while it is under way");
    bench.land(|to| to == id(1));
    assert_eq!((bench.replies.len(), Arc::strong_count(&making.held)), (1, 2));
    bench.land(|_| true);
    assert_eq!(bench.replies.last(), Some(&(2, Outcome::Computed)));
    assert_eq!(Arc::strong_count(&making.held), 1);
}

#[test]
fn blocks_without_memory_are_not_acknowledged_and_what_has_begun_goes_on() {
    let (mut node, mut actions) = tight_backup();
    node.replica_store().is_full.set(false);
    let entry = entry(Version::before_epoch(1).next().unwrap(), 5_000);
    let blocks = entry.blocks(Settings::default().datagram_bytes);
    let (lane, way) = (Lane { from: id(0), term: Term(1) }, Way { thread: 1, at: None });
    let mut land = |node: &mut Node<TightReplicaStore>, blocks: &[Arc<[u8]>]| {
        for bytes in blocks {
            node.input(Event::Landed { lane, way, bytes }, Instant { ns: MS }, &mut actions);
        }
        acked(&actions)
    };
    let held = Arc::clone(&node.replica_store().held);
    node.replica_store().lacks_memory.set(true);
    assert_eq!((land(&mut node, &blocks), Arc::strong_count(&held)), (0, 2));
    node.replica_store().lacks_memory.set(false);
    assert_eq!((land(&mut node, &blocks[..1]), Arc::strong_count(&held)), (1, 3));
    node.replica_store().lacks_memory.set(true);
    assert_eq!(land(&mut node, &blocks[1..]), blocks.len());
    assert_eq!(node.replica_store().get(SHARD, b"k").as_deref(), Some(&entry));
    assert_eq!(Arc::strong_count(&held), 2, "it is whole");
}

#[test]
fn what_is_landed_again_of_a_whole_entry_begins_nothing() {
    let (mut node, mut actions) = tight_backup();
    node.replica_store().is_full.set(false);
    let entry = entry(Version::before_epoch(1).next().unwrap(), 5_000);
    let blocks = entry.blocks(Settings::default().datagram_bytes);
    let (lane, way) = (Lane { from: id(0), term: Term(1) }, Way { thread: 1, at: None });
    let held = Arc::clone(&node.replica_store().held);
    for bytes in blocks.iter().chain(&blocks) {
        node.input(Event::Landed { lane, way, bytes }, Instant { ns: MS }, &mut actions);
    }
    assert_eq!((acked(&actions), Arc::strong_count(&held)), (2 * blocks.len(), 2));
}

#[test]
fn where_no_block_gets_anywhere_the_first_alone_is_sent_again() {
    let mut bench = Bench::new();
    bench.frames.clear();
    let value = vec![7; 20_000].into();
    bench.ask(0, 1, Operation::Put(value));
    let all = bench.frames.len();
    bench.frames.clear();
    bench.now = after(bench.now, Settings::default().retry_ns);
    bench.input(0, Event::Tick);
    assert_eq!((bench.frames.len(), all > 8), (2, true), "one for each target");
    (0..3).for_each(|_| bench.land(|_| true));
    assert_eq!(bench.replies, [(1, Outcome::Done)]);
}

#[test]
fn another_node_joins_while_a_backup_has_no_room_for_the_union() {
    let mut node = Node::new(id(1), Settings::default(), 1, MemoryReplicaStore::default());
    let mut joining = (*configuration(2, 2, 1, &[2])).clone();
    joining.members.push(id(3));
    joining.shards[0].joining = Some(id(3));
    let (mut actions, now) = (Vec::new(), Instant { ns: MS });
    let message = Message::Install(Arc::new(joining));
    node.input(Event::Message { from: Peer::Manager(0), message }, now, &mut actions);
    node.input(Event::Step, now, &mut actions);
    node.input(Event::Tick, now, &mut actions);
    let copied = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::Send { to, message: Message::Copy { contents, .. } } => {
                Some((*to, contents.entries.clone()))
            }
            _ => None,
        })
    };
    assert_eq!(copied(&actions), None, "it has not got all yet");
    let entry = Arc::new(entry(Version::before_epoch(1).next().unwrap(), 50));
    let contents = Contents { entries: vec![entry.clone()], sessions: Vec::new() };
    let message = Message::Gathered { term: Term(2), shard: SHARD, contents };
    node.input(Event::Message { from: Peer::Node(id(2)), message }, now, &mut actions);
    // Node 2 does not report that it has the union.
    let patience_ns = Settings::default().patience_ns();
    node.input(Event::Tick, after(now, patience_ns / 2), &mut actions);
    assert_eq!(copied(&actions), None, "a promotion takes its time");
    node.input(Event::Tick, after(now, patience_ns), &mut actions);
    assert_eq!(copied(&actions), Some((Peer::Node(id(3)), vec![entry])));
    assert_eq!(node.stage(SHARD), Some(Stage::Promoting));
}
