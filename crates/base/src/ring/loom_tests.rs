//! Loom tests of a ring: every interleaving of a sender, a receiver and the memory that entries
//! name.
//!
//! Mutations that these tests were seen to catch: `head` stored or loaded Relaxed, `tail` stored or
//! loaded Relaxed, `head` stored before the entry, either fence of the bell left out.

use loom::thread;

use super::{Bell, ring};
use crate::named::Named;
use crate::sync::Arc;

/// Sends `count` requests through a ring of `capacity`, published `batch` at a time.
fn run(capacity: usize, count: u64, batch: u64) {
    loom::model(move || {
        let (mut sender, mut receiver) = ring(capacity);
        let named: Arc<Vec<Named>> = Arc::new((0..count).map(|_| Named::new()).collect());
        let theirs = Arc::clone(&named);
        let back = thread::spawn(move || {
            let mut want = 0;
            while want < count {
                // A waiting entry is complete as well, and may be worked on before its turn.
                if receiver.waiting_count() == 2
                    && let Some([number, _]) = receiver.peek(1)
                {
                    assert_eq!(theirs[number as usize].get(), number + 1, "the second is whole");
                }
                while let Some([number, twin]) = receiver.take() {
                    assert_eq!([number, twin], [want, want + 100]);
                    let cell = &theirs[number as usize];
                    assert_eq!(cell.get(), number + 1, "the request is whole");
                    cell.set(number + 10);
                    want += 1;
                }
                if !receiver.complete() {
                    thread::yield_now();
                }
            }
        });
        let (mut next, mut done) = (0, 0);
        while done < count {
            while next < count && sender.has_room() {
                named[next as usize].set(next + 1);
                sender.push([next, next + 100]);
                next += 1;
                if sender.unpublished_count() == batch {
                    sender.publish();
                }
            }
            sender.publish();
            match sender.reclaim() {
                Some([number, _]) => {
                    assert_eq!(number, done);
                    assert_eq!(named[number as usize].get(), number + 10, "the answer is whole");
                    done += 1;
                }
                None => thread::yield_now(),
            }
        }
        back.join().unwrap();
    });
}

#[test]
fn loom_a_request_and_its_answer_are_whole() {
    run(2, 2, 1);
}

#[test]
fn loom_a_full_ring_wraps() {
    run(1, 2, 1);
}

#[test]
fn loom_a_batch_is_seen_together() {
    run(2, 3, 2);
}

/// The sleeper sleeps only if the publisher is going to wake it.
#[test]
fn loom_no_publication_is_slept_through() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(1);
        let bell = Arc::new(Bell::new());
        let theirs = Arc::clone(&bell);
        let publisher = thread::spawn(move || {
            sender.push([1, 2]);
            sender.publish();
            theirs.must_ring()
        });
        bell.raise();
        let sees_it = receiver.waiting_count() > 0;
        let is_rung = publisher.join().unwrap();
        assert!(sees_it || is_rung);
    });
}

/// The same with several threads that may sleep: one that is awake is skipped.
#[test]
fn loom_of_several_bells_the_raised_one_is_rung() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(1);
        let bells = Arc::new([Bell::new(), Bell::new()]);
        let theirs = Arc::clone(&bells);
        let publisher = thread::spawn(move || {
            sender.push([1, 2]);
            sender.publish();
            Bell::must_ring_one(&*theirs)
        });
        bells[1].raise();
        let sees_it = receiver.waiting_count() > 0;
        let rung = publisher.join().unwrap();
        assert!(sees_it || rung == Some(1));
    });
}
