//! Putting entries that were found on a medium into the index, before anybody is served.
//!
//! # Invariants
//! I1: of the entries of a key the one with the highest version has the slot, a delete too, until
//!     [`Session::end_recovery`] takes the deletes' slots away.
//!     A delete with the version of a put is the one that buried it, when that had expired.
//! I2: a segment's live bytes are those of the entries that have slots, and of all deletes.

use std::num::NonZeroU16;

use base::{KeyHash, UnixMillis};

use super::execute::NO_GUESS;
use super::ordered_walk::collect_step as collect_behind;
use super::{Local, Session};
use crate::entry::{Entry, Header, Kind, Meta, Shape, body_checksum};
use crate::index::IndexFull;
use crate::index::slot::{Slot, Tag};
use crate::log::{Appender, Purpose};
use crate::record::{Change, Record};
use crate::replica::RecoveredDelete;
use crate::store::Inner;

/// Entries between two quiescent points.
const RECOVER_ENTRIES: usize = 32;

impl Session {
    /// The entry at `offset_bytes` is complete in memory. It counts above the floor of its shard.
    pub(crate) fn recover(
        &mut self,
        offset_bytes: u64,
        floor_of: impl Fn(u16) -> u64,
    ) -> Result<(), IndexFull> {
        let Session { inner, local } = self;
        // SAFETY: restored before this call, and nobody frees segments during recovery.
        let entry = unsafe { inner.log.entry(offset_bytes) };
        let hash = inner.hasher.hash(entry.key());
        let floor = floor_of(entry.shard());
        let recovered = local.recover_entry(inner, hash, (entry, offset_bytes), floor);
        local.recovered_count += 1;
        if local.recovered_count.is_multiple_of(RECOVER_ENTRIES) {
            inner.epochs.quiesce(local.place);
            local.publish_counts(inner);
            local.settle_chunk(inner, RECOVER_ENTRIES);
            local.free_retired(inner);
        }
        recovered
    }

    /// An entry that lies in no segment of memory is appended as it is.
    pub(crate) fn recover_copy(
        &mut self,
        record: &Record<'_>,
        floor_of: impl Fn(u16) -> u64,
    ) -> Result<(), IndexFull> {
        let Session { inner, local } = self;
        let (kind, value, client_flags, expires_at) = match record.change {
            Change::Put { value, client_flags, expires_at } => {
                (Kind::Put, value, client_flags, expires_at)
            }
            Change::Delete { note } => (Kind::Delete, &[][..], 0, Some(UnixMillis(note))),
        };
        let key = record.key;
        let shape =
            Shape::new(key.len(), value.len(), client_flags, expires_at.is_some()).at_rest();
        let log = &inner.log;
        let reserved = local.survivors.reserve(log, shape.len_bytes(), Purpose::Reserve);
        let reservation = reserved.ok_or(IndexFull)?;
        let meta = Meta { version: record.version, client_flags, expires_at };
        let body_crc = body_checksum(shape, key, value);
        let header = Header::with_kind(kind, shape, meta, record.shard, body_crc);
        Appender::fill(log, &reservation, shape, key, value);
        Appender::write_header(log, &reservation, &header);
        local.survivors.published_aside(log, &reservation);
        local.survivors.publish_live(log);
        // What is alive is counted once more when it gets its slot.
        log.sub_live(local.lane, reservation.offset_bytes, shape.len_bytes());
        local.note(inner);
        self.recover(reservation.offset_bytes, floor_of)
    }

    /// Every entry was recovered: deletes lose their slots, and chains go on above `version` (K1).
    pub(crate) fn end_recovery(&mut self, version: u64) {
        let Session { inner, local } = self;
        let (mut next, mut slots) = (Some(KeyHash(0)), Vec::new());
        if let Some(tree) = &inner.tree {
            let mut last: Option<Vec<u8>> = None;
            loop {
                slots.clear();
                last = collect_behind(inner, tree, last.as_deref(), &mut slots);
                for slot in &slots {
                    local.drop_delete(inner, *slot);
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
                    local.drop_delete(inner, *slot);
                }
                inner.epochs.quiesce(local.place);
                next = place.next_hash(hash);
            }
        }
        local.publish_counts(inner);
        local.raise_versions(inner, version);
        local.drain_retired(inner);
    }
}

impl Local {
    fn recover_entry(
        &mut self,
        inner: &Inner,
        hash: KeyHash,
        (entry, offset_bytes): (Entry<'_>, u64),
        floor: u64,
    ) -> Result<(), IndexFull> {
        let tag = Tag::of(hash);
        let len_bytes = entry.len_bytes() as u64;
        let segment = inner.log.segment_of(offset_bytes);
        if entry.is_delete() {
            inner.log.add_live(self.lane, segment, len_bytes); // I2
            if let Some(durable) = &inner.durable {
                durable.count_tombstone(len_bytes);
            }
        }
        if entry.version() <= floor {
            return Ok(());
        }
        self.have_nodes(inner);
        let mut chain = inner.index.lock(hash);
        let found = Local::find_locked(inner, &chain, NO_GUESS, tag, entry.key());
        let slot = Slot::entry(tag, offset_bytes);
        match found {
            Some((_, there)) if there.version() > entry.version() => return Ok(()),
            Some((_, there)) if there.version() == entry.version() && !is_buried(there, entry) => {
                return Ok(());
            }
            Some((position, there)) => {
                Local::point(inner, &mut chain, position, entry.key(), slot);
                let there_bytes = there.len_bytes() as u64;
                self.count_removed(inner, position, there);
                if there.is_delete() {
                    let segment = inner.log.segment_of(position.slot.offset_bytes());
                    inner.log.add_live(self.lane, segment, there_bytes);
                }
            }
            None => self.insert(inner, &mut chain, slot)?,
        }
        if !entry.is_delete() {
            inner.log.add_live(self.lane, segment, len_bytes);
        }
        self.count_added(len_bytes as usize, entry.has_expiry());
        drop(chain);
        Ok(())
    }

    fn drop_delete(&mut self, inner: &Inner, seen: Slot) {
        // SAFETY: the slot was read since the session's last quiescent point.
        let entry = unsafe { inner.log.entry(seen.offset_bytes()) };
        if !entry.is_delete() {
            return;
        }
        let hash = inner.hasher.hash(entry.key());
        let mut chain = inner.index.lock(hash);
        let found = Local::find_locked(inner, &chain, NO_GUESS, Tag::of(hash), entry.key());
        let Some((position, _)) = found else { return };
        if let Some(shard) = NonZeroU16::new(entry.shard()) {
            let deletes = inner.recovered_deletes.lock();
            let mut deletes = deletes.unwrap_or_else(std::sync::PoisonError::into_inner);
            let (key, version) = (entry.key().into(), entry.version());
            deletes.push(RecoveredDelete { key, version, shard });
        }
        let segment = inner.log.segment_of(position.slot.offset_bytes());
        self.unlink_bare(inner, &mut chain, position, entry);
        inner.log.add_live(self.lane, segment, entry.len_bytes() as u64); // I2
        drop(chain);
    }
}

/// Whether `entry` says that what is `there` has left the index (I1).
fn is_buried(there: Entry<'_>, entry: Entry<'_>) -> bool {
    entry.is_delete() && !there.is_delete()
}
