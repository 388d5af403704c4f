//! The arguments of `watch`.

use std::fmt::Write;

/// A set of topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTopics(pub u8);

impl EventTopics {
    /// The empty set.
    pub const NONE: EventTopics = EventTopics(0);
    /// `fetchers`: every look at an item.
    pub const FETCHERS: EventTopics = EventTopics(1);
    /// `mutations`: every try to store one.
    pub const MUTATIONS: EventTopics = EventTopics(2);
    /// `evictions`: evicted items.
    pub const EVICTIONS: EventTopics = EventTopics(4);
    /// `connevents`: opened and closed connections.
    pub const CONNECTIONS: EventTopics = EventTopics(8);
    /// `deletions`, of later memcacheds: items that were deleted.
    pub const DELETIONS: EventTopics = EventTopics(16);
    /// Topics that 1.6.18 accepts and that have no lines here: `rawcmds`, `sysevents`, those of
    /// proxies.
    pub const OTHERS: EventTopics = EventTopics(32);
    /// No lines: `stats detail` counts requests by the prefixes of their keys.
    pub const PREFIXES: EventTopics = EventTopics(64);
    /// All topics of requests on items.
    pub const ITEMS: EventTopics = EventTopics(1 | 2 | 16 | 64);

    /// The topic of a word of the command.
    pub fn by_name(name: &[u8]) -> Option<EventTopics> {
        Some(match name {
            b"fetchers" => EventTopics::FETCHERS,
            b"mutations" => EventTopics::MUTATIONS,
            b"evictions" => EventTopics::EVICTIONS,
            b"connevents" => EventTopics::CONNECTIONS,
            b"deletions" => EventTopics::DELETIONS,
            b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => {
                EventTopics::OTHERS
            }
            _ => return None,
        })
    }

    /// The union.
    pub fn with(self, other: EventTopics) -> EventTopics {
        EventTopics(self.0 | other.0)
    }

    /// Whether the sets have a common topic.
    #[inline]
    pub fn has(self, other: EventTopics) -> bool {
        self.0 & other.0 != 0
    }
}

/// Appends a key as watchers and lists of keys show it: percent-encoded.
pub fn push_uri_encoded(key: &[u8], out: &mut String) {
    for byte in key {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(*byte));
            }
            other => write!(out, "%{other:02X}").expect("a string takes every write"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_sets() {
        let both = EventTopics::FETCHERS.with(EventTopics::DELETIONS);
        assert!(both.has(EventTopics::ITEMS) && both.has(EventTopics::FETCHERS));
        assert!(!both.has(EventTopics::MUTATIONS) && !EventTopics::NONE.has(EventTopics::ITEMS));
        assert_eq!(EventTopics::by_name(b"evictions"), Some(EventTopics::EVICTIONS));
        assert_eq!(EventTopics::by_name(b"all"), None);
    }

    #[test]
    fn keys_are_shown_in_one_word() {
        let mut out = String::new();
        push_uri_encoded(b"a b%\x01\xff-._~Z", &mut out);
        assert_eq!(out, "a%20b%25%01%FF-._~Z");
    }
}
