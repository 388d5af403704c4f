//! Tests of the plan: each configuration that follows from another.

use proptest::prelude::*;

use super::*;

pub(super) fn node(name: u16) -> NodeId {
    NodeId { name, incarnation: 1 }
}

pub(super) fn alive(names: &[u16]) -> BTreeMap<NodeId, Recovered> {
    names.iter().map(|name| (node(*name), Recovered::Nothing)).collect()
}

fn announced(name: u16) -> (NodeId, Arc<Addresses>) {
    let peer = format!("db{name}:7400");
    (node(name), Arc::new(Addresses { peer, ..Addresses::default() }))
}

pub(super) struct Bench {
    current: Configuration,
    pub(super) settings: Settings,
    pub(super) joined: BTreeSet<(ShardId, NodeId)>,
    filled: BTreeSet<ShardId>,
    withheld: BTreeSet<ShardId>,
    pub(super) overdue: BTreeSet<(ShardId, NodeId)>,
    pub(super) backing_off: BTreeSet<(NodeId, NodeId)>,
    is_grace_over: bool,
    pub(super) moves: VecDeque<(ShardId, NodeId)>,
    pub(super) leaving: BTreeSet<u16>,
    pub(super) ending: BTreeMap<NodeId, bool>,
    pub(super) is_paused: bool,
    abandoned: BTreeSet<ShardId>,
}

impl Bench {
    pub(super) fn new(shards: u16, names: &[u16]) -> Bench {
        let settings = Settings { shards, ..Settings::default() };
        let addresses = names.iter().copied().map(announced).collect();
        let current = first(&alive(names), &addresses, &settings);
        Bench {
            current,
            settings,
            joined: BTreeSet::new(),
            filled: BTreeSet::new(),
            withheld: BTreeSet::new(),
            overdue: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            is_grace_over: false,
            moves: VecDeque::new(),
            leaving: BTreeSet::new(),
            ending: BTreeMap::new(),
            is_paused: false,
            abandoned: BTreeSet::new(),
        }
    }

    pub(super) fn next(&mut self, live: &BTreeMap<NodeId, Recovered>, may_grow: bool) -> bool {
        let names = live.keys().map(|node| node.name);
        let facts = Facts {
            live,
            addresses: &names.map(announced).collect(),
            joined: &self.joined,
            filled: &self.filled,
            withheld: &self.withheld,
            overdue: &self.overdue,
            backing_off: &self.backing_off,
            moves: &mut self.moves,
            leaving: &self.leaving,
            ending: &self.ending,
            is_paused: self.is_paused,
            abandoned: &self.abandoned,
            may_grow,
            is_grace_over: self.is_grace_over,
        };
        let new = next(&self.current, facts, &self.settings);
        let has_changed = new.is_some();
        self.current = new.unwrap_or_else(|| self.current.clone());
        has_changed
    }

    pub(super) fn members(&self) -> &[NodeId] {
        &self.current.members
    }

    pub(super) fn shard(&self) -> &Shard {
        &self.current.shards[0]
    }
}

#[test]
fn nothing_changes_while_all_live() {
    let mut bench = Bench::new(4, &[1, 2, 3]);
    assert!(!bench.next(&alive(&[1, 2, 3]), true));
}

#[test]
fn members_are_where_they_said_that_they_are() {
    let mut bench = Bench::new(1, &[1, 2, 3]);
    let peer = |bench: &Bench, name| {
        bench.current.addresses(node(name)).map(|addresses| addresses.peer.clone())
    };
    assert_eq!(peer(&bench, 3).as_deref(), Some("db3:7400"));
    assert!(bench.next(&alive(&[1, 2]), true));
    assert_eq!(peer(&bench, 3), None);
    assert!(bench.next(&alive(&[1, 2, 4]), true));
    assert_eq!(
        (peer(&bench, 1), peer(&bench, 4)),
        (Some("db1:7400".into()), Some("db4:7400".into()))
    );
}

#[test]
fn a_shard_without_a_copy_begins_empty_only_if_it_is_given_up() {
    let mut bench = Bench::new(2, &[1, 2, 3]);
    let later: BTreeMap<NodeId, Recovered> =
        [1, 2, 3].map(|name| (NodeId { name, incarnation: 2 }, Recovered::Nothing)).into();
    assert!(!bench.next(&later, false), "those that are away may be back");
    bench.is_grace_over = true;
    assert!(bench.next(&later, false));
    assert!(bench.current.members.iter().all(|node| node.incarnation == 2));
    assert!(!bench.next(&later, true), "no node serves it");
    assert_eq!((bench.shard().primary, bench.shard().epoch), (node(1), 1));
    bench.abandoned.insert(ShardId(0));
    assert!(bench.next(&later, true));
    let shard = bench.shard();
    assert_eq!((shard.primary.incarnation, shard.backups.len(), shard.epoch), (2, 2, 2));
    assert_eq!(bench.current.shards[1].epoch, 1);
}

#[test]
fn what_is_given_up_and_comes_back_is_kept() {
    let mut bench = Bench::new(1, &[1, 2, 3]);
    bench.is_grace_over = true;
    assert!(!bench.next(&alive(&[]), false));
    bench.abandoned.insert(ShardId(0));
    assert!(bench.next(&alive(&[2, 4]), true));
    assert_eq!((bench.shard().primary, bench.shard().epoch), (node(2), 2));
}

/// The primary's own pending writes hide at the source the entries that it does not have (M3), and
/// cannot end.
#[test]
fn a_filling_with_too_few_copies_is_rolled_back() {
    let mut bench = Bench::new(1, &[1, 2, 3, 4]);
    bench.moves.push_back((ShardId(0), node(4)));
    assert!(bench.next(&alive(&[1, 2, 3, 4]), true));
    assert_eq!((bench.shard().primary, bench.shard().filling_from), (node(4), Some(node(1))));
    assert!(bench.next(&alive(&[1, 4]), false));
    let shard = bench.shard().clone();
    assert_eq!((shard.primary, shard.filling_from, shard.epoch), (node(1), None, 3));
    assert_eq!((shard.role_of(node(4)), &shard.waiting[..]), (None, &[node(2), node(3)][..]));
    assert!(bench.next(&alive(&[1, 4]), true));
    assert_eq!(bench.shard().joining, Some(node(4)));
    assert!(bench.next(&alive(&[1, 2, 3, 4]), true));
    assert_eq!(bench.shard().full_copies().count(), 3);
}

#[test]
fn a_dead_primary_has_an_heir_and_then_a_new_backup() {
    let mut bench = Bench::new(1, &[1, 2, 3, 4]);
    assert!(bench.next(&alive(&[2, 3, 4]), false));
    assert_eq!((bench.shard().primary, &bench.shard().backups[..]), (node(2), &[node(3)][..]));
    assert_eq!((bench.shard().epoch, bench.current.term), (2, Term(2)));
    assert!(!bench.next(&alive(&[2, 3, 4]), false));
    assert!(bench.next(&alive(&[2, 3, 4]), true));
    assert_eq!(bench.shard().joining, Some(node(4)));
    bench.joined.insert((ShardId(0), node(4)));
    assert!(bench.next(&alive(&[2, 3, 4]), true));
    assert_eq!((&bench.shard().backups[..], bench.shard().epoch), (&[node(3), node(4)][..], 2));
}

#[test]
fn a_shard_whose_copies_are_all_dead_waits_for_one_that_has_all() {
    let mut bench = Bench::new(1, &[1, 2, 3]);
    bench.next(&alive(&[9]), true);
    assert_eq!(bench.current.members, [node(9)]);
    assert_eq!(bench.shard().primary, node(1));
    let mut live = alive(&[9]);
    let back = |name| NodeId { name, incarnation: 2 };
    live.insert(back(1), Recovered::Nothing);
    live.insert(back(2), Recovered::Damaged { incarnation: 1, whole: [].into() });
    bench.next(&live, true);
    assert_eq!(bench.shard().primary, node(1));
    for name in [1, 2, 3] {
        live.insert(back(name), Recovered::Whole { since: 0, incarnation: 1 });
    }
    assert!(bench.next(&live, false));
    assert_eq!((bench.shard().primary, bench.shard().epoch), (back(1), 2));
    assert_eq!(bench.shard().backups, [back(2), back(3)]);
}

#[test]
fn a_move_to_a_stranger_fills_it_and_rolls_back_when_it_dies() {
    let mut bench = Bench::new(1, &[1, 2, 3, 4]);
    let all = alive(&[1, 2, 3, 4]);
    bench.moves.push_back((ShardId(0), node(4)));
    assert!(bench.next(&all, true));
    let shard = bench.shard().clone();
    assert_eq!((shard.primary, shard.filling_from), (node(4), Some(node(1))));
    assert_eq!(shard.backups, [node(1), node(2), node(3)]);
    let before = bench.current.clone();
    bench.filled.insert(ShardId(0));
    assert!(bench.next(&all, true));
    assert_eq!(
        (bench.shard().filling_from, &bench.shard().backups[..]),
        (None, &[node(2), node(3)][..])
    );

    bench.current = before;
    assert!(bench.next(&alive(&[1, 2, 3]), false));
    assert_eq!((bench.shard().primary, bench.shard().filling_from), (node(1), None));
    assert_eq!(bench.shard().backups, [node(2), node(3)]);
}

#[test]
fn a_move_to_a_backup_swaps_roles() {
    let mut bench = Bench::new(1, &[1, 2, 3]);
    bench.moves.push_back((ShardId(0), node(3)));
    assert!(bench.next(&alive(&[1, 2, 3]), true));
    assert_eq!((bench.shard().primary, bench.shard().filling_from), (node(3), None));
    assert_eq!((&bench.shard().backups[..], bench.shard().epoch), (&[node(1), node(2)][..], 2));
}

#[test]
fn copies_that_fall_silent_one_by_one_are_waited_for() {
    let mut bench = Bench::new(1, &[1, 2, 3]);
    assert!(bench.next(&alive(&[2, 3]), false));
    assert_eq!(bench.shard().waiting, [], "two are enough");
    assert!(bench.next(&alive(&[3]), false));
    assert_eq!((bench.shard().primary, &bench.shard().waiting[..]), (node(3), &[node(2)][..]));
    bench.next(&alive(&[]), false);
    assert_eq!(bench.shard().keepers().collect::<Vec<_>>(), [node(3), node(2)]);
    // The first node to be back takes over, and the other is still waited for.
    let back = |name| NodeId { name, incarnation: 2 };
    let mut live = BTreeMap::from([(back(2), Recovered::Whole { since: 0, incarnation: 1 })]);
    bench.is_grace_over = true;
    assert!(bench.next(&live, false));
    assert_eq!((bench.shard().primary, &bench.shard().waiting[..]), (back(2), &[node(3)][..]));
    let epoch = bench.shard().epoch;
    live.insert(back(3), Recovered::Whole { since: 0, incarnation: 1 });
    assert!(bench.next(&live, true));
    assert_eq!((bench.shard().primary, &bench.shard().backups[..]), (back(2), &[back(3)][..]));
    assert_eq!((bench.shard().epoch, &bench.shard().waiting[..]), (epoch + 1, &[][..]));
}

#[test]
fn reads_that_have_waited_long_wait_for_no_lease() {
    let mut bench = Bench::new(1, &[1, 2, 3]);
    assert!(bench.next(&alive(&[3]), true));
    assert_eq!(bench.shard().waiting, [node(1), node(2)]);
    assert!(!bench.next(&alive(&[3]), true));
    bench.withheld.insert(ShardId(0));
    assert!(bench.next(&alive(&[3]), true));
    assert_eq!(bench.shard().waiting, []);
}

/// Five servers with disks and one shard: the data of it that each has.
#[derive(Default)]
struct Servers {
    lives: [u32; 5],
    /// The last write of each server.
    has: [u64; 5],
    last_write: u64,
}

impl Servers {
    /// The servers of the bits, and the data that each has recovered.
    fn live(&self, bits: u8) -> BTreeMap<NodeId, Recovered> {
        let is_live = |name: &u16| bits >> name & 1 == 1;
        let facts = |name: u16| {
            let incarnation = 1 + self.lives[usize::from(name)];
            let recovered = match incarnation {
                1 => Recovered::Nothing,
                incarnation => Recovered::Whole { since: 0, incarnation: incarnation - 1 },
            };
            (NodeId { name, incarnation }, recovered)
        };
        (0..5).filter(is_live).map(facts).collect()
    }

    /// Applies a configuration: a node without a role drops its data, a joining node begins without
    /// data, and with enough copies there is a write.
    fn follow(&mut self, new: &Configuration, joined: bool, settings: &Settings) {
        let shard = &new.shards[0];
        for member in &new.members {
            let is_empty = shard.joining == Some(*member) || !shard.needs(member.name);
            if is_empty {
                self.has[usize::from(member.name)] = 0;
            }
        }
        if let Some(joining) = shard.joining.filter(|_| joined) {
            self.has[usize::from(joining.name)] = self.last_write;
        }
        let full: Vec<NodeId> = shard.full_copies().collect();
        let can_write = full.iter().all(|node| new.has(*node));
        if can_write && full.len() >= usize::from(settings.min_copies) {
            self.last_write += 1;
            // A joining node gets new writes too.
            full.iter().for_each(|node| self.has[usize::from(node.name)] = self.last_write);
            if let Some(joining) = shard.joining.filter(|_| joined) {
                self.has[usize::from(joining.name)] = self.last_write;
            }
        }
    }
}

proptest! {
    /// Whichever servers die and come back, in any order: the configuration names at least
    /// `min_copies` servers, and each of them has every write.
    #[test]
    fn enough_servers_that_have_all_are_always_named(
        steps in prop::collection::vec((0_u8..32, 0_u8..32, any::<bool>(), any::<bool>()), 1..60),
    ) {
        let mut bench = Bench::new(1, &[0, 1, 2, 3, 4]);
        bench.is_grace_over = true;
        let mut servers = Servers::default();
        servers.follow(&bench.current, false, &bench.settings);
        for (live, restarts, joined, may_grow) in steps {
            for (name, incarnation) in servers.lives.iter_mut().enumerate() {
                *incarnation += u32::from(restarts >> name & 1);
            }
            let live = servers.live(live);
            bench.next(&live, may_grow);
            bench.joined.clear();
            let shard = bench.shard().clone();
            let can_copy = joined && bench.current.has(shard.primary);
            servers.follow(&bench.current, can_copy, &bench.settings);
            if let Some(joining) = shard.joining.filter(|_| can_copy) {
                bench.joined.insert((ShardId(0), joining));
            }
            let keepers: Vec<NodeId> = shard.keepers().collect();
            prop_assert!(keepers.len() >= bench.settings.min_copies.into(), "{}", bench.current);
            for keeper in keepers {
                let has = servers.has[usize::from(keeper.name)];
                prop_assert_eq!(has, servers.last_write, "{} {}", keeper, bench.current);
            }
        }
    }
}
