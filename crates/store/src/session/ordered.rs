//! The session's part in the ordered index: finds and changes a key's slot in the tree while its
//! stripe is locked, and reserves tree nodes before that.
//!
//! ```text
//!  hash index   lock chain  ─▶ slot in the chain   ─▶ unlock with the next version
//!  tree         lock stripe ─▶ slot in the tree    ─▶ unlock with the next version
//! ```
//!
//! With a tree the hash index holds no slots: its heads are the stripes, words that lock and
//! version the keys whose hashes they cover (K4; decision 0021). A tree change needs its border's
//! lock as well, because keys of other stripes share the border.

use std::sync::Arc;

use base::UnixMillis;
use base::sync::Backoff;
use index::hash::Position;
use index::hash::slot::{Slot, Tag};
use index::tree::{Hint, Keys, NODE_BYTES, SPARE_NODES, Sought, Tree};

use super::Local;
use super::deletes::ONE;
use super::durable::note_published;
use super::execute::{Call, NO_GUESS, prefetch_heads};
use super::expire::meet_expired;
use super::find::entry_of;
use super::renew::note_read;
use crate::config::{BATCH_MAX, Mode};
use crate::entry::HEADER_BYTES;
use crate::inner::Inner;
use crate::log::Log;
use crate::pin::Pins;
use crate::prefetch;
use crate::request::{Op, Outcome, Request, Sink, Update};

/// The average minimum of keys per new node: a split leaves each half full, and the nodes above are
/// a small part.
const KEYS_PER_NODE: usize = 4;
/// At most this part of the log is taken ahead for nodes: otherwise a cache would be emptied for
/// keys that may not come.
const NODES_AHEAD_PART: u64 = 4;

impl Keys for Log {
    #[inline]
    unsafe fn key<'a>(&self, slot: Slot) -> &'a [u8] {
        // SAFETY: the caller's promise is the one that the log asks for.
        unsafe { self.entry(slot.offset_bytes()) }.key()
    }

    #[inline]
    unsafe fn has_key(&self, slot: Slot, key: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe { self.entry(slot.offset_bytes()) }.has_key(key)
    }

    #[inline]
    fn prefetch(&self, slot: Slot) {
        let start = self.address(slot.offset_bytes());
        prefetch::line(start);
        // Entries start at multiples of eight: header and 24 bytes of key and value may lie in two
        // lines.
        prefetch::line(start.wrapping_add(HEADER_BYTES + 23));
    }
}

/// The log, with the tag of the one key looked for: entries of its group with another tag are
/// excluded without reading them.
pub(super) struct Tagged<'l> {
    pub log: &'l Log,
    pub tag: Tag,
}

impl Keys for Tagged<'_> {
    #[inline]
    unsafe fn key<'a>(&self, slot: Slot) -> &'a [u8] {
        // SAFETY: the caller's promise is the same.
        unsafe { self.log.key(slot) }
    }

    #[inline]
    unsafe fn has_key(&self, slot: Slot, key: &[u8]) -> bool {
        // SAFETY: as above.
        slot.has_tag(self.tag) && unsafe { self.log.has_key(slot, key) }
    }

    #[inline]
    fn prefetch(&self, slot: Slot) {
        self.log.prefetch(slot);
    }
}

/// Reserves nodes for `key_count` inserts under their locks, where no room can be made. Drops
/// every reference this session has.
pub(super) fn have_nodes_for(local: &mut Local, inner: &Inner, now: UnixMillis, key_count: usize) {
    let Some(tree) = &inner.tree else { return };
    let wanted = SPARE_NODES + key_count.div_ceil(KEYS_PER_NODE);
    let log_bytes = u64::from(inner.log.segment_count()) * inner.log.segment_bytes();
    if (wanted * NODE_BYTES) as u64 <= log_bytes / NODES_AHEAD_PART {
        // The insert itself shows whether there were enough.
        take_nodes(local, inner, tree, now, wanted);
    }
}

/// After an insert that changed nothing for lack of nodes: reserves them, and makes room for
/// them if there is none, because nodes lie in the log's segments. A cache empties segments
/// until enough keys, and with them nodes, have gone. Drops every reference this session has.
/// False: the insert did not lack nodes, or none can be had.
#[cold]
fn take_nodes(
    local: &mut Local,
    inner: &Inner,
    tree: &Tree,
    now: UnixMillis,
    wanted: usize,
) -> bool {
    if local.nodes.reserve(tree, wanted) {
        return true;
    }
    if !local.held.is_empty() {
        return false;
    }
    local.are_hints_good = false;
    let mut backoff = Backoff::new();
    for _ in 0..2 * inner.log.segment_count() + 64 {
        let has_room = match inner.config.mode {
            Mode::Evict => local.empty_one_segment(inner, now, (ONE, 0), &mut ONE.steps_max()),
            Mode::Clean => local.make_room(inner, now, 1, 1),
        };
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
        inner.log.free_waiting(&inner.epochs);
        local.retired.drain(inner);
        if local.nodes.reserve(tree, wanted) {
            return true;
        }
        if inner.config.mode == Mode::Clean {
            return false; // Its keys stay, and so do their nodes.
        }
        if !has_room {
            backoff.snooze(); // Others empty the last segments.
        }
    }
    false
}

/// Whether a write that was answered "out of memory" should be retried: it lacked only nodes,
/// or a line for an overflow bucket, and now has them.
#[inline]
pub(super) fn has_nodes_now(local: &mut Local, inner: &Inner, now: UnixMillis) -> bool {
    let wanted = local.nodes.take_shortage();
    if wanted == 0 {
        return false;
    }
    let has_nodes = match &inner.tree {
        Some(tree) => take_nodes(local, inner, tree, now, wanted),
        None => has_overflow_now(local, inner, now),
    };
    // The first of several attempts has been counted.
    local.tally.counts.out_of_memory =
        local.tally.counts.out_of_memory.wrapping_sub(u64::from(has_nodes));
    has_nodes
}

/// For a store whose index found no line for an overflow bucket: reclaims until the index can
/// borrow a segment.
#[cold]
fn has_overflow_now(local: &mut Local, inner: &Inner, now: UnixMillis) -> bool {
    inner.index.has_overflow() || (local.make_room(inner, now, 1, 1) && inner.index.has_overflow())
}

/// The executor's chunk over the tree: stages 1 and 2 are one walk of all keys down to their
/// entries; stage 3 is unchanged.
pub(super) fn execute_chunk_ordered<U: Update, S: Sink<U::Refusal>>(
    local: &mut Local,
    inner: &Arc<Inner>,
    tree: &Tree,
    now: UnixMillis,
    chunk: &[Request<'_, U>],
    first: usize,
    sink: &mut S,
) {
    let mut hints = [Hint::NONE; BATCH_MAX];
    let hints = &mut hints[..chunk.len()];
    if chunk.len() > 1 {
        prefetch_heads(inner, chunk);
        let sought = |index: usize| {
            let Request { key, hash, .. } = &chunk[index];
            Sought { key, tag: Some(Tag::of(*hash)) }
        };
        tree.seek_batch(&inner.log, sought, hints);
    }
    local.prefetched_count = local.prefetched_count.saturating_sub(chunk.len());
    local.are_hints_good = true;
    for (offset, (request, hint)) in chunk.iter().zip(hints).enumerate() {
        let call = Call { inner, now, request_index: first + offset, guess: NO_GUESS };
        if !matches!(request.op, Op::Get) {
            local.write_one(call, request, sink);
            continue;
        }
        // A write that made room has quiesced: the borders in the hints may be gone.
        let hint = if local.are_hints_good { *hint } else { Hint::NONE };
        let log = Tagged { log: &inner.log, tag: Tag::of(request.hash) };
        let position = tree.find_hinted(hint, request.key, &log);
        answer_get(local, call, position, sink);
    }
    local.nodes.keep_few(inner);
}

/// The outcome of a GET whose key has the given slot.
#[inline]
pub(super) fn answer_get<R, S: Sink<R>>(
    local: &mut Local,
    call: Call<'_>,
    position: Option<Position>,
    sink: &mut S,
) {
    let Call { inner, now, request_index, .. } = call;
    let mut word = Default::default();
    let read = position.map(|position| {
        let entry = entry_of(inner, position);
        (position, entry, entry.read(&mut word))
    });
    match read {
        None => sink.outcome(request_index, Outcome::Miss, Pins(inner)),
        Some((_, entry, item)) if item.expires_at.is_some_and(|at| at <= now) => {
            sink.outcome(request_index, Outcome::Miss, Pins(inner));
            meet_expired(local, inner, now, inner.hasher.hash(entry.key()), entry.key());
        }
        Some((position, entry, item)) => {
            note_read(local, inner, inner.hasher.hash(entry.key()), position);
            entry.note_use(local.read_now);
            sink.outcome(request_index, Outcome::Hit(item), Pins(inner));
        }
    }
}
