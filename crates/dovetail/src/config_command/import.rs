//! `dovetail config import`: translates redis.conf, or memcached's flags, into TOML.
//!
//! ```text
//!  dovetail config import /etc/redis/redis.conf          -: standard input
//!  dovetail config import --memcached -m 1024 -c 4096    all that follows is memcached's
//! ```
//!
//! Users hold passwords, so they go to a separate file, and only if `--acl-file` names one.
//!
//! Standard output gets the translated settings, followed by the untranslated directives as
//! comments, so that it is a valid configuration file. Standard error gets a summary.

use std::fmt::Write;
use std::fs::OpenOptions;
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use migrate::{Imported, User, memcached_args, redis_conf};
use sessions::acl::{LineError, Wrong};

use crate::failure::{Failure, note, print};
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
            Arg::new("acl-file")
                .long("acl-file")
                .value_name("PATH")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Where the lines `user ...` go: a new file, which acl-file then names"),
        )
        .arg(
            Arg::new("memcached")
                .long("memcached")
                .value_name("FLAG")
                .help("Everything that follows is what memcached was started with")
                .num_args(1..)
                .allow_hyphen_values(true)
                .conflicts_with_all(["file", "acl-file"]),
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
    let mut imported = imported;
    take_users(&mut imported, matches.get_one::<PathBuf>("acl-file").map(PathBuf::as_path))?;
    let (text, counts) = render(imported, machine);
    print(&text)?;
    note(&counts);
    Ok(())
}

/// Writes users to a file of their own and adds the setting; without a path they are listed as not
/// translated.
fn take_users(imported: &mut Imported, path: Option<&Path>) -> Result<(), Failure> {
    let users = std::mem::take(&mut imported.users);
    if users.is_empty() {
        return Ok(());
    }
    let has_file = imported.settings.iter().any(|setting| setting.key == "acl-file");
    let why = match path {
        _ if has_file => "users stand in aclfile alone: Redis would refuse to start with both",
        None => "users stand in a file of their own: say which by --acl-file PATH",
        Some(path) => return write_users(imported, &users, path),
    };
    for user in users {
        let what = format!("line {}: user", user.line);
        imported.ignored.push(migrate::Ignored { what, why: why.to_owned() });
    }
    Ok(())
}

fn write_users(imported: &mut Imported, users: &[User], path: &Path) -> Result<(), Failure> {
    let joined = |users: &[&User]| -> Vec<u8> {
        users.iter().flat_map(|user| user.text.iter().copied().chain([b'\n'])).collect()
    };
    let mut kept: Vec<&User> = users.iter().collect();
    let mut twice = Vec::new();
    for LineError { line, wrong } in sessions::acl::check_file(&joined(&kept)) {
        // A line of the file is a user, in their order.
        let (index, mut why) = (line - 1, wrong.to_string());
        if matches!(wrong, Wrong::Duplicate(_)) {
            twice.push(index);
            why += ": it is left out, Redis would not start with it";
        }
        let what = format!("line {}: user", users[index].line);
        imported.ignored.push(migrate::Ignored { what, why });
    }
    for index in twice.into_iter().rev() {
        kept.remove(index);
    }
    let text = joined(&kept);
    let mut options = OpenOptions::new();
    // The file holds passwords: no other user may read it, and no other file is overwritten.
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(&text));
    written.map_err(|error| {
        let reason = reason_of(&error);
        Failure::Runtime(format!("config import: {} cannot be written: {reason}", path.display()))
    })?;
    let from = format!("{} lines `user ...`", kept.len());
    let (key, value) = ("acl-file", path.display().to_string());
    imported.settings.push(migrate::Setting { key, value, from });
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
        let reason = reason_of(&error);
        Failure::Usage(format!("config import: {file} cannot be read: {reason}"))
    })
}

/// The text of the configuration file, and a one-line summary.
fn render(mut imported: Imported, machine: &Machine) -> (String, String) {
    let mut text = String::new();
    let (mut entries, mut translated_count) = (Vec::new(), 0);
    for setting in std::mem::take(&mut imported.settings) {
        let found = find(setting.key);
        let read = found.map(|row| (row, row.read_given(&setting.value)));
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

/// The reason for which a server would not start with these settings.
fn refusal(entries: &[FileEntry], machine: &Machine) -> Option<String> {
    let combined = layers::combine(&Default::default(), &|_| None, entries);
    let checked = combined.and_then(|mut settings| {
        settle::settle(&mut settings, machine);
        ServeSettings::new(&settings, None, machine)
    });
    checked.err().map(|error| one_line(&error.to_string()))
}

/// A comment must not contain a line break.
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
        assert_eq!(entries.len(), 4, "{text}");
    }

    #[test]
    fn users_go_to_a_file_that_was_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.acl");
        let conf = b"user a on >pw ~* +@all\nuser b off +nosuch";
        let mut imported = redis_conf::import(conf).unwrap();
        take_users(&mut imported, Some(&path)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"user a on >pw ~* +@all\nuser b off +nosuch\n");
        let text = render(imported, &Machine::detect()).0;
        assert!(text.contains(&format!("acl-file = \"{}\"", path.display())), "{text}");
        let wrong = "line 2: user: the rule '+nosuch': Unknown command or category name in ACL";
        assert!(text.contains(wrong) && !text.contains(">pw"), "{text}");
        let twice = directory.path().join("twice.acl");
        let mut imported = redis_conf::import(b"port 1\nuser a on\n\nuser a off\n").unwrap();
        take_users(&mut imported, Some(&twice)).unwrap();
        assert_eq!(std::fs::read(&twice).unwrap(), b"user a on\n");
        let ignored = &imported.ignored[0];
        assert!(ignored.what.starts_with("line 4") && ignored.why.contains("second line"));
        let mut again = redis_conf::import(conf).unwrap();
        assert!(take_users(&mut again, Some(&path)).is_err(), "it is there");
        let mut without = redis_conf::import(conf).unwrap();
        take_users(&mut without, None).unwrap();
        assert_eq!(without.ignored.len(), 2);
        let mut both = redis_conf::import(b"aclfile /u\nuser a on").unwrap();
        take_users(&mut both, Some(&path)).unwrap();
        let files = both.settings.iter().filter(|setting| setting.key == "acl-file");
        assert_eq!((both.ignored.len(), files.count()), (1, 1));
    }

    #[test]
    fn what_a_server_would_refuse_is_said() {
        let text = rendered("bind 0.0.0.0\nport 7000");
        assert!(text.contains("`dovetail serve` refuses this: "), "{text}");
        assert!(!rendered("bind 0.0.0.0\nrequirepass x").contains("refuses"));
        let text = rendered("appendonly yes\ndir /d\nmaxmemory-policy allkeys-lru");
        assert!(text.contains("refuses this: appendonly and dir: data-dir "), "{text}");
    }

    #[test]
    fn the_plainest_durable_redis_is_a_store_that_starts() {
        let text = rendered("appendonly yes\nrequirepass x");
        assert!(!text.contains("refuses") && !text.contains("Not translated"), "{text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mode = ")).collect();
        assert!(lines[0].starts_with("mode = \"store\""), "{text}");
        assert!(lines[0].contains("Redis's default is noeviction"), "{text}");
    }

    #[test]
    fn memcached_stays_a_cache() {
        let flags = "-m 64 -Z -o ssl_chain_cert=/c,ssl_key=/k,idle_timeout=60 -e /dev/shm/m -l ::1";
        let imported = memcached_args::import(flags.split(' ')).unwrap();
        let text = render(imported, &Machine::detect()).0;
        assert!(!text.contains("mode = ") && !text.contains("refuses"), "{text}");
        assert!(text.contains("tls-memcached = \"[::1]:11211\""), "{text}");
        assert!(text.contains("idle-timeout = \"60s\"") && !text.contains("Not"), "{text}");
    }

    /// What CONFIG GET * of Redis 7.0 names, without most of the families that nothing here has.
    const REDIS_DIRECTIVES: &str = "
        aclfile acllog-max-len acl-pubsub-default active-expire-effort activedefrag
        activerehashing always-show-logo aof-load-truncated aof-timestamp-enabled
        aof-use-rdb-preamble appenddirname appendfilename appendfsync appendonly
        auto-aof-rewrite-min-size auto-aof-rewrite-percentage bind bind-source-addr
        busy-reply-threshold client-output-buffer-limit client-query-buffer-limit
        cluster-enabled cluster-port crash-log-enabled daemonize databases dbfilename dir
        disable-thp dynamic-hz enable-debug-command enable-module-command
        enable-protected-configs hz ignore-warnings io-threads io-threads-do-reads
        jemalloc-bg-thread latency-monitor-threshold latency-tracking
        latency-tracking-info-percentiles lazyfree-lazy-eviction lfu-decay-time lfu-log-factor
        logfile loglevel lua-time-limit masterauth masteruser maxclients maxmemory
        maxmemory-clients maxmemory-eviction-tenacity maxmemory-policy maxmemory-samples
        min-replicas-max-lag min-replicas-to-write no-appendfsync-on-rewrite
        notify-keyspace-events oom-score-adj pidfile port proc-title-template
        propagation-error-behavior protected-mode proto-max-bulk-len rdbchecksum rdbcompression
        repl-backlog-size repl-timeout replica-priority replica-read-only replicaof requirepass
        sanitize-dump-payload save set-proc-title shutdown-on-sigint shutdown-on-sigterm
        shutdown-timeout slowlog-log-slower-than slowlog-max-len socket-mark-id
        stop-writes-on-bgsave-error stream-node-max-bytes supervised syslog-enabled tcp-backlog
        tcp-keepalive timeout tls-auth-clients tls-ca-cert-file tls-cert-file tls-ciphers
        tls-key-file tls-key-file-pass tls-port tls-protocols tls-replication
        tls-session-caching tracking-table-max-keys unixsocket unixsocketperm";

    /// A directive and the setting that it is another name of, as CONFIG SET has it.
    const ALIASES: [(&str, &str); 1] = [("timeout", "idle-timeout")];

    #[test]
    fn no_directive_that_is_ignored_has_the_name_of_a_setting() {
        let own = REDIS_DIRECTIVES.split_whitespace().map(|name| (name, name));
        let named = own.filter(|(_, key)| find(key).is_some()).chain(ALIASES);
        let mut count = 0;
        for (directive, key) in named {
            let conf = format!("{directive} 1");
            let imported = redis_conf::import(conf.as_bytes()).unwrap();
            let found = imported.settings.iter().any(|setting| setting.key == key);
            assert!(found && imported.ignored.is_empty(), "{directive}: {:?}", imported.ignored);
            count += 1;
        }
        assert!(count > ALIASES.len() + 5, "{count} directives have settings");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_mistake_of_usage() {
        let failure = read("/nonexistent/redis.conf").unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure}");
    }

    #[test]
    fn nothing_breaks_out_of_a_comment() {
        let is_sound =
            |text: &str| text.lines().all(|line| line.is_empty() || line.starts_with(['#', 'm']));
        let text = rendered("unknown \"a\\nthreads = 3\"");
        assert!(is_sound(&text), "{text}");
    }
}
