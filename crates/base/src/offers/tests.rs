//! Tests of offers: one thread's view of a queue from which others may take, and many threads at
//! once.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;

#[test]
fn what_is_pushed_is_seen_once_it_is_published_and_taken_in_order() {
    let offers = Arc::new(Offers::new(4));
    let mut owner = Offerer::of(&offers);
    assert_eq!((owner.push([1, 10]), owner.push([2, 20])), (0, 1));
    assert_eq!((offers.take(), offers.waiting_count(), owner.unpublished_count()), (None, 0, 2));
    assert!(owner.publish() && !owner.publish());
    assert!(owner.is_published(1) && !owner.is_published(2));
    assert_eq!((offers.waiting_count(), offers.take()), (2, Some([1, 10])));
    assert_eq!((owner.waiting_count(), offers.take(), offers.take()), (1, Some([2, 20]), None));
}

#[test]
fn a_later_owner_goes_on_where_the_last_one_ended() {
    let offers = Arc::new(Offers::new(2));
    for round in 0..5 {
        let mut owner = Offerer::of(&offers);
        assert_eq!(owner.push([round, 0]), round);
        owner.publish();
        assert_eq!(offers.take(), Some([round, 0]));
    }
}

#[test]
fn what_is_done_is_told_once() {
    let done = DoneSet::new(130);
    assert_eq!((done.word_count(), done.has_any()), (3, false));
    done.set(2, 0b10);
    done.set(0, 0b101);
    done.set(0, 0b010);
    assert!(done.has_any());
    assert_eq!([0, 1, 2, 0].map(|word| done.take(word)), [0b111, 0, 0b10, 0]);
    assert!(!done.has_any());
}

#[test]
#[should_panic(expected = "a place is found by a mask")]
fn a_capacity_is_a_power_of_two() {
    let _ = Offers::new(3);
}

/// The queue wraps many times, and slow takers are overtaken.
#[test]
fn takers_on_many_threads_share_everything_between_them() {
    const THINGS: usize = 64;
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let offers = Arc::new(Offers::new(THINGS));
    let done = DoneSet::new(THINGS);
    let seen = Mutex::new(BTreeSet::new());
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    let work = || {
        let Some([index, number]) = offers.take() else { return false };
        assert!(seen.lock().unwrap().insert(number), "taken once: {number}");
        done.set(0, 1 << index);
        true
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    if !work() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut owner = Offerer::of(&offers);
        let (mut free, mut number) = (u64::MAX, 0);
        for _ in 0..rounds {
            while free != 0 {
                let index = free.trailing_zeros();
                free &= free - 1;
                owner.push([u64::from(index), number]);
                number += 1;
            }
            owner.publish();
            while free == 0 {
                work();
                free = done.take(0);
            }
        }
        while free != u64::MAX {
            work();
            free |= done.take(0);
        }
        has_ended.store(true, Ordering::Relaxed);
        let seen = seen.lock().unwrap();
        assert_eq!((seen.len() as u64, seen.last()), (number, Some(&(number - 1))));
    });
}
