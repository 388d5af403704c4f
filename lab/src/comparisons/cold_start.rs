//! `lab cold-start`: measures the time from a server's start to its first answer, over a log
//! of millions of entries, beside the time to read as many bytes of that file once.
//!
//! ```text
//!  fill ─▶ SIGTERM ─▶ for each case, by turns: leave as the case says
//!    ─▶ drop the page cache, or not ─▶ start, ask, stop ─▶ read as many bytes of the file
//! ```
//!
//! The case decides whether the file's pages are in memory, not the machine: for a cold start they
//! are dropped from the page cache by `dd oflag=nocache`, for this file alone.

mod load;
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use steps::server_binary;

use report::Row;
use server::{Files, Server};

/// What may be chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Items in the log
    #[arg(long, default_value_t = 10_000_000)]
    entries: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 64)]
    value_size: usize,
    /// How often each case is measured
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Milliseconds of writes before a kill
    #[arg(long, default_value_t = 2000)]
    writes: u64,
    /// Where the data directory is made; removed at the end
    #[arg(long, default_value = "target/cold-start")]
    directory: PathBuf,
    /// Further flags of the server, such as --threads 2
    #[arg(long, default_value = "--threads 2")]
    flags: String,
    /// A server that is built already
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

/// The end of the previous server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By SIGTERM.
    Clean,
    /// By SIGKILL, under writes.
    Torn,
}

/// One kind of start.
struct Case {
    name: &'static str,
    end: End,
    /// Whether the file's pages are in memory.
    is_warm: bool,
    flags: &'static str,
}

const CASES: &[Case] = &[
    Case { name: "clean, warm, checkpoint", end: End::Clean, is_warm: true, flags: ON },
    Case { name: "clean, warm", end: End::Clean, is_warm: true, flags: OFF },
    Case { name: "clean, cold, checkpoint", end: End::Clean, is_warm: false, flags: ON },
    Case { name: "clean, cold", end: End::Clean, is_warm: false, flags: OFF },
    Case { name: "torn, warm, checkpoint", end: End::Torn, is_warm: true, flags: ON },
    Case { name: "torn, warm", end: End::Torn, is_warm: true, flags: OFF },
];

const ON: &str = "--checkpoint 300s";
const OFF: &str = "--checkpoint off";

/// Measures, and writes `cold-start.md`.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let files = Files {
        binary: args.binary.clone().map_or_else(|| server_binary(root), Ok)?,
        directory: root.join(&args.directory),
        memory_bytes: (args.entries * (args.value_size as u64 + 136)).max(256 << 20),
    };
    std::fs::remove_dir_all(&files.directory).ok();
    std::fs::create_dir_all(&files.directory)?;
    let filled = fill(&files, args)?;
    println!("filled: {} items in {:.1} s", args.entries, filled.as_secs_f64());
    let mut rows: Vec<Row> = CASES.iter().map(|case| Row::new(case.name)).collect();
    for repetition in 1..=args.repetitions {
        for (case, row) in CASES.iter().zip(&mut rows) {
            measure(&files, args, case, row)?;
            println!("{repetition}: {}: {}", case.name, row.last());
        }
    }
    report::write(root, args, &rows)?;
    std::fs::remove_dir_all(&files.directory)?;
    Ok(())
}

fn fill(files: &Files, args: &Args) -> Result<Duration> {
    let server = Server::start(files, &format!("--durability none {}", args.flags))?;
    let time = load::fill(server.port, args.entries, args.value_size)?;
    server.stop()?;
    Ok(time)
}

fn measure(files: &Files, args: &Args, case: &Case, row: &mut Row) -> Result<()> {
    let flags = format!("{} {}", args.flags, case.flags);
    // The server is first ended in order with the case's flags, so that there is a checkpoint, or
    // none, before the end that the case specifies.
    Server::start(files, &flags)?.stop()?;
    let server = Server::start(files, &flags)?;
    match case.end {
        End::Clean => server.stop()?,
        End::Torn => {
            let writes = Duration::from_millis(args.writes);
            load::overwrite(server.port, (args.entries, args.value_size), writes)?;
            server.kill()?;
        }
    }
    if case.is_warm {
        files.read(u64::MAX)?;
    } else {
        files.drop_from_cache()?;
    }
    let server = Server::start(files, &flags)?;
    let start = server.start.clone();
    server.stop()?;
    if !case.is_warm {
        files.drop_from_cache()?;
    }
    let read = files.read(start.bytes)?;
    row.push(start, read);
    Ok(())
}
