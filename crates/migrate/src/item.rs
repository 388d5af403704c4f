//! An item in transit: a key and its value.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When an item ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Not by itself.
    Never,
    /// So long after `as_of`: what a server says. No clocks are compared.
    In {
        /// As the source said.
        left: Duration,
        /// Before it was asked, so that an item never lives longer than it would have there.
        as_of: Instant,
    },
    /// At a time, in milliseconds since 1970: what a file says.
    At {
        /// The time.
        unix_ms: u64,
    },
}

impl Expiry {
    /// What is left by now: `None`, if nothing is; `Some(None)`, if there is no end.
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
    /// Any bytes; empty if it is only looked at.
    pub value: Vec<u8>,
    /// The value's, also where it is only looked at.
    pub value_bytes: u64,
    /// When it ends.
    pub expiry: Expiry,
    /// memcached's flags; 0 from elsewhere.
    pub flags: u32,
}

impl Item {
    /// Key and value.
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
