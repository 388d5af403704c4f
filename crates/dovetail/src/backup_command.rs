//! `dovetail backup`: copies a data directory while its server keeps running.
//!
//! ```text
//!  DIR/log ─▶ server::backup_data ─▶ TO/log.new ─ sync ─▶ TO/log ─▶ server::check_data
//! ```
//!
//! Exit status 0: the copy is complete; 1: the copy could not be made, or the source data is
//! damaged; 2: bad usage. docs/design/durability.md lists what the copy contains.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::ByteSize;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::{Failure, print};
use crate::usage::one_line;

/// What `dovetail backup` takes.
#[derive(Debug, Args)]
struct BackupArgs {
    /// The server's --data-dir
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// Target directory, empty or not existing yet; a server can start from it
    #[arg(long, value_name = "DIR")]
    to: PathBuf,

    /// Maximum number of segments a second, to leave bandwidth of the disk to the server; `dovetail
    /// check` shows the size of a segment
    #[arg(long, value_name = "SEGMENTS", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
}

/// The subcommand.
pub fn command() -> Command {
    BackupArgs::augment_args(Command::new("backup"))
        .about("Back up a data directory while its server runs, and check the copy")
}

/// Copies, then reads the copy from end to end.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = BackupArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let BackupArgs { data_dir, to, rate } = args;
    let failed = |reason: String| {
        let (from, to) = (data_dir.display(), to.display());
        Failure::Runtime(format!("backup {from} to {to}: {reason}"))
    };
    if is_inside(&to, &data_dir) {
        return Err(Failure::Usage(format!(
            "backup --to {}: it lies in the data directory; name one outside of {}",
            to.display(),
            data_dir.display()
        )));
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{msg} {pos}/{len} segments {bar:40} {eta}") {
        bar.set_style(style);
    }
    bar.set_message("copied");
    let began = Instant::now();
    let pause = rate.map(|rate| Duration::from_secs_f64(1.0 / rate as f64));
    let copied = server::backup_data(&data_dir, &to, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if let Some(pause) = pause {
            std::thread::sleep(pause);
        }
    })
    .map_err(&failed)?;
    bar.set_message("checked");
    let items = check(&to, &bar).map_err(&failed)?;
    bar.finish_and_clear();
    let size = ByteSize { bytes: copied.bytes };
    let seconds = began.elapsed().as_secs_f64();
    let parts = match copied.has_parts {
        true => "; commits came too fast: an MSET or a RENAME of that time may be there in part",
        false => "",
    };
    print(&format!(
        "{}: {items} items, {} segments, {size} in {} rounds, {seconds:.1} s; whole by its \
         check{parts}\n",
        to.display(),
        copied.segments,
        copied.rounds,
    ))
}

/// Whether a path, whose last parts may not exist yet, is a directory or lies in it.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    let Ok(path) = std::path::absolute(path) else { return false };
    let found = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    found.is_some_and(|ancestor| ancestor.starts_with(directory))
}

/// Checks that a server could start from the copy; returns its items.
fn check(to: &Path, bar: &ProgressBar) -> Result<u64, String> {
    let report = server::check_data(to, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    match report.found.damage.first() {
        None => Ok(report.found.items),
        Some(first) => Err(format!(
            "the copy has {} damaged places, as has what was copied: {first}; `dovetail check` \
             shows them all",
            report.found.damage.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_data_directory_is_told_however_it_is_spelt() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        std::fs::create_dir_all(data.join("sub")).unwrap();
        std::os::unix::fs::symlink(&data, root.path().join("link")).unwrap();
        for inside in ["data", "data/new", "data/sub/a/b", "link/new", "data/../data/x"] {
            assert!(is_inside(&root.path().join(inside), &data), "{inside}");
        }
        for outside in ["", "other", "data-2", "other/data/x"] {
            assert!(!is_inside(&root.path().join(outside), &data), "{outside}");
        }
    }
}
