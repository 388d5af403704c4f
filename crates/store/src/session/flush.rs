//! Deletes every item, in steps, so that a thread that serves clients can do other work between
//! them.
//!
//! ```text
//!  Flush::begin ─▶ a durable log: all versions up to a floor count as deleted
//!       └▶ Flush { place } ─ step ─▶ some chains, or some keys of a tree, are empty
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
use super::durable::{note_published, raise_flush_floor};
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

    /// Begins a [`Session::flush`] in steps. `None`: the log cannot be written.
    pub fn begin(session: &mut Session) -> Option<Flush> {
        if session.is_refusing() {
            return None;
        }
        raise_flush_floor(session);
        let place = match session.inner.tree {
            Some(_) => Place::Behind(None),
            None => Place::Chain(KeyHash(0)),
        };
        Some(Flush { place })
    }

    /// Deletes some more items (U2); returns the number of keys visited, where `HEADS_PER_KEY`
    /// chains count as one.
    pub fn step(&mut self, session: &mut Session) -> u32 {
        if let Some(durable) = &session.inner.durable {
            durable.begin(session.local.place);
        }
        let visited = match &mut self.place {
            Place::End => 0,
            Place::Chain(hash) => {
                let (next, visited) = flush_chains(session, *hash);
                self.place = next.map_or(Place::End, Place::Chain);
                visited
            }
            Place::Behind(last) => {
                let visited = flush_keys(session, last);
                if (visited as usize) < WALK_STEP {
                    self.place = Place::End;
                }
                visited
            }
        };
        let Session { inner, local } = session;
        note_published(local, inner);
        if let Some(durable) = &inner.durable {
            durable.end(local.place);
        }
        inner.epochs.quiesce(local.place);
        local.retired.free_some(inner);
        local.publish_counts(inner);
        if self.is_over() {
            local.changes.flushed();
        }
        visited
    }
}

/// Empties the next chains, beginning with that of a hash; returns the first hash behind them.
fn flush_chains(session: &mut Session, hash: KeyHash) -> (Option<KeyHash>, u32) {
    let (mut next, mut visited) = (Some(hash), 0);
    let mut slots = Vec::new();
    for _ in 0..STEP_HEADS {
        let Some(hash) = next else { break };
        next = flush_chain(session, hash, &mut slots);
        visited += slots.len() as u32;
    }
    (next, visited + STEP_HEADS / HEADS_PER_KEY)
}

/// Empties the chain of `hash`; returns the first hash behind it.
fn flush_chain(session: &mut Session, hash: KeyHash, slots: &mut Vec<Slot>) -> Option<KeyHash> {
    let Session { inner, local } = session;
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
fn flush_keys(session: &mut Session, last: &mut Option<Vec<u8>>) -> u32 {
    let Session { inner, local } = session;
    let Some(tree) = &inner.tree else { return 0 };
    let mut removed = Vec::with_capacity(WALK_STEP);
    collect_behind(inner, tree, last.as_deref(), &mut removed);
    for slot in &removed {
        remove_ordered(local, inner, tree, *slot);
    }
    *last = removed.last().map(|slot| key_of(inner, *slot).to_vec());
    removed.len() as u32
}
