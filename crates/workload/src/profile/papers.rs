//! The named workloads, each with the numbers of its source.

use crate::mix::{Mix, Reads};
use crate::popularity::{Popularity, Rare};
use crate::profile::Profile;
use crate::sizes::ValueSizes;
use crate::twitter::Cluster;

/// All names but those of Twitter's clusters.
pub(super) const NAMES: [&str; 25] = [
    "get",
    "set",
    "put",
    "ycsb-load",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "minos",
    "minos-write",
    "minos-250k",
    "minos-1000k",
    "minos-0.0625",
    "minos-0.25",
    "minos-0.5",
    "minos-0.75",
    "zippydb",
    "up2x",
    "udb",
    "etc",
    "etc-10",
    "etc-50",
    "etc-90",
];

/// The workload called `name`, when it is one of [`NAMES`].
pub(super) fn named(name: &str) -> Option<Profile> {
    if !NAMES.contains(&name) {
        return None;
    }
    let (family, variant) = name.split_once('-').unwrap_or((name, ""));
    match family {
        "get" | "set" | "put" | "ycsb" => synthetic(name),
        "minos" => Some(Minos::variant(variant)?.profile(name)),
        "zippydb" => Some(facebook(name, 48, 90.8, "general data store")),
        "up2x" => Some(facebook(name, 10, 57.25, "AI and ML services")),
        "udb" => Some(facebook(name, 27, 153.8, "social graph")),
        "etc" => etc(name, variant),
        _ => None,
    }
}

const ZIPF: Popularity = Popularity::Zipf { exponent: 0.99 };

/// Mixes without items of their own: 16-byte keys and 64-byte values, MICA's small dataset.
fn synthetic(name: &str) -> Option<Profile> {
    let insert_mix = Mix { insert: 5, ..Mix::NOTHING };
    let (popularity, mix, about) = match name {
        "get" => (Popularity::Uniform, Mix::reads_to_updates(100, 0), "reads only, uniform"),
        "set" => (Popularity::Uniform, Mix::reads_to_updates(0, 100), "writes only, uniform"),
        "put" => (ZIPF, Mix::reads_to_updates(0, 100), "writes only, skewed (Load A of Rowan-KV)"),
        "ycsb-load" => (ZIPF, Mix { insert: 100, ..Mix::NOTHING }, "inserts of new keys only"),
        "ycsb-a" => (ZIPF, Mix::reads_to_updates(50, 50), "update heavy: half reads, half updates"),
        "ycsb-b" => (ZIPF, Mix::reads_to_updates(95, 5), "read mostly: 95 % reads, 5 % updates"),
        "ycsb-c" => (ZIPF, Mix::reads_to_updates(100, 0), "reads only, skewed"),
        "ycsb-d" => {
            let mix = Mix { read: 95, reads: Reads::Latest, ..insert_mix };
            (ZIPF, mix, "read latest: 95 % reads of new keys, 5 % inserts")
        }
        "ycsb-e" => {
            (ZIPF, Mix { scan: 95, ..insert_mix }, "95 % scans of 50 keys on average, 5 % inserts")
        }
        "ycsb-f" => {
            let mix = Mix { read: 50, read_modify_write: 50, ..Mix::NOTHING };
            (ZIPF, mix, "half reads, half read-modify-writes")
        }
        _ => return None,
    };
    Some(Profile {
        name: name.to_owned(),
        about: format!("{about}; 16 B keys and 64 B values unless told otherwise"),
        source: "YCSB (Cooper et al., SoCC 2010), table 2",
        source_key_count: None,
        popularity,
        key_len_bytes: 16,
        mix,
        ttls: Vec::new(),
        regular_sizes: ValueSizes::fixed(64),
        large_sizes: None,
    })
}

/// Keys of Minos §5.3.
pub const MINOS_KEYS: u64 = 16_000_000;
/// The number of large ones.
pub const MINOS_LARGE_KEYS: u64 = 10_000;

/// One workload of Minos §5.3, Table 1: three sizes of items, the largest few and rare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minos {
    /// Share of large items in all requests, in per cent: 0.0625 to 0.75 in the paper.
    pub large_requests_pct: f64,
    /// Large items have 1500 bytes to this many.
    pub large_max_bytes: usize,
    /// Share of writes in all requests, in per cent.
    pub get_pct: u32,
}

impl Default for Minos {
    fn default() -> Minos {
        Minos { large_requests_pct: 0.125, large_max_bytes: 500_000, get_pct: 95 }
    }
}

impl Minos {
    /// The default workload with one parameter changed, as in the paper.
    fn variant(variant: &str) -> Option<Minos> {
        let default = Minos::default();
        match variant {
            "" => Some(default),
            "write" => Some(Minos { get_pct: 50, ..default }),
            "250k" => Some(Minos { large_max_bytes: 250_000, ..default }),
            "1000k" => Some(Minos { large_max_bytes: 1_000_000, ..default }),
            "0.0625" | "0.25" | "0.5" | "0.75" => {
                Some(Minos { large_requests_pct: variant.parse().ok()?, ..default })
            }
            _ => None,
        }
    }

    /// The workload with these parameters, under `name`.
    pub fn profile(&self, name: &str) -> Profile {
        let key_share = MINOS_LARGE_KEYS as f64 / MINOS_KEYS as f64;
        let rare = Rare { key_share, request_share: self.large_requests_pct / 100.0 };
        let tiny_and_small: ValueSizes =
            "1-13:40,14-1400:60".parse().expect("a histogram as `ValueSizes` reads it");
        let large: ValueSizes =
            format!("1500-{}", self.large_max_bytes).parse().expect("a range of sizes");
        Profile {
            name: name.to_owned(),
            about: format!(
                "tiny, small and {} % large items of up to {} KB, {} % GET",
                self.large_requests_pct,
                self.large_max_bytes / 1000,
                self.get_pct
            ),
            source: "Minos §5.3",
            source_key_count: Some(MINOS_KEYS),
            popularity: Popularity::ZipfBesideRare { exponent: 0.99, rare },
            key_len_bytes: 8,
            mix: Mix::reads_to_updates(self.get_pct, 100 - self.get_pct),
            ttls: Vec::new(),
            regular_sizes: tiny_and_small,
            large_sizes: Some(large),
        }
    }
}

/// The shape that Cao et al. (FAST 2020) fit to values of UDB's largest column family.
const FACEBOOK_PARETO_SHAPE: f64 = 0.2615;

/// One of the stores that Rowan-KV §6.1 takes object sizes from: an object is key and value.
fn facebook(name: &str, key_len_bytes: usize, object_mean_bytes: f64, what: &str) -> Profile {
    let value_mean_bytes = object_mean_bytes - key_len_bytes as f64;
    Profile {
        name: name.to_owned(),
        about: format!(
            "objects of {object_mean_bytes} B on average ({what}), half PUT; means of \
             Cao et al. (FAST 2020), values generalized Pareto"
        ),
        source: "Rowan-KV §6.1",
        source_key_count: Some(200_000_000),
        popularity: ZIPF,
        key_len_bytes,
        mix: Mix::reads_to_updates(50, 50),
        ttls: Vec::new(),
        regular_sizes: ValueSizes::pareto(value_mean_bytes, FACEBOOK_PARETO_SHAPE),
        large_sizes: None,
    }
}

/// μTPS pre-populates 10 million items unless it says otherwise (§5.2).
const MUTPS_KEYS: u64 = 10_000_000;

/// Not in the paper; the mean becomes the 256 B that it compares ETC with.
const ETC_LARGE_MAX_BYTES: usize = 8192;

fn etc(name: &str, variant: &str) -> Option<Profile> {
    let get_pct = match variant {
        "" | "90" => 90,
        "50" => 50,
        "10" => 10,
        _ => return None,
    };
    Some(Profile {
        name: name.to_owned(),
        about: format!(
            "40 % of 1-13 B, 55 % of 14-300 B, 5 % larger (to 8 KiB, our choice), {get_pct} % GET; \
             16 B keys, zipf 0.99"
        ),
        source: "μTPS §5.2.2",
        source_key_count: Some(MUTPS_KEYS),
        popularity: ZIPF,
        key_len_bytes: 16,
        mix: Mix::reads_to_updates(get_pct, 100 - get_pct),
        ttls: Vec::new(),
        regular_sizes: ValueSizes::etc(ETC_LARGE_MAX_BYTES),
        large_sizes: None,
    })
}

/// Atikoglu et al. (SIGMETRICS 2012), §5: the generalized Pareto fit to ETC's values.
const CACHE_PARETO_SHAPE: f64 = 0.348_238;

/// The exponent if the repository gives none.
const ZIPF_EXPONENT_UNKNOWN: f64 = 0.99;

/// Every write is an update here: a memcached `set` or `add` makes the key exist, and a load
/// generator that deletes what it then reads would measure misses.
pub(super) fn twitter(cluster: &Cluster) -> Profile {
    const WEIGHT: f64 = 10_000.0;
    let read = (cluster.read_share() * WEIGHT).round() as u32;
    let operations: Vec<String> =
        cluster.operations.iter().map(|(name, share)| format!("{name} {share}")).collect();
    let guess = if cluster.zipf_exponent.is_none() { ", exponent not published" } else { "" };
    let exponent = cluster.zipf_exponent.unwrap_or(ZIPF_EXPONENT_UNKNOWN);
    Profile {
        name: format!("twitter-{}", cluster.number),
        about: format!(
            "{}, zipf {exponent}{guess}; values generalized Pareto",
            operations.join(", ")
        ),
        source: "Twitter cache-trace, 2020Mar",
        source_key_count: Some(MUTPS_KEYS),
        popularity: Popularity::Zipf { exponent },
        key_len_bytes: cluster.key_len_bytes,
        mix: Mix::reads_to_updates(read, WEIGHT as u32 - read),
        ttls: cluster.ttls.clone(),
        regular_sizes: ValueSizes::pareto(cluster.value_len_bytes as f64, CACHE_PARETO_SHAPE),
        large_sizes: None,
    }
}
