//! Answers to operators, made from the manager's state.

use base::Instant;
use cluster::manager::{Event, Loss};
use cluster::{Configuration, Manager, NodeId, Role, Shard, ShardId};

use crate::admin::{NodeReport, Question, Reply, Report, ShardReport};
use crate::managing::balance::Balance;
use crate::settings::Stored;

/// The answer, and the event for the manager that results from the request. None if another manager
/// may lead.
pub(super) fn answer(
    question: Question,
    manager: &Manager,
    balance: &Balance,
    stored: &Stored,
    now: Instant,
) -> Option<(Reply, Vec<Event>)> {
    if !manager.leads(now) {
        return None;
    }
    let Some(configuration) = manager.configuration() else {
        let line = format!(
            "the cluster waits for its first {} nodes: {} are here; start servers with --cluster",
            stored.settings.first_nodes,
            manager.live(now).len(),
        );
        return Some((Reply::Refused(line), Vec::new()));
    };
    let refused = |line: String| Some((Reply::Refused(line), Vec::new()));
    match question {
        Question::Status => {
            Some((Reply::Status(report(configuration, manager, balance, stored, now)), Vec::new()))
        }
        Question::Pause { is_paused } => {
            let word = if is_paused { "paused" } else { "resumed" };
            let line = format!("{word}: moving by load, and new copies");
            Some((Reply::Done(line), vec![Event::Pause(is_paused)]))
        }
        Question::Abandon { shards, is_forced } => {
            let (reply, events) = abandon(&shards, is_forced, configuration, &manager.losses(now));
            Some((reply, events))
        }
        Question::Move { shard, node } => {
            let id = ShardId(shard);
            let Some(found) = configuration.shard(id) else {
                let last = configuration.shards.len() - 1;
                return refused(format!("there is no shard {shard}: they are 0 to {last}"));
            };
            let Some(target) = find(configuration, &node) else {
                return refused(unknown(configuration, &node));
            };
            if manager.leaving().contains(&target.name) {
                return refused(format!("{target} is to leave: nothing moves there"));
            }
            if found.primary == target {
                return Some((Reply::Done(format!("{target} serves shard {shard}")), Vec::new()));
            }
            let line = format!("shard {shard} moves from {} to {target}", found.primary);
            let is_waiting = manager.moves().any(|one| one == (id, target));
            let event = (!is_waiting).then_some(Event::Move { shard: id, target });
            Some((Reply::Done(line), event.into_iter().collect()))
        }
        Question::Drain { node, leaves } => {
            let Some(target) = find(configuration, &node) else {
                return refused(unknown(configuration, &node));
            };
            let line = match (leaves, role_count(configuration, target)) {
                (true, 0) => format!("{target} has no shard any more: it may stop"),
                (true, count) => format!("{target} leaves: {count} shards are on it"),
                (false, _) => format!("{target} stays"),
            };
            Some((Reply::Done(line), vec![Event::Drain { name: target.name, leaves }]))
        }
    }
}

/// Gives up shards that no live node has.
fn abandon(
    shards: &[u16],
    is_forced: bool,
    configuration: &Configuration,
    losses: &[Loss],
) -> (Reply, Vec<Event>) {
    let refused = |line: String| (Reply::Refused(line), Vec::new());
    for shard in shards {
        if configuration.shard(ShardId(*shard)).is_none() {
            let last = configuration.shards.len() - 1;
            return refused(format!("there is no shard {shard}: they are 0 to {last}"));
        }
        let Some(loss) = losses.iter().find(|loss| loss.shard.0 == *shard) else {
            return refused(format!("shard {shard} is not lost: a server that is here has it"));
        };
        if !loss.away.is_empty() && !is_forced {
            let away: Vec<String> = loss.away.iter().map(NodeId::to_string).collect();
            return refused(format!(
                "{} may have shard {shard}: start that server, or give the shard up with --force",
                away.join(", ")
            ));
        }
    }
    let is_wanted = |loss: &&Loss| match shards {
        [] => loss.away.is_empty() || is_forced,
        some => some.contains(&loss.shard.0),
    };
    let ids: Vec<ShardId> = losses.iter().filter(is_wanted).map(|loss| loss.shard).collect();
    if ids.is_empty() {
        return refused("no shard is lost for certain: `dovetail cluster status` says more".into());
    }
    let line = format!("{} shards begin empty", ids.len());
    (Reply::Done(line), ids.into_iter().map(Event::Abandon).collect())
}

fn role_count(configuration: &Configuration, node: NodeId) -> usize {
    configuration.role_count(node)
}

/// Finds a node by its name, its name and incarnation, or its address.
fn find(configuration: &Configuration, text: &str) -> Option<NodeId> {
    let is_it = |node: &&NodeId| {
        let addresses = configuration.addresses(**node);
        text == node.to_string()
            || text == format!("n{}", node.name)
            || addresses
                .is_some_and(|all| text == all.peer || text == format!("{}:{}", all.host, all.resp))
    };
    configuration.members.iter().find(is_it).copied()
}

fn unknown(configuration: &Configuration, text: &str) -> String {
    let members: Vec<String> = configuration.members.iter().map(NodeId::to_string).collect();
    format!("`{text}` is no member: these are {}", members.join(", "))
}

fn report(
    configuration: &Configuration,
    manager: &Manager,
    balance: &Balance,
    stored: &Stored,
    now: Instant,
) -> Report {
    let (live, losses) = (manager.live(now), manager.losses(now));
    let mut shards: Vec<ShardReport> = configuration
        .shards()
        .map(|(id, shard)| shard_report(configuration, id, shard, balance, now))
        .collect();
    for (one, shard) in shards.iter_mut().zip(&configuration.shards) {
        one.is_served &= live.contains_key(&shard.primary);
        if let Some(loss) = losses.iter().find(|loss| loss.shard.0 == one.shard) {
            one.is_lost = true;
            one.away = loss.away.iter().map(NodeId::to_string).collect();
        }
    }
    let node = |node: &NodeId| {
        let count = |role| {
            configuration.shards.iter().filter(|shard| shard.role_of(*node) == Some(role)).count()
        };
        let addresses = configuration.addresses(*node);
        let text = node.to_string();
        let own = shards.iter().filter(|shard| shard.primary == text);
        NodeReport {
            peer: addresses.map(|all| all.peer.clone()).unwrap_or_default(),
            host: addresses.map(|all| all.host.clone()).unwrap_or_default(),
            resp: addresses.map_or(0, |all| all.resp),
            primaries: count(Role::Primary),
            backups: count(Role::Backup),
            joining: count(Role::Joining),
            leaves: manager.leaving().contains(&node.name),
            may_stop: role_count(configuration, *node) == 0 && manager.is_committed(),
            requests_per_s: own.fold(0.0, |sum, shard| sum + shard.requests_per_s),
            node: text,
        }
    };
    Report {
        name: stored.name.clone(),
        term: configuration.term.0,
        is_committed: manager.is_committed(),
        is_paused: manager.is_paused(),
        copies: stored.settings.copies,
        moves_waiting: manager.moves().count(),
        nodes: configuration.members.iter().map(node).collect(),
        shards,
    }
}

fn shard_report(
    configuration: &Configuration,
    id: ShardId,
    shard: &Shard,
    balance: &Balance,
    now: Instant,
) -> ShardReport {
    let (reads, writes) = balance.rates(shard.primary, id, now);
    let is_copied = shard.joining.is_some() || shard.filling_from.is_some();
    let progress = balance.progress(id);
    let copy = progress.filter(|_| is_copied);
    ShardReport {
        shard: id.0,
        slots: (shard.first.0, shard.last.0),
        epoch: shard.epoch,
        primary: shard.primary.to_string(),
        is_served: configuration.has(shard.primary),
        is_lost: false,
        away: Vec::new(),
        backups: shard.backups.iter().map(NodeId::to_string).collect(),
        joining: shard.joining.map(|node| node.to_string()),
        filling_from: shard.filling_from.map(|node| node.to_string()),
        full_copies: shard.full_copies().filter(|node| configuration.has(*node)).count(),
        entries: progress.map_or(0, |one| one.entries),
        copied: copy.map_or(0, |one| one.copied),
        left_s: copy.and_then(|one| Some(one.left_ns()? as f64 / 1e9)),
        requests_per_s: reads + writes,
    }
}
