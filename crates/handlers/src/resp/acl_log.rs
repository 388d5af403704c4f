//! Refusals to users: the check before a command, and ACL LOG.

use runtime::walks::Caller;
use sessions::acl::{DEFAULT_USER, Denied, Standing, User};
use sessions::auth_log::{Attempt, Failure, Reason};
use wire::Parsed;
use wire::resp::{
    ArgIter, AuthRequest, Command, CommandError, CommandId, Encoder, ErrorReply, Limits, Parser,
    Spec,
};

use crate::gather::Gather;
use crate::resp::client::describe;
use crate::resp::transaction::{forget_transaction, spoil};

pub(super) const DENIED_KEY: ErrorReply<'static> =
    ErrorReply::Denied("this user has no permissions to access one of the keys used as arguments");

const CHANGED: &str = "ACLs rules changed between the moment the transaction was accumulated and \
                       the EXEC call. This command is no longer allowed for the following reason: ";

/// The parsed command, if there is one.
fn asked(parsed: &Result<Command<'_>, CommandError<'_>>) -> Option<CommandId> {
    match parsed {
        Ok(command) => command.id(),
        Err(CommandError::Argument { id, .. }) => Some(*id),
        Err(_) => None,
    }
}

/// The object of a refusal: the command's full name, or the key.
pub(super) fn object_of(spec: &'static Spec, args: ArgIter<'_>, denied: Denied) -> Vec<u8> {
    let Denied::Key(at) = denied else { return spec.name.as_bytes().to_vec() };
    let has_keys = spec.keys.first > 0;
    let key = if has_keys { spec.keys.of(args).nth(at) } else { args.skip(1).nth(at) };
    key.unwrap_or_default().to_vec()
}

/// Checks a command of a user that may not do everything; returns whether it was refused.
#[inline(never)]
pub(super) fn is_denied<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: &Result<Command<'a>, CommandError<'a>>,
    raw: &[u8],
) -> bool {
    let is_in_multi = gather.core.connections[caller.slot].resp().is_queueing();
    let denied = denied(gather, caller, parsed, (raw, is_in_multi));
    let Some((spec, denied)) = denied else { return false };
    if is_in_multi {
        spoil(gather, caller.slot);
    }
    match denied {
        Denied::Command if spec.id == CommandId::Exec => {
            forget_transaction(gather, caller.slot);
            gather.fail(caller, &ErrorReply::DeniedExec);
        }
        Denied::Command => {
            let name = spec.name;
            let text = format!("this user has no permissions to run the '{name}' command");
            gather.fail(caller, &ErrorReply::Denied(&text));
        }
        Denied::Key(_) => gather.fail(caller, &DENIED_KEY),
    }
    true
}

/// Checks a queued command again: the user may have lost the right meanwhile.
pub(super) fn is_denied_in_exec(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    parsed: &Result<Command<'_>, CommandError<'_>>,
    raw: &[u8],
) -> bool {
    match gather.core.connections[caller.slot].resp().pass.standing {
        Standing::Open => return false,
        Standing::Restricted => {}
        Standing::NeedsAuth => {
            gather.fail(caller, &ErrorReply::NoAuth);
            return true;
        }
    }
    let denied = denied(gather, caller, parsed, (raw, true));
    let Some((_, denied)) = denied else { return false };
    let why = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
    };
    gather.fail(caller, &ErrorReply::Denied(&format!("{CHANGED}{why}")));
    true
}

fn denied(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    parsed: &Result<Command<'_>, CommandError<'_>>,
    (raw, is_in_multi): (&[u8], bool),
) -> Option<(&'static Spec, Denied)> {
    let spec = asked(parsed)?.spec();
    // Limits were checked when the command was framed.
    let limits = Limits::new(usize::MAX);
    let framed = Parser::default().parse(raw, &limits);
    let args = match &framed {
        Parsed::Done { value, .. } => value.iter(),
        _ => ArgIter::empty(),
    };
    let (core, slot) = (&mut *gather.core, caller.slot);
    let resp = core.connections[slot].resp();
    let user = resp.pass.user(&core.acl);
    let denied = user.check(spec, args).err()?;
    let reason = match denied {
        Denied::Command => Reason::Command,
        Denied::Key(_) => Reason::Key,
    };
    let (object, user) = (object_of(spec, args, denied), user.name.to_vec());
    note_refusal(gather, caller, Attempt { reason, is_in_multi, object, user });
    Some((spec, denied))
}

/// Records a failed attempt to log in.
#[cold]
pub(super) fn note_failed_login<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    auth: &AuthRequest<'a>,
) {
    gather.core.counters().auth_errors.add(1);
    let is_hello = caller.index == counters::CommandIndex::resp(CommandId::Hello);
    let object = if is_hello { b"HELLO".to_vec() } else { b"AUTH".to_vec() };
    let user = auth.user.unwrap_or(DEFAULT_USER).to_vec();
    let is_in_multi = gather.core.connections[caller.slot].resp().is_queueing();
    let attempt = Attempt { reason: Reason::Auth, is_in_multi, object, user };
    note_refusal(gather, caller, attempt);
}

/// Records that CLIENT TRACKING was refused for keys that the user may not read.
#[cold]
pub(super) fn note_denied_prefix(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    prefix: &[u8],
    user: &User,
) {
    let is_in_multi = gather.core.connections[caller.slot].resp().is_queueing();
    let (object, user) = (prefix.to_vec(), user.name.to_vec());
    note_refusal(gather, caller, Attempt { reason: Reason::Key, is_in_multi, object, user });
}

fn note_refusal(gather: &mut Gather<'_, '_>, caller: Caller, attempt: Attempt) {
    match attempt.reason {
        Reason::Command => gather.core.counters().denied_commands.add(1),
        Reason::Key => gather.core.counters().denied_keys.add(1),
        Reason::Auth => {}
    }
    let client = std::sync::Arc::clone(&gather.core.connections[caller.slot].client);
    let info = describe(gather, caller, &client);
    gather.core.shared.observations().auth_log.add(attempt, info.trim_end(), gather.core.now);
}

/// One entry of ACL LOG.
pub(super) fn encode_failure(encoder: &mut Encoder<'_>, failure: &Failure, age_seconds: f64) {
    let attempt = &failure.attempt;
    let context: &[u8] = if attempt.is_in_multi { b"multi" } else { b"toplevel" };
    encoder.map_header(7);
    encoder.bulk(b"count");
    encoder.integer(failure.count.cast_signed());
    let words: [(&str, &[u8]); 4] = [
        ("reason", attempt.reason.name().as_bytes()),
        ("context", context),
        ("object", &attempt.object),
        ("username", &attempt.user),
    ];
    for (name, word) in words {
        encoder.bulk(name.as_bytes());
        encoder.bulk(word);
    }
    encoder.bulk(b"age-seconds");
    encoder.double(age_seconds);
    encoder.bulk(b"client-info");
    encoder.bulk(failure.client_info.as_bytes());
}
