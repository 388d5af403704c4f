//! Groups: requests that belong together, as the keys of one command or the commands of a
//! transaction.
//!
//! ```text
//!  worker                        control thread
//!  Begin(slot) ────────────────▶ holds the shard: later requests wait, present ones end
//!   ◀──────────────── granted ──
//!  Run(requests) ──────────────▶ computed on the newest writes, landed at the backups
//!   ◀─────────────── outcomes ──   at once, before all copies have them
//!  End ────────────────────────▶ releases the shard; waits until all copies have all of it
//!   ◀───────────────── is good ──
//! ```
//!
//! A worker waits for an answer for a moment, then it serves its other clients and looks again
//! (`pending_group`). Groups are rare and short: transactions and commands on several keys.
//!
//! # Invariants
//! P1: while a shard is held, only the holder's requests are executed on it: a group is atomic
//!     among all requests that go through the control thread. Reads that workers execute see what
//!     all copies have: of a group that fits into a datagram all or nothing (K11).
//! P2: no client gets an answer from a group that is not good: its changes may or may not take
//!     effect.
//! P3: outcomes keep values beside the ledger, so few of them wait at a time: a call that has kept
//!     [`KEPT_BYTES_MAX`] is answered with the outcomes that it has, and its worker runs the rest
//!     once it has told them. Values that no reply reports are not kept.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::UnixMillis;
use budget::{BufferBudget, Reservation};
use cluster::message::{Change, ChangeKind, Changed, Hold};
use cluster::record::Entry;
use cluster::{Slot, Version};
use commands::compaction::Tells;
use commands::rmw::{Refusal, Rmw};
use dispatch::lanes::request_slot::{Origin, RequestSlot, payload_of};
use store::Store;
use store::pin::Pins;
use store::request::{Item, Op, Outcome, Request, Sink};

use super::apply::{Context, apply};
use super::channel::{AnswerTo, WokenWorker};
use super::flight::{self, Flight, KeptRoom};
use super::kind_of;
use crate::cluster::room_bytes;

/// The bytes of kept values at which a call computes no further request (P3).
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// A worker's call to the control thread.
pub enum GroupCall {
    /// Hold the shard of a slot. The group's answers go there.
    Begin(Slot, AnswerTo),
    /// Execute these requests.
    Run(Vec<Arc<GroupChange>>),
    /// Keep room for all values that the group stores, which is refused as a whole, or not at all:
    /// what its worker has kept of it, and what is missing. The answer is bad if there is none.
    Keep(GroupRoom, Reservation),
    /// Its connection is at another worker, which makes its calls from now on. Not answered.
    Moved(WokenWorker),
    /// Give it up: nothing of it takes effect, unless it is ending. Not answered.
    Cancel,
    /// Release the shard once all copies have everything.
    End {
        /// The worker knows that its replies may not be sent.
        is_bad: bool,
    },
    /// Not about a group: delete all keys of the shards that this node serves, or of all shards.
    Flush {
        /// Of all shards.
        is_everywhere: bool,
        /// The answer goes there.
        answer_to: AnswerTo,
    },
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupAnswer {
    /// The shard is held; the requests are executed; all copies have everything.
    Good,
    /// Not here, not now, or unknown: see [`GroupChange::take`] and P2.
    Bad,
    /// Fewer copies than `--min-copies` (K23).
    TooFewCopies,
}

/// The room for the entries that a group stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRoom {
    /// Bytes of keys and values, in the log.
    pub filling_bytes: u64,
    /// Bytes that are booked until all copies have them, at most.
    pub made_bytes: u64,
}

impl GroupRoom {
    /// For entries of these lengths, keys and values together.
    pub fn of(lens_bytes: impl IntoIterator<Item = u64>) -> GroupRoom {
        lens_bytes.into_iter().fold(GroupRoom::default(), |room, len_bytes| GroupRoom {
            filling_bytes: room.filling_bytes + len_bytes,
            made_bytes: room.made_bytes + flight::kept_bytes_max(len_bytes),
        })
    }
}

/// One request of a group, and its outcome.
pub struct GroupChange {
    request_slot: RequestSlot,
    kind: ChangeKind,
    now: UnixMillis,
    value_max_bytes: u64,
    /// Whether its reply may report a value (P3).
    keeps_values: bool,
    flight: Flight,
    store: Arc<Store>,
    result: Mutex<Option<Kept>>,
    /// Set by the first computation, and kept when the outcome has been taken: whether it was
    /// refused.
    is_refused: OnceLock<bool>,
}

// SAFETY: the request slot is made by the worker and only read afterwards; its request borrows what
// the request slot itself keeps (Request slot's I2).
unsafe impl Send for GroupChange {}
// SAFETY: as above: no thread changes the request slot while it is shared.
unsafe impl Sync for GroupChange {}

/// An outcome that outlives the entry from which it was read.
#[derive(Clone, Debug)]
pub struct Kept {
    kind: KeptKind,
    old: Option<KeptItem>,
    new: Option<KeptItem>,
}

#[derive(Clone, Copy, Debug)]
enum KeptKind {
    Hit,
    Miss,
    Stored { version: u64 },
    NotStored,
    VersionMismatch,
    Deleted,
    Updated,
    Refused(Refusal),
    TooLarge { len_bytes: u64, max_bytes: u64 },
    OutOfMemory,
    Untold,
    Unwritable,
}

#[derive(Clone, Debug)]
struct KeptItem {
    /// As the entry has it; empty if no reply reports it.
    value: Arc<[u8]>,
    client_flags: u64,
    version: u64,
    expires_at: Option<UnixMillis>,
}

impl GroupChange {
    /// Of one request, whose bytes are copied, and of what its reply reports.
    pub fn new(
        request: &Request<'_, Rmw<'_>>,
        tells: Tells,
        origin: &Origin<'_>,
        (store, budget): (&Arc<Store>, &Arc<BufferBudget>),
    ) -> GroupChange {
        let item_max_bytes = store.limits().item_max_bytes;
        let mut request_slot = RequestSlot::default();
        request_slot.fill(request, None, origin);
        GroupChange {
            kind: match kind_of(&request.op) {
                // A request for several keys may need the old value.
                ChangeKind::Blind => ChangeKind::Update,
                kind => kind,
            },
            now: origin.now,
            value_max_bytes: item_max_bytes.saturating_sub(request.key.len() as u64),
            request_slot,
            keeps_values: tells != Tells::Nothing || !matches!(request.op, Op::Set(_) | Op::Delete),
            flight: Flight::new(budget),
            store: Arc::clone(store),
            result: Mutex::default(),
            is_refused: OnceLock::new(),
        }
    }

    /// A copy of its key.
    pub fn key(&self) -> Arc<[u8]> {
        self.request_slot.request().key.into()
    }

    /// The bytes of its key and value, if it stores one.
    pub fn filling_bytes(&self) -> u64 {
        let request = self.request_slot.request();
        match request.op {
            Op::Set(_) | Op::Update(_) => {
                (request.key.len() + payload_of(&request.op).len()) as u64
            }
            Op::Get | Op::Delete => 0,
        }
    }

    /// The bytes booked for it at least until all copies have it.
    pub fn made_bytes_min(&self) -> u64 {
        flight::kept_bytes_of(self.filling_bytes())
    }

    /// Takes the memory for the value that it stores from what was kept for its group.
    pub fn draw_from(&self, room: Arc<KeptRoom>) {
        self.flight.draw_from(room);
    }

    /// Refuses it, unexecuted, because the log has no room for it.
    pub fn refuse_full(&self) {
        self.settle(Kept { kind: KeptKind::OutOfMemory, old: None, new: None });
    }

    /// Keeps the outcome of the first computation: no other request comes between it and the last
    /// (P1).
    fn settle(&self, kept: Kept) {
        let is_refused = matches!(kept.kind, KeptKind::OutOfMemory);
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_refused.set(is_refused).is_ok() {
            *result = Some(kept);
        }
    }

    /// Whether the node has computed it.
    pub fn is_computed(&self) -> bool {
        self.is_refused.get().is_some()
    }

    /// The bytes of the values that its outcome keeps.
    pub fn kept_bytes(&self) -> usize {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let items = result.iter().flat_map(|kept| kept.old.iter().chain(&kept.new));
        items.map(|item| item.value.len()).sum()
    }

    /// The outcome; `None`: it was not executed.
    pub fn take(&self) -> Option<Kept> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Hands an outcome to a sink.
    pub fn tell<S: Sink<Refusal>>(&self, kept: &Kept, index: usize, pins: Pins<'_>, sink: &mut S) {
        let key = self.request_slot.request().key;
        let (old, new) = (view(key, &kept.old), view(key, &kept.new));
        let outcome = match (kept.kind, old) {
            (KeptKind::Hit, Some(old)) => Outcome::Hit(old),
            (KeptKind::VersionMismatch, Some(old)) => Outcome::VersionMismatch { old },
            (KeptKind::Stored { version }, old) => Outcome::Stored { version, old },
            (KeptKind::NotStored, old) => Outcome::NotStored { old },
            (KeptKind::Deleted, old) => Outcome::Deleted { old },
            (KeptKind::Updated, old) => Outcome::Updated { old, new },
            (KeptKind::Refused(why), _) => Outcome::Refused(why),
            (KeptKind::TooLarge { len_bytes, max_bytes }, _) => {
                Outcome::TooLarge { len_bytes, max_bytes }
            }
            (KeptKind::OutOfMemory, _) => Outcome::OutOfMemory,
            (KeptKind::Untold, _) => Outcome::Untold,
            (KeptKind::Unwritable, _) => Outcome::Unwritable,
            (KeptKind::Hit | KeptKind::Miss | KeptKind::VersionMismatch, _) => Outcome::Miss,
        };
        debug_assert!(kept.old.is_some() || !matches!(kept.kind, KeptKind::Hit));
        sink.outcome(index, outcome, pins);
    }
}

impl Change for GroupChange {
    fn compute(&self, current: Option<&Entry>, version: Version) -> Changed {
        let old = super::item_of(current, self.now);
        let context = Context {
            now: self.now,
            version: version.bits(),
            value_max_bytes: self.value_max_bytes,
        };
        let request = self.request_slot.request();
        let (value_max, room_bytes) = (self.value_max_bytes, || room_bytes(&self.store));
        // A request that was computed before is neither put off nor refused: its worker knows the
        // outcome, and may have told it. One that was refused stays so.
        if self.is_refused.get() == Some(&true) {
            return Changed::Nothing;
        }
        let is_first = !self.is_computed();
        let is_full =
            is_first && self.flight.outgrows(&request.op, old.as_ref(), value_max, room_bytes);
        // Its own group holds the memory for which it would wait.
        let is_full =
            is_full || (is_first && !self.flight.begin_past(&request.op, old.as_ref(), value_max));
        let mut scratch = Vec::new();
        let (outcome, changed) = match is_full {
            true => (Outcome::OutOfMemory, Changed::Nothing),
            false => apply(&request, old, context, &mut scratch),
        };
        if is_first {
            self.settle(keep(&outcome, self.keeps_values, current, (&changed, version)));
        }
        self.flight.settle(&changed);
        changed
    }

    fn hold(&self) -> Hold {
        self.flight.hold()
    }

    fn kind(&self) -> ChangeKind {
        self.kind
    }
}

fn view<'k>(key: &'k [u8], kept: &'k Option<KeptItem>) -> Option<Item<'k>> {
    let KeptItem { value, client_flags, version, expires_at } = kept.as_ref()?;
    let (client_flags, version, expires_at) = (*client_flags, *version, *expires_at);
    Some(Item::of_stored(key, value, client_flags, version, expires_at))
}

/// Keeps an outcome, with the values of the entries that it is about.
fn keep(
    outcome: &Outcome<'_, Refusal>,
    keeps_values: bool,
    current: Option<&Entry>,
    changed: (&Changed, Version),
) -> Kept {
    let value_of = |value: &Arc<[u8]>| if keeps_values { value.clone() } else { Arc::default() };
    let (kind, old, new) = match outcome {
        Outcome::Hit(old) => (KeptKind::Hit, Some(old), None),
        Outcome::Miss => (KeptKind::Miss, None, None),
        Outcome::Stored { version, old } => {
            (KeptKind::Stored { version: *version }, old.as_ref(), None)
        }
        Outcome::NotStored { old } => (KeptKind::NotStored, old.as_ref(), None),
        Outcome::VersionMismatch { old } => (KeptKind::VersionMismatch, Some(old), None),
        Outcome::Deleted { old } => (KeptKind::Deleted, old.as_ref(), None),
        Outcome::Updated { old, new } => (KeptKind::Updated, old.as_ref(), new.as_ref()),
        Outcome::Refused(why) => (KeptKind::Refused(*why), None, None),
        Outcome::OutOfMemory => (KeptKind::OutOfMemory, None, None),
        Outcome::Untold => (KeptKind::Untold, None, None),
        Outcome::Unwritable => (KeptKind::Unwritable, None, None),
        Outcome::TooLarge { len_bytes, max_bytes } => {
            let (len_bytes, max_bytes) = (*len_bytes, *max_bytes);
            (KeptKind::TooLarge { len_bytes, max_bytes }, None, None)
        }
    };
    let old = old.and(current).and_then(|entry| {
        let Entry { client_flags, version, expires_at, .. } = *entry;
        let value = value_of(entry.value.as_ref()?);
        Some(KeptItem { value, client_flags, version: version.bits(), expires_at })
    });
    let new = new.and_then(|_| match changed {
        (Changed::Value { value, client_flags, expires_at }, version) => {
            let (client_flags, version) = (*client_flags, version.bits());
            Some(KeptItem {
                value: value_of(value),
                client_flags,
                version,
                expires_at: *expires_at,
            })
        }
        _ => None,
    });
    Kept { kind, old, new }
}
