//! `dovetail top`: a server's figures and decisions in a terminal, from `/stats` of its admin port.
//!
//! ```text
//!  GET /stats ─▶ JSON ─┐
//!  the one before ─────┴─▶ screen: text ─▶ terminal, once a second
//! ```

mod screen;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use crate::cli::one_line;
use crate::failure::{Failure, print};
use crate::http;

/// What `dovetail top` takes.
#[derive(Debug, Args)]
struct TopArgs {
    /// The server's admin port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8379")]
    admin: SocketAddr,

    /// Print two looks, a second apart, as one screen and exit
    #[arg(long)]
    once: bool,
}

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Puts the cursor into the corner and clears what follows.
const HOME: &str = "\x1b[H\x1b[J";

/// The subcommand.
pub fn command() -> Command {
    TopArgs::augment_args(Command::new("top"))
        .about("Watch what a server does and decides, in a terminal")
}

/// Looks until interrupted, or twice.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = TopArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let is_once = args.once || !std::io::stdout().is_terminal();
    let mut before = look(args.admin)?;
    loop {
        std::thread::sleep(EVERY);
        let now = look(args.admin)?;
        let text = screen::text(&now, &before);
        if is_once {
            return print(&text);
        }
        print(&format!("{HOME}{text}"))?;
        before = now;
    }
}

fn look(admin: SocketAddr) -> Result<Value, Failure> {
    let failed = |reason: String| {
        Failure::Runtime(format!(
            "top: http://{admin}/stats: {reason}; name the server's --admin address with --admin"
        ))
    };
    let body = http::get(admin, "/stats").map_err(failed)?;
    serde_json::from_slice(&body).map_err(|error| failed(format!("no JSON: {error}")))
}
