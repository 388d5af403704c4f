//! Tests against a hostile server: no panic, no loop, bounded memory.

use base::Instant;
use wire::native::{
    FrameWriter, Header, Kind, Op, Part, Reply, RequestId, SessionId, Status, SteeringId, Want,
};

use super::network::{Network, Weather};
use super::{GET_A, INCR_N, engine, set};
use crate::config::Config;
use crate::engine::{Draw, Engine};

/// A network with an open session and requests in flight.
fn begun() -> Network {
    let config = Config { outstanding_max: 32, ..Config::default() };
    let mut network = Network::new(engine(config), Weather::default(), 1);
    network.engine.submit(&Op::Ping, Want::PLAIN).unwrap();
    network.run_until(1, |completion| completion.result.unwrap().status);
    let large = vec![1; 20_000];
    for op in [GET_A, INCR_N, set(b"a", b"b"), set(b"large", &large)] {
        network.engine.submit(&op, Want::VERSION).unwrap();
    }
    network.flush();
    network
}

fn drain(engine: &mut Engine, now: Instant) {
    let mut buffer = vec![0; 2048];
    for _ in 0..1000 {
        if engine.output(now, &mut buffer).is_none() {
            engine.validate();
            return;
        }
    }
    panic!("output has no end");
}

#[test]
fn random_bytes_do_no_harm() {
    let mut network = begun();
    let mut draw = Draw(1);
    for round in 0..20_000_u64 {
        let len_bytes = (draw.next() % 200) as usize;
        let mut bytes: Vec<u8> = (0..len_bytes).map(|_| draw.next() as u8).collect();
        // Some of them pass the first checks.
        if len_bytes >= 32 {
            bytes[..4].copy_from_slice(&[b'D', b'V', 1, (round % 9) as u8]);
            bytes[6..8].copy_from_slice(&((len_bytes / 8) as u16).to_le_bytes());
            bytes[8..16].copy_from_slice(&1_u64.to_le_bytes());
            bytes[24..32].fill(0);
        }
        network.now.ns += 1000;
        network.engine.input(&bytes, network.now);
        drain(&mut network.engine, network.now);
        while network.engine.next_completion().is_some() {}
    }
}

#[test]
fn random_replies_do_no_harm() {
    for seed in 0..200 {
        let mut network = begun();
        let mut draw = Draw(seed);
        for _ in 0..200 {
            let mut buffer = [0; 1448];
            let header = Header {
                kind: Kind::Replies,
                steering: SteeringId::ANY,
                session: SessionId(1),
                number: draw.next() as u32,
                answered: (draw.next() % 8) as u32,
            };
            let mut writer = FrameWriter::new(&mut buffer, header).unwrap();
            for _ in 0..draw.next() % 6 {
                let value = vec![7; (draw.next() % 200) as usize];
                let _ = writer.push_reply(&random_reply(&mut draw, &value, &network.engine));
            }
            let len_bytes = writer.finish(None);
            network.now.ns += draw.next() % 3_000_000;
            network.engine.input(&buffer[..len_bytes], network.now);
            drain(&mut network.engine, network.now);
            while network.engine.next_completion().is_some() {}
            for op in [GET_A, INCR_N, set(b"large", &[3; 9000])] {
                let _ = network.engine.submit(&op, Want::PLAIN);
            }
            assert!(network.engine.transfers.waiting.len() <= 32);
            assert!(network.engine.transfers.pulled_bytes <= 1 << 30);
        }
    }
}

fn random_reply<'a>(draw: &mut Draw, value: &'a [u8], engine: &Engine) -> Reply<'a> {
    let slot = engine.slots.get((draw.next() % 90) as u32);
    let id = match draw.next() % 2 {
        0 => RequestId::Free(slot.number),
        _ => RequestId::Once((draw.next() % 40) as u32),
    };
    let status = Status::from_byte((draw.next() % 15) as u8).unwrap();
    let offset = (draw.next() % 40) as u32 * 64;
    let totals = [value.len() as u32, 64_000, 20_000, 9000, u32::MAX];
    let total = totals[(draw.next() % 5) as usize];
    let end = u64::from(offset) + value.len() as u64;
    let has_part = draw.next().is_multiple_of(2) && end <= u64::from(total);
    let has_more = draw.next().is_multiple_of(4);
    Reply {
        version: Some(draw.next() % 4),
        number: Some(draw.next() as i64),
        part: has_part.then_some(Part { offset, total }),
        resume_key: has_more.then_some(&b"key"[..]),
        value,
        ..Reply::new(id, status)
    }
}

#[test]
fn an_answer_to_a_frame_that_was_never_sent_is_dropped() {
    let mut network = begun();
    let before = network.engine.stats().frames_dropped;
    let mut buffer = [0; 64];
    let (kind, steering, session) = (Kind::Replies, SteeringId::ANY, SessionId(1));
    let header = Header { kind, steering, session, number: 0, answered: 1000 };
    let len_bytes = FrameWriter::new(&mut buffer, header).unwrap().finish(None);
    network.engine.input(&buffer[..len_bytes], network.now);
    assert_eq!(network.engine.stats().frames_dropped, before + 1);
}
