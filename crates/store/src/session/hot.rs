//! Reads of hot keys without descending the tree: a sorted array of the keys, and beside it the
//! place where this session last found each of them (uTPS §3.2.2; decision 0042).
//!
//! ```text
//!  key ─▶ HotArray: binary search ─▶ place ─▶ slot ─▶ entry: is it this key? ─▶ answered
//!             └─ not among them ────────┴─ unknown, or not there any more ─▶ all these go down
//!                                                                           together, and are kept
//! ```
//!
//! The array is shared and immutable; the places belong to this session. No part of an item is
//! kept, so a read sees the writes of every other session (K9).
//!
//! # Invariants
//! I1: `places` has a place for each key of the array.

use std::sync::Arc;

use arrayvec::ArrayVec;
use base::UnixMillis;
use index::hash::slot::Tag;
use index::tree::{Hint, HotPlace, Sought, Tree};

use super::execute::{Call, NO_GUESS};
use super::ordered::{Tagged, answer_get};
use super::pace::quiesce_after_reads;
use super::{Local, Session, range};
use crate::config::BATCH_MAX;
use crate::hot_array::HotArray;
use crate::inner::Inner;
use crate::range::{NoOrder, Range, RangeEnd};
use crate::request::{Item, LastUse, Op, Request, Sink, Update};

/// The memory that a session keeps for each hot key.
pub const HOT_PLACE_BYTES: usize = size_of::<HotPlace>();

/// Hot keys and their places.
pub(super) struct Hot {
    keys: Arc<HotArray>,
    places: Vec<HotPlace>,
    in_place_count: u64,
}

impl Hot {
    /// The key's number, and its place if that is valid.
    #[inline]
    fn find(&self, tree: &Tree, key: &[u8]) -> (Option<usize>, Option<&HotPlace>) {
        let index = self.keys.find(key);
        let place = index.map(|index| &self.places[index]);
        (index, place.filter(|place| place.is_there(tree)))
    }
}

impl Session {
    /// Sets the keys that [`Session::read_hot`] looks up first; `None`: no keys. The places of
    /// other keys are dropped.
    pub fn set_hot_array(&mut self, keys: Option<Arc<HotArray>>) {
        let keys = keys.filter(|keys| self.inner.tree.is_some() && !keys.is_empty());
        let in_place_count = self.take_hot_reads();
        self.local.hot = keys.map(|keys| {
            let mut places = self.local.hot.take().map(|hot| hot.places).unwrap_or_default();
            places.clear();
            // Exact: no more than the memory plan allows.
            places.reserve_exact(keys.len());
            places.resize(keys.len(), HotPlace::NONE);
            Box::new(Hot { keys, places, in_place_count })
        });
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

    /// Like [`Session::range`]; a range that begins at a hot key begins at its place.
    ///
    /// # Errors
    /// The store's index keeps no order.
    pub fn range_from_hot(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visit: impl FnMut(&Item<'_>),
    ) -> Result<RangeEnd, NoOrder> {
        let Session { inner, local } = self;
        let tree = inner.tree.as_ref().ok_or(NoOrder)?;
        let hint = match &mut local.hot {
            Some(hot) => hot.hint_of(inner, tree, range),
            None => Hint::NONE,
        };
        let end = range::walk_range_from(inner, tree, now, (range, hint), visit);
        quiesce_after_reads(local, inner, now);
        Ok(end)
    }

    /// The number of reads of [`Session::read_hot`] that did not descend the tree, since the last
    /// call.
    pub fn take_hot_reads(&mut self) -> u64 {
        self.local.hot.as_mut().map_or(0, |hot| std::mem::take(&mut hot.in_place_count))
    }
}

impl Hot {
    /// The place where a walk over the range begins.
    fn hint_of(&mut self, inner: &Inner, tree: &Tree, range: &Range<'_>) -> Hint {
        let key = range::origin_of(range).key();
        let (Some(index), place) = self.find(tree, key) else { return Hint::NONE };
        if let Some(hint) = place.map(|place| place.walk_hint(tree)) {
            self.in_place_count += 1;
            return hint;
        }
        let mut hint = [Hint::NONE];
        tree.seek_batch(&inner.log, |_| Sought { key, tag: None }, &mut hint);
        if let Some(position) = tree.find_hinted(hint[0], key, &inner.log) {
            self.places[index] = HotPlace::of(tree, hint[0], position);
        }
        hint[0]
    }
}

/// Executes reads, of hot keys or others; the session does not quiesce meanwhile.
fn read_chunk<U: Update, S: Sink<U::Refusal>>(
    local: &mut Local,
    inner: &Arc<Inner>,
    tree: &Tree,
    hot: &mut Hot,
    (now, first): (UnixMillis, usize),
    chunk: &[Request<'_, U>],
    sink: &mut S,
) {
    local.read_now = LastUse::read(now);
    // For each request its key's number in the array, and whether its place is tried.
    let mut found: ArrayVec<(Option<usize>, bool), BATCH_MAX> = ArrayVec::new();
    let mut astray: ArrayVec<u8, BATCH_MAX> = ArrayVec::new();
    for (at, request) in chunk.iter().enumerate() {
        let (index, place) = hot.find(tree, request.key);
        match place {
            Some(place) => place.prefetch(tree, &inner.log),
            None => astray.push(at as u8),
        }
        found.push((index, place.is_some()));
    }
    let mut hints: ArrayVec<Hint, BATCH_MAX> = ArrayVec::new();
    if !astray.is_empty() {
        hints.extend(astray.iter().map(|_| Hint::NONE));
        let sought = |at: usize| {
            let Request { key, hash, .. } = &chunk[usize::from(astray[at])];
            Sought { key, tag: Some(Tag::of(*hash)) }
        };
        tree.seek_batch(&inner.log, sought, &mut hints);
    }
    let mut hints = hints.iter();
    for (at, (request, (index, is_in_place))) in chunk.iter().zip(found).enumerate() {
        let call = Call { inner, now, request_index: first + at, guess: NO_GUESS };
        let log = Tagged { log: &inner.log, tag: Tag::of(request.hash) };
        let in_place = index
            .filter(|_| is_in_place)
            .and_then(|index| hot.places[index].find(tree, request.key, &log));
        hot.in_place_count += u64::from(in_place.is_some());
        let position = match in_place {
            Some(position) => Some(position),
            None => {
                let hint = if is_in_place { None } else { hints.next().copied() };
                let hint = hint.unwrap_or(Hint::NONE);
                let position = tree.find_hinted(hint, request.key, &log);
                if let (Some(index), Some(position)) = (index, position) {
                    hot.places[index] = HotPlace::of(tree, hint, position);
                }
                position
            }
        };
        answer_get(local, call, position, sink);
    }
}
