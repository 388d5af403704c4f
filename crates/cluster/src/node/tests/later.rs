//! Tests of a replica store that installs landed entries later: nothing is announced before.

use super::*;
use crate::record::Plain;
use crate::replica_store::{Above, Done, Landed, Part};
use crate::settings::Durability;

/// A replica store that installs entries when a test says so, or when it must.
#[derive(Debug, Default)]
struct LateReplicaStore {
    replica_store: std::cell::RefCell<MemoryReplicaStore>,
    waiting: std::cell::RefCell<Vec<(Landed, Arc<Entry>)>>,
    done: std::cell::RefCell<Vec<Done>>,
    is_full: std::cell::Cell<bool>,
}

impl LateReplicaStore {
    fn digest(&self) {
        for (landed, entry) in self.waiting.borrow_mut().drain(..) {
            let is_there = !self.is_full.get();
            if is_there {
                self.replica_store.borrow_mut().install(entry.clone());
            }
            let entry = Some(entry);
            self.done.borrow_mut().push(Done { landed, entry, is_there });
        }
    }
}

impl ReplicaStore for LateReplicaStore {
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.digest();
        self.replica_store.borrow().get(shard, key)
    }

    fn install(&mut self, entry: Arc<Entry>) -> Installed {
        self.digest();
        self.replica_store.get_mut().install(entry)
    }

    fn take_in(&mut self, landed: Landed, plain: &Plain<'_>) -> Installed {
        self.take_in_entry(landed, &Arc::new(plain.to_entry()))
    }

    fn take_in_entry(&mut self, landed: Landed, entry: &Arc<Entry>) -> Installed {
        self.waiting.get_mut().push((landed, entry.clone()));
        Installed::Later
    }

    fn finish(&mut self) {
        self.digest();
    }

    fn take_done(&mut self, done: &mut Vec<Done>) {
        done.append(self.done.get_mut());
    }

    fn is_log(&self) -> bool {
        true
    }

    fn above(&self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above> {
        self.digest();
        self.replica_store.borrow().above(shard, floor, entry_max)
    }

    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        self.digest();
        self.replica_store.borrow().part(shard, cursor, entry_max)
    }

    fn clear(&mut self, shard: ShardId) {
        self.digest();
        self.replica_store.get_mut().clear(shard);
    }

    fn commit(&mut self, _shard: ShardId, _version: Version) {}

    fn forget_deletes(&mut self, _shard: ShardId, _through: Version) {}
}

const NOW: Instant = Instant { ns: MS };
const LANE: Lane = Lane { from: NodeId { name: 0, incarnation: 1 }, term: Term(1) };

fn backup(durability: Durability) -> (Node<LateReplicaStore>, Vec<Action>) {
    let settings = Settings { durability, ..Settings::default() };
    let mut node = Node::new(id(1), settings, 1, LateReplicaStore::default());
    let message = Message::Install(configuration(1, 1, 0, &[1, 2]));
    node.input(Event::Message { from: Peer::Manager(0), message }, NOW, &mut Vec::new());
    (node, Vec::new())
}

fn blocks_of(client: ClientId, len_bytes: usize) -> (Arc<Entry>, Vec<Arc<[u8]>>) {
    let version = Version::before_epoch(1).next().unwrap();
    let sequence = if client.is_anonymous() { 0 } else { 3 };
    let entry = Entry { client, sequence, ..entry(version, len_bytes) };
    let blocks = entry.blocks(Settings::default().datagram_bytes);
    (Arc::new(entry), blocks)
}

fn land(node: &mut Node<LateReplicaStore>, blocks: &[Arc<[u8]>], actions: &mut Vec<Action>) {
    let way = Way { thread: 1, at: None };
    for bytes in blocks {
        node.input(Event::Landed { lane: LANE, way, bytes }, NOW, actions);
    }
}

#[test]
fn it_is_acknowledged_once_it_is_installed_and_not_before() {
    let (mut node, mut actions) = backup(Durability::Replicated);
    let (_, blocks) = blocks_of(ClientId::NONE, 50);
    land(&mut node, &blocks, &mut actions);
    node.input(Event::Tick, NOW, &mut actions);
    node.input(Event::Digested, NOW, &mut actions);
    assert_eq!(acked(&actions), 0);
    node.replica_store().digest();
    node.input(Event::Digested, NOW, &mut actions);
    assert_eq!(acked(&actions), 1);
    node.input(Event::Digested, NOW, &mut actions);
    assert_eq!(acked(&actions), 1);
}

#[test]
fn with_fsync_it_is_acknowledged_once_what_was_installed_is_durable() {
    let (mut node, mut actions) = backup(Durability::Fsync);
    let (_, blocks) = blocks_of(ClientId::NONE, 50);
    let synced = |node: &mut Node<LateReplicaStore>, actions: &mut Vec<Action>| {
        let through_bytes = node.appended_bytes();
        node.input(Event::Synced { through_bytes }, NOW, actions);
    };
    synced(&mut node, &mut actions);
    land(&mut node, &blocks, &mut actions);
    assert!(!actions.contains(&Action::Sync), "there is nothing to sync");
    synced(&mut node, &mut actions);
    node.replica_store().digest();
    node.input(Event::Digested, NOW, &mut actions);
    assert!(actions.contains(&Action::Sync));
    assert_eq!(acked(&actions), 0);
    synced(&mut node, &mut actions);
    assert_eq!(acked(&actions), 1);
}

#[test]
fn what_had_no_room_is_whole_again_when_its_last_block_comes_again() {
    let (mut node, mut actions) = backup(Durability::Replicated);
    let (entry, blocks) = blocks_of(ClientId::NONE, 5_000);
    node.replica_store().is_full.set(true);
    land(&mut node, &blocks, &mut actions);
    node.replica_store().digest();
    node.input(Event::Digested, NOW, &mut actions);
    assert_eq!(acked(&actions), blocks.len() - 1);
    let crowded = Message::Crowded { term: Term(1), shard: SHARD };
    assert!(actions.contains(&to_node(id(0), crowded)));
    node.replica_store().is_full.set(false);
    // Landed twice, as if the first answer was late.
    land(&mut node, &blocks[blocks.len() - 1..], &mut actions);
    land(&mut node, &blocks[blocks.len() - 1..], &mut actions);
    node.replica_store().digest();
    node.input(Event::Digested, NOW, &mut actions);
    assert_eq!(acked(&actions), blocks.len() + 1);
    assert_eq!(node.replica_store().get(SHARD, b"k"), Some(entry));
}

#[test]
fn a_promotion_gathers_it_with_its_clients_session() {
    let (mut node, mut actions) = backup(Durability::Replicated);
    let (entry, blocks) = blocks_of(ClientId(9), 50);
    land(&mut node, &blocks, &mut actions);
    let message = Message::Gather { term: Term(1), shard: SHARD };
    node.input(Event::Message { from: Peer::Node(id(0)), message }, NOW, &mut actions);
    node.input(Event::Step, NOW, &mut actions);
    let gathered = actions.iter().find_map(|action| match action {
        Action::Send { message: Message::Gathered { contents, .. }, .. } => Some(contents),
        _ => None,
    });
    let gathered = gathered.unwrap();
    assert_eq!((&gathered.entries, gathered.sessions.len()), (&vec![entry], 1));
    assert_eq!(acked(&actions), 1);
}

#[test]
fn it_is_installed_before_another_term_is() {
    let (mut node, mut actions) = backup(Durability::Replicated);
    let (entry, blocks) = blocks_of(ClientId::NONE, 50);
    land(&mut node, &blocks, &mut actions);
    let message = Message::Install(configuration(2, 2, 1, &[2]));
    node.input(Event::Message { from: Peer::Manager(0), message }, NOW, &mut actions);
    assert!(node.replica_store().waiting.borrow().is_empty(), "N3");
    assert_eq!(node.replica_store().get(SHARD, b"k"), Some(entry));
}

#[test]
fn what_follows_in_a_frame_says_so() {
    let (mut node, mut actions) = backup(Durability::Replicated);
    let mut version = Version::before_epoch(1);
    let mut frame = Vec::new();
    for _ in 0..3 {
        version = version.next().unwrap();
        entry(version, 50).append(&mut frame);
    }
    land(&mut node, &[frame.into()], &mut actions);
    let follows = |(landed, _): &(Landed, Arc<Entry>)| landed.follows;
    let waiting: Vec<bool> = node.replica_store().waiting.borrow().iter().map(follows).collect();
    assert_eq!(waiting, [false, true, true]);
}
