//! The cost of a write by itself and inside a window: C-4's Tb, Tc and Tf (Eq. 1), measured on this
//! store.
//!
//! ```text
//! COST_TURNS=9 cargo test --release -p server --lib compaction::tests::cost -- --nocapture
//! COST_CASE=16/512,all,32 valgrind --tool=callgrind target/release/deps/server-... (counts)
//! ```
//!
//! A batch of N SETs of one key goes through [`Compaction`] with and without compaction, in turns;
//! the replies are encoded as for clients. A least-squares fit over N gives the costs: with
//! compaction the slope is Tc and the intercept is the one write; without compaction the slope is
//! Tb. Without `COST_TURNS` a few batches check that each write of each case is answered; their
//! times mean nothing.

use std::time::Instant;

use super::{Answering, Compaction, NOW, Refusal, Rmw, Sink, Tells, blind_set, store};
use crate::reply::Tally;
use crate::reply::{Destination, Reply, Shape};
use policy::window::Compacts;
use store::PinnedValue;
use store::pin::Pins;
use store::request::{Op, Outcome, Request};
use wire::resp::Protocol;

/// The replies of a connection that takes them at once.
struct Replies {
    bytes: Vec<u8>,
    encodes: bool,
}

impl Destination for &mut Replies {
    fn append<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        encode(&mut self.bytes)
    }

    fn protocol(&self) -> Protocol {
        Protocol::Resp2
    }

    fn is_pinned(&mut self, _value_len_bytes: usize) -> bool {
        false
    }

    fn expect_large(&mut self) {}

    fn push_pinned(&mut self, _value: PinnedValue) {}

    fn may_copy(&mut self, _len_bytes: usize) -> bool {
        true
    }

    fn cut(&mut self) {}
}

impl Sink<Refusal> for Replies {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        assert!(matches!(outcome, Outcome::Stored { .. }));
        if self.encodes {
            let mut tally = Tally::default();
            Reply { to: self, tally: &mut tally, notes: &[], pins, now: NOW }
                .answer(Shape::Stored, outcome);
        }
    }
}

impl Answering for Replies {
    fn tells(&self, _: usize) -> Tells {
        Tells::Nothing
    }
}

/// Batch sizes that are measured.
const COUNTS: [usize; 5] = [2, 4, 8, 16, 32];

#[derive(Clone, Copy, Debug)]
struct Case {
    key_len: usize,
    value_len: usize,
    /// `None`: without compaction.
    compacts: Option<Compacts>,
    encodes: bool,
}

/// Runs `batches` batches of `count` writes; returns the nanoseconds of one batch.
fn run(case: Case, count: usize, batches: usize) -> f64 {
    let store = store();
    let mut session = store.session().unwrap();
    let (key, value) = (vec![b'k'; case.key_len], vec![b'v'; case.value_len]);
    let hash = store.key_hasher().hash(&key);
    let op: Op<'_, Rmw<'_>> = blind_set(&value);
    let requests = vec![Request { key: &key, hash, op }; count];
    let mut compaction = case.compacts.map(Compaction::new);
    let mut replies = Replies { bytes: Vec::with_capacity(1 << 12), encodes: case.encodes };
    let mut start = Instant::now();
    for batch in 0..batches + batches / 8 {
        if batch == batches / 8 {
            start = Instant::now();
        }
        replies.bytes.clear();
        match &mut compaction {
            Some(compaction) => compaction.execute(&mut session, NOW, &requests, &mut replies),
            None => session.execute(NOW, &requests, &mut replies),
        }
        let want_bytes = if case.encodes { count * b"+OK\r\n".len() } else { 0 };
        assert_eq!(replies.bytes.len(), want_bytes, "each write has its reply");
        if session.wants_room() {
            session.maintain(NOW);
        }
    }
    start.elapsed().as_nanos() as f64 / batches as f64
}

/// Intercept and slope of the line through the costs of the batch sizes.
fn line(points: &[(usize, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (sum_x, sum_y) =
        points.iter().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + *x as f64, sum.1 + y));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (mut above, mut below) = (0.0, 0.0);
    for (x, y) in points {
        above += (*x as f64 - mean_x) * (y - mean_y);
        below += (*x as f64 - mean_x).powi(2);
    }
    let slope = above / below;
    (mean_y - slope * mean_x, slope)
}

/// The minimum of several turns, for each batch size.
fn least(turns: &[Vec<f64>]) -> Vec<(usize, f64)> {
    let least_of = |at: usize| turns.iter().map(|turn| turn[at]).fold(f64::INFINITY, f64::min);
    COUNTS.iter().enumerate().map(|(at, count)| (*count, least_of(at))).collect()
}

/// The number of batches of a turn, if turns are requested.
const BATCHES: usize = 400;
const BATCHES_UNTIMED: usize = 8;

/// Measures all batch sizes of several cases, in turns.
fn measure(cases: &[Case]) -> Vec<Vec<(usize, f64)>> {
    let asked: Option<usize> = std::env::var("COST_TURNS").ok().map(|text| text.parse().unwrap());
    let batches = if asked.is_some() { BATCHES } else { BATCHES_UNTIMED };
    let mut turns = vec![Vec::new(); cases.len()];
    for _ in 0..asked.unwrap_or(1) {
        for (case, turns) in cases.iter().zip(&mut turns) {
            turns.push(COUNTS.iter().map(|count| run(*case, *count, batches)).collect());
        }
    }
    turns.iter().map(|turns| least(turns)).collect()
}

#[test]
fn a_line_is_found_again() {
    let points: Vec<_> = COUNTS.iter().map(|count| (*count, 7.0 + 3.0 * *count as f64)).collect();
    let (offset, slope) = line(&points);
    assert!((offset - 7.0).abs() < 1e-9 && (slope - 3.0).abs() < 1e-9);
}

#[test]
fn what_a_write_costs_alone_and_in_a_window() {
    println!("key/value   Tb  Tf  Tc  window | ns a write: N  off  on  off/on  Eq. 1");
    for (key_len, value_len) in [(8, 8), (16, 64), (16, 128), (16, 512), (16, 1200), (16, 4096)] {
        let plain = Case { key_len, value_len, compacts: None, encodes: true };
        let silent = Case { encodes: false, ..plain };
        let windows = Case { compacts: Some(Compacts::All), ..plain };
        let measured = measure(&[plain, silent, windows]);
        let [(_, with_reply), (_, base), (once, collect)] =
            [line(&measured[0]), line(&measured[1]), line(&measured[2])];
        let reply = (with_reply - base).max(0.0);
        // The slope of a window includes the reply.
        let collect = (collect - reply).max(0.0);
        println!("{key_len}/{value_len}: {base:.1}  {reply:.1}  {collect:.1}  {once:.0}");
        for (at, count) in COUNTS.iter().enumerate() {
            let (off, on) = (measured[0][at].1, measured[2][at].1);
            let by_model = (base + reply) / (base / *count as f64 + collect + reply);
            let each = *count as f64;
            println!(
                "    {count:2}  {:.1}  {:.1}  {:.2}  {by_model:.2}",
                off / each,
                on / each,
                off / on
            );
        }
    }
}

/// One case alone, for a tool that counts instructions:
/// `COST_CASE=KEY/VALUE,off|long|all,N[,BATCHES]`.
#[test]
fn one_case_alone() {
    let text = std::env::var("COST_CASE").unwrap_or_else(|_| "16/128,all,8,8".to_owned());
    let mut parts = text.split(',');
    let mut next = || parts.next().unwrap_or("");
    let (key_len, value_len) = next().split_once('/').unwrap();
    let compacts = match next() {
        "off" => None,
        "long" => Some(Compacts::Long),
        _ => Some(Compacts::All),
    };
    let (key_len, value_len) = (key_len.parse().unwrap(), value_len.parse().unwrap());
    let count = next().parse().unwrap();
    let batches = next().parse().unwrap_or(1000);
    run(Case { key_len, value_len, compacts, encodes: true }, count, batches);
}
