//! Grants of workers and reservations, by kind, and the room that each class leaves to the others.

use super::ledger::GRANT_BYTES;
use super::*;

const MIB: u64 = 1 << 20;

fn ledger(limit_bytes: u64) -> (Arc<BufferBudget>, Ledger) {
    let budget = Arc::new(BufferBudget::new(limit_bytes));
    (Arc::clone(&budget), Ledger::new(budget))
}

/// Takes `kind` until no more is granted; how much that was.
fn fill(budget: &Arc<BufferBudget>, kind: Kind) -> Reservation {
    let mut all = Reservation::empty(budget, kind);
    let mut step = budget.limit_bytes();
    while step > 0 {
        if !all.try_resize(all.bytes() + step) {
            step /= 2;
        }
    }
    all
}

#[test]
fn reserving_is_all_or_nothing() {
    let (budget, mut ledger) = ledger(1600);
    assert!(ledger.try_reserve(Kind::Small, 600));
    assert!(!ledger.try_reserve(Kind::Small, 401));
    assert!(ledger.try_reserve(Kind::Small, 400));
    assert_eq!((ledger.used_bytes(), budget.granted_bytes()), (1000, 1000));
}

#[test]
fn one_workers_grant_does_not_starve_another_for_long() {
    let (budget, mut first) = ledger((GRANT_BYTES * 64).div_ceil(40));
    let mut second = Ledger::new(Arc::clone(&budget));
    assert!(first.try_reserve(Kind::Small, 1));
    assert!(!second.try_reserve(Kind::Small, 1));
    drop(first);
    assert!(second.try_reserve(Kind::Small, 1));
}

#[test]
fn every_kind_stops_at_its_own_part_and_counts_what_it_refuses() {
    for kind in Kind::ALL {
        let budget = Arc::new(BufferBudget::new(64 * MIB));
        let all = fill(&budget, kind);
        let class_bytes = match kind.class() {
            Class::Small => 40 * MIB,
            Class::Passing => 56 * MIB,
            Class::Standing => 32 * MIB,
            Class::Apart => 16 * MIB,
        };
        let want = budget.kind_limit_bytes(kind).min(class_bytes);
        assert_eq!((all.bytes(), budget.kind_bytes(kind)), (want, want), "{kind:?}");
        let refusals: Vec<u64> = budget.kinds().map(|numbers| numbers.refusals).collect();
        assert!(refusals[kind as usize] > 0, "{kind:?}");
        assert_eq!(refusals.iter().filter(|count| **count > 0).count(), 1, "{kind:?}");
        drop(all);
        assert!(budget.counts(kind).all(|(count, _)| count.load(Ordering::Relaxed) == 0));
    }
}

#[test]
fn a_request_that_waits_and_asks_again_is_counted_once() {
    let (budget, mut ledger) = ledger(1000);
    let refusals = || budget.kinds().map(|numbers| numbers.refusals).sum::<u64>();
    assert!(!ledger.try_reserve(Kind::Bodies, 2000));
    ledger.set_retrying(true);
    assert!(!ledger.try_reserve(Kind::Bodies, 2000));
    assert_eq!(refusals(), 1);
    ledger.set_retrying(false);
    assert!(!ledger.try_reserve(Kind::Bodies, 2000));
    assert_eq!(refusals(), 2);
}

#[test]
fn full_kinds_together_leave_their_eighth_to_small_commands() {
    let budget = Arc::new(BufferBudget::new(64 * MIB));
    let others = Kind::ALL.into_iter().filter(|kind| kind.class() != Class::Small);
    let full: Vec<Reservation> = others.map(|kind| fill(&budget, kind)).collect();
    assert_eq!(budget.granted_bytes(), 56 * MIB, "I3");
    assert_eq!(fill(&budget, Kind::Small).bytes(), 8 * MIB);
    drop(full);
    assert_eq!(budget.granted_bytes(), 0);
}

#[test]
fn standing_kinds_leave_half_to_what_passes() {
    let budget = Arc::new(BufferBudget::new(64 * MIB));
    let standing = Kind::ALL.into_iter().filter(|kind| kind.class() == Class::Standing);
    let _full: Vec<Reservation> = standing.map(|kind| fill(&budget, kind)).collect();
    assert_eq!(budget.granted_bytes(), 32 * MIB);
    let kept_bytes = 2 * ARRIVAL_ROOM_BYTES;
    assert_eq!(fill(&budget, Kind::Bodies).bytes(), 24 * MIB - kept_bytes, "I5");
}

#[test]
fn full_kinds_leave_a_sixteenth_to_connections_and_handshakes() {
    for last in [Kind::Connections, Kind::Handshakes] {
        let budget = Arc::new(BufferBudget::new(64 * MIB));
        let others = Kind::ALL.into_iter().filter(|kind| !kind.arrives());
        let full: Vec<Reservation> =
            others.filter(|kind| *kind != Kind::Small).map(|kind| fill(&budget, kind)).collect();
        assert_eq!(budget.granted_bytes(), 52 * MIB);
        assert_eq!(fill(&budget, last).bytes(), 4 * MIB, "I5");
        drop(full);
    }
}

#[test]
fn a_handshake_that_has_ended_becomes_a_connection_in_a_full_budget() {
    let budget = Arc::new(BufferBudget::new(64 * MIB));
    let mut ended = Reservation::try_new(&budget, Kind::Handshakes, 20 << 10).unwrap();
    let mut other = Reservation::try_new(&budget, Kind::Handshakes, 20 << 10).unwrap();
    let _bodies = fill(&budget, Kind::Bodies);
    let _replies = fill(&budget, Kind::Replies);
    let mut connections = fill(&budget, Kind::Connections);
    assert!(ended.try_turn_into(Kind::Connections, 8 << 10));
    assert_eq!(budget.kind_bytes(Kind::Handshakes), 20 << 10);
    assert_eq!(budget.kind_bytes(Kind::Connections), connections.bytes() + (8 << 10));
    // Only the part of connections themselves can refuse it.
    let part_bytes = budget.kind_limit_bytes(Kind::Connections);
    assert!(connections.try_grow_beside(part_bytes - (8 << 10)));
    assert!(!other.try_turn_into(Kind::Connections, 8 << 10));
    assert_eq!(other.bytes(), 20 << 10, "what was booked still is");
    drop((ended, other));
    assert_eq!(budget.kind_bytes(Kind::Handshakes), 0);
    assert_eq!(budget.kind_bytes(Kind::Connections), connections.bytes());
}

#[test]
fn clients_that_leave_no_room_for_connections_are_to_shrink() {
    let (budget, mut ledger) = ledger(64 * MIB);
    assert!(ledger.try_reserve(Kind::Bodies, 52 * MIB));
    assert_eq!(ledger.outgrown(), None);
    let mut connections = Reservation::try_new(&budget, Kind::Connections, 3 * MIB).unwrap();
    assert!(!ledger.try_reserve(Kind::Replies, MIB));
    assert_eq!(ledger.outgrown(), None);
    assert!(connections.try_resize(4 * MIB));
    assert_eq!(ledger.outgrown(), None, "no connection came that had no room");
    budget.note_refused_arrival();
    assert_eq!(ledger.outgrown(), Some(Outgrown::Arrivals), "I5");
    assert!(ledger.is_to_shrink(Outgrown::Arrivals, 1));
    ledger.release(Kind::Bodies, MIB);
    assert_eq!(ledger.outgrown(), None);
    drop(connections);

    // Small commands fill what large ones leave.
    let small_bytes = 13 * MIB - (96 << 10);
    ledger.force(Kind::Small, small_bytes);
    budget.note_refused_arrival();
    assert_eq!(ledger.outgrown(), Some(Outgrown::Arrivals), "I5");
    ledger.release(Kind::Small, small_bytes);

    // Nothing that clients could give back.
    ledger.release(Kind::Bodies, 51 * MIB);
    let _writes = Reservation::forced(&budget, Kind::Writes, 51 * MIB);
    let _connections = Reservation::try_new(&budget, Kind::Connections, 4 * MIB).unwrap();
    budget.note_refused_arrival();
    assert_eq!(ledger.outgrown(), None);
}

#[test]
fn names_of_kinds_are_labels_and_differ() {
    let names: std::collections::BTreeSet<&str> = Kind::ALL.map(Kind::name).into();
    assert_eq!(names.len(), Kind::COUNT);
    let is_label = |name: &&str| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
    assert!(names.iter().all(is_label));
}

#[test]
fn released_bytes_return_to_the_budget() {
    let (budget, mut ledger) = ledger(64 * MIB);
    assert!(ledger.try_reserve(Kind::Bodies, 40 * MIB));
    ledger.release(Kind::Bodies, 40 * MIB);
    assert!(budget.granted_bytes() <= 2 * GRANT_BYTES);
}

#[test]
fn books_that_change_move_bytes_between_kinds() {
    let (budget, mut ledger) = ledger(64 * MIB);
    let (mut books, mut held) = (Books::default(), Books::default());
    held.add(Kind::Bodies, MIB);
    ledger.rebook(&mut books, held);
    assert_eq!((books, ledger.used_bytes()), (held, MIB));
    held = Books::default();
    held.add(Kind::Replies, 3 * MIB);
    ledger.rebook(&mut books, held);
    assert_eq!((books.sum(), books.of(Kind::Bodies), ledger.used_bytes()), (3 * MIB, 0, 3 * MIB));
    assert!(budget.kind_bytes(Kind::Bodies) < 2 * GRANT_BYTES);
    assert_eq!(budget.kind_bytes(Kind::Replies), 3 * MIB);
}

#[test]
fn what_is_handed_over_stays_booked() {
    let (budget, mut first) = ledger(1600);
    let mut second = Ledger::new(Arc::clone(&budget));
    let (mut books, mut held) = (Books::default(), Books::default());
    held.add(Kind::Small, 900);
    first.rebook(&mut books, held);
    let on_its_way = first.part_with_books(books);
    assert!(!second.try_reserve(Kind::Small, 101));
    on_its_way.into_iter().for_each(|booked| second.take_over(booked));
    assert_eq!((first.used_bytes(), second.used_bytes()), (0, 900));
    drop(first);
    assert_eq!(budget.granted_bytes(), 900);
    drop(second.part_with_books(books));
    assert_eq!(budget.granted_bytes(), 0, "a connection that is lost on its way");
}

#[test]
fn owed_replies_go_past_the_budget_and_show() {
    let (budget, mut ledger) = ledger(1000);
    ledger.force(Kind::Replies, 1500);
    assert!(ledger.is_over() && ledger.is_over_in(Kind::Replies));
    assert!(!ledger.try_reserve(Kind::Small, 1));
    ledger.release(Kind::Replies, 1500);
    drop(ledger);
    assert_eq!(budget.granted_bytes(), 0);
}

#[test]
fn a_lower_limit_refuses_until_enough_was_released() {
    let (budget, mut ledger) = ledger(1600);
    assert!(ledger.try_reserve(Kind::Small, 900));
    budget.set_limits(800, 0);
    assert!(ledger.is_over() && !ledger.try_reserve(Kind::Small, 101));
    assert_eq!(budget.kind_limit_bytes(Kind::Small), 500);
    drop(ledger);
    let mut ledger = Ledger::new(Arc::clone(&budget));
    assert!(ledger.try_reserve(Kind::Small, 500) && !ledger.is_over());
    assert!(!ledger.try_reserve(Kind::Small, 1), "a kind's part follows the limit");
}

#[test]
fn replies_that_fill_everything_do_not_keep_users_from_being_changed() {
    let (budget, mut ledger) = ledger(6400);
    ledger.force(Kind::Replies, 7000);
    let mut users = Reservation::empty(&budget, Kind::Acl);
    assert!(!users.try_resize(1));
    assert!(users.try_grow_beside(800));
    assert!(!users.try_grow_beside(801), "their own part is an eighth");
    assert_eq!(budget.granted_bytes(), 7800, "and counts");
}

#[test]
fn the_oldest_reply_goes_past_its_part_once() {
    let budget = Arc::new(BufferBudget::new(64 * MIB));
    let all = fill(&budget, Kind::Replies);
    let oldest = Reservation::past(&budget, Kind::Replies, MIB).unwrap();
    assert!(Reservation::past(&budget, Kind::Replies, 1).is_none(), "one at a time");
    drop(oldest);
    assert!(Reservation::past(&budget, Kind::Replies, 1).is_some());
    drop(all);
    assert_eq!(budget.granted_bytes(), 0);
}

#[test]
fn one_alone_goes_past_its_part_and_no_second_one_does() {
    let budget = Arc::new(BufferBudget::new(16 * MIB));
    let mut first = Reservation::empty(&budget, Kind::Writes);
    let mut second = Reservation::empty(&budget, Kind::Writes);
    let all = fill(&budget, Kind::Bodies);
    assert!(Reservation::could_take(&budget, Kind::Writes, 10 * MIB));
    assert!(first.try_grow_or_alone(10 * MIB), "whatever others hold");
    drop(all);
    assert_eq!((budget.granted_bytes(), budget.kind_bytes(Kind::Writes)), (10 * MIB, 10 * MIB));
    assert!(!Reservation::could_take(&budget, Kind::Writes, 1));
    assert!(!second.try_grow_or_alone(1));
    assert!(first.try_resize(MIB) && second.try_grow_or_alone(MIB));
    assert!(!second.try_grow_or_alone(2 * MIB), "the part is 2.5 MiB");
    drop((first, second));
    assert!(budget.counts(Kind::Writes).all(|(count, _)| count.load(Ordering::Relaxed) == 0));
}

#[test]
fn what_grows_towards_an_amount_keeps_what_is_free_and_goes_past_its_part_by_the_last_of_it() {
    let budget = Arc::new(BufferBudget::new(16 * MIB));
    let part_bytes = budget.kind_limit_bytes(Kind::Writes);
    let others = Reservation::try_new(&budget, Kind::Writes, MIB).unwrap();
    let mut group = Reservation::empty(&budget, Kind::Writes);
    assert!(!group.grow_towards(part_bytes + MIB, MIB), "the others have a part of it");
    assert!(group.bytes() > part_bytes - 2 * MIB, "{} are kept", group.bytes());
    drop(others);
    assert!(group.grow_towards(part_bytes + MIB, MIB));
    let mut second = Reservation::empty(&budget, Kind::Writes);
    assert!(!second.grow_towards(1, MIB), "the part is exceeded by one at a time");
    assert_eq!(budget.kind_bytes(Kind::Writes), part_bytes + MIB);
    drop((group, second));
    assert_eq!(budget.booked_bytes(), 0);
}

#[test]
fn what_lands_has_its_part_whatever_clients_hold() {
    let budget = Arc::new(BufferBudget::new(0));
    budget.set_limits(48 * MIB, 16 * MIB);
    let all: Vec<Reservation> = Kind::ALL.into_iter().map(|kind| fill(&budget, kind)).collect();
    assert_eq!((budget.granted_bytes(), budget.kind_bytes(Kind::Landing)), (48 * MIB, 16 * MIB));
    assert_eq!(budget.booked_bytes(), 64 * MIB);
    drop(all);
    let landing = fill(&budget, Kind::Landing);
    assert_eq!(fill(&budget, Kind::Replies).bytes(), 36 * MIB, "nor does it take theirs");
    drop(landing);
    assert_eq!(budget.booked_bytes(), 0);
}
