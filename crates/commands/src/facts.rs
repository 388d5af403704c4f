//! The facts about each RESP command that COMMAND and ACL report: categories, tips, key
//! specifications and arguments.

mod arguments;
mod key_specs;

use wire::resp::{CommandId, Encoder, Flags, Group, Spec};

use arguments::Arguments;
pub use key_specs::{Access, flags_of, key_access};

/// The ACL categories, in the order in which Redis lists them.
pub fn categories(spec: &'static Spec) -> impl Iterator<Item = &'static str> + Clone {
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
pub fn describe(encoder: &mut Encoder<'_>, spec: &'static Spec) {
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
pub fn document(encoder: &mut Encoder<'_>, spec: &'static Spec) {
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
