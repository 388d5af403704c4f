//! Flushes at the control thread: FLUSHALL of the shards that this node serves, flush_all of all
//! shards.
//!
//! ```text
//!  worker ─ Flush ─▶ job: its shards ─┬─ own ──────▶ node: Operation::Flush ─▶ on all copies
//!                                     └─ another's ▶ Forward ─▶ its control thread: a job there
//!  worker ◀─ answer ─ all of them are done; or one of them is not, for a reason unknown
//! ```
//!
//! # Invariants
//! J1: a flush of a shard is requested again only if the shard surely was not flushed: nothing is
//!     flushed twice for one request, and so no write that followed the first flush is lost (K24).
//! J2: a guest's job is not forwarded: shards that are not served here stay unflushed.
//! J3: a worker waits: no job takes longer than `PATIENCE_NS`. An outcome that is unknown by then
//!     counts as bad.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;
use cluster::message::Hold;
use cluster::{ClientId, Message, NodeId, Operation, Outcome, Peer, Request, ShardId, Slot};
use replication::cluster::clock;
use replication::replicate::{AnswerTo, Asker, GroupAnswer};

use super::control::{Control, PATIENCE_NS};
use super::forwards::{self, NodeReply};

/// The first byte of a forwarded flush; requests of one key begin with their format.
const FORMAT: u8 = b'F';
/// Numbers of forwarded flushes; those of other requests are lower.
const FORWARDED: u64 = 1 << 63;
const SLOT_COUNT: usize = cluster::slot::SLOT_COUNT as usize;

/// See the module's page.
#[derive(Default)]
pub(super) struct Flushes {
    jobs: Vec<Job>,
    next_id: u64,
    /// A key of each slot.
    keys: Vec<Arc<[u8]>>,
}

/// The receiver of the answer.
enum Caller {
    Worker(AnswerTo),
    Guest(Asker),
}

struct Job {
    caller: Caller,
    since: Instant,
    /// Shards for which no node was asked yet.
    left: BTreeSet<ShardId>,
    /// Shards for which this node was asked, by ticket.
    asked: BTreeMap<u32, ShardId>,
    /// Shards for which other nodes were asked, by number.
    forwarded: BTreeMap<u64, Vec<ShardId>>,
    done: Vec<ShardId>,
    answer: GroupAnswer,
}

impl Job {
    fn new(caller: Caller, left: BTreeSet<ShardId>, since: Instant) -> Job {
        let (asked, forwarded) = (BTreeMap::new(), BTreeMap::new());
        Job { caller, since, left, asked, forwarded, done: Vec::new(), answer: GroupAnswer::Good }
    }

    fn is_over(&self) -> bool {
        let is_quiet = self.asked.is_empty() && self.forwarded.is_empty();
        is_quiet && (self.left.is_empty() || self.answer != GroupAnswer::Good)
    }
}

impl Flushes {
    /// Whether a flush is under way.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Takes the node's answer to a flush; returns false if the ticket is not a flush's.
    pub fn replied(&mut self, ticket: u32, outcome: &Outcome) -> bool {
        let Some(job) = self.jobs.iter_mut().find(|job| job.asked.contains_key(&ticket)) else {
            return false;
        };
        let Some(shard) = job.asked.remove(&ticket) else { return false };
        match outcome {
            Outcome::Done => job.done.push(shard),
            Outcome::TryAgain | Outcome::Elsewhere(_) => {
                job.left.insert(shard); // J1
            }
            Outcome::TooFewCopies => job.answer = GroupAnswer::TooFewCopies,
            _ => job.answer = GroupAnswer::Bad,
        }
        true
    }

    /// Takes another node's answer; returns false if the number is not a flush's.
    pub fn forwarded(&mut self, id: u64, reply: Option<&[u8]>) -> bool {
        let job = self.jobs.iter_mut().find(|job| job.forwarded.contains_key(&id));
        let asked = job.and_then(|job| Some((job.forwarded.remove(&id)?, job)));
        if let Some((shards, job)) = asked {
            match reply.map(decode_reply) {
                // The server there does not know flushes, or has another format.
                None => job.left.extend(shards),
                Some(None) => job.answer = GroupAnswer::Bad,
                Some(Some((answer, done))) => {
                    let (done, left): (Vec<_>, Vec<_>) =
                        shards.into_iter().partition(|shard| done.contains(shard));
                    job.done.extend(done);
                    match answer {
                        GroupAnswer::Good => job.left.extend(left), // J1
                        answer => job.answer = answer,
                    }
                }
            }
        }
        id & FORWARDED != 0
    }

    fn key_of(&mut self, slot: Slot) -> Arc<[u8]> {
        if self.keys.is_empty() {
            let mut keys: Vec<Option<Arc<[u8]>>> = vec![None; SLOT_COUNT];
            let mut missing = SLOT_COUNT;
            for number in 0_u64.. {
                let key = number.to_string().into_bytes();
                let known = &mut keys[usize::from(Slot::of(&key).0)];
                missing -= usize::from(known.is_none());
                known.get_or_insert_with(|| key.into());
                if missing == 0 {
                    break;
                }
            }
            self.keys = keys.into_iter().flatten().collect();
        }
        Arc::clone(&self.keys[usize::from(slot.0) % SLOT_COUNT])
    }
}

/// Starts a worker's flush of this node's shards, or of all.
pub(super) fn begin(control: &mut Control, answer_to: AnswerTo, is_everywhere: bool, now: Instant) {
    let Some(configuration) = control.node.configuration().cloned() else {
        return control.ends.answer(&answer_to, GroupAnswer::Bad);
    };
    let own = control.node.id();
    let wanted = configuration.shards();
    let wanted = wanted.filter(|(_, shard)| is_everywhere || shard.primary == own);
    let left = wanted.map(|(id, _)| id).collect();
    control.state.flushes.jobs.push(Job::new(Caller::Worker(answer_to), left, now));
}

/// Starts another node's flush of some of this node's shards; returns false if the bytes are
/// not a flush.
pub(super) fn begin_as_guest(
    control: &mut Control,
    from: Asker,
    bytes: &[u8],
    now: Instant,
) -> bool {
    let Some(wanted) = decode(bytes) else { return false };
    control.state.flushes.jobs.push(Job::new(Caller::Guest(from), wanted, now));
    true
}

pub(super) fn turn(control: &mut Control, now: Instant) {
    let mut jobs = std::mem::take(&mut control.state.flushes.jobs);
    jobs.iter_mut().for_each(|job| go_on(control, job, now));
    control.state.flushes.jobs = jobs;
    // The node answers some of them at once.
    control.perform(now);
    let is_over = |job: &mut Job| job.is_over();
    let over: Vec<Job> = control.state.flushes.jobs.extract_if(.., is_over).collect();
    over.into_iter().for_each(|job| end(control, job));
}

fn go_on(control: &mut Control, job: &mut Job, now: Instant) {
    if now.ns.saturating_sub(job.since.ns) >= PATIENCE_NS {
        job.answer = if job.answer == GroupAnswer::Good { GroupAnswer::Bad } else { job.answer };
        job.asked.clear(); // J3
        job.forwarded.clear();
        return;
    }
    if job.answer != GroupAnswer::Good {
        return;
    }
    let Some(configuration) = control.node.configuration().cloned() else { return };
    let mut others: BTreeMap<NodeId, Vec<ShardId>> = BTreeMap::new();
    for id in std::mem::take(&mut job.left) {
        let Some(shard) = configuration.shard(id) else { continue };
        let is_own = shard.primary == control.node.id();
        let is_guest = matches!(job.caller, Caller::Guest { .. });
        if is_own && !control.state.outstanding.is_held(id) {
            ask(control, job, (id, shard.first), now);
        } else if is_own || (!is_guest && !configuration.has(shard.primary)) {
            job.left.insert(id); // Later.
        } else if !is_guest {
            others.entry(shard.primary).or_default().push(id);
        } // J2
    }
    for (to, shards) in others {
        control.state.flushes.next_id += 1;
        let id = control.state.flushes.next_id | FORWARDED;
        control.peers.tell(to, Message::Forward { id, bytes: encode(&shards).into() });
        job.forwarded.insert(id, shards);
    }
}

fn ask(control: &mut Control, job: &mut Job, (shard, first): (ShardId, Slot), now: Instant) {
    let key = control.state.flushes.key_of(first);
    let ticket = control.state.outstanding.add_group(Arc::clone(&key), shard, now);
    let sequence = control.state.outstanding.at(ticket).map_or(0, |waiter| waiter.sequence);
    let client = ClientId::anonymous(ticket.into());
    let request = Request { client, sequence, key, operation: Operation::Flush };
    job.asked.insert(ticket, shard);
    control.state.outstanding.count_asked(shard);
    let from = Peer::Client(client);
    let message = Message::Request(request);
    control.input(cluster::node::Event::Message { from, message }, now);
}

fn end(control: &mut Control, job: Job) {
    match job.caller {
        Caller::Worker(answer_to) => control.ends.answer(&answer_to, job.answer),
        Caller::Guest(to) => {
            let bytes = Some(encode_reply(job.answer, &job.done).into());
            let reply = NodeReply { to, bytes, hold: Hold::default() };
            forwards::reply_to_node(control, reply, clock::now());
        }
    }
}

fn encode(shards: &[ShardId]) -> Vec<u8> {
    let ids = shards.iter().flat_map(|shard| shard.0.to_le_bytes());
    [FORMAT].into_iter().chain(ids).collect()
}

fn decode(bytes: &[u8]) -> Option<BTreeSet<ShardId>> {
    let (format, ids) = bytes.split_first()?;
    let (ids, tail) = ids.as_chunks();
    let is_good = *format == FORMAT && tail.is_empty();
    is_good.then(|| ids.iter().map(|id| ShardId(u16::from_le_bytes(*id))).collect())
}

fn encode_reply(answer: GroupAnswer, done: &[ShardId]) -> Vec<u8> {
    let mut bytes = encode(done);
    bytes.push(match answer {
        GroupAnswer::Good => 0,
        GroupAnswer::Bad => 1,
        GroupAnswer::TooFewCopies => 2,
    });
    bytes
}

fn decode_reply(bytes: &[u8]) -> Option<(GroupAnswer, BTreeSet<ShardId>)> {
    let (answer, done) = bytes.split_last()?;
    let answer = match answer {
        0 => GroupAnswer::Good,
        1 => GroupAnswer::Bad,
        2 => GroupAnswer::TooFewCopies,
        _ => return None,
    };
    Some((answer, decode(done)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_answered_comes_through() {
        let shards = [ShardId(3), ShardId(700)];
        assert_eq!(decode(&encode(&shards)), Some(shards.into()));
        let reply = encode_reply(GroupAnswer::TooFewCopies, &shards[1..]);
        assert_eq!(decode_reply(&reply), Some((GroupAnswer::TooFewCopies, [ShardId(700)].into())));
        assert_eq!(
            (decode(&[FORMAT, 1]), decode(&[]), decode_reply(&[FORMAT])),
            (None, None, None)
        );
    }

    #[test]
    fn each_slot_has_a_key() {
        let mut flushes = Flushes::default();
        for slot in [0, 7, 16_383].map(Slot) {
            assert_eq!(Slot::of(&flushes.key_of(slot)), slot);
        }
    }
}
