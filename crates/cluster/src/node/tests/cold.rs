//! Tests that start three nodes of 64 shards from their logs, after all were killed: no turn does
//! more work than the count allows, and a lease is asked for between turns, however much there is
//! to do.

use std::collections::VecDeque;

use super::*;
use crate::node::TURN_WORK;
use crate::record::Check;
use crate::settings::Durability;
use crate::slot::Slot;

const SHARDS: u16 = 64;
/// The keys of each shard: more than one step looks up, all above CommitVer.
const KEYS: usize = 1_500;
/// The most work of one message, which is taken in whole: the answers of three copies, or one part
/// of a copy.
const MESSAGE_WORK: usize = 3 * KEYS;
/// The time per entry, as on a slow machine: a node's whole work takes longer than a lease.
const WORK_NS: u64 = 10_000;

fn member(name: u16) -> NodeId {
    NodeId { name, incarnation: 2 }
}

/// Each node is primary of a third of the shards. Node `joining` joins as many shards of node 0 as
/// are copied at once.
fn spread(term: u64, joining: Option<u16>) -> Arc<Configuration> {
    let of = |(index, (first, last)): (usize, (Slot, Slot))| {
        let at = |step: usize| member(((index + step) % 3) as u16);
        let is_joined = joining.is_some() && index % 3 == 0 && index < 12;
        let backups = if is_joined { vec![at(1)] } else { vec![at(1), at(2)] };
        let joining = joining.filter(|_| is_joined).map(member);
        let (primary, filling_from, waiting) = (at(0), None, Vec::new());
        Shard { first, last, epoch: 2, primary, backups, joining, filling_from, waiting }
    };
    let shards = even_ranges(SHARDS).enumerate().map(of).collect();
    let members = (0..3).map(member).collect();
    Arc::new(Configuration { term: Term(term), members, shards, addresses: BTreeMap::new() })
}

fn log(settings: &Settings) -> Vec<u8> {
    assert_eq!((settings.shards, settings.copies), (SHARDS, 3), "these are the defaults");
    let mut bytes = Vec::new();
    for shard in (0..SHARDS).map(ShardId) {
        let mut version = Version::before_epoch(1);
        for number in 0..KEYS {
            version = version.next().unwrap();
            let key: Arc<[u8]> = format!("{}:{number}", shard.0).into_bytes().into();
            Entry { shard, key, ..super::entry(version, 16) }.append(&mut bytes);
        }
    }
    bytes
}

/// A node, its unread messages, and its work so far.
struct Server {
    node: Node<MemoryReplicaStore>,
    inbox: VecDeque<(Peer, Message)>,
    /// The appended bytes that are to be synced.
    log_bytes: u64,
    asked_at: Instant,
    work_most: usize,
}

struct World {
    servers: Vec<Server>,
    now: Instant,
    turns: usize,
    /// The longest time between two lease requests of a node.
    silence_ns: u64,
    settings: Settings,
}

impl World {
    fn new() -> World {
        let settings =
            Settings { durability: Durability::Fsync, lease_ns: 500 * MS, ..Settings::default() };
        let (log, now) = (log(&settings), Instant { ns: MS });
        let server = |name| {
            let (replica_store, check) = (MemoryReplicaStore::default(), Check::Checksum);
            let (node, whole) =
                Node::recover(member(name), 1, (settings, check), 1, replica_store, &log);
            assert_eq!(whole, log.len());
            let (inbox, log_bytes) = (VecDeque::new(), 0);
            Server { node, inbox, log_bytes, asked_at: now, work_most: 0 }
        };
        let servers = (0..3).map(server).collect();
        World { servers, now, turns: 0, silence_ns: 0, settings }
    }

    fn install(&mut self, configuration: &Arc<Configuration>) {
        let (sent_at, term) = (self.now, configuration.term);
        for server in &mut self.servers {
            let manager = Peer::Manager(0);
            server.inbox.push_back((manager, Message::Install(configuration.clone())));
            let granted = Message::Granted { sent_at, term, is_committed: true };
            server.inbox.push_back((manager, granted));
        }
    }

    /// One turn of a node's driver: messages until they have made enough work, a step, the report
    /// of a sync, a tick. Returns its work.
    fn turn(&mut self, name: usize) -> usize {
        let (server, now) = (&mut self.servers[name], self.now);
        let (mut actions, mut work) = (Vec::new(), server.node.take_work());
        while work < TURN_WORK {
            let Some((from, message)) = server.inbox.pop_front() else { break };
            server.node.input(Event::Message { from, message }, now, &mut actions);
            let last = server.node.take_work();
            assert!(last <= MESSAGE_WORK, "{last} of one message");
            work += last;
        }
        if server.node.has_steps() {
            server.node.input(Event::Step, now, &mut actions);
        }
        let through_bytes = server.node.appended_bytes();
        if through_bytes > server.log_bytes {
            server.log_bytes = through_bytes;
            server.node.input(Event::Synced { through_bytes }, now, &mut actions);
        }
        server.node.input(Event::Tick, now, &mut actions);
        server.work_most = server.work_most.max(work);
        self.turns += 1;
        let from = Peer::Node(member(name as u16));
        for action in actions {
            match action {
                Action::Send { to: Peer::Node(to), message } => {
                    self.servers[usize::from(to.name)].inbox.push_back((from, message));
                }
                Action::Send { message: Message::Lease { .. }, .. } => {
                    let asked_at = &mut self.servers[name].asked_at;
                    let silence_ns = now.ns - asked_at.ns;
                    *asked_at = now;
                    self.silence_ns = self.silence_ns.max(silence_ns);
                }
                _ => {}
            }
        }
        work
    }

    fn until(&mut self, is_so: impl Fn(&World) -> bool) -> usize {
        let before = self.turns;
        while !is_so(self) {
            let most = (0..self.servers.len()).map(|name| self.turn(name)).max().unwrap_or(0);
            self.now = after(self.now, MS + WORK_NS * most as u64);
            assert!(self.turns < 10_000, "it never is");
        }
        self.turns - before
    }

    fn all(&self, is_so: impl Fn(&Node<MemoryReplicaStore>, ShardId) -> bool) -> bool {
        let primary = |shard: ShardId| &self.servers[shard.index() % 3].node;
        (0..SHARDS).map(ShardId).all(|shard| is_so(primary(shard), shard))
    }
}

#[test]
fn a_start_of_64_shards_from_three_logs_takes_bounded_turns_and_leases_are_asked_for_between() {
    let mut world = World::new();
    world.install(&spread(2, None));
    let turns =
        world.until(|world| world.all(|node, shard| node.stage(shard) == Some(Stage::Serving)));
    // Each node looks up each shard, takes in three answers for a third of them, and the union for
    // the others.
    let work = 3 * usize::from(SHARDS) * (KEYS + KEYS + KEYS);
    assert!(turns <= work / TURN_WORK + 100, "{turns} turns");
    for server in &world.servers {
        let most = server.work_most;
        assert!(most < TURN_WORK + MESSAGE_WORK, "{most} in a turn");
        for shard in (0..SHARDS).map(ShardId) {
            let there = server.node.replica_store().all_above(shard, Version::ZERO).len();
            assert_eq!(there, KEYS, "{shard:?}");
        }
    }
    let silence_ns = world.settings.silence_ns();
    assert!(world.silence_ns < silence_ns, "{} ns", world.silence_ns);
}

#[test]
fn the_parts_of_copies_that_leave_in_a_turn_are_counted() {
    let mut world = World::new();
    world.install(&spread(2, None));
    world.until(|world| world.all(|node, shard| node.stage(shard) == Some(Stage::Serving)));
    let server = &mut world.servers[0];
    let (node, now) = (&mut server.node, after(world.now, MS));
    let hear = |node: &mut Node<MemoryReplicaStore>, from, message| {
        node.take_work();
        let mut actions = Vec::new();
        node.input(Event::Message { from, message }, now, &mut actions);
        let is_part =
            |action: &Action| matches!(action, Action::Send { message: Message::Copy { .. }, .. });
        (actions.into_iter().filter(is_part).count(), node.take_work())
    };
    hear(node, Peer::Manager(0), Message::Install(spread(3, Some(2))));
    let mut actions = Vec::new();
    node.input(Event::Tick, now, &mut actions);
    assert!(node.take_work() >= 4, "the first part of each of four shards");
    // The acknowledgement of a part makes the next one: a few of these end the turn.
    let last = KEYS.div_ceil(world.settings.copy_part_entries) as u64 - 1;
    for part in 0..=last {
        let copied = Message::Copied { term: Term(3), shard: ShardId(0), part };
        let (parts, work) = hear(node, Peer::Node(member(2)), copied);
        assert_eq!(parts, usize::from(part < last));
        assert!(work >= parts * TURN_WORK / 4, "{work} of work, part {part}");
    }
}
