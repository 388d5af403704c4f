//! The plan of a run: the command line, checked as a whole.

use std::path::PathBuf;
use std::time::Duration;

use store::{Eviction, HugePages, IndexKind, Prefetch, Tuning};
use workload::{
    Arrivals, Draw, KeyFormat, KeyStyle, Mix, Profile, Trace, ValueSizes, WorkloadError,
};

use crate::apart::{Takes, give_way};
use crate::args::Args;
use crate::error::BenchError;
use crate::items::Items;
use crate::target::{Protocol, Target};

/// All parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    /// The workload's name, or the ratio as written.
    pub(crate) workload: String,
    pub(crate) draw: Draw,
    /// Entries of the trace.
    pub(crate) trace_len: usize,
    pub(crate) key_format: KeyFormat,
    pub(crate) value_sizes: ValueSizes,
    /// Keys per read.
    pub(crate) mget: usize,
    pub(crate) populate: bool,
    /// Threads of all requests, or of those for small values.
    pub(crate) thread_count: usize,
    /// Threads of requests for large values; 0: there is one class.
    pub(crate) large_thread_count: usize,
    /// The connections of `thread_count` threads.
    pub(crate) connection_count: usize,
    pub(crate) pipeline: usize,
    /// `None`: closed loop.
    pub(crate) open_loop: Option<OpenLoop>,
    pub(crate) duration: Duration,
    pub(crate) warmup: Duration,
    pub(crate) poll: Poll,
    /// CPUs that threads are pinned to in turn; empty: not pinned.
    pub(crate) pin_cpus: Vec<usize>,
    pub(crate) password: Option<String>,
    pub(crate) native_key: Option<client::TagKey>,
    pub(crate) server_pid: Option<u32>,
    pub(crate) embedded: EmbeddedPlan,
    pub(crate) outputs: Outputs,
}

/// An offered load that does not wait for answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenLoop {
    pub(crate) per_second: f64,
    pub(crate) arrivals: Arrivals,
    pub(crate) when_full: WhenFull,
}

/// The treatment of a request that becomes due while every connection is at its depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// It is sent later, and its latency runs.
    Wait,
    /// It is counted and never sent.
    Drop,
}

/// The way a client thread waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    Block,
    Spin,
    /// Spins a little, then blocks.
    Auto,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EmbeddedPlan {
    /// `None`: as much as the keys need.
    pub(crate) memory_bytes: Option<u64>,
    /// `None`: what the keys need.
    pub(crate) index_bytes: Option<u64>,
    pub(crate) batch: usize,
    pub(crate) is_cache: bool,
    pub(crate) index: IndexKind,
    pub(crate) eviction: Eviction,
    pub(crate) huge_pages: HugePages,
    /// How long written items live; `None`: for ever.
    pub(crate) ttl: Option<Duration>,
    /// Optimisations that are off.
    pub(crate) tuning: Tuning,
    /// Whether each call into the store is timed.
    pub(crate) times_calls: bool,
}

/// The outputs of the report besides the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) json: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) latency_log: Option<PathBuf>,
}

impl Outputs {
    /// Whether stdout carries the JSON object and nothing else.
    pub(crate) fn json_owns_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }
}

const WORKLOAD_DEFAULT: &str = "get";

const BATCH_DEFAULT: usize = 32;

const PIPELINE_MAX: usize = 65_536;
const MGET_MAX: usize = 65_536;
const THREADS_MAX: usize = 1024;
const CONNECTIONS_MAX: usize = 65_536;
/// The limit of ids for inserts.
const INSERT_ID_MAX: u64 = 1 << 40;

impl Plan {
    pub(crate) fn new(args: &Args) -> Result<Plan, BenchError> {
        let target = Target::parse(&args.target)?;
        let embedded = embedded(args, &target)?;
        let (workload, profile) = profile(args, &target, embedded.index)?;
        let mix = profile.mix;
        let items = Items::new(args, &profile)?;
        in_range("--keys", items.key_count as usize, 1, 1 << 40)?;
        in_range("--mget", args.mget, 1, MGET_MAX)?;
        let thread_count = in_range("--threads", args.threads, 1, THREADS_MAX)?;
        let connection_count = in_range("--connections", args.connections, 1, CONNECTIONS_MAX)?;
        let pipeline = in_range("--pipeline", args.pipeline.unwrap_or(1), 1, PIPELINE_MAX)?;
        if mix.insert > 0 && args.mget > 1 {
            return Err(BenchError::usage("--mget reads popular keys; ycsb-d reads the latest"));
        }
        if args.mget > 1 && matches!(target, Target::Native(_)) {
            return Err(BenchError::usage(
                "a native request has one key: leave --mget out and give --pipeline a number",
            ));
        }
        let is_in_process = target.is_in_process();
        let lane_count = if is_in_process { thread_count } else { connection_count };
        if mix.insert > 0 && items.key_count < lane_count as u64 {
            return Err(BenchError::usage(format!(
                "{workload} needs at least one key for each of {lane_count} connections"
            )));
        }
        let large_thread_count = large_thread_count(args, &mix, is_in_process)?;
        if args.duration.is_zero() {
            return Err(BenchError::usage("--duration is 0: measure for some time, e.g. 10s"));
        }
        Ok(Plan {
            key_format: key_format(args, &items, &target, &mix)?,
            target,
            workload,
            trace_len: Trace::len_for(items.key_count),
            draw: profile.draw(items.key_count, args.seed),
            value_sizes: items.value_sizes,
            mget: args.mget,
            populate: !args.no_populate,
            thread_count: thread_count.min(lane_count),
            large_thread_count,
            connection_count,
            pipeline,
            open_loop: open_loop(args, is_in_process)?,
            duration: args.duration,
            warmup: args.warmup,
            poll: poll(&args.poll)?,
            pin_cpus: cpu_list(args.pin.as_deref().unwrap_or(""))?,
            password: args.password.clone(),
            native_key: native_key(args)?,
            server_pid: args.server_pid,
            embedded,
            outputs: Outputs {
                json: args.json.clone(),
                svg: args.svg.clone(),
                latency_log: args.latency_log.clone(),
            },
        })
    }

    /// Threads or connections, each of which walks the trace on its own.
    pub(crate) fn lane_count(&self) -> usize {
        match self.target {
            Target::Embedded | Target::Null => self.thread_count,
            Target::Server { .. } | Target::Native(_) => {
                let per_thread = self.connection_count.div_ceil(self.thread_count);
                self.connection_count + self.large_thread_count * per_thread
            }
        }
    }

    /// Threads of both classes.
    pub(crate) fn all_thread_count(&self) -> usize {
        self.thread_count + self.large_thread_count
    }

    /// The thread that a connection belongs to.
    pub(crate) fn thread_of(&self, lane: usize) -> usize {
        match lane.checked_sub(self.connection_count) {
            None => lane % self.thread_count,
            Some(lane) => self.thread_count + lane % self.large_thread_count,
        }
    }

    /// The threads that send the same requests as this one.
    pub(crate) fn like_thread_count(&self, thread_index: usize) -> usize {
        let is_large = thread_index >= self.thread_count;
        if is_large { self.large_thread_count } else { self.thread_count }
    }

    /// The requests that a thread sends.
    pub(crate) fn takes(&self, thread_index: usize) -> Takes<'_> {
        match (self.large_thread_count, thread_index < self.thread_count) {
            (0, _) => Takes::All,
            (_, true) => Takes::Small(&self.value_sizes),
            (_, false) => Takes::Large(&self.value_sizes),
        }
    }

    /// To be called by each thread when its keys are stored.
    pub(crate) fn begin_load(&self, thread_index: usize) {
        if matches!(self.takes(thread_index), Takes::Large(_)) {
            give_way();
        }
    }

    /// The CPU for thread `thread_index`.
    pub(crate) fn cpu_of(&self, thread_index: usize) -> Option<usize> {
        let index = thread_index.checked_rem(self.pin_cpus.len())?;
        Some(self.pin_cpus[index])
    }
}

fn from_workload(error: WorkloadError) -> BenchError {
    BenchError::usage(error.to_string())
}

fn in_range(name: &str, found: usize, min: usize, max: usize) -> Result<usize, BenchError> {
    if (min..=max).contains(&found) {
        return Ok(found);
    }
    Err(BenchError::usage(format!("{name} is {found}; it can be {min} to {max}")))
}

/// The workload with the command line's changes, and its name in the report.
fn profile(
    args: &Args,
    target: &Target,
    index: IndexKind,
) -> Result<(String, Profile), BenchError> {
    let name = args.workload.as_deref().unwrap_or(WORKLOAD_DEFAULT);
    let mut profile: Profile = name.parse().map_err(from_workload)?;
    let mut workload = profile.name.clone();
    if let Some(ratio) = &args.ratio {
        profile.mix = ratio.parse().map_err(from_workload)?;
        workload = match &args.workload {
            Some(name) => format!("{name} {ratio}"),
            None => ratio.clone(),
        };
    }
    if let Some(text) = &args.scan_keys {
        profile.mix.scan_keys = text.parse().map_err(from_workload)?;
    }
    let has_order = match target {
        Target::Embedded => index == IndexKind::Tree,
        Target::Null | Target::Native(_) => true,
        Target::Server { protocol, .. } => *protocol == Protocol::Resp,
    };
    if profile.mix.scan > 0 && !has_order {
        return Err(from_workload(WorkloadError::NeedsOrderedIndex { workload }));
    }
    if let Some(text) = &args.distribution {
        profile.popularity = text.parse().map_err(from_workload)?;
    }
    Ok((workload, profile))
}

fn large_thread_count(args: &Args, mix: &Mix, is_in_process: bool) -> Result<usize, BenchError> {
    let count = in_range("--large-threads", args.large_threads, 0, THREADS_MAX)?;
    let refuse = |why| Err(BenchError::usage(format!("--large-threads {why}")));
    match count {
        0 => Ok(0),
        _ if is_in_process => refuse("needs connections; this target has none"),
        _ if args.rate.is_none() => refuse("needs --rate: in a closed loop each class would go on"),
        _ if mix.insert > 0 => {
            refuse("needs keys whose sizes are known: not a workload with inserts")
        }
        _ => Ok(count),
    }
}

fn key_format(
    args: &Args,
    items: &Items,
    target: &Target,
    mix: &Mix,
) -> Result<KeyFormat, BenchError> {
    let (style, len_max) = match target {
        Target::Embedded | Target::Null => (KeyStyle::Binary, store::KEY_LEN_MAX_BYTES),
        Target::Server { protocol: Protocol::Memcached, .. } => (KeyStyle::Text, 250),
        Target::Server { protocol: Protocol::Resp, .. } | Target::Native(_) => {
            (KeyStyle::Text, store::KEY_LEN_MAX_BYTES)
        }
    };
    let style = match &args.key_style {
        None => style,
        Some(text) => text.parse().map_err(from_workload)?,
    };
    let is_memcached = matches!(target, Target::Server { protocol: Protocol::Memcached, .. });
    if style == KeyStyle::Binary && is_memcached {
        return Err(BenchError::usage("memcached's text protocol takes no --key-style binary"));
    }
    if style == KeyStyle::Decimal && args.key_size.is_some() {
        return Err(BenchError::usage(
            "--key-style decimal has keys of 1 to 10 digits: leave --key-size out",
        ));
    }
    let len = in_range("--key-size", items.key_len_bytes, 1, len_max)?;
    // Inserts go on until the keys of this format are used up.
    let id_count = match style {
        KeyStyle::Binary | KeyStyle::Text if mix.insert > 0 => INSERT_ID_MAX,
        _ => items.key_count,
    };
    KeyFormat::new(style, len, id_count).map_err(from_workload)
}

fn open_loop(args: &Args, is_in_process: bool) -> Result<Option<OpenLoop>, BenchError> {
    let arrivals = args.arrivals.parse().map_err(from_workload)?;
    let when_full = match args.when_full.as_str() {
        "wait" => WhenFull::Wait,
        "drop" if is_in_process => {
            return Err(BenchError::usage("--when-full drop needs connections; this has none"));
        }
        "drop" => WhenFull::Drop,
        other => {
            return Err(BenchError::usage(format!("--when-full {other}: write wait or drop")));
        }
    };
    match args.rate {
        None => Ok(None),
        Some(0) => Err(BenchError::usage("--rate is 0; leave it out for a closed loop")),
        Some(rate) => Ok(Some(OpenLoop { per_second: rate as f64, arrivals, when_full })),
    }
}

fn native_key(args: &Args) -> Result<Option<client::TagKey>, BenchError> {
    let Some(path) = &args.native_key_file else { return Ok(None) };
    let failed = |reason: String| BenchError::usage(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    client::TagKey::from_hex(&text).map(Some).map_err(|error| failed(error.to_string()))
}

fn poll(text: &str) -> Result<Poll, BenchError> {
    match text {
        "block" => Ok(Poll::Block),
        "spin" | "busy" => Ok(Poll::Spin),
        "auto" => Ok(Poll::Auto),
        _ => Err(BenchError::usage(format!("--poll is `{text}`; it can be block, spin or auto"))),
    }
}

fn embedded(args: &Args, target: &Target) -> Result<EmbeddedPlan, BenchError> {
    let batch = args.batch.or(args.pipeline).unwrap_or(BATCH_DEFAULT);
    let batch = if target.is_in_process() {
        in_range("--batch", batch, 1, store::BATCH_MAX)?
    } else {
        BATCH_DEFAULT
    };
    Ok(EmbeddedPlan {
        memory_bytes: args.memory.map(|size| size.bytes),
        index_bytes: args.index_memory.map(|size| size.bytes),
        batch,
        is_cache: one_of("--mode", &args.mode, &[("cache", true), ("store", false)])?,
        index: one_of("--index", &args.index, &INDEXES)?,
        huge_pages: one_of("--huge-pages", &args.huge_pages, &HUGE_PAGES)?,
        ttl: args.ttl,
        eviction: one_of("--eviction", &args.eviction, &EVICTIONS)?,
        tuning: Tuning {
            prefetch: one_of("--prefetch", &args.prefetch, &PREFETCHES)?,
            matches_tags_at_once: one_of("--simd", &args.simd, &ON_OFF)?,
            prefetches_append: one_of("--append-ahead", &args.append_ahead, &ON_OFF)?,
            replaces_in_place: one_of("--in-place", &args.in_place, &ON_OFF)?,
            counts_in_lanes: one_of("--lanes", &args.lanes, &ON_OFF)?,
            notes_use: one_of("--last-use", &args.last_use, &ON_OFF)?,
            marks_late: one_of("--marks", &args.marks, &[("late", true), ("always", false)])?,
        },
        times_calls: one_of("--latency", &args.latency, &[("sampled", false), ("every", true)])?,
    })
}

const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

const PREFETCHES: [(&str, Prefetch); 3] =
    [("on", Prefetch::On), ("nta", Prefetch::NonTemporal), ("off", Prefetch::Off)];

const INDEXES: [(&str, IndexKind); 2] = [("hash", IndexKind::Hash), ("tree", IndexKind::Tree)];

const HUGE_PAGES: [(&str, HugePages); 3] =
    [("on", HugePages::Auto), ("reserved", HugePages::Reserved), ("off", HugePages::Off)];

const EVICTIONS: [(&str, Eviction); 4] = [
    ("fifo", Eviction::Fifo),
    ("lru", Eviction::Lru),
    ("lru-approx", Eviction::LruApprox),
    ("s3-fifo", Eviction::S3Fifo),
];

/// The value for the word given for `name`.
fn one_of<T: Copy>(name: &str, found: &str, words: &[(&str, T)]) -> Result<T, BenchError> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == found) {
        return Ok(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(BenchError::usage(format!("{name} is `{found}`; it can be {}", known.join(" or "))))
}

/// Reads `1`, `0,2`, `4-7`; an empty list pins nothing.
fn cpu_list(text: &str) -> Result<Vec<usize>, BenchError> {
    let bad = || BenchError::usage(format!("`{text}` is no CPU list: write e.g. 1 or 2,4-7"));
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let low: usize = low.trim().parse().map_err(|_| bad())?;
        let high: usize = high.trim().parse().map_err(|_| bad())?;
        if low > high || high >= rustix::thread::CpuSet::MAX_CPU {
            return Err(bad());
        }
        cpus.extend(low..=high);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use workload::Popularity;

    use super::*;
    use crate::args::tests::Command;

    fn plan(line: &str) -> Result<Plan, BenchError> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Plan::new(&Command::parse_from(words).args)
    }

    #[track_caller]
    fn check_refused(line: &str, want: &str) {
        let error = plan(line).expect_err(line);
        let text = error.to_string();
        assert!(text.contains(want) && !text.contains('\n'), "{line}: {text}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn contradictions_are_refused_in_one_line() {
        check_refused("embedded: --workload ycsb-e", "--index tree");
        check_refused("memcached://h --workload ycsb-e", "ordered index");
        check_refused("embedded: --index btree", "hash or tree");
        check_refused("--workload ycsb-e --scan-keys 0", "scan length");
        check_refused("--workload ycsb-d --mget 4", "--mget");
        check_refused("--workload ycsb-d --keys 10", "50 connections");
        check_refused("--duration 0", "--duration");
        check_refused("--threads 0", "--threads is 0");
        check_refused("--keys 0", "--keys is 0");
        check_refused("--rate 0", "--rate");
        check_refused("--large-threads 1", "--rate");
        check_refused("--large-threads 1 --rate 10 --workload ycsb-d", "inserts");
        check_refused("embedded: --large-threads 1 --rate 10", "connections");
        check_refused("--poll x", "--poll");
        check_refused("--pin 3-1", "CPU list");
        check_refused("--key-size 2", "4096 keys");
        check_refused("memcached://h --key-size 251", "--key-size is 251");
        check_refused("native://h --mget 4", "--pipeline");
        check_refused("embedded: --batch 65", "--batch is 65");
        check_refused("embedded: --mode lru", "--mode");
        check_refused("embedded: --eviction random", "s3-fifo");
        check_refused("embedded: --prefetch t1", "on or nta or off");
        check_refused("embedded: --simd avx2", "on or off");
        check_refused("embedded: --latency all", "--latency");
        check_refused("embedded: --huge-pages small", "on or reserved or off");
        check_refused("null: --batch 0", "--batch is 0");
        check_refused("--key-style hex", "key style");
        check_refused("--key-style decimal --key-size 8", "--key-size");
        check_refused("--key-style decimal --keys 3G", "2147483648 keys");
        check_refused("memcached://h --key-style binary", "memcached");
        check_refused("http://h:1", "no target");
        check_refused("--ratio 1", "ratio");
        check_refused("--workload nothing", "twitter-1 to twitter-54");
        check_refused("--workload twitter-5", "no published");
    }

    #[test]
    fn every_workload_without_scans_runs_against_every_target() {
        for name in Profile::names().iter().filter(|name| *name != "ycsb-e") {
            for target in ["resp://h:1", "memcached://h:1", "native://h:1", "shm:/p", "embedded:"] {
                let found = plan(&format!("{target} --workload {name}"));
                let found = found.unwrap_or_else(|error| panic!("{target} {name}: {error}"));
                assert_eq!(&found.workload, name);
            }
        }
    }

    #[test]
    fn a_ratio_replaces_the_mix_and_nothing_else() {
        let found = plan("--workload zippydb --ratio 0:1").unwrap();
        assert_eq!(found.workload, "zippydb 0:1");
        assert_eq!((found.draw.mix.read, found.draw.mix.update), (0, 1));
        assert_eq!(found.value_sizes, plan("--workload zippydb").unwrap().value_sizes);
        assert_eq!(plan("--ratio 9:1").unwrap().workload, "9:1");
    }

    #[test]
    fn presets_choose_their_popularity_unless_told() {
        assert_eq!(plan("").unwrap().draw.popularity, Popularity::Uniform);
        let zipf = Popularity::Zipf { exponent: 0.99 };
        assert_eq!(plan("--workload ycsb-a").unwrap().draw.popularity, zipf);
        let told = plan("--workload ycsb-a --distribution uniform").unwrap();
        assert_eq!(told.draw.popularity, Popularity::Uniform);
    }

    #[test]
    fn each_optimisation_is_on_until_it_is_switched_off() {
        let tuning = |line: &str| plan(&format!("embedded: {line}")).unwrap().embedded.tuning;
        let all = Tuning::default();
        assert_eq!(tuning(""), all);
        let off = |change: fn(&mut Tuning)| {
            let mut tuning = all;
            change(&mut tuning);
            tuning
        };
        for (line, want) in [
            ("--prefetch off", off(|tuning| tuning.prefetch = Prefetch::Off)),
            ("--prefetch nta", off(|tuning| tuning.prefetch = Prefetch::NonTemporal)),
            ("--simd off", off(|tuning| tuning.matches_tags_at_once = false)),
            ("--append-ahead off", off(|tuning| tuning.prefetches_append = false)),
            ("--in-place off", off(|tuning| tuning.replaces_in_place = false)),
            ("--lanes off", off(|tuning| tuning.counts_in_lanes = false)),
            ("--marks always", off(|tuning| tuning.marks_late = false)),
        ] {
            assert_eq!(tuning(line), want, "{line}");
        }
    }

    #[test]
    fn the_embedded_store_evicts_as_a_server_does() {
        let eviction = plan("embedded:").unwrap().embedded.eviction;
        assert_eq!(eviction, Eviction::default());
        assert_eq!(eviction, server::Config::default().eviction);
    }

    #[test]
    fn threads_beyond_the_connections_are_left_out() {
        let plan = plan("--threads 8 --connections 3").unwrap();
        assert_eq!((plan.thread_count, plan.lane_count()), (3, 3));
    }

    #[test]
    fn threads_take_the_listed_cpus_in_turn() {
        let plan = plan("--pin 1,4-5").unwrap();
        let cpus: Vec<_> = (0..4).map(|thread| plan.cpu_of(thread)).collect();
        assert_eq!(cpus, [Some(1), Some(4), Some(5), Some(1)]);
    }
}
