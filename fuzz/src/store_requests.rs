//! Streams of requests to a small store, against a plain map that may forget only what the store
//! counts as evicted. Everything is recounted every few steps.

#[allow(clippy::unwrap_used)] // The tests' own model.
#[path = "../../crates/store/tests/oracle/mod.rs"]
mod oracle;

use store::{Eviction, IndexKind, Mode, Store, StoreConfig, Tuning};

use oracle::{Action, Oracle, Write, small_config};

/// Steps between two recounts.
const STEPS_PER_RECOUNT: usize = 16;

/// An input is `settings (2 bytes) | step ...`; a step is `what (1 byte) | key (1 byte) | more`.
/// Of the settings the lowest bits choose mode and eviction, then index, batch and memory.
pub fn store_requests(data: &[u8]) {
    let mut bytes = Bytes(data);
    let config = config_of(&mut bytes);
    let room_bytes = 3 * config.memory_bytes;
    let store = Store::open_with_room(config, Tuning::default(), &[], room_bytes)
        .expect("every drawn setting is a legal one");
    let mut oracle = Oracle::new(&store);
    let mut step = 0;
    while !bytes.0.is_empty() {
        oracle.apply(&action_of(&mut bytes));
        step += 1;
        if step % STEPS_PER_RECOUNT == 0 {
            store.validate();
        }
    }
    oracle.finish();
    store.validate();
    drop(oracle);
    store.validate();
}

/// What is left of the input; zeroes behind its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: u8) -> usize {
        usize::from(self.next() % end)
    }

    /// Few keys, so that requests meet: whole words, which may be in place, and others; now and
    /// then the empty one and the longest.
    fn key(&mut self) -> Vec<u8> {
        let byte = self.next();
        let id = u32::from(byte % 64);
        match byte {
            0 => Vec::new(),
            1 => vec![b'x'; 251],
            2 => vec![b'y'; store::KEY_LEN_MAX_BYTES],
            3..100 => format!("key:{id:04}").into_bytes(),
            100..180 => format!("key:{id}").into_bytes(),
            _ => (id * 8).to_le_bytes().to_vec(),
        }
    }

    fn keys(&mut self) -> Vec<Vec<u8>> {
        (0..1 + self.below(6)).map(|_| self.key()).collect()
    }

    /// In place, short, a page or so, beyond a quarter of a segment, in a run of its own.
    fn len_bytes(&mut self) -> usize {
        let (byte, more) = (self.next(), usize::from(self.next()));
        match byte {
            0..60 => 8,
            60..120 => more % 40,
            120..200 => 100 + more * 11,
            200..235 => 4096 + more * 40,
            235..250 => 17_000 + more * 100,
            _ => 66_000 + more * 300,
        }
    }
}

fn config_of(bytes: &mut Bytes<'_>) -> StoreConfig {
    let (mode, eviction, is_lossy) = match bytes.below(8) {
        0..3 => (Mode::Clean, Eviction::Fifo, false),
        3 => (Mode::Evict, Eviction::Fifo, false),
        4 => (Mode::Evict, Eviction::LruApprox, false),
        5 => (Mode::Evict, Eviction::LruApprox, true),
        _ => (Mode::Evict, Eviction::S3Fifo, false),
    };
    let rest = bytes.next();
    let is_tree = rest & 1 == 1 && !is_lossy;
    let index = if is_tree { IndexKind::Tree } else { IndexKind::Hash };
    let small = small_config(index, mode, eviction, is_lossy);
    let batch = [1, 3, 32, store::BATCH_MAX][usize::from(rest >> 1 & 3)];
    let memory_bytes = small.memory_bytes << (rest >> 3 & 1);
    StoreConfig { memory_bytes, batch, hash_seed: u64::from(rest >> 4), ..small }
}

fn action_of(bytes: &mut Bytes<'_>) -> Action {
    match bytes.next() {
        0..60 => Action::Get(bytes.key()),
        60..130 => {
            let (key, how, len) = (bytes.key(), bytes.next(), bytes.len_bytes());
            Action::Set { key, len, condition: how & 3, expiry: how >> 2 & 3 }
        }
        130..150 => Action::Delete(bytes.key()),
        150..170 => Action::Append { key: bytes.key(), len: bytes.below(255) },
        170..182 => Action::Touch { key: bytes.key(), ms: 2 * u64::from(bytes.next()) },
        182..194 => Action::ReadSnapshot(bytes.keys()),
        194..204 => {
            let keys = bytes.keys();
            Action::SetTogether(keys.into_iter().map(|key| (key, bytes.below(200))).collect())
        }
        204..218 => Action::Batch((0..bytes.below(50)).map(|_| batched(bytes)).collect()),
        218..224 => Action::Wait(u64::from(bytes.next())),
        224..234 => Action::Maintain,
        234..239 => Action::Scan,
        239..242 => {
            let (is_reverse, item_limit) = (bytes.below(2) == 1, 1 + bytes.below(50));
            Action::Walk { is_reverse, item_limit }
        }
        242..246 => resizing(bytes),
        246..250 => Action::ScanAround(Box::new(resizing(bytes))),
        250..252 => Action::SwitchSession,
        252 => Action::Resize(bytes.below(101) as u64),
        253 => Action::Tend,
        _ => Action::Flush,
    }
}

fn batched(bytes: &mut Bytes<'_>) -> (Vec<u8>, Option<Write>) {
    let key = bytes.key();
    match bytes.below(8) {
        0..4 => (key, None),
        4 => (key, Some(None)),
        _ => (key, Some(Some(bytes.len_bytes()))),
    }
}

/// Items that come or go in numbers, so that the index changes its size.
fn resizing(bytes: &mut Bytes<'_>) -> Action {
    let (first, count) = (u32::from(bytes.next()) * 2, u32::from(bytes.next()));
    match bytes.below(2) {
        0 => Action::Fill { first, count },
        _ => Action::Drain { first, count },
    }
}
