//! Finds the row of the table for a command's name.
//!
//! Names are at most 16 bytes, so a folded name is one integer and the table a sorted array of
//! them, built at compile time. A lookup is about seven compares and no string compare.

use crate::resp::args::{ArgIter, Args};
use crate::resp::error::CommandError;
use crate::resp::table::{CommandId, Spec, is_subcommand};

/// The longest name of a command that is not a subcommand.
const NAME_MAX_BYTES: usize = 16;

type Folded = u128;

const TOP_LEVEL_COUNT: usize = {
    let mut count = 0;
    let mut row = 0;
    while row < CommandId::COUNT {
        count += !is_subcommand(Spec::NAMES[row].0) as usize;
        row += 1;
    }
    count
};

/// Folded names with their commands, ascending.
static SORTED: [(Folded, CommandId); TOP_LEVEL_COUNT] = {
    let mut sorted = [(Folded::MAX, CommandId::Get); TOP_LEVEL_COUNT];
    let mut filled = 0;
    let mut row = 0;
    while row < CommandId::COUNT {
        let (name, id) = Spec::NAMES[row];
        row += 1;
        if is_subcommand(name) {
            continue;
        }
        let folded = fold(name.as_bytes()).expect("names of the table are short");
        let mut at = filled;
        while at > 0 && sorted[at - 1].0 > folded {
            sorted[at] = sorted[at - 1];
            at -= 1;
        }
        sorted[at] = (folded, id);
        filled += 1;
    }
    sorted
};

/// The name in lower case, padded with NUL, as a number. A name that ends in NUL has none: it would
/// equal the name without it.
#[inline]
const fn fold(name: &[u8]) -> Option<Folded> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES || name[name.len() - 1] == 0 {
        return None;
    }
    let mut bytes = [0; NAME_MAX_BYTES];
    let mut at = 0;
    while at < name.len() {
        bytes[at] = name[at];
        at += 1;
    }
    bytes.make_ascii_lowercase();
    Some(Folded::from_le_bytes(bytes))
}

/// The command of this name.
pub(super) fn by_name(name: &[u8]) -> Option<CommandId> {
    let folded = fold(name)?;
    let found = SORTED.binary_search_by(|(other, _)| other.cmp(&folded)).ok()?;
    Some(SORTED[found].1)
}

/// The command or subcommand in `args`, and the arguments after the name; arity is not checked.
#[inline]
pub(super) fn find<'a>(args: &Args<'a>) -> Result<(&'static Spec, ArgIter<'a>), CommandError<'a>> {
    let mut words = args.iter();
    let name = words.next().unwrap_or_default();
    let Some(id) = by_name(name) else {
        return Err(unknown(args, name));
    };
    let spec = id.spec();
    if !id.is_container() {
        return Ok((spec, words));
    }
    let Some(subcommand) = words.next() else {
        return Ok((spec, words));
    };
    find_subcommand(spec, subcommand).map(|sub| (sub, words))
}

#[inline(never)]
fn find_subcommand<'a>(
    spec: &'static Spec,
    subcommand: &'a [u8],
) -> Result<&'static Spec, CommandError<'a>> {
    let own_name = |sub: &&Spec| sub.own_name().as_bytes().eq_ignore_ascii_case(subcommand);
    spec.subcommands()
        .find(own_name)
        .ok_or(CommandError::UnknownSubcommand { parent: spec.id, subcommand })
}

#[cold]
fn unknown<'a>(args: &Args<'a>, name: &[u8]) -> CommandError<'a> {
    let is_web = [&b"post"[..], b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word));
    if is_web { CommandError::CrossProtocol } else { CommandError::UnknownCommand { args: *args } }
}
