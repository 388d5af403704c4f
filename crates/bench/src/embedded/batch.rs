//! One batch of requests on the embedded store: formed, executed, checked.

use arrayvec::ArrayVec;
use base::{KeyHasher, UnixMillis};
use store::{
    BATCH_MAX, Condition, Expiry, Item, Op, Outcome, Pins, Request, Session, Set, Sink, Update,
    Verdict,
};
use workload::{KeyFormat, ValueSizes, values};

use crate::lane::{Lane, Step};
use crate::tally::Tally;

/// The keys of a batch; fixed lengths keep short keys in registers and on the stack.
pub(super) trait KeyBuffer {
    fn write(&mut self, place: usize, format: &KeyFormat, id: u64);
    fn key(&self, place: usize) -> &[u8];
}

pub(super) struct FixedKeys<const LEN: usize>([[u8; LEN]; BATCH_MAX]);

impl<const LEN: usize> FixedKeys<LEN> {
    pub(super) fn new() -> FixedKeys<LEN> {
        FixedKeys([[0; LEN]; BATCH_MAX])
    }
}

impl<const LEN: usize> KeyBuffer for FixedKeys<LEN> {
    #[inline]
    fn write(&mut self, place: usize, format: &KeyFormat, id: u64) {
        format.write(id, &mut self.0[place]);
    }

    #[inline]
    fn key(&self, place: usize) -> &[u8] {
        &self.0[place]
    }
}

pub(super) struct DynamicKeys {
    bytes: Vec<u8>,
    len_bytes: usize,
}

impl DynamicKeys {
    pub(super) fn new(len_bytes: usize) -> DynamicKeys {
        DynamicKeys { bytes: vec![0; len_bytes * BATCH_MAX], len_bytes }
    }
}

impl KeyBuffer for DynamicKeys {
    fn write(&mut self, place: usize, format: &KeyFormat, id: u64) {
        let start = place * self.len_bytes;
        format.write(id, &mut self.bytes[start..start + self.len_bytes]);
    }

    fn key(&self, place: usize) -> &[u8] {
        &self.bytes[place * self.len_bytes..][..self.len_bytes]
    }
}

/// Steps, their keys and the values that they write.
pub(super) struct Batch<'a, K> {
    hasher: &'a KeyHasher,
    key_format: KeyFormat,
    value_sizes: &'a ValueSizes,
    steps: ArrayVec<Step, BATCH_MAX>,
    keys: K,
    /// The values of all writes, one after another in the order of the steps.
    values: Vec<u8>,
    insert_count: usize,
    version: u32,
}

impl<'a, K: KeyBuffer> Batch<'a, K> {
    pub(super) fn new(
        hasher: &'a KeyHasher,
        key_format: KeyFormat,
        value_sizes: &'a ValueSizes,
        keys: K,
    ) -> Batch<'a, K> {
        Batch {
            hasher,
            key_format,
            value_sizes,
            steps: ArrayVec::new(),
            keys,
            values: Vec::new(),
            insert_count: 0,
            version: 0,
        }
    }

    /// Takes the next `count` steps of the lane.
    #[inline]
    pub(super) fn draw(&mut self, lane: &mut Lane<'_>, count: usize) {
        self.clear();
        for _ in 0..count {
            self.push(lane.advance());
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
        self.values.clear();
        self.insert_count = 0;
    }

    #[inline(always)]
    fn push(&mut self, step: Step) {
        let id = match step {
            Step::Read(id) | Step::ReadModifyWrite(id) => id,
            Step::Update(id) | Step::Insert(id) => {
                self.insert_count += usize::from(matches!(step, Step::Insert(_)));
                self.push_value(id);
                id
            }
        };
        self.keys.write(self.steps.len(), &self.key_format, id);
        self.steps.push(step);
    }

    /// Out of line, so that the loop over reads stays small.
    #[inline(never)]
    fn push_value(&mut self, id: u64) {
        let start = self.values.len();
        self.values.resize(start + self.value_sizes.len_of(id), 0);
        values::fill(id, self.version, &mut self.values[start..]);
        self.version = self.version.wrapping_add(1);
    }

    /// Hands the batch to the store and counts what came of it.
    #[inline]
    pub(super) fn execute(&mut self, session: &mut Session, now: UnixMillis, tally: &mut Tally) {
        let mut requests = ArrayVec::<Request<'_, Rewrite>, BATCH_MAX>::new();
        let mut rest = self.values.as_slice();
        for (place, step) in self.steps.iter().enumerate() {
            let key = self.keys.key(place);
            let op = match *step {
                Step::Read(_) => Op::Get,
                Step::ReadModifyWrite(id) => Op::Update(Rewrite { id }),
                Step::Update(id) | Step::Insert(id) => {
                    let (value, after) = rest.split_at(self.value_sizes.len_of(id));
                    rest = after;
                    Op::Set(Set {
                        value,
                        client_flags: 0,
                        expiry: Expiry::Never,
                        condition: Condition::Always,
                    })
                }
            };
            requests.push(Request { key, hash: self.hasher.hash(key), op });
        }
        let mut check = Check { steps: &self.steps, sizes: self.value_sizes, tally };
        session.execute(now, &requests, &mut check);
        tally.operation_count += self.steps.len() as u64;
    }

    /// Tells the lane that its inserts exist.
    #[inline]
    pub(super) fn settle_inserts(&mut self, lane: &mut Lane<'_>) {
        for _ in 0..self.insert_count {
            lane.inserted();
        }
    }
}

/// Writes a key's value back one version later.
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

/// Reads every byte of what was found and holds it against what was written.
struct Check<'a> {
    steps: &'a [Step],
    sizes: &'a ValueSizes,
    tally: &'a mut Tally,
}

impl Check<'_> {
    #[inline(always)]
    fn found(&mut self, place: usize, item: &Item<'_>) {
        self.tally.hit_count += 1;
        let (Step::Read(id) | Step::Update(id) | Step::Insert(id) | Step::ReadModifyWrite(id)) =
            self.steps[place];
        let is_right = values::check(id, item.value).is_some();
        if !is_right || item.value.len() != self.sizes.len_of(id) {
            self.tally.mismatch_count += 1;
        }
    }
}

impl<R> Sink<R> for Check<'_> {
    #[inline(always)]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, R>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => self.found(request_index, &item),
            Outcome::Miss => self.tally.miss_count += 1,
            Outcome::Stored { .. } => self.tally.write_count += 1,
            Outcome::Updated { old, new } => {
                self.tally.write_count += u64::from(new.is_some());
                match old {
                    Some(item) => self.found(request_index, &item),
                    None => self.tally.miss_count += 1,
                }
            }
            Outcome::OutOfMemory => self.tally.refuse(|| "out of memory".to_owned()),
            Outcome::TooLarge { len_bytes, max_bytes } => {
                let words = || format!("a value of {len_bytes} bytes is above {max_bytes}");
                self.tally.refuse(words);
            }
            _ => self.tally.refuse(|| "an outcome that no request here can have".to_owned()),
        }
    }
}
