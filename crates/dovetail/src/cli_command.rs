//! `dovetail cli`: sends one command to a server, or opens a prompt, over RESP or the native
//! protocol.
//!
//! ```text
//!  settings ─▶ address, password ─▶ way ─┐
//!  arguments ──────────────┐             │
//!  lines ─▶ split_words ────┴▶ session ◀──┘ ─▶ reply ─▶ raw, or as a terminal shows it
//!                              ├ RESP: the words as they are
//!                              └ native: an order, understood whole before anything is sent
//! ```

mod order;
mod prompt;
mod reply;
mod session;
mod way;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::reply::{Form, Reply};
use self::session::{NoReply, Session, Way};
use crate::failure::{Failure, print, print_bytes};
use crate::usage::one_line;

/// What `dovetail cli` takes.
#[derive(Debug, Args)]
struct CliArgs {
    /// The server: HOST:PORT, redis://USER:PASSWORD@HOST:PORT or rediss:// (RESP), or
    /// native://HOST:PORT or shm:PATH (the native protocol). Without it, the address in the
    /// settings
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,

    /// Speak the native protocol, to --native of the settings or 127.0.0.1:7379
    #[arg(long, conflicts_with = "target")]
    native: bool,

    /// The server's settings, for its address and password [env: DOVETAIL_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The server's --native-key-file
    #[arg(long, value_name = "FILE")]
    native_key_file: Option<PathBuf>,

    /// Use TLS: PEM file of the authority that signed the server's certificate
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// PEM file with a client certificate, for a server that requires one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Print values unformatted; the default unless standard output is a terminal
    #[arg(long)]
    raw: bool,

    /// Print types and quotes; the default on a terminal
    #[arg(long, conflicts_with = "raw")]
    no_raw: bool,

    /// The command to send; without it, commands are read line by line from standard input until
    /// its end or `quit`
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The subcommand.
pub fn command() -> Command {
    let commands = order::listing();
    CliArgs::augment_args(Command::new("cli"))
        .about("Send commands to a server, once or at a prompt")
        .override_usage("dovetail cli [OPTIONS] [COMMAND ARG...]")
        .after_help(format!(
            "Commands: any of the RESP port, as in redis-cli; `command docs NAME` describes \
             one.\nBy the native protocol:\n{commands}"
        ))
}

/// Runs one command, or each line of standard input until it ends.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = CliArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let words: Vec<Vec<u8>> = args.words.iter().cloned().map(OsString::into_vec).collect();
    if let [word] = words.as_slice()
        && word.eq_ignore_ascii_case(b"help")
    {
        return print(&order::listing());
    }
    let way = way::choose(&args)?;
    let is_raw = args.raw || (!args.no_raw && !std::io::stdout().is_terminal());
    let form = if is_raw { Form::Raw } else { Form::Typed };
    if words.is_empty() {
        return prompt::run(&mut Session::connect(way)?, form);
    }
    // Wrong words are reported before a connection is made.
    check(&way, &words).map_err(|reason| Failure::Usage(format!("cli: {reason}")))?;
    let reply = match Session::connect(way)?.ask(&words) {
        Ok(Reply::Error(reason)) | Err(NoReply::Asking(reason)) => {
            return Err(Failure::Runtime(reason));
        }
        Err(NoReply::Words(reason)) => return Err(Failure::Usage(format!("cli: {reason}"))),
        Ok(reply) => reply,
    };
    let mut out = Vec::new();
    reply.write(form, &mut out);
    print_bytes(&out)
}

fn check(way: &Way, words: &[Vec<u8>]) -> Result<(), String> {
    match way {
        Way::Native(..) => order::Order::from_words(words).map(drop).map_err(|it| it.to_string()),
        Way::Resp(_) => session::check_words(words).map_err(|error| match error {
            NoReply::Words(reason) | NoReply::Asking(reason) => reason,
        }),
    }
}
