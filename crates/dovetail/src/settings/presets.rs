//! Presets: each paper's design as a named set of ordinary settings.
//!
//! ```text
//!  presets/NAME.toml ─ embedded ─▶ the parser of the settings file ─▶ Preset
//!  flag ─▶ environment ─▶ file ─▶ preset ─▶ default       the first that has the setting wins
//! ```
//!
//! A new preset is a file, and its name in `FILES`. The comment at the head of the file says where
//! the design is from; the settings are those that differ from the defaults, or that the design
//! depends on. The file is a settings file too: `serve --config NAME.toml`.
//!
//! # Invariants
//! I1: a preset contains settings of the table only: no other code asks which preset is active.
//! I2: the output of `--preset NAME --print-config` gives the same server without `--preset`.
//! I3: a preset for a cluster needs `--cluster`, and must not contradict the cluster's settings.

use std::path::Path;
use std::sync::LazyLock;

use crate::settings::file;
use crate::settings::layers::{Origin, SettingError};
use crate::settings::suggest::closest;

/// Names and texts of the files.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("presets/", $name, ".toml")))),*]
    };
}

/// The files; the first preset is the default.
const FILES: &[(&str, &str)] = embedded![
    "dovetail",
    "mica-erew",
    "mica-crew",
    "hkh",
    "sho",
    "hkh-ws",
    "minos",
    "c4-erew",
    "c4-crew",
    "c4-dcrew",
    "c4-comp",
    "c4",
    "basekv",
    "erpckv",
    "mutps-h",
    "mutps-t",
    "rowan-kv",
    "rpc-kv",
    "rwrite-kv",
    "batch-kv",
    "share-kv",
];

/// A named set of settings.
#[derive(Debug)]
pub struct Preset {
    /// The name for `--preset`.
    pub name: &'static str,
    /// Its source, for the docs.
    pub about: String,
    /// The settings in the order of the file, spelled as on the command line.
    pub settings: Vec<(&'static str, String)>,
}

impl Preset {
    fn parse(name: &'static str, text: &str) -> Result<Preset, SettingError> {
        let comment = text.lines().map_while(|line| line.strip_prefix("# "));
        let about = comment.collect::<Vec<_>>().join(" ");
        let mut entries = file::parse(Path::new(name), text)?;
        entries.sort_by_key(|entry| match entry.origin {
            Origin::File { line, .. } => line,
            _ => 0,
        });
        let settings = entries.into_iter().map(|entry| (entry.key, entry.text)).collect();
        Ok(Preset { name, about, settings })
    }

    /// The preset's value of a setting.
    pub fn text_of(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(own, _)| *own == key).map(|(_, text)| text.as_str())
    }
}

/// All presets; the first is the default.
pub fn all() -> &'static [Preset] {
    static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
        let parse = |(name, text): &(&'static str, &str)| match Preset::parse(name, text) {
            Ok(preset) => preset,
            // The files are part of the program: a test reads them all.
            Err(error) => panic!("the preset {name} cannot be read: {error}"),
        };
        FILES.iter().map(parse).collect()
    });
    &PRESETS
}

/// The preset of that name; the error lists the valid names.
pub fn read(name: &str) -> Result<&'static Preset, String> {
    if let Some(preset) = all().iter().find(|preset| preset.name == name) {
        return Ok(preset);
    }
    let names = || all().iter().map(|preset| preset.name);
    let shown = name.escape_default();
    Err(match closest(name, names()) {
        Some(close) => format!("there is no preset `{shown}`; did you mean `{close}`?"),
        None => {
            let list = names().collect::<Vec<_>>().join(", ");
            format!("there is no preset `{shown}`: write one of {list}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_and_names_its_source() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/settings/presets");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut found: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        found.sort();
        let mut listed: Vec<_> = all().iter().map(|it| format!("{}.toml", it.name)).collect();
        listed.sort();
        assert_eq!(found, listed);
        assert!(all().iter().all(|preset| !preset.about.is_empty()));
    }

    #[test]
    fn a_preset_is_read_as_a_settings_file_is() {
        let preset = Preset::parse("x", "# From\n# here\n\nmode = \"store\"\nbatch = 1\n").unwrap();
        assert_eq!(preset.about, "From here");
        let settings = [("mode", "store".to_owned()), ("batch", "1".to_owned())];
        assert_eq!(preset.settings, settings);
        let error = Preset::parse("x", "\nbetch = 1\n").unwrap_err();
        let want = "x:2: there is no setting `betch`; did you mean `batch`?";
        assert_eq!(format!("{}: {}", error.place, error.reason), want);
    }

    #[test]
    fn no_preset_names_another() {
        assert!(all().iter().all(|preset| preset.text_of("preset").is_none()));
    }
}
