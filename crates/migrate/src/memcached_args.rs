//! Translates memcached's command line into settings.

use std::net::Ipv6Addr;

use crate::imported::Imported;

/// The meaning of a flag.
enum Flag {
    /// A setting of Dovetail, from the value.
    Setting(&'static str),
    /// No setting, for a reason; with a value or without.
    Ignored { takes_value: bool, why: &'static str },
    /// Handled by itself; it takes a value or not.
    Special { takes_value: bool },
}

impl Flag {
    fn takes_value(&self) -> bool {
        match self {
            Flag::Setting(_) => true,
            Flag::Ignored { takes_value, .. } | Flag::Special { takes_value } => *takes_value,
        }
    }
}

fn flag(short: char) -> Option<Flag> {
    let ignored = |takes_value, why| Some(Flag::Ignored { takes_value, why });
    match short {
        'c' => Some(Flag::Setting("max-connections")),
        't' => Some(Flag::Setting("threads")),
        'Y' => Some(Flag::Setting("auth-file")),
        'e' => Some(Flag::Setting("warm-file")),
        'p' | 'l' | 'm' | 'I' | 'U' | 's' | 'a' | 'o' => Some(Flag::Special { takes_value: true }),
        'A' | 'M' | 'v' | 'L' | 'Z' => Some(Flag::Special { takes_value: false }),
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
        'N' => ignored(true, "--threads and --pin say where threads run"),
        _ => None,
    }
}

/// The long flags, as memcached 1.6 has them.
const LONG: [(&str, char); 34] = [
    ("auth-file", 'Y'),
    ("conn-limit", 'c'),
    ("daemon", 'd'),
    ("disable-cas", 'C'),
    ("disable-dumping", 'X'),
    ("disable-evictions", 'M'),
    ("disable-flush-all", 'F'),
    ("disable-watch", 'W'),
    ("enable-coredumps", 'r'),
    ("enable-largepages", 'L'),
    ("enable-sasl", 'S'),
    ("enable-shutdown", 'A'),
    ("enable-ssl", 'Z'),
    ("extended", 'o'),
    ("listen", 'l'),
    ("listen-backlog", 'b'),
    ("lock-memory", 'k'),
    ("max-item-size", 'I'),
    ("max-reqs-per-event", 'R'),
    ("memory-file", 'e'),
    ("memory-limit", 'm'),
    ("napi-ids", 'N'),
    ("pidfile", 'P'),
    ("port", 'p'),
    ("prefix-delimiter", 'D'),
    ("protocol", 'B'),
    ("slab-growth-factor", 'f'),
    ("slab-min-size", 'n'),
    ("threads", 't'),
    ("udp-port", 'U'),
    ("unix-mask", 'a'),
    ("unix-socket", 's'),
    ("user", 'u'),
    ("verbose", 'v'),
];

/// The state of flags that act together.
#[derive(Default)]
struct Together {
    host: Option<String>,
    port: Option<String>,
    is_tls: bool,
    /// Whether the first address excludes TLS.
    is_plain: bool,
    /// Whether there is a certificate authority but no flag about client certificates.
    has_authority: bool,
    asks_clients: bool,
}

/// Translates what would follow `memcached` on a command line.
///
/// # Errors
/// One line: a flag that memcached does not have, or one without its value.
pub fn import<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Imported, String> {
    let (mut imported, mut together) = (Imported::default(), Together::default());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if let Some(long) = argument.strip_prefix("--") {
            long_flag(long, &mut arguments, &mut together, &mut imported)?;
            continue;
        }
        let Some(flags) = argument.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            return Err(format!("{argument}: memcached's flags begin with a dash"));
        };
        for (at, short) in flags.char_indices() {
            let (name, attached) = (format!("-{short}"), &flags[at + short.len_utf8()..]);
            let Some(meaning) = flag(short) else {
                return Err(format!("{name}: memcached has no such flag"));
            };
            let takes_value = meaning.takes_value();
            let value = match (takes_value, attached) {
                (false, _) => "",
                (true, "") => arguments.next().ok_or(format!("{name}: its value is missing"))?,
                (true, attached) => attached,
            };
            one_flag((short, meaning), (&name, value), &mut together, &mut imported)?;
            if takes_value {
                break;
            }
        }
    }
    finish(together, &mut imported);
    Ok(imported)
}

/// `--threads=4`, `--threads 4`, and the beginning of one name alone, as getopt_long reads them.
fn long_flag<'a>(
    long: &str,
    arguments: &mut impl Iterator<Item = &'a str>,
    together: &mut Together,
    imported: &mut Imported,
) -> Result<(), String> {
    let (written, attached) = match long.split_once('=') {
        Some((written, value)) => (written, Some(value.to_owned())),
        None => (long, None),
    };
    let mut begun = LONG.iter().filter(|(name, _)| name.starts_with(written));
    let found = match LONG.iter().find(|(name, _)| *name == written) {
        Some(exact) => Some(exact),
        None => begun.next().filter(|_| begun.next().is_none() && !written.is_empty()),
    };
    let found = found.and_then(|(_, short)| Some((*short, flag(*short)?)));
    let Some((short, meaning)) = found else {
        imported.ignore(format!("--{long}"), "this flag of memcached is not known here");
        return Ok(());
    };
    let name = format!("--{written}");
    let value = match (meaning.takes_value(), attached) {
        (false, _) => String::new(),
        (true, Some(value)) => value,
        (true, None) => arguments.next().ok_or(format!("{name}: its value is missing"))?.to_owned(),
    };
    one_flag((short, meaning), (&name, &value), together, imported)
}

fn one_flag(
    (short, meaning): (char, Flag),
    (name, value): (&str, &str),
    together: &mut Together,
    imported: &mut Imported,
) -> Result<(), String> {
    let from = format!("{name} {value}").trim_end().to_owned();
    match meaning {
        Flag::Setting(key) => imported.set(key, value, &from),
        Flag::Ignored { why, .. } => imported.ignore(from, why),
        Flag::Special { .. } => special(short, value, &from, imported, together)?,
    }
    Ok(())
}

fn finish(together: Together, imported: &mut Imported) {
    let Together { host, port, is_tls, is_plain, has_authority, asks_clients } = together;
    if has_authority && !asks_clients {
        // In Dovetail an authority alone requests client certificates, in memcached it does not.
        imported.set("tls-auth-clients", "no", "ssl_verify_mode is 0 by itself");
    }
    if host.is_none() && port.is_none() && !is_tls {
        return;
    }
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let address = match port.as_deref() {
        Some("0") => "off".to_owned(),
        port => format!("{host}:{}", port.unwrap_or("11211")),
    };
    if is_tls && !is_plain {
        imported.set("memcached", "off", "-Z");
        imported.set("tls-memcached", address, "-Z, -l and -p");
    } else {
        imported.set("memcached", address, "-l and -p");
    }
}

fn listen(value: &str, from: &str, imported: &mut Imported, together: &mut Together) {
    let mut addresses = value.split(',');
    let first = addresses.next().unwrap_or_default();
    let plain = first.strip_prefix("notls:");
    together.is_plain = plain.is_some();
    let first = plain.unwrap_or(first);
    let bracketed = |host: &str| match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host.to_owned(),
    };
    match first.rsplit_once(':') {
        // Of `::1` no part is a port.
        Some((host, port)) if first.parse::<Ipv6Addr>().is_err() && port.parse::<u16>().is_ok() => {
            together.host = Some(bracketed(host));
            together.port = Some(port.to_owned());
        }
        _ => together.host = Some(bracketed(first)),
    }
    if addresses.next().is_some() {
        imported.ignore(from, "one address a port: the first one was taken");
    }
}

/// `-o`: options by name, with commas between them.
fn extended(value: &str, imported: &mut Imported, together: &mut Together) -> Result<(), String> {
    for option in value.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let from = format!("-o {option}");
        match name {
            "idle_timeout" => match value.parse::<u32>() {
                Ok(0) => imported.set("idle-timeout", "off", &from),
                Ok(seconds) => imported.set("idle-timeout", format!("{seconds}s"), &from),
                Err(_) => return Err(format!("{from}: this is no number of seconds")),
            },
            "ssl_chain_cert" => imported.set("tls-cert", value, &from),
            "ssl_key" => imported.set("tls-key", value, &from),
            "ssl_ca_cert" => {
                together.has_authority = true;
                imported.set("tls-ca", value, &from);
            }
            "ssl_verify_mode" => {
                together.asks_clients = true;
                let clients = match value {
                    "0" => "no",
                    "1" => "optional",
                    "2" | "3" => "yes",
                    _ => return Err(format!("{from}: memcached knows 0, 1, 2 and 3")),
                };
                imported.set("tls-auth-clients", clients, &from);
            }
            _ if name.starts_with("ssl_") => {
                imported.ignore(from, "TLS 1.2 and 1.3 have one set of ciphers, keys are PEM");
            }
            _ => imported.ignore(from, "this is memcached's own knob"),
        }
    }
    Ok(())
}

fn special(
    short: char,
    value: &str,
    from: &str,
    imported: &mut Imported,
    together: &mut Together,
) -> Result<(), String> {
    match short {
        'p' => together.port = Some(value.to_owned()),
        'l' => listen(value, from, imported, together),
        'o' => return extended(value, imported, together),
        'Z' => together.is_tls = true,
        'm' => {
            let mib: u64 =
                value.parse().map_err(|_| format!("{from}: this is no number of MiB"))?;
            imported.set("memory", format!("{}MiB", mib.max(64)), from);
        }
        'I' => {
            let unit = value.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let number = &value[..value.len() - unit.len()];
            let unit = match unit {
                "" => "",
                "k" | "K" => "KiB",
                "m" | "M" => "MiB",
                _ => return Err(format!("{from}: this is no size")),
            };
            imported.set("max-item-size", format!("{number}{unit}"), from);
        }
        'U' if value == "0" => {}
        'U' => imported.set("udp-port", value, from),
        's' => {
            imported.set("memcached-unix-socket", value, from);
            // With a Unix socket memcached opens no port.
            together.port.get_or_insert_with(|| "0".to_owned());
        }
        'a' => {
            let mode = u16::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o777);
            let mode = mode.ok_or(format!("{from}: this is no mode of a file"))?;
            imported.set("unix-mode", format!("{mode:04o}"), from);
        }
        'A' => imported.set("enable-shutdown", "on", from),
        'M' => imported.set("mode", "store", from),
        'v' => imported.set("log", "debug", from),
        _ => imported.set("huge-pages", "auto", from),
    }
    Ok(())
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
        check("-p 0 --extended=modern", &[("memcached", "off")], &["-o modern"]);
        check("-m 64", &[("memory", "64MiB")], &[]);
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
    fn long_flags_are_the_short_ones() {
        check(
            "--memory-limit=64 --threads 3 --conn 9 --daemon --listen ::1 --soon=1",
            &[
                ("memory", "64MiB"),
                ("threads", "3"),
                ("max-connections", "9"),
                ("memcached", "[::1]:11211"),
            ],
            &["--daemon", "--soon=1"],
        );
        // An ambiguous prefix is not accepted.
        check("--memory=64", &[], &["--memory=64"]);
    }

    #[test]
    fn addresses_of_ipv6_are_addresses() {
        check("-l ::1", &[("memcached", "[::1]:11211")], &[]);
        check("-l [::1]:11300", &[("memcached", "[::1]:11300")], &[]);
        check("-l [::1] -p 11300", &[("memcached", "[::1]:11300")], &[]);
        check("-l ::1:11300", &[("memcached", "[::1]:11300")], &[]);
    }

    #[test]
    fn tls_idle_connections_and_memory_that_stays_have_settings() {
        check(
            "-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_ca_cert=/a,ssl_verify_mode=2 -p 11212",
            &[
                ("tls-cert", "/c"),
                ("tls-key", "/k"),
                ("tls-ca", "/a"),
                ("tls-auth-clients", "yes"),
                ("memcached", "off"),
                ("tls-memcached", "127.0.0.1:11212"),
            ],
            &[],
        );
        check(
            "-Z -o ssl_ca_cert=/a -l notls:10.0.0.1",
            &[("tls-ca", "/a"), ("tls-auth-clients", "no"), ("memcached", "10.0.0.1:11211")],
            &[],
        );
        check(
            "-e /dev/shm/m -o idle_timeout=60,modern,ssl_ciphers=x",
            &[("warm-file", "/dev/shm/m"), ("idle-timeout", "60s")],
            &["-o modern", "-o ssl_ciphers=x"],
        );
        check("-o idle_timeout=0", &[("idle-timeout", "off")], &[]);
    }

    #[test]
    fn mistakes_are_one_line() {
        let error = |line: &str| import(line.split(' ')).expect_err(line);
        assert_eq!(error("-m"), "-m: its value is missing");
        assert_eq!(error("--threads"), "--threads: its value is missing");
        assert_eq!(error("-o idle_timeout=x"), "-o idle_timeout=x: this is no number of seconds");
        assert_eq!(
            error("-o ssl_verify_mode=4"),
            "-o ssl_verify_mode=4: memcached knows 0, 1, 2 and 3"
        );
        assert_eq!(error("-m x"), "-m x: this is no number of MiB");
        assert_eq!(error("-a 9"), "-a 9: this is no mode of a file");
        assert_eq!(error("-I 1t"), "-I 1t: this is no size");
        assert_eq!(error("-q"), "-q: memcached has no such flag");
        assert_eq!(error("64"), "64: memcached's flags begin with a dash");
    }
}
