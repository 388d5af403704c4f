//! The workload of a plan: from a name, a trace, or a server's statistics.
//!
//! ```text
//!  twitter-12            ─▶ workload::Profile ─┐
//!  trace.csv             ─▶ its own requests   ├─▶ Workload: items and one line about them
//!  a server's /stats     ─▶ shares and means ──┘
//! ```
//!
//! A trace has the public Twitter format, one request per line:
//! `timestamp,key,key size,value size,client,operation,TTL`. Key, sizes and operation are used.

use std::io::BufRead;

use policy::Access;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use workload::{Operation, Popularity, Profile, RankSampler};

use crate::SimError;
use crate::plan::jobs::Item;

/// The most keys for a named workload, if its source has more or names none: more would change the
/// tail of the popularity, which no cache holds, and take memory here.
pub const KEYS_MAX: u64 = 4_000_000;

/// Requests and their description.
#[derive(Clone, Debug)]
pub struct Workload {
    /// One line: the description and the assumptions.
    pub about: String,
    /// In the order of arrival.
    pub items: Vec<Item>,
}

impl Workload {
    /// A workload by its name.
    ///
    /// # Errors
    /// If there is no workload of that name.
    pub fn named(name: &str, request_count: usize, seed: u64) -> Result<Workload, SimError> {
        let profile: Profile = name.parse().map_err(bad)?;
        let key_count = profile.source_key_count.unwrap_or(KEYS_MAX).clamp(1, KEYS_MAX);
        let mut requests = profile.requests(key_count, seed);
        let mut items = Vec::with_capacity(request_count);
        while items.len() < request_count {
            let request = requests.draw();
            let size_bytes = (profile.key_len_bytes + request.value_len_bytes) as u64;
            let mut add = |access| items.push(Item { key: request.id, access, size_bytes });
            match request.operation {
                Operation::Read(_) | Operation::ReadLatest(_) => add(Access::Read),
                Operation::Update(_) | Operation::Insert => add(Access::Write),
                Operation::ReadModifyWrite(_) => {
                    add(Access::Read);
                    add(Access::Write);
                }
                Operation::Scan { .. } => {
                    return Err(SimError::BadParameter {
                        what: format!(
                            "{name} scans key ranges, which needs the ordered index: \
                             plan for a workload of GETs and SETs"
                        ),
                    });
                }
            }
        }
        items.truncate(request_count);
        let about = format!("{}: {}; over {key_count} keys", profile.name, profile.about);
        Ok(Workload { about, items })
    }

    /// The first requests of a trace.
    ///
    /// # Errors
    /// When a line is not of the format, with its number.
    pub fn from_trace(
        name: &str,
        lines: impl BufRead,
        request_count: usize,
    ) -> Result<Workload, SimError> {
        let mut items = Vec::new();
        for (index, line) in lines.lines().enumerate() {
            let line = line.map_err(|error| bad(format!("{name}: {error}")))?;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let item = trace_item(line).ok_or_else(|| {
                bad(format!(
                    "{name}:{}: not a request: write \
                     timestamp,key,key size,value size,client,operation,TTL",
                    index + 1
                ))
            })?;
            items.push(item);
            if items.len() == request_count {
                break;
            }
        }
        if items.is_empty() {
            return Err(bad(format!("{name}: no requests in it")));
        }
        // A short trace is offered again and again.
        let found = items.len();
        items = items.iter().copied().cycle().take(request_count).collect();
        Ok(Workload { about: format!("{name}: {found} requests of the trace"), items })
    }

    /// The workload in a server's `/stats`: shares of operations, mean sizes, number of keys. It
    /// does not contain popularity, so `zipf` gives it; all items get the mean size.
    ///
    /// # Errors
    /// When it is not the statistics of a server that has items and has served requests.
    pub fn from_stats(
        name: &str,
        json: &str,
        zipf: f64,
        request_count: usize,
        seed: u64,
    ) -> Result<Workload, SimError> {
        let stats: Value =
            serde_json::from_str(json).map_err(|error| bad(format!("{name}: no JSON: {error}")))?;
        let missing = |what: &str| bad(format!("{name}: {what}: load it first, then plan"));
        let (reads, writes) = shares(&stats["commands"]);
        let items = stats["store"]["items"].as_f64().unwrap_or(0.0);
        let entry_bytes = stats["store"]["entry_bytes"].as_f64().unwrap_or(0.0);
        if reads + writes <= 0.0 {
            return Err(missing("the server has served no requests on keys"));
        }
        if items < 1.0 || entry_bytes < 1.0 {
            return Err(missing("the server holds no items"));
        }
        let size_bytes = (entry_bytes / items - ENTRY_HEADER_BYTES).max(1.0) as u64;
        let key_count = (items as u64).clamp(1, KEYS_MAX);
        let write_share = writes / (reads + writes);
        let popularity =
            if zipf > 0.0 { Popularity::Zipf { exponent: zipf } } else { Popularity::Uniform };
        let ranks = RankSampler::new(popularity, key_count);
        let mut random = SmallRng::seed_from_u64(seed);
        let draw = |_| {
            let is_write = random.random::<f64>() < write_share;
            let access = if is_write { Access::Write } else { Access::Read };
            Item { key: ranks.draw(&mut random), access, size_bytes }
        };
        let items = (0..request_count).map(draw).collect();
        let about = format!(
            "{name}: {key_count} keys, {:.1} % writes, all items {size_bytes} bytes (their mean), \
             Zipf {zipf} (assumed: --zipf)",
            write_share * 100.0
        );
        Ok(Workload { about, items })
    }
}

/// The bytes of most log entries besides key and value (docs/formats/log-entry.md).
const ENTRY_HEADER_BYTES: f64 = store::HEADER_BYTES as f64;

/// Commands that change a key; all others on keys read.
const WRITES: [&str; 27] = [
    "set",
    "setnx",
    "setex",
    "psetex",
    "getset",
    "getdel",
    "mset",
    "msetnx",
    "append",
    "incr",
    "decr",
    "incrby",
    "decrby",
    "incrbyfloat",
    "setrange",
    "del",
    "unlink",
    "expire",
    "pexpire",
    "add",
    "replace",
    "prepend",
    "cas",
    "delete",
    "touch",
    "gat",
    "ms",
];
const READS: [&str; 9] =
    ["get", "gets", "mget", "strlen", "getrange", "exists", "ttl", "getex", "mg"];

/// Calls that read and calls that write.
fn shares(commands: &Value) -> (f64, f64) {
    let calls = |names: &[&str]| -> f64 {
        let of = |command: &Value| {
            let name = command["cmd"].as_str().unwrap_or_default();
            let is_one = names.iter().any(|known| name.eq_ignore_ascii_case(known));
            command["calls"].as_f64().filter(|_| is_one)
        };
        commands.as_array().into_iter().flatten().filter_map(of).sum()
    };
    (calls(&READS), calls(&WRITES))
}

fn trace_item(line: &str) -> Option<Item> {
    let fields: Vec<&str> = line.split(',').collect();
    // A key may hold commas: the fields behind it are counted from the end.
    let last = fields.len().checked_sub(5).filter(|last| *last >= 2)?;
    let key = fields[1..last].join(",");
    let key_bytes: u64 = fields[last].trim().parse().ok()?;
    let value_bytes: u64 = fields[last + 1].trim().parse().ok()?;
    let operation = fields[last + 3].trim().to_ascii_lowercase();
    let access = match operation.as_str() {
        "get" | "gets" => Access::Read,
        "set" | "add" | "replace" | "cas" | "append" | "prepend" | "delete" | "incr" | "decr" => {
            Access::Write
        }
        _ => return None,
    };
    Some(Item { key: hash_of(&key), access, size_bytes: key_bytes + value_bytes })
}

/// FNV-1a: the same on every machine.
fn hash_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn bad(error: impl ToString) -> SimError {
    SimError::BadParameter { what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_workloads_have_their_shares_and_sizes() {
        let workload = Workload::named("twitter-12", 20_000, 1).unwrap();
        assert_eq!(workload.items.len(), 20_000);
        let writes = workload.items.iter().filter(|item| item.access == Access::Write).count();
        assert!(writes > 10_000, "cluster 12 writes more than it reads: {writes}");
        assert!(Workload::named("ycsb-f", 1001, 1).is_ok_and(|found| found.items.len() == 1001));
        let message = Workload::named("ycsb-e", 10, 1).unwrap_err().to_string();
        assert!(message.contains("ordered index"), "{message}");
        let message = Workload::named("nonsense", 10, 1).unwrap_err().to_string();
        assert!(message.contains("twitter-12") || message.contains("twitter-1 to"), "{message}");
    }

    #[test]
    fn traces_are_read_line_by_line() {
        let text = "0,a,b,10,90,1,get,0\n\n1,c,3,7,1,set,100\n";
        let workload = Workload::from_trace("sample", text.as_bytes(), 3).unwrap();
        let found: Vec<(Access, u64)> =
            workload.items.iter().map(|item| (item.access, item.size_bytes)).collect();
        assert_eq!(found, [(Access::Read, 100), (Access::Write, 10), (Access::Read, 100)]);
        assert_eq!(workload.items[0].key, workload.items[2].key);
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        for text in ["0,a,1,1,1,get,0\n0,a,1", "0,a,1,1,1,get,0\n0,a,x,1,1,get,0"] {
            let message =
                Workload::from_trace("t.csv", text.as_bytes(), 9).unwrap_err().to_string();
            assert!(message.starts_with("t.csv:2: not a request"), "{message}");
        }
        let message = Workload::from_trace("t.csv", &b""[..], 9).unwrap_err().to_string();
        assert!(message.contains("no requests"), "{message}");
    }

    #[test]
    fn statistics_give_shares_and_the_mean_size() {
        let json = r#"{"commands": [{"proto": "resp", "cmd": "get", "calls": 900},
                           {"proto": "memcached", "cmd": "set", "calls": 100},
                           {"proto": "resp", "cmd": "ping", "calls": 5000}],
                       "store": {"items": 10, "entry_bytes": 1160}}"#;
        let workload = Workload::from_stats("host", json, 0.99, 20_000, 1).unwrap();
        let writes = workload.items.iter().filter(|item| item.access == Access::Write).count();
        assert!((1800..2200).contains(&writes), "{writes}");
        assert!(workload.items.iter().all(|item| item.size_bytes == 100 && item.key < 10));
        for json in ["{", "{}", r#"{"commands": [{"cmd": "get", "calls": 1}]}"#] {
            let message = Workload::from_stats("host", json, 0.99, 9, 1).unwrap_err().to_string();
            assert!(message.starts_with("host: ") && !message.contains('\n'), "{message}");
        }
    }
}
