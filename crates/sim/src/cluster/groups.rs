//! Groups of requests at the servers, as their control threads have them: each is computed at one
//! moment, and leaves as a whole.
//!
//! ```text
//!  client ─ group ─▶ waits ─ nothing of its shard is under way ─▶ hold, requests, release
//!    ◀───────── outcomes, once there are all ─────────────────────────┘
//! ```
//!
//! # Invariants
//! U1: a group that has begun is never sent again: its requests have no session (K24).

use std::collections::{BTreeMap, VecDeque};

use cluster::message::Outcome;
use cluster::node::{Action, Event};
use cluster::{ClientId, Message, Node, Peer, Request, ShardId};

use crate::cluster::machines::TestReplicaStore;
use crate::cluster::scenario::MS;

/// How long a group waits for its shard.
const PATIENCE_NS: u64 = 8 * MS;
/// A request without an answer for so long counts as given up.
const GIVEN_UP_NS: u64 = 30 * MS;

/// One client's requests that belong together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The position of its client.
    pub(super) client: usize,
    /// The sequence number of all its requests.
    pub(super) sequence: u64,
    pub(super) requests: Vec<Request>,
}

/// A group's end: the outcome of each request; none if nothing was executed.
pub(super) type Ended = (usize, u64, Option<Vec<Outcome>>);

/// The groups of one incarnation of a server.
#[derive(Debug, Default)]
pub(super) struct Groups {
    waiting: VecDeque<(Group, u64)>,
    /// Those that were released, with the outcomes that are known.
    running: Vec<(Group, Vec<Option<Outcome>>)>,
    /// Requests of clients with sessions that the node has, with the time of their arrival.
    asked: BTreeMap<ClientId, (u64, ShardId, u64)>,
}

impl Groups {
    /// Takes note of a request that the node is asked for.
    pub(super) fn ask(&mut self, request: &Request, node: &Node<TestReplicaStore>, now_ns: u64) {
        let Some(configuration) = node.configuration() else { return };
        let shard = configuration.shard_of(&request.key);
        self.asked.insert(request.client, (request.sequence, shard, now_ns));
    }

    pub(super) fn add(&mut self, group: Group, now_ns: u64) {
        self.waiting.push_back((group, now_ns));
    }

    /// Takes a client's reply. Returns the end of a group if it was the last of one.
    pub(super) fn replied(
        &mut self,
        client: ClientId,
        sequence: u64,
        outcome: &Outcome,
    ) -> Option<Ended> {
        if !client.is_anonymous() {
            self.asked.retain(|of, (asked, ..)| *of != client || *asked != sequence);
            return None;
        }
        let (number, index) = numbers_of(client);
        let is_it =
            |(group, _): &(Group, Vec<_>)| (group.client, group.sequence) == (number, sequence);
        let place = self.running.iter().position(is_it)?;
        self.running[place].1[index] = Some(outcome.clone());
        let outcomes: Option<Vec<Outcome>> = self.running[place].1.iter().cloned().collect();
        let outcomes = outcomes?;
        self.running.swap_remove(place);
        let is_void = outcomes.iter().all(is_refusal);
        Some((number, sequence, Some(outcomes).filter(|_| !is_void)))
    }

    /// Executes the group whose turn it is, if its shard is free. Returns the end of one that has
    /// waited for too long.
    pub(super) fn turn(
        &mut self,
        node: &mut Node<TestReplicaStore>,
        (now, now_ns): (base::Instant, u64),
        actions: &mut Vec<Action>,
    ) -> Option<Ended> {
        let (group, since_ns) = self.waiting.front()?;
        let key = &group.requests[0].key;
        let shard = node.configuration().map(|configuration| configuration.shard_of(key));
        let is_used = self
            .asked
            .values()
            .any(|(_, of, at_ns)| Some(*of) == shard && now_ns < at_ns + GIVEN_UP_NS);
        let is_late = now_ns >= since_ns + PATIENCE_NS;
        if is_used && !is_late {
            return None;
        }
        let (group, _) = self.waiting.pop_front()?;
        let Some(shard) = shard.filter(|_| !is_used) else {
            return Some((group.client, group.sequence, None));
        };
        execute(node, shard, &group.requests, now, actions);
        let outcomes = vec![None; group.requests.len()];
        self.running.push((group, outcomes));
        None
    }
}

/// Computes a group's requests; it leaves unless one of them was refused.
fn execute(
    node: &mut Node<TestReplicaStore>,
    shard: ShardId,
    requests: &[Request],
    now: base::Instant,
    actions: &mut Vec<Action>,
) {
    node.hold_group(shard);
    let before = actions.len();
    for request in requests {
        let (from, message) = (Peer::Client(request.client), Message::Request(request.clone()));
        node.input(Event::Message { from, message }, now, actions);
    }
    let is_bad = actions[before..].iter().any(|action| match action {
        Action::Send { message: Message::Reply { outcome, .. }, .. } => is_refusal(outcome),
        _ => false,
    });
    match is_bad {
        true => node.drop_group(shard, actions),
        false => node.release_group(shard, now, actions),
    }
}

/// Whether a request was not executed.
fn is_refusal(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::TryAgain | Outcome::TooFewCopies | Outcome::Elsewhere(_))
}

/// The client of one of a group's requests, on some thread of the server.
pub(super) fn client_of(number: usize, index: usize) -> ClientId {
    let thread = number % 3;
    ClientId::anonymous((number | index << 16 | thread << 32) as u64)
}

/// The position of a request's client, and of the request in its group.
fn numbers_of(client: ClientId) -> (usize, usize) {
    let bits = client.bits() as usize;
    (bits & 0xffff, bits >> 16 & 0xffff)
}
