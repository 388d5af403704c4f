//! A zone without a transport: messages are written by hand.

use super::*;
use crate::Lane;

/// A message has its length in its first byte.
fn is_whole(message: &[u8]) -> bool {
    message.first().is_some_and(|len| usize::from(*len) == message.len())
}

fn ring(buffer_bytes: usize, buffer_count: usize, completions_max: usize) -> Zone {
    let size = ZoneSize { buffer_bytes, buffer_count, completions_max };
    Zone::ring(size, Box::new(is_whole)).unwrap()
}

/// Imitates the kernel: the part of a datagram that does not fit is cut.
fn deliver(zone: &mut Zone, lane: u32, len: u8) -> Option<Landed> {
    if zone.completions_free() == 0 {
        return None;
    }
    let window = zone.window_mut()?;
    let len_bytes = window.len().min(usize::from(len));
    window[..len_bytes].fill(len);
    Some(zone.land(Lane(lane).into(), 0, len_bytes))
}

fn take_lens(zone: &mut Zone) -> Vec<usize> {
    let taken: Vec<_> = std::iter::from_fn(|| zone.take()).collect();
    taken.iter().map(|completion| zone.bytes(completion).len()).collect()
}

#[test]
fn messages_lie_back_to_back_in_order() {
    let mut zone = ring(100, 2, 8);
    for (lane, len) in [(0, 10), (1, 20), (0, 30)] {
        assert_eq!(deliver(&mut zone, lane, len), Some(Landed::Completed));
    }
    let taken: Vec<_> = std::iter::from_fn(|| zone.take()).collect();
    let places: Vec<_> =
        taken.iter().map(|c| (c.number(), c.offset_bytes(), c.len_bytes())).collect();
    assert_eq!(places, [(0, 0, 10), (1, 10, 20), (2, 30, 30)]);
    assert_eq!(taken[1].sender(), Lane(1).into());
    assert_eq!(zone.bytes(&taken[2]), [30; 30]);
}

#[test]
fn a_message_that_was_cut_is_dropped_and_lands_whole_when_it_comes_again() {
    let mut zone = ring(100, 2, 8);
    assert_eq!(deliver(&mut zone, 0, 90), Some(Landed::Completed));
    assert_eq!(deliver(&mut zone, 0, 20), Some(Landed::Truncated));
    assert_eq!(deliver(&mut zone, 0, 20), Some(Landed::Completed));
    assert_eq!(take_lens(&mut zone), [90, 20]);
    assert_eq!(zone.counters().truncated, 1);
}

#[test]
fn a_message_that_fits_exactly_is_kept() {
    let mut zone = ring(100, 2, 8);
    assert_eq!(deliver(&mut zone, 0, 60), Some(Landed::Completed));
    assert_eq!(deliver(&mut zone, 0, 40), Some(Landed::Completed));
    assert_eq!(take_lens(&mut zone), [60, 40]);
}

#[test]
fn a_ring_without_a_reader_takes_no_more() {
    let mut zone = ring(100, 2, 64);
    while deliver(&mut zone, 0, 25).is_some() {}
    assert_eq!(zone.counters().landed, 8);
    assert_eq!(zone.window_for(25, 1), None);
    assert_eq!(zone.counters().starved, 1);
    for _ in 0..4 {
        zone.take();
    }
    zone.release(3);
    assert_eq!(zone.window(), None, "one of the first buffer's messages is still read");
    zone.release_taken();
    assert_eq!(zone.window(), Some(Window { offset_bytes: 0, len_bytes: 100 }));
}

#[test]
fn completions_run_out_before_buffers_do() {
    let mut zone = ring(100, 2, 4);
    while deliver(&mut zone, 0, 1).is_some() {}
    assert_eq!(zone.outstanding(), 4);
    assert_eq!(zone.window_for(1, 1), None);
    assert_eq!(take_lens(&mut zone).len(), 4);
    zone.release_taken();
    assert!(zone.window_for(1, 4).is_some());
}

#[test]
fn a_window_too_short_is_left_empty() {
    let mut zone = ring(100, 2, 8);
    assert_eq!(deliver(&mut zone, 0, 70), Some(Landed::Completed));
    let window = zone.window_for(40, 1).unwrap();
    assert_eq!((window.offset_bytes, window.len_bytes), (100, 100));
    assert_eq!(zone.counters().skipped_bytes, 30);
}

#[test]
fn a_log_gets_its_segments_back_in_order() {
    let size = ZoneSize { buffer_bytes: 4096, buffer_count: 2, completions_max: 8 };
    let mut zone = Zone::log(Region::memory(4 * 4096).unwrap(), size, Box::new(is_whole));
    assert_eq!(deliver(&mut zone, 0, 10), None, "nothing is posted");
    assert_eq!(zone.post(8192), Ok(()));
    assert_eq!(zone.post(4096), Ok(()));
    assert_eq!(zone.post(0), Err(PostError::TooMany { max: 2 }));
    let outside = PostError::Outside { offset_bytes: 12289, region_bytes: 16384 };
    assert_eq!(zone.post(12289), Err(outside));
    assert_eq!(deliver(&mut zone, 0, 10), Some(Landed::Completed));
    zone.close_buffer();
    assert_eq!(zone.take_spent(), None, "its message is not released");
    assert_eq!(zone.take().unwrap().offset_bytes(), 8192);
    zone.release_taken();
    assert_eq!(zone.take_spent(), Some(Spent { offset_bytes: 8192, filled_bytes: 10 }));
    assert_eq!(zone.post(0), Ok(()));
    assert_eq!(zone.window().unwrap().offset_bytes, 4096);
}

#[test]
fn a_ring_does_not_lend_its_buffers() {
    let mut zone = ring(100, 2, 8);
    assert_eq!(zone.post(0), Err(PostError::Ring));
    zone.close_buffer();
    assert_eq!(zone.take_spent(), None);
}

/// Random traffic: no overlap, no loss, order kept, and every byte as it was sent.
#[test]
fn whatever_lands_is_taken_once_and_unchanged() {
    let mut zone = ring(200, 3, 16);
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut sent, mut held) = (Vec::new(), std::collections::VecDeque::new());
    for _ in 0..20_000 {
        let len = 1 + random(60) as u8;
        if deliver(&mut zone, 0, len) == Some(Landed::Completed) {
            sent.push(len);
        }
        if random(2) == 0
            && let Some(completion) = zone.take()
        {
            assert_eq!(completion.number() as usize + 1, sent.len() - zone.untaken());
            held.push_back(completion);
        }
        for completion in &held {
            assert!(
                zone.bytes(completion)
                    .iter()
                    .all(|byte| *byte == sent[completion.number() as usize])
            );
        }
        if held.len() > random(12) as usize {
            let oldest = held.pop_front().unwrap();
            zone.release(oldest.number() + 1);
        }
    }
    assert!(zone.counters().landed > 5_000 && zone.counters().truncated > 100);
}

impl Zone {
    fn untaken(&self) -> usize {
        (self.next - self.taken) as usize
    }
}
