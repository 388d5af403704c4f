//! `dovetail serve`: starts the server, logs the start block, waits for a signal, and drains.
//!
//! ```text
//!  settings ─▶ Server::start ─▶ start block, `ready` ─▶ wait ─TERM, INT, USR1, SHUTDOWN─▶ stop
//!                                                       ├─HUP: settings and files are read anew
//!                                                       └─USR2: what every thread does, logged
//!  stop: other nodes of the cluster take over, clients take their answers, threads end
//! ```
//!
//! Exit status 0: the server has drained, or a signal came before it was ready; 2: the settings
//! contradict each other or do not fit the machine (`dovetail doctor` says `bad`); 1: a second
//! signal ended the process at once.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::ByteSize;
use clap::ArgMatches;
use server::{Config, Eviction, LogLevel, Mode, Pin, Poll, Server, Warm};
use tracing::{info, warn};

use crate::doctor::{self, Verdict};
use crate::failure::{Failure, print};
use crate::flags;
use crate::logs;
use crate::machine::Machine;
use crate::notify;
use crate::reload::Reload;
use crate::settings::ServeSettings;
use crate::settings::print::{Listing, toml};
use crate::signals::{self, Running};

/// How long a stopping server waits for clients to read pending replies.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long a node of a cluster waits for other nodes to take over its shards.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// Runs the server until a signal or SHUTDOWN stops it.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    signals::watch()?;
    let machine = Machine::detect();
    let gathered = flags::gather(matches, &machine)?;
    let mut settings = ServeSettings::new(&gathered.settings, gathered.config_file, &machine)?;
    if matches.get_flag("print-config") {
        return print(&toml(&gathered.settings, Listing::Complete));
    }
    let level = settings.log_level.moved(matches.get_count("verbose"), matches.get_count("quiet"));
    logs::start(level, settings.log_format);
    settings.config.hooks.log_level = LogLevel::named(level.name()).unwrap_or(LogLevel::INFO);
    settings.config.hooks.set_log_level = Some(logs::change);
    settings.config.hooks.before_begin = Some(signals::begin);
    settings.without_effect.iter().for_each(|line| warn!("{line}"));
    refuse_what_is_bad(&settings.config, &machine)?;
    let server = Server::start(settings.config).map_err(|error| match error.is_of_settings() {
        true => Failure::Usage(error.to_string()),
        false => Failure::Runtime(error.to_string()),
    })?;
    let reload = Reload::new(matches, gathered.settings, Arc::clone(server.shared()));
    let stop_requests = stop_requests(&server, reload)?;
    // This comes last: from `ready` on, signals act on the server.
    announce(&server, &machine);
    notify::tell(notify::State::Ready);
    // An error means that every sender is gone; the server can only stop.
    let reason = stop_requests.recv().unwrap_or("no watcher is left");
    info!(reason, "stopping, at most 10 s for clients to take their answers");
    notify::tell(notify::State::Stopping);
    match server.leave(LEAVE_MAX) {
        Some(true) => info!("other servers have taken over"),
        Some(false) => warn!("no others take over: clients may wait for a lease to end"),
        None => {}
    }
    let shared = Arc::clone(server.shared());
    server.stop();
    if server.join(DRAIN_MAX) {
        info!("stopped");
    } else {
        warn!("stopped; connections that did not take their answers in 10 s were cut");
    }
    match shared.warm().is_some_and(Warm::has_failed) {
        true => Err(Failure::Runtime("--warm-file: nothing is kept; the log says why".to_owned())),
        false => Ok(()),
    }
}

/// Passes signals and SHUTDOWN on as the reason to stop.
fn stop_requests(server: &Server, reload: Reload) -> Result<mpsc::Receiver<&'static str>, Failure> {
    let (stop, stop_requests) = mpsc::channel();
    let stop_by_client = stop.clone();
    let shutdown_requests = server.shutdown_requests();
    std::thread::Builder::new()
        .name("shutdown".to_owned())
        .spawn(move || {
            if shutdown_requests.recv().is_ok() {
                let _ = stop_by_client.send("SHUTDOWN");
            }
        })
        .map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
    signals::run(Running { stop, reload, shared: Arc::clone(server.shared()) });
    Ok(stop_requests)
}

/// The results of `doctor` for this machine and these settings: the first fault that is bad, and a
/// line for each other fault.
fn refuse_what_is_bad(config: &Config, machine: &Machine) -> Result<(), Failure> {
    for finding in doctor::check_machine(config, machine) {
        match finding.verdict {
            Verdict::Bad => {
                return Err(Failure::Usage(format!("{}: {}", finding.name, finding.text)));
            }
            Verdict::Warn => warn!("{}: {}", finding.name, finding.text),
            Verdict::Ok => {}
        }
    }
    Ok(())
}

/// The start block: the values found and chosen, and then the line that the server is ready.
fn announce(server: &Server, machine: &Machine) {
    let config = server.shared().config();
    info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "dovetail");
    info!(
        threads = config.threads,
        cores = machine.core_count,
        pin = pin_name(config),
        poll = poll_name(config),
        cr = config.cr_threads,
        write_policy = %config.policies.write_policy,
        dispatch = %config.policies.dispatch,
        policies = if config.tries_policies { "tried" } else { "fixed" },
        batch = config.batch,
        "workers",
    );
    info!(
        cap = %spelled(config.memory_bytes),
        value_max = %spelled(config.max_item_size_bytes),
        mode = mode_name(config),
        index = index_name(config),
        machine = %spelled(machine.memory_bytes >> 20 << 20),
        "memory",
    );
    if let Some(data) = server.shared().data() {
        let path = data.config.path.display();
        info!(path = %path, medium = data.medium_name, "data");
    }
    let pages = machine.huge_pages;
    info!(
        transparent = pages.transparent,
        reserved = pages.reserved_count,
        free = pages.free_count,
        used = %server.shared().store().page_kind(),
        "pages",
    );
    let tcp = [config.resp, config.memcached, config.tls_resp, config.tls_memcached];
    let has_port = tcp.into_iter().chain([config.native]).any(|port| port.is_some());
    let sockets = [&config.unix_socket, &config.memcached_unix_socket, &config.shm];
    if !has_port && sockets.iter().all(|path| path.is_none()) {
        warn!(
            "--resp, --memcached, --native, --unix-socket and --shm are off: no client can connect"
        );
    }
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map_or("off".to_owned(), |path| path.display().to_string())
    };
    let shown = |address: Option<std::net::SocketAddr>| match address {
        Some(address) => address.to_string(),
        None => "off".to_owned(),
    };
    info!(
        resp = %shown(server.resp_addr()),
        memcached = %shown(server.memcached_addr()),
        memcached_udp = %shown(udp_address(server, config)),
        tls_resp = %shown(config.tls_resp),
        tls_memcached = %shown(config.tls_memcached),
        native = %shown(server.native_addr()),
        unix_socket = path(&config.unix_socket),
        memcached_unix_socket = path(&config.memcached_unix_socket),
        shm = path(&config.shm),
        admin = %shown(server.admin_addr()),
        "ready",
    );
}

/// The address for memcached's datagrams.
fn udp_address(server: &Server, config: &Config) -> Option<SocketAddr> {
    let address = server.memcached_addr().filter(|_| config.udp.port != 0)?;
    Some(SocketAddr::new(address.ip(), config.udp.port))
}

fn spelled(bytes: u64) -> ByteSize {
    ByteSize { bytes }
}

fn mode_name(config: &Config) -> &'static str {
    match (config.mode, config.eviction) {
        (Mode::Clean, _) => "store",
        (_, Eviction::Fifo) => "cache, fifo",
        (_, Eviction::Lru) => "cache, lru",
        (_, Eviction::LruApprox) => "cache, lru-approx",
        (_, Eviction::S3Fifo) => "cache, s3-fifo",
    }
}

fn index_name(config: &Config) -> &'static str {
    if config.lossy_index { "hash, lossy" } else { config.index_name() }
}

fn pin_name(config: &Config) -> &'static str {
    match config.pin {
        Pin::Auto => "auto",
        Pin::On => "on",
        Pin::Off => "off",
    }
}

fn poll_name(config: &Config) -> &'static str {
    match config.poll {
        Poll::Auto => "auto",
        Poll::Busy => "busy",
        Poll::Block => "block",
    }
}
