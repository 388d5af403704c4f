//! Deletes every item, in steps, so that a thread that serves clients can do other work between
//! them.
//!
//! ```text
//!  begin_flush ─▶ a durable log: all versions up to a floor count as deleted
//!       └▶ Flush { place } ─ flush_step ─▶ some chains, or some keys of a tree, are empty
//!                              └ until it is over
//! ```
//!
//! # Invariants
//! U1: an item that exists when a flush begins is gone when it ends, even if it was changed
//!     meanwhile: a change that read the old value is deleted with it. Items that are written
//!     during the flush may go or stay.
//! U2: a step visits at most [`STEP_HEADS`] chains or [`WALK_STEP`] keys of a tree.

use base::KeyHash;
use index::hash::slot::{Slot, Tag};

use super::Session;
use super::durable::note_published;
use super::find::entry_of;
use super::ordered_walk::{WALK_STEP, collect_behind, key_of, remove_ordered};

/// Buckets that one step empties.
const STEP_HEADS: u32 = 64;

/// Checking an empty chain takes some 10 ns, deleting an item 100 to 200.
const HEADS_PER_KEY: u32 = 16;

/// The progress of a flush.
#[derive(Debug)]
pub struct Flush {
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// At the chain of this hash.
    Chain(KeyHash),
    /// Behind this key of an ordered index.
    Behind(Option<Vec<u8>>),
    End,
}

impl Flush {
    /// Whether nothing is left to delete.
    pub fn is_over(&self) -> bool {
        matches!(self.place, Place::End)
    }
}

impl Session {
    /// Deletes every item that exists at the call. Items written meanwhile may go or stay. False:
    /// the log cannot be written, and nothing was deleted.
    pub fn flush(&mut self) -> bool {
        let Some(mut flush) = self.begin_flush() else { return false };
        while !flush.is_over() {
            self.flush_step(&mut flush);
        }
        true
    }

    /// Whether the log cannot be written now.
    pub fn is_refusing(&self) -> bool {
        self.inner.durable.as_ref().is_some_and(|durable| durable.is_refusing())
    }

    /// Begins a [`Session::flush`] in steps. `None`: the log cannot be written.
    pub fn begin_flush(&mut self) -> Option<Flush> {
        if self.is_refusing() {
            return None;
        }
        self.raise_flush_floor();
        let place = match self.inner.tree {
            Some(_) => Place::Behind(None),
            None => Place::Chain(KeyHash(0)),
        };
        Some(Flush { place })
    }

    /// Deletes some more items (U2); returns the number of keys visited, where `HEADS_PER_KEY`
    /// chains count as one.
    pub fn flush_step(&mut self, flush: &mut Flush) -> u32 {
        if let Some(durable) = &self.inner.durable {
            durable.begin(self.local.place);
        }
        let visited = match &mut flush.place {
            Place::End => 0,
            Place::Chain(hash) => {
                let (next, visited) = self.flush_chains(*hash);
                flush.place = next.map_or(Place::End, Place::Chain);
                visited
            }
            Place::Behind(last) => {
                let visited = self.flush_keys(last);
                if (visited as usize) < WALK_STEP {
                    flush.place = Place::End;
                }
                visited
            }
        };
        let Session { inner, local } = self;
        note_published(local, inner);
        if let Some(durable) = &inner.durable {
            durable.end(local.place);
        }
        inner.epochs.quiesce(local.place);
        local.retired.free_some(inner);
        local.publish_counts(inner);
        if flush.is_over() {
            local.changes.flushed();
        }
        visited
    }

    /// Empties the next chains, beginning with that of a hash; returns the first hash behind them.
    fn flush_chains(&mut self, hash: KeyHash) -> (Option<KeyHash>, u32) {
        let (mut next, mut visited) = (Some(hash), 0);
        let mut slots = Vec::new();
        for _ in 0..STEP_HEADS {
            let Some(hash) = next else { break };
            next = self.flush_chain(hash, &mut slots);
            visited += slots.len() as u32;
        }
        (next, visited + STEP_HEADS / HEADS_PER_KEY)
    }

    /// Empties the chain of `hash`; returns the first hash behind it.
    fn flush_chain(&mut self, hash: KeyHash, slots: &mut Vec<Slot>) -> Option<KeyHash> {
        let Session { inner, local } = self;
        slots.clear();
        let place = inner.index.collect(hash, slots);
        if slots.is_empty() {
            return place.next_hash(hash);
        }
        let (mut chain, place) = inner.index.lock_place(hash);
        let mut removed = Vec::new();
        chain.entries(|position| removed.push(position));
        if inner.durable.is_some() {
            for position in removed {
                let entry = entry_of(inner, position);
                let tag = Tag::of(inner.hasher.hash(entry.key()));
                let named = chain.find_entry(tag, position.slot.offset_bytes());
                if let Some(position) = named {
                    // Entries written since the floor was set need a delete in the log (U1).
                    // Without space for it they stay.
                    let _ = local.unlink(inner, &mut chain, position, entry);
                }
            }
            chain.finish();
            return place.next_hash(hash);
        }
        chain.clear(&mut local.retired.lines);
        // After the slots: a segment that counts no live bytes may be retired at once. Before the
        // unlocking: a session that finds none of a segment's entries alive expects no live bytes.
        for position in removed {
            let entry = entry_of(inner, position);
            local.tally.remove(inner, position, entry);
        }
        chain.finish();
        place.next_hash(hash)
    }

    /// Removes the next keys of a tree behind `last`, and sets `last` to the last of them; returns
    /// their number.
    fn flush_keys(&mut self, last: &mut Option<Vec<u8>>) -> u32 {
        let Session { inner, local } = self;
        let Some(tree) = &inner.tree else { return 0 };
        let mut removed = Vec::with_capacity(WALK_STEP);
        collect_behind(inner, tree, last.as_deref(), &mut removed);
        for slot in &removed {
            remove_ordered(local, inner, tree, *slot);
        }
        *last = removed.last().map(|slot| key_of(inner, *slot).to_vec());
        removed.len() as u32
    }
}
