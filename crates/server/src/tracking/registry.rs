//! Who tracks, in which way, and who is about to.
//!
//! # Invariants
//! I1: a client that tracks has begun: `wanting` has the id of every tracker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::prefixes::Prefixes;
use crate::budget::{BufferBudget, Kind, Reservation};
use crate::clients::Client;

/// A prefix stands in the tracker, in the registry, and for a while in the one before.
const PREFIX_COPIES: usize = 3;
/// One client may take this part of the client buffers for them.
const PREFIXES_PART: u64 = 16;
/// What each takes besides its bytes.
const PREFIX_BYTES: usize = 200;

/// Whether what a client reads is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// All that it reads.
    #[default]
    Always,
    /// OPTIN: what the command behind CLIENT CACHING YES reads.
    OptIn,
    /// OPTOUT: all but what the command behind CLIENT CACHING NO reads.
    OptOut,
}

/// What a client is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keys that it has read.
    Read(Consent),
    /// BCAST: all keys with one of these prefixes.
    Broadcast(BTreeSet<Box<[u8]>>),
}

/// A client that tracks.
#[derive(Debug)]
pub struct Tracker {
    /// Which.
    pub client: Arc<Client>,
    /// Of what it is told.
    pub mode: Mode,
    /// Of what it has changed itself it is not.
    pub is_no_loop: bool,
    /// REDIRECT: which client is told in its place.
    pub redirect: Option<u64>,
    /// For its prefixes, of the client buffers.
    booked: Option<Reservation>,
    /// That client was gone when it was to be told something.
    is_broken: AtomicBool,
}

impl Tracker {
    /// One that is not in the registry yet.
    pub fn new(client: &Arc<Client>, mode: Mode) -> Tracker {
        let client = Arc::clone(client);
        let (is_no_loop, redirect, booked) = (false, None, None);
        Tracker { client, mode, is_no_loop, redirect, booked, is_broken: false.into() }
    }

    /// Books the memory that its prefixes take; false: that is not there.
    pub fn book(&mut self, budget: &Arc<BufferBudget>) -> bool {
        let bytes: usize =
            self.prefixes().map(|prefix| PREFIX_COPIES * prefix.len() + PREFIX_BYTES).sum();
        let bytes_max = budget.limit_bytes() / PREFIXES_PART;
        self.booked = Reservation::try_new(budget, Kind::Tracking, bytes as u64)
            .filter(|held| held.bytes() <= bytes_max);
        self.booked.is_some()
    }

    /// Its prefixes; none, unless it broadcasts.
    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        let prefixes = match &self.mode {
            Mode::Broadcast(prefixes) => Some(prefixes),
            Mode::Read(_) => None,
        };
        prefixes.into_iter().flatten().map(|prefix| &**prefix)
    }

    /// Who is told in its place, as CLIENT GETREDIR says it; 0: nobody.
    pub fn redirect_shown(&self) -> i64 {
        self.redirect.map_or(0, u64::cast_signed)
    }

    /// Whether it does.
    pub fn is_broadcasting(&self) -> bool {
        matches!(self.mode, Mode::Broadcast(_))
    }

    /// How what it reads is remembered.
    pub fn consent(&self) -> Option<Consent> {
        match self.mode {
            Mode::Read(consent) => Some(consent),
            Mode::Broadcast(_) => None,
        }
    }

    /// Whether who is told in its place is gone.
    pub fn is_broken(&self) -> bool {
        // Relaxed: what a list shows.
        self.is_broken.load(Ordering::Relaxed)
    }

    pub(crate) fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Registry {
    wanting: BTreeSet<u64>,
    trackers: BTreeMap<u64, Arc<Tracker>>,
    /// Of those who broadcast.
    pub prefixes: Prefixes,
}

impl Registry {
    /// A client is about to track; whether it is the first.
    pub fn begin(&mut self, client_id: u64) -> bool {
        let was_empty = self.wanting.is_empty();
        self.wanting.insert(client_id);
        was_empty
    }

    /// It is gone; whether it was the last.
    pub fn end(&mut self, client_id: u64) -> bool {
        self.wanting.remove(&client_id) && self.wanting.is_empty()
    }

    /// A client tracks, in another way if it did.
    pub fn insert(&mut self, tracker: &Arc<Tracker>) {
        let client_id = tracker.client.id;
        debug_assert!(self.wanting.contains(&client_id), "I1");
        self.remove(client_id);
        for prefix in tracker.prefixes() {
            self.prefixes.add(prefix, client_id);
        }
        self.trackers.insert(client_id, Arc::clone(tracker));
    }

    /// It tracks no more.
    pub fn remove(&mut self, client_id: u64) {
        if let Some(tracker) = self.trackers.remove(&client_id)
            && let Mode::Broadcast(prefixes) = &tracker.mode
        {
            self.prefixes.remove(prefixes, client_id);
        }
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
