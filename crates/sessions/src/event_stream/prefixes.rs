//! `stats detail`: counts reads, writes and deletions of the keys of each prefix, while it is on.
//!
//! # Limits
//! As many prefixes as memcached counts; the keys of further prefixes are not counted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of counted prefixes.
const PREFIXES_MAX: usize = 128;

/// The end of a prefix, as in memcached's default.
const DELIMITER: u8 = b':';

/// The counts of requests by the prefix of their key.
#[derive(Debug, Default)]
pub struct Prefixes {
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// The kind of a request on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To read it.
    Get {
        /// The key existed.
        is_hit: bool,
    },
    /// To store it.
    Set,
    /// To delete it.
    Delete,
}

impl Prefixes {
    /// Whether keys are counted.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// `stats detail on` and `off`; the counts stay.
    pub(super) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Counts a request.
    pub fn count(&self, key: &[u8], used: Use) {
        let end = key.iter().position(|byte| *byte == DELIMITER || *byte == 0);
        let Some(prefix) = end.filter(|at| key[*at] == DELIMITER).map(|at| &key[..at]) else {
            return;
        };
        let mut counts = self.lock();
        if counts.len() >= PREFIXES_MAX && !counts.contains_key(prefix) {
            return;
        }
        let counts = counts.entry(prefix.into()).or_default();
        match used {
            Use::Get { is_hit } => {
                counts.gets += 1;
                counts.hits += u64::from(is_hit);
            }
            Use::Set => counts.sets += 1,
            Use::Delete => counts.deletes += 1,
        }
    }

    /// `stats reset`.
    pub fn reset(&self) {
        self.lock().clear();
    }

    /// `stats detail dump`, without its `END`.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        for (prefix, Counts { gets, hits, sets, deletes }) in &*self.lock() {
            let prefix = String::from_utf8_lossy(prefix);
            let _ =
                write!(text, "PREFIX {prefix} get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, Counts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_what_stands_before_the_first_colon() {
        let prefixes = Prefixes::default();
        for (key, used) in [
            (&b"foo:1"[..], Use::Set),
            (b"foo:1:2", Use::Get { is_hit: true }),
            (b"foo:", Use::Get { is_hit: false }),
            (b"bar:x", Use::Delete),
            (b"none", Use::Set),
            (b"a\0b:c", Use::Set),
        ] {
            prefixes.count(key, used);
        }
        let want = "PREFIX bar get 0 hit 0 set 0 del 1\r\nPREFIX foo get 2 hit 1 set 1 del 0\r\n";
        assert_eq!(prefixes.dump(), want);
        prefixes.reset();
        assert_eq!(prefixes.dump(), "");
    }

    #[test]
    fn the_number_of_prefixes_is_bounded() {
        let prefixes = Prefixes::default();
        for number in 0..2 * PREFIXES_MAX {
            prefixes.count(format!("{number}:k").as_bytes(), Use::Set);
        }
        prefixes.count(b"0:again", Use::Set);
        let dump = prefixes.dump();
        assert_eq!(dump.lines().count(), PREFIXES_MAX);
        assert!(dump.contains("PREFIX 0 get 0 hit 0 set 2 del 0\r\n"), "{dump}");
    }
}
