//! Reads the log lines of processes, with their times since the epoch.

use std::path::Path;
use std::time::Duration;

/// A line and its time.
#[derive(Clone, Debug)]
pub struct Said {
    /// The time since 1970.
    pub at: Duration,
    /// The whole line.
    pub line: String,
}

impl Said {
    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        let rest = self.line.split(&format!("\"{name}\":")).nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }
}

/// All lines of a log with these words.
pub fn lines(log: &Path, words: &str) -> Vec<Said> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter(|line| line.contains(words));
    lines.filter_map(|line| Some(Said { at: time(line)?, line: line.to_owned() })).collect()
}

/// Of `{"ts":"2026-01-31T23:59:59.123456Z",...`.
fn time(line: &str) -> Option<Duration> {
    let text = line.split("\"ts\":\"").nth(1)?.split('Z').next()?;
    let (date, time) = text.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split(':');
    let hours: u64 = time.next()?.parse().ok()?;
    let minutes: u64 = time.next()?.parse().ok()?;
    let seconds: f64 = time.next()?.parse().ok()?;
    // Years from March on: the day that a leap year adds is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = u64::try_from(days - 719_469).ok()?;
    Some(Duration::from_secs((days * 24 + hours) * 3600 + minutes * 60))
        .map(|whole| whole + Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_since_1970() {
        let of = |text: &str| super::time(text).map(|at| at.as_secs_f64());
        assert_eq!(of("{\"ts\":\"1970-01-01T00:00:01.500000Z\""), Some(1.5));
        assert_eq!(of("{\"ts\":\"2024-03-01T00:00:00.000000Z\""), Some(1_709_251_200.0));
        assert_eq!(of("{\"ts\":\"2026-11-22T18:53:38.000000Z\""), Some(1_795_373_618.0));
    }
}
