//! Layers of settings: flag over environment over file over preset over default. Each value keeps
//! its origin.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::settings::file::FileEntry;
use crate::settings::presets::{self, Preset};
use crate::settings::value::Value;
use crate::settings::{Setting, TABLE, find};

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The variable of the setting.
    Environment,
    /// A line of the configuration file.
    File {
        /// The path as it was given.
        path: PathBuf,
        /// The line, counted from 1; 0 stands for no line and is not shown.
        line: usize,
    },
    /// A preset.
    Preset(&'static str),
    /// The default of the table, or a property of this machine.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => formatter.write_str("flag"),
            Origin::Environment => formatter.write_str("environment"),
            Origin::File { path, line: 0 } => path.display().fmt(formatter),
            Origin::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Origin::Preset(name) => write!(formatter, "preset {name}"),
            Origin::Default => formatter.write_str("default"),
        }
    }
}

/// An error in the configuration; one line, exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SettingError {
    /// A flag, a variable, or a file and its line.
    pub place: String,
    /// The error and the correct form.
    pub reason: String,
}

/// One setting's value and its origin.
#[derive(Clone, Debug)]
pub struct Layered {
    /// The row.
    pub setting: &'static Setting,
    /// The effective value.
    pub value: Value,
    /// The layer that provides it.
    pub origin: Origin,
}

/// Takes each setting from the highest layer that has it.
pub fn combine(
    flags: &BTreeMap<&'static str, String>,
    environment: &dyn Fn(&str) -> Option<String>,
    file: &[FileEntry],
) -> Result<Vec<Layered>, SettingError> {
    let none = &presets::all()[0];
    let combine_by = |preset, setting| combine_one(setting, flags, environment, file, preset);
    let named = find("preset").map(|setting| combine_by(none, setting)).transpose()?;
    let preset = match named.map(|layered| layered.value) {
        Some(Value::Choice(name)) => presets::read(name).unwrap_or(none),
        _ => none,
    };
    TABLE.iter().map(|setting| combine_by(preset, setting)).collect()
}

fn combine_one(
    setting: &'static Setting,
    flags: &BTreeMap<&'static str, String>,
    environment: &dyn Fn(&str) -> Option<String>,
    file: &[FileEntry],
    preset: &'static Preset,
) -> Result<Layered, SettingError> {
    let read = |text: &str, place: String, origin: Origin| match setting.read_given(text) {
        Ok(value) => Ok(Layered { setting, value, origin }),
        Err(reason) => Err(SettingError { place, reason }),
    };
    // An error in a lower layer is reported too: it would take effect when the higher layer is
    // removed.
    let mut from_file = None;
    if let Some(entry) = file.iter().find(|entry| entry.key == setting.key) {
        let place = format!("{}: {}", entry.origin, setting.key);
        from_file = Some(read(&entry.text, place, entry.origin.clone())?);
    }
    if let Some(text) = flags.get(setting.key) {
        return read(text, format!("--{}", setting.key), Origin::Flag);
    }
    let name = setting.environment_name();
    if let Some(text) = environment(&name) {
        return read(&text, name, Origin::Environment);
    }
    if let Some(layered) = from_file {
        return Ok(layered);
    }
    match preset.text_of(setting.key) {
        Some(text) => {
            let place = format!("preset {}: {}", preset.name, setting.key);
            read(text, place, Origin::Preset(preset.name))
        }
        None => {
            let value = setting.kind.read(setting.default);
            let failed = |reason| SettingError { place: setting.key.to_owned(), reason };
            Ok(Layered { setting, value: value.map_err(failed)?, origin: Origin::Default })
        }
    }
}
