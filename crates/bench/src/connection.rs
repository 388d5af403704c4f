//! One connection of the load generator: its outstanding requests, and its bytes in both
//! directions.
//!
//! ```text
//!  Lane ─▶ push ─▶ out ─▶ socket ─▶ input ─▶ Codec::parse ─▶ settle ─▶ Tally
//!            └──▶ pending (in order) ──────────────────────────▲
//! ```
//!
//! # Invariants
//! C1: `pending` holds the requests that are written and not yet answered, in order.
//! C2: `ids` holds the key ids of all pending requests, `key_count` for each, in the same order.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use workload::{KeyFormat, ValueSizes, values};

use crate::codec::{Codec, Parsed, Reply, printable};
use crate::items::{is_large, is_right};
use crate::lane::{Lane, Step};
use crate::tally::Tally;

/// The state that all connections of a thread share.
pub(crate) struct Shape<'a, C> {
    pub(crate) codec: &'a C,
    pub(crate) key_format: KeyFormat,
    pub(crate) value_sizes: &'a ValueSizes,
    /// Keys per read.
    pub(crate) mget: usize,
}

impl<C> Shape<'_, C> {
    fn is_large(&self, id: u64) -> bool {
        is_large(self.value_sizes, id)
    }
}

/// The source of a connection's operations.
pub(crate) enum Source<'a> {
    /// Stores the ids `next, next + step, ...` below `end`.
    Populate {
        next: u64,
        step: u64,
        end: u64,
    },
    Load(Lane<'a>),
}

impl Source<'_> {
    pub(crate) fn advance(&mut self) -> Option<Step> {
        match self {
            Source::Load(lane) => Some(lane.advance()),
            Source::Populate { next, step, end } => {
                let id = *next;
                *next = id.saturating_add(*step);
                (id < *end).then_some(Step::Update(id))
            }
        }
    }
}

/// A request by what its answer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    /// The read of a read-modify-write: its write is sent when the reply has arrived.
    ReadToModify,
    Write,
    Insert,
    /// The write of a read-modify-write.
    WriteBack,
    /// A range: keys and values alternate, at most as many as requested.
    Scan,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    kind: Kind,
    key_count: u32,
    /// The number of keys of a multi-get that are settled already.
    settled_count: u32,
    /// The time when it was sent, or meant to be sent.
    start_ns: u64,
    /// Whether its value, or one of its values, counts as large.
    is_large: bool,
}

/// A write that follows a read.
pub(crate) struct WriteBack {
    pub(crate) id: u64,
    pub(crate) version: u32,
    pub(crate) start_ns: u64,
}

/// The reasons for which a connection fails.
#[derive(Debug)]
pub(crate) enum Broken {
    Lost(String),
    Protocol(String),
}

pub(crate) struct Connection<'a> {
    socket: TcpStream,
    source: Source<'a>,
    pending: VecDeque<Pending>,
    ids: VecDeque<u64>,
    write_backs: VecDeque<WriteBack>,
    out: Vec<u8>,
    out_sent_bytes: usize,
    input: Input,
    key: Vec<u8>,
    /// The key of the scan's next value.
    scanned_key: Option<Vec<u8>>,
    /// The version of the next write.
    version: u32,
}

/// Bytes that were read and not yet parsed.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

const INPUT_BYTES: usize = 64 << 10;

impl<'a> Connection<'a> {
    /// Takes over a connected, non-blocking socket.
    pub(crate) fn new(socket: TcpStream, source: Source<'a>, first_version: u32) -> Connection<'a> {
        Connection {
            socket,
            source,
            pending: VecDeque::new(),
            ids: VecDeque::new(),
            write_backs: VecDeque::new(),
            out: Vec::new(),
            out_sent_bytes: 0,
            input: Input { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 },
            key: Vec::new(),
            scanned_key: None,
            version: first_version,
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Switches from populating to load, with no request outstanding.
    pub(crate) fn set_source(&mut self, source: Source<'a>) {
        debug_assert!(self.is_idle());
        self.source = source;
        self.version = 1;
    }

    /// The number of requests without an answer, including read-modify-writes between their halves.
    pub(crate) fn outstanding_count(&self) -> usize {
        self.pending.len() + self.write_backs.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.write_backs.is_empty()
    }

    /// Whether the batch is over: write-backs may follow in the next one.
    pub(crate) fn has_answered_all(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn has_unsent_bytes(&self) -> bool {
        self.out_sent_bytes < self.out.len()
    }

    /// Start times of all outstanding requests.
    pub(crate) fn outstanding_start_ns(&self) -> impl Iterator<Item = u64> + '_ {
        let backs = self.write_backs.iter().map(|back| back.start_ns);
        self.pending.iter().map(|pending| pending.start_ns).chain(backs)
    }

    /// Appends requests until `depth` are outstanding or the source has no more.
    pub(crate) fn fill<C: Codec>(&mut self, shape: &Shape<'_, C>, depth: usize, now_ns: u64) {
        self.push_write_backs(shape);
        while self.pending.len() < depth && self.out.len() < OUT_MAX_BYTES {
            if !self.push(shape, now_ns) {
                return;
            }
        }
    }

    /// Appends the writes of read-modify-writes whose read is answered.
    pub(crate) fn push_write_backs<C: Codec>(&mut self, shape: &Shape<'_, C>) {
        while let Some(back) = self.write_backs.pop_front() {
            self.write_set(shape, back.id, back.version);
            self.expect(shape, Kind::WriteBack, back.id, back.start_ns);
        }
    }

    /// Appends the next request; false when the source has no more.
    pub(crate) fn push<C: Codec>(&mut self, shape: &Shape<'_, C>, start_ns: u64) -> bool {
        let Some(step) = self.source.advance() else { return false };
        match step {
            Step::Read(id) if shape.mget > 1 => self.push_many(shape, id, start_ns),
            Step::Read(id) => self.push_get(shape, Kind::Read, id, start_ns),
            Step::ReadModifyWrite(id) => self.push_get(shape, Kind::ReadToModify, id, start_ns),
            Step::Update(id) => self.push_set(shape, Kind::Write, id, start_ns),
            Step::Insert(id) => self.push_set(shape, Kind::Insert, id, start_ns),
            Step::Scan { id, keys } => self.push_scan(shape, id, keys, start_ns),
        }
        true
    }

    fn push_get<C: Codec>(&mut self, shape: &Shape<'_, C>, kind: Kind, id: u64, start_ns: u64) {
        self.form_key(shape, id);
        shape.codec.write_get(&self.key, &mut self.out);
        self.expect(shape, kind, id, start_ns);
    }

    fn push_many<C: Codec>(&mut self, shape: &Shape<'_, C>, first: u64, start_ns: u64) {
        shape.codec.write_many_start(shape.mget, &mut self.out);
        let mut is_large = false;
        for index in 0..shape.mget {
            let id = match &mut self.source {
                Source::Load(lane) if index > 0 => lane.advance_id(),
                _ => first,
            };
            self.form_key(shape, id);
            shape.codec.write_many_key(&self.key, &mut self.out);
            self.ids.push_back(id);
            is_large |= shape.is_large(id);
        }
        shape.codec.write_many_end(&mut self.out);
        let key_count = shape.mget as u32;
        self.pending.push_back(Pending {
            kind: Kind::Read,
            key_count,
            settled_count: 0,
            start_ns,
            is_large,
        });
    }

    fn push_scan<C: Codec>(&mut self, shape: &Shape<'_, C>, id: u64, keys: u64, start_ns: u64) {
        self.form_key(shape, id);
        let is_written = shape.codec.write_range(&self.key, keys, &mut self.out);
        debug_assert!(is_written, "`Plan::new` refuses scans where the protocol has none");
        self.expect(shape, Kind::Scan, id, start_ns);
    }

    fn push_set<C: Codec>(&mut self, shape: &Shape<'_, C>, kind: Kind, id: u64, start_ns: u64) {
        self.write_set(shape, id, self.version);
        self.version = self.version.wrapping_add(1);
        self.expect(shape, kind, id, start_ns);
    }

    fn write_set<C: Codec>(&mut self, shape: &Shape<'_, C>, id: u64, version: u32) {
        self.form_key(shape, id);
        let len_bytes = shape.value_sizes.len_of(id);
        let value = shape.codec.write_set(&self.key, len_bytes, &mut self.out);
        values::fill(id, version, &mut self.out[value]);
    }

    fn form_key<C>(&mut self, shape: &Shape<'_, C>, id: u64) {
        self.key.resize(shape.key_format.len_max_bytes(), 0);
        let len = shape.key_format.write(id, &mut self.key);
        self.key.truncate(len);
    }

    fn expect<C>(&mut self, shape: &Shape<'_, C>, kind: Kind, id: u64, start_ns: u64) {
        self.ids.push_back(id);
        let is_large = shape.is_large(id);
        self.pending.push_back(Pending {
            kind,
            key_count: 1,
            settled_count: 0,
            start_ns,
            is_large,
        });
    }

    /// Writes the formed bytes; those that the socket does not take now stay.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        while self.has_unsent_bytes() {
            match self.socket.write(&self.out[self.out_sent_bytes..]) {
                Ok(0) => return Err(Broken::Lost("it takes no more bytes".to_owned())),
                Ok(len) => self.out_sent_bytes += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::Lost(error.to_string())),
            }
        }
        self.out.clear();
        self.out_sent_bytes = 0;
        Ok(())
    }

    /// Reads once and settles the replies.
    pub(crate) fn receive<C: Codec>(
        &mut self,
        shape: &Shape<'_, C>,
        tally: &mut Tally,
        now_ns: impl FnOnce() -> u64,
    ) -> Result<(), Broken> {
        match self.socket.read(&mut self.input.bytes[self.input.end..]) {
            Ok(0) => return Err(Broken::Lost("the server closed it".to_owned())),
            Ok(len) => self.input.end += len,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(Broken::Lost(error.to_string())),
        }
        self.settle(shape, tally, now_ns())
    }

    fn settle<C: Codec>(
        &mut self,
        shape: &Shape<'_, C>,
        tally: &mut Tally,
        now_ns: u64,
    ) -> Result<(), Broken> {
        // The buffer leaves `self` for the loop, since replies borrow it while requests change.
        let bytes = std::mem::take(&mut self.input.bytes);
        let mut at = self.input.start;
        let mut wanted = 0;
        let mut result = Ok(());
        while at < self.input.end {
            match shape.codec.parse(&bytes[at..self.input.end]) {
                Parsed::Done { reply, consumed_bytes } => {
                    at += consumed_bytes;
                    result = self.take_reply(shape, tally, reply, now_ns);
                    if result.is_err() {
                        break;
                    }
                }
                Parsed::NeedMore { at_least_bytes } => {
                    wanted = at_least_bytes;
                    break;
                }
                Parsed::Bad { reason } => {
                    result = Err(Broken::Protocol(reason));
                    break;
                }
            }
        }
        self.input.bytes = bytes;
        self.input.start = at;
        self.input.make_room(wanted);
        result
    }

    fn take_reply<C: Codec>(
        &mut self,
        shape: &Shape<'_, C>,
        tally: &mut Tally,
        reply: Reply<'_>,
        now_ns: u64,
    ) -> Result<(), Broken> {
        let Some(front) = self.pending.front().copied() else {
            return Err(Broken::Protocol(format!("a reply to no request: {reply:.60?}")));
        };
        match (front.kind, reply) {
            (_, Reply::Refused(words)) => {
                tally.refuse(|| printable(words));
                self.drop_ids(front);
                self.finish(front, tally, now_ns);
            }
            (Kind::Write | Kind::Insert | Kind::WriteBack, Reply::Stored) => {
                self.drop_ids(front);
                tally.write_count += 1;
                tally.operation_count += 1;
                self.finish(front, tally, now_ns);
            }
            (Kind::Scan, reply) => {
                self.take_scan(shape, tally, reply)?;
                self.finish_scan(tally, now_ns);
            }
            (Kind::Read | Kind::ReadToModify, reply) => {
                self.take_read(shape, front, tally, reply, now_ns)?;
            }
            (kind, reply) => {
                return Err(Broken::Protocol(format!("reply to a {kind:?} is {reply:.60?}")));
            }
        }
        Ok(())
    }

    /// One part of the reply to a range: `Many`, and then keys and values in turn.
    fn take_scan<C: Codec>(
        &mut self,
        shape: &Shape<'_, C>,
        tally: &mut Tally,
        reply: Reply<'_>,
    ) -> Result<(), Broken> {
        let Some(front) = self.pending.front_mut() else { return Ok(()) };
        match (reply, self.scanned_key.take()) {
            (Reply::Many { count }, None) if count % 2 == 0 && front.settled_count == 0 => {
                // The request's own place in `ids`, and the keys still to come.
                front.key_count = 1 + count as u32;
                front.settled_count = 1;
                self.ids.pop_front();
            }
            (Reply::Value(key), None) if front.settled_count > 0 => {
                front.settled_count += 1;
                self.scanned_key = Some(key.to_vec());
            }
            (Reply::Value(value), Some(key)) => {
                front.settled_count += 1;
                tally.scanned(is_right(&shape.key_format, shape.value_sizes, &key, value));
            }
            (other, _) => {
                return Err(Broken::Protocol(format!("reply to a range is {other:.60?}")));
            }
        }
        Ok(())
    }

    fn finish_scan(&mut self, tally: &mut Tally, now_ns: u64) {
        if let Some(front) = self.pending.front().copied()
            && front.settled_count == front.key_count
        {
            tally.operation_count += 1;
            self.finish(front, tally, now_ns);
        }
    }

    fn take_read<C: Codec>(
        &mut self,
        shape: &Shape<'_, C>,
        front: Pending,
        tally: &mut Tally,
        reply: Reply<'_>,
        now_ns: u64,
    ) -> Result<(), Broken> {
        match reply {
            Reply::Many { count } if count == front.key_count as usize && count > 1 => {}
            Reply::Value(value) => {
                self.settle_key(shape, tally, Some(value));
                self.finish_if_last(tally, now_ns);
            }
            Reply::Miss => {
                self.settle_key(shape, tally, None);
                self.finish_if_last(tally, now_ns);
            }
            Reply::ValueOf { key, value } => {
                // Existing keys come back in the order of the request.
                while !self.is_next_key(shape, key)? {
                    self.settle_key(shape, tally, None);
                }
                self.settle_key(shape, tally, Some(value));
            }
            Reply::End => {
                while self
                    .pending
                    .front()
                    .is_some_and(|front| front.settled_count < front.key_count)
                {
                    self.settle_key(shape, tally, None);
                }
                self.finish_if_last(tally, now_ns);
            }
            other => return Err(Broken::Protocol(format!("reply to a read is {other:.60?}"))),
        }
        Ok(())
    }

    /// Whether the next unsettled key of the front request is `key`.
    fn is_next_key<C>(&mut self, shape: &Shape<'_, C>, key: &[u8]) -> Result<bool, Broken> {
        let is_settled =
            self.pending.front().is_none_or(|front| front.settled_count == front.key_count);
        if is_settled {
            let reason = format!("a value of a key that was not asked for: {}", printable(key));
            return Err(Broken::Protocol(reason));
        }
        let id = self.ids.front().copied().unwrap_or_default();
        self.form_key(shape, id);
        Ok(self.key == key)
    }

    /// The next key of the front request has this value, or none.
    fn settle_key<C>(&mut self, shape: &Shape<'_, C>, tally: &mut Tally, value: Option<&[u8]>) {
        let (Some(front), Some(id)) = (self.pending.front_mut(), self.ids.pop_front()) else {
            return;
        };
        front.settled_count += 1;
        let mut version_read = 0;
        match value {
            None => tally.miss_count += 1,
            Some(value) => {
                tally.hit_count += 1;
                let version = values::check(id, value);
                if version.is_none() || value.len() != shape.value_sizes.len_of(id) {
                    tally.mismatch_count += 1;
                }
                version_read = version.unwrap_or(0);
            }
        }
        if front.kind == Kind::ReadToModify {
            let (version, start_ns) = (version_read.wrapping_add(1), front.start_ns);
            self.write_backs.push_back(WriteBack { id, version, start_ns });
        } else {
            tally.operation_count += 1;
        }
    }

    fn finish_if_last(&mut self, tally: &mut Tally, now_ns: u64) {
        if let Some(front) = self.pending.front().copied()
            && front.settled_count == front.key_count
        {
            self.finish(front, tally, now_ns);
        }
    }

    /// Settles the front request. The first half of a read-modify-write does not count as a request
    /// yet.
    fn finish(&mut self, front: Pending, tally: &mut Tally, now_ns: u64) {
        self.pending.pop_front();
        if front.kind == Kind::Insert
            && let Source::Load(lane) = &mut self.source
        {
            lane.inserted();
        }
        let is_half = front.kind == Kind::ReadToModify && front.settled_count == front.key_count;
        if !is_half {
            tally.answer(now_ns.saturating_sub(front.start_ns), front.is_large);
        }
    }

    fn drop_ids(&mut self, front: Pending) {
        for _ in front.settled_count..front.key_count {
            self.ids.pop_front();
        }
    }
}

/// Past this, a batch of large values is sent in parts.
const OUT_MAX_BYTES: usize = 4 << 20;

impl Input {
    /// Moves the unparsed bytes to the front when the end is near, and grows for one large reply.
    fn make_room(&mut self, wanted_bytes: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let is_crowded = self.bytes.len() - self.end < self.bytes.len() / 2;
        if self.start > 0 && (is_crowded || self.start + wanted_bytes > self.bytes.len()) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let needed = self.start + wanted_bytes;
        if needed > self.bytes.len() || self.end == self.bytes.len() {
            let len = needed.max(self.bytes.len() * 2).next_power_of_two();
            self.bytes.resize(len, 0);
        }
    }
}
