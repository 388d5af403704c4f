//! A manager's thread: `cluster::Manager` with a clock, a config store and links.
//!
//! ```text
//!  config store ── answers ──▶ ┌─────────┐ ── requests ──▶ config store
//!  links ── messages ────▶ │ Manager │ ── messages ──▶ links
//!  clock ── next need ───▶ └─────────┘ ── changes ───▶ log
//! ```
//!
//! # Invariants
//! H1: the thread sleeps until an input arrives or until [`Manager::next_need`].
//! H2: a node is answered over the link on which its last message came; before its first message,
//!     at its address.
//! H3: when the thread ends, the config store's session ends with it, so the next manager need not
//!     wait.

mod answers;
mod balance;
mod chronicle;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::Instant;
use cluster::manager::{Action, Event};
use cluster::message::ShardStatistics;
use cluster::{Manager, Message, Peer, Shard};
use config_store_zookeeper::Event as ConfigStoreEvent;
use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use tracing::info;

use crate::admin::Reply;
use crate::clock;
use crate::config_store::{ConfigStore, Place};
use crate::links::{Endpoint, LinkEvent, LinkId, Links};
use crate::quorum::{Host, Membership};
use crate::settings::Stored;

use balance::Balance;
use chronicle::Chronicle;

/// The most messages that wait for the manager. Nodes resend those that are dropped.
const EVENTS_MAX: usize = 16_384;

/// The number of messages handled before the next tick.
const BATCH: usize = 256;

/// The number of peers whose links are remembered.
const PEERS_MAX: usize = 4096;

/// The addresses of a manager.
#[derive(Clone, Debug)]
pub struct Station {
    /// The config store's address.
    pub place: Place,
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// `HOST:PORT` by which servers reach it; none for the address that it listens on.
    pub advertise: Option<String>,
}

/// A running manager. Dropping it releases its claim.
#[derive(Debug)]
pub struct Managing {
    address: SocketAddr,
    advertise: String,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Managing {
    /// Starts the thread, with links of its own.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the operating system provides no thread.
    pub fn start(station: &Station, stored: Stored) -> io::Result<Managing> {
        let (told, heard) = bounded(EVENTS_MAX);
        let key = stored.key.clone();
        let own = Peer::Manager(0);
        let links = Arc::new(Links::start(own, Some(station.listen), key, told, || {})?);
        let address = links.local_addr().unwrap_or(station.listen);
        let advertise = station.advertise.clone().unwrap_or_else(|| address.to_string());
        Managing::run(&station.place, stored, (links, heard), (address, advertise))
    }

    /// Starts the thread in the server of a quorum's member, on the member's port.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start_in(host: &Host, membership: &Membership, stored: Stored) -> io::Result<Managing> {
        let Membership { place, own, .. } = membership;
        let (links, heard, address) = host.manager_ends();
        let advertise = place.members.get(*own).cloned().unwrap_or_else(|| address.to_string());
        let place = Place::Quorum(place.clone());
        Managing::run(&place, stored, (links, heard), (address, advertise))
    }

    fn run(
        place: &Place,
        stored: Stored,
        (links, heard): (Arc<Links>, Receiver<LinkEvent>),
        (address, advertise): (SocketAddr, String),
    ) -> io::Result<Managing> {
        let (config_store_told, answers) = unbounded();
        let config_store = ConfigStore::start(place, move |event| {
            // If no receiver is left, the thread is ending.
            let _ = config_store_told.send(event);
        })?;
        let claim = advertise.as_bytes().into();
        let driver = Driver {
            manager: Manager::at(claim, stored.settings),
            stored,
            config_store,
            links,
            peers: BTreeMap::new(),
            actions: Vec::new(),
            chronicle: Chronicle::default(),
            balance: Balance::default(),
        };
        let (stop, stopped) = bounded(0);
        let run = move || driver.run(&heard, &answers, &stopped);
        let builder = std::thread::Builder::new().name("dovetail-cm".to_owned());
        let thread = Some(builder.spawn(run)?);
        Ok(Managing { address, advertise, stop: Some(stop), thread })
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The address in its claim.
    pub fn advertise(&self) -> &str {
        &self.advertise
    }
}

impl Drop for Managing {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

struct Driver {
    manager: Manager,
    stored: Stored,
    config_store: ConfigStore,
    links: Arc<Links>,
    /// The link on which each peer's last message came (H2).
    peers: BTreeMap<Peer, LinkId>,
    actions: Vec<Action>,
    chronicle: Chronicle,
    balance: Balance,
}

impl Driver {
    fn run(
        mut self,
        heard: &Receiver<LinkEvent>,
        answers: &Receiver<ConfigStoreEvent>,
        stopped: &Receiver<()>,
    ) {
        loop {
            self.input(Event::Tick);
            let now = self.now();
            self.chronicle.look(&self.manager, &self.stored.settings, now);
            let need = self.manager.next_need(now);
            let pause = Duration::from_nanos(need.ns.saturating_sub(now.ns));
            select! {
                recv(heard) -> event => self.take(event.ok()),
                recv(answers) -> event => self.take_answer(event.ok()),
                recv(stopped) -> _ => return,
                default(pause) => {}
            }
            for _ in 0..BATCH {
                match (answers.try_recv(), heard.try_recv()) {
                    (Err(_), Err(_)) => break,
                    (answer, event) => {
                        self.take_answer(answer.ok());
                        self.take(event.ok());
                    }
                }
            }
        }
    }

    /// The time on the clock that counts suspension (K3).
    fn now(&self) -> Instant {
        clock::now()
    }

    fn take_answer(&mut self, event: Option<ConfigStoreEvent>) {
        match event {
            None => {}
            Some(ConfigStoreEvent::Response(response)) => {
                self.chronicle.hear_answer(&response.answer);
                self.input(Event::ConfigStore(response));
            }
            Some(ConfigStoreEvent::Trouble(line)) => self.chronicle.trouble(line),
        }
    }

    fn take(&mut self, event: Option<LinkEvent>) {
        match event {
            Some(LinkEvent::Message { from, link, message, .. }) => {
                if self.peers.len() >= PEERS_MAX {
                    self.peers.clear();
                }
                self.peers.insert(from, link);
                match message {
                    Message::Statistics { window_ns, shards, .. } => {
                        self.weigh(from, window_ns, shards);
                    }
                    message => self.input(Event::Message { from, message }),
                }
            }
            Some(LinkEvent::Ask { link, id, bytes }) => self.answer(link, id, &bytes),
            Some(LinkEvent::Answer { .. }) | None => {}
        }
    }

    /// Takes in a node's load report; moves shards away from overloaded nodes.
    fn weigh(&mut self, from: Peer, window_ns: u64, shards: Vec<ShardStatistics>) {
        let (Peer::Node(node), now) = (from, self.now()) else { return };
        let Some(configuration) = self.manager.configuration().filter(|all| all.has(node)) else {
            return;
        };
        self.balance.hear(node, window_ns, shards, now);
        let is_changing = |shard: &Shard| shard.joining.is_some() || shard.filling_from.is_some();
        let is_busy = !self.manager.is_committed()
            || self.manager.moves().next().is_some()
            || configuration.shards.iter().any(is_changing);
        let leaving = self.manager.leaving();
        let moves = self.balance.moves(configuration, leaving, is_busy, now);
        if !self.stored.rebalance || self.manager.is_paused() {
            return;
        }
        for (shard, target) in moves {
            info!(shard = shard.0, %target, "a shard moves: its node is busier than the others");
            self.input(Event::Move { shard, target });
        }
    }

    /// Answers an operator. A manager that does not lead stays silent: the request is sent again,
    /// to the leader.
    fn answer(&mut self, link: LinkId, id: u64, bytes: &[u8]) {
        let now = self.now();
        let reply = match serde_json::from_slice(bytes) {
            Ok(question) => {
                let (manager, balance) = (&self.manager, &self.balance);
                let answer = answers::answer(question, manager, balance, &self.stored, now);
                let Some((reply, events)) = answer else { return };
                if let Reply::Done(line) = &reply
                    && !events.is_empty()
                {
                    info!("an operator: {line}");
                }
                events.into_iter().for_each(|event| self.input(event));
                reply
            }
            Err(error) => Reply::Refused(format!("the manager does not know this: {error}")),
        };
        // The reply has only numbers and short words, which JSON can always represent.
        self.links.answer(link, id, serde_json::to_vec(&reply).unwrap_or_default());
    }

    fn input(&mut self, event: Event) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        self.manager.input(event, now, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::ConfigStore(request) => self.config_store.ask(request),
                Action::Send { to, message } => self.send(to, message),
            }
        }
        self.actions = actions;
    }

    fn send(&self, to: Peer, message: Message) {
        let at = match (self.peers.get(&to), to) {
            (Some(link), _) => Endpoint::Link(*link),
            (None, Peer::Node(node)) => {
                let configuration = self.manager.configuration();
                let address = configuration.and_then(|all| all.addresses(node));
                match address {
                    Some(address) => Endpoint::Address(Arc::from(address.peer.as_str())),
                    None => return,
                }
            }
            _ => return,
        };
        self.links.send(&at, to, message);
    }
}

#[cfg(test)]
mod tests;
