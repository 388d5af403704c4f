//! RESP commands on the store: turns each parsed command into requests of the batch, or into a
//! reply of its own.
//!
//! ```text
//!  bytes ──▶ next_command ──▶ admit (AUTH? elsewhere? MULTI? paused?) ──▶ run
//!                                                            ├─▶ push: a request of the batch
//!                                                            └─▶ reply_to: flush, then answer
//! ```

mod acl;
mod acl_log;
mod bit_operation;
mod bits;
mod client;
mod clients_walk;
pub mod cluster;
mod command;
mod config;
mod connection;
mod counting;
mod debug;
mod discard;
mod disk_wait;
mod foreign;
mod hot_keys;
mod info;
mod key_range;
mod keys;
mod latency;
mod lcs;
mod locked;
mod memory;
mod names;
mod pace;
mod persistence;
mod redirect;
mod restore;
mod scan;
mod several;
pub mod slices;
mod slow_log;
mod strings;
mod subscribe;
mod tracking;
pub mod transaction;

pub use config::set_live;
pub use discard::{GivenUp, give_up};

use std::time::Instant;

use commands::reply::Shape;
use commands::rmw::Rmw;
use commands::work::Work;
use counters::CommandIndex;
use runtime::connection::{Ending, Replies};
use runtime::core::Core;
use runtime::core::timing;
use runtime::engine::Engine;
use runtime::walks::Caller;
use sessions::acl::Standing;
use sessions::slow_log::is_timed_alone;
use store::request::{Expiry, Op};
use wire::Parsed;
use wire::resp::{
    Command, CommandError, CommandId, Encoder, ErrorCode, ErrorReply, Flags, Group, Limits, Parser,
    ProtocolError, next_command,
};

use crate::gather::pace::SHORT_COMMAND_BYTES_MAX;
use crate::gather::{Fed, Gather};

/// Whether a command changes nothing, so that it may run twice.
fn is_plain_read(command: &Command<'_>) -> bool {
    use Command::{Echo, Get, Ping, Watch};
    matches!(command, Get { .. } | Ping { .. } | Echo { .. } | Watch { .. })
        || command.id().is_some_and(|id| id.spec().flags.contains(Flags::READONLY))
}

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs as many commands from the front of `input` as may run now.
    pub fn feed_resp(&mut self, slot: usize, input: &'a [u8]) -> Fed {
        if self.core.connections[slot].resp().discard.is_some() {
            return self.skip_refused(slot, input);
        }
        let limits = limits(self.core, slot);
        let mut at = 0;
        if self.core.connections[slot].resp().slices.is_some() {
            at = if self.may_parse(slot) { self.resume_slices(slot, input) } else { 0 };
            if at == 0 {
                return Fed::up_to(0, 0);
            }
        }
        loop {
            if at == input.len() || !self.may_parse(slot) {
                return Fed::up_to(at, 0);
            }
            let rest = &input[at..];
            match next_command(&mut self.core.connections[slot].resp().parser, rest, &limits) {
                Parsed::Done { value, consumed_bytes } => {
                    let raw = &rest[..consumed_bytes];
                    let has_reply = !matches!(value, Ok(Command::Empty));
                    if !self.command(slot, value, raw) {
                        self.note_command_bytes(slot, raw.len());
                        return Fed::up_to(at, 0);
                    }
                    at += consumed_bytes;
                    self.command_count += usize::from(has_reply);
                }
                Parsed::NeedMore { at_least_bytes } => return Fed::up_to(at, at_least_bytes),
                Parsed::Bad(error @ ProtocolError::BulkTooLarge { .. }) => {
                    self.refuse_oversized(slot, error);
                    return Fed::up_to(at, 0);
                }
                Parsed::Bad(error) => {
                    self.end_broken(slot, error);
                    return Fed::up_to(input.len(), 0);
                }
            }
        }
    }

    /// Runs one command. False: it has to wait (CLIENT PAUSE, a barrier) and is parsed again later,
    /// or it is answered in slices and goes on later.
    #[inline]
    fn command(
        &mut self,
        slot: usize,
        parsed: Result<Command<'a>, CommandError<'a>>,
        raw: &'a [u8],
    ) -> bool {
        if E::ROUTES {
            self.only_reads = self.only_reads
                && (parsed.as_ref().is_ok_and(is_plain_read) || self.is_queued(slot, &parsed));
        }
        let resp = self.core.connections[slot].resp();
        let standing = resp.pass.standing;
        let is_plain = standing != Standing::NeedsAuth
            && resp.transaction.is_none()
            && resp.replies == Replies::On
            && (!self.core.has_exceptions || self.is_unexceptional(slot));
        if E::ROUTES && !self.enter(slot, is_plain && is_on_one_key(&parsed)) {
            return false;
        }
        if is_plain
            && standing == Standing::Open
            && let Ok(command) = parsed
        {
            match command {
                Command::Get { key } if self.is_served_here(key) => {
                    let caller =
                        Caller { slot, index: CommandIndex::resp(CommandId::Get), is_quiet: false };
                    self.core.counters().called(caller.index);
                    self.single(caller, key, Op::Get, Shape::Value);
                    return true;
                }
                Command::Set(set)
                    if !set.returns_old
                        && raw.len() <= SHORT_COMMAND_BYTES_MAX
                        && set.expiry == wire::resp::Expiry::Never
                        && self.is_served_here(set.key) =>
                {
                    let caller =
                        Caller { slot, index: CommandIndex::resp(CommandId::Set), is_quiet: false };
                    self.core.counters().called(caller.index);
                    self.plain_set(caller, &set, Expiry::Never);
                    return true;
                }
                _ => {}
            }
        }
        self.admit(slot, parsed, raw)
    }

    /// Whether a command changes nothing but this connection's transaction; EXEC looks at what was
    /// queued.
    #[cold]
    fn is_queued(&mut self, slot: usize, parsed: &Result<Command<'a>, CommandError<'a>>) -> bool {
        match parsed {
            Ok(Command::Multi | Command::Empty) => true,
            Ok(Command::Quit | Command::Reset) => false,
            _ => self.core.connections[slot].resp().is_queueing(),
        }
    }

    /// Makes all checks between a command and its effect.
    fn admit(
        &mut self,
        slot: usize,
        parsed: Result<Command<'a>, CommandError<'a>>,
        raw: &'a [u8],
    ) -> bool {
        match &parsed {
            Ok(Command::Empty) => return true,
            Ok(Command::Quoted(line)) => {
                let mut bytes = Vec::new();
                line.rewrite(&mut bytes);
                return self.rewritten(slot, &bytes);
            }
            Err(CommandError::CrossProtocol) => {
                tracing::warn!("a web client spoke to the Redis port; its connection was closed");
                self.core.connections[slot].ending = Ending::Now;
                return true;
            }
            _ => {}
        }
        if self.waits_behind_others(slot, raw.len(), |gather| gather.is_long(slot, &parsed)) {
            return false;
        }
        let id = id_of(&parsed);
        let asks_to_track = id == Some(CommandId::ClientTracking);
        if self.must_wait(slot, id) || (asks_to_track && !self.may_track(slot, &parsed)) {
            return false;
        }
        // An unknown subcommand of a container is not a command, and counts for none.
        let counted = id.filter(|_| !matches!(parsed, Err(CommandError::UnknownSubcommand { .. })));
        let index = counted.map_or(CommandIndex::UNKNOWN_RESP, CommandIndex::resp);
        let resp = self.core.connections[slot].resp();
        let is_quiet = resp.replies != Replies::On;
        if resp.replies == Replies::SkipNext {
            resp.replies = Replies::On;
        }
        let caller = Caller { slot, index, is_quiet };
        self.raw = raw;
        let standing = resp.pass.standing;
        let is_queueing = resp.is_queueing();
        self.core.counters().called(index);
        self.core.charge(Work::command());
        let allowed_before_auth = id.is_some_and(|id| id.spec().flags.contains(Flags::NO_AUTH));
        if standing == Standing::NeedsAuth && !allowed_before_auth {
            self.turn_away(caller, &parsed);
            return true;
        }
        if standing == Standing::Restricted && self.is_denied(caller, &parsed, raw) {
            self.end_refused(slot, id);
            return true;
        }
        if self.core.cluster.is_some() && self.is_redirected(caller, &parsed, raw) {
            if is_queueing {
                self.spoil(slot);
            }
            return true;
        }
        if self.core.has_exceptions
            && self.listens_only(slot)
            && parsed.is_ok()
            && self.is_out_of_place(caller, id)
        {
            self.end_refused(slot, id);
            return true;
        }
        match self.core.is_tracked && self.tracks(slot) {
            true => self.perform_tracked(caller, parsed, raw),
            false => self.perform_admitted(caller, parsed, raw),
        }
        if asks_to_track {
            self.end_asking(slot);
        }
        self.core.connections[slot].resp().slices.is_none()
    }

    /// Runs or queues a command that has passed all checks.
    fn perform_admitted(
        &mut self,
        caller: Caller,
        parsed: Result<Command<'a>, CommandError<'a>>,
        raw: &'a [u8],
    ) {
        let id = id_of(&parsed);
        if self.core.connections[caller.slot].resp().is_queueing() {
            return self.queue(caller, parsed, raw);
        }
        if id.is_some_and(|id| is_timed_alone(id.spec())) {
            return self.timed(caller, parsed, raw);
        }
        self.perform(caller, parsed, raw)
    }

    /// Refuses a command of a client that has not logged in. An unknown command is reported as such
    /// first.
    #[cold]
    fn turn_away(&mut self, caller: Caller, parsed: &Result<Command<'a>, CommandError<'a>>) {
        match parsed {
            Err(error) if error.aborts_transaction() => self.refuse(caller, error),
            Ok(Command::Exec) => self.fail(caller, &ErrorReply::NoAuthExec),
            _ => self.fail(caller, &ErrorReply::NoAuth),
        }
    }

    /// Runs a command by itself and times it. Commands gathered before it are executed first and
    /// not included.
    fn timed(
        &mut self,
        caller: Caller,
        parsed: Result<Command<'a>, CommandError<'a>>,
        raw: &'a [u8],
    ) {
        self.settle(caller.slot);
        let began = Instant::now();
        self.perform(caller, parsed, raw);
        timing::ran_alone(self.core, caller.slot, caller.index, began, raw);
    }

    fn perform(
        &mut self,
        caller: Caller,
        parsed: Result<Command<'a>, CommandError<'a>>,
        raw: &'a [u8],
    ) {
        match parsed {
            Ok(command) if self.is_group(caller.slot, &command, raw) => {
                self.run_group(caller, command, raw)
            }
            Ok(command) => self.run(caller, command),
            Err(error) => self.refuse(caller, &error),
        }
    }

    /// CLIENT PAUSE: whether a command waits.
    fn must_wait(&mut self, slot: usize, id: Option<CommandId>) -> bool {
        if !self.core.is_paused {
            return false;
        }
        let (_, writes_only) = self.core.shared.paused();
        let Some(id) = id else { return false };
        let flags = id.spec().flags;
        let is_exempt = matches!(id.name().split('|').next(), Some("client" | "quit" | "auth"));
        let connection = &mut self.core.connections[slot];
        let writes_at_exec = || connection.transaction().is_some_and(|it| it.has_writes);
        let writes = || flags.contains(Flags::WRITE) || id == CommandId::Exec && writes_at_exec();
        let must_wait = !is_exempt && (!writes_only || writes());
        connection.is_held |= must_wait;
        must_wait
    }

    /// An inline command with escapes: its words are not in the input, so it runs by itself.
    fn rewritten(&mut self, slot: usize, bytes: &[u8]) -> bool {
        self.flush();
        let limits = limits(self.core, slot);
        let parsed = next_command(&mut Parser::default(), bytes, &limits);
        let Parsed::Done { value, consumed_bytes } = parsed else { return true };
        let mut inner = Gather::new(self.engine, self.core);
        let ran = inner.command(slot, value, &bytes[..consumed_bytes]);
        if !ran {
            inner.keep_rewritten(slot, bytes);
        }
        inner.flush();
        ran
    }

    /// Runs a command that was admitted.
    pub fn run(&mut self, caller: Caller, command: Command<'a>) {
        if let Some(command) = self.run_strings(caller, command)
            && let Some(command) = self.run_keys(caller, command)
            && let Some(command) = self.run_bits(caller, command)
            && let Some(command) = self.run_lcs(caller, command)
            && let Some(command) = self.run_restore(caller, command)
            && let Some(command) = self.run_server(caller, command)
            && let Some(command) = self.run_cluster(caller, command)
        {
            self.run_connection(caller, command);
        }
    }

    /// One request on one key.
    #[inline]
    pub fn single(&mut self, caller: Caller, key: &'a [u8], op: Op<'a, Rmw<'a>>, shape: Shape) {
        if key.len() > store::KEY_LEN_MAX_BYTES {
            return self.fail(caller, &ErrorReply::KeyTooLong);
        }
        let hash = self.core.hash(key);
        self.push(key, hash, op, caller.answer(shape));
    }

    /// A reply that does not come from the batch.
    pub fn say(&mut self, caller: Caller, encode: impl FnOnce(&mut Encoder<'_>)) {
        if caller.is_quiet {
            self.settle(caller.slot);
            return;
        }
        let protocol = self.core.connections[caller.slot].protocol();
        self.reply_to(caller.slot, |out| encode(&mut Encoder::new(out, protocol)));
    }

    /// An error reply.
    #[cold]
    pub fn fail(&mut self, caller: Caller, error: &ErrorReply) {
        self.core.counters().failed(caller.index, error.code());
        self.say_error(caller, error);
    }

    /// An error reply that repeats a command's name as it was typed.
    fn say_error(&mut self, caller: Caller, error: &ErrorReply) {
        if let ErrorReply::SubcommandSyntax(id) = *error {
            // Its limits were checked when it was framed.
            let parsed = Parser::default().parse(self.raw, &Limits::new(usize::MAX));
            if let Parsed::Done { value, .. } = parsed
                && let Some(typed) = value.get(1)
                && typed.eq_ignore_ascii_case(id.spec().own_name().as_bytes())
            {
                let error = ErrorReply::SubcommandTyped { id, typed };
                return self.say(caller, |encoder| encoder.error(&error));
            }
        }
        self.say(caller, |encoder| encoder.error(error));
    }

    /// A command that could not be read.
    #[cold]
    pub fn refuse(&mut self, caller: Caller, error: &CommandError<'_>) {
        if let CommandError::Argument { id, reply } = error {
            let is_disabled = self.core.cluster.is_none() && id.spec().group == Group::Cluster;
            let error = if is_disabled { &ErrorReply::ClusterDisabled } else { reply };
            return self.fail(caller, error);
        }
        self.core.counters().refused(caller.index, ErrorCode::Err);
        self.say(caller, |encoder| error.encode(encoder.out()));
    }
}

/// The command that was meant.
fn id_of(parsed: &Result<Command<'_>, CommandError<'_>>) -> Option<CommandId> {
    match parsed {
        Ok(command) => command.id(),
        Err(error) => error.id(),
    }
}

/// Whether a command is one request on one key, or an error before it becomes one: such commands
/// are routed (K10). Everything else is a barrier for its connection.
fn is_on_one_key(parsed: &Result<Command<'_>, CommandError<'_>>) -> bool {
    match parsed {
        Ok(
            Command::Get { .. }
            | Command::Set(_)
            | Command::SetNx { .. }
            | Command::SetEx { .. }
            | Command::GetSet { .. }
            | Command::GetDel { .. }
            | Command::GetEx { .. }
            | Command::IncrBy { .. }
            | Command::IncrByFloat { .. }
            | Command::Append { .. }
            | Command::SetRange { .. }
            | Command::StrLen { .. }
            | Command::SetIf(_)
            | Command::DelIf { .. }
            | Command::Digest { .. }
            | Command::SetBit { .. }
            | Command::GetBit { .. }
            | Command::BitCount { .. }
            | Command::BitPos { .. }
            | Command::GetRange { .. }
            | Command::Type { .. }
            | Command::Ttl { .. }
            | Command::Expire { .. }
            | Command::Persist { .. }
            | Command::Object { .. }
            | Command::MemoryUsage { .. },
        ) => true,
        Ok(Command::Del { keys, .. } | Command::Exists { keys } | Command::Touch { keys }) => {
            keys.len() == 1
        }
        _ => false,
    }
}

/// The limits of the parser for this connection.
fn limits(core: &mut Core, slot: usize) -> Limits {
    let limits = Limits::new(usize::try_from(core.value_max_bytes).unwrap_or(usize::MAX));
    if core.connections[slot].resp().pass.needs_auth() { limits.before_auth() } else { limits }
}
