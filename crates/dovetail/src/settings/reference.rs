//! Generates docs/settings.md from the table; a test compares the two.

use std::fmt::Write;

use server::live_keys;

use crate::settings::presets;
use crate::settings::{Kind, TABLE};

/// The whole page.
pub fn reference_page() -> String {
    let mut out = String::from(REFERENCE_HEAD);
    for setting in TABLE {
        let values = match setting.kind {
            Kind::Count { min, max } => format!("{min}..{max}"),
            Kind::AutoCount { min, max } => format!("`auto`, {min}..{max}"),
            Kind::SwitchedTime { min, max } => {
                let [min, max] = [min, max].map(base::format_duration);
                format!("`off`, {min}..{max}")
            }
            Kind::SwitchedCount { min, max } => format!("`auto`, `off`, {min}..{max}"),
            Kind::Preset => "[a name](#presets)".to_owned(),
            _ => format!("`{}`", setting.value_name.replace('|', "`, `")),
        };
        let changes = if live_keys().any(|key| key == setting.key) { "live" } else { "restart" };
        let default = match setting.default {
            "" => "not set".to_owned(),
            default => format!("`{default}`"),
        };
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {values} | {default} | {changes} | {}. |",
            setting.key,
            setting.environment_name(),
            setting.help,
        );
    }
    let live = live_keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    out.push_str(&REFERENCE_TAIL.replace("LIVE", &live));
    presets_section(&mut out);
    out
}

fn presets_section(out: &mut String) {
    out.push_str(PRESETS_HEAD);
    for preset in presets::all() {
        let settings = preset.settings.iter().map(|(key, text)| format!("`{key} = {text}`"));
        let settings = settings.collect::<Vec<_>>().join(", ");
        let settings = if settings.is_empty() { "none".to_owned() } else { settings };
        let _ = writeln!(out, "| `{}` | {} | {settings} |", preset.name, preset.about);
    }
    out.push_str(
        "\nThose that say `replication` need `--cluster`, and a cluster made with the same.\n",
    );
}

const PRESETS_HEAD: &str = "
## Presets

`--preset NAME` puts a paper's design between the file and the defaults: any flag, variable or line
of the file still wins. `dovetail serve --preset NAME --print-config` prints what comes of it.

| preset | where from | settings |
|---|---|---|
";

const REFERENCE_HEAD: &str = "\
# Settings of `dovetail serve`

This page is generated from the table in `crates/dovetail/src/settings.rs`; a test compares the
two. After a change to the table: `UPDATE_DOCS=1 cargo test -p dovetail reference_page`.

Each setting has one name: `x-y` is the flag `--x-y`, the key `x-y` in the TOML file and the
variable `DOVETAIL_X_Y`. A flag wins over the environment, the environment over the file, the file
over the preset, the preset over the default. The file is the one that `--config` or
`DOVETAIL_CONFIG` names, else `/etc/dovetail/dovetail.toml` if it exists. An empty value is an error
in every layer, except for `admin-hosts` and `requirepass`: a variable that is not set should not
switch anything off.

| key | environment | values | default | changes | meaning |
|---|---|---|---|---|---|
";

const REFERENCE_TAIL: &str = "
Sizes are binary and take `B`, `KiB`, `MiB`, `GiB`, `TiB` or their short forms (`512m`, `2g`).
Times are a number and a unit, `ns`, `us`, `ms`, `s`, `m` or `h` (`500us`, `1.5ms`), for `plan` and
`bench` too; a number alone is refused, but for 0. Addresses are `HOST:PORT`; a port alone means
loopback, `*:PORT` every interface.

Settings are read at start. While the server runs, `CONFIG SET` and SIGHUP change those that are
live: LIVE.
Each holds until the server ends, or until it is changed again; `CONFIG GET` says what holds.
`CONFIG REWRITE` puts the live settings that were changed into the file, where all else stays as it
is: comments, order, and what no setting knows; once the file is gone it is refused. Whatever else
is to change needs a restart.

SIGHUP reads the file again, and the files of certificates and users that settings name. All live
settings that differ from the last reading hold from then on, unless one of them is wrong: then none
does. For others one line of the log says that they need a restart. A flag or a variable still wins
over the file.

- `dovetail serve --print-config` prints what would hold, as TOML that reads back (with passwords).
- `dovetail config show --origin` prints the same with the origin of each value, passwords masked.
- `dovetail config check FILE` says what is wrong with a file; exit status 0 or 2.
";
