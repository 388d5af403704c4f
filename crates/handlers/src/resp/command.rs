//! COMMAND: describes the server's commands to clients.

mod walk;

use commands::facts::categories;
use runtime::engine::Engine;
use runtime::walks::Caller;
use wire::resp::{ArgIter, Command, CommandId, CommandList, ErrorReply, NameGlob, Spec};

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
