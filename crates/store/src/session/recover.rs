//! Inserts entries found on a medium into the index, before the store serves any request.
//!
//! # Invariants
//! I1: of a key's entries the one with the highest version has the slot. This holds for deletes
//!     too, until [`drop_deletes`] removes the deletes' slots. A delete with the same
//!     version as a put is the one that superseded it when it had expired.
//! I2: a segment's live bytes are those of the entries that have slots, and of all deletes.

use std::num::NonZeroU16;

use base::{KeyHash, UnixMillis};
use index::hash::IndexFull;
use index::hash::slot::{Slot, Tag};

use super::durable::{note_published, raise_versions};
use super::execute::NO_GUESS;
use super::find::{find_locked, point};
use super::ordered_walk::collect_step as collect_behind;
use super::resize::settle_chunk;
use super::{Local, Session};
use crate::entry::{ALIGN_BYTES, Entry, Header, Kind, Meta, Shape, body_checksum};
use crate::inner::Inner;
use crate::log::{Appender, Purpose};
use crate::prefetch;
use crate::record::{Change, Record};
use crate::replica::RecoveredDelete;

/// The entries whose buckets are prefetched together, before a quiescent point.
pub(super) const RECOVER_ENTRIES: usize = 32;

/// Entries of one segment that a checkpoint names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub items: u64,
    pub bytes: u64,
    pub with_expiry: u64,
}

/// Recovers the entries that start at these words behind `first_bytes` and are complete in
/// memory. Each counts only above the floor of its shard.
pub(crate) fn recover_all(
    session: &mut Session,
    first_bytes: u64,
    starts: &[u32],
    floor_of: &impl Fn(u16) -> u64,
) -> Result<(), IndexFull> {
    let Session { inner, local } = session;
    for group in starts.chunks(RECOVER_ENTRIES) {
        let mut found = [(KeyHash(0), 0); RECOVER_ENTRIES];
        let found = &mut found[..group.len()];
        locate(inner, first_bytes, group, found);
        for (hash, offset_bytes) in found {
            // SAFETY: restored before this call, and no thread frees segments during recovery.
            let entry = unsafe { inner.log.entry(*offset_bytes) };
            let floor = floor_of(entry.shard());
            recover_found(local, inner, *hash, (entry, *offset_bytes), floor)?;
        }
        end_recover_chunk(local, inner);
    }
    Ok(())
}

/// Recovers an entry that lies in no segment of memory, by appending it unchanged, unless a
/// newer one of its key was recovered before.
pub(crate) fn recover_copy(
    session: &mut Session,
    record: &Record<'_>,
    floor_of: &impl Fn(u16) -> u64,
) -> Result<(), IndexFull> {
    let Session { inner, local } = session;
    let (kind, value, client_flags, expires_at) = match record.change {
        Change::Put { value, client_flags, expires_at } => {
            (Kind::Put, value, client_flags, expires_at)
        }
        Change::Delete { note } => (Kind::Delete, &[][..], 0, Some(UnixMillis(note))),
    };
    let key = record.key;
    if has_newer(inner, key, record.version) {
        return Ok(()); // D4
    }
    let shape = Shape::new(key.len(), value.len(), client_flags, expires_at.is_some()).at_rest();
    let log = &inner.log;
    let reserved = local.appenders.survivors.reserve(log, shape.len_bytes(), Purpose::Reserve);
    let reservation = reserved.ok_or(IndexFull)?;
    let meta = Meta { version: record.version, client_flags, expires_at };
    let body_crc = body_checksum(shape, key, value);
    let header = Header::with_kind(kind, shape, meta, record.shard, body_crc);
    Appender::fill(log, &reservation, shape, key, value);
    Appender::write_header(log, &reservation, &header);
    local.appenders.survivors.published_aside(log, &reservation);
    local.appenders.survivors.publish_live(log);
    // Its live bytes are counted again when it gets its slot.
    log.sub_live(local.tally.lane, reservation.offset_bytes, shape.len_bytes());
    note_published(local, inner);
    recover_all(session, reservation.offset_bytes, &[0], floor_of)
}

/// Counts entries of a segment that have got their slots from a checkpoint (I2).
pub(crate) fn count_named(session: &mut Session, segment: u32, named: Named) {
    let Session { inner, local } = session;
    inner.log.add_live(local.tally.lane, segment, named.bytes);
    local.tally.counts.items = local.tally.counts.items.wrapping_add(named.items);
    local.tally.counts.entry_bytes = local.tally.counts.entry_bytes.wrapping_add(named.bytes);
    let expiring = local.tally.counts.items_with_expiry.wrapping_add(named.with_expiry);
    local.tally.counts.items_with_expiry = expiring;
    local.publish_counts(inner);
    local.tally.settle(inner);
}

/// Removes the slots of the deletes that start at these words, once every entry was recovered.
pub(crate) fn drop_deletes(session: &mut Session, first_bytes: u64, starts: &[u32]) {
    let Session { inner, local } = session;
    for group in starts.chunks(RECOVER_ENTRIES) {
        let mut found = [(KeyHash(0), 0); RECOVER_ENTRIES];
        let found = &mut found[..group.len()];
        locate(inner, first_bytes, group, found);
        for (_, offset_bytes) in found {
            drop_delete(local, inner, *offset_bytes);
        }
        inner.epochs.quiesce(local.place);
    }
}

/// Removes the slots of all deletes, wherever they lie.
pub(crate) fn drop_all_deletes(session: &mut Session) {
    let Session { inner, local } = session;
    let (mut next, mut slots) = (Some(KeyHash(0)), Vec::new());
    if let Some(tree) = &inner.tree {
        let mut last: Option<Vec<u8>> = None;
        loop {
            slots.clear();
            last = collect_behind(inner, tree, last.as_deref(), &mut slots);
            for slot in &slots {
                drop_delete(local, inner, slot.offset_bytes());
            }
            inner.epochs.quiesce(local.place);
            if last.is_none() {
                break;
            }
        }
    } else {
        while let Some(hash) = next {
            slots.clear();
            let place = inner.index.collect(hash, &mut slots);
            for slot in &slots {
                drop_delete(local, inner, slot.offset_bytes());
            }
            inner.epochs.quiesce(local.place);
            next = place.next_hash(hash);
        }
    }
}

/// Ends recovery: no delete has a slot any more, and chains continue above `version` (K1).
pub(crate) fn end_recovery(session: &mut Session, version: u64) {
    let Session { inner, local } = session;
    local.publish_counts(inner);
    local.tally.settle(inner);
    inner.index.end_presize();
    raise_versions(local, inner, version);
    local.retired.drain(inner);
}

/// Finds the places and keys of a group of entries. Afterwards their buckets, and the entries that
/// these may name already, are on their way to the cache.
pub(super) fn locate(
    inner: &Inner,
    first_bytes: u64,
    starts: &[u32],
    found: &mut [(KeyHash, u64)],
) {
    let log = &inner.log;
    for (start, found) in starts.iter().zip(found.iter_mut()) {
        let offset_bytes = first_bytes + u64::from(*start) * ALIGN_BYTES as u64;
        // SAFETY: restored before this call, and no thread frees segments during recovery.
        let hash = inner.hasher.hash(unsafe { log.entry(offset_bytes) }.key());
        *found = (hash, offset_bytes);
        prefetch::line_for_write(inner.index.address(inner.index.head_of(hash)));
    }
    for (hash, _) in found {
        if let Some(seen) = inner.index.guess(inner.index.head_of(*hash), Tag::of(*hash)) {
            prefetch::line(log.address(seen.slot.offset_bytes()));
        }
    }
}

/// Ends a chunk of up to [`RECOVER_ENTRIES`].
pub(super) fn end_recover_chunk(local: &mut Local, inner: &Inner) {
    inner.epochs.quiesce(local.place);
    local.publish_counts(inner);
    settle_chunk(local, inner, RECOVER_ENTRIES);
    local.retired.free_some(inner);
}

pub(super) fn recover_found(
    local: &mut Local,
    inner: &Inner,
    hash: KeyHash,
    found: (Entry<'_>, u64),
    floor: u64,
) -> Result<(), IndexFull> {
    if found.0.is_delete() {
        count_delete(local, inner, found);
    }
    if found.0.version() <= floor {
        return Ok(());
    }
    recover_entry(local, inner, hash, found).or_else(|_| {
        // A key that opens many layers of a tree needs more nodes than are reserved.
        local.nodes.reserve_missing(inner)?;
        recover_entry(local, inner, hash, found)
    })
}

/// Counts a delete as live (I2), whether it gets a slot or not.
pub(super) fn count_delete(
    local: &mut Local,
    inner: &Inner,
    (entry, offset_bytes): (Entry<'_>, u64),
) {
    let len_bytes = entry.len_bytes() as u64;
    inner.log.add_live(local.tally.lane, inner.log.segment_of(offset_bytes), len_bytes);
    if let Some(durable) = &inner.durable {
        durable.count_tombstone(len_bytes);
    }
}

/// Reports that the newest entry of a shard's key is this delete, for
/// [`crate::Store::take_recovered_deletes`].
pub(super) fn tell_delete(inner: &Inner, entry: Entry<'_>) {
    if let Some(shard) = NonZeroU16::new(entry.shard()) {
        let deletes = inner.recovered_deletes.lock();
        let mut deletes = deletes.unwrap_or_else(std::sync::PoisonError::into_inner);
        let (key, version) = (entry.key().into(), entry.version());
        deletes.push(RecoveredDelete { key, version, shard });
    }
}

fn recover_entry(
    local: &mut Local,
    inner: &Inner,
    hash: KeyHash,
    (entry, offset_bytes): (Entry<'_>, u64),
) -> Result<(), IndexFull> {
    let tag = Tag::of(hash);
    let len_bytes = entry.len_bytes() as u64;
    let segment = inner.log.segment_of(offset_bytes);
    local.nodes.prepare(inner);
    let mut chain = inner.index.lock(hash);
    let found = find_locked(inner, &chain, NO_GUESS, tag, entry.key());
    let slot = Slot::entry(tag, offset_bytes);
    match found {
        Some((_, there)) if there.version() > entry.version() => return Ok(()),
        Some((_, there)) if there.version() == entry.version() && !is_buried(there, entry) => {
            return Ok(());
        }
        Some((position, there)) => {
            point(inner, &mut chain, position, entry.key(), slot);
            let there_bytes = there.len_bytes() as u64;
            local.tally.remove(inner, position, there);
            if there.is_delete() {
                let segment = inner.log.segment_of(position.slot.offset_bytes());
                inner.log.add_live(local.tally.lane, segment, there_bytes);
            }
        }
        None => local.insert(inner, &mut chain, slot)?,
    }
    if !entry.is_delete() {
        inner.log.add_live(local.tally.lane, segment, len_bytes);
    }
    local.tally.add(len_bytes as usize, entry.has_expiry());
    drop(chain);
    Ok(())
}

fn has_newer(inner: &Inner, key: &[u8], version: u64) -> bool {
    let hash = inner.hasher.hash(key);
    let chain = inner.index.lock(hash);
    let found = find_locked(inner, &chain, NO_GUESS, Tag::of(hash), key);
    found.is_some_and(|(_, there)| there.version() > version)
}

fn drop_delete(local: &mut Local, inner: &Inner, offset_bytes: u64) {
    // SAFETY: no thread frees segments during recovery.
    let entry = unsafe { inner.log.entry(offset_bytes) };
    if !entry.is_delete() {
        return;
    }
    let hash = inner.hasher.hash(entry.key());
    let mut chain = inner.index.lock(hash);
    let found = find_locked(inner, &chain, NO_GUESS, Tag::of(hash), entry.key());
    let Some((position, _)) = found else { return };
    if position.slot.offset_bytes() != offset_bytes {
        return;
    }
    tell_delete(inner, entry);
    let segment = inner.log.segment_of(position.slot.offset_bytes());
    local.unlink_bare(inner, &mut chain, position, entry);
    inner.log.add_live(local.tally.lane, segment, entry.len_bytes() as u64); // I2
    drop(chain);
}

/// Whether `entry` says that the entry `there` has left the index (I1).
fn is_buried(there: Entry<'_>, entry: Entry<'_>) -> bool {
    entry.is_delete() && !there.is_delete()
}
