//! `dovetail cm`: runs a configuration manager. One manager leads, the others stand by.
//!
//! ```text
//!  flags ─▶ the cluster's settings (found, or made) ─▶ manager ─▶ wait ─TERM, INT─▶ 0
//! ```
//!
//! A manager that a signal stops gives up its leadership first, so the next one leads at once.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use base::parse_duration;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use cluster::{Durability, Scheme};
use cluster_io::founding::FoundingError;
use cluster_io::{Managing, Place, Station, Stored, Wanted, founding};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::failure::Failure;
use crate::logs::{self, Format, Level};
use crate::notify;
use crate::usage::one_line;

/// What `dovetail cm` takes.
#[derive(Debug, Args)]
struct CmArgs {
    /// The cluster's config store: zk://HOST:PORT,HOST:PORT/PATH, or file:///DIR for a single
    /// machine
    #[arg(
        long,
        value_name = "URL",
        env = "DOVETAIL_CONFIG_STORE",
        required_unless_present = "zookeeper"
    )]
    config_store: Option<String>,

    /// ZooKeeper servers, HOST:PORT,HOST:PORT; the same as --config-store zk://HOSTS/PATH
    #[arg(long, value_name = "HOSTS", conflicts_with = "config_store")]
    zookeeper: Option<String>,

    /// ZooKeeper node under which the cluster is stored; with --zookeeper
    #[arg(long, value_name = "PATH", default_value = "/dovetail", requires = "zookeeper")]
    path: String,

    /// Address for servers and other managers
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7600")]
    listen: SocketAddr,

    /// HOST:PORT that is announced to servers [default: the value of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,

    /// Name of the cluster, for display [default: dovetail]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Copies of each shard, including the primary's [default: 3]
    #[arg(long, value_name = "N")]
    copies: Option<u8>,

    /// Complete copies of a shard below which its writes are refused [default: 2]
    #[arg(long, value_name = "N")]
    min_copies: Option<u8>,

    /// Number of nodes that a new cluster waits for before it serves [default: the value of
    /// --copies]
    #[arg(long, value_name = "N")]
    first_nodes: Option<u8>,

    /// Number of shards into which the 16,384 slots are divided [default: 64]
    #[arg(long, value_name = "N")]
    shards: Option<u16>,

    /// Time for which a node serves without a message from the manager [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// Time after which the config store drops the session of a silent manager [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    session: Option<Duration>,

    /// Time after which an unacknowledged write is sent to a copy again [default: 5ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    retry: Option<Duration>,

    /// Time to wait for missing nodes after a cold start [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,

    /// Number of shards that are copied to other nodes at the same time [default: 4]
    #[arg(long, value_name = "N")]
    copies_at_once: Option<u16>,

    /// When a copy acknowledges a write: once it is in memory (replicated), or on disk (fsync)
    /// [default: replicated]
    #[arg(long, value_name = "replicated|fsync", value_parser = ["replicated", "fsync"])]
    durability: Option<String>,

    /// How writes are sent to copies; all but rowan are the baselines of the Rowan-KV paper
    /// [default: rowan]
    #[arg(long, value_name = "rowan|rpc|write|batch|share",
          value_parser = ["rowan", "rpc", "write", "batch", "share"])]
    replication: Option<String>,

    /// Move shards away from nodes that are busier than the others [default: on]
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    rebalance: Option<String>,

    /// Lowest level of log lines
    #[arg(long, value_name = "LEVEL", default_value = "info",
          value_parser = ["off", "error", "warn", "info", "debug", "trace"])]
    log: String,

    /// Format of log lines on standard error; auto is human on a terminal, else json
    #[arg(long, value_name = "auto|human|json", default_value = "auto",
          value_parser = ["auto", "human", "json"])]
    log_format: String,

    /// Print more log lines; may be repeated
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,

    /// Print fewer log lines; may be repeated
    #[arg(short = 'q', action = ArgAction::Count)]
    quiet: u8,
}

/// The subcommand.
pub fn command() -> Command {
    CmArgs::augment_args(Command::new("cm")).about("Run a configuration manager of a cluster")
}

/// Runs the manager until a signal stops it.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = CmArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let station = station(&args)?;
    let wanted = wanted(&args);
    let level = Level::named(&args.log).moved(args.verbose, args.quiet);
    logs::start(level, Format::named(&args.log_format));
    let stop_requests = watch()?;
    info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "dovetail cm");
    if station.place.is_open() {
        warn!(
            "each client of the config store can read the cluster's key and change the cluster: \
             give ZooKeeper a user, as zk://USER:PASSWORD@HOSTS/PATH"
        );
    }
    let is_stopped = || stop_requests.try_recv().is_ok();
    let stored = match founding::settle(&station.place, &wanted, &is_stopped) {
        Ok(stored) => stored,
        Err(FoundingError::Stopped) => return Ok(()),
        Err(error @ FoundingError::Io(_)) => return Err(Failure::Runtime(error.to_string())),
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    announce(&stored);
    let managing =
        Managing::start(&station, stored).map_err(|error| Failure::Runtime(error.to_string()))?;
    info!(
        listen = %managing.local_addr(),
        advertise = managing.advertise(),
        config_store = %station.place,
        "ready",
    );
    notify::tell(notify::State::Ready);
    // An error means that the signal thread is gone; the manager can only stop.
    let reason = stop_requests.recv().unwrap_or("no watcher is left");
    info!(reason, "stopping: the claim is handed back");
    notify::tell(notify::State::Stopping);
    drop(managing);
    info!("stopped");
    Ok(())
}

fn announce(stored: &Stored) {
    let settings = &stored.settings;
    let spelled = |time_ns| base::format_duration(Duration::from_nanos(time_ns));
    info!(
        name = stored.name,
        copies = settings.copies,
        min_copies = settings.min_copies,
        shards = settings.shards,
        lease = spelled(settings.lease_ns),
        session = spelled(settings.session_ns),
        durability = cluster_io::settings::durability_word(settings.durability),
        replication = %settings.scheme,
        rebalance = stored.rebalance,
        "cluster",
    );
}

/// The location of the config store, from `--config-store`, or from `--zookeeper` and `--path`.
pub fn place(text: &str) -> Result<Place, Failure> {
    text.parse().map_err(|error| Failure::Usage(format!("--config-store: {error}")))
}

fn station(args: &CmArgs) -> Result<Station, Failure> {
    let url = match (&args.config_store, &args.zookeeper) {
        (Some(url), _) => url.clone(),
        (None, Some(hosts)) => format!("zk://{hosts}/{}", args.path.trim_start_matches('/')),
        (None, None) => String::new(),
    };
    let is_anywhere = args.listen.ip().is_unspecified();
    match &args.advertise {
        None if is_anywhere => {
            return Err(Failure::Usage(format!(
                "--listen {} does not say where servers reach this manager: write --advertise \
                 HOST:PORT",
                args.listen
            )));
        }
        Some(address) if address.to_socket_addrs().is_err() => {
            return Err(Failure::Usage(format!(
                "--advertise {address} is no HOST:PORT that can be found: write the name or the \
                 address that servers use"
            )));
        }
        _ => {}
    }
    Ok(Station { place: place(&url)?, listen: args.listen, advertise: args.advertise.clone() })
}

fn wanted(args: &CmArgs) -> Wanted {
    let durability = args.durability.as_ref().map(|word| match word.as_str() {
        "fsync" => Durability::Fsync,
        _ => Durability::Replicated,
    });
    Wanted {
        name: args.name.clone(),
        copies: args.copies,
        min_copies: args.min_copies,
        first_nodes: args.first_nodes,
        shards: args.shards,
        lease: args.lease,
        session: args.session,
        retry: args.retry,
        grace: args.grace,
        copies_at_once: args.copies_at_once,
        durability,
        replication: args.replication.as_deref().and_then(Scheme::of_word),
        rebalance: args.rebalance.as_ref().map(|word| word == "on"),
        ..Wanted::default()
    }
}

/// Starts a thread that turns signals into the reason to stop; a second signal ends the process at
/// once.
fn watch() -> Result<mpsc::Receiver<&'static str>, Failure> {
    let failed = |error| Failure::Runtime(format!("cannot wait for signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let (stop, stop_requests) = mpsc::channel();
    let by_signal = move || {
        let mut signal_count = 0;
        for signal in signals.forever() {
            signal_count += 1;
            if signal_count > 1 {
                warn!("second signal: leaving at once");
                std::process::exit(1);
            }
            // The receiver is the main thread; when it is gone the process is ending anyway.
            let _ = stop.send(if signal == SIGTERM { "SIGTERM" } else { "SIGINT" });
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(by_signal).map_err(failed)?;
    Ok(stop_requests)
}
