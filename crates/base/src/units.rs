//! Units: sizes, durations and the two clocks, with the spellings that users may write.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds on a monotonic clock: the OS clock in the server, the event queue in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// Nanoseconds since an arbitrary start.
    pub ns: u64,
}

/// Milliseconds since 1970-01-01 UTC; the unit of expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

/// A number of bytes that a user wrote: `64MiB`, `512m`, `2g`, `1024`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize {
    /// The size in bytes.
    pub bytes: u64,
}

/// The reason why a size, a count or a duration could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    wanted: &'static str,
}

impl fmt::Display for UnitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` {}", self.text, self.wanted)
    }
}

impl std::error::Error for UnitError {}

const SIZE_WANTED: &str =
    "is not a size: write a number and B, KiB, MiB, GiB or TiB, e.g. 64MiB, 512m, 2g";
const DURATION_WANTED: &str =
    "is not a time: write a number and ns, us, ms, s, m or h, e.g. 50us, 1.5s";
const COUNT_WANTED: &str =
    "is not a count: write a number and k, M or G, e.g. 1000000, 1_000_000, 1M";
const UNIT_WANTED: &str = "has no unit: write a unit: 5ms, 5us, 5s";

impl ByteSize {
    /// `count` binary megabytes.
    pub const fn mib(count: u64) -> ByteSize {
        ByteSize { bytes: count << 20 }
    }

    /// `count` binary gigabytes.
    pub const fn gib(count: u64) -> ByteSize {
        ByteSize { bytes: count << 30 }
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    /// Units are binary and case does not matter: `k`, `kb` and `KiB` all mean 1024.
    fn from_str(text: &str) -> Result<ByteSize, UnitError> {
        let error = || UnitError { text: text.to_owned(), wanted: SIZE_WANTED };
        let (number, unit) = split_unit(text);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(error()),
        };
        let unit_bytes = 1_u64 << shift;
        if let Ok(count) = number.parse::<u64>() {
            return count.checked_mul(unit_bytes).map(|bytes| ByteSize { bytes }).ok_or_else(error);
        }
        let bytes = parse_fraction(number).ok_or_else(error)? * unit_bytes as f64;
        // Above 2^53 a fraction no longer names one byte count.
        if bytes <= 9e15 { Ok(ByteSize { bytes: bytes as u64 }) } else { Err(error()) }
    }
}

impl fmt::Display for ByteSize {
    /// Formats the size in the largest unit that divides it: `64MiB`, `1536KiB`, `100B`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.bytes != 0 && self.bytes.trailing_zeros() >= shift {
                return write!(formatter, "{}{unit}", self.bytes >> shift);
            }
        }
        write!(formatter, "{}B", self.bytes)
    }
}

/// Parses `1000000`, `1_000_000`, `1M`, `1.5k`: counts take decimal units.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    let error = || UnitError { text: text.to_owned(), wanted: COUNT_WANTED };
    let plain: String = text.chars().filter(|letter| *letter != '_').collect();
    let (number, unit) = split_unit(&plain);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" | "b" => 1_000_000_000,
        _ => return Err(error()),
    };
    if let Ok(count) = number.parse::<u64>() {
        return count.checked_mul(factor).ok_or_else(error);
    }
    let count = parse_fraction(number).ok_or_else(error)? * factor as f64;
    if count.fract() == 0.0 && count <= 9e15 { Ok(count as u64) } else { Err(error()) }
}

/// The same, between two bounds; the error is a sentence that names them.
pub fn parse_count_in(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let count = parse_count(text).ok().filter(|count| bounds.contains(count));
    let (low, high) = bounds.into_inner();
    count.ok_or_else(|| format!("write a count from {low} to {high}, e.g. 1000000 or 1M"))
}

/// Parses `50us`, `10ms`, `1.5s`, `2m`, `1h`. A number without a unit is refused, because some
/// users mean seconds and others milliseconds; only `0` means the same to all.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let error = || UnitError { text: text.to_owned(), wanted: DURATION_WANTED };
    if is_unit_missing(text) {
        return Err(UnitError { text: text.to_owned(), wanted: UNIT_WANTED });
    }
    let (number, unit) = split_unit(text);
    let seconds_per_unit = match unit.to_ascii_lowercase().as_str() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(error()),
    };
    let seconds = parse_fraction(number).ok_or_else(error)? * seconds_per_unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| error())
}

/// Whether the text is a number other than 0 without a unit.
pub fn is_unit_missing(text: &str) -> bool {
    let (number, unit) = split_unit(text);
    unit.is_empty() && parse_fraction(number).is_some_and(|number| number != 0.0)
}

/// Formats the time in the largest unit that divides it: `1ms`, `1500us`, `2s`.
pub fn format_duration(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|(unit_ns, _)| ns != 0 && ns.is_multiple_of(*unit_ns));
    let (unit_ns, unit) = unit.unwrap_or((1, "ns"));
    format!("{}{unit}", ns / unit_ns)
}

/// Formats a number with its digits in groups of three: `1 234 567`.
pub fn format_grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A finite number of digits and at most one dot; no sign, no exponent.
fn parse_fraction(number: &str) -> Option<f64> {
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { number.parse().ok() } else { None }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_size(text: &str, want_bytes: Option<u64>) {
        assert_eq!(text.parse::<ByteSize>().ok().map(|size| size.bytes), want_bytes, "{text}");
    }

    #[test]
    fn counts_take_decimal_units() {
        let good = [
            ("1000", 1000),
            ("10M", 10_000_000),
            ("200k", 200_000),
            ("1.5k", 1500),
            ("1_000", 1000),
            ("3b", 3_000_000_000),
            ("0", 0),
        ];
        for (text, want) in good {
            assert_eq!(parse_count(text), Ok(want), "{text}");
        }
        let bad =
            ["", "k", "M", "-1", "1x", "1e6", "99999999999G", "1..5k", "1.5", "0x10", "nan", "inf"];
        for text in bad {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_count_out_of_bounds_is_told_the_bounds() {
        assert_eq!(parse_count_in("1k", 1..=1000), Ok(1000));
        let want = "write a count from 1 to 1000, e.g. 1000000 or 1M";
        for text in ["0", "1001", "2k", "k"] {
            assert_eq!(parse_count_in(text, 1..=1000).unwrap_err(), want, "{text}");
        }
    }

    #[test]
    fn sizes_take_binary_units_in_any_case() {
        check_size("1024", Some(1024));
        check_size("64MiB", Some(64 << 20));
        check_size("512m", Some(512 << 20));
        check_size("2g", Some(2 << 30));
        check_size("1.5 GiB", Some(3 << 29));
        check_size("7KB", Some(7 << 10));
    }

    #[test]
    fn sizes_refuse_what_is_no_size() {
        for text in ["", "m", "-1", "1x", "1e9", "12 34", "99999999999999t", "0x10", "1..5m"] {
            check_size(text, None);
        }
    }

    #[test]
    fn a_size_prints_as_it_can_be_read_back() {
        for bytes in [0, 1, 1023, 1024, 1536 << 10, 64 << 20, 3 << 40] {
            assert_eq!(ByteSize { bytes }.to_string().parse(), Ok(ByteSize { bytes }));
        }
    }

    #[test]
    fn durations_take_their_unit() {
        assert_eq!(parse_duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        let error = parse_duration("3").unwrap_err().to_string();
        assert_eq!(error, "`3` has no unit: write a unit: 5ms, 5us, 5s");
        assert!(is_unit_missing(" 3.5 ") && !is_unit_missing("3s") && !is_unit_missing(""));
        assert!(parse_duration("3 days").is_err());
        assert!(parse_duration("-3s").is_err());
    }

    #[test]
    fn a_duration_prints_as_it_can_be_read_back() {
        for (ns, want) in [(0, "0ns"), (1_500_000, "1500us"), (2_000_000, "2ms"), (7, "7ns")] {
            let text = format_duration(Duration::from_nanos(ns));
            assert_eq!(text, want);
            assert_eq!(parse_duration(&text), Ok(Duration::from_nanos(ns)));
        }
        assert_eq!(format_duration(Duration::from_secs(60)), "60s");
    }

    #[test]
    fn digits_are_grouped_by_thousands() {
        for (number, want) in [(0, "0"), (999, "999"), (1000, "1 000"), (1234567, "1 234 567")] {
            assert_eq!(format_grouped(number), want);
        }
    }
}
