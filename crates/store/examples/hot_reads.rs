//! Measures the cost of reading a hot key by each lookup method; run it under
//! `valgrind --tool=callgrind`.
//!
//! ```text
//!  hot_reads hash|tree|places|ranges|ranges-places KEYS HOT READS BATCH
//! ```
//!
//! The program stores `KEYS` decimal keys of 19 digits prefixed with `user`, and reads `HOT` of
//! them, evenly spaced, in turn: through the hash index, by descending the tree, or through the
//! sorted array of hot keys and the places kept beside it. Ranges of 50 items start at the same
//! keys. Subtract the count of a run with `READS` 0, which is the cost of set-up.

use std::error::Error;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use base::UnixMillis;
use store::{
    Condition, Direction, Eviction, Expiry, HotArray, HugePages, IndexKind, Mode, NoUpdate, Op,
    Outcome, Pins, Range, Request, Set, Sink, Store, StoreConfig,
};

const NOW: UnixMillis = UnixMillis(1);

#[derive(Default)]
struct Hits(u64);

impl Sink<NoUpdate> for Hits {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0 += u64::from(matches!(outcome, Outcome::Hit(_)));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, numbers @ ..] = &arguments[..] else { return Err("see the first lines".into()) };
    let numbers: Result<Vec<usize>, _> = numbers.iter().map(|number| number.parse()).collect();
    let &[key_count, hot_count, read_count, batch] = &numbers?[..] else {
        return Err("four numbers follow the way".into());
    };
    let index = if way == "hash" { IndexKind::Hash } else { IndexKind::Tree };
    let store = Store::open(StoreConfig {
        memory_bytes: (key_count as u64 * 160).max(64 << 20),
        index_bytes: key_count as u64 * 16,
        index,
        mode: Mode::Clean,
        eviction: Eviction::Fifo,
        lossy_index: false,
        session_max: 1,
        item_max_bytes: 1 << 20,
        hash_seed: 1,
        batch: 32,
        huge_pages: HugePages::Off,
    })?;
    let mut session = store.session()?;
    let key = |id: usize| format!("user{:019}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
    let (mut hits, value) = (Hits::default(), [7; 32]);
    for id in 0..key_count {
        let key = key(id).into_bytes();
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let op = Op::Set(Set { value: &value, client_flags: 0, expiry, condition });
        let hash = store.key_hasher().hash(&key);
        let request: Request<'_, NoUpdate> = Request { key: &key, hash, op };
        session.execute(NOW, &[request], &mut hits);
    }
    let ids = (0..key_count).step_by((key_count / hot_count).max(1)).take(hot_count);
    let hot: Vec<Vec<u8>> = ids.map(|id| key(id).into_bytes()).collect();
    let requests: Vec<Request<'_, NoUpdate>> = hot
        .iter()
        .map(|key| Request { key, hash: store.key_hasher().hash(key), op: Op::Get })
        .collect();
    if way.ends_with("places") {
        let keys = HotArray::new(hot.iter().map(Vec::as_slice));
        session.set_hot_array(Some(Arc::new(keys)));
        session.read_hot(NOW, &requests, &mut hits);
    }
    hits.0 = 0;
    let start = Instant::now();
    let mut done = 0;
    while done < read_count {
        for requests in requests.chunks(batch) {
            match way.as_str() {
                "places" => session.read_hot(NOW, requests, &mut hits),
                "ranges" | "ranges-places" => {
                    let start = Bound::Included(requests[0].key);
                    let (end, direction) = (Bound::Unbounded, Direction::Forward);
                    let range = Range { start, end, direction, item_limit: 50 };
                    let ended = session.range_from_hot(NOW, &range, |_| hits.0 += 1)?;
                    assert!(ended.visited > 0);
                    done += 1;
                    continue;
                }
                _ => session.execute(NOW, requests, &mut hits),
            }
            done += requests.len();
        }
    }
    let each_ns = start.elapsed().as_nanos() as f64 / done.max(1) as f64;
    println!("{way}: {done} reads, {} found, {each_ns:.0} ns each", hits.0);
    Ok(())
}
