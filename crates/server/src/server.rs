//! A running server: starts the workers, reports the addresses, and stops.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::WorkerId;
use config::HotSetSize;
use config::StartError;
use config::descriptors;
use config::{Config, Poll};
use control::manager::ManagerThread;
use control::populate::Populate;
use crossbeam_channel::{Receiver, Sender};
use dispatch::hot;
use dispatch::lanes::{Fabric, Layers, Turn};
use dispatch::layer_settings::check_tuning;
use handlers::memcached::udp::{self, UdpPort};
use host::affinity;
use host::poller::{Epoll, Poller, Timed};
use host::topology;
use host::topology::SYSFS_NODES;
use native::shm::ShmDoor;
use native::{self, Native, NativeState};
use observe::admin::AdminThread;
use replication::durable::LogThread;
use runtime::engine::{Home, RunToCompletion};
use runtime::shared::{Bound, Shared};
use runtime::slo::{SLO_MAX, SLO_MIN};
use sessions::memcached_users::Users;
use store::Session;
use wire::native::TagKey;
use workers::forwarding::Routed;
use workers::listen::{UnixListener, listen, listen_unix};
use workers::worker::{Worker, WorkerSockets};

use crate::control_thread::{self, ControlThread};

/// The maximum number of worker threads.
const THREADS_MAX: usize = 256;

/// The additional time for workers that are told to cut their connections after the drain's limit.
const ABORT_TIME_MAX: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it without waiting.
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Disconnected once the last worker has ended.
    ended: Receiver<()>,
    populate: Populate,
    /// On a node of a cluster: the control thread. It ends before the log thread, for which it
    /// waits.
    control: Option<ControlThread>,
    log: Option<LogThread>,
    admin: Option<AdminThread>,
    manager: Option<ManagerThread>,
}

impl Server {
    /// Binds every address, opens the store, starts the workers and the admin port.
    ///
    /// When this returns, clients can connect.
    pub fn start(mut config: Config) -> Result<Server, StartError> {
        check(&config)?;
        let allowed = descriptors::connections_allowed(config.max_connections, config.threads)?;
        if allowed < config.max_connections {
            tracing::warn!(
                "--max-connections lowered from {} to {allowed}: the limit of open files \
                 (ulimit -n) allows no more",
                config.max_connections,
            );
            config.max_connections = allowed;
        }
        config.poll = effective_poll(&config);
        let layers = Layers::new(&config)?;
        // Every thread that may ever poll has listeners, for good (K16).
        let listening = layers.listening_count();
        let (resp, resp_listeners) = bind(config.resp, listening, "resp")?;
        let (memcached, memcached_listeners) = bind(config.memcached, listening, "memcached")?;
        let udp_sockets = bind_udp(&config, listening, layers.start.dispatchers)?;
        let (tls_resp, tls_resp_listeners) = bind(config.tls_resp, listening, "tls-resp")?;
        let (tls_memcached, tls_memcached_listeners) =
            bind(config.tls_memcached, listening, "tls-memcached")?;
        let unix = bind_unix(&config)?;
        let (native, native_sockets) = bind_native(&config, listening, layers.start.dispatchers)?;
        let (admin, admin_listeners) = bind(config.admin, 1, "admin")?;
        let key = config.native_key_file.as_deref().map(native::read_key).transpose()?;
        let users = config.auth_file.as_deref().map(Users::read).transpose()?;
        let joined =
            config.cluster.clone().map(|it| control_thread::join(&config, &it)).transpose()?;
        let mut shared = Shared::open(config, joined.as_ref().map(|joined| &joined.tenant))?;
        shared.set_addresses(Bound { resp, memcached, tls_resp, tls_memcached, native, admin });
        if let Some(users) = users {
            shared.set_users(users);
        }
        let shared = Arc::new(shared);
        let shm_door = ShmDoor::open(shared.config(), shared.buffer_budget())?;
        let udp = open_udp(&shared, udp_sockets)?;
        let natives = open_natives(&shared, key, (native_sockets, shm_door))?;
        let prepared = joined.map(|joined| control_thread::prepare(&shared, joined)).transpose()?;
        let (ended_sender, ended) = crossbeam_channel::bounded(0);
        let mut server = Server {
            populate: Populate::start(&shared)?,
            log: shared.data().map(LogThread::start).transpose()?.flatten(),
            shared,
            workers: Vec::new(),
            ended,
            admin: None,
            manager: None,
            control: None,
        };
        let plain = (resp_listeners, memcached_listeners);
        let sealed = (tls_resp_listeners, tls_memcached_listeners);
        server.begin()?;
        let listeners = Listeners { plain, sealed, unix, natives, udp };
        let fabric = server.start_workers(listeners, ended_sender)?;
        if let (Some(prepared), Some(fabric)) = (prepared, fabric) {
            let shared = Arc::clone(&server.shared);
            server.control = Some(ControlThread::spawn(prepared, shared, fabric)?);
        }
        server.manager = Some(ManagerThread::start(&server.shared)?);
        if let Some(listener) = admin_listeners.into_iter().next() {
            let admin = AdminThread::start(listener, Arc::clone(&server.shared))
                .map_err(|source| StartError::System { what: "start the admin port", source })?;
            server.admin = Some(admin);
        }
        // Logged last: a start that is refused prints one line only.
        tracing::info!("memory: {}", server.shared.memory().plan().words());
        Ok(server)
    }

    /// Begins to serve. From here on, a failed start may lose the contents of a warm file.
    fn begin(&self) -> Result<(), StartError> {
        if let Some(before_begin) = self.shared.config().hooks.before_begin {
            before_begin();
        }
        self.shared.warm().map_or(Ok(()), |warm| warm.begin(self.shared.store()))
    }

    fn start_workers(
        &mut self,
        Listeners { plain, sealed, unix, natives, udp }: Listeners,
        ended: Sender<()>,
    ) -> Result<Option<Arc<Fabric>>, StartError> {
        let config = self.shared.config();
        let processors = affinity::plan(config.pin, config.threads);
        let nodes = topology::nodes(Path::new(SYSFS_NODES), &processors);
        let (mut resp, mut memcached) = (plain.0.into_iter(), plain.1.into_iter());
        let (mut tls_resp, mut tls_memcached) = (sealed.0.into_iter(), sealed.1.into_iter());
        let (mut natives, mut udp) = (natives.into_iter(), udp.into_iter());
        let roles = self.shared.roles().latest();
        let layers = self.shared.roles().layers();
        let listening = layers.listening_count();
        let kept_bytes_max = self.shared.memory().plan().request_slot_kept_bytes_max;
        let new_fabric = || {
            let (stealing, has_help) = (layers.stealing(), layers.has_help(config));
            Fabric::new(config.threads, kept_bytes_max, stealing, has_help)
        };
        let fabric = layers.is_routed.then(|| Arc::new(new_fabric()));
        for index in 0..config.threads {
            let id = WorkerId(u16::try_from(index).expect("checked: at most 256 threads"));
            let (native, shm_door) = natives.next().unzip();
            let sockets = WorkerSockets {
                resp: resp.next(),
                memcached: memcached.next(),
                tls_resp: tls_resp.next(),
                tls_memcached: tls_memcached.next(),
                unix_resp: unix.0.clone().filter(|_| index < listening),
                unix_memcached: unix.1.clone().filter(|_| index < listening),
                native,
                shm_door: shm_door.flatten(),
                udp: udp.next(),
            };
            let mut session = self
                .shared
                .store()
                .session()
                .map_err(|error| StartError::Store { reason: error.to_string() })?;
            let processor = processors.get(index).copied();
            if let Some(node_id) = processor.and_then(|at| topology::node_of(&nodes, at)) {
                session.prefer_node(node_id);
            }
            let start = WorkerStart {
                shared: Arc::clone(&self.shared),
                id,
                processor,
                session,
                route: fabric.clone().map(|fabric| (fabric, roles.turn_of(index))),
                sockets,
            };
            self.workers.push(start.spawn(ended.clone())?);
        }
        Ok(fabric)
    }

    /// The address for Redis clients, with port 0 resolved.
    pub fn resp_addr(&self) -> Option<SocketAddr> {
        self.shared.config().resp
    }

    /// The address for memcached clients.
    pub fn memcached_addr(&self) -> Option<SocketAddr> {
        self.shared.config().memcached
    }

    /// The address for the datagrams of native clients.
    pub fn native_addr(&self) -> Option<SocketAddr> {
        self.shared.config().native
    }

    /// The address of the admin port.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.shared.config().admin
    }

    /// The shared state, which the admin port and tests read.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Readable (one message) once a client has sent SHUTDOWN; the owner then stops the server.
    pub fn shutdown_requests(&self) -> Receiver<()> {
        self.shared.run().shutdown_requests()
    }

    /// In a cluster: lets other nodes take over first, while clients are served as before. Returns
    /// whether they have within `limit`, or None for a server without a cluster.
    pub fn leave(&self, limit: Duration) -> Option<bool> {
        self.control.as_ref().map(|control| control.leave(limit))
    }

    /// Begins draining: accepts no new connections and answers the requests already read. Returns
    /// at once.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits until everything is drained, at most `limit`; true if all clients got their replies.
    ///
    /// Past the limit connections are cut. Only meaningful after [`Server::stop`].
    pub fn join(mut self, limit: Duration) -> bool {
        let is_drained = self.wait_ended(limit);
        if !is_drained {
            self.shared.abort();
            self.wait_ended(ABORT_TIME_MAX);
        }
        drop(self.admin.take());
        drop(self.manager.take());
        drop(self.control.take());
        drop(self.log.take());
        if let Some(warm) = self.shared.warm() {
            self.populate.stop(&self.shared);
            warm.keep(self.shared.store(), self.shared.delays().flush_at());
        }
        is_drained
    }

    /// Whether every worker has ended within `limit`.
    fn wait_ended(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        matches!(
            self.ended.recv_deadline(deadline),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected)
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.abort();
        for worker in self.workers.drain(..) {
            if worker.is_finished() && worker.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        self.populate.stop(&self.shared);
    }
}

/// The listeners of every worker.
struct Listeners {
    /// For RESP and for memcached.
    plain: (Vec<TcpListener>, Vec<TcpListener>),
    /// For RESP and for memcached by TLS.
    sealed: (Vec<TcpListener>, Vec<TcpListener>),
    /// Unix sockets for both protocols, which all workers share.
    unix: UnixListeners,
    natives: Vec<(Native, Option<ShmDoor>)>,
    /// For memcached over UDP.
    udp: Vec<UdpPort>,
}

/// The data that a worker's thread needs to begin.
struct WorkerStart {
    shared: Arc<Shared>,
    id: WorkerId,
    processor: Option<usize>,
    session: Session,
    /// The fabric between the workers, and this one's role, where requests are routed.
    route: Option<(Arc<Fabric>, Turn)>,
    sockets: WorkerSockets,
}

impl WorkerStart {
    /// Starts the thread and waits until it serves. `ended` is dropped when the thread ends, in
    /// whatever way.
    fn spawn(self, ended: Sender<()>) -> Result<JoinHandle<()>, StartError> {
        let (report, started) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new()
            .name(format!("worker-{}", self.id.index()))
            .spawn(move || {
                let _ended = ended;
                let thread_id = rustix::thread::gettid().as_raw_nonzero().get();
                self.shared.set_thread_id(self.id.index(), thread_id);
                self.pin();
                // Made here, so that its memory is first touched by the processor that uses it.
                self.serve(&report);
            })
            .map_err(|source| StartError::System { what: "start a worker thread", source })?;
        let died = || io::Error::other("the thread ended at once");
        started
            .recv()
            .unwrap_or_else(|_| Err(died()))
            .map_err(|source| StartError::System { what: "poll the listeners", source })?;
        Ok(thread)
    }

    fn pin(&self) {
        if let Some(processor) = self.processor
            && let Err(error) = affinity::pin_current_thread(processor)
        {
            tracing::warn!("worker {} is not pinned to {processor}: {error}", self.id.index());
        }
    }

    /// Begins as one of the three kinds of worker, and serves.
    fn serve(self, report: &Sender<io::Result<()>>) {
        let WorkerStart { shared, id, session, route, sockets, .. } = self;
        let home = RunToCompletion::new(session, shared.config());
        match route {
            None if shared.slo().is_measurable() => {
                run(shared, id, home, (Epoll::new().map(Timed), sockets), report);
            }
            None => run(shared, id, home, (Epoll::new(), sockets), report),
            Some((fabric, turn)) => {
                let engine = Routed::new(home, fabric, id, turn, &shared);
                run(shared, id, engine, (Epoll::new(), sockets), report);
            }
        }
    }
}

/// Reports whether the worker could be made, and serves.
fn run<E: Home, P: Poller>(
    shared: Arc<Shared>,
    id: WorkerId,
    engine: E,
    (poller, sockets): (io::Result<P>, WorkerSockets),
    report: &Sender<io::Result<()>>,
) {
    let made = poller.and_then(|poller| Worker::new(shared, id, engine, poller, sockets));
    match made {
        Ok(worker) => {
            // The thread that waits for this may be gone.
            let _ = report.send(Ok(()));
            worker.run();
        }
        Err(error) => {
            let _ = report.send(Err(error));
        }
    }
}

/// The effective poll mode. Two threads that spin on one core cost a whole time slice at each
/// hand-over, so `auto` spins only if each worker can have a core of its own.
fn effective_poll(config: &Config) -> Poll {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if config.poll == Poll::Auto && config.threads > processors {
        tracing::info!(
            "{} workers share {processors} processors: \
             idle workers sleep at once instead of spinning",
            config.threads
        );
        return Poll::Block;
    }
    config.poll
}

fn check(config: &Config) -> Result<(), StartError> {
    let out_of_range = |setting, given: usize, least: u64, most: u64| {
        let given = given as u64;
        if (least..=most).contains(&given) {
            Ok(())
        } else {
            Err(StartError::OutOfRange { setting, given, least, most })
        }
    };
    out_of_range("threads", config.threads, 1, THREADS_MAX as u64)?;
    config.check_pins(affinity::processor_count())?;
    check_tuning(config)?;
    out_of_range("batch", config.batch, 1, store::BATCH_MAX as u64)?;
    if config.slo.is_some_and(|time| !(SLO_MIN..=SLO_MAX).contains(&time)) {
        return Err(StartError::SloOutOfRange);
    }
    if let HotSetSize::Items(items) = config.hot_set {
        out_of_range("hot-set", items, 1, hot::TRACKED_MAX as u64)?;
    }
    out_of_range("max-connections", config.max_connections, 1, u64::from(u32::MAX))
}

fn bind(
    address: Option<SocketAddr>,
    count: usize,
    setting: &'static str,
) -> Result<(Option<SocketAddr>, Vec<TcpListener>), StartError> {
    match address {
        None => Ok((None, Vec::new())),
        Some(address) => {
            listen(address, count, setting).map(|(at, listeners)| (Some(at), listeners))
        }
    }
}

/// Binds the sockets of memcached over UDP, one for each thread that may ever poll.
fn bind_udp(
    config: &Config,
    listening: usize,
    dispatchers: usize,
) -> Result<Vec<UdpSocket>, StartError> {
    match config.memcached {
        Some(address) if config.udp.port != 0 => {
            udp::open_group(SocketAddr::new(address.ip(), config.udp.port), listening, dispatchers)
        }
        _ => Ok(Vec::new()),
    }
}

fn open_udp(shared: &Shared, sockets: Vec<UdpSocket>) -> Result<Vec<UdpPort>, StartError> {
    let open = |socket| UdpPort::new(socket, shared.config(), shared.buffer_budget());
    let ports = sockets.into_iter().map(open).collect::<io::Result<_>>();
    ports.map_err(|source| StartError::System { what: "open memcached's port of UDP", source })
}

/// The Unix sockets of RESP and of memcached.
type UnixListeners = (Option<Arc<UnixListener>>, Option<Arc<UnixListener>>);

fn bind_unix(config: &Config) -> Result<UnixListeners, StartError> {
    let (resp, memcached) = (&config.unix_socket, &config.memcached_unix_socket);
    Ok((
        listen_unix(resp.as_deref(), config.unix_mode, "unix-socket")?,
        listen_unix(memcached.as_deref(), config.unix_mode, "memcached-unix-socket")?,
    ))
}

/// Binds the sockets of the native port, one for each of `listening` threads, steered to
/// `dispatchers`.
fn bind_native(
    config: &Config,
    listening: usize,
    dispatchers: usize,
) -> Result<(Option<SocketAddr>, Vec<UdpSocket>), StartError> {
    let Some(address) = config.native else { return Ok((None, Vec::new())) };
    let (resolved, sockets) = native::udp::open_group(address, listening, dispatchers)?;
    Ok((Some(resolved), sockets))
}

/// The native side of each thread that may ever poll, or execute for those; none if no native
/// client can connect. The first worker keeps the acceptor of shared memory and the helm of the
/// steering.
fn open_natives(
    shared: &Arc<Shared>,
    key: Option<TagKey>,
    (sockets, mut shm_door): (Vec<UdpSocket>, Option<ShmDoor>),
) -> Result<Vec<(Native, Option<ShmDoor>)>, StartError> {
    let wants_xdp = shared.config().native_xdp.is_some();
    if sockets.is_empty() && shm_door.is_none() && !wants_xdp {
        return Ok(Vec::new());
    }
    let state = Arc::new(NativeState::open(shared, key)?);
    shared.set_native(state.clone());
    let config = shared.config();
    let listening = shared.roles().layers().listening_count();
    let (xdp_ports, xdp_helm) = match &config.native_xdp {
        Some(device) => {
            let dispatchers = shared.roles().layers().start.dispatchers;
            native::xdp::open_ports(device, config.native, listening, dispatchers)?
        }
        None => (Vec::new(), None),
    };
    let failed = |source| StartError::System { what: "open the native port", source };
    let helm = native::udp::Helm::of(&sockets).map_err(failed)?;
    let mut helms: Vec<_> = helm.into_iter().chain(xdp_helm).collect();
    let opened = native::udp::open_ports(sockets, config);
    let mut ports = opened.map_err(failed)?.into_iter();
    let mut xdp_ports = xdp_ports.into_iter();
    let (threads, is_routed) = (config.threads, shared.roles().layers().is_routed);
    let mut open = |thread| {
        let of_worker = ports.next().into_iter().chain(xdp_ports.next()).collect();
        let mut native = Native::new(Arc::clone(&state), of_worker);
        if is_routed {
            native.forward(thread, threads);
        }
        native.take_helms(std::mem::take(&mut helms));
        (native, shm_door.take())
    };
    // Where requests are routed, threads that never poll execute some.
    let count = if is_routed { threads } else { listening };
    Ok((0..count).map(&mut open).collect())
}

#[cfg(test)]
mod tests;
