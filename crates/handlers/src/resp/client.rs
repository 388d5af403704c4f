//! CLIENT: commands about connections.

use std::fmt::Write;
use std::sync::Arc;

use base::UnixMillis;
use counters::CommandIndex;
use runtime::pause::Pause;
use runtime::walks::Caller;
use sessions::clients::{Client, ClientNames};
use sessions::tracking::Tracker;
use wire::resp::number::parse_i64;
use wire::resp::{ArgIter, ClientCommand, CommandId, ErrorReply, PauseMode};

use super::connection::text;
use crate::gather::Gather;
use crate::resp::clients_walk::{kill_clients, list_clients};
use crate::resp::connection::client_reply;
use crate::resp::tracking::track;

/// The reply to a name that does not fit beside those of the other clients.
pub(super) const NO_ROOM_FOR_NAME: ErrorReply<'static> = ErrorReply::Other(
    "names of connections fill their part of the client buffers: a larger --memory has more room",
);

/// Runs a subcommand of CLIENT.
pub(super) fn run_client<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: ClientCommand<'a>,
) {
    match command {
        ClientCommand::Reply { mode } => client_reply(gather, caller, mode),
        ClientCommand::Id => {
            let id = client(gather, caller).id.cast_signed();
            gather.say(caller, |encoder| encoder.integer(id));
        }
        ClientCommand::Info => {
            let line = describe(gather, caller, &client(gather, caller));
            gather.say(caller, |encoder| encoder.verbatim(line.as_bytes()));
        }
        ClientCommand::List(query) => list_clients(gather, caller, &query.filter()),
        ClientCommand::Kill(query) => kill_clients(gather, caller, &query.filter()),
        ClientCommand::GetName => {
            let name = client(gather, caller).names().name;
            gather.say(caller, |encoder| match name.as_str() {
                "" => encoder.null(),
                name => encoder.bulk(name.as_bytes()),
            });
        }
        ClientCommand::SetName { name } => {
            set_name(gather, caller, |names| names.name = text(name));
        }
        ClientCommand::SetLibName { name } => {
            set_name(gather, caller, |names| names.library = text(name));
        }
        ClientCommand::SetLibVersion { version } => {
            set_name(gather, caller, |names| names.library_version = text(version));
        }
        // No client is ever evicted, and reads always count as use.
        ClientCommand::NoEvict { .. } | ClientCommand::NoTouch { .. } => {
            gather.say(caller, |encoder| encoder.ok());
        }
        ClientCommand::Pause { timeout_ms, mode } => {
            let until = UnixMillis(gather.core.now.0.saturating_add(timeout_ms));
            let writes_only = mode == PauseMode::Write;
            pause(gather, caller, Some(Pause { until, writes_only }));
        }
        ClientCommand::Unpause => pause(gather, caller, None),
    }
}

/// CLIENT subcommands of client-side caching and of blocking commands.
pub(super) fn client_operate<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    args: ArgIter<'a>,
) {
    let error = match id {
        CommandId::ClientUnblock => match unblock_error(args) {
            // No client ever waits for a key here.
            None => return gather.say(caller, |encoder| encoder.integer(0)),
            Some(error) => error,
        },
        _ => return track(gather, caller, id, args),
    };
    gather.fail(caller, &error);
}

/// CLIENT PAUSE and UNPAUSE: what follows in this round is held, or goes on, already.
fn pause(gather: &mut Gather<'_, '_>, caller: Caller, pause: Option<Pause>) {
    gather.settle(caller.slot);
    gather.core.shared.pause(pause);
    gather.core.pauses.set(pause.filter(|pause| pause.until > gather.core.now));
    gather.core.note_exceptions();
    gather.say(caller, |encoder| encoder.ok());
}

pub(super) fn help(gather: &mut Gather<'_, '_>, caller: Caller, lines: &[&str]) {
    gather.say(caller, |encoder| {
        encoder.array_header(lines.len());
        for line in lines {
            encoder.simple(line);
        }
    });
}

fn set_name(gather: &mut Gather<'_, '_>, caller: Caller, change: impl FnOnce(&mut ClientNames)) {
    if client(gather, caller).change_names(change) {
        gather.say(caller, |encoder| encoder.ok());
    } else {
        gather.fail(caller, &NO_ROOM_FOR_NAME);
    }
}

pub(super) fn client(gather: &Gather<'_, '_>, caller: Caller) -> Arc<Client> {
    Arc::clone(&gather.core.connections[caller.slot].client)
}

/// The letters of the `flags` field in CLIENT LIST.
fn flags_of(gather: &Gather<'_, '_>, client: &Client, tracker: Option<&Tracker>) -> String {
    let is_of = |test: fn(&Tracker) -> bool| tracker.is_some_and(test);
    let flags = [
        (gather.core.shared.observations().monitors.has(client.id), 'O'),
        (client.is_subscribed(), 'P'),
        (client.queued_count().is_some(), 'x'),
        (tracker.is_some(), 't'),
        (is_of(Tracker::is_broken), 'R'),
        (is_of(Tracker::is_broadcasting), 'B'),
    ];
    let set = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter);
    let letters: String = set.collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}

/// One line of CLIENT LIST. Fields that only the client's own worker knows are shown only for
/// the caller.
pub(super) fn describe(gather: &Gather<'_, '_>, caller: Caller, client: &Client) -> String {
    let own = &gather.core.connections[caller.slot];
    let is_own = own.client.id == client.id;
    let now = gather.core.now;
    let seconds_since = |then: UnixMillis| now.0.saturating_sub(then.0) / 1000;
    let names = client.names();
    let queued = client.queued_count();
    let multi = queued.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX));
    let (held, unsent) =
        if is_own { (own.input.held.len(), own.output.unsent_bytes()) } else { (0, 0) };
    let tracker = gather.core.shared.tracking().tracker(client.id);
    let redirect = tracker.as_ref().map_or(-1, |tracker| tracker.redirect_shown());
    let flags = flags_of(gather, client, tracker.as_deref());
    let subscribed = u8::from(client.is_subscribed());
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db=0 \
         sub={subscribed} psub=0 ssub=0 multi={multi} qbuf={held} qbuf-free=0 \
         argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={unsent} oll=0 omem=0 tot-mem={} events=r \
         cmd={} user={} redir={redirect} resp={} lib-name={} lib-ver={}",
        client.id,
        client.peer,
        client.local,
        client.descriptor,
        names.name,
        seconds_since(client.connected_at),
        seconds_since(client.last_active_at()),
        held + unsent,
        if is_own { CommandIndex::describe(caller.index.position()).1 } else { "NULL" },
        names.user(),
        if client.is_resp3() { 3 } else { 2 },
        names.library,
        names.library_version,
    );
    line
}

/// The error in `CLIENT UNBLOCK id [TIMEOUT|ERROR]`, if there is one.
fn unblock_error<'a>(mut args: ArgIter<'a>) -> Option<ErrorReply<'a>> {
    let id = args.next().unwrap_or_default();
    if let Some(reason) = args.next() {
        let is = |word: &str| reason.eq_ignore_ascii_case(word.as_bytes());
        if args.next().is_some() {
            return Some(ErrorReply::SubcommandSyntax(CommandId::ClientUnblock));
        }
        if !is("timeout") && !is("error") {
            let text = "CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Some(ErrorReply::Other(text));
        }
    }
    parse_i64(id).is_none().then_some(ErrorReply::NotAnInteger)
}
