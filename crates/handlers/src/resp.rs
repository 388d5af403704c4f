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
mod group;
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
mod server;
mod several;
pub mod slices;
mod slow_log;
mod strings;
mod subscribe;
mod tracking;
pub mod transaction;

use std::time::Instant;

use commands::reply::Shape;
use commands::work::Work;
pub use config::{live_keys, set_live};
use counters::CommandIndex;
pub use discard::{GivenUp, give_up};
use runtime::connection::{Ending, Replies};
use runtime::core::{Core, timing};
use runtime::walks::Caller;
use sessions::acl::Standing;
use sessions::slow_log::is_timed_alone;
use store::request::{Expiry, Op};
use wire::Parsed;
use wire::resp::{
    Command, CommandError, CommandId, ConnectionCommand, ErrorCode, ErrorReply, Flags, Group,
    Handling, KeyCommand, Limits, Parser, ProtocolError, StringCommand, TransactionCommand,
    next_command,
};

use crate::gather::pace::SHORT_COMMAND_BYTES_MAX;
use crate::gather::{Fed, Gather};
use crate::resp::acl_log::is_denied;
use crate::resp::bits::run_bit;
use crate::resp::client::{help, run_client};
use crate::resp::cluster::run_cluster;
use crate::resp::connection::run_connection;
use crate::resp::discard::{end_broken, refuse_oversized, skip_refused};
use crate::resp::group::run_group;
use crate::resp::keys::run_key;
use crate::resp::pace::is_long;
use crate::resp::redirect::{is_group, is_redirected, is_served_here};
use crate::resp::server::{operate, run_server};
use crate::resp::slices::{keep_rewritten, note_command_bytes, resume_slices};
use crate::resp::strings::{plain_set, run_string};
use crate::resp::subscribe::{is_out_of_place, listens_only};
use crate::resp::tracking::{
    end_asking, end_refused, is_unexceptional, may_track, perform_tracked, tracks,
};
use crate::resp::transaction::{queue, run_transaction, spoil};

/// Whether a command changes nothing, so that it may run twice.
fn is_plain_read(command: &Command<'_>) -> bool {
    let is_plain = matches!(
        command,
        Command::Connection(ConnectionCommand::Ping { .. } | ConnectionCommand::Echo { .. })
            | Command::Transaction(TransactionCommand::Watch { .. })
    );
    is_plain || command.id().is_some_and(|id| id.spec().flags.contains(Flags::READONLY))
}

/// Runs as many commands from the front of `input` as may run now.
pub fn feed_resp<'a>(gather: &mut Gather<'_, 'a>, slot: usize, input: &'a [u8]) -> Fed {
    if gather.core.connections[slot].resp().discard.is_some() {
        return skip_refused(gather, slot, input);
    }
    let limits = limits(gather.core, slot);
    let mut at = 0;
    if gather.core.connections[slot].resp().slices.is_some() {
        let is_group = gather.core.connections[slot].pending_group().is_some();
        let goes_on = is_group || gather.may_parse(slot);
        at = if goes_on { resume_slices(gather, slot, input) } else { 0 };
        if at == 0 {
            return Fed::up_to(0, 0);
        }
        gather.core.connections[slot].end_turned_away();
    }
    loop {
        if at == input.len() || !gather.may_parse(slot) {
            return Fed::up_to(at, 0);
        }
        let rest = &input[at..];
        match next_command(&mut gather.core.connections[slot].resp().parser, rest, &limits) {
            Parsed::Done { value, consumed_bytes } => {
                let raw = &rest[..consumed_bytes];
                let has_reply = !matches!(value, Ok(Command::Empty));
                if !command(gather, slot, value, raw) {
                    note_command_bytes(gather, slot, raw.len());
                    return Fed::up_to(at, 0);
                }
                at += consumed_bytes;
                gather.command_count += usize::from(has_reply);
            }
            Parsed::NeedMore { at_least_bytes } => return Fed::up_to(at, at_least_bytes),
            Parsed::Bad(error @ ProtocolError::BulkTooLarge { .. }) => {
                refuse_oversized(gather, slot, error);
                return Fed::up_to(at, 0);
            }
            Parsed::Bad(error) => {
                end_broken(gather, slot, error);
                return Fed::up_to(input.len(), 0);
            }
        }
    }
}

/// Runs one command. False: it has to wait (CLIENT PAUSE, a barrier) and is parsed again later,
/// or it is answered in slices and goes on later.
#[inline]
fn command<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &'a [u8],
) -> bool {
    if gather.routes() {
        gather.only_reads = gather.only_reads
            && (parsed.as_ref().is_ok_and(is_plain_read) || is_queued(gather, slot, &parsed));
    }
    let resp = gather.core.connections[slot].resp();
    let standing = resp.pass.standing;
    let is_plain = standing != Standing::NeedsAuth
        && resp.transaction.is_none()
        && resp.replies == Replies::On
        && (!gather.core.has_exceptions || is_unexceptional(gather, slot));
    if gather.routes() && !gather.enter(slot, is_plain && is_on_one_key(&parsed)) {
        return false;
    }
    if is_plain
        && standing == Standing::Open
        && let Ok(command) = parsed
    {
        match command {
            Command::String(StringCommand::Get { key }) if is_served_here(gather, key) => {
                let caller =
                    Caller { slot, index: CommandIndex::resp(CommandId::Get), is_quiet: false };
                gather.core.counters().called(caller.index);
                gather.single(caller, key, Op::Get, Shape::Value);
                return true;
            }
            Command::String(StringCommand::Set(set))
                if !set.returns_old
                    && raw.len() <= SHORT_COMMAND_BYTES_MAX
                    && set.expiry == wire::resp::Expiry::Never
                    && is_served_here(gather, set.key) =>
            {
                let caller =
                    Caller { slot, index: CommandIndex::resp(CommandId::Set), is_quiet: false };
                gather.core.counters().called(caller.index);
                plain_set(gather, caller, &set, Expiry::Never);
                return true;
            }
            _ => {}
        }
    }
    admit(gather, slot, parsed, raw)
}

/// Whether a command changes nothing but this connection's transaction; EXEC looks at what was
/// queued.
#[cold]
fn is_queued<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: &Result<Command<'a>, CommandError<'a>>,
) -> bool {
    match parsed {
        Ok(Command::Transaction(TransactionCommand::Multi) | Command::Empty) => true,
        Ok(Command::Connection(ConnectionCommand::Quit | ConnectionCommand::Reset)) => false,
        _ => gather.core.connections[slot].resp().is_queueing(),
    }
}

/// Makes all checks between a command and its effect.
fn admit<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &'a [u8],
) -> bool {
    match &parsed {
        Ok(Command::Empty) => return true,
        Ok(Command::Quoted(line)) => {
            let mut bytes = Vec::new();
            line.rewrite(&mut bytes);
            return rewritten(gather, slot, &bytes);
        }
        Err(CommandError::CrossProtocol) => {
            tracing::warn!("a web client spoke to the Redis port; its connection was closed");
            gather.core.connections[slot].ending = Ending::Now;
            return true;
        }
        _ => {}
    }
    if gather.waits_behind_others(slot, raw.len(), |gather| is_long(gather, slot, &parsed, raw)) {
        return false;
    }
    let id = id_of(&parsed);
    let asks_to_track = id == Some(CommandId::ClientTracking);
    if must_wait(gather, slot, id) || (asks_to_track && !may_track(gather, slot, &parsed)) {
        return false;
    }
    // An unknown subcommand of a container is not a command, and counts for none.
    let counted = id.filter(|_| !matches!(parsed, Err(CommandError::UnknownSubcommand { .. })));
    let index = counted.map_or(CommandIndex::UNKNOWN_RESP, CommandIndex::resp);
    let resp = gather.core.connections[slot].resp();
    let is_quiet = resp.replies != Replies::On;
    if resp.replies == Replies::SkipNext {
        resp.replies = Replies::On;
    }
    let caller = Caller { slot, index, is_quiet };
    gather.raw = raw;
    let standing = resp.pass.standing;
    let is_queueing = resp.is_queueing();
    gather.core.counters().called(index);
    gather.core.charge(Work::command());
    let allowed_before_auth = id.is_some_and(|id| id.spec().flags.contains(Flags::NO_AUTH));
    if standing == Standing::NeedsAuth && !allowed_before_auth {
        turn_away(gather, caller, &parsed);
        return true;
    }
    if standing == Standing::Restricted && is_denied(gather, caller, &parsed, raw) {
        end_refused(gather, slot, id);
        return true;
    }
    if gather.core.cluster.is_some() && is_redirected(gather, caller, &parsed, raw) {
        if is_queueing {
            spoil(gather, slot);
        }
        return true;
    }
    if gather.core.has_exceptions
        && listens_only(gather, slot)
        && parsed.is_ok()
        && is_out_of_place(gather, caller, id)
    {
        end_refused(gather, slot, id);
        return true;
    }
    match gather.core.is_tracked && tracks(gather, slot) {
        true => perform_tracked(gather, caller, parsed, raw),
        false => perform_admitted(gather, caller, parsed, raw),
    }
    if asks_to_track {
        end_asking(gather, slot);
    }
    gather.core.connections[slot].resp().slices.is_none()
}

/// Runs or queues a command that has passed all checks.
fn perform_admitted<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &'a [u8],
) {
    let id = id_of(&parsed);
    if gather.core.connections[caller.slot].resp().is_queueing() {
        return queue(gather, caller, parsed, raw);
    }
    if id.is_some_and(|id| is_timed_alone(id.spec())) {
        return timed(gather, caller, parsed, raw);
    }
    perform(gather, caller, parsed, raw)
}

/// Refuses a command of a client that has not logged in. An unknown command is reported as such
/// first.
#[cold]
fn turn_away<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: &Result<Command<'a>, CommandError<'a>>,
) {
    match parsed {
        Err(error) if error.aborts_transaction() => refuse(gather, caller, error),
        Ok(Command::Transaction(TransactionCommand::Exec)) => {
            gather.fail(caller, &ErrorReply::NoAuthExec)
        }
        _ => gather.fail(caller, &ErrorReply::NoAuth),
    }
}

/// Runs a command by itself and times it. Commands gathered before it are executed first and
/// not included.
fn timed<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &'a [u8],
) {
    gather.settle(caller.slot);
    let began = Instant::now();
    perform(gather, caller, parsed, raw);
    timing::ran_alone(gather.core, caller.slot, caller.index, began, raw);
}

fn perform<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &'a [u8],
) {
    match parsed {
        Ok(command) if is_group(gather, caller.slot, &command, raw) => {
            run_group(gather, caller, command, raw)
        }
        Ok(command) => run(gather, caller, command),
        Err(error) => refuse(gather, caller, &error),
    }
}

/// CLIENT PAUSE: whether a command waits.
fn must_wait(gather: &mut Gather<'_, '_>, slot: usize, id: Option<CommandId>) -> bool {
    let Some(pause) = gather.core.pauses.current() else { return false };
    let Some(id) = id else { return false };
    let flags = id.spec().flags;
    let is_exempt = matches!(id.name().split('|').next(), Some("client" | "quit" | "auth"));
    let connection = &mut gather.core.connections[slot];
    let writes_at_exec = || connection.transaction().is_some_and(|it| it.has_writes);
    let writes = || flags.contains(Flags::WRITE) || id == CommandId::Exec && writes_at_exec();
    let must_wait = !is_exempt && (!pause.writes_only || writes());
    if must_wait {
        connection.is_held = true;
        gather.core.pauses.hold();
    }
    must_wait
}

/// An inline command with escapes: its words are not in the input, so it runs by itself.
fn rewritten(gather: &mut Gather<'_, '_>, slot: usize, bytes: &[u8]) -> bool {
    // The line was within its limit, and its words have no others.
    let parsed = next_command(&mut Parser::default(), bytes, &Limits::new(usize::MAX));
    let Parsed::Done { value, consumed_bytes } = parsed else {
        debug_assert!(false, "a rewritten command is a whole one");
        return true;
    };
    let mut inner = gather.apart();
    let ran = command(&mut inner, slot, value, &bytes[..consumed_bytes]);
    if !ran {
        keep_rewritten(&mut inner, slot, bytes);
    }
    inner.flush();
    // What may not be repeated is told to the caller, which saw only that there is a command.
    let only_reads = inner.only_reads;
    gather.only_reads &= only_reads;
    ran
}

/// Runs a command that was admitted.
pub fn run<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, command: Command<'a>) {
    match command {
        Command::String(command) => run_string(gather, caller, command),
        Command::Bit(command) => run_bit(gather, caller, command),
        Command::Key(command) => run_key(gather, caller, command),
        Command::Server(command) => run_server(gather, caller, command),
        Command::Transaction(command) => run_transaction(gather, caller, command),
        Command::Connection(command) => run_connection(gather, caller, command),
        Command::Client(command) => run_client(gather, caller, command),
        Command::Cluster(command) => run_cluster(gather, caller, command),
        Command::Operator { id, args } => operate(gather, caller, id, args),
        Command::Help { id: CommandId::ClusterHelp } if gather.core.cluster.is_none() => {
            gather.fail(caller, &ErrorReply::ClusterDisabled);
        }
        Command::Help { id } => help(gather, caller, id.help_lines()),
        // Both end where they are read: they are no commands yet.
        Command::Empty | Command::Quoted(_) => {}
    }
}

/// A command that could not be read.
#[cold]
pub fn refuse(gather: &mut Gather<'_, '_>, caller: Caller, error: &CommandError<'_>) {
    if let CommandError::Argument { id, reply } = error {
        let is_disabled = gather.core.cluster.is_none() && id.spec().group == Group::Cluster;
        let error = if is_disabled { &ErrorReply::ClusterDisabled } else { reply };
        return gather.fail(caller, error);
    }
    gather.core.counters().refused(caller.index, ErrorCode::Err);
    gather.say(caller, |encoder| error.encode(encoder.out()));
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
    let Ok(command) = parsed else { return false };
    match command {
        Command::Key(
            KeyCommand::Del { keys, .. } | KeyCommand::Exists { keys } | KeyCommand::Touch { keys },
        ) => keys.len() == 1,
        _ => command.is_handled(Handling::One),
    }
}

/// The limits of the parser for this connection.
fn limits(core: &mut Core, slot: usize) -> Limits {
    let limits = Limits::new(usize::try_from(core.value_max_bytes).unwrap_or(usize::MAX));
    if core.connections[slot].resp().pass.needs_auth() { limits.before_auth() } else { limits }
}
