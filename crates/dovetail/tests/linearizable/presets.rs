//! Runs a server of every preset under recorded load.
//!
//! | variable | what it says |
//! |---|---|
//! | `HISTORY_SEED` | where the clients' choices begin, by default 1 |
//! | `HISTORY_SERVE` | flags of the only server to be tried, in the place of all presets |
//! | `HISTORY_MOVES` | `1`: its threads change their roles meanwhile |
//! | `HISTORY_LOAD` | the only load to be tried: small, middle or large |
//! | `HISTORY_SECONDS` | how long to go on, by default for one seed; the next seeds follow |

use std::time::{Duration, Instant};

use crate::linearizable::check::{Found, check};
use crate::linearizable::history::{Threads, record};
use crate::linearizable::load::{LARGE, Load, MIDDLE, SMALL};
use crate::linearizable::server::{NotStarted, Server, presets};

/// What each preset is served with in turn, and whether its threads move: as it is, divided into
/// layers that change all the time, and with another index and compaction whatever the preset says.
const VARIANTS: [(&str, Threads); 4] = [
    ("", Threads::Stay),
    (" --cr-threads 1 --threads 4", Threads::Move),
    (" --threads 4 --index tree", Threads::Move),
    // Refused, and so left out, under crcw.
    (" --compaction on --compact-short on", Threads::Move),
];

const LOADS: [(&str, Load); 3] = [("small", SMALL), ("middle", MIDDLE), ("large", LARGE)];

/// Flags of a server.
type Case = (String, Threads);

/// How it is tried again, as far as threads allow.
fn command(seed: u64, (serve, threads): &Case, load: &str) -> String {
    let moves = if *threads == Threads::Move { " HISTORY_MOVES=1" } else { "" };
    format!(
        "HISTORY_SEED={seed} HISTORY_LOAD={load} HISTORY_SERVE='{serve}'{moves} \
         cargo test -p dovetail --test main every_preset"
    )
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// The flags of all servers.
fn servers() -> Vec<Case> {
    if let Some(serve) = variable("HISTORY_SERVE") {
        let moves = variable("HISTORY_MOVES").is_some();
        return vec![(serve, if moves { Threads::Move } else { Threads::Stay })];
    }
    let names = presets();
    assert!(names.len() >= 10, "{names:?}");
    let of_name = |name: &String| {
        VARIANTS.map(|(flags, threads)| (format!("--preset {name}{flags}"), threads))
    };
    names.iter().flat_map(of_name).collect()
}

/// One server and all loads, each with keys of its own; `None` if the flags contradict themselves.
fn try_server(case: &Case, seed: u64) -> Option<(Found, u64)> {
    let (serve, threads) = case;
    let (mut all, mut change_count) = (Found::default(), 0);
    let only = variable("HISTORY_LOAD");
    for (load_name, load) in LOADS {
        if only.as_ref().is_some_and(|only| only != load_name) {
            continue;
        }
        let server = match Server::start(serve) {
            Ok(server) => server,
            Err(NotStarted::Refused(message)) => {
                println!("{serve}: {}", message.trim());
                return None;
            }
            Err(NotStarted::Failed(message)) => panic!("{serve}: {message}"),
        };
        let judged = record(&server, load, seed, *threads).and_then(|recorded| {
            let found = check(&recorded.records)?;
            server.stop()?;
            Ok((found, recorded.change_count))
        });
        let (found, changes) = judged.unwrap_or_else(|message| {
            panic!("{message}\ntry again: {}", command(seed, case, load_name))
        });
        println!("{serve}, {load_name}, seed {seed}: {found:?}, {changes} changes of roles");
        change_count += changes;
        all.request_count += found.request_count;
        all.overlap_count += found.overlap_count;
        all.unanswered_count += found.unanswered_count;
    }
    Some((all, change_count))
}

#[test]
fn every_preset_is_linearizable_per_key() {
    let first_seed = number("HISTORY_SEED").unwrap_or(1);
    let time = number("HISTORY_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    for seed in first_seed.. {
        let (mut refused_count, mut change_count) = (0, 0);
        let servers = servers();
        for case in &servers {
            match try_server(case, seed) {
                None => refused_count += 1,
                Some((found, changes)) => {
                    change_count += changes;
                    // A history in which nothing meets anything proves nothing.
                    assert!(found.overlap_count * 10 > found.request_count, "{found:?}");
                    assert!(found.unanswered_count > 0, "{found:?}");
                }
            }
            if time.is_some_and(|time| start.elapsed() > time) {
                return;
            }
        }
        assert!(refused_count * 2 < servers.len(), "{refused_count} of {servers:?} are refused");
        let has_moves = servers.iter().any(|(_, threads)| *threads == Threads::Move);
        assert!(!has_moves || change_count > 0, "no threads have moved");
        if time.is_none() {
            return;
        }
    }
}
