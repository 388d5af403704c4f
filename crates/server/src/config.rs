//! The configuration that a server is started with: plain values, whose spelling the reading code
//! has already checked.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use policy::size_class::{Cost, LargeHelp, Threshold};
use policy::{Dispatch, WritePolicy};
use store::{Eviction, HugePages, IndexKind, Mode};

use crate::affinity;
use crate::cluster::ClusterConfig;
use crate::compaction::Compacts;
use crate::durable::DataConfig;
use crate::error::StartError;
use crate::forwarding::Layers;
use crate::hot::HotSetSize;
use crate::live::Hooks;
use crate::manager::{knobs, ways};
use crate::tls::TlsConfig;

/// Everything that [`crate::Server::start`] needs to know.
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
    /// The file with the key of the native protocol's tags; `None`: anybody may send.
    pub native_key_file: Option<PathBuf>,
    /// How datagrams are received at the native port.
    pub native_transport: NativeTransport,
    /// Bytes that the kernel is asked to keep for each socket of the native port.
    pub native_queue_bytes: usize,
    /// The device whose native datagrams are taken from its driver; `None`: all go by the kernel.
    pub native_xdp: Option<XdpDevice>,
    /// The Unix socket for clients in shared memory; `None`: off.
    pub shm: Option<PathBuf>,
    /// The mode of that socket's file. Without rights for others than its owner, only processes of
    /// the server's own user and root's are taken, however they came by it.
    pub shm_mode: u16,
    /// Where the admin port listens; `None`: off. Port 0 takes a free port.
    pub admin: Option<SocketAddr>,
    /// What it asks for, and what it shows.
    pub admin_access: AdminAccess,
    /// The hard cap on index, log and buffers together.
    pub memory_bytes: u64,
    /// What happens when the log is full: the oldest items go, or writes are refused.
    pub mode: Mode,
    /// Which items go first in [`Mode::Evict`].
    pub eviction: Eviction,
    /// Where the data outlives the server; `None`: nowhere. Needs [`Mode::Clean`].
    pub data: Option<DataConfig>,
    /// The file that is the store's memory and keeps it across a restart; `None`: there is none.
    pub warm_file: Option<PathBuf>,
    /// As a node of which cluster; `None`: alone.
    pub cluster: Option<ClusterConfig>,
    /// Whether items say when they were used last, in a store that is in memory alone.
    pub access_times: bool,
    /// Which pages the memory is asked to lie on.
    pub huge_pages: HugePages,
    /// Whether the memory is divided between NUMA nodes.
    pub numa: Numa,
    /// How keys are found.
    pub index: IndexKind,
    /// No overflow buckets: a full bucket drops a key. Only of the hash index.
    pub lossy_index: bool,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Of these, threads that poll connections; the rest execute what those send. `None`: all
    /// poll, and all execute.
    pub cr_threads: Option<usize>,
    /// Which workers may write a partition.
    pub write_policy: WritePolicy,
    /// Which worker executes what the write policy leaves open.
    pub dispatch: Dispatch,
    /// Whether threads move between the layers by themselves.
    pub tuning: Tuning,
    /// Ways of the last-level cache for the memory-resident layer.
    pub cat: Cat,
    /// Where the kernel shares caches out.
    pub resctrl_root: PathBuf,
    /// Where small items end, of the size-aware dispatch.
    pub size_threshold: Threshold,
    /// What a request costs by its size, for sharing workers out.
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
    /// Several writes of a key in one batch become one (C-4 §4.3).
    pub compaction: bool,
    /// Which writes that is done for.
    pub compacts: Compacts,
    /// Within what time 99 of 100 requests are to be answered; `None`: no objective.
    pub slo: Option<Duration>,
    /// What the slow log takes in.
    pub slow_log: SlowLogConfig,
    /// Keys whose readers are remembered for client-side caching; 0: as many as have room.
    pub tracking_table_keys_max: u64,
    /// What takes so many milliseconds is sampled for LATENCY; 0: nothing is.
    pub latency_monitor_ms: u64,
    /// How many frequent keys the threads that only poll read themselves.
    pub hot_set: HotSetSize,
    /// Client connections at a time, over both protocols.
    pub max_connections: usize,
    /// The same of one address; 0: as many as there may be.
    pub max_connections_per_address: usize,
    /// A connection is closed after so many milliseconds without a byte either way; 0: never.
    pub idle_timeout_ms: u64,
    /// The largest value; lowered to what `memory_bytes` can hold.
    pub max_item_size_bytes: u64,
    /// What one atomic group may touch: bytes, and 4 KiB more for each key.
    pub atomic_size_max_bytes: u64,
    /// Whether clients of memcached's port may end the server.
    pub enable_shutdown: bool,
    /// The clients that may use DEBUG.
    pub debug_command: DebugCommand,
    /// The default user's password, which clients must give on both protocols.
    pub requirepass: Option<String>,
    /// The file of users of the RESP port, which ACL LOAD reads and ACL SAVE writes.
    pub acl_file: Option<PathBuf>,
    /// The users that memcached's clients may be, in the place of that password.
    pub auth_file: Option<PathBuf>,
    /// Doors may be open beyond loopback without a password or a key.
    pub is_insecure: bool,
    /// The key hash's seed; `None`: drawn at random.
    pub hash_seed: Option<u64>,
    /// Unsent reply bytes after which a client is not read until it has taken some.
    pub output_limit_bytes: u64,
    /// After so long without room in the full client buffers, an unfinished command is refused.
    pub starved_time_max: Duration,
    /// What the process does for CONFIG SET and CONFIG REWRITE.
    pub hooks: Hooks,
    /// Where the settings came from.
    pub origin: SettingsOrigin,
}

/// So many threads, with a core each, route by default.
const ROUTED_THREADS_MIN: usize = 4;

/// Rings and tables between threads take at most one such part of the memory by default.
const ROUTING_MEMORY_PART: u64 = 8;

impl Config {
    /// Whether each worker that is to keep to a core has one of `core_count`.
    pub fn check_pins(&self, core_count: usize) -> Result<(), StartError> {
        if self.pin == Pin::On && self.threads > core_count {
            return Err(StartError::PinnedThreads { threads: self.threads, core_count });
        }
        Ok(())
    }

    /// Whether a tuner that was asked for has something to turn.
    pub fn check_tuning(&self) -> Result<(), StartError> {
        match knobs::why_not(self, usize::MAX) {
            Some(reason) if self.tuning == Tuning::On => Err(StartError::NothingToTune { reason }),
            _ => Ok(()),
        }
    }

    /// Whether d-CREW and size-aware dispatch are the better default for these threads on so many
    /// cores: from four threads with a core each on, while what lies between them stays a small
    /// part of the memory (decision 0047).
    pub fn routes_by_default(&self, core_count: usize) -> bool {
        let routed = Config {
            write_policy: WritePolicy::DCrew,
            dispatch: Dispatch::SizeAware,
            ..self.clone()
        };
        let Ok(layers) = Layers::new(&routed) else { return false };
        let most_bytes = self.memory_bytes / ROUTING_MEMORY_PART;
        (ROUTED_THREADS_MIN..=core_count).contains(&self.threads)
            && layers.forwarding_memory(&routed).fixed_bytes <= most_bytes
    }

    /// Whether threads, write policy and dispatch fit together; if not, what would be right.
    pub fn check_layers(&self) -> Result<(), StartError> {
        Layers::new(self).map(|_| ())
    }

    /// What would let some threads only execute; `None`: some do, or will where the tuner finds
    /// that right.
    pub fn why_one_layer(&self) -> Option<String> {
        let is_divided = Layers::new(self).is_ok_and(|layers| layers.start.has_two_layers());
        let is_tuned = || knobs::why_not(self, affinity::processor_count()).is_none();
        (!is_divided && !is_tuned()).then(|| ways::layers_remedy(self))
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
            write_policy: WritePolicy::Crcw,
            dispatch: Dispatch::Any,
            tuning: Tuning::Auto,
            cat: Cat::Auto,
            resctrl_root: PathBuf::from(crate::resctrl::ROOT),
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

/// What the admin port asks for, and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// It speaks TLS. Needs [`Config::tls`].
    pub is_tls: bool,
    /// It shows keys, after a login by a user with the right to run HOTKEYS.
    pub shows_keys: bool,
    /// Names and addresses that clients may call it by, beside loopback's and its own address.
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

/// What the slow log takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogConfig {
    /// Commands that take so many microseconds; negative: none.
    pub threshold_us: i64,
    /// Entries that it has.
    pub len_max: u64,
}

/// memcached over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// 0: off.
    pub port: u16,
    /// Bytes that are answered for each byte of a request; 0: as many as there are.
    pub reply_factor: usize,
}

/// The clients that may use DEBUG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCommand {
    /// No client.
    No,
    /// Clients on this machine.
    Local,
    /// Everybody.
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
    /// As measurement chose: by [`NativeTransport::Recvmmsg`] (decision 0024).
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
    /// Where that can pay: on four threads or more, each with a core of its own (K17).
    Auto,
    /// On two threads or more.
    On,
    /// Roles stay as they are.
    Off,
}

/// Ways of the last-level cache for the memory-resident threads; the others may use all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cat {
    /// As the tuner says, where the machine shares its cache out.
    Auto,
    /// The same, and no start without.
    On,
    /// All threads may use all ways.
    Off,
    /// So many, and no start without.
    Ways(u32),
}

impl fmt::Display for Cat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cat::Auto => formatter.write_str("auto"),
            Cat::On => formatter.write_str("on"),
            Cat::Off => formatter.write_str("off"),
            Cat::Ways(count) => count.fmt(formatter),
        }
    }
}

/// Whether worker `i` stays on the `i`-th processor of the inherited affinity mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// On, if there is a processor for each worker.
    Auto,
    /// On; more workers than processors are refused.
    On,
    /// The kernel moves workers as it likes.
    Off,
}

/// Whether the store's memory is asked of the nodes whose workers use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// Where there are several nodes, and the kernel lets us.
    Auto,
    /// Memory lies where it is first touched.
    Off,
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Polls for 50 us after the last work, then sleeps in the kernel.
    Auto,
    /// Never sleeps.
    Busy,
    /// Sleeps at once.
    Block,
}
