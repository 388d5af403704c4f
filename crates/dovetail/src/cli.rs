//! The command line: subcommands, flags made from the settings table, and errors of one line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::failure::{Failure, note, print};
use crate::machine::Machine;
use crate::settings::layers::SettingError;
use crate::settings::{Kind, Layered, Setting, TABLE, file, layers, print as printing, settle};
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

/// Adds a flag for each row of the table, `--config`, `-v` and `-q`.
pub fn with_settings(command: Command) -> Command {
    let command = command
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Read settings from this TOML file [env: DOVETAIL_CONFIG]"),
        )
        .arg(
            Arg::new("verbose")
                .short('v')
                .action(ArgAction::Count)
                .help("Print more log lines; may be repeated"),
        )
        .arg(
            Arg::new("quiet")
                .short('q')
                .action(ArgAction::Count)
                .help("Print fewer log lines; may be repeated"),
        );
    TABLE.iter().fold(command, |command, setting| {
        let arg = Arg::new(setting.key)
            .long(setting.key)
            .value_name(setting.value_name)
            .help(printing::flag_help(setting));
        command.arg(match setting.kind {
            Kind::Switch => arg.num_args(0..=1).default_missing_value("on"),
            Kind::Choice(words) if words.contains(&"on") => {
                arg.num_args(0..=1).default_missing_value("on")
            }
            Kind::Secret => arg.allow_hyphen_values(true),
            _ => arg,
        })
    })
}

/// What is wrong with a variable that is not UTF-8.
pub const NO_TEXT: &str = "no text: write it in UTF-8";

/// The effective settings of all layers, and the file that was read.
pub struct Gathered {
    /// In the order of the table.
    pub settings: Vec<Layered>,
    /// The file of `--config`, `DOVETAIL_CONFIG` or the default path.
    pub config_file: Option<PathBuf>,
}

/// Combines flags, environment, file and defaults.
pub fn gather(matches: &ArgMatches, machine: &Machine) -> Result<Gathered, Failure> {
    let explicit = matches
        .get_one::<PathBuf>("config")
        .cloned()
        .or_else(|| std::env::var_os("DOVETAIL_CONFIG").map(PathBuf::from));
    let flags: BTreeMap<&'static str, String> = TABLE
        .iter()
        .filter_map(|row| Some((row.key, matches.get_one::<String>(row.key)?.clone())))
        .collect();
    gather_with(explicit, &flags, machine)
}

/// Combines these flags with that file.
pub fn gather_with(
    explicit: Option<PathBuf>,
    flags: &BTreeMap<&'static str, String>,
    machine: &Machine,
) -> Result<Gathered, Failure> {
    let entries = file::load(explicit.as_deref())?;
    for name in TABLE.iter().map(Setting::environment_name) {
        if std::env::var_os(&name).is_some_and(|text| text.to_str().is_none()) {
            return Err(SettingError { place: name, reason: NO_TEXT.to_owned() }.into());
        }
    }
    let environment = |name: &str| std::env::var(name).ok();
    let mut settings = layers::combine(flags, &environment, &entries)?;
    settle::settle(&mut settings, machine);
    let is_default_read = explicit.is_none() && !entries.is_empty();
    let config_file = explicit.or(is_default_read.then(|| PathBuf::from(file::DEFAULT_PATH)));
    Ok(Gathered { settings, config_file })
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

/// The first line of clap's message, with the correct usage but without its usage block.
pub fn one_line(error: &clap::Error, flags: Option<&str>) -> String {
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut line = first.strip_prefix("error: ").unwrap_or(first).trim_end().to_owned();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        // The names of missing arguments are on lines of their own.
        let missing = text.lines().skip(1).take_while(|line| line.starts_with("  "));
        for name in missing {
            line = format!("{line} {}", name.trim());
        }
    }
    if let (ErrorKind::UnknownArgument, Some(flags)) = (error.kind(), flags) {
        return format!("{line}; the flags are {flags}");
    }
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("{line}; write one of {}", values.join(", "));
    }
    if error.kind() == ErrorKind::ValueValidation {
        return line;
    }
    let suggestions =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let suggestion = suggestions.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    });
    match suggestion {
        Some(text) => format!("{line}; did you mean `{text}`?"),
        None => format!("{line}; `--help` behind the command lists what there is"),
    }
}
