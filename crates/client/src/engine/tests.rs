//! Tests of the engine against a model server over a simulated network: one seed gives one run.

mod hostile;
mod network;
pub(crate) mod server;

use base::Instant;
use wire::native::{
    Condition, Expiry, FrameWriter, Header, Item, ItemValue, ItemWriter, Kind, Op, Range,
    RangeItems, Reply, RequestId, SessionId, Set, Status, SteeringId, TagKey, Want,
};

use self::network::{Network, Weather};
use super::queues::Queues;
use super::slots::State;
use super::{Answer, Completion, Engine, Token};
use crate::config::{Config, Delivery, KeyOrder};
use crate::error::{RequestError, SubmitError};

impl Engine {
    /// Recounts everything.
    pub(crate) fn validate(&self) {
        self.frames.validate();
        let Queues { routes, reads, len, .. } = &self.queues;
        let queued = routes.iter().map(|queue| queue.len()).sum::<usize>() + reads.len();
        assert_eq!(queued, *len, "U1");
        for parent in self.slots.request_indexes() {
            let state = self.slots.get(parent).state;
            assert!(state == State::InParts || self.slots.parts_of(parent).next().is_none(), "S2");
            assert_eq!(state == State::InParts, self.slots.get(parent).transfer.is_some());
        }
    }
}

fn engine(config: Config) -> Engine {
    Engine::new(config, Delivery::Lossy, 1448, 7)
}

fn calm() -> Network {
    Network::new(engine(Config::default()), Weather::default(), 1)
}

const GET_A: Op<'_> = Op::Get { key: b"a", touch: None };
const INCR_N: Op<'_> = Op::Incr { key: b"n", delta: 1 };

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Op::Set(Set { key, value, client_flags: 0, expiry, condition, part: None })
}

/// Results without their borrowed bytes.
type Owned = (Token, Result<(Status, Vec<u8>, Option<i64>), RequestError>);

fn own(completion: Completion<'_>) -> Owned {
    let own = |answer: Answer<'_>| (answer.status, answer.value.to_vec(), answer.number);
    (completion.token, completion.result.map(own))
}

#[track_caller]
fn check(network: &mut Network, op: &Op<'_>, status: Status, value: &[u8]) {
    network.engine.submit(op, Want::PLAIN).unwrap();
    let ended = network.run_until(1, own);
    let (_, Ok((found, bytes, _))) = &ended[0] else { panic!("{op:?} ended {ended:?}") };
    assert_eq!((*found, &bytes[..]), (status, value), "{op:?}");
}

#[test]
fn requests_are_answered() {
    let mut network = calm();
    check(&mut network, &GET_A, Status::Miss, b"");
    check(&mut network, &set(b"a", b"value"), Status::Ok, b"");
    check(&mut network, &GET_A, Status::Ok, b"value");
    check(&mut network, &Op::Append { key: b"a", value: b"s" }, Status::Ok, b"");
    check(&mut network, &GET_A, Status::Ok, b"values");
    check(&mut network, &Op::Delete { key: b"a", version: None }, Status::Ok, b"");
    check(&mut network, &GET_A, Status::Miss, b"");
    check(&mut network, &Op::Ping, Status::Ok, b"");
    assert_eq!(network.server.hellos, 2, "one without a cookie, one with it");
    let stats = network.engine.stats();
    assert_eq!((stats.requests, stats.completions, stats.sessions), (8, 8, 1));
    assert_eq!((stats.retries, stats.frames_lost, stats.frames_dropped), (0, 0, 0));
    assert_eq!(stats.rtt.count(), 8);
}

#[test]
fn many_requests_travel_in_one_frame() {
    let mut network = calm();
    check(&mut network, &Op::Ping, Status::Ok, b"");
    for _ in 0..32 {
        network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    }
    network.run_until(32, own);
    assert_eq!(network.server.frame_sizes, [1, 32]);
}

#[test]
fn writes_go_to_their_owner_and_reads_anywhere() {
    let mut network = calm();
    network.server.worker_count = 4;
    for k in 0..200_u32 {
        network.engine.submit(&set(&k.to_le_bytes(), b"v"), Want::PLAIN).unwrap();
    }
    network.run_until(200, own);
    let workers: Vec<u16> = network.server.steerings.iter().map(|id| id % 4).collect();
    assert!((0..4).all(|worker| workers.contains(&worker)), "{workers:?}");
    let before = workers.len();
    for round in 0..64 {
        let _ = round;
        check(&mut network, &GET_A, Status::Miss, b"");
    }
    let reads: Vec<u16> = network.server.steerings[before..].iter().map(|id| id % 4).collect();
    assert!((0..4).all(|worker| reads.contains(&worker)), "{reads:?}");
}

#[test]
fn a_request_sees_the_effect_of_earlier_writes_of_its_key() {
    for seed in 0..20 {
        let weather = Weather { lost: 100, repeated: 50, jitter_ns: 100_000 };
        let mut network = Network::new(engine(Config::default()), weather, seed);
        let mut wanted = Vec::new();
        for round in 1..=20_i64 {
            wanted.push((network.engine.submit(&INCR_N, Want::PLAIN).unwrap(), None, Some(round)));
            let read = Op::Get { key: b"n", touch: None };
            let token = network.engine.submit(&read, Want::PLAIN).unwrap();
            wanted.push((token, Some(round), None));
        }
        let ended = network.run_until(wanted.len(), own);
        for (token, value, number) in wanted {
            let (_, result) = ended.iter().find(|(found, _)| *found == token).unwrap();
            let (_, bytes, sum) = result.as_ref().unwrap();
            assert_eq!(*sum, number, "seed {seed}");
            if let Some(least) = value {
                let found: i64 = str::from_utf8(bytes).unwrap().parse().unwrap();
                assert!(found >= least, "seed {seed}: read {found} behind the write of {least}");
            }
        }
    }
}

/// Every write happens exactly once, whatever the network does.
#[track_caller]
fn check_once(weather: Weather, seed: u64) -> Network {
    const COUNT: usize = 600;
    let config = Config { key_order: KeyOrder::Free, ..Config::default() };
    let mut network = Network::new(engine(config), weather, seed);
    let (mut submitted, mut sums) = (0, Vec::new());
    while sums.len() < COUNT {
        while submitted < COUNT && network.engine.outstanding_count() < 200 {
            network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
            submitted += 1;
        }
        sums.extend(network.run_until(1, |completion| completion.result.unwrap().number.unwrap()));
    }
    sums.sort_unstable();
    assert_eq!(sums, (1..=COUNT as i64).collect::<Vec<_>>(), "seed {seed}");
    assert_eq!(network.server.executed_writes, COUNT as u64);
    network
}

#[test]
fn a_write_happens_once_whatever_the_network_does() {
    for seed in 0..10 {
        check_once(Weather::default(), seed);
        check_once(Weather { lost: 10, ..Weather::default() }, seed);
        check_once(Weather { lost: 200, repeated: 200, jitter_ns: 500_000 }, seed);
        check_once(Weather { jitter_ns: 2_000_000, ..Weather::default() }, seed);
    }
}

#[test]
fn a_quiet_network_sees_no_retry_and_a_lossy_one_sees_few() {
    let stats = check_once(Weather::default(), 3).engine.stats().clone();
    assert_eq!((stats.retries, stats.frames_lost), (0, 0));
    let network = check_once(Weather { lost: 100, ..Weather::default() }, 3);
    let stats = network.engine.stats();
    assert!(stats.frames_lost > 0 && stats.frames_lost < stats.frames_sent / 2, "{stats:?}");
}

#[test]
fn one_seed_is_one_run() {
    let weather = Weather { lost: 100, repeated: 100, jitter_ns: 100_000 };
    let run = || {
        let network = check_once(weather, 5);
        (network.now, network.engine.stats().clone())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_restarted_server_gets_no_write_twice() {
    let mut network = calm();
    check(&mut network, &set(b"a", b"old"), Status::Ok, b"");
    // The write is executed; its answer is lost with the server.
    let write = network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    network.flush();
    network.weather.lost = 1000;
    while network.server.executed_writes == 1 {
        assert!(network.step());
    }
    network.server.forget_sessions();
    network.weather.lost = 0;
    let read = network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    let mut ended = network.run_until(2, own);
    ended.sort_by_key(|(token, _)| *token == read);
    assert_eq!(ended[0], (write, Err(RequestError::Unknown)));
    assert_eq!(ended[1], (read, Ok((Status::Ok, b"old".to_vec(), None))));
    assert_eq!(network.server.executed_writes, 2);
    assert_eq!(network.engine.stats().sessions, 2);
}

#[test]
fn a_write_that_a_forgetful_server_refused_is_sent_again() {
    let mut network = calm();
    check(&mut network, &INCR_N, Status::Ok, b"");
    network.server.forget_sessions();
    for _ in 0..40 {
        network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    }
    let ended = network.run_until(40, |completion| completion.result.map(|it| it.number.unwrap()));
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_eq!(network.server.value(b"n"), Some(&b"41"[..]));
}

#[test]
fn a_session_that_was_idle_for_long_is_renewed_before_it_is_used() {
    let mut network = calm();
    check(&mut network, &INCR_N, Status::Ok, b"");
    network.now.ns += 50_000_000_000;
    check(&mut network, &INCR_N, Status::Ok, b"");
    assert_eq!(network.engine.stats().sessions, 2);
}

#[test]
fn a_session_is_renewed_before_its_numbers_run_out() {
    let config = Config { writes_per_session_max: 10, ..Config::default() };
    let mut network = Network::new(engine(config), Weather::default(), 1);
    for _ in 0..95 {
        network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
        network.engine.submit(&set(b"a", b"v"), Want::PLAIN).unwrap();
        network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    }
    let ended = network.run_until(285, own);
    assert!(ended.iter().all(|(_, result)| result.is_ok()));
    assert_eq!(network.server.value(b"n"), Some(&b"95"[..]));
    assert_eq!(network.engine.stats().sessions, 19);
}

#[test]
fn without_a_server_requests_time_out_unharmed() {
    let mut network = calm();
    network.is_cut = true;
    network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    let ended = network.run_until(2, |completion| completion.result.unwrap_err());
    assert_eq!(ended, [RequestError::TimedOut, RequestError::TimedOut]);
    let timeout_ns = Config::default().timeout_ns;
    assert!((timeout_ns..timeout_ns / 8 * 9).contains(&network.now.ns), "{}", network.now.ns);
}

#[test]
fn a_client_that_waits_for_ever_does_so() {
    let config = Config { timeout_ns: u64::MAX, ..Config::default() };
    let mut network = Network::new(engine(config), Weather::default(), 1);
    network.now.ns = 5_000_000_000;
    check(&mut network, &INCR_N, Status::Ok, b"");
    network.is_cut = true;
    network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    while network.now.ns < 60_000_000_000 {
        assert!(network.step() && !network.engine.has_completion());
    }
    network.is_cut = false;
    assert_eq!(network.run_until(1, own)[0].1, Ok((Status::Miss, Vec::new(), None)));
}

#[test]
fn a_write_without_an_answer_ends_unknown_and_a_read_in_time() {
    let mut network = calm();
    check(&mut network, &Op::Ping, Status::Ok, b"");
    let write = network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    let read = network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    network.is_cut = true;
    let mut ended = network.run_until(2, own);
    ended.sort_by_key(|(token, _)| *token == read);
    assert_eq!(ended[0], (write, Err(RequestError::Unknown)));
    assert_eq!(ended[1], (read, Err(RequestError::TimedOut)));
    // It never happens once it was given up and the next answer came.
    network.is_cut = false;
    check(&mut network, &GET_A, Status::Miss, b"");
    assert_eq!(network.server.executed_writes, 0);
}

#[test]
fn a_busy_server_is_left_alone_and_then_asked_again() {
    for (busy_requests, busy_frames) in [(5, 0), (0, 3)] {
        let mut network = calm();
        check(&mut network, &Op::Ping, Status::Ok, b"");
        network.server.moods.busy_requests = busy_requests;
        network.server.moods.busy_frames = busy_frames;
        let before_ns = network.now.ns;
        check(&mut network, &INCR_N, Status::Ok, b"");
        assert!(network.now.ns > before_ns + 1_000_000, "it waits before it asks again");
        assert_eq!(network.server.executed_writes, 1);
        assert!(network.engine.stats().busy > 0);
    }
}

#[test]
fn a_server_that_stays_busy_ends_requests_unharmed() {
    let mut network = calm();
    check(&mut network, &Op::Ping, Status::Ok, b"");
    network.server.moods.busy_requests = u32::MAX;
    network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    let ended = network.run_until(1, |completion| completion.result.unwrap_err());
    assert_eq!(ended, [RequestError::Busy]);
}

/// A frame of the server's with one reply, which answers this frame.
fn reply_frame(answered: u32, reply: &Reply<'_>) -> Vec<u8> {
    let (kind, steering) = (Kind::Replies, SteeringId::ANY);
    let header = Header { kind, steering, session: SessionId(1), number: 77, answered };
    let mut bytes = vec![0; 256];
    let mut writer = FrameWriter::new(&mut bytes, header).unwrap();
    writer.push_reply(reply).unwrap();
    let len_bytes = writer.finish(None);
    bytes.truncate(len_bytes);
    bytes
}

/// A server's word that it did not execute the first write, in answer to this frame.
fn busy_frame(answered: u32) -> Vec<u8> {
    reply_frame(answered, &Reply::new(RequestId::Once(0), Status::Busy))
}

#[test]
fn a_refusal_that_comes_twice_counts_once() {
    let mut network = calm();
    check(&mut network, &Op::Ping, Status::Ok, b"");
    network.server.moods.busy_requests = 1;
    network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    network.flush();
    let refused = network.engine.frames.next() - 1;
    while network.server.executed_writes == 0 {
        assert!(network.step());
    }
    // The second copy was executed, its answer is lost, the first refusal comes again, and then
    // the server restarts.
    network.forget_flying();
    network.engine.input(&busy_frame(refused), network.now);
    network.server.forget_sessions();
    let ended = network.run_until(1, |completion| completion.result.map(|it| it.number));
    assert_eq!((ended, network.server.executed_writes), (vec![Err(RequestError::Unknown)], 1));
}

#[test]
fn a_late_refusal_of_a_copy_that_was_given_up_for_lost_counts() {
    let mut network = calm();
    check(&mut network, &Op::Ping, Status::Ok, b"");
    network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    network.is_cut = true;
    network.flush();
    let sent = network.engine.frames.next() - 1;
    let now = Instant { ns: network.now.ns + 1_000_000_000 };
    network.engine.advance(now);
    network.engine.input(&busy_frame(sent), now);
    // So nothing is unknown about it when the server restarts.
    network.is_cut = false;
    network.server.forget_sessions();
    let ended = network.run_until(1, |completion| completion.result.map(|it| it.number));
    assert_eq!(ended, [Ok(Some(1))]);
}

#[test]
fn a_reliable_way_keeps_the_order_of_requests_on_one_key_too() {
    let large = large_value(20_000);
    for (ops, busy_requests, last) in [
        ([set(b"a", b"first"), set(b"a", &large), GET_A], 0, &large[..]),
        ([set(b"a", &large), set(b"a", b"last"), GET_A], 0, b"last"),
        ([set(b"a", b"first"), set(b"a", b"last"), GET_A], 1, b"last"),
    ] {
        let engine = Engine::new(Config::default(), Delivery::Reliable, 1448, 7);
        let mut network = Network::new(engine, Weather::default(), 1);
        network.server.is_reliable = true;
        check(&mut network, &Op::Ping, Status::Ok, b"");
        network.server.moods.busy_requests = busy_requests;
        for op in &ops {
            network.engine.submit(op, Want::PLAIN).unwrap();
        }
        let ended = network.run_until(3, |completion| completion.result.unwrap().value.to_vec());
        assert!(ended[2] == last, "{busy_requests}: {} bytes", ended[2].len());
    }
}

#[test]
fn writes_that_waited_for_numbers_leave_together() {
    let config = Config { key_order: KeyOrder::Free, ..Config::default() };
    let mut network = Network::new(engine(config), Weather::default(), 1);
    check(&mut network, &Op::Ping, Status::Ok, b"");
    // The first is lost, and the window fills up behind it.
    network.is_cut = true;
    network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    network.flush();
    network.is_cut = false;
    let (window, waiting) = (network.server.once_window as usize, 40);
    for _ in 1..window + waiting {
        network.engine.submit(&INCR_N, Want::PLAIN).unwrap();
    }
    network.run_until(window + waiting, own);
    let last_sizes = network.server.frame_sizes.iter().rev();
    assert!(last_sizes.take(2).sum::<usize>() >= waiting, "{:?}", network.server.frame_sizes);
}

fn large_value(len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|at| (at / 64 * 7 + at) as u8).collect()
}

#[track_caller]
fn check_large(len_bytes: usize, weather: Weather, seed: u64) {
    let mut network = Network::new(engine(Config::default()), weather, seed);
    let value = large_value(len_bytes);
    check(&mut network, &set(b"a", &value), Status::Ok, b"");
    assert_eq!(network.server.value(b"a"), Some(&value[..]), "{len_bytes}");
    check(&mut network, &GET_A, Status::Ok, &value);
    assert_eq!(network.server.executed_writes, 1);
    assert_eq!(network.engine.transfers.pulled_bytes, 0);
}

#[test]
fn large_values_go_in_parts_both_ways() {
    for len_bytes in [1300, 1400, 1448, 2000, 4096, 100_001, 1 << 20] {
        check_large(len_bytes, Weather::default(), 1);
    }
    for seed in 0..10 {
        let weather = Weather { lost: 50, repeated: 50, jitter_ns: 50_000 };
        check_large(100_001, weather, seed);
    }
}

#[test]
fn more_large_values_than_the_server_holds_at_once_are_all_stored() {
    let mut network = calm();
    let value = large_value(200_000);
    for key in 0..60_u8 {
        network.engine.submit(&set(&[key], &value), Want::PLAIN).unwrap();
    }
    let ended = network.run_until(60, |completion| completion.result.map(|it| it.status));
    assert!(ended.iter().all(|status| *status == Ok(Status::Ok)), "{ended:?}");
    assert!((0..60_u8).all(|key| network.server.value(&[key]) == Some(&value[..])));
}

#[test]
fn a_value_that_changes_while_it_is_pulled_is_got_whole() {
    let mut network = calm();
    let value = large_value(50_000);
    check(&mut network, &set(b"a", &value), Status::Ok, b"");
    network.server.moods.changes = 3;
    network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    let ended = network.run_until(1, own);
    let stored = network.server.value(b"a").unwrap().to_vec();
    assert_eq!(ended[0].1, Ok((Status::Ok, stored, None)));
}

#[test]
fn large_values_do_not_hold_up_small_requests() {
    let mut network = calm();
    let value = large_value(1 << 20);
    network.engine.submit(&set(b"large", &value), Want::PLAIN).unwrap();
    let small = network.engine.submit(&Op::Ping, Want::PLAIN).unwrap();
    let ended = network.run_until(2, own);
    assert_eq!(ended[0].0, small);
}

#[test]
fn what_fits_no_frame_and_cannot_be_cut_ends_as_too_long() {
    let mut network = calm();
    let value = large_value(3000);
    network.engine.submit(&Op::Append { key: b"a", value: &value }, Want::PLAIN).unwrap();
    let ended = network.run_until(1, |completion| completion.result.unwrap_err());
    assert_eq!(ended, [RequestError::TooLong { frame_max_bytes: 1448 }]);
    check(&mut network, &INCR_N, Status::Ok, b"");
}

#[test]
fn a_range_answers_its_items() {
    let mut network = calm();
    for key in [b"a", b"b", b"c"] {
        check(&mut network, &set(key, key), Status::Ok, b"");
    }
    let range = Op::Range(Range {
        start: std::ops::Bound::Included(b"b"),
        end: std::ops::Bound::Unbounded,
        direction: wire::native::Direction::Forward,
        items: RangeItems::Whole,
        item_limit: 10,
    });
    network.engine.submit(&range, Want::PLAIN).unwrap();
    let keys = network.run_until(1, |completion| {
        let items = wire::native::Items::new(completion.result.unwrap().value);
        items.map(|item| item.key.to_vec()).collect::<Vec<_>>()
    });
    assert_eq!(keys, [[b"b".to_vec(), b"c".to_vec()]]);
}

#[test]
fn an_empty_resume_key_is_short_for_the_last_items() {
    let mut network = calm();
    check(&mut network, &Op::Ping, Status::Ok, b"");
    let range = Op::Range(Range {
        start: std::ops::Bound::Included(b""),
        end: std::ops::Bound::Unbounded,
        direction: wire::native::Direction::Forward,
        items: RangeItems::KeysOnly,
        item_limit: 10,
    });
    let token = network.engine.submit(&range, Want::PLAIN).unwrap();
    network.flush();
    network.forget_flying();
    let mut items = [0; 64];
    let mut writer = ItemWriter::new(&mut items);
    let value = ItemValue::Here(b"");
    assert!(
        writer.push(&Item { key: b"first", value }) && writer.push(&Item { key: b"last", value })
    );
    let id = RequestId::Free(network.engine.slots.get(token.index() as u32).number);
    let (resume_key, value) = (Some(&b""[..]), writer.finish());
    let reply = Reply { resume_key, value, ..Reply::new(id, Status::Ok) };
    let answered = network.engine.frames.next() - 1;
    network.engine.input(&reply_frame(answered, &reply), network.now);
    let completion = network.engine.next_completion().unwrap();
    assert_eq!(completion.result.unwrap().resume_key, Some(&b"last"[..]));
}

#[test]
fn no_more_requests_are_taken_than_may_be_outstanding() {
    let config = Config { outstanding_max: 3, ..Config::default() };
    let mut network = Network::new(engine(config), Weather::default(), 1);
    for _ in 0..3 {
        network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    }
    assert_eq!(network.engine.submit(&GET_A, Want::PLAIN), Err(SubmitError::Full));
    network.run_until(1, own);
    let token = network.engine.submit(&GET_A, Want::PLAIN).unwrap();
    assert!(token.index() < 3);
}

#[test]
fn both_sides_need_the_same_key() {
    let key = TagKey::new(&[7; 16]);
    let config = Config { tag_key: Some(key), ..Config::default() };
    let mut network = Network::new(engine(config.clone()), Weather::default(), 1);
    network.server.key = Some(key);
    check(&mut network, &Op::Ping, Status::Ok, b"");
    let mut network = Network::new(engine(config), Weather::default(), 1);
    network.engine.submit(&Op::Ping, Want::PLAIN).unwrap();
    let ended = network.run_until(1, |completion| completion.result.unwrap_err());
    assert_eq!(ended, [RequestError::TimedOut]);
}

#[test]
fn requests_that_differ_in_nothing_but_time_allocate_nothing() {
    let mut network = calm();
    let mut buffer = vec![0; 2048];
    let mut capacities = Vec::new();
    for round in 0..200 {
        for _ in 0..64 {
            network.engine.submit(&GET_A, Want::PLAIN).unwrap();
            network.engine.submit(&set(b"k", &[7; 64]), Want::PLAIN).unwrap();
        }
        network.run_until(128, |completion| completion.result.unwrap().status);
        let _ = network.engine.output(network.now, &mut buffer);
        let engine = &network.engine;
        let queues = engine.queues.routes.iter().map(|queue| queue.capacity()).sum::<usize>();
        let found = (queues, engine.queues.reads.capacity(), engine.done.capacity());
        let transfers = (engine.transfers.waiting.capacity(), engine.sequences.waiting_capacity());
        if round > 50 {
            capacities.push((found, transfers));
        }
    }
    assert!(capacities.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", capacities.last());
}

#[test]
fn a_reliable_way_carries_whole_writes_without_numbers_and_never_sends_twice() {
    let mut engine = Engine::new(Config::default(), Delivery::Reliable, 1448, 7);
    engine.submit(&GET_A, Want::PLAIN).unwrap();
    let mut buffer = vec![0; 2048];
    assert!(engine.output(Instant { ns: 5 }, &mut buffer).is_some(), "the hello");
    assert!(engine.output(Instant { ns: 5 }, &mut buffer).is_none());
}
