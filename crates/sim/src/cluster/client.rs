//! A simulated client: sends one request at a time, again and again until it is answered or given
//! up.
//!
//! It follows a map that may be stale, asks managers for a new one when no server answers, and
//! sends a request again under the same sequence number (K24). A request that it gave up may still
//! be executed.

use std::sync::Arc;

use cluster::configuration::even_ranges;
use cluster::{ClientId, Configuration, Message, NodeId, Operation, Outcome, Peer, Request, Slot};

use crate::cluster::dice::Dice;
use crate::cluster::groups::{self, Group};
use crate::cluster::linearizable::{Answer, Ask, Record};
use crate::cluster::scenario::MS;

const TIMEOUT_NS: u64 = 12 * MS;
const PAUSE_NS: u64 = 2 * MS;
const ATTEMPTS_MAX: u32 = 14;
/// This many deletes in a million delete the key's whole shard.
const FLUSHES_PPM: u64 = 200_000;
/// This many writes in a million belong to a group, where there are any.
const GROUPS_PPM: u64 = 350_000;
/// A group in flight is given up after this time.
const GROUP_TIMEOUT_NS: u64 = 200 * MS;
/// Values of odd keys are as long as three datagrams.
const LONG_VALUE_BYTES: usize = 700;

/// One simulated client.
#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    dice: Dice,
    /// A separate stream, so that the rest of a run does not depend on flushes.
    flush_dice: Dice,
    /// Likewise of groups.
    group_dice: Dice,
    configuration: Option<Arc<Configuration>>,
    sizes: Sizes,
    sequence: u64,
    current: Option<Current>,
    left: usize,
    /// Whether it only reads every key once at the end, and never gives up.
    mode: Mode,
    /// The time of its next own action.
    pub(super) wake_ns: u64,
    pub(super) records: Vec<Record>,
}

/// The state that clients use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) nodes: usize,
    pub(super) managers: usize,
    pub(super) keys: usize,
    pub(super) shards: u16,
    /// Of each client.
    pub(super) requests: usize,
    /// Whether some writes belong together.
    pub(super) has_groups: bool,
}

impl Sizes {
    /// The keys that share a shard with this one, itself among them.
    fn beside(&self, key: usize) -> Vec<usize> {
        let slot_of = |key: usize| Slot::of(&name_of(key));
        let holds = |(first, last): &(Slot, Slot), slot| *first <= slot && slot <= *last;
        let own = even_ranges(self.shards).find(|range| holds(range, slot_of(key)));
        let is_beside = |other: &usize| own.is_some_and(|range| holds(&range, slot_of(*other)));
        (0..self.keys).filter(is_beside).collect()
    }
}

fn name_of(key: usize) -> Arc<[u8]> {
    format!("key{key}").into_bytes().into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Mixed,
    ReadsAll,
}

#[derive(Debug)]
struct Current {
    request: Request,
    attempts: u32,
    /// Whether the answer to the last attempt may still come.
    is_sent: bool,
    /// The number of its records among the last ones: a flush is a delete of several keys.
    record_count: usize,
    /// All requests of a group; of others none.
    group: Vec<Request>,
}

/// What a client sends.
pub(super) enum Sent {
    Message(Peer, Message),
    Group(NodeId, Group),
}

impl Client {
    pub(super) fn new(id: u64, seed: u64, mode: Mode, sizes: Sizes) -> Client {
        Client {
            id: ClientId(id),
            dice: Dice::new(seed, 1_000 + id),
            flush_dice: Dice::new(seed, 5_000 + id),
            group_dice: Dice::new(seed, 7_000 + id),
            configuration: None,
            sizes,
            sequence: 0,
            current: None,
            left: if mode == Mode::ReadsAll { sizes.keys } else { sizes.requests },
            mode,
            wake_ns: 0,
            records: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.current.is_none() && self.left == 0
    }

    /// Its time has come.
    pub(super) fn wake(&mut self, now_ns: u64, sent: &mut Vec<Sent>) {
        let is_lost = |current: &Current| current.is_sent || !current.group.is_empty();
        if self.current.as_ref().is_some_and(is_lost) {
            let manager = self.dice.index(self.sizes.managers) as u16;
            sent.push(Sent::Message(Peer::Manager(manager), Message::AskConfiguration));
        }
        let is_given_up = self.mode == Mode::Mixed
            && self.current.as_ref().is_some_and(|current| {
                let has_begun = current.is_sent && !current.group.is_empty(); // U1 of `groups`
                current.attempts >= ATTEMPTS_MAX || has_begun
            });
        if is_given_up {
            self.current = None;
        }
        if self.current.is_none() && self.left > 0 {
            self.begin(now_ns);
        }
        self.send(now_ns, sent);
    }

    fn begin(&mut self, now_ns: u64) {
        self.left -= 1;
        self.sequence += 1;
        let key = match self.mode {
            Mode::ReadsAll => self.left,
            Mode::Mixed => self.dice.index(self.sizes.keys),
        };
        let ask = self.draw_ask(key);
        let is_flush = ask == Ask::Delete && self.flush_dice.happens(FLUSHES_PPM);
        let operation = match is_flush {
            true => Operation::Flush,
            false => operation_of(key, ask),
        };
        let request =
            Request { client: self.id, sequence: self.sequence, key: name_of(key), operation };
        let asks = match is_flush {
            true => self.sizes.beside(key).into_iter().map(|key| (key, ask)).collect(),
            false => self.draw_group(key, ask),
        };
        let number = self.id.0 as usize - 1;
        let in_group = |(index, (key, ask)): (usize, &(usize, Ask))| Request {
            client: groups::client_of(number, index),
            sequence: self.sequence,
            key: name_of(*key),
            operation: operation_of(*key, *ask),
        };
        let is_group = !is_flush && asks.len() > 1;
        let group = asks.iter().enumerate().filter(|_| is_group).map(in_group).collect();
        let record_count = asks.len();
        self.current = Some(Current { request, attempts: 0, is_sent: false, record_count, group });
        let (client, start_ns) = (self.id.0, now_ns);
        let record =
            |(key, ask)| Record { client, key, ask, answer: None, start_ns, end_ns: u64::MAX };
        self.records.extend(asks.into_iter().map(record));
    }

    /// The writes that a write belongs to: itself, and in a group one of each of some other keys.
    fn draw_group(&mut self, key: usize, ask: Ask) -> Vec<(usize, Ask)> {
        let mut asks = vec![(key, ask)];
        let may_be = self.sizes.has_groups && !matches!(ask, Ask::Get);
        if !may_be || !self.group_dice.happens(GROUPS_PPM) {
            return asks;
        }
        let unique = (self.id.0 * 1_000 + self.sequence) as i64 * 1_000;
        for other in self.sizes.beside(key).into_iter().filter(|other| *other != key) {
            match self.group_dice.below(4) {
                0 => {}
                1 => asks.push((other, Ask::Delete)),
                2 if other.is_multiple_of(2) => asks.push((other, Ask::Increment(1))),
                _ => asks.push((other, Ask::Put(unique + asks.len() as i64))),
            }
        }
        asks
    }

    fn draw_ask(&mut self, key: usize) -> Ask {
        if self.mode == Mode::ReadsAll {
            return Ask::Get;
        }
        let unique = (self.id.0 * 1_000 + self.sequence) as i64 * 1_000;
        match self.dice.below(100) {
            0..40 => Ask::Get,
            40..50 => Ask::Delete,
            50..75 if key.is_multiple_of(2) => Ask::Increment(1),
            _ => Ask::Put(unique),
        }
    }

    fn send(&mut self, now_ns: u64, sent: &mut Vec<Sent>) {
        let Some(current) = &mut self.current else { return };
        current.attempts += 1;
        current.is_sent = true;
        let request = current.request.clone();
        let is_guess = current.attempts.is_multiple_of(5);
        let known = self.configuration.as_ref().filter(|_| !is_guess);
        let primary = known.and_then(|all| Some(all.shard(all.shard_of(&request.key))?.primary));
        // Incarnation 0 stands for the present incarnation.
        let anyone = NodeId { name: self.dice.index(self.sizes.nodes) as u16, incarnation: 0 };
        let to = primary.unwrap_or(anyone);
        if current.group.is_empty() {
            sent.push(Sent::Message(Peer::Node(to), Message::Request(request)));
            self.wake_ns = now_ns + TIMEOUT_NS;
            return;
        }
        let (client, requests) = (self.id.0 as usize - 1, current.group.clone());
        sent.push(Sent::Group(to, Group { client, sequence: request.sequence, requests }));
        self.wake_ns = now_ns + GROUP_TIMEOUT_NS;
    }

    /// Hears of the end of a group: all outcomes, or none if nothing was executed.
    pub(super) fn hear_group(
        &mut self,
        sequence: u64,
        outcomes: Option<Vec<Outcome>>,
        now_ns: u64,
    ) {
        let is_it = |current: &Current| current.request.sequence == sequence;
        if !self.current.as_ref().is_some_and(is_it) {
            return;
        }
        let Some(outcomes) = outcomes else { return self.pause(now_ns) };
        let first = self.records.len() - outcomes.len();
        for (record, outcome) in self.records[first..].iter_mut().zip(outcomes) {
            if let Some(answer) = answer_of(outcome) {
                (record.answer, record.end_ns) = (Some(answer), now_ns);
            }
        }
        self.end(now_ns);
    }

    pub(super) fn hear(&mut self, message: Message, now_ns: u64) {
        match message {
            Message::Configuration(new) => self.adopt(new),
            Message::Reply { sequence, outcome } => self.hear_reply(sequence, outcome, now_ns),
            _ => {}
        }
    }

    fn adopt(&mut self, new: Arc<Configuration>) {
        if self.configuration.as_ref().is_none_or(|known| known.term < new.term) {
            self.configuration = Some(new);
        }
    }

    fn hear_reply(&mut self, sequence: u64, outcome: Outcome, now_ns: u64) {
        let Some(current) = &mut self.current else { return };
        if current.request.sequence != sequence {
            return;
        }
        if let Outcome::Elsewhere(Some(new)) = outcome {
            self.adopt(new);
            return self.pause(now_ns);
        }
        let Some(answer) = answer_of(outcome) else { return self.pause(now_ns) };
        for record in self.records.iter_mut().rev().take(current.record_count) {
            record.answer = Some(answer);
            record.end_ns = now_ns;
        }
        self.end(now_ns);
    }

    /// Ends the current request, and thinks.
    fn end(&mut self, now_ns: u64) {
        self.current = None;
        let think_ns = match self.mode {
            Mode::Mixed => self.dice.below(14 * MS),
            Mode::ReadsAll => 0,
        };
        self.wake_ns = now_ns + 1 + think_ns;
    }

    fn pause(&mut self, now_ns: u64) {
        if let Some(current) = &mut self.current {
            current.is_sent = false;
        }
        self.wake_ns = self.wake_ns.min(now_ns + PAUSE_NS);
    }
}

fn operation_of(key: usize, ask: Ask) -> Operation {
    match ask {
        Ask::Get => Operation::Get,
        Ask::Put(value) => Operation::Put(text_of(key, value)),
        Ask::Delete => Operation::Delete,
        Ask::Increment(by) => Operation::Increment(by),
    }
}

/// What an outcome says about the data, if anything.
fn answer_of(outcome: Outcome) -> Option<Answer> {
    Some(match outcome {
        Outcome::Elsewhere(_) | Outcome::TryAgain | Outcome::TooFewCopies | Outcome::Unknown => {
            return None;
        }
        Outcome::Computed => unreachable!("nothing here computes"),
        // This is a value that no client wrote. No order will explain it.
        Outcome::NotAnInteger => Answer::Sum(i64::MIN),
        Outcome::Value(value) => {
            Answer::Value(value.map(|text| value_of(&text).unwrap_or(i64::MIN)))
        }
        Outcome::Done => Answer::Done,
        Outcome::Integer(sum) => Answer::Sum(sum),
        Outcome::Deleted(was_there) => Answer::Deleted(was_there),
    })
}

fn text_of(key: usize, value: i64) -> Arc<[u8]> {
    let mut text = value.to_string().into_bytes();
    if !key.is_multiple_of(2) {
        text.resize(LONG_VALUE_BYTES.max(text.len()), b' ');
    }
    text.into()
}

fn value_of(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}
