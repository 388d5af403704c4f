//! Data files with any damage: they open, or are refused; nothing panics, and what has opened once
//! opens again.

use std::sync::OnceLock;

use base::UnixMillis;
use store::durable::{NewData, Opened, check, open};
use store::medium::MemoryMedium;
use store::pin::Pins;
use store::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Request, Set,
    Sink, StoreConfig, Tuning,
};

pub(crate) const NEW: NewData =
    NewData { now_ms: 1000, data_id: 7, recovers_damaged: false, threads: 2 };

/// An input is `settings (1 byte) | damage ...`. With the lowest bit of the settings the damage is
/// the file itself; else each four bytes are `where (3) | what to flip (1)` in a good one.
pub fn data_files(data: &[u8]) {
    check_kept(data);
    let Some((settings, damage)) = data.split_first() else { return };
    let mut disk = MemoryMedium::new(match settings & 1 {
        0 => good_file().to_vec(),
        _ => damage.to_vec(),
    });
    if settings & 1 == 0 {
        for [low, middle, high, flip] in damage.as_chunks::<4>().0 {
            let at = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
            let len = disk.bytes().len();
            disk.bytes_mut()[at % len] ^= flip;
        }
    }
    let checked = check::check(&disk, 1000, None, &mut |_, _| {});
    let recovers_damaged = settings & 2 != 0;
    let opened = open_file(disk, recovers_damaged);
    let Some(Opened { store, mut committer, recovery }) = opened else { return };
    if let Ok(report) = checked {
        assert!(recovers_damaged || report.found.damage.is_empty(), "damage is refused");
        assert_eq!(report.found.damage.len(), recovery.damage.len(), "both see the same");
    }
    store.validate();
    for _ in 0..3 {
        committer.commit(|| unreachable!("there is no session")).expect("memory does not fail");
    }
    let again = open_file(committer.into_medium(), false).expect("what was opened is in order");
    assert_eq!(again.recovery.items, recovery.items);
}

pub(crate) fn open_file(
    disk: MemoryMedium,
    recovers_damaged: bool,
) -> Option<Opened<MemoryMedium>> {
    let new = NewData { recovers_damaged, ..NEW };
    open(disk, config(), (Tuning::default(), &[]), new, &mut |_, _| {}).ok()
}

pub(crate) fn config() -> StoreConfig {
    StoreConfig {
        memory_bytes: 5 << 18,
        index_bytes: 64 << 10,
        index: IndexKind::Hash,
        mode: Mode::Clean,
        eviction: Eviction::default(),
        lossy_index: false,
        session_max: 1,
        item_max_bytes: 1 << 18,
        hash_seed: 5,
        batch: 8,
        huge_pages: HugePages::Off,
    }
}

struct Ignore;

impl Sink<NoUpdate> for Ignore {
    fn outcome(&mut self, _: usize, _: Outcome<'_, NoUpdate>, _: Pins<'_>) {}
}

/// The file of a short life: values, overwrites, deletes, in some commits.
pub(crate) fn good_file() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let opened = open_file(MemoryMedium::default(), false).expect("an empty disk");
        let Opened { store, mut committer, .. } = opened;
        let mut session = store.session().expect("there is a place");
        for id in 0..600_u32 {
            let key = (id % 150).to_le_bytes();
            let value = vec![id as u8; (id as usize * 7) % 700];
            let op: Op<'_, NoUpdate> = match id % 5 {
                0 => Op::Delete,
                _ => Op::Set(Set {
                    value: &value,
                    client_flags: u64::from(id % 3),
                    expiry: Expiry::Never,
                    condition: Condition::Always,
                }),
            };
            let hash = store.key_hasher().hash(&key);
            let requests = [Request { key: &key, hash, op }];
            session.execute(UnixMillis(1000), &requests, &mut Ignore);
            if id % 100 == 99 {
                session.park();
                committer.commit(|| unreachable!("it is parked")).expect("memory");
                session.unpark();
            }
        }
        drop(session);
        committer.commit(|| unreachable!("there is no session")).expect("memory");
        committer.into_medium().bytes().to_vec()
    })
}

/// What a node of a cluster keeps beside its log: refused, or the same again.
fn check_kept(bytes: &[u8]) {
    if let Some(kept) = server::Kept::decode(bytes) {
        assert_eq!(server::Kept::decode(&kept.encode()), Some(kept));
    }
}
