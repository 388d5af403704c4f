//! The configuration manager: tracks which nodes live and assigns them their roles. One manager
//! leads, the others stand by.
//!
//! ```text
//!  standby ── claim ──▶ reading ── configuration ──▶ leading ─┐
//!     ▲                                                       │ session may have ended
//!     └───────────────────────────────────────────────────────┘
//!
//!  leading:  a member is silent ─▶ plan ─▶ write if unchanged ─▶ Install to all members
//!            all have installed, the lease of each that was left out is over ─▶ Commit
//! ```
//!
//! # Invariants
//! V1: a manager grants leases only while its own session with the config store cannot have ended;
//!     the next leader waits for one more lease before it relies on the end of any node's lease.
//! V2: a configuration is committed when every member has installed it and the lease of every other
//!     node is over (`fence`).
//! V3: a node that is left out of a configuration gets no more leases from the moment that
//!     configuration is on its way to the config store.
//! V4: only a configuration that the config store accepted takes effect; a manager that finds
//!     another one there continues from that one.
//! V5: a lease is granted for the configuration in force, to nodes that have installed it. A node
//!     that was left out and is a member again may still serve shards that were given to other
//!     nodes meanwhile.
//!
//! # References
//! Rowan-KV §4.5 (FaRM's reconfiguration); K3; decision 0053.

mod backing_off;
mod config_store_side;
mod ending;
mod fence;
mod needs;
mod plan;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::Instant;

use crate::addresses::Addresses;
use crate::config_store::{Request, Response, SessionId, Stamp};
use crate::configuration::{Configuration, Shard};
use crate::ids::{NodeId, ShardId, Term};
use crate::message::{Message, Peer, Recovered};
use crate::settings::{Settings, after};

use backing_off::BackingOff;
use config_store_side::Asked;
use fence::Fence;
use plan::Facts;

/// An input event of a manager.
#[derive(Debug)]
pub enum Event {
    /// Time has passed; every millisecond.
    Tick,
    /// A response of the config store.
    ConfigStore(Response),
    /// A message of a node or a client.
    Message {
        /// The sender.
        from: Peer,
        /// The message.
        message: Message,
    },
    /// An operator wants that node to serve the shard.
    Move {
        /// The shard.
        shard: ShardId,
        /// The node.
        target: NodeId,
    },
    /// An operator wants to stop that server, or cancels that wish.
    Drain {
        /// The server's name; all its incarnations are meant.
        name: u16,
        /// Whether it is to leave.
        leaves: bool,
    },
    /// An operator pauses the making of copies, or resumes it.
    Pause(bool),
    /// An operator gives up a shard's data: the shard is served empty if no node has it.
    Abandon(ShardId),
}

/// An action that a manager requests from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a request to the config store.
    ConfigStore(Request),
    /// Sends a message.
    Send {
        /// The receiver.
        to: Peer,
        /// The message.
        message: Message,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct Manager {
    /// The address in its claim: others read there how to reach the leader.
    claim: Arc<[u8]>,
    settings: Settings,
    session: Option<SessionId>,
    /// The session cannot have ended before this time on the manager's own clock (V1).
    session_until: Instant,
    beat_at: Option<Instant>,
    asked: BTreeMap<u64, Asked>,
    next_id: u64,
    role: Role,
    moves: VecDeque<(ShardId, NodeId)>,
    /// Servers that an operator asked this manager to drain; a manager that takes over does not
    /// know them.
    leaving: BTreeSet<u16>,
    is_paused: bool,
    /// Shards to be served empty.
    abandoned: BTreeSet<ShardId>,
}

/// A shard of which no live server has all data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The shard.
    pub shard: ShardId,
    /// The nodes that had all of it.
    pub keepers: Vec<NodeId>,
    /// Those of them that have not restarted without it: they may come back with it.
    pub away: Vec<NodeId>,
}

fn loss(id: ShardId, shard: &Shard, live: &BTreeMap<NodeId, Recovered>) -> Option<Loss> {
    let keepers: Vec<NodeId> = shard.keepers().collect();
    if keepers.iter().any(|node| plan::back(*node, id, live).is_some()) {
        return None;
    }
    let is_away = |node: &NodeId| !live.keys().any(|one| one.name == node.name);
    let away = keepers.iter().copied().filter(is_away).collect();
    Some(Loss { shard: id, keepers, away })
}

/// The most moves that wait; further ones are dropped.
const MOVES_MAX: usize = 4096;

#[derive(Debug)]
enum Role {
    Standby { claimed_at: Option<Instant> },
    Reading { asked_at: Option<Instant> },
    Leading(Box<Leadership>),
}

#[derive(Debug)]
struct Leadership {
    since: Instant,
    stamp: Stamp,
    /// The configuration in force; none in a cluster that never had one.
    configuration: Option<Arc<Configuration>>,
    proposal: Option<Proposal>,
    phase: Phase,
    /// When Install was last sent to the members that have not answered it.
    told_at: Instant,
    nodes: BTreeMap<NodeId, Seen>,
    joined: BTreeSet<(ShardId, NodeId)>,
    filled: BTreeSet<ShardId>,
    /// Shards not served for long because copies wait.
    withheld: BTreeSet<ShardId>,
    overdue: BTreeSet<(ShardId, NodeId)>,
    backing_off: BackingOff,
    /// Servers that are shutting down, and whether each is settled.
    ending: BTreeMap<NodeId, bool>,
}

/// A configuration on its way to the config store.
#[derive(Debug)]
struct Proposal {
    configuration: Arc<Configuration>,
    bytes: Arc<[u8]>,
    asked_at: Instant,
}

#[derive(Debug)]
enum Phase {
    Installing { installed: BTreeSet<NodeId>, fence: Fence },
    Committed,
}

#[derive(Debug)]
struct Seen {
    heard_at: Instant,
    granted_at: Option<Instant>,
    recovered: Recovered,
    addresses: Arc<Addresses>,
}

impl Manager {
    /// A manager with that position in the cluster's list of managers.
    pub fn new(id: u16, settings: Settings) -> Manager {
        Manager::at(id.to_le_bytes().to_vec().into(), settings)
    }

    /// A manager whose claim says how to reach it.
    pub fn at(claim: Arc<[u8]>, settings: Settings) -> Manager {
        Manager {
            claim,
            settings,
            session: None,
            session_until: Instant::default(),
            beat_at: None,
            asked: BTreeMap::new(),
            next_id: 1,
            role: Role::Standby { claimed_at: None },
            moves: VecDeque::new(),
            leaving: BTreeSet::new(),
            is_paused: false,
            abandoned: BTreeSet::new(),
        }
    }

    /// Takes one event.
    pub fn input(&mut self, event: Event, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::Tick => self.tick(now, actions),
            Event::ConfigStore(response) => self.hear_config_store(response, now, actions),
            Event::Message { from, message } => self.hear(from, message, now, actions),
            Event::Move { .. } if self.moves.len() >= MOVES_MAX => {}
            Event::Move { shard, target } => self.moves.push_back((shard, target)),
            Event::Drain { name, leaves: true } => drop(self.leaving.insert(name)),
            Event::Drain { name, leaves: false } => drop(self.leaving.remove(&name)),
            Event::Pause(is_paused) => self.is_paused = is_paused,
            Event::Abandon(shard) => drop(self.abandoned.insert(shard)),
        }
    }

    /// Whether it leads, as far as it can know (V1).
    pub fn leads(&self, now: Instant) -> bool {
        matches!(self.role, Role::Leading(_)) && now < self.session_until
    }

    /// The configuration in force, as its leader sees it.
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        match &self.role {
            Role::Leading(leadership) => leadership.configuration.as_ref(),
            _ => None,
        }
    }

    /// The configuration on its way to the config store, if there is one.
    pub fn proposed(&self) -> Option<&Arc<Configuration>> {
        match &self.role {
            Role::Leading(leadership) => Some(&leadership.proposal.as_ref()?.configuration),
            _ => None,
        }
    }

    /// Whether all members serve under the configuration in force.
    pub fn is_committed(&self) -> bool {
        matches!(&self.role, Role::Leading(leadership) if leadership.is_committed())
    }

    /// Moves that wait for their turn.
    pub fn moves(&self) -> impl Iterator<Item = (ShardId, NodeId)> + '_ {
        self.moves.iter().copied()
    }

    /// Names of servers that are to leave.
    pub fn leaving(&self) -> &BTreeSet<u16> {
        &self.leaving
    }

    /// Whether the making of copies is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The nodes heard from lately, and the data that each started with.
    pub fn live(&self, now: Instant) -> BTreeMap<NodeId, Recovered> {
        match &self.role {
            Role::Leading(leadership) => leadership.live(&self.settings, now),
            _ => BTreeMap::new(),
        }
    }

    /// Shards that no live node has a full copy of.
    pub fn losses(&self, now: Instant) -> Vec<Loss> {
        let live = self.live(now);
        let shards = self.configuration().into_iter().flat_map(|configuration| {
            configuration.shards().filter_map(|(id, shard)| loss(id, shard, &live))
        });
        shards.collect()
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.keep_session(now, actions);
        if let Role::Leading(leadership) = &mut self.role {
            leadership.tell_members(&self.settings, now, actions);
            self.plan(now, actions);
        }
    }

    fn plan(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Role::Leading(leadership) = &mut self.role else { return };
        if leadership.proposal.is_some() {
            return;
        }
        let live = leadership.live(&self.settings, now);
        leadership.ending.retain(|node, _| live.contains_key(node));
        let addresses = leadership.addresses();
        let next = match &leadership.configuration {
            None if live.len() < usize::from(self.settings.first_nodes) => None,
            None => Some(plan::first(&live, &addresses, &self.settings)),
            Some(current) => {
                let facts = Facts {
                    live: &live,
                    addresses: &addresses,
                    joined: &leadership.joined,
                    filled: &leadership.filled,
                    withheld: &leadership.withheld,
                    overdue: &leadership.overdue,
                    backing_off: &leadership.backing_off.at(now),
                    moves: &mut self.moves,
                    leaving: &self.leaving,
                    ending: &leadership.ending,
                    is_paused: self.is_paused,
                    abandoned: &self.abandoned,
                    may_grow: leadership.is_committed(),
                    is_grace_over: now >= after(leadership.since, self.settings.grace_ns),
                };
                plan::next(current, facts, &self.settings)
            }
        };
        let Some(next) = next else { return };
        if let Some(current) = &leadership.configuration {
            let is_lost = |id: &ShardId| next.shard(*id) == current.shard(*id);
            self.abandoned.retain(is_lost);
        }
        let bytes = next.encode().into();
        let configuration = Arc::new(next);
        leadership.proposal = Some(Proposal { configuration, bytes, asked_at: now });
        self.propose(now, actions);
    }

    fn hear(&mut self, from: Peer, message: Message, now: Instant, actions: &mut Vec<Action>) {
        if !self.leads(now) {
            return;
        }
        let Role::Leading(leadership) = &mut self.role else { return };
        match (from, message) {
            // The previous leader had a write on its way when this manager read.
            (_, Message::Lease { term, .. }) if term > leadership.term() => {
                self.role = Role::Reading { asked_at: None };
            }
            (Peer::Node(node), Message::Lease { sent_at, term, recovered, addresses }) => {
                leadership.hear_lease(node, recovered, addresses, now);
                leadership.answer_lease(node, sent_at, term, now, actions);
            }
            (Peer::Node(node), Message::Ending { is_settled }) => {
                self.hear_ending(node, is_settled, now, actions);
            }
            (Peer::Node(node), Message::Installed { term }) if term == leadership.term() => {
                leadership.installed(node, now, actions);
            }
            (Peer::Node(_), Message::Joined { term, shard, node }) if term == leadership.term() => {
                leadership.joined.insert((shard, node));
            }
            (Peer::Node(_), Message::Filled { term, shard }) if term == leadership.term() => {
                leadership.filled.insert(shard);
            }
            (Peer::Node(_), Message::Withheld { term, shard }) if term == leadership.term() => {
                leadership.withheld.insert(shard);
            }
            (Peer::Node(from), Message::Overdue { term, shard, node })
                if term == leadership.term() =>
            {
                leadership.overdue.insert((shard, node));
                leadership.backing_off.back_off((from, node), self.settings.patience_ns(), now);
            }
            (_, Message::AskConfiguration) => {
                let known = leadership.configuration.clone();
                let answer = known.map(Message::Configuration);
                actions.extend(answer.map(|message| Action::Send { to: from, message }));
            }
            _ => {}
        }
    }
}

impl Leadership {
    /// Leads from the config store's contents. Each member may have a lease of the previous leader.
    fn new(since: Instant, stamp: Stamp, found: Option<Arc<Configuration>>, lapse_ns: u64) -> Self {
        let members = found.iter().flat_map(|configuration| configuration.members.iter());
        let addresses_of = |node| found.as_ref().and_then(|all| all.addresses.get(node).cloned());
        let seen = |node| Seen {
            heard_at: since,
            granted_at: Some(since),
            recovered: Recovered::Nothing,
            addresses: addresses_of(node).unwrap_or_default(),
        };
        let nodes = members.map(|node| (*node, seen(node))).collect();
        let fence = Fence::of_all(after(since, lapse_ns)); // V1
        Leadership {
            since,
            stamp,
            configuration: found,
            proposal: None,
            phase: Phase::Installing { installed: BTreeSet::new(), fence },
            told_at: Instant::default(),
            nodes,
            joined: BTreeSet::new(),
            filled: BTreeSet::new(),
            withheld: BTreeSet::new(),
            overdue: BTreeSet::new(),
            backing_off: BackingOff::default(),
            ending: BTreeMap::new(),
        }
    }

    fn term(&self) -> Term {
        self.configuration.as_ref().map_or(Term(0), |configuration| configuration.term)
    }

    fn is_committed(&self) -> bool {
        matches!(self.phase, Phase::Committed)
    }

    /// The nodes heard from lately; of each name the last incarnation.
    fn live(&self, settings: &Settings, now: Instant) -> BTreeMap<NodeId, Recovered> {
        let mut live = BTreeMap::new();
        let mut last: BTreeMap<u16, NodeId> = BTreeMap::new();
        for node in self.nodes.keys() {
            last.insert(node.name, *node);
        }
        for (node, seen) in &self.nodes {
            let is_heard = now < after(seen.heard_at, settings.silence_ns());
            if is_heard && last.get(&node.name) == Some(node) {
                live.insert(*node, seen.recovered.clone());
            }
        }
        live
    }

    /// The addresses of all nodes ever heard from.
    fn addresses(&self) -> BTreeMap<NodeId, Arc<Addresses>> {
        self.nodes.iter().map(|(node, seen)| (*node, seen.addresses.clone())).collect()
    }

    fn hear_lease(
        &mut self,
        node: NodeId,
        recovered: Recovered,
        addresses: Arc<Addresses>,
        now: Instant,
    ) {
        let granted_at = self.nodes.get(&node).and_then(|seen| seen.granted_at);
        // Of members the config store knows only their ids and addresses.
        self.nodes.insert(node, Seen { heard_at: now, granted_at, recovered, addresses });
    }

    fn answer_lease(
        &mut self,
        node: NodeId,
        sent_at: Instant,
        term: Term,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(configuration) = &self.configuration else { return };
        let proposed = self.proposal.as_ref().map(|proposal| &proposal.configuration);
        let stays = proposed.is_none_or(|proposed| proposed.has(node)); // V3
        if term < configuration.term {
            let message = Message::Install(configuration.clone());
            actions.push(Action::Send { to: Peer::Node(node), message });
        }
        // V5: a lease is for the configuration that the node has installed.
        if configuration.has(node) && stays && term == configuration.term {
            let is_committed = self.is_committed();
            if let Some(seen) = self.nodes.get_mut(&node) {
                seen.granted_at = Some(now);
            }
            let message = Message::Granted { sent_at, term, is_committed };
            actions.push(Action::Send { to: Peer::Node(node), message });
        }
    }

    /// The config store accepted it: now all members must install it.
    fn adopt(&mut self, stamp: Stamp, new: Arc<Configuration>, lapse_ns: u64) {
        let before = match &mut self.phase {
            Phase::Installing { fence, .. } => std::mem::take(fence),
            Phase::Committed => Fence::default(),
        };
        let left_out = self.nodes.iter().filter(|(node, _)| !new.has(**node));
        let fence = before.and(
            left_out.filter_map(|(node, seen)| Some((*node, after(seen.granted_at?, lapse_ns)))),
        );
        self.stamp = stamp;
        self.configuration = Some(new);
        self.proposal = None;
        self.phase = Phase::Installing { installed: BTreeSet::new(), fence };
        self.told_at = Instant::default();
        self.joined.clear();
        self.filled.clear();
        self.withheld.clear();
        self.overdue.clear();
    }

    fn installed(&mut self, node: NodeId, now: Instant, actions: &mut Vec<Action>) {
        if let Phase::Installing { installed, fence } = &mut self.phase {
            installed.insert(node);
            fence.installed(node);
        }
        self.try_commit(now, actions);
    }

    /// Commits the configuration if V2 allows it.
    fn try_commit(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(configuration) = &self.configuration else { return };
        let Phase::Installing { installed, fence } = &self.phase else { return };
        let are_all = configuration.members.iter().all(|member| installed.contains(member));
        if !are_all || now < fence.until() {
            return;
        }
        let message = Message::Commit { term: configuration.term };
        let to_each =
            |member: &NodeId| Action::Send { to: Peer::Node(*member), message: message.clone() };
        actions.extend(configuration.members.iter().map(to_each));
        self.phase = Phase::Committed;
    }

    /// Sends Install again to the nodes that have not installed.
    fn tell_members(&mut self, settings: &Settings, now: Instant, actions: &mut Vec<Action>) {
        self.try_commit(now, actions);
        let Some(configuration) = &self.configuration else { return };
        let Phase::Installing { installed, fence } = &self.phase else { return };
        let is_due =
            self.told_at == Instant::default() || now >= after(self.told_at, 2 * settings.retry_ns);
        if !is_due {
            return;
        }
        self.told_at = now;
        let missing = configuration.members.iter().filter(|member| !installed.contains(member));
        let message = Message::Install(configuration.clone());
        let all = missing.copied().chain(fence.left_out(now));
        let to_each = all.map(|to| Action::Send { to: Peer::Node(to), message: message.clone() });
        actions.extend(to_each);
    }
}

#[cfg(test)]
mod tests;
