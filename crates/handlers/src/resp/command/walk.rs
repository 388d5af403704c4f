//! The replies of COMMAND on many names or keys, as a source of slices.
//!
//! ```text
//!  COMMAND DOCS get nosuch get ... ─▶ Counting: 1024 names a turn ─▶ Named: 64 KiB a turn
//!  COMMAND INFO                    ─▶ All
//!  COMMAND GETKEYS mget a b ...    ─▶ Keys
//! ```

use commands::work::Work;
use runtime::walks::commands::{Detail, Flagged, STEPS_PER_BYTE};
use runtime::walks::{Caller, CommandWalk, Slice, Source};
use wire::resp::{ArgIter, Keys, Spec, keys_asked};

use crate::gather::Gather;
use crate::resp::slices::begin_slices;

/// COMMAND, and COMMAND INFO without names.
pub(in crate::resp) fn command_table(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.say(caller, |encoder| encoder.array_header(Spec::top_level().count()));
    let walk = CommandWalk::All { detail: Detail::Info, from: 0 };
    begin_slices(gather, caller, Source::Commands(walk));
}

pub(in crate::resp) fn command_info<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    names: ArgIter<'a>,
) {
    if names.len() == 0 {
        return command_table(gather, caller);
    }
    gather.say(caller, |encoder| encoder.array_header(names.len()));
    let walk = CommandWalk::Named { detail: Detail::Info, names: names.place_in(gather.raw) };
    begin_slices(gather, caller, Source::Commands(walk));
}

pub(in crate::resp) fn command_docs<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    names: ArgIter<'a>,
) {
    let walk = if names.len() == 0 {
        gather.say(caller, |encoder| encoder.map_header(Spec::top_level().count()));
        CommandWalk::All { detail: Detail::Docs, from: 0 }
    } else {
        let names = names.place_in(gather.raw);
        CommandWalk::Counting { known_count: 0, left: names, names }
    };
    begin_slices(gather, caller, Source::Commands(walk));
}

pub(in crate::resp) fn command_get_keys<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    keys: Keys<'a>,
) {
    tell_keys(gather, caller, keys, None);
}

pub(in crate::resp) fn command_get_keys_and_flags<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    words: ArgIter<'a>,
) {
    match keys_asked(words) {
        Err(error) => gather.fail(caller, &error),
        Ok((spec, keys)) => {
            let words = words.place_in(gather.raw);
            tell_keys(gather, caller, keys, Some(Flagged { spec, words, at: 0 }));
        }
    }
}

fn tell_keys<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    keys: Keys<'a>,
    flags: Option<Flagged>,
) {
    gather.say(caller, |encoder| encoder.array_header(keys.len()));
    let (arguments, step) = keys.arguments();
    let keys = arguments.place_in(gather.raw);
    begin_slices(gather, caller, Source::Commands(CommandWalk::Keys { keys, step, flags }));
}

/// A slice of COMMAND's reply. A client that wants no reply gets none.
pub fn commands_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut CommandWalk,
    command: &[u8],
) -> Slice {
    let (mut ended, mut made_bytes) = (Slice::Last, 0);
    gather.say(caller, |encoder| {
        let start = encoder.out().len();
        ended = walk.encode(command, encoder);
        made_bytes = encoder.out().len() - start;
    });
    gather.core.charge(Work::steps(made_bytes as u64 * STEPS_PER_BYTE));
    ended
}
