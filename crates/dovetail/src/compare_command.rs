//! `dovetail bench --compare PRESET,...`: puts one load on a server of each preset, in turns.
//! `--ablate` compares the default, and the default without each of its parts.
//!
//! ```text
//!  round 1   serve A ◀─ bench ─   serve B ◀─ bench ─   serve C ◀─ bench ─
//!  round 2   serve B ◀─ bench ─   serve C ◀─ bench ─   serve A ◀─ bench ─
//!   ...                                                         │
//!  ratios to A, each from one round: what the machine does in between hits all of them alike
//! ```
//!
//! # Invariants
//! I1: all servers run throughout, and only the measured one is loaded: an idle server sleeps.
//! I2: every server gets the same keys before its first window, and the same load.
//! I3: all servers have as many threads, as much memory, the same mode and way to wait.
//! I4: a server that this process started ends with the comparison, however the comparison ends.

mod ablation;
mod effective;
mod report;
mod servers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command as ClapCommand};
use serde_json::Value;

use crate::failure::{Failure, note, print};
use crate::settings::presets;
use servers::Running;

/// Options of this command with a value; they are not passed to the runs.
const OWN_OPTIONS: [&str; 4] = ["--compare", "--rounds", "--serve", "--json"];

/// Options of this command without a value.
const OWN_SWITCH: &str = "--ablate";

/// Adds the options to those of `bench`.
pub fn with_options(command: ClapCommand) -> ClapCommand {
    const HEADING: &str = "Comparison";
    command
        .arg(
            Arg::new("compare")
                .long("compare")
                .value_name("PRESET,PRESET,...")
                .value_delimiter(',')
                .help_heading(HEADING)
                .help("Start a server of each preset and run this load against each in turn"),
        )
        .arg(
            Arg::new("ablate")
                .long("ablate")
                .action(ArgAction::SetTrue)
                .conflicts_with("compare")
                .help_heading(HEADING)
                .help(
                    "Start a server with the settings of --serve, another one as a control, and \
                     one more without each part that those settings have on, and compare them",
                ),
        )
        .arg(
            Arg::new("rounds")
                .long("rounds")
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..=1000))
                .default_value("5")
                .help_heading(HEADING)
                .help("compare: number of measurements of each"),
        )
        .arg(
            Arg::new("serve")
                .long("serve")
                .value_name("FLAGS")
                .allow_hyphen_values(true)
                .default_value("")
                .help_heading(HEADING)
                .help(
                    "compare: additional flags of every server, e.g. \"--threads 2 --memory 2g\"",
                ),
        )
}

/// Whether the user asked for a comparison.
pub fn is_wanted(matches: &ArgMatches) -> bool {
    is_ablation(matches)
        || (matches.contains_id("compare") && matches.get_many::<String>("compare").is_some())
}

fn is_ablation(matches: &ArgMatches) -> bool {
    matches!(matches.try_get_one::<bool>("ablate"), Ok(Some(true)))
}

/// A server of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    /// Its name in tables and messages.
    name: String,
    preset: &'static str,
    /// Further flags of `serve`.
    flags: Vec<String>,
}

/// The result of one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    ops_per_second: f64,
    server_cpu_ns: Option<f64>,
    p50_us: f64,
    p99_us: f64,
}

/// Runs the comparison; `arguments` is the whole command line.
pub fn run(matches: &ArgMatches, arguments: &[OsString]) -> Result<(), Failure> {
    let contenders = contenders(matches)?;
    if matches.value_source("target") == Some(ValueSource::CommandLine) {
        let reason = "a comparison starts its own servers: leave the target out";
        return Err(Failure::Usage(reason.to_owned()));
    }
    effective::refuse_unequal(&contenders)?;
    let rounds = matches.get_one::<u32>("rounds").copied().unwrap_or(5);
    let json = matches.get_one::<PathBuf>("json");
    let options = options_of_runs(arguments);
    let running: Result<Vec<_>, _> = contenders.iter().map(Running::start).collect();
    let running = running?;
    let names: Vec<&str> = contenders.iter().map(|contender| &*contender.name).collect();
    let mut found: Vec<Vec<Window>> = names.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..names.len() {
            let at = (turn + round as usize) % names.len();
            note(&format!("round {} of {rounds}: {}", round + 1, names[at]));
            let window = measure(&running[at], &options, round == 0)?;
            found[at].push(window);
        }
    }
    let table = report::table(&names, &found);
    if let Some(path) = json {
        write(path, &report::json(&names, &found))?;
        if path == Path::new("-") {
            // Standard output carries the JSON and nothing else.
            note(table.trim_end());
            return Ok(());
        }
    }
    print(&table)
}

/// The servers; the first is the reference for ratios.
fn contenders(matches: &ArgMatches) -> Result<Vec<Contender>, Failure> {
    let flags = matches.get_one::<String>("serve").map_or("", String::as_str);
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    if is_ablation(matches) {
        return ablation::contenders(&flags);
    }
    let of_preset = |name: &'static str| Contender {
        name: name.to_owned(),
        preset: name,
        flags: flags.clone(),
    };
    Ok(names(matches)?.into_iter().map(of_preset).collect())
}

fn names(matches: &ArgMatches) -> Result<Vec<&'static str>, Failure> {
    let wanted = matches.get_many::<String>("compare").into_iter().flatten();
    let names: Result<Vec<_>, _> =
        wanted.map(|name| presets::read(name).map(|preset| preset.name)).collect();
    let names = names.map_err(|reason| Failure::Usage(format!("--compare: {reason}")))?;
    if names.len() < 2 {
        return Err(Failure::Usage("--compare: write at least two presets".to_owned()));
    }
    match (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        Some(at) => Err(Failure::Usage(format!("--compare: `{}` stands there twice", names[at]))),
        None => Ok(names),
    }
}

/// The command line without the options of the comparison.
fn options_of_runs(arguments: &[OsString]) -> Vec<OsString> {
    let mut options = Vec::new();
    let mut words = arguments.iter().skip_while(|word| *word != "bench").skip(1);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (name, is_whole) = match text.split_once('=') {
            Some((name, _)) => (name, true),
            None => (&*text, false),
        };
        if name == OWN_SWITCH {
            continue;
        }
        if !OWN_OPTIONS.contains(&name) {
            options.push(word.clone());
        } else if !is_whole {
            words.next();
        }
    }
    options
}

/// One window against one server.
fn measure(server: &Running, options: &[OsString], is_first: bool) -> Result<Window, Failure> {
    let path = std::env::temp_dir().join(format!("dovetail-compare-{}.json", std::process::id()));
    let mut command = Command::new(servers::own_program()?);
    command.arg("bench").arg(server.target()).args(options);
    command.args(["--server-pid", &server.pid().to_string()]).arg("--json").arg(&path);
    if !is_first && !options.iter().any(|word| word == "--no-populate") {
        command.arg("--no-populate");
    }
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output();
    let output = output.map_err(|error| Failure::Runtime(format!("cannot run bench: {error}")))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let line = words.lines().last().unwrap_or_default();
        let line = line.strip_prefix("dovetail: ").unwrap_or(line);
        let message = format!("{}: {line}", server.name());
        return Err(match output.status.code() {
            Some(2) => Failure::Usage(message),
            _ => Failure::Runtime(message),
        });
    }
    let window = read(&path);
    // On an error only a temporary file is left over.
    let _ = std::fs::remove_file(&path);
    window.ok_or_else(|| Failure::Runtime(format!("{}: bench wrote no report", server.name())))
}

fn read(path: &Path) -> Option<Window> {
    let report: Value = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    let number = |place: &str| report.pointer(place).and_then(Value::as_f64);
    Some(Window {
        ops_per_second: number("/ops_per_second")?,
        server_cpu_ns: number("/server_cpu_ns_per_op"),
        p50_us: number("/latency_us/p50")?,
        p99_us: number("/latency_us/p99")?,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        return print(text);
    }
    std::fs::write(path, text)
        .map_err(|error| Failure::Runtime(format!("--json {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_get_the_load_and_not_what_is_about_the_comparison() {
        let line = "dovetail bench --compare a,b --keys 10 --rounds=3 --serve --threads=2 \
                    --json out --ablate --poll spin";
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let want = ["--keys", "10", "--poll", "spin"].map(OsString::from);
        assert_eq!(options_of_runs(&words), want);
    }
}
