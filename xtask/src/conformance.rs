//! `cargo xtask conformance`: the same commands to this server and to the real one; every reply
//! byte for byte.
//!
//! ```text
//!  seed ─▶ session of some 200 steps ─┬─▶ dovetail ──────┐
//!          (a step: one write, its    │                  ├─ equal? ─ no ─▶ shrink, print, seed
//!           commands' replies)        └─▶ redis-server ──┘       └─ or on the list of differences
//! ```
//!
//! Each session begins on a new connection with an empty store, so that it can be replayed alone
//! and made smaller. Protocols are rows of a table: what speaks to both servers and makes sessions.
//!
//! # Invariants
//! I1: what is sent depends on nothing but the seed.
//! I2: a difference on the list ([`differences`]) that a whole run does not meet is reported: it
//!     has become wrong, or is not looked for.

mod arguments;
mod commands;
mod differences;
mod reply;
mod rng;
mod run;
mod servers;
mod session;

use std::path::Path;

use anyhow::{Result, ensure};

use differences::Hits;
use run::Runner;
use servers::Pair;

/// A step's commands are those of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Resp2,
    Resp3,
}

/// What can be compared.
const PROTOCOLS: [(&str, Protocol); 2] = [("resp2", Protocol::Resp2), ("resp3", Protocol::Resp3)];

/// Commands from which on a run meets every difference of the list.
const WHOLE_RUN_COMMANDS: u64 = 100_000;

/// Flags of `cargo xtask conformance`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Of the first session; the others count up
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// At least so many commands, over all protocols
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    commands: u64,
    /// Only this protocol: resp2 or resp3
    #[arg(long, value_name = "PROTOCOL")]
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

/// Compares; true if nothing differs, or if there is nothing to compare with.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    if !servers::has_reference() {
        println!("skipped: conformance: the program `redis-server` is not there");
        return Ok(true);
    }
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    let protocols: Vec<_> = PROTOCOLS.into_iter().filter(|(name, _)| wanted(name)).collect();
    ensure!(!protocols.is_empty(), "--only: resp2 or resp3, not {:?}", args.only);
    let binary = servers::binary(root, args.binary.as_deref())?;
    let pair = Pair::start(&binary, &args.serve)?;
    let mut hits = Hits::default();
    let (mut found, mut commands, mut seed) = (0, 0, args.seed);
    while commands < args.commands && found < args.differences {
        let (name, protocol) = protocols[(seed % protocols.len() as u64) as usize];
        let mut runner = Runner { pair: &pair, hits: &mut hits };
        let session = session::make(seed, protocol);
        commands += session.iter().map(|step| step.commands.len() as u64).sum::<u64>();
        if let Some(difference) = runner.compare(&session)? {
            found += 1;
            let smallest = runner.shrink(session, difference)?;
            println!("{smallest}");
            let again = format!("--seed {seed} --commands 1 --only {name}");
            println!("replay: cargo xtask conformance {again}\n");
        }
        seed += 1;
    }
    let sessions = seed - args.seed;
    println!("{commands} commands in {sessions} sessions: {found} differences");
    println!("not compared, for Redis 7.0 does not know them: {}", commands::LATER.join(", "));
    let stale = if commands >= WHOLE_RUN_COMMANDS { hits.stale() } else { Vec::new() };
    for name in &stale {
        println!("stale: the difference \"{name}\" was not met; see docs/compatibility.md");
    }
    Ok(found == 0 && stale.is_empty())
}
