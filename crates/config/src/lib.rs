//! The configuration that a server is started with: plain values, whose spelling the reading code
//! has already checked; and the errors of its start.

#![forbid(unsafe_code)]

pub mod descriptors;
mod error;
mod log_level;
pub mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use host::affinity::Pin;
use host::resctrl::Cat;
use host::topology::Numa;
use policy::LargeHelp;
use policy::Policies;
use policy::size_class::{Cost, Threshold};
use store::medium::Media;
use store::{Eviction, HugePages, IndexKind, Mode};

pub use error::StartError;
pub use log_level::{LogLevel, SetLogLevel};
pub use policy::window::Compacts;
use tls::TlsConfig;

/// Everything that `Server::start` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where Redis clients connect; `None`: off. Port 0 takes a free port.
    pub resp: Option<SocketAddr>,
    /// Where memcached clients connect; `None`: off. Port 0 takes a free port.
    pub memcached: Option<SocketAddr>,
    /// memcached over UDP, at the address of [`Config::memcached`].
    pub udp: UdpConfig,
    /// Where Redis clients connect by TLS; `None`: off. Needs [`Config::tls`].
    pub tls_resp: Option<SocketAddr>,
    /// The same for memcached clients.
    pub tls_memcached: Option<SocketAddr>,
    /// What TLS needs.
    pub tls: Option<TlsConfig>,
    /// The Unix socket at which Redis clients connect; `None`: off.
    pub unix_socket: Option<PathBuf>,
    /// The same for memcached clients.
    pub memcached_unix_socket: Option<PathBuf>,
    /// The mode of these sockets' files: a process that may write one may connect.
    pub unix_mode: u16,
    /// Where native clients send their datagrams; `None`: off. Port 0 takes a free port.
    pub native: Option<SocketAddr>,
    /// The file with the key of the native protocol's tags; `None`: any client may send.
    pub native_key_file: Option<PathBuf>,
    /// How datagrams are received at the native port.
    pub native_transport: NativeTransport,
    /// The size of the kernel's receive queue for each socket of the native port, in bytes.
    pub native_queue_bytes: usize,
    /// The device whose native datagrams are taken from its driver; `None`: all go through the
    /// kernel.
    pub native_xdp: Option<XdpDevice>,
    /// The Unix socket for clients in shared memory; `None`: off.
    pub shm: Option<PathBuf>,
    /// The mode of that socket's file. Without rights for group and others, only processes of the
    /// server's own user and of root are accepted, however they obtained the socket.
    pub shm_mode: u16,
    /// Where the admin port listens; `None`: off. Port 0 takes a free port.
    pub admin: Option<SocketAddr>,
    /// The login and the contents of the admin port.
    pub admin_access: AdminAccess,
    /// The hard cap on index, log and buffers together.
    pub memory_bytes: u64,
    /// What happens when the log is full: the oldest items are evicted, or writes are refused.
    pub mode: Mode,
    /// Which items are evicted first in [`Mode::Evict`].
    pub eviction: Eviction,
    /// The data directory, in which the data outlives the server; `None`: there is none. Needs
    /// [`Mode::Clean`].
    pub data: Option<DataConfig>,
    /// The file that is the store's memory and keeps it across a restart; `None`: there is none.
    pub warm_file: Option<PathBuf>,
    /// The cluster of which this server is a node; `None`: it is not a node.
    pub cluster: Option<ClusterConfig>,
    /// Whether items record their last use, in a store that is only in memory.
    pub access_times: bool,
    /// The page size to request for the memory.
    pub huge_pages: HugePages,
    /// Whether the memory is divided between NUMA nodes.
    pub numa: Numa,
    /// The kind of index.
    pub index: IndexKind,
    /// No overflow buckets: a full bucket drops a key. Only of the hash index.
    pub lossy_index: bool,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// The number of those that poll connections; the rest execute the requests that these send.
    /// `None`: all poll, and all execute.
    pub cr_threads: Option<usize>,
    /// Which worker executes a request.
    pub policies: Policies,
    /// Whether the tuner may choose other policies than these, with which the server starts.
    pub tries_policies: bool,
    /// Whether threads move between the layers by themselves.
    pub tuning: Tuning,
    /// Ways of the last-level cache for the memory-resident layer.
    pub cat: Cat,
    /// The root of resctrl, where the kernel allocates caches.
    pub resctrl_root: PathBuf,
    /// The largest small size of the size-aware dispatch.
    pub size_threshold: Threshold,
    /// The cost of a request by its size, for distributing workers over sizes.
    pub size_cost: Cost,
    /// Whether idle workers of large items take small requests.
    pub large_help: LargeHelp,
    /// One of so many requests has its size counted.
    pub size_sample: u32,
    /// Whether each worker stays on one processor.
    pub pin: Pin,
    /// How a worker waits for its clients.
    pub poll: Poll,
    /// Requests in flight in the store's pipeline, 1 to 64.
    pub batch: usize,
    /// Whether several writes of a key in one batch become one (C-4 §4.3).
    pub compaction: bool,
    /// The writes that are compacted.
    pub compacts: Compacts,
    /// The time within which 99 of 100 requests are to be answered; `None`: no objective.
    pub slo: Option<Duration>,
    /// The settings of the slow log.
    pub slow_log: SlowLogConfig,
    /// The maximum number of keys whose readers are remembered for client-side caching; 0: bounded
    /// by memory only.
    pub tracking_table_keys_max: u64,
    /// Events of at least so many milliseconds are sampled for LATENCY; 0: none are.
    pub latency_monitor_ms: u64,
    /// The number of frequent keys that the threads that only poll read themselves.
    pub hot_set: HotSetSize,
    /// Client connections at a time, over both protocols.
    pub max_connections: usize,
    /// The maximum for one address; 0: no further limit.
    pub max_connections_per_address: usize,
    /// A connection is closed after so many milliseconds without a byte in either direction; 0:
    /// never.
    pub idle_timeout_ms: u64,
    /// The largest value; lowered to what `memory_bytes` can hold.
    pub max_item_size_bytes: u64,
    /// The maximum for one atomic group: its bytes, and 4 KiB for each key.
    pub atomic_size_max_bytes: u64,
    /// Whether memcached clients may shut the server down.
    pub enable_shutdown: bool,
    /// The clients that may use DEBUG.
    pub debug_command: DebugCommand,
    /// The default user's password, which clients must give on both protocols.
    pub requirepass: Option<String>,
    /// The file of users of the RESP port, which ACL LOAD reads and ACL SAVE writes.
    pub acl_file: Option<PathBuf>,
    /// The users of the memcached port, in place of that password.
    pub auth_file: Option<PathBuf>,
    /// Whether doors may be open beyond loopback without a password or a key.
    pub is_insecure: bool,
    /// The key hash's seed; `None`: drawn at random.
    pub hash_seed: Option<u64>,
    /// The number of unsent reply bytes from which a client is not read until it has taken some.
    pub output_limit_bytes: u64,
    /// An unfinished command is refused after so long without room in the full client buffers.
    pub starved_time_max: Duration,
    /// The process's functions for CONFIG SET and CONFIG REWRITE.
    pub hooks: Hooks,
    /// Where the settings came from.
    pub origin: SettingsOrigin,
}

impl Config {
    /// Checks that there is one of `core_count` cores for each pinned worker.
    pub fn check_pins(&self, core_count: usize) -> Result<(), StartError> {
        if self.pin == Pin::On && self.threads > core_count {
            return Err(StartError::PinnedThreads { threads: self.threads, core_count });
        }
        Ok(())
    }

    /// The policies that may be in force at some time, those of the start first.
    pub fn policies_tried(&self) -> Vec<Policies> {
        let own = self.policies;
        let others = Policies::TRIED.into_iter().filter(|other| *other != own);
        std::iter::once(own).chain(others.filter(|_| self.tries_policies)).collect()
    }

    /// `hash` or `tree`, as in the settings.
    pub fn index_name(&self) -> &'static str {
        match self.index {
            IndexKind::Hash => "hash",
            IndexKind::Tree => "tree",
        }
    }

    /// The eviction's word, as in the settings.
    pub fn eviction_name(&self) -> &'static str {
        match self.eviction {
            Eviction::Fifo => "fifo",
            Eviction::Lru => "lru",
            Eviction::LruApprox => "lru-approx",
            Eviction::S3Fifo => "s3-fifo",
        }
    }
}

/// An address that only this machine reaches.
fn loopback(port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}

impl Default for Config {
    /// RESP, memcached and the admin port on loopback at their usual ports, 1 GiB, one thread.
    fn default() -> Config {
        Config {
            resp: loopback(6379),
            memcached: loopback(11211),
            udp: UdpConfig { port: 0, reply_factor: 10 },
            tls_resp: None,
            tls_memcached: None,
            tls: None,
            native: None,
            native_key_file: None,
            native_transport: NativeTransport::Auto,
            native_queue_bytes: 4 << 20,
            native_xdp: None,
            unix_socket: None,
            memcached_unix_socket: None,
            unix_mode: 0o700,
            shm: None,
            shm_mode: 0o600,
            admin: loopback(8379),
            admin_access: AdminAccess::default(),
            memory_bytes: 1 << 30,
            mode: Mode::Evict,
            eviction: Eviction::default(),
            data: None,
            warm_file: None,
            cluster: None,
            access_times: true,
            huge_pages: HugePages::Auto,
            numa: Numa::Auto,
            index: IndexKind::Hash,
            lossy_index: false,
            threads: 1,
            cr_threads: None,
            policies: Policies::STAY,
            tries_policies: false,
            tuning: Tuning::Auto,
            cat: Cat::Auto,
            resctrl_root: PathBuf::from(host::resctrl::ROOT),
            size_threshold: Threshold::Quantile(0.99),
            size_cost: Cost::default(),
            large_help: LargeHelp::default(),
            size_sample: 1,
            pin: Pin::Auto,
            poll: Poll::Auto,
            batch: 32,
            slo: None,
            slow_log: SlowLogConfig { threshold_us: 10_000, len_max: 128 },
            tracking_table_keys_max: 1_000_000,
            latency_monitor_ms: 0,
            compaction: true,
            compacts: Compacts::Long,
            hot_set: HotSetSize::Auto,
            max_connections: 10_000,
            max_connections_per_address: 0,
            idle_timeout_ms: 0,
            max_item_size_bytes: 32 << 20,
            atomic_size_max_bytes: 96 << 20,
            enable_shutdown: false,
            debug_command: DebugCommand::No,
            requirepass: None,
            acl_file: None,
            auth_file: None,
            is_insecure: false,
            hash_seed: None,
            output_limit_bytes: 1 << 20,
            starved_time_max: Duration::from_secs(5),
            hooks: Hooks::default(),
            origin: SettingsOrigin::default(),
        }
    }
}

/// The login and the contents of the admin port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// It speaks TLS. Needs [`Config::tls`].
    pub is_tls: bool,
    /// It shows keys, after a login by a user with the right to run HOTKEYS.
    pub shows_keys: bool,
    /// Names and addresses by which clients may call the server, besides those of loopback and its
    /// own address.
    pub hosts: Vec<String>,
}

/// Where the settings came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsOrigin {
    /// The file, for INFO and CONFIG REWRITE.
    pub file: Option<PathBuf>,
    /// Further names and values that CONFIG GET shows.
    pub shown: Vec<(String, String)>,
}

/// The settings of the slow log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogConfig {
    /// The duration in microseconds from which a command is logged; negative: none is.
    pub threshold_us: i64,
    /// The maximum number of entries.
    pub len_max: u64,
}

/// memcached over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// 0: off.
    pub port: u16,
    /// Maximum number of reply bytes for each byte of a request; 0: unlimited.
    pub reply_factor: usize,
}

/// The clients that may use DEBUG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCommand {
    /// No client.
    No,
    /// Clients on this machine.
    Local,
    /// Every client.
    Yes,
}

impl DebugCommand {
    /// As in the settings.
    pub fn name(self) -> &'static str {
        match self {
            DebugCommand::No => "no",
            DebugCommand::Local => "local",
            DebugCommand::Yes => "yes",
        }
    }
}

/// How datagrams are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeTransport {
    /// The measured best: [`NativeTransport::Recvmmsg`] (decision 0024).
    Auto,
    /// By `recvmmsg`, with GRO.
    Recvmmsg,
    /// By io_uring's multishot receive into a ring of buffers; by `recvmmsg` where the kernel has
    /// none.
    IoUring,
}

/// A network device for AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpDevice {
    /// Its name, as in `ip link`.
    pub name: String,
    /// How many of its queues, from the first on; `None`: all.
    pub queue_count: Option<u32>,
}

/// Whether threads move between the layers by themselves (uTPS §3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// If it can pay: on four threads or more, each with a core of its own (K17).
    Auto,
    /// On two threads or more.
    On,
    /// Roles stay as they are.
    Off,
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Polls for 25 to 50 us before it sleeps in the kernel, while work comes that soon.
    Auto,
    /// Never sleeps.
    Busy,
    /// Sleeps at once.
    Block,
}

/// The settings of a server that is a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Where the cluster's config store is.
    pub config_store: cluster_io::Place,
    /// This server's part of the config store, if the servers keep it themselves.
    pub membership: Option<cluster_io::quorum::Membership>,
    /// The address at which other nodes reach this one: links by TCP, landed frames by UDP, one
    /// port.
    pub peer: SocketAddr,
    /// The host that is announced to clients and nodes; `None`: the address of each port.
    pub advertise: Option<String>,
    /// This server's name; `None`: derived from the peers' address.
    pub name: Option<u16>,
    /// The value that the operator expects among the cluster's settings; `None`: any.
    pub copies: Option<u8>,
    /// As `copies`.
    pub min_copies: Option<u8>,
    /// As `copies`.
    pub replication: Option<cluster::Scheme>,
    /// Threads that install landed entries; 0: the control thread does.
    pub digest_threads: usize,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// At once; it is on the disk about a second later.
    None,
    /// When it is on the disk.
    #[default]
    Fsync,
}

/// Where data is kept, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataConfig {
    /// A directory.
    pub path: PathBuf,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// The medium of the log.
    pub media: Media,
    /// Start without damaged data, and lose it.
    pub recovers_damaged: bool,
    /// How often the index is written to a checkpoint, besides at the end; `None`: never, and none
    /// is read.
    pub checkpoint_every: Option<Duration>,
}

/// The largest number of hot keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotSetSize {
    /// The tuner's choice; until it has made one, 1,000.
    #[default]
    Auto,
    /// None, and no request is sampled.
    Off,
    /// This many.
    Items(usize),
}

impl fmt::Display for HotSetSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HotSetSize::Auto => formatter.write_str("auto"),
            HotSetSize::Off => formatter.write_str("off"),
            HotSetSize::Items(items) => items.fmt(formatter),
        }
    }
}

/// Writes changed values, each with its key, into a configuration file.
pub type RewriteFile = fn(&Path, &BTreeMap<&'static str, String>) -> io::Result<()>;

/// Functions and state of the process around a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hooks {
    /// How CONFIG REWRITE changes values in the file; `None`: it cannot.
    pub rewrite_file: Option<RewriteFile>,
    /// The log level that the process was started with.
    pub log_level: LogLevel,
    /// How CONFIG SET changes the log level; `None`: it cannot.
    pub set_log_level: Option<SetLogLevel>,
    /// Called once at the start: before it the process may end at once without losing anything;
    /// after it the server has to be stopped.
    pub before_begin: Option<fn()>,
}
