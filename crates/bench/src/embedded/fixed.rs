//! Batches of reads and rewrites whose key and value lengths are compile-time constants.
//!
//! ```text
//!  trace entries ─▶ id ─▶ key, value, hash, request (one pass, no branch) ─▶ engine ─▶ check
//! ```
//!
//! The harness is part of every figure of the embedded store, so the commonest loads pay only what
//! a caller would pay too. Each request is formed as a write and turned into a read by one
//! conditional move: with a mix of half reads and half writes, a branch would be mispredicted every
//! other time. The target `null:` measures what is left.

use arrayvec::ArrayVec;
use base::{KeyHasher, UnixMillis};
use store::{BATCH_MAX, Condition, Expiry, NoUpdate, Op, Outcome, Pins, Request, Set, Sink};
use workload::keys::binary_key;
use workload::{Entry, values};

use super::Work;
use super::engine::{Answers, Engine};
use crate::lane::Lane;
use crate::tally::Tally;

/// Forms requests for keys of `KEY` bytes and values of `VALUE`; without `WRITES`, reads only.
pub(super) struct Fixed<const KEY: usize, const VALUE: usize, const WRITES: bool> {
    hasher: KeyHasher,
    ids: [u64; BATCH_MAX],
    keys: [[u8; KEY]; BATCH_MAX],
    values: [[u8; VALUE]; BATCH_MAX],
    /// The version of the next write.
    version: u32,
}

impl<const KEY: usize, const VALUE: usize, const WRITES: bool> Fixed<KEY, VALUE, WRITES> {
    pub(super) fn new(hasher: &KeyHasher) -> Self {
        Fixed {
            hasher: hasher.clone(),
            ids: [0; BATCH_MAX],
            keys: [[0; KEY]; BATCH_MAX],
            values: [[0; VALUE]; BATCH_MAX],
            version: 1 << 31,
        }
    }
}

#[inline(always)]
fn form<'a, const KEY: usize, const VALUE: usize, const WRITES: bool>(
    hasher: &KeyHasher,
    version: u32,
    (key, value): (&'a mut [u8; KEY], &'a mut [u8; VALUE]),
    entry: Entry,
) -> Request<'a, NoUpdate> {
    *key = binary_key(entry.id());
    let hash = hasher.hash(key);
    if !WRITES {
        return Request { key, hash, op: Op::Get };
    }
    values::fill(entry.id(), version, value);
    let set = Set { value, client_flags: 0, expiry: Expiry::Never, condition: Condition::Always };
    let mut request = Request { key, hash, op: Op::Set(set) };
    if entry.is_read() {
        request.op = Op::Get;
    }
    request
}

impl<const KEY: usize, const VALUE: usize, const WRITES: bool> Work for Fixed<KEY, VALUE, WRITES> {
    #[inline(always)]
    fn serve<E: Engine>(
        &mut self,
        engine: &mut E,
        lane: &mut Lane<'_>,
        count: usize,
        now: UnixMillis,
        tally: &mut Tally,
    ) {
        let (hasher, version) = (&self.hasher, self.version);
        let entries = lane.entries(count.min(BATCH_MAX));
        let places = self.keys.iter_mut().zip(&mut self.values);
        // Filled in place: the result of `collect` would be moved, all 64 places of it.
        let mut requests = ArrayVec::<_, BATCH_MAX>::new();
        let places = places.zip(&mut self.ids).zip(entries);
        requests.extend(places.map(|((place, id), entry)| {
            *id = entry.id();
            let request = form::<KEY, VALUE, WRITES>(hasher, version, place, *entry);
            engine.prefetch(request.hash);
            request
        }));
        let mut check = Check::<VALUE> { ids: &self.ids, counts: Counts::default(), tally };
        engine.execute(now, &requests, &mut check);
        let counts = check.counts;
        tally.operation_count += requests.len() as u64;
        tally.write_count += counts.writes;
        tally.miss_count += counts.misses;
        tally.mismatch_count += counts.mismatches;
        tally.hit_count += requests.len() as u64 - counts.writes - counts.misses - counts.refused;
        self.version = version.wrapping_add(1);
    }
}

#[derive(Default)]
struct Counts {
    writes: u64,
    misses: u64,
    mismatches: u64,
    refused: u64,
}

/// Reads every byte of the found value. A result that is not a write, a miss or a refusal is a hit.
struct Check<'a, const VALUE: usize> {
    ids: &'a [u64; BATCH_MAX],
    counts: Counts,
    tally: &'a mut Tally,
}

impl<const VALUE: usize> Answers for Check<'_, VALUE> {
    #[inline(always)]
    fn read(&mut self, place: usize, value: &[u8]) {
        if !values::is_of::<VALUE>(self.ids[place % BATCH_MAX], value) {
            self.counts.mismatches += 1;
        }
    }

    #[inline(always)]
    fn wrote(&mut self, count: u64) {
        self.counts.writes += count;
    }
}

impl<const VALUE: usize, R> Sink<R> for Check<'_, VALUE> {
    #[inline(always)]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, R>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => self.read(request_index, item.value),
            Outcome::Stored { .. } => self.wrote(1),
            Outcome::Miss => self.counts.misses += 1,
            refused => {
                self.counts.refused += 1;
                self.tally.refuse_outcome(&refused);
            }
        }
    }
}
