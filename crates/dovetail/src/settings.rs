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

pub mod file;
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
        help: "A paper's design as a set of settings, each of which any other layer overrides",
    },
    Setting {
        key: "resp",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "127.0.0.1:6379",
        help: "Where Redis clients connect; port 0 takes any free port",
    },
    Setting {
        key: "memcached",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "127.0.0.1:11211",
        help: "Where memcached clients connect (TCP; text, meta and binary protocol)",
    },
    Setting {
        key: "native",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "off",
        help: "Where native clients connect (UDP); beside a password only with --native-key-file",
    },
    Setting {
        key: "native-key-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "A file of 32 hexadecimal digits: the key that native clients and this server share; \
               all other datagrams are dropped",
    },
    Setting {
        key: "native-transport",
        value_name: "auto|recvmmsg|io-uring",
        kind: Kind::Choice(&["auto", "recvmmsg", "io-uring"]),
        default: "auto",
        help: "How native datagrams are received; auto takes what measurement chose, recvmmsg, and \
               the log says what is used; io-uring needs Linux 6.12 and falls back to recvmmsg",
    },
    Setting {
        key: "native-xdp",
        value_name: "DEVICE[:QUEUES]|off",
        kind: Kind::Device,
        default: "off",
        help: "Network device whose native datagrams are taken from its driver by AF_XDP, from the \
               first QUEUES of its queues, by default all; --native then names one address of the \
               device; needs root and a binary built with the feature xdp",
    },
    Setting {
        key: "shm",
        value_name: "PATH|off",
        kind: Kind::SocketPath,
        default: "off",
        help: "Unix socket at which clients on this host get shared memory to speak the native \
               protocol through; --shm-access sets its permissions; beside a password only with \
               --native-key-file",
    },
    Setting {
        key: "shm-access",
        value_name: "0600|0660|0666",
        kind: Kind::Choice(&["0600", "0660", "0666"]),
        default: "0600",
        help: "Mode of the socket's file: 0600 takes processes of the server's own user and \
               root's, 0660 those of its group too, 0666 every user's",
    },
    Setting {
        key: "udp-port",
        value_name: "PORT",
        kind: Kind::Count { min: 0, max: 65_535 },
        default: "0",
        help: "The port of memcached over UDP, at the address of --memcached; 0: none; never \
               beside a password, and beyond loopback only with --insecure",
    },
    Setting {
        key: "udp-reply-factor",
        value_name: "COUNT",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "10",
        help: "The most bytes that UDP answers for each byte of a request; a longer reply becomes \
               one short error, so that a forged sender address floods no host; 0: no limit",
    },
    Setting {
        key: "unix-socket",
        value_name: "PATH|off",
        kind: Kind::SocketPath,
        default: "off",
        help: "Unix socket at which Redis clients on this host connect (redis-cli -s); \
               --unix-mode sets its permissions",
    },
    Setting {
        key: "memcached-unix-socket",
        value_name: "PATH|off",
        kind: Kind::SocketPath,
        default: "off",
        help: "Unix socket at which memcached clients on this host connect; --unix-mode sets \
               its permissions",
    },
    Setting {
        key: "unix-mode",
        value_name: "MODE",
        kind: Kind::Mode,
        default: "0700",
        help: "Permissions of the files of these sockets, octal: 0700 lets the server's own user \
               and root connect, 0770 its group too, 0777 every user",
    },
    Setting {
        key: "tls-resp",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "off",
        help: "Where Redis clients connect by TLS; needs --tls-cert and --tls-key",
    },
    Setting {
        key: "tls-memcached",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "off",
        help: "Where memcached clients connect by TLS; needs --tls-cert and --tls-key",
    },
    Setting {
        key: "tls-cert",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "The server's certificate for TLS 1.2 and 1.3, and those between it and a root, in \
               PEM; SIGHUP reads it again, with key and authority",
    },
    Setting {
        key: "tls-key",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "The private key of --tls-cert, in PEM",
    },
    Setting {
        key: "tls-ca",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "The authorities whose client certificates are accepted, in PEM",
    },
    Setting {
        key: "tls-auth-clients",
        value_name: "auto|yes|optional|no",
        kind: Kind::Choice(&["auto", "yes", "optional", "no"]),
        default: "auto",
        help: "Client certificates: yes requires one, optional accepts clients without one too, \
               no requests none; auto is yes with --tls-ca, else no",
    },
    Setting {
        key: "admin",
        value_name: "ADDR|off",
        kind: Kind::Address,
        default: "127.0.0.1:8379",
        help: "HTTP for people and monitoring: /, /metrics, /stats, /healthz, /readyz",
    },
    Setting {
        key: "admin-tls",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "The admin port speaks TLS, with --tls-cert and --tls-key. Beyond loopback TLS is \
               required, and the login of a user with the right to run INFO",
    },
    Setting {
        key: "admin-show-keys",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "The admin port shows the hottest keys after a login with the right to run HOTKEYS",
    },
    Setting {
        key: "admin-hosts",
        value_name: "NAME,...",
        kind: Kind::Hosts,
        default: "",
        help: "Names and addresses in Host that the admin port answers, beside localhost, loopback \
               addresses and the address that the client reached",
    },
    Setting {
        key: "memory",
        value_name: "SIZE",
        kind: Kind::AutoSize { min_bytes: MEMORY_MIN_BYTES, max_bytes: MEMORY_MAX_BYTES },
        default: "auto",
        help: "Hard cap on log, index and client buffers together, at least 64MiB and at most what \
               the machine or the cgroup has, less a reserve; live up to eight times what it \
               began with; auto is 1GiB, or half of the machine or of the cgroup's limit if that \
               is less",
    },
    Setting {
        key: "mode",
        value_name: "cache|store",
        kind: Kind::Choice(&["cache", "store"]),
        default: "cache",
        help: "What happens when memory is full: cache evicts, store refuses writes",
    },
    Setting {
        key: "data-dir",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "A directory in which the data outlives the server: every write goes to a log there, \
               as large as --memory, and is read back at the start; needs --mode store",
    },
    Setting {
        key: "warm-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "A file that is the store's memory, best on a tmpfs such as /dev/shm: what is there \
               when the server ends (TERM, INT, USR1, SHUTDOWN) is there at the next start; lost \
               after a crash, and not for --data-dir or --cluster",
    },
    Setting {
        key: "durability",
        value_name: "none|fsync|replicated",
        kind: Kind::Choice(&["none", "fsync", "replicated"]),
        default: "fsync",
        help: "When a write to --data-dir is acknowledged: fsync once it is on the disk, together \
               with all that wait; none at once, and it is on the disk about a second later; \
               replicated when all copies have it in memory, in a --cluster",
    },
    Setting {
        key: "media",
        value_name: "auto|file|dax",
        kind: Kind::Choice(&["auto", "file", "dax"]),
        default: "auto",
        help: "How the log in --data-dir is written: file by pwrite and fdatasync; dax into a \
               mapping of persistent memory, whose commits are no system call, on a file system \
               mounted with -o dax; auto is dax where that is given, else file",
    },
    Setting {
        key: "recover-damaged",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Start although data in --data-dir is damaged, without what cannot be read, which is \
               lost; dovetail check says what that is",
    },
    Setting {
        key: "checkpoint",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::from_secs(1), max: Duration::from_secs(86_400) },
        default: "off",
        help: "How often the index is written beside the log, if 64 MiB were written since, and at \
               the end, so that a start need not build it anew, which pays for a few million items \
               and not for more; off never does, and does not read one",
    },
    Setting {
        key: "cluster",
        value_name: "URL",
        kind: Kind::Secret,
        default: "",
        help: "The cluster that this server is a node of: zk://HOST:PORT,HOST:PORT/PATH, with \
               USER:PASSWORD@ before the hosts where ZooKeeper asks for it, or file:///DIR for \
               processes of one machine; dovetail cm makes it",
    },
    Setting {
        key: "peer",
        value_name: "ADDR",
        kind: Kind::Address,
        default: "127.0.0.1:16379",
        help: "Where other nodes of the cluster reach this one, by TCP and UDP",
    },
    Setting {
        key: "advertise",
        value_name: "HOST",
        kind: Kind::Host,
        default: "",
        help: "The host that clients and nodes of the cluster are told; by default the addresses \
               that the ports are bound to",
    },
    Setting {
        key: "node-id",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 65_535 },
        default: "auto",
        help: "This server's number in the cluster; auto makes one of the address that peers use",
    },
    Setting {
        key: "copies",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 16 },
        default: "auto",
        help: "Copies of each shard that the cluster is expected to keep; auto takes what dovetail \
               cm has settled, another number is refused",
    },
    Setting {
        key: "min-copies",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 16 },
        default: "auto",
        help: "Copies without which writes are refused, as the cluster is expected to have it",
    },
    Setting {
        key: "replication",
        value_name: "auto|rowan|rpc|write|batch|share",
        kind: Kind::Choice(&["auto", "rowan", "rpc", "write", "batch", "share"]),
        default: "auto",
        help: "How the cluster is expected to send writes to copies: rowan into one log as they \
               arrive, rpc to a worker, write into a log for each sending thread, batch the same \
               several at a time, share into a log for each server; auto takes what dovetail cm \
               has settled",
    },
    Setting {
        key: "digest-threads",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 16 },
        default: "0",
        help: "Threads of a cluster's node that install what other nodes send, each for its own \
               shards; 0: the control thread does that itself",
    },
    Setting {
        key: "eviction",
        value_name: "fifo|lru-approx|s3-fifo",
        kind: Kind::Choice(&["fifo", "lru-approx", "s3-fifo"]),
        default: "s3-fifo",
        help: "Which items a full cache gives up",
    },
    Setting {
        key: "index",
        value_name: "hash|tree",
        kind: Kind::Choice(&["hash", "tree"]),
        default: "hash",
        help: "How items are found: hash is fastest for one key at a time, tree keeps keys in \
               order, for KV.RANGE and for SCAN and KEYS by prefix",
    },
    Setting {
        key: "lossy-index",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Drop a key when its index bucket is full, as MICA does, even while memory is free; \
               only of the hash index",
    },
    Setting {
        key: "huge-pages",
        value_name: "auto|hugetlb|off",
        kind: Kind::Choice(&["auto", "hugetlb", "off"]),
        default: "auto",
        help: "Pages that log and index lie on: auto takes reserved huge pages where there are \
               enough, else transparent ones; hugetlb takes reserved ones or does not start; off \
               takes small ones",
    },
    Setting {
        key: "numa",
        value_name: "auto|off",
        kind: Kind::Choice(&["auto", "off"]),
        default: "auto",
        help: "Where memory lies on a machine with several NUMA nodes: auto gives each node its \
               part, by the workers that run there, and spreads the index over all; off leaves \
               it to the thread that touches it first",
    },
    Setting {
        key: "threads",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 256 },
        default: "auto",
        help: "Worker threads; auto is one less than the cores that the affinity mask and the \
               cgroup's quota allow, at least one. CONFIG SET threads lets fewer of them work",
    },
    Setting {
        key: "cr-threads",
        value_name: "auto|N",
        kind: Kind::AutoCount { min: 1, max: 256 },
        default: "auto",
        help: "Of these, threads that poll connections and reply; the others execute what those \
               send. auto: every thread does both (with hand-off:N, N threads poll) until \
               --tuner divides them, or, with 4 threads or more, CONFIG SET cr-threads",
    },
    Setting {
        key: "tuner",
        value_name: "auto|on|off",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "Whether threads move between the layers by themselves, under --cr-threads auto; \
               auto tries that with four threads or more that have a core each, on with two \
               or more",
    },
    Setting {
        key: "cat",
        value_name: "auto|on|off|N",
        kind: Kind::CacheWays,
        default: "auto",
        help: "Ways of the last-level cache for threads that only execute, by /sys/fs/resctrl: \
               auto and on let the tuner choose, N fixes them; on and N do not start without",
    },
    Setting {
        key: "write-policy",
        value_name: "auto|erew|crew|d-crew|crcw",
        kind: Kind::Choice(&["auto", "erew", "crew", "d-crew", "crcw"]),
        default: "auto",
        help: "The thread that may write a partition of the keys: erew its owner, which alone \
               reads it too; crew its owner; d-crew the thread with outstanding writes of it; \
               crcw any. auto: d-crew with four threads or more that have a core each, else crcw",
    },
    Setting {
        key: "dispatch",
        value_name: "auto|any|key-hash|jbsq:N|round-robin|hand-off:N|steal|size-aware",
        kind: Kind::Dispatch,
        default: "auto",
        help: "The thread that executes a request, where the write policy leaves that open: any \
               the receiving thread, key-hash the owner of the key, jbsq:N the shortest queue of \
               those with less than N, round-robin each in turn, hand-off:N an idle one of those \
               behind the first N threads, which only receive, steal the receiving thread, or any \
               idle thread, size-aware separate threads for large items. auto: size-aware with \
               four threads or more that have a core each, else any",
    },
    Setting {
        key: "size-threshold",
        value_name: "auto|SIZE",
        kind: Kind::AutoSize { min_bytes: 1, max_bytes: ITEM_MAX_BYTES },
        default: "auto",
        help: "The largest item, key and value, that is small to the size-aware dispatch; auto \
               takes the 99th percentile of the requests' sizes each second, and at least what \
               fits one packet",
    },
    Setting {
        key: "size-cost",
        value_name: "packets|bytes|constant+bytes",
        kind: Kind::Choice(&["packets", "bytes", "constant+bytes"]),
        default: "packets",
        help: "What a request costs by the size of its item: small items get the part of the \
               threads that is their part of the cost",
    },
    Setting {
        key: "size-sample",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1000 },
        default: "1",
        help: "One of N requests has its size counted for size-threshold auto and size-cost",
    },
    Setting {
        key: "large-help",
        value_name: "on|off",
        kind: Kind::Choice(&["on", "off"]),
        default: "on",
        help: "Whether threads for large items take small requests that wait, one at a time, while \
               they have nothing large to do",
    },
    Setting {
        key: "poll",
        value_name: "auto|busy|block",
        kind: Kind::Choice(&["auto", "busy", "block"]),
        default: "auto",
        help: "How an idle worker waits: auto spins 50us and then sleeps, busy never sleeps, \
               block sleeps at once",
    },
    Setting {
        key: "pin",
        value_name: "auto|on|off",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "Whether each worker keeps to one core of the affinity mask; auto pins when \
               there is a core for every worker",
    },
    Setting {
        key: "batch",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 64 },
        default: "32",
        help: "Requests that a worker carries through the store's stages at a time",
    },
    Setting {
        key: "compaction",
        value_name: "auto|on|off",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "Store several writes of one key that wait together as one; each gets its own reply. \
               auto does so under every write policy, within a batch and if no other thread wrote \
               the key meanwhile; on asks for a policy that gives each key one writer",
    },
    Setting {
        key: "compact-short",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Do so for two writes or more of any length, as C-4 does; off: from four of a \
               kilobyte on, below which it costs more than it saves",
    },
    Setting {
        key: "slo",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: SLO_MIN, max: SLO_MAX },
        default: "off",
        help: "Within what time 99 of 100 requests are to be answered, by the server's own clock: \
               latencies are sampled and shown, and the tuner serves as much as keeps it. CONFIG \
               SET slo changes it while the server runs; a server that was started with off takes \
               one up only if its threads can send requests to one another, as with --cr-threads \
               N, with most --dispatch and with 4 threads or more",
    },
    Setting {
        key: "slowlog-log-slower-than",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::ZERO, max: DAY },
        default: "10ms",
        help: "What takes as long is put into SLOWLOG: a command that runs by itself, or a batch \
               of commands on keys. CONFIG SET takes microseconds, as Redis does",
    },
    Setting {
        key: "slowlog-max-len",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "128",
        help: "Entries that SLOWLOG keeps, of at most about 5 KiB each; within a sixteenth of the \
               client buffers",
    },
    Setting {
        key: "tracking-table-max-keys",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000_000 },
        default: "1000000",
        help: "Keys whose readers are remembered for client-side caching, within a quarter of the \
               client buffers; 0: as many as have room there",
    },
    Setting {
        key: "latency-monitor-threshold",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::from_millis(1), max: DAY },
        default: "off",
        help: "What takes as long is sampled for LATENCY LATEST, HISTORY and DOCTOR. CONFIG SET \
               takes milliseconds, 0 is off",
    },
    Setting {
        key: "hot-set",
        value_name: "auto|off|N",
        kind: Kind::SwitchedCount { min: 1, max: 10_000 },
        default: "auto",
        help: "How many of the most frequent keys the threads that only poll (--cr-threads) read \
               themselves instead of sending the reads on; auto: as many as --tuner finds best, \
               1,000 without. Loads whose keys are all alike have none",
    },
    Setting {
        key: "access-times",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "on",
        help: "Items say when they were used last: h and l of memcached's meta commands, OBJECT \
               IDLETIME; only of what is in memory alone: not with --data-dir, --warm-file or \
               --cluster",
    },
    Setting {
        key: "max-connections",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "10000",
        help: "Connections of Redis and memcached clients at one time",
    },
    Setting {
        key: "max-connections-per-address",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "0",
        help: "Of these, connections that come from one address; 0: as many as there may be",
    },
    Setting {
        key: "idle-timeout",
        value_name: "TIME|off",
        kind: Kind::SwitchedTime { min: Duration::from_secs(1), max: YEAR },
        default: "off",
        help: "How long a connection may neither send anything nor take what waits for it, before \
               it is closed. CONFIG SET takes seconds, 0 is off, and knows it as timeout too",
    },
    Setting {
        key: "max-item-size",
        value_name: "SIZE",
        kind: Kind::Size { min_bytes: ITEM_MIN_BYTES, max_bytes: ITEM_MAX_BYTES },
        default: "32MiB",
        help: "The largest value, at most 512MiB",
    },
    Setting {
        key: "max-atomic-size",
        value_name: "SIZE",
        kind: Kind::Size { min_bytes: 1 << 20, max_bytes: 1 << 40 },
        default: "96MiB",
        help: "Bytes that one EXEC, WATCH, MSET, MSETNX or MSETEX may touch at once, each key \
               counting as 4KiB, and a BITOP whose keys change all the time; its worker serves no \
               other client meanwhile, for some 20ms at 96MiB (24,576 keys)",
    },
    Setting {
        key: "enable-shutdown",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Clients of memcached's port may end the server by shutdown, as with memcached -A",
    },
    Setting {
        key: "enable-debug-command",
        value_name: "no|local|yes",
        kind: Kind::Choice(&["no", "local", "yes"]),
        default: "no",
        help: "Whether clients may use DEBUG, which can hold up a thread: no client, those on this \
               machine, or every client",
    },
    Setting {
        key: "requirepass",
        value_name: "PASSWORD",
        kind: Kind::Secret,
        default: "",
        help: "Password of the user default, which Redis clients must give by AUTH; better in the \
               file or the environment than on the command line, which every local user can read",
    },
    Setting {
        key: "acl-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "A file of users of the RESP port, as Redis has them: lines user NAME RULE ...; read \
               at the start and by ACL LOAD, written by ACL SAVE. A line for default goes before \
               --requirepass",
    },
    Setting {
        key: "auth-file",
        value_name: "PATH",
        kind: Kind::Path,
        default: "",
        help: "A file of lines user:password: the users of memcached's ports, instead of \
               --requirepass. Read at the start, and again at SIGHUP",
    },
    Setting {
        key: "insecure",
        value_name: "on|off",
        kind: Kind::Switch,
        default: "off",
        help: "Lets every machine in at addresses beyond loopback without a password or, for \
               native, a key; a line in the log says so each minute",
    },
    Setting {
        key: "log",
        value_name: "LEVEL",
        kind: Kind::Choice(&["off", "error", "warn", "info", "debug", "trace"]),
        default: "info",
        help: "Least level of log lines; -v and -q move it by one each",
    },
    Setting {
        key: "log-format",
        value_name: "auto|human|json",
        kind: Kind::Choice(&["auto", "human", "json"]),
        default: "auto",
        help: "Form of log lines on standard error; auto is human on a terminal, else JSON",
    },
];

#[cfg(test)]
mod tests;
