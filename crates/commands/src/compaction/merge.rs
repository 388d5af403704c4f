//! Merges the outcomes of groups with those of the rest of a batch, in the order of the requests.

use std::ops::Range;

use base::UnixMillis;
use store::pin::Pins;
use store::request::{Item, Outcome, Request, Sink};

use crate::rmw::{Refusal, Rmw};

/// The store gives the outcome.
pub(super) const ASK: u8 = u8::MAX;

/// The outcome of one request of a group, with its values kept aside.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kept {
    Hit(KeptItem),
    Miss,
    Stored { old: Option<KeptItem> },
    NotStored { old: Option<KeptItem> },
    VersionMismatch { old: KeptItem },
    Deleted { old: Option<KeptItem> },
    Updated { old: Option<KeptItem>, new: Option<KeptItem> },
    Refused(Refusal),
    TooLarge { len_bytes: u64, max_bytes: u64 },
}

/// An item of the store, or one that never reached it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptItem {
    /// The place of its stored value among the values kept aside.
    pub value: Range<usize>,
    pub client_flags: u64,
    /// 0: it has not reached the store.
    pub version: u64,
    pub expires_at: Option<UnixMillis>,
}

impl KeptItem {
    /// The item as an operation sees it.
    pub fn item<'a>(&self, key: &'a [u8], scratch: &'a [u8]) -> Item<'a> {
        let value = &scratch[self.value.clone()];
        // Its time of writing is now, or unknown.
        Item::of_stored(key, value, self.client_flags, self.version, self.expires_at)
    }
}

impl Kept {
    fn outcome<'a>(&self, key: &'a [u8], scratch: &'a [u8]) -> Outcome<'a, Refusal> {
        let item = |kept: &KeptItem| kept.item(key, scratch);
        let maybe = |kept: &Option<KeptItem>| kept.as_ref().map(item);
        match self {
            Kept::Hit(kept) => Outcome::Hit(item(kept)),
            Kept::Miss => Outcome::Miss,
            // No client is told the version (I5 of the module above).
            Kept::Stored { old } => Outcome::Stored { version: 0, old: maybe(old) },
            Kept::NotStored { old } => Outcome::NotStored { old: maybe(old) },
            Kept::VersionMismatch { old } => Outcome::VersionMismatch { old: item(old) },
            Kept::Deleted { old } => Outcome::Deleted { old: maybe(old) },
            Kept::Updated { old, new } => Outcome::Updated { old: maybe(old), new: maybe(new) },
            Kept::Refused(refusal) => Outcome::Refused(*refusal),
            Kept::TooLarge { len_bytes, max_bytes } => {
                Outcome::TooLarge { len_bytes: *len_bytes, max_bytes: *max_bytes }
            }
        }
    }
}

/// Inserts the kept outcomes between those of the store.
pub(super) struct Merge<'m, 'r, S> {
    pub sink: &'m mut S,
    /// The whole batch.
    pub requests: &'m [Request<'r, Rmw<'r>>],
    pub kept: &'m [Kept],
    /// The index into `kept`, by position in the batch; [`ASK`]: the store gives the outcome.
    pub kept_at: &'m [u8],
    /// The positions in the batch of the requests that the store was given.
    pub places: &'m [u8],
    pub scratch: &'m [u8],
    /// The first position without an outcome.
    pub next: usize,
}

impl<S: Sink<Refusal>> Merge<'_, '_, S> {
    /// Passes on all kept outcomes before the position.
    fn catch_up(&mut self, position: usize, pins: Pins<'_>) {
        for index in self.next..position {
            let kept = &self.kept[usize::from(self.kept_at[index])];
            let outcome = kept.outcome(self.requests[index].key, self.scratch);
            self.sink.outcome(index, outcome, pins);
        }
        self.next = position;
    }

    /// Passes on the outcomes after the store's last one.
    pub fn finish(mut self, pins: Pins<'_>) {
        self.catch_up(self.requests.len(), pins);
    }
}

impl<S: Sink<Refusal>> Sink<Refusal> for Merge<'_, '_, S> {
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        let position = usize::from(self.places[request_index]);
        self.catch_up(position, pins);
        self.sink.outcome(position, outcome, pins);
        self.next = position + 1;
    }

    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        self.sink.may_tell(usize::from(self.places[request_index]), old, pins)
    }
}
