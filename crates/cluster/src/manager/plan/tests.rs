//! Configurations that follow from one another.

use super::*;

pub(super) fn node(name: u16) -> NodeId {
    NodeId { name, life: 1 }
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
    settings: Settings,
    pub(super) joined: BTreeSet<(ShardId, NodeId)>,
    filled: BTreeSet<ShardId>,
    moves: VecDeque<(ShardId, NodeId)>,
    pub(super) leaving: BTreeSet<u16>,
    pub(super) is_paused: bool,
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
            moves: VecDeque::new(),
            leaving: BTreeSet::new(),
            is_paused: false,
        }
    }

    pub(super) fn next(&mut self, live: &BTreeMap<NodeId, Recovered>, may_grow: bool) -> bool {
        let names = live.keys().map(|node| node.name);
        let facts = Facts {
            live,
            addresses: &names.map(announced).collect(),
            joined: &self.joined,
            filled: &self.filled,
            moves: &mut self.moves,
            leaving: &self.leaving,
            is_paused: self.is_paused,
            may_grow,
            is_grace_over: false,
        };
        let new = next(&self.current, facts, &self.settings);
        let has_changed = new.is_some();
        self.current = new.unwrap_or_else(|| self.current.clone());
        has_changed
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
    let back = |name| NodeId { name, life: 2 };
    live.insert(back(1), Recovered::Nothing);
    live.insert(back(2), Recovered::Damaged { life: 1, whole: [].into() });
    bench.next(&live, true);
    assert_eq!(bench.shard().primary, node(1));
    for name in [1, 2, 3] {
        live.insert(back(name), Recovered::Whole { life: 1 });
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
