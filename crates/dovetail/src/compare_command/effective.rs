//! The settings that a server of a comparison would have, and those in which all must be equal.

use std::process::{Command, Stdio};

use toml::Table;

use super::{Contender, servers};
use crate::failure::Failure;
use crate::settings::find;

/// Servers that differ in one of these differ in what they are given, and not in their design.
const EQUAL: [&str; 4] = ["threads", "memory", "mode", "poll"];

/// Settings by key, as text.
pub type Settings = Vec<(String, String)>;

/// The effective settings, from all layers, of a server with these flags; errors begin with `what`.
pub fn settings(what: &str, preset: &str, flags: &[String]) -> Result<Settings, Failure> {
    let mut command = Command::new(servers::own_program()?);
    command.args(["serve", "--preset", preset]).args(flags).arg("--print-config");
    let output = command.stdin(Stdio::null()).output();
    let output = output
        .map_err(|error| Failure::Runtime(format!("{what}: cannot print settings: {error}")))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let line = words.lines().last().unwrap_or_default();
        let line = line.strip_prefix("dovetail: ").unwrap_or(line);
        return Err(Failure::Usage(format!("{what}: {line}")));
    }
    let printed: Table = String::from_utf8_lossy(&output.stdout)
        .parse()
        .map_err(|error| Failure::Runtime(format!("{what}: settings do not read back: {error}")))?;
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let known = printed.iter().filter(|(key, _)| find(key).is_some());
    Ok(known.map(|(key, value)| (key.clone(), text(value))).collect())
}

/// Refuses a comparison of servers that are given unequal means.
pub fn refuse_unequal(contenders: &[Contender]) -> Result<(), Failure> {
    let settings = |contender: &Contender| {
        let Contender { name, preset, flags } = contender;
        settings(&format!("--compare {name}"), preset, flags)
    };
    let [first, others @ ..] = contenders else { return Ok(()) };
    let of_first = settings(first)?;
    for other in others {
        let of_other = settings(other)?;
        if let Some((key, one, two)) = difference(&of_first, &of_other) {
            let (first, other) = (&first.name, &other.name);
            return Err(Failure::Usage(format!(
                "--compare: {key} is {one} in {first} and {two} in {other}: give all servers the \
                 same, e.g. --serve \"--{key} {one}\""
            )));
        }
    }
    Ok(())
}

/// The first of the settings in `EQUAL` in which these differ, with both values.
fn difference<'a>(
    one: &'a Settings,
    two: &'a Settings,
) -> Option<(&'static str, &'a str, &'a str)> {
    let value = |settings: &'a Settings, key: &str| {
        settings.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value)
    };
    let pair = |key: &'static str| (key, value(one, key), value(two, key));
    EQUAL.into_iter().map(pair).find(|(_, one, two)| one != two)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If one were renamed, it would be equal everywhere.
    #[test]
    fn the_settings_that_must_be_equal_exist() {
        assert!(EQUAL.iter().all(|key| find(key).is_some()));
    }

    #[test]
    fn the_first_difference_is_told() {
        let settings = |threads: &str, batch: &str| {
            vec![("threads".to_owned(), threads.to_owned()), ("batch".to_owned(), batch.to_owned())]
        };
        assert_eq!(difference(&settings("2", "8"), &settings("2", "1")), None);
        let (one, two) = (settings("2", "8"), settings("auto", "8"));
        assert_eq!(difference(&one, &two), Some(("threads", "2", "auto")));
    }
}
