//! Commands about the connection itself: HELLO, AUTH, PING, SELECT, MULTI and similar ones.

use runtime::connection::{Ending, Replies, Resp};
use runtime::engine::Engine;
use runtime::walks::Caller;
use sessions::acl::{DEFAULT_USER, Fate, Pass};
use sessions::logins::Origin;
use wire::resp::{AuthRequest, Command, ErrorReply, HelloRequest, Protocol, ReplyMode};

use super::client::NO_ROOM_FOR_NAME;
use super::subscribe::encode_pong;
use crate::gather::Gather;

/// The reported version of Redis, by which clients choose the features they use.
pub(super) const REDIS_VERSION: &str = "7.4.0";

const TOO_MANY_FAILED: ErrorReply<'static> = ErrorReply::Other(
    "too many failed logins from this address: it may try again in a few seconds",
);

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs any command that is left.
    pub(super) fn run_connection(&mut self, caller: Caller, command: Command<'a>) {
        match command {
            Command::Ping { message } if self.listens_only(caller.slot) => {
                self.say(caller, |encoder| encode_pong(encoder, message));
            }
            Command::Ping { message: None } => self.say(caller, |encoder| encoder.simple("PONG")),
            Command::Ping { message: Some(message) } | Command::Echo { message } => {
                self.say(caller, |encoder| encoder.bulk(message));
            }
            Command::Hello(hello) => self.hello(caller, &hello),
            Command::Auth(auth) => self.auth(caller, &auth),
            Command::Select { database_index: 0 } => self.say(caller, |encoder| encoder.ok()),
            Command::Select { .. } if self.core.cluster.is_some() => {
                self.fail(caller, &ErrorReply::SelectInCluster);
            }
            Command::Select { .. } => self.fail(caller, &ErrorReply::DatabaseIndex),
            Command::Quit => self.quit(caller),
            Command::Reset => self.reset(caller),
            Command::Multi => self.multi(caller),
            Command::Exec => self.exec(caller),
            Command::Discard => self.discard(caller),
            Command::Watch { keys } => self.watch(caller, keys),
            Command::Unwatch => self.unwatch(caller),
            Command::ClientReply { mode } => self.client_reply(caller, mode),
            other => self.run_client(caller, other),
        }
    }

    fn hello(&mut self, caller: Caller, hello: &HelloRequest<'a>) {
        let protocol = match hello.version {
            None => self.core.connections[caller.slot].protocol(),
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return self.fail(caller, &ErrorReply::NoProtocol),
        };
        if let Some(auth) = &hello.auth
            && let Err(error) = self.log_in(caller, auth)
        {
            return self.fail(caller, &error);
        }
        if self.core.connections[caller.slot].resp().pass.needs_auth() {
            return self.fail(caller, &ErrorReply::HelloNoAuth);
        }
        self.settle(caller.slot);
        let connection = &mut self.core.connections[caller.slot];
        if let Some(name) = hello.name
            && !connection.client.change_names(|names| names.name = text(name))
        {
            return self.fail(caller, &NO_ROOM_FOR_NAME);
        }
        connection.resp().protocol = protocol;
        connection.client.set_resp3(protocol == Protocol::Resp3);
        let id = connection.client.id;
        let mode = if self.core.cluster.is_some() { "cluster" } else { "standalone" };
        let role = if self.own_master().is_some() { "replica" } else { "master" };
        self.say(caller, |encoder| {
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

    fn auth(&mut self, caller: Caller, auth: &AuthRequest<'a>) {
        let has_no_password = self.core.shared.acl().table().default().has_no_password;
        if auth.user.is_none() && has_no_password {
            return self.fail(caller, &ErrorReply::AuthWithoutPassword);
        }
        match self.log_in(caller, auth) {
            Ok(()) => self.say(caller, |encoder| encoder.ok()),
            Err(error) => self.fail(caller, &error),
        }
    }

    fn log_in(
        &mut self,
        caller: Caller,
        auth: &AuthRequest<'a>,
    ) -> Result<(), ErrorReply<'static>> {
        self.settle(caller.slot);
        self.core.counters().auth_attempts.add(1);
        let origin = Origin::of(&self.core.connections[caller.slot].client.peer);
        if self.core.refuses_logins(origin) {
            return Err(TOO_MANY_FAILED);
        }
        let table = self.core.shared.acl().table();
        let user = table.user(auth.user.unwrap_or(DEFAULT_USER));
        let admitted = user.filter(|user| user.admits(auth.password));
        self.core.pace_login(caller.slot, origin, admitted.is_some());
        if let Some(user) = admitted {
            let connection = &mut self.core.connections[caller.slot];
            if !connection.client.change_names(|names| names.user = text(&user.name)) {
                return Err(NO_ROOM_FOR_NAME);
            }
            connection.resp().pass.log_in(user, &table);
            // The table may be newer than this worker's.
            self.core.renew_passes();
            // A MONITOR of the previous user does not continue for this one.
            let is_to_close = self.core.renew_pass(caller.slot) == Fate::Closes;
            let ending = &mut self.core.connections[caller.slot].ending;
            if is_to_close && *ending != Ending::Now {
                *ending = Ending::AfterFlush;
            }
            return Ok(());
        }
        self.note_failed_login(caller, auth);
        Err(ErrorReply::WrongPassword)
    }

    /// RESET: as if the client had just connected.
    fn reset(&mut self, caller: Caller) {
        self.settle(caller.slot);
        self.forget_transaction(caller.slot);
        let pass = Pass::new(&self.core.acl);
        let connection = &mut self.core.connections[caller.slot];
        let parser = connection.resp().parser;
        *connection.resp() = Resp { parser, pass, ..Resp::default() };
        connection.client.set_resp3(false);
        connection.client.set_subscribed(false);
        connection.client.change_names(|names| {
            names.name.clear();
            names.user.clear();
        });
        let client_id = self.core.connections[caller.slot].client.id;
        self.core.shared.monitors().remove(client_id);
        self.core.shared.tracking().forget(client_id);
        let caller = Caller { is_quiet: false, ..caller };
        self.say(caller, |encoder| encoder.simple("RESET"));
    }

    fn client_reply(&mut self, caller: Caller, mode: ReplyMode) {
        self.settle(caller.slot);
        let replies = &mut self.core.connections[caller.slot].resp().replies;
        match mode {
            ReplyMode::On => {
                *replies = Replies::On;
                self.say(Caller { is_quiet: false, ..caller }, |encoder| encoder.ok());
            }
            ReplyMode::Off => *replies = Replies::Off,
            // Within OFF it changes nothing.
            ReplyMode::Skip if *replies == Replies::On => *replies = Replies::SkipNext,
            ReplyMode::Skip => {}
        }
    }
}

/// A checked name: printable ASCII.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
