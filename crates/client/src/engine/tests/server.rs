//! A model of a server: one map, requests executed in order of arrival, over the real codec.

use std::collections::{BTreeMap, HashMap, VecDeque};

use base::Instant;
use wire::native::{
    Admission, Challenge, Condition, Frame, FrameWriter, Header, Hello, Item, ItemValue,
    ItemWriter, Kind, Once, Op, Part, PartLimits, PartOutcome, PartsIn, Reason, Refusal,
    Remembered, Replies, Reply, Request, RequestError, RequestId, Requests, SessionId, Set, Status,
    Steering, TagKey, Versions, Welcome, part_room_bytes,
};

#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub value: Vec<u8>,
    pub version: u64,
}

/// What the server does beside serving.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moods {
    /// Answers this many requests `Busy` first.
    pub busy_requests: u32,
    /// Refuses this many frames as busy first.
    pub busy_frames: u32,
    /// Changes the item of a pull this often first.
    pub changes: u32,
}

pub(crate) struct Server {
    pub items: BTreeMap<Vec<u8>, Stored>,
    pub moods: Moods,
    pub executed_writes: u64,
    pub hellos: u32,
    pub steerings: Vec<u16>,
    /// How many requests each frame had.
    pub frame_sizes: Vec<usize>,
    pub worker_count: u16,
    pub frame_max_bytes: usize,
    pub once_window: u32,
    pub key: Option<TagKey>,
    /// Frames come once, in order.
    pub is_reliable: bool,
    sessions: HashMap<SessionId, Once>,
    parts: PartsIn,
    next_session: u64,
    next_version: u64,
    next_number: u32,
    pub out: VecDeque<Vec<u8>>,
}

const COOKIE: u64 = 0x1234_5678;

impl Server {
    pub fn new() -> Server {
        let limits = PartLimits {
            budget_bytes: 8 << 20,
            session_max_bytes: 4 << 20,
            value_max_bytes: 2 << 20,
            transfer_count_max: 8,
            idle_ns: 1_000_000_000,
        };
        Server {
            items: BTreeMap::new(),
            moods: Moods::default(),
            executed_writes: 0,
            hellos: 0,
            steerings: Vec::new(),
            frame_sizes: Vec::new(),
            worker_count: 2,
            frame_max_bytes: 1448,
            once_window: 64,
            key: None,
            is_reliable: false,
            sessions: HashMap::new(),
            parts: PartsIn::new(limits),
            next_session: 1,
            next_version: 1,
            next_number: 0,
            out: VecDeque::new(),
        }
    }

    /// Forgets all sessions, as a restart does; items stay.
    pub fn forget_sessions(&mut self) {
        self.sessions.clear();
        self.next_session += 1000;
    }

    pub fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.items.get(key).map(|stored| &stored.value[..])
    }

    pub fn input(&mut self, datagram: &[u8], now: Instant) {
        let key = self.key;
        let Ok(frame) = Frame::parse(datagram, key.as_ref()) else { return };
        match frame.header.kind {
            Kind::Hello => self.greet(&frame),
            Kind::Requests => self.serve(&frame, now),
            _ => {}
        }
    }

    fn send(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        let mut buffer = vec![0; self.frame_max_bytes.max(128)];
        let len_bytes = write(&mut buffer);
        buffer.truncate(len_bytes);
        self.out.push_back(buffer);
    }

    fn greet(&mut self, frame: &Frame<'_>) {
        let hello = Hello::parse(frame).unwrap();
        self.hellos += 1;
        let (key, header, nonce) = (self.key, frame.header, hello.nonce);
        if hello.cookie != Some(COOKIE) {
            let challenge = Challenge { cookie: COOKIE, nonce, versions: Versions::OURS };
            return self.send(|out| challenge.encode(&header, key.as_ref(), out).unwrap());
        }
        if let Some(replaced) = hello.replaces {
            self.sessions.remove(&replaced);
        }
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Once::new(self.once_window));
        let welcome = Welcome {
            version: 1,
            steering: Steering::new(6, self.worker_count),
            frame_max_bytes: self.frame_max_bytes as u32,
            nonce,
            steering_seed: 99,
            once_window: self.once_window,
            idle_ms: 60_000,
            part_window_bytes: 16 << 10,
            value_max_bytes: 2 << 20,
            features: Welcome::RANGES,
        };
        self.send(|out| welcome.encode(&header, id, key.as_ref(), out).unwrap());
    }

    fn refuse(&mut self, header: &Header, reason: Reason) {
        let (key, versions) = (self.key, Versions::OURS);
        let refusal = Refusal { reason, versions, retry_after_us: 0 };
        self.send(|out| refusal.encode(header, key.as_ref(), out).unwrap());
    }

    fn serve(&mut self, frame: &Frame<'_>, now: Instant) {
        let header = frame.header;
        if !self.sessions.contains_key(&header.session) {
            return self.refuse(&header, Reason::UnknownSession);
        }
        if self.moods.busy_frames > 0 {
            self.moods.busy_frames -= 1;
            return self.refuse(&header, Reason::Busy);
        }
        if let Some(once) = self.sessions.get_mut(&header.session) {
            once.raise_low_water(header.answered);
        }
        self.steerings.push(header.steering.0);
        let mut replies = Vec::new();
        let mut count = 0;
        for request in Requests::new(frame.body) {
            count += 1;
            match request {
                Ok(request) => replies.extend(self.answer(&header, &request, now)),
                Err(RequestError::Refused { id, status }) => {
                    replies.push(Owned::of(&Reply::new(id, status)));
                }
                Err(RequestError::Overrun) => panic!("the client cut a message"),
            }
        }
        self.frame_sizes.push(count);
        self.send_replies(&header, &replies);
    }

    fn send_replies(&mut self, header: &Header, replies: &[Owned]) {
        let mut left = replies;
        while !left.is_empty() {
            let mut buffer = vec![0; self.frame_max_bytes];
            let number = self.next_number;
            self.next_number += 1;
            let answer = Header { kind: Kind::Replies, number, answered: header.number, ..*header };
            let mut writer = FrameWriter::new(&mut buffer, answer).unwrap();
            let mut written = 0;
            while let Some(reply) = left.get(written)
                && writer.push_reply(&reply.borrow()).is_ok()
            {
                written += 1;
            }
            assert!(written > 0, "a reply fits an empty frame");
            left = &left[written..];
            let len_bytes = writer.finish(self.key.as_ref());
            buffer.truncate(len_bytes);
            self.out.push_back(buffer);
        }
    }

    fn answer(&mut self, header: &Header, request: &Request<'_>, now: Instant) -> Option<Owned> {
        if self.moods.busy_requests > 0 {
            self.moods.busy_requests -= 1;
            return Some(Owned::of(&Reply::new(request.id, Status::Busy)));
        }
        let RequestId::Once(sequence) = request.id else {
            let is_safe = self.is_reliable || !request.op.changes_data();
            assert!(is_safe, "a write without a number on a lossy way");
            return Some(self.execute(request));
        };
        let once = self.sessions.get_mut(&header.session).unwrap();
        let whole = match request.op {
            Op::Set(Set { part: Some(part), value, .. }) => {
                if once.look(sequence) == Admission::Execute {
                    match self.parts.accept(now, (header.session, sequence), part, value) {
                        PartOutcome::Taken { missing_bytes } => {
                            let number = Some(missing_bytes as i64);
                            let reply = Reply::new(request.id, Status::PartTaken);
                            return Some(Owned::of(&Reply { number, part: Some(part), ..reply }));
                        }
                        PartOutcome::Refused(status) => {
                            return Some(Owned::of(&Reply::new(request.id, status)));
                        }
                        PartOutcome::Complete(bytes) => Some(bytes),
                    }
                } else {
                    None
                }
            }
            _ => None,
        };
        let once = self.sessions.get_mut(&header.session).unwrap();
        match once.admit(sequence) {
            Admission::Execute => {}
            Admission::Again(remembered) => return Some(Owned::of(&remembered.reply(sequence))),
            Admission::UnderWay | Admission::BelowLowWater => return None,
            Admission::OutsideWindow => {
                return Some(Owned::of(&Reply::new(request.id, Status::OutsideWindow)));
            }
        }
        let mut request = *request;
        if let (Some(bytes), Op::Set(set)) = (&whole, &mut request.op) {
            (set.value, set.part) = (bytes, None);
        }
        self.executed_writes += 1;
        let answer = self.execute(&request);
        let outcome = Remembered::of(&answer.borrow());
        self.sessions.get_mut(&header.session).unwrap().record(sequence, outcome);
        Some(answer)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) -> u64 {
        let version = self.next_version;
        self.next_version += 1;
        self.items.insert(key.to_vec(), Stored { value, version });
        version
    }

    fn execute(&mut self, request: &Request<'_>) -> Owned {
        let id = request.id;
        let plain = |status| Owned::of(&Reply::new(id, status));
        match request.op {
            Op::Ping => plain(Status::Ok),
            Op::Get { key, .. } => self.get(id, key),
            Op::Pull { key, version, span } => {
                if self.moods.changes > 0 {
                    self.moods.changes -= 1;
                    let value = self.items[key].value.iter().map(|byte| byte ^ 1).collect();
                    self.put(key, value);
                }
                let Some(stored) = self.items.get(key) else { return plain(Status::Miss) };
                if stored.version != version {
                    return plain(Status::Changed);
                }
                let total = stored.value.len() as u32;
                // Now and then a server has less room than was asked for.
                let is_short = span.offset.is_multiple_of(5);
                let room_bytes =
                    if is_short { 64 } else { part_room_bytes(self.frame_max_bytes, 0) };
                let Some(range) = span.within(total, room_bytes) else {
                    return plain(Status::Malformed);
                };
                let part = Some(Part { offset: span.offset, total });
                Owned::of(&Reply {
                    part,
                    value: &stored.value[range],
                    ..Reply::new(id, Status::Ok)
                })
            }
            Op::Set(set) => self.set(id, &set),
            Op::Delete { key, .. } => match self.items.remove(key) {
                Some(_) => plain(Status::Ok),
                None => plain(Status::Miss),
            },
            Op::Incr { key, delta } => {
                let old = self.value(key).map_or("0", |value| str::from_utf8(value).unwrap());
                let sum = old.parse::<i64>().unwrap() + delta;
                self.put(key, sum.to_string().into_bytes());
                Owned::of(&Reply { number: Some(sum), ..Reply::new(id, Status::Ok) })
            }
            Op::Append { key, value } => {
                let mut whole = self.value(key).unwrap_or_default().to_vec();
                whole.extend_from_slice(value);
                let number = Some(whole.len() as i64);
                self.put(key, whole);
                Owned::of(&Reply { number, ..Reply::new(id, Status::Ok) })
            }
            Op::Range(range) => {
                let mut bytes = vec![0; 256];
                let mut writer = ItemWriter::new(&mut bytes);
                let bounds = (range.start.map(<[u8]>::to_vec), range.end.map(<[u8]>::to_vec));
                for (key, stored) in self.items.range(bounds).take(range.item_limit as usize) {
                    let value = ItemValue::Here(&stored.value);
                    assert!(writer.push(&Item { key, value }), "tests have short ranges");
                }
                Owned::of(&Reply { value: writer.finish(), ..Reply::new(id, Status::Ok) })
            }
            _ => plain(Status::Unsupported),
        }
    }

    fn get(&self, id: RequestId, key: &[u8]) -> Owned {
        let Some(stored) = self.items.get(key) else {
            return Owned::of(&Reply::new(id, Status::Miss));
        };
        let room_bytes = part_room_bytes(self.frame_max_bytes, 0);
        let reply = Reply { version: Some(stored.version), ..Reply::new(id, Status::Ok) };
        if stored.value.len() <= room_bytes {
            return Owned::of(&Reply { value: &stored.value, ..reply });
        }
        let part = Some(Part { offset: 0, total: stored.value.len() as u32 });
        Owned::of(&Reply { part, value: &stored.value[..room_bytes], ..reply })
    }

    fn set(&mut self, id: RequestId, set: &Set<'_>) -> Owned {
        let old = self.items.get(set.key);
        let status = match set.condition {
            Condition::IfAbsent if old.is_some() => Status::NotStored,
            Condition::IfPresent if old.is_none() => Status::NotStored,
            Condition::IfVersion(version) => match old {
                None => Status::Miss,
                Some(stored) if stored.version != version => Status::VersionMismatch,
                Some(_) => Status::Ok,
            },
            _ => Status::Ok,
        };
        let mut reply = Reply::new(id, status);
        if status == Status::Ok {
            reply.version = Some(self.put(set.key, set.value.to_vec()));
        }
        Owned::of(&reply)
    }
}

/// A reply whose value is its own.
struct Owned {
    frame: Vec<u8>,
}

impl Owned {
    fn of(reply: &Reply<'_>) -> Owned {
        let mut frame = vec![0; 32 + reply.len_bytes()];
        let header = Header {
            kind: Kind::Replies,
            steering: wire::native::SteeringId::ANY,
            session: SessionId(1),
            number: 0,
            answered: 0,
        };
        let mut writer = FrameWriter::new(&mut frame, header).unwrap();
        writer.push_reply(reply).unwrap();
        writer.finish(None);
        Owned { frame }
    }

    fn borrow(&self) -> Reply<'_> {
        Replies::new(&self.frame[32..]).next().unwrap().unwrap()
    }
}
