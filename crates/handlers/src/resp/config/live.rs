//! The settings that can change while the server runs: a row for each of their names in CONFIG.
//!
//! ```text
//!  CONFIG GET ─▶ show              CONFIG SET ───┐
//!                                                ├─▶ take: checked, staged ─▶ apply: all or none
//!  CONFIG REWRITE ◀─ file's text   file, SIGHUP ─┘
//! ```
//!
//! # Invariants
//! I1: all settings of one command, or of one reading of the file, are checked before any is
//!     applied.
//! I2: a row takes its setting in the words of the file. Redis's names take Redis's words too.

use std::time::Duration;

use base::ByteSize;
use config::HotSetSize;
use config::LogLevel;
use config::descriptors;
use dispatch::hot::TRACKED_MAX;
use dispatch::lanes::{Dispatchers, RolesError, Threads, Wanted};
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
const SLOW_LOG_LEN_MAX: u64 = 1_000_000;

/// The maximum number of tracked keys that the file accepts.
const TRACKING_KEYS_MAX: u64 = 1_000_000_000;

/// Shown in place of a password.
const HIDDEN: &str = "***";

const LOG_WORDS: &str =
    "argument(s) must be one of the following: off, error, warn, info, debug, trace";
const REDIS_LOG_WORDS: &str =
    "argument(s) must be one of the following: debug, verbose, notice, warning";

/// Why a value is refused, as the client is told.
pub(super) type Reason = String;

/// A change that was checked, and its text in the file.
type Taken = Result<(Change, String), Reason>;

type Set = Box<dyn FnOnce(&Shared)>;

/// A change that was checked.
enum Change {
    /// How many threads there are.
    Threads(Threads),
    /// How many of them are dispatchers.
    Dispatchers(Dispatchers),
    /// The cap.
    Memory(u64),
    /// One that cannot fail.
    Other(Set),
}

/// One name of a setting.
pub(super) struct LiveSetting {
    /// The name in CONFIG.
    pub name: &'static str,
    /// The setting's key in the file.
    key: &'static str,
    /// The present value, as CONFIG GET shows it.
    pub show: fn(&Shared) -> String,
    take: fn(&Shared, &[u8]) -> Taken,
}

/// The settings of the file first, in the order of its reference; then the names that Redis has for
/// some of them.
pub(super) const LIVE_SETTINGS: &[LiveSetting] = &[
    LiveSetting {
        name: "threads",
        key: "threads",
        show: |shared| shared.roles().asked().0.to_string(),
        take: |shared, value| {
            let count = thread_count(value)?;
            let threads = count.map_or(Threads::All, Threads::Count);
            // In the file `auto` is a number of the machine's.
            let text = count.unwrap_or(shared.config().threads).to_string();
            Ok((Change::Threads(threads), text))
        },
    },
    LiveSetting {
        name: "cr-threads",
        key: "cr-threads",
        show: |shared| spelled(shared.roles().asked().1),
        take: |_, value| {
            let count = thread_count(value)?;
            let dispatchers = count.map_or(Dispatchers::Auto, Dispatchers::Count);
            Ok((Change::Dispatchers(dispatchers), spelled(count)))
        },
    },
    LiveSetting {
        name: "memory",
        key: "memory",
        show: |shared| ByteSize { bytes: shared.memory_bytes() }.to_string(),
        take: |shared, value| take_memory(shared, text(value).parse::<ByteSize>().ok()),
    },
    LiveSetting {
        name: "slo",
        key: "slo",
        show: |shared| shared.slo().text(),
        take: |shared, value| {
            let target = objective(shared, value)?;
            let set = change(move |shared| {
                // It was checked, and the check still holds.
                let _ = shared.slo().set(target);
            });
            Ok((set, target.map_or("off".to_owned(), base::format_duration)))
        },
    },
    LiveSetting {
        name: "hot-set",
        key: "hot-set",
        show: |shared| {
            let chosen = shared.hot_keys().map(|keys| keys.chosen_size());
            chosen.unwrap_or(shared.config().hot_set).to_string()
        },
        take: |shared, value| {
            let size = hot_set(shared, value)?;
            let set = change(move |shared| {
                if let Some(keys) = shared.hot_keys() {
                    keys.choose(size);
                }
            });
            Ok((set, size.to_string()))
        },
    },
    LiveSetting {
        name: "max-connections",
        key: "max-connections",
        show: |shared| shared.live().max_connections().to_string(),
        take: take_max_connections,
    },
    LiveSetting {
        name: "max-connections-per-address",
        key: "max-connections-per-address",
        show: |shared| shared.live().max_connections_per_address().to_string(),
        take: |_, value| {
            let count = integer(value, 0, CONNECTIONS_MAX as i64)?;
            let count_max = usize::try_from(count).unwrap_or(CONNECTIONS_MAX);
            let set =
                change(move |shared| shared.live().set_max_connections_per_address(count_max));
            Ok((set, count.to_string()))
        },
    },
    LiveSetting {
        name: "requirepass",
        key: "requirepass",
        show: |shared| {
            // Shows that there is a password, without the password.
            let has_none = shared.acl().table().default().has_no_password;
            if has_none { "" } else { HIDDEN }.to_owned()
        },
        take: |_, value| {
            let Ok(password) = std::str::from_utf8(value).map(str::to_owned) else {
                return Err("argument must be text in UTF-8".to_owned());
            };
            if value.len() > PASSWORD_MAX_BYTES {
                return Err(format!("argument must have at most {PASSWORD_MAX_BYTES} bytes"));
            }
            let text = password.clone();
            let set = change(move |shared| shared.acl().set_default_password(password.as_bytes()));
            Ok((set, text))
        },
    },
    LiveSetting {
        name: "idle-timeout",
        key: "idle-timeout",
        show: |shared| shared.live().idle_timeout_text(),
        take: take_idle_timeout,
    },
    LiveSetting {
        name: "slowlog-log-slower-than",
        key: "slowlog-log-slower-than",
        show: |shared| shared.observations().slow_log.threshold_us().to_string(),
        take: |_, value| {
            let us = number_or_time(value, (-1, i64::MAX), -1, (|time| time.as_micros(), "us"))?;
            let text = if us < 0 { "off".to_owned() } else { format!("{}us", us.min(DAY_US)) };
            Ok((change(move |it| it.observations().slow_log.set_threshold_us(us)), text))
        },
    },
    LiveSetting {
        name: "slowlog-max-len",
        key: "slowlog-max-len",
        show: |shared| shared.observations().slow_log.len_max().to_string(),
        take: |_, value| {
            let len_max = integer(value, 0, i64::MAX)?.cast_unsigned();
            let text = len_max.min(SLOW_LOG_LEN_MAX).to_string();
            Ok((change(move |it| it.observations().slow_log.set_len_max(len_max)), text))
        },
    },
    LiveSetting {
        name: "tracking-table-max-keys",
        key: "tracking-table-max-keys",
        show: |shared| shared.tracking().keys_max().to_string(),
        take: |_, value| {
            let keys_max = integer(value, 0, i64::MAX)?.cast_unsigned();
            let text = keys_max.min(TRACKING_KEYS_MAX).to_string();
            Ok((change(move |shared| shared.tracking().set_keys_max(keys_max)), text))
        },
    },
    LiveSetting {
        name: "latency-monitor-threshold",
        key: "latency-monitor-threshold",
        show: |shared| shared.observations().latency_monitor.threshold_ms().to_string(),
        take: |_, value| {
            let ms = number_or_time(value, (0, i64::MAX), 0, (|time| time.as_millis(), "ms"))?;
            // A longer one would not come back from a rewritten file.
            let ms = ms.min(DAY_US / 1000).cast_unsigned();
            let text = if ms == 0 { "off".to_owned() } else { format!("{ms}ms") };
            Ok((change(move |it| it.observations().latency_monitor.set_threshold_ms(ms)), text))
        },
    },
    LiveSetting {
        name: "log",
        key: "log",
        show: |shared| shared.live().log_level().name().to_owned(),
        take: |_, value| take_log_level(LogLevel::named(text(value)), LOG_WORDS),
    },
    LiveSetting {
        name: "maxmemory",
        key: "memory",
        show: |shared| shared.memory_bytes().to_string(),
        take: |shared, value| {
            let of_redis = redis_size(text(value)).map(|bytes| ByteSize { bytes });
            take_memory(shared, of_redis.or_else(|| text(value).parse().ok()))
        },
    },
    LiveSetting {
        name: "maxclients",
        key: "max-connections",
        show: |shared| shared.live().max_connections().to_string(),
        take: take_max_connections,
    },
    LiveSetting {
        name: "timeout",
        key: "idle-timeout",
        show: |shared| (shared.live().idle_timeout_ms() / 1000).to_string(),
        take: take_idle_timeout,
    },
    LiveSetting {
        name: "loglevel",
        key: "log",
        show: |shared| shared.live().log_level().redis_name().to_owned(),
        take: |_, value| take_log_level(LogLevel::named_by_redis(text(value)), REDIS_LOG_WORDS),
    },
];

/// The keys of the settings that can change while the server runs, in the order of the reference.
pub fn live_keys() -> impl Iterator<Item = &'static str> {
    LIVE_SETTINGS.iter().filter(|row| row.name == row.key).map(|row| row.key)
}

/// Finds a setting by one of its names.
pub(super) fn find_live(name: &str) -> Option<&'static LiveSetting> {
    LIVE_SETTINGS.iter().find(|row| row.name == name)
}

/// The changes to apply once all settings of a command are checked.
#[derive(Default)]
pub(super) struct Staged<'a> {
    wanted: Wanted,
    /// The name of a setting that changes roles.
    wanted_by: Option<&'a [u8]>,
    /// With the name of the setting.
    memory_bytes: Option<(&'a [u8], u64)>,
    others: Vec<Set>,
    /// The changes by the keys of the file.
    changes: Vec<(&'static str, String)>,
}

impl<'a> Staged<'a> {
    /// Stages a setting, which errors call `name`.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        setting: &LiveSetting,
        (name, value): (&'a [u8], &[u8]),
    ) -> Result<(), Reason> {
        let (change, text) = (setting.take)(shared, value)?;
        match change {
            Change::Threads(threads) => {
                (self.wanted.threads, self.wanted_by) = (threads, Some(name));
            }
            Change::Dispatchers(dispatchers) => {
                (self.wanted.dispatchers, self.wanted_by) = (dispatchers, Some(name));
            }
            Change::Memory(bytes) => self.memory_bytes = Some((name, bytes)),
            Change::Other(set) => self.others.push(set),
        }
        self.changes.push((setting.key, text));
        Ok(())
    }

    /// Applies all changes, or none: then returns the offending name, and why.
    pub(super) fn apply(self, shared: &Shared) -> Result<(), (&'a [u8], Reason)> {
        let _no_other = shared.live().begin_applying();
        let roles = self.wanted_by.map(|name| (name, self.wanted));
        let refused = |name: &'a [u8]| move |error: RolesError| (name, error.to_string());
        if let Some((name, wanted)) = roles {
            shared.roles().check(shared.config(), wanted).map_err(refused(name))?;
        }
        // A cache that shrinks evicts at once: what can be refused was checked before.
        if let Some((name, bytes)) = self.memory_bytes {
            shared.set_memory(bytes).map_err(|reason| (name, reason))?;
        }
        if let Some((name, wanted)) = roles {
            shared.change_roles(wanted).map_err(refused(name))?;
        }
        self.others.into_iter().for_each(|set| set(shared));
        for (setting, value) in &self.changes {
            let value = if *setting == "requirepass" { HIDDEN } else { value };
            tracing::info!(setting, value, "CONFIG SET");
        }
        shared.live().note(self.changes);
        Ok(())
    }
}

fn change(set: impl FnOnce(&Shared) + 'static) -> Change {
    Change::Other(Box::new(set))
}

fn take_memory(shared: &Shared, size: Option<ByteSize>) -> Taken {
    let size = size.ok_or("argument must be a memory value")?;
    shared.check_memory(size.bytes)?;
    Ok((Change::Memory(size.bytes), size.to_string()))
}

fn take_max_connections(shared: &Shared, value: &[u8]) -> Taken {
    let count = connection_count(value, shared.config().threads)?;
    Ok((change(move |shared| shared.live().set_max_connections(count)), count.to_string()))
}

fn take_idle_timeout(_: &Shared, value: &[u8]) -> Taken {
    let time = idle_time(value)?;
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let set = change(move |shared| {
        shared.live().set_idle_timeout_ms(ms);
        shared.wake_all();
    });
    Ok((set, if ms == 0 { "off".to_owned() } else { base::format_duration(time) }))
}

fn take_log_level(level: Option<LogLevel>, words: &str) -> Taken {
    let level = level.ok_or(words)?;
    Ok((change(move |shared| shared.live().set_log_level(level)), level.name().to_owned()))
}

fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or_default()
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

/// A number in Redis's unit, `off`, or a time as the file has it.
fn number_or_time(
    value: &[u8],
    (least, most): (i64, i64),
    off: i64,
    (in_unit, unit): (fn(Duration) -> u128, &str),
) -> Result<i64, Reason> {
    let text = text(value);
    match base::parse_duration(text) {
        _ if text.eq_ignore_ascii_case("off") => Ok(off),
        Ok(time) if !time.is_zero() && in_unit(time) == 0 => {
            Err(format!("argument must be off, or at least 1{unit}"))
        }
        Ok(time) => Ok(i64::try_from(in_unit(time)).unwrap_or(i64::MAX)),
        Err(_) => integer(value, least, most),
    }
}

/// The time after which an idle connection is closed; a number is in seconds, and 0 is off.
fn idle_time(value: &[u8]) -> Result<Duration, Reason> {
    let text = text(value);
    match base::parse_duration(text) {
        _ if text.eq_ignore_ascii_case("off") => Ok(Duration::ZERO),
        Ok(Duration::ZERO) => Ok(Duration::ZERO),
        Ok(time) if (1..=YEAR_S.cast_unsigned()).contains(&time.as_secs()) => Ok(time),
        Ok(_) => Err(format!("argument must be 0, off, or 1s to {YEAR_S}s")),
        Err(_) => integer(value, 0, YEAR_S).map(|s| Duration::from_secs(s.cast_unsigned())),
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

/// Applies the live settings of a file that was read again, each in the file's words: all take
/// effect, or none does and the error says why in one line.
pub fn set_live(shared: &Shared, values: &[(&'static str, String)]) -> Result<(), String> {
    let mut staged = Staged::default();
    for (key, value) in values {
        let setting = find_live(key).ok_or_else(|| format!("{key}: it needs a restart"))?;
        let taken = staged.take(shared, setting, (key.as_bytes(), value.as_bytes()));
        taken.map_err(|why| format!("{key}: {why}"))?;
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
        let setting = find_live(name).unwrap();
        let found = staged.take(shared, setting, (name.as_bytes(), value.as_bytes()));
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
        for name in ["slowlog-log-slower-than", "latency-monitor-threshold", "idle-timeout"] {
            for value in ["2s", "off", "0", "OFF", "1500ms"] {
                check(&shared, name, value, Ok(()));
            }
            check(&shared, name, "soon", Err("argument couldn't be parsed into an integer"));
        }
        let reason = "argument must be off, or at least 1ms";
        check(&shared, "latency-monitor-threshold", "500us", Err(reason));
        let reason = "argument must be 0, off, or 1s to 31536000s";
        check(&shared, "idle-timeout", "999ms", Err(reason));
        assert!(find_live("batch").is_none());
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
        let values =
            [("max-connections", "7"), ("threads", "5"), ("hot-set", "9"), ("memory", "120MiB")];
        for (name, value) in values {
            let setting = find_live(name).unwrap();
            let taken = staged.take(&shared, setting, (name.as_bytes(), value.as_bytes()));
            assert_eq!(taken, Ok(()));
        }
        let (name, _) = staged.apply(&shared).unwrap_err();
        assert_eq!(name, b"threads");
        assert_eq!(shared.memory().changes(), (0, 0), "a cache that shrank would have evicted");
        assert_eq!(shared.live().max_connections(), Config::default().max_connections);
        assert!(shared.hot_keys().unwrap().is_auto());
    }
}
