//! Tests: which requests join a batch, from queues that are filled by hand.

use std::sync::Arc;

use base::ring::{Sender, ring};
use base::{KeyHash, UnixMillis, WorkerId};
use commands::reply::Answer;
use commands::reply::Shape;
use commands::rmw::Rmw;
use counters::CommandIndex;
use dispatch::lanes::request_slot::Origin;
use store::request::{Condition, Expiry, Op, Request, Set};
use wire::resp;

use super::*;

/// An executor with queues from some dispatchers.
struct Bench {
    lanes: Vec<Lane>,
    senders: Vec<Sender>,
    next_index: u32,
}

impl Bench {
    fn new(dispatcher_count: u16) -> Bench {
        let mut bench = Bench { lanes: vec![], senders: vec![], next_index: 0 };
        for dispatcher in 0..dispatcher_count {
            let (sender, receiver) = ring(1024);
            let request_slots = Arc::new(request_slot::RequestSlots::default());
            bench.lanes.push(Lane::new(WorkerId(dispatcher), 0, request_slots, receiver));
            bench.senders.push(sender);
        }
        bench
    }

    /// Requests like `s1 g2`: a SET of key 1, a GET of key 2; S is a SET of a kilobyte.
    fn send(&mut self, dispatcher: usize, requests: &str) {
        for text in requests.split_whitespace() {
            let (verb, key) = text.split_at(1);
            let long = [b'x'; 1024];
            let value: &[u8] = if verb == "S" { &long } else { b"v" };
            let (expiry, condition) = (Expiry::Never, Condition::Always);
            let op: Op<'_, Rmw<'_>> = match verb {
                "g" => Op::Get,
                _ => Op::Set(Set { value, client_flags: 0, expiry, condition }),
            };
            // The key's number may be anywhere in the hash.
            let hash = key.parse::<u64>().unwrap() << 20;
            let request = Request { key: text.as_bytes(), hash: KeyHash(hash), op };
            let answer = Answer {
                slot: 0,
                command: CommandIndex::UNKNOWN_RESP,
                is_quiet: false,
                shape: Shape::Value,
            };
            let protocol = resp::Protocol::Resp2;
            let now = UnixMillis(1);
            let (is_tls, connection) = (false, 0);
            let origin = Origin { answer, notes: &[], protocol, is_tls, connection, now };
            // SAFETY: this test is the only holder of its request slots.
            let request_slot =
                unsafe { &mut *self.lanes[dispatcher].request_slots.at(self.next_index) };
            request_slot.fill(&request, None, &origin);
            self.senders[dispatcher].push([hash, u64::from(self.next_index)]);
            self.next_index += 1;
        }
        self.senders[dispatcher].publish();
    }

    /// Takes up to `batch` requests and those that join; returns the keys in the order of
    /// execution, and whether more requests wait than may be examined.
    fn serve(&mut self, compacts: Compacts, batch: usize) -> (String, bool) {
        let mut request_slots = RequestSlots::default();
        for lane in &mut self.lanes {
            while request_slots.len() < batch
                && let Some([_, index]) = lane.take()
            {
                request_slots.push(lane.request_slots.at(index as u32));
            }
        }
        let keys = Keys::of(compacts, &request_slots);
        let is_cut = keys.is_some_and(|keys| join(keys, &mut self.lanes, 0, &mut request_slots));
        for lane in &mut self.lanes {
            lane.pass_answered();
            lane.receiver.complete();
        }
        let text = |request_slot: &*mut request_slot::RequestSlot| {
            // SAFETY: as in `send`.
            unsafe { &**request_slot }.request().key.to_vec()
        };
        let texts: Vec<_> = request_slots.iter().map(text).collect();
        (String::from_utf8(texts.join(&b' ')).unwrap(), is_cut)
    }
}

#[track_caller]
fn check(compacts: Compacts, lanes: &[&str], batch: usize, want: &[&str]) {
    let mut bench = Bench::new(lanes.len() as u16);
    for (dispatcher, requests) in lanes.iter().enumerate() {
        bench.send(dispatcher, requests);
    }
    for want in want {
        assert_eq!(bench.serve(compacts, batch).0, *want);
    }
    let sent_count: usize = lanes.iter().map(|requests| requests.split_whitespace().count()).sum();
    let mut done_count = 0;
    for sender in &mut bench.senders {
        done_count += std::iter::from_fn(|| sender.reclaim()).count();
    }
    let is_all_done = want.last() == Some(&"");
    assert_eq!(done_count == sent_count, is_all_done, "every entry is passed once");
}

#[test]
fn all_of_a_written_key_joins_in_its_order_and_the_rest_waits() {
    check(Compacts::All, &["s1 g2 s1 s3 g1 s1"], 1, &["s1 s1 g1 s1", "g2", "s3", ""]);
    check(Compacts::All, &["s1 g2 s1", "g1 s1 s2 g1"], 1, &["s1 s1 g1 s1 g1", "g2", "s2", ""]);
}

#[test]
fn nothing_joins_a_key_that_is_written_once_or_only_read() {
    check(Compacts::All, &["s1 g1 g1"], 1, &["s1", "g1", "g1", ""]);
    check(Compacts::All, &["g1 s1 s1"], 1, &["g1", "s1 s1", ""]);
}

#[test]
fn only_long_writes_open_windows_unless_all_are_wanted() {
    check(Compacts::Long, &["s1 s1 s1 s1 s1"], 2, &["s1 s1", "s1 s1", "s1", ""]);
    check(Compacts::Long, &["S1 g2 S1 S1 s1 S1"], 1, &["S1 S1 S1 s1 S1", "g2", ""]);
    check(Compacts::Long, &["S1 g2 S1 S1 s1"], 1, &["S1", "g2", "S1", "S1", "s1", ""]);
}

#[test]
fn several_keys_of_a_batch_are_joined() {
    check(Compacts::All, &["s1 s2 g3 s2 s1"], 2, &["s1 s2 s2 s1", "g3", ""]);
}

#[test]
fn at_most_32_slots_are_looked_at_and_some_of_them_may_be_answered() {
    let mut bench = Bench::new(1);
    bench.send(0, &format!("s1 {} s1 s1", "g2 ".repeat(31)));
    // The last one is the 33rd waiting request.
    assert_eq!(bench.serve(Compacts::All, 1), ("s1 s1".to_owned(), true));
    for _ in 0..31 {
        assert_eq!(bench.serve(Compacts::All, 1), ("g2".to_owned(), false));
    }
    assert_eq!(bench.serve(Compacts::All, 1), ("s1".to_owned(), false));
    assert_eq!(std::iter::from_fn(|| bench.senders[0].reclaim()).count(), 34);
}

#[test]
fn more_keys_than_windows_are_executed_in_their_turn() {
    let keys: Vec<String> = (0..10).map(|key| format!("s{key}")).collect();
    let mut bench = Bench::new(1);
    bench.send(0, &format!("{} {}", keys.join(" "), keys.join(" ")));
    let (first, _) = bench.serve(Compacts::All, 10);
    assert_eq!(first, format!("{} {}", keys.join(" "), keys[..KEYS_MAX].join(" ")));
    assert_eq!(bench.serve(Compacts::All, 10).0, keys[KEYS_MAX..].join(" "));
}
