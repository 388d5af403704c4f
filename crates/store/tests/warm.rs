//! Tests that a store kept in a file and reopened holds the same items, with their versions, flags
//! and expiries, whatever index, mode and memory it is opened with.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base::UnixMillis;
use store::warm::{self, Found, Kept, Misfit, Opened, WarmError};
use store::{
    Condition, Eviction, Expiry, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Session,
    Set, Sink, Store, StoreConfig, Tuning,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1_000_000);
const MEMORY_BYTES: u64 = 8 << 20;

fn config(index: IndexKind, mode: Mode) -> StoreConfig {
    StoreConfig {
        memory_bytes: MEMORY_BYTES,
        index_bytes: 4096,
        eviction: Eviction::S3Fifo,
        session_max: 3,
        ..support::config(index, mode)
    }
}

fn open(path: &Path, config: StoreConfig) -> Result<Opened, WarmError> {
    open_at(path, config, NOW)
}

fn open_at(path: &Path, config: StoreConfig, now: UnixMillis) -> Result<Opened, WarmError> {
    warm::open(path, config, (Tuning::default(), &[]), (2, now))
}

/// Opens a store and declares it running, so that clients may write.
fn running(path: &Path, config: StoreConfig) -> Opened {
    let opened = open(path, config).unwrap();
    opened.file.begin(&opened.store).unwrap();
    opened
}

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Had {
    value: Vec<u8>,
    client_flags: u64,
    version: u64,
    expires_at: Option<UnixMillis>,
}

/// The outcome of one request.
#[derive(Default)]
struct One {
    had: Option<Had>,
    version: Option<u64>,
}

impl Sink<NoUpdate> for One {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => {
                self.had = Some(Had {
                    value: item.value.to_vec(),
                    client_flags: item.client_flags,
                    version: item.version,
                    expires_at: item.expires_at,
                });
            }
            Outcome::Stored { version, .. } => self.version = Some(version),
            _ => {}
        }
    }
}

fn run(store: &Store, session: &mut Session, key: &[u8], op: Op<'_, NoUpdate>) -> One {
    let mut one = One::default();
    let hash = store.key_hasher().hash(key);
    session.execute(NOW, &[Request { key, hash, op }], &mut one);
    one
}

fn set(store: &Store, session: &mut Session, key: &[u8], had: &Had) -> u64 {
    let expiry = had.expires_at.map_or(Expiry::Never, Expiry::At);
    let (value, client_flags, condition) = (&had.value[..], had.client_flags, Condition::Always);
    run(store, session, key, Op::Set(Set { value, client_flags, expiry, condition }))
        .version
        .unwrap()
}

fn key_of(id: u64) -> Vec<u8> {
    match id % 3 {
        0 => id.to_le_bytes().to_vec(),
        1 => format!("key-{id}").into_bytes(),
        _ => [&b"a long one that is wide ".repeat(20)[..], &id.to_le_bytes()].concat(),
    }
}

fn had_of(id: u64, turn: u64) -> Had {
    let len = match id % 50 {
        // In place (decision 0019), empty, and with a run of segments for itself.
        0..40 => 8,
        40 => 0,
        41 if id % 500 == 41 => 150_000,
        rest => rest as usize * 40,
    };
    let value = (0..len).map(|at| (id + turn * 7 + at as u64) as u8).collect();
    let client_flags = if id.is_multiple_of(5) { id | store::request::STALE } else { 0 };
    let expires_at = id.is_multiple_of(4).then_some(UnixMillis(NOW.0 + 1000 + id));
    Had { value, client_flags, version: 0, expires_at }
}

/// Writes, overwrites and deletes; returns the contents afterwards.
fn fill(store: &Store) -> BTreeMap<Vec<u8>, Had> {
    let mut session = store.session().unwrap();
    let mut there = BTreeMap::new();
    for turn in 0..2 {
        for id in (0..3000).filter(|id| turn == 0 || id % 3 != 1) {
            let (key, mut had) = (key_of(id), had_of(id, turn));
            had.version = set(store, &mut session, &key, &had);
            there.insert(key, had);
        }
    }
    for id in (0..3000).step_by(7) {
        let key = key_of(id);
        run(store, &mut session, &key, Op::Delete);
        there.remove(&key);
    }
    there
}

#[track_caller]
fn assert_holds(store: &Store, want: &BTreeMap<Vec<u8>, Had>) {
    let mut session = store.session().unwrap();
    for id in 0..3000 {
        let key = key_of(id);
        let found = run(store, &mut session, &key, Op::Get).had;
        assert_eq!(found.as_ref(), want.get(&key), "key {id}");
    }
    assert_eq!(store.stats().items, want.len() as u64);
    drop(session);
    store.validate();
}

struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("warm");
    Place { _directory: directory, path }
}

/// Fills a store in a file and keeps it; returns its contents.
fn kept_in(path: &Path, config: StoreConfig) -> BTreeMap<Vec<u8>, Had> {
    let Opened { store, file, found } = open(path, config).unwrap();
    assert_eq!(found, Found::Nothing);
    let there = fill(&store);
    let written = file.keep(&store, NOW, 4711).unwrap();
    assert_eq!(written.items, there.len() as u64);
    there
}

#[track_caller]
fn found_kept(found: Found) -> Kept {
    let Found::Kept(kept) = found else { panic!("{found:?}") };
    kept
}

#[test]
fn a_kept_store_holds_what_it_held_under_either_index_and_in_either_mode() {
    use IndexKind::{Hash, Tree};
    for (was, is) in [(Hash, Hash), (Tree, Tree), (Hash, Tree), (Tree, Hash)] {
        for mode in [Mode::Clean, Mode::Evict] {
            let place = place();
            let there = kept_in(&place.path, config(was, mode));
            let opened = open(&place.path, config(is, mode));
            let Opened { store, found, .. } =
                opened.unwrap_or_else(|error| panic!("{was:?}, {is:?}, {mode:?}: {error}"));
            let items = there.len() as u64;
            let want = Kept { items, damaged: 0, saved_at_ms: NOW.0, note: 4711 };
            assert_eq!(found_kept(found), want);
            assert_holds(&store, &there);
        }
    }
}

#[test]
fn no_cas_token_comes_twice() {
    let place = place();
    let there = kept_in(&place.path, config(IndexKind::Hash, Mode::Clean));
    let deleted = key_of(7);
    assert!(!there.contains_key(&deleted));
    let newest = there.values().map(|had| had.version).max().unwrap();
    let Opened { store, .. } = open(&place.path, config(IndexKind::Hash, Mode::Clean)).unwrap();
    let mut session = store.session().unwrap();
    assert!(set(&store, &mut session, &deleted, &had_of(7, 9)) > newest);
    assert!(set(&store, &mut session, b"new", &had_of(8, 9)) > newest);
}

#[test]
fn a_store_is_kept_many_times_and_goes_on_evicting_in_between() {
    let place = place();
    let config = config(IndexKind::Hash, Mode::Evict);
    for life in 0..6_u64 {
        let Opened { store, file, found } = running(&place.path, config.clone());
        let mut session = store.session().unwrap();
        let marker = |life: u64| format!("life {life}").into_bytes();
        if life > 0 {
            assert!(found_kept(found).items > 100);
            let seen = run(&store, &mut session, &marker(life - 1), Op::Get).had;
            assert_eq!(seen.unwrap().value, (life - 1).to_le_bytes());
        }
        // Three times the memory.
        for id in 0..12_000 {
            let had = Had { value: vec![life as u8; 2000], ..had_of(1, 0) };
            set(&store, &mut session, &(life << 32 | id).to_le_bytes(), &had);
            session.maintain(NOW);
        }
        let had = Had { value: life.to_le_bytes().to_vec(), ..had_of(1, 0) };
        set(&store, &mut session, &marker(life), &had);
        drop(session);
        store.validate();
        let items = store.stats().items;
        let written = file.keep(&store, NOW, 0).unwrap();
        assert_eq!(written.items, items);
    }
}

#[test]
fn the_oldest_entries_are_still_the_first_to_go() {
    let place = place();
    let config = StoreConfig { eviction: Eviction::Fifo, ..config(IndexKind::Hash, Mode::Evict) };
    let value = |_: u64| Had { value: vec![7; 1000], ..had_of(1, 0) };
    let Opened { store, file, .. } = open(&place.path, config.clone()).unwrap();
    let mut session = store.session().unwrap();
    for id in 0..5000_u64 {
        set(&store, &mut session, &id.to_le_bytes(), &value(id));
    }
    drop(session);
    file.keep(&store, NOW, 0).unwrap();
    drop((store, file));
    let Opened { store, .. } = open(&place.path, config).unwrap();
    let mut session = store.session().unwrap();
    // A few, so that part of the old ones is dropped.
    for id in 10_000..13_000_u64 {
        set(&store, &mut session, &id.to_le_bytes(), &value(id));
    }
    let has = |session: &mut Session, id: u64| {
        run(&store, session, &id.to_le_bytes(), Op::Get).had.is_some()
    };
    let old: Vec<bool> = (0..5000).map(|id| has(&mut session, id)).collect();
    let first_left = old.iter().position(|is_there| *is_there).unwrap();
    assert!(first_left > 100, "{first_left}");
    assert!(old[first_left..].iter().all(|is_there| *is_there), "the oldest went first");
}

#[test]
fn what_has_expired_meanwhile_is_not_kept_or_not_seen() {
    let place = place();
    let Opened { store, file, .. } =
        open(&place.path, config(IndexKind::Hash, Mode::Clean)).unwrap();
    let mut session = store.session().unwrap();
    let had = |ms: u64| Had { expires_at: Some(UnixMillis(NOW.0 + ms)), ..had_of(1, 0) };
    set(&store, &mut session, b"soon", &had(10));
    set(&store, &mut session, b"later", &had(1000));
    drop(session);
    let later = UnixMillis(NOW.0 + 100);
    assert_eq!(file.keep(&store, later, 0).unwrap().items, 1);
    drop((store, file));
    let Opened { store, found, .. } =
        open(&place.path, config(IndexKind::Hash, Mode::Clean)).unwrap();
    assert_eq!(found_kept(found).items, 1);
    let mut session = store.session().unwrap();
    assert!(run(&store, &mut session, b"soon", Op::Get).had.is_none());
    let seen = run(&store, &mut session, b"later", Op::Get).had.unwrap();
    assert_eq!(seen.expires_at, Some(UnixMillis(NOW.0 + 1000)));
    drop((session, store));
    let config = config(IndexKind::Hash, Mode::Clean);
    let late = UnixMillis(NOW.0 + 1001);
    let Opened { found, .. } = open_at(&place.path, config, late).unwrap();
    let kept = found_kept(found);
    assert_eq!((kept.items, kept.damaged), (0, 0));
}

#[test]
fn a_larger_memory_takes_it_over_and_one_that_is_too_small_changes_nothing() {
    let place = place();
    let config = config(IndexKind::Hash, Mode::Clean);
    let there = kept_in(&place.path, config.clone());
    let before = std::fs::read(&place.path).unwrap();
    let small = StoreConfig { memory_bytes: 3 << 20, ..config.clone() };
    let refused = open(&place.path, small).map(|_| ()).unwrap_err();
    let WarmError::Misfit(Misfit::Room(needed)) = refused else { panic!("{refused}") };
    // What it had, and room for the sessions.
    let enough_bytes = needed.enough_bytes;
    assert!((MEMORY_BYTES..2 * MEMORY_BYTES).contains(&enough_bytes), "{enough_bytes}");
    assert!(before == std::fs::read(&place.path).unwrap(), "I2");
    let large = StoreConfig { memory_bytes: 32 << 20, ..config.clone() };
    // A start that fails afterwards has lost nothing, under either memory size.
    for config in [&large, &config, &large] {
        let Opened { store, found, .. } = open(&place.path, config.clone()).unwrap();
        assert_eq!(found_kept(found).items, there.len() as u64);
        assert_holds(&store, &there);
    }
    let Opened { store, file, found } = running(&place.path, large.clone());
    assert_eq!(found_kept(found).items, there.len() as u64);
    assert_holds(&store, &there);
    file.keep(&store, NOW, 0).unwrap();
    drop((store, file));
    let Opened { store, .. } = open(&place.path, large).unwrap();
    assert_holds(&store, &there);
}

/// Looks at the end of a file until told to stop, as a start after a kill would; returns the first
/// end that is neither a trailer nor the mark.
fn watch_end(path: &Path, is_over: &AtomicBool) -> Option<String> {
    while !is_over.load(Ordering::Acquire) {
        let Ok(mut file) = std::fs::File::open(path) else { continue };
        if file.metadata().unwrap().len() == 0 {
            continue;
        }
        let mut end = Vec::new();
        let Ok(at) = file.seek(SeekFrom::End(-64)) else { return Some("too short".to_owned()) };
        file.take(64).read_to_end(&mut end).unwrap();
        // It may have become shorter meanwhile.
        if end.len() == 64 && !end.starts_with(b"DVTLWARM") {
            return Some(format!("{at}: {end:?}"));
        }
    }
    None
}

#[test]
#[cfg_attr(miri, ignore = "has files of hundreds of megabytes")]
fn a_kill_at_any_moment_leaves_a_file_that_the_next_start_takes() {
    // The blocks of a tmpfs are given one by one, so there is time to look.
    let shared = Path::new("/dev/shm");
    let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::tempdir_in(parent).unwrap();
    let path = &directory.path().join("warm");
    let config = config(IndexKind::Hash, Mode::Clean);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_end(path, &is_over));
        // Each is larger than the last: the table moves.
        for memory_mib in [64, 128, 192] {
            let config = StoreConfig { memory_bytes: memory_mib << 20, ..config.clone() };
            let Opened { store, file, found } = running(path, config);
            assert_eq!(memory_mib > 64, matches!(found, Found::Kept(kept) if kept.items > 0));
            fill(&store);
            file.keep(&store, NOW, 0).unwrap();
        }
        is_over.store(true, Ordering::Release);
        assert_eq!(watcher.join().unwrap(), None);
    });
}

#[test]
fn a_table_that_was_being_moved_is_the_old_one() {
    let place = place();
    let small = config(IndexKind::Hash, Mode::Clean);
    let there = kept_in(&place.path, small.clone());
    let kept = std::fs::read(&place.path).unwrap();
    let trailer = &kept[kept.len() - 64..];
    let large = StoreConfig { memory_bytes: 32 << 20, ..small.clone() };
    for (config, gap) in [(&large, 25 << 20), (&large, 100), (&small, 25 << 20), (&small, 100)] {
        // Some of the new table was written.
        let mut moving = kept.clone();
        moving.resize((kept.len() + gap).next_multiple_of(64), 7);
        moving.extend_from_slice(trailer);
        std::fs::write(&place.path, &moving).unwrap();
        for _ in 0..2 {
            let Opened { store, found, .. } = open(&place.path, config.clone()).unwrap();
            assert_eq!(found_kept(found).items, there.len() as u64);
            assert_holds(&store, &there);
        }
        running(&place.path, config.clone());
        assert_eq!(open(&place.path, config.clone()).unwrap().found, Found::NotEnded);
    }
}

#[test]
fn memory_without_a_table_is_not_believed() {
    let place = place();
    let config = config(IndexKind::Hash, Mode::Clean);
    kept_in(&place.path, config.clone());
    // The store ran, and was killed without being kept.
    drop(running(&place.path, config.clone()));
    let Opened { store, found, .. } = open(&place.path, config.clone()).unwrap();
    assert_eq!(found, Found::NotEnded);
    assert_holds(&store, &BTreeMap::new());
}

#[test]
fn a_table_that_was_cut_or_changed_is_refused_and_left_alone() {
    let place = place();
    let config = config(IndexKind::Hash, Mode::Clean);
    kept_in(&place.path, config.clone());
    let whole = std::fs::read(&place.path).unwrap();
    let mut cut = whole.clone();
    cut.truncate(whole.len() - 1);
    for foreign in [&cut[..], b"somebody's notes", &[0; 4096]] {
        std::fs::write(&place.path, foreign).unwrap();
        let refused = open(&place.path, config.clone()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, WarmError::Foreign), "{refused}");
        let tuning = (Tuning::default(), &[][..]);
        assert!(warm::open_empty(&place.path, config.clone(), tuning).is_err());
        assert!(foreign == std::fs::read(&place.path).unwrap(), "I6");
    }
    let mut changed = whole.clone();
    changed[MEMORY_BYTES as usize + 40] ^= 1;
    std::fs::write(&place.path, &changed).unwrap();
    let refused = open(&place.path, config.clone()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, WarmError::Misfit(Misfit::Damaged)), "{refused}");
    assert!(changed == std::fs::read(&place.path).unwrap(), "I2");
    let opened = warm::open_empty(&place.path, config, (Tuning::default(), &[])).unwrap();
    assert_holds(&opened.store, &BTreeMap::new());
}

#[test]
fn an_item_whose_bytes_have_changed_is_left_out_and_counted() {
    let place = place();
    let config = config(IndexKind::Hash, Mode::Clean);
    let there = kept_in(&place.path, config.clone());
    let needle = b"key-1402";
    let bytes = std::fs::read(&place.path).unwrap();
    let key = key_of(1402);
    assert_eq!(key, needle);
    let file = std::fs::OpenOptions::new().write(true).open(&place.path).unwrap();
    let places = bytes.windows(needle.len()).enumerate().filter(|(_, at)| at == needle);
    for (at, _) in places {
        file.write_all_at(b"kex", at as u64).unwrap();
    }
    let Opened { store, found, .. } = open(&place.path, config).unwrap();
    let mut want = there;
    assert!(want.remove(&key).is_some());
    let kept = found_kept(found);
    assert_eq!((kept.items, kept.damaged), (want.len() as u64, 1));
    assert_holds(&store, &want);
}

#[test]
fn a_file_has_one_store_and_a_store_with_a_session_is_not_kept() {
    let place = place();
    let config = config(IndexKind::Hash, Mode::Clean);
    let Opened { store, file, .. } = open(&place.path, config.clone()).unwrap();
    let refused = open(&place.path, config).map(|_| ()).unwrap_err();
    assert!(matches!(refused, WarmError::Busy), "{refused}");
    let session = store.session().unwrap();
    assert!(file.keep(&store, NOW, 0).is_err());
    drop(session);
    assert!(file.keep(&store, NOW, 0).is_ok());
}

#[test]
fn a_store_that_is_full_is_taken_over_by_a_server_like_its_own() {
    for (index, len) in [(IndexKind::Hash, 0), (IndexKind::Hash, 30), (IndexKind::Tree, 0)] {
        let place = place();
        let config = config(index, Mode::Clean);
        let Opened { store, file, .. } = running(&place.path, config.clone());
        let mut session = store.session().unwrap();
        let had = Had { value: vec![7; len], ..had_of(1, 0) };
        let mut count = 0_u64;
        while is_stored(&store, &mut session, &count.to_le_bytes(), &had) {
            count += 1;
            session.maintain(NOW);
        }
        drop(session);
        file.keep(&store, NOW, 0).unwrap();
        drop((store, file));
        let opened = open(&place.path, config.clone());
        let Opened { store, found, .. } =
            opened.unwrap_or_else(|error| panic!("{index:?}, {len}, {count} items: {error}"));
        assert_eq!(found_kept(found).items, count);
        let mut session = store.session().unwrap();
        // There is room again once there are fewer.
        for id in 0..count / 2 {
            run(&store, &mut session, &id.to_le_bytes(), Op::Delete);
            session.maintain(NOW);
        }
        assert!(is_stored(&store, &mut session, b"one more", &had));
        drop(session);
        store.validate();
    }
}

fn is_stored(store: &Store, session: &mut Session, key: &[u8], had: &Had) -> bool {
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    let op = Op::Set(Set { value: &had.value, client_flags: 0, expiry, condition });
    run(store, session, key, op).version.is_some()
}
