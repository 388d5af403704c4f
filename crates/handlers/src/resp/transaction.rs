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
use commands::compaction::Answering;
use commands::rmw::{Refusal, Rmw, bits};
use commands::work::Work;
use counters::CommandIndex;
use runtime::connection::Transaction;
use runtime::connection::{Ending, group_kind};
use runtime::engine::Engine;
use runtime::walks::Caller;
use sessions::slow_log::is_timed_alone;
use store::{Op, Outcome, Pins, Request, Sink};
use wire::Parsed;
use wire::resp::{
    ClusterRequest, Command, CommandError, CommandId, ErrorReply, FieldActions, Flags, Keys,
    Limits, Parser, dump, next_command, read_offset,
};

use super::locked::{TOO_MUCH_AT_ONCE, item_room_bytes};
use super::redirect::{InDoubt, Keyed, keys_in, slot_of};
use super::several::TOO_MANY_PARTS;
use super::subscribe::{NO_SUCH_CHANNEL, has_others};
use super::{id_of, is_plain_read};
use crate::gather::Gather;

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

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Queues a command between MULTI and EXEC.
    pub(super) fn queue(
        &mut self,
        caller: Caller,
        parsed: Result<Command<'a>, CommandError<'a>>,
        raw: &[u8],
    ) {
        let id = id_of(&parsed);
        match parsed {
            Ok(
                command @ (Command::Exec
                | Command::Discard
                | Command::Multi
                | Command::Watch { .. }
                | Command::Quit
                | Command::Reset),
            ) => return self.run(caller, command),
            // Redis ends the transaction at once in this case.
            Err(error @ CommandError::WrongArity(CommandId::Exec)) => {
                self.forget_transaction(caller.slot);
                return self.refuse(caller, &error);
            }
            Err(error) if error.aborts_transaction() => {
                self.spoil(caller.slot);
                return self.refuse(caller, &error);
            }
            _ if is_barred(id) => {
                self.spoil(caller.slot);
                return self.fail(caller, &ErrorReply::NotInTransaction);
            }
            Ok(Command::Operator { id: CommandId::Debug, .. }) if !self.may_debug(caller.slot) => {
                self.spoil(caller.slot);
                return self.refuse_debug(caller);
            }
            // Refused like a command that this server does not have.
            Ok(Command::Operator { id: CommandId::Subscribe, args }) if has_others(args) => {
                self.spoil(caller.slot);
                return self.fail(caller, &NO_SUCH_CHANNEL);
            }
            _ => {}
        }
        let is_long = self.transaction(caller.slot).has_long
            || parsed.as_ref().is_ok_and(|command| self.is_long_in_exec(caller.slot, command));
        // A large command brought the room for its copy with it.
        let more_bytes = self.transaction(caller.slot).lacks_bytes(raw.len());
        if !self.reserve(caller, more_bytes) {
            let transaction = self.transaction(caller.slot);
            transaction.is_spoilt = true;
            transaction.queued = Vec::new();
            return;
        }
        let transaction = self.transaction(caller.slot);
        transaction.queued.extend_from_slice(raw);
        transaction.command_count += 1;
        transaction.has_long = is_long;
        transaction.has_writes |= id.is_some_and(|id| id.spec().flags.contains(Flags::WRITE));
        self.show_queue(caller.slot);
        self.say(caller, |encoder| encoder.simple("QUEUED"));
    }

    /// Books bytes that the transaction is about to take; answers the error itself.
    fn reserve(&mut self, caller: Caller, more_bytes: usize) -> bool {
        let bytes_max = self.core.group_bytes_max();
        let held_bytes = (self.transaction(caller.slot).held_bytes() + more_bytes) as u64;
        let kind = group_kind(held_bytes);
        let text = if held_bytes > bytes_max {
            "the transaction is larger than the client buffers allow"
        } else if self.core.ledger.try_reserve(kind, more_bytes as u64) {
            self.core.connections[caller.slot].booked.add(kind, more_bytes as u64);
            return true;
        } else {
            "no room for the transaction in the client buffers now: try again"
        };
        self.fail(caller, &ErrorReply::Other(text));
        false
    }

    fn transaction(&mut self, slot: usize) -> &mut Transaction {
        self.core.connections[slot].resp().transaction.get_or_insert_default()
    }

    /// Marks that a command could not be queued.
    pub(super) fn spoil(&mut self, slot: usize) {
        self.transaction(slot).is_spoilt = true;
    }

    /// MULTI.
    pub(super) fn multi(&mut self, caller: Caller) {
        let transaction = self.transaction(caller.slot);
        if transaction.is_queueing {
            return self.fail(caller, &ErrorReply::NestedMulti);
        }
        transaction.is_queueing = true;
        self.show_queue(caller.slot);
        self.say(caller, |encoder| encoder.ok());
    }

    /// Publishes the number of queued commands, for CLIENT LIST of other clients.
    fn show_queue(&mut self, slot: usize) {
        let count = self.transaction(slot).queued_count();
        self.core.connections[slot].client.set_queued(count);
    }

    /// DISCARD: also forgets the watched keys.
    pub(super) fn discard(&mut self, caller: Caller) {
        let transaction = &mut self.core.connections[caller.slot].resp().transaction;
        if transaction.take_if(|transaction| transaction.is_queueing).is_none() {
            return self.fail(caller, &ErrorReply::DiscardWithoutMulti);
        }
        self.core.connections[caller.slot].client.set_queued(None);
        self.say(caller, |encoder| encoder.ok());
    }

    /// UNWATCH.
    pub(super) fn unwatch(&mut self, caller: Caller) {
        if let Some(transaction) = &mut self.core.connections[caller.slot].resp().transaction {
            transaction.watched.clear();
            transaction.watched_bytes = 0;
        }
        self.drop_idle_transaction(caller.slot);
        self.say(caller, |encoder| encoder.ok());
    }

    fn drop_idle_transaction(&mut self, slot: usize) {
        self.core.connections[slot]
            .resp()
            .transaction
            .take_if(|transaction| !transaction.is_queueing && transaction.watched.is_empty());
    }

    /// WATCH: remembers the present versions.
    pub(super) fn watch(&mut self, caller: Caller, keys: Keys<'a>) {
        if self.transaction(caller.slot).is_queueing {
            return self.fail(caller, &ErrorReply::WatchInMulti);
        }
        // EXEC checks all of them in one step.
        let watched_count = self.transaction(caller.slot).watched.len() + keys.len();
        if self.refuse_long_keys(caller, keys) || self.refuse_atomic(caller, watched_count, 0) {
            return self.drop_idle_transaction(caller.slot);
        }
        self.settle(caller.slot);
        self.core.charge(Work::keys(keys.len()));
        for key in keys {
            if self.transaction(caller.slot).watched.contains_key(key) {
                continue;
            }
            let more_bytes = key.len() + WATCHED_OVERHEAD_BYTES;
            if !self.reserve(caller, more_bytes) {
                return;
            }
            let version = self.version_of(key);
            let transaction = self.transaction(caller.slot);
            transaction.watched.insert(key.into(), version);
            transaction.watched_bytes += more_bytes;
        }
        self.say(caller, |encoder| encoder.ok());
    }

    /// The key's version, 0 if there is none.
    fn version_of(&mut self, key: &[u8]) -> u64 {
        let mut sink = VersionSink { version: 0 };
        let request: Request<'_, Rmw<'_>> = Request { key, hash: self.core.hash(key), op: Op::Get };
        self.engine.execute(self.core.now, &[request], &mut sink);
        sink.version
    }

    /// EXEC.
    pub(super) fn exec(&mut self, caller: Caller) {
        let resp = self.core.connections[caller.slot].resp();
        let transaction = resp.transaction.take_if(|transaction| transaction.is_queueing);
        let Some(transaction) = transaction else {
            return self.fail(caller, &ErrorReply::ExecWithoutMulti);
        };
        self.core.connections[caller.slot].client.set_queued(None);
        if transaction.is_spoilt {
            return self.fail(caller, &ErrorReply::ExecAbort);
        }
        self.flush();
        let scratch_bytes = (transaction.command_count * size_of::<Queued<'_>>()) as u64;
        let kind = group_kind(scratch_bytes);
        if !self.core.ledger.try_reserve(kind, scratch_bytes) {
            return self.fail(caller, &TOO_MANY_PARTS);
        }
        self.exec_queued(caller, &transaction);
        self.core.ledger.release(kind, scratch_bytes);
    }

    fn exec_queued(&mut self, caller: Caller, transaction: &Transaction) {
        let limits = super::limits(self.core, caller.slot);
        let commands = parse_again(transaction, &limits);
        self.only_reads &=
            commands.iter().all(|queued| queued.parsed.as_ref().is_ok_and(is_plain_read));
        let key_count = commands.iter().flat_map(keys_of).count();
        if self.refuse_atomic(caller, key_count, transaction.queued.len() as u64) {
            return;
        }
        let keys = commands.iter().flat_map(keys_of);
        if self.is_exec_redirected(caller, keys, commands.iter().any(is_write)) {
            return;
        }
        let Some((kind, booked_bytes)) = self.book_replies(caller, &commands) else { return };
        self.exec_booked(caller, transaction, &commands);
        self.core.ledger.release(kind, booked_bytes);
    }

    fn exec_booked(&mut self, caller: Caller, transaction: &Transaction, commands: &[Queued<'_>]) {
        let keys = commands.iter().flat_map(keys_of);
        let keys = keys.chain(transaction.watched.keys().map(|key| &**key));
        let only_reads = !commands.iter().any(is_write);
        let may_read_copies = only_reads && self.core.connections[caller.slot].resp().reads_copies;
        match (self.core.cluster.clone(), slot_of(keys)) {
            // A group holds one shard: watched keys of other shards could change meanwhile.
            (Some(_), Keyed::Several) => self.fail(caller, &ErrorReply::CrossSlot),
            (Some(view), Keyed::One(slot)) if view.is_own(slot) || !may_read_copies => {
                let in_doubt = if only_reads { InDoubt::SendAgain } else { InDoubt::Close };
                self.in_group(caller, (slot, in_doubt), |gather| {
                    gather.exec_parts(caller, transaction, commands);
                });
            }
            // No keys, or reads of a copy.
            _ => self.exec_parts(caller, transaction, commands),
        }
    }

    fn exec_parts(&mut self, caller: Caller, transaction: &Transaction, commands: &[Queued<'_>]) {
        let began = self.core.work();
        let mut rest = commands;
        let mut is_first = true;
        while is_first || !rest.is_empty() {
            let on_keys = rest.iter().take_while(|queued| !needs_session(queued)).count();
            let (part, after) = rest.split_at(on_keys);
            if (is_first || !part.is_empty())
                && !self.exec_part(caller, (transaction, began), part, is_first)
            {
                return;
            }
            is_first = false;
            let (alone, after) = after.split_at(after.len().min(1));
            for queued in alone {
                let mut gather = Gather::new(self.engine, self.core);
                gather.run_in_exec(caller, queued, began);
                gather.core.charge(Work::alone());
                gather.flush();
            }
            rest = after;
        }
    }

    /// Runs commands on keys, under the locks of all of them; false: a watched key has changed, or
    /// there is no room in the log for the first part.
    fn exec_part(
        &mut self,
        caller: Caller,
        (transaction, began): (&Transaction, Work),
        part: &[Queued<'_>],
        is_first: bool,
    ) -> bool {
        let now = self.core.now;
        self.core.connections[caller.slot].has_written = true;
        let hashes = self.locks_for(transaction, part, is_first);
        let mut plan = self.plan_of(part);
        for _ in 0..PLANS_MAX {
            let Some(session) = self.engine.session() else {
                // A group: its shard is already held.
                let mut gather = Gather::new(self.engine, self.core);
                return gather.exec_locked(caller, (transaction, began), part, is_first);
            };
            let mut locked = session.lock_keys(now, &hashes, plan.room(is_first));
            if is_first && !locked.has_room() {
                drop(locked);
                self.fail(caller, &ErrorReply::OutOfMemory);
                return false;
            }
            let mut gather = Gather::new(&mut locked, self.core);
            // Later parts run in any case.
            if is_first && plan.builds_on_old {
                let now_plan = gather.plan_of(part);
                if !plan.covers(&now_plan) {
                    drop(locked);
                    plan = plan.or_longer(&now_plan);
                    continue;
                }
            }
            return gather.exec_locked(caller, (transaction, began), part, is_first);
        }
        self.fail(caller, &GREW);
        false
    }

    /// The keys whose locks a part needs.
    fn locks_for(
        &mut self,
        transaction: &Transaction,
        part: &[Queued<'_>],
        is_first: bool,
    ) -> Vec<KeyHash> {
        let watched = transaction.watched.keys().filter(|_| is_first).map(|key| &**key);
        watched.chain(part.iter().flat_map(keys_of)).map(|key| self.core.hash(key)).collect()
    }

    /// Runs the part under the locks: no other client's command comes in between.
    fn exec_locked(
        &mut self,
        caller: Caller,
        (transaction, began): (&Transaction, Work),
        part: &[Queued<'a>],
        is_first: bool,
    ) -> bool {
        for (key, version) in transaction.watched.iter().filter(|_| is_first) {
            if self.version_of(key) != *version {
                self.say(caller, |encoder| encoder.null_array());
                return false;
            }
        }
        if is_first {
            self.say(caller, |encoder| encoder.array_header(transaction.command_count));
        }
        for queued in part {
            self.run_in_exec(caller, queued, began);
        }
        self.flush();
        true
    }

    /// Runs the next command of a group that started at the work `began`, unless the group has done
    /// too much.
    fn run_in_exec(&mut self, caller: Caller, queued: &Queued<'a>, began: Work) {
        let done_bytes = self.core.work().bytes_since(began);
        if self.fits_atomic(0, done_bytes) {
            self.run_queued(caller, queued);
        } else {
            // It is not run, as when memory is exhausted, and nor are the commands after it.
            self.fail(caller, &TOO_MUCH_AT_ONCE);
        }
    }

    fn run_queued(&mut self, caller: Caller, queued: &Queued<'a>) {
        let id = match &queued.parsed {
            Ok(command) => command.id(),
            Err(error) => error.id(),
        };
        let index = id.map_or(CommandIndex::UNKNOWN_RESP, CommandIndex::resp);
        let caller = Caller { index, ..caller };
        if self.is_denied_in_exec(caller, &queued.parsed, queued.raw) {
            return;
        }
        if self.core.is_tracked {
            self.remember_reads(caller.slot, id, queued.raw);
        }
        match &queued.parsed {
            Ok(command) => {
                // Commands with nothing to count are charged their time, as outside a group.
                let is_timed = id.is_some_and(|id| is_timed_alone(id.spec()));
                let began = is_timed.then(Instant::now);
                self.raw = queued.raw;
                match command {
                    // The commands after it do not wait.
                    Command::Flush { .. } => self.flush_all(caller, true),
                    _ => self.run(caller, *command),
                }
                self.end_slices(caller.slot, queued.raw);
                if let Some(began) = began {
                    self.core.charge(Work::elapsed(began.elapsed()));
                }
            }
            Err(error) => self.refuse(caller, error),
        }
        if self.core.is_tracked {
            self.end_queued(caller.slot, id);
        }
    }

    /// Forgets everything, at QUIT, RESET and the end of a connection.
    pub(super) fn forget_transaction(&mut self, slot: usize) {
        self.core.connections[slot].resp().transaction = None;
        self.core.connections[slot].client.set_queued(None);
    }

    /// QUIT.
    pub(super) fn quit(&mut self, caller: Caller) {
        self.say(caller, |encoder| encoder.ok());
        self.core.connections[caller.slot].ending = Ending::AfterFlush;
    }
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
    matches!(
        queued.parsed,
        Ok(Command::Keys { .. }
            | Command::Scan(_)
            | Command::KvRange(_)
            | Command::RandomKey
            | Command::Flush { .. }
            | Command::DbSize
            | Command::Cluster(
                ClusterRequest::CountKeysInSlot { .. } | ClusterRequest::GetKeysInSlot { .. }
            ))
    )
}

fn is_write(queued: &Queued<'_>) -> bool {
    let id = queued.parsed.as_ref().ok().and_then(Command::id);
    id.is_some_and(|id| id.spec().flags.contains(Flags::WRITE))
}

/// The maximum length of a value that is padded up to an offset, or unpacked.
fn grows_to_bytes(queued: &Queued<'_>, value_max_bytes: u64) -> u64 {
    let end = match queued.parsed {
        Ok(Command::SetRange { offset_bytes, .. }) => offset_bytes,
        Ok(Command::SetBit { offset, .. }) => {
            read_offset(offset, None, value_max_bytes).unwrap_or(0) / 8 + 1
        }
        Ok(Command::BitField { actions, .. }) => {
            bits::written_bytes(FieldActions::new(actions, value_max_bytes))
        }
        Ok(Command::Restore(restore)) => {
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

/// Notes the length of the longest entry.
struct LengthSink {
    len_max_bytes: u64,
}

impl Answering for LengthSink {}

impl Sink<Refusal> for LengthSink {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            let len_bytes = item_room_bytes(item.key, item.value.len());
            self.len_max_bytes = self.len_max_bytes.max(len_bytes);
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
