//! `dovetail sim cache`: replays a trace through several caches, including the real store.

use std::path::{Path, PathBuf};

use base::ByteSize;
use bench::look_aside;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use sim::SimError;
use sim::cache::cache_trace::{self, Columns, Format, TraceError};
use sim::cache::{self, CacheSize, Named, Row, Tally, Trace, report};

use crate::failure::{Failure, note, print};
use crate::machine::Machine;
use crate::sim_command::{REQUESTS_MAX, failure, parse_requests, parse_threads};
use crate::usage::one_line;

/// The default number of requests of a generated workload.
const REQUESTS_DEFAULT: u64 = 1_000_000;

/// What `dovetail sim cache` takes.
#[derive(Debug, Args)]
struct CacheArgs {
    /// Replay this file: CSV or oracleGeneral, also as .zst
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,

    /// Replay a generated cluster: twitter-1 to twitter-54
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,

    /// Number of requests of a workload, or the maximum taken from a trace [default: 1M, the whole
    /// trace]
    #[arg(long, value_name = "N", value_parser = parse_requests)]
    requests: Option<u64>,

    /// Number of keys of a workload that are requested repeatedly [default: as published]
    #[arg(long, value_name = "N", value_parser = parse_keys, conflicts_with = "trace")]
    keys: Option<u64>,

    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Format of the trace: csv or oracle-general [default: by the file's name]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,

    /// Columns of a CSV trace, e.g. time=2,size=4,key=lbn,op=3,ttl=7,time-unit=ms,delimiter=tab
    #[arg(long, value_name = "NAME=COLUMN,...", default_value = "", value_parser = parse_columns)]
    #[arg(hide_default_value = true)]
    columns: Columns,

    /// all, none, or some of the policies below; `store:` or `exact:` before a name picks one
    #[arg(long, value_name = "NAME,...", default_value = "all")]
    policy: String,

    /// Bytes (64MiB), a share of the working set (10%), objects (5000obj), a share of them (10%obj)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_size)]
    #[arg(default_value = "1%obj,5%obj,10%obj,20%obj,40%obj")]
    size: Vec<CacheSize>,

    /// Also replay the trace against these memcached servers, HOST:PORT each; missed items are
    /// stored
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    server: Vec<String>,

    /// Write the table to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Draw the miss ratio over the cache size into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Number of points that run in parallel; the result does not depend on it [default: the
    /// machine's cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

/// `sim cache`, with the policies in its help.
pub(super) fn command() -> Command {
    let mut list = "Policies:\n".to_owned();
    for named in cache::POLICIES {
        list.push_str(&format!("  {:5} {:13} {}\n", named.engine.name(), named.name, about(named)));
    }
    CacheArgs::augment_args(Command::new("cache"))
        .about("Miss ratios of a cache trace: the real store, exact policies, Belady's bound")
        .after_help(list)
}

fn about(named: &Named) -> &'static str {
    match (named.engine.name(), named.name) {
        ("store", "fifo") => "this store, oldest segments first",
        ("store", "lru") => "this store, what is read is appended anew",
        ("store", "lru-approx") => "this store, what was read is kept once more",
        ("store", _) => "this store, small and main queue of segments and ghosts",
        (_, "fifo") => "the oldest goes",
        (_, "lru") => "the least recently used goes",
        (_, "clock") => "the oldest goes unless it was used",
        (_, "s3-fifo") => "small and main queue and ghosts; two uses lead to main",
        (_, "s3-fifo-eager") => "the same; one use does",
        _ => "what is wanted again last goes: the bound for items of one size",
    }
}

/// Reads the trace, replays it, prints the results.
pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = CacheArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let policies = cache::policies(&args.policy).map_err(failure)?;
    let (name, trace) = read(&args)?;
    let threads = args.threads.unwrap_or_else(|| Machine::detect().core_count.max(1));
    let mut rows = cache::run(&trace, &policies, &args.size, threads).map_err(failure)?;
    for address in &args.server {
        rows.push(replay_at(address, &trace)?);
    }
    write_files(&args, &name, &rows)?;
    if args.json {
        let json = report::json(&name, &trace, &rows).map_err(failure)?;
        return print(&format!("{json}\n"));
    }
    print(&report::text(&name, &trace, &rows))
}

/// Replays against a running server instead of a policy. The server keeps its own clock: lifetimes
/// count from now.
fn replay_at(address: &str, trace: &Trace) -> Result<Row, Failure> {
    let found = look_aside::replay(address, trace.requests())
        .map_err(|error| Failure::Runtime(format!("sim: {error}")))?;
    if let Some(refusal) = &found.refusal {
        note(&format!("{address} refused {} sets, the first with `{refusal}`", found.refused));
    }
    Ok(Row {
        engine: "server",
        policy: address.to_owned(),
        size: ByteSize { bytes: found.limit_bytes }.to_string(),
        is_objects: false,
        capacity: found.limit_bytes,
        tally: Tally {
            looks: found.looks,
            misses: found.misses,
            look_bytes: found.look_bytes,
            miss_bytes: found.miss_bytes,
            evictions: found.evictions,
            objects: found.items as f64,
            bytes: found.item_bytes as f64,
        },
    })
}

/// The requests, and their name.
fn read(args: &CacheArgs) -> Result<(String, Trace), Failure> {
    let Some(path) = &args.trace else {
        let Some(name) = args.workload.clone() else {
            let what = "sim cache: write --trace FILE or --workload twitter-N";
            return Err(Failure::Usage(what.to_owned()));
        };
        let count = args.requests.unwrap_or(REQUESTS_DEFAULT);
        let trace = Trace::generated(&name, count, args.keys, args.seed).map_err(failure)?;
        return Ok((name, trace));
    };
    let shown = path.display().to_string();
    let wrong = |error: TraceError| Failure::Usage(format!("sim: {shown}: {error}"));
    let format = args.format.unwrap_or_else(|| Format::of_path(path));
    let requests = cache_trace::open(path, format, &args.columns).map_err(wrong)?;
    let trace = Trace::collect(&shown, requests, args.requests).map_err(failure)?;
    let name = path.file_name().map_or(shown.clone(), |name| name.to_string_lossy().into_owned());
    Ok((name, trace))
}

fn write_files(args: &CacheArgs, name: &str, rows: &[Row]) -> Result<(), Failure> {
    let write = |path: &Option<PathBuf>, write: &dyn Fn(&Path) -> Result<PathBuf, SimError>| {
        path.as_deref().map_or(Ok(()), |path| write(path).map(drop).map_err(failure))
    };
    write(&args.csv, &|path| report::write_csv(path, rows))?;
    write(&args.svg, &|path| report::write_svg(path, name, rows))
}

fn parse_keys(text: &str) -> Result<u64, String> {
    base::parse_count_in(text, 1..=REQUESTS_MAX)
}

fn parse_format(text: &str) -> Result<Format, String> {
    text.parse().map_err(|error: TraceError| error.to_string())
}

fn parse_columns(text: &str) -> Result<Columns, String> {
    text.parse().map_err(|error: TraceError| error.to_string())
}

fn parse_size(text: &str) -> Result<CacheSize, String> {
    text.parse().map_err(|error: SimError| error.to_string())
}
