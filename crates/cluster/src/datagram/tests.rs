//! Tests of datagrams: they survive a round trip; those of strangers, of other incarnations, and
//! damaged ones are refused.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ids::{ShardId, Version};
use crate::record::{ALIGN_BYTES, BlockId};

const LIMIT_BYTES: usize = 1_400;

fn key() -> Key {
    Key::new(&[7; 16]).unwrap()
}

fn node(name: u16) -> NodeId {
    NodeId { name, incarnation: 3 }
}

fn route() -> Route {
    Route { lane: Lane { from: node(1), term: Term(0x1234_5678_9abc) }, to: node(2) }
}

fn way() -> Way {
    Way { thread: 3, at: Some(1 << 40) }
}

fn open_here(bytes: &[u8]) -> Result<Datagram<'_>, Refused> {
    open(bytes, node(2), &key())
}

/// Packs frames and opens the datagrams; returns each one's contents.
fn pass_frames(frames: &[Vec<u8>], limit_bytes: usize) -> Vec<Vec<Vec<u8>>> {
    let mut builder = FrameBuilder::new(limit_bytes);
    let mut seen = Vec::new();
    let mut read = |bytes: &[u8]| {
        let opened = open_here(bytes).unwrap();
        assert_eq!((opened.lane, opened.way), (route().lane, way()));
        let Body::Frames(frames) = opened.body else { panic!("frames were packed") };
        let frames: Vec<Vec<u8>> = frames.map(<[u8]>::to_vec).collect();
        assert!(bytes.len() <= limit_bytes || frames.len() == 1);
        seen.push(frames);
    };
    for frame in frames {
        if !builder.push(frame) {
            read(builder.finish(route(), way(), &key()));
            assert!(builder.push(frame));
        }
    }
    if !builder.is_empty() {
        read(builder.finish(route(), way(), &key()));
    }
    seen
}

fn pass_acks(blocks: &[BlockId], limit_bytes: usize) -> Vec<BlockId> {
    let mut builder = AckBuilder::new(limit_bytes);
    let mut seen = Vec::new();
    let mut read = |bytes: &[u8]| {
        assert!(bytes.len() <= limit_bytes.max(HEADER_BYTES + 14));
        let Body::Acks(acks) = open_here(bytes).unwrap().body else { panic!("acks were packed") };
        seen.extend(acks);
    };
    for block in blocks {
        if !builder.push(*block) {
            read(builder.finish(route(), &key()));
            assert!(builder.push(*block));
        }
    }
    if !builder.is_empty() {
        read(builder.finish(route(), &key()));
    }
    seen
}

fn block(shard: u16, version: u64, block: u32) -> BlockId {
    BlockId { shard: ShardId(shard), version: Version::from_bits(version).unwrap(), block }
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let frame = (1_usize..30, any::<u8>());
    vec(frame.prop_map(|(strides, byte)| vec![byte; strides * ALIGN_BYTES]), 0..40)
}

fn blocks() -> impl Strategy<Value = Vec<BlockId>> {
    let near = (0_u16..2, 0_u64..6, 0_u32..6);
    let far = (any::<u16>(), (1_u64 << 48) - 3..1 << 48, u32::MAX - 2..=u32::MAX);
    vec(prop_oneof![near, far].prop_map(|(shard, version, at)| block(shard, version, at)), 0..300)
}

proptest! {
    #[test]
    fn frames_come_back_in_their_order(frames in frames()) {
        prop_assert_eq!(pass_frames(&frames, LIMIT_BYTES).concat(), frames);
    }

    #[test]
    fn acknowledgements_come_back_in_their_order(blocks in blocks(), limit in 0_usize..200) {
        prop_assert_eq!(pass_acks(&blocks, limit), blocks);
    }

    #[test]
    fn noise_under_a_right_tag_never_panics(
        kind in 0_u8..4,
        count in 0_u16..9,
        mut rest in vec(0_u8..3, 0..300),
    ) {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.append(&mut rest);
        seal(&mut bytes, (kind, 0), count, route(), &key());
        match open_here(&bytes).map(|datagram| datagram.body) {
            Ok(Body::Frames(frames)) => prop_assert_eq!(frames.count(), usize::from(count)),
            Ok(Body::Acks(acks)) => prop_assert!(acks.count() >= usize::from(count)),
            Err(refused) => prop_assert_eq!(refused, Refused::Malformed),
        }
    }
}

#[test]
fn every_bit_is_under_the_tag() {
    let mut builder = FrameBuilder::new(LIMIT_BYTES);
    assert!(builder.push(&[9; 128]) && builder.push(&[8; 64]));
    let bytes = builder.finish(route(), way(), &key()).to_vec();
    assert_eq!(bytes.len(), 64 + 128 + 64);
    for at in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        let want = match at / 8 {
            0..3 => Refused::NotOurs,
            3 => Refused::UnknownFormat { found: damaged[3], known: FORMAT },
            _ => Refused::WrongTag,
        };
        assert_eq!(open_here(&damaged), Err(want), "bit {at}");
    }
    for len_bytes in 0..bytes.len() {
        assert!(open_here(&bytes[..len_bytes]).is_err(), "cut at {len_bytes}");
    }
}

#[test]
fn strangers_and_other_lives_are_refused() {
    let mut builder = AckBuilder::new(LIMIT_BYTES);
    assert!(builder.push(block(1, 2, 3)));
    let bytes = builder.finish(route(), &key()).to_vec();
    assert!(open_here(&bytes).is_ok());
    assert_eq!(open(&bytes, node(2), &Key::insecure()), Err(Refused::WrongTag));
    let later = NodeId { name: 2, incarnation: 4 };
    assert_eq!(open(&bytes, later, &key()), Err(Refused::NotForUs { to: node(2) }));
    assert_eq!(Key::new(&[0; 16]).unwrap_err(), ZeroKey);
}

#[test]
fn a_frame_above_the_limit_goes_alone_and_small_ones_share() {
    let frames = [vec![1; 1_344], vec![2; 64], vec![3; 128], vec![4; 2_048]];
    let counts: Vec<usize> = pass_frames(&frames, 1_408).iter().map(Vec::len).collect();
    assert_eq!(counts, [1, 2, 1]);
}

#[test]
fn what_follows_is_one_run() {
    let mut builder = AckBuilder::new(LIMIT_BYTES);
    for version in 5..205 {
        assert!(builder.push(block(1, version, 0)));
    }
    for at in 0..50 {
        assert!(builder.push(block(1, 300, at)));
    }
    assert_eq!(builder.finish(route(), &key()).len(), HEADER_BYTES + 2 * 14);
}
