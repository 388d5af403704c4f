//! Commands about the connection itself: HELLO, AUTH, PING, SELECT, MULTI and similar ones.

use runtime::connection::{Ending, Replies, Resp};
use runtime::walks::Caller;
use sessions::acl::{DEFAULT_USER, Fate, Pass};
use sessions::logins::Origin;
use wire::resp::{AuthRequest, ConnectionCommand, ErrorReply, HelloRequest, Protocol, ReplyMode};

use super::client::NO_ROOM_FOR_NAME;
use super::subscribe::encode_pong;
use crate::gather::Gather;
use crate::resp::acl_log::note_failed_login;
use crate::resp::cluster::own_master;
use crate::resp::subscribe::listens_only;
use crate::resp::transaction::{forget_transaction, quit};

/// The reported version of Redis, by which clients choose the features they use.
pub(super) const REDIS_VERSION: &str = "7.4.0";

const TOO_MANY_FAILED: ErrorReply<'static> = ErrorReply::Other(
    "too many failed logins from this address: it may try again in a few seconds",
);

/// Runs a command about this connection.
pub(super) fn run_connection<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: ConnectionCommand<'a>,
) {
    match command {
        ConnectionCommand::Ping { message } if listens_only(gather, caller.slot) => {
            gather.say(caller, |encoder| encode_pong(encoder, message));
        }
        ConnectionCommand::Ping { message: None } => {
            gather.say(caller, |encoder| encoder.simple("PONG"))
        }
        ConnectionCommand::Ping { message: Some(message) }
        | ConnectionCommand::Echo { message } => {
            gather.say(caller, |encoder| encoder.bulk(message));
        }
        ConnectionCommand::Hello(hello) => run_hello(gather, caller, &hello),
        ConnectionCommand::Auth(auth) => run_auth(gather, caller, &auth),
        ConnectionCommand::Select { database_index: 0 } => {
            gather.say(caller, |encoder| encoder.ok())
        }
        ConnectionCommand::Select { .. } if gather.core.cluster.is_some() => {
            gather.fail(caller, &ErrorReply::SelectInCluster);
        }
        ConnectionCommand::Select { .. } => gather.fail(caller, &ErrorReply::DatabaseIndex),
        ConnectionCommand::Quit => quit(gather, caller),
        ConnectionCommand::Reset => reset(gather, caller),
    }
}

fn run_hello<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, hello: &HelloRequest<'a>) {
    let protocol = match hello.version {
        None => gather.core.connections[caller.slot].protocol(),
        Some(2) => Protocol::Resp2,
        Some(3) => Protocol::Resp3,
        Some(_) => return gather.fail(caller, &ErrorReply::NoProtocol),
    };
    if let Some(auth) = &hello.auth {
        match log_in(gather, caller, auth) {
            Ok(Login::Admitted) => {}
            Ok(Login::TurnedAway) => return deny(gather, caller),
            Err(error) => return gather.fail(caller, &error),
        }
    }
    if gather.core.connections[caller.slot].resp().pass.needs_auth() {
        return gather.fail(caller, &ErrorReply::HelloNoAuth);
    }
    gather.settle(caller.slot);
    let connection = &mut gather.core.connections[caller.slot];
    if let Some(name) = hello.name
        && !connection.client.change_names(|names| names.name = text(name))
    {
        return gather.fail(caller, &NO_ROOM_FOR_NAME);
    }
    connection.resp().protocol = protocol;
    connection.client.set_resp3(protocol == Protocol::Resp3);
    let id = connection.client.id;
    let mode = if gather.core.cluster.is_some() { "cluster" } else { "standalone" };
    let role = if own_master(gather).is_some() { "replica" } else { "master" };
    gather.say(caller, |encoder| {
        encoder.map_header(7);
        let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
        encoder.bulk(b"server");
        encoder.bulk(b"redis");
        encoder.bulk(b"version");
        encoder.bulk(REDIS_VERSION.as_bytes());
        encoder.bulk(b"proto");
        encoder.integer(version);
        encoder.bulk(b"id");
        encoder.integer(id.cast_signed());
        encoder.bulk(b"mode");
        encoder.bulk(mode.as_bytes());
        encoder.bulk(b"role");
        encoder.bulk(role.as_bytes());
        encoder.bulk(b"modules");
        encoder.array_header(0);
    });
}

fn run_auth<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, auth: &AuthRequest<'a>) {
    let has_no_password = gather.core.shared.acl().table().default().has_no_password;
    if auth.user.is_none() && has_no_password {
        return gather.fail(caller, &ErrorReply::AuthWithoutPassword);
    }
    match log_in(gather, caller, auth) {
        Ok(Login::Admitted) => gather.say(caller, |encoder| encoder.ok()),
        Ok(Login::TurnedAway) => deny(gather, caller),
        Err(error) => gather.fail(caller, &error),
    }
}

/// What becomes of a client that a user admits.
enum Login {
    Admitted,
    /// The door is closed to it, and its connection ends.
    TurnedAway,
}

/// Answers the command by which a client became one that its door turns away.
fn deny(gather: &mut Gather<'_, '_>, caller: Caller) {
    if let Some(line) = gather.core.connections[caller.slot].take_denial() {
        gather.reply_to(caller.slot, |out| out.extend_from_slice(line));
    }
}

fn log_in<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    auth: &AuthRequest<'a>,
) -> Result<Login, ErrorReply<'static>> {
    gather.settle(caller.slot);
    // The user and the door are looked up at one moment.
    gather.core.renew_passes();
    if gather.core.connections[caller.slot].turned_away.is_some() {
        return Ok(Login::TurnedAway);
    }
    gather.core.counters().auth_attempts.add(1);
    let origin = Origin::of(&gather.core.connections[caller.slot].client.peer);
    if gather.core.refuses_logins(origin) {
        return Err(TOO_MANY_FAILED);
    }
    let table = gather.core.acl.clone();
    let user = table.user(auth.user.unwrap_or(DEFAULT_USER));
    let admitted = user.filter(|user| user.admits(auth.password));
    gather.core.pace_login(caller.slot, origin, admitted.is_some());
    if let Some(user) = admitted {
        let connection = &mut gather.core.connections[caller.slot];
        if !connection.client.change_names(|names| names.user = text(&user.name)) {
            return Err(NO_ROOM_FOR_NAME);
        }
        connection.resp().pass.log_in(user, &table);
        // A MONITOR of the previous user does not continue for this one.
        let is_to_close = gather.core.renew_pass(caller.slot) == Fate::Closes;
        // A user without a password admits those from loopback alone.
        if gather.core.turn_away_stranger(caller.slot) {
            return Ok(Login::TurnedAway);
        }
        let ending = &mut gather.core.connections[caller.slot].ending;
        if is_to_close && *ending != Ending::Now {
            *ending = Ending::AfterFlush;
        }
        return Ok(Login::Admitted);
    }
    note_failed_login(gather, caller, auth);
    Err(ErrorReply::WrongPassword)
}

/// RESET: as if the client had just connected.
fn reset(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.settle(caller.slot);
    forget_transaction(gather, caller.slot);
    let pass = Pass::new(&gather.core.acl);
    let connection = &mut gather.core.connections[caller.slot];
    let parser = connection.resp().parser;
    *connection.resp() = Resp { parser, pass, ..Resp::default() };
    connection.client.set_resp3(false);
    connection.client.set_subscribed(false);
    connection.client.change_names(|names| {
        names.name.clear();
        names.user.clear();
    });
    let client_id = gather.core.connections[caller.slot].client.id;
    gather.core.shared.observations().monitors.remove(client_id);
    gather.core.shared.tracking().forget(client_id);
    if gather.core.turn_away_stranger(caller.slot) {
        return deny(gather, caller);
    }
    let caller = Caller { is_quiet: false, ..caller };
    gather.say(caller, |encoder| encoder.simple("RESET"));
}

pub(super) fn client_reply(gather: &mut Gather<'_, '_>, caller: Caller, mode: ReplyMode) {
    gather.settle(caller.slot);
    let replies = &mut gather.core.connections[caller.slot].resp().replies;
    match mode {
        ReplyMode::On => {
            *replies = Replies::On;
            gather.say(Caller { is_quiet: false, ..caller }, |encoder| encoder.ok());
        }
        ReplyMode::Off => *replies = Replies::Off,
        // Within OFF it changes nothing.
        ReplyMode::Skip if *replies == Replies::On => *replies = Replies::SkipNext,
        ReplyMode::Skip => {}
    }
}

/// A checked name: printable ASCII.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
