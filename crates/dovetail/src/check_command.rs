//! `dovetail check DIR`: reads a data directory without a server and reports its contents and any
//! damage.
//!
//! ```text
//!  DIR/log, DIR/checkpoint ─▶ server::check_data ─▶ table on standard output, damage line by line
//! ```
//!
//! Exit status 0: every acknowledged write is there; 1: something is damaged, or the directory
//! cannot be read; 2: bad usage. A checkpoint that the next start ignores is not damage: the log
//! contains everything in it.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

use base::ByteSize;
use clap::{Arg, ArgMatches, Command};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use server::{CheckpointState, DataReport};

use crate::failure::{Failure, print};

/// Most lines of damage to print.
const DAMAGE_SHOWN_MAX: usize = 100;

/// The subcommand.
pub fn command() -> Command {
    Command::new("check")
        .about("Check a data directory that is not in use; exit status 1 if something is damaged")
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The server's --data-dir"),
        )
}

/// Reads everything, changes nothing.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = matches.get_one::<PathBuf>("dir").expect("it is required");
    let failed =
        |reason: String| Failure::Runtime(format!("check {}: {reason}", directory.display()));
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} segments {bar:40} {eta}") {
        bar.set_style(style);
    }
    let report = server::check_data(directory, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.map_err(&failed)?;
    let node = server::check_node(directory).map_err(&failed)?;
    print(&table(&report, node.as_deref()))?;
    if let CheckpointState::Wrong { keys } = report.checkpoint {
        return Err(failed(format!(
            "the checkpoint contradicts the log at {keys} keys; remove the file checkpoint, and \
             the next start builds the index from the log"
        )));
    }
    match report.found.damage.len() {
        0 => Ok(()),
        count => Err(failed(format!(
            "{count} places are damaged; serve --recover-damaged starts without them"
        ))),
    }
}

fn checkpoint_line(report: &DataReport) -> String {
    match &report.checkpoint {
        CheckpointState::None => "none: the next start builds the index from the log".to_owned(),
        CheckpointState::Unusable(error) => {
            format!("not used: {error}; the next start builds the index from the log")
        }
        CheckpointState::Good { named, covered_bytes } => {
            let later = report.found.entry_bytes.saturating_sub(*covered_bytes);
            format!("good: {named} entries; {later} bytes are later; serve --checkpoint uses it")
        }
        CheckpointState::Wrong { keys } => format!("wrong: it contradicts the log at {keys} keys"),
    }
}

fn table(report: &DataReport, node: Option<&str>) -> String {
    let DataReport { superblock, found, .. } = report;
    let size = |bytes| ByteSize { bytes }.to_string();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<16} {value}");
    };
    if let Some(node) = node {
        line("of", node.to_owned());
    }
    line("format", server::DATA_FORMAT.to_string());
    line("closed cleanly", if found.was_clean { "yes" } else { "no" }.to_owned());
    line("segment", size(superblock.segment_bytes));
    line(
        "segments",
        format!(
            "{}: {} free, {} full, {} open",
            superblock.segment_count,
            report.free_segments,
            report.closed_segments,
            report.open_segments
        ),
    );
    line("entries", format!("{} ({} bytes)", found.entries, found.entry_bytes));
    line("items", format!("{} ({} bytes)", found.items, report.live_bytes));
    line("expired", report.expired.to_string());
    line("deletes", found.deletes.to_string());
    let dead = found.entry_bytes.saturating_sub(report.live_bytes);
    line("dead", format!("{dead} bytes, deletes among them"));
    line("newest version", found.newest_version.to_string());
    line("torn tails", format!("{} ({} bytes)", found.torn_tails, found.torn_bytes));
    line("checkpoint", checkpoint_line(report));
    line("damaged", found.damage.len().to_string());
    for damage in found.damage.iter().take(DAMAGE_SHOWN_MAX) {
        line("  ", damage.to_string());
    }
    text
}
