//! A native client as simple as can be: one socket, one frame at a time, no retries of its own.

use std::net::UdpSocket;

use server::Config;
use wire::native::{
    Challenge, Condition, Expiry, Frame, FrameWriter, Header, Hello, Kind, Op, Part, Pull,
    PullStep, Refusal, Replies, Reply, Request, RequestId, SessionId, Set, Status, SteeringId,
    TagKey, Versions, Want, Welcome, encode_bye,
};

use super::{PATIENCE, TestServer};

/// As the other tests' configuration, with a native port.
pub fn config() -> Config {
    Config { native: Some(([127, 0, 0, 1], 0).into()), ..super::config() }
}

/// When a frame that was not answered is sent again.
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// One client.
pub struct Peer {
    pub socket: UdpSocket,
    pub session: SessionId,
    pub welcome: Welcome,
    pub steering: SteeringId,
    pub floor: u32,
    key: Option<TagKey>,
    number: u32,
    nonce: u64,
}

/// A reply that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub id: RequestId,
    pub status: Status,
    pub version: Option<u64>,
    pub client_flags: u32,
    pub expires_at: Option<base::UnixMillis>,
    pub number: Option<i64>,
    pub part: Option<Part>,
    pub resume_key: Option<Vec<u8>>,
    pub value: Vec<u8>,
}

impl Answer {
    fn of(reply: &Reply<'_>) -> Answer {
        Answer {
            id: reply.id,
            status: reply.status,
            version: reply.version,
            client_flags: reply.client_flags,
            expires_at: reply.expires_at,
            number: reply.number,
            part: reply.part,
            resume_key: reply.resume_key.map(<[u8]>::to_vec),
            value: reply.value.to_vec(),
        }
    }

    /// As it came.
    pub fn reply(&self) -> Reply<'_> {
        Reply {
            version: self.version,
            client_flags: self.client_flags,
            expires_at: self.expires_at,
            number: self.number,
            part: self.part,
            resume_key: self.resume_key.as_deref(),
            value: &self.value,
            ..Reply::new(self.id, self.status)
        }
    }
}

/// A get of everything but extras.
pub fn get(key: &[u8]) -> Request<'_> {
    Request { id: RequestId::Free(0), want: Want::PLAIN, op: Op::Get { key, touch: None } }
}

/// A plain set.
pub fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    let set = Set {
        key,
        value,
        client_flags: 0,
        expiry: Expiry::Never,
        condition: Condition::Always,
        part: None,
    };
    Request { id: RequestId::Free(0), want: Want::PLAIN, op: Op::Set(set) }
}

/// The same requests; those that may be executed again are numbered by their places.
pub fn numbered<'r>(requests: &[Request<'r>]) -> Vec<Request<'r>> {
    let number = |(place, request): (usize, &Request<'r>)| match request.id {
        RequestId::Free(_) => Request { id: RequestId::Free(place as u32), ..*request },
        RequestId::Once(_) => *request,
    };
    requests.iter().enumerate().map(number).collect()
}

/// The answers in the order of their requests: replies come in any order.
pub fn in_order(requests: &[Request<'_>], mut answers: Vec<Answer>) -> Vec<Answer> {
    let mut take = |request: &Request<'_>| {
        let place = answers.iter().position(|answer| answer.id == request.id);
        answers.remove(place.expect("each request has an answer"))
    };
    requests.iter().map(&mut take).collect()
}

/// Writes requests into one frame.
pub fn requests_frame(header: Header, key: Option<&TagKey>, requests: &[Request<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; 16 << 10];
    let mut writer = FrameWriter::new(&mut bytes, header).unwrap();
    for request in requests {
        writer.push_request(request).unwrap();
    }
    let len_bytes = writer.finish(key);
    bytes.truncate(len_bytes);
    bytes
}

/// The replies of a frame, owned.
pub fn answers_of(bytes: &[u8], key: Option<&TagKey>) -> (Header, Vec<Answer>) {
    let frame = Frame::parse(bytes, key).unwrap();
    assert_eq!(frame.header.kind, Kind::Replies, "{:?}", frame.header);
    let replies = Replies::new(frame.body).map(|reply| Answer::of(&reply.unwrap()));
    (frame.header, replies.collect())
}

impl Peer {
    /// A socket that has not said hello.
    pub fn bind(server: &TestServer, key: Option<TagKey>) -> Peer {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.server().native_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let welcome = Welcome {
            version: 0,
            steering: wire::native::Steering::new(0, 1),
            frame_max_bytes: 0,
            nonce: 0,
            steering_seed: 0,
            once_window: 0,
            idle_ms: 0,
            part_window_bytes: 0,
            value_max_bytes: 0,
            features: 0,
        };
        let nonce = u64::from(socket.local_addr().unwrap().port());
        let (session, steering) = (SessionId(0), SteeringId::ANY);
        Peer { socket, session, welcome, steering, floor: 0, key, number: 0, nonce }
    }

    /// A client with a session.
    pub fn connect(server: &TestServer) -> Peer {
        Peer::connect_with(server, None)
    }

    /// The same with a key.
    pub fn connect_with(server: &TestServer, key: Option<TagKey>) -> Peer {
        let mut peer = Peer::bind(server, key);
        let cookie = peer.cookie_in(&peer.hello(None));
        assert!(cookie.is_some(), "the first answer is a challenge");
        let bytes = peer.hello(cookie);
        let frame = Frame::parse(&bytes, peer.key.as_ref()).unwrap();
        peer.welcome = Welcome::parse(&frame).unwrap();
        peer.session = frame.header.session;
        assert_eq!(peer.welcome.nonce, peer.nonce);
        peer
    }

    /// A hello as it is sent.
    pub fn hello_bytes(&self, cookie: Option<u64>) -> Vec<u8> {
        let hello = Hello {
            versions: Versions::OURS,
            frame_max_bytes: 1400,
            cookie,
            nonce: self.nonce,
            replaces: None,
        };
        let mut bytes = vec![0; 128];
        let len_bytes = hello.encode(1, self.key.as_ref(), &mut bytes).unwrap();
        bytes.truncate(len_bytes);
        bytes
    }

    pub fn send_hello(&self, cookie: Option<u64>) {
        self.socket.send(&self.hello_bytes(cookie)).unwrap();
    }

    /// Says hello; the bytes of the answer.
    pub fn hello(&self, cookie: Option<u64>) -> Vec<u8> {
        self.send_hello(cookie);
        self.receive_bytes()
    }

    fn cookie_in(&self, bytes: &[u8]) -> Option<u64> {
        let frame = Frame::parse(bytes, self.key.as_ref()).unwrap();
        let is_challenge = frame.header.kind == Kind::Challenge;
        is_challenge.then(|| Challenge::parse(&frame).unwrap().cookie)
    }

    /// The cookie of an untagged answer, if it is a challenge.
    pub fn cookie_of(bytes: &[u8]) -> Option<u64> {
        let frame = Frame::parse(bytes, None).unwrap();
        let is_challenge = frame.header.kind == Kind::Challenge;
        is_challenge.then(|| Challenge::parse(&frame).unwrap().cookie)
    }

    pub fn bye(&self) {
        let mut bytes = [0; 64];
        let len_bytes = encode_bye(self.session, 9, self.key.as_ref(), &mut bytes).unwrap();
        self.socket.send(&bytes[..len_bytes]).unwrap();
    }

    /// The next frame with these requests.
    pub fn frame(&mut self, requests: &[Request<'_>]) -> Vec<u8> {
        self.number += 1;
        let header = Header {
            kind: Kind::Requests,
            steering: self.steering,
            session: self.session,
            number: self.number,
            answered: self.floor,
        };
        requests_frame(header, self.key.as_ref(), requests)
    }

    pub fn send(&mut self, requests: &[Request<'_>]) {
        let bytes = self.frame(requests);
        self.socket.send(&bytes).unwrap();
    }

    pub fn receive_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let len_bytes = loop {
            // A socket with a time-out is not asked again by itself.
            match self.socket.recv(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        bytes.truncate(len_bytes);
        bytes
    }

    /// The replies of the next frame.
    pub fn receive(&mut self) -> Vec<Answer> {
        let bytes = self.receive_bytes();
        assert!(bytes.len() <= 1400, "what the hello said");
        let (header, answers) = answers_of(&bytes, self.key.as_ref());
        assert_eq!((header.session, header.answered), (self.session, self.number));
        answers
    }

    pub fn receive_refusal(&self) -> Refusal {
        let bytes = self.receive_bytes();
        let frame = Frame::parse(&bytes, self.key.as_ref()).unwrap();
        assert_eq!(frame.header.kind, Kind::Refusal);
        Refusal::parse(&frame).unwrap()
    }

    /// Sends one frame and gets an answer to each of its requests, in their order.
    pub fn ask(&mut self, requests: &[Request<'_>]) -> Vec<Answer> {
        let requests = numbered(requests);
        self.send(&requests);
        let mut answers = Vec::new();
        while answers.len() < requests.len() {
            answers.extend(self.receive());
        }
        in_order(&requests, answers)
    }

    /// The same where frames may be lost: asks again until there is an answer.
    pub fn ask_patiently(&mut self, requests: &[Request<'_>]) -> Vec<Answer> {
        for _ in 0..20 {
            self.send(requests);
            self.socket.set_read_timeout(Some(AGAIN_AFTER)).unwrap();
            let mut bytes = vec![0; 64 << 10];
            while let Ok(len_bytes) = self.socket.recv(&mut bytes) {
                let (header, answers) = answers_of(&bytes[..len_bytes], self.key.as_ref());
                if header.answered == self.number {
                    self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
                    return answers;
                }
            }
        }
        panic!("no answer, however often it is asked");
    }

    /// Gets a value of any length.
    pub fn pull(&mut self, key: &[u8]) -> Vec<u8> {
        let first = self.ask(&[get(key)]).remove(0);
        if first.part.is_none() {
            return first.value;
        }
        let mut pull = Pull::begin(&first.reply(), 1280, 1 << 30).unwrap();
        let mut spans = Vec::new();
        while let Some(span) = spans.pop().or_else(|| pull.next_span()) {
            let op = Op::Pull { key, version: pull.version(), span };
            let asked = Request { id: RequestId::Free(0), want: Want::PLAIN, op };
            let reply = self.ask(&[asked]).remove(0);
            match pull.accept(span, &reply.reply()).unwrap() {
                PullStep::More | PullStep::Done => {}
                PullStep::Short(rest) => spans.push(rest),
                PullStep::Changed => panic!("it does not change"),
            }
        }
        pull.into_bytes()
    }

    /// Throws away what comes until the answer to a new frame does.
    pub fn drain_until_answered(&mut self) {
        self.send(&[get(b"last")]);
        loop {
            let bytes = self.receive_bytes();
            let Ok(frame) = Frame::parse(&bytes, None) else { continue };
            if frame.header.kind == Kind::Replies && frame.header.answered == self.number {
                return;
            }
        }
    }

    /// Waits until something that was sent has been seen.
    pub fn wait_for(&mut self, is_there: impl Fn() -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !is_there() {
            assert!(std::time::Instant::now() < deadline, "it does not come");
            std::thread::yield_now();
        }
    }
}
