//! Tests of the write table on one thread: the paper's example, limits, and a plain map as its
//! model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const P1: PartitionId = PartitionId(1);
const PN: PartitionId = PartitionId(900);
const T1: WorkerId = WorkerId(1);
const T2: WorkerId = WorkerId(2);

#[test]
fn the_picture_of_a_word_is_its_layout() {
    let word = Word::held(PartitionId(Word::PARTITION_MAX), WorkerId(u16::MAX));
    assert_eq!(word.bits(), 0xffff_ffff_ffe0_0001);
    assert_eq!(Word::claimed(PartitionId(0), WorkerId(0)).bits(), 0x10_0000);
    assert_eq!(size_of::<Set>(), 64);
}

/// C-4 Fig. 8: W1 finds no entry and takes one; W2 of the same partition follows it and counts two;
/// both replies free it.
#[test]
fn a_second_write_of_a_partition_follows_the_first() {
    let table = WriteTable::new(128);
    assert_eq!(table.pin(PN, || Some(T1)), Pin::New(T1));
    assert_eq!(table.pin(PN, || panic!("not asked for")), Pin::Existing(T1));
    assert_eq!(table.unpin(PN), Unpin::Held);
    assert_eq!(table.holder(PN), Some(T1));
    assert_eq!(table.unpin(PN), Unpin::Freed);
    assert_eq!((table.holder(PN), table.len(), table.opened()), (None, 0, 0));
}

/// C-4 Fig. 5: writes of two partitions are balanced although CREW would give both to one thread.
#[test]
fn writes_of_two_partitions_are_free_of_each_other() {
    let table = WriteTable::new(128);
    assert_eq!(table.pin(P1, || Some(T1)), Pin::New(T1));
    assert_eq!(table.pin(PN, || Some(T2)), Pin::New(T2));
    assert_eq!((table.holder(P1), table.holder(PN), table.len()), (Some(T1), Some(T2), 2));
}

#[test]
fn with_no_worker_chosen_no_entry_is_left() {
    let table = WriteTable::new(8);
    assert_eq!(table.pin(P1, || None), Pin::NoWorker);
    assert!(table.is_empty());
    table.validate();
}

#[test]
fn a_full_set_refuses_all_but_its_own_partitions() {
    let table = WriteTable::new(WAYS);
    for id in 0..WAYS as u32 {
        assert_eq!(table.pin(PartitionId(id), || Some(T1)), Pin::New(T1));
    }
    assert_eq!(table.pin(PN, || panic!("not asked for")), Pin::Full);
    assert_eq!(table.pin(PartitionId(3), || None), Pin::Existing(T1));
    table.unpin(PartitionId(0));
    assert_eq!(table.pin(PN, || Some(T2)), Pin::New(T2));
    table.validate();
}

#[test]
fn a_full_count_refuses() {
    let table = WriteTable::new(8);
    table.pin(P1, || Some(T1));
    for _ in 1..Word::COUNT_MAX {
        assert_eq!(table.pin(P1, || None), Pin::Existing(T1));
    }
    assert_eq!(table.pin(P1, || None), Pin::Full);
    table.unpin(P1);
    assert_eq!(table.pin(P1, || None), Pin::Existing(T1));
}

#[test]
#[should_panic(expected = "I1: no write of PartitionId(1) is outstanding")]
fn an_answer_to_no_write_is_refused() {
    WriteTable::new(8).unpin(P1);
}

#[test]
fn a_claim_left_behind_is_cancelled() {
    let table = WriteTable::new(8);
    let stopped = table.for_another_dispatcher();
    let claim = Word::claimed(P1, stopped.dispatcher);
    let set = table.set(P1);
    assert!(set.enter_rest() && set.try_swap_entry(4, Word::EMPTY, claim));
    assert_eq!(table.pin(P1, || Some(T1)), Pin::New(T1));
    assert!(!set.try_swap_entry(4, claim, Word::held(P1, T2)), "it comes too late");
    set.leave_rest();
    table.validate();
}

/// I6: a dispatcher about to claim another word of a set keeps others from taking the first word by
///     one swap.
#[test]
fn the_first_word_is_not_empty_while_others_are_taken() {
    let table = WriteTable::new(WAYS);
    table.pin(P1, || Some(T1));
    table.pin(PN, || Some(T2));
    assert_eq!(table.unpin(P1), Unpin::Freed);
    table.validate();
    assert_eq!(Word::load(&table.set(P1).0[0]).state(), State::Empty);
    assert_ne!(Word::load(&table.set(P1).0[0]), Word::EMPTY);
    assert_eq!(table.pin(PN, || panic!("not asked for")), Pin::Existing(T2));
    assert_eq!(table.pin(P1, || Some(T2)), Pin::New(T2));
    for (partition, left) in [(PN, Unpin::Held), (PN, Unpin::Freed), (P1, Unpin::Freed)] {
        assert_eq!(table.unpin(partition), left);
        table.validate();
    }
    assert_eq!(Word::load(&table.set(P1).0[0]), Word::EMPTY);
}

#[test]
fn no_more_than_seven_are_on_the_way_into_a_set() {
    let table = WriteTable::new(WAYS);
    table.pin(P1, || Some(T1));
    let set = table.set(P1);
    assert!((0..7).all(|_| set.enter_rest()));
    assert_eq!(table.pin(PN, || Some(T2)), Pin::Full);
    assert_eq!(table.pin(P1, || None), Pin::Existing(T1));
    set.leave_rest();
    assert_eq!(table.pin(PN, || Some(T2)), Pin::New(T2));
}

/// Two entries in a set of eight, so that sets fill up.
const PARTITIONS: u32 = 20;

proptest! {
    #[test]
    fn the_table_is_a_map_that_may_be_full(
        steps in prop::collection::vec(
            (0..3_usize, 0..PARTITIONS, 0..4_u16, any::<bool>()),
            1..200,
        ),
    ) {
        let first = WriteTable::new(2 * WAYS);
        let tables = [first.for_another_dispatcher(), first.for_another_dispatcher(), first];
        let mut model = BTreeMap::<PartitionId, (WorkerId, u32)>::new();
        for (dispatcher, partition, worker, is_pin) in steps {
            let (table, partition) = (&tables[dispatcher], PartitionId(partition));
            let in_set = model.keys().filter(|other| other.0 % 2 == partition.0 % 2).count();
            match (is_pin, model.get_mut(&partition)) {
                (true, Some((holder, count))) => {
                    *count += 1;
                    prop_assert_eq!(table.pin(partition, || None), Pin::Existing(*holder));
                }
                (true, None) if in_set == WAYS => {
                    prop_assert_eq!(table.pin(partition, || None), Pin::Full);
                }
                (true, None) => {
                    let worker = WorkerId(worker);
                    prop_assert_eq!(table.pin(partition, || Some(worker)), Pin::New(worker));
                    model.insert(partition, (worker, 1));
                }
                (false, Some((_, 1))) => {
                    prop_assert_eq!(table.unpin(partition), Unpin::Freed);
                    model.remove(&partition);
                }
                (false, Some((_, count))) => {
                    *count -= 1;
                    prop_assert_eq!(table.unpin(partition), Unpin::Held);
                }
                (false, None) => prop_assert_eq!(table.holder(partition), None),
            }
            table.validate();
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(tables.iter().map(WriteTable::opened).sum::<i64>(), model.len() as i64);
        }
    }
}
