//! Commands about the server and its whole store.

use commands::reply::Shape;
use runtime::walks::Caller;
use store::request::Op;
use wire::resp::{ArgIter, CommandId, ServerCommand, Spec};

use crate::gather::Gather;
use crate::resp::acl::acl;
use crate::resp::client::client_operate;
use crate::resp::cluster::role;
use crate::resp::command::command_list;
use crate::resp::command::walk::{
    command_docs, command_get_keys, command_get_keys_and_flags, command_info, command_table,
};
use crate::resp::config::{config_get, config_rewrite, config_set, shutdown, time};
use crate::resp::debug::debug;
use crate::resp::foreign::foreign;
use crate::resp::hot_keys::hot_keys;
use crate::resp::info::info;
use crate::resp::latency::latency;
use crate::resp::memory::memory;
use crate::resp::persistence::save;
use crate::resp::restore::swap_databases;
use crate::resp::scan::{database_size, flush_all};
use crate::resp::slow_log::slow_log;
use crate::resp::subscribe::{subscribe, unsubscribe};

/// Runs a command about the server.
pub(super) fn run_server<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: ServerCommand<'a>,
) {
    match command {
        ServerCommand::MemoryUsage { key } => {
            gather.single(caller, key, Op::Get, Shape::MemoryUsage);
        }
        ServerCommand::SwapDb { indexes } => swap_databases(gather, caller, indexes),
        ServerCommand::CommandTable => command_table(gather, caller),
        ServerCommand::CommandCount => {
            let count = Spec::top_level().count() as i64;
            gather.say(caller, |encoder| encoder.integer(count));
        }
        ServerCommand::CommandInfo { names } => command_info(gather, caller, names),
        ServerCommand::CommandDocs { names } => command_docs(gather, caller, names),
        ServerCommand::CommandGetKeys { keys } => command_get_keys(gather, caller, keys),
        ServerCommand::CommandList(filter) => command_list(gather, caller, filter),
        ServerCommand::DbSize => database_size(gather, caller),
        ServerCommand::Flush { .. } => flush_all(gather, caller, false),
        ServerCommand::Info { sections } => info(gather, caller, sections),
        ServerCommand::ConfigGet { patterns } => config_get(gather, caller, patterns),
        ServerCommand::ConfigSet { pairs } => config_set(gather, caller, pairs),
        ServerCommand::ConfigResetStat => {
            gather.settle(caller.slot);
            gather.core.shared.reset_totals();
            gather.say(caller, |encoder| encoder.ok());
        }
        ServerCommand::ConfigRewrite => config_rewrite(gather, caller),
        ServerCommand::Time => time(gather, caller),
        ServerCommand::LastSave => {
            let seconds = (gather.core.shared.observations().saved_at().0 / 1000).cast_signed();
            gather.say(caller, |encoder| encoder.integer(seconds));
        }
        ServerCommand::Role => role(gather, caller),
        ServerCommand::Shutdown(request) => shutdown(gather, caller, request),
    }
}

/// A command whose arguments are parsed where it runs.
pub(super) fn operate<'a>(
    gather: &mut Gather<'_, 'a>,
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
fn monitor(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.settle(caller.slot);
    let client = &gather.core.connections[caller.slot].client;
    gather.core.shared.observations().monitors.add(client);
    gather.say(caller, |encoder| encoder.ok());
}
