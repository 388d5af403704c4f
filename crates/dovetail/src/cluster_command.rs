//! `dovetail cluster`: an operator's commands to the leading manager.
//!
//! ```text
//!  status              which nodes are there, what each serves, what lacks copies or moves
//!  move SHARD NODE     served there from now on
//!  drain NODE          until it may stop
//!  abandon SHARD|lost  served again, empty, where no copy is left
//!  add                 what to start on a new machine
//!  pause, resume       moving by load, and new copies
//! ```

use std::fmt::Write;
use std::time::Duration;

use base::parse_duration;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use cluster_io::admin::{self, NodeReport, Question, Reply, Report, ShardReport};
use cluster_io::quorum::QuorumPlace;
use cluster_io::{Key, Place};
use std::path::PathBuf;

use crate::cm_command;
use crate::failure::{Failure, print};
use crate::usage::one_line;

/// What all of them take.
#[derive(Debug, Args)]
struct Common {
    /// The cluster's config store: zk://HOST:PORT,HOST:PORT/PATH, file:///DIR, or
    /// quorum://HOST,HOST,HOST/NAME
    #[arg(
        long,
        value_name = "URL",
        env = "DOVETAIL_CONFIG_STORE",
        required_unless_present = "join",
        conflicts_with = "join"
    )]
    config_store: Option<String>,

    /// The servers that keep the configuration, as they were given to serve
    #[arg(long, value_name = "HOST,HOST,HOST", env = "DOVETAIL_JOIN", requires = "cluster")]
    join: Option<String>,

    /// The cluster's name; with --join
    #[arg(long, value_name = "NAME", env = "DOVETAIL_CLUSTER")]
    cluster: Option<String>,

    /// File with the cluster's key, as it was given to serve; with --join
    #[arg(long, value_name = "PATH", env = "DOVETAIL_CLUSTER_KEY")]
    cluster_key: Option<PathBuf>,

    /// Print the manager's answer as JSON
    #[arg(long)]
    json: bool,

    /// Give up after this time without an answer
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    timeout: Duration,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the nodes, the shards of each, missing copies and moves under way
    Status {
        #[command(flatten)]
        common: Common,
        /// Also print one line for each shard
        #[arg(long)]
        shards: bool,
    },
    /// Move the primary of a shard to another node
    Move {
        /// The shard's number, from `status --shards`
        #[arg(value_name = "SHARD")]
        shard: u16,
        /// The node: n3, n3.1 or its HOST:PORT
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        common: Common,
    },
    /// Move all shards away from a node, and report when it may be stopped
    Drain {
        /// The node: n3, n3.1 or its HOST:PORT
        #[arg(value_name = "NODE")]
        node: String,
        /// Return without waiting until the node may be stopped
        #[arg(long)]
        no_wait: bool,
        /// Cancel the drain of a node
        #[arg(long, conflicts_with = "no_wait")]
        cancel: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Serve shards whose last copies are gone again, empty
    Abandon {
        /// The shards' numbers; `lost`: all shards of which no copy can come back
        #[arg(value_name = "SHARD|lost", required = true)]
        shards: Vec<String>,
        /// Also shards of which an absent server may have a copy: that copy is dropped
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Print the command that adds a node
    Add {
        #[command(flatten)]
        common: Common,
    },
    /// Print a new key for --cluster-key of all servers of a --join list
    Key,
    /// Pause automatic moves and new copies
    Pause {
        #[command(flatten)]
        common: Common,
    },
    /// Resume automatic moves and new copies
    Resume {
        #[command(flatten)]
        common: Common,
    },
}

/// Interval between two checks of a node that leaves.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The subcommand.
pub fn command() -> Command {
    Action::augment_subcommands(Command::new("cluster"))
        .about("Show a cluster's state and move its shards")
        .subcommand_required(true)
        .disable_help_subcommand(true)
}

/// Sends the request to the manager and prints the answer.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let action = Action::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    match action {
        Action::Status { common, shards } => match asked(&common, &Question::Status)? {
            Reply::Status(report) if !common.json => {
                print(&text(&report, shards))?;
                health(&report)
            }
            reply => told(&common, &reply),
        },
        Action::Move { shard, node, common } => {
            told(&common, &asked(&common, &Question::Move { shard, node })?)
        }
        Action::Drain { node, no_wait, cancel, common } => {
            let question = Question::Drain { node: node.clone(), leaves: !cancel };
            told(&common, &asked(&common, &question)?)?;
            if no_wait || cancel { Ok(()) } else { wait(&common, &question) }
        }
        Action::Abandon { shards, force, common } => {
            let question = Question::Abandon { shards: numbers(&shards)?, is_forced: force };
            told(&common, &asked(&common, &question)?)
        }
        Action::Add { common } => add(&common),
        Action::Key => print_key(),
        Action::Pause { common } => {
            told(&common, &asked(&common, &Question::Pause { is_paused: true })?)
        }
        Action::Resume { common } => {
            told(&common, &asked(&common, &Question::Pause { is_paused: false })?)
        }
    }
}

/// Parses the shard numbers; none for `lost`.
fn numbers(shards: &[String]) -> Result<Vec<u16>, Failure> {
    if shards == ["lost"] {
        return Ok(Vec::new());
    }
    let number = |text: &String| {
        text.parse().map_err(|_| {
            Failure::Usage(format!("`{text}` is no shard: give numbers from 0, or `lost` alone"))
        })
    };
    shards.iter().map(number).collect()
}

fn place(common: &Common) -> Result<Place, Failure> {
    let Some(list) = &common.join else {
        return cm_command::place(common.config_store.as_deref().unwrap_or_default());
    };
    let place = QuorumPlace::new(common.cluster.as_deref().unwrap_or_default(), list)
        .map_err(|error| Failure::Usage(format!("--cluster, --join: {error}")))?;
    Ok(Place::Quorum(QuorumPlace { key_file: common.cluster_key.clone(), ..place }))
}

/// Prints a new key for `--cluster-key`.
fn print_key() -> Result<(), Failure> {
    let key = Key::random().map_err(|error| Failure::Runtime(format!("cluster key: {error}")))?;
    print(&format!("{}\n", key.to_hex()))
}

fn asked(common: &Common, question: &Question) -> Result<Reply, Failure> {
    let reply = admin::ask(&place(common)?, question, common.timeout);
    reply.map_err(|error| Failure::Runtime(format!("cluster: {error}")))
}

fn told(common: &Common, reply: &Reply) -> Result<(), Failure> {
    if common.json {
        let line = serde_json::to_string(reply)
            .map_err(|error| Failure::Runtime(format!("cluster: {error}")))?;
        print(&format!("{line}\n"))?;
    }
    match reply {
        Reply::Refused(line) => Err(Failure::Runtime(format!("cluster: {line}"))),
        Reply::Status(report) => health(report),
        Reply::Done(line) if !common.json => print(&format!("{line}\n")),
        _ => Ok(()),
    }
}

/// Repeats the request until the node may stop, so that a manager that takes over learns of it too.
fn wait(common: &Common, question: &Question) -> Result<(), Failure> {
    let mut last = String::new();
    loop {
        std::thread::sleep(LOOK_PAUSE);
        match asked(common, question)? {
            Reply::Done(line) => {
                if line != last && !common.json {
                    print(&format!("{line}\n"))?;
                }
                if line.ends_with("may stop") {
                    return told_last(common, line);
                }
                last = line;
            }
            reply => return told(common, &reply),
        }
    }
}

fn told_last(common: &Common, line: String) -> Result<(), Failure> {
    if common.json { told(common, &Reply::Done(line)) } else { Ok(()) }
}

fn add(common: &Common) -> Result<(), Failure> {
    let place = place(common)?;
    let cluster = match (&common.config_store, &place) {
        (_, Place::Quorum(quorum)) => {
            let key = quorum
                .key_file
                .as_ref()
                .map_or_else(String::new, |file| format!(" --cluster-key {}", file.display()));
            format!("--cluster {} --join {}{key}", quorum.name, quorum.members.join(","))
        }
        (Some(url), _) => format!("--cluster '{url}'"),
        (None, _) => format!("--cluster '{place}'"),
    };
    let lines = format!(
        "# On the new machine; it is given copies as soon as the manager hears of it:\n\
         dovetail serve {cluster} --resp 0.0.0.0:6379 \\\n    \
         --peer 0.0.0.0:16379 --advertise HOST\n"
    );
    if common.json {
        let line = serde_json::json!({ "config_store": place.to_string(), "command": lines });
        return print(&format!("{line}\n"));
    }
    print(&lines)
}

/// For scripts, the status is a failure if the cluster does not serve all shards.
fn health(report: &Report) -> Result<(), Failure> {
    match report.shards.iter().filter(|one| !one.is_served).count() {
        0 => Ok(()),
        unserved => {
            let all = report.shards.len();
            Err(Failure::Runtime(format!("cluster: {unserved} of {all} shards are not served")))
        }
    }
}

/// One line for each shard that no node has, with the remedy.
fn lost(report: &Report) -> String {
    let mut out = String::new();
    let lost = report.shards.iter().filter(|one| one.is_lost);
    let (gone, away): (Vec<_>, Vec<_>) = lost.partition(|one| one.away.is_empty());
    if !gone.is_empty() {
        let _ = writeln!(
            out,
            "lost: {} shards; their servers have all started again without them: \
             `dovetail cluster abandon lost` serves them empty",
            gone.len()
        );
    }
    if !away.is_empty() {
        let mut nodes: Vec<&str> =
            away.iter().flat_map(|one| one.away.iter().map(String::as_str)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let _ = writeln!(
            out,
            "away: {} shards wait for {}: start these, or see `dovetail cluster abandon --help`",
            away.len(),
            nodes.join(", "),
        );
    }
    out
}

fn text(report: &Report, with_shards: bool) -> String {
    let mut out = String::new();
    let is_lacking = |full: usize| full < usize::from(report.copies);
    let under = report.shards.iter().filter(|one| is_lacking(one.full_copies)).count();
    let unserved = report.shards.iter().filter(|one| !one.is_served).count();
    let state = match (report.is_committed, unserved) {
        (false, _) => "being installed".to_owned(),
        (true, 0) => "all shards are served".to_owned(),
        (true, count) => format!("{count} of {} shards are not served", report.shards.len()),
    };
    let paused = if report.is_paused { ", paused" } else { "" };
    // Writing to a String does not fail.
    let _ = writeln!(out, "cluster {}: term {}, {state}{paused}", report.name, report.term);
    let _ = writeln!(
        out,
        "shards {}: {under} with fewer than {} copies, {unserved} without a primary, {} moves wait",
        report.shards.len(),
        report.copies,
        report.moves_waiting,
    );
    out.push_str(&lost(report));
    let head = ["node", "peer", "resp", "serves", "copies", "joining", "req/s"];
    let [node, peer, resp, serves, copies, joining, rate] = head;
    let _ = writeln!(
        out,
        "{node:<8} {peer:<24} {resp:>6} {serves:>7} {copies:>7} {joining:>8} {rate:>10}"
    );
    report.nodes.iter().for_each(|one| node_line(one, &mut out));
    report.shards.iter().for_each(|one| {
        shard_line(one, with_shards || is_lacking(one.full_copies), &mut out);
    });
    out
}

fn node_line(one: &NodeReport, out: &mut String) {
    let state = match (one.leaves, one.may_stop) {
        (true, true) => "  may stop",
        (true, false) => "  leaves",
        _ => "",
    };
    let _ = writeln!(
        out,
        "{:<8} {:<24} {:>6} {:>7} {:>7} {:>8} {:>10.0}{state}",
        one.node, one.peer, one.resp, one.primaries, one.backups, one.joining, one.requests_per_s,
    );
}

/// Omits a healthy shard, unless all are wanted.
fn shard_line(one: &ShardReport, is_wanted: bool, out: &mut String) {
    let change = match (&one.joining, &one.filling_from) {
        (Some(node), _) => format!("  {node} joins"),
        (None, Some(node)) => format!("  fills from {node}"),
        (None, None) => String::new(),
    };
    if !is_wanted && change.is_empty() && one.is_served {
        return;
    }
    let progress = match (change.is_empty(), one.left_s) {
        (false, Some(left_s)) => {
            format!(", {} of {} keys, {left_s:.0} s left", one.copied, one.entries)
        }
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "shard {} ({}-{}): {} + {} epoch {}{change}{progress}",
        one.shard,
        one.slots.0,
        one.slots.1,
        one.primary,
        one.backups.join(" "),
        one.epoch,
    );
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_is_as_it_should_be_has_no_line() {
        let shard = |shard, full_copies| ShardReport {
            shard,
            slots: (0, 9),
            primary: "n1.1".to_owned(),
            is_served: true,
            backups: vec!["n2.1".to_owned()],
            full_copies,
            ..ShardReport::default()
        };
        let node = NodeReport { node: "n1.1".to_owned(), leaves: true, ..NodeReport::default() };
        let mut report = Report {
            name: "test".to_owned(),
            term: 7,
            is_committed: true,
            copies: 2,
            nodes: vec![node],
            shards: vec![shard(0, 2), shard(1, 1)],
            ..Report::default()
        };
        report.shards[1].joining = Some("n3.1".to_owned());
        (report.shards[1].entries, report.shards[1].copied) = (100, 50);
        report.shards[1].left_s = Some(2.0);
        let found = text(&report, false);
        assert!(found.starts_with("cluster test: term 7, all shards are served\n"), "{found}");
        assert!(found.contains("shards 2: 1 with fewer than 2 copies, 0 without"), "{found}");
        assert!(!found.contains("shard 0") && found.contains("  leaves\n"), "{found}");
        let want = "shard 1 (0-9): n1.1 + n2.1 epoch 0  n3.1 joins, 50 of 100 keys, 2 s left\n";
        assert!(found.ends_with(want), "{found}");
        assert!(text(&report, true).contains("shard 0"));
    }

    #[test]
    fn a_shard_without_a_copy_is_named_with_what_to_do() {
        let lost = |away: &[&str]| ShardReport {
            is_lost: true,
            away: away.iter().map(|node| (*node).to_owned()).collect(),
            ..ShardReport::default()
        };
        let shards = vec![lost(&[]), lost(&["n2.1", "n3.4"]), lost(&["n2.1"])];
        let report = Report { shards, ..Report::default() };
        let found = text(&report, false);
        assert!(found.contains("\nlost: 1 shards;") && found.contains("abandon lost"), "{found}");
        assert!(found.contains("\naway: 2 shards wait for n2.1, n3.4:"), "{found}");
        assert!(health(&report).is_err() && health(&Report::default()).is_ok());
    }

    #[test]
    fn shards_are_numbers_or_lost() {
        assert_eq!(numbers(&["lost".to_owned()]).ok(), Some(Vec::new()));
        assert_eq!(numbers(&["3".to_owned(), "7".to_owned()]).ok(), Some(vec![3, 7]));
        assert!(numbers(&["x".to_owned()]).is_err());
    }
}
