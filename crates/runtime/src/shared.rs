//! The state that all threads of a server share: the store, the configuration, counters, clients,
//! and the mailboxes of the workers.
//!
//! ```text
//!  workers, manager, admin pages, signals ──▶ Shared ─┬─ store, budget, clients, counters, ...
//!                                                     └─ mailboxes ──▶ workers
//! ```
//!
//! | state | its owner |
//! |---|---|
//! | what operators read: slow log, latency events, MONITOR, the event stream | `observations` |
//! | the id of this run, and whether it ends | `run` |
//! | a flush and commands that clients have delayed | `delays` |
//! | the cap on memory, its plan and its changes | `shared::memory` |
//! | settings that CONFIG SET changes | `live` |
//!
//! # Concurrency
//! Any thread may call everything here. No request touches anything here.

mod memory;
mod rates;
mod security;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use base::UnixMillis;
use budget::BufferBudget;
use budget::memory::{IndexGrowth, MemoryPlan, Planner};
use config::Config;
use config::StartError;
use counters::LatencyCounts;
use counters::{Dialect, NativeTotals, Totals, WorkerCounters};
use crossbeam_channel::Receiver;
use crossbeam_utils::CachePadded;
use dispatch::hot::HotKeys;
use dispatch::lanes::{Dispatchers, Layers, Roles, RolesError, Wanted};
use dispatch::published::Published;
use dispatch::sizes::Sizes;
use host::affinity;
use host::disk_thread::DiskThread;
use host::memory_limits::MemoryLimits;
use host::process::random_u64;
use host::topology;
use host::topology::SYSFS_NODES;
use policy::size_class::WorkerSizes;
use replication::cluster::View;
use replication::durable::{self, Data, Tenant};
use replication::replicate::{ControlChannel, Means};
use sessions::acl::Acl;
use sessions::clients::Clients;
use sessions::doors::Answers;
use sessions::memcached_users::Users;
use sessions::tls::Certificates;
use sessions::tracking::Tracking;
use store::{IndexKind, Mode, NeededMemory, Store, StoreConfig, StoreStats};

use crate::connection::RECORD_BYTES;
use crate::delays::Delays;
use crate::live::Live;
use crate::mailbox::{Control, Mailbox, open_mailbox};
use crate::observations::Observations;
use crate::pause::Pause;
use crate::run::Run;
use crate::slo::Slo;
use crate::warm::Warm;

pub use memory::LiveMemory;
use rates::RateSample;
pub use rates::Rates;
pub use security::Reloaded;

/// Why [`Shared::probe`] did not read its value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A worker did not answer in time.
    #[error("worker {worker} did not answer a SET and GET in time")]
    Timeout {
        /// Counted from 0.
        worker: usize,
    },
    /// A worker's SET was refused, or its GET found something else.
    #[error("worker {worker} could not store and read back a value")]
    Failed {
        /// Counted from 0.
        worker: usize,
    },
    /// The server is draining.
    #[error("the server is stopping")]
    Stopping,
}

/// What all threads may ask of the native clients.
pub trait NativeClients: Send + Sync {
    /// The counts with the numbers of those that are connected now.
    fn connected(&self, counted: NativeTotals) -> NativeTotals;

    /// Takes up a change of the doors; `doors` reads their present answers.
    fn obey(&self, doors: &dyn Fn() -> Answers);
}

/// The addresses that a server has bound, by kind of port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bound {
    /// RESP.
    pub resp: Option<SocketAddr>,
    /// memcached.
    pub memcached: Option<SocketAddr>,
    /// RESP over TLS.
    pub tls_resp: Option<SocketAddr>,
    /// memcached over TLS.
    pub tls_memcached: Option<SocketAddr>,
    /// The native protocol.
    pub native: Option<SocketAddr>,
    /// The admin port.
    pub admin: Option<SocketAddr>,
}

/// The state that all threads of a server share.
pub struct Shared {
    config: Config,
    roles: Roles,
    live: Live,
    /// The sizes of requests, where they are distinguished by size.
    sizes: Option<Sizes>,
    slo: Slo,
    observations: Observations,
    disk_thread: DiskThread,
    tracking: Tracking,
    /// The hot keys, where requests are routed and sampled.
    hot: Option<Arc<HotKeys>>,
    memory: LiveMemory,
    store: Arc<Store>,
    data: Option<Data>,
    warm: Option<Warm>,
    budget: Arc<BufferBudget>,
    clients: Clients,
    counters: Arc<[CachePadded<WorkerCounters>]>,
    mailboxes: Vec<(Mailbox, Receiver<Control>)>,
    native: OnceLock<Arc<dyn NativeClients>>,
    users: OnceLock<Users>,
    acl: Acl,
    tls: Option<Certificates>,
    /// On a node of a cluster: the view, and the channel to the control thread, if one runs.
    cluster: OnceLock<(Arc<View>, Option<Arc<ControlChannel>>)>,
    baseline: Mutex<Totals>,
    /// The store's counts when the totals were last reset.
    store_baseline: Mutex<StoreStats>,
    rate: Mutex<RateSample>,
    run: Run,
    control: Published,
    thread_ids: Vec<AtomicI32>,
    delays: Delays,
}

/// Where the store's items outlive the server, if they do: on a disk, or in the memory of a file.
type Kept = (Option<Data>, Option<Warm>);

/// Refuses settings of an index, a disk and eviction that contradict each other.
fn refuse_contradictions(config: &Config) -> Result<(), StartError> {
    if config.lossy_index && config.index == IndexKind::Tree {
        return Err(StartError::LossyTree);
    }
    if config.data.is_some() && (config.mode != Mode::Clean || config.lossy_index) {
        return Err(StartError::DataOfCache);
    }
    Ok(())
}

/// Opens the store; its memory is divided between the nodes that workers run on.
fn open_store(
    config: &Config,
    (planner, plan): (&Planner, &MemoryPlan),
    tenant: Option<&Tenant>,
) -> Result<(Arc<Store>, Kept), StartError> {
    let nodes = topology::nodes(Path::new(SYSFS_NODES), &affinity::allowed());
    let processors = affinity::plan(config.pin, config.threads);
    let shares = topology::shares(config.numa, &nodes, &processors);
    let store_config = StoreConfig {
        memory_bytes: plan.store_bytes(),
        index_bytes: plan.index_bytes,
        mode: config.mode,
        eviction: config.eviction,
        index: config.index,
        lossy_index: config.lossy_index,
        // The control thread has one too, and so have digest threads.
        session_max: config.threads
            + config.cluster.as_ref().map_or(0, |cluster| 1 + cluster.digest_threads),
        item_max_bytes: plan.item_size_max_bytes + store::KEY_LEN_MAX_BYTES as u64,
        hash_seed: config.hash_seed.unwrap_or_else(random_u64),
        batch: config.batch,
        huge_pages: config.huge_pages,
    };
    let advise = |needed: &NeededMemory| planner.advice(config.memory_bytes, needed);
    let (store, kept) = match &config.warm_file {
        Some(path) => {
            let (store, warm) = Warm::open(path, store_config, &shares, &advise)?;
            (store, (None, Some(warm)))
        }
        None => {
            let data = config.data.as_ref();
            let room_bytes = memory::room_bytes(config, plan, MemoryLimits::detect());
            let wanted = (store_config, config.access_times, room_bytes);
            let (store, data) = durable::open_store(wanted, &shares, data, tenant, &advise)?;
            (store, (data, None))
        }
    };
    topology::announce(store.placement());
    Ok((store, kept))
}

/// The longest value that the store takes beside the longest key.
fn value_max_bytes(store: &Store) -> u64 {
    store.limits().item_max_bytes.saturating_sub(store::KEY_LEN_MAX_BYTES as u64)
}

/// Warns that the longest value is shorter than the settings allow.
fn tell_of_lowered(config: &Config, item_size_max_bytes: u64) {
    tracing::warn!(
        "values can be at most {} instead of {}: --memory {} holds no larger ones",
        base::ByteSize { bytes: item_size_max_bytes },
        base::ByteSize { bytes: config.max_item_size_bytes },
        base::ByteSize { bytes: config.memory_bytes },
    );
}

impl Shared {
    /// Divides the memory and opens the store; `tenant` is the node of a cluster to open it for.
    pub fn open(mut config: Config, tenant: Option<&Tenant>) -> Result<Shared, StartError> {
        refuse_contradictions(&config)?;
        let roles = Roles::new(Layers::new(&config)?, &config)?;
        let index_growth =
            if config.lossy_index { IndexGrowth::None } else { IndexGrowth::WithItems };
        let planner = Planner {
            item_size_wanted_bytes: config.max_item_size_bytes,
            index: index_growth,
            forwardings: roles.layers().forwarding_memory(&config),
            hot_set_bytes: HotKeys::memory_bytes(&config, roles.layers().is_routed),
            workers: config.threads,
            has_native: config.native.is_some() || config.shm.is_some(),
            has_copies: config.cluster.is_some(),
        };
        let plan = planner.plan(config.memory_bytes).ok_or(StartError::MemoryTooSmall {
            given: base::ByteSize { bytes: config.memory_bytes },
            least: planner.least(),
        })?;
        let (store, (data, warm)) = open_store(&config, (&planner, &plan), tenant)?;
        let item_size_max_bytes = plan.item_size_max_bytes.min(value_max_bytes(&store));
        if item_size_max_bytes < config.max_item_size_bytes {
            tell_of_lowered(&config, item_size_max_bytes);
            config.max_item_size_bytes = item_size_max_bytes;
        }
        let (is_routed, executors) = (roles.layers().is_routed, roles.layers().start.executors);
        let sizes = Sizes::for_dispatch(&config, is_routed, executors);
        let sample_every = sizes.as_ref().map(|_| config.size_sample);
        let budget = BufferBudget::new_for(plan.limits(), &store);
        Ok(Shared {
            delays: Delays::new(warm.as_ref().and_then(Warm::flush_at)),
            tracking: Tracking::new(config.threads, config.tracking_table_keys_max, &budget),
            hot: HotKeys::of_server(&config, roles.layers().is_routed),
            slo: Slo::new(config.slo, roles.layers().is_routed),
            observations: Observations::new(&config, &budget),
            disk_thread: DiskThread::default(),
            roles,
            live: Live::new(&config),
            memory: LiveMemory::new(
                config.memory_bytes,
                MemoryPlan { item_size_max_bytes, ..plan },
            ),
            store,
            data,
            warm,
            clients: Clients::new(&budget, RECORD_BYTES),
            counters: (0..config.threads + usize::from(config.cluster.is_some()))
                .map(|_| WorkerCounters::for_sizes(sample_every).into())
                .collect(),
            sizes,
            mailboxes: (0..config.threads).map(|_| open_mailbox()).collect::<Result<_, _>>()?,
            run: Run::new(),
            native: OnceLock::new(),
            users: OnceLock::new(),
            acl: Acl::open(config.requirepass.as_deref(), config.acl_file.as_deref(), &budget)?,
            tls: config.tls.as_ref().map(Certificates::open).transpose()?,
            cluster: OnceLock::new(),
            baseline: Mutex::default(),
            store_baseline: Mutex::default(),
            rate: Mutex::new(RateSample::now()),
            control: Published::default(),
            thread_ids: (0..config.threads).map(|_| AtomicI32::new(0)).collect(),
            budget,
            config,
        })
    }

    /// The shared state without a server, for tests that only read it.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(config: Config) -> Shared {
        Shared::open(config, None).expect("the configuration is valid")
    }

    /// The configuration of the start, with limits that had to be lowered already lowered, and
    /// ports resolved.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings that CONFIG SET can change.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The present roles of the threads, and their changes.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Changes the roles of the threads. Returns at once: workers change roles between their
    /// rounds. Errors say what would be right.
    pub fn change_roles(&self, wanted: Wanted) -> Result<(), RolesError> {
        if self.run.is_stopping() {
            return Err(RolesError::Stopping);
        }
        if self.roles.change(&self.config, wanted)? {
            let plan = self.roles.plan();
            if let Some(sizes) = &self.sizes {
                sizes.set_workers(plan.executors);
            }
            // The tuner tries a hundred plans a second; the decision log says what it found.
            if !matches!(wanted.dispatchers, Dispatchers::Tuned(_)) {
                let (threads, cr) = (plan.threads, plan.dispatchers);
                tracing::info!(threads, cr, "threads change roles");
            }
            for worker in 0..self.mailboxes.len() {
                self.send(worker, Control::Roles);
            }
        }
        Ok(())
    }

    /// The small sizes, and the owners of the large ones, if the dispatch is size-aware.
    pub fn sizes(&self) -> Option<&Sizes> {
        self.sizes.as_ref()
    }

    /// The counts of each worker, for the thread that ends an epoch of [`Sizes`].
    pub fn size_counts(&self) -> impl Iterator<Item = &WorkerSizes> {
        self.counters.iter().filter_map(|counters| counters.sizes.as_ref())
    }

    /// The most requested keys, unless `--hot-set` is off.
    pub fn hot_keys(&self) -> Option<&Arc<HotKeys>> {
        self.hot.as_ref()
    }

    /// The latency objective.
    pub fn slo(&self) -> &Slo {
        &self.slo
    }

    /// What operators read of clients and commands.
    #[inline]
    pub fn observations(&self) -> &Observations {
        &self.observations
    }

    /// The clients that keep copies of values they have read.
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// This run of the server: its id, and whether it ends.
    #[inline]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What clients have delayed: a flush, or commands.
    #[inline]
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// The thread for disk work of commands.
    pub fn disk_thread(&self) -> &DiskThread {
        &self.disk_thread
    }

    /// The durations of the command at a position since the start (`timing`); `None`: it never ran.
    pub fn durations(&self, index: usize) -> Option<LatencyCounts> {
        let cells = || self.all_counters().filter_map(|worker| worker.durations[index].get());
        cells().next()?;
        Some(LatencyCounts::sum(cells().map(|cells| &**cells)))
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The data directory, if there is one.
    pub fn data(&self) -> Option<&Data> {
        self.data.as_ref()
    }

    /// Client buffers and their cap.
    pub fn buffer_budget(&self) -> &Arc<BufferBudget> {
        &self.budget
    }

    /// The connected clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// All workers' counters, summed now.
    pub fn totals(&self) -> Totals {
        let sum = Totals::sum(self.counters.iter().map(|padded| &**padded));
        Totals {
            connections_resp: self.clients.count(Dialect::Resp) as u64,
            connections_memcached: self.clients.count(Dialect::Memcached) as u64,
            native: match self.native.get() {
                Some(clients) => clients.connected(sum.native.clone()),
                None => sum.native.clone(),
            },
            ..sum
        }
    }

    /// The view that a cluster's node serves by, and the channel to its control thread.
    pub fn cluster_and_channel(&self) -> Option<(Arc<View>, Arc<ControlChannel>)> {
        let (view, channel) = self.cluster.get()?;
        Some((Arc::clone(view), channel.clone()?))
    }

    /// What the control thread executes requests with; its counters come last.
    pub fn control_means(&self) -> Arc<Means> {
        Arc::new(Means {
            store: Arc::clone(&self.store),
            budget: Arc::clone(&self.budget),
            all_counters: Arc::clone(&self.counters),
            index: self.config.threads,
        })
    }

    /// Sets the state that the workers share for native clients; called once, at the start.
    pub fn set_native(&self, clients: Arc<dyn NativeClients>) {
        let _ = self.native.set(clients);
    }

    /// The view of the cluster, if this server is a node of one.
    pub fn cluster(&self) -> Option<&Arc<View>> {
        self.cluster.get().map(|(view, _)| view)
    }

    /// Makes this server a node of a cluster. Called before the workers start, which look once.
    pub fn set_cluster(&self, view: Arc<View>, channel: Option<Arc<ControlChannel>>) {
        // Set once, at the start.
        let _ = self.cluster.set((view, channel));
    }

    /// One worker's counters; only that worker adds to them.
    pub fn counters(&self, worker: usize) -> &WorkerCounters {
        &self.counters[worker]
    }

    /// All workers' counters, in their order.
    pub fn all_counters(&self) -> impl Iterator<Item = &WorkerCounters> {
        self.counters.iter().map(|padded| &**padded)
    }

    /// The state that the manager publishes.
    pub fn control(&self) -> &Published {
        &self.control
    }

    /// The kernel's id of a worker's thread, once it runs.
    pub fn thread_id(&self, worker: usize) -> Option<i32> {
        let id = self.thread_ids[worker].load(Ordering::Relaxed);
        (id != 0).then_some(id)
    }

    /// A worker runs on this thread of the kernel's.
    pub fn set_thread_id(&self, worker: usize, id: i32) {
        self.thread_ids[worker].store(id, Ordering::Relaxed);
    }

    /// Stores and reads back a value through every worker in turn, within `timeout` altogether.
    pub fn probe(&self, timeout: Duration) -> Result<(), ProbeError> {
        let deadline = Instant::now() + timeout;
        for (worker, (mailbox, _)) in self.mailboxes.iter().enumerate() {
            if self.run.is_stopping() {
                return Err(ProbeError::Stopping);
            }
            let (sender, receiver) = crossbeam_channel::bounded(1);
            // It cannot fail: the receiving end lives as long as `self`.
            let _ = mailbox.sender.send(Control::Probe(sender));
            mailbox.waker.wake();
            match receiver.recv_deadline(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(ProbeError::Failed { worker }),
                Err(_) => return Err(ProbeError::Timeout { worker }),
            }
        }
        Ok(())
    }

    /// Lets every worker draw some items, for the next look at their sizes.
    pub fn draw_sizes(&self) {
        let workers = self.mailboxes.len();
        if self.control().stored_sizes.begin_asked(workers) {
            (0..workers).for_each(|worker| self.send(worker, Control::Draw));
        }
    }

    /// Asks the client's worker to close it.
    pub fn kill_client(&self, client: &sessions::clients::Client) {
        self.send(client.kill().index(), Control::Kill { client_id: client.id });
    }

    /// Puts a message into a worker's mailbox.
    pub fn send(&self, worker: usize, message: Control) {
        let (mailbox, _) = &self.mailboxes[worker];
        // It cannot fail: the receiving end lives as long as `self`.
        let _ = mailbox.sender.send(message);
        mailbox.waker.wake();
    }

    /// The mailbox of a worker.
    pub fn mailbox(&self, worker: usize) -> &(Mailbox, Receiver<Control>) {
        &self.mailboxes[worker]
    }

    /// The server shuts down: workers send what is pending.
    pub fn stop(&self) {
        // First: a thread that sees the server stopping also sees that no connection changes its
        // worker.
        self.roles.transit.stop();
        self.run.stop();
        self.wake_all();
    }

    /// The server shuts down at once.
    pub fn abort(&self) {
        self.run.abort();
        self.stop();
    }

    /// Ends a worker's sleep.
    pub fn wake(&self, worker: usize) {
        self.mailboxes[worker].0.waker.wake();
    }

    /// Wakes all workers.
    pub fn wake_all(&self) {
        for (mailbox, _) in &self.mailboxes {
            mailbox.waker.wake();
        }
    }

    /// The file that keeps the store across a restart.
    pub fn warm(&self) -> Option<&Warm> {
        self.warm.as_ref()
    }

    /// Sets when the delayed `flush_all` is due. A later call replaces an earlier one, as in
    /// memcached.
    pub fn set_flush_at(&self, at: Option<UnixMillis>) {
        self.delays.set_flush_at(at);
        self.wake_all();
    }

    /// CLIENT PAUSE; `None`: CLIENT UNPAUSE.
    pub fn pause(&self, pause: Option<Pause>) {
        self.delays.pause(pause);
        self.wake_all();
    }

    /// Sets the addresses, once ports are resolved.
    pub fn set_addresses(&mut self, bound: Bound) {
        let Bound { resp, memcached, tls_resp, tls_memcached, native, admin } = bound;
        let config = &mut self.config;
        (config.resp, config.memcached) = (resp, memcached);
        (config.tls_resp, config.tls_memcached) = (tls_resp, tls_memcached);
        (config.native, config.admin) = (native, admin);
    }
}
