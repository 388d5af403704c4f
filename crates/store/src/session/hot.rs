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
use super::{Local, range};
use crate::config::BATCH_MAX;
use crate::hot_array::HotArray;
use crate::inner::Inner;
use crate::range::Range;
use crate::request::{LastUse, Request, Sink, Update};

/// The memory that a session keeps for each hot key.
pub const HOT_PLACE_BYTES: usize = size_of::<HotPlace>();

/// Hot keys and their places.
pub(super) struct Hot {
    keys: Arc<HotArray>,
    places: Vec<HotPlace>,
    in_place_count: u64,
}

impl Hot {
    /// The keys, with no known place yet; the memory of the places before is used again.
    pub(super) fn new(keys: Arc<HotArray>, before: Option<Box<Hot>>, in_place_count: u64) -> Hot {
        let mut places = before.map(|hot| hot.places).unwrap_or_default();
        places.clear();
        // Exact: no more than the memory plan allows.
        places.reserve_exact(keys.len());
        places.resize(keys.len(), HotPlace::NONE);
        Hot { keys, places, in_place_count }
    }

    /// The number of reads that did not descend the tree, since the last call.
    pub(super) fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.in_place_count)
    }

    /// The key's number, and its place if that is valid.
    #[inline]
    fn find(&self, tree: &Tree, key: &[u8]) -> (Option<usize>, Option<&HotPlace>) {
        let index = self.keys.find(key);
        let place = index.map(|index| &self.places[index]);
        (index, place.filter(|place| place.is_there(tree)))
    }
}

impl Hot {
    /// The place where a walk over the range begins.
    pub(super) fn hint_of(&mut self, inner: &Inner, tree: &Tree, range: &Range<'_>) -> Hint {
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
pub(super) fn read_chunk<U: Update, S: Sink<U::Refusal>>(
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
