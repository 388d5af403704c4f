//! Loom tests of offers: every interleaving of an owner, two takers and the memory that entries
//! name.
//!
//! Mutations that these tests were seen to catch: `head` stored Relaxed, a done bit set or taken
//! Relaxed, `taken` moved by a load and a store, an entry read after the CAS.

use loom::thread;

use super::{DoneSet, Offerer, Offers};
use crate::named::Named;
use crate::sync::Arc;

struct Shared {
    offers: Arc<Offers>,
    done: DoneSet,
    named: Vec<Named>,
}

impl Shared {
    /// Takes one entry, if there is one, and works on the memory that it names.
    fn work(&self) -> bool {
        let Some([index, twin]) = self.offers.take() else { return false };
        assert_eq!(twin, index + 100, "an entry is one");
        let named = &self.named[index as usize];
        let asked = named.get();
        assert!(
            asked > 0 && asked < 10,
            "the request is whole, and no thread has done it: {asked}"
        );
        named.set(asked + 10);
        self.done.set(0, 1 << index);
        true
    }
}

/// Sends `count` requests through a queue for `things` things, two of which may be on their way;
/// published `batch` at a time.
fn run(things: usize, count: u64, batch: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared {
            offers: Arc::new(Offers::new(things)),
            done: DoneSet::new(things),
            named: (0..things).map(|_| Named::new()).collect(),
        });
        let theirs = Arc::clone(&shared);
        // It may take nothing at all: the owner works as well.
        let thief = thread::spawn(move || (0..2).filter(|_| theirs.work()).count());
        let mut owner = Offerer::of(&shared.offers);
        let mut free: Vec<usize> = (0..things).rev().collect();
        let (mut asked, mut done) = (0, 0);
        while done < count {
            while asked < count
                && let Some(index) = free.pop()
            {
                asked += 1;
                shared.named[index].set(asked);
                owner.push([index as u64, index as u64 + 100]);
                if owner.unpublished_count() == batch {
                    owner.publish();
                }
            }
            owner.publish();
            let has_worked = shared.work();
            let mut bits = shared.done.take(0);
            if bits == 0 && !has_worked {
                thread::yield_now();
            }
            while bits != 0 {
                let index = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let answer = shared.named[index].get();
                assert!(answer > 10, "the answer is whole: {answer}");
                shared.named[index].set(0);
                free.push(index);
                done += 1;
            }
        }
        let stolen = thief.join().unwrap();
        assert!(stolen <= 2);
        assert_eq!(shared.offers.waiting_count(), 0);
        assert!(!shared.done.has_any());
    });
}

#[test]
fn loom_each_offer_is_taken_once_and_whole() {
    run(2, 2, 2);
}

#[test]
fn loom_a_place_is_used_again_when_its_entry_is_done() {
    run(1, 2, 1);
}

#[test]
fn loom_what_is_published_apart_is_seen_in_order() {
    run(2, 3, 1);
}
