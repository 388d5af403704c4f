//! The simulated world: servers, managers, a config store and clients in one event queue, from one
//! seed.
//!
//! ```text
//!  queue ─▶ deliver ─▶ Node::input, Manager::input, Client::wake ─▶ actions ─▶ network, disk
//!              ▲ faults: cut, crash, pause, slow, rot, end sessions
//! ```
//!
//! # Invariants
//! I1: a run is a function of its options: it uses no time, no thread, and no map in random order.
//! I2: a message to a paused process waits; a message to an ended incarnation is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::config_store::{Answer, EmbeddedConfigStore, Request, Response, SessionId};
use cluster::message::Lane;
use cluster::{
    Durability, Manager, Message, Node, NodeId, Outcome, Peer, Settings, Way, manager, node,
};

use crate::cluster::client::{Client, Mode, Sent, Sizes};
use crate::cluster::dice::Dice;
use crate::cluster::groups::{Ended, Group, Groups};
use crate::cluster::machines::{Clock, Crew, Disk, TestReplicaStore};
use crate::cluster::scenario::{MS, Scenario};
use crate::cluster::watch::Watch;
use crate::cluster::{Options, Plant};
use crate::engine::EventQueue;

/// Clients begin when the first configuration is committed.
const CLIENTS_START_NS: u64 = 60 * MS;
const TICK_NS: u64 = MS;

/// The events.
#[derive(Debug)]
pub(super) enum Happening {
    Node { name: usize, incarnation: u32, what: ToNode },
    Manager { id: usize, incarnation: u32, what: manager::Event },
    ConfigStore { manager: usize, incarnation: u32, request: Request },
    ConfigStoreTick,
    Client { client: usize, message: Option<Message> },
    GroupEnds(Ended),
    FaultBegins(usize),
    FaultEnds(usize),
    StartNode(usize),
    StartManager(usize),
}

#[derive(Debug)]
pub(super) enum ToNode {
    Tick,
    Message { from: Peer, message: Message },
    Group(Group),
    Landed { lane: Lane, way: Way, bytes: Arc<[u8]> },
    Digested,
    Synced { len_bytes: usize, appended_bytes: u64 },
}

/// One server, through all its incarnations.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) incarnation: u32,
    pub(super) node: Option<Node<TestReplicaStore>>,
    pub(super) clock: Clock,
    pub(super) groups: Groups,
    pub(super) paused_until_ns: u64,
    pub(super) disk: Disk,
    pub(super) disk_slow_until_ns: u64,
    /// The earliest end of the next sync.
    pub(super) disk_stalled_until_ns: u64,
    /// The last incarnation whose data may be damaged, because a bit of the disk has flipped.
    pub(super) rotten_through_incarnation: u32,
}

/// One manager, through all its incarnations.
#[derive(Debug)]
pub(super) struct Office {
    pub(super) incarnation: u32,
    pub(super) manager: Option<Manager>,
    pub(super) clock: Clock,
    pub(super) paused_until_ns: u64,
}

/// The whole simulated world.
pub(super) struct World<'a> {
    pub(super) options: &'a Options,
    pub(super) scenario: Scenario,
    pub(super) settings: Settings,
    pub(super) now_ns: u64,
    pub(super) queue: EventQueue<u32>,
    /// The queued events, by place: the queue moves its entries, and events are large.
    happenings: Vec<Option<Happening>>,
    free_places: Vec<u32>,
    pub(super) chance: Dice,
    pub(super) servers: Vec<Server>,
    pub(super) offices: Vec<Office>,
    pub(super) config_store: EmbeddedConfigStore,
    pub(super) sessions: BTreeMap<SessionId, usize>,
    pub(super) clients: Vec<Client>,
    /// The number of cuts between two end points, by [`World::end_point`].
    pub(super) cuts: Vec<Vec<u32>>,
    /// From this time on no message is lost, late or duplicated.
    pub(super) is_quiet: bool,
    pub(super) watch: Watch,
    pub(super) failure: Option<String>,
    pub(super) event_count: u64,
    pub(super) struck: u64,
    /// The number of servers that were told to end and handed over everything.
    pub(super) left: u64,
    /// The number of groups that were executed.
    pub(super) group_count: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(options: &'a Options, scenario: Scenario) -> World<'a> {
        let settings = settings_of(&scenario);
        let dice = &mut Dice::new(options.seed, 2);
        let drift_ppm = scenario.drift_ppm;
        let servers = (0..scenario.node_count).map(|_| Server {
            incarnation: 0,
            node: None,
            clock: Clock::draw(drift_ppm, dice),
            groups: Groups::default(),
            paused_until_ns: 0,
            disk: Disk::default(),
            disk_slow_until_ns: 0,
            disk_stalled_until_ns: 0,
            rotten_through_incarnation: 0,
        });
        let servers: Vec<Server> = servers.collect();
        let offices = (0..scenario.manager_count).map(|_| Office {
            incarnation: 0,
            manager: None,
            clock: Clock::draw(drift_ppm, dice),
            paused_until_ns: 0,
        });
        let offices: Vec<Office> = offices.collect();
        let end_points = servers.len() + offices.len() + 1;
        let sizes = Sizes {
            nodes: servers.len(),
            managers: offices.len(),
            keys: scenario.keys,
            shards: scenario.shards,
            requests: scenario.requests_per_client,
            has_groups: options.has_groups,
        };
        let clients = (1..=scenario.client_count as u64)
            .map(|id| Client::new(id, options.seed, Mode::Mixed, sizes));
        let clients = clients.collect();
        let mut world = World {
            options,
            settings,
            now_ns: 0,
            queue: EventQueue::default(),
            happenings: Vec::new(),
            free_places: Vec::new(),
            chance: Dice::new(options.seed, 3),
            servers,
            offices,
            config_store: EmbeddedConfigStore::default(),
            sessions: BTreeMap::new(),
            clients,
            cuts: vec![vec![0; end_points]; end_points],
            is_quiet: false,
            watch: Watch::default(),
            failure: None,
            event_count: 0,
            struck: 0,
            left: 0,
            group_count: 0,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for name in 0..self.servers.len() {
            self.push(self.now_ns, Happening::StartNode(name));
        }
        for id in 0..self.offices.len() {
            self.push(self.now_ns, Happening::StartManager(id));
        }
        for client in 0..self.clients.len() {
            self.push(CLIENTS_START_NS, Happening::Client { client, message: None });
        }
        for index in 0..self.scenario.faults.len() {
            let at_ns = self.scenario.faults[index].at_ns;
            self.push(at_ns, Happening::FaultBegins(index));
        }
        self.push(0, Happening::ConfigStoreTick);
    }

    pub(super) fn push(&mut self, at_ns: u64, happening: Happening) {
        let place = self.free_places.pop().unwrap_or(self.happenings.len() as u32);
        match self.happenings.get_mut(place as usize) {
            Some(free) => *free = Some(happening),
            None => self.happenings.push(Some(happening)),
        }
        self.queue.push(at_ns as f64, place);
    }

    /// Runs until that time, or until a violation.
    pub(super) fn run_until(&mut self, end_ns: u64) {
        while self.failure.is_none() && self.queue.peek_at().is_some_and(|at| at <= end_ns as f64) {
            let Some((at, place)) = self.queue.pop() else { break };
            self.now_ns = at as u64;
            self.event_count += 1;
            self.free_places.push(place);
            if let Some(happening) = self.happenings[place as usize].take() {
                self.happen(happening);
            }
        }
        self.now_ns = self.now_ns.max(end_ns);
    }

    pub(super) fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Node { name, incarnation, what } => self.tell_node(name, incarnation, what),
            Happening::Manager { id, incarnation, what } => {
                self.tell_manager(id, incarnation, what)
            }
            Happening::ConfigStore { manager, incarnation, request } => {
                self.tell_config_store(manager, incarnation, request);
            }
            Happening::ConfigStoreTick => {
                let mut responses = Vec::new();
                self.config_store.expire(base::Instant { ns: self.now_ns }, &mut responses);
                self.push(self.now_ns + TICK_NS, Happening::ConfigStoreTick);
                responses.into_iter().for_each(|response| self.respond(None, response));
            }
            Happening::Client { client, message } => self.tell_client(client, message),
            Happening::GroupEnds((client, sequence, outcomes)) => {
                self.tell_group(client, sequence, outcomes);
            }
            Happening::FaultBegins(index) => self.begin_fault(index),
            Happening::FaultEnds(index) => self.end_fault(index),
            Happening::StartNode(name) => self.start_node(name),
            Happening::StartManager(id) => self.start_manager(id),
        }
    }

    fn tell_node(&mut self, name: usize, incarnation: u32, what: ToNode) {
        let server = &mut self.servers[name];
        let incarnation = if incarnation == 0 { server.incarnation } else { incarnation };
        if server.incarnation != incarnation || server.node.is_none() {
            return; // I2
        }
        if server.paused_until_ns > self.now_ns {
            let at_ns = server.paused_until_ns;
            return self.push(at_ns, Happening::Node { name, incarnation, what });
        }
        let now = server.clock.at(self.now_ns);
        let Some(node) = &mut server.node else { return };
        let mut actions = Vec::new();
        let is_tick = matches!(what, ToNode::Tick);
        if self.options.trace && !is_tick {
            eprintln!("{:>12} n{name}.{incarnation} <- {}", self.now_ns, shown(&what));
        }
        match what {
            ToNode::Tick => node.input(node::Event::Tick, now, &mut actions),
            ToNode::Message { from, message } => {
                let message = Plant::distort(self.options.plant, node, message);
                if let Message::Request(request) = &message {
                    server.groups.ask(request, node, self.now_ns);
                }
                node.input(node::Event::Message { from, message }, now, &mut actions);
            }
            ToNode::Group(group) => server.groups.add(group, self.now_ns),
            ToNode::Landed { lane, way, bytes } => {
                let lane = Plant::distort_lane(self.options.plant, node, lane);
                node.input(node::Event::Landed { lane, way, bytes: &bytes }, now, &mut actions);
            }
            ToNode::Digested => {
                node.replica_store().is_woken.set(false);
                node.replica_store().digest_some();
                node.input(node::Event::Digested, now, &mut actions);
            }
            ToNode::Synced { len_bytes, appended_bytes } => {
                let logged_bytes =
                    server.disk.synced(len_bytes, self.options.plant == Some(Plant::Sync));
                let is_log = node.replica_store().is_log;
                let through_bytes = if is_log { appended_bytes } else { logged_bytes };
                node.input(node::Event::Synced { through_bytes }, now, &mut actions);
            }
        }
        if node.has_steps() {
            node.input(node::Event::Step, now, &mut actions);
        }
        let ended = server.groups.turn(node, (now, self.now_ns), &mut actions);
        let id = node.id();
        server.disk.append(&node.replica_store().unlogged.take());
        if node.replica_store().has_waiting() && !node.replica_store().is_woken.replace(true) {
            let at_ns = self.now_ns + self.chance.between(MS / 100, 2 * MS);
            self.push(at_ns, Happening::Node { name, incarnation, what: ToNode::Digested });
        }
        for action in actions {
            self.act(name, id, action);
        }
        if let Some(ended) = ended {
            self.end_group(name, ended);
        }
        if is_tick {
            self.push(
                self.now_ns + TICK_NS,
                Happening::Node { name, incarnation, what: ToNode::Tick },
            );
            self.watch_primaries(name);
            self.watch_leaving(name);
        }
    }

    fn act(&mut self, name: usize, id: NodeId, action: node::Action) {
        match action {
            node::Action::Send { to: Peer::Client(client), message } => {
                let server = &mut self.servers[name];
                let ended = match &message {
                    Message::Reply { sequence, outcome } => {
                        server.groups.replied(client, *sequence, outcome)
                    }
                    _ => None,
                };
                if !client.is_anonymous() {
                    return self.send(Peer::Node(id), Peer::Client(client), message);
                }
                if let Some(ended) = ended {
                    self.end_group(name, ended);
                }
            }
            node::Action::Send { to, message } => {
                if self.options.plant == Some(Plant::Lease)
                    && let Message::Lease { sent_at, term, .. } = message
                {
                    let message = Message::Granted { sent_at, term, is_committed: true };
                    let what = ToNode::Message { from: Peer::Manager(0), message };
                    self.push(
                        self.now_ns + 1,
                        Happening::Node { name, incarnation: id.incarnation, what },
                    );
                }
                self.send(Peer::Node(id), to, message);
            }
            node::Action::Land { to, term, way, bytes } => {
                let lane = Lane { from: id, term };
                if self.options.plant == Some(Plant::Ack) && self.chance.happens(100_000) {
                    let message = Plant::forged_ack(term, &bytes);
                    let what = ToNode::Message { from: Peer::Node(to), message };
                    return self.push(
                        self.now_ns + MS / 10,
                        Happening::Node { name, incarnation: id.incarnation, what },
                    );
                }
                for at_ns in self.journeys(name, usize::from(to.name)) {
                    let (name, incarnation) = (usize::from(to.name), to.incarnation);
                    let what = ToNode::Landed { lane, way, bytes: bytes.clone() };
                    self.push(at_ns, Happening::Node { name, incarnation, what });
                }
            }
            node::Action::Append(bytes) => self.servers[name].disk.append(&bytes),
            node::Action::Sync => {
                let server = &self.servers[name];
                let len_bytes = server.disk.len_bytes();
                let is_slow = server.disk_slow_until_ns > self.now_ns;
                let most_ns = if is_slow { 40 * MS } else { MS };
                let at_ns = self.now_ns.max(server.disk_stalled_until_ns);
                let at_ns = at_ns + self.chance.between(MS / 10, most_ns);
                let appended_bytes = server.node.as_ref().map_or(0, Node::appended_bytes);
                let what = ToNode::Synced { len_bytes, appended_bytes };
                self.push(at_ns, Happening::Node { name, incarnation: id.incarnation, what });
            }
        }
    }

    fn tell_manager(&mut self, id: usize, incarnation: u32, what: manager::Event) {
        let office = &mut self.offices[id];
        if office.incarnation != incarnation || office.manager.is_none() {
            return;
        }
        if office.paused_until_ns > self.now_ns {
            let at_ns = office.paused_until_ns;
            return self.push(at_ns, Happening::Manager { id, incarnation, what });
        }
        let now = Plant::manager_time(self.options.plant, office.clock.at(self.now_ns));
        let Some(manager) = &mut office.manager else { return };
        let is_tick = matches!(what, manager::Event::Tick);
        if self.options.trace && !is_tick {
            eprintln!("{:>12} m{id}.{incarnation} <- {}", self.now_ns, short(&format!("{what:?}")));
        }
        let mut actions = Vec::new();
        manager.input(what, now, &mut actions);
        if is_tick {
            let what = manager::Event::Tick;
            self.push(self.now_ns + TICK_NS, Happening::Manager { id, incarnation, what });
        }
        for action in actions {
            match action {
                manager::Action::Send { to, message } => {
                    self.send(Peer::Manager(id as u16), to, message);
                }
                manager::Action::ConfigStore(request) => {
                    for at_ns in self.journeys(self.office_point(id), self.config_store_point()) {
                        let request = request.clone();
                        self.push(
                            at_ns,
                            Happening::ConfigStore { manager: id, incarnation, request },
                        );
                    }
                }
            }
        }
    }

    fn tell_config_store(&mut self, manager: usize, incarnation: u32, request: Request) {
        if self.options.trace {
            eprintln!(
                "{:>12} config store <- m{manager} {}",
                self.now_ns,
                short(&format!("{request:?}"))
            );
        }
        let mut responses = Vec::new();
        let now = base::Instant { ns: self.now_ns };
        self.config_store.input(request, now, &mut responses);
        self.watch_config_store();
        for response in responses {
            self.respond(Some((manager, incarnation)), response);
        }
    }

    /// The receiver of a response: the session's manager, or the one that asked without a session.
    fn respond(&mut self, asker: Option<(usize, u32)>, response: Response) {
        if let (Answer::Opened(session), Some((manager, _))) = (&response.answer, asker) {
            self.sessions.insert(*session, manager);
        }
        let manager = match response.session {
            Some(session) => self.sessions.get(&session).copied(),
            None => asker.map(|(manager, _)| manager),
        };
        let Some(id) = manager else { return };
        let incarnation = self.offices[id].incarnation;
        if asker.is_some_and(|(asker, asked_in)| asker == id && asked_in != incarnation) {
            return;
        }
        for at_ns in self.journeys(self.config_store_point(), self.office_point(id)) {
            let what = manager::Event::ConfigStore(response.clone());
            self.push(at_ns, Happening::Manager { id, incarnation, what });
        }
    }

    fn tell_client(&mut self, client: usize, message: Option<Message>) {
        let mut sent = Vec::new();
        let now_ns = self.now_ns;
        self.drive_client(client, |one| match message {
            Some(message) => one.hear(message, now_ns),
            None if one.wake_ns <= now_ns => one.wake(now_ns, &mut sent),
            None => {}
        });
        let from = Peer::Client(cluster::ClientId(client as u64 + 1));
        for sent in sent {
            match sent {
                Sent::Message(to, message) => self.send(from, to, message),
                Sent::Group(to, group) => self.send_group(to, group),
            }
        }
    }

    /// A group reaches its server once or not at all: it comes from a worker there.
    fn send_group(&mut self, to: NodeId, group: Group) {
        let (name, incarnation) = (usize::from(to.name), to.incarnation);
        if let Some(at_ns) = self.journeys(usize::MAX, name).first() {
            let what = ToNode::Group(group);
            self.push(*at_ns, Happening::Node { name, incarnation, what });
        }
    }

    fn end_group(&mut self, name: usize, ended: Ended) {
        self.group_count += u64::from(ended.2.is_some());
        if let Some(at_ns) = self.journeys(name, usize::MAX).first() {
            self.push(*at_ns, Happening::GroupEnds(ended));
        }
    }

    fn tell_group(&mut self, client: usize, sequence: u64, outcomes: Option<Vec<Outcome>>) {
        let now_ns = self.now_ns;
        self.drive_client(client, |one| one.hear_group(sequence, outcomes, now_ns));
    }

    /// Lets a client act, and wakes it when it wants to be woken.
    fn drive_client(&mut self, client: usize, act: impl FnOnce(&mut Client)) {
        let Some(one) = self.clients.get_mut(client) else { return };
        let wake_before_ns = one.wake_ns;
        act(one);
        if one.wake_ns != wake_before_ns && !one.is_done() {
            let at_ns = one.wake_ns;
            self.push(at_ns, Happening::Client { client, message: None });
        }
    }

    fn send(&mut self, from: Peer, to: Peer, message: Message) {
        self.watch.hear(&message);
        let (start, end) = (self.end_point(from), self.end_point(to));
        for at_ns in self.journeys(start, end) {
            let message = message.clone();
            let happening = match to {
                Peer::Node(NodeId { name, incarnation }) => {
                    let what = ToNode::Message { from, message };
                    Happening::Node { name: usize::from(name), incarnation, what }
                }
                Peer::Manager(id) => {
                    let id = usize::from(id);
                    let (incarnation, what) =
                        (self.offices[id].incarnation, manager::Event::Message { from, message });
                    Happening::Manager { id, incarnation, what }
                }
                Peer::Client(client) => {
                    let client = client.0 as usize - 1;
                    Happening::Client { client, message: Some(message) }
                }
            };
            self.push(at_ns, happening);
        }
    }

    /// Servers, managers, the config store; clients share one that is never cut.
    fn end_point(&self, peer: Peer) -> usize {
        match peer {
            Peer::Node(node) => usize::from(node.name),
            Peer::Manager(id) => self.office_point(usize::from(id)),
            Peer::Client(_) => usize::MAX,
        }
    }

    fn office_point(&self, id: usize) -> usize {
        self.servers.len() + id
    }

    pub(super) fn config_store_point(&self) -> usize {
        self.servers.len() + self.offices.len()
    }

    /// The arrival times of a message: none, one or two.
    fn journeys(&mut self, from: usize, to: usize) -> Vec<u64> {
        let cut = self.cuts.get(from).and_then(|row| row.get(to));
        if cut.is_some_and(|count| *count > 0) {
            return Vec::new();
        }
        let (now_ns, chance) = (self.now_ns, &mut self.chance);
        let mut times = vec![now_ns + chance.between(20_000, 120_000)];
        if self.is_quiet {
            return times;
        }
        if chance.happens(self.scenario.duplicate_ppm) {
            times.push(now_ns + chance.between(20_000, 8 * MS));
        }
        for at_ns in &mut times {
            if chance.happens(self.scenario.long_delay_ppm) {
                *at_ns += chance.between(MS / 2, 20 * MS);
            }
        }
        times.retain(|_| !chance.happens(self.scenario.loss_ppm));
        times
    }

    pub(super) fn start_node(&mut self, name: usize) {
        let server = &mut self.servers[name];
        if server.node.is_some() {
            return;
        }
        server.incarnation += 1;
        let id = NodeId { name: name as u16, incarnation: server.incarnation };
        let manager_count = self.offices.len() as u16;
        let loses_deletes = self.options.plant == Some(Plant::Tombstone);
        let is_log = self.scenario.replica_store_is_log;
        let loses_flushes = self.options.plant == Some(Plant::Flush);
        let incarnation = server.incarnation;
        let is_hasty = self.options.plant == Some(Plant::Early);
        let crew = Crew::new(self.options.seed, incarnation, is_hasty);
        let crew = self.scenario.digests_later.then(|| crew.into());
        let replica_store = TestReplicaStore {
            incarnation,
            crew,
            loses_deletes,
            loses_flushes,
            is_log,
            ..TestReplicaStore::default()
        };
        let is_recovered = self.scenario.is_durable && server.incarnation > 1;
        let check = match self.options.plant {
            Some(Plant::Checksum) => cluster::record::Check::Nothing,
            _ => cluster::record::Check::Checksum,
        };
        let mut node = if is_recovered {
            let log = server.disk.bytes();
            let earlier = server.incarnation - 1;
            let (node, whole_bytes) = Node::recover(
                id,
                earlier,
                (self.settings, check),
                manager_count,
                replica_store,
                log,
            );
            server.disk.begin(whole_bytes);
            node.replica_store().unlogged.take(); // It is there.
            node
        } else {
            server.disk = Disk::default();
            Node::new(id, self.settings, manager_count, replica_store)
        };
        node.set_check(check);
        server.node = Some(node);
        self.push(self.now_ns, Happening::Node { name, incarnation, what: ToNode::Tick });
    }

    pub(super) fn start_manager(&mut self, id: usize) {
        let office = &mut self.offices[id];
        if office.manager.is_none() {
            office.incarnation += 1;
            let settings = Plant::settings(self.options.plant, self.settings);
            office.manager = Some(Manager::new(id as u16, settings));
            let (incarnation, what) = (office.incarnation, manager::Event::Tick);
            self.push(self.now_ns, Happening::Manager { id, incarnation, what });
        }
    }
}

/// Small limits, so that each is reached.
fn settings_of(scenario: &Scenario) -> Settings {
    let durability = if scenario.is_durable { Durability::Fsync } else { Durability::Replicated };
    Settings {
        shards: scenario.shards,
        durability,
        scheme: scenario.scheme,
        datagram_bytes: 320,
        segment_bytes: 2_048,
        copy_part_entries: 2,
        copies_at_once: 2,
        pending_max: 64,
        grace_ns: 200 * MS,
        ..Settings::default()
    }
}

fn shown(what: &ToNode) -> String {
    match what {
        ToNode::Landed { lane, bytes, .. } => {
            let header = cluster::record::Header::peek(bytes);
            let what = header.map(|header| {
                format!("{:?} s{} v{:x}", header.kind, header.shard.0, header.version.bits())
            });
            format!("landed {}@{} {}B {what:?}", lane.from, lane.term.0, bytes.len())
        }
        ToNode::Message { message: Message::Install(configuration), .. } => {
            format!("install {configuration}")
        }
        other => short(&format!("{other:?}")),
    }
}

fn short(text: &str) -> String {
    text.chars().take(260).collect()
}
