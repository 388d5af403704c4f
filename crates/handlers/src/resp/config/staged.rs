//! CONFIG SET of the settings that can change while the server runs: all settings of one command
//! are checked before any is applied.

use std::time::Duration;

use base::ByteSize;
use config::HotSetSize;
use config::LogLevel;
use config::descriptors;
use dispatch::hot::TRACKED_MAX;
use dispatch::lanes::{Dispatchers, Threads, Wanted};
use runtime::shared::Shared;
use runtime::slo;
use sessions::password::PASSWORD_MAX_BYTES;

/// As in the table of settings.
const CONNECTIONS_MAX: usize = 1_000_000;

/// The maximum that the file accepts, as in the table of settings; a larger value has the same
/// effect.
const DAY_US: i64 = 86_400_000_000;
/// The longest idle time that the file accepts.
const YEAR_S: i64 = 365 * 86_400;
/// The maximum number of entries that the file accepts.
const SLOW_LOG_LEN_MAX: i64 = 1_000_000;

/// The maximum number of tracked keys that the file accepts.
const TRACKING_KEYS_MAX: i64 = 1_000_000_000;

const LOG_WORDS: &str =
    "argument(s) must be one of the following: off, error, warn, info, debug, trace";
const REDIS_LOG_WORDS: &str =
    "argument(s) must be one of the following: debug, verbose, notice, warning";

/// Why a value is refused, as the client is told.
pub(super) type Reason = String;

/// A setting's key in the file and its value there, or why it is refused.
type Taken = Result<(&'static str, String), Reason>;

/// The changes to apply once all settings of a command are checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Staged<'a> {
    wanted: Wanted,
    /// The name that the client used for a setting that changes roles.
    wanted_by: Option<&'a [u8]>,
    memory_bytes: Option<u64>,
    slo: Option<Option<Duration>>,
    hot_set: Option<HotSetSize>,
    max_connections: Option<usize>,
    default_password: Option<Vec<u8>>,
    max_per_address: Option<usize>,
    idle_timeout_ms: Option<u64>,
    slow_log_us: Option<i64>,
    slow_log_len_max: Option<u64>,
    tracking_keys_max: Option<u64>,
    latency_monitor_ms: Option<u64>,
    log_level: Option<LogLevel>,
    /// The changes by the keys of the file.
    changes: Vec<(&'static str, String)>,
}

impl<'a> Staged<'a> {
    /// Stages the setting `known`, which the client calls `name`; `None`: it is none of these.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        known: &str,
        name: &'a [u8],
        value: &[u8],
    ) -> Option<Result<(), Reason>> {
        let staged = match known {
            "threads" => thread_count(value).map(|count| {
                self.wanted_by = Some(name);
                self.wanted.threads = count.map_or(Threads::All, Threads::Count);
                ("threads", spelled(count))
            }),
            "cr-threads" => thread_count(value).map(|count| {
                self.wanted_by = Some(name);
                self.wanted.dispatchers = count.map_or(Dispatchers::Auto, Dispatchers::Count);
                ("cr-threads", spelled(count))
            }),
            "maxmemory" | "memory" => self.take_memory(shared, known, value),
            "slo" => objective(shared, value).map(|target| {
                self.slo = Some(target);
                ("slo", target.map_or("off".to_owned(), base::format_duration))
            }),
            "hot-set" => hot_set(shared, value).map(|size| {
                self.hot_set = Some(size);
                ("hot-set", size.to_string())
            }),
            "max-connections" | "maxclients" => connection_count(value, shared.config().threads)
                .map(|count| {
                    self.max_connections = Some(count);
                    ("max-connections", count.to_string())
                }),
            "requirepass" => match std::str::from_utf8(value) {
                Ok(password) if value.len() <= PASSWORD_MAX_BYTES => {
                    self.default_password = Some(value.to_vec());
                    Ok(("requirepass", password.to_owned()))
                }
                Ok(_) => Err(format!("argument must have at most {PASSWORD_MAX_BYTES} bytes")),
                Err(_) => Err("argument must be text in UTF-8".to_owned()),
            },
            "max-connections-per-address" => {
                integer(value, 0, CONNECTIONS_MAX as i64).map(|count| {
                    self.max_per_address = usize::try_from(count).ok();
                    ("max-connections-per-address", count.to_string())
                })
            }
            "timeout" | "idle-timeout" => idle_s(value).map(|seconds| {
                self.idle_timeout_ms = Some(seconds.cast_unsigned() * 1000);
                let text = if seconds == 0 { "off".to_owned() } else { format!("{seconds}s") };
                ("idle-timeout", text)
            }),
            "slowlog-log-slower-than" => integer(value, -1, i64::MAX).map(|us| {
                self.slow_log_us = Some(us);
                let text = if us < 0 { "off".to_owned() } else { format!("{}us", us.min(DAY_US)) };
                ("slowlog-log-slower-than", text)
            }),
            "slowlog-max-len" => integer(value, 0, i64::MAX).map(|len_max| {
                self.slow_log_len_max = Some(len_max.cast_unsigned());
                ("slowlog-max-len", len_max.min(SLOW_LOG_LEN_MAX).to_string())
            }),
            "tracking-table-max-keys" => integer(value, 0, i64::MAX).map(|keys_max| {
                self.tracking_keys_max = Some(keys_max.cast_unsigned());
                ("tracking-table-max-keys", keys_max.min(TRACKING_KEYS_MAX).to_string())
            }),
            "latency-monitor-threshold" => self.take_latency_monitor(value),
            "log" | "loglevel" => log_level(known, value).map(|level| {
                self.log_level = Some(level);
                ("log", level.name().to_owned())
            }),
            _ => return None,
        };
        Some(staged.map(|change| self.changes.push(change)))
    }

    fn take_memory(&mut self, shared: &Shared, known: &str, value: &[u8]) -> Taken {
        let bytes = memory_bytes(shared, known, value)?;
        self.memory_bytes = Some(bytes);
        Ok(("memory", ByteSize { bytes }.to_string()))
    }

    fn take_latency_monitor(&mut self, value: &[u8]) -> Taken {
        let ms = integer(value, 0, i64::MAX)?;
        self.latency_monitor_ms = Some(ms.cast_unsigned());
        let text = if ms == 0 { "off".to_owned() } else { format!("{}ms", ms.min(DAY_US / 1000)) };
        Ok(("latency-monitor-threshold", text))
    }

    /// Applies all changes, or none: then returns the offending name, and why.
    pub(super) fn apply(self, shared: &Shared) -> Result<(), (&'a [u8], Reason)> {
        let memory_before = shared.memory_bytes();
        if let Some(bytes) = self.memory_bytes {
            shared.set_memory(bytes).map_err(|reason| (b"maxmemory".as_slice(), reason))?;
        }
        if let Some(name) = self.wanted_by
            && let Err(error) = shared.change_roles(self.wanted)
        {
            // The previous value still fits.
            let _ = shared.set_memory(memory_before);
            return Err((name, error.to_string()));
        }
        if let Some(target) = self.slo {
            // The values were checked, and the checks still hold now.
            let _ = shared.slo().set(target);
        }
        if let (Some(size), Some(keys)) = (self.hot_set, shared.hot_keys()) {
            keys.choose(size);
        }
        if let Some(count) = self.max_connections {
            shared.live().set_max_connections(count);
        }
        if let Some(password) = &self.default_password {
            shared.acl().set_default_password(password);
        }
        if let Some(count) = self.max_per_address {
            shared.live().set_max_connections_per_address(count);
        }
        if let Some(ms) = self.idle_timeout_ms {
            shared.live().set_idle_timeout_ms(ms);
            shared.wake_all();
        }
        if let Some(us) = self.slow_log_us {
            shared.observations().slow_log.set_threshold_us(us);
        }
        if let Some(len_max) = self.slow_log_len_max {
            shared.observations().slow_log.set_len_max(len_max);
        }
        if let Some(keys_max) = self.tracking_keys_max {
            shared.tracking().set_keys_max(keys_max);
        }
        if let Some(ms) = self.latency_monitor_ms {
            shared.observations().latency_monitor.set_threshold_ms(ms);
        }
        if let Some(level) = self.log_level {
            shared.live().set_log_level(level);
        }
        for (setting, value) in &self.changes {
            let value = if *setting == "requirepass" { "***" } else { value };
            tracing::info!(setting, value, "CONFIG SET");
        }
        shared.live().note(self.changes);
        Ok(())
    }
}

fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or_default()
}

/// In our words or in Redis's, depending on the name that was used.
fn log_level(known: &str, value: &[u8]) -> Result<LogLevel, Reason> {
    match known {
        "log" => LogLevel::named(text(value)).ok_or_else(|| LOG_WORDS.to_owned()),
        _ => LogLevel::named_by_redis(text(value)).ok_or_else(|| REDIS_LOG_WORDS.to_owned()),
    }
}

/// In Redis's units for Redis's name, otherwise as in the file.
fn memory_bytes(shared: &Shared, known: &str, value: &[u8]) -> Result<u64, Reason> {
    let of_redis = (known == "maxmemory").then(|| redis_size(text(value))).flatten();
    let bytes = match of_redis {
        Some(bytes) => bytes,
        None => {
            text(value).parse::<ByteSize>().map_err(|_| "argument must be a memory value")?.bytes
        }
    };
    shared.check_memory(bytes).map(|()| bytes)
}

/// A size as Redis reads it: `k` is 1000 and `kb` 1024; `None`: Redis would refuse it.
fn redis_size(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_bytes)
}

/// The number of threads; `None`: `auto`.
fn thread_count(value: &[u8]) -> Result<Option<usize>, Reason> {
    if value.eq_ignore_ascii_case(b"auto") {
        return Ok(None);
    }
    let count = text(value).parse().map(Some);
    count.map_err(|_| "argument must be auto or a number of threads".to_owned())
}

/// A number within its bounds; errors are in the words of Redis.
fn integer(value: &[u8], least: i64, most: i64) -> Result<i64, Reason> {
    let number =
        text(value).parse::<i64>().map_err(|_| "argument couldn't be parsed into an integer")?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(format!("argument must be between {least} and {most} inclusive"))
}

/// Whole seconds, as in Redis, or what the file has: `off`, or a time with its unit.
fn idle_s(value: &[u8]) -> Result<i64, Reason> {
    let text = text(value);
    match base::parse_duration(text) {
        _ if text.eq_ignore_ascii_case("off") => Ok(0),
        Ok(time) if time.subsec_nanos() == 0 && time.as_secs() <= YEAR_S.cast_unsigned() => {
            Ok(time.as_secs().cast_signed())
        }
        Ok(_) => Err(format!("argument must be whole seconds, at most {YEAR_S}")),
        Err(_) => integer(value, 0, YEAR_S),
    }
}

fn spelled(count: Option<usize>) -> String {
    count.map_or("auto".to_owned(), |count| count.to_string())
}

fn objective(shared: &Shared, value: &[u8]) -> Result<Option<Duration>, Reason> {
    let checked = slo::parse(value)
        .and_then(|target| shared.slo().check(target).map(|()| target))
        .map_err(slo::SloError::reason);
    checked.map_err(str::to_owned)
}

fn hot_set(shared: &Shared, value: &[u8]) -> Result<HotSetSize, Reason> {
    let items = || text(value).parse().ok().filter(|items| (1..=TRACKED_MAX).contains(items));
    let size = match value.to_ascii_lowercase().as_slice() {
        b"auto" => HotSetSize::Auto,
        b"off" => HotSetSize::Off,
        _ => HotSetSize::Items(
            items().ok_or(format!("argument must be auto, off or 1 to {TRACKED_MAX}"))?,
        ),
    };
    let started_with = shared.config().hot_set;
    let is_read = shared.hot_keys().is_some() && shared.roles().layers().is_routed;
    if is_read || size == started_with {
        return Ok(size);
    }
    let reason = match started_with {
        HotSetSize::Off => "start the server with --hot-set auto: it samples no keys without",
        _ => "this server runs to completion; start it with --cr-threads 1 or more below --threads",
    };
    Err(reason.to_owned())
}

/// The maximum number of connections, at most what the limit of open files allows, which is raised
/// for them.
fn connection_count(value: &[u8], thread_count: usize) -> Result<usize, Reason> {
    let count =
        text(value).parse::<i64>().map_err(|_| "argument couldn't be parsed into an integer")?;
    let count = usize::try_from(count).ok().filter(|count| (1..=CONNECTIONS_MAX).contains(count));
    let count =
        count.ok_or(format!("argument must be between 1 and {CONNECTIONS_MAX} inclusive"))?;
    let allowed = descriptors::connections_allowed(count, thread_count);
    match allowed.map_err(|error| error.to_string())? {
        allowed if allowed < count => Err(format!(
            "The operating system is not able to handle the specified number of clients, try with \
             {allowed}"
        )),
        _ => Ok(count),
    }
}

/// Applies the live settings of a file that was read again, each in CONFIG SET's words: all take
/// effect, or none does and the error says why in one line.
pub fn set_live(shared: &Shared, values: &[(&'static str, String)]) -> Result<(), String> {
    let mut staged = Staged::default();
    for (key, value) in values {
        let taken = staged.take(shared, key, key.as_bytes(), value.as_bytes());
        taken
            .ok_or("it needs a restart".to_owned())
            .flatten()
            .map_err(|why| format!("{key}: {why}"))?;
    }
    staged.apply(shared).map_err(|(key, why)| format!("{}: {why}", text(key)))
}

#[cfg(test)]
mod tests {
    use config::Config;

    use super::*;

    #[track_caller]
    fn check(shared: &Shared, name: &str, value: &str, want: Result<(), &str>) {
        let mut staged = Staged::default();
        let found = staged.take(shared, name, name.as_bytes(), value.as_bytes()).unwrap();
        assert_eq!(found, want.map_err(str::to_owned), "{name} {value}");
    }

    fn shared(threads: usize, hot_set: HotSetSize) -> Shared {
        Shared::new(Config { threads, hot_set, memory_bytes: 128 << 20, ..Config::default() })
    }

    #[test]
    fn each_setting_says_what_it_takes() {
        let shared = shared(4, HotSetSize::Auto);
        for name in ["threads", "cr-threads"] {
            check(&shared, name, "AUTO", Ok(()));
            check(&shared, name, "3", Ok(()));
            for wrong in ["many", "-1", ""] {
                let reason = "argument must be auto or a number of threads";
                check(&shared, name, wrong, Err(reason));
            }
        }
        for value in ["auto", "OFF", "1", "10000"] {
            check(&shared, "hot-set", value, Ok(()));
        }
        for wrong in ["0", "10001", "some"] {
            check(&shared, "hot-set", wrong, Err("argument must be auto, off or 1 to 10000"));
        }
        for name in ["max-connections", "maxclients"] {
            check(&shared, name, "10", Ok(()));
            check(&shared, name, "x", Err("argument couldn't be parsed into an integer"));
            for wrong in ["0", "-3", "1000001"] {
                let reason = "argument must be between 1 and 1000000 inclusive";
                check(&shared, name, wrong, Err(reason));
            }
        }
        for (name, value) in
            [("maxmemory", "134217728"), ("maxmemory", "128mb"), ("memory", "128MiB")]
        {
            check(&shared, name, value, Ok(()));
        }
        for wrong in ["much", "-1", "1.5x", ""] {
            check(&shared, "maxmemory", wrong, Err("argument must be a memory value"));
        }
        let mut staged = Staged::default();
        assert_eq!(staged.take(&shared, "batch", b"batch", b"3"), None);
    }

    #[test]
    fn sizes_are_read_in_the_units_of_redis() {
        let sizes = ["100", "1k", "1kb", "2M", "2mb", "1g", "1Gb", "1.5g", "x", ""];
        let want = [
            Some(100),
            Some(1000),
            Some(1024),
            Some(2_000_000),
            Some(2 << 20),
            Some(1_000_000_000),
            Some(1 << 30),
            None,
            None,
            None,
        ];
        assert_eq!(sizes.map(redis_size), want);
    }

    #[test]
    fn a_server_without_samples_says_with_which_settings_it_would_have_them() {
        let want = "start the server with --hot-set auto: it samples no keys without";
        check(&shared(4, HotSetSize::Off), "hot-set", "5", Err(want));
        check(&shared(4, HotSetSize::Off), "hot-set", "off", Ok(()));
        let want =
            "this server runs to completion; start it with --cr-threads 1 or more below --threads";
        check(&shared(1, HotSetSize::Auto), "hot-set", "off", Err(want));
        check(&shared(1, HotSetSize::Auto), "hot-set", "auto", Ok(()));
    }

    #[test]
    fn what_is_in_the_way_of_one_leaves_all_as_it_was() {
        let shared = shared(4, HotSetSize::Auto);
        let mut staged = Staged::default();
        for (name, value) in [("max-connections", "7"), ("threads", "5"), ("hot-set", "9")] {
            assert_eq!(staged.take(&shared, name, name.as_bytes(), value.as_bytes()), Some(Ok(())));
        }
        let (name, _) = staged.apply(&shared).unwrap_err();
        assert_eq!(name, b"threads");
        assert_eq!(shared.live().max_connections(), Config::default().max_connections);
        assert!(shared.hot_keys().unwrap().is_auto());
    }
}
