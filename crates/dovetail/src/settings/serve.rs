//! The effective settings as typed values, and the server configuration made from them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cluster::Scheme;
use cluster_io::Place;
use config::tls::{ClientCertificates, TlsConfig};
use replication::cluster::PlaceError;
use server::ClusterConfig;
use server::PASSWORD_MAX_BYTES;
use server::{
    AdminAccess, Cat, Compacts, Config, DataConfig, DebugCommand, Dispatch, Durability, Eviction,
    Hooks, HotSetSize, HugePages, IndexKind, LargeHelp, Media, Mode, NativeTransport, Numa, Pin,
    Policies, Poll, SettingsOrigin, SizeCost, SizeThreshold, SlowLogConfig, StartError, Tuning,
    UdpConfig, WritePolicy, XdpDevice,
};
use sessions::doors;

use crate::logs::{Format, Level};
use crate::machine::Machine;
use crate::settings::joining::{self, Joining};
use crate::settings::rewrite::rewrite;
use crate::settings::{Layered, Origin, SettingError, Value};

/// `--size-threshold auto`: this share of all requests is small (Minos §3).
const SMALL_SHARE: f64 = 0.99;

/// The constant of `--size-cost constant+bytes`: a request costs as much as a packet's payload.
const REQUEST_BYTES: u64 = 1472;

/// Everything that `dovetail serve` needs.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// The configuration of the server.
    pub config: Config,
    /// Least level of log lines.
    pub log_level: Level,
    /// Form of log lines.
    pub log_format: Format,
    /// Settings that were given but have no effect, one line each.
    pub without_effect: Vec<String>,
}

const EVICTIONS: [(&str, Eviction); 3] =
    [("fifo", Eviction::Fifo), ("lru", Eviction::Lru), ("lru-approx", Eviction::LruApprox)];

impl ServeSettings {
    /// Checks the combinations of settings and builds the server's configuration.
    pub fn new(
        settings: &[Layered],
        config_file: Option<PathBuf>,
        machine: &Machine,
    ) -> Result<ServeSettings, SettingError> {
        let lookup = Lookup(settings);
        let config = Config {
            resp: lookup.address("resp"),
            memcached: lookup.address("memcached"),
            native: lookup.address("native"),
            native_key_file: lookup.path("native-key-file"),
            native_transport: lookup.native_transport(),
            native_xdp: lookup.device("native-xdp"),
            unix_socket: lookup.path("unix-socket"),
            memcached_unix_socket: lookup.path("memcached-unix-socket"),
            unix_mode: lookup.mode("unix-mode"),
            shm: lookup.path("shm"),
            shm_mode: lookup.shm_mode(),
            admin: lookup.address("admin"),
            memory_bytes: lookup.size_bytes("memory").unwrap_or(machine.default_memory_bytes()),
            mode: lookup.choice("mode", Mode::Evict, &[("store", Mode::Clean)]),
            eviction: lookup.choice("eviction", Eviction::S3Fifo, &EVICTIONS),
            data: data_of(&lookup),
            warm_file: lookup.path("warm-file"),
            cluster: cluster_of(&lookup)?,
            huge_pages: lookup.choice(
                "huge-pages",
                HugePages::Auto,
                &[("hugetlb", HugePages::Reserved), ("off", HugePages::Off)],
            ),
            numa: lookup.choice("numa", Numa::Auto, &[("off", Numa::Off)]),
            index: lookup.choice("index", IndexKind::Hash, &[("tree", IndexKind::Tree)]),
            lossy_index: lookup.is_on("lossy-index"),
            threads: match lookup.count("threads") {
                Some(count) => count,
                None => machine.default_thread_count(),
            },
            pin: lookup.choice("pin", Pin::Auto, &[("on", Pin::On), ("off", Pin::Off)]),
            poll: lookup.choice(
                "poll",
                Poll::Auto,
                &[("busy", Poll::Busy), ("block", Poll::Block)],
            ),
            batch: lookup.count("batch").unwrap_or(32),
            max_connections: lookup.count("max-connections").unwrap_or(10_000),
            max_connections_per_address: lookup.count("max-connections-per-address").unwrap_or(0),
            idle_timeout_ms: lookup
                .time("idle-timeout")
                .map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            max_item_size_bytes: lookup.size_bytes("max-item-size").unwrap_or(32 << 20),
            atomic_size_max_bytes: lookup.size_bytes("max-atomic-size").unwrap_or(96 << 20),
            debug_command: lookup.choice(
                "enable-debug-command",
                DebugCommand::No,
                &[("local", DebugCommand::Local), ("yes", DebugCommand::Yes)],
            ),
            hooks: Hooks { rewrite_file: Some(rewrite), ..Hooks::default() },
            origin: SettingsOrigin { file: config_file, shown: shown_by_config_get(settings) },
            ..secured(&lookup)?
        };
        refuse_misfits(&lookup, &config, machine)?;
        Ok(ServeSettings {
            without_effect: without_effect(&lookup, &config),
            config,
            log_level: Level::named(lookup.word("log")),
            log_format: Format::named(lookup.word("log-format")),
        })
    }
}

/// The rules for accepting clients; [`routing`] and the other functions give the rest.
fn secured(lookup: &Lookup<'_>) -> Result<Config, SettingError> {
    let requirepass = lookup.text("requirepass");
    let too_long = requirepass.as_ref().filter(|password| password.len() > PASSWORD_MAX_BYTES);
    if let Some(password) = too_long {
        return Err(SettingError {
            place: lookup.place("requirepass").replace(password, "***"),
            reason: format!("a password has at most {PASSWORD_MAX_BYTES} bytes"),
        });
    }
    Ok(Config {
        udp: UdpConfig {
            port: lookup.count("udp-port").and_then(|it| u16::try_from(it).ok()).unwrap_or(0),
            reply_factor: lookup.count("udp-reply-factor").unwrap_or(10),
        },
        enable_shutdown: lookup.is_on("enable-shutdown"),
        access_times: lookup.is_on("access-times"),
        tls_resp: lookup.address("tls-resp"),
        tls_memcached: lookup.address("tls-memcached"),
        tls: tls_of(lookup)?,
        admin_access: AdminAccess {
            is_tls: lookup.is_on("admin-tls"),
            shows_keys: lookup.is_on("admin-show-keys"),
            hosts: lookup.path("admin-hosts").map_or_else(Vec::new, |hosts| {
                hosts.to_string_lossy().split(',').map(str::to_owned).collect()
            }),
        },
        requirepass,
        acl_file: lookup.path("acl-file"),
        auth_file: lookup.path("auth-file"),
        is_insecure: lookup.is_on("insecure"),
        ..routing(lookup)
    })
}

/// The certificates, if a port needs them.
fn tls_of(lookup: &Lookup<'_>) -> Result<Option<TlsConfig>, SettingError> {
    let ports = ["tls-resp", "tls-memcached"];
    let port = ports.into_iter().find(|key| lookup.address(key).is_some());
    let Some(port) = port.or(lookup.is_on("admin-tls").then_some("admin-tls")) else {
        return Ok(None);
    };
    let refuse = |key: &str, reason: &str| {
        Err(SettingError { place: lookup.place(key), reason: reason.to_owned() })
    };
    let (Some(certificate), Some(key)) = (lookup.path("tls-cert"), lookup.path("tls-key")) else {
        return refuse(port, "TLS shows a certificate; give --tls-cert PATH and --tls-key PATH");
    };
    let authority = lookup.path("tls-ca");
    let by_default = match authority {
        Some(_) => ClientCertificates::Required,
        None => ClientCertificates::No,
    };
    let clients = lookup.choice(
        "tls-auth-clients",
        by_default,
        &[
            ("yes", ClientCertificates::Required),
            ("optional", ClientCertificates::Optional),
            ("no", ClientCertificates::No),
        ],
    );
    if authority.is_none() && clients != ClientCertificates::No {
        return refuse(
            "tls-auth-clients",
            "the authorities that sign them are not set; give --tls-ca PATH",
        );
    }
    Ok(Some(TlsConfig { certificate, key, authority, clients }))
}

/// The settings of durability.
fn data_of(lookup: &Lookup<'_>) -> Option<DataConfig> {
    Some(DataConfig {
        path: lookup.path("data-dir")?,
        durability: lookup.choice("durability", Durability::Fsync, &[("none", Durability::None)]),
        media: lookup.choice("media", Media::Auto, &[("file", Media::File), ("dax", Media::Dax)]),
        recovers_damaged: lookup.is_on("recover-damaged"),
        checkpoint_every: lookup.time("checkpoint"),
    })
}

/// The cluster that the server is a node of.
fn cluster_of(lookup: &Lookup<'_>) -> Result<Option<ClusterConfig>, SettingError> {
    let joining = joining::joining(lookup)?;
    let Some(url) = lookup.text("cluster") else { return Ok(None) };
    let refuse = |key: &str, reason: String| SettingError { place: lookup.place(key), reason };
    let config_store = match &joining {
        Some(joining) => Place::Quorum(joining.place.clone()),
        None => url.parse().map_err(|error: PlaceError| refuse("cluster", error.to_string()))?,
    };
    let host = joining.as_ref().and_then(Joining::own_host);
    let small = |key| lookup.count(key).and_then(|count| u8::try_from(count).ok());
    let peer = match (&host, &lookup.layered("peer").origin) {
        (Some(_), Origin::Default) => joining::peer(lookup, joining.as_ref()),
        _ => lookup.address("peer"),
    };
    let reason = "a node of a cluster is reached by others; give --peer HOST:PORT";
    let off = || refuse("peer", reason.into());
    Ok(Some(ClusterConfig {
        config_store,
        peer: peer.ok_or_else(off)?,
        advertise: lookup.path("advertise").map(|host| host.display().to_string()).or(host),
        membership: joining.and_then(Joining::into_membership),
        name: lookup.count("node-id").and_then(|id| u16::try_from(id).ok()),
        copies: small("copies"),
        min_copies: small("min-copies"),
        replication: Scheme::of_word(lookup.word("replication")),
        digest_threads: lookup.count("digest-threads").unwrap_or(0),
    }))
}

/// Checks the scheme of replication, which only a cluster uses.
fn refuse_lonely_replication(lookup: &Lookup<'_>, config: &Config) -> Result<(), SettingError> {
    if config.cluster.is_some() || lookup.word("replication") == "auto" {
        return Ok(());
    }
    let reason = "there are no other servers to replicate to; give --cluster".to_owned();
    Err(SettingError { place: lookup.place("replication"), reason })
}

/// A cache drops items that a disk would have to keep, and has no other server to replicate to.
fn refuse_data(lookup: &Lookup<'_>, config: &Config) -> Result<(), SettingError> {
    let refuse = |key: &str, reason: &str| {
        Err(SettingError { place: lookup.place(key), reason: reason.to_owned() })
    };
    if lookup.word("durability") == "replicated" && config.cluster.is_none() {
        return refuse(
            "durability",
            "replicated needs other servers to replicate to; give --cluster, or use fsync",
        );
    }
    if config.data.is_none() {
        return Ok(());
    }
    if lookup.word("durability") == "replicated" {
        return refuse(
            "durability",
            "replicated keeps nothing in --data-dir; leave one of them out, or use fsync",
        );
    }
    if config.mode != Mode::Clean {
        return refuse("data-dir", "a cache drops items, on disk as in memory; use --mode store");
    }
    if config.lossy_index {
        return refuse("data-dir", "a lossy index drops items; use --lossy-index off");
    }
    Ok(())
}

/// What lies elsewhere is not kept twice.
fn refuse_warm(lookup: &Lookup<'_>, config: &Config) -> Result<(), SettingError> {
    let refuse = |reason: &str| {
        Err(SettingError { place: lookup.place("warm-file"), reason: reason.to_owned() })
    };
    if config.warm_file.is_some() && config.huge_pages == HugePages::Reserved {
        return refuse("a file's pages are no reserved huge ones; use --huge-pages auto");
    }
    match (&config.warm_file, &config.data, &config.cluster) {
        (Some(_), Some(_), _) => refuse("--data-dir outlives the server already; leave one out"),
        (Some(_), None, Some(_)) => {
            refuse("a node of a cluster gets its copies from the others; leave it out")
        }
        _ => Ok(()),
    }
}

/// The routing: which workers receive, which execute, and which writes are combined.
pub(super) fn routing(lookup: &Lookup<'_>) -> Config {
    Config {
        cr_threads: lookup.count("cr-threads"),
        policies: Policies {
            write_policy: lookup.word("write-policy").parse().unwrap_or(WritePolicy::Crcw),
            dispatch: lookup.dispatch("dispatch"),
        },
        tries_policies: lookup.word("write-policy") == "auto"
            && lookup.layered("dispatch").value == Value::Auto,
        tuning: lookup.choice("tuner", Tuning::Auto, &[("on", Tuning::On), ("off", Tuning::Off)]),
        cat: lookup.cat("cat"),
        size_threshold: match lookup.size_bytes("size-threshold") {
            Some(bytes) => SizeThreshold::Static { bytes },
            None => SizeThreshold::Quantile(SMALL_SHARE),
        },
        size_cost: lookup.choice(
            "size-cost",
            SizeCost::default(),
            &[
                ("bytes", SizeCost::Bytes),
                ("constant+bytes", SizeCost::ConstantAndBytes { constant_bytes: REQUEST_BYTES }),
            ],
        ),
        size_sample: lookup.count("size-sample").unwrap_or(1) as u32,
        large_help: lookup.choice("large-help", LargeHelp::On, &[("off", LargeHelp::Off)]),
        compaction: lookup.word("compaction") != "off",
        compacts: match lookup.is_on("compact-short") {
            true => Compacts::All,
            false => Compacts::Long,
        },
        slo: lookup.time("slo"),
        slow_log: SlowLogConfig {
            threshold_us: lookup
                .time("slowlog-log-slower-than")
                .map_or(-1, |time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX)),
            len_max: lookup.count("slowlog-max-len").unwrap_or(128) as u64,
        },
        tracking_table_keys_max: lookup.count("tracking-table-max-keys").unwrap_or(1_000_000)
            as u64,
        latency_monitor_ms: lookup
            .time("latency-monitor-threshold")
            .map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        hot_set: lookup.hot_set(),
        ..Config::default()
    }
}

/// The checks of combinations of settings.
fn refuse_misfits(
    lookup: &Lookup<'_>,
    config: &Config,
    machine: &Machine,
) -> Result<(), SettingError> {
    refuse_lossy_tree(lookup, config)?;
    refuse_data(lookup, config)?;
    refuse_warm(lookup, config)?;
    refuse_lonely_replication(lookup, config)?;
    refuse_shared_compaction(lookup)?;
    refuse_control(lookup, config, machine)?;
    refuse_short_without_compaction(lookup, config)?;
    refuse_contradictions(lookup, config)?;
    refuse_open_doors(lookup, config)
}

/// Settings that have no effect beside the others. A preset's own are not reported.
fn without_effect(lookup: &Lookup<'_>, config: &Config) -> Vec<String> {
    let may_tell_sizes = config.policies_tried().into_iter().any(Policies::tell_sizes);
    let by_size = (!may_tell_sizes).then_some("give --dispatch size-aware");
    let by_size = by_size.map(str::to_owned);
    let eviction = (config.mode == Mode::Clean)
        .then(|| "a store evicts nothing; give --mode cache".to_owned());
    let hot_set = match config.hot_set {
        HotSetSize::Items(_) => server::why_one_layer(config),
        HotSetSize::Auto | HotSetSize::Off => None,
    };
    let no_data =
        config.data.is_none().then(|| "nothing outlives the server; give --data-dir".to_owned());
    let no_list = lookup.path("join").is_none();
    let no_list = no_list.then(|| "it is for servers of a list; give --join".to_owned());
    let no_tls = config
        .tls
        .is_none()
        .then(|| "no port speaks TLS; give --tls-resp or --tls-memcached".to_owned());
    let rules = [
        ("eviction", eviction),
        ("durability", no_data.clone()),
        ("media", no_data.clone()),
        ("recover-damaged", no_data.clone()),
        ("checkpoint", no_data),
        ("size-threshold", by_size.clone()),
        ("size-cost", by_size.clone()),
        ("size-sample", by_size.clone()),
        ("large-help", by_size),
        ("hot-set", hot_set),
        ("tls-cert", no_tls.clone()),
        ("tls-key", no_tls.clone()),
        ("tls-ca", no_tls.clone()),
        ("tls-auth-clients", no_tls),
        ("join-as", no_list.clone()),
        ("cluster-key", no_list.clone()),
        ("cluster-dir", no_list),
    ];
    let told = rules.into_iter().filter_map(|(key, why)| {
        let origin = &lookup.layered(key).origin;
        let is_given = !matches!(origin, Origin::Default | Origin::Preset(_));
        let why = why.filter(|_| is_given)?;
        Some(format!("{} has no effect: {why}", lookup.place(key)))
    });
    told.collect()
}

/// A lossy index drops keys of full buckets, and a tree has no buckets.
fn refuse_lossy_tree(lookup: &Lookup<'_>, config: &Config) -> Result<(), SettingError> {
    if !config.lossy_index || config.index == IndexKind::Hash {
        return Ok(());
    }
    Err(SettingError {
        place: lookup.place("lossy-index"),
        reason: "only the hash index can be lossy; use --index hash or --lossy-index off".into(),
    })
}

/// Explicit compaction needs one writer for each key (C-4 §4.3).
fn refuse_shared_compaction(lookup: &Lookup<'_>) -> Result<(), SettingError> {
    if lookup.word("compaction") != "on" || lookup.word("write-policy") != "crcw" {
        return Ok(());
    }
    let reason = "contradicts --write-policy crcw, under which a key has many writers; give \
                  --compaction auto, or --write-policy d-crew, crew or erew";
    Err(SettingError { place: lookup.place("compaction"), reason: reason.to_owned() })
}

/// Reports more pinned threads than cores, and a tuner with nothing to tune.
fn refuse_control(
    lookup: &Lookup<'_>,
    config: &Config,
    machine: &Machine,
) -> Result<(), SettingError> {
    let refuse = |key: &str, text: String| {
        let flag = format!("--{key} {}", lookup.layered(key).value);
        let reason = text.strip_prefix(&flag).unwrap_or(&text);
        let reason = reason.trim_start_matches([':', ' ']).to_owned();
        SettingError { place: lookup.place(key), reason }
    };
    let pins = config.check_pins(machine.core_count);
    pins.map_err(|error| refuse("pin", error.to_string()))?;
    server::check_tuning(config).map_err(|error| refuse("tuner", error.to_string()))
}

/// Without compaction no writes are combined, short or long.
fn refuse_short_without_compaction(
    lookup: &Lookup<'_>,
    config: &Config,
) -> Result<(), SettingError> {
    if config.compaction || config.compacts == Compacts::Long {
        return Ok(());
    }
    Err(SettingError {
        place: lookup.place("compact-short"),
        reason: "no writes are put together; use --compaction on or --compact-short off".into(),
    })
}

/// The workers that receive, that write and that execute must fit together.
fn refuse_contradictions(lookup: &Lookup<'_>, config: &Config) -> Result<(), SettingError> {
    server::check_layers(config).map_err(|error| {
        let key = match error {
            StartError::OutOfRange { .. } | StartError::HandOffThreads { .. } => "cr-threads",
            _ => "dispatch",
        };
        let (flag, text) = (format!("--{key} {} ", lookup.layered(key).value), error.to_string());
        let reason = text.strip_prefix(&flag).unwrap_or(&text).to_owned();
        SettingError { place: lookup.place(key), reason }
    })
}

/// No port may be open to other hosts without an explicit setting (K29).
fn refuse_open_doors(lookup: &Lookup<'_>, config: &Config) -> Result<(), SettingError> {
    if config.udp.port != 0 && config.memcached.is_none() {
        let reason = "there is no address for it; give --memcached ADDR".to_owned();
        return Err(SettingError { place: lookup.place("udp-port"), reason });
    }
    if !doors::needs_users(config) {
        return Ok(());
    }
    let state = doors::door_state(config).map_err(|error| SettingError {
        place: lookup.place("acl-file"),
        reason: match error {
            StartError::AclFile { reason, .. } => reason,
            other => other.to_string(),
        },
    })?;
    doors::check(config, &state).map_err(|refused| SettingError {
        place: lookup.place(refused.door.setting()),
        reason: refused.reason,
    })
}

/// Every setting but secrets, for CONFIG GET.
fn shown_by_config_get(settings: &[Layered]) -> Vec<(String, String)> {
    settings
        .iter()
        .filter(|layered| !matches!(layered.value, Value::Text(_) | Value::Unset))
        .map(|layered| (layered.setting.key.to_owned(), layered.value.to_string()))
        .collect()
}

/// Typed access by key. The tests find a key that is not in the table.
pub(super) struct Lookup<'a>(pub(super) &'a [Layered]);

impl Lookup<'_> {
    pub(super) fn layered(&self, key: &str) -> &Layered {
        let found = self.0.iter().find(|layered| layered.setting.key == key);
        found.expect("every key that is looked up is in the table")
    }

    pub(super) fn address(&self, key: &str) -> Option<SocketAddr> {
        match self.layered(key).value {
            Value::Address(address) => Some(address),
            _ => None,
        }
    }

    pub(super) fn size_bytes(&self, key: &str) -> Option<u64> {
        match self.layered(key).value {
            Value::Size(size) => Some(size.bytes),
            _ => None,
        }
    }

    pub(super) fn count(&self, key: &str) -> Option<usize> {
        match self.layered(key).value {
            Value::Count(count) => usize::try_from(count).ok(),
            _ => None,
        }
    }

    fn time(&self, key: &str) -> Option<Duration> {
        match self.layered(key).value {
            Value::Time(time) => Some(time),
            _ => None,
        }
    }

    /// The meaning of a setting's word.
    fn choice<T: Copy>(&self, key: &str, otherwise: T, choices: &[(&str, T)]) -> T {
        let word = self.word(key);
        choices.iter().find(|(name, _)| *name == word).map_or(otherwise, |(_, chosen)| *chosen)
    }

    pub(super) fn word(&self, key: &str) -> &'static str {
        match self.layered(key).value {
            Value::Choice(word) => word,
            _ => "",
        }
    }

    fn dispatch(&self, key: &str) -> Dispatch {
        match self.layered(key).value {
            Value::Dispatch(dispatch) => dispatch,
            _ => Dispatch::Any,
        }
    }

    fn hot_set(&self) -> HotSetSize {
        match self.layered("hot-set").value {
            Value::Off => HotSetSize::Off,
            Value::Count(items) => {
                usize::try_from(items).map_or(HotSetSize::Auto, HotSetSize::Items)
            }
            _ => HotSetSize::Auto,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        match &self.layered(key).value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn path(&self, key: &str) -> Option<PathBuf> {
        match &self.layered(key).value {
            Value::Path(path) => Some(PathBuf::from(path)),
            _ => None,
        }
    }

    fn cat(&self, key: &str) -> Cat {
        match self.layered(key).value {
            Value::On => Cat::On,
            Value::Off => Cat::Off,
            Value::Count(count) => Cat::Ways(u32::try_from(count).unwrap_or(u32::MAX)),
            _ => Cat::Auto,
        }
    }

    fn native_transport(&self) -> NativeTransport {
        match self.word("native-transport") {
            "recvmmsg" => NativeTransport::Recvmmsg,
            "io-uring" => NativeTransport::IoUring,
            _ => NativeTransport::Auto,
        }
    }

    fn mode(&self, key: &str) -> u16 {
        match self.layered(key).value {
            Value::Mode(mode) => mode,
            _ => 0o700,
        }
    }

    fn shm_mode(&self) -> u16 {
        match self.word("shm-access") {
            "0660" => 0o660,
            "0666" => 0o666,
            _ => 0o600,
        }
    }

    fn device(&self, key: &str) -> Option<XdpDevice> {
        match &self.layered(key).value {
            Value::Device { name, queues } => {
                Some(XdpDevice { name: name.clone(), queue_count: *queues })
            }
            _ => None,
        }
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        self.layered(key).value == Value::On
    }

    /// The origin of the value, for messages.
    pub(super) fn place(&self, key: &str) -> String {
        let layered = self.layered(key);
        match &layered.origin {
            Origin::Flag | Origin::Default | Origin::Preset(_) => {
                format!("--{key} {}", layered.value)
            }
            Origin::Environment => {
                format!("{} {}", layered.setting.environment_name(), layered.value)
            }
            Origin::File { .. } => format!("{}: {key} {}", layered.origin, layered.value),
        }
    }
}
