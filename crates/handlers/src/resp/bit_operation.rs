//! BITOP: computes one block of the result per slice, and writes only if no source has changed
//! (K28).
//!
//! ```text
//!  look at all sources: versions, lengths ─▶ book the result
//!   ┌─▶ the next block of every source, where it lies ─▶ a block of the result      one slice
//!   └── until the longest source ends
//!  lock the keys ─▶ the same versions? ─▶ write the target ─▶ unlock
//!                   └─ no: begin again; after the third time all at once, under the locks
//! ```
//!
//! # Invariants
//! I1: the written result matches the sources at the moment of the write: every version is compared
//!     under the locks of the write (K1, K11).
//! I2: a slice reads as much of all sources together as a turn does, or [`BLOCK_BYTES_MIN`] of
//!     each.
//!
//! # Trade-offs
//! If the sources are written all the time, BITOP does its work four times, and the last attempt
//! holds the worker: for at most `max-atomic-size`, as a transaction does. Larger sources are then
//! refused.

use base::KeyHash;
use budget::Kind;
use commands::rmw::Rmw;
use commands::rmw::bits::Combined;
use commands::work::Work;
use runtime::walks::BitOpWalk;
use runtime::walks::Caller;
use runtime::walks::{Slice, Source};
use store::{Condition, Expiry, Op, Request, Room, Set};
use wire::resp::{BitOperation, ErrorReply, Keys};

use super::locked::{Held, HeldWork, item_room_bytes};
use super::several::TOO_MANY_PARTS;
use crate::gather::Gather;
use crate::gather::glimpse::{Glimpse, Looking};
use crate::resp::keys::refuse_long_key;
use crate::resp::locked::{count_lookups, refuse_atomic, with_held};
use crate::resp::slices::begin_slices;

/// Sources of at most this length together are combined at once.
const ONE_PIECE_BYTES_MAX: u64 = 1 << 20;
/// The number of attempts before it holds the keys from the first block to the last.
const ATTEMPTS_MAX: u32 = 3;

/// The operation and keys of one BITOP.
#[derive(Clone, Copy)]
struct Combine<'a> {
    operation: BitOperation,
    target: &'a [u8],
    sources: Keys<'a>,
}

/// A source has changed.
struct HasChanged;

/// Versions and lengths of all sources.
struct Survey {
    versions: Vec<u64>,
    longest_bytes: usize,
    total_bytes: u64,
}

/// BITOP.
pub(super) fn bit_op<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    operation: BitOperation,
    target: &'a [u8],
    sources: Keys<'a>,
) {
    let combine = Combine { operation, target, sources };
    if refuse_long_key(gather, caller, combine.all_keys())
        || refuse_atomic(gather, caller, sources.len() + 1, 0)
    {
        return;
    }
    gather.settle(caller.slot);
    // Inside EXEC the keys are held already.
    if gather.engine.session().is_none() {
        return bit_op_at_once(gather, caller, combine);
    }
    let survey = survey(gather, sources);
    if survey.total_bytes <= ONE_PIECE_BYTES_MAX {
        return bit_op_at_once(gather, caller, combine);
    }
    let booked_bytes = (survey.longest_bytes + size_of_val(&survey.versions[..])) as u64;
    if !gather.core.ledger.try_reserve(Kind::Groups, booked_bytes) {
        return gather.fail(caller, &TOO_MANY_PARTS);
    }
    let walk = BitOpWalk {
        operation,
        target: target.into(),
        sources: sources.arguments().0.place_in(gather.raw),
        versions: survey.versions,
        len_bytes: survey.longest_bytes,
        result: Vec::with_capacity(survey.longest_bytes),
        attempts: 1,
    };
    begin_slices(gather, caller, Source::BitOp(walk));
    // Memory that is needed longer is booked with its connection.
    gather.core.ledger.release(Kind::Groups, booked_bytes);
}

/// Combines the next block; the last one also writes and replies.
pub(super) fn bit_op_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut BitOpWalk,
    command: &[u8],
) -> Slice {
    let target = walk.target.clone();
    let combine = combine_of(walk, &target, command);
    let mut is_same = add_block(gather, walk, combine).is_ok();
    if is_same && walk.result.len() < walk.len_bytes {
        return Slice::More;
    }
    if is_same {
        is_same = write_combined(gather, caller, walk, combine).is_ok();
    }
    if is_same {
        return Slice::Last;
    }
    walk.attempts += 1;
    if walk.attempts <= ATTEMPTS_MAX && begin_again(gather, walk, combine) {
        return Slice::More;
    }
    walk.result = Vec::new();
    let total_bytes = survey(gather, combine.sources).total_bytes;
    if !refuse_atomic(gather, caller, walk.versions.len() + 1, total_bytes) {
        bit_op_at_once(gather, caller, combine);
    }
    Slice::Last
}

/// Does everything under the locks.
fn bit_op_at_once(gather: &mut Gather<'_, '_>, caller: Caller, combine: Combine<'_>) {
    let source_count = combine.sources.len() as u64;
    match with_held(gather, caller.slot, combine.all_keys(), combine) {
        Ok((len_bytes, found)) => {
            count_lookups(gather, caller, found, source_count - found);
            gather.say(caller, |encoder| encoder.integer(len_bytes));
        }
        Err(error) => gather.fail(caller, &error),
    }
}

/// Drops the blocks; returns whether the sources still fit into the booked memory.
fn begin_again(gather: &mut Gather<'_, '_>, walk: &mut BitOpWalk, combine: Combine<'_>) -> bool {
    let survey = survey(gather, combine.sources);
    let fits = survey.longest_bytes <= walk.result.capacity();
    walk.result.clear();
    walk.versions = survey.versions;
    walk.len_bytes = survey.longest_bytes;
    fits
}

fn survey(gather: &mut Gather<'_, '_>, sources: Keys<'_>) -> Survey {
    let mut survey =
        Survey { versions: Vec::with_capacity(sources.len()), longest_bytes: 0, total_bytes: 0 };
    for key in sources {
        let Glimpse { version, value_len_bytes } = gather.glimpse(key);
        survey.versions.push(version);
        survey.longest_bytes = survey.longest_bytes.max(value_len_bytes);
        survey.total_bytes += value_len_bytes as u64;
    }
    gather.core.charge(Work::keys(survey.versions.len()));
    survey
}

/// Combines the next block of every source.
fn add_block(
    gather: &mut Gather<'_, '_>,
    walk: &mut BitOpWalk,
    combine: Combine<'_>,
) -> Result<(), HasChanged> {
    let start = walk.result.len();
    let end = (start + walk.block_bytes()).min(walk.len_bytes);
    let mut combined = Combined::new(walk.operation);
    let mut read_bytes = 0;
    let (now, mut is_same) = (gather.core.now, true);
    for (key, version) in combine.sources.zip(&walk.versions) {
        let hash = gather.core.hash(key);
        let request = Request { key, hash, op: Op::<Rmw<'_>>::Get };
        let mut looking = Looking::new(|value: &[u8]| {
            let block = &value[start.min(value.len())..end.min(value.len())];
            read_bytes += block.len();
            combined.take(block);
        });
        let Some(session) = gather.engine.session() else { return Err(HasChanged) };
        session.execute(now, &[request], &mut looking);
        let seen_version = looking.version;
        is_same &= seen_version == *version;
        if seen_version == 0 {
            // An absent source counts as zeros.
            combined.take(b"");
        }
    }
    // The result is as long as the block of the longest source.
    let block = combined.finish();
    gather.core.charge(Work::keys(walk.versions.len()));
    gather.core.charge(Work::bytes((read_bytes + 2 * block.len()) as u64));
    if !is_same || block.len() != end - start {
        return Err(HasChanged);
    }
    walk.result.extend_from_slice(&block);
    Ok(())
}

/// Writes the result if no source has changed, and replies.
fn write_combined(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &BitOpWalk,
    combine: Combine<'_>,
) -> Result<(), HasChanged> {
    gather.core.connections[caller.slot].has_written = true;
    let (now, hasher) = (gather.core.now, gather.core.hasher.clone());
    let hashes: Vec<KeyHash> = combine.all_keys().map(|key| hasher.hash(key)).collect();
    let room_bytes = item_room_bytes(combine.target, walk.result.len());
    let Some(session) = gather.engine.session() else { return Err(HasChanged) };
    let mut locked = session.lock_keys(now, &hashes, Room::of([room_bytes]));
    let mut held = Held::new(&mut locked, hasher, now);
    let is_same = is_same(walk, &mut held, combine.sources);
    let written = is_same.then(|| combine.write(&mut held, &walk.result));
    drop(locked);
    gather.core.charge(Work::keys(2 * hashes.len()));
    gather.core.charge(Work::bytes(room_bytes));
    match written.ok_or(HasChanged)? {
        Ok(len_bytes) => {
            let found = walk.versions.iter().filter(|version| **version != 0).count();
            let absent = walk.versions.len() - found;
            count_lookups(gather, caller, found as u64, absent as u64);
            gather.say(caller, |encoder| encoder.integer(len_bytes));
        }
        Err(error) => gather.fail(caller, &error),
    }
    Ok(())
}

/// The operation of a walk.
fn combine_of<'c>(walk: &BitOpWalk, target: &'c [u8], command: &'c [u8]) -> Combine<'c> {
    let sources = Keys::among(walk.sources.walk(command), 1);
    Combine { operation: walk.operation, target, sources }
}

/// Whether no source has changed since it was first looked at.
fn is_same(walk: &BitOpWalk, held: &mut Held<'_>, sources: Keys<'_>) -> bool {
    sources.zip(&walk.versions).all(|(key, version)| held.version(key) == *version)
}

impl<'a> Combine<'a> {
    fn all_keys(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        std::iter::once(self.target).chain(self.sources)
    }

    /// Stores the result, or removes the target if it is empty; returns its length.
    fn write(self, held: &mut Held<'_>, value: &[u8]) -> Result<i64, ErrorReply<'static>> {
        if value.is_empty() {
            held.delete(self.target)?;
            return Ok(0);
        }
        let condition = Condition::Always;
        let set = Set { value, client_flags: 0, expiry: Expiry::Never, condition };
        held.write(self.target, set)?;
        Ok(value.len() as i64)
    }
}

impl HeldWork for Combine<'_> {
    /// The length of the result, and the number of sources that exist.
    type Done = (i64, u64);

    fn room(&self, old_len_max_bytes: usize) -> Room {
        Room::of([item_room_bytes(self.target, old_len_max_bytes)])
    }

    fn scratch_bytes(&self, old_len_max_bytes: usize) -> u64 {
        Combined::held_bytes(self.operation, old_len_max_bytes)
    }

    fn run(self, held: &mut Held<'_>) -> Result<Self::Done, ErrorReply<'static>> {
        let (mut combined, mut found) = (Combined::new(self.operation), 0);
        for key in self.sources {
            if held.look(key, |value| combined.take(value)) {
                found += 1;
            } else {
                combined.take(b"");
            }
        }
        Ok((self.write(held, &combined.finish())?, found))
    }
}
