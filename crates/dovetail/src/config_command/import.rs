//! `dovetail config import`: redis.conf, or memcached's flags, as TOML.
//!
//! ```text
//!  dovetail config import /etc/redis/redis.conf          -: standard input
//!  dovetail config import --memcached -m 1024 -c 4096    all that follows is memcached's
//! ```
//!
//! What was translated goes to standard output, with what was not as comments behind it, so that
//! the output is a configuration file; a summary goes to standard error.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use migrate::{Imported, memcached_args, redis_conf};

use crate::failure::{Failure, print};
use crate::machine::Machine;
use crate::settings::file::{FileEntry, reason_of};
use crate::settings::print::{Listing, toml};
use crate::settings::{Layered, Origin, ServeSettings, find, layers, settle};

/// The subcommand.
pub fn command() -> Command {
    Command::new("import")
        .about("Translate redis.conf, or memcached's flags, to a configuration file")
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .help("A redis.conf; - reads standard input")
                .required_unless_present("memcached"),
        )
        .arg(
            Arg::new("memcached")
                .long("memcached")
                .value_name("FLAG")
                .help("Everything that follows is what memcached was started with")
                .num_args(1..)
                .allow_hyphen_values(true)
                .conflicts_with("file"),
        )
}

/// Reads, translates, prints.
pub fn run(matches: &ArgMatches, machine: &Machine) -> Result<(), Failure> {
    let imported = match matches.get_many::<String>("memcached") {
        Some(flags) => memcached_args::import(flags.map(String::as_str))
            .map_err(|reason| Failure::Usage(format!("config import: {reason}")))?,
        None => {
            let file = matches.get_one::<String>("file").map_or("-", String::as_str);
            redis_conf::import(&read(file)?)
                .map_err(|mistake| Failure::Usage(format!("config import: {file}: {mistake}")))?
        }
    };
    let (text, counts) = render(imported, machine);
    print(&text)?;
    eprintln!("{counts}");
    Ok(())
}

fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let bytes = match file {
        "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        path => std::fs::read(Path::new(path)),
    };
    bytes.map_err(|error| {
        Failure::Runtime(format!("config import: {file} cannot be read: {}", reason_of(&error)))
    })
}

/// The configuration file, and a line of what became of it.
fn render(mut imported: Imported, machine: &Machine) -> (String, String) {
    let mut text = String::new();
    let (mut entries, mut translated_count) = (Vec::new(), 0);
    for setting in std::mem::take(&mut imported.settings) {
        let found = find(setting.key);
        let read = found.map(|row| (row, row.kind.read(&setting.value)));
        match read {
            Some((row, Ok(value))) => {
                let origin = Origin::Flag;
                let line = toml(&[Layered { setting: row, value, origin }], Listing::Complete);
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{:<40} # {}", line.trim_end(), setting.from);
                let origin = Origin::File { path: setting.from.into(), line: 0 };
                entries.push(FileEntry { key: row.key, text: setting.value, origin });
                translated_count += 1;
            }
            Some((row, Err(reason))) => {
                let why = format!("{}: {reason}", row.key);
                imported.ignored.push(migrate::Ignored { what: setting.from, why });
            }
            None => {
                let why = format!("this release has no setting {}", setting.key);
                imported.ignored.push(migrate::Ignored { what: setting.from, why });
            }
        }
    }
    if !imported.ignored.is_empty() {
        text.push_str("\n# Not translated:\n");
    }
    for ignored in &imported.ignored {
        let _ = writeln!(text, "#  {}: {}", one_line(&ignored.what), one_line(&ignored.why));
    }
    if let Some(reason) = refusal(&entries, machine) {
        let _ = writeln!(text, "\n# As it stands `dovetail serve` refuses this: {reason}");
    }
    let ignored_count = imported.ignored.len();
    (text, format!("{translated_count} settings translated, {ignored_count} directives not"))
}

/// Why a server would not start with these.
fn refusal(entries: &[FileEntry], machine: &Machine) -> Option<String> {
    let combined = layers::combine(&Default::default(), &|_| None, entries);
    let checked = combined.and_then(|mut settings| {
        settle::settle(&mut settings, machine);
        ServeSettings::new(&settings, None, machine)
    });
    checked.err().map(|error| one_line(&error.to_string()))
}

/// Comments end with their line.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(conf: &str) -> String {
        let imported = redis_conf::import(conf.as_bytes()).unwrap();
        render(imported, &Machine::detect()).0
    }

    #[test]
    fn what_is_printed_is_a_configuration_file() {
        let text = rendered("port 7000\nmaxmemory 1gb\nmaxclients 12\nhz 5\nio-threads 0");
        assert!(text.contains("memory = "), "{text}");
        assert!(text.contains("max-connections = 12 "), "{text}");
        assert!(text.contains("#  line 4: hz 5: nothing runs by a timer"), "{text}");
        assert!(text.contains("line 5: io-threads: threads: "), "{text}");
        let entries = crate::settings::file::parse(Path::new("out"), &text).unwrap();
        assert_eq!(entries.len(), 3, "{text}");
    }

    #[test]
    fn what_a_server_would_refuse_is_said() {
        let text = rendered("bind 0.0.0.0\nport 7000");
        assert!(text.contains("`dovetail serve` refuses this: "), "{text}");
        assert!(!rendered("bind 0.0.0.0\nrequirepass x").contains("refuses"));
    }

    #[test]
    fn nothing_breaks_out_of_a_comment() {
        let text = rendered("unknown \"a\\nmemory = 3\"");
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
    }
}
