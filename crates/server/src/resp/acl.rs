//! ACL: the one user that there is, and who failed to log in.
//!
//! The user `default` may do everything; `requirepass` is its password. Further users, and rights
//! by command and key, are refused in one line: nobody may think that a rule holds.

use wire::resp::number::parse_i64;
use wire::resp::{
    ArgIter, AuthRequest, CommandError, CommandId, Encoder, ErrorReply, Spec, asked_command,
};

use super::Caller;
use super::command::categories;
use crate::auth_log::Failure;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::password;

/// The only user there is.
pub(super) const DEFAULT_USER: &[u8] = b"default";

/// The categories of Redis; no command is in some of them.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

const ONE_USER: ErrorReply<'static> = ErrorReply::Other(
    "there are no users but default, who may do everything: requirepass is its password",
);

const NO_FILE: ErrorReply<'static> =
    ErrorReply::Other("there is no ACL file: the only user is default, by requirepass");

/// Entries that ACL LOG shows unless it is told.
const SHOWN: usize = 10;

/// Bits of a password, unless they are given, and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs one of these.
    pub(super) fn acl(&mut self, caller: Caller, id: CommandId, mut args: ArgIter<'a>) {
        self.settle(caller.slot);
        match id {
            CommandId::AclWhoAmI => self.say(caller, |encoder| encoder.bulk(DEFAULT_USER)),
            CommandId::AclUsers => self.say(caller, |encoder| {
                encoder.array_header(1);
                encoder.bulk(DEFAULT_USER);
            }),
            CommandId::AclList => {
                let password = match self.password_digest() {
                    Some(digest) => format!("#{digest}"),
                    None => "nopass".to_owned(),
                };
                let line = format!("user default on {password} ~* &* +@all");
                self.say(caller, |encoder| {
                    encoder.array_header(1);
                    encoder.bulk(line.as_bytes());
                });
            }
            CommandId::AclGetUser => self.acl_get_user(caller, args.next().unwrap_or_default()),
            CommandId::AclCat => self.acl_cat(caller, args),
            CommandId::AclGenPass => self.acl_generate(caller, args),
            CommandId::AclLog => self.acl_log(caller, args),
            CommandId::AclDryRun => self.acl_dry_run(caller, args),
            CommandId::AclDelUser if args.any(|user| user == DEFAULT_USER) => {
                let text = "The 'default' user cannot be removed";
                self.fail(caller, &ErrorReply::Other(text));
            }
            CommandId::AclDelUser => self.say(caller, |encoder| encoder.integer(0)),
            CommandId::AclLoad | CommandId::AclSave => self.fail(caller, &NO_FILE),
            _ => self.fail(caller, &ONE_USER),
        }
    }

    /// As Redis shows a password; `None`: there is none.
    fn password_digest(&self) -> Option<String> {
        let password = self.core.shared.config().requirepass.as_ref()?;
        Some(password::digest(password.as_bytes()))
    }

    fn acl_get_user(&mut self, caller: Caller, user: &'a [u8]) {
        if user != DEFAULT_USER {
            return self.say(caller, |encoder| encoder.null());
        }
        let digest = self.password_digest();
        self.say(caller, |encoder| encode_user(encoder, digest.as_deref()));
    }

    fn acl_cat(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        let Some(wanted) = args.next() else {
            return self.say(caller, |encoder| encode_names(encoder, &CATEGORIES));
        };
        if args.next().is_some() {
            return self.fail(caller, &ErrorReply::SubcommandSyntax(CommandId::AclCat));
        }
        let is_wanted = |name: &str| name.as_bytes().eq_ignore_ascii_case(wanted);
        if !CATEGORIES.iter().any(|name| is_wanted(name)) {
            let text = format!("Unknown category '{}'", String::from_utf8_lossy(wanted));
            return self.fail(caller, &ErrorReply::Other(&text));
        }
        let in_it = |spec: &&'static Spec| categories(spec).any(is_wanted);
        let names: Vec<&str> = Spec::all().iter().filter(in_it).map(|spec| spec.name).collect();
        self.say(caller, |encoder| encode_names(encoder, &names));
    }

    fn acl_generate(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        let bits = match (args.next(), args.next()) {
            (None, _) => Some(PASSWORD_BITS),
            (Some(bits), None) => parse_i64(bits),
            _ => {
                let error = ErrorReply::SubcommandSyntax(CommandId::AclGenPass);
                return self.fail(caller, &error);
            }
        };
        let Some(bits) = bits else { return self.fail(caller, &ErrorReply::NotAnInteger) };
        if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
            let text = "ACL GENPASS argument must be the number of bits for the output password, \
                        a positive number up to 4096";
            return self.fail(caller, &ErrorReply::Other(text));
        }
        match password::random_hex((bits as usize).div_ceil(4)) {
            Ok(text) => self.say(caller, |encoder| encoder.bulk(text.as_bytes())),
            Err(error) => {
                tracing::warn!("no random bytes: {error}");
                self.fail(caller, &ErrorReply::Other("the system gives no random bytes"));
            }
        }
    }

    fn acl_log(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        let log = self.core.shared.auth_log();
        let count = match (args.next(), args.next()) {
            (None, _) => Some(SHOWN),
            (Some(word), None) if word.eq_ignore_ascii_case(b"reset") => {
                log.clear();
                return self.say(caller, |encoder| encoder.ok());
            }
            (Some(count), None) => {
                parse_i64(count).map(|count| usize::try_from(count).unwrap_or(0))
            }
            _ => {
                let error = ErrorReply::SubcommandSyntax(CommandId::AclLog);
                return self.fail(caller, &error);
            }
        };
        let Some(count) = count else { return self.fail(caller, &ErrorReply::NotAnInteger) };
        let (failures, now) = (log.newest(count), self.core.now);
        self.say(caller, |encoder| {
            encoder.array_header(failures.len());
            for failure in &failures {
                let age = now.0.saturating_sub(failure.at.0) as f64 / 1000.0;
                encode_failure(encoder, failure, age);
            }
        });
    }

    fn acl_dry_run(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        let user = args.next().unwrap_or_default();
        if user != DEFAULT_USER {
            let text = format!("User '{}' not found", String::from_utf8_lossy(user));
            return self.fail(caller, &ErrorReply::Other(&text));
        }
        match asked_command(args) {
            None => {
                let name = args.next().unwrap_or_default();
                let text = format!("Command '{}' not found", String::from_utf8_lossy(name));
                self.fail(caller, &ErrorReply::Other(&text));
            }
            Some(spec) if !spec.accepts_count(args.len()) => {
                self.refuse(caller, &CommandError::WrongArity(spec.id));
            }
            Some(_) => self.say(caller, |encoder| encoder.ok()),
        }
    }

    /// An attempt to log in failed.
    #[cold]
    pub(super) fn note_failed_login(&mut self, caller: Caller, auth: &AuthRequest<'a>) {
        self.core.counters().auth_errors.add(1);
        let client = std::sync::Arc::clone(&self.core.connections[caller.slot].client);
        let info = self.describe(caller, &client);
        let user = auth.user.unwrap_or(DEFAULT_USER);
        self.core.shared.auth_log().add(user, info.trim_end(), self.core.now);
    }
}

fn encode_names(encoder: &mut Encoder<'_>, names: &[&str]) {
    encoder.array_header(names.len());
    names.iter().for_each(|name| encoder.bulk(name.as_bytes()));
}

/// What ACL GETUSER tells of the default user.
fn encode_user(encoder: &mut Encoder<'_>, digest: Option<&str>) {
    encoder.map_header(6);
    encoder.bulk(b"flags");
    let flags: &[&str] = if digest.is_some() { &["on"] } else { &["on", "nopass"] };
    encoder.set_header(flags.len());
    flags.iter().for_each(|flag| encoder.bulk(flag.as_bytes()));
    encoder.bulk(b"passwords");
    encode_names(encoder, digest.as_slice());
    for (name, rule) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        encoder.bulk(name.as_bytes());
        encoder.bulk(rule.as_bytes());
    }
    encoder.bulk(b"selectors");
    encoder.array_header(0);
}

/// One entry of ACL LOG.
fn encode_failure(encoder: &mut Encoder<'_>, failure: &Failure, age_seconds: f64) {
    encoder.map_header(7);
    encoder.bulk(b"count");
    encoder.integer(failure.count.cast_signed());
    let words: [(&str, &[u8]); 4] = [
        ("reason", b"auth"),
        ("context", b"toplevel"),
        ("object", b"AUTH"),
        ("username", &failure.user),
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
