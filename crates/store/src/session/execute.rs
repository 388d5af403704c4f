//! The batch executor: three stages over up to 64 requests, so that their cache misses overlap
//! (MICA §4.1, "multi-stage prefetching"; M5).
//!
//! ```text
//!  stage 1   hash ─▶ head bucket             prefetch the bucket's line
//!  stage 2   tags ─▶ likely entry            prefetch every line of header, key and value
//!  stage 3   execute in order; re-reads the bucket, so it sees earlier writes of the batch (K8)
//! ```
//!
//! Overlapping stage 1 of the next 32 requests with stage 3 of these was tried: 24.6 against 24.9
//! million GETs a CPU-second on 10 M 8/8 items, so it is not done.

use std::sync::Arc;

use base::UnixMillis;

use super::{Local, Session};
use crate::config::BATCH_MAX;
use crate::entry::{Entry, HEADER_BYTES, keys_equal};
use crate::index::Position;
use crate::index::slot::{Slot, Tag};
use crate::pin::Pins;
use crate::prefetch::{self, LINE_BYTES};
use crate::request::{Op, Outcome, Request, Sink, Update};
use crate::store::Inner;

/// Lines of one entry that stage 2 asks for; the processor's own prefetcher follows on longer ones.
const ENTRY_LINES_MAX: usize = 4;

/// What stages 1 and 2 found out about one request.
#[derive(Clone, Copy)]
struct Guess {
    head: u32,
    /// The head, or the chain's second bucket.
    bucket: u32,
    index: u32,
    slot: Slot,
}

const NO_GUESS: Guess = Guess { head: 0, bucket: 0, index: 0, slot: Slot::EMPTY };

impl Session {
    /// Executes the requests in order; each outcome goes to the sink. Quiesces between chunks and
    /// at the end, so that no item may be kept without a pin.
    pub fn execute<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    ) {
        let Session { inner, local } = self;
        debug_assert!(local.held.is_empty(), "locked keys are served by the LockedSession");
        let mut first = 0;
        for chunk in requests.chunks(inner.config.batch) {
            local.execute_chunk(inner, now, chunk, first, sink);
            inner.epochs.quiesce(local.place);
            first += chunk.len();
        }
        local.publish_counts(inner);
    }
}

impl Local {
    fn execute_chunk<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        inner: &Arc<Inner>,
        now: UnixMillis,
        chunk: &[Request<'_, U>],
        first: usize,
        sink: &mut S,
    ) {
        let mut guesses = [NO_GUESS; BATCH_MAX];
        let guesses = &mut guesses[..chunk.len()];
        if chunk.len() > 1 {
            prefetch_heads(inner, chunk);
            self.guess_entries(inner, chunk, guesses);
        } else {
            for (request, guess) in chunk.iter().zip(guesses.iter_mut()) {
                guess.head = inner.index.head_of(request.hash);
            }
        }
        for (offset, (request, guess)) in chunk.iter().zip(guesses.iter()).enumerate() {
            let call = Call { inner, now, request_index: first + offset };
            match &request.op {
                Op::Get => self.get(call, request, *guess, sink),
                Op::Set(set) => self.set(call, request.key, request.hash, set, sink),
                Op::Delete => self.delete(call, request.key, request.hash, sink),
                Op::Update(update) => self.update(call, request.key, request.hash, update, sink),
            }
        }
    }

    /// Stage 2. Keys that are in no head are looked for in the second bucket of their chain, once
    /// that has arrived as well.
    #[inline]
    fn guess_entries<U>(&self, inner: &Inner, chunk: &[Request<'_, U>], guesses: &mut [Guess]) {
        let mut overflow_count = 0;
        for (request, guess) in chunk.iter().zip(guesses.iter_mut()) {
            guess.head = inner.index.head_of(request.hash);
            guess.bucket = guess.head;
            if !self.guess_in_bucket(inner, request, guess)
                && let Some(next) = inner.index.overflow_of(guess.head)
            {
                inner.index.prefetch(next);
                guess.bucket = next;
                overflow_count += 1;
            }
        }
        if overflow_count == 0 {
            return;
        }
        for (request, guess) in chunk.iter().zip(guesses.iter_mut()) {
            if guess.bucket != guess.head {
                self.guess_in_bucket(inner, request, guess);
            }
        }
    }

    /// Notes and prefetches the likely entry, if the bucket has one.
    #[inline]
    fn guess_in_bucket<U>(
        &self,
        inner: &Inner,
        request: &Request<'_, U>,
        guess: &mut Guess,
    ) -> bool {
        let found = inner.index.guess(guess.bucket, Tag::of(request.hash));
        if let Some(position) = found {
            guess.index = position.index as u32;
            guess.slot = position.slot;
            let expected_bytes = HEADER_BYTES + request.key.len() + self.value_len_hint;
            prefetch_entry(inner, position.slot, expected_bytes);
        }
        found.is_some()
    }

    #[inline]
    fn get<U, R, S: Sink<R>>(
        &mut self,
        call: Call<'_>,
        request: &Request<'_, U>,
        guess: Guess,
        sink: &mut S,
    ) {
        let Call { inner, now, request_index } = call;
        let found = find_guessed(inner, guess, request);
        let Some((position, entry)) = found.filter(|(_, entry)| !entry.is_expired(now)) else {
            sink.outcome(request_index, Outcome::Miss, Pins(inner));
            return;
        };
        if position.slot.marks() < inner.mark_limit {
            inner.index.mark(position, inner.mark_limit);
        }
        let item = entry.item();
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
}

/// Stage 1.
#[inline]
fn prefetch_heads<U>(inner: &Inner, chunk: &[Request<'_, U>]) {
    for request in chunk {
        inner.index.prefetch(inner.index.head_of(request.hash));
    }
}

/// Asks for the lines of an entry of about `expected_bytes`.
#[inline]
pub(super) fn prefetch_entry(inner: &Inner, slot: Slot, expected_bytes: usize) {
    let start = inner.log.address(slot.offset_bytes());
    prefetch::line(start);
    let lead_bytes = start.addr() % LINE_BYTES;
    let end_bytes = (lead_bytes + expected_bytes).min(ENTRY_LINES_MAX * LINE_BYTES);
    let mut line_bytes = LINE_BYTES;
    while line_bytes < end_bytes {
        prefetch::line(start.wrapping_add(line_bytes));
        line_bytes += LINE_BYTES;
    }
}

/// The key's entry: first where stage 2 saw it, else by a full search.
#[inline]
fn find_guessed<'a, U>(
    inner: &'a Inner,
    guess: Guess,
    request: &Request<'_, U>,
) -> Option<(Position, Entry<'a>)> {
    let tag = Tag::of(request.hash);
    // A bucket that left the chain keeps its slots as they were: what an earlier request of this
    // batch changed would not show there (K8).
    let is_linked =
        guess.bucket == guess.head || inner.index.overflow_of(guess.head) == Some(guess.bucket);
    if is_linked && !guess.slot.is_empty() {
        let index = guess.index as usize;
        let slot = inner.index.slot_at(guess.bucket, index);
        if slot.has_tag(tag) {
            let position = Position { bucket: guess.bucket, index, slot };
            let entry = Local::entry_of(inner, position);
            if keys_equal(entry.key(), request.key) {
                return Some((position, entry));
            }
        }
    }
    find(inner, guess.head, tag, request.key)
}

/// Looks a key up without a lock (K9).
pub(super) fn find<'a>(
    inner: &'a Inner,
    head: u32,
    tag: Tag,
    key: &[u8],
) -> Option<(Position, Entry<'a>)> {
    let position = inner.index.find(head, tag, |slot| {
        // SAFETY: the slot was read since this session's last quiescent point.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        keys_equal(entry.key(), key)
    })?;
    Some((position, Local::entry_of(inner, position)))
}
