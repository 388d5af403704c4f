//! The native client's engine against a server that means harm and knows all that it was told.

use std::collections::{HashSet, VecDeque};
use std::ops::Bound;

use base::Instant;
use client::{
    Condition, Config, Delivery, Direction, Engine, Expiry, KeyOrder, Op, Range, RangeItems, Set,
    SubmitError, Token, Want,
};
use wire::native::{
    Challenge, Frame, FrameWriter, Header, Hello, Kind, Part, Reason, Refusal, Reply, RequestId,
    Requests, SessionId, Status, Steering, SteeringId, Versions, Welcome,
};

const OUTSTANDING_MAX: usize = 12;
const FRAME_BYTES: usize = 512;
const TIMEOUT_NS: u64 = 160_000_000;
/// Ids of requests that the server remembers; it answers old ones too.
const IDS_MAX: usize = 24;

/// Steps of `what (1 byte) | how (3 bytes)` behind one byte of configuration. Properties: nothing
/// panics, what there is to send has an end, every request that was taken ends exactly once, and
/// all have ended when they have had time to.
pub fn native_client(data: &[u8]) {
    let Some((first, steps)) = data.split_first() else { return };
    let mut case = Case::new(*first);
    let mut at = 0;
    while let Some(step) = steps.get(at..at + 4) {
        let how = [step[1], step[2], step[3]];
        at += 4;
        match step[0] % 10 {
            0 | 1 => case.submit(how),
            2 => case.greet(how),
            3 | 4 => case.reply(how),
            5 => case.refuse(how),
            6 => {
                let raw = steps.get(at..at + usize::from(how[0])).unwrap_or_default();
                at += raw.len();
                case.engine.input(raw, case.now);
            }
            7 => case.now.ns += (u64::from(how[0]) * 20_000) << (how[1] % 10),
            8 => case.take_completions(usize::from(how[0] % 8)),
            _ if how[0] > 240 => case.engine.restart(),
            _ => case.reply(how),
        }
        case.flush();
        assert!(case.engine.outstanding_count() <= OUTSTANDING_MAX, "E3");
    }
    case.end();
}

struct Case {
    engine: Engine,
    now: Instant,
    /// Taken and not ended.
    outstanding: HashSet<Token>,
    nonce: u64,
    session: u64,
    /// The number of the last frame.
    frame: u32,
    ids: VecDeque<RequestId>,
    value: Vec<u8>,
}

impl Case {
    fn new(bits: u8) -> Case {
        let delivery = if bits & 1 == 0 { Delivery::Lossy } else { Delivery::Reliable };
        let key_order = if bits & 2 == 0 { KeyOrder::Kept } else { KeyOrder::Free };
        let config = Config {
            outstanding_max: OUTSTANDING_MAX,
            window_max_frames: 1 + u32::from(bits >> 4),
            timeout_ns: TIMEOUT_NS,
            value_max_bytes: 60_000,
            transfers_max_bytes: 100_000,
            key_order,
            writes_per_session_max: if bits & 4 == 0 { u32::MAX } else { 5 },
            ..Config::default()
        };
        Case {
            engine: Engine::new(config, delivery, FRAME_BYTES, u64::from(bits)),
            now: Instant { ns: 1 },
            outstanding: HashSet::new(),
            nonce: 0,
            session: 1,
            frame: 0,
            ids: VecDeque::new(),
            value: vec![7; 60_001],
        }
    }

    fn submit(&mut self, how: [u8; 3]) {
        let key = &b"abcdefgh"[..1 + usize::from(how[1] % 3)];
        let value = &self.value[..usize::from(how[2]) * usize::from(how[1] >> 3)];
        let (client_flags, expiry) = (0, Expiry::Never);
        let condition = [Condition::Always, Condition::IfAbsent][usize::from(how[1] & 1)];
        let op = match how[0] % 9 {
            0 | 1 => Op::Get { key, touch: None },
            2 | 3 => Op::Set(Set { key, value, client_flags, expiry, condition, part: None }),
            4 => Op::Incr { key, delta: 1 },
            5 => Op::Delete { key, version: None },
            6 => Op::Append { key, value: &value[..value.len().min(700)] },
            7 => Op::Ping,
            _ => Op::Range(Range {
                start: Bound::Included(key),
                end: Bound::Unbounded,
                direction: Direction::Forward,
                items: RangeItems::Whole,
                item_limit: 9,
            }),
        };
        let has_version =
            !matches!(op, Op::Ping | Op::Delete { .. } | Op::Range(_)) && how[0] & 0x80 == 0;
        let want = if has_version { Want::VERSION } else { Want::PLAIN };
        match self.engine.submit(&op, want) {
            Ok(token) => {
                assert!(self.outstanding.insert(token), "a token names one request");
            }
            Err(SubmitError::Full) => {
                assert!(self.engine.outstanding_count() == OUTSTANDING_MAX);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Everything that the engine has to send; the server listens.
    fn flush(&mut self) {
        let mut buffer = [0; FRAME_BYTES];
        for _ in 0..2000 {
            let Some(len_bytes) = self.engine.output(self.now, &mut buffer) else { return };
            let frame = Frame::parse(&buffer[..len_bytes], None).expect("a client sends frames");
            match frame.header.kind {
                Kind::Hello => {
                    self.nonce = Hello::parse(&frame).expect("a hello").nonce;
                    self.frame = frame.header.number;
                }
                Kind::Requests => {
                    self.frame = frame.header.number;
                    for request in Requests::new(frame.body) {
                        self.ids.push_back(request.expect("a client sends requests").id);
                    }
                    while self.ids.len() > IDS_MAX {
                        self.ids.pop_front();
                    }
                }
                kind => panic!("a client does not send {kind:?}"),
            }
        }
        panic!("there is no end to what it sends");
    }

    fn header(&self, kind: Kind, how: u8) -> Header {
        // Mostly about the last frame, now and then about one before or behind it.
        let answered = self.frame.wrapping_add(1).wrapping_sub(u32::from(how % 4));
        let session = SessionId(if how > 250 { 99 } else { self.session });
        Header { kind, steering: SteeringId::ANY, session, number: u32::from(how), answered }
    }

    fn greet(&mut self, how: [u8; 3]) {
        let mut buffer = [0; FRAME_BYTES];
        let nonce = self.nonce ^ u64::from(how[0] > 250);
        let number = self.frame.wrapping_sub(u32::from(how[0] % 16 == 9));
        let asked = Header { number, ..self.header(Kind::Hello, 1) };
        let len_bytes = if how[1].is_multiple_of(4) {
            let versions = Versions { least: 1 + u8::from(how[2] > 250), most: 9 };
            let challenge = Challenge { cookie: u64::from(how[2]), nonce, versions };
            challenge.encode(&asked, None, &mut buffer)
        } else {
            self.session = u64::from(how[1] % 5);
            let edge = |byte: u8, usual: u32| match byte % 8 {
                0 => 0,
                1 => u32::MAX,
                2 => u32::from(byte),
                _ => usual,
            };
            let welcome = Welcome {
                version: 1 + u8::from(how[0] == 250),
                steering: Steering::new(how[0] % 20, u16::from(how[2]) << (how[0] % 9)),
                frame_max_bytes: edge(how[1], 300),
                nonce,
                steering_seed: 5,
                once_window: edge(how[2], 8),
                idle_ms: edge(how[0], 1000),
                part_window_bytes: edge(how[1] ^ how[2], 1000),
                value_max_bytes: edge(how[0] ^ how[1], 50_000),
                features: Welcome::RANGES,
            };
            welcome.encode(&asked, SessionId(self.session), None, &mut buffer)
        };
        let len_bytes = len_bytes.expect("room for a greeting");
        self.engine.input(&buffer[..len_bytes], self.now);
    }

    fn refuse(&mut self, how: [u8; 3]) {
        let reasons = [Reason::UnknownSession, Reason::Busy, Reason::SessionsFull, Reason::Version];
        // The last one ends everything, so it is rare.
        let reason = reasons[usize::from(how[1] % 3) + usize::from(how[1] == 251)];
        let retry_after_us = u32::from(how[2]) << (how[2] % 24);
        let refusal = Refusal { reason, versions: Versions::OURS, retry_after_us };
        let number = self.frame.wrapping_sub(u32::from(how[0] % 4 == 3));
        let asked = Header { number, ..self.header(Kind::Requests, how[0]) };
        let mut buffer = [0; FRAME_BYTES];
        let len_bytes = refusal.encode(&asked, None, &mut buffer).expect("room for a refusal");
        self.engine.input(&buffer[..len_bytes], self.now);
    }

    /// Answers one to four of the requests that it was told of, or of others.
    fn reply(&mut self, how: [u8; 3]) {
        let mut buffer = [0; FRAME_BYTES];
        let mut writer = FrameWriter::new(&mut buffer, self.header(Kind::Replies, how[0]))
            .expect("room for a header");
        for step in 0..=how[0] % 4 {
            let place = usize::from(how[1]) + usize::from(step);
            let id = match self.ids.len() {
                0 => RequestId::Free(u32::from(how[1])),
                count => self.ids[place % count],
            };
            let status = Status::from_byte(if how[2].is_multiple_of(3) { 0 } else { how[2] % 15 });
            let len_bytes = usize::from(how[2]) + usize::from(step) * 8;
            let value = &self.value[..len_bytes.min(120)];
            // Parts that fit together, and parts that do not.
            let offset = u32::from(how[1]) * if how[2] & 1 == 0 { 0 } else { 64 };
            let totals = [value.len() as u32, 3000, 30_000, u32::MAX];
            let total = totals[usize::from(how[0] >> 2) % totals.len()];
            let is_inside = u64::from(offset) + value.len() as u64 <= u64::from(total);
            let reply = Reply {
                version: Some(u64::from(how[1] % 2)),
                number: (how[2] & 2 == 0).then_some(i64::from(how[2]) - 9),
                part: (is_inside && how[0] & 0x40 != 0).then_some(Part { offset, total }),
                resume_key: (how[0] > 240).then_some(&b"key"[..]),
                value,
                ..Reply::new(id, status.unwrap_or(Status::Ok))
            };
            // What does not fit is not sent.
            let _ = writer.push_reply(&reply);
        }
        let len_bytes = writer.finish(None);
        self.engine.input(&buffer[..len_bytes], self.now);
    }

    fn take_completions(&mut self, count_max: usize) {
        for _ in 0..count_max {
            let Some(completion) = self.engine.next_completion() else { return };
            let token = completion.token;
            assert!(self.outstanding.remove(&token), "{token:?} ended, and was not outstanding");
        }
    }

    /// Time passes, and nothing more comes.
    fn end(mut self) {
        for _ in 0..20 * OUTSTANDING_MAX {
            self.flush();
            self.take_completions(usize::MAX);
            if self.outstanding.is_empty() {
                break;
            }
            let timer = self.engine.next_timer().expect("what is outstanding has a timer");
            self.now.ns = timer.ns.max(self.now.ns + TIMEOUT_NS / 16);
        }
        assert!(self.outstanding.is_empty(), "{:?} never ended", self.outstanding);
        assert!(self.engine.next_completion().is_none(), "each ends once");
        assert_eq!(self.engine.outstanding_count(), 0);
    }
}
