//! Requests of memcached clients that another node executes: their encoding as bytes, and their
//! decoding into request slots at that node.
//!
//! ```text
//!  byte 0       1    2       3       4     12       20      28       36     44      52      60
//!  | format | op | shape | switch | now | number | limit | expiry | touch | more | version | flags
//!  64        66        68            72
//!  | key len | note len | meta's shape | key, note, payload
//! ```
//!
//! `switch`: bits 0-1 the expiry's kind, 2-3 the condition's, 4 with_cas, 5 is_last; meta commands
//! have a layout of their own. `number` is a delta or a condition's version, `limit` a longest
//! value, `more` an additional number of a meta command: an initial value, or R's time. For the
//! binary protocol `shape` is the opcode with the top bit set, and the opaque takes the place of
//! meta's shape. A CAS token from the client stands behind the payload; `format` then has another
//! value.

use std::sync::Arc;

use base::{KeyHasher, UnixMillis};
use budget::{BufferBudget, Kind, Reservation};
use cluster::NodeId;
use cluster_io::LinkId;
use commands::reply::Answer;
use commands::reply::{BinaryShape, MetaKind, MetaShape, Shape};
use commands::rmw::meta::{
    Guard, MetaCount, MetaGet, MetaInvalidate, MetaJoin, MetaStore, Named, NewExpiry, Regard,
};
use commands::rmw::{Bounded, Rmw, Side};
use counters::CommandIndex;
use dispatch::lanes::request_slot::{Origin, REQUEST_SLOTS, RequestSlot, RequestSlots, payload_of};
use store::request::{Condition, Expiry, Op, Request, Set};
use wire::memcached::MetaEcho;
use wire::memcached::binary::{Head, Verb};
use wire::resp::Protocol;

use super::ControlRequest;

const FORMAT: u8 = 2;
/// The same, with E's token in the last eight bytes.
const FORMAT_NAMED: u8 = 3;
const HEADER_BYTES: usize = 72;
/// The number of [`Shape::Meta`].
const SHAPE_META: u8 = 6;
/// The bit of [`Shape::Binary`], beside the opcode.
const SHAPE_BINARY: u8 = 1 << 7;
const GUARDS: [Guard; 5] =
    [Guard::SameOrOlderToken, Guard::SameToken, Guard::None, Guard::Absent, Guard::Present];
const META_KINDS: [MetaKind; 5] =
    [MetaKind::Get, MetaKind::Set, MetaKind::Delete, MetaKind::Count, MetaKind::Debug];
/// The dispatcher number of request slots without a dispatcher.
const NO_DISPATCHER: u16 = u16::MAX;

#[derive(Clone, Copy, Default)]
struct Fields {
    op: u8,
    switch: u8,
    number: u64,
    limit: u64,
    expiry: u64,
    touch: u64,
    more: u64,
    version: u64,
    client_flags: u32,
}

pub(super) fn encode(request_slot: &RequestSlot) -> Vec<u8> {
    let request = request_slot.request();
    let (op, token) = match request.op {
        Op::Update(Rmw::Named(Named { update, token })) => (Op::Update(*update), Some(*token)),
        op => (op, None),
    };
    let fields = fields_of(&op);
    let (shape, bits) = match request_slot.shape {
        Shape::McValue { with_cas, is_last } => {
            (0, u8::from(with_cas) << 4 | u8::from(is_last) << 5)
        }
        Shape::McStored => (1, 0),
        Shape::McDeleted => (2, 0),
        Shape::McNumber => (3, 0),
        Shape::McTouched => (4, 0),
        Shape::Meta(_) => (SHAPE_META, 0),
        Shape::Binary(binary) => (SHAPE_BINARY | binary.head.opcode, 0),
        _ => (5, 0),
    };
    let payload = payload_of(&request.op);
    let lens = request.key.len() + request_slot.note.len() + payload.len();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + lens);
    let format = if token.is_some() { FORMAT_NAMED } else { FORMAT };
    bytes.extend([format, fields.op, shape, fields.switch | bits]);
    let Fields { number, limit, expiry, touch, more, version, .. } = fields;
    for word in [request_slot.now.0, number, limit, expiry, touch, more, version] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(fields.client_flags.to_le_bytes());
    bytes.extend((request.key.len() as u16).to_le_bytes());
    bytes.extend((request_slot.note.len() as u16).to_le_bytes());
    bytes.extend(meta_bits(request_slot.shape));
    bytes.extend_from_slice(request.key);
    bytes.extend_from_slice(&request_slot.note);
    bytes.extend_from_slice(payload);
    bytes.extend(token.map(u64::to_le_bytes).into_iter().flatten());
    bytes
}

/// A meta command's shape, except where its note is; the opaque of the binary protocol.
fn meta_bits(shape: Shape) -> [u8; 4] {
    let meta = match shape {
        Shape::Meta(meta) => meta,
        Shape::Binary(binary) => return binary.head.opaque,
        _ => return [0; 4],
    };
    let kind = META_KINDS.iter().position(|kind| *kind == meta.kind).unwrap_or(0);
    [kind as u8, meta.with_value.into(), meta.with_version.into(), meta.is_quiet.into()]
}

fn meta_shape(bits: &[u8], note_len: usize) -> Option<MetaShape> {
    let [kind, with_value, with_version, is_quiet] = bits.try_into().ok()?;
    Some(MetaShape {
        kind: *META_KINDS.get(usize::from(kind))?,
        with_value: with_value != 0,
        with_version: with_version != 0,
        is_quiet: is_quiet != 0,
        note_start: 0,
        note_len: u16::try_from(note_len).ok()?,
    })
}

fn fields_of(op: &Op<'_, Rmw<'_>>) -> Fields {
    let none = Fields::default();
    match op {
        Op::Get => none,
        Op::Delete => Fields { op: 2, ..none },
        Op::Set(set) => {
            let (expiry_kind, expiry) = match set.expiry {
                Expiry::Never => (0, 0),
                Expiry::Keep => (1, 0),
                Expiry::At(at) => (2, at.0),
            };
            let (condition, number) = match set.condition {
                Condition::Always => (0, 0),
                Condition::IfAbsent => (1, 0),
                Condition::IfPresent => (2, 0),
                // Only memcached's requests are forwarded, and those have tokens alone.
                Condition::IfVersion(token) | Condition::IfToken(token) => (3, token),
            };
            let switch = expiry_kind | condition << 2;
            Fields { op: 1, switch, number, expiry, client_flags: set.client_flags as u32, ..none }
        }
        Op::Update(update) => match *update {
            Rmw::Join(part, Side::Behind) => Fields { op: 3, limit: part.max_bytes, ..none },
            Rmw::Join(part, Side::Before) => Fields { op: 4, limit: part.max_bytes, ..none },
            Rmw::Increase(delta) => Fields { op: 5, number: delta, ..none },
            Rmw::Decrease(delta) => Fields { op: 6, number: delta, ..none },
            Rmw::SetExpiry(at) => Fields {
                op: 7,
                switch: if at.is_some() { 2 } else { 0 },
                expiry: at.map_or(0, |at| at.0),
                ..none
            },
            Rmw::DeleteVersion(version) | Rmw::DeleteToken(version) => {
                Fields { op: 8, version, ..none }
            }
            ref other => meta_fields(other),
        },
    }
}

/// The fields of a meta command.
fn meta_fields(update: &Rmw<'_>) -> Fields {
    let none = Fields::default();
    match *update {
        Rmw::MetaGet(get) => Fields {
            op: 9,
            switch: get.is_touched_first.into(),
            expiry: get.vivify.to_bits(),
            touch: get.touch.to_bits(),
            more: get.recache.to_bits(),
            ..none
        },
        Rmw::MetaStore(store) => Fields {
            op: 10,
            // There are five guards.
            switch: GUARDS.iter().position(|guard| *guard == store.guard).unwrap_or(0) as u8,
            expiry: store.expiry.to_bits(),
            version: store.version,
            client_flags: store.client_flags,
            ..none
        },
        Rmw::MetaAppend(join) | Rmw::MetaPrepend(join) => Fields {
            op: 11,
            switch: matches!(update, Rmw::MetaPrepend(_)).into(),
            limit: join.max_bytes.into(),
            expiry: join.vivify.to_bits(),
            version: join.version,
            client_flags: join.client_flags,
            ..none
        },
        Rmw::MetaInvalidate(it) => Fields {
            op: 12,
            switch: u8::from(it.makes_stale)
                | u8::from(it.removes_value) << 1
                | u8::from(it.version.is_some()) << 2,
            touch: it.touch.to_bits(),
            version: it.version.unwrap_or(0),
            ..none
        },
        Rmw::MetaIncrease(count) | Rmw::MetaDecrease(count) => Fields {
            op: 13,
            switch: matches!(update, Rmw::MetaDecrease(_)).into(),
            number: count.delta,
            expiry: count.vivify.to_bits(),
            touch: count.touch.to_bits(),
            more: count.initial,
            version: count.version,
            ..none
        },
        // memcached has no others.
        _ => Fields { op: u8::MAX, ..none },
    }
}

fn meta_update<'b>(fields: Fields, payload: &'b [u8]) -> Option<Rmw<'b>> {
    let Fields { switch, number, limit, version, client_flags, .. } = fields;
    let [expiry, touch, more] =
        [fields.expiry, fields.touch, fields.more].map(NewExpiry::from_bits);
    Some(match fields.op {
        8 => Rmw::DeleteToken(version),
        9 => Rmw::MetaGet(MetaGet {
            vivify: expiry,
            touch,
            recache: more,
            is_touched_first: switch & 1 != 0,
            // No node records when its items were used.
            regard: Regard::Read,
        }),
        10 => {
            let (value, guard) = (payload, *GUARDS.get(usize::from(switch))?);
            Rmw::MetaStore(MetaStore { value, client_flags, expiry, guard, version })
        }
        11 => {
            let (bytes, max_bytes) = (payload, u32::try_from(limit).ok()?);
            let vivify = expiry;
            let join = MetaJoin { bytes, max_bytes, version, vivify, client_flags };
            if switch & 1 != 0 { Rmw::MetaPrepend(join) } else { Rmw::MetaAppend(join) }
        }
        12 => Rmw::MetaInvalidate(MetaInvalidate {
            version: (switch & 4 != 0).then_some(version),
            touch,
            makes_stale: switch & 1 != 0,
            removes_value: switch & 2 != 0,
        }),
        13 => {
            let (delta, initial, vivify) = (number, fields.more, expiry);
            let count = MetaCount { delta, version, vivify, initial, touch };
            if switch & 1 != 0 { Rmw::MetaDecrease(count) } else { Rmw::MetaIncrease(count) }
        }
        _ => return None,
    })
}

/// A forwarded request, borrowed from its bytes.
struct Forwarded<'b> {
    key: &'b [u8],
    op: Op<'b, Rmw<'b>>,
    shape: Shape,
    note: &'b [u8],
    now: UnixMillis,
    /// The token that it gives to the value that it writes.
    token: Option<u64>,
}

/// Decodes a request; `None` if the bytes are not one.
fn decode(bytes: &[u8]) -> Option<Forwarded<'_>> {
    let (head, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let [now, number, limit, expiry] = [word(4)?, word(12)?, word(20)?, word(28)?];
    let [touch, more, version] = [word(36)?, word(44)?, word(52)?];
    let client_flags = u32::from_le_bytes(head.get(60..64)?.try_into().ok()?);
    let (key, rest) = rest.split_at_checked(usize::from(short(64)?))?;
    let (note, payload) = rest.split_at_checked(usize::from(short(66)?))?;
    let switch = head[3];
    let (payload, token) = match head[0] {
        FORMAT => (payload, None),
        FORMAT_NAMED => {
            let (payload, token) = payload.split_last_chunk()?;
            (payload, Some(u64::from_le_bytes(*token)))
        }
        _ => return None,
    };
    let part = Bounded { bytes: payload, max_bytes: limit };
    let op = match head[1] {
        0 => Op::Get,
        1 => Op::Set(Set {
            value: payload,
            client_flags: client_flags.into(),
            expiry: match switch & 3 {
                0 => Expiry::Never,
                1 => Expiry::Keep,
                _ => Expiry::At(UnixMillis(expiry)),
            },
            condition: match switch >> 2 & 3 {
                0 => Condition::Always,
                1 => Condition::IfAbsent,
                2 => Condition::IfPresent,
                _ => Condition::IfToken(number),
            },
        }),
        2 => Op::Delete,
        3 => Op::Update(Rmw::Join(part, Side::Behind)),
        4 => Op::Update(Rmw::Join(part, Side::Before)),
        5 => Op::Update(Rmw::Increase(number)),
        6 => Op::Update(Rmw::Decrease(number)),
        7 => Op::Update(Rmw::SetExpiry((switch & 3 == 2).then_some(UnixMillis(expiry)))),
        op => {
            let fields =
                Fields { op, switch, number, limit, expiry, touch, more, version, client_flags };
            Op::Update(meta_update(fields, payload)?)
        }
    };
    let shape = shape_of(head, note)?;
    Some(Forwarded { key, op, shape, note, now: UnixMillis(now), token })
}

fn shape_of(head: &[u8], note: &[u8]) -> Option<Shape> {
    Some(match head[2] {
        0 => Shape::McValue { with_cas: head[3] & 16 != 0, is_last: head[3] & 32 != 0 },
        1 => Shape::McStored,
        2 => Shape::McDeleted,
        3 => Shape::McNumber,
        4 => Shape::McTouched,
        SHAPE_META => {
            MetaEcho::read(note)?;
            Shape::Meta(meta_shape(head.get(68..72)?, note.len())?)
        }
        binary if binary & SHAPE_BINARY != 0 => {
            let head =
                Head { opcode: binary ^ SHAPE_BINARY, opaque: head.get(68..72)?.try_into().ok()? };
            Verb::of(head.opcode)?;
            Shape::Binary(BinaryShape {
                head,
                note_start: 0,
                note_len: u8::try_from(note.len()).ok()?,
            })
        }
        _ => Shape::McNothing,
    })
}

/// The node that waits for a reply, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The asking node.
    pub node: NodeId,
    /// The link on which it has asked.
    pub link: LinkId,
    /// Its number of the request.
    pub id: u64,
}

/// Request slots for the requests that other nodes forward to this one.
pub struct Guests {
    request_slots: Arc<RequestSlots>,
    free: Vec<u32>,
    /// By request slot, while it is taken.
    whose: Vec<Option<Asker>>,
    /// By request slot: the booking of its request.
    booked: Vec<Option<Reservation>>,
    hasher: KeyHasher,
    budget: Arc<BufferBudget>,
}

impl Guests {
    /// Without guests.
    pub fn new(hasher: KeyHasher, budget: &Arc<BufferBudget>) -> Guests {
        let request_slots = Arc::new(RequestSlots::default());
        let whose = vec![None; REQUEST_SLOTS];
        let booked = (0..REQUEST_SLOTS).map(|_| None).collect();
        let (free, budget) = ((0..REQUEST_SLOTS as u32).collect(), Arc::clone(budget));
        Guests { request_slots, free, whose, booked, hasher, budget }
    }

    /// Takes a request in. `None`: there is no room, or it cannot be decoded.
    pub fn take(&mut self, from: Asker, bytes: &[u8]) -> Option<ControlRequest> {
        let Forwarded { key, mut op, shape, note: notes, now, token } = decode(bytes)?;
        let mut named = None;
        if let (Op::Update(update), Some(token)) = (op, token) {
            op = Op::Update(Rmw::Named(named.insert(Named { update, token })));
        }
        let mut booked = Reservation::empty(&self.budget, Kind::Guests);
        if self.free.is_empty() || !booked.try_grow_or_alone(bytes.len() as u64) {
            return None;
        }
        let index = self.free.pop()?;
        self.booked[index as usize] = Some(booked);
        let command = CommandIndex::UNKNOWN_RESP;
        let answer = Answer { slot: 0, command, is_quiet: false, shape };
        let (protocol, is_tls, connection) = (Protocol::Resp2, false, 0);
        let origin = Origin { answer, notes, protocol, is_tls, connection, now };
        // SAFETY: the request slot is free, so no other thread has it; the control thread is its
        // dispatcher too.
        let request_slot = unsafe { &mut *self.request_slots.at(index) };
        request_slot.fill(&Request { key, hash: self.hasher.hash(key), op }, None, &origin);
        self.whose[index as usize] = Some(from);
        Some(ControlRequest {
            request_slots: Arc::clone(&self.request_slots),
            index,
            dispatcher: NO_DISPATCHER,
        })
    }

    /// Frees the request slot of a control request that came from another node; returns the asker,
    /// or `None` if it did not.
    pub fn leave(&mut self, control_request: &ControlRequest) -> Option<Asker> {
        if control_request.dispatcher != NO_DISPATCHER {
            return None;
        }
        // SAFETY: the control request is over, and its request slot is this struct's.
        unsafe { &mut *self.request_slots.at(control_request.index) }.clear(0);
        self.booked[control_request.index as usize] = None;
        self.free.push(control_request.index);
        self.whose[control_request.index as usize].take()
    }

    /// Whether a control request came from another node.
    pub fn has(&self, control_request: &ControlRequest) -> bool {
        control_request.dispatcher == NO_DISPATCHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::KeyHash;
    use wire::memcached::MetaVerb;

    fn set(condition: Condition, expiry: Expiry) -> Op<'static, Rmw<'static>> {
        Op::Set(Set { value: b"value", client_flags: 9, expiry, condition })
    }

    fn meta(kind: MetaKind) -> Shape {
        let note_len = "\0TOKENSIZ\x03\0keyk v O1".len() as u16;
        let (with_value, with_version, is_quiet) = (true, false, true);
        let note_start = 0;
        Shape::Meta(MetaShape { kind, with_value, with_version, is_quiet, note_start, note_len })
    }

    fn binary(opcode: u8) -> Shape {
        let note_len = "\0TOKENSIZ\x03\0keyk v O1".len() as u8;
        let head = Head { opcode, opaque: [1, 2, 3, 255] };
        Shape::Binary(BinaryShape { head, note_start: 0, note_len })
    }

    fn metas_named<'a>(metas: &[Rmw<'a>]) -> Vec<Named<'a>> {
        let tokens = [0, 1, u64::MAX].into_iter().cycle();
        metas.iter().zip(tokens).map(|(update, token)| Named { update: *update, token }).collect()
    }

    #[test]
    fn what_memcached_asks_comes_over_whole() {
        let part = Bounded { bytes: b"tail", max_bytes: 77 };
        let at = UnixMillis(123_456);
        let value = Shape::McValue { with_cas: true, is_last: false };
        let all = [
            (Op::Get, value),
            (Op::Get, Shape::McValue { with_cas: false, is_last: true }),
            (set(Condition::IfToken(1 << 47), Expiry::At(at)), Shape::McStored),
            (set(Condition::IfAbsent, Expiry::Keep), Shape::McStored),
            (set(Condition::IfPresent, Expiry::Never), Shape::McStored),
            (Op::Delete, Shape::McDeleted),
            (Op::Update(Rmw::Join(part, Side::Before)), Shape::McStored),
            (Op::Update(Rmw::Join(part, Side::Behind)), Shape::McStored),
            (Op::Update(Rmw::Increase(u64::MAX)), Shape::McNumber),
            (Op::Update(Rmw::Decrease(3)), Shape::McNumber),
            (Op::Update(Rmw::SetExpiry(Some(at))), Shape::McTouched),
            (Op::Update(Rmw::SetExpiry(None)), value),
            (Op::Update(Rmw::DeleteToken(8)), meta(MetaKind::Delete)),
            (Op::Get, binary(0x0d)),
            (set(Condition::Always, Expiry::Never), binary(0x11)),
        ];
        let expiry = NewExpiry::at(Some(at));
        let store = |guard| {
            let (value, client_flags, version) = (b"v", 3, 1 << 47);
            Rmw::MetaStore(MetaStore { value, client_flags, expiry, guard, version })
        };
        let metas = [
            Rmw::MetaGet(MetaGet {
                vivify: NewExpiry::NEVER,
                touch: NewExpiry::KEPT,
                recache: expiry,
                is_touched_first: true,
                regard: Regard::Read,
            }),
            store(Guard::SameOrOlderToken),
            store(Guard::SameToken),
            store(Guard::None),
            store(Guard::Absent),
            store(Guard::Present),
            Rmw::MetaPrepend(MetaJoin {
                bytes: b"tail",
                max_bytes: 77,
                version: 9,
                vivify: expiry,
                client_flags: 5,
            }),
            Rmw::MetaInvalidate(MetaInvalidate {
                version: Some(0),
                touch: expiry,
                makes_stale: true,
                removes_value: false,
            }),
            Rmw::MetaDecrease(MetaCount {
                delta: u64::MAX,
                version: 7,
                vivify: expiry,
                initial: 6,
                touch: NewExpiry::NEVER,
            }),
        ];
        let mut notes = Vec::new();
        MetaEcho::note((MetaVerb::Get, b"k v O1"), (b"key", false), 7 << 40, &mut notes);
        let notes = &notes[..];
        let named = metas_named(&metas);
        let named = named.iter().map(|it| (Op::Update(Rmw::Named(it)), meta(MetaKind::Set)));
        let metas = metas.map(|update| (Op::Update(update), meta(MetaKind::Get)));
        let all = all.into_iter().chain(metas).chain(named);
        for (op, shape) in all {
            let mut request_slot = RequestSlot::default();
            let command = CommandIndex::UNKNOWN_RESP;
            let answer = Answer { slot: 0, command, is_quiet: false, shape };
            let now = UnixMillis(42);
            let (protocol, is_tls, connection) = (Protocol::Resp2, false, 0);
            let origin = Origin { answer, notes, protocol, is_tls, connection, now };
            request_slot.fill(&Request { key: b"key", hash: KeyHash(1), op }, None, &origin);
            let bytes = encode(&request_slot);
            let found = decode(&bytes).unwrap();
            assert_eq!((found.key, found.shape, found.now), (&b"key"[..], shape, now));
            let (op, token) = match op {
                Op::Update(Rmw::Named(it)) => (Op::Update(it.update), Some(it.token)),
                op => (op, None),
            };
            assert_eq!(format!("{:?}", found.op), format!("{op:?}"));
            assert_eq!(found.token, token);
            for cut in 0..HEADER_BYTES + 3 {
                assert!(decode(&bytes[..cut]).is_none(), "{cut}");
            }
        }
    }

    #[test]
    fn guests_are_booked_until_they_leave() {
        const MIB: usize = 1 << 20;
        let budget = Arc::new(BufferBudget::new(8 * MIB as u64)); // The share of forwards is 3 MiB.
        let mut guests = Guests::new(KeyHasher::new(1), &budget);
        let mut request_slot = RequestSlot::default();
        let (value, command) = (vec![7; MIB], CommandIndex::UNKNOWN_RESP);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let op = Op::Set(Set { value: &value, client_flags: 0, expiry, condition });
        let answer = Answer { slot: 0, command, is_quiet: false, shape: Shape::McStored };
        let (notes, now) = (&[][..], UnixMillis(42));
        let (protocol, is_tls, connection) = (Protocol::Resp2, false, 0);
        let origin = Origin { answer, notes, protocol, is_tls, connection, now };
        request_slot.fill(&Request { key: b"key", hash: KeyHash(1), op }, None, &origin);
        let bytes = encode(&request_slot);
        let from = |id| Asker { node: NodeId::default(), link: LinkId(7), id };
        let first = guests.take(from(1), &bytes).unwrap();
        let second = guests.take(from(2), &bytes).unwrap();
        assert_eq!(budget.kind_bytes(Kind::Guests), 2 * bytes.len() as u64);
        assert!(guests.take(from(3), &bytes).is_none());
        assert_eq!(guests.leave(&first), Some(from(1)));
        let third = guests.take(from(3), &bytes).unwrap();
        guests.leave(&second);
        guests.leave(&third);
        assert_eq!(budget.kind_bytes(Kind::Guests), 0);
    }
}
