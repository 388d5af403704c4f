//! Tests of a ring against a queue on one thread; and with two threads for as long as a test may
//! take.

use std::collections::VecDeque;

use super::*;

#[test]
fn entries_come_in_order_and_only_after_their_publication() {
    let (mut sender, mut receiver) = ring(4);
    sender.push([1, 10]);
    sender.push([2, 20]);
    assert_eq!(receiver.take(), None);
    assert!(sender.publish());
    assert!(!sender.publish(), "there was nothing more");
    assert_eq!(receiver.waiting_count(), 2);
    assert_eq!(receiver.take(), Some([1, 10]));
    assert_eq!(sender.reclaim(), None, "the tail has not moved");
    assert!(receiver.complete());
    assert_eq!(sender.reclaim(), Some([1, 10]));
    assert_eq!(sender.reclaim(), None, "the second was not taken");
    assert_eq!(receiver.take(), Some([2, 20]));
    assert_eq!(receiver.take(), None);
    assert_eq!(sender.outstanding_count(), 1);
}

#[test]
fn entries_can_be_seen_before_their_turn_and_not_before_their_publication() {
    let (mut sender, mut receiver) = ring(4);
    for number in 0..4 {
        sender.push([number, number + 10]);
        if number == 2 {
            sender.publish();
        }
    }
    assert_eq!(receiver.peek(0), None, "this end has not looked yet");
    assert_eq!(receiver.waiting_count(), 3);
    assert_eq!([0, 2, 3].map(|ahead| receiver.peek(ahead)), [Some([0, 10]), Some([2, 12]), None]);
    assert_eq!(receiver.take(), Some([0, 10]), "seeing takes nothing");
    assert_eq!([0, 1, 2].map(|ahead| receiver.peek(ahead)), [Some([1, 11]), Some([2, 12]), None]);
    assert!(receiver.complete());
    assert_eq!(sender.reclaim(), Some([0, 10]));
    assert_eq!(sender.reclaim(), None, "what was only seen is not done");
}

#[test]
fn a_full_ring_has_room_only_after_reclaiming() {
    let (mut sender, mut receiver) = ring(2);
    for number in 0..2 {
        sender.push([number, 0]);
    }
    assert!(!sender.has_room());
    sender.publish();
    while receiver.take().is_some() {}
    receiver.complete();
    assert!(!sender.has_room(), "I2: the sender has not read its entries again");
    assert_eq!(sender.reclaim(), Some([0, 0]));
    assert!(sender.has_room());
}

/// Random steps of both ends against a queue, through many wraps.
#[test]
fn a_ring_is_a_queue() {
    const CAPACITY: u64 = 8;
    let (mut sender, mut receiver) = ring(CAPACITY as usize);
    let (mut published, mut outstanding) = (VecDeque::new(), VecDeque::new());
    let (mut unpublished, mut taken_count, mut done_count) = (VecDeque::new(), 0, 0);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let steps = if cfg!(miri) { 2000 } else { 100_000_u64 };
    for number in 0..steps {
        state = crate::hash::mix(state.wrapping_add(number));
        match state % 5 {
            0 | 1 if (outstanding.len() as u64) < CAPACITY => {
                let entry = [number, state];
                sender.push(entry);
                unpublished.push_back(entry);
                outstanding.push_back(entry);
            }
            2 => {
                assert_eq!(sender.publish(), !unpublished.is_empty());
                published.append(&mut unpublished);
            }
            3 => {
                let want = published.pop_front();
                assert_eq!(receiver.take(), want);
                taken_count += usize::from(want.is_some());
                if state & 64 == 0 {
                    receiver.complete();
                    done_count += std::mem::take(&mut taken_count);
                }
            }
            4 => {
                let want = if done_count > 0 { outstanding.pop_front() } else { None };
                assert_eq!(sender.reclaim(), want);
                done_count -= usize::from(want.is_some());
            }
            _ => {}
        }
        assert_eq!(sender.outstanding_count(), outstanding.len() as u64);
        assert_eq!(sender.unpublished_count(), unpublished.len() as u64);
    }
}

#[test]
fn two_threads_lose_and_repeat_nothing() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut sender, mut receiver) = ring(16);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut want = 0;
            while want < COUNT {
                while let Some(entry) = receiver.take() {
                    assert_eq!(entry, [want, !want]);
                    want += 1;
                }
                if !receiver.complete() {
                    std::thread::yield_now();
                }
            }
        });
        let (mut next, mut done) = (0, 0);
        while done < COUNT {
            while next < COUNT && sender.has_room() {
                sender.push([next, !next]);
                next += 1;
            }
            sender.publish();
            match sender.reclaim() {
                Some(entry) => {
                    assert_eq!(entry, [done, !done]);
                    done += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
}

#[test]
fn one_of_several_publishers_rings_a_raised_bell() {
    let bell = Bell::new();
    assert!(!bell.must_ring());
    bell.raise();
    assert!(bell.must_ring());
    assert!(!bell.must_ring());
    bell.raise();
    bell.lower();
    assert!(!bell.must_ring());
}
