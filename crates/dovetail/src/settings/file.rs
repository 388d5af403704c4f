//! The configuration file: one flat TOML table whose keys are rows of the settings table.

use std::path::{Path, PathBuf};

use host::small_file;
use toml::de::{DeTable, DeValue};

use crate::settings::layers::{Origin, SettingError};
use crate::settings::{Kind, closest_key, find};

/// The file to read if no other is named and this one exists.
pub const DEFAULT_PATH: &str = "/etc/dovetail/dovetail.toml";

/// One key of a file, its value spelled as on the command line.
#[derive(Clone, Debug)]
pub struct FileEntry {
    /// A key of the table.
    pub key: &'static str,
    /// The value.
    pub text: String,
    /// File and line.
    pub origin: Origin,
}

/// The file's entries. `explicit` is the path from `--config` or `DOVETAIL_CONFIG`.
pub fn load(explicit: Option<&Path>) -> Result<Vec<FileEntry>, SettingError> {
    let default = PathBuf::from(DEFAULT_PATH);
    let path = match explicit {
        Some(path) => path,
        None if default.is_file() => &default,
        None => return Ok(Vec::new()),
    };
    let text = small_file::read_once(path, small_file::SETTINGS_MAX_BYTES).map_err(|error| {
        SettingError {
            place: format!("config {}", path.display()),
            reason: format!("cannot be read: {}", reason_of(&error)),
        }
    })?;
    let text = String::from_utf8(text).map_err(|_| SettingError {
        place: format!("config {}", path.display()),
        reason: "is not text: write TOML in UTF-8".to_owned(),
    })?;
    parse(path, &text)
}

/// The system's message, with a lower-case first letter and without the error number.
pub fn reason_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Reads TOML text; `path` is for messages.
pub fn parse(path: &Path, text: &str) -> Result<Vec<FileEntry>, SettingError> {
    let line_at = |byte: usize| text[..byte.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(span.start));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        SettingError { place: format!("{}:{line}", path.display()), reason: message }
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_at(key.span().start);
        let origin = Origin::File { path: path.to_owned(), line };
        entries.push(read_entry(key.get_ref(), value.get_ref(), origin)?);
    }
    Ok(entries)
}

fn read_entry(key: &str, value: &DeValue<'_>, origin: Origin) -> Result<FileEntry, SettingError> {
    let Some(setting) = find(key) else {
        let hint = match closest_key(key) {
            Some(close) => format!("did you mean `{close}`?"),
            None => "docs/settings.md lists them".to_owned(),
        };
        let shown = key.escape_default();
        return Err(SettingError {
            place: origin.to_string(),
            reason: format!("there is no setting `{shown}`; {hint}"),
        });
    };
    let text = spell(value, setting.kind).ok_or_else(|| SettingError {
        place: format!("{origin}: {key}"),
        reason: format!("{} does not fit: write {}", article(value), wanted(setting.kind)),
    })?;
    Ok(FileEntry { key: setting.key, text, origin })
}

/// The value as it would be on the command line, if its TOML type fits the kind.
fn spell(value: &DeValue<'_>, kind: Kind) -> Option<String> {
    match (value, kind) {
        (DeValue::String(text), Kind::Count { .. }) if text.parse::<u64>().is_ok() => None,
        (DeValue::String(text), _) => Some(text.to_string()),
        (DeValue::Boolean(on), Kind::Choice(words)) if words.contains(&"on") => {
            Some(if *on { "on" } else { "off" }.to_owned())
        }
        (DeValue::Boolean(on), Kind::Switch | Kind::CacheWays) => {
            Some(if *on { "on" } else { "off" }.to_owned())
        }
        (
            DeValue::Boolean(false),
            Kind::Address | Kind::SocketPath | Kind::Device | Kind::SwitchedTime { .. },
        ) => Some("off".to_owned()),
        (
            DeValue::Integer(number),
            Kind::Count { .. }
            | Kind::AutoCount { .. }
            | Kind::CacheWays
            | Kind::SwitchedCount { .. }
            | Kind::Size { .. }
            | Kind::AutoSize { .. },
        ) => {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(number.to_string())
        }
        _ => None,
    }
}

fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// An example of each kind in TOML.
fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Address => "an address in quotes, e.g. \"127.0.0.1:6379\", or \"off\"".to_owned(),
        Kind::Path => "a path in quotes".to_owned(),
        Kind::SocketPath => "a path in quotes, or \"off\"".to_owned(),
        Kind::Mode => "a mode in quotes, e.g. \"0770\"".to_owned(),
        Kind::Device => "a device in quotes, or \"off\"".to_owned(),
        Kind::Size { .. } | Kind::AutoSize { .. } => "a size in quotes, e.g. \"64MiB\"".to_owned(),
        Kind::Count { min, max } => format!("a whole number from {min} to {max}, no quotes"),
        Kind::AutoCount { min, max } => {
            format!("\"auto\" or a whole number from {min} to {max}")
        }
        Kind::CacheWays => "\"auto\", \"on\", \"off\" or a whole number from 1 to 64".to_owned(),
        Kind::SwitchedCount { min, max } => {
            format!("\"auto\", \"off\" or a whole number from {min} to {max}")
        }
        Kind::SwitchedTime { .. } => "a time in quotes, e.g. \"60s\", or \"off\"".to_owned(),
        Kind::Choice(words) => format!("\"{}\"", words.join("\" or \"")),
        Kind::Dispatch => "a dispatch in quotes, e.g. \"jbsq:2\"".to_owned(),
        Kind::Preset => "the name of a preset in quotes, e.g. \"c4-dcrew\"".to_owned(),
        Kind::Switch => "\"on\" or \"off\"".to_owned(),
        Kind::Secret | Kind::Host | Kind::Hosts | Kind::Servers => "text in quotes".to_owned(),
    }
}
