//! The command line of `dovetail bench`.

use std::path::PathBuf;
use std::time::Duration;

use base::ByteSize;
use base::units::{parse_count, parse_duration};

/// What `dovetail bench` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The target: resp://HOST:PORT, memcached://HOST:PORT, native://HOST:PORT, shm:PATH, HOST:PORT
    /// (RESP), embedded: or null: (the embedded store's harness without a store)
    #[arg(default_value = "resp://127.0.0.1:6379", value_name = "TARGET")]
    pub target: String,

    /// Keys, sizes and operations: get, set, put, ycsb-load, ycsb-a to -f (ycsb-e needs
    /// --index tree), minos, zippydb, up2x, udb, etc, twitter-1 to -54 and more [default: get]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub workload: Option<String>,

    /// Ratio of reads to writes, instead of the workload's own, e.g. 95:5
    #[arg(long, value_name = "READS:WRITES", help_heading = "Workload")]
    pub ratio: Option<String>,

    /// Key popularity: uniform or zipf:EXPONENT [default: the workload's]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub distribution: Option<String>,

    /// Item set of MICA's evaluation, instead of the workload's: tiny (8/8 bytes), small (16/64),
    /// large (128/1024) or x-large (250/1152), as many items as fit into half of --memory or 1 GiB
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub dataset: Option<String>,

    /// Number of keys; accepts k, M and G (decimal) [default: 1M, or the dataset's or workload's,
    /// as many as fit into half of --memory or 1 GiB]
    #[arg(long, value_parser = parse_count, value_name = "N", help_heading = "Workload")]
    pub keys: Option<u64>,

    /// Size of every key in bytes [default: the dataset's or the workload's, 16]
    #[arg(long, value_name = "BYTES", help_heading = "Workload")]
    pub key_size: Option<ByteSize>,

    /// Form of keys: binary, text or decimal (1 to 10 digits, of random-looking numbers) [default:
    /// text, or binary for embedded:]
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub key_style: Option<String>,

    /// Size of values: BYTES, LOW-HIGH (uniform), SIZE:WEIGHT,SIZE:WEIGHT,... or pareto:MEAN:SHAPE
    /// [default: the dataset's or the workload's, 64]
    #[arg(long, value_name = "SIZE", help_heading = "Workload")]
    pub value_size: Option<String>,

    /// Keys per read: above 1, reads are multi-gets and each key counts as one operation
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Workload")]
    pub mget: usize,

    /// Keys per scan: a number, or LOW-HIGH (uniform) [default: 1-100]
    #[arg(long, value_name = "KEYS", help_heading = "Workload")]
    pub scan_keys: Option<String>,

    /// Seed of keys, operations and arrivals
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Workload")]
    pub seed: u64,

    /// Do not store every key first, but use the server's present contents
    #[arg(long, help_heading = "Workload")]
    pub no_populate: bool,

    /// Client threads
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Load")]
    pub threads: usize,

    /// Further threads that send the requests for values above 1400 bytes, at the lowest priority,
    /// each over as many connections as one of --threads has: then reading large replies does not
    /// delay small ones in the client; needs --rate
    #[arg(long, default_value_t = 0, value_name = "N", help_heading = "Load")]
    pub large_threads: usize,

    /// Total number of connections of --threads
    #[arg(long, default_value_t = 50, value_name = "N", help_heading = "Load")]
    pub connections: usize,

    /// Number of outstanding requests on each connection [default: 1]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub pipeline: Option<usize>,

    /// Open loop: send this many requests a second, with latency counted from the intended send
    /// time
    #[arg(long, value_parser = parse_count, value_name = "OPS", help_heading = "Load")]
    pub rate: Option<u64>,

    /// Gaps between requests of the open loop: poisson or constant
    #[arg(
        long,
        default_value = "poisson",
        value_name = "NAME",
        requires = "rate",
        help_heading = "Load"
    )]
    pub arrivals: String,

    /// Treatment of a request that is due while every connection is at its depth: wait (its latency
    /// runs) or drop (it is counted and never sent)
    #[arg(
        long,
        default_value = "wait",
        value_name = "NAME",
        requires = "rate",
        help_heading = "Load"
    )]
    pub when_full: String,

    /// Length of the measured window
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "TIME")]
    #[arg(help_heading = "Load")]
    pub duration: Duration,

    /// Length of the load before the measured window
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "TIME")]
    #[arg(help_heading = "Load")]
    pub warmup: Duration,

    /// How client threads wait: block, spin, or auto (spin 50 us, then block)
    #[arg(long, default_value = "auto", value_name = "NAME", help_heading = "Load")]
    pub poll: String,

    /// Pin client threads to these CPUs in turn, e.g. 1 or 2,4-7
    #[arg(long, value_name = "CPUS", help_heading = "Load")]
    pub pin: Option<String>,

    /// Log in with this password (RESP)
    #[arg(
        long,
        env = "DOVETAIL_BENCH_PASSWORD",
        hide_env_values = true,
        value_name = "PASSWORD",
        help_heading = "Load"
    )]
    pub password: Option<String>,

    /// native: a file with the servers' tag key, 32 hexadecimal digits
    #[arg(long, value_name = "FILE", help_heading = "Load")]
    pub native_key_file: Option<PathBuf>,

    /// Measure the CPU time of this process instead of the one that listens on the target's port
    #[arg(long, value_name = "PID", help_heading = "Load")]
    pub server_pid: Option<u32>,

    /// embedded: memory of the store [default: what the keys need]
    #[arg(long, value_name = "SIZE", help_heading = "Embedded store")]
    pub memory: Option<ByteSize>,

    /// embedded: memory of the store's index [default: what the keys need]
    #[arg(long, value_name = "SIZE", help_heading = "Embedded store")]
    pub index_memory: Option<ByteSize>,

    /// embedded: requests in flight in one batch, 1 to 64; 1 turns batching off [default: 32]
    #[arg(long, value_name = "N", help_heading = "Embedded store")]
    pub batch: Option<usize>,

    /// embedded: cache (evicts when full) or store (refuses when full)
    #[arg(long, default_value = "cache", value_name = "NAME", help_heading = "Embedded store")]
    pub mode: String,

    /// embedded: how items are found: hash, or tree, which scans need
    #[arg(long, default_value = "hash", value_name = "NAME", help_heading = "Embedded store")]
    pub index: String,

    /// embedded: order in which a full cache evicts items: fifo, lru, lru-approx or s3-fifo
    #[arg(long, default_value = "s3-fifo", value_name = "NAME")]
    #[arg(help_heading = "Embedded store")]
    pub eviction: String,

    /// embedded: use huge pages if the machine has them (on), refuse to run without reserved ones
    /// (reserved), or use small pages (off)
    #[arg(long, default_value = "on", value_name = "NAME", help_heading = "Embedded store")]
    pub huge_pages: String,

    /// embedded: how the hash index prefetches lines: on, nta (into the nearest cache only) or off;
    /// this and the next four measure what an optimisation is worth
    #[arg(long, default_value = "on", value_name = "NAME", help_heading = "Embedded store")]
    pub prefetch: String,

    /// embedded: compare the tags of a bucket all at once (on) or one by one (off)
    #[arg(long, default_value = "on", value_name = "NAME", help_heading = "Embedded store")]
    pub simd: String,

    /// embedded: prefetch the log's next lines before writing them (on) or not (off)
    #[arg(long, default_value = "on", value_name = "NAME", help_heading = "Embedded store")]
    pub append_ahead: String,

    /// embedded: replace values of eight bytes in place (on) or append them (off)
    #[arg(long, default_value = "on", value_name = "NAME", help_heading = "Embedded store")]
    pub in_place: String,

    /// embedded: count live bytes in a lane for each thread (on) or in one for all (off)
    #[arg(long, default_value = "on", value_name = "NAME", help_heading = "Embedded store")]
    pub lanes: String,

    /// embedded: record when items were last used (on) or keep their checksums instead (off)
    #[arg(long, default_value = "off", value_name = "NAME", help_heading = "Embedded store")]
    pub last_use: String,

    /// embedded: record reads for eviction only in a nearly full store (late) or always (always)
    #[arg(long, default_value = "late", value_name = "NAME", help_heading = "Embedded store")]
    pub marks: String,

    /// embedded: time to live of written items [default: unlimited]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    #[arg(help_heading = "Embedded store")]
    pub ttl: Option<Duration>,

    /// embedded: time a sample of the calls (sampled), or each call into the store (every), also
    /// while the keys are stored; that costs half a microsecond a call
    #[arg(long, default_value = "sampled", value_name = "NAME", help_heading = "Embedded store")]
    pub latency: String,

    /// Write the report as one JSON object; - is standard output, which then has nothing else
    #[arg(long, value_name = "FILE|-", help_heading = "Report")]
    pub json: Option<PathBuf>,

    /// Draw latencies over percentiles into this file
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub svg: Option<PathBuf>,

    /// Write the latencies as an HdrHistogram V2 log
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub latency_log: Option<PathBuf>,
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    /// A command line of nothing but these arguments.
    #[derive(Parser)]
    pub(crate) struct Command {
        #[command(flatten)]
        pub(crate) args: Args,
    }

    #[test]
    fn a_bare_command_line_loads_the_default_port() {
        let args = Command::parse_from(["bench"]).args;
        assert_eq!(args.target, "resp://127.0.0.1:6379");
        assert_eq!((args.keys, args.key_size), (None, None));
        assert_eq!(args.duration, Duration::from_secs(10));
    }
}
