//! Which keys of a batch are written more than once.

use arrayvec::ArrayVec;
use base::{KeyHash, UnixMillis};
use policy::window::{Compactable, ConnectionId, Effect};
use store::request::{Condition, Expiry, Op, Request};

use super::{Answering, Tells};
use crate::gather::BATCH_REQUESTS_MAX;
use crate::rmw::Rmw;

/// Places of the table: at most half are taken.
const PLACES: usize = 2 * BATCH_REQUESTS_MAX;

/// Keys of one batch that get a window each; further ones are written one by one.
const GROUPS_MAX: usize = 16;

/// A free place.
const FREE: u8 = u8::MAX;

/// Writes of one key that may be worth a window ...
const WRITES_MIN: u8 = 4;
/// ... if the store would copy so much for each: it takes shorter values faster than they are put
/// together (decision 0029).
const WRITE_BYTES_MIN: u64 = 1 << 10;
/// What a rewrite that keeps most of a value is taken to cost: how long that is, is not known.
const REWRITE_BYTES: u64 = WRITE_BYTES_MIN;

/// Finds writes whose key was written before in the same batch, by hash; [`members`] compares keys.
pub(super) struct Finder {
    /// Open addressing by hash: the first write of it.
    places: [u8; PLACES],
    /// How many there are of it, ...
    counts: [u8; PLACES],
    /// ... and about what the store would copy for them.
    bytes: [u64; PLACES],
    /// The first write of each key that has enough.
    groups: ArrayVec<u8, GROUPS_MAX>,
}

const _: () = assert!(BATCH_REQUESTS_MAX < FREE as usize, "a place names a request");

impl Default for Finder {
    fn default() -> Finder {
        Finder {
            places: [FREE; PLACES],
            counts: [0; PLACES],
            bytes: [0; PLACES],
            groups: ArrayVec::new(),
        }
    }
}

impl Finder {
    /// Whether some key is written often. A batch with few long writes costs one pass over it.
    #[inline]
    pub fn has_groups(&mut self, requests: &[Request<'_, Rmw<'_>>]) -> bool {
        let is_long =
            |request: &&Request<'_, Rmw<'_>>| stored_bytes(&request.op) >= WRITE_BYTES_MIN;
        requests.iter().filter(is_long).count() >= usize::from(WRITES_MIN) && self.look(requests)
    }

    fn look(&mut self, requests: &[Request<'_, Rmw<'_>>]) -> bool {
        self.places.fill(FREE);
        self.groups.clear();
        for (index, request) in requests.iter().enumerate() {
            if !matches!(request.op, Op::Get) {
                self.note(requests, index, request);
            }
        }
        !self.groups.is_empty()
    }

    #[inline]
    fn note(
        &mut self,
        requests: &[Request<'_, Rmw<'_>>],
        index: usize,
        request: &Request<'_, Rmw<'_>>,
    ) {
        let hash = request.hash;
        let bytes = stored_bytes(&request.op);
        // The top bits name the partition, the lowest are the tag's: any will do.
        let mut at = (hash.0 >> 8) as usize % PLACES;
        loop {
            let seen = self.places[at];
            if seen == FREE {
                self.places[at] = index as u8;
                self.counts[at] = 1;
                self.bytes[at] = bytes;
                return;
            }
            if requests[usize::from(seen)].hash == hash {
                self.counts[at] += 1;
                self.bytes[at] += bytes;
                let is_worth = is_worth_a_window(self.counts[at], self.bytes[at]);
                if is_worth && !self.groups.contains(&seen) {
                    // A full list is no harm: the rest is written one by one.
                    let _ = self.groups.try_push(seen);
                }
                return;
            }
            at = (at + 1) % PLACES;
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
    /// In the batch.
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

/// The requests on the key of `requests[first]` that make a window, in order. `None`: it is not
/// worth one after all, or somebody is told a version (I5 of the module above).
///
/// A read is one of them only if its own connection writes the key later in the batch: any other
/// read may as well find what the window leaves.
pub(super) fn members<'r>(
    requests: &'r [Request<'r, Rmw<'r>>],
    first: usize,
    now: UnixMillis,
    sink: &impl Answering,
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
            bytes += stored_bytes(&request.op);
        }
        members.push(Member { request, index, effect, connection });
    }
    if !is_worth_a_window(writes, bytes) {
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

/// Whether putting so many writes of so many bytes together saves more than it costs.
fn is_worth_a_window(writes: u8, bytes: u64) -> bool {
    writes >= WRITES_MIN && bytes >= u64::from(writes) * WRITE_BYTES_MIN
}

/// About what the store would copy.
#[inline]
fn stored_bytes(op: &Op<'_, Rmw<'_>>) -> u64 {
    match op {
        Op::Set(set) => set.value.len() as u64,
        Op::Update(Rmw::Append(_) | Rmw::Prepend(_) | Rmw::SetRange { .. } | Rmw::Join(..)) => {
            REWRITE_BYTES
        }
        Op::Get | Op::Delete | Op::Update(_) => 0,
    }
}

fn effect(op: &Op<'_, Rmw<'_>>, tells: Tells, now: UnixMillis) -> Effect {
    match op {
        Op::Get => Effect::Read,
        Op::Set(set) => {
            let lives = match set.expiry {
                Expiry::Never => true,
                Expiry::Keep => false,
                Expiry::At(at) => at > now,
            };
            let is_blind = set.condition == Condition::Always && tells == Tells::Nothing;
            if lives && is_blind { Effect::Set } else { Effect::Modify }
        }
        Op::Delete if tells == Tells::Nothing => Effect::Delete,
        Op::Delete | Op::Update(_) => Effect::Modify,
    }
}
