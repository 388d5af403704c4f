//! CONFIG, and the small commands of operators: TIME, ROLE, LASTSAVE, SHUTDOWN.

mod live;

use config::{Config, Durability};
use live::{LIVE_SETTINGS, Staged, find_live};
pub use live::{live_keys, set_live};
use runtime::shared::Shared;
use runtime::walks::{Caller, Written};
use store::Mode;
use wire::resp::{ArgIter, ConfigPairs, ErrorReply, NameGlob, PatternError, ShutdownRequest};

use crate::gather::Gather;
use crate::resp::disk_wait::write_to_disk;

/// The maximum number of names and patterns in one CONFIG GET: each is compared with all settings.
const PATTERNS_MAX: usize = 256;

pub(super) fn config_get<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, patterns: ArgIter<'a>) {
    if patterns.count() > PATTERNS_MAX {
        let text = "CONFIG GET takes at most 256 names or patterns";
        return gather.fail(caller, &ErrorReply::Other(text));
    }
    let settings = settings(&gather.core.shared);
    let found = match find_settings(&settings, patterns) {
        Ok(found) => found,
        Err(error) => return gather.fail(caller, &ErrorReply::Other(error.text())),
    };
    gather.say(caller, |encoder| {
        encoder.map_header(found.len());
        for (name, value) in found {
            encoder.bulk(name);
            encoder.bulk(value.as_bytes());
        }
    });
}

/// CONFIG SET. Few settings can change while the server runs. Setting the present value is
/// always accepted: client libraries do that. All settings are changed, or none.
pub(super) fn config_set<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, pairs: ConfigPairs<'a>) {
    let settings = settings(&gather.core.shared);
    let mut known: Vec<&(String, String)> = Vec::new();
    // All names are checked before the first value, as in Redis.
    for (name, _) in pairs {
        let is_name = |setting: &&(String, String)| setting.0.as_bytes().eq_ignore_ascii_case(name);
        let Some(setting) = settings.iter().find(is_name) else {
            return gather.fail(caller, &ErrorReply::ConfigUnknown(name));
        };
        if known.iter().any(|other| other.0 == setting.0) {
            let reason = "duplicate parameter";
            return gather.fail(caller, &ErrorReply::ConfigSetFailed { name, reason });
        }
        known.push(setting);
    }
    let mut staged = Staged::default();
    for ((known, current), (_, value)) in known.into_iter().zip(pairs) {
        let (name, is_policy) = (known.as_bytes(), known == "maxmemory-policy");
        let reason = if let Some(setting) = find_live(known) {
            let taken = staged.take(&gather.core.shared, setting, (name, value));
            let Err(reason) = taken else { continue };
            return gather.fail(caller, &ErrorReply::ConfigSetFailed { name, reason: &reason });
        } else if is_policy && is("noeviction", value) && !is_same_policy(current, value) {
            "a cache evicts when its memory is full: start the server with --mode store"
        } else if is_policy && is("noeviction", current.as_bytes()) && is_cache(value) {
            "a store evicts nothing: start the server with --mode cache"
        } else if is_policy && !MEMORY_POLICIES.iter().any(|name| is(name, value)) {
            "argument must be one of the following: noeviction, allkeys-lru, allkeys-lfu"
        } else if current.as_bytes() != value && !(is_policy && is_same_policy(current, value)) {
            "can't set immutable config"
        } else {
            continue;
        };
        return gather.fail(caller, &ErrorReply::ConfigSetFailed { name, reason });
    }
    match staged.apply(&gather.core.shared) {
        Ok(()) => {
            gather.core.renew_passes();
            gather.say(caller, |encoder| encoder.ok());
        }
        Err((name, reason)) => {
            gather.fail(caller, &ErrorReply::ConfigSetFailed { name, reason: &reason });
        }
    }
}

/// Writes the changed settings into the settings file.
pub(super) fn config_rewrite(gather: &mut Gather<'_, '_>, caller: Caller) {
    let config = gather.core.shared.config();
    let (Some(path), Some(rewrite)) = (config.origin.file.clone(), config.hooks.rewrite_file)
    else {
        return gather.fail(caller, &ErrorReply::NoConfigFile);
    };
    write_to_disk(gather, caller, Written::Settings, move |shared| {
        shared.live().write_to(&path, rewrite)
    });
}

pub(super) fn time(gather: &mut Gather<'_, '_>, caller: Caller) {
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    gather.say(caller, |encoder| {
        encoder.array_header(2);
        let mut digits = itoa::Buffer::new();
        encoder.bulk(digits.format(since_epoch.as_secs()).as_bytes());
        encoder.bulk(digits.format(since_epoch.subsec_micros()).as_bytes());
    });
}

/// SHUTDOWN. The owner of the server drains and ends it; Redis does not answer this either.
pub(super) fn shutdown(gather: &mut Gather<'_, '_>, caller: Caller, request: ShutdownRequest) {
    if request.abort {
        return gather.fail(caller, &ErrorReply::NoShutdown);
    }
    let shared = std::sync::Arc::clone(&gather.core.shared);
    if request.save && shared.data().is_none() && shared.warm().is_none() {
        return gather.fail(caller, &ErrorReply::ShutdownFailed);
    }
    gather.settle(caller.slot);
    tracing::info!("a client asked for SHUTDOWN");
    if let Some(warm) = shared.warm().filter(|_| request.nosave) {
        warm.drop_at_end();
    }
    shared.run().request_shutdown();
}

/// The settings that CONFIG GET returns, each once. A name without wildcards is echoed as the
/// client spelt it, as Redis does.
fn find_settings<'f>(
    settings: &'f [(String, String)],
    patterns: impl Iterator<Item = &'f [u8]>,
) -> Result<Vec<(&'f [u8], &'f str)>, PatternError> {
    let mut found: Vec<(&[u8], &str)> = Vec::new();
    for pattern in patterns {
        let is_glob = pattern.iter().any(|byte| matches!(byte, b'[' | b'*' | b'?'));
        let glob = is_glob.then(|| NameGlob::new(pattern)).transpose()?;
        for (name, value) in settings {
            let is_match = match &glob {
                Some(glob) => glob.matches(name),
                None => name.as_bytes().eq_ignore_ascii_case(pattern),
            };
            let is_new =
                || !found.iter().any(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
            if is_match && is_new() {
                found.push((if is_glob { name.as_bytes() } else { pattern }, value));
            }
        }
    }
    Ok(found)
}

/// Everything that CONFIG GET shows: the names that Redis tools use, then our own.
fn settings(shared: &Shared) -> Vec<(String, String)> {
    let config = shared.config();
    let live = LIVE_SETTINGS.iter().map(|row| (row.name.to_owned(), (row.show)(shared)));
    let port = config.resp.map_or(0, |address| address.port());
    let bind = config.resp.map_or(String::new(), |address| address.ip().to_string());
    let fixed = [
        ("maxmemory-policy", memory_policy(config).to_owned()),
        ("proto-max-bulk-len", config.max_item_size_bytes.to_string()),
        ("port", port.to_string()),
        ("bind", bind),
        (
            "unixsocket",
            config.unix_socket.as_ref().map_or(String::new(), |path| path.display().to_string()),
        ),
        ("unixsocketperm", format!("{:o}", config.unix_mode)),
        ("databases", "1".to_owned()),
        ("io-threads", shared.roles().asked().0.to_string()),
        ("appendonly", yes_or_no(config.data.is_some())),
        ("appendfsync", append_fsync(config).to_owned()),
        ("aof-use-rdb-preamble", "no".to_owned()),
        ("dir", config.data.as_ref().map_or(String::new(), |data| data.path.display().to_string())),
        ("save", String::new()),
        ("hz", "1000".to_owned()),
        ("activedefrag", "no".to_owned()),
        ("maxmemory-clients", "0".to_owned()),
        ("enable-debug-command", config.debug_command.name().to_owned()),
        ("enable-module-command", "no".to_owned()),
        ("daemonize", "no".to_owned()),
        ("tcp-keepalive", "300".to_owned()),
        ("protected-mode", yes_or_no(!config.is_insecure)),
        (
            "aclfile",
            config.acl_file.as_ref().map_or(String::new(), |path| path.display().to_string()),
        ),
        ("acllog-max-len", "128".to_owned()),
        ("cluster-enabled", yes_or_no(shared.cluster().is_some())),
        ("latency-tracking", "yes".to_owned()),
        ("latency-tracking-info-percentiles", "50 99 99.9".to_owned()),
        ("notify-keyspace-events", String::new()),
        ("client-output-buffer-limit", format!("normal {0} {0} 0", config.output_limit_bytes)),
    ];
    let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value));
    let mut settings = live.chain(fixed).collect();
    add_missing(&mut settings, &config.origin.shown);
    settings
}

fn add_missing(settings: &mut Vec<(String, String)>, others: &[(String, String)]) {
    for (name, value) in others {
        if !settings.iter().any(|(known, _)| known == name) {
            settings.push((name.clone(), value.clone()));
        }
    }
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// When the log is synced, as a value of Redis's `appendfsync`.
fn append_fsync(config: &Config) -> &'static str {
    match &config.data {
        Some(data) if data.durability == Durability::Fsync => "always",
        _ => "everysec",
    }
}

/// The policies of Redis that are accepted: items without an expiry are evicted too, so those named
/// `volatile-` would promise something else.
const MEMORY_POLICIES: [&str; 3] = ["noeviction", "allkeys-lru", "allkeys-lfu"];

fn is(name: &str, value: &[u8]) -> bool {
    name.as_bytes().eq_ignore_ascii_case(value)
}

/// A cache uses its own policy (`eviction`), which is partly LRU and partly LFU.
fn is_same_policy(current: &str, value: &[u8]) -> bool {
    is(current, value) || (is_cache(current.as_bytes()) && is_cache(value))
}

/// Whether that policy of Redis evicts, for items with an expiry or all.
fn is_cache(policy: &[u8]) -> bool {
    let can_be_had = MEMORY_POLICIES.iter().any(|name| is(name, policy));
    can_be_had && !is("noeviction", policy)
}

/// Redis's name for the behaviour when the memory is full.
pub(super) fn memory_policy(config: &Config) -> &'static str {
    match (config.mode, config.eviction) {
        (Mode::Clean, _) => "noeviction",
        (Mode::Evict, _) => "allkeys-lru",
    }
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_POLICIES, find_settings, is_same_policy};

    #[track_caller]
    fn check(patterns: &[&str], want: &[(&str, &str)]) {
        let settings = [("maxmemory", "1"), ("maxmemory-policy", "fifo"), ("timeout", "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let patterns = patterns.iter().map(|pattern| pattern.as_bytes());
        let found: Vec<_> = find_settings(&settings, patterns)
            .unwrap()
            .into_iter()
            .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.to_owned()))
            .collect();
        let want: Vec<_> =
            want.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn lru_and_lfu_both_mean_the_policy_of_a_cache() {
        assert!(is_same_policy("allkeys-lru", b"allkeys-lfu"));
        assert!(is_same_policy("allkeys-lru", b"AllKeys-LRU"));
        assert!(is_same_policy("noeviction", b"noeviction"));
        assert!(!is_same_policy("noeviction", b"allkeys-lru"));
        assert!(!is_same_policy("allkeys-lru", b"noeviction"));
        assert!(!MEMORY_POLICIES.contains(&"volatile-lru"));
    }

    #[test]
    fn a_plain_name_is_echoed_as_it_was_spelt() {
        check(&["TimeOut"], &[("TimeOut", "0")]);
        check(&["Timeout", "timeout"], &[("Timeout", "0")]);
        check(&["nosuch"], &[]);
    }

    #[test]
    fn a_pattern_answers_the_names_that_it_matches_once() {
        check(&["MAXMEMORY*"], &[("maxmemory", "1"), ("maxmemory-policy", "fifo")]);
        check(&["TIMEOUT", "*imeout", "t?meout"], &[("TIMEOUT", "0")]);
        check(&["[t]imeout", "maxmemory"], &[("timeout", "0"), ("maxmemory", "1")]);
    }
}
