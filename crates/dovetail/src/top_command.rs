//! `dovetail top`: shows a server's figures and decisions in a terminal, from `/stats` of its admin
//! port.
//!
//! ```text
//!  GET /stats ─▶ JSON ─┐
//!  the one before ─────┴─▶ screen: text ─▶ terminal, once a second
//! ```

mod screen;

use std::env::VarError;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use crate::failure::{Failure, print};
use crate::flags::NO_TEXT;
use crate::http::AdminPort;
use crate::usage::one_line;

/// What `dovetail top` takes.
#[derive(Debug, Args)]
struct TopArgs {
    /// The server's admin port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8379")]
    admin: SocketAddr,

    /// Use TLS: PEM file with the port's certificate, or with the authority that signed it
    #[arg(long, value_name = "PATH")]
    tls_ca: Option<PathBuf>,

    /// Log in as this user, which needs the right to run INFO; the password is read from
    /// DOVETAIL_ADMIN_PASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Print one screen, computed over one second, and exit
    #[arg(long)]
    once: bool,
}

/// Interval between two requests.
const EVERY: Duration = Duration::from_secs(1);

/// Moves the cursor to the corner and clears the rest.
const HOME: &str = "\x1b[H\x1b[J";

/// The subcommand.
pub fn command() -> Command {
    TopArgs::augment_args(Command::new("top"))
        .about("Show a server's activity and decisions live in a terminal")
}

/// Refreshes until interrupted, or prints one screen from two requests.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = TopArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let port = port_of(&args)?;
    let is_once = args.once || !std::io::stdout().is_terminal();
    let mut before = look(&port)?;
    loop {
        std::thread::sleep(EVERY);
        let now = look(&port)?;
        let text = screen::text(&now, &before);
        if is_once {
            return print(&text);
        }
        print(&format!("{HOME}{text}"))?;
        before = now;
    }
}

fn port_of(args: &TopArgs) -> Result<AdminPort, Failure> {
    let password = match std::env::var("DOVETAIL_ADMIN_PASSWORD") {
        Err(VarError::NotUnicode(_)) => {
            return Err(Failure::Usage(format!("DOVETAIL_ADMIN_PASSWORD: {NO_TEXT}")));
        }
        found => found.ok(),
    };
    let login = match (&args.user, password) {
        (None, None) => None,
        (Some(_), None) => {
            let text = "top: --user needs the password in DOVETAIL_ADMIN_PASSWORD";
            return Err(Failure::Usage(text.to_owned()));
        }
        (user, Some(password)) => {
            Some(format!("{}:{password}", user.as_deref().unwrap_or("default")))
        }
    };
    if login.is_some() && args.tls_ca.is_none() && !args.admin.ip().to_canonical().is_loopback() {
        let text = "top: the password would cross the network in the clear; give --tls-ca PATH";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(AdminPort { address: args.admin, tls: args.tls_ca.clone(), login })
}

fn look(port: &AdminPort) -> Result<Value, Failure> {
    let failed = |reason: String| {
        let scheme = if port.tls.is_some() { "https" } else { "http" };
        Failure::Runtime(format!(
            "top: {scheme}://{}/stats: {reason}; name the server's --admin address with --admin, \
             its certificate with --tls-ca, and a user with --user",
            port.address
        ))
    };
    let body = port.get("/stats").map_err(failed)?;
    serde_json::from_slice(&body).map_err(|error| failed(format!("no JSON: {error}")))
}
