//! Loom tests: two dispatchers at one set of two entries.
//!
//! The tests fail without the second search, without its fence, without the count in the first
//! word, if that is taken back too early, and with orderings weaker than acquire and release. Loom
//! keeps one last access of each atomic, so the first search of a set reads by an exchange that
//! fails (decision 0013).

use loom::sync::atomic::{AtomicUsize, Ordering};

use base::sync::Arc;
use base::{PartitionId, WorkerId};

use super::{Pin, Unpin, WAYS, WriteTable};

const P: PartitionId = PartitionId(7);
/// A second partition; there is only one set.
const Q: PartitionId = PartitionId(8);

/// Bounded, because two dispatchers that are preempted at will can cancel each other for ever.
fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model
}

/// Runs two dispatchers on a table of one set, then `at_rest`.
fn check(
    prepare: fn(&WriteTable),
    first: impl Fn(&WriteTable) + Send + Sync + Copy + 'static,
    second: impl Fn(&WriteTable) + Send + Sync + Copy + 'static,
    at_rest: fn(&WriteTable),
) {
    bounded().check(move || {
        let table = WriteTable::new(WAYS);
        prepare(&table);
        let other = table.for_another_dispatcher();
        let thread = loom::thread::spawn(move || {
            first(&other);
            other.opened()
        });
        second(&table);
        let opened = thread.join().unwrap() + table.opened();
        table.validate();
        assert_eq!(opened, table.len() as i64);
        at_rest(&table);
    });
}

fn pin(table: &WriteTable, worker: u16) -> Pin {
    table.pin(P, || Some(WorkerId(worker)))
}

#[test]
fn two_first_writes_of_a_partition_get_one_holder() {
    check(
        |_| {},
        |table| assert!(matches!(pin(table, 1), Pin::Existing(WorkerId(2)) | Pin::New(_))),
        |table| assert!(matches!(pin(table, 2), Pin::Existing(WorkerId(1)) | Pin::New(_))),
        |table| {
            assert_eq!(table.len(), 1);
            assert_eq!(table.unpin(P), Unpin::Held);
            assert_eq!(table.unpin(P), Unpin::Freed);
        },
    );
}

/// A gap in front that is freed at the wrong moment could let a second entry in.
#[test]
fn an_entry_freed_in_front_lets_no_second_holder_in() {
    check(
        |table| assert_eq!(table.pin(Q, || Some(WorkerId(9))), Pin::New(WorkerId(9))),
        |table| assert!(matches!(pin(table, 1), Pin::Existing(WorkerId(2)) | Pin::New(_))),
        |table| {
            table.unpin(Q);
            pin(table, 2);
        },
        |table| {
            let held = table.len();
            assert!(held == 1 && table.holder(P).is_some());
        },
    );
}

#[test]
fn a_write_that_meets_the_last_reply_is_counted() {
    check(
        |table| assert_eq!(pin(table, 1), Pin::New(WorkerId(1))),
        |table| assert!(matches!(pin(table, 2), Pin::Existing(WorkerId(1)) | Pin::New(_))),
        |table| {
            table.unpin(P);
        },
        |table| {
            assert_eq!(table.unpin(P), Unpin::Freed);
            assert!(table.is_empty());
        },
    );
}

#[test]
fn a_full_set_refuses_and_changes_nothing() {
    check(
        |table| {
            for id in 0..WAYS as u32 - 1 {
                table.pin(PartitionId(id), || Some(WorkerId(0)));
            }
        },
        |table| {
            table.pin(PartitionId(20), || Some(WorkerId(1)));
        },
        |table| {
            table.pin(PartitionId(21), || Some(WorkerId(2)));
        },
        |table| {
            let held = [20, 21].map(|id| table.holder(PartitionId(id)).is_some());
            assert_eq!(held.iter().filter(|held| **held).count(), 1, "one entry was left");
        },
    );
}

/// The plain writes of a holder are not lost: the next holder begins after it.
fn check_writes(prepare: fn(&WriteTable), before_mine: fn(&WriteTable)) {
    bounded().check(move || {
        let table = WriteTable::new(WAYS);
        prepare(&table);
        let value = Arc::new(AtomicUsize::new(0));
        let (other, others_value) = (table.for_another_dispatcher(), Arc::clone(&value));
        let thread = loom::thread::spawn(move || write_if_new(&other, &others_value, 1));
        before_mine(&table);
        let mine = write_if_new(&table, &value, 2);
        let others = thread.join().unwrap();
        assert_eq!(value.load(Ordering::Relaxed), mine + others);
        table.validate();
        assert!(table.is_empty());
    });
}

#[test]
fn a_holder_sees_what_the_holder_before_it_wrote() {
    check_writes(|_| {}, |_| {});
}

/// The same if the first holder's entry is not the first of its set, and the next one enters an
/// empty set by one swap.
#[test]
fn a_holder_that_enters_an_empty_set_sees_what_another_in_it_wrote() {
    check_writes(
        |table| {
            table.pin(Q, || Some(WorkerId(9)));
        },
        |table| {
            table.unpin(Q);
        },
    );
}

/// Both leave the set, one from its first word, so that the next write may or may not find it
/// empty.
#[test]
fn a_set_is_left_as_it_was_found() {
    check(
        |table| {
            table.pin(Q, || Some(WorkerId(9)));
            table.pin(P, || Some(WorkerId(1)));
        },
        |table| {
            table.unpin(Q);
        },
        |table| {
            table.unpin(P);
            assert!(matches!(pin(table, 2), Pin::New(WorkerId(2))));
        },
        |table| {
            assert_eq!(table.unpin(P), Unpin::Freed);
            assert!(table.is_empty());
        },
    );
}

/// Returns the number of writes made: only a new holder may make one.
fn write_if_new(table: &WriteTable, value: &AtomicUsize, worker: u16) -> usize {
    let is_new = matches!(pin(table, worker), Pin::New(_));
    if is_new {
        value.store(value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    table.unpin(P);
    usize::from(is_new)
}
