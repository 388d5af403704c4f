//! CLUSTER, READONLY, READWRITE and ASKING: the commands of Redis Cluster's clients.
//!
//! Answers come from the configuration that this node has installed, in the form of Redis 7.0 (7.2
//! for MYSHARDID). Without a cluster all of these commands are refused as Redis refuses them.

use std::sync::Arc;

use cluster::{Configuration, NodeId, Slot};
use config::Durability;
use replication::cluster::announced::{self, Announced, Peers};
use runtime::walks::Caller;
use wire::resp::{ClusterCommand, Encoder, ErrorReply};

use crate::gather::Gather;
use crate::resp::names::{count_in_slot, names_in_slot};

/// Redis's text for a server without an append-only file.
const NO_AOF: ErrorReply<'static> =
    ErrorReply::Other("WAITAOF cannot be used when numlocal is set but appendonly is disabled.");

/// Runs a command about the cluster, or of a client of one.
pub(super) fn run_cluster<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: ClusterCommand<'a>,
) {
    if gather.core.cluster.is_none() {
        return gather.fail(caller, &ErrorReply::ClusterDisabled);
    }
    match command {
        ClusterCommand::ReadOnly | ClusterCommand::ReadWrite => {
            let reads_copies = command == ClusterCommand::ReadOnly;
            gather.core.connections[caller.slot].resp().reads_copies = reads_copies;
            gather.say(caller, |encoder| encoder.ok());
        }
        // No redirection uses ASK: a slot that moves is served by one of the two nodes.
        ClusterCommand::Asking => gather.say(caller, |encoder| encoder.ok()),
        request => cluster(gather, caller, request),
    }
}

/// The configuration that this node has installed.
pub(super) fn installed(gather: &Gather<'_, '_>) -> Option<(NodeId, Arc<Configuration>)> {
    let view = gather.core.cluster.as_ref()?;
    Some((view.own(), view.configuration()?))
}

/// Whether a client has come over TLS.
pub(super) fn is_tls(gather: &Gather<'_, '_>, slot: usize) -> bool {
    gather.core.connections[slot].tls.is_some()
}

/// This node's master, as announced to clients.
pub(super) fn own_master(gather: &Gather<'_, '_>) -> Option<NodeId> {
    let (own, configuration) = installed(gather)?;
    Announced::new(&configuration, own).own_master()
}

/// ROLE: in a cluster it lists the nodes that have copies.
pub(super) fn role(gather: &mut Gather<'_, '_>, caller: Caller) {
    let peers = gather.core.shared.cluster().map(|view| Peers::of(view)).unwrap_or_default();
    let text = |encoder: &mut Encoder<'_>, number: u16| {
        encoder.bulk(itoa::Buffer::new().format(number).as_bytes());
    };
    gather.say(caller, |encoder| match &peers.master {
        Some((host, port)) => {
            encoder.array_header(5);
            encoder.bulk(b"slave");
            encoder.bulk(host.as_bytes());
            encoder.integer(i64::from(*port));
            encoder.bulk(b"connected");
            encoder.integer(0);
        }
        None => {
            encoder.array_header(3);
            encoder.bulk(b"master");
            encoder.integer(0);
            encoder.array_header(peers.backups.len());
            for (host, port, _) in &peers.backups {
                encoder.array_header(3);
                encoder.bulk(host.as_bytes());
                text(encoder, *port);
                encoder.bulk(b"0");
            }
        }
    });
}

/// WAIT: a write is answered when all backups have it, so the command need not wait.
pub(super) fn wait(gather: &mut Gather<'_, '_>, caller: Caller) {
    let copies = own_copies_min(gather);
    gather.say(caller, |encoder| encoder.integer(copies));
}

fn own_copies_min(gather: &Gather<'_, '_>) -> i64 {
    let installed = installed(gather);
    installed.map_or(0, |(own, all)| Announced::new(&all, own).own_copies_min() as i64)
}

/// WAITAOF: with `fsync` a write is answered when it is on all disks; otherwise the time is not
/// known.
pub(super) fn wait_aof(gather: &mut Gather<'_, '_>, caller: Caller, is_local: bool) {
    let data = gather.core.shared.data();
    let is_durable = data.is_some_and(|data| data.durability() == Durability::Fsync);
    if is_local && !is_durable {
        return gather.fail(caller, &NO_AOF);
    }
    let replicas = if is_durable { own_copies_min(gather) } else { 0 };
    gather.say(caller, |encoder| {
        encoder.array_header(2);
        encoder.integer(i64::from(is_durable));
        encoder.integer(replicas);
    });
}

fn cluster<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, request: ClusterCommand<'a>) {
    match request {
        ClusterCommand::KeySlot { key } => {
            let slot = Slot::of(key).0;
            gather.say(caller, |encoder| encoder.integer(i64::from(slot)));
        }
        ClusterCommand::CountKeysInSlot { slot } => {
            count_in_slot(gather, caller, Slot(slot));
        }
        ClusterCommand::GetKeysInSlot { slot, count } => {
            let count_max = usize::try_from(count).unwrap_or(usize::MAX);
            names_in_slot(gather, caller, Slot(slot), count_max);
        }
        ClusterCommand::Links => gather.say(caller, |encoder| encoder.array_header(0)),
        ClusterCommand::Administer { id } => gather.fail(caller, &ErrorReply::Managed(id)),
        request => answer_as_member(gather, caller, request),
    }
}

/// The subcommands that need a configuration.
fn answer_as_member<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, request: ClusterCommand<'a>) {
    let own = gather.core.cluster.as_ref().map(|view| view.own()).unwrap_or_default();
    let Some((_, configuration)) = installed(gather) else {
        return answer_before_joining(gather, caller, own, request);
    };
    let announced = Announced::new(&configuration, own).over(is_tls(gather, caller.slot));
    let now_ms = gather.core.now.0;
    match request {
        ClusterCommand::Slots => gather.say(caller, |encoder| slots(encoder, &announced)),
        ClusterCommand::Shards => gather.say(caller, |encoder| shards(encoder, &announced)),
        ClusterCommand::Nodes => {
            let line = |node| announced.node_line(node, now_ms) + "\n";
            let text: String = announced.members().map(line).collect();
            gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
        }
        ClusterCommand::Info => {
            gather.say(caller, |encoder| encoder.verbatim(announced.info().as_bytes()));
        }
        ClusterCommand::MyShardId => {
            let id = announced::shard_id(announced.own_master().unwrap_or(own));
            gather.say(caller, |encoder| encoder.bulk(id.as_bytes()));
        }
        ClusterCommand::Replicas { node, .. } => replicas(gather, caller, &announced, node),
        ClusterCommand::CountFailureReports { node } => match announced.node_of(node) {
            Some(_) => gather.say(caller, |encoder| encoder.integer(0)),
            None => gather.fail(caller, &ErrorReply::UnknownNode(node)),
        },
        // The rest needs no configuration.
        _ => gather.say(caller, |encoder| encoder.bulk(announced::node_id(own).as_bytes())),
    }
}

fn answer_before_joining<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    own: NodeId,
    request: ClusterCommand<'a>,
) {
    let id = announced::node_id(own);
    match request {
        ClusterCommand::Slots | ClusterCommand::Shards => {
            gather.say(caller, |encoder| encoder.array_header(0));
        }
        ClusterCommand::Nodes => {
            let line = format!("{id} :0@0 myself,master - 0 0 0 connected\n");
            gather.say(caller, |encoder| encoder.verbatim(line.as_bytes()));
        }
        ClusterCommand::Info => {
            let text = announced::info_before_joining();
            gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
        }
        ClusterCommand::MyShardId => {
            let id = announced::shard_id(own);
            gather.say(caller, |encoder| encoder.bulk(id.as_bytes()));
        }
        ClusterCommand::Replicas { node, .. } | ClusterCommand::CountFailureReports { node } => {
            gather.fail(caller, &ErrorReply::UnknownNode(node));
        }
        _ => gather.say(caller, |encoder| encoder.bulk(id.as_bytes())),
    }
}

fn replicas(gather: &mut Gather<'_, '_>, caller: Caller, announced: &Announced<'_>, name: &[u8]) {
    let Some(node) = announced.node_of(name) else {
        return gather.fail(caller, &ErrorReply::UnknownNode(name));
    };
    if announced.master_of(node).is_some() {
        return gather.fail(caller, &ErrorReply::NotAMaster);
    }
    let now_ms = gather.core.now.0;
    let line = |node| announced.node_line(node, now_ms);
    let lines: Vec<String> = announced.replicas_of(node).map(line).collect();
    gather.say(caller, |encoder| {
        encoder.array_header(lines.len());
        for line in &lines {
            encoder.bulk(line.as_bytes());
        }
    });
}

/// CLUSTER SLOTS.
pub fn slots(encoder: &mut Encoder<'_>, announced: &Announced<'_>) {
    let ranges = announced.ranges();
    encoder.array_header(ranges.len());
    for range in &ranges {
        encoder.array_header(3 + range.replicas.len());
        encoder.integer(i64::from(range.first.0));
        encoder.integer(i64::from(range.last.0));
        for node in std::iter::once(range.primary).chain(range.replicas.iter().copied()) {
            let (host, port) = announced.resp_of(node).unwrap_or_default();
            encoder.array_header(4);
            encoder.bulk(host.as_bytes());
            encoder.integer(i64::from(port));
            encoder.bulk(announced::node_id(node).as_bytes());
            encoder.map_header(0);
        }
    }
}

/// CLUSTER SHARDS.
pub fn shards(encoder: &mut Encoder<'_>, announced: &Announced<'_>) {
    let masters: Vec<NodeId> =
        announced.masters().filter(|node| announced.reached(*node).is_some()).collect();
    encoder.array_header(masters.len());
    for master in masters {
        encoder.map_header(2);
        let slots = announced.slots_of(master);
        encoder.bulk(b"slots");
        encoder.array_header(slots.len() * 2);
        for (first, last) in slots {
            encoder.integer(i64::from(first.0));
            encoder.integer(i64::from(last.0));
        }
        let replicas =
            announced.replicas_of(master).filter(|node| announced.reached(*node).is_some());
        let nodes: Vec<_> = std::iter::once((master, "master"))
            .chain(replicas.map(|node| (node, "replica")))
            .collect();
        encoder.bulk(b"nodes");
        encoder.array_header(nodes.len());
        for (node, role) in nodes {
            shard_node(encoder, announced, node, role);
        }
    }
}

/// A node in CLUSTER SHARDS.
pub fn shard_node(encoder: &mut Encoder<'_>, announced: &Announced<'_>, node: NodeId, role: &str) {
    let Some(addresses) = announced.reached(node) else { return encoder.map_header(0) };
    let host = &addresses.host;
    let ports = [("port", addresses.resp_port(false)), ("tls-port", addresses.resp_port(true))];
    let ports = ports.into_iter().filter_map(|(name, port)| Some((name, port?)));
    let text = |encoder: &mut Encoder<'_>, name: &str, value: &str| {
        encoder.bulk(name.as_bytes());
        encoder.bulk(value.as_bytes());
    };
    encoder.map_header(6 + ports.clone().count());
    text(encoder, "id", &announced::node_id(node));
    for (name, port) in ports {
        encoder.bulk(name.as_bytes());
        encoder.integer(i64::from(port));
    }
    text(encoder, "ip", host);
    text(encoder, "endpoint", host);
    text(encoder, "role", role);
    encoder.bulk(b"replication-offset");
    encoder.integer(0);
    text(encoder, "health", "online");
}
