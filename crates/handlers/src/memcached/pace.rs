//! The memcached commands that may be long (`pace`).

use wire::memcached::binary::{Request, Verb};
use wire::memcached::{Command, Meta, MetaMode, MetaVerb, Rejection, StatsKind, Store, StoreVerb};

use crate::gather::Gather;

/// Whether a command waits until connections with short commands have had their turn.
#[inline]
pub(super) fn memcached_waits<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: &Result<Command<'a>, Rejection<'a>>,
    command_bytes: usize,
) -> bool {
    match parsed {
        // Only their own length counts.
        Ok(Command::Get(_) | Command::Store(Store { verb: StoreVerb::Set, .. })) | Err(_) => {
            gather.long_command_waits(slot, command_bytes)
        }
        Ok(command) => rare_command_waits(gather, slot, command, command_bytes),
    }
}

#[inline(never)]
fn rare_command_waits<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    command: &Command<'a>,
    len_bytes: usize,
) -> bool {
    let is_long = |gather: &mut Gather<'_, 'a>| is_long_memcached(gather, slot, command);
    gather.waits_behind_others(slot, len_bytes, is_long)
}

/// Whether a command may copy a long value, or looks at the whole server.
fn is_long_memcached<'a>(gather: &mut Gather<'_, 'a>, slot: usize, command: &Command<'a>) -> bool {
    if gather.core.connections[slot].must_run_now() {
        return false;
    }
    match command {
        // Further keys are looked at before each (I5 of `several`).
        Command::GetAndTouch { retrieve, .. } => {
            let first = retrieve.keys.into_iter().next();
            first.is_some_and(|key| gather.has_long_value(slot, key))
        }
        Command::Store(store) => {
            matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend)
                && gather.has_long_value(slot, store.key)
        }
        Command::Touch(touch) => gather.has_long_value(slot, touch.key),
        Command::Meta(meta) if may_copy(meta) => match meta.decoded_key() {
            Some(key) => gather.has_long_value(slot, &key),
            None => gather.has_long_value(slot, meta.key),
        },
        Command::Stats(StatsKind::Reset | StatsKind::Detail { .. } | StatsKind::Other(_)) => false,
        Command::Stats(_) | Command::Dump(_) => true,
        _ => false,
    }
}

/// The same of a binary request.
pub(super) fn is_long_binary<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    request: &Request<'a>,
) -> bool {
    use Verb::{Append, GetAndTouch, GetKeyAndTouch, Prepend, Stat, Touch};
    match request.verb {
        _ if gather.core.connections[slot].must_run_now() => false,
        Append | Prepend | Touch | GetAndTouch | GetKeyAndTouch => {
            gather.has_long_value(slot, request.key)
        }
        verb => verb == Stat,
    }
}

/// Whether a meta command may copy the value that is there.
pub(super) fn may_copy(meta: &Meta<'_>) -> bool {
    let flags = meta.flags();
    match meta.verb {
        MetaVerb::Get => {
            flags.exptime.is_some() || flags.recache.is_some() || flags.vivify.is_some()
        }
        MetaVerb::Set => matches!(flags.mode, MetaMode::Append | MetaMode::Prepend),
        MetaVerb::Delete => flags.invalidates,
        MetaVerb::Arithmetic | MetaVerb::Debug => false,
    }
}
