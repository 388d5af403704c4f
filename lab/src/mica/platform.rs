//! The paper's three servers: cores, caches and ports, and the CPU cost of one request.
//!
//! ```text
//!  a core's turn:  poll ─▶ take up to 32 packets ─▶ request, request, ... ─▶ send all replies
//!                  └ fixed cost ┘                   └ each: compute at the core's clock
//!                                                          + memory stalls, less what is cached ┘
//! ```
//!
//! The costs follow from four numbers of §5.3 and Fig. 8, measured on 24 cores: 5.02 million
//! requests a second per core under the uniform workload, taken 12.5 at a time; batches of 32 save
//! a hot core 14 % of the instructions of a request; the hot core reaches 143 %.
//!
//! - A poll costs as much as `P` requests: `(1 + P/32) / (1 + P/12.5) = 0.86`, so `P` = 3.7.
//! - A core that takes 12.5 at a time is busy with requests 77 % of its time: 153 ns each.
//! - Batches give the hot core 116 %; the rest of the 143 % is memory wait that it saves. Its cache
//!   holds the keys of about four fifths of its requests, so stalls are about a quarter of a
//!   request. For 120 and 240 cores no parameter is set: the gain of the hottest cores is a result
//!   of the model. The ports limit a uniform load, one port per two cores: 24 cores could do 16 %
//!   more.

/// The largest receive batch (Fig. 8).
pub const BATCH_MAX: usize = 32;

/// Requests a second on one core with uniform keys, in millions: 120.5 on 24 (Table 4).
pub const UNIFORM_CORE_MRPS: f64 = 120.5 / 24.0;

/// Packets taken at a time with uniform keys (§5.3).
const UNIFORM_BATCH: f64 = 12.5;

/// The share of instructions per request that remains with batches of 32 (§5.3).
const HOT_INSTRUCTIONS: f64 = 0.86;

/// A core's stalls for memory as a share of a request's time when nothing is cached: fitted, so
/// that the hottest of 24 cores reaches 7.1 million a second (§5.3).
const STALL_SHARE: f64 = 0.24;

/// The cost of a GET under CREW over its cost under EREW: version checks, lines that owners change,
/// the other socket's memory. Fitted to 108 million a second on 24 cores with 95 % GET.
pub const CREW_READ_FACTOR: f64 = 1.51;

/// The clock that all costs are stated at (Table 6).
pub const CLOCK_GHZ: f64 = 2.5;

/// Bytes of cache that a key takes: a bucket's line and its item's.
const CACHED_KEY_BYTES: u64 = 128;

/// One server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Platform {
    /// Cores, and partitions.
    pub cores: usize,
    /// A core's part of the last-level cache.
    pub cache_bytes_per_core: u64,
    /// Cores that share a network port.
    pub cores_per_port: usize,
}

impl Platform {
    /// The measured server (§4.3): two sockets, 30 MB of cache and six ports for 12 cores.
    pub const MEASURED: Platform =
        Platform { cores: 24, cache_bytes_per_core: 30_000_000 / 12, cores_per_port: 2 };
    /// The proposed server with two sockets (Table 6): 60 cores and three ports on each.
    pub const DUAL: Platform =
        Platform { cores: 120, cache_bytes_per_core: 768 << 10, cores_per_port: 20 };
    /// The same with four.
    pub const QUAD: Platform = Platform { cores: 240, ..Platform::DUAL };
    /// All, smallest first.
    pub const ALL: [Platform; 3] = [Platform::MEASURED, Platform::DUAL, Platform::QUAD];

    /// Keys whose lines fit into a core's part of the cache.
    pub fn cache_keys(&self) -> u64 {
        self.cache_bytes_per_core / CACHED_KEY_BYTES
    }

    /// The number of ports.
    pub fn ports(&self) -> usize {
        self.cores.div_ceil(self.cores_per_port)
    }

    /// The time that a packet occupies its port: as many packets as its cores' uniform load.
    pub fn port_packet_ns(&self) -> f64 {
        1e3 / (UNIFORM_CORE_MRPS * self.cores_per_port as f64)
    }
}

/// The costs of a request on a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Taking a batch and sending its replies, whatever its size.
    pub poll_ns: f64,
    /// Computing on one request.
    pub compute_ns: f64,
    /// Waiting for memory, when nothing is cached.
    pub stall_ns: f64,
}

impl Costs {
    /// The costs at a core's clock; memory time does not scale with it.
    pub fn at_clock(clock_ghz: f64) -> Costs {
        let poll_requests =
            (1.0 - HOT_INSTRUCTIONS) / (HOT_INSTRUCTIONS / UNIFORM_BATCH - 1.0 / BATCH_MAX as f64);
        let busy_share = UNIFORM_BATCH / (UNIFORM_BATCH + poll_requests);
        let request_ns = 1e3 * busy_share / UNIFORM_CORE_MRPS;
        let slowness = CLOCK_GHZ / clock_ghz;
        Costs {
            poll_ns: poll_requests * request_ns * slowness,
            compute_ns: request_ns * (1.0 - STALL_SHARE) * slowness,
            stall_ns: request_ns * STALL_SHARE,
        }
    }

    /// One request whose lines are cached in `cached_share` of all cases.
    pub fn request_ns(&self, cached_share: f64) -> f64 {
        self.compute_ns + self.stall_ns * (1.0 - cached_share)
    }

    /// The highest throughput of a core if each request costs `request_ns`: full batches.
    pub fn peak_mrps(&self, request_ns: f64) -> f64 {
        1e3 / (request_ns + self.poll_ns / BATCH_MAX as f64)
    }
}
