//! Loom tests of a change of roles: the handshake, together with a ring that it affects, and the
//! count of connections on their way.
//!
//! Mutations that these tests were seen to catch: taking a plan up before the requests sent are
//! done, an acknowledgement or the look for the last one Relaxed, either fence of [`Transit`] left
//! out, the count taken after the look for the stop.

use loom::cell::UnsafeCell;
use loom::thread;

use super::{Executing, Facts, Member, Publication, RolePlan, Step, Transit};
use crate::ring::ring;
use crate::sync::{Arc, Mutex};

/// Memory that a dispatcher uses when it sends, and that an executor frees when it settles.
struct Lane(UnsafeCell<bool>);

// SAFETY: under test: loom reports a dispatcher that uses it while, or after, the executor frees
// it.
unsafe impl Sync for Lane {}
// SAFETY: as for Sync.
unsafe impl Send for Lane {}

fn plan(epoch: u64, threads: usize, dispatchers: usize) -> RolePlan {
    RolePlan::new(epoch, threads, dispatchers, Executing::Others).expect("somebody polls")
}

/// Thread 0 sends to thread 1 until it sees the plan that ends its sending. When thread 1 settles,
/// the ring is empty and stays so, and it may free the sender's memory.
#[test]
fn loom_a_back_that_has_settled_is_sent_nothing() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let latest = Arc::new(Mutex::new(None::<Arc<Publication>>));
        let lane = Arc::new(Lane(UnsafeCell::new(false)));
        let (mut sender, mut receiver) = ring(2);
        let (their_latest, their_lane) = (Arc::clone(&latest), Arc::clone(&lane));
        let dispatcher = thread::spawn(move || {
            let mut member = Member::new(plan(0, 2, 1));
            let mut sent = 0;
            while member.plan().epoch == 0 {
                let published = their_latest.lock().expect("not poisoned").clone();
                while sender.reclaim().is_some() {}
                let is_drained = sender.outstanding_count() == 0;
                let facts = Facts { is_drained, is_settled: false, is_stopping: false };
                let step = match &published {
                    Some(published) => member.step(published.plan(), facts),
                    None => Step::Rest,
                };
                match (step, published) {
                    (Step::TakeUp(_), Some(published)) => {
                        // SAFETY: the executor frees it only once it has settled.
                        their_lane.0.with(|freed| assert!(!unsafe { *freed }, "used to the end"));
                        published.acknowledge();
                    }
                    (Step::Park, _) => {}
                    _ if !member.is_parked() && sent < 1 => {
                        their_lane.0.with(|freed| {
                            // SAFETY: the executor frees it only once it has settled.
                            assert!(!unsafe { *freed }, "sent by a plan that is gone");
                        });
                        sender.push([sent, sent]);
                        sender.publish();
                        sent += 1;
                    }
                    _ => thread::yield_now(),
                }
            }
        });
        let published = Arc::new(Publication::new(plan(1, 1, 1), 2));
        *latest.lock().expect("not poisoned") = Some(Arc::clone(&published));
        let mut member = Member::new(plan(0, 2, 1));
        loop {
            while receiver.take().is_some() {}
            let has_completed = receiver.complete();
            let is_settled = published.is_settled();
            let facts = Facts { is_drained: true, is_settled, is_stopping: false };
            match member.step(published.plan(), facts) {
                Step::TakeUp(_) => drop(published.acknowledge()),
                Step::Settle => break,
                Step::Rest if !has_completed => thread::yield_now(),
                _ => {}
            }
        }
        assert_eq!(receiver.waiting_count(), 0, "I3");
        // SAFETY: settled, so the dispatcher does not use it any more; loom would report it.
        lane.0.with_mut(|freed| unsafe { *freed = true });
        dispatcher.join().expect("the dispatcher ends");
        assert_eq!(receiver.waiting_count(), 0, "I3");
    });
}

/// A connection is handed over while the server stops: its target ends only once the connection has
/// arrived, or it has not left.
#[test]
fn loom_no_connection_is_handed_to_a_thread_that_has_ended() {
    loom::model(|| {
        let transit = Arc::new(Transit::new());
        let mailbox = Arc::new(Mutex::new(0));
        let (their_transit, their_mailbox) = (Arc::clone(&transit), Arc::clone(&mailbox));
        let leaving = thread::spawn(move || {
            let leaves = their_transit.try_begin();
            if leaves {
                *their_mailbox.lock().expect("not poisoned") += 1;
            }
            leaves
        });
        transit.stop();
        let mut adopted = 0;
        loop {
            let arrived = std::mem::take(&mut *mailbox.lock().expect("not poisoned"));
            for _ in 0..arrived {
                transit.end();
            }
            adopted += arrived;
            if transit.is_over() {
                break;
            }
            thread::yield_now();
        }
        let has_left = leaving.join().expect("it ends");
        assert_eq!(adopted, u32::from(has_left), "I5");
    });
}
