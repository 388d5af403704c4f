//! Plain SETs of one key that follow each other in a batch: the store sees only the last of them
//! (K8; decision 0110).
//!
//! ```text
//!  batch   SET h 1   SET y 2   SET h 3   GET x   SET h 4   GET h   SET h 5
//!             └─────────────── one run ─────────────┘               another
//!  store   SET h 4   SET y 2             GET x             GET h   SET h 5
//! ```
//!
//! # Invariants
//! I1: a run consists of SETs that replace whatever is stored, whose replies tell nothing of it,
//!     and which the store would take.
//! I2: any other request on the key ends its run: it sees the last SET before it.
//! I3: the last SET takes the place of the first, so that its outcome is known before those of the
//!     others; they have the same.
//! I4: keys are compared in full.

use arrayvec::ArrayVec;
use base::UnixMillis;
use policy::window::Compacts;
use store::Session;
use store::pin::Pins;
use store::request::{Condition, Expiry, Item, Op, Outcome, Request, Sink};

use super::places::Places;
use super::{Answering, Tells};
use crate::rmw::{Refusal, Rmw};
use crate::work::BATCH_REQUESTS_MAX;

const _: () = assert!(BATCH_REQUESTS_MAX <= u128::BITS as usize, "a bit for each request");

/// Requests of a batch.
pub(super) type Requests<'r> = ArrayVec<Request<'r, Rmw<'r>>, BATCH_REQUESTS_MAX>;

/// The runs of a batch.
pub(super) struct Runs {
    /// The first request of the latest run with each hash.
    places: Places,
    /// By first request: runs that nothing can join.
    ended: u128,
    /// By the first request of a run: the last one.
    last_of: [u8; BATCH_REQUESTS_MAX],
    /// The first requests of runs of more than one.
    firsts: ArrayVec<u8, { BATCH_REQUESTS_MAX / 2 }>,
    /// The requests behind the first ones of runs, in order, and those first ones.
    followers: ArrayVec<(u8, u8), BATCH_REQUESTS_MAX>,
}

impl Default for Runs {
    fn default() -> Runs {
        Runs {
            places: Places::default(),
            ended: 0,
            last_of: [0; BATCH_REQUESTS_MAX],
            firsts: ArrayVec::new(),
            followers: ArrayVec::new(),
        }
    }
}

impl Runs {
    /// Finds the runs of a batch; returns the number of superseded SETs.
    pub fn find(
        &mut self,
        session: &Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &impl Answering,
    ) -> usize {
        self.places.clear();
        self.ended = 0;
        self.firsts.clear();
        self.followers.clear();
        for (index, request) in requests.iter().enumerate() {
            let (at, first) = self.places.find(requests, request.hash);
            let open = first.filter(|first| self.ended >> first & 1 == 0);
            match open {
                Some(first) if self.may_join(session, now, (requests, sink), (first, index)) => {
                    self.join(first, index as u8);
                }
                _ if begins(request, now) => {
                    self.places.set(at, index);
                    self.last_of[index] = index as u8;
                }
                Some(first) => self.ended |= 1 << first, // I2
                None => {}
            }
        }
        self.followers.len()
    }

    /// Whether a request may join the run that begins with `first` (I1, I4).
    #[inline]
    fn may_join(
        &self,
        session: &Session,
        now: UnixMillis,
        (requests, sink): (&[Request<'_, Rmw<'_>>], &impl Answering),
        (first, index): (u8, usize),
    ) -> bool {
        let first = usize::from(first);
        let (old, new) = (&requests[first], &requests[index]);
        let may_be_in_one = |request: &Request<'_, Rmw<'_>>, index| match request.op {
            Op::Set(set) => {
                set.value.len() as u64 <= session.value_max_bytes(request.key.len())
                    && sink.tells(index) == Tells::Nothing
            }
            _ => false,
        };
        let is_alone = usize::from(self.last_of[first]) == first;
        replaces(&new.op, now)
            && old.key == new.key
            && may_be_in_one(new, index)
            && (!is_alone || may_be_in_one(old, first))
    }

    #[inline]
    fn join(&mut self, first: u8, index: u8) {
        if self.last_of[usize::from(first)] == first {
            self.firsts.push(first);
        }
        self.last_of[usize::from(first)] = index;
        self.followers.push((index, first));
    }

    /// The number of runs.
    pub fn count(&self) -> usize {
        self.firsts.len()
    }

    /// Calls back with the number of requests in each run.
    pub fn each_len(&self, mut each: impl FnMut(usize)) {
        for first in &self.firsts {
            each(1 + self.followers.iter().filter(|(_, of)| of == first).count());
        }
    }

    /// Adds the requests that the store sees to `rest`, which is empty: returned by value it would
    /// be copied once more.
    pub fn take_rest<'r>(&self, requests: &[Request<'r, Rmw<'r>>], rest: &mut Requests<'r>) {
        let mut from = 0;
        let ends = self.followers.iter().map(|(index, _)| usize::from(*index));
        for end in ends.chain([requests.len()]) {
            rest.try_extend_from_slice(&requests[from..end])
                .expect("as many as there were, at most");
            from = end + 1;
        }
        for first in &self.firsts {
            let left_out = self.followers.partition_point(|(index, _)| index < first);
            let last = self.last_of[usize::from(*first)];
            rest[usize::from(*first) - left_out] = requests[usize::from(last)]; // I3
        }
    }
}

/// Whether a SET leaves nothing of what was stored, and is not a delete.
#[inline]
pub(super) fn replaces(op: &Op<'_, Rmw<'_>>, now: UnixMillis) -> bool {
    let Op::Set(set) = op else { return false };
    let lives = match set.expiry {
        Expiry::Never => true,
        Expiry::At(at) => at > now,
        Expiry::Keep => false,
    };
    lives && set.condition == Condition::Always
}

/// Whether leaving out a request would save anything.
#[inline]
fn begins(request: &Request<'_, Rmw<'_>>, now: UnixMillis) -> bool {
    match &request.op {
        Op::Set(set) => {
            set.value.len() >= Compacts::SUPERSEDED_BYTES_MIN && replaces(&request.op, now)
        }
        _ => false,
    }
}

/// Gives each request of a batch its outcome, those that the store does not see as well.
pub(super) struct Spread<'s, S> {
    sink: &'s mut S,
    runs: &'s Runs,
    /// The followers that have their outcome.
    done: usize,
    /// The first requests of runs whose write failed.
    failed: ArrayVec<(u8, Failed), { BATCH_REQUESTS_MAX / 2 }>,
}

/// Why the one write of a run was not done: for no reason of its own (I1).
#[derive(Clone, Copy)]
enum Failed {
    OutOfMemory,
    Unwritable,
}

impl<'s, S: Sink<Refusal>> Spread<'s, S> {
    pub fn new(sink: &'s mut S, runs: &'s Runs) -> Spread<'s, S> {
        Spread { sink, runs, done: 0, failed: ArrayVec::new() }
    }

    /// Passes on the outcomes of the followers before `place`; of these `done` have theirs.
    #[inline]
    fn catch_up(&mut self, place: usize, pins: Pins<'_>) {
        while let Some((index, first)) = self.runs.followers.get(self.done)
            && usize::from(*index) < place
        {
            // No client is told a version or an old value (I1).
            let outcome = match self.failed.iter().find(|(failed, _)| failed == first) {
                None => Outcome::Stored { version: 0, old: None },
                Some((_, Failed::OutOfMemory)) => Outcome::OutOfMemory,
                Some((_, Failed::Unwritable)) => Outcome::Unwritable,
            };
            self.sink.outcome(usize::from(*index), outcome, pins);
            self.done += 1;
        }
    }

    /// The place in the batch of the store's request `request_index`.
    #[inline]
    fn place(&self, request_index: usize) -> usize {
        let mut place = request_index + self.done;
        for (index, _) in &self.runs.followers[self.done..] {
            if usize::from(*index) > place {
                break;
            }
            place += 1;
        }
        place
    }

    /// Passes on the outcomes behind the store's last one.
    pub fn finish(mut self, pins: Pins<'_>) {
        self.catch_up(BATCH_REQUESTS_MAX, pins);
    }
}

impl<S: Sink<Refusal>> Sink<Refusal> for Spread<'_, S> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        let place = self.place(request_index);
        self.catch_up(place, pins);
        let failed = match outcome {
            Outcome::OutOfMemory => Some(Failed::OutOfMemory),
            Outcome::Unwritable => Some(Failed::Unwritable),
            _ => None,
        };
        if let Some(failed) = failed
            && self.runs.firsts.contains(&(place as u8))
        {
            self.failed.push((place as u8, failed));
        }
        self.sink.outcome(place, outcome, pins);
    }

    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        self.sink.may_tell(self.place(request_index), old, pins)
    }
}
