//! An item in transit: a key and its value.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The expiry of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// This long after `as_of`, as a server reports it. No clocks are compared.
    In {
        /// The time that the source reported.
        left: Duration,
        /// A time before the request, so that an item never lives longer than it would have on the
        /// source.
        as_of: Instant,
    },
    /// At a time, in milliseconds since 1970, as a file has it.
    At {
        /// The time.
        unix_ms: u64,
    },
}

impl Expiry {
    /// The remaining lifetime: `None` if it has expired; `Some(None)` if it does not expire.
    pub(crate) fn left(self) -> Option<Option<Duration>> {
        let left = match self {
            Expiry::Never => return Some(None),
            Expiry::In { left, as_of } => left.saturating_sub(as_of.elapsed()),
            Expiry::At { unix_ms } => {
                let end = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms))?;
                end.duration_since(SystemTime::now()).unwrap_or_default()
            }
        };
        (left >= Duration::from_millis(1)).then_some(Some(left))
    }
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Any bytes.
    pub key: Vec<u8>,
    /// Any bytes; empty if the value is not read.
    pub value: Vec<u8>,
    /// Length of the value, also if the value is not read.
    pub value_bytes: u64,
    /// Its expiry.
    pub expiry: Expiry,
    /// memcached's flags; 0 from elsewhere.
    pub flags: u32,
}

impl Item {
    /// Bytes of key and value.
    pub(crate) fn bytes(&self) -> u64 {
        self.key.len() as u64 + self.value_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_passed_has_nothing_left() {
        let as_of = Instant::now();
        assert_eq!(Expiry::Never.left(), Some(None));
        assert_eq!(Expiry::In { left: Duration::from_micros(999), as_of }.left(), None);
        assert_eq!(Expiry::At { unix_ms: 1 }.left(), None);
        let hour = Duration::from_secs(3600);
        let left = Expiry::In { left: hour, as_of }.left().flatten().expect("an hour is left");
        assert!(left <= hour && left > hour / 2);
    }

    #[test]
    fn a_time_beyond_all_clocks_is_not_now() {
        let far = Expiry::At { unix_ms: 1 << 60 }.left();
        assert!(far.is_none() || far.flatten() > Some(Duration::from_secs(1 << 20)));
    }
}
