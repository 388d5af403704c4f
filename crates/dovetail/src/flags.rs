//! Flags made from the settings table, and the settings that they, the environment and a file give.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::failure::Failure;
use crate::machine::Machine;
use crate::settings::layers::SettingError;
use crate::settings::{Kind, Layered, Setting, TABLE, file, layers, print as printing, settle};

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
