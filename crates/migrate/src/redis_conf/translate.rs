//! Translates directives of redis.conf into Dovetail's settings.

use super::{Directive, Mistake, directives};
use crate::imported::{Imported, User};

/// Directives whose values are secret (I2), and their purpose.
const SECRETS: [(&str, &str); 2] = [
    ("masterauth", "copies authenticate by the cluster's own key: see docs/cluster.md"),
    ("tls-key-file-pass", "keys are read unencrypted"),
];

/// Directives whose value is also the setting's value; an empty one is ignored.
const SAME: [(&str, &str); 10] = [
    ("aclfile", "acl-file"),
    ("io-threads", "threads"),
    ("maxclients", "max-connections"),
    ("requirepass", "requirepass"),
    ("slowlog-max-len", "slowlog-max-len"),
    ("tls-ca-cert-file", "tls-ca"),
    ("tls-cert-file", "tls-cert"),
    ("tls-key-file", "tls-key"),
    ("tracking-table-max-keys", "tracking-table-max-keys"),
    ("unixsocket", "unix-socket"),
];

/// The origin of the mode if no policy is set.
const NO_POLICY: &str =
    "no maxmemory-policy: Redis's default is noeviction, and a cache loses keys silently";

/// Known directives that need no setting, or have no counterpart, by the beginning of the name.
const REASONS: [(&str, &str); 43] = [
    ("active-defrag", "a log of segments is not fragmented: nothing has to be set"),
    ("activedefrag", "a log of segments is not fragmented: nothing has to be set"),
    ("activerehashing", "the index grows by itself"),
    ("always-show-logo", "there is none"),
    ("aof-", "the log in --data-dir has one form"),
    ("auto-aof-rewrite", "the log is cleaned by itself, in bounded steps"),
    (
        "client-output-buffer-limit",
        "buffers lie inside --memory, and a client that does not read is cut off",
    ),
    ("client-query-buffer-limit", "buffers lie inside --memory"),
    ("cluster-", "a cluster is described in its register: see docs/cluster.md"),
    ("crash-", "there is none"),
    ("daemonize", "start it by systemd or another supervisor: contrib/systemd has a unit"),
    ("dbfilename", "there are no snapshots: the log in --data-dir is the durable form"),
    ("disable-thp", "--huge-pages says what memory lies on"),
    ("dynamic-hz", "nothing runs by a timer"),
    ("hash-", "there are no hashes"),
    ("hll-", "there are no HyperLogLogs"),
    ("hz", "nothing runs by a timer"),
    ("include", "each file is imported by itself"),
    ("io-threads-do-reads", "all threads read"),
    ("jemalloc-", "memory is reserved at the start"),
    ("lazyfree-", "what is deleted never blocks"),
    ("lfu-", "--eviction has no such knobs"),
    ("list-", "there are no lists"),
    ("loadmodule", "there are no modules"),
    ("locale-", "nothing depends on it"),
    ("lua-", "there are no scripts"),
    ("maxmemory-", "--eviction has no such knobs"),
    ("no-appendfsync-on-rewrite", "there are no rewrites"),
    ("notify-keyspace-events", "there is no publishing"),
    ("oom-score-adj", "memory is reserved at the start: let systemd set OOMScoreAdjust"),
    ("pidfile", "a supervisor knows the process"),
    ("protected-mode", "addresses outside loopback need a password, or --insecure"),
    ("rdb", "there are no snapshots: the log in --data-dir is the durable form"),
    ("rename-command", "commands keep their names"),
    ("repl-", "replication is the cluster's: see docs/cluster.md"),
    ("replica", "replication is the cluster's: see docs/cluster.md"),
    ("set-", "there are no sets"),
    ("slave", "replication is the cluster's: see docs/cluster.md"),
    ("stream-", "there are no streams"),
    ("supervised", "systemd is told by itself when it asks"),
    ("syslog-", "log lines go to standard error"),
    ("tls-", "TLS 1.2 and 1.3 have one set of ciphers, and certificates are files"),
    ("zset-", "there are no sorted sets"),
];

/// The state of directives that act together.
#[derive(Default)]
struct Together {
    bind: Option<String>,
    port: Option<String>,
    tls_port: Option<String>,
    dir: Option<String>,
    is_appending: bool,
    sync: Option<String>,
    has_policy: bool,
}

/// Translates a whole file.
///
/// # Errors
/// The first line that is not a directive, or that Redis would refuse.
pub fn import(file: &[u8]) -> Result<Imported, Mistake> {
    let (mut imported, mut together) = (Imported::default(), Together::default());
    for directive in directives(file)? {
        translate(&directive, &mut together, &mut imported)?;
    }
    finish(together, &mut imported);
    Ok(imported)
}

fn translate(
    directive: &Directive,
    together: &mut Together,
    imported: &mut Imported,
) -> Result<(), Mistake> {
    let (name, first, what) = (directive.name.as_str(), directive.text(0), said(directive));
    let is_text = directive.values.iter().all(|value| std::str::from_utf8(value).is_ok());
    match name {
        "user" => user(directive, imported),
        // Without it, the server would have no password.
        "requirepass" if !is_text => {
            let what = "requirepass is no text in UTF-8: choose another password";
            return Err(Mistake { line: directive.line, what });
        }
        _ if !is_text => {
            let what = format!("line {}: {name}", directive.line);
            imported.ignore(what, "its value is no text in UTF-8");
        }
        "bind" => {
            together.bind = Some(first.trim_start_matches('-').to_owned());
            if directive.values.len() > 1 {
                imported.ignore(what, "one address a port: the first one was taken");
            }
        }
        "save" if first.is_empty() => {}
        "save" => imported.ignore(what, "there are no snapshots: --data-dir keeps every write"),
        _ if one_value(directive, together, imported) => {
            // A password cut at its space would be a different one.
            if directive.values.len() != 1 {
                let what = "wrong number of arguments: Redis refuses this line; one value \
                            follows the directive, in quotes if it has spaces";
                return Err(Mistake { line: directive.line, what });
            }
        }
        _ => ignore(directive, imported),
    }
    Ok(())
}

/// Translates directives with exactly one value, as Redis counts; false if the directive is not one
/// of these.
fn one_value(directive: &Directive, together: &mut Together, imported: &mut Imported) -> bool {
    let (name, first) = (directive.name.as_str(), directive.text(0));
    let (what, from) = (said(directive), format!("line {}: {name}", directive.line));
    if let Some((_, key)) = SAME.iter().find(|(same, _)| *same == name) {
        match first {
            "" => imported.unset(key),
            value => imported.set(key, value, &from),
        }
        return true;
    }
    match name {
        "port" => together.port = Some(first.to_owned()),
        "dir" => together.dir = Some(first.to_owned()),
        "appendonly" => together.is_appending = first.eq_ignore_ascii_case("yes"),
        "appendfsync" => together.sync = Some(first.to_ascii_lowercase()),
        "databases" if first == "1" => {}
        "databases" => imported.ignore(what, "there is one database, 0"),
        "maxmemory" => memory(&what, first, &from, imported),
        "maxmemory-policy" => {
            together.has_policy = true;
            policy(&what, first, &from, imported);
        }
        "tls-port" => together.tls_port = Some(first.to_owned()).filter(|port| port != "0"),
        "tls-auth-clients" => imported.set("tls-auth-clients", first.to_ascii_lowercase(), &from),
        "enable-debug-command" => {
            imported.set("enable-debug-command", first.to_ascii_lowercase(), &from);
        }
        "proto-max-bulk-len" => match bytes(first) {
            Some(bytes) => imported.set("max-item-size", bytes.min(512 << 20).to_string(), &from),
            None => imported.ignore(what, "this is no size"),
        },
        "loglevel" => match log_level(first) {
            Some(level) => imported.set("log", level, &from),
            None => imported.ignore(what, "this is no level"),
        },
        "logfile" if first.is_empty() => {}
        "logfile" => imported.ignore(what, "log lines go to standard error"),
        "unixsocketperm" => match octal(first) {
            // In Redis it stands for the mode that the process's mask leaves.
            Some(0) => {}
            Some(mode) => imported.set("unix-mode", format!("{mode:04o}"), &from),
            None => imported.ignore(what, "this is no mode of a file"),
        },
        "timeout" | "slowlog-log-slower-than" | "latency-monitor-threshold" => {
            time(name, &what, first, &from, imported);
        }
        "tcp-keepalive" | "tcp-backlog" if first == "0" => {}
        _ => return false,
    }
    true
}

/// Numbers whose unit the directive's name implies; each has one that switches it off.
fn time(name: &str, what: &str, value: &str, from: &str, imported: &mut Imported) {
    let (key, unit, least) = match name {
        "timeout" => ("idle-timeout", "s", 1),
        "slowlog-log-slower-than" => ("slowlog-log-slower-than", "us", 0),
        _ => ("latency-monitor-threshold", "ms", 1),
    };
    match value.parse::<i64>() {
        Ok(number) if number < least => imported.set(key, "off", from),
        Ok(number) => imported.set(key, format!("{number}{unit}"), from),
        Err(_) => imported.ignore(what, "this is no whole number"),
    }
}

/// A user, as a line of a file of users, whose words nothing quotes.
fn user(directive: &Directive, imported: &mut Imported) {
    let is_word = |word: &Vec<u8>| !word.is_empty() && !word.iter().any(u8::is_ascii_whitespace);
    if directive.values.is_empty() || !directive.values.iter().all(is_word) {
        let why = "a user has a name, and no word of it has a space: set it by ACL SETUSER";
        return imported.ignore(format!("line {}: user", directive.line), why);
    }
    let words: Vec<&[u8]> = directive.values.iter().map(Vec::as_slice).collect();
    imported
        .users
        .push(User { line: directive.line, text: [b"user ", &*words.join(&b' ')].concat() });
}

/// The line without secrets (I2).
fn said(directive: &Directive) -> String {
    let words = directive.values.iter().map(|value| String::from_utf8_lossy(value).into_owned());
    let words: Vec<String> = words.collect();
    format!("line {}: {} {}", directive.line, directive.name, words.join(" "))
}

fn ignore(directive: &Directive, imported: &mut Imported) {
    let name = directive.name.as_str();
    if let Some((_, why)) = SECRETS.iter().find(|(secret, _)| *secret == name) {
        return imported.ignore(format!("line {}: {name}", directive.line), *why);
    }
    let known = REASONS.iter().find(|(beginning, _)| name.starts_with(beginning));
    imported.ignore(said(directive), known.map_or("it has no counterpart", |(_, why)| why));
}

fn memory(what: &str, value: &str, from: &str, imported: &mut Imported) {
    match bytes(value) {
        Some(0) => imported.ignore(what, "memory always has a cap: --memory auto is the default"),
        Some(bytes) => imported.set("memory", bytes.max(64 << 20).to_string(), from),
        None => imported.ignore(what, "this is no size"),
    }
    if bytes(value).is_some_and(|bytes| (1..64 << 20).contains(&bytes)) {
        imported.ignore(what, "raised to 64MiB, the least that works");
    }
}

fn policy(what: &str, value: &str, from: &str, imported: &mut Imported) {
    let eviction = match value.to_ascii_lowercase().as_str() {
        "noeviction" => return imported.set("mode", "store", from),
        "allkeys-lru" => "lru-approx",
        "allkeys-lfu" => "s3-fifo",
        "allkeys-random" => "fifo",
        _ => {
            let why = "only all keys or none can be given up: choose mode = \"cache\" or \"store\"";
            return imported.ignore(what, why);
        }
    };
    imported.set("mode", "cache", from);
    imported.set("eviction", eviction, from);
}

fn log_level(level: &str) -> Option<&'static str> {
    Some(match level.to_ascii_lowercase().as_str() {
        "debug" | "verbose" => "debug",
        "notice" => "info",
        "warning" => "warn",
        "nothing" => "error",
        _ => return None,
    })
}

/// An address of `bind` in Dovetail's form.
fn host_of(bind: Option<&str>) -> String {
    match bind {
        None => "127.0.0.1".to_owned(),
        Some("*") => "0.0.0.0".to_owned(),
        Some("::*") => "[::]".to_owned(),
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host.to_owned(),
    }
}

fn finish(together: Together, imported: &mut Imported) {
    let Together { bind, port, tls_port, dir, is_appending, sync, has_policy } = together;
    if !has_policy {
        imported.set("mode", "store", NO_POLICY);
    }
    if let Some(port) = tls_port {
        let host = host_of(bind.as_deref());
        imported.set("tls-resp", format!("{host}:{port}"), "bind and tls-port");
    }
    match (bind, port) {
        (None, None) => {}
        (_, Some(port)) if port == "0" => imported.set("resp", "off", "port 0"),
        (bind, port) => {
            let host = host_of(bind.as_deref());
            let port = port.unwrap_or_else(|| "6379".to_owned());
            imported.set("resp", format!("{host}:{port}"), "bind and port");
        }
    }
    if !is_appending {
        if dir.is_some() {
            let why = "without appendonly nothing outlives the server: set data-dir if it shall";
            imported.ignore("dir", why);
        }
        return;
    }
    imported.set("data-dir", dir.unwrap_or_else(|| ".".to_owned()), "appendonly and dir");
    // Like `everysec` and `no`, `none` answers before a write is on the disk.
    let durability = if sync.as_deref() == Some("always") { "fsync" } else { "none" };
    imported.set("durability", durability, "appendfsync");
}

/// The mode of a file.
fn octal(text: &str) -> Option<u16> {
    u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777)
}

/// A size as Redis reads it: k is 1000, kb is 1024.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1000 * 1000,
        "mb" => 1 << 20,
        "g" => 1000 * 1000 * 1000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &str, settings: &[(&str, &str)], ignored: &[&str]) {
        let imported = import(file.as_bytes()).expect("every line is one");
        // What nothing in the file says has a test of its own.
        let said = imported.settings.iter().filter(|it| it.from != NO_POLICY);
        let found: Vec<(&str, &str)> = said.map(|it| (it.key, it.value.as_str())).collect();
        assert_eq!(found, settings, "{file}");
        let found: Vec<&str> = imported.ignored.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(found, ignored, "{file}");
    }

    #[test]
    fn a_password_is_never_left_out() {
        let mistake = import(b"port 6380\nrequirepass \"\\xff\"").unwrap_err();
        let text = "line 2: requirepass is no text in UTF-8: choose another password";
        assert_eq!(mistake.to_string(), text);
    }

    #[test]
    fn a_cache_is_translated() {
        check(
            "bind 127.0.0.1 -::1\nport 6380\n# a comment\nmaxmemory 2gb\n\
             maxmemory-policy allkeys-lru\nmaxclients 500\nsave \"\"\nhz 10",
            &[
                ("memory", "2147483648"),
                ("mode", "cache"),
                ("eviction", "lru-approx"),
                ("max-connections", "500"),
                ("resp", "127.0.0.1:6380"),
            ],
            &["line 1: bind 127.0.0.1 -::1", "line 8: hz 10"],
        );
    }

    #[test]
    fn a_store_with_a_log_is_translated() {
        check(
            "appendonly yes\nappendfsync always\ndir /var/lib/redis\nmaxmemory-policy noeviction",
            &[("mode", "store"), ("data-dir", "/var/lib/redis"), ("durability", "fsync")],
            &[],
        );
        check("appendonly yes\ndir /d", &[("data-dir", "/d"), ("durability", "none")], &[]);
        check("dir /d\nport 0\nbind ::1", &[("resp", "off")], &["dir"]);
        check("bind ::1", &[("resp", "[::1]:6379")], &[]);
        check(
            "port 0\nunixsocket /run/redis.sock\nunixsocketperm 770",
            &[("unix-socket", "/run/redis.sock"), ("unix-mode", "0770"), ("resp", "off")],
            &[],
        );
    }

    #[test]
    fn without_a_policy_nothing_is_lost_as_in_redis() {
        for (file, is_store) in [
            ("", true),
            ("appendonly yes\nrequirepass x", true),
            ("maxmemory 100mb\nmaxmemory-samples 5", true),
            ("maxmemory-policy allkeys-lfu", false),
            ("maxmemory-policy volatile-lru", false),
        ] {
            let imported = import(file.as_bytes()).expect("every line is one");
            let mode = imported.settings.iter().find(|it| it.from == NO_POLICY);
            assert_eq!(mode.map(|it| (it.key, &*it.value)), is_store.then_some(("mode", "store")));
        }
    }

    #[test]
    fn times_and_tables_have_the_settings_of_their_names() {
        check(
            "timeout 300\nslowlog-log-slower-than 2500\nslowlog-max-len 7\n\
             latency-monitor-threshold 100\ntracking-table-max-keys 0\nenable-debug-command LOCAL",
            &[
                ("idle-timeout", "300s"),
                ("slowlog-log-slower-than", "2500us"),
                ("slowlog-max-len", "7"),
                ("latency-monitor-threshold", "100ms"),
                ("tracking-table-max-keys", "0"),
                ("enable-debug-command", "local"),
            ],
            &[],
        );
        check(
            "timeout 5\ntimeout 0\nslowlog-log-slower-than -1\nlatency-monitor-threshold 0",
            &[
                ("idle-timeout", "off"),
                ("slowlog-log-slower-than", "off"),
                ("latency-monitor-threshold", "off"),
            ],
            &[],
        );
        check("slowlog-log-slower-than 0", &[("slowlog-log-slower-than", "0us")], &[]);
        check("timeout soon", &[], &["line 1: timeout soon"]);
    }

    #[test]
    fn a_line_that_redis_refuses_is_refused() {
        for file in ["\nrequirepass foo bar", "\nport", "\nmaxclients 10 # few", "\ndir /a b"] {
            let mistake = import(file.as_bytes()).expect_err(file);
            assert_eq!(mistake.line, 2);
            assert!(mistake.what.starts_with("wrong number of arguments"), "{file}");
        }
    }

    #[test]
    fn the_last_of_several_counts_as_it_does_there() {
        check("maxmemory 1gb\nmaxmemory 100mb", &[("memory", "104857600")], &[]);
    }

    #[test]
    fn what_cannot_be_said_is_listed_and_no_secret_is() {
        check("maxmemory 0", &[], &["line 1: maxmemory 0"]);
        check("maxmemory-policy volatile-ttl", &[], &["line 1: maxmemory-policy volatile-ttl"]);
        check("maxmemory-samples 5", &[], &["line 1: maxmemory-samples 5"]);
        check(
            "masterauth hunter2\nuser 'a b' on >pw",
            &[],
            &["line 1: masterauth", "line 2: user"],
        );
        check(
            "unixsocketperm 999\nunixsocketperm 1777\nunixsocket ''",
            &[],
            &["line 1: unixsocketperm 999", "line 2: unixsocketperm 1777"],
        );
        check("aclfile \"\"\naclfile /u.acl", &[("acl-file", "/u.acl")], &[]);
        check("something new", &[], &["line 1: something new"]);
        let imported = import(b"requirepass 'two words'").expect("it is one");
        assert_eq!(imported.settings[0].value, "two words");
        let imported = import(b"pidfile \xff").expect("it is one");
        assert_eq!(imported.ignored[0].what, "line 1: pidfile");
        check("requirepass a\nrequirepass ''", &[], &[]);
        assert_eq!(import(b"\nsave \"").map_err(|mistake| mistake.line), Err(2));
    }

    #[test]
    fn users_are_lines_of_a_file_of_their_own() {
        let imported =
            import(b"port 1\nuser a on >pw ~x:* +@all\nuser \"b\" off").expect("they are");
        let lines: Vec<(usize, &[u8])> =
            imported.users.iter().map(|user| (user.line, &*user.text)).collect();
        let want: [(usize, &[u8]); 2] = [(2, b"user a on >pw ~x:* +@all"), (3, b"user b off")];
        assert_eq!((lines.as_slice(), imported.ignored.len()), (&want[..], 0));
    }

    #[test]
    fn sizes_are_those_of_redis() {
        let sizes = ["7", "1k", "1kb", "2MB", "3g", "x", "1t", "99999999999gb"];
        let want = [Some(7), Some(1000), Some(1024), Some(2 << 20), Some(3_000_000_000)];
        assert_eq!(sizes.map(bytes)[..5], want);
        assert!(sizes.map(bytes)[5..].iter().all(Option::is_none));
    }
}
