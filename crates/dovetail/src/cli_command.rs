//! `dovetail cli`: one command for a server, or a prompt for many, over the native protocol.
//!
//! ```text
//!  arguments ──────────────┐
//!  lines ─▶ words ─▶ words ┴▶ order ─▶ client ─▶ reply ─▶ raw, or as a terminal shows it
//! ```
//!
//! An order is understood whole before anything is sent, so that a mistake costs no connection.

mod order;
mod prompt;
mod reply;
mod session;
mod words;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use client::{TagKey, Target};

use self::order::Order;
use self::reply::Form;
use self::session::Session;
use crate::cli::one_line;
use crate::failure::{Failure, print, print_bytes};

/// What `dovetail cli` takes.
#[derive(Debug, Args)]
struct CliArgs {
    /// The server: native://HOST:PORT or shm:PATH. The native protocol only: for resp:// take
    /// redis-cli
    #[arg(long, value_name = "TARGET", default_value = "native://127.0.0.1:7379")]
    target: String,

    /// The server's --native-key-file
    #[arg(long, value_name = "FILE")]
    native_key_file: Option<PathBuf>,

    /// Print values as they are, as is done where standard output is no terminal
    #[arg(long)]
    raw: bool,

    /// Print types and quotes, as is done at a terminal
    #[arg(long, conflicts_with = "raw")]
    no_raw: bool,

    /// What to ask; without it, lines are read from standard input until its end or `quit`
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The subcommand.
pub fn command() -> Command {
    CliArgs::augment_args(Command::new("cli"))
        .about("Ask a server, once or at a prompt")
        .override_usage("dovetail cli [OPTIONS] [COMMAND ARG...]")
        .after_help(format!("Commands:\n{}", order::listing()))
}

/// Asks once, or until the lines end.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = CliArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(format!("cli: {error}"));
    let target: Target = match args.target.parse() {
        Ok(target) => target,
        Err(_) if args.target.starts_with("resp:") => {
            let text = &args.target;
            let what = format!("--target {text}: RESP is not spoken here; take redis-cli, or");
            return Err(usage(&format!("{what} write native://HOST:PORT or shm:PATH")));
        }
        Err(error) => return Err(usage(&format!("--target: {error}"))),
    };
    let tag_key = args.native_key_file.as_deref().map(read_key).transpose()?;
    let is_raw = args.raw || (!args.no_raw && !std::io::stdout().is_terminal());
    let form = if is_raw { Form::Raw } else { Form::Typed };
    if args.words.is_empty() {
        return prompt::run(&mut Session::connect(target, tag_key)?, form);
    }
    let words: Vec<Vec<u8>> = args.words.into_iter().map(OsString::into_vec).collect();
    let order = Order::from_words(&words).map_err(|error| usage(&error))?;
    if let Order::Help = order {
        return print(&order::listing());
    }
    let reply = match Session::connect(target, tag_key)?.execute(&order) {
        Ok(reply) => reply,
        Err(error) => return Err(Failure::Runtime(error.to_string())),
    };
    let mut out = Vec::new();
    reply.write(form, &mut out);
    print_bytes(&out)
}

fn read_key(path: &Path) -> Result<TagKey, Failure> {
    let failed = |reason: String| {
        Failure::Usage(format!("cli: --native-key-file {}: {reason}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    TagKey::from_hex(&text).map_err(|error| failed(error.to_string()))
}
