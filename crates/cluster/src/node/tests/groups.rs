//! Tests of groups: they land whole or not at all, whatever is lost and whichever node dies.

use proptest::prelude::*;

use super::*;
use crate::settings::Durability;

fn key(number: usize) -> Vec<u8> {
    format!("g{number}").into_bytes()
}

impl Bench {
    fn hold(&mut self) {
        self.nodes[0].hold_group(SHARD);
    }

    fn release(&mut self) {
        let mut actions = Vec::new();
        self.nodes[0].release_group(SHARD, self.now, &mut actions);
        self.act(0, actions);
    }

    /// Sends a group of `count` writes with values of `value_bytes`.
    fn ask_group(&mut self, count: usize, value_bytes: usize) {
        self.hold();
        for number in 0..count {
            let value = vec![b'v'; value_bytes].into();
            self.ask_of(&key(number), 0, 1010 + number as u64, Operation::Put(value));
        }
    }

    /// Lets time pass; the lease is renewed, and lost messages are sent again.
    fn pass(&mut self) {
        self.now = after(self.now, 100 * MS);
        let message = Message::Granted { sent_at: self.now, term: Term(1), is_committed: true };
        self.input(0, Event::Message { from: Peer::Manager(0), message });
        self.input(0, Event::Tick);
    }

    fn held_by(&mut self, name: u16, count: usize) -> usize {
        self.nodes[usize::from(name)].digest_all();
        let replica_store = self.nodes[usize::from(name)].replica_store();
        (0..count).filter(|number| replica_store.get(SHARD, &key(*number)).is_some()).count()
    }
}

#[test]
fn nothing_of_a_group_leaves_before_the_last_and_then_all_does_at_once() {
    let mut bench = Bench::new();
    bench.ask_group(3, 4);
    assert!(bench.frames.is_empty(), "H2");
    bench.release();
    assert_eq!(bench.frames.len(), 2, "one for each backup");
    bench.land(|_| true);
    let done: Vec<_> = (1010..1013).map(|sequence| (sequence, Outcome::Done)).collect();
    bench.expect(&done);
    bench.ask_of(&key(2), 0, 2000, Operation::Get);
    bench.expect(&[(2000, value("vvvv"))]);
}

/// The backups acknowledge the writes of one frame one by one.
#[test]
fn a_group_is_visible_at_the_primary_once_all_of_it_is_on_all_copies() {
    let mut bench = Bench::new();
    bench.ask_group(3, 4);
    bench.release();
    let primary = bench.nodes[0].shards.primary(SHARD).expect("it is");
    let versions: Vec<Version> = primary.pending.keys().copied().collect();
    for (count, version) in versions.into_iter().enumerate() {
        for backup in [1, 2] {
            assert_eq!(bench.held_by(0, 3), 0, "{count} writes are on all copies (H5)");
            let blocks = vec![BlockId { shard: SHARD, version, block: 0 }];
            let message = Message::Acked { term: Term(1), blocks };
            bench.input(0, Event::Message { from: Peer::Node(id(backup)), message });
        }
    }
    assert_eq!(bench.held_by(0, 3), 3);
    bench.expect(&[(1010, Outcome::Done), (1011, Outcome::Done), (1012, Outcome::Done)]);
}

#[test]
fn what_is_read_in_a_group_is_known_at_once() {
    let mut bench = Bench::new();
    bench.hold();
    bench.ask(0, 1, put("no number"));
    bench.ask(0, 2, Operation::Increment(1));
    bench.expect(&[(2, Outcome::NotAnInteger)]);
    bench.ask(0, 3, put("4"));
    bench.ask(0, 4, Operation::Increment(1));
    bench.release();
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Done), (3, Outcome::Done), (4, Outcome::Integer(5))]);
}

/// Part of the group was refused, as between two configurations: the driver gives the others up.
#[test]
fn a_group_that_is_dropped_has_never_been() {
    let mut bench = Bench::new();
    bench.ask(0, 1, put("5"));
    bench.land(|_| true);
    bench.expect(&[(1, Outcome::Done)]);
    bench.hold();
    bench.ask(0, 2, Operation::Increment(1));
    bench.ask_of(&key(1), 0, 3, put("new"));
    let mut actions = Vec::new();
    bench.nodes[0].drop_group(SHARD, &mut actions);
    bench.act(0, actions);
    assert!(bench.frames.is_empty(), "nothing leaves");
    bench.expect(&[(3, Outcome::TryAgain), (2, Outcome::TryAgain)]);
    bench.ask(0, 4, Operation::Get);
    bench.ask_of(&key(1), 0, 5, Operation::Get);
    bench.expect(&[(4, value("5")), (5, Outcome::Value(None))]);
    // The shard goes on: later writes build on the present data, and CommitVer goes past the gap.
    bench.ask(0, 6, Operation::Increment(1));
    bench.pass();
    bench.land(|_| true);
    bench.expect(&[(6, Outcome::Integer(6))]);
    bench.release(); // None is open.
    bench.ask(0, 7, Operation::Get);
    bench.expect(&[(7, value("6"))]);
}

#[test]
fn a_group_that_does_not_fit_into_a_datagram_leaves_as_it_comes() {
    let mut bench = Bench::new();
    bench.ask_group(4, 600);
    assert!(!bench.frames.is_empty());
    bench.release();
    for _ in 0..4 {
        bench.land(|_| true);
    }
    bench.expect(&(1010..1014).map(|sequence| (sequence, Outcome::Done)).collect::<Vec<_>>());
    assert_eq!(bench.held_by(2, 4), 4);
}

impl Bench {
    /// Moves a value to another name, as part of the open group.
    fn rename(&mut self, (from, to): (&str, &str), value: &[u8], sequence: u64) {
        self.ask_of(to.as_bytes(), 0, sequence, Operation::Put(value.into()));
        self.ask_of(from.as_bytes(), 0, sequence + 1, Operation::Delete);
    }

    /// The values that a node has under these names.
    fn values_of(&mut self, name: u16, keys: &[&str]) -> Vec<Arc<[u8]>> {
        self.nodes[usize::from(name)].digest_all();
        let replica_store = self.nodes[usize::from(name)].replica_store();
        let entries = keys.iter().filter_map(|key| replica_store.get(SHARD, key.as_bytes()));
        entries.filter_map(|entry| entry.value.clone()).collect()
    }

    /// Lets everything land, until nothing leaves any more.
    fn land_everything(&mut self) {
        self.land_everything_at(&[1, 2]);
    }

    fn land_everything_at(&mut self, names: &[u16]) {
        let is_wanted = |to: NodeId| names.contains(&to.name);
        while self.frames.iter().any(|(_, to, ..)| is_wanted(*to)) {
            self.land(is_wanted);
        }
    }

    /// What every node has appended becomes durable.
    fn sync_all(&mut self) {
        for name in 0..3 {
            let through_bytes = self.nodes[usize::from(name)].appended_bytes();
            self.input(name, Event::Synced { through_bytes });
        }
    }
}

/// A value of several blocks, whose rename from a to b is held.
fn long_rename() -> (Bench, Vec<u8>) {
    let mut bench = Bench::new();
    let long = vec![b'v'; 3000];
    bench.ask_of(b"a", 0, 1, Operation::Put(long.as_slice().into()));
    bench.land_everything();
    bench.replies.clear();
    bench.hold();
    bench.rename(("a", "b"), &long, 2);
    (bench, long)
}

#[test]
fn the_delete_of_a_long_rename_leaves_once_all_copies_have_the_value() {
    let (mut bench, long) = long_rename();
    bench.release();
    // One copy has all blocks, the other lacks one.
    let late = bench.frames.iter().rposition(|frame| frame.1 == id(2)).unwrap();
    let late = bench.frames.remove(late);
    bench.land_everything();
    bench.expect(&[]);
    assert_eq!([1, 2].map(|name| bench.values_of(name, &["a", "b"]).len()), [2, 1]);
    bench.frames.push(late);
    bench.land(|_| true);
    bench.expect(&[(2, Outcome::Done)]);
    assert_eq!(bench.frames.len(), 2, "the delete, to each backup");
    bench.land(|_| true);
    bench.expect(&[(3, Outcome::Deleted(true))]);
    for name in 0..3 {
        assert_eq!(bench.values_of(name, &["a"]), []);
        assert_eq!(bench.values_of(name, &["b"]), [long.as_slice().into()]);
    }
}

/// So a copy that dies while it takes the union in has no delete alone.
#[test]
fn a_union_is_in_the_order_of_its_versions() {
    let mut bench = Bench::new();
    bench.ask_of(b"a", 0, 1, put("1"));
    bench.land_everything();
    bench.hold();
    bench.rename(("a", "b"), b"1", 2);
    bench.release();
    bench.land_everything_at(&[2]);
    bench.unions.clear();
    bench.install(&configuration(2, 2, 1, &[2]), &[1, 2]);
    let union = bench.unions.last().unwrap();
    assert!(union.len() == 2 && union.is_sorted(), "{union:?}");
    assert_eq!(bench.values_of(1, &["a", "b"]), [b"1"[..].into()]);
}

/// The primary ceases to be one while the delete is held: the value has both names.
#[test]
fn a_delete_that_is_held_is_void_where_the_primary_ceases_to_be_one() {
    let (mut bench, _) = long_rename();
    bench.land_everything_at(&[1]);
    bench.frames.clear();
    bench.install(&configuration(2, 2, 1, &[0, 2]), &[0, 1, 2]);
    bench.release();
    assert!(bench.replies.contains(&(3, Outcome::Unknown)));
    for name in 0..3 {
        assert_eq!(bench.values_of(name, &["a", "b"]).len(), 2);
    }
}

/// The group was given up, and its delete is still held: later writes do not take it along.
#[test]
fn what_is_computed_on_a_held_delete_leaves_behind_it() {
    let (mut bench, _) = long_rename();
    bench.release();
    let late = std::mem::take(&mut bench.frames);
    bench.ask_of(b"a", 0, 4, Operation::Increment(7));
    bench.hold();
    bench.ask_of(b"a", 0, 5, Operation::Increment(1));
    bench.release();
    assert!(bench.frames.is_empty());
    bench.replies.clear();
    bench.frames = late;
    bench.land_everything();
    let sums = [(4, Outcome::Integer(7)), (5, Outcome::Integer(8))];
    let want = [&[(2, Outcome::Done), (3, Outcome::Deleted(true))][..], &sums].concat();
    bench.expect(&want);
}

#[test]
fn what_is_held_is_void_where_the_primary_ceases_to_be_one() {
    let mut bench = Bench::new();
    bench.ask_group(2, 4);
    bench.install(&configuration(2, 2, 1, &[0, 2]), &[0, 1, 2]);
    bench.expect(&[(1010, Outcome::Unknown), (1011, Outcome::Unknown)]);
    bench.release();
    assert_eq!([0, 1, 2].map(|name| bench.held_by(name, 2)), [0, 0, 0], "H3");
}

proptest! {
    /// Two values change their names in one group. Frames get lost, and at any moment all nodes may
    /// die: each copy has both values, under whatever names.
    #[test]
    fn no_copy_is_without_a_value_that_a_group_moves(
        lens in prop::array::uniform2(prop::sample::select(vec![10_usize, 700, 1400, 5000])),
        rounds in prop::collection::vec(prop::collection::vec(any::<bool>(), 30), 1..8),
        scheme in prop::sample::select(Scheme::ALL.to_vec()),
        durability in prop::sample::select(vec![Durability::Replicated, Durability::Fsync]),
    ) {
        let settings = Settings { scheme, durability, ..Settings::default() };
        let mut bench = Bench::with(settings);
        let names = ["a", "b", "c"];
        let (first, second) = (vec![b'1'; lens[0]], vec![b'2'; lens[1]]);
        bench.ask_of(b"a", 0, 1, Operation::Put(first.as_slice().into()));
        bench.ask_of(b"b", 0, 2, Operation::Put(second.as_slice().into()));
        for _ in 0..20 {
            bench.land_everything();
            bench.sync_all();
        }
        bench.hold();
        bench.rename(("a", "c"), &first, 10);
        bench.rename(("b", "a"), &second, 12);
        bench.rename(("c", "b"), &first, 14);
        bench.release();
        let lossless = std::iter::repeat_n(vec![true], 20);
        for luck in rounds.into_iter().chain(lossless) {
            for name in 0..3 {
                let values = bench.values_of(name, &names);
                let has = |value: &[u8]| values.iter().any(|one| **one == *value);
                prop_assert!(has(&first) && has(&second), "n{name} has {}", values.len());
            }
            let mut luck = luck.into_iter().cycle();
            let flying = std::mem::take(&mut bench.frames);
            bench.frames = flying.into_iter().filter(|_| luck.next().unwrap_or(true)).collect();
            bench.land(|_| true);
            bench.sync_all();
            bench.pass();
        }
        for name in 0..3 {
            let want = [second.as_slice().into(), first.as_slice().into()];
            prop_assert_eq!(bench.values_of(name, &names), want);
        }
    }

    /// Frames and acknowledgements get lost and are sent again, and the primary dies: the next
    /// primary and its backup have all of the group or nothing, and all of it if it was
    /// acknowledged.
    #[test]
    fn a_group_outlives_its_primary_whole_or_not_at_all(
        count in 1_usize..8,
        rounds in prop::collection::vec(prop::collection::vec(any::<bool>(), 20), 1..6),
        scheme in prop::sample::select(Scheme::ALL.to_vec()),
        before in 0..64_u64,
    ) {
        // A group's frame may be the one that a segment's end cuts.
        let settings = Settings { scheme, segment_bytes: 4096, ..Settings::default() };
        let mut bench = Bench::with(settings);
        for sequence in 100..100 + before {
            bench.ask(0, sequence, put("x"));
            while !bench.frames.is_empty() {
                bench.land(|_| true);
            }
            bench.pass();
            bench.land(|_| true);
        }
        prop_assert_eq!(bench.replies.len() as u64, before);
        bench.replies.clear();
        bench.ask_group(count, 4);
        bench.release();
        for luck in rounds {
            let mut luck = luck.into_iter().cycle();
            let flying = std::mem::take(&mut bench.frames);
            bench.frames = flying.into_iter().filter(|_| luck.next().unwrap_or(true)).collect();
            bench.land(|_| true);
            bench.pass();
        }
        let is_done = bench.replies.iter().filter(|(_, outcome)| *outcome == Outcome::Done).count();
        bench.frames.clear();
        bench.install(&configuration(2, 2, 1, &[2]), &[1, 2]);
        let kept = bench.held_by(1, count);
        prop_assert!(kept == 0 || kept == count, "{kept} of {count}");
        prop_assert_eq!(bench.held_by(2, count), kept);
        prop_assert!(is_done == 0 || kept == count);
    }
}
