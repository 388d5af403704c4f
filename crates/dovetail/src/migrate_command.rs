//! `dovetail migrate`: copies the keys of a running Redis or memcached, or of an RDB file.
//!
//! ```text
//!  --from redis://, rdb:// ─▶ migrate::copy ─▶ --to redis://        default 127.0.0.1:6379
//!  --from memcached://     ─▶               ─▶ --to memcached://    default 127.0.0.1:11211
//!                                  └▶ progress on standard error, a summary on standard output
//! ```
//!
//! Exit status 0: every key was read, and each is copied or counted as unsupported here; 1:
//! interrupted, failed, or keys were refused; 2: bad usage.

mod progress;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::ByteSize;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use migrate::{
    Address, Ending, Error, FromMemcached, FromRdb, FromRedis, IntoMemcached, IntoRedis, Options,
    Outcome, Source, Target, TlsFiles,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use self::progress::Progress;
use crate::failure::{Failure, print};
use crate::usage::one_line;

/// In brackets, which a doc comment would take for links.
const FROM_HELP: &str = "redis://[user:password@]host:port[/db], \
                         memcached://[user:password@]host:port (by TLS: rediss://, memcacheds://), \
                         or rdb:///path/dump.rdb";

/// Keys whose values are asked for at once.
const CHUNK_KEYS_MAX: u64 = 128;

/// What `dovetail migrate` takes.
#[derive(Debug, Args)]
struct MigrateArgs {
    /// Where the keys come from.
    #[arg(long, value_name = "URL", help = FROM_HELP)]
    from: String,

    /// The target server: redis:// or memcached://, over TLS rediss:// or memcacheds://;
    /// memcached's flags are copied through the memcached port only. Without it, the default ports
    /// of this machine
    #[arg(long, value_name = "URL")]
    to: Option<String>,

    /// Maximum number of keys a second
    #[arg(long, value_name = "KEYS", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,

    /// For rediss:// and memcacheds://: PEM file of the authority that signed the servers'
    /// certificates; without it, the authorities that this machine trusts
    #[arg(long, value_name = "PATH")]
    tls_ca: Option<PathBuf>,

    /// PEM file with a client certificate, for servers that require one
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Maximum bytes of keys and values a second, e.g. 10MiB
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<ByteSize>,

    /// Overwrite existing keys; without it they are left unchanged and counted
    #[arg(long)]
    replace: bool,

    /// Copy only keys that match this pattern, as in KEYS and SCAN
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,

    /// The database of an RDB file
    #[arg(long, value_name = "N", default_value_t = 0)]
    db: u64,

    /// Read everything and write nothing; refusals by the target are then not detected
    #[arg(long)]
    dry_run: bool,

    /// Continue an interrupted copy from the place that it printed
    #[arg(long, value_name = "PLACE")]
    resume: Option<String>,
}

/// The subcommand.
pub fn command() -> Command {
    MigrateArgs::augment_args(Command::new("migrate"))
        .about("Copy keys from a running Redis or memcached, or from an RDB file")
}

/// Copies until the source ends, or Ctrl-C.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = MigrateArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let from = address(&args, "--from", &args.from)?;
    let to = match (&args.to, &from) {
        (Some(to), _) => address(&args, "--to", to)?,
        (None, Address::Memcached(_)) => address(&args, "--to", "memcached://127.0.0.1:11211")?,
        (None, _) => address(&args, "--to", "redis://127.0.0.1:6379")?,
    };
    check_pair(&args, &from, &to)?;
    let stop = stop_flag()?;
    let failed = |error: Error| match error {
        Error::Resume { .. } => Failure::Usage(format!("migrate: {error}")),
        _ => Failure::Runtime(format!("migrate: {error}")),
    };
    // The target is opened first: a list of a million keys is useless without one.
    let mut target = target(&args, &to).map_err(failed)?;
    let mut source = source(&args, &from).map_err(failed)?;
    let options = Options {
        keys_per_second: args.rate,
        bytes_per_second: args.bandwidth.map(|size| size.bytes),
        is_dry: args.dry_run,
    };
    let mut progress = Progress::new(stop);
    let outcome = migrate::copy(source.as_mut(), target.as_mut(), options, &mut progress);
    let seconds = progress.finish();
    print(&progress::summary(&outcome.tally, args.dry_run, seconds))?;
    verdict(outcome)
}

fn address(args: &MigrateArgs, flag: &str, text: &str) -> Result<Address, Failure> {
    let mut address =
        text.parse().map_err(|error| Failure::Usage(format!("migrate: {flag}: {error}")))?;
    if let Address::Redis(place) | Address::Memcached(place) = &mut address
        && let Some(files) = &mut place.tls
    {
        *files = TlsFiles {
            authority: args.tls_ca.clone(),
            certificate: args.tls_cert.clone(),
            key: args.tls_key.clone(),
        };
    }
    Ok(address)
}

/// Checks that source and target fit: RESP cannot carry memcached's flags, a file cannot be a
/// target.
fn check_pair(args: &MigrateArgs, from: &Address, to: &Address) -> Result<(), Failure> {
    let wrong = |text: &str| Err(Failure::Usage(format!("migrate: {text}")));
    let is_tls = |address: &Address| match address {
        Address::Redis(place) | Address::Memcached(place) => place.tls.is_some(),
        Address::Rdb(_) => false,
    };
    let has_files = args.tls_ca.is_some() || args.tls_cert.is_some();
    match (from, to) {
        _ if has_files && !is_tls(from) && !is_tls(to) => {
            wrong("--tls-ca, --tls-cert and --tls-key are for rediss:// and memcacheds://")
        }
        (_, Address::Rdb(_)) => wrong("--to: a file is not written; write redis://host:port"),
        (Address::Memcached(_), Address::Redis(_)) => wrong(
            "--to: memcached's flags go through memcached's port: write memcached://host:port",
        ),
        (Address::Redis(_) | Address::Rdb(_), Address::Memcached(_)) => {
            wrong("--to: keys of Redis go through the RESP port: write redis://host:port")
        }
        (_, Address::Redis(to)) if to.database != 0 => {
            wrong("--to: there is one database here: write redis://host:port")
        }
        (Address::Redis(from), _) if args.db != 0 && u64::from(from.database) != args.db => {
            wrong("--db is for RDB files: write the database into --from, redis://host:port/3")
        }
        _ if from == to => wrong("--from and --to are the same server"),
        _ => Ok(()),
    }
}

/// Set by the first Ctrl-C; the second ends the process at once.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)));
        if let Err(error) = registered {
            let text = format!("migrate: the signals cannot be watched: {error}");
            return Err(Failure::Runtime(text));
        }
    }
    Ok(stop)
}

fn source(args: &MigrateArgs, from: &Address) -> Result<Box<dyn Source>, Error> {
    let pattern = args.pattern.as_ref().map(|text| text.clone().into_bytes());
    let (is_dry, resume) = (args.dry_run, args.resume.as_deref());
    // A slow copy goes key by key rather than in large steps.
    let chunk_keys = args.rate.map_or(CHUNK_KEYS_MAX, |rate| (rate / 10).clamp(1, CHUNK_KEYS_MAX));
    let chunk_keys = chunk_keys as usize;
    Ok(match from {
        Address::Redis(place) => {
            Box::new(FromRedis::connect(place, pattern, is_dry, chunk_keys, resume)?)
        }
        Address::Memcached(place) => {
            let pattern = pattern.as_deref();
            Box::new(FromMemcached::connect(place, pattern, is_dry, chunk_keys, resume)?)
        }
        Address::Rdb(path) => {
            let path: &Path = path;
            Box::new(FromRdb::open(path, args.db, pattern, is_dry, chunk_keys, resume)?)
        }
    })
}

fn target(args: &MigrateArgs, to: &Address) -> Result<Box<dyn Target>, Error> {
    Ok(match to {
        Address::Memcached(place) => Box::new(IntoMemcached::connect(place, args.replace)?),
        Address::Redis(place) => Box::new(IntoRedis::connect(place, args.replace)?),
        Address::Rdb(_) => unreachable!("check_pair has refused it"),
    })
}

fn verdict(outcome: Outcome) -> Result<(), Failure> {
    let go_on = match &outcome.resume {
        Some(place) => format!("go on with --resume {place}"),
        None => "start again: what is there stays".to_owned(),
    };
    match outcome.ending {
        Ending::Failed(error) => Err(Failure::Runtime(format!("migrate: {error}; {go_on}"))),
        Ending::Interrupted => Err(Failure::Runtime(format!("migrate: interrupted; {go_on}"))),
        Ending::Complete if outcome.tally.refused_count() > 0 => {
            let count = outcome.tally.refused_count();
            let keys = if count == 1 { "key was" } else { "keys were" };
            Err(Failure::Runtime(format!("migrate: {count} {keys} refused")))
        }
        Ending::Complete => Ok(()),
    }
}

/// Whether the user asked to stop.
fn is_set(flag: &AtomicBool) -> bool {
    // Relaxed: the flag publishes no other data.
    flag.load(Ordering::Relaxed)
}
