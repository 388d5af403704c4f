//! The registry of clients that track, with their modes, and of those that are about to.
//!
//! # Invariants
//! I1: a client that tracks has begun: `wanting` has the id of every tracker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use budget::{BufferBudget, Kind, Reservation};

use super::prefixes::{Overlap, Prefixes, find_overlap};
use crate::clients::Client;

/// A prefix is stored among those of its client, and among those of all.
const PREFIX_COPIES: usize = 2;
/// The maximum part of the client buffers for one client's prefixes.
const PREFIXES_PART: u64 = 16;
/// The memory of each prefix besides its bytes.
const PREFIX_BYTES: usize = 280;

/// The maximum number of prefixes of one client.
pub fn prefix_count_max(budget: &BufferBudget) -> usize {
    usize::try_from(budget.limit_bytes() / PREFIXES_PART).unwrap_or(usize::MAX) / PREFIX_BYTES
}

/// A prefix of every key.
const ALL: &[&[u8]] = &[b""];

/// Which reads of a client are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// All its reads.
    #[default]
    Always,
    /// OPTIN: the reads of the command after CLIENT CACHING YES.
    OptIn,
    /// OPTOUT: all reads but those of the command after CLIENT CACHING NO.
    OptOut,
}

/// The keys that a client is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keys that it has read.
    Read(Consent),
    /// BCAST: all keys with one of the client's prefixes (`Registry::prefixes_of`).
    Broadcast,
}

/// Why a client does not get the prefixes it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused<'p> {
    /// The client buffers have no room for them.
    NoRoom,
    /// One of two prefixes begins with the other.
    Overlap(Overlap<'p>),
}

/// The prefixes of one client.
#[derive(Debug)]
struct Own {
    prefixes: BTreeSet<Box<[u8]>>,
    /// Their memory in the client buffers.
    booked: Reservation,
}

impl Own {
    fn new(budget: &Arc<BufferBudget>) -> Own {
        let booked = Reservation::empty(budget, Kind::Tracking);
        Own { prefixes: BTreeSet::new(), booked }
    }

    /// Books room for more prefixes and adds them all, or none; an empty `more` means all keys, in
    /// addition to the prefixes named before.
    fn add<'p>(&mut self, more: &[&'p [u8]], bytes_max: u64) -> Result<(), Refused<'p>> {
        let is_all = more.is_empty();
        if is_all && self.prefixes.contains(ALL[0]) {
            return Ok(());
        }
        let more = if is_all { ALL } else { more };
        let bytes_before = self.booked.bytes();
        let bytes: usize =
            more.iter().map(|prefix| PREFIX_COPIES * prefix.len() + PREFIX_BYTES).sum();
        let bytes = bytes_before + bytes as u64;
        if bytes > bytes_max || !self.booked.try_resize(bytes) {
            return Err(Refused::NoRoom);
        }
        if !is_all && let Some(overlap) = find_overlap(&self.prefixes, more) {
            self.booked.try_resize(bytes_before); // Less always fits.
            return Err(Refused::Overlap(overlap));
        }
        self.prefixes.extend(more.iter().map(|prefix| Box::from(*prefix)));
        Ok(())
    }
}

/// A client that tracks.
#[derive(Debug)]
pub struct Tracker {
    /// The client itself.
    pub client: Arc<Client>,
    /// The keys that it is notified of.
    pub mode: Mode,
    /// NOLOOP: it is not notified of its own changes.
    pub is_no_loop: bool,
    /// REDIRECT: the client that is notified in its place.
    pub redirect: Option<u64>,
    /// That client had disconnected when it was to be notified.
    is_broken: AtomicBool,
}

impl Tracker {
    /// A tracker that is not in the registry yet.
    pub fn new(client: &Arc<Client>, mode: Mode) -> Tracker {
        let client = Arc::clone(client);
        Tracker { client, mode, is_no_loop: false, redirect: None, is_broken: false.into() }
    }

    /// The client that is notified in its place, as in CLIENT GETREDIR; 0: none.
    pub fn redirect_shown(&self) -> i64 {
        self.redirect.map_or(0, u64::cast_signed)
    }

    /// Whether it broadcasts.
    pub fn is_broadcasting(&self) -> bool {
        self.mode == Mode::Broadcast
    }

    /// Which of its reads are remembered.
    pub fn consent(&self) -> Option<Consent> {
        match self.mode {
            Mode::Read(consent) => Some(consent),
            Mode::Broadcast => None,
        }
    }

    /// Whether the client that is notified in its place has disconnected.
    pub fn is_broken(&self) -> bool {
        // Relaxed: it is only displayed.
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Its redirection leads to a client that is gone.
    pub fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }
}

/// All trackers.
#[derive(Debug, Default)]
pub struct Registry {
    wanting: BTreeSet<u64>,
    trackers: BTreeMap<u64, Arc<Tracker>>,
    /// The prefixes of each client that broadcasts.
    own: BTreeMap<u64, Own>,
    /// The prefixes of all of them together.
    pub prefixes: Prefixes,
}

impl Registry {
    /// Records that a client is about to track; returns whether it is the first.
    pub fn begin(&mut self, client_id: u64) -> bool {
        let was_empty = self.wanting.is_empty();
        self.wanting.insert(client_id);
        was_empty
    }

    /// Removes a client; returns whether it was the last.
    pub fn end(&mut self, client_id: u64) -> bool {
        self.wanting.remove(&client_id) && self.wanting.is_empty()
    }

    /// Adds a tracker, or changes its mode. If it broadcasts, it gets more prefixes; none: all
    /// keys.
    pub fn insert<'p>(
        &mut self,
        tracker: &Arc<Tracker>,
        more: &[&'p [u8]],
        budget: &Arc<BufferBudget>,
    ) -> Result<(), Refused<'p>> {
        let client_id = tracker.client.id;
        debug_assert!(self.wanting.contains(&client_id), "I1");
        if tracker.is_broadcasting() {
            self.add_prefixes(client_id, more, budget)?;
        } else {
            self.remove(client_id);
        }
        self.trackers.insert(client_id, Arc::clone(tracker));
        Ok(())
    }

    fn add_prefixes<'p>(
        &mut self,
        client_id: u64,
        more: &[&'p [u8]],
        budget: &Arc<BufferBudget>,
    ) -> Result<(), Refused<'p>> {
        let mut own = self.own.remove(&client_id).unwrap_or_else(|| Own::new(budget));
        let added = own.add(more, budget.limit_bytes() / PREFIXES_PART);
        if !own.prefixes.is_empty() {
            self.own.insert(client_id, own);
        }
        added?;
        for prefix in if more.is_empty() { ALL } else { more } {
            self.prefixes.add(prefix, client_id);
        }
        Ok(())
    }

    /// Ends the tracking of a client.
    pub fn remove(&mut self, client_id: u64) {
        self.trackers.remove(&client_id);
        if let Some(own) = self.own.remove(&client_id) {
            self.prefixes.remove(&own.prefixes, client_id);
        }
    }

    /// The prefixes of a client, in their order; none, unless it broadcasts.
    pub fn prefixes_of(&self, client_id: u64) -> impl Iterator<Item = &Box<[u8]>> {
        self.own.get(&client_id).into_iter().flat_map(|own| &own.prefixes)
    }

    /// One of them.
    pub fn tracker(&self, client_id: u64) -> Option<&Arc<Tracker>> {
        self.trackers.get(&client_id)
    }

    /// All of them.
    pub fn trackers(&self) -> impl Iterator<Item = &Arc<Tracker>> {
        self.trackers.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn prefixes_without_room_are_refused_before_they_are_compared() {
        let budget = Arc::new(BufferBudget::new(64 * MIB));
        let mut own = Own::new(&budget);
        let words: Vec<String> = (0..1000).map(|at| format!("{at:04}")).collect();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let bytes = words.len() * (PREFIX_BYTES + PREFIX_COPIES * 4);
        let twice = [&words[..], &words].concat();
        assert_eq!(own.add(&twice, bytes as u64), Err(Refused::NoRoom));
        assert_eq!((own.prefixes.len(), own.booked.bytes()), (0, 0));
        assert_eq!(own.add(&words, bytes as u64), Ok(()));
        assert_eq!((own.prefixes.len(), own.booked.bytes()), (1000, bytes as u64));
        assert_eq!(own.add(&[], bytes as u64), Err(Refused::NoRoom));
        drop(own);
        assert_eq!(budget.kind_bytes(Kind::Tracking), 0);
    }

    #[test]
    fn prefixes_that_overlap_leave_what_was_booked_before() {
        let budget = Arc::new(BufferBudget::new(64 * MIB));
        let mut own = Own::new(&budget);
        assert_eq!(own.add(&[b"foo"], MIB), Ok(()));
        let before = own.booked.bytes();
        for (more, other, is_known) in
            [(&[b"bar", b"fo"], "foo", true), (&[b"b", b"b"], "b", false)]
                as [(&[&[u8]], &str, bool); 2]
        {
            let prefix = more[usize::from(is_known)];
            let overlap = Overlap { prefix, other: other.as_bytes().into(), is_known };
            assert_eq!(own.add(more, MIB), Err(Refused::Overlap(overlap)));
            assert_eq!((own.prefixes.len(), own.booked.bytes()), (1, before));
        }
        for _ in 0..2 {
            assert_eq!(own.add(&[], MIB), Ok(())); // All keys: once.
            assert_eq!((own.prefixes.len(), own.booked.bytes() - before), (2, PREFIX_BYTES as u64));
        }
    }
}
