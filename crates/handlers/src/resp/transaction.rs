//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! ```text
//!  MULTI ─▶ queue: the commands' raw bytes, checked ─▶ EXEC: lock all keys, check the watched
//!                                                            versions, run, unlock
//! ```
//!
//! # Invariants
//! I1: commands on keys between two commands on the whole keyspace are one atomic step. KEYS, SCAN,
//!     KV.RANGE, RANDOMKEY and FLUSHALL need all keys, so they split a transaction; the watched
//!     keys are checked before the first part.
//! I2: replies come in the order of the queued commands, exactly one for each.
//!
//! # Trade-offs
//! A queued command is parsed twice, once to check it and once to run it. Its bytes are kept as
//! they came, so its arguments need no owner and no copies.

mod bound;
mod room;

use std::time::Instant;

use base::KeyHash;
use budget::Kind;
use commands::compaction::Answering;
use commands::rmw::{Refusal, Rmw, bits};
use commands::work::Work;
use counters::CommandIndex;
use runtime::connection::{Ending, Transaction, group_kind};
use runtime::walks::{Caller, GroupWalk, InDoubt};
use sessions::slow_log::is_timed_alone;
use store::{Op, Outcome, Pins, Request, Sink};
use wire::Parsed;
use wire::resp::{
    BitCommand, Command, CommandError, CommandId, ConnectionCommand, ErrorReply, FieldActions,
    Flags, Handling, KeyCommand, Keys, Limits, Parser, ServerCommand, StringCommand,
    TransactionCommand, dump, next_command, read_offset,
};

use super::locked::TOO_MUCH_AT_ONCE;
use super::redirect::{Keyed, keys_in, slot_of};
use super::several::{NO_ROOM_FOR_VALUES, TOO_MANY_PARTS, refuse_group};
use super::subscribe::{NO_SUCH_CHANNEL, has_others};
use super::{id_of, is_plain_read};
use crate::gather::Gather;
use crate::resp::acl_log::is_denied_in_exec;
use crate::resp::debug::{may_debug, refuse_debug};
use crate::resp::group::begin_group;
use crate::resp::keys::refuse_long_keys;
use crate::resp::locked::{fits_atomic, refuse_atomic};
use crate::resp::pace::is_long_in_exec;
use crate::resp::redirect::is_exec_redirected;
use crate::resp::scan::flush_all;
use crate::resp::slices::end_slices;
use crate::resp::tracking::{end_queued, remember_reads};
use crate::resp::transaction::bound::{
    book_replies, release_replies, replies_at_length, run_within,
};
use crate::resp::transaction::room::{Plan, plan_of};
use crate::resp::{refuse, run};

/// The attempts to plan the room for a part while other clients make its values longer.
const PLANS_MAX: usize = 8;

const GREW: ErrorReply<'static> =
    ErrorReply::Other("the transaction's values kept growing meanwhile: try again");

/// The memory of a watched key in the map, besides the key.
const WATCHED_OVERHEAD_BYTES: usize = 64;

/// A queued command, parsed again.
struct Queued<'t> {
    parsed: Result<Command<'t>, CommandError<'t>>,
    raw: &'t [u8],
}

/// Runs a command of transactions.
pub(super) fn run_transaction<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: TransactionCommand<'a>,
) {
    match command {
        TransactionCommand::Multi => multi(gather, caller),
        TransactionCommand::Exec => exec(gather, caller),
        TransactionCommand::Discard => discard(gather, caller),
        TransactionCommand::Watch { keys } => watch(gather, caller, keys),
        TransactionCommand::Unwatch => unwatch(gather, caller),
    }
}

/// Queues a command between MULTI and EXEC.
pub(super) fn queue<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &[u8],
) {
    let id = id_of(&parsed);
    match parsed {
        Ok(
            command @ (Command::Transaction(
                TransactionCommand::Exec
                | TransactionCommand::Discard
                | TransactionCommand::Multi
                | TransactionCommand::Watch { .. },
            )
            | Command::Connection(ConnectionCommand::Quit | ConnectionCommand::Reset)),
        ) => return run(gather, caller, command),
        // Redis ends the transaction at once in this case.
        Err(error @ CommandError::WrongArity(CommandId::Exec)) => {
            forget_transaction(gather, caller.slot);
            return refuse(gather, caller, &error);
        }
        Err(error) if error.aborts_transaction() => {
            spoil(gather, caller.slot);
            return refuse(gather, caller, &error);
        }
        _ if is_barred(id) => {
            spoil(gather, caller.slot);
            return gather.fail(caller, &ErrorReply::NotInTransaction);
        }
        Ok(Command::Operator { id: CommandId::Debug, .. }) if !may_debug(gather, caller.slot) => {
            spoil(gather, caller.slot);
            return refuse_debug(gather, caller);
        }
        // Refused like a command that this server does not have.
        Ok(Command::Operator { id: CommandId::Subscribe, args }) if has_others(args) => {
            spoil(gather, caller.slot);
            return gather.fail(caller, &NO_SUCH_CHANNEL);
        }
        _ => {}
    }
    let is_long = transaction(gather, caller.slot).has_long
        || parsed.as_ref().is_ok_and(|command| is_long_in_exec(gather, caller.slot, command, raw));
    // A large command brought the room for its copy with it.
    let more_bytes = transaction(gather, caller.slot).lacks_bytes(raw.len());
    if !reserve(gather, caller, more_bytes) {
        let transaction = transaction(gather, caller.slot);
        transaction.is_spoilt = true;
        transaction.queued = Vec::new();
        return;
    }
    let transaction = transaction(gather, caller.slot);
    transaction.queued.extend_from_slice(raw);
    transaction.command_count += 1;
    transaction.has_long = is_long;
    transaction.has_writes |= id.is_some_and(|id| id.spec().flags.contains(Flags::WRITE));
    show_queue(gather, caller.slot);
    gather.say(caller, |encoder| encoder.simple("QUEUED"));
}

/// Books bytes that the transaction is about to take; answers the error itself.
fn reserve(gather: &mut Gather<'_, '_>, caller: Caller, more_bytes: usize) -> bool {
    let bytes_max = gather.core.group_bytes_max();
    let held_bytes = (transaction(gather, caller.slot).held_bytes() + more_bytes) as u64;
    let kind = group_kind(held_bytes);
    let text = if held_bytes > bytes_max {
        "the transaction is larger than the client buffers allow"
    } else if gather.core.ledger.try_reserve(kind, more_bytes as u64) {
        gather.core.connections[caller.slot].booked.add(kind, more_bytes as u64);
        return true;
    } else {
        "no room for the transaction in the client buffers now: try again"
    };
    gather.fail(caller, &ErrorReply::Other(text));
    false
}

fn transaction<'t>(gather: &'t mut Gather<'_, '_>, slot: usize) -> &'t mut Transaction {
    gather.core.connections[slot].resp().transaction.get_or_insert_default()
}

/// Marks that a command could not be queued.
pub(super) fn spoil(gather: &mut Gather<'_, '_>, slot: usize) {
    transaction(gather, slot).is_spoilt = true;
}

/// MULTI.
pub(super) fn multi(gather: &mut Gather<'_, '_>, caller: Caller) {
    let transaction = transaction(gather, caller.slot);
    if transaction.is_queueing {
        return gather.fail(caller, &ErrorReply::NestedMulti);
    }
    transaction.is_queueing = true;
    show_queue(gather, caller.slot);
    gather.say(caller, |encoder| encoder.ok());
}

/// Publishes the number of queued commands, for CLIENT LIST of other clients.
fn show_queue(gather: &mut Gather<'_, '_>, slot: usize) {
    let count = transaction(gather, slot).queued_count();
    gather.core.connections[slot].client.set_queued(count);
}

/// DISCARD: also forgets the watched keys.
pub(super) fn discard(gather: &mut Gather<'_, '_>, caller: Caller) {
    let transaction = &mut gather.core.connections[caller.slot].resp().transaction;
    if transaction.take_if(|transaction| transaction.is_queueing).is_none() {
        return gather.fail(caller, &ErrorReply::DiscardWithoutMulti);
    }
    gather.core.connections[caller.slot].client.set_queued(None);
    gather.say(caller, |encoder| encoder.ok());
}

/// UNWATCH.
pub(super) fn unwatch(gather: &mut Gather<'_, '_>, caller: Caller) {
    if let Some(transaction) = &mut gather.core.connections[caller.slot].resp().transaction {
        transaction.watched.clear();
        transaction.watched_bytes = 0;
    }
    drop_idle_transaction(gather, caller.slot);
    gather.say(caller, |encoder| encoder.ok());
}

fn drop_idle_transaction(gather: &mut Gather<'_, '_>, slot: usize) {
    gather.core.connections[slot]
        .resp()
        .transaction
        .take_if(|transaction| !transaction.is_queueing && transaction.watched.is_empty());
}

/// WATCH: remembers the present versions.
pub(super) fn watch<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, keys: Keys<'a>) {
    if transaction(gather, caller.slot).is_queueing {
        return gather.fail(caller, &ErrorReply::WatchInMulti);
    }
    // EXEC checks all of them in one step.
    let watched_count = transaction(gather, caller.slot).watched.len() + keys.len();
    if refuse_long_keys(gather, caller, keys) || refuse_atomic(gather, caller, watched_count, 0) {
        return drop_idle_transaction(gather, caller.slot);
    }
    gather.settle(caller.slot);
    gather.core.charge(Work::keys(keys.len()));
    for key in keys {
        if transaction(gather, caller.slot).watched.contains_key(key) {
            continue;
        }
        let more_bytes = key.len() + WATCHED_OVERHEAD_BYTES;
        if !reserve(gather, caller, more_bytes) {
            return;
        }
        let version = version_of(gather, key);
        let transaction = transaction(gather, caller.slot);
        transaction.watched.insert(key.into(), version);
        transaction.watched_bytes += more_bytes;
    }
    gather.say(caller, |encoder| encoder.ok());
}

/// The key's version, 0 if there is none.
fn version_of(gather: &mut Gather<'_, '_>, key: &[u8]) -> u64 {
    let mut sink = VersionSink { version: 0 };
    let request: Request<'_, Rmw<'_>> = Request { key, hash: gather.core.hash(key), op: Op::Get };
    gather.engine.execute(gather.core.now, &[request], &mut sink);
    sink.version
}

/// EXEC.
pub(super) fn exec(gather: &mut Gather<'_, '_>, caller: Caller) {
    let resp = gather.core.connections[caller.slot].resp();
    let transaction = resp.transaction.take_if(|transaction| transaction.is_queueing);
    let Some(transaction) = transaction else {
        return gather.fail(caller, &ErrorReply::ExecWithoutMulti);
    };
    gather.core.connections[caller.slot].client.set_queued(None);
    if transaction.is_spoilt {
        return gather.fail(caller, &ErrorReply::ExecAbort);
    }
    gather.flush();
    let walk = with_parsed(gather, caller, &transaction, |gather, commands| {
        exec_queued(gather, caller, &transaction, commands)
    });
    if let Some(walk) = walk.flatten() {
        let transaction = Some(transaction);
        begin_group(gather, caller, GroupWalk { transaction, ..walk });
    }
}

/// Books the memory of the parsed commands, parses them, and runs `run`. `None`: there is no room,
/// and the error is answered.
fn with_parsed<T>(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    transaction: &Transaction,
    run: impl FnOnce(&mut Gather<'_, '_>, &[Queued<'_>]) -> T,
) -> Option<T> {
    let scratch_bytes = (transaction.command_count * size_of::<Queued<'_>>()) as u64;
    let kind = group_kind(scratch_bytes);
    if !gather.core.ledger.try_reserve(kind, scratch_bytes) {
        gather.fail(caller, &TOO_MANY_PARTS);
        return None;
    }
    // Limits were checked when the commands were framed.
    let commands = parse_again(transaction, &Limits::new(usize::MAX));
    let done = run(gather, &commands);
    drop(commands);
    gather.core.ledger.release(kind, scratch_bytes);
    Some(done)
}

/// Runs a transaction, unless it is a group of a cluster.
fn exec_queued(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    transaction: &Transaction,
    commands: &[Queued<'_>],
) -> Option<GroupWalk> {
    gather.only_reads &=
        commands.iter().all(|queued| queued.parsed.as_ref().is_ok_and(is_plain_read));
    let key_count = commands.iter().flat_map(keys_of).count();
    if refuse_atomic(gather, caller, key_count, transaction.queued.len() as u64) {
        return None;
    }
    let keys = commands.iter().flat_map(keys_of);
    if is_exec_redirected(gather, caller, keys, commands.iter().any(is_write)) {
        return None;
    }
    let keys = commands.iter().flat_map(keys_of);
    let keys = keys.chain(transaction.watched.keys().map(|key| &**key));
    let only_reads = !commands.iter().any(is_write);
    let may_read_copies = only_reads && gather.core.connections[caller.slot].resp().reads_copies;
    match (gather.core.cluster.clone(), slot_of(keys)) {
        // A group holds one shard: watched keys of other shards could change meanwhile.
        (Some(_), Keyed::Several) => gather.fail(caller, &ErrorReply::CrossSlot),
        (Some(view), Keyed::One(slot)) if view.is_own(slot) || !may_read_copies => {
            let in_doubt = if only_reads { InDoubt::SendAgain } else { InDoubt::Close };
            let room = plan_of(gather, commands).group_room();
            return Some(GroupWalk::new(slot, in_doubt, room));
        }
        // No keys, or reads of a copy.
        _ => {
            if book_replies(gather, caller, commands) {
                exec_parts(gather, caller, transaction, commands);
                release_replies(gather, caller.slot);
            }
        }
    }
    None
}

/// Runs a transaction whose group has begun: all earlier writes of the shard are in this node's
/// store by now.
pub(super) fn exec_in_group(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    transaction: &Transaction,
) {
    with_parsed(gather, caller, transaction, |gather, commands| {
        gather.engine.set_estimating(true);
        let is_booked = book_replies(gather, caller, commands);
        let plan = plan_of(gather, commands);
        gather.engine.set_estimating(false);
        if !is_booked {
            return;
        }
        if let Some(scratch_bytes) = keep_scratch(gather, &plan) {
            if !plan.group_room().is_some_and(|room| refuse_group(gather, caller, room)) {
                exec_parts(gather, caller, transaction, commands);
            }
            end_scratch(gather, scratch_bytes);
        } else {
            gather.fail(caller, &NO_ROOM_FOR_VALUES);
        }
        release_replies(gather, caller.slot);
    });
}

fn exec_parts(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    transaction: &Transaction,
    commands: &[Queued<'_>],
) {
    let began = gather.core.work();
    let mut rest = commands;
    let mut is_first = true;
    while is_first || !rest.is_empty() {
        let on_keys = rest.iter().take_while(|queued| !needs_session(queued)).count();
        let (part, after) = rest.split_at(on_keys);
        if (is_first || !part.is_empty())
            && !exec_part(gather, caller, (transaction, began), part, is_first)
        {
            return;
        }
        is_first = false;
        let (alone, after) = after.split_at(after.len().min(1));
        for queued in alone {
            let mut gather = gather.apart();
            run_in_exec(&mut gather, caller, queued, began);
            gather.core.charge(Work::alone());
            gather.flush();
        }
        rest = after;
    }
}

/// Runs commands on keys, under the locks of all of them; false: a watched key has changed, or
/// there is no room for the first part.
fn exec_part(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    run: (&Transaction, Work),
    part: &[Queued<'_>],
    is_first: bool,
) -> bool {
    gather.core.connections[caller.slot].has_written = true;
    if gather.engine.session().is_none() {
        // A group: its shard is already held, and there is room for all of it.
        return exec_locked(&mut gather.apart(), caller, run, part, is_first);
    }
    let plan = plan_of(gather, part);
    let scratch = keep_scratch(gather, &plan);
    if scratch.is_none() && is_first {
        gather.fail(caller, &NO_ROOM_FOR_VALUES);
        return false;
    }
    let is_run = exec_planned(gather, caller, run, part, is_first, plan);
    if let Some(scratch_bytes) = scratch {
        end_scratch(gather, scratch_bytes);
    }
    is_run
}

/// Books the memory in which the commands of a part make their values. `None`: there is none.
fn keep_scratch(gather: &mut Gather<'_, '_>, plan: &Plan) -> Option<u64> {
    let scratch_bytes = plan.scratch_bytes_max;
    if !gather.core.ledger.try_reserve(Kind::Groups, scratch_bytes) {
        return None;
    }
    let made_bytes = usize::try_from(plan.made_bytes_max).unwrap_or(usize::MAX);
    if gather.engine.session().is_some_and(|session| !session.keep_scratch(made_bytes)) {
        gather.core.ledger.release(Kind::Groups, scratch_bytes);
        return None;
    }
    gather.core.group_scratch_bytes = scratch_bytes;
    Some(scratch_bytes)
}

fn end_scratch(gather: &mut Gather<'_, '_>, scratch_bytes: u64) {
    gather.core.group_scratch_bytes = 0;
    gather.core.ledger.release(Kind::Groups, scratch_bytes);
    if let Some(session) = gather.engine.session() {
        session.end_scratch();
    }
}

/// Runs a part whose memory is booked, once it has room in the log and its keys' locks.
fn exec_planned(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    run: (&Transaction, Work),
    part: &[Queued<'_>],
    is_first: bool,
    mut plan: Plan,
) -> bool {
    let now = gather.core.now;
    let hashes = locks_for(gather, run.0, part, is_first);
    for _ in 0..PLANS_MAX {
        let Some(session) = gather.engine.session() else { return false };
        let mut locked = session.lock_keys(now, &hashes, plan.room(is_first));
        if is_first && !locked.has_room() {
            drop(locked);
            gather.fail(caller, &ErrorReply::OutOfMemory);
            return false;
        }
        let mut gather = Gather::new(&mut locked, gather.core);
        // Later parts run in any case.
        if is_first && plan.builds_on_old {
            let now_plan = plan_of(&mut gather, part);
            if !plan.covers(&now_plan) {
                drop(locked);
                plan = plan.or_longer(&now_plan);
                continue;
            }
        }
        return exec_locked(&mut gather, caller, run, part, is_first);
    }
    gather.fail(caller, &GREW);
    false
}

/// The keys whose locks a part needs.
fn locks_for(
    gather: &mut Gather<'_, '_>,
    transaction: &Transaction,
    part: &[Queued<'_>],
    is_first: bool,
) -> Vec<KeyHash> {
    let watched = transaction.watched.keys().filter(|_| is_first).map(|key| &**key);
    watched.chain(part.iter().flat_map(keys_of)).map(|key| gather.core.hash(key)).collect()
}

/// Runs the part under the locks: no other client's command comes in between.
fn exec_locked<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    (transaction, began): (&Transaction, Work),
    part: &[Queued<'a>],
    is_first: bool,
) -> bool {
    for (key, version) in transaction.watched.iter().filter(|_| is_first) {
        if version_of(gather, key) != *version {
            gather.say(caller, |encoder| encoder.null_array());
            return false;
        }
    }
    if is_first {
        gather.say(caller, |encoder| encoder.array_header(transaction.command_count));
    }
    for queued in part {
        run_in_exec(gather, caller, queued, began);
    }
    gather.flush();
    true
}

/// Runs the next command of a group that started at the work `began`, unless the group has done
/// too much.
fn run_in_exec<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, queued: &Queued<'a>, began: Work) {
    let done_bytes = gather.core.work().bytes_since(began);
    if fits_atomic(gather, 0, done_bytes) {
        match replies_at_length(queued) {
            true => run_within(gather, caller, |gather| run_queued(gather, caller, queued)),
            false => run_queued(gather, caller, queued),
        }
    } else {
        // It is not run, as when memory is exhausted, and nor are the commands after it.
        gather.fail(caller, &TOO_MUCH_AT_ONCE);
    }
}

fn run_queued<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, queued: &Queued<'a>) {
    let id = match &queued.parsed {
        Ok(command) => command.id(),
        Err(error) => error.id(),
    };
    let index = id.map_or(CommandIndex::UNKNOWN_RESP, CommandIndex::resp);
    let caller = Caller { index, ..caller };
    if is_denied_in_exec(gather, caller, &queued.parsed, queued.raw) {
        return;
    }
    if gather.core.is_tracked {
        remember_reads(gather, caller.slot, id, queued.raw);
    }
    match &queued.parsed {
        Ok(command) => {
            // Commands with nothing to count are charged their time, as outside a group.
            let is_timed = id.is_some_and(|id| is_timed_alone(id.spec()));
            let began = is_timed.then(Instant::now);
            gather.raw = queued.raw;
            match command {
                // The commands after it do not wait.
                Command::Server(ServerCommand::Flush { .. }) => flush_all(gather, caller, true),
                _ => run(gather, caller, *command),
            }
            end_slices(gather, caller.slot, queued.raw);
            if let Some(began) = began {
                gather.core.charge(Work::elapsed(began.elapsed()));
            }
        }
        Err(error) => refuse(gather, caller, error),
    }
    if gather.core.is_tracked {
        end_queued(gather, caller.slot, id);
    }
}

/// Forgets everything, at QUIT, RESET and the end of a connection.
pub(super) fn forget_transaction(gather: &mut Gather<'_, '_>, slot: usize) {
    gather.core.connections[slot].resp().transaction = None;
    gather.core.connections[slot].client.set_queued(None);
}

/// QUIT.
pub(super) fn quit(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.say(caller, |encoder| encoder.ok());
    gather.core.connections[caller.slot].ending = Ending::AfterFlush;
}

fn parse_again<'t>(transaction: &'t Transaction, limits: &Limits) -> Vec<Queued<'t>> {
    let mut commands = Vec::with_capacity(transaction.command_count);
    let mut rest = &transaction.queued[..];
    while !rest.is_empty() {
        // It was one whole command when it was queued.
        let Parsed::Done { value, consumed_bytes } =
            next_command(&mut Parser::default(), rest, limits)
        else {
            debug_assert!(false, "a queued command is a whole one");
            break;
        };
        let (raw, after) = rest.split_at(consumed_bytes);
        commands.push(Queued { parsed: value, raw });
        rest = after;
    }
    commands
}

fn is_barred(id: Option<CommandId>) -> bool {
    id.is_some_and(|id| id.spec().flags.contains(Flags::NO_MULTI))
}

/// Commands on the whole keyspace cannot run under the locks of some keys (I1).
fn needs_session(queued: &Queued<'_>) -> bool {
    queued.parsed.as_ref().is_ok_and(|command| command.is_handled(Handling::Keyspace))
}

fn is_write(queued: &Queued<'_>) -> bool {
    let id = queued.parsed.as_ref().ok().and_then(Command::id);
    id.is_some_and(|id| id.spec().flags.contains(Flags::WRITE))
}

/// The maximum length of a value that is padded up to an offset, or unpacked.
fn grows_to_bytes(queued: &Queued<'_>, value_max_bytes: u64) -> u64 {
    let end = match queued.parsed {
        Ok(Command::String(StringCommand::SetRange { offset_bytes, .. })) => offset_bytes,
        Ok(Command::Bit(BitCommand::SetBit { offset, .. })) => {
            read_offset(offset, None, value_max_bytes).unwrap_or(0) / 8 + 1
        }
        Ok(Command::Bit(BitCommand::BitField { actions, .. })) => {
            bits::written_bytes(FieldActions::new(actions, value_max_bytes))
        }
        Ok(Command::Key(KeyCommand::Restore(restore))) => {
            dump::load(restore.payload, value_max_bytes).map_or(0, |it| it.len_max_bytes() as u64)
        }
        _ => 0,
    };
    end.min(value_max_bytes)
}

/// The keys of a queued command, at the places that its row in the table names.
fn keys_of<'t>(queued: &Queued<'t>) -> impl Iterator<Item = &'t [u8]> + use<'t> {
    let id = queued.parsed.as_ref().ok().and_then(Command::id);
    id.and_then(|id| keys_in(id, queued.raw)).into_iter().flatten()
}

struct VersionSink {
    version: u64,
}

impl Answering for VersionSink {}

impl Sink<Refusal> for VersionSink {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.version = item.version;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_keys(raw: &[u8], want: &[&[u8]]) {
        let limits = Limits::default();
        let Parsed::Done { value, .. } = next_command(&mut Parser::default(), raw, &limits) else {
            panic!("not one whole command");
        };
        assert_eq!(keys_of(&Queued { parsed: value, raw }).collect::<Vec<_>>(), want);
    }

    #[test]
    fn keys_stand_where_the_table_says() {
        check_keys(b"GET a\r\n", &[b"a"]);
        check_keys(b"MSET a 1 b 2\r\n", &[b"a", b"b"]);
        check_keys(b"DEL a b c\r\n", &[b"a", b"b", b"c"]);
        check_keys(b"RENAME a b\r\n", &[b"a", b"b"]);
        check_keys(b"OBJECT ENCODING a\r\n", &[b"a"]);
        check_keys(b"PING\r\n", &[]);
        check_keys(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &[b"k"]);
    }

    #[test]
    fn only_whole_keyspace_commands_split_a_transaction() {
        for (raw, want) in [
            (&b"KEYS *\r\n"[..], true),
            (b"KV.RANGE - +\r\n", true),
            (b"FLUSHALL\r\n", true),
            (b"GET a\r\n", false),
        ] {
            let parsed = next_command(&mut Parser::default(), raw, &Limits::default());
            let Parsed::Done { value, .. } = parsed else { panic!("not one whole command") };
            assert_eq!(needs_session(&Queued { parsed: value, raw }), want);
        }
    }
}
