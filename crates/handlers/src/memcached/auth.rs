//! Login on the memcached port. As in memcached with an auth file (`-Y`), the first command is
//! `set <any key> <flags> <exptime> <length>` with the body `user password`. In the binary protocol
//! it is SASL's mechanism PLAIN.

use counters::MemcachedCommand;
use runtime::connection::Ending;
use sessions::logins::Origin;
use wire::memcached::binary::{Request, Status, Verb};
use wire::memcached::{Command, Encoder, Rejection, Reply, Store, StoreVerb};

use crate::gather::Gather;
use crate::memcached::binary::{binary_refuse, binary_say};
use crate::memcached::{caller, run_memcached};

/// Before the login only the login itself, `version` and `quit` are accepted.
pub(super) fn authenticate<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: Result<Command<'a>, Rejection<'a>>,
) {
    match parsed {
        Ok(Command::Store(Store { verb: StoreVerb::Set, value, .. })) => {
            log_in_memcached(gather, slot, value);
        }
        Ok(command @ (Command::Quit | Command::Version)) => run_memcached(gather, slot, command),
        Ok(_) => client_error(gather, slot, b"CLIENT_ERROR unauthenticated\r\n"),
        Err(rejection) => {
            gather.core.connections[slot].input.skip_bytes += rejection.swallow_bytes;
            client_error(gather, slot, b"CLIENT_ERROR unauthenticated\r\n");
        }
    }
}

/// Whether a user is admitted: by `--auth-file`; without it the user name is ignored, and the
/// password is the default user's.
///
/// # Errors
///
/// The line that says why not.
fn let_in<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    given: Option<(&[u8], &[u8])>,
) -> Result<(), &'static [u8]> {
    gather.core.counters().auth_attempts.add(1);
    let origin = Origin::of(&gather.core.connections[slot].client.peer);
    if gather.core.refuses_logins(origin) {
        return Err(b"CLIENT_ERROR too many failed logins from this address\r\n");
    }
    let shared = &gather.core.shared;
    let is_right = match (given, shared.users()) {
        (None, _) => false,
        (Some((user, given)), Some(users)) => users.admit(user, given),
        (Some((_, given)), None) => gather.core.acl.default().admits_everywhere(given),
    };
    // As for a login by RESP: earlier failures of the same address delay its answer.
    gather.settle(slot);
    gather.core.pace_login(slot, origin, is_right);
    if !is_right {
        gather.core.counters().auth_errors.add(1);
        return Err(b"CLIENT_ERROR authentication failure\r\n");
    }
    gather.core.connections[slot].memcached().needs_auth = false;
    Ok(())
}

fn log_in_memcached(gather: &mut Gather<'_, '_>, slot: usize, body: &[u8]) {
    let blank = body.iter().position(|byte| *byte == b' ');
    match let_in(gather, slot, blank.map(|at| (&body[..at], &body[at + 1..]))) {
        Ok(()) => gather.reply_to(slot, |out| Encoder::new(out).reply(Reply::Stored)),
        Err(line) => client_error(gather, slot, line),
    }
}

/// SASL's list mechs, auth and step. As in memcached, a client that starts a new login loses
/// the old one.
pub(super) fn sasl<'a>(gather: &mut Gather<'_, 'a>, slot: usize, request: &Request<'a>) {
    caller(gather, slot, MemcachedCommand::Auth, false);
    let protocol_state = gather.core.connections[slot].memcached();
    protocol_state.needs_auth = true;
    let is_begun = match request.verb {
        Verb::ListMechanisms => {
            return binary_say(gather, slot, request.head, |to| to.text(PLAIN));
        }
        Verb::Step => std::mem::take(&mut protocol_state.is_sasl_begun),
        _ => request.key.eq_ignore_ascii_case(PLAIN.as_bytes()),
    };
    if is_begun && request.verb == Verb::Authenticate && request.value.is_empty() {
        protocol_state.is_sasl_begun = true;
        return binary_refuse(gather, slot, request.head, Status::AuthContinue);
    }
    let given = if is_begun { plain(request.value) } else { None };
    if let_in(gather, slot, given).is_ok() {
        binary_say(gather, slot, request.head, |to| to.text("Authenticated"));
    } else {
        binary_refuse(gather, slot, request.head, Status::AuthError);
    }
}

/// Replies with an error and keeps the connection, as memcached does: the client may try again.
/// A connection that sends garbage is closed by the parser.
fn client_error(gather: &mut Gather<'_, '_>, slot: usize, line: &[u8]) {
    gather.reply_to(slot, |out| out.extend_from_slice(line));
    let ending = gather.core.connections[slot].ending;
    debug_assert!(matches!(ending, Ending::Open | Ending::Resting));
}

/// The only mechanism: the plain password, because the port is local or behind TLS.
const PLAIN: &str = "PLAIN";

/// User and password in PLAIN's message (RFC 4616): `authorize-as NUL user NUL password`. No user
/// may act for another.
fn plain(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|byte| *byte == 0);
    let (acts_as, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && !user.is_empty() && !password.is_empty();
    (is_whole && (acts_as.is_empty() || acts_as == user)).then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn plain_has_a_user_and_a_password() {
        let alice = Some((&b"alice"[..], &b"secret"[..]));
        assert_eq!(plain(b"\0alice\0secret"), alice);
        assert_eq!(plain(b"alice\0alice\0secret"), alice);
        for message in [
            &b""[..],
            b"alice",
            b"\0alice",
            b"\0alice\0",
            b"\0\0secret",
            b"bob\0alice\0secret",
            b"\0alice\0secret\0",
        ] {
            assert_eq!(plain(message), None, "{message:?}");
        }
    }
}
