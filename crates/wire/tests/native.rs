//! The native protocol from outside: round trips, pictures of the format page, broken input.

use std::ops::Bound;

use base::UnixMillis;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::native::{
    Challenge, Condition, Direction, Expiry, Frame, FrameError, FrameWriter, HELLO_LEN_BYTES,
    Header, Hello, Kind, NoRoom, Op, Part, Range, RangeItems, Reason, Refusal, Replies, Reply,
    Request, RequestError, RequestId, Requests, SessionId, Set, Span, Status, Steering, SteeringId,
    TagKey, Versions, Want, Welcome, encode_bye,
};

fn header(kind: Kind) -> Header {
    Header {
        kind,
        steering: SteeringId(3),
        session: SessionId(0x1122_3344_5566_7788),
        number: 9,
        answered: 40,
    }
}

fn key() -> TagKey {
    TagKey::new(b"sixteen secrets!")
}

/// A frame of these requests.
fn requests_frame(requests: &[Request<'_>], key: Option<&TagKey>) -> Vec<u8> {
    let mut buffer = vec![0xaa; 64 << 10];
    let mut writer = FrameWriter::new(&mut buffer, header(Kind::Requests)).expect("room");
    requests.iter().for_each(|request| writer.push_request(request).expect("room"));
    let len_bytes = writer.finish(key);
    buffer.truncate(len_bytes);
    buffer
}

fn replies_frame(replies: &[Reply<'_>]) -> Vec<u8> {
    let mut buffer = vec![0xaa; 64 << 10];
    let mut writer = FrameWriter::new(&mut buffer, header(Kind::Replies)).expect("room");
    replies.iter().for_each(|reply| writer.push_reply(reply).expect("room"));
    let len_bytes = writer.finish(None);
    buffer.truncate(len_bytes);
    buffer
}

fn body(datagram: &[u8]) -> &[u8] {
    Frame::parse(datagram, None).expect("a good frame").body
}

fn get(number: u32, key: &[u8]) -> Request<'_> {
    let id = RequestId::Free(number);
    Request { id, want: Want::PLAIN, op: Op::Get { key, touch: None } }
}

fn set<'a>(number: u32, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    let op = Op::Set(Set { key, value, client_flags: 0, expiry, condition, part: None });
    Request { id: RequestId::Once(number), want: Want::PLAIN, op }
}

const PAGE: &str = include_str!("../../../docs/formats/native.md");

/// The bytes of a picture: lines of an offset, bytes, and after four or more spaces a comment.
fn picture_bytes(picture: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in picture.lines() {
        let offset = usize::from_str_radix(&line[..2], 16).expect("a line begins with its offset");
        assert_eq!(offset, bytes.len(), "{line}");
        let (hex, _comment) = line[4..].split_once("    ").expect("a comment");
        let byte = |digits| u8::from_str_radix(digits, 16).expect("two digits");
        bytes.extend(hex.split_whitespace().map(byte));
    }
    bytes
}

#[test]
fn the_worked_examples_of_the_format_page_are_true() {
    let read = Request { want: Want::VERSION, ..get(7, b"user:1000") };
    let requests = [read, set(42, b"a", b"hello")];
    let found =
        Reply { version: Some(9), value: b"Ada", ..Reply::new(RequestId::Free(7), Status::Ok) };
    let replies = [found, Reply::new(RequestId::Once(42), Status::Ok)];
    let mut replies_bytes = vec![0; 200];
    let header = Header { number: 12, answered: 9, ..header(Kind::Replies) };
    let mut writer = FrameWriter::new(&mut replies_bytes, header).unwrap();
    replies.iter().for_each(|reply| writer.push_reply(reply).unwrap());
    let len_bytes = writer.finish(None);
    replies_bytes.truncate(len_bytes);

    let pictures: Vec<Vec<u8>> = PAGE
        .split("```text\n")
        .filter(|piece| piece.starts_with("00  "))
        .map(|piece| picture_bytes(piece.split("\n```").next().unwrap()))
        .collect();
    assert_eq!(pictures, [requests_frame(&requests, None), replies_bytes]);

    let key = TagKey::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
    let tagged = requests_frame(&requests, Some(&key));
    let tag: Vec<String> = tagged[24..32].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(PAGE.contains(&format!("tag is `{}`", tag.join(" "))), "{tag:?}");
}

#[test]
fn a_get_of_16_bytes_is_32_and_its_reply_of_64_is_80() {
    assert_eq!(get(1, &[0; 16]).len_bytes(), 32);
    let mut reply = Reply { value: &[0; 64], ..Reply::new(RequestId::Free(1), Status::Ok) };
    assert_eq!(reply.len_bytes(), 80);
    reply.version = Some(9);
    assert_eq!(reply.len_bytes(), 88);
}

#[track_caller]
fn check_frame(datagram: &[u8], key: Option<&TagKey>, want: FrameError) {
    assert_eq!(Frame::parse(datagram, key), Err(want));
}

#[test]
fn what_is_no_frame_is_named() {
    let good = requests_frame(&[get(1, b"key")], None);
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    assert!(Frame::parse(&good, None).is_ok());
    check_frame(&[], None, FrameError::TooShort { len_bytes: 0 });
    check_frame(&good[..31], None, FrameError::TooShort { len_bytes: 31 });
    check_frame(&with(0, b'E'), None, FrameError::NotOurs);
    check_frame(&with(2, 2), None, FrameError::Version { version: 2 });
    check_frame(&with(3, 0), None, FrameError::UnknownKind { kind: 0 });
    check_frame(&with(3, 8), None, FrameError::UnknownKind { kind: 8 });
    check_frame(&with(6, 3), None, FrameError::BadLength { len_bytes: 24 });
    check_frame(&with(24, 1), None, FrameError::Tag);
}

#[test]
fn a_frame_that_was_cut_anywhere_is_refused_whole() {
    let good = requests_frame(&[get(1, b"key"), get(2, b"another")], None);
    for len_bytes in 32..good.len() {
        let want_bytes = good.len();
        check_frame(&good[..len_bytes], None, FrameError::Truncated { len_bytes, want_bytes });
    }
}

#[test]
fn bytes_behind_a_frame_mean_nothing() {
    let mut padded = requests_frame(&[get(1, b"key")], Some(&key()));
    let len_bytes = padded.len();
    padded.extend_from_slice(&[0xff; 100]);
    let frame = Frame::parse(&padded, Some(&key())).unwrap();
    assert_eq!(frame.len_bytes, len_bytes);
    assert_eq!(Requests::new(frame.body).count(), 1);
}

#[test]
fn a_tag_covers_every_bit_of_its_frame() {
    let good = requests_frame(&[set(1, b"key", b"value")], Some(&key()));
    assert!(Frame::parse(&good, Some(&key())).is_ok());
    for bit in 0..good.len() * 8 {
        let mut frame = good.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        assert!(Frame::parse(&frame, Some(&key())).is_err(), "bit {bit}");
    }
}

#[test]
fn a_key_on_one_side_alone_is_noticed() {
    let tagged = requests_frame(&[get(1, b"key")], Some(&key()));
    check_frame(&tagged, None, FrameError::Tag);
    check_frame(&tagged, Some(&TagKey::new(&[0; 16])), FrameError::Tag);
    let plain = requests_frame(&[get(1, b"key")], None);
    check_frame(&plain, Some(&key()), FrameError::Tag);
}

#[test]
fn a_key_is_read_from_its_file() {
    let from_text = TagKey::from_hex("7369787465656e20736563726574732 1".replace(' ', "").as_str());
    let frame = requests_frame(&[get(1, b"key")], Some(&key()));
    assert!(Frame::parse(&frame, Some(&from_text.unwrap())).is_ok());
    assert!(TagKey::from_hex("00112233445566778899AABBCCDDEEFF\n").is_ok());
    for text in
        ["", "0011", "00112233445566778899aabbccddeefg", "000112233445566778899aabbccddeeff"]
    {
        assert!(TagKey::from_hex(text).is_err(), "{text}");
    }
    assert_eq!(format!("{:?}", key()), "TagKey", "no key in a log");
}

/// One message of a requests frame, changed at one place.
#[track_caller]
fn check_refused(request: &Request<'_>, changes: &[(usize, u8)], want: Status) {
    let mut frame = requests_frame(&[*request, get(99, b"next")], None);
    for (at, byte) in changes {
        frame[32 + at] = *byte;
    }
    let body = body(&frame);
    let found: Vec<_> = Requests::new(body).collect();
    let id = request.id;
    assert_eq!(found[0], Err(RequestError::Refused { id, status: want }));
    assert_eq!(found[1], Ok(get(99, b"next")), "what follows is not lost");
}

#[test]
fn what_version_1_does_not_know_is_unsupported_and_stepped_over() {
    let request = get(1, b"0123456789abcdef0123456789abcdef");
    check_refused(&request, &[(0, 0)], Status::Unsupported);
    check_refused(&request, &[(0, 11)], Status::Unsupported);
    check_refused(&request, &[(0, 255)], Status::Unsupported);
    check_refused(&request, &[(1, 0x40)], Status::Unsupported);
    check_refused(&request, &[(1, 0x80)], Status::Unsupported);
    check_refused(&request, &[(6, 2)], Status::Unsupported);
    check_refused(&request, &[(7, 1)], Status::Unsupported);
    // A word unknown to every server, in place of the key's first eight bytes.
    check_refused(&request, &[(3, 0x80), (4, 24)], Status::Unsupported);
    check_refused(&set(1, b"key", b"value"), &[(6, 4)], Status::Unsupported);
    check_refused(&set(1, b"key", b"value"), &[(1, 0x11)], Status::Unsupported);
}

#[test]
fn what_contradicts_itself_is_malformed() {
    let value = [0; 64];
    let set = set(1, b"key", &value);
    // Every word is taken from the value's bytes: 8 of them, or 16.
    check_refused(&set, &[(6, 3)], Status::Malformed); // If-version without a version.
    check_refused(&set, &[(2, 0x04), (12, 56)], Status::Malformed); // A version for no condition.
    check_refused(&set, &[(2, 0x03), (12, 48)], Status::Malformed); // Two expiries.
    check_refused(&set, &[(1, 0x21), (2, 0x01), (12, 56)], Status::Malformed); // Keep and at.
    check_refused(&set, &[(2, 0x20), (12, 56)], Status::Malformed); // A part behind its end.
    check_refused(&get(1, b"key"), &[(4, 2), (12, 1)], Status::Malformed); // A get with a value.
    check_refused(&get(1, b"key"), &[(1, 0x20)], Status::Malformed); // A keep without a touch.
    let ping = Request { op: Op::Ping, ..get(1, b"") };
    check_refused(
        &Request { op: Op::Incr { key: b"12345678", delta: 1 }, ..set },
        &[(2, 0), (4, 16)],
        {
            // The delta's bytes became the key's.
            Status::Malformed
        },
    );
    let mut frame = requests_frame(&[ping], None);
    frame.extend_from_slice(&[0; 8]);
    (frame[6], frame[32 + 4]) = (7, 1);
    let body = body(&frame);
    let (id, status) = (ping.id, Status::Malformed);
    assert_eq!(Requests::new(body).next(), Some(Err(RequestError::Refused { id, status })));
}

#[test]
fn a_part_needs_a_sequence_number() {
    let mut request = set(1, b"key", &[0; 64]);
    let Op::Set(set) = &mut request.op else { unreachable!() };
    set.part = Some(Part { offset: 0, total: 128 });
    request.id = RequestId::Free(1);
    let frame = requests_frame(&[request], None);
    let body = body(&frame);
    let (id, status) = (request.id, Status::Malformed);
    assert_eq!(Requests::new(body).next(), Some(Err(RequestError::Refused { id, status })));
}

#[track_caller]
fn check_overrun(change: impl Fn(&mut [u8])) {
    let mut frame = requests_frame(&[get(1, b"first"), get(2, b"second"), get(3, b"third")], None);
    change(&mut frame[32 + 24..]);
    let body = body(&frame);
    let found: Vec<_> = Requests::new(body).collect();
    assert_eq!(found, [Ok(get(1, b"first")), Err(RequestError::Overrun)], "the first one stands");
}

#[test]
fn a_message_that_overruns_its_frame_ends_it() {
    check_overrun(|message| message[4..6].fill(0xff));
    check_overrun(|message| message[12..16].fill(0xff));
    check_overrun(|message| message[2..4].fill(0xff));
    check_overrun(|message| message[..16].fill(0xff));
    check_overrun(|message| message[12] = 27);
}

#[test]
fn a_message_fits_whole_or_not_at_all() {
    let mut buffer = [0; 32 + 24 + 23];
    let mut writer = FrameWriter::new(&mut buffer, header(Kind::Requests)).unwrap();
    assert!(writer.is_empty());
    assert_eq!(writer.value_room_bytes(0, 3), 24 + 16 - 16 - 3);
    writer.push_request(&get(1, b"key")).unwrap();
    assert_eq!(writer.room_bytes(), 16);
    let refused = writer.push_request(&get(2, b"key"));
    assert_eq!(refused, Err(NoRoom { want_bytes: 24, left_bytes: 16 }));
    let ping = Request { op: Op::Ping, ..get(3, b"") };
    writer.push_request(&ping).unwrap();
    let len_bytes = writer.finish(None);
    let body = Frame::parse(&buffer[..len_bytes], None).unwrap().body;
    let found: Vec<_> = Requests::new(body).collect();
    assert_eq!(found, [Ok(get(1, b"key")), Ok(ping)]);
    assert!(FrameWriter::new(&mut [0; 31], header(Kind::Requests)).is_err());
}

#[test]
fn a_key_that_its_length_field_cannot_name_is_not_written() {
    let key = vec![0; 65_536];
    let mut buffer = vec![0; 200_000];
    let mut writer = FrameWriter::new(&mut buffer, header(Kind::Requests)).unwrap();
    assert!(writer.push_request(&get(1, &key)).is_err());
    writer.push_request(&get(1, &key[1..])).unwrap();
}

#[test]
fn hello_and_its_answers_come_out_as_they_went_in() {
    let (mut out, key) = ([0; 256], key());
    let hello = Hello {
        versions: Versions::OURS,
        frame_max_bytes: 1400,
        cookie: Some(5),
        nonce: 6,
        replaces: Some(SessionId(7)),
    };
    let len_bytes = hello.encode(1, Some(&key), &mut out).unwrap();
    assert_eq!(len_bytes, HELLO_LEN_BYTES);
    let frame = Frame::parse(&out[..len_bytes], Some(&key)).unwrap();
    assert_eq!((frame.header.kind, frame.header.session), (Kind::Hello, SessionId(0)));
    assert_eq!(Hello::parse(&frame), Ok(hello));
    let asked = frame.header;

    let challenge = Challenge { cookie: 5, nonce: 6, versions: Versions { least: 1, most: 3 } };
    let len_bytes = challenge.encode(&asked, Some(&key), &mut out).unwrap();
    assert!(len_bytes <= HELLO_LEN_BYTES);
    let frame = Frame::parse(&out[..len_bytes], Some(&key)).unwrap();
    assert_eq!((frame.header.kind, frame.header.answered), (Kind::Challenge, 1));
    assert_eq!(Challenge::parse(&frame), Ok(challenge));

    let welcome = Welcome {
        version: 1,
        steering: Steering::new(6, 2),
        frame_max_bytes: 1472,
        nonce: 6,
        steering_seed: 0x0102_0304_0506_0708,
        once_window: 1024,
        idle_ms: 60_000,
        part_window_bytes: 1 << 18,
        value_max_bytes: 1 << 20,
        features: Welcome::RANGES,
    };
    let len_bytes = welcome.encode(&asked, SessionId(77), Some(&key), &mut out).unwrap();
    assert!(len_bytes <= HELLO_LEN_BYTES);
    let frame = Frame::parse(&out[..len_bytes], Some(&key)).unwrap();
    assert_eq!((frame.header.kind, frame.header.session), (Kind::Welcome, SessionId(77)));
    assert_eq!(Welcome::parse(&frame), Ok(welcome));
}

#[test]
fn a_refusal_is_shorter_than_any_requests() {
    let asked = header(Kind::Requests);
    let mut out = [0; 256];
    let refusal = Refusal { reason: Reason::Busy, versions: Versions::OURS, retry_after_us: 1500 };
    let len_bytes = refusal.encode(&asked, None, &mut out).unwrap();
    assert!(len_bytes < requests_frame(&[get(1, b"")], None).len());
    let frame = Frame::parse(&out[..len_bytes], None).unwrap();
    assert_eq!((frame.header.session, frame.header.answered), (asked.session, asked.number));
    assert_eq!(Refusal::parse(&frame), Ok(refusal));
    let len_bytes = encode_bye(asked.session, 10, None, &mut out).unwrap();
    assert_eq!(Frame::parse(&out[..len_bytes], None).unwrap().header.kind, Kind::Bye);
}

#[test]
fn a_hello_shorter_than_its_answer_is_not_answered() {
    let mut buffer = [0; 256];
    let writer = FrameWriter::new(&mut buffer, header(Kind::Hello)).unwrap();
    let len_bytes = writer.finish(None);
    let frame = Frame::parse(&buffer[..len_bytes], None).unwrap();
    assert_eq!(Hello::parse(&frame), Err(FrameError::BadBody));
    assert_eq!(Challenge::parse(&frame), Err(FrameError::BadBody));
    assert_eq!(Welcome::parse(&frame), Err(FrameError::BadBody));
    assert_eq!(Refusal::parse(&frame), Err(FrameError::BadBody));
}

#[test]
fn a_common_version_is_the_highest_of_both() {
    let versions = |least, most| Versions { least, most };
    assert_eq!(versions(1, 3).common(versions(2, 5)), Some(3));
    assert_eq!(versions(1, 1).common(versions(1, 9)), Some(1));
    assert_eq!(versions(1, 1).common(versions(2, 9)), None);
}

fn bytes(len_bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..len_bytes_max)
}

fn expiries() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Never),
        Just(Expiry::Keep),
        any::<u64>().prop_map(|at| Expiry::At(UnixMillis(at))),
        any::<u64>().prop_map(Expiry::AfterMs),
    ]
}

fn conditions() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent),
        any::<u64>().prop_map(Condition::IfVersion),
    ]
}

/// The owned fields of a request; [`Plan::request`] borrows them.
#[derive(Clone, Debug)]
struct Plan {
    which: u8,
    number: u32,
    is_once: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    expiry: Expiry,
    condition: Condition,
    word: u64,
    bits: u8,
}

fn plans() -> impl Strategy<Value = Plan> {
    let first = (0_u8..11, any::<u32>(), any::<bool>(), bytes(40), bytes(300));
    let second = (expiries(), conditions(), any::<u64>(), any::<u8>());
    (first, second).prop_map(|(first, second)| {
        let (which, number, is_once, key, value) = first;
        let (expiry, condition, word, bits) = second;
        Plan { which, number, is_once, key, value, expiry, condition, word, bits }
    })
}

impl Plan {
    fn request(&self) -> Request<'_> {
        let (key, value) = (&self.key[..], &self.value[..]);
        let op = self.op(key, value);
        let is_once = op.changes_data() && (self.is_once || self.which == 10);
        let id = match is_once {
            true => RequestId::Once(self.number),
            false => RequestId::Free(self.number),
        };
        let has = |bit: u8| self.bits & (1 << bit) != 0;
        let mut want = Want::PLAIN;
        if has(0) && !matches!(op, Op::Ping | Op::Delete { .. } | Op::Range(_)) {
            want = want | Want::VERSION;
        }
        if has(1) && matches!(op, Op::Get { .. } | Op::Pull { .. }) {
            want = want | Want::CLIENT_FLAGS | Want::EXPIRY;
        }
        if has(2) && matches!(op, Op::Get { .. }) {
            want = want | Want::NO_VALUE;
        }
        Request { id, want, op }
    }

    fn op<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        let (offset, len_bytes) = (self.word as u32, (self.word >> 32) as u32);
        let part = Part { offset: offset / 2, total: offset / 2 + value.len() as u32 };
        let whole = Set {
            key,
            value,
            client_flags: self.word as u32,
            expiry: self.expiry,
            condition: self.condition,
            part: None,
        };
        match self.which {
            0 => Op::Ping,
            1 => Op::Get { key, touch: (self.bits >= 128).then_some(self.expiry) },
            2 => Op::Pull { key, version: self.word, span: Span { offset, len_bytes } },
            3 => Op::Set(whole),
            4 => Op::Delete { key, version: (self.bits >= 128).then_some(self.word) },
            5 => Op::Incr { key, delta: self.word as i64 },
            6 => Op::Append { key, value },
            7 => Op::Prepend { key, value },
            8 => Op::Touch { key, expiry: self.expiry },
            9 => Op::Range(self.range(key, value)),
            _ => Op::Set(Set { part: Some(part), ..whole }),
        }
    }

    fn range<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Range<'a> {
        let has = |bit: u8| self.bits & (1 << bit) != 0;
        Range {
            start: if has(3) { Bound::Excluded(key) } else { Bound::Included(key) },
            end: match (has(4), has(5)) {
                (true, _) => Bound::Unbounded,
                (false, true) => Bound::Excluded(value),
                (false, false) => Bound::Included(value),
            },
            direction: if has(6) { Direction::Reverse } else { Direction::Forward },
            items: if has(7) { RangeItems::KeysOnly } else { RangeItems::Whole },
            item_limit: self.word as u32,
        }
    }
}

#[derive(Clone, Debug)]
struct ReplyPlan {
    number: u32,
    is_once: bool,
    status: u8,
    words: (Option<u64>, u32, Option<u64>, Option<i64>, Option<u32>),
    resume_key: Option<Vec<u8>>,
    value: Vec<u8>,
}

fn reply_plans() -> impl Strategy<Value = ReplyPlan> {
    let option = proptest::option::of::<proptest::arbitrary::StrategyFor<u64>>;
    let words = (
        option(any::<u64>()),
        any::<u32>(),
        option(any::<u64>()),
        proptest::option::of(any::<i64>()),
        proptest::option::of(0_u32..1 << 31),
    );
    let rest = (proptest::option::of(bytes(30)), bytes(300));
    (any::<u32>(), any::<bool>(), 0_u8..15, words, rest).prop_map(
        |(number, is_once, status, words, (resume_key, value))| ReplyPlan {
            number,
            is_once,
            status,
            words,
            resume_key,
            value,
        },
    )
}

impl ReplyPlan {
    fn reply(&self) -> Reply<'_> {
        let (version, client_flags, expires_at, number, offset) = self.words;
        let total = |offset| offset + self.value.len() as u32;
        Reply {
            id: match self.is_once {
                true => RequestId::Once(self.number),
                false => RequestId::Free(self.number),
            },
            status: Status::from_byte(self.status).expect("a status"),
            version,
            client_flags,
            expires_at: expires_at.map(UnixMillis),
            number,
            part: offset.map(|offset| Part { offset, total: total(offset) }),
            resume_key: self.resume_key.as_deref(),
            value: &self.value,
        }
    }
}

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in(plans in vec(plans(), 0..20)) {
        let requests: Vec<_> = plans.iter().map(Plan::request).collect();
        let datagram = requests_frame(&requests, Some(&key()));
        let frame = Frame::parse(&datagram, Some(&key())).unwrap();
        prop_assert_eq!(frame.header, header(Kind::Requests));
        let found: Result<Vec<_>, _> = Requests::new(frame.body).collect();
        prop_assert_eq!(found, Ok(requests.clone()));
        let len_bytes: usize = requests.iter().map(Request::len_bytes).sum();
        prop_assert_eq!(frame.body.len(), len_bytes);
    }

    #[test]
    fn replies_come_out_as_they_went_in(plans in vec(reply_plans(), 0..20)) {
        let replies: Vec<_> = plans.iter().map(ReplyPlan::reply).collect();
        let datagram = replies_frame(&replies);
        let frame = Frame::parse(&datagram, None).unwrap();
        let found: Result<Vec<_>, _> = Replies::new(frame.body).collect();
        prop_assert_eq!(found, Ok(replies));
    }

    #[test]
    fn no_body_makes_a_parser_panic_or_loop(body in vec(any::<u8>(), 0..200)) {
        // Each step consumes at least a head, or ends the walk.
        prop_assert!(Requests::new(&body).count() <= body.len() / 16 + 1);
        prop_assert!(Replies::new(&body).count() <= body.len() / 16 + 1);
    }
}
