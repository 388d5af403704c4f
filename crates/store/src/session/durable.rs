//! The session's part in a durable log: its notes for the committer, and the deletes that it writes
//! for every key that leaves the index (K2).
//!
//! ```text
//!  begin ─▶ requests: append, publish ... ─▶ note ─▶ quiesce       durable_log.rs, D1
//!  unlink ─▶ bury: a delete with the next version and its horizon  D4, D5
//! ```
//!
//! The delete of an entry with a shard has that entry's own version (D4).

use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use index::hash::Chain;

use super::appenders::Appenders;
use super::deletes::{delete_shape, reserve_for_delete};
use super::pace::reclaim_in_step;
use super::resize::settle_chunk;
use super::{Local, Session};
use crate::entry::{Entry, Header, Kind, Meta, VERSION_MASK, body_checksum};
use crate::inner::Inner;
use crate::log::{Appender, Purpose};
use crate::pin::Pins;
use crate::request::{Op, Outcome, Request, Sink, Update};

/// The number of versions that a flush leaves to writes under way in a chain while it runs.
const FLUSH_VERSIONS: u64 = 1 << 24;
/// Chains between two quiescent points of a flush.
const RAISE_HEADS: usize = 256;

/// [`Session::execute`] of a store that is durable.
pub(super) fn execute_durable<U: Update, S: Sink<U::Refusal>>(
    session: &mut Session,
    now: UnixMillis,
    requests: &[Request<'_, U>],
    sink: &mut S,
) {
    let Session { inner, local } = session;
    let Some(durable) = inner.durable.clone() else { return };
    let writes = requests.iter().any(|request| !matches!(request.op, Op::Get));
    if writes && durable.is_refusing() {
        return execute_refusing(session, now, requests, sink);
    }
    if writes {
        durable.begin(local.place);
    }
    let mut first = 0;
    for chunk in requests.chunks(inner.config.batch) {
        local.execute_chunk(inner, now, chunk, first, sink);
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
        settle_chunk(local, inner, chunk.len());
        reclaim_in_step(local, inner, now);
        first += chunk.len();
    }
    if writes {
        durable.end(local.place);
    }
    local.prefetched_count = 0;
    local.publish_counts(inner);
}

/// Executes reads and refuses writes: a write now might be lost.
#[cold]
fn execute_refusing<U: Update, S: Sink<U::Refusal>>(
    session: &mut Session,
    now: UnixMillis,
    requests: &[Request<'_, U>],
    sink: &mut S,
) {
    let Session { inner, local } = session;
    let inner: &Arc<Inner> = inner;
    for (index, request) in requests.iter().enumerate() {
        match request.op {
            Op::Get => {
                let one = std::slice::from_ref(request);
                local.execute_chunk(inner, now, one, index, sink);
                inner.epochs.quiesce(local.place);
            }
            _ => sink.outcome(index, Outcome::Unwritable, Pins(inner)),
        }
    }
    local.prefetched_count = 0;
    local.publish_counts(inner);
}

/// Called before a flush removes anything: every entry up to a floor counts as deleted, and no
/// chain assigns such a version any more.
pub(super) fn raise_flush_floor(session: &mut Session) {
    let Session { inner, local } = session;
    let Some(durable) = inner.durable.clone() else { return };
    durable.begin(local.place);
    let mut newest = durable.flush_floor();
    inner.index.each_word(|word| newest = newest.max(word.version()));
    let floor = (newest + FLUSH_VERSIONS).min(VERSION_MASK - 1);
    durable.flush_to(floor);
    raise_versions(local, inner, floor);
    note_published(local, inner);
    durable.end(local.place);
}

/// Notes that everything published since the last call is complete (D1). Nothing is reserved.
pub(super) fn note_published(local: &mut Local, inner: &Inner) {
    let Some(durable) = &inner.durable else { return };
    debug_assert!(local.held.is_empty(), "D7: writes on several keys are noted at once");
    let Appenders { writes, survivors } = &mut local.appenders;
    let ends = writes.take_ends(&inner.log).chain(survivors.take_ends(&inner.log));
    durable.note(local.place, ends);
}

/// Raises every chain's next version above `version`.
pub(super) fn raise_versions(local: &mut Local, inner: &Inner, version: u64) {
    let mut next = Some(KeyHash(0));
    while next.is_some() {
        for _ in 0..RAISE_HEADS {
            let Some(hash) = next else { break };
            let (chain, place) = inner.index.lock_place(hash);
            chain.finish_above(version);
            next = place.next_hash(hash);
        }
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
    }
}

/// Writes a delete, if the log is durable, before a key's entry leaves the index. The chain is
/// locked, and finished afterwards. False: there is no space for it.
#[inline]
pub(super) fn bury(
    local: &mut Local,
    inner: &Inner,
    chain: &Chain<'_>,
    entry: Entry<'_>,
    purpose: Purpose,
) -> bool {
    inner.durable.is_none() || bury_durably(local, inner, chain, entry, purpose)
}

#[cold]
fn bury_durably(
    local: &mut Local,
    inner: &Inner,
    chain: &Chain<'_>,
    entry: Entry<'_>,
    purpose: Purpose,
) -> bool {
    let is_flushed =
        |durable: &Arc<crate::durable_log::Durable>| entry.version() <= durable.flush_floor();
    if inner.durable.as_ref().is_none_or(is_flushed) {
        return true; // D4
    }
    // The chain's next version could be above the one that the shard's primary assigns next
    // (K1).
    let version = match entry.shard() {
        0 => chain.next_version(),
        _ => entry.version(),
    };
    write_delete(local, inner, entry.key(), (version, entry.shard()), purpose)
}

/// Writes a delete of a key, with a version, to a durable log; its chain is locked. False:
/// there is no space for it.
pub(super) fn write_delete(
    local: &mut Local,
    inner: &Inner,
    key: &[u8],
    (version, shard): (u64, u16),
    purpose: Purpose,
) -> bool {
    let Some(durable) = &inner.durable else { return true };
    let log = &inner.log;
    let shape = delete_shape(key.len());
    let len_bytes = shape.len_bytes();
    let reserved = reserve_for_delete(local, inner, len_bytes, purpose);
    let Some(reservation) = reserved else { return false };
    // Read after the entry was written, whose segment was opened before: D5.
    let horizon = durable.horizon();
    let expires_at = Some(UnixMillis(horizon));
    let meta = Meta { version, client_flags: 0, expires_at };
    let body_crc = body_checksum(shape, key, &[]);
    Appender::fill(log, &reservation, shape, key, &[]);
    let header = Header::with_kind(Kind::Delete, shape, meta, shard, body_crc);
    Appender::write_header(log, &reservation, &header);
    let role = reservation.role;
    local.appenders.by_role(role).published_aside(log, &reservation);
    durable.count_tombstone(len_bytes as u64);
    true
}
