//! COMMAND: describes the server's commands to clients.

pub(super) mod walk;

use commands::facts::categories;
use runtime::walks::Caller;
use wire::resp::{CommandList, ErrorReply, NameGlob, Spec};

use crate::gather::Gather;

pub(super) fn command_list<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    filter: CommandList<'a>,
) {
    let glob = match filter {
        CommandList::Pattern(pattern) => match NameGlob::new(pattern) {
            Ok(glob) => Some(glob),
            Err(error) => return gather.fail(caller, &ErrorReply::Other(error.text())),
        },
        _ => None,
    };
    let is_listed = |spec: &&'static Spec| match filter {
        CommandList::All => true,
        CommandList::Module(_) => false,
        CommandList::AclCategory(category) => {
            categories(spec).any(|name| name.as_bytes().eq_ignore_ascii_case(category))
        }
        CommandList::Pattern(_) => glob.as_ref().is_some_and(|glob| glob.matches(spec.name)),
    };
    // Subcommands too, unlike COMMAND COUNT: Redis lists every full name.
    let names: Vec<&str> = Spec::all().iter().filter(is_listed).map(|spec| spec.name).collect();
    gather.say(caller, |encoder| {
        encoder.array_header(names.len());
        for name in names {
            encoder.bulk(name.as_bytes());
        }
    });
}
