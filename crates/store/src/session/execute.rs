//! The batch executor: three stages over up to 64 requests, so that their cache misses overlap
//! (MICA §4.1, "multi-stage prefetching").
//!
//! ```text
//!  stage 1   hash ─▶ head bucket             prefetch the bucket's line
//!  stage 2   tags ─▶ likely entry            prefetch every line of header, key and value
//!  stage 3   execute in order; re-reads the bucket, so it sees earlier writes of the batch (K8)
//! ```
//!
//! Overlapping stage 1 of the next 32 requests with stage 3 of these was tried and rejected: 24.6
//! against 24.9 million GETs a CPU-second on 10 M 8/8 items.

use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use index::hash::Position;
use index::hash::slot::{Slot, Tag};

use super::durable::execute_durable;
use super::expire::meet_expired;
use super::find::{entry_of, find};
use super::hot::read_chunk;
use super::ordered::execute_chunk_ordered;
use super::pace::{quiesce_after_reads, reclaim_in_step};
use super::renew::note_read;
use super::resize::settle_chunk;
use super::{Local, Session};
use crate::config::{BATCH_MAX, Eviction};
use crate::entry::{Entry, HEADER_BYTES};
use crate::inner::Inner;
use crate::pin::Pins;
use crate::prefetch::{self, Hint, LINE_BYTES, Near, NonTemporal, Nothing};
use crate::request::{LastUse, Op, Outcome, Request, Sink, Update};
use crate::tuning::{Prefetch, Way, took};

/// The lines of one entry that stage 2 prefetches; the processor's own prefetcher continues on
/// longer ones.
const ENTRY_LINES_MAX: usize = 4;

/// The result of stages 1 and 2 for one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    slot: Slot,
    /// The head, or the chain's second bucket.
    bucket: u32,
    index: u8,
    is_overflow: bool,
}

pub(super) const NO_GUESS: Guess =
    Guess { slot: Slot::EMPTY, bucket: 0, index: 0, is_overflow: false };

impl Guess {
    /// The slot of a head that a writer may try first. A slot of an overflow bucket would need a
    /// check, because the bucket may have left the chain (K8).
    #[inline]
    pub(super) fn in_head(self) -> Option<Position> {
        let Guess { slot, bucket, index, is_overflow } = self;
        let is_known = !slot.is_empty() && !is_overflow;
        is_known.then_some(Position { bucket, index: usize::from(index), slot })
    }
}

impl Session {
    /// Does stage 1 for a request of the next [`Session::execute`] in advance: a caller that
    /// gathers requests calls this once for each, so that the bucket arrives while the next
    /// requests are read and parsed. A hint: omitting it costs only time.
    #[inline]
    pub fn prefetch(&mut self, hash: KeyHash) {
        let Session { inner, local } = self;
        prefetch::line_by(local.prefetch, inner.index.address(inner.index.head_of(hash)));
        local.prefetched_count += 1;
    }

    /// Executes the requests in order; each outcome goes to the sink. Quiesces between chunks and
    /// at the end, so no item may be kept without a pin.
    pub fn execute<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    ) {
        if self.inner.durable.is_some() {
            return execute_durable(self, now, requests, sink);
        }
        let Session { inner, local } = self;
        debug_assert!(local.held.is_empty(), "locked keys are served by the LockedSession");
        let mut first = 0;
        for chunk in requests.chunks(inner.config.batch) {
            local.execute_chunk(inner, now, chunk, first, sink);
            inner.epochs.quiesce(local.place);
            settle_chunk(local, inner, chunk.len());
            reclaim_in_step(local, inner, now);
            first += chunk.len();
        }
        local.prefetched_count = 0;
        local.publish_counts(inner);
    }

    /// Like [`Session::execute`], for a batch that probably consists of reads of hot keys.
    pub fn read_hot<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    ) {
        let Session { inner, local } = self;
        let is_read = |request: &Request<'_, U>| matches!(request.op, Op::Get);
        let (Some(tree), Some(mut hot)) = (&inner.tree, local.hot.take()) else {
            return self.execute(now, requests, sink);
        };
        if !requests.iter().all(is_read) {
            local.hot = Some(hot);
            return self.execute(now, requests, sink);
        }
        let mut first = 0;
        for chunk in requests.chunks(inner.config.batch) {
            read_chunk(local, inner, tree, &mut hot, (now, first), chunk, sink);
            quiesce_after_reads(local, inner, now);
            first += chunk.len();
        }
        local.hot = Some(hot);
        local.prefetched_count = 0;
        local.publish_counts(inner);
    }
}

impl Local {
    pub(super) fn execute_chunk<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        inner: &Arc<Inner>,
        now: UnixMillis,
        chunk: &[Request<'_, U>],
        first: usize,
        sink: &mut S,
    ) {
        self.read_now = LastUse::read(now);
        if let Some(tree) = &inner.tree {
            return execute_chunk_ordered(self, inner, tree, now, chunk, first, sink);
        }
        self.mark_limit = inner.mark_limit();
        if self.prefetched_count < chunk.len() && chunk.len() > 1 {
            prefetch_heads(inner, chunk);
        }
        self.prefetched_count = self.prefetched_count.saturating_sub(chunk.len());
        // Kept between batches, so that no batch has to clear it.
        let mut guesses = std::mem::take(&mut self.guesses);
        guesses.resize(BATCH_MAX, NO_GUESS);
        match chunk.len() {
            1 => guesses[0] = NO_GUESS,
            count => guess_all(inner, chunk, &mut guesses[..count], self.value_len_hint),
        }
        let mut done = 0;
        while done < chunk.len() {
            self.are_hints_good = true;
            for (request, guess) in chunk[done..].iter().zip(&guesses[done..]) {
                let request_index = first + done;
                done += 1;
                if let Op::Get = request.op {
                    self.get(inner, now, request_index, guess, request, sink);
                    continue;
                }
                let call = Call { inner, now, request_index, guess: *guess };
                self.write_one(call, request, sink);
                if !self.are_hints_good {
                    // The session has quiesced while making room: these heads may be reused by now.
                    guesses[done..].fill(NO_GUESS);
                    break;
                }
            }
        }
        self.guesses = guesses;
    }

    /// Stage 3 of a request that is not a read. Not inlined: otherwise reads would have to save its
    /// registers.
    #[inline(never)]
    pub(super) fn write_one<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        call: Call<'_>,
        request: &Request<'_, U>,
        sink: &mut S,
    ) {
        match &request.op {
            Op::Get => unreachable!("reads are served by `get`"),
            Op::Set(set) => self.set(call, request.key, request.hash, set, sink),
            Op::Delete => self.delete(call, request.key, request.hash, sink),
            Op::Update(update) => self.update(call, request.key, request.hash, update, sink),
        }
    }

    #[inline(always)]
    fn get<U, R, S: Sink<R>>(
        &mut self,
        inner: &Arc<Inner>,
        now: UnixMillis,
        request_index: usize,
        guess: &Guess,
        request: &Request<'_, U>,
        sink: &mut S,
    ) {
        let Some((position, entry)) = find_guessed(inner, guess, request) else {
            sink.outcome(request_index, Outcome::Miss, Pins(inner));
            return;
        };
        let mut word = Default::default();
        let item = entry.read(&mut word);
        if item.expires_at.is_some_and(|at| at <= now) {
            sink.outcome(request_index, Outcome::Miss, Pins(inner));
            return meet_expired(self, inner, now, request.hash, request.key);
        }
        if position.slot.marks() < self.mark_limit {
            match inner.config.eviction {
                Eviction::Lru => note_read(self, inner, request.hash, position),
                _ => inner.index.mark(position, self.mark_limit),
            }
        }
        entry.note_use(self.read_now);
        self.value_len_hint = item.value.len();
        sink.outcome(request_index, Outcome::Hit(item), Pins(inner));
    }
}

/// Where a request is being executed.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub inner: &'a Arc<Inner>,
    pub now: UnixMillis,
    pub request_index: usize,
    pub guess: Guess,
}

/// Stage 1.
#[inline]
pub(super) fn prefetch_heads<U>(inner: &Inner, chunk: &[Request<'_, U>]) {
    let how = inner.tuning.prefetch;
    for request in chunk {
        prefetch::line_by(how, inner.index.address(inner.index.head_of(request.hash)));
    }
}

/// Detects the processor's instructions, once: that takes some 100 us on a virtual machine, which
/// the first batch would pay otherwise.
pub(crate) fn know_processor() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    let _ = std::arch::is_x86_feature_detected!("avx2");
}

/// Stage 2 of all requests, by the store's tuning.
fn guess_all<U>(inner: &Inner, chunk: &[Request<'_, U>], guesses: &mut [Guess], value_len: usize) {
    match inner.tuning.prefetch {
        Prefetch::On => guess_all_hinted::<U, Near>(inner, chunk, guesses, value_len),
        Prefetch::NonTemporal => {
            guess_all_hinted::<U, NonTemporal>(inner, chunk, guesses, value_len);
        }
        Prefetch::Off => guess_all_hinted::<U, Nothing>(inner, chunk, guesses, value_len),
    }
}

/// [`guess_all`] with the widest instructions that the processor has.
fn guess_all_hinted<U, H: Hint>(
    inner: &Inner,
    chunk: &[Request<'_, U>],
    guesses: &mut [Guess],
    value_len: usize,
) {
    if !inner.tuning.matches_tags_at_once {
        took(Way::TagBySlot);
        let first = |at, tag| inner.index.first_match_by_slot(at, tag);
        return guess_all_by::<U, H>(inner, chunk, guesses, value_len, first);
    }
    took(Way::TagsAtOnce);
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi1") {
        // SAFETY: the processor has the instructions (just asked).
        return unsafe { guess_all_avx2::<U, H>(inner, chunk, guesses, value_len) };
    }
    let first = |at, tag| inner.index.first_match(at, tag);
    guess_all_by::<U, H>(inner, chunk, guesses, value_len, first);
}

/// [`guess_all_hinted`] for processors with AVX2: a line in two loads.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[target_feature(enable = "avx2,bmi1")]
fn guess_all_avx2<U, H: Hint>(
    inner: &Inner,
    chunk: &[Request<'_, U>],
    guesses: &mut [Guess],
    value_len: usize,
) {
    // SAFETY: this function's own features.
    let first = |at, tag| unsafe { inner.index.first_match_avx2(at, tag) };
    guess_all_by::<U, H>(inner, chunk, guesses, value_len, first);
}

/// Stage 2: `first` returns the first slot of a bucket with a tag. Keys that are not in their head
/// are looked for in the second bucket of the chain, once that has arrived as well.
#[inline(always)]
fn guess_all_by<U, H: Hint>(
    inner: &Inner,
    chunk: &[Request<'_, U>],
    guesses: &mut [Guess],
    value_len: usize,
    first: impl Fn(u32, Tag) -> Option<u32>,
) {
    let mut overflow_count = 0;
    for (request, guess) in chunk.iter().zip(guesses.iter_mut()) {
        let head = inner.index.head_of(request.hash);
        *guess = Guess { bucket: head, ..NO_GUESS };
        if let Some(found) = first(head, Tag::of(request.hash)) {
            take_guess::<U, H>(inner, request, guess, found, value_len);
        } else if let Some(next) = inner.index.overflow_of(head) {
            H::line(inner.index.address(next));
            *guess = Guess { bucket: next, is_overflow: true, ..NO_GUESS };
            overflow_count += 1;
        } else if let (Some(ghosts), Op::Set(_)) = (&inner.ghosts, &request.op) {
            H::line(ghosts.address(request.hash));
        }
    }
    if overflow_count == 0 {
        return;
    }
    for (request, guess) in chunk.iter().zip(guesses.iter_mut()) {
        if guess.is_overflow
            && let Some(found) = first(guess.bucket, Tag::of(request.hash))
        {
            take_guess::<U, H>(inner, request, guess, found, value_len);
        }
    }
}

/// Notes the slot and prefetches its entry.
#[inline(always)]
fn take_guess<U, H: Hint>(
    inner: &Inner,
    request: &Request<'_, U>,
    guess: &mut Guess,
    found: u32,
    value_len: usize,
) {
    guess.index = found as u8;
    guess.slot = inner.index.slot_at(guess.bucket, usize::from(guess.index));
    // A write reads header and key only.
    let value_len = if matches!(request.op, Op::Set(_)) { 0 } else { value_len };
    prefetch_entry::<H>(inner, guess.slot, HEADER_BYTES + request.key.len() + value_len);
}

/// Prefetches the lines of an entry of about `expected_bytes`.
#[inline]
pub(super) fn prefetch_entry<H: Hint>(inner: &Inner, slot: Slot, expected_bytes: usize) {
    let start = inner.log.address(slot.offset_bytes());
    H::line(start);
    let lead_bytes = start.addr() % LINE_BYTES;
    let end_bytes = (lead_bytes + expected_bytes).min(ENTRY_LINES_MAX * LINE_BYTES);
    let mut line_bytes = LINE_BYTES;
    while line_bytes < end_bytes {
        H::line(start.wrapping_add(line_bytes));
        line_bytes += LINE_BYTES;
    }
}

/// The key's entry: by the guess of stage 2, or by a full search.
#[inline(always)]
fn find_guessed<'a, U>(
    inner: &'a Inner,
    guess: &Guess,
    request: &Request<'_, U>,
) -> Option<(Position, Entry<'a>)> {
    if !guess.slot.is_empty() {
        // Loaded again: an earlier request of this batch may have changed it (K8).
        let slot = inner.index.slot_at(guess.bucket, usize::from(guess.index));
        let position = Position { bucket: guess.bucket, index: usize::from(guess.index), slot };
        if slot.same_entry(guess.slot) && (!guess.is_overflow || is_linked(inner, guess, request)) {
            let entry = entry_of(inner, position);
            if entry.has_key(request.key) {
                return Some((position, entry));
            }
        }
    }
    find(inner, inner.index.head_of(request.hash), request.hash, request.key)
}

/// Whether the overflow bucket of the guess is still in its chain: a bucket that left keeps its old
/// slots, so a change by an earlier request of this batch would not show there (K8).
#[cold]
fn is_linked<U>(inner: &Inner, guess: &Guess, request: &Request<'_, U>) -> bool {
    inner.index.overflow_of(inner.index.head_of(request.hash)) == Some(guess.bucket)
}
