//! COMMAND: describes the server's commands to clients.

mod arguments;
mod key_specs;
mod walk;

use wire::resp::{
    ArgIter, Command, CommandId, CommandList, Encoder, ErrorReply, Flags, Group, NameGlob, Spec,
};

use arguments::Arguments;
pub(crate) use key_specs::{Access, key_access};
pub(super) use walk::CommandWalk;

use super::Caller;
use crate::engine::Engine;
use crate::gather::Gather;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs `command` if it is one of these or of its neighbours in the server group.
    pub(super) fn run_server(
        &mut self,
        caller: Caller,
        command: Command<'a>,
    ) -> Option<Command<'a>> {
        match command {
            Command::CommandTable => self.command_table(caller),
            Command::CommandCount => {
                let count = Spec::top_level().count() as i64;
                self.say(caller, |encoder| encoder.integer(count));
            }
            Command::CommandInfo { names } => self.command_info(caller, names),
            Command::CommandDocs { names } => self.command_docs(caller, names),
            Command::CommandGetKeys { keys } => self.command_get_keys(caller, keys),
            Command::CommandList(filter) => self.command_list(caller, filter),
            Command::KvRange(request) => self.key_range(caller, &request),
            Command::Keys { pattern } => self.keys(caller, pattern),
            Command::Scan(request) => self.scan(caller, &request),
            Command::RandomKey => self.random_key(caller),
            Command::DbSize => self.database_size(caller),
            Command::Flush { .. } => self.flush_all(caller, false),
            Command::Info { sections } => self.info(caller, sections),
            Command::Operator { id, args } => self.operate(caller, id, args),
            other => return self.run_config(caller, other),
        }
        None
    }

    /// A command whose arguments are parsed where it runs.
    fn operate(&mut self, caller: Caller, id: CommandId, args: ArgIter<'a>) {
        match id {
            CommandId::SlowlogGet | CommandId::SlowlogLen | CommandId::SlowlogReset => {
                self.slow_log(caller, id, args);
            }
            CommandId::LatencyDoctor
            | CommandId::LatencyGraph
            | CommandId::LatencyHistogram
            | CommandId::LatencyHistory
            | CommandId::LatencyLatest
            | CommandId::LatencyReset => self.latency(caller, id, args),
            CommandId::MemoryStats
            | CommandId::MemoryDoctor
            | CommandId::MemoryMallocStats
            | CommandId::MemoryPurge => self.memory(caller, id),
            CommandId::Save | CommandId::BgSave | CommandId::BgRewriteAof => {
                self.save(caller, id, args);
            }
            CommandId::ClientGetRedir
            | CommandId::ClientTracking
            | CommandId::ClientTrackingInfo
            | CommandId::ClientCaching
            | CommandId::ClientUnblock => self.client_operate(caller, id, args),
            CommandId::Subscribe => self.subscribe(caller, args),
            CommandId::Unsubscribe => self.unsubscribe(caller, args),
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
            | CommandId::AclWhoAmI => self.acl(caller, id, args),
            CommandId::Debug => self.debug(caller, args),
            CommandId::HotKeysGet
            | CommandId::HotKeysList
            | CommandId::HotKeysReset
            | CommandId::HotKeysStart
            | CommandId::HotKeysStop => self.hot_keys(caller, id, args),
            CommandId::Monitor => self.monitor(caller),
            CommandId::CommandGetKeysAndFlags => self.command_get_keys_and_flags(caller, args),
            _ => self.foreign(caller, id, args),
        }
    }

    /// MONITOR: shows the client all commands from now on.
    fn monitor(&mut self, caller: Caller) {
        self.settle(caller.slot);
        let client = &self.core.connections[caller.slot].client;
        self.core.shared.monitors().add(client);
        self.say(caller, |encoder| encoder.ok());
    }

    fn command_list(&mut self, caller: Caller, filter: CommandList<'a>) {
        let glob = match filter {
            CommandList::Pattern(pattern) => match NameGlob::new(pattern) {
                Ok(glob) => Some(glob),
                Err(error) => return self.fail(caller, &ErrorReply::Other(error.text())),
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
        self.say(caller, |encoder| {
            encoder.array_header(names.len());
            for name in names {
                encoder.bulk(name.as_bytes());
            }
        });
    }
}

/// The ACL categories, in the order in which Redis lists them.
pub(crate) fn categories(spec: &'static Spec) -> impl Iterator<Item = &'static str> + Clone {
    use CommandId::{
        Asking, DbSize, FlushAll, FlushDb, Info, Keys, LastSave, ReadOnly, ReadWrite, Restore,
        Role, SwapDb, Wait, WaitAof,
    };
    let has = |flag| spec.flags.contains(flag);
    let is = |ids: &[CommandId]| ids.contains(&spec.id);
    let in_group = |group| spec.group == group && !spec.id.is_container();
    let is_admin = has(Flags::ADMIN) || is(&[Role, LastSave]);
    let is_about_commands = spec.name.starts_with("command");
    [
        (in_group(Group::Generic) && !is(&[Wait, WaitAof])
            || is(&[DbSize, FlushDb, FlushAll, SwapDb]))
        .then_some("keyspace"),
        has(Flags::READONLY).then_some("read"),
        has(Flags::WRITE).then_some("write"),
        in_group(Group::String).then_some("string"),
        in_group(Group::Bitmap).then_some("bitmap"),
        in_group(Group::PubSub).then_some("pubsub"),
        is_admin.then_some("admin"),
        Some(if has(Flags::FAST) { "fast" } else { "slow" }),
        (is_admin || is(&[Keys, FlushDb, FlushAll, Info, Restore, SwapDb])).then_some("dangerous"),
        (in_group(Group::Connection)
            || is_about_commands
            || is(&[Wait, WaitAof, ReadOnly, ReadWrite, Asking]))
        .then_some("connection"),
        in_group(Group::Transactions).then_some("transaction"),
    ]
    .into_iter()
    .flatten()
}

/// Hints for proxies and cluster clients: the command tips of Redis.
fn tips(id: CommandId) -> &'static [&'static str] {
    use CommandId as Id;
    match id {
        Id::Ping | Id::FlushDb | Id::FlushAll => {
            &["request_policy:all_shards", "response_policy:all_succeeded"]
        }
        Id::ConfigSet | Id::LatencyReset | Id::SlowlogReset => {
            &["request_policy:all_nodes", "response_policy:all_succeeded"]
        }
        Id::MSet => &["request_policy:multi_shard", "response_policy:all_succeeded"],
        Id::MGet => &["request_policy:multi_shard"],
        Id::MSetNx => &["request_policy:multi_shard", "response_policy:agg_min"],
        Id::Del | Id::Unlink | Id::Exists | Id::Touch => {
            &["request_policy:multi_shard", "response_policy:agg_sum"]
        }
        Id::DbSize => &["request_policy:all_shards", "response_policy:agg_sum"],
        Id::Wait | Id::WaitAof => &["request_policy:all_shards", "response_policy:agg_min"],
        Id::RandomKey => &["request_policy:all_shards", "nondeterministic_output"],
        Id::Keys => &["request_policy:all_shards", "nondeterministic_output_order"],
        Id::Scan => &["nondeterministic_output", "request_policy:special"],
        Id::KvRange => &["request_policy:all_shards", "response_policy:special"],
        Id::Info => {
            &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]
        }
        Id::SlowlogLen => {
            &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]
        }
        Id::SlowlogGet => &["request_policy:all_nodes", "nondeterministic_output"],
        Id::LatencyDoctor
        | Id::LatencyGraph
        | Id::LatencyHistogram
        | Id::LatencyHistory
        | Id::LatencyLatest => {
            &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]
        }
        Id::MemoryPurge => &["request_policy:all_shards", "response_policy:all_succeeded"],
        Id::MemoryDoctor | Id::MemoryMallocStats | Id::MemoryStats => {
            &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]
        }
        Id::ModuleList => &["nondeterministic_output_order"],
        Id::Command | Id::CommandList | Id::CommandInfo | Id::CommandDocs => {
            &["nondeterministic_output_order"]
        }
        Id::ClientList
        | Id::ClientInfo
        | Id::Ttl
        | Id::PTtl
        | Id::Time
        | Id::LastSave
        | Id::Dump
        | Id::ObjectIdleTime
        | Id::ObjectFreq
        | Id::ObjectEncoding
        | Id::ObjectRefCount
        | Id::ClusterBumpEpoch
        | Id::ClusterSlaves
        | Id::ClusterInfo
        | Id::ClusterSlots
        | Id::ClusterLinks
        | Id::ClusterShards
        | Id::ClusterGetKeysInSlot
        | Id::ClusterNodes
        | Id::ClusterReplicas
        | Id::ClusterCountFailureReports => &["nondeterministic_output"],
        _ => &[],
    }
}

/// One entry of COMMAND and COMMAND INFO: ten fields.
fn describe(encoder: &mut Encoder<'_>, spec: &'static Spec) {
    encoder.array_header(10);
    encoder.bulk(spec.name.as_bytes());
    encoder.integer(i64::from(spec.arity));
    encoder.set_header(spec.flags.names().count());
    for flag in spec.flags.names() {
        encoder.simple(flag);
    }
    // Keys whose number is given by an argument have no fixed places.
    let keys = Some(spec.keys).filter(|keys| !keys.is_counted());
    encoder.integer(keys.map_or(0, |keys| i64::from(keys.first)));
    encoder.integer(keys.map_or(0, |keys| i64::from(keys.last)));
    encoder.integer(keys.map_or(0, |keys| i64::from(keys.step)));
    encoder.set_header(categories(spec).count());
    for category in categories(spec) {
        encoder.simple(&format!("@{category}"));
    }
    encoder.set_header(tips(spec.id).len());
    for tip in tips(spec.id) {
        encoder.bulk(tip.as_bytes());
    }
    key_specs::encode(encoder, spec);
    match spec.subcommands().count() {
        0 => encoder.set_header(0), // An array where there are some: so does Redis.
        count => encoder.array_header(count),
    }
    for subcommand in spec.subcommands() {
        describe(encoder, subcommand);
    }
}

/// One value of COMMAND DOCS.
fn document(encoder: &mut Encoder<'_>, spec: &'static Spec) {
    let subcommands = spec.subcommands().count();
    let arguments = Arguments::of(spec);
    encoder.map_header(3 + usize::from(subcommands > 0) + usize::from(!arguments.is_empty()));
    for (name, value) in
        [("summary", spec.summary), ("since", spec.since), ("group", spec.group.name())]
    {
        encoder.bulk(name.as_bytes());
        encoder.bulk(value.as_bytes());
    }
    if !arguments.is_empty() {
        encoder.bulk(b"arguments");
        arguments.encode(encoder);
    }
    if subcommands > 0 {
        encoder.bulk(b"subcommands");
        encoder.map_header(subcommands);
        for subcommand in spec.subcommands() {
            encoder.bulk(subcommand.name.as_bytes());
            document(encoder, subcommand);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::Protocol;

    use super::*;

    #[track_caller]
    fn check_categories(id: CommandId, want: &str) {
        assert_eq!(categories(id.spec()).collect::<Vec<_>>().join(" "), want, "{}", id.name());
    }

    #[test]
    fn categories_are_those_of_redis() {
        check_categories(CommandId::Get, "read string fast");
        check_categories(CommandId::Set, "write string slow");
        check_categories(CommandId::Ping, "fast connection");
        check_categories(CommandId::Client, "slow");
        check_categories(CommandId::ClientKill, "admin slow dangerous connection");
        check_categories(CommandId::CommandCount, "slow connection");
        check_categories(CommandId::Copy, "keyspace write slow");
        check_categories(CommandId::Keys, "keyspace read slow dangerous");
        check_categories(CommandId::KvRange, "keyspace read slow");
        check_categories(CommandId::DbSize, "keyspace read fast");
        check_categories(CommandId::FlushAll, "keyspace write slow dangerous");
        check_categories(CommandId::Info, "slow dangerous");
        check_categories(CommandId::Time, "fast");
        check_categories(CommandId::Role, "admin fast dangerous");
        check_categories(CommandId::Exec, "slow transaction");
        check_categories(CommandId::ObjectHelp, "keyspace slow");
        check_categories(CommandId::MemoryUsage, "read slow");
        check_categories(CommandId::Wait, "slow connection");
        check_categories(CommandId::WaitAof, "slow connection");
        check_categories(CommandId::ClusterSlots, "slow");
        check_categories(CommandId::ClusterReplicas, "admin slow dangerous");
        check_categories(CommandId::ReadOnly, "fast connection");
    }

    #[test]
    fn each_entry_has_ten_fields() {
        let mut out = Vec::new();
        describe(&mut Encoder::new(&mut out, Protocol::Resp2), CommandId::Get.spec());
        assert!(out.starts_with(b"*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n"));
    }
}
