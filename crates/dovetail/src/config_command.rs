//! `dovetail config`: prints the effective settings, checks a configuration file without starting a
//! server, and translates the configuration of Redis or memcached.

mod import;

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::failure::{Failure, print};
use crate::flags;
use crate::machine::Machine;
use crate::settings::print::{Listing, toml};
use crate::settings::{ServeSettings, file, layers, settle};

/// The subcommand and its own subcommands.
pub fn command() -> Command {
    let show = flags::with_settings(Command::new("show"))
        .about("Print the settings that `serve` with the same flags would use")
        .arg(
            Arg::new("origin")
                .long("origin")
                .action(ArgAction::SetTrue)
                .help("Show where each value comes from"),
        );
    let check = Command::new("check")
        .about("Check a configuration file; exit status 0 if it is valid, else 2")
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The configuration file (TOML)"),
        );
    Command::new("config")
        .about("Show, check or import settings")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(show)
        .subcommand(check)
        .subcommand(import::command())
}

/// Runs `config show`, `config check` or `config import`.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let machine = Machine::detect();
    match matches.subcommand() {
        Some(("check", matches)) => {
            let path = matches.get_one::<PathBuf>("file").cloned().unwrap_or_default();
            let entries = file::load(Some(&path))?;
            let mut settings = layers::combine(&Default::default(), &|_| None, &entries)?;
            settle::settle(&mut settings, &machine);
            ServeSettings::new(&settings, Some(path.clone()), &machine)?;
            print(&format!("{}: ok\n", path.display()))
        }
        Some(("import", matches)) => import::run(matches, &machine),
        Some((_, matches)) => {
            let gathered = flags::gather(matches, &machine)?;
            let listing =
                if matches.get_flag("origin") { Listing::WithOrigin } else { Listing::Masked };
            print(&toml(&gathered.settings, listing))
        }
        None => {
            Err(Failure::Usage("config: write `show`, `check FILE` or `import FILE`".to_owned()))
        }
    }
}
