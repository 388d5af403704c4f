//! The torture test: two threads against one small store, with every answer checked. Whatever is
//! evicted, cleaned, expired, grown or flushed meanwhile, no value is torn, no version goes back
//! (K1), no deleted or missed key comes back (K2), no increment is lost, values written together
//! are read together (K11), and a scan returns every key that is present throughout (K9).
//!
//! ```text
//!  key ──▶ one owner writes it: write 1, 2, 3 ... each says in its bytes which one it is
//!      ──▶ both read it:  done before the read <= what is read <= started after the read
//! ```
//!
//! The first error ends the process with the seed and the command line that repeats it. The
//! threads' streams of requests follow from the seed; their interleaving does not.
//!
//! `TORTURE_SEED` chooses the first seed; with `TORTURE_SECONDS` each test continues with the next
//! seed until that time is over. Without them: one seed, a fixed number of steps.

#[path = "torture/ledger.rs"]
mod ledger;
#[path = "torture/shared.rs"]
mod shared;
#[path = "torture/values.rs"]
mod values;
#[path = "torture/worker.rs"]
mod worker;

use std::cell::Cell;
use std::io::Write;
use std::sync::Once;
use std::time::{Duration, Instant};

use store::{Eviction, IndexKind, Mode, Store, StoreConfig};

use crate::support;

use shared::Shared;
use worker::Worker;

const THREADS: usize = 2;
/// Steps of each thread for one seed; a step is a batch of requests or so.
const STEPS: u32 = if cfg!(miri) { 12 } else { 4000 };

thread_local! {
    /// The test and seed of this thread, for the line that repeats it.
    static RUNNING: Cell<(&'static str, u64)> = const { Cell::new(("", 0)) };
}

/// Aborts at the first error: no message may be lost in captured output, or wait for the other
/// thread.
fn abort_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let (name, seed) = RUNNING.get();
            if name.is_empty() {
                return before(info);
            }
            let _ = writeln!(
                std::io::stderr(),
                "\n{info}\ninconsistent; again: TORTURE_SEED={seed} \
                 cargo test -p store --test main -- {name}"
            );
            std::process::abort();
        }));
    });
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}; it can be a whole number")))
}

/// Runs one seed, or seeds for as long as the environment says.
fn torture(name: &'static str, config: &StoreConfig) {
    abort_on_panic();
    let first = variable("TORTURE_SEED").unwrap_or(1);
    let limit = Duration::from_secs(variable("TORTURE_SECONDS").unwrap_or(0));
    let started = Instant::now();
    let mut seed = first;
    loop {
        RUNNING.set((name, seed));
        run(name, config, seed);
        seed += 1;
        if started.elapsed() >= limit {
            break;
        }
    }
    RUNNING.set(("", 0));
    println!("seeds {first} to {}", seed - 1);
}

fn run(name: &'static str, config: &StoreConfig, seed: u64) {
    let store = Store::open(StoreConfig { hash_seed: seed, ..config.clone() }).unwrap();
    let shared = Shared::new(&store);
    let mut workers: Vec<Worker<'_>> =
        (0..THREADS).map(|thread| Worker::new(&shared, thread, seed)).collect();
    // Before the other thread starts: the stable keys are there throughout.
    workers.iter_mut().for_each(Worker::write_stable);
    std::thread::scope(|scope| {
        for worker in &mut workers {
            scope.spawn(move || {
                RUNNING.set((name, seed));
                (0..STEPS).for_each(|_| worker.step());
                worker.rest();
            });
        }
    });
    workers.iter_mut().for_each(Worker::finish);
    shared.check_counters(&mut workers[0]);
    drop(workers);
    store.validate();
    let stats = store.stats();
    let evicted = stats.evicted_by_log + stats.evicted_by_index;
    assert!(config.mode == Mode::Evict || evicted == 0, "a store evicts nothing: {stats:?}");
    let busy = match config.mode {
        Mode::Clean => stats.cleaned_bytes,
        Mode::Evict => stats.evicted_by_log + stats.reinserted + stats.dead_space_copied_bytes,
    };
    assert!(cfg!(miri) || busy > 0, "the log was never full: {stats:?}");
}

fn config(mode: Mode, eviction: Eviction, lossy_index: bool) -> StoreConfig {
    StoreConfig {
        // Hardly more than the least.
        memory_bytes: 5 << 19,
        // One head for each partition at first: the index grows and shrinks all the time.
        index_bytes: 1,
        eviction,
        lossy_index,
        session_max: THREADS + 1,
        hash_seed: 0,
        batch: 16,
        ..support::config(IndexKind::Hash, mode)
    }
}

#[test]
fn a_store_stays_consistent() {
    torture("a_store_stays_consistent", &config(Mode::Clean, Eviction::Fifo, false));
}

#[test]
fn a_fifo_cache_stays_consistent() {
    torture("a_fifo_cache_stays_consistent", &config(Mode::Evict, Eviction::Fifo, false));
}

#[test]
fn an_lru_cache_stays_consistent() {
    torture("an_lru_cache_stays_consistent", &config(Mode::Evict, Eviction::Lru, false));
}

#[test]
fn an_approximate_lru_cache_stays_consistent() {
    let config = config(Mode::Evict, Eviction::LruApprox, false);
    torture("an_approximate_lru_cache_stays_consistent", &config);
}

#[test]
fn an_s3_fifo_cache_stays_consistent() {
    torture("an_s3_fifo_cache_stays_consistent", &config(Mode::Evict, Eviction::S3Fifo, false));
}

#[test]
fn a_lossy_cache_stays_consistent() {
    let config = StoreConfig {
        // Heads for a quarter of the keys: buckets are full and drop.
        index_bytes: 4096,
        ..config(Mode::Evict, Eviction::LruApprox, true)
    };
    torture("a_lossy_cache_stays_consistent", &config);
}

fn with_tree(config: StoreConfig) -> StoreConfig {
    // A tree needs more memory than a hash index.
    StoreConfig { index: IndexKind::Tree, memory_bytes: 2 * config.memory_bytes, ..config }
}

#[test]
fn an_ordered_store_stays_consistent() {
    let config = with_tree(config(Mode::Clean, Eviction::Fifo, false));
    torture("an_ordered_store_stays_consistent", &config);
}

#[test]
fn an_ordered_cache_stays_consistent() {
    let config = with_tree(config(Mode::Evict, Eviction::S3Fifo, false));
    torture("an_ordered_cache_stays_consistent", &config);
}
