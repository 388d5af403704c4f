//! Tests of the codec: messages of every kind survive a round trip, and other bytes are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Instant, UnixMillis};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::addresses::Addresses;
use crate::configuration::{Configuration, Shard, even_ranges};
use crate::ids::{ClientId, NodeId, ShardId, Term, Version};
use crate::message::{Answer, Contents, Operation, Outcome, Recovered, Request, ShardStatistics};
use crate::record::{Answered, BlockId, Entry};

/// Kinds are numbered from 1 without gaps.
const KIND_COUNT: u8 = 29;

fn bytes() -> impl Strategy<Value = Arc<[u8]>> {
    vec(any::<u8>(), 0..100).prop_map(Arc::from)
}

fn node() -> impl Strategy<Value = NodeId> {
    any::<(u16, u32)>().prop_map(|(name, incarnation)| NodeId { name, incarnation })
}

fn version() -> impl Strategy<Value = Version> {
    (0..1_u64 << 48).prop_map(|bits| Version::from_bits(bits).unwrap())
}

fn block_id() -> impl Strategy<Value = BlockId> {
    let parts = (any::<u16>(), version(), any::<u32>());
    parts.prop_map(|(shard, version, block)| BlockId { shard: ShardId(shard), version, block })
}

fn entry() -> impl Strategy<Value = Arc<Entry>> {
    let answered = prop_oneof![
        Just(Answered::Done),
        Just(Answered::Integer),
        any::<bool>().prop_map(Answered::Deleted),
    ];
    let place = (any::<u16>(), version(), any::<u64>(), any::<u64>(), answered);
    let flags = 0..1_u64 << 40;
    let content = (bytes(), option::of(bytes()), flags, option::of(1..u64::MAX));
    (place, content).prop_map(|((shard, version, client, sequence, answered), content)| {
        let (key, value, client_flags, expires_ms) = content;
        let (shard, client) = (ShardId(shard), ClientId(client));
        let expires_at = expires_ms.map(UnixMillis);
        let entry = Entry {
            shard,
            version,
            client,
            sequence,
            answered,
            key,
            is_flush: value.is_none() && sequence % 2 == 0,
            value,
            client_flags,
            expires_at,
        };
        Arc::new(entry)
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        option::of(bytes()).prop_map(Outcome::Value),
        Just(Outcome::Done),
        any::<i64>().prop_map(Outcome::Integer),
        any::<bool>().prop_map(Outcome::Deleted),
        Just(Outcome::NotAnInteger),
        option::of(configuration()).prop_map(Outcome::Elsewhere),
        Just(Outcome::TryAgain),
        Just(Outcome::TooFewCopies),
        Just(Outcome::Computed),
        Just(Outcome::Unknown),
    ]
}

fn contents() -> impl Strategy<Value = Contents> {
    let answer = (any::<u64>(), version(), outcome())
        .prop_map(|(sequence, version, outcome)| Answer { sequence, version, outcome });
    let session = (any::<u64>().prop_map(ClientId), answer);
    (vec(entry(), 0..5), vec(session, 0..5))
        .prop_map(|(entries, sessions)| Contents { entries, sessions })
}

fn addresses() -> impl Strategy<Value = Arc<Addresses>> {
    let texts = ("[a-z.é]{0,20}", "[a-z0-9:]{0,20}");
    let tls = prop_oneof![Just([0, 0]), any::<[u16; 2]>()];
    (texts, any::<[u16; 4]>(), tls).prop_map(|((host, peer), plain, [tls_resp, tls_memcached])| {
        let [resp, memcached, native, admin] = plain;
        let plain =
            Addresses { host, resp, memcached, native, admin, peer, ..Addresses::default() };
        Arc::new(Addresses { tls_resp, tls_memcached, ..plain })
    })
}

fn configuration() -> impl Strategy<Value = Arc<Configuration>> {
    let parts = (any::<u64>(), 1_u16..5, 1_u16..4, any::<u16>(), addresses());
    parts.prop_map(|(term, shard_count, member_count, epoch, addresses)| {
        let member = |name| NodeId { name, incarnation: 1 };
        let members: Vec<NodeId> = (0..member_count).map(member).collect();
        let shards = even_ranges(shard_count).map(|(first, last)| Shard {
            first,
            last,
            epoch,
            primary: members[0],
            backups: members[1..].to_vec(),
            joining: Some(member(9)),
            filling_from: members.get(1).copied(),
            waiting: (20..20 + epoch % 3).map(member).collect(),
        });
        let shards = shards.collect();
        let addresses = BTreeMap::from([(members[0], addresses)]);
        Arc::new(Configuration { term: Term(term), members, shards, addresses })
    })
}

fn request() -> impl Strategy<Value = Request> {
    let operation = prop_oneof![
        Just(Operation::Get),
        bytes().prop_map(Operation::Put),
        Just(Operation::Delete),
        Just(Operation::Flush),
        any::<i64>().prop_map(Operation::Increment),
    ];
    (any::<u64>(), any::<u64>(), bytes(), operation).prop_map(
        |(client, sequence, key, operation)| Request {
            client: ClientId(client),
            sequence,
            key,
            operation,
        },
    )
}

fn recovered() -> impl Strategy<Value = Recovered> {
    let shards = vec((any::<u16>().prop_map(ShardId), any::<u32>()), 0..9);
    prop_oneof![
        Just(Recovered::Nothing),
        any::<(u32, u32)>()
            .prop_map(|(since, incarnation)| Recovered::Whole { since, incarnation }),
        (any::<u32>(), shards).prop_map(|(incarnation, whole)| Recovered::Damaged {
            incarnation,
            whole: whole.into()
        }),
    ]
}

fn statistics() -> impl Strategy<Value = ShardStatistics> {
    any::<(u16, [u64; 5])>().prop_map(|(shard, [reads, writes, bytes, entries, copied])| {
        ShardStatistics { shard: ShardId(shard), reads, writes, bytes, entries, copied }
    })
}

fn of_managers() -> impl Strategy<Value = Message> {
    let term = || any::<u64>().prop_map(Term);
    let at = || any::<u64>().prop_map(|ns| Instant { ns });
    let shard = || any::<u16>().prop_map(ShardId);
    prop_oneof![
        (at(), term(), recovered(), addresses()).prop_map(
            |(sent_at, term, recovered, addresses)| {
                Message::Lease { sent_at, term, recovered, addresses }
            }
        ),
        (at(), term(), any::<bool>()).prop_map(|(sent_at, term, is_committed)| {
            Message::Granted { sent_at, term, is_committed }
        }),
        any::<bool>().prop_map(|is_settled| Message::Ending { is_settled }),
        Just(Message::Ended),
        configuration().prop_map(Message::Install),
        term().prop_map(|term| Message::Installed { term }),
        term().prop_map(|term| Message::Commit { term }),
        (term(), shard(), node()).prop_map(|(term, shard, node)| Message::Joined {
            term,
            shard,
            node
        }),
        (term(), shard()).prop_map(|(term, shard)| Message::Filled { term, shard }),
        (term(), shard()).prop_map(|(term, shard)| Message::Withheld { term, shard }),
        (term(), shard()).prop_map(|(term, shard)| Message::Crowded { term, shard }),
        (term(), shard(), node()).prop_map(|(term, shard, node)| Message::Overdue {
            term,
            shard,
            node
        }),
        (term(), any::<u64>(), vec(statistics(), 0..5)).prop_map(|(term, window_ns, shards)| {
            Message::Statistics { term, window_ns, shards }
        }),
        request().prop_map(Message::Request),
        (any::<u64>(), outcome())
            .prop_map(|(sequence, outcome)| Message::Reply { sequence, outcome }),
        (any::<u64>(), bytes()).prop_map(|(id, bytes)| Message::Forward { id, bytes }),
        (any::<u64>(), option::of(bytes()))
            .prop_map(|(id, bytes)| Message::Forwarded { id, bytes }),
        Just(Message::AskConfiguration),
        configuration().prop_map(Message::Configuration),
    ]
}

fn between_nodes() -> impl Strategy<Value = Message> {
    let place = || (any::<u64>().prop_map(Term), any::<u16>().prop_map(ShardId));
    let part = any::<u64>;
    prop_oneof![
        (place(), vec(block_id(), 0..9))
            .prop_map(|((term, _), blocks)| Message::Acked { term, blocks }),
        place().prop_map(|(term, shard)| Message::Gather { term, shard }),
        (place(), contents())
            .prop_map(|((term, shard), contents)| { Message::Gathered { term, shard, contents } }),
        (place(), contents())
            .prop_map(|((term, shard), contents)| { Message::Scatter { term, shard, contents } }),
        place().prop_map(|(term, shard)| Message::Scattered { term, shard }),
        (place(), part(), contents(), option::of(any::<u64>())).prop_map(
            |((term, shard), part, contents, next)| {
                Message::Copy { term, shard, part, contents, next }
            }
        ),
        (place(), part()).prop_map(|((term, shard), part)| Message::Copied { term, shard, part }),
        (place(), bytes()).prop_map(|((term, shard), key)| Message::Fetch { term, shard, key }),
        (place(), bytes(), option::of(entry())).prop_map(|((term, shard), key, entry)| {
            Message::Fetched { term, shard, key, entry }
        }),
        (place(), part(), any::<u64>()).prop_map(|((term, shard), part, cursor)| {
            Message::Pull { term, shard, part, cursor }
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![of_managers(), between_nodes()]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn every_message_comes_back(message in message()) {
        prop_assert_eq!(decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn no_part_of_a_message_is_one(message in message(), cut in any::<prop::sample::Index>()) {
        let mut bytes = encoded(&message);
        let kept = &bytes[..cut.index(bytes.len())];
        prop_assert!(decode(kept).is_err());
        bytes.push(0);
        prop_assert!(decode(&bytes).is_err(), "a byte too many");
    }

    #[test]
    fn damage_is_refused_or_another_message(
        message in message(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut bytes = encoded(&message);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = decode(&bytes) {
            prop_assert_eq!(decode(&encoded(&other)), Ok(other));
        }
    }

    #[test]
    fn noise_is_refused_or_a_message(mut bytes in vec(any::<u8>(), 2..200)) {
        bytes[0] = FORMAT;
        bytes[1] = 1 + bytes[1] % KIND_COUNT;
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(decode(&encoded(&message)), Ok(message));
        }
    }
}

#[test]
fn every_kind_is_known_and_no_other() {
    for kind in 1..=KIND_COUNT {
        let known = decode(&[FORMAT, kind]);
        assert_ne!(known, Err(DecodeError::Damaged { at_bytes: 1 }), "{kind}");
    }
    for kind in [0, KIND_COUNT + 1, 255] {
        assert_eq!(decode(&[FORMAT, kind]), Err(DecodeError::Damaged { at_bytes: 1 }));
    }
}

#[test]
fn another_format_is_refused_whatever_follows() {
    let mut bytes = encoded(&Message::Commit { term: Term(3) });
    bytes[0] = 2;
    let error = decode(&bytes).unwrap_err();
    assert_eq!(error, DecodeError::UnknownFormat { found: 2, known: FORMAT });
    assert_eq!(
        error.to_string(),
        "a peer's message has format 2, this release speaks 1: run one release"
    );
    assert_eq!(decode(&[]), Err(DecodeError::Damaged { at_bytes: 0 }));
}

#[test]
fn bytes_are_as_documented() {
    let joined = Message::Joined {
        term: Term(7),
        shard: ShardId(2),
        node: NodeId { name: 4, incarnation: 1 },
    };
    let want = [1, 6, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 4, 0, 1, 0, 0, 0];
    assert_eq!(encoded(&joined), want);
}

#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused_at_once() {
    let mut bytes = encoded(&Message::Acked { term: Term(1), blocks: Vec::new() });
    let len = bytes.len();
    bytes[len - 4..].fill(0xff);
    assert_eq!(decode(&bytes), Err(DecodeError::Damaged { at_bytes: len - 4 }));
}
