//! `cargo xtask conformance`: sends the same commands to this server and to the original, and
//! compares every reply byte for byte.
//!
//! ```text
//!  seed ─▶ session of some 200 steps ─┬─▶ dovetail ──────┐
//!          (a step: one write, its    │                  ├─ equal? ─ no ─▶ shrink, print, seed
//!           commands' replies)        └─▶ redis-server ──┘       └─ or on the list of differences
//!                                        or memcached
//! ```
//!
//! Each session begins on a new connection with an empty store, so that it can be replayed alone
//! and shrunk. Protocols are rows of a table: each row connects to both servers and makes sessions.
//!
//! # Invariants
//! I1: the commands depend only on the seed.
//! I2: a listed difference ([`differences`]) that a whole run does not meet is reported: the entry
//!     is out of date, or the run does not look for it.

mod arguments;
mod commands;
mod differences;
mod memcached;
pub(crate) mod reply;
pub(crate) mod rng;
mod run;
mod servers;
mod session;
mod shrink;

use std::path::Path;

use anyhow::{Context, Result, ensure};

use differences::Hits;
use run::Runner;
use servers::Pair;

/// A protocol under comparison; the commands of a step belong to one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Resp2,
    Resp3,
    Text,
    Meta,
    Binary,
}

impl Protocol {
    /// The original server of the protocol.
    fn reference(self) -> &'static str {
        match self {
            Protocol::Resp2 | Protocol::Resp3 => "redis-server",
            Protocol::Text | Protocol::Meta | Protocol::Binary => "memcached",
        }
    }
}

/// The protocols that can be compared.
const PROTOCOLS: [(&str, Protocol); 5] = [
    ("resp2", Protocol::Resp2),
    ("resp3", Protocol::Resp3),
    ("text", Protocol::Text),
    ("meta", Protocol::Meta),
    ("binary", Protocol::Binary),
];

/// The number of commands to Redis from which on a run meets every difference of the list.
const WHOLE_RUN_COMMANDS: u64 = 100_000;

/// Flags of `cargo xtask conformance`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Of the first session; the others count up
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// At least so many commands, over all protocols
    #[arg(long, default_value_t = 300_000, value_name = "N")]
    commands: u64,
    /// Only this protocol: resp2, resp3, text, meta or binary (the last three are memcached's)
    #[arg(long, alias = "protocol", value_name = "PROTOCOL")]
    only: Option<String>,
    /// The server under test; without it, a release build
    #[arg(long, value_name = "FILE")]
    binary: Option<std::path::PathBuf>,
    /// Flags for the server under test
    #[arg(long, default_value = "", value_name = "FLAGS", allow_hyphen_values = true)]
    serve: String,
    /// Goes on behind so many differences
    #[arg(long, default_value_t = 5, value_name = "N")]
    differences: usize,
}

/// Compares; returns true if nothing differs, or if there is no original to compare with.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let protocols = wanted(args.only.as_deref())?;
    if protocols.is_empty() {
        return Ok(true);
    }
    let binary = servers::binary(root, args.binary.as_deref())?;
    let mut comparison = Comparison {
        pair: Pair::start(&binary, &args.serve)?,
        hits: Hits::default(),
        commands: 0,
        redis_commands: 0,
    };
    let (mut found, mut seed) = (0, args.seed);
    while comparison.commands < args.commands && found < args.differences {
        let (name, protocol) = protocols[(seed % protocols.len() as u64) as usize];
        let compared = comparison.session(seed, protocol);
        let again = format!("--seed {seed} --commands 1 --only {name}");
        let compared = compared.with_context(|| format!("the session of {again}"))?;
        if let Some(smallest) = compared {
            found += 1;
            println!("{smallest}");
            println!("replay: cargo xtask conformance {again}\n");
        }
        seed += 1;
    }
    let (commands, sessions) = (comparison.commands, seed - args.seed);
    println!("{commands} commands in {sessions} sessions: {found} differences");
    println!("not compared, for Redis 7.0 does not know them: {}", commands::LATER.join(", "));
    let is_whole = comparison.redis_commands >= WHOLE_RUN_COMMANDS;
    let stale = if is_whole { comparison.hits.stale() } else { Vec::new() };
    for name in &stale {
        println!("stale: the difference \"{name}\" was not met; see docs/compatibility.md");
    }
    Ok(found == 0 && stale.is_empty())
}

/// The protocols to compare, without those whose original server is missing.
fn wanted(only: Option<&str>) -> Result<Vec<(&'static str, Protocol)>> {
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut protocols: Vec<_> = PROTOCOLS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    ensure!(!protocols.is_empty(), "--only: resp2, resp3, text, meta or binary, not {only:?}");
    for program in ["redis-server", "memcached"] {
        let is_of = |protocol: Protocol| protocol.reference() == program;
        if protocols.iter().any(|(_, it)| is_of(*it)) && !servers::has_reference(program) {
            println!("skipped: conformance: the program `{program}` is not there");
            protocols.retain(|(_, it)| !is_of(*it));
        }
    }
    Ok(protocols)
}

/// The state of a run.
struct Comparison {
    pair: Pair,
    hits: Hits,
    commands: u64,
    redis_commands: u64,
}

impl Comparison {
    /// Runs the session of a seed; returns a shrunk difference, if there is one.
    fn session(&mut self, seed: u64, protocol: Protocol) -> Result<Option<String>> {
        if protocol.reference() == "memcached" {
            let checked = memcached::check(self.pair.memcached, seed, protocol)?;
            self.commands += checked.commands;
            return Ok(checked.difference);
        }
        let mut runner = Runner { ports: self.pair.resp, hits: &mut self.hits };
        let session = session::make(seed, protocol);
        let commands = session.iter().map(|step| step.commands.len() as u64).sum::<u64>();
        self.commands += commands;
        self.redis_commands += commands;
        match runner.compare(&session)? {
            Some(difference) => Ok(Some(runner.shrink(session, difference)?.to_string())),
            None => Ok(None),
        }
    }
}
