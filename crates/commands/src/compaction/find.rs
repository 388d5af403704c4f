//! Finds the keys that a batch writes more than once.

use arrayvec::ArrayVec;
use base::{KeyHash, UnixMillis};
use policy::window::{Compactable, Compacts, ConnectionId, Effect};
use store::request::{Op, Request};

use super::places::{Places, SLOTS};
use super::runs::replaces;
use super::{Answering, Tells};
use crate::rmw::Rmw;

/// The maximum number of keys of one batch that get a window each; writes of further keys run one
/// by one.
const GROUPS_MAX: usize = 16;

/// Whether a request may open a window: it writes enough.
#[inline]
pub fn may_open(compacts: Compacts, op: &Op<'_, Rmw<'_>>) -> bool {
    stored_bytes(op).is_some_and(|bytes| bytes >= compacts.write_bytes_min())
}

/// The assumed cost of a rewrite that keeps most of a value, whose length is not known.
const REWRITE_BYTES: u64 = Compacts::LONG_BYTES_MIN;

/// Finds writes whose key was already written in the same batch, by hash; [`members`] compares
/// keys.
pub(super) struct Finder {
    /// The first write with each hash.
    places: Places,
    /// The number of writes with that hash.
    counts: [u8; SLOTS],
    /// The approximate number of bytes that the store would copy for them.
    bytes: [u64; SLOTS],
    /// The first write of each key that has enough of them.
    groups: ArrayVec<u8, GROUPS_MAX>,
    pub compacts: Compacts,
}

impl Default for Finder {
    fn default() -> Finder {
        Finder {
            places: Places::default(),
            counts: [0; SLOTS],
            bytes: [0; SLOTS],
            groups: ArrayVec::new(),
            compacts: Compacts::default(),
        }
    }
}

impl Finder {
    /// Whether some key is written often. A batch with few long writes costs one pass over it.
    #[inline]
    pub fn has_groups(&mut self, requests: &[Request<'_, Rmw<'_>>]) -> bool {
        let compacts = self.compacts;
        let count = requests.iter().filter(|it| may_open(compacts, &it.op)).count();
        count >= usize::from(compacts.writes_min()) && self.look(requests)
    }

    fn look(&mut self, requests: &[Request<'_, Rmw<'_>>]) -> bool {
        self.places.clear();
        self.groups.clear();
        for (index, request) in requests.iter().enumerate() {
            if let Some(bytes) = stored_bytes(&request.op) {
                self.note(requests, index, bytes);
            }
        }
        !self.groups.is_empty()
    }

    #[inline]
    fn note(&mut self, requests: &[Request<'_, Rmw<'_>>], index: usize, bytes: u64) {
        let (at, seen) = self.places.find(requests, requests[index].hash);
        let Some(seen) = seen else {
            self.places.set(at, index);
            (self.counts[at], self.bytes[at]) = (1, bytes);
            return;
        };
        self.counts[at] += 1;
        self.bytes[at] += bytes;
        let is_worth = self.compacts.is_worth_a_window(self.counts[at], self.bytes[at]);
        if is_worth && !self.groups.contains(&seen) {
            // If the list is full, the remaining keys are written one by one.
            let _ = self.groups.try_push(seen);
        }
    }

    /// One request of each key that is written often.
    pub fn take_groups(&mut self) -> ArrayVec<u8, GROUPS_MAX> {
        std::mem::take(&mut self.groups)
    }
}

/// One request of a group.
#[derive(Clone, Copy)]
pub(super) struct Member<'r> {
    pub request: &'r Request<'r, Rmw<'r>>,
    /// Its index in the batch.
    pub index: usize,
    effect: Effect,
    connection: ConnectionId,
}

impl Compactable for Member<'_> {
    fn key_hash(&self) -> KeyHash {
        self.request.hash
    }

    fn key(&self) -> &[u8] {
        self.request.key
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn connection(&self) -> ConnectionId {
        self.connection
    }
}

/// The requests on the key of `requests[first]` that form a window, in order. `None`: it is not
/// worth one after all, or a reply contains a version (I5 of the module above).
///
/// A read belongs to the window only if its own connection writes the key later in the batch: any
/// other read may see the value that the window leaves.
pub(super) fn members<'r>(
    requests: &'r [Request<'r, Rmw<'r>>],
    first: usize,
    now: UnixMillis,
    sink: &impl Answering,
    compacts: Compacts,
) -> Option<Vec<Member<'r>>> {
    let (hash, key) = (requests[first].hash, requests[first].key);
    let mut members: Vec<Member<'r>> = Vec::new();
    let (mut writes, mut bytes) = (0_u8, 0);
    for (index, request) in requests.iter().enumerate() {
        if request.hash != hash || request.key != key {
            continue;
        }
        let tells = sink.tells(index);
        if tells == Tells::Version {
            return None;
        }
        let connection = ConnectionId(sink.connection(index));
        let effect = effect(&request.op, tells, now);
        if effect.is_write() {
            writes += 1;
            bytes += stored_bytes(&request.op).unwrap_or(0);
        }
        members.push(Member { request, index, effect, connection });
    }
    if !compacts.is_worth_a_window(writes, bytes) {
        return None;
    }
    let mut writers = Vec::new();
    let mut stays = vec![true; members.len()];
    for (member, stays) in members.iter().zip(&mut stays).rev() {
        let has_later_write = writers.contains(&member.connection.0);
        *stays = member.effect.is_write() || has_later_write;
        if member.effect.is_write() && !has_later_write {
            writers.push(member.connection.0);
        }
    }
    let mut stays = stays.into_iter();
    members.retain(|_| stays.next() == Some(true));
    Some(members)
}

/// The approximate number of bytes that the store would copy; `None`: nothing is written.
#[inline]
fn stored_bytes(op: &Op<'_, Rmw<'_>>) -> Option<u64> {
    Some(match op {
        Op::Get => return None,
        Op::Set(set) => set.value.len() as u64,
        Op::Update(Rmw::SetIf { value, .. }) => value.len() as u64,
        Op::Update(
            Rmw::Append(_)
            | Rmw::Prepend(_)
            | Rmw::SetRange { .. }
            | Rmw::SetBit { .. }
            | Rmw::Join(..)
            | Rmw::MetaAppend(_)
            | Rmw::MetaPrepend(_),
        ) => REWRITE_BYTES,
        Op::Delete | Op::Update(_) => 0,
    })
}

fn effect(op: &Op<'_, Rmw<'_>>, tells: Tells, now: UnixMillis) -> Effect {
    match op {
        Op::Get => Effect::Read,
        Op::Set(_) if tells == Tells::Nothing && replaces(op, now) => Effect::Set,
        Op::Delete if tells == Tells::Nothing => Effect::Delete,
        Op::Set(_) | Op::Delete | Op::Update(_) => Effect::Modify,
    }
}
