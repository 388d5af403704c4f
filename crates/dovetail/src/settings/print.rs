//! Settings as text: TOML that reads back to the same values (I3), and the help of flags.

use std::fmt::Write;

use crate::settings::{Kind, Layered, Origin, Setting, Value, presets};

/// The form of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Complete, with passwords: it reads back to the same server.
    Complete,
    /// For display: passwords are masked.
    Masked,
    /// For display, with the origin of the value at the end of each line.
    WithOrigin,
}

/// One line of TOML for each setting.
pub fn toml(settings: &[Layered], listing: Listing) -> String {
    let mut out = String::new();
    for layered in settings {
        let line = toml_line(layered, listing);
        match listing {
            Listing::WithOrigin => {
                let origin = origin_text(layered);
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{line:<40} # {origin}");
            }
            Listing::Complete | Listing::Masked => {
                let about = about(layered);
                let _ = writeln!(out, "{line}{about}");
            }
        }
    }
    out
}

/// The description of a preset, as a comment.
fn about(layered: &Layered) -> String {
    match (layered.setting.kind, &layered.value) {
        (Kind::Preset, Value::Choice(name)) => presets::read(name)
            .map_or_else(|_| String::new(), |preset| format!(" # {}", preset.about)),
        _ => String::new(),
    }
}

fn origin_text(layered: &Layered) -> String {
    match layered.origin {
        Origin::Flag => format!("flag --{}", layered.setting.key),
        Origin::Environment => format!("environment {}", layered.setting.environment_name()),
        ref origin => origin.to_string(),
    }
}

fn toml_line(layered: &Layered, listing: Listing) -> String {
    let key = layered.setting.key;
    match &layered.value {
        Value::Unset => format!("# {key} is not set"),
        Value::Count(count) => format!("{key} = {count}"),
        Value::Text(_) if listing != Listing::Complete => format!("{key} = \"***\""),
        value => format!("{key} = {}", toml::Value::String(value.to_string())),
    }
}

/// The help line of a flag: what it means, its variable and its default.
pub fn flag_help(setting: &Setting) -> String {
    let mut help = setting.help.to_owned();
    if let Kind::Preset = setting.kind {
        let names = presets::all().iter().map(|preset| preset.name).collect::<Vec<_>>();
        let _ = write!(help, ": {}", names.join(", "));
    }
    let _ = write!(help, " [env: {}]", setting.environment_name());
    if !setting.default.is_empty() {
        let _ = write!(help, " [default: {}]", setting.default);
    }
    help
}
