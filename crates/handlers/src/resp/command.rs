//! COMMAND: describes the server's commands to clients.

pub(super) mod walk;

use commands::facts::categories;
use runtime::engine::Engine;
use runtime::walks::Caller;
use wire::resp::{ArgIter, Command, CommandId, CommandList, ErrorReply, NameGlob, Spec};

use crate::gather::Gather;
use crate::resp::acl::acl;
use crate::resp::client::client_operate;
use crate::resp::command::walk::{
    command_docs, command_get_keys, command_get_keys_and_flags, command_info, command_table,
};
use crate::resp::config::run_config;
use crate::resp::debug::debug;
use crate::resp::foreign::foreign;
use crate::resp::hot_keys::hot_keys;
use crate::resp::info::info;
use crate::resp::key_range::key_range;
use crate::resp::latency::latency;
use crate::resp::memory::memory;
use crate::resp::names::keys;
use crate::resp::persistence::save;
use crate::resp::scan::{database_size, flush_all, random_key, scan};
use crate::resp::slow_log::slow_log;
use crate::resp::subscribe::{subscribe, unsubscribe};

/// Runs `command` if it is one of these or of its neighbours in the server group.
pub(super) fn run_server<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    command: Command<'a>,
) -> Option<Command<'a>> {
    match command {
        Command::CommandTable => command_table(gather, caller),
        Command::CommandCount => {
            let count = Spec::top_level().count() as i64;
            gather.say(caller, |encoder| encoder.integer(count));
        }
        Command::CommandInfo { names } => command_info(gather, caller, names),
        Command::CommandDocs { names } => command_docs(gather, caller, names),
        Command::CommandGetKeys { keys } => command_get_keys(gather, caller, keys),
        Command::CommandList(filter) => command_list(gather, caller, filter),
        Command::KvRange(request) => key_range(gather, caller, &request),
        Command::Keys { pattern } => keys(gather, caller, pattern),
        Command::Scan(request) => scan(gather, caller, &request),
        Command::RandomKey => random_key(gather, caller),
        Command::DbSize => database_size(gather, caller),
        Command::Flush { .. } => flush_all(gather, caller, false),
        Command::Info { sections } => info(gather, caller, sections),
        Command::Operator { id, args } => operate(gather, caller, id, args),
        other => return run_config(gather, caller, other),
    }
    None
}

/// A command whose arguments are parsed where it runs.
fn operate<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    id: CommandId,
    args: ArgIter<'a>,
) {
    match id {
        CommandId::SlowlogGet | CommandId::SlowlogLen | CommandId::SlowlogReset => {
            slow_log(gather, caller, id, args);
        }
        CommandId::LatencyDoctor
        | CommandId::LatencyGraph
        | CommandId::LatencyHistogram
        | CommandId::LatencyHistory
        | CommandId::LatencyLatest
        | CommandId::LatencyReset => latency(gather, caller, id, args),
        CommandId::MemoryStats
        | CommandId::MemoryDoctor
        | CommandId::MemoryMallocStats
        | CommandId::MemoryPurge => memory(gather, caller, id),
        CommandId::Save | CommandId::BgSave | CommandId::BgRewriteAof => {
            save(gather, caller, id, args);
        }
        CommandId::ClientGetRedir
        | CommandId::ClientTracking
        | CommandId::ClientTrackingInfo
        | CommandId::ClientCaching
        | CommandId::ClientUnblock => client_operate(gather, caller, id, args),
        CommandId::Subscribe => subscribe(gather, caller, args),
        CommandId::Unsubscribe => unsubscribe(gather, caller, args),
        CommandId::AclCat
        | CommandId::AclDelUser
        | CommandId::AclDryRun
        | CommandId::AclGenPass
        | CommandId::AclGetUser
        | CommandId::AclList
        | CommandId::AclLoad
        | CommandId::AclLog
        | CommandId::AclSave
        | CommandId::AclSetUser
        | CommandId::AclUsers
        | CommandId::AclWhoAmI => acl(gather, caller, id, args),
        CommandId::Debug => debug(gather, caller, args),
        CommandId::HotKeysGet
        | CommandId::HotKeysList
        | CommandId::HotKeysReset
        | CommandId::HotKeysStart
        | CommandId::HotKeysStop => hot_keys(gather, caller, id, args),
        CommandId::Monitor => monitor(gather, caller),
        CommandId::CommandGetKeysAndFlags => command_get_keys_and_flags(gather, caller, args),
        _ => foreign(gather, caller, id, args),
    }
}

/// MONITOR: shows the client all commands from now on.
fn monitor<'a, E: Engine>(gather: &mut Gather<'_, 'a, E>, caller: Caller) {
    gather.settle(caller.slot);
    let client = &gather.core.connections[caller.slot].client;
    gather.core.shared.monitors().add(client);
    gather.say(caller, |encoder| encoder.ok());
}

fn command_list<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
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
