//! Tests: a request slot yields the request that it was filled with, wherever the bytes lie.

use base::KeyHash;
use budget::memory::KEPT_BYTES_MAX;
use commands::rmw::Side;
use commands::rmw::meta::NewExpiry;
use store::request::{Condition, Expiry};
use wire::resp::{Compares, ExpireCondition};

use super::*;

const ORIGIN: Origin<'static> = Origin {
    notes: &[],
    answer: Answer {
        slot: 0,
        command: CommandIndex::UNKNOWN_RESP,
        is_quiet: false,
        shape: Shape::Value,
    },
    protocol: resp::Protocol::Resp2,
    is_tls: false,
    connection: 5,
    now: UnixMillis(7),
};

const JOIN: MetaJoin<'static> = MetaJoin {
    bytes: b"part",
    max_bytes: 99,
    version: 4,
    vivify: NewExpiry::NEVER,
    client_flags: 5,
};

#[track_caller]
fn check(key: &[u8], op: Op<'_, Rmw<'_>>, receive_buffer: Option<&Arc<Vec<u8>>>) {
    let mut request_slot = RequestSlot::default();
    let request = Request { key, hash: KeyHash(3), op };
    let copied_bytes = request_slot.fill(&request, receive_buffer, &ORIGIN);
    assert_eq!(format!("{:?}", request_slot.request()), format!("{request:?}"));
    let len_bytes = key.len() + payload_of(&op).len() + operand_of(&op).len();
    let is_lent = receive_buffer.is_some() && len_bytes > COPY_BYTES_MAX;
    assert_eq!(copied_bytes, if is_lent { 0 } else { len_bytes });
    assert_eq!(receive_buffer.map_or(1, Arc::strong_count), if is_lent { 2 } else { 1 });
    request_slot.clear(KEPT_BYTES_MAX);
    assert_eq!(receive_buffer.map_or(1, Arc::strong_count), 1);
    assert!(request_slot.named.is_none());
    assert_eq!(request_slot.shape, Shape::McNothing, "a reply that is known has no other form");
    assert!(request_slot.bytes.capacity() <= KEPT_BYTES_MAX);
}

fn set(value: &[u8]) -> Op<'_, Rmw<'_>> {
    let (expiry, condition) = (Expiry::At(UnixMillis(9)), Condition::IfVersion(4));
    Op::Set(Set { value, client_flags: 5, expiry, condition })
}

#[test]
fn every_kind_of_request_arrives_as_it_was() {
    let part = Bounded { bytes: b"part", max_bytes: 99 };
    let condition = ExpireCondition::default();
    let updates = [
        Rmw::IncrementBy(-3),
        Rmw::IncrementByFloat(b"1.5"),
        Rmw::Append(part),
        Rmw::Prepend(part),
        Rmw::DeleteVersion(8),
        Rmw::SetRange { offset_bytes: 6, value: part },
        Rmw::SetBit { offset_bits: 7, bit: true },
        Rmw::SetIf {
            comparison: Comparison { compares: Compares::Equal, operand: b"old" },
            value: b"new",
            expiry: Expiry::Keep.into(),
        },
        Rmw::DeleteIf(Comparison { compares: Compares::DigestNotEqual, operand: b"0123" }),
        Rmw::SetExpiry(None),
        Rmw::Expire { at: UnixMillis(2), condition },
        Rmw::Persist,
        Rmw::Join(part, Side::Before),
        Rmw::Increase(1),
        Rmw::Decrease(2),
        Rmw::DeleteToken(9),
        Rmw::MetaAppend(JOIN),
    ];
    let named = updates.map(|update| Named { update, token: 500 });
    let named = named.iter().map(|named| Op::Update(Rmw::Named(named)));
    let updates = updates.into_iter().map(Op::Update).chain(named);
    for op in [Op::Get, Op::Delete, set(b""), set(b"value")].into_iter().chain(updates) {
        check(b"key", op, None);
    }
}

#[test]
fn small_values_are_copied_and_large_ones_borrowed_from_what_was_read() {
    for len_bytes in [0, 1, COPY_BYTES_MAX - 3, COPY_BYTES_MAX - 2, 100_000] {
        let receive_buffer = Arc::new([b"key".to_vec(), vec![b'v'; len_bytes]].concat());
        let (key, value) = receive_buffer.split_at(3);
        check(key, set(value), Some(&receive_buffer));
        check(key, set(value), None);
    }
}
