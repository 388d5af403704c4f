//! A batch of requests of any kind and any sizes: forms, executes and checks it.
//!
//! It forms requests in two passes, since values of different lengths lie one after another in one
//! buffer. The commonest loads have a faster path (`fixed.rs`).

use std::ops::Bound;
use std::time::Duration;

use arrayvec::ArrayVec;
use base::{KeyHasher, UnixMillis};
use store::{
    BATCH_MAX, Condition, Direction, Expiry, Item, Op, Outcome, Pins, Range, Request, Set, Sink,
    Update, Verdict,
};
use workload::{KeyFormat, ValueSizes, values};

use super::Work;
use super::engine::{Answers, Engine};
use crate::items::{SCAN_CHECK_EVERY, is_right};
use crate::lane::{Lane, Step};
use crate::plan::Plan;
use crate::tally::Tally;

/// The steps, their keys, and the values of writes.
pub(super) struct Batch<'a> {
    hasher: KeyHasher,
    key_format: KeyFormat,
    value_sizes: &'a ValueSizes,
    ttl: Option<Duration>,
    /// The requests on single keys.
    steps: ArrayVec<Step, BATCH_MAX>,
    /// The ranges: first id and number of keys.
    scans: ArrayVec<(u64, u64), BATCH_MAX>,
    /// Room for the longest key at each place.
    keys: Vec<u8>,
    key_lens: [usize; BATCH_MAX],
    /// The values of all writes, one after another in the order of the steps.
    values: Vec<u8>,
    insert_count: usize,
    version: u32,
}

impl<'a> Batch<'a> {
    pub(super) fn new(hasher: &KeyHasher, plan: &'a Plan) -> Batch<'a> {
        let key_format = plan.key_format;
        Batch {
            hasher: hasher.clone(),
            key_format,
            value_sizes: &plan.value_sizes,
            ttl: plan.embedded.ttl,
            steps: ArrayVec::new(),
            scans: ArrayVec::new(),
            keys: vec![0; key_format.len_max_bytes() * BATCH_MAX],
            key_lens: [0; BATCH_MAX],
            values: Vec::new(),
            insert_count: 0,
            version: 0,
        }
    }

    /// Takes writes of the next ids, at most `count`; returns how many.
    pub(super) fn store_keys(
        &mut self,
        ids: &mut impl Iterator<Item = u64>,
        count: usize,
    ) -> usize {
        self.clear();
        for id in ids.take(count) {
            self.push(Step::Update(id));
        }
        self.steps.len()
    }

    fn clear(&mut self) {
        self.steps.clear();
        self.scans.clear();
        self.values.clear();
        self.insert_count = 0;
    }

    fn push(&mut self, step: Step) {
        if let Step::Scan { id, keys } = step {
            self.scans.push((id, keys));
            return;
        }
        let id = step.id();
        if matches!(step, Step::Update(_) | Step::Insert(_)) {
            self.insert_count += usize::from(matches!(step, Step::Insert(_)));
            let start = self.values.len();
            self.values.resize(start + self.value_sizes.len_of(id), 0);
            values::fill(id, self.version, &mut self.values[start..]);
            self.version = self.version.wrapping_add(1);
        }
        let (place, room) = (self.steps.len(), self.key_format.len_max_bytes());
        let key = &mut self.keys[place * room..][..room];
        self.key_lens[place] = self.key_format.write(id, key);
        self.steps.push(step);
    }

    /// Passes the batch to the engine and counts the results.
    pub(super) fn execute<E: Engine>(
        &mut self,
        engine: &mut E,
        now: UnixMillis,
        tally: &mut Tally,
    ) {
        let mut requests = ArrayVec::<Request<'_, Rewrite>, BATCH_MAX>::new();
        let expiry = match self.ttl {
            None => Expiry::Never,
            Some(ttl) => Expiry::At(UnixMillis(now.0.saturating_add(ttl.as_millis() as u64))),
        };
        let mut rest = self.values.as_slice();
        let keys = self.keys.chunks_exact(self.key_format.len_max_bytes());
        for ((step, key), len) in self.steps.iter().zip(keys).zip(self.key_lens) {
            let key = &key[..len];
            let op = match *step {
                // `push` puts scans into a list of their own.
                Step::Read(_) | Step::Scan { .. } => Op::Get,
                Step::ReadModifyWrite(id) => Op::Update(Rewrite { id }),
                Step::Update(id) | Step::Insert(id) => {
                    let (value, after) = rest.split_at(self.value_sizes.len_of(id));
                    rest = after;
                    Op::Set(Set { value, client_flags: 0, expiry, condition: Condition::Always })
                }
            };
            let hash = self.hasher.hash(key);
            engine.prefetch(hash);
            requests.push(Request { key, hash, op });
        }
        let mut check = Check { steps: &self.steps, sizes: self.value_sizes, tally };
        engine.execute(now, &requests, &mut check);
        tally.operation_count += self.steps.len() as u64;
    }

    /// Walks the batch's ranges, in one call.
    fn scan<E: Engine>(&mut self, engine: &mut E, now: UnixMillis, tally: &mut Tally) {
        let (format, sizes) = (self.key_format, self.value_sizes);
        // The requests on single keys are done; their keys' places are free again.
        let keys = self.keys.chunks_exact_mut(format.len_max_bytes());
        let ranges: ArrayVec<Range<'_>, BATCH_MAX> = self
            .scans
            .iter()
            .zip(keys)
            .map(|((id, count), key)| {
                let len = format.write(*id, key);
                Range {
                    start: Bound::Included(&key[..len]),
                    end: Bound::Unbounded,
                    direction: Direction::Forward,
                    item_limit: *count as usize,
                }
            })
            .collect();
        let scanned = engine.scan(now, &ranges, |key, value| {
            let is_checked = tally.scanned_count.is_multiple_of(SCAN_CHECK_EVERY);
            if !is_checked {
                std::hint::black_box(values::sum(key).wrapping_add(values::sum(value)));
            }
            tally.scanned(!is_checked || is_right(&format, sizes, key, value));
        });
        if let Err(error) = scanned {
            tally.refuse(|| error.to_string());
        }
        tally.operation_count += self.scans.len() as u64;
    }
}

impl Work for Batch<'_> {
    fn serve<E: Engine>(
        &mut self,
        engine: &mut E,
        lane: &mut Lane<'_>,
        count: usize,
        now: UnixMillis,
        tally: &mut Tally,
    ) {
        self.clear();
        for _ in 0..count {
            self.push(lane.advance());
        }
        if !self.steps.is_empty() {
            self.execute(engine, now, tally);
        }
        if !self.scans.is_empty() {
            self.scan(engine, now, tally);
        }
        for _ in 0..self.insert_count {
            lane.inserted();
        }
    }
}

/// Writes a key's value back with the next version.
#[derive(Clone, Copy, Debug)]
struct Rewrite {
    id: u64,
}

impl Update for Rewrite {
    type Refusal = std::convert::Infallible;

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<Self::Refusal> {
        let Some(old) = old else { return Verdict::Keep };
        let version = values::check(self.id, old.value).unwrap_or(0);
        value.resize(old.value.len(), 0);
        values::fill(self.id, version.wrapping_add(1), value);
        Verdict::Write { client_flags: 0, expires_at: None }
    }
}

/// Reads every byte of the found value and compares it with the written one.
struct Check<'a> {
    steps: &'a [Step],
    sizes: &'a ValueSizes,
    tally: &'a mut Tally,
}

impl Answers for Check<'_> {
    #[inline]
    fn read(&mut self, place: usize, value: &[u8]) {
        self.tally.hit_count += 1;
        let id = self.steps[place].id();
        let is_right = values::check(id, value).is_some();
        if !is_right || value.len() != self.sizes.len_of(id) {
            self.tally.mismatch_count += 1;
        }
    }

    #[inline]
    fn wrote(&mut self, count: u64) {
        self.tally.write_count += count;
    }
}

impl<R> Sink<R> for Check<'_> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, R>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => self.read(request_index, item.value),
            Outcome::Miss => self.tally.miss_count += 1,
            Outcome::Stored { .. } => self.wrote(1),
            Outcome::Updated { old, new } => {
                self.tally.write_count += u64::from(new.is_some());
                match old {
                    Some(item) => self.read(request_index, item.value),
                    None => self.tally.miss_count += 1,
                }
            }
            refused => self.tally.refuse_outcome(&refused),
        }
    }
}
