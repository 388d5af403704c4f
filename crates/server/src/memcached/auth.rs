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

    /// The user may be any: there is one password.
    fn log_in_memcached(&mut self, slot: usize, body: &[u8]) {
        self.core.counters().auth_attempts.add(1);
        let given = body.iter().position(|byte| *byte == b' ').map(|space| &body[space + 1..]);
        let is_right = match (&self.core.shared.config().requirepass, given) {
            (Some(password), Some(given)) => password::matches(password.as_bytes(), given),
            _ => false,
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
