//! The settings of `dovetail serve`: one table that drives flags, file, environment and docs.
//!
//! ```text
//!  --max-connections 100        flag         ┐
//!  DOVETAIL_MAX_CONNECTIONS=100 environment  ├─▶ Layered (value, origin) ─▶ ServeSettings
//!  max-connections = 100        file         │
//!  (those of --preset)          preset       │
//!  10000                        default      ┘   the first that is present wins, from the top
//! ```
//!
//! # Invariants
//! I1: a setting has one name: flag `--x-y`, TOML key `x-y`, environment `DOVETAIL_X_Y`.
//! I2: every layer is read by the same [`Kind::read`], so an error differs only in its place.
//! I3: the output of `--print-config` reads back to the same values.
//! I4: the table has no setting for a feature that is not built.
//!
//! What CONFIG SET may change has a row in handlers/src/resp/config/live.rs too.

pub mod file;
pub mod joining;
pub mod layers;
pub mod presets;
pub mod print;
#[cfg(test)]
mod reference;
mod rewrite;
pub mod serve;
pub mod settle;
mod suggest;
pub mod value;

pub use layers::{Layered, Origin, SettingError};
pub use serve::ServeSettings;
pub use suggest::closest;
pub use value::{Kind, Value};

use std::time::Duration;

use server::{SLO_MAX, SLO_MIN};

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The flag without its dashes, and the TOML key.
    pub key: &'static str,
    /// The placeholder of the value in the help.
    pub value_name: &'static str,
    /// The accepted values.
    pub kind: Kind,
    /// The default as a user would write it; empty when unset.
    pub default: &'static str,
    /// One sentence for `--help` and docs/settings.md, without a full stop.
    pub help: &'static str,
}

impl Setting {
    /// `DOVETAIL_` and the key in upper case with underscores (I1).
    pub fn environment_name(&self) -> String {
        format!("DOVETAIL_{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }

    /// Parses a value that a layer gives. An empty one is probably a variable that is not set: a
    /// server without what was asked for, such as durability, would be no answer.
    pub fn read_given(&self, text: &str) -> Result<Value, String> {
        // A list may be empty, and an empty password is Redis's word for none.
        let takes_nothing = ["admin-hosts", "requirepass"].contains(&self.key);
        if text.is_empty() && self.default.is_empty() && !takes_nothing {
            return Err(format!("it is empty: write {}, or leave it out", self.value_name));
        }
        self.kind.read(text)
    }
}

/// The row of `key`.
pub fn find(key: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.key == key)
}

/// The key that was probably meant by a mistyped one.
pub fn closest_key(key: &str) -> Option<&'static str> {
    suggest::closest(key, TABLE.iter().map(|setting| setting.key))
}

const MEMORY_MIN_BYTES: u64 = 64 << 20;
const MEMORY_MAX_BYTES: u64 = 1 << 44;
const DAY: Duration = Duration::from_secs(86_400);
/// The longest idle time that can be set for a connection.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const ITEM_MIN_BYTES: u64 = 1 << 10;
const ITEM_MAX_BYTES: u64 = 512 << 20;

/// Every setting, in the order in which it is printed.
pub const TABLE: &[Setting] = &[
    Setting {
        key: "preset",
        value_name: "NAME",
        kind: Kind::Preset,
        default: "dovetail",
        help: "A paper's design as a set of settings; every other source of settings overrides \
               each of them",
    },
    Setting {
        key: "resp",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "127.0.0.1:6379",
        help: "Address for Redis clients; port 0 takes any free port",
    },
    Setting {
        key: "memcached",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "127.0.0.1:11211",
        help: "Address for memcached clients (TCP; text, meta and binary protocol)",
    },
    Setting {
        key: "native",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "off",
        help: "Address for native clients (UDP); with a password set, it also needs \
               --native-key-file",
    },
    Setting {
        key: "native-key-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "File of 32 hexadecimal digits: the key shared by native clients and this server; \
               all other datagrams are dropped",
    },
    Setting {
        key: "native-transport",
        value_name: "auto|recvmmsg|io-uring",
        kind: Kind::Choice(&["auto", "recvmmsg", "io-uring"]),
        default: "auto",
        help: "How native datagrams are received: recvmmsg, or io-uring (Linux 6.12 or later, \
               otherwise recvmmsg); auto is recvmmsg, which was measured to be faster. The log \
               names the one in use",
    },
    Setting {
        key: "native-xdp",
        value_name: "DEVICE[:QUEUES]|off",
        kind: Kind::Device,
        default: "off",
        help: "Network device from whose driver native datagrams are taken by AF_XDP, from its \
               first QUEUES queues (default: all); --native then names an address of the device. \
               Needs root and a binary built with the feature xdp",
    },
    Setting {
        key: "shm",
        value_name: "PATH|off",
        kind: Kind::SocketPath,
        default: "off",
        help: "Unix socket through which clients on this host set up shared memory for the native \
               protocol; --shm-access sets its permissions; with a password set, it also needs \
               --native-key-file",
    },
    Setting {
        key: "shm-access",
        value_name: "0600|0660|0666",
        kind: Kind::Choice(&["0600", "0660", "0666"]),
        default: "0600",
        help: "Permissions of that socket: 0600 admits the server's own user and root, 0660 also \
               its group, 0666 every user",
    },
    Setting {
        key: "udp-port",
        value_name: "PORT",
        kind: Kind::Count { min: 0, max: 65_535 },
        default: "0",
        help: "Port for memcached over UDP, at the address of --memcached; 0: none. Not allowed \
               with a password, and beyond loopback only with --insecure",
    },
    Setting {
        key: "udp-reply-factor",
        value_name: "COUNT",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "10",
        help: "Maximum bytes of a UDP reply for each byte of its request; a longer reply is \
               replaced by one short error, so that a forged sender address floods no host; 0: no \
               limit",
    },
    Setting {
        key: "unix-socket",
        value_name: "PATH|off",
        kind: Kind::SocketPath,
        default: "off",
        help: "Unix socket for Redis clients on this host (redis-cli -s); --unix-mode sets its \
               permissions",
    },
    Setting {
        key: "memcached-unix-socket",
        value_name: "PATH|off",
        kind: Kind::SocketPath,
        default: "off",
        help: "Unix socket for memcached clients on this host; --unix-mode sets its permissions",
    },
    Setting {
        key: "unix-mode",
        value_name: "MODE",
        kind: Kind::Mode,
        default: "0700",
        help: "Permissions of these sockets, in octal: 0700 admits the server's own user and \
               root, 0770 also its group, 0777 every user",
    },
    Setting {
        key: "tls-resp",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "off",
        help: "Address for Redis clients over TLS; needs --tls-cert and --tls-key",
    },
    Setting {
        key: "tls-memcached",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "off",
        help: "Address for memcached clients over TLS; needs --tls-cert and --tls-key",
    },
    Setting {
        key: "tls-cert",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "PEM file of the server's certificate for TLS 1.2 and 1.3, followed by intermediate \
               certificates; SIGHUP reloads it together with --tls-key and --tls-ca",
    },
    Setting {
        key: "tls-key",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "PEM file of the private key of --tls-cert",
    },
    Setting {
        key: "tls-ca",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "PEM file of the authorities whose client certificates are accepted",
    },
    Setting {
        key: "tls-auth-clients",
        value_name: "auto|yes|optional|no",
        kind: Kind::Choice(&["auto", "yes", "optional", "no"]),
        default: "auto",
        help: "Client certificates: yes requires one, optional also accepts clients without one, \
               no requests none; auto is yes with --tls-ca, else no",
    },
    Setting {
        key: "admin",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "127.0.0.1:8379",
        help: "Address for HTTP: / (page), /metrics, /stats, /healthz, /readyz",
    },
    Setting {
        key: "admin-tls",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "The admin port speaks TLS, with --tls-cert and --tls-key. Beyond loopback TLS is \
               required, and so is a login of a user with the right to run INFO",
    },
    Setting {
        key: "admin-show-keys",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "The admin port shows the hottest keys, after a login of a user with the right to \
               run HOTKEYS",
    },
    Setting {
        key: "admin-hosts",
        value_name: "NAME,...",
        kind: Kind::Hosts,
        default: "",
        help: "Values of the Host header that the admin port accepts, besides localhost, loopback \
               addresses and the address that the client connected to",
    },
    Setting {
        key: "memory",
        value_name: "SIZE",
        kind: Kind::AutoSize { min_bytes: MEMORY_MIN_BYTES, max_bytes: MEMORY_MAX_BYTES },
        default: "auto",
        help: "Hard cap on the log, the index and client buffers together: at least 64MiB, and at \
               most what the machine or the cgroup has, less a reserve. It can be raised while the \
               server runs, up to eight times the first value; auto is 1GiB, or half of the \
               machine's memory or of the cgroup's limit if that is less",
    },
    Setting {
        key: "mode",
        value_name: "cache|store",
        kind: Kind::Choice(&["cache", "store"]),
        default: "cache",
        help: "What happens when memory is full: cache evicts items, store refuses writes",
    },
    Setting {
        key: "data-dir",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "Directory that keeps the data across restarts: every write is appended to a log \
               there, as large as --memory, which the next start reads; needs --mode store",
    },
    Setting {
        key: "warm-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "File that holds the store's memory, preferably on a tmpfs such as /dev/shm: items \
               are kept across a clean end (TERM, INT, USR1, SHUTDOWN) and lost after a crash or \
               SHUTDOWN NOSAVE; not allowed with --data-dir or --cluster",
    },
    Setting {
        key: "durability",
        value_name: "none|fsync|replicated",
        kind: Kind::Choice(&["none", "fsync", "replicated"]),
        default: "fsync",
        help: "When a write to --data-dir is acknowledged: fsync after it is on the disk, one \
               sync for all waiting writes; none at once, about a second before it is on the disk; \
               replicated after all copies of a --cluster have it in memory",
    },
    Setting {
        key: "media",
        value_name: "auto|file|dax",
        kind: Kind::Choice(&["auto", "file", "dax"]),
        default: "auto",
        help: "How the log in --data-dir is written: file by pwrite and fdatasync; dax through a \
               mapping of persistent memory, on a file system mounted with -o dax, without a \
               system call for a commit; auto is dax where it is available, else file",
    },
    Setting {
        key: "recover-damaged",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Start although data in --data-dir is damaged. What cannot be read is lost; run \
               dovetail check first to see what that is",
    },
    Setting {
        key: "checkpoint",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::from_secs(1), max: Duration::from_secs(86_400) },
        default: "off",
        help: "How often the index is written beside the log, if at least 64 MiB were written \
               since the last time, and at the end, so that a start need not build it from the \
               log. That is faster for a few million items and slower for more; off never writes \
               or reads one",
    },
    Setting {
        key: "cluster",
        value_name: "NAME|URL",
        kind: Kind::Secret,
        default: "",
        help: "Cluster that this server joins as a node: with --join its name; else where a \
               dovetail cm keeps it: zk://HOST:PORT,HOST:PORT/PATH, with USER:PASSWORD@ before the \
               hosts if ZooKeeper requires it, or file:///DIR for processes of one machine",
    },
    Setting {
        key: "join",
        value_name: "HOST,HOST,HOST",
        kind: Kind::Servers,
        default: "",
        help: "Three to seven servers that keep the cluster's configuration, as HOST or HOST:PORT \
               (7600), the same list on all: those that are in it need nothing beside them; all \
               must start once, later a majority",
    },
    Setting {
        key: "join-as",
        value_name: "HOST:PORT",
        kind: Kind::Servers,
        default: "",
        help: "Which one of --join this server is; by default the one whose address is this \
               machine's",
    },
    Setting {
        key: "cluster-key",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "File with the key that all servers of --join have, as dovetail cluster key prints \
               it; servers of one machine write and read their own",
    },
    Setting {
        key: "cluster-dir",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "Directory in which a server of --join keeps its copy of the configuration; by \
               default in $STATE_DIRECTORY, $XDG_STATE_HOME/dovetail or ~/.local/state/dovetail",
    },
    Setting {
        key: "peer",
        value_name: "ADDR",
        kind: Kind::Address,
        default: "127.0.0.1:16379",
        help: "Address for the other nodes of the cluster, by TCP and UDP; by default of a server \
               of --join its host there, and 10000 above the port of --resp",
    },
    Setting {
        key: "advertise",
        value_name: "HOST",
        kind: Kind::Host,
        default: "",
        help: "Host that is announced to clients and to other nodes; by default the addresses \
               that the ports are bound to",
    },
    Setting {
        key: "node-id",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 65_535 },
        default: "auto",
        help: "This server's number in the cluster; auto derives one from the address of --peer",
    },
    Setting {
        key: "copies",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 16 },
        default: "auto",
        help: "Expected number of copies of each shard; auto accepts the cluster's setting \
               (dovetail cm), any other number must equal it",
    },
    Setting {
        key: "min-copies",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 16 },
        default: "auto",
        help: "Expected number of copies below which writes are refused; auto accepts the \
               cluster's setting, any other number must equal it",
    },
    Setting {
        key: "replication",
        value_name: "auto|rowan|rpc|write|batch|share",
        kind: Kind::Choice(&["auto", "rowan", "rpc", "write", "batch", "share"]),
        default: "auto",
        help: "Expected way of sending writes to copies: rowan into one log in order of arrival, \
               rpc to a worker, write into a log for each sending thread, batch as write but \
               several at a time, share into a log for each server; auto accepts the cluster's \
               setting (dovetail cm)",
    },
    Setting {
        key: "digest-threads",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 16 },
        default: "0",
        help: "Threads of a cluster node that install the writes of other nodes, each for its own \
               shards; 0: the control thread installs them",
    },
    Setting {
        key: "eviction",
        value_name: "fifo|lru|lru-approx|s3-fifo",
        kind: Kind::Choice(&["fifo", "lru", "lru-approx", "s3-fifo"]),
        default: "s3-fifo",
        help: "Order in which a full cache evicts items: fifo the oldest first; lru the least \
               recently used, by appending anew what is read; lru-approx keeps what was read since \
               it was written; s3-fifo tries new items in a small queue, and keeps those that are \
               read",
    },
    Setting {
        key: "index",
        value_name: "hash|tree",
        kind: Kind::Choice(&["hash", "tree"]),
        default: "hash",
        help: "How items are found: hash is fastest for single keys; tree keeps keys in order, \
               for KV.RANGE and for SCAN and KEYS by prefix",
    },
    Setting {
        key: "lossy-index",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Drop a key when its index bucket is full, as MICA does, even while memory is free; \
               for the hash index only",
    },
    Setting {
        key: "huge-pages",
        value_name: "auto|hugetlb|off",
        kind: Kind::Choice(&["auto", "hugetlb", "off"]),
        default: "auto",
        help: "Pages for the log and the index: auto uses reserved huge pages if there are \
               enough, else transparent ones; hugetlb refuses to start without reserved ones; off \
               uses small pages",
    },
    Setting {
        key: "numa",
        value_name: "auto|off",
        kind: Kind::Choice(&["auto", "off"]),
        default: "auto",
        help: "Placement of memory on machines with several NUMA nodes: auto gives each node a \
               share in proportion to its workers and spreads the index over all nodes; off leaves \
               the placement to the first thread that touches a page",
    },
    Setting {
        key: "threads",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 256 },
        default: "auto",
        help: "Number of worker threads; auto is one less than the cores of the affinity mask and \
               the cgroup's quota, at least one. CONFIG SET threads reduces the number of active \
               ones",
    },
    Setting {
        key: "cr-threads",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 256 },
        default: "auto",
        help: "Number of these threads that poll connections and reply, while the others execute \
               requests. auto: every thread does both (with hand-off:N, N threads poll) until \
               --tuner divides them, or, with 4 threads or more, CONFIG SET cr-threads",
    },
    Setting {
        key: "tuner",
        value_name: "auto|on|off",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "Move threads between the two layers automatically, under --cr-threads auto, and \
               choose among write policies and dispatches, where both are auto: what serves more \
               side by side is adopted. auto does so with four threads or more if each has its own \
               core, on with two or more",
    },
    Setting {
        key: "cat",
        value_name: "auto|on|off|N",
        kind: Kind::CacheWays,
        default: "auto",
        help: "Ways of the last-level cache for threads that only execute requests, by \
               /sys/fs/resctrl: auto and on let the tuner choose the number, N fixes it; on and N \
               require resctrl",
    },
    Setting {
        key: "write-policy",
        value_name: "auto|erew|crew|d-crew|crcw",
        kind: Kind::Choice(&["auto", "erew", "crew", "d-crew", "crcw"]),
        default: "auto",
        help: "Thread that may write a partition of the keys: erew its owner, which is also its \
               only reader; crew its owner; d-crew the thread with outstanding writes of the \
               partition; crcw any thread. auto: crcw; with --dispatch auto and --tuner, d-crew \
               once that was measured to serve more",
    },
    Setting {
        key: "dispatch",
        value_name: "auto|any|key-hash|jbsq:N|round-robin|hand-off:N|steal|size-aware",
        kind: Kind::Dispatch,
        default: "auto",
        help: "Thread that executes a request, where the write policy leaves a choice: any the \
               receiving thread; key-hash the owner of the key; jbsq:N the shortest queue of those \
               with less than N requests; round-robin each thread in turn; hand-off:N an idle \
               thread behind the first N threads, which only receive; steal the receiving thread, \
               or any idle thread; size-aware separate threads for large items. auto: any; with \
               --write-policy auto and --tuner, size-aware once that was measured to serve more",
    },
    Setting {
        key: "size-threshold",
        value_name: "auto|SIZE",
        kind: Kind::AutoSize { min_bytes: 1, max_bytes: ITEM_MAX_BYTES },
        default: "auto",
        help: "Size of the largest item (key and value) that size-aware dispatch treats as small; \
               auto is the 99th percentile of the sizes of the last second's requests, and at \
               least what fits into one packet",
    },
    Setting {
        key: "size-cost",
        value_name: "packets|bytes|constant+bytes",
        kind: Kind::Choice(&["packets", "bytes", "constant+bytes"]),
        default: "packets",
        help: "Cost of a request by the size of its item: the share of threads for small items \
               equals their share of the total cost",
    },
    Setting {
        key: "size-sample",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1000 },
        default: "1",
        help: "Count the size of one request in N, for --size-threshold auto and --size-cost",
    },
    Setting {
        key: "large-help",
        value_name: "on|off",
        kind: Kind::Choice(&["on", "off"]),
        default: "on",
        help: "Threads for large items execute waiting small requests, one at a time, while they \
               have no large ones",
    },
    Setting {
        key: "poll",
        value_name: "auto|busy|block",
        kind: Kind::Choice(&["auto", "busy", "block"]),
        default: "auto",
        help: "How an idle worker waits: auto polls for 25 to 50us before it sleeps while work \
               comes that soon, busy never sleeps, block sleeps at once",
    },
    Setting {
        key: "pin",
        value_name: "auto|on|off",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "Bind each worker to one core of the affinity mask; auto does so if there is a core \
               for every worker",
    },
    Setting {
        key: "batch",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 64 },
        default: "32",
        help: "Number of requests that a worker takes through the stages of the store together",
    },
    Setting {
        key: "compaction",
        value_name: "auto|on|off",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "Store several waiting writes of one key as one; each gets its own reply. auto does \
               so under every write policy, within a batch and if no other thread has written the \
               key meanwhile; on requires a policy with one writer for each key",
    },
    Setting {
        key: "compact-short",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Replay two writes or more of any length in a window, as C-4 does; off: a \
               window is for four writes or more of at least a kilobyte, because below that it \
               costs more than it saves; of SETs without options that follow each other only the \
               last is stored",
    },
    Setting {
        key: "slo",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: SLO_MIN, max: SLO_MAX },
        default: "off",
        help: "Time within which 99 of 100 requests are to be answered, by the server's clock: \
               latencies are sampled and shown, and the tuner chooses the fastest division of \
               threads that meets it. CONFIG SET slo changes it while the server runs; a server \
               that was started with off accepts one only if its threads can send requests to each \
               other, as with --cr-threads N, with most values of --dispatch and with 4 threads or \
               more",
    },
    Setting {
        key: "slowlog-log-slower-than",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::ZERO, max: DAY },
        default: "10ms",
        help: "Time from which a command that runs alone, or a batch of commands, is recorded in \
               SLOWLOG. CONFIG SET takes microseconds, as Redis does",
    },
    Setting {
        key: "slowlog-max-len",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "128",
        help: "Maximum number of SLOWLOG entries, each of at most about 5 KiB; all together at \
               most a sixteenth of the client buffers",
    },
    Setting {
        key: "tracking-table-max-keys",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000_000 },
        default: "1000000",
        help: "Maximum number of keys whose readers are recorded for client-side caching, within \
               a quarter of the client buffers; 0: as many as fit there",
    },
    Setting {
        key: "latency-monitor-threshold",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::from_millis(1), max: DAY },
        default: "off",
        help: "Time from which an event is recorded for LATENCY LATEST, HISTORY and DOCTOR. \
               CONFIG SET takes milliseconds, and 0 is off",
    },
    Setting {
        key: "hot-set",
        value_name: "auto|off|N",
        kind: Kind::SwitchedCount { min: 1, max: 10_000 },
        default: "auto",
        help: "Number of the most frequent keys that polling threads (--cr-threads) read \
               themselves instead of forwarding the reads; auto: the number that --tuner finds \
               best, 1,000 without it. Evenly distributed keys have no hot set",
    },
    Setting {
        key: "access-times",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "on",
        help: "Record when each item was last used: h and l of memcached's meta commands, OBJECT \
               IDLETIME. Only for data in memory: not with --data-dir, --warm-file or --cluster",
    },
    Setting {
        key: "max-connections",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "10000",
        help: "Maximum number of connections of Redis and memcached clients",
    },
    Setting {
        key: "max-connections-per-address",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "0",
        help: "Maximum number of these connections from one address; 0: no limit of its own",
    },
    Setting {
        key: "idle-timeout",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::from_secs(1), max: YEAR },
        default: "off",
        help: "Time after which a connection is closed if it neither sends anything nor reads its \
               pending replies. CONFIG SET takes seconds, 0 is off; CONFIG also accepts the name \
               timeout",
    },
    Setting {
        key: "max-item-size",
        value_name: "SIZE",
        kind: Kind::Size { min_bytes: ITEM_MIN_BYTES, max_bytes: ITEM_MAX_BYTES },
        default: "32MiB",
        help: "Length of the longest value, at most 512MiB",
    },
    Setting {
        key: "max-atomic-size",
        value_name: "SIZE",
        kind: Kind::Size { min_bytes: 1 << 20, max_bytes: 1 << 40 },
        default: "96MiB",
        help: "Maximum bytes that one EXEC, WATCH, MSET, MSETNX or MSETEX accesses, each key \
               counting as 4KiB and each byte stored in a cluster as eight, and of a BITOP whose \
               keys keep changing; its worker serves no other client meanwhile, about 20ms at \
               96MiB (24,576 keys)",
    },
    Setting {
        key: "enable-shutdown",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Allow clients of the memcached port to stop the server by shutdown, as with \
               memcached -A",
    },
    Setting {
        key: "enable-debug-command",
        value_name: "no|local|yes",
        kind: Kind::Choice(&["no", "local", "yes"]),
        default: "no",
        help: "Clients that may use DEBUG, which can block a thread: no allows none, local those \
               on this machine, yes all",
    },
    Setting {
        key: "requirepass",
        value_name: "PASSWORD",
        kind: Kind::Secret,
        default: "",
        help: "Password of the user default, which Redis clients give by AUTH; prefer the file or \
               the environment, because every local user can read the command line",
    },
    Setting {
        key: "acl-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "File of the RESP port's users, as in Redis: lines of user NAME RULE ...; read at \
               the start and by ACL LOAD, written by ACL SAVE. A line for the user default \
               overrides --requirepass",
    },
    Setting {
        key: "auth-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "File of the memcached ports' users, which replaces --requirepass there: lines of \
               user:password; read at the start and at SIGHUP",
    },
    Setting {
        key: "insecure",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Serve addresses beyond loopback without a password or, for the native protocol, \
               without a key; a log line repeats the warning every minute",
    },
    Setting {
        key: "log",
        value_name: "LEVEL",
        kind: Kind::Choice(&["off", "error", "warn", "info", "debug", "trace"]),
        default: "info",
        help: "Lowest level of log lines; each -v and -q moves it by one",
    },
    Setting {
        key: "log-format",
        value_name: "auto|human|json",
        kind: Kind::Choice(&["auto", "human", "json"]),
        default: "auto",
        help: "Format of log lines on standard error; auto is human on a terminal, else json",
    },
];

#[cfg(test)]
mod tests;
