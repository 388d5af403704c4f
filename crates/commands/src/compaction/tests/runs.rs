//! Plain SETs of one key that follow each other in a batch.

use super::*;

/// Longer than what is replaced where it lies.
const OLD: &[u8] = b"an old value";
const NEW: &[u8] = b"a new value";

/// Runs requests of the given keys; returns the counts and the outcomes, in order.
fn run(script: &[(&'static [u8], Op<'static, Rmw<'static>>)]) -> (Compacted, Vec<String>) {
    let store = store();
    let mut session = store.session().unwrap();
    run_in(&store, &mut session, &mut Compaction::default(), script)
}

fn run_in(
    store: &Store,
    session: &mut Session,
    compaction: &mut Compaction,
    script: &[(&'static [u8], Op<'static, Rmw<'static>>)],
) -> (Compacted, Vec<String>) {
    let of = |(key, op): &(&'static [u8], _)| {
        let hash = store.key_hasher().hash(key);
        Request { key, hash, op: *op }
    };
    let requests: Vec<_> = script.iter().map(of).collect();
    let mut heard = Heard::of(vec![Tells::Nothing; script.len()]);
    compaction.execute(session, NOW, &requests, &mut heard);
    let indices: Vec<_> = heard.outcomes.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, (0..script.len()).collect::<Vec<_>>(), "I1");
    let texts = heard.outcomes.into_iter().map(|(_, text)| text).collect();
    (compaction.take_counted(), texts)
}

#[test]
fn the_store_sees_the_last_of_several_plain_sets() {
    let ops = [blind_set(OLD), blind_set(OLD), blind_set(NEW)];
    let (counted, version_growth) = run_on_one_key(&ops, Tells::Nothing);
    assert_eq!((counted.windows, counted.writes_saved, version_growth), (1, 2, 1));

    let script = [
        (b"a".as_slice(), blind_set(OLD)),
        (b"b", blind_set(OLD)),
        (b"a", blind_set(NEW)),
        (b"b", Op::Get),
        (b"a", Op::Get),
    ];
    let (counted, texts) = run(&script);
    assert_eq!(counted.writes_saved, 1);
    let starts = ["stored", "stored", "stored", "hit an old value", "hit a new value"];
    for (text, start) in texts.iter().zip(starts) {
        assert!(text.starts_with(start), "{text}");
    }
}

/// Another request on the key between two SETs sees the first of them.
#[test]
fn any_other_request_on_the_key_ends_a_run() {
    let set = |expiry, condition| Set { value: OLD, client_flags: 0, expiry, condition };
    let others = [
        Op::Get,
        Op::Delete,
        Op::Update(Rmw::IncrementBy(1)),
        Op::Update(Rmw::Persist),
        Op::Set(set(Expiry::Never, Condition::IfPresent)),
        Op::Set(set(Expiry::Never, Condition::IfAbsent)),
        Op::Set(set(Expiry::Keep, Condition::Always)),
        Op::Set(set(Expiry::At(NOW), Condition::Always)),
    ];
    for other in others {
        let script = [blind_set(OLD), other, blind_set(NEW)].map(|op| (b"k".as_slice(), op));
        assert_eq!(run(&script).0, Compacted::default(), "{other:?}");
    }
}

#[test]
fn sets_whose_replies_tell_something_are_not_left_out() {
    for tells in [Tells::Old, Tells::Version] {
        let (counted, version_growth) = run_on_one_key(&[blind_set(OLD); 3], tells);
        assert_eq!((counted, version_growth), (Compacted::default(), 3), "{tells:?}");
    }
}

#[test]
fn a_value_that_the_store_refuses_is_in_no_run() {
    let values = [OLD, TOO_LARGE, OLD, NEW];
    let script = values.map(|value| (b"k".as_slice(), blind_set(value)));
    let (counted, texts) = run(&script);
    assert_eq!(counted.writes_saved, 1);
    assert_eq!([&*texts[0], &*texts[2], &*texts[3]], ["stored"; 3]);
    assert!(texts[1].starts_with("71680 > "), "{}", texts[1]);
}

#[test]
fn where_there_is_no_room_every_set_of_a_run_says_so() {
    static VALUE: [u8; 30_000] = [b'v'; 30_000];
    let store = store();
    let mut session = store.session().unwrap();
    let mut compaction = Compaction::default();
    run_in(&store, &mut session, &mut compaction, &[(b"k", blind_set(OLD))]);
    for n in 0.. {
        assert!(n < 10_000, "the store is never full");
        let key: &'static [u8] = Vec::leak(format!("{n}").into_bytes());
        let filler = [(key, blind_set(&VALUE))];
        if run_in(&store, &mut session, &mut compaction, &filler).1 == ["out of memory"] {
            break;
        }
    }
    let long = blind_set(&VALUE);
    let script =
        [(b"k".as_slice(), long), (b"k", long), (b"other", Op::Get), (b"k", long), (b"k", Op::Get)];
    // It has not been searched in vain.
    let mut compaction = Compaction::default();
    let (counted, texts) = run_in(&store, &mut session, &mut compaction, &script);
    assert_eq!(counted.windows, 1);
    let full = "out of memory";
    assert_eq!(texts[..4], [full, full, "miss", full]);
    assert!(texts[4].starts_with("hit an old value"), "{}", texts[4]);
}

/// A load without such keys is searched ever more rarely, and one with them at every batch.
#[test]
fn searches_follow_what_they_find() {
    let store = store();
    let mut session = store.session().unwrap();
    let mut compaction = Compaction::default();
    let twice = [(b"k".as_slice(), blind_set(OLD)), (b"k", blind_set(NEW))];
    let once = [(b"k".as_slice(), blind_set(OLD)), (b"l", blind_set(NEW))];
    let mut saved =
        |script: &[_]| run_in(&store, &mut session, &mut compaction, script).0.writes_saved;
    assert_eq!((0..10).map(|_| saved(&twice)).sum::<u64>(), 10);
    assert_eq!((0..100).map(|_| saved(&once)).sum::<u64>(), 0);
    let found = (0..64).map(|_| saved(&twice)).sum::<u64>();
    assert!((34..64).contains(&found), "{found}");
}
