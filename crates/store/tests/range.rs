//! Tests of ranges and prefix walks against a plain ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::UnixMillis;
use proptest::collection::vec;
use proptest::prelude::*;
use store::{
    BATCH_MAX, Condition, Direction, Eviction, Expiry, IndexKind, Item, Mode, NoOrder, NoUpdate,
    Op, Outcome, Pins, Range, RangeEnd, RangeSink, Request, Session, Set, Sink, Store, StoreConfig,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1000);

fn open(index: IndexKind) -> Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 16 << 20,
        index_bytes: 1 << 20,
        eviction: Eviction::Fifo,
        session_max: 4,
        hash_seed: 5,
        ..support::config(index, Mode::Clean)
    })
    .unwrap()
}

struct Done;

impl Sink<NoUpdate> for Done {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        assert!(matches!(
            outcome,
            Outcome::Stored { .. } | Outcome::Deleted { .. } | Outcome::Miss
        ));
    }
}

fn execute(store: &Store, session: &mut Session, key: &[u8], op: Op<'_, NoUpdate>) {
    let request = Request { key, hash: store.key_hasher().hash(key), op };
    session.execute(NOW, &[request], &mut Done);
}

fn set(store: &Store, session: &mut Session, key: &[u8], value: &[u8], expiry: Expiry) {
    let set = Set { value, client_flags: 0, expiry, condition: Condition::Always };
    execute(store, session, key, Op::Set(set));
}

/// A whole range, call after call of at most `item_limit` items.
fn walk(session: &mut Session, range: &Range<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut items, mut resume) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let part = resume.as_deref().map_or(*range, |key| range.after(key));
        let before = items.len();
        let end = session
            .range(NOW, &part, |item| items.push((item.key.to_vec(), item.value.to_vec())))
            .unwrap();
        assert_eq!(end.visited, items.len() - before);
        assert!(end.visited <= range.item_limit);
        match end.resume_key {
            Some(key) => resume = Some(key),
            None => return items,
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0_u32..300).prop_map(|id| id.to_string().into_bytes()),
        2 => (0_u32..50).prop_map(|id| format!("a shared prefix {id}").into_bytes()),
        1 => vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..20),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

proptest! {
    #[test]
    fn a_range_has_what_the_map_has(
        keys in vec((key(), any::<bool>()), 0..300),
        removed in vec(key(), 0..100),
        start in bound(),
        end in bound(),
        item_limit in 1_usize..40,
        is_forward in any::<bool>(),
    ) {
        let store = open(IndexKind::Tree);
        let mut session = store.session().unwrap();
        let mut model = BTreeMap::new();
        for (number, (key, expires)) in keys.iter().enumerate() {
            let value = number.to_string().into_bytes();
            let late = UnixMillis(NOW.0 + 1);
            let expiry = if *expires { Expiry::At(late) } else { Expiry::Never };
            set(&store, &mut session, key, &value, expiry);
            model.insert(key.clone(), value);
        }
        for key in &removed {
            execute(&store, &mut session, key, Op::Delete);
            model.remove(key);
        }
        let direction = if is_forward { Direction::Forward } else { Direction::Reverse };
        let start = start.as_ref().map(Vec::as_slice);
        let range = Range { start, end: end.as_ref().map(Vec::as_slice), direction, item_limit };
        let mut want = Vec::new();
        if !range.is_empty() {
            let inside = model.range::<[u8], _>((range.start, range.end));
            want.extend(inside.map(|(key, value)| (key.clone(), value.clone())));
        }
        if !is_forward {
            want.reverse();
        }
        prop_assert_eq!(walk(&mut session, &range), want);
    }
}

/// The items of one range, and its end.
type Shown = (Vec<(Vec<u8>, Vec<u8>)>, RangeEnd);

fn shown(item: &Item<'_>) -> (Vec<u8>, Vec<u8>) {
    (item.key.to_vec(), item.value.to_vec())
}

/// The ranges that have ended, and the items of the current one.
#[derive(Default)]
struct Collect {
    items: Vec<(Vec<u8>, Vec<u8>)>,
    ended: Vec<Shown>,
}

impl RangeSink for Collect {
    fn item(&mut self, range_index: usize, item: &Item<'_>) {
        assert_eq!(range_index, self.ended.len(), "range after range");
        self.items.push(shown(item));
    }

    fn ended(&mut self, range_index: usize, visited: usize, resume_key: Option<&[u8]>) {
        assert_eq!(range_index, self.ended.len(), "range after range");
        let resume_key = resume_key.map(<[u8]>::to_vec);
        self.ended.push((std::mem::take(&mut self.items), RangeEnd { visited, resume_key }));
    }
}

#[track_caller]
fn check_together(session: &mut Session, now: UnixMillis, ranges: &[Range<'_>]) {
    let mut together = Collect::default();
    session.ranges(now, ranges, &mut together).unwrap();
    assert_eq!(together.ended.len(), ranges.len());
    for (range, together) in ranges.iter().zip(together.ended) {
        let mut items = Vec::new();
        let end = session.range(now, range, |item| items.push(shown(item))).unwrap();
        assert_eq!(together, (items, end), "{range:?}");
    }
}

/// Bounds, whether forward, and the limit.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>, bool, usize);

fn range_of((start, end, is_forward, item_limit): &Bounds) -> Range<'_> {
    Range {
        start: start.as_ref().map(Vec::as_slice),
        end: end.as_ref().map(Vec::as_slice),
        direction: if *is_forward { Direction::Forward } else { Direction::Reverse },
        item_limit: *item_limit,
    }
}

proptest! {
    #[test]
    fn ranges_in_one_call_have_what_each_has_alone(
        keys in vec((key(), any::<bool>()), 0..300),
        bounds in vec((bound(), bound(), any::<bool>(), 0_usize..150), 0..80),
    ) {
        let store = open(IndexKind::Tree);
        let mut session = store.session().unwrap();
        for (key, expires) in &keys {
            let at = Expiry::At(UnixMillis(NOW.0 + 1));
            set(&store, &mut session, key, key, if *expires { at } else { Expiry::Never });
        }
        let ranges: Vec<Range<'_>> = bounds.iter().map(range_of).collect();
        check_together(&mut session, NOW, &ranges);
        check_together(&mut session, UnixMillis(NOW.0 + 2), &ranges);
    }
}

#[test]
fn ranges_of_any_length_share_a_call() {
    let store = open(IndexKind::Tree);
    let mut session = store.session().unwrap();
    let count = 3000_u32;
    let keys: Vec<_> = (0..count).map(|id| id.to_be_bytes()).collect();
    for key in &keys {
        set(&store, &mut session, key, &[key[3]; 600], Expiry::Never);
    }
    // More ranges than a batch, long and short in turns, some longer than a call's bound.
    let limits = [1, 63, 64, 65, 200, 999, 1000, usize::MAX];
    let range = |at: usize| Range {
        start: Bound::Included(&keys[at * 37 % keys.len()][..]),
        end: if at.is_multiple_of(3) { Bound::Excluded(&keys[2500][..]) } else { Bound::Unbounded },
        direction: if at.is_multiple_of(2) { Direction::Forward } else { Direction::Reverse },
        item_limit: limits[at % limits.len()],
    };
    let ranges: Vec<_> = (0..2 * BATCH_MAX + 3).map(range).collect();
    check_together(&mut session, NOW, &ranges);
    let (start, end) = (Bound::Unbounded, Bound::Unbounded);
    let whole = Range { start, end, direction: Direction::Forward, item_limit: usize::MAX };
    let mut first = Collect::default();
    session.ranges(NOW, &[whole, whole], &mut first).unwrap();
    let wanted: Vec<_> = keys[..1000].iter().map(|key| key.to_vec()).collect();
    for (items, end) in first.ended {
        assert!(items.into_iter().map(|(key, _)| key).eq(wanted.clone()));
        assert_eq!(end, RangeEnd { visited: 1000, resume_key: wanted.last().cloned() });
    }
}

#[test]
fn items_that_have_expired_are_passed_by() {
    let store = open(IndexKind::Tree);
    let mut session = store.session().unwrap();
    for id in 0..5000_u32 {
        let at = Expiry::At(UnixMillis(NOW.0 + u64::from(id % 2) * 100 + 1));
        set(&store, &mut session, &id.to_be_bytes(), b"v", at);
    }
    let range = Range {
        start: Bound::Unbounded,
        end: Bound::Unbounded,
        direction: Direction::Forward,
        item_limit: usize::MAX,
    };
    let (mut seen, mut resume) = (0, None::<Vec<u8>>);
    loop {
        let part = resume.as_deref().map_or(range, |key| range.after(key));
        let later = UnixMillis(NOW.0 + 50);
        let end = session.range(later, &part, |item| {
            assert_eq!(item.key[3] % 2, 1);
            seen += 1;
        });
        let end = end.unwrap();
        assert!(end.visited <= 1000, "a call is bounded");
        resume = end.resume_key;
        if resume.is_none() {
            break;
        }
    }
    assert_eq!(seen, 2500);
}

#[test]
fn keys_of_any_length_that_differ_in_their_last_byte_come_and_go() {
    let store = open(IndexKind::Tree);
    let mut session = store.session().unwrap();
    for len in [7, 8, 9, 16, 17, 216, 217, 300, 4096, 65_535] {
        let keys: Vec<Vec<u8>> =
            (b'1'..=b'7').map(|last| [&vec![b'k'; len - 1][..], &[last]].concat()).collect();
        for key in &keys {
            set(&store, &mut session, key, b"value", Expiry::Never);
        }
        let whole = Range {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            direction: Direction::Reverse,
            item_limit: 2,
        };
        let found: Vec<_> = walk(&mut session, &whole).into_iter().map(|(key, _)| key).collect();
        assert!(found.iter().eq(keys.iter().rev()), "{len} bytes");
        for key in &keys {
            execute(&store, &mut session, key, Op::Delete);
        }
        assert_eq!(walk(&mut session, &whole), [], "{len} bytes");
    }
    session.maintain(NOW);
    drop(session);
    store.validate();
    assert_eq!(store.stats().tree_nodes, 1, "all others went with their keys");
}

#[test]
fn a_hash_index_has_no_ranges() {
    let store = open(IndexKind::Hash);
    let mut session = store.session().unwrap();
    let range = Range {
        start: Bound::Unbounded,
        end: Bound::Unbounded,
        direction: Direction::Forward,
        item_limit: 1,
    };
    assert_eq!(session.range(NOW, &range, |_| {}), Err(NoOrder));
    assert_eq!(session.ranges(NOW, &[range], &mut Collect::default()), Err(NoOrder));
}

#[test]
fn a_prefix_walk_meets_that_prefix_alone_with_either_index() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let store = open(index);
        let mut session = store.session().unwrap();
        for id in 0..2000 {
            set(&store, &mut session, format!("user:{id}").as_bytes(), b"u", Expiry::Never);
            set(&store, &mut session, format!("order:{id}").as_bytes(), b"o", Expiry::Never);
        }
        let (mut found, mut cursor) = (0, 0);
        loop {
            let next = session.scan_while(NOW, cursor, b"user:1", 10, |item| {
                assert!(item.key.starts_with(b"user:1"));
                found += 1;
                true
            });
            cursor = next.unwrap();
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(found, 1111, "{index:?}");
    }
}

#[test]
fn a_cursor_of_another_prefix_leads_to_this_one_alone() {
    let store = open(IndexKind::Tree);
    let mut session = store.session().unwrap();
    for key in [&b"a1"[..], b"a2", b"b1", b"b2", b"c1"] {
        set(&store, &mut session, key, b"value", Expiry::Never);
    }
    let mut walk = |cursor, prefix: &[u8], item_target| {
        let mut found = Vec::new();
        let next = session.scan_while(NOW, cursor, prefix, item_target, |item| {
            found.push(item.key.to_vec());
            true
        });
        (next.unwrap(), found)
    };
    let (cursor, _) = walk(0, b"a", 1);
    assert_eq!(walk(cursor, b"b", 10).1, [b"b1", b"b2"]);
    let (cursor, _) = walk(0, b"c", 1);
    let (_, found) = walk(cursor, b"b", 10);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_cursor_that_was_never_given_is_an_error_of_the_tree() {
    let store = open(IndexKind::Tree);
    let mut session = store.session().unwrap();
    let unknown = session.scan(NOW, 77, 10, |_| {}).unwrap_err();
    assert_eq!(unknown.to_string(), "cursor 77 is not known any more; begin again with 0");
}

#[test]
fn what_stays_is_in_every_range_while_others_come_and_go() {
    const KEYS: u32 = 1000;
    let store = open(IndexKind::Tree);
    let key = |id: u32| format!("user:{:06}", id * 37 % 10_007).into_bytes();
    let mut session = store.session().unwrap();
    let mut fixed: Vec<_> = (0..KEYS).step_by(2).map(key).collect();
    for key in &fixed {
        set(&store, &mut session, key, b"fixed", Expiry::Never);
    }
    fixed.sort_unstable();
    std::thread::scope(|scope| {
        let writers: Vec<_> = [1, 2]
            .map(|seed| {
                let store = &store;
                scope.spawn(move || {
                    let mut session = store.session().unwrap();
                    for round in 0..40_000_u32 {
                        let id = (round.wrapping_mul(2_654_435_761).wrapping_add(seed) % KEYS) | 1;
                        match round % 3 {
                            0 => execute(store, &mut session, &key(id), Op::Delete),
                            _ => set(store, &mut session, &key(id), b"guest", Expiry::Never),
                        }
                        session.maintain(NOW);
                    }
                })
            })
            .into();
        let mut rounds = 0;
        while rounds < 3 || writers.iter().any(|writer| !writer.is_finished()) {
            let direction = [Direction::Forward, Direction::Reverse][rounds % 2];
            let (start, end) = (Bound::Unbounded, Bound::Unbounded);
            let mut items = walk(&mut session, &Range { start, end, direction, item_limit: 70 });
            if direction == Direction::Reverse {
                items.reverse();
            }
            assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, each once");
            let stayed = items.iter().filter(|(_, value)| value == b"fixed").map(|(key, _)| key);
            assert!(stayed.eq(fixed.iter()), "all that stay");
            rounds += 1;
        }
    });
    drop(session);
    store.validate();
}
