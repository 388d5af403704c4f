//! The command line: the subcommands.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::failure::{Failure, note, print};
use crate::flags::with_settings;
use crate::usage::one_line;
use crate::{
    backup_command, check_command, cli_command, cluster_command, cm_command, compare_command,
    config_command, doctor, migrate_command, plan_command, serve as serving, shell_command,
    sim_command, top_command,
};

/// Parses the command line and runs the named subcommand.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let mut command = command();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let matches = match command.try_get_matches_from_mut(&arguments) {
        Ok(matches) => matches,
        Err(error) => return usage(&error, flags_to_list(&command, &arguments).as_deref()),
    };
    match matches.subcommand() {
        Some(("serve", matches)) => serving::run(matches),
        Some(("cm", matches)) => cm_command::run(matches),
        Some(("cluster", matches)) => cluster_command::run(matches),
        Some(("cli", matches)) => cli_command::run(matches),
        Some(("bench", matches)) if compare_command::is_wanted(matches) => {
            compare_command::run(matches, &arguments)
        }
        Some(("bench", matches)) => run_bench(matches),
        Some(("sim", matches)) => sim_command::run(matches),
        Some(("plan", matches)) => plan_command::run(matches),
        Some(("config", matches)) => config_command::run(matches),
        Some(("migrate", matches)) => migrate_command::run(matches),
        Some(("backup", matches)) => backup_command::run(matches),
        Some(("check", matches)) => check_command::run(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("top", matches)) => top_command::run(matches),
        Some(("completions", matches)) => shell_command::completions(matches, self::command()),
        Some(("man", matches)) => shell_command::man(matches, self::command()),
        _ => {
            // Help goes to standard error, because the user did not ask for it.
            note(command.render_help().to_string().trim_end());
            Err(Failure::Silent(2))
        }
    }
}

fn run_bench(matches: &ArgMatches) -> Result<(), Failure> {
    let args = bench::Args::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    bench::run(args).map_err(|error| match error.exit_code() {
        2 => Failure::Usage(error.to_string()),
        _ => Failure::Runtime(error.to_string()),
    })
}

fn command() -> Command {
    Command::new("dovetail")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An in-memory key-value store for Redis and memcached clients")
        .disable_help_subcommand(true)
        .subcommand(
            with_settings(Command::new("serve")).about("Run the server").arg(
                Arg::new("print-config")
                    .long("print-config")
                    .action(ArgAction::SetTrue)
                    .help("Print the effective settings as TOML and exit"),
            ),
        )
        .subcommand(cm_command::command())
        .subcommand(cluster_command::command())
        .subcommand(cli_command::command())
        .subcommand(
            compare_command::with_options(bench::Args::augment_args(Command::new("bench")))
                .about("Measure a server, or the store in this process"),
        )
        .subcommand(sim_command::command())
        .subcommand(plan_command::command())
        .subcommand(config_command::command())
        .subcommand(migrate_command::command())
        .subcommand(backup_command::command())
        .subcommand(check_command::command())
        .subcommand(top_command::command())
        .subcommand(doctor::command())
        .subcommand(shell_command::completions_command())
        .subcommand(shell_command::man_command())
}

/// The flags of the subcommand, if they are few enough for one line.
fn flags_to_list(command: &Command, arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().skip(1).map_while(|word| word.to_str());
    let first = words.next().filter(|word| matches!(*word, "sim" | "plan"))?;
    let mut meant = command.find_subcommand(first)?;
    if let Some(inner) = words.next().and_then(|word| meant.find_subcommand(word)) {
        meant = inner;
    }
    let flags = meant.get_arguments().filter_map(|argument| argument.get_long());
    Some(flags.map(|flag| format!("--{flag}")).collect::<Vec<_>>().join(", "))
}

/// Help and version go to standard output; everything else is one line on standard error.
fn usage(error: &clap::Error, flags: Option<&str>) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&error.render().to_string()),
        _ => Err(Failure::Usage(one_line(error, flags))),
    }
}
