//! Tests of the replica store with digest threads: its answers are the same, and another thread
//! installs.

use cluster::message::Lane;
use cluster::record::BlockId;

use super::*;

/// The callback for a thread that polls by itself.
pub(super) fn ring_nothing() -> Call {
    Arc::new(|| {})
}

pub(super) fn landed(entry: &Entry, follows: bool) -> Landed {
    let block = BlockId { shard: entry.shard, version: entry.version, block: 0 };
    Landed {
        lane: Lane { from: NodeId { name: 1, incarnation: 1 }, term: Term(1) },
        block,
        follows,
    }
}

fn open_with(digest_threads: usize, call: &Call) -> (Arc<Store>, ServerReplicaStore) {
    let store = open(IndexKind::Hash);
    let mut replica_store = ServerReplicaStore::new(&store).unwrap();
    replica_store.employ(digest_threads, call).unwrap();
    (store, replica_store)
}

fn take_in(replica_store: &mut ServerReplicaStore, entry: &Entry) -> Installed {
    replica_store.take_in(landed(entry, false), &entry.as_plain())
}

#[test]
fn it_answers_as_the_one_in_plain_maps_does() {
    for seed in 1..4 {
        for index in [IndexKind::Hash, IndexKind::Tree] {
            for digest_threads in 1..=DIGEST_THREADS {
                let mut pair = check(index, seed, digest_threads);
                pair.tested.finish();
                pair.tested.take_done(&mut pair.done);
                assert!(pair.done.iter().all(|done| done.is_there));
                assert_eq!(pair.done.len(), pair.later_count);
                assert!(pair.later_count > 10_000);
            }
        }
    }
}

#[test]
fn an_entry_is_installed_by_the_digest_thread_of_its_shard() {
    let (_, mut replica_store) = open_with(DIGEST_THREADS, &ring_nothing());
    for number in 1..=700 {
        let shard = ShardId((number % 7) as u16);
        assert_eq!(take_in(&mut replica_store, &put(shard, "k", number)), Installed::Later);
    }
    replica_store.finish();
    // Shards 0, 2, 4, 6 and 1, 3, 5.
    let figures = replica_store.digest_figures();
    let counted: Vec<_> = figures.iter().map(|it| (it.entries, it.refused, it.queued)).collect();
    assert_eq!(counted, [(400, 0, 0), (300, 0, 0)]);
    let (mut done, order) =
        (Vec::new(), |done: &Done| (done.landed.block.shard, done.landed.block.version));
    replica_store.take_done(&mut done);
    assert_eq!(done.len(), 700);
    done.sort_by_key(|done| done.landed.block.shard); // Stable.
    assert!(done.is_sorted_by_key(order), "within a shard in the order in which they came");
    // Without them the control thread installs, at once.
    let (_, mut replica_store) = open_with(0, &ring_nothing());
    assert_eq!(take_in(&mut replica_store, &put(ShardId(0), "k", 1)), Installed::Newest);
    assert_eq!(replica_store.digest_figures(), []);
}

#[test]
fn a_reader_of_a_shard_sees_all_that_was_taken_in_for_it() {
    let (_, mut replica_store) = open_with(DIGEST_THREADS, &ring_nothing());
    let shard = ShardId(1);
    for number in 1..=2_000 {
        take_in(&mut replica_store, &put(shard, "k", number));
        if number % 97 == 0 {
            let found = replica_store.get(shard, b"k").unwrap();
            assert_eq!(found.version, version(number));
        }
    }
    assert_eq!(above(&replica_store, shard, 0).len(), 1);
    take_in(&mut replica_store, &put(shard, "other", 2_001));
    assert_eq!(
        replica_store.part(shard, 0, 10).entries.len()
            + replica_store.part(shard, ITEMS, 10).entries.len(),
        4
    );
    take_in(&mut replica_store, &put(shard, "other", 2_002));
    assert_eq!(replica_store.install(put(shard, "other", 2_002)), Installed::Older);
    take_in(&mut replica_store, &put(shard, "third", 2_003));
    let flush = Entry { is_flush: true, ..Entry::delete_of(shard, Arc::default(), version(2_010)) };
    assert_eq!(replica_store.install(Arc::new(flush)), Installed::Newest);
    take_in(&mut replica_store, &put(shard, "third", 2_004));
    assert_eq!(replica_store.get(shard, b"third"), None);
    take_in(&mut replica_store, &put(shard, "third", 2_011));
    replica_store.clear(shard);
    assert_eq!(replica_store.get(shard, b"third"), None);
}

#[test]
fn what_has_no_room_is_said_to_have_none() {
    let (_, mut replica_store) = open_with(1, &ring_nothing());
    let value: Arc<[u8]> = vec![7; 1 << 19].into();
    for number in 1..=100 {
        let key = format!("k{number}");
        let delete = Entry::delete_of(ShardId(0), key.as_bytes().into(), version(number));
        take_in(&mut replica_store, &Entry { value: Some(value.clone()), ..delete });
    }
    replica_store.finish();
    let mut done = Vec::new();
    replica_store.take_done(&mut done);
    let there = done.iter().filter(|done| done.is_there).count();
    assert!((10..100).contains(&there), "{there} of 32 MiB");
    assert_eq!(replica_store.refused_count() as usize, 100 - there);
    for (number, one) in done.iter().enumerate() {
        let found = replica_store.get(ShardId(0), format!("k{}", number + 1).as_bytes());
        assert_eq!(found.is_some(), one.is_there, "k{}", number + 1);
    }
}

#[test]
fn they_sleep_until_there_is_something_and_call_when_it_is_done() {
    let (caller, called) = crossbeam_channel::unbounded();
    let call: Call = Arc::new(move || caller.send(()).unwrap());
    let (_, mut replica_store) = open_with(1, &call);
    for number in 1..=20 {
        assert!(called.is_empty() && !replica_store.has_digested());
        take_in(&mut replica_store, &put(ShardId(0), "k", number));
        replica_store.hand_on();
        called.recv().unwrap();
        assert!(replica_store.has_digested());
        let mut done = Vec::new();
        replica_store.take_done(&mut done);
        assert_eq!(done.len(), 1);
    }
    drop(replica_store); // They end.
}

#[test]
fn what_follows_what_had_no_room_in_its_frame_has_none_either() {
    let (_, mut replica_store) = open_with(1, &ring_nothing());
    let shard = ShardId(0);
    // More than the store has room for.
    let large = |number| {
        let value = Some(vec![7; 2 << 20].into());
        Entry { value, ..Entry::delete_of(shard, (*b"large").into(), version(number)) }
    };
    let mut give = |entry: &Entry, follows| {
        let installed = replica_store.take_in(landed(entry, follows), &entry.as_plain());
        assert_eq!(installed, Installed::Later);
    };
    give(&put(shard, "a", 1), false);
    give(&large(2), true);
    give(&put(shard, "b", 3), true);
    give(&put(shard, "c", 4), true);
    give(&put(shard, "d", 5), false);
    replica_store.finish();
    let mut done = Vec::new();
    replica_store.take_done(&mut done);
    let there: Vec<bool> = done.iter().map(|done| done.is_there).collect();
    assert_eq!(there, [true, false, false, false, true]);
    assert_eq!(replica_store.get(shard, b"b"), None);
}
