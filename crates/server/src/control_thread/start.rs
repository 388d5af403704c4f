//! The start of a cluster's node: settings from the config store, links, the landing socket, and
//! the control thread.
//!
//! ```text
//!  keeping: a member of the config store, a manager              if the servers keep it themselves
//!  join:    config store ─▶ settings, name                           before the store is opened
//!  prepare: links, socket, replica store, node, view, channel            before the workers start
//!  spawn:   the control thread                                   behind them
//! ```

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster::datagram::THREAD_AT;
use cluster::message::Recovered;
use cluster::{Addresses, Durability, Node, NodeId, Peer, Scheme, Settings};
use cluster_io::{Discovery, Found, LinkEvent, Links, Stored};
use config::StartError;
use config::{ClusterConfig, Config};
use crossbeam_channel::{Receiver, bounded, unbounded};
use dispatch::lanes::Fabric;
use host::poller::Waker;
use replication::cluster::View;
use replication::cluster::inbound_log::{self, InboundLogs, Post};
use replication::cluster::keeper::Keeper;
use replication::cluster::landing::Landing;
use replication::cluster::replica_store::{Call, ServerReplicaStore};
use replication::cluster::socket::Socket;
use replication::cluster::syncing::Syncing;
use replication::durable::{Data, Owner, Tenancy, Tenant};
use replication::replicate::{ControlChannel, Ends, Guests};
use runtime::shared::Shared;

use super::control::{Control, State};
use super::departure::{self, Asking};
use super::keeping::{self, Keeping};
use super::peers::Peers;
use super::published::Published;

/// How long the config store has to answer what the cluster's settings are.
const SETTINGS_TIME_MAX: Duration = Duration::from_secs(15);
/// Messages that wait for the control thread; peers repeat dropped ones.
const EVENTS_MAX: usize = 65_536;
/// Incarnations are counted from 2026-01-01, in tenths of a second.
const LIVES_SINCE: Duration = Duration::from_secs(1_767_225_600);

/// The answer of the config store.
pub struct Joined {
    config: ClusterConfig,
    keeping: Option<Keeping>,
    discovery: Discovery,
    found: Receiver<Found>,
    stored: Arc<Stored>,
    channel: ControlChannel,
    ends: Ends,
    /// The tenant that opens the data directory, if there is one.
    pub tenant: Tenant,
}

/// The parts with which the control thread begins.
pub struct Prepared {
    keeping: Option<Keeping>,
    discovery: Discovery,
    found: Receiver<Found>,
    links: Links,
    events: Receiver<LinkEvent>,
    landing: Landing,
    inbound_logs: Option<Arc<InboundLogs>>,
    node: Node<ServerReplicaStore>,
    syncing: Syncing,
    view: Arc<View>,
    ends: Ends,
    lease_ns: u64,
    peer: String,
}

/// The control thread of a cluster's node.
pub struct ControlThread {
    asking: Asking,
    is_ended: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    /// Ends with it.
    _discovery: Discovery,
    /// Ends last: the manager may have to hand this node's shards over.
    _keeping: Option<Keeping>,
}

fn refused(reason: String) -> StartError {
    StartError::Cluster { reason }
}

/// Reads the cluster's settings, and refuses settings that contradict them.
pub fn join(all: &Config, config: &ClusterConfig) -> Result<Joined, StartError> {
    let keeping = keeping::start(all, config)?;
    let (channel, ends) = ControlChannel::new(all.threads)
        .map_err(|source| StartError::System { what: "start the control thread", source })?;
    let (told, found) = unbounded();
    let waker = ends.waker.clone();
    let discovery = Discovery::start(&config.config_store, move |what| {
        // The receiver is gone: the server is ending.
        let _ = told.send(what);
        waker.wake();
    })
    .map_err(|source| StartError::System { what: "look into the config store", source })?;
    let stored = wait_for_settings(&found)?;
    check(config, &stored)?;
    check_durability(all, &stored)?;
    let NodeId { name, incarnation: incarnation_min } = node_id(config);
    let tag = stored.key.tag(&[b"data directory"]);
    let mark = tag.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let owner = Owner { name, mark, cluster: stored.name.clone() };
    let tenant = Tenant { owner, incarnation_min };
    let config = config.clone();
    Ok(Joined { config, keeping, discovery, found, stored, channel, ends, tenant })
}

/// Binds the peers' port, and gives the workers their view and channel.
pub fn prepare(shared: &Arc<Shared>, joined: Joined) -> Result<Prepared, StartError> {
    let Joined { config, keeping, discovery, found, stored, channel, ends, tenant } = joined;
    let tenancy = shared.data().and_then(Data::take_tenancy);
    let incarnation =
        tenancy.as_ref().map_or(tenant.incarnation_min, |tenancy| tenancy.kept.incarnation);
    let id = NodeId { name: tenant.owner.name, incarnation };
    let key = cluster::datagram::Key::new(stored.key.bytes())
        .map_err(|error| refused(error.to_string()))?;
    let settings = stored.settings;
    let in_use = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AddrInUse => refused(format!(
            "--peer {} is in use by another process: give this node another port",
            config.peer
        )),
        _ => refused(format!("--peer {}: {source}", config.peer)),
    };
    let view = Arc::new(View::new(id));
    let post = Post { own: id, key: &key, datagram_bytes: settings.datagram_bytes };
    let opened = open_sockets(shared, &config, post, (settings, &ends.waker), &view);
    let (socket, inbound_logs) = opened.map_err(in_use)?;
    let landing = Landing::new(socket, (id, key), (settings.scheme, settings.datagram_bytes));
    let (heard, events) = bounded(EVENTS_MAX);
    let waker = ends.waker.clone();
    let wake = move || waker.wake();
    let links = Links::start(Peer::Node(id), Some(config.peer), stored.key.clone(), heard, wake)
        .map_err(in_use)?;
    let call: Call = Arc::new(ends.caller());
    let digest = (config.digest_threads, &call, &ends.waker);
    let mut node = node_of(shared, tenancy, (id, settings), digest)?;
    node.set_addresses(addresses(shared, &config));
    let syncing = match shared.data() {
        Some(data) => Syncing::start(Arc::clone(data.durable()), ends.waker.clone())
            .map_err(|source| StartError::System { what: "start the thread of syncs", source })?,
        None => Syncing::default(),
    };
    shared.set_cluster(Arc::clone(&view), Some(Arc::new(channel)));
    let digest = match config.digest_threads {
        0 => String::new(),
        count => format!(", {count} digest threads"),
    };
    tracing::info!("node {id} of the cluster {}, peers at {}{digest}", stored.name, config.peer);
    let lease_ns = settings.lease_ns;
    Ok(Prepared {
        peer: peer_text(&config),
        keeping,
        discovery,
        found,
        links,
        events,
        landing,
        inbound_logs,
        node,
        syncing,
        view,
        ends,
        lease_ns,
    })
}

/// The peers' socket, and under the scheme `rpc` the workers' receivers.
fn open_sockets(
    shared: &Shared,
    config: &ClusterConfig,
    post: Post<'_>,
    (settings, waker): (Settings, &Waker),
    view: &View,
) -> io::Result<(Socket, Option<Arc<InboundLogs>>)> {
    let first = UdpSocket::bind(config.peer)?;
    if settings.scheme != Scheme::Rpc {
        return Ok((Socket::new(first)?, None));
    }
    // A group would silently let a second server of this user share the address.
    drop(first);
    let others = u16::try_from(shared.config().threads).unwrap_or(u16::MAX - 1);
    let mut sockets = landing::steer::unsteered(config.peer, others + 1)?;
    let workers = sockets.split_off(1);
    let first = sockets.pop().ok_or(io::ErrorKind::NotFound)?;
    landing::steer::steer_apart(&first, THREAD_AT as u32, others)?;
    let waker = Some(waker).filter(|_| settings.durability == Durability::Fsync);
    let (inbound_logs, receivers) = inbound_log::receivers(workers, post, waker)?;
    view.leave_receivers(receivers);
    Ok((Socket::new(first)?, Some(inbound_logs)))
}

/// The node, over the contents of its data directory.
fn node_of(
    shared: &Shared,
    tenancy: Option<Tenancy>,
    (id, settings): (NodeId, Settings),
    (digest_threads, call, waker): (usize, &Call, &Waker),
) -> Result<Node<ServerReplicaStore>, StartError> {
    let failed = |source| StartError::System { what: "start the digest threads", source };
    let no_session = |error: store::NoSession| StartError::Store { reason: error.to_string() };
    let Some(tenancy) = tenancy else {
        let mut replica_store = ServerReplicaStore::new(shared.store()).map_err(no_session)?;
        replica_store.employ(digest_threads, call).map_err(failed)?;
        replica_store.book(shared.buffer_budget());
        return Ok(Node::new(id, settings, 1, replica_store));
    };
    let keep = Keeper::start(tenancy.keeper(), waker.clone())
        .map_err(|source| StartError::System { what: "start the thread of NODE", source })?;
    let Tenancy { kept, recovered, .. } = tenancy;
    let mut replica_store =
        ServerReplicaStore::durable(shared.store(), kept, Box::new(keep)).map_err(no_session)?;
    replica_store.employ(digest_threads, call).map_err(failed)?;
    replica_store.book(shared.buffer_budget());
    let shards = replica_store.recovered();
    match &recovered {
        Recovered::Nothing => tracing::info!("the data directory has nothing of this node yet"),
        _ => tracing::info!("the data directory has something of {} shards", shards.len()),
    }
    Ok(Node::resume(id, settings, 1, replica_store, (recovered, &shards)))
}

fn wait_for_settings(found: &Receiver<Found>) -> Result<Arc<Stored>, StartError> {
    let deadline = Instant::now() + SETTINGS_TIME_MAX;
    let mut trouble = None;
    loop {
        match found.recv_deadline(deadline) {
            Ok(Found::Settings(stored)) => return Ok(stored),
            Ok(Found::Trouble(line)) => {
                tracing::warn!("the cluster's config store: {line}");
                trouble = Some(line);
            }
            Ok(Found::Leader(_)) => {}
            Err(_) => {
                let line = trouble.unwrap_or_else(|| "it does not answer".to_owned());
                return Err(refused(format!("the cluster's config store: {line}")));
            }
        }
    }
}

/// Checks that the configured expectations match the cluster's settings.
fn check(config: &ClusterConfig, stored: &Stored) -> Result<(), StartError> {
    let settings = stored.settings;
    let name = &stored.name;
    differs(name, "copies", config.copies, settings.copies)?;
    differs(name, "min-copies", config.min_copies, settings.min_copies)?;
    differs(name, "replication", config.replication, settings.scheme)
}

fn differs<T: PartialEq + Display>(
    name: &str,
    flag: &str,
    asked: Option<T>,
    has: T,
) -> Result<(), StartError> {
    match asked {
        Some(asked) if asked != has => Err(refused(format!(
            "--{flag} {asked}, but the cluster {name} was made with {has}: leave the flag out, or \
             make another cluster"
        ))),
        _ => Ok(()),
    }
}

/// Checks durability: in a cluster, either all nodes write to disks or none does.
fn check_durability(all: &Config, stored: &Stored) -> Result<(), StartError> {
    let made = |word: &str, what: &str| {
        let name = &stored.name;
        Err(refused(format!("the cluster {name} was made with --durability {word}: {what}")))
    };
    let data = all.data.as_ref().map(|data| data.durability);
    match (stored.settings.durability, data) {
        (Durability::Fsync, None) => made("fsync", "give --data-dir PATH"),
        (Durability::Fsync, Some(config::Durability::None)) => {
            made("fsync", "leave --durability none out")
        }
        (Durability::Replicated, Some(_)) => {
            made("replicated", "leave --data-dir out, or make another cluster with fsync")
        }
        _ => Ok(()),
    }
}

/// The name is derived from the address that peers use, so a restarted server has the same.
fn node_id(config: &ClusterConfig) -> NodeId {
    let name = config.name.unwrap_or_else(|| {
        let bytes = peer_text(config).into_bytes();
        // FNV-1a: it must never change, and need not resist attacks.
        let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = bytes.iter().fold(0x811c_9dc5, mix);
        ((hash >> 16) ^ (hash & 0xffff)) as u16
    });
    let since = SystemTime::now().duration_since(UNIX_EPOCH + LIVES_SINCE).unwrap_or_default();
    NodeId { name, incarnation: (since.as_millis() / 100) as u32 }
}

fn host_of(config: &ClusterConfig, port: Option<SocketAddr>) -> String {
    let shown = |at: SocketAddr| at.ip().to_string();
    config.advertise.clone().unwrap_or_else(|| shown(port.unwrap_or(config.peer)))
}

fn peer_text(config: &ClusterConfig) -> String {
    let host = config.advertise.clone().unwrap_or_else(|| config.peer.ip().to_string());
    match host.contains(':') {
        true => format!("[{host}]:{}", config.peer.port()),
        false => format!("{host}:{}", config.peer.port()),
    }
}

fn addresses(shared: &Shared, config: &ClusterConfig) -> Addresses {
    let all = shared.config();
    let port = |at: Option<SocketAddr>| at.map_or(0, |at| at.port());
    Addresses {
        host: host_of(config, all.resp.or(all.tls_resp)),
        resp: port(all.resp),
        tls_resp: port(all.tls_resp),
        memcached: port(all.memcached),
        tls_memcached: port(all.tls_memcached),
        native: port(all.native),
        admin: port(all.admin),
        peer: peer_text(config),
    }
}

impl ControlThread {
    /// Starts the control thread.
    pub fn spawn(
        prepared: Prepared,
        shared: Arc<Shared>,
        fabric: Arc<Fabric>,
    ) -> Result<ControlThread, StartError> {
        let failed = |source| StartError::System { what: "start the control thread", source };
        let Prepared { keeping, discovery, found, links, events, landing, node, .. } = prepared;
        let Prepared { peer, inbound_logs, syncing, view, ends, lease_ns, .. } = prepared;
        let is_ended = Arc::new(AtomicBool::new(false));
        let (asking, departure) = departure::departure();
        let waker = ends.waker.clone();
        let control = Control {
            published: Published::new(Arc::clone(&view), peer),
            peers: Peers::new(links),
            tick_idle: Control::tick_idle(lease_ns),
            guests: Guests::new(shared.store().key_hasher().clone(), shared.buffer_budget()),
            means: shared.control_means(),
            shared,
            fabric,
            view,
            node,
            ends,
            events,
            found,
            landing,
            inbound_logs,
            syncing,
            departure,
            is_ended: Arc::clone(&is_ended),
            state: State::default(),
        };
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || control.run())
            .map_err(failed)?;
        let (thread, _discovery, _keeping) = (Some(thread), discovery, keeping);
        Ok(ControlThread { asking, is_ended, waker, thread, _discovery, _keeping })
    }

    /// Lets other nodes take over all shards of this one; returns whether they have within the
    /// limit.
    pub fn leave(&self, limit: Duration) -> bool {
        self.asking.ask();
        self.waker.wake();
        self.asking.wait(limit)
    }

    /// Ends the control thread, after the workers have ended.
    pub fn stop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop();
    }
}
