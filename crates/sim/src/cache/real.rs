//! The project's own store under the trace: one session, one request at a time, maintained as in a
//! server, on the trace's clock.
//!
//! A size in bytes is the store's memory: log and index. A size in objects is harder, because the
//! log takes whole segments and the cleaner needs a few free ones. So the log is cut into a few
//! hundred segments that each hold a whole number of equal items. The trace is replayed, and the
//! number of segments is corrected, until the store holds the requested number of items.

use std::sync::Arc;

use base::UnixMillis;
use store::pin::Pins;
use store::{
    Condition, Eviction, Expiry, HugePages, Mode, NoUpdate, Op, Outcome, Request, Session, Set,
    Sink, Store, StoreConfig,
};
use workload::cache_trace::{Access, CacheRequest};

use crate::SimError;
use crate::cache::{CacheSize, Means, SAMPLE_EVERY, Tally, Trace, expires_at_ms};

/// The initial size of a server's index: docs of `server::memory`.
const INDEX_PART: u64 = 64;
/// The smallest segment of the log, and so of the smallest stores.
const SEGMENT_MIN_BYTES: u64 = 64 << 10;
/// Segments of a log that is made for a number of objects: many, so that a segment is a small part.
const SEGMENTS_WANTED: u64 = 384;
/// The store cuts its log into 64 to 128 segments for each session that it is opened for.
const SESSIONS: u64 = 4;
/// Below this many objects, segments that hold one each are few enough for a store of one session.
const OBJECTS_FEW: u64 = 100;
/// The least number of segments that the store accepts: with a few objects it then holds more than
/// requested.
const SEGMENTS_PER_SESSION_MIN: u64 = 8;
/// Segments that are open or kept free, to begin with.
const SEGMENTS_SPARE: u64 = 12;
/// Replays of a trace for one number of objects.
const ATTEMPTS_MAX: usize = 5;
/// Items held may differ from the requested number by this share of it, or by half a segment.
const TOLERANCE_PART: f64 = 0.002;
/// The trace's clock starts here: a moment of 2023, so that no expiry is 0, which means "never".
const START_MS: u64 = 1_700_000_000_000;
/// Requests between two steps of housekeeping, when the store does not ask for one.
const MAINTAIN_EVERY: usize = 32;

/// Replays the trace through a store of this size.
pub(super) fn replay(
    trace: &Trace,
    eviction: Eviction,
    size: &CacheSize,
    capacity: u64,
) -> Result<Tally, SimError> {
    if size.is_objects() {
        return replay_objects(trace, eviction, capacity);
    }
    let store = open(eviction, capacity, capacity / INDEX_PART, 1)?;
    Replay::new(trace, &store, None).run()
}

fn open(
    eviction: Eviction,
    memory_bytes: u64,
    index_bytes: u64,
    session_max: u64,
) -> Result<Arc<Store>, SimError> {
    let opened = Store::open(StoreConfig {
        memory_bytes,
        index_bytes,
        mode: Mode::Evict,
        eviction,
        index: store::IndexKind::Hash,
        lossy_index: false,
        session_max: session_max as usize,
        item_max_bytes: store::ITEM_MAX_BYTES,
        hash_seed: 1,
        batch: 32,
        huge_pages: HugePages::Auto,
    });
    opened.map_err(|error| SimError::BadParameter { what: format!("the store: {error}") })
}

/// The layout of a log for a number of equal items.
struct Plan {
    session_max: u64,
    segment_bytes: u64,
    per_segment: u64,
    value_len_bytes: usize,
}

impl Plan {
    fn new(objects: u64, key_len_bytes: usize) -> Plan {
        let session_max = if objects < OBJECTS_FEW { 1 } else { SESSIONS };
        let wanted = if objects < OBJECTS_FEW { OBJECTS_FEW } else { SEGMENTS_WANTED };
        let per_segment = objects.div_ceil(wanted);
        // Room for the longest header, and a value of at least one byte.
        let entry_min_bytes = store::entry_len_bytes(key_len_bytes, 1) as u64 + HEADER_EXTRA_BYTES;
        let segment_bytes =
            (per_segment * entry_min_bytes).next_power_of_two().max(SEGMENT_MIN_BYTES);
        let entry_bytes = (segment_bytes / per_segment) & !7;
        let empty_bytes = store::entry_len_bytes(key_len_bytes, 0) as u64 + HEADER_EXTRA_BYTES;
        let value_len_bytes = (entry_bytes - empty_bytes) as usize;
        Plan { session_max, segment_bytes, per_segment, value_len_bytes }
    }
}

/// The most bytes of a header beyond that of a plain entry.
const HEADER_EXTRA_BYTES: u64 = 16;

/// The memory that leaves `bytes` to log and index: the ghosts of S3-FIFO are lines of 64 bytes, a
/// 64th of the whole.
fn beside_ghosts(eviction: Eviction, bytes: u64) -> u64 {
    if eviction != Eviction::S3Fifo {
        return bytes;
    }
    let mut ghost_bytes = 0;
    // Each time round brings it closer by a factor of 64.
    loop {
        let needed_bytes = (((bytes + ghost_bytes) / 64) & !63).max(64);
        if needed_bytes == ghost_bytes {
            return bytes + ghost_bytes;
        }
        ghost_bytes = needed_bytes;
    }
}

fn replay_objects(trace: &Trace, eviction: Eviction, objects: u64) -> Result<Tally, SimError> {
    let key_len_bytes = trace.requests().iter().map(CacheRequest::key_text_len_bytes).max();
    let plan = Plan::new(objects, key_len_bytes.unwrap_or(1) as usize);
    let index_bytes = (objects * 32).next_power_of_two().max(1 << 16);
    let segments_min = SEGMENTS_PER_SESSION_MIN * (plan.session_max + 1);
    let mut segments = (objects.div_ceil(plan.per_segment) + SEGMENTS_SPARE).max(segments_min);
    let mut best: Option<(f64, Tally)> = None;
    for _ in 0..ATTEMPTS_MAX {
        let memory_bytes = beside_ghosts(eviction, segments * plan.segment_bytes + index_bytes);
        let store = open(eviction, memory_bytes, index_bytes, plan.session_max)?;
        let mut tally = Replay::new(trace, &store, Some(plan.value_len_bytes)).run()?;
        tally.bytes = f64::NAN; // Made up.
        let missing = objects as f64 - tally.objects;
        if best.is_none_or(|(least, _)| missing.abs() < least) {
            best = Some((missing.abs(), tally));
        }
        let step = (missing / plan.per_segment as f64).round();
        let is_close = missing.abs() <= objects as f64 * TOLERANCE_PART;
        let next = segments.saturating_add_signed(step as i64).max(segments_min);
        if tally.evictions == 0 || is_close || next == segments {
            break;
        }
        segments = next;
    }
    best.map(|(_, tally)| tally)
        .ok_or_else(|| SimError::BadParameter { what: "no replay was made".to_owned() })
}

/// One pass over the trace.
struct Replay<'a> {
    trace: &'a Trace,
    store: &'a Arc<Store>,
    /// A fixed value size, instead of the trace's.
    value_len_bytes: Option<usize>,
    start_ms: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Replay<'a> {
    fn new(trace: &'a Trace, store: &'a Arc<Store>, value_len_bytes: Option<usize>) -> Replay<'a> {
        let start_ms = trace.requests().first().map_or(0, |request| request.time_ms);
        Replay { trace, store, value_len_bytes, start_ms, key: Vec::new(), value: Vec::new() }
    }

    fn run(mut self) -> Result<Tally, SimError> {
        let opened = self.store.session();
        let mut session =
            opened.map_err(|error| SimError::BadParameter { what: error.to_string() })?;
        let mut tally = Tally::default();
        let mut means = Means::default();
        let mut now = UnixMillis(START_MS);
        for (index, request) in self.trace.requests().iter().enumerate() {
            // A trace's clock may step back, a server's does not.
            now = now.max(self.unix_time(request.time_ms));
            let is_look = request.access == Access::Look;
            if is_look {
                let is_hit = self.ask(&mut session, now, request, Op::Get);
                tally.count_look(request, is_hit);
                if !is_hit {
                    self.store_item(&mut session, now, request);
                }
            } else if request.access == Access::Write {
                self.store_item(&mut session, now, request);
            } else {
                self.ask(&mut session, now, request, Op::Delete);
            }
            if index % MAINTAIN_EVERY == 0 || session.wants_room() {
                session.maintain(now);
            }
            if index % SAMPLE_EVERY == 0 || index + 1 == self.trace.requests().len() {
                let stats = self.store.stats();
                means.sample(stats.evicted_by_log > 0, stats.items, self.item_bytes(&stats));
            }
        }
        let stats = self.store.stats();
        tally.evictions = stats.evicted_by_log + stats.evicted_by_index;
        (tally.objects, tally.bytes) = means.found();
        Ok(tally)
    }

    /// Keys and values, without what the store adds to them.
    fn item_bytes(&self, stats: &store::StoreStats) -> u64 {
        let overhead_bytes = store::entry_len_bytes(0, 0) as u64;
        stats.entry_bytes.saturating_sub(stats.items * overhead_bytes)
    }

    fn unix_time(&self, time_ms: u64) -> UnixMillis {
        UnixMillis(START_MS + time_ms.saturating_sub(self.start_ms))
    }

    fn store_item(&mut self, session: &mut Session, now: UnixMillis, request: &CacheRequest) {
        let len_bytes = self.value_len_bytes.unwrap_or(request.value_len_bytes as usize);
        if self.value.len() < len_bytes {
            self.value.resize(len_bytes, b'v');
        }
        let value = std::mem::take(&mut self.value);
        let expires_at = expires_at_ms(request).map(|time_ms| self.unix_time(time_ms));
        let op = Op::Set(Set {
            value: &value[..len_bytes],
            client_flags: 0,
            expiry: expires_at.map_or(Expiry::Never, Expiry::At),
            condition: Condition::Always,
        });
        self.ask(session, now, request, op);
        self.value = value;
    }

    /// Whether it was a hit.
    fn ask(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        request: &CacheRequest,
        op: Op<'_, NoUpdate>,
    ) -> bool {
        self.key.clear();
        request.write_key_text(&mut self.key);
        let hash = self.store.key_hasher().hash(&self.key);
        let mut answer = Answer::default();
        session.execute(now, &[Request { key: &self.key, hash, op }], &mut answer);
        answer.is_hit
    }
}

/// Whether the one request was a hit.
#[derive(Default)]
struct Answer {
    is_hit: bool,
}

impl Sink<NoUpdate> for Answer {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.is_hit = matches!(outcome, Outcome::Hit(_));
    }
}
