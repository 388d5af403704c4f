//! ACL: the users, and the rights of each.

use commands::facts::categories;
use runtime::walks::Caller;
use runtime::walks::Written;
use sessions::acl::{CATEGORIES, DEFAULT_USER, Denied, Selector, User};
use sessions::password;
use wire::resp::number::parse_i64;
use wire::resp::{ArgIter, CommandId, Encoder, ErrorReply, Spec, asked_command};

use super::acl_log::{encode_failure, object_of};

use crate::gather::Gather;
use crate::resp::disk_wait::write_to_disk;

const NO_FILE: ErrorReply<'static> = ErrorReply::Other(
    "This Redis instance is not configured to use an ACL file. You may want to specify users via \
     the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis \
     configuration file set) in order to store users in the Redis configuration.",
);

pub(super) const NOT_SAVED: ErrorReply<'static> = ErrorReply::Other(
    "There was an error trying to save the ACLs. Please check the server logs for more information",
);

/// The number of entries that ACL LOG shows by default.
const SHOWN: usize = 10;

/// The bits of a generated password by default, and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// Runs one of these.
pub(super) fn acl<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    args: ArgIter<'a>,
) {
    gather.settle(caller.slot);
    match id {
        CommandId::AclWhoAmI => {
            let core = &mut *gather.core;
            let pass = &core.connections[caller.slot].resp().pass;
            let name = pass.user(&core.acl).name.clone();
            gather.say(caller, |encoder| encoder.bulk(&name));
        }
        CommandId::AclUsers => acl_lines(gather, caller, |user| user.name.to_vec()),
        CommandId::AclList => acl_lines(gather, caller, User::describe),
        CommandId::AclGetUser => acl_get_user(gather, caller, args),
        CommandId::AclSetUser => acl_set_user(gather, caller, args),
        CommandId::AclDelUser => acl_delete_users(gather, caller, args),
        CommandId::AclCat => acl_cat(gather, caller, args),
        CommandId::AclGenPass => acl_generate(gather, caller, args),
        CommandId::AclLog => acl_log(gather, caller, args),
        CommandId::AclDryRun => acl_dry_run(gather, caller, args),
        _ => acl_file(gather, caller, id),
    }
}

fn acl_lines(gather: &mut Gather<'_, '_>, caller: Caller, line: impl Fn(&User) -> Vec<u8>) {
    let table = gather.core.shared.acl().table();
    gather.say(caller, |encoder| {
        encoder.array_header(table.users().len());
        table.users().for_each(|user| encoder.bulk(&line(user)));
    });
}

fn acl_get_user<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let table = gather.core.shared.acl().table();
    let user = args.next().and_then(|name| table.user(name));
    gather.say(caller, |encoder| match user {
        Some(user) => encode_user(encoder, user),
        None => encoder.null(),
    });
}

fn acl_set_user<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let name = args.next().unwrap_or_default();
    match gather.core.shared.acl().set_user(name, args) {
        Ok(()) => {
            acl_changed(gather, caller);
            gather.say(caller, |encoder| encoder.ok());
        }
        Err(error) => gather.fail(caller, &ErrorReply::Other(&error.to_string())),
    }
}

fn acl_delete_users<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let names = args;
    if args.any(|user| user == DEFAULT_USER) {
        let text = "The 'default' user cannot be removed";
        return gather.fail(caller, &ErrorReply::Other(text));
    }
    let count = gather.core.shared.acl().delete(names);
    acl_changed(gather, caller);
    gather.say(caller, |encoder| encoder.integer(i64::try_from(count).unwrap_or(i64::MAX)));
}

/// Applies a change of the users: to this worker's connections at once, and to those of others
/// before they are read again.
pub(super) fn acl_changed(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.core.renew_passes_now(Some(caller.slot));
    gather.core.shared.wake_all();
}

fn acl_file(gather: &mut Gather<'_, '_>, caller: Caller, id: CommandId) {
    let acl = gather.core.shared.acl();
    if !acl.has_file() {
        return gather.fail(caller, &NO_FILE);
    }
    if id == CommandId::AclLoad {
        let loaded = acl.load();
        return match loaded {
            Ok(()) => {
                acl_changed(gather, caller);
                gather.say(caller, |encoder| encoder.ok());
            }
            Err(text) => gather.fail(caller, &ErrorReply::Other(&text)),
        };
    }
    write_to_disk(gather, caller, Written::Users, |shared| shared.acl().save());
}

fn acl_cat<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let Some(wanted) = args.next() else {
        return gather.say(caller, |encoder| encode_names(encoder, &CATEGORIES));
    };
    if args.next().is_some() {
        return gather.fail(caller, &ErrorReply::SubcommandSyntax(CommandId::AclCat));
    }
    let is_wanted = |name: &str| name.as_bytes().eq_ignore_ascii_case(wanted);
    if !CATEGORIES.iter().any(|name| is_wanted(name)) {
        let text = format!("Unknown category '{}'", String::from_utf8_lossy(wanted));
        return gather.fail(caller, &ErrorReply::Other(&text));
    }
    let in_it = |spec: &&'static Spec| categories(spec).any(is_wanted);
    let names: Vec<&str> = Spec::all().iter().filter(in_it).map(|spec| spec.name).collect();
    gather.say(caller, |encoder| encode_names(encoder, &names));
}

fn acl_generate<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let bits = match (args.next(), args.next()) {
        (None, _) => Some(PASSWORD_BITS),
        (Some(bits), None) => parse_i64(bits),
        _ => {
            let error = ErrorReply::SubcommandSyntax(CommandId::AclGenPass);
            return gather.fail(caller, &error);
        }
    };
    let Some(bits) = bits else { return gather.fail(caller, &ErrorReply::NotAnInteger) };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        let text = "ACL GENPASS argument must be the number of bits for the output password, \
                    a positive number up to 4096";
        return gather.fail(caller, &ErrorReply::Other(text));
    }
    match password::random_hex((bits as usize).div_ceil(4)) {
        Ok(text) => gather.say(caller, |encoder| encoder.bulk(text.as_bytes())),
        Err(error) => {
            tracing::warn!("no random bytes: {error}");
            gather.fail(caller, &ErrorReply::Other("the system gives no random bytes"));
        }
    }
}

fn acl_log<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let log = &gather.core.shared.observations().auth_log;
    let count = match (args.next(), args.next()) {
        (None, _) => Some(SHOWN),
        (Some(word), None) if word.eq_ignore_ascii_case(b"reset") => {
            log.clear();
            return gather.say(caller, |encoder| encoder.ok());
        }
        (Some(count), None) => parse_i64(count).map(|count| usize::try_from(count).unwrap_or(0)),
        _ => {
            let error = ErrorReply::SubcommandSyntax(CommandId::AclLog);
            return gather.fail(caller, &error);
        }
    };
    let Some(count) = count else { return gather.fail(caller, &ErrorReply::NotAnInteger) };
    let (failures, now) = (log.newest(count), gather.core.now);
    gather.say(caller, |encoder| {
        encoder.array_header(failures.len());
        for failure in &failures {
            let age = now.0.saturating_sub(failure.at.0) as f64 / 1000.0;
            encode_failure(encoder, failure, age);
        }
    });
}

fn acl_dry_run<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, mut args: ArgIter<'a>) {
    let name = args.next().unwrap_or_default();
    let table = gather.core.shared.acl().table();
    let Some(user) = table.user(name) else {
        let text = format!("User '{}' not found", String::from_utf8_lossy(name));
        return gather.fail(caller, &ErrorReply::Other(&text));
    };
    let Some(spec) = asked_command(args) else {
        let name = args.next().unwrap_or_default();
        let text = format!("Command '{}' not found", String::from_utf8_lossy(name));
        return gather.fail(caller, &ErrorReply::Other(&text));
    };
    if !spec.accepts_count(args.len()) {
        return gather.fail(caller, &ErrorReply::WrongArity(spec.id));
    }
    let Err(denied) = user.check(spec, args) else {
        return gather.say(caller, |encoder| encoder.ok());
    };
    let object = object_of(spec, args, denied);
    let (before, after): (&[u8], &[u8]) = match denied {
        Denied::Command => (b"run the '", b"' command"),
        Denied::Key(_) => (b"access the '", b"' key"),
    };
    let text = [b"This user has no permissions to ", before, &object, after].concat();
    gather.say(caller, |encoder| encoder.bulk(&text));
}

fn encode_names(encoder: &mut Encoder<'_>, names: &[&str]) {
    encoder.array_header(names.len());
    names.iter().for_each(|name| encoder.bulk(name.as_bytes()));
}

/// Encodes the reply of ACL GETUSER.
fn encode_user(encoder: &mut Encoder<'_>, user: &User) {
    encoder.map_header(6);
    encoder.bulk(b"flags");
    let flags = user.flags();
    encoder.set_header(flags.len());
    flags.iter().for_each(|flag| encoder.bulk(flag.as_bytes()));
    encoder.bulk(b"passwords");
    encoder.array_header(user.passwords.len());
    user.passwords.iter().for_each(|digest| encoder.bulk(digest.as_bytes()));
    encode_selector(encoder, &user.root);
    encoder.bulk(b"selectors");
    encoder.array_header(user.selectors.len());
    for selector in &user.selectors {
        encoder.map_header(3);
        encode_selector(encoder, selector);
    }
}

fn encode_selector(encoder: &mut Encoder<'_>, selector: &Selector) {
    encoder.bulk(b"commands");
    encoder.bulk(selector.commands_text().as_bytes());
    encoder.bulk(b"keys");
    encoder.bulk(&selector.keys_text());
    encoder.bulk(b"channels");
    encoder.bulk(&selector.channels_text());
}
