//! The log level, in the words of the setting `log` and of Redis's `loglevel`.

/// The minimum level of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevel(u8);

/// Changes the log level from now on, to a word of the setting `log`.
pub type SetLogLevel = fn(&'static str);

/// Our words and Redis's, from nothing to everything. Redis's `debug` is our debug too: only trace
/// may show keys, and Redis's word must not turn that on.
const LEVELS: [(&str, &str); 7] = [
    ("off", "nothing"),
    ("error", "warning"),
    ("warn", "warning"),
    ("info", "notice"),
    ("debug", "verbose"),
    ("debug", "debug"),
    ("trace", "debug"),
];

impl Default for LogLevel {
    fn default() -> LogLevel {
        LogLevel::INFO
    }
}

impl LogLevel {
    /// The default level.
    pub const INFO: LogLevel = LogLevel(3);

    /// The level of a word of the setting `log`.
    pub fn named(word: &str) -> Option<LogLevel> {
        let is_it = |level: &(&str, &str)| level.0.eq_ignore_ascii_case(word);
        LEVELS.iter().rposition(is_it).map(|index| LogLevel(index as u8))
    }

    /// The level of a word of Redis.
    pub fn named_by_redis(word: &str) -> Option<LogLevel> {
        let level = match word.to_ascii_lowercase().as_str() {
            "nothing" => 0,
            "warning" => 2,
            "notice" => 3,
            "verbose" => 4,
            "debug" => 5,
            _ => return None,
        };
        Some(LogLevel(level))
    }

    /// The word of the setting.
    pub fn name(self) -> &'static str {
        LEVELS[usize::from(self.0)].0
    }

    /// Redis's word.
    pub fn redis_name(self) -> &'static str {
        LEVELS[usize::from(self.0)].1
    }

    /// A number for it, from nothing to everything.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The level with that [`LogLevel::number`].
    pub fn of_number(number: u8) -> LogLevel {
        LogLevel(number.min(LEVELS.len() as u8 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_given() {
        for word in ["off", "error", "warn", "info", "debug", "trace"] {
            assert_eq!(LogLevel::named(word).map(LogLevel::name), Some(word));
        }
        for word in ["nothing", "warning", "notice", "verbose", "debug"] {
            assert_eq!(LogLevel::named_by_redis(word).map(LogLevel::redis_name), Some(word));
        }
        assert_eq!(LogLevel::named("info"), Some(LogLevel::INFO));
        assert_eq!((LogLevel::named("notice"), LogLevel::named_by_redis("trace")), (None, None));
    }
}
