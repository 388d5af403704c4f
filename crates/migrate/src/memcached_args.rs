//! memcached's command line.

use crate::imported::Imported;

/// What a flag means.
enum Flag {
    /// A setting of ours, from the value.
    Setting(&'static str),
    /// Nothing, for a reason; with a value or without.
    Ignored { takes_value: bool, why: &'static str },
    /// Handled by itself; it takes a value or not.
    Special { takes_value: bool },
}

fn flag(short: char) -> Option<Flag> {
    let ignored = |takes_value, why| Some(Flag::Ignored { takes_value, why });
    match short {
        'c' => Some(Flag::Setting("max-connections")),
        't' => Some(Flag::Setting("threads")),
        'Y' => Some(Flag::Setting("auth-file")),
        'p' | 'l' | 'm' | 'I' | 'U' | 's' | 'a' => Some(Flag::Special { takes_value: true }),
        'A' | 'M' | 'v' | 'L' => Some(Flag::Special { takes_value: false }),
        'd' => {
            ignored(false, "start it by systemd or another supervisor: contrib/systemd has a unit")
        }
        'u' => ignored(true, "let systemd set User="),
        'P' => ignored(true, "a supervisor knows the process"),
        'r' => ignored(false, "let systemd set LimitCORE="),
        'k' => ignored(false, "memory is reserved at the start: let systemd set LimitMEMLOCK="),
        'f' | 'n' => ignored(true, "there are no size classes: a log takes items as they come"),
        'D' => ignored(true, "there are no statistics by prefix"),
        'R' | 'b' => ignored(true, "nothing has to be set"),
        'C' => ignored(false, "items always have a version"),
        'B' => ignored(true, "the protocol is told by a connection's first byte"),
        'S' => ignored(false, "SASL comes with the file of users"),
        'F' => ignored(false, "flush_all is always there"),
        'X' => ignored(false, "lru_crawler metadump is always there"),
        'W' => ignored(false, "watch is always there"),
        'e' => ignored(true, "--data-dir keeps what shall outlive the server"),
        'o' => ignored(true, "these are memcached's own knobs"),
        'N' => ignored(true, "--threads and --pin say where threads run"),
        'Z' => ignored(false, "TLS is not configured by this flag"),
        _ => None,
    }
}

/// Translates what would follow `memcached` on a command line.
///
/// # Errors
/// In one line: a flag that memcached does not have, or one without its value.
pub fn import<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Imported, String> {
    let (mut imported, mut host, mut port) = (Imported::default(), None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if let Some(long) = argument.strip_prefix("--") {
            long_flag(long, &mut imported);
            continue;
        }
        let Some(flags) = argument.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            return Err(format!("{argument}: memcached's flags begin with a dash"));
        };
        for (at, short) in flags.char_indices() {
            let Some(meaning) = flag(short) else {
                return Err(format!("-{short}: memcached has no such flag"));
            };
            let takes_value = match meaning {
                Flag::Setting(_) => true,
                Flag::Ignored { takes_value, .. } | Flag::Special { takes_value } => takes_value,
            };
            let attached = &flags[at + short.len_utf8()..];
            let value = match (takes_value, attached) {
                (false, _) => "",
                (true, "") => arguments.next().ok_or(format!("-{short}: its value is missing"))?,
                (true, attached) => attached,
            };
            let from = format!("-{short} {value}").trim_end().to_owned();
            match meaning {
                Flag::Setting(key) => imported.set(key, value, &from),
                Flag::Ignored { why, .. } => imported.ignore(from, why),
                Flag::Special { .. } => {
                    special(short, value, &from, &mut imported, (&mut host, &mut port))?;
                }
            }
            if takes_value {
                break;
            }
        }
    }
    if host.is_some() || port.is_some() {
        let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let address = match port.as_deref() {
            Some("0") => "off".to_owned(),
            port => format!("{host}:{}", port.unwrap_or("11211")),
        };
        imported.set("memcached", address, "-l and -p");
    }
    Ok(imported)
}

fn special(
    short: char,
    value: &str,
    from: &str,
    imported: &mut Imported,
    (host, port): (&mut Option<String>, &mut Option<String>),
) -> Result<(), String> {
    match short {
        'p' => *port = Some(value.to_owned()),
        'l' => {
            let mut addresses = value.split(',');
            let first = addresses.next().unwrap_or_default();
            match first.rsplit_once(':') {
                Some((address, own_port)) if own_port.parse::<u16>().is_ok() => {
                    *host = Some(address.to_owned());
                    *port = Some(own_port.to_owned());
                }
                _ => *host = Some(first.to_owned()),
            }
            if addresses.next().is_some() {
                imported.ignore(from, "one address a port: the first one was taken");
            }
        }
        'm' => {
            let mib: u64 =
                value.parse().map_err(|_| format!("-m {value}: this is no number of MiB"))?;
            imported.set("memory", format!("{}MiB", mib.max(64)), from);
        }
        'I' => {
            let unit = value.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let number = &value[..value.len() - unit.len()];
            let unit = match unit {
                "" => "",
                "k" | "K" => "KiB",
                "m" | "M" => "MiB",
                _ => return Err(format!("-I {value}: this is no size")),
            };
            imported.set("max-item-size", format!("{number}{unit}"), from);
        }
        'U' if value == "0" => {}
        'U' => imported.set("udp-port", value, from),
        's' => {
            imported.set("memcached-unix-socket", value, from);
            // With a socket memcached opens no port.
            port.get_or_insert_with(|| "0".to_owned());
        }
        'a' => {
            let mode = u16::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o777);
            let mode = mode.ok_or(format!("-a {value}: this is no mode of a file"))?;
            imported.set("unix-mode", format!("{mode:04o}"), from);
        }
        'A' => imported.set("enable-shutdown", "on", from),
        'M' => imported.set("mode", "store", from),
        'v' => imported.set("log", "debug", from),
        _ => imported.set("huge-pages", "auto", from),
    }
    Ok(())
}

fn long_flag(long: &str, imported: &mut Imported) {
    imported.ignore(format!("--{long}"), "only memcached's short flags are translated");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, settings: &[(&str, &str)], ignored: &[&str]) {
        let imported = import(line.split(' ')).expect("all flags are known");
        let found: Vec<(&str, &str)> =
            imported.settings.iter().map(|it| (it.key, it.value.as_str())).collect();
        assert_eq!(found, settings, "{line}");
        let found: Vec<&str> = imported.ignored.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(found, ignored, "{line}");
    }

    #[test]
    fn a_usual_line_is_translated() {
        check(
            "-d -m 1024 -p 11212 -l 10.0.0.1,10.0.0.2 -c4096 -t 8 -I 4m -u nobody",
            &[
                ("memory", "1024MiB"),
                ("max-connections", "4096"),
                ("threads", "8"),
                ("max-item-size", "4MiB"),
                ("memcached", "10.0.0.1:11212"),
            ],
            &["-d", "-l 10.0.0.1,10.0.0.2", "-u nobody"],
        );
        check("-MCvv -U 0", &[("mode", "store"), ("log", "debug")], &["-C"]);
        check("-U 11211", &[("udp-port", "11211")], &[]);
        check("-l 127.0.0.1:11300", &[("memcached", "127.0.0.1:11300")], &[]);
        check("-p 0 --extended=modern", &[("memcached", "off")], &["--extended=modern"]);
        check(
            "-s /run/m.sock -a 777",
            &[
                ("memcached-unix-socket", "/run/m.sock"),
                ("unix-mode", "0777"),
                ("memcached", "off"),
            ],
            &[],
        );
        check("-m 10 -f 1.25", &[("memory", "64MiB")], &["-f 1.25"]);
    }

    #[test]
    fn mistakes_are_one_line() {
        let error = |line: &str| import(line.split(' ')).expect_err(line);
        assert_eq!(error("-m"), "-m: its value is missing");
        assert_eq!(error("-m x"), "-m x: this is no number of MiB");
        assert_eq!(error("-a 9"), "-a 9: this is no mode of a file");
        assert_eq!(error("-I 1t"), "-I 1t: this is no size");
        assert_eq!(error("-q"), "-q: memcached has no such flag");
        assert_eq!(error("64"), "64: memcached's flags begin with a dash");
    }
}
