//! Inputs of the cluster's parsers: what peers say, then structured damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::codec::encode;
use cluster::configuration::even_ranges;
use cluster::datagram::{AckBuilder, FrameBuilder, Route};
use cluster::message::{Answer, Contents, Lane, Recovered};
use cluster::record::{Answered, BlockId, Entry, Kind, append_mark};
use cluster::{
    Addresses, ClientId, Configuration, Message, NodeId, Operation, Outcome, Request, Shard,
    ShardId, Term, Version, Way,
};

use crate::inputs::damage;
use crate::peer_datagrams::{TO, key};
use crate::rng::Rng;

/// What it is, and a message, a configuration or a log, half of them damaged a little.
pub fn peer_messages(rng: &mut Rng) -> Vec<u8> {
    // `damage` spares the first byte.
    let mut out = vec![rng.below(3) as u8];
    match out[0] {
        0 => encode(&message(rng), &mut out),
        1 => out.extend(configuration(rng).encode()),
        _ => {
            for _ in 0..rng.below(5) {
                log_record(rng, &mut out);
            }
        }
    }
    if rng.one_in(2) {
        damage(rng, &mut out);
    }
    out
}

/// A datagram of frames or acknowledgements, half of them damaged a little.
pub fn peer_datagrams(rng: &mut Rng) -> Vec<u8> {
    let lane = Lane { from: node(rng), term: Term(rng.next_u64() >> rng.below(64)) };
    let route = Route { lane, to: TO };
    let mut out = if rng.one_in(2) {
        let mut builder = FrameBuilder::new(1_400);
        let mut frame = Vec::new();
        for _ in 0..rng.below(20) {
            log_record(rng, &mut frame);
            if rng.one_in(2) && builder.push(&frame) {
                frame.clear();
            }
        }
        let at = rng.one_in(2).then(|| 64 * rng.below(99) as u64);
        let way = Way { thread: rng.below(256) as u16, at };
        builder.finish(route, way, &key()).to_vec()
    } else {
        let mut builder = AckBuilder::new(300);
        for _ in 0..rng.below(40) {
            let shard = ShardId(rng.below(2) as u16);
            let block = BlockId { shard, version: version(rng), block: rng.below(4) as u32 };
            if !builder.push(block) {
                break;
            }
        }
        builder.finish(route, &key()).to_vec()
    };
    if rng.one_in(2) {
        damage(rng, &mut out);
    }
    out
}

fn node(rng: &mut Rng) -> NodeId {
    NodeId { name: rng.below(4) as u16, incarnation: 1 + rng.below(3) as u32 }
}

fn version(rng: &mut Rng) -> Version {
    Version::from_bits((1 << 32) + rng.below(9) as u64).unwrap_or_default()
}

fn bytes(rng: &mut Rng) -> Arc<[u8]> {
    vec![b'v'; rng.below(80)].into()
}

fn entry(rng: &mut Rng) -> Entry {
    let is_flush = rng.one_in(8);
    Entry {
        shard: ShardId(rng.below(3) as u16),
        version: version(rng),
        client: ClientId(rng.next_u64()),
        sequence: rng.next_u64(),
        answered: if rng.one_in(2) { Answered::Done } else { Answered::Deleted(true) },
        key: bytes(rng),
        value: (!is_flush && rng.one_in(2)).then(|| bytes(rng)),
        is_flush,
        client_flags: (rng.below(2) as u64) << (32 * rng.below(2)),
        expires_at: rng.one_in(3).then(|| base::UnixMillis(1 + (rng.next_u64() >> 20))),
    }
}

fn log_record(rng: &mut Rng, out: &mut Vec<u8>) {
    match rng.below(4) {
        0 => append_mark(Kind::CommitVersion, ShardId(1), version(rng), out),
        1 => entry(rng).blocks(128).iter().for_each(|block| out.extend(&block[..])),
        _ => entry(rng).append(out),
    }
}

fn configuration(rng: &mut Rng) -> Configuration {
    let member = |name| NodeId { name, incarnation: 1 };
    let members: Vec<NodeId> = (0..1 + rng.below(4) as u16).map(member).collect();
    let shards = even_ranges(1 + rng.below(4) as u16).map(|(first, last)| Shard {
        first,
        last,
        epoch: 1,
        primary: members[0],
        backups: members[1..].to_vec(),
        joining: None,
        filling_from: members.get(1).copied(),
        waiting: vec![member(8); rng.below(2)],
    });
    let shards = shards.collect();
    let addresses = BTreeMap::from([(members[0], addresses(rng))]);
    Configuration { term: Term(rng.next_u64()), members, shards, addresses }
}

fn addresses(rng: &mut Rng) -> Arc<Addresses> {
    let (host, peer) = ("db1".to_owned(), "db1:7400".to_owned());
    let resp = rng.next_u64() as u16;
    Arc::new(Addresses { host, resp, peer, ..Addresses::default() })
}

fn contents(rng: &mut Rng) -> Contents {
    let entries = (0..rng.below(4)).map(|_| Arc::new(entry(rng))).collect();
    let answer =
        |rng: &mut Rng| Answer { sequence: 1, version: version(rng), outcome: outcome(rng) };
    let sessions = (0..rng.below(3)).map(|_| (ClientId(rng.next_u64()), answer(rng))).collect();
    Contents { entries, sessions }
}

fn outcome(rng: &mut Rng) -> Outcome {
    match rng.below(5) {
        0 => Outcome::Value(Some(bytes(rng))),
        1 => Outcome::Integer(-1),
        2 => Outcome::Deleted(true),
        3 => Outcome::Elsewhere(Some(Arc::new(configuration(rng)))),
        _ => Outcome::Done,
    }
}

fn message(rng: &mut Rng) -> Message {
    let (term, shard) = (Term(rng.next_u64()), ShardId(rng.below(9) as u16));
    match rng.below(9) {
        0 => {
            let recovered = Recovered::Damaged { incarnation: 1, whole: [(shard, 1)].into() };
            let (sent_at, addresses) = (base::Instant { ns: 5 }, addresses(rng));
            Message::Lease { sent_at, term, recovered, addresses }
        }
        1 => Message::Install(Arc::new(configuration(rng))),
        2 => {
            let block = BlockId { shard, version: version(rng), block: 0 };
            Message::Acked { term, blocks: vec![block; rng.below(5)] }
        }
        3 => Message::Gathered { term, shard, contents: contents(rng) },
        4 => Message::Copy { term, shard, part: 3, contents: contents(rng), next: Some(7) },
        5 => {
            let entry = rng.one_in(2).then(|| Arc::new(entry(rng)));
            Message::Fetched { term, shard, key: bytes(rng), entry }
        }
        6 => {
            let operation = match rng.below(3) {
                0 => Operation::Put(bytes(rng)),
                1 => Operation::Increment(7),
                _ => Operation::Delete,
            };
            let (client, key) = (ClientId(4), bytes(rng));
            Message::Request(Request { client, sequence: 9, key, operation })
        }
        7 => Message::Reply { sequence: 2, outcome: outcome(rng) },
        _ => Message::Joined { term, shard, node: node(rng) },
    }
}
