//! COMMAND: what the server can do, for clients that ask.

use wire::resp::{
    ArgIter, Command, CommandList, Encoder, Flags, Keys, Spec, glob_matches_any_case,
};

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
            Command::Keys { pattern } => self.keys(caller, pattern),
            Command::Scan(request) => self.scan(caller, &request),
            Command::RandomKey => self.random_key(caller),
            Command::DbSize => self.database_size(caller),
            Command::Flush { .. } => self.flush_all(caller),
            Command::Info { sections } => self.info(caller, sections),
            other => return self.run_config(caller, other),
        }
        None
    }

    fn command_table(&mut self, caller: Caller) {
        self.say(caller, |encoder| {
            encoder.array_header(Spec::top_level().count());
            for spec in Spec::top_level() {
                describe(encoder, spec);
            }
        });
    }

    fn command_info(&mut self, caller: Caller, names: ArgIter<'a>) {
        if names.len() == 0 {
            return self.command_table(caller);
        }
        self.say(caller, |encoder| {
            encoder.array_header(names.len());
            for name in names {
                match Spec::by_name(name) {
                    Some(spec) => describe(encoder, spec),
                    None => encoder.null(),
                }
            }
        });
    }

    fn command_docs(&mut self, caller: Caller, names: ArgIter<'a>) {
        let specs: Vec<&Spec> = if names.len() == 0 {
            Spec::top_level().collect()
        } else {
            names.filter_map(Spec::by_name).collect()
        };
        self.say(caller, |encoder| {
            encoder.map_header(specs.len());
            for spec in specs {
                encoder.bulk(spec.name.as_bytes());
                document(encoder, spec);
            }
        });
    }

    fn command_get_keys(&mut self, caller: Caller, keys: Keys<'a>) {
        self.say(caller, |encoder| {
            encoder.array_header(keys.len());
            for key in keys {
                encoder.bulk(key);
            }
        });
    }

    fn command_list(&mut self, caller: Caller, filter: CommandList<'a>) {
        let is_listed = |spec: &&'static Spec| match filter {
            CommandList::All => true,
            CommandList::Module(_) => false,
            CommandList::AclCategory(category) => {
                categories(spec).any(|name| name.as_bytes().eq_ignore_ascii_case(category))
            }
            CommandList::Pattern(pattern) => glob_matches_any_case(pattern, spec.name.as_bytes()),
        };
        let names: Vec<&str> = Spec::top_level().filter(is_listed).map(|spec| spec.name).collect();
        self.say(caller, |encoder| {
            encoder.array_header(names.len());
            for name in names {
                encoder.bulk(name.as_bytes());
            }
        });
    }
}

/// The categories that follow from a command's flags and group.
fn categories(spec: &'static Spec) -> impl Iterator<Item = &'static str> + Clone {
    let has = |flag| spec.flags.contains(flag);
    [
        has(Flags::WRITE).then_some("write"),
        has(Flags::READONLY).then_some("read"),
        has(Flags::ADMIN).then_some("admin"),
        Some(if has(Flags::FAST) { "fast" } else { "slow" }),
        (spec.keys.first > 0).then_some("keyspace"),
        Some(spec.group.name()),
    ]
    .into_iter()
    .flatten()
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
    encoder.integer(i64::from(spec.keys.first));
    encoder.integer(i64::from(spec.keys.last));
    encoder.integer(i64::from(spec.keys.step));
    encoder.set_header(categories(spec).count());
    for category in categories(spec) {
        encoder.simple(&format!("@{category}"));
    }
    encoder.array_header(0); // Tips.
    encoder.array_header(0); // Key specifications: the three numbers above say it all.
    encoder.array_header(spec.subcommands().count());
    for subcommand in spec.subcommands() {
        describe(encoder, subcommand);
    }
}

/// One value of COMMAND DOCS.
fn document(encoder: &mut Encoder<'_>, spec: &'static Spec) {
    let subcommands = spec.subcommands().count();
    encoder.map_header(if subcommands > 0 { 4 } else { 3 });
    for (name, value) in
        [("summary", spec.summary), ("since", spec.since), ("group", spec.group.name())]
    {
        encoder.bulk(name.as_bytes());
        encoder.bulk(value.as_bytes());
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
    use wire::resp::{CommandId, Protocol};

    use super::*;

    #[test]
    fn categories_follow_from_flags() {
        let of = |id: CommandId| categories(id.spec()).collect::<Vec<_>>();
        assert_eq!(of(CommandId::Get), ["read", "fast", "keyspace", "string"]);
        assert!(of(CommandId::Ping).contains(&"connection"));
    }

    #[test]
    fn each_entry_has_ten_fields() {
        let mut out = Vec::new();
        describe(&mut Encoder::new(&mut out, Protocol::Resp2), CommandId::Get.spec());
        assert!(out.starts_with(b"*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n"));
    }
}
