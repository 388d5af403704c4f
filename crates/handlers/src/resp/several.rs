//! Commands that act on several keys at one moment (K11): MGET, MSET, MSETNX, RENAME, COPY.
//!
//! Outside EXEC they take a snapshot or the locks of the keys; inside EXEC the locks are already
//! held. The snapshot of an MGET ends where its client's share of the buffers or of pins ends, or
//! at [`SNAPSHOT_KEYS_MAX`] keys; the remaining keys are read in further snapshots, as the client
//! reads.

use base::{KeyHash, UnixMillis};
use budget::Kind;
use commands::compaction::Answering;
use commands::reply::{Pending, Shape};
use commands::rmw::{Refusal, Rmw};
use commands::work::{Work, replicated_as_bytes};
use replication::replicate::GroupRoom;
use runtime::engine::Engine;
use runtime::reply_sink::ReplySink;
use runtime::walks::Caller;
use runtime::walks::ValueWalk;
use runtime::walks::{SLICE_BYTES, Slice, Source};
use store::pin::{PinnedValue, Pins};
use store::request::Item;
use store::{Condition, Expiry, Op, Outcome, Request, Room, Set, Sink, entry_len_max_bytes};
use wire::resp::{Copy, ErrorReply, Keys, Pairs};

use super::locked::Observed;
use super::strings;
use crate::gather::Gather;
use crate::resp::keys::refuse_long_keys;
use crate::resp::locked::{count_lookups, refuse_atomic};
use crate::resp::slices::begin_slices;

/// The error of a command that copies values, or works on them in memory of its own, if the client
/// buffers have no room for it.
pub(super) const NO_ROOM_FOR_VALUES: ErrorReply<'static> = ErrorReply::Other(
    "the values have no room in the client buffers: try again, or give a larger --memory",
);

/// The error of a command of very many keys, or a transaction of very many commands, if the client
/// buffers have no room to work on it.
pub(super) const TOO_MANY_PARTS: ErrorReply<'static> =
    ErrorReply::Other("command has more parts than the client buffers have room for");

/// The maximum number of keys of one snapshot. For each, 72 bytes are kept until it is answered
/// (hash and key, how to answer, the chain's word, the entry): about 1 MiB for all.
pub(super) const SNAPSHOT_KEYS_MAX: usize = 16 << 10;

/// The replies to the first keys of a snapshot, as far as there is room.
struct SnapshotSink<'s> {
    replies: ReplySink<'s>,
    copied_bytes_max: usize,
    answered_count: usize,
    is_full: bool,
}

impl SnapshotSink<'_> {
    /// Whether there is no room for one more value; there always is for the first.
    fn fills(&self, outcome: &Outcome<'_, Refusal>, pins: Pins<'_>) -> bool {
        let Some(pending) = self.replies.pendings.first() else { return true };
        let copied_bytes = self.replies.connections[pending.slot as usize].output.encoded_bytes();
        let is_large = || matches!(outcome, Outcome::Hit(item) if item.value.len() >= SLICE_BYTES);
        self.answered_count > 0
            && (copied_bytes > self.copied_bytes_max || (is_large() && pins.are_full()))
    }
}

impl Sink<Refusal> for SnapshotSink<'_> {
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        self.is_full = self.is_full || self.fills(&outcome, pins);
        if !self.is_full {
            self.replies.outcome(request_index, outcome, pins);
            self.answered_count += 1;
        }
    }
}

/// Whether an existing target is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// No: it is overwritten.
    Any,
    /// Yes: it must be absent.
    Absent,
}

fn get<'k>(key: &'k [u8], hash: KeyHash) -> Request<'k, Rmw<'k>> {
    Request { key, hash, op: Op::Get }
}

/// MGET: all values at one moment, as far as they have room together.
pub(super) fn mget<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, keys: Keys<'a>) {
    if refuse_long_keys(gather, caller, keys) {
        return;
    }
    if gather.engine.session().is_none() || keys.len() == 1 {
        gather.say(caller, |encoder| encoder.array_header(keys.len()));
        for key in keys {
            gather.single(caller, key, Op::Get, Shape::Value);
        }
        return;
    }
    gather.say(caller, |encoder| encoder.array_header(keys.len()));
    let (arguments, step) = keys.arguments();
    let walk = ValueWalk { keys: arguments.place_in(gather.raw), step };
    begin_slices(gather, caller, Source::Values(walk));
}

/// A snapshot of the next keys of an MGET.
pub(super) fn values_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut ValueWalk,
    command: &[u8],
) -> Slice {
    let mut keys = Keys::among(walk.keys.walk(command), walk.step);
    let answered_count = read_snapshot(gather, caller, keys);
    if answered_count == 0 || answered_count == keys.len() {
        return Slice::Last;
    }
    keys.by_ref().take(answered_count).for_each(drop);
    walk.keys = keys.arguments().0.place_in(command);
    Slice::More
}

/// Reads the first of these keys at one moment; returns how many have been answered.
fn read_snapshot(gather: &mut Gather<'_, '_>, caller: Caller, keys: Keys<'_>) -> usize {
    let pending = Pending {
        slot: caller.slot as u32,
        command: caller.index,
        is_quiet: caller.is_quiet,
        is_special: caller.is_quiet,
        shape: Shape::Value,
    };
    let pendings = vec![pending; keys.len().min(SNAPSHOT_KEYS_MAX)];
    let keys = keys.take(SNAPSHOT_KEYS_MAX);
    let hashed: Vec<(KeyHash, &[u8])> = keys.map(|key| (gather.core.hash(key), key)).collect();
    let now = gather.core.now;
    let copied_bytes_max = gather.core.output_limit_bytes.max(SLICE_BYTES);
    let Some(session) = gather.engine.session() else {
        debug_assert!(false, "inside EXEC values are read one by one");
        return 0;
    };
    let replies = ReplySink::new(gather.core, &pendings);
    let mut sink = SnapshotSink { replies, copied_bytes_max, answered_count: 0, is_full: false };
    session.read_snapshot(now, &hashed, &mut sink);
    let answered_count = sink.answered_count;
    gather.core.charge(Work::keys(hashed.len()));
    answered_count
}

/// MSET: all values become visible to MGET and EXEC at one moment.
pub(super) fn mset<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, pairs: Pairs<'a>) {
    if refuse_long_keys(gather, caller, pairs.keys()) {
        return;
    }
    with_locked(gather, caller, pairs, store_pairs);
}

/// MSETNX: all or none.
pub(super) fn mset_nx<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, pairs: Pairs<'a>) {
    if refuse_long_keys(gather, caller, pairs.keys()) {
        return;
    }
    with_locked(gather, caller, pairs, store_absent);
}

/// Runs a function with the keys' locks held.
fn with_locked<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    pairs: Pairs<'a>,
    run: impl FnOnce(&mut Gather<'_, 'a>, Caller, Pairs<'a>),
) {
    if gather.engine.session().is_none() {
        if !refuse_pairs_in_group(gather, caller, pairs) {
            run(gather, caller, pairs);
        }
        return;
    }
    let lens = pairs.map(|(key, value)| entry_len_max_bytes(key.len(), value.len()) as u64);
    let (now, room) = (gather.core.now, Room::of(lens));
    if refuse_atomic(gather, caller, pairs.len(), room.bytes()) {
        return;
    }
    gather.settle(caller.slot);
    gather.core.connections[caller.slot].has_written = true;
    let hashes: Vec<KeyHash> = pairs.keys().map(|key| gather.core.hash(key)).collect();
    if let Some(session) = gather.engine.session() {
        let mut keys = session.lock_keys(now, &hashes, room);
        let mut gather = Gather::new(&mut keys, gather.core);
        run(&mut gather, caller, pairs);
        gather.flush();
    }
}

/// In a group of a cluster, keeps room for all pairs, or answers why none is stored.
pub(super) fn refuse_pairs_in_group<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    pairs: Pairs<'a>,
) -> bool {
    gather.flush();
    let lens_bytes = pairs.map(|(key, value)| (key.len() + value.len()) as u64);
    refuse_group(gather, caller, GroupRoom::of(lens_bytes))
}

/// In a group of a cluster, keeps room for all that it stores, or answers why nothing of it runs.
pub(super) fn refuse_group(gather: &mut Gather<'_, '_>, caller: Caller, room: GroupRoom) -> bool {
    let as_copied_bytes = replicated_as_bytes(room.filling_bytes);
    if refuse_atomic(gather, caller, 0, as_copied_bytes) {
        return true;
    }
    gather.core.charge(Work::bytes(as_copied_bytes));
    let has_room = gather.engine.keep_group_room(room);
    if !has_room {
        gather.fail(caller, &ErrorReply::OutOfMemory);
    }
    !has_room
}

fn store_pairs<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, pairs: Pairs<'a>) {
    let mut left = pairs.len();
    for (key, value) in pairs {
        left -= 1;
        let set = strings::write(value, Expiry::Never, Condition::Always);
        gather.single(caller, key, set, Shape::AllStored { is_last: left == 0 });
    }
}

fn store_absent<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, pairs: Pairs<'a>) {
    gather.flush();
    let mut observed = Observed::default();
    let now = gather.core.now;
    for key in pairs.keys() {
        gather.engine.execute(now, &[get(key, gather.core.hasher.hash(key))], &mut observed);
    }
    if observed.hit_count == 0 {
        for (key, value) in pairs {
            let op = strings::write(value, Expiry::Never, Condition::Always);
            let request = Request { key, hash: gather.core.hash(key), op };
            gather.engine.execute(now, &[request], &mut observed);
        }
    }
    gather.core.charge(Work::keys(2 * pairs.len()));
    match observed.failed {
        Some(error) => gather.fail(caller, &error),
        None => {
            let is_stored = i64::from(observed.hit_count == 0);
            gather.say(caller, |encoder| encoder.integer(is_stored));
        }
    }
}

/// RENAME and RENAMENX: value, flags and expiry move.
pub(super) fn rename<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    source: &'a [u8],
    target: &'a [u8],
    policy: Target,
) {
    let moved = transfer_item(gather, caller.slot, source, target, policy, After::DeleteSource);
    match (moved, policy) {
        (Ok(Transferred::Yes), Target::Any) => gather.say(caller, |encoder| encoder.ok()),
        (Ok(Transferred::NoSource), _) => gather.fail(caller, &ErrorReply::NoSuchKey),
        (Ok(done), _) => {
            let done = i64::from(done == Transferred::Yes);
            gather.say(caller, |encoder| encoder.integer(done));
        }
        (Err(error), _) => gather.fail(caller, &error),
    }
}

/// COPY.
pub(super) fn run_copy<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, copy: &Copy<'a>) {
    if copy.database_index.is_some_and(|index| index != 0) {
        if gather.core.cluster.is_some() {
            return gather.fail(caller, &ErrorReply::CopyInCluster);
        }
        return gather.fail(caller, &ErrorReply::DatabaseIndex);
    }
    if copy.source == copy.target {
        return gather.fail(caller, &ErrorReply::SameSourceAndTarget);
    }
    let policy = if copy.replaces { Target::Any } else { Target::Absent };
    match transfer_item(gather, caller.slot, copy.source, copy.target, policy, After::KeepSource) {
        Ok(done) => {
            let is_absent = done == Transferred::NoSource;
            count_lookups(gather, caller, u64::from(!is_absent), u64::from(is_absent));
            let done = i64::from(done == Transferred::Yes);
            gather.say(caller, |encoder| encoder.integer(done));
        }
        Err(error) => gather.fail(caller, &error),
    }
}

fn transfer_item(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    source: &[u8],
    target: &[u8],
    policy: Target,
    after: After,
) -> Result<Transferred, ErrorReply<'static>> {
    if source.len().max(target.len()) > store::KEY_LEN_MAX_BYTES {
        return Err(ErrorReply::KeyTooLong);
    }
    gather.settle(slot);
    gather.core.connections[slot].has_written = true;
    let now = gather.core.now;
    let source = (source, gather.core.hash(source));
    let target = (target, gather.core.hash(target));
    if gather.engine.session().is_none() {
        gather.flush();
    }
    // Room is made, and the copy booked, before the locks are taken. The value may grow in
    // between; then the write may find no room and reports it.
    let mut seen = Observed::default();
    let request = [get(source.0, source.1)];
    match gather.engine.session() {
        Some(session) => session.execute(now, &request, &mut seen),
        None => gather.engine.execute(now, &request, &mut seen),
    }
    let copy_bytes = seen.value_len_bytes as u64;
    gather.core.charge(Work::keys(2));
    gather.core.charge(Work::bytes(copy_bytes));
    if !gather.core.try_scratch(Kind::Bodies, copy_bytes) {
        return Err(NO_ROOM_FOR_VALUES);
    }
    let mut room = Room::of([entry_len_max_bytes(target.0.len(), seen.value_len_bytes) as u64]);
    if after == After::DeleteSource {
        // The delete that a log records.
        room.add(entry_len_max_bytes(source.0.len(), 0) as u64);
    }
    let done = match gather.engine.session() {
        Some(session) => {
            let mut locked = session.lock_keys(now, &[source.1, target.1], room);
            transfer(&mut locked, now, source, target, policy, after)
        }
        None => transfer(gather.engine, now, source, target, policy, after),
    };
    gather.core.end_scratch(Kind::Bodies, copy_bytes);
    done
}

/// What happens to the source of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    KeepSource,
    DeleteSource,
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transferred {
    Yes,
    NoSource,
    TargetInTheWay,
}

/// An item whose value stays in place while it is copied.
struct PinnedItem {
    value: PinnedOrCopied,
    client_flags: u64,
    expires_at: Option<UnixMillis>,
}

/// A value's bytes.
enum PinnedOrCopied {
    Pinned(PinnedValue),
    /// Too much of the log is pinned already.
    Copied(Vec<u8>),
}

impl PinnedOrCopied {
    fn bytes(&self) -> &[u8] {
        match self {
            PinnedOrCopied::Pinned(value) => value,
            PinnedOrCopied::Copied(value) => value,
        }
    }
}

/// Holds the item that a request finds.
#[derive(Default)]
struct Held {
    item: Option<PinnedItem>,
}

impl Answering for Held {}

impl Sink<Refusal> for Held {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            let pinned = pins.try_pin(&item).map(PinnedOrCopied::Pinned);
            let value = pinned.unwrap_or_else(|| PinnedOrCopied::Copied(item.value.to_vec()));
            let Item { client_flags, expires_at, .. } = item;
            self.item = Some(PinnedItem { value, client_flags, expires_at });
        }
    }
}

/// Copies or moves an item; both keys are locked.
fn transfer(
    engine: &mut dyn Engine,
    now: UnixMillis,
    source: (&[u8], KeyHash),
    target: (&[u8], KeyHash),
    policy: Target,
    after: After,
) -> Result<Transferred, ErrorReply<'static>> {
    let mut seen = Held::default();
    engine.execute(now, &[get(source.0, source.1)], &mut seen);
    let Some(item) = seen.item else { return Ok(Transferred::NoSource) };
    if policy == Target::Absent {
        let mut seen = Observed::default();
        engine.execute(now, &[get(target.0, target.1)], &mut seen);
        if seen.hit_count > 0 {
            return Ok(Transferred::TargetInTheWay);
        }
    }
    if source.0 == target.0 {
        return Ok(Transferred::Yes);
    }
    let set = Set {
        value: item.value.bytes(),
        client_flags: item.client_flags,
        expiry: item.expires_at.map_or(Expiry::Never, Expiry::At),
        condition: Condition::Always,
    };
    let mut stored = Observed::default();
    let request = Request { key: target.0, hash: target.1, op: Op::Set(set) };
    engine.execute(now, &[request], &mut stored);
    if let Some(error) = stored.failed {
        return Err(error);
    }
    if after == After::DeleteSource {
        let delete: Request<'_, Rmw<'_>> =
            Request { key: source.0, hash: source.1, op: Op::Delete };
        engine.execute(now, &[delete], &mut stored);
    }
    Ok(Transferred::Yes)
}
