//! `cargo xtask attack`: hostile clients on every port of a server, while its memory is measured.
//!
//! ```text
//!  shape (a row: door, bytes, logins) ─▶ server with --memory CAP, all doors ─▶ peak of its memory
//!  checked clients: GET, SET, compared ─▶            │                       ─▶ p99, longest wait
//!                                          TERM: it ends in good order       ─▶ verdict
//! ```
//!
//! # Invariants
//! A1: an attack ends at its deadline or after a few bounded steps, whatever the server does; it
//!     sends only to a server that it started itself.
//! A2: the assertions do not depend on the speed of the machine: the peak of memory, correct
//!     replies, an orderly end. Waits are shown, and fail the run only where an answer never comes.

mod checked;
mod door;
mod frames;
mod limits;
mod memory;
mod pump;
mod script;
mod server;
mod shapes;
mod table;
mod target;
mod trial;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use steps::target;

use door::Door;
use server::Binary;
use shapes::Shape;
use table::Row;
use target::Login;
use trial::Trial;

/// Seconds of a shape, in a long and in a short run.
const LONG_SECONDS: f64 = 3.0;
const QUICK_SECONDS: f64 = 0.5;
/// Caps of a long run.
const CAPS: [u64; 3] = [64 << 20, 256 << 20, 1 << 30];

/// Flags of `cargo xtask attack`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only these shapes, or those whose names begin so
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    shapes: Vec<String>,
    /// Only with these caps on memory; by default 64m, 256m and 1g
    #[arg(long, value_delimiter = ',', value_name = "SIZES", value_parser = memory::parse_size)]
    caps: Vec<u64>,
    /// Only so: the server asks for no password, the attack has logged in, or it has not
    #[arg(long, value_delimiter = ',', value_name = "LOGINS")]
    logins: Vec<Login>,
    /// How long each shape goes on
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// What every change is tried with: 64m, each shape once, several on one server
    #[arg(long)]
    quick: bool,
    /// Shapes that run at the same time; by default 1, and 2 with --quick
    #[arg(long, value_name = "N")]
    at_once: Option<usize>,
    /// Worker threads of the servers
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: usize,
    /// The server under attack
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Shows the shapes and ends
    #[arg(long)]
    list: bool,
}

/// Runs the attacks; returns true if every promise held.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let shapes = wanted(&args.shapes)?;
    if args.list {
        for shape in shapes {
            println!("{:<30} {:<21} {}", shape.name, shape.door, shape.about);
        }
        return Ok(true);
    }
    let path = args.binary.clone().unwrap_or_else(|| target(root).join("debug/dovetail"));
    let at_once = args.at_once.unwrap_or(if args.quick { 2 } else { 1 }).clamp(1, 16);
    let connections_max = limits::raise(at_once);
    let binary = Binary::new(&path, args.threads)?;
    println!("{}, {connections_max} connections at most", binary.path.display());
    let has_tls = binary.tls.is_some();
    let is_encrypted = |shape: &&Shape| matches!(shape.door, Door::RespTls | Door::MemcachedTls);
    if !has_tls && shapes.iter().any(is_encrypted) {
        println!("skipped: shapes at the ports of TLS: the program `openssl` is not there");
    }
    let shapes = shapes.into_iter().filter(|shape| has_tls || !is_encrypted(shape));
    let trials = plan(shapes.collect(), args, connections_max);
    ensure!(!trials.is_empty(), "no shape is tried so");
    let began = Instant::now();
    println!("{}", table::head());
    let rows = run_all(&binary, trials, at_once, args.quick);
    table::whole(&rows).iter().for_each(|line| println!("{line}"));
    let failed = rows.iter().filter(|row| !row.is_good()).count();
    println!("\n{:.0} s", began.elapsed().as_secs_f64());
    // This is the last line; machines read it.
    println!("{} passed, {failed} failed", rows.len() - failed);
    Ok(failed == 0)
}

/// The shapes with these names.
fn wanted(names: &[String]) -> Result<Vec<&'static Shape>> {
    let all = shapes::all();
    if let Some(name) = names.iter().find(|name| !all.iter().any(|it| it.name.starts_with(*name))) {
        anyhow::bail!("no shape begins with {name}; --list shows them");
    }
    let is_wanted = |shape: &&'static Shape| {
        names.is_empty() || names.iter().any(|name| shape.name.starts_with(name.as_str()))
    };
    Ok(all.into_iter().filter(is_wanted).collect())
}

/// Every trial, with those that may share a server next to each other.
fn plan(shapes: Vec<&'static Shape>, args: &Args, connections_max: usize) -> Vec<Trial<'static>> {
    let default = if args.quick { &CAPS[..1] } else { &CAPS[..] };
    let caps = if args.caps.is_empty() { default } else { &args.caps };
    let seconds = args.seconds.unwrap_or(if args.quick { QUICK_SECONDS } else { LONG_SECONDS });
    let duration = Duration::from_secs_f64(seconds.clamp(0.05, 600.0));
    let is_wanted = |login: &Login| args.logins.is_empty() || args.logins.contains(login);
    let mut trials = Vec::new();
    for &cap_bytes in caps {
        for shape in &shapes {
            let logins = shape.logins.iter().copied().filter(is_wanted);
            let most = if args.quick { 1 } else { usize::MAX };
            trials.extend(logins.take(most).map(|login| Trial {
                shape,
                cap_bytes,
                login,
                duration,
                connections_max,
            }));
        }
    }
    trials.sort_by_key(|trial| (trial.cap_bytes, trial.login.is_locked()));
    trials
}

/// Runs all trials, some in parallel; prints each row as it comes.
fn run_all(binary: &Binary, trials: Vec<Trial<'_>>, at_once: usize, may_share: bool) -> Vec<Row> {
    let queue = Mutex::new(trials.into_iter());
    let rows = Mutex::new(Vec::new());
    let lane = || {
        let mut server = None;
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(trial) = next else { break };
            let row = trial.run(binary, &mut server, may_share);
            println!("{}", row.line());
            rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        }
        // The last server ends in good order too.
        if let Some(Err(error)) = server.map(server::Server::stop)
            && let Some(row) = rows.lock().unwrap_or_else(PoisonError::into_inner).last_mut()
        {
            row.faults.push(format!("{error:#}"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(lane);
        }
    });
    rows.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn planned(flags: &str) -> Vec<Trial<'static>> {
        let line = Line::parse_from(format!("attack {flags}").split_whitespace());
        plan(wanted(&line.args.shapes).unwrap(), &line.args, 100)
    }

    #[test]
    fn a_long_run_tries_every_shape_with_each_cap_and_login() {
        let trials = planned("");
        let logins: usize = shapes::all().iter().map(|shape| shape.logins.len()).sum();
        assert_eq!(trials.len(), 3 * logins);
    }

    #[test]
    fn a_short_run_tries_every_shape_once_with_the_least_cap() {
        let trials = planned("--quick");
        assert_eq!(trials.len(), shapes::all().len());
        assert!(trials.iter().all(|trial| trial.cap_bytes == 64 << 20));
        let total: Duration = trials.iter().map(|trial| trial.duration).sum();
        assert!(total < Duration::from_secs(150), "two at a time: {total:?}");
    }

    #[test]
    fn flags_choose_shapes_caps_and_logins() {
        let trials = planned("--shapes mc-get-large --caps 64m,256m --logins in");
        let names: Vec<_> = trials.iter().map(|it| (it.shape.name, it.cap_bytes >> 20)).collect();
        let of =
            |cap| ["mc-get-large", "mc-get-large-unix", "mc-get-large-tls"].map(|it| (it, cap));
        assert_eq!(names, [of(64), of(256)].concat());
        assert!(trials.iter().all(|trial| trial.login == Login::In));
        assert!(wanted(&["no-such-shape".to_owned()]).is_err());
    }

    #[test]
    fn trials_that_may_share_a_server_follow_each_other() {
        let trials = planned("--quick");
        let changes =
            trials.windows(2).filter(|it| it[0].login.is_locked() != it[1].login.is_locked());
        assert_eq!(changes.count(), 1);
    }
}
