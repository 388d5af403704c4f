//! One thread's knowledge of the keys, and its conclusions from each value that it reads.

use std::sync::atomic::Ordering;

use base::UnixMillis;
use store::Item;

use super::shared::{KEYS, Shared};
use super::values::{Kind, client_flags, kind_of, sequence_of};

/// This thread's knowledge of one key; for its own keys the truth.
#[derive(Clone, Copy, Default)]
pub struct Known {
    /// The version of the last item seen.
    version: u64,
    sequence: u64,
    /// The last write whose item is known to be gone: it must not be seen again.
    gone: u64,
    /// Own keys only: the last write that began.
    pub started: u64,
    /// Own keys only: the last write that took effect, and when its item expires.
    effective: u64,
    expires_at: Option<UnixMillis>,
}

/// One answer about a key of the other thread, judged once its meanwhile finished writes are known.
#[derive(Clone, Copy)]
pub struct Sight {
    pub key: u64,
    /// `done` before the request.
    pub floor: u64,
    /// The write that was read, with its version; `None`: a miss.
    pub found: Option<(u64, u64)>,
}

pub struct Ledger<'s> {
    shared: &'s Shared<'s>,
    thread: u64,
    pub known: Vec<Known>,
}

impl<'s> Ledger<'s> {
    pub fn new(shared: &'s Shared<'s>, thread: usize) -> Ledger<'s> {
        Ledger { shared, thread: thread as u64, known: vec![Known::default(); KEYS as usize] }
    }

    pub fn is_own(&self, key: u64) -> bool {
        key % 2 == self.thread
    }

    /// Begins the next write of an own key; other threads may see it from now on.
    pub fn start(&mut self, key: u64) -> u64 {
        assert!(self.is_own(key), "one writer for each key");
        let known = &mut self.known[key as usize];
        known.started += 1;
        self.shared.progress[key as usize].started.store(known.started, Ordering::Release);
        known.started
    }

    /// Write `sequence` of an own key took effect with this version (0: a delete has none).
    pub fn took_effect(
        &mut self,
        key: u64,
        sequence: u64,
        version: u64,
        expires_at: Option<UnixMillis>,
    ) {
        let known = &mut self.known[key as usize];
        if version != 0 {
            assert!(version > known.version, "K1: key {key}: {version} after {}", known.version);
            known.version = version;
            known.sequence = sequence;
        }
        known.effective = sequence;
        known.expires_at = expires_at;
        self.shared.progress[key as usize].done.store(sequence, Ordering::Release);
    }

    /// The own key's item has another version and expiry, but the same value.
    pub fn was_touched(&mut self, key: u64, version: u64, expires_at: Option<UnixMillis>) {
        let known = &mut self.known[key as usize];
        assert!(version > known.version, "K1: touched key {key}");
        known.version = version;
        known.expires_at = expires_at;
    }

    pub fn floor(&self, key: u64) -> u64 {
        self.shared.progress[key as usize].done.load(Ordering::Acquire)
    }

    /// The write that made an item, and the item's version.
    pub fn read(&self, key: u64, item: &Item<'_>, now: UnixMillis) -> (u64, u64) {
        let sequence = sequence_of(key, item.value);
        assert_eq!(item.client_flags, client_flags(key, sequence), "flags of {key}:{sequence}");
        assert!(kind_of(key, sequence) != Kind::Delete, "{key}:{sequence} is a delete");
        assert!(item.expires_at.is_none_or(|at| at > now), "{key}:{sequence} had expired");
        (sequence, item.version)
    }

    /// Judges a read of an own key: its state is known exactly, except that a cache may have
    /// dropped it.
    pub fn see_own(&mut self, key: u64, found: Option<(u64, u64)>) {
        let known = self.known[key as usize];
        let Known { effective, version, .. } = known;
        let is_deleted = effective == 0 || kind_of(key, effective) == Kind::Delete;
        match found {
            Some((sequence, found_version)) => {
                assert!(!is_deleted, "K2: own key {key}:{sequence} was deleted by {effective}");
                assert!(sequence != known.gone, "K2: own key {key}:{sequence} was gone");
                assert_eq!((sequence, found_version), (effective, version), "own key {key}");
            }
            None => {
                let latest = self.shared.latest();
                let may_miss = is_deleted
                    || self.shared.forgets()
                    || known.expires_at.is_some_and(|at| at <= latest);
                assert!(may_miss, "own key {key}:{effective} is lost at {latest:?}: {:?}", {
                    known.expires_at
                });
                self.known[key as usize].gone = effective;
            }
        }
    }

    /// Judges a read of any key, once the read is over.
    pub fn see(&mut self, sight: Sight) {
        let Sight { key, floor, found } = sight;
        if self.is_own(key) {
            return self.see_own(key, found);
        }
        let ceiling = self.shared.progress[key as usize].started.load(Ordering::Acquire);
        let known = &mut self.known[key as usize];
        let Some((sequence, version)) = found else {
            let may_miss = floor == 0
                || self.shared.forgets()
                || (floor..=ceiling).any(|write| kind_of(key, write).may_be_absent());
            assert!(may_miss, "key {key} is lost between writes {floor} and {ceiling}");
            if floor == ceiling {
                known.gone = known.gone.max(floor);
            }
            return;
        };
        assert!(sequence >= floor, "key {key}: {sequence} is older than {floor} before the read");
        assert!(sequence <= ceiling, "key {key}: {sequence} is from the future of {ceiling}");
        assert!(sequence > known.gone, "K2: key {key}:{sequence} came back after {}", known.gone);
        self.order(key, sequence, version);
    }

    /// K1, K12: versions and writes grow together; of a value in place the version may lag.
    fn order(&mut self, key: u64, sequence: u64, version: u64) {
        let known = &mut self.known[key as usize];
        let before = (known.sequence, known.version);
        assert!(sequence >= before.0, "key {key}: write {sequence} after {before:?}");
        assert!(version >= before.1, "K1: key {key}: version {version} after {before:?}");
        (known.sequence, known.version) = (sequence, version);
    }
}
