//! Logging in on the memcached port: as memcached with an auth file (`-Y`), the first command is
//! `set <any key> <flags> <exptime> <length>` with the body `user password`.

use wire::memcached::{Command, Encoder, Rejection, Reply, Store, StoreVerb};

use crate::connection::Ending;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::password;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Before the log-in nothing but the log-in, `version` and `quit` is accepted.
    pub(super) fn authenticate(&mut self, slot: usize, parsed: Result<Command<'a>, Rejection<'a>>) {
        match parsed {
            Ok(Command::Store(Store { verb: StoreVerb::Set, value, .. })) => {
                self.log_in_memcached(slot, value);
            }
            Ok(command @ (Command::Quit | Command::Version)) => self.run_memcached(slot, command),
            Ok(_) => self.client_error(slot, b"CLIENT_ERROR unauthenticated\r\n"),
            Err(rejection) => {
                self.core.connections[slot].input.skip_bytes += rejection.swallow_bytes;
                self.client_error(slot, b"CLIENT_ERROR unauthenticated\r\n");
            }
        }
    }

    /// By `--auth-file`; without it the user may be any, for there is one password.
    fn log_in_memcached(&mut self, slot: usize, body: &[u8]) {
        self.core.counters().auth_attempts.add(1);
        let blank = body.iter().position(|byte| *byte == b' ');
        let shared = &self.core.shared;
        let is_right = match (blank.map(|at| (&body[..at], &body[at + 1..])), shared.users()) {
            (None, _) => false,
            (Some((user, given)), Some(users)) => users.admit(user, given),
            (Some((_, given)), None) => {
                let password = shared.config().requirepass.as_deref();
                password.is_some_and(|password| password::matches(password.as_bytes(), given))
            }
        };
        if is_right {
            self.core.connections[slot].memcached().needs_auth = false;
            return self.reply_to(slot, |out| Encoder::new(out).reply(Reply::Stored));
        }
        self.core.counters().auth_errors.add(1);
        self.client_error(slot, b"CLIENT_ERROR authentication failure\r\n");
    }

    /// As memcached, keep the connection: the client may try again. One that sends garbage is
    /// closed by the parser.
    fn client_error(&mut self, slot: usize, line: &[u8]) {
        self.reply_to(slot, |out| out.extend_from_slice(line));
        debug_assert!(self.core.connections[slot].ending == Ending::Open);
    }
}
