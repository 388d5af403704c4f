//! Tests of a durable store over files, by each access method: acknowledged writes are present
//! after a crash, by whichever method the log is then opened. In a directory on persistent memory,
//! which `DOVETAIL_DAX_DIR` names, the mapping is real; elsewhere `msync` stands in for flushes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::UnixMillis;
use store::durable::{Committer, NewData, Opened};
use store::medium::{FileMedium, LogFile, MappedMedium, Media, Medium};
use store::pin::Pins;
use store::{
    Condition, Expiry, IndexKind, NoUpdate, Op, Outcome, Request, Session, Set, Sink, Store,
};

use crate::support::{self, Rng};

const NOW: UnixMillis = UnixMillis(1_000_000);
const KEY_COUNT: u64 = 300;

/// A directory on persistent memory, if there is one.
fn dax_directory() -> Option<PathBuf> {
    std::env::var_os("DOVETAIL_DAX_DIR").map(PathBuf::from)
}

fn directory() -> tempfile::TempDir {
    let parent = dax_directory().unwrap_or_else(std::env::temp_dir);
    tempfile::tempdir_in(parent).expect("a directory")
}

fn mapped(path: &Path) -> LogFile {
    let mapped = match dax_directory() {
        Some(_) => MappedMedium::open(path),
        None => MappedMedium::open_emulated(path),
    };
    LogFile::Dax(mapped.expect("a file that can be mapped"))
}

fn file(path: &Path) -> LogFile {
    LogFile::File(FileMedium::open(path).expect("a file"))
}

fn open<M: Medium>(medium: M) -> Opened<M> {
    let config = support::durable_config(IndexKind::Hash, 2 << 20);
    let new = NewData { now_ms: NOW.0, data_id: 5, recovers_damaged: false, threads: 1 };
    support::open_durable(medium, config, new).expect("a log")
}

struct Value(Option<Vec<u8>>);

impl Sink<NoUpdate> for Value {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => self.0 = Some(item.value.to_vec()),
            Outcome::Miss | Outcome::Deleted { .. } | Outcome::Stored { .. } => {}
            other => panic!("not asked for: {other:?}"),
        }
    }
}

fn ask(session: &mut Session, store: &Store, key: &[u8], op: Op<'_, NoUpdate>) -> Option<Vec<u8>> {
    let request = Request { key, hash: store.key_hasher().hash(key), op };
    let mut value = Value(None);
    session.execute(NOW, &[request], &mut value);
    value.0
}

/// A store, and the states of each key since the last one known to be on the medium, which comes
/// first.
struct World<M> {
    store: std::sync::Arc<Store>,
    session: Session,
    committer: Committer<M>,
    states: BTreeMap<u64, Vec<Option<Vec<u8>>>>,
}

impl<M: Medium> World<M> {
    /// Opens the log, and checks that acknowledged writes are present.
    fn open(medium: M, states: &BTreeMap<u64, Vec<Option<Vec<u8>>>>) -> World<M> {
        let Opened { store, committer, .. } = open(medium);
        store.validate();
        let mut session = store.session().expect("a place");
        let mut found = BTreeMap::new();
        for id in 0..KEY_COUNT {
            let value = ask(&mut session, &store, &key(id), Op::Get);
            let never = vec![None];
            let had = states.get(&id).unwrap_or(&never);
            assert!(had.contains(&value), "key {id}: {value:?}, and it had {had:?}");
            found.insert(id, vec![value]);
        }
        World { store, session, committer, states: found }
    }

    fn write_some(&mut self, rng: &mut Rng, count: u64) {
        for _ in 0..count {
            let id = rng.below(KEY_COUNT);
            let value = (rng.below(5) > 0)
                .then(|| vec![rng.next() as u8; 1 + rng.below(3000) as usize / (1 + id as usize)]);
            let op = match &value {
                None => Op::Delete,
                Some(value) => Op::Set(Set {
                    value,
                    client_flags: 0,
                    expiry: Expiry::Never,
                    condition: Condition::Always,
                }),
            };
            ask(&mut self.session, &self.store, &key(id), op);
            self.states.entry(id).or_default().push(value);
        }
        self.session.park();
        self.session.unpark();
    }

    fn commit(&mut self) {
        self.session.park();
        self.committer.commit(|| unreachable!("the session is parked")).expect("a good medium");
        self.session.unpark();
        for states in self.states.values_mut() {
            states.drain(..states.len() - 1);
        }
    }
}

fn key(id: u64) -> Vec<u8> {
    format!("key-{id}").into_bytes()
}

/// Each life ends without a clean shutdown, and the next one opens the log by another method.
#[test]
fn the_ways_read_each_others_logs() {
    let directory = directory();
    let path = directory.path().join("log");
    let mut rng = Rng(1);
    let mut states = BTreeMap::new();
    for life in 0..12 {
        let medium = if life % 3 == 1 { file(&path) } else { mapped(&path) };
        let mut world = World::open(medium, &states);
        for _ in 0..rng.below(4) {
            let count = rng.below(80);
            world.write_some(&mut rng, count);
            world.commit();
        }
        if life % 4 == 2 {
            world.committer.end_clean().expect("a good medium");
        } else {
            world.write_some(&mut rng, 20);
        }
        states = world.states;
    }
}

/// The power fails between the writes of a commit and its sync: each eight bytes of the writes are
/// present or not.
#[test]
fn words_that_reach_the_medium_in_any_order_are_no_more_than_a_torn_tail() {
    let directory = directory();
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let path = directory.path().join("log");
        std::fs::remove_file(&path).ok();
        let mut states = BTreeMap::new();
        for life in 0..4 {
            let mut world = World::open(mapped(&path), &states);
            for _ in 0..rng.below(3) {
                world.write_some(&mut rng, 60);
                world.commit();
            }
            let before = std::fs::read(&path).expect("the log");
            let count = rng.below(60);
            world.write_some(&mut rng, count);
            world.session.park();
            world.committer.begin();
            assert!(world.committer.is_ready(), "the session is parked");
            world.committer.write().expect("a good medium");
            states = world.states.clone();
            drop(world);
            // Words that were written and not synced, now applied one by one.
            let mut torn = before.clone();
            let after = std::fs::read(&path).expect("the log");
            assert_eq!(before.len(), after.len(), "it was made as long as it gets");
            let share = 1 + (seed + life) % 3;
            for (torn, after) in torn.chunks_mut(8).zip(after.chunks(8)) {
                if torn != after && rng.below(4) < share {
                    torn.copy_from_slice(after);
                }
            }
            std::fs::write(&path, torn).expect("the log");
        }
        drop(World::open(mapped(&path), &states));
    }
}

/// A method that is not available is refused, and `auto` uses another.
#[test]
fn a_file_system_without_dax_is_refused_and_auto_takes_a_file() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let path = directory.path().join("log");
    let refused = LogFile::open(&path, Media::Dax).map(drop).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
    assert_eq!(LogFile::open(&path, Media::Auto).expect("a file").name(), "file");
    assert_eq!(LogFile::open(&path, Media::File).expect("a file").name(), "file");
}

/// Runs only on persistent memory.
#[test]
fn auto_takes_dax_where_it_is() {
    let Some(parent) = dax_directory() else { return };
    let directory = tempfile::tempdir_in(parent).expect("a directory");
    for media in [Media::Auto, Media::Dax] {
        let path = directory.path().join("log");
        assert_eq!(LogFile::open(&path, media).expect("a mapping").name(), "dax");
    }
}
