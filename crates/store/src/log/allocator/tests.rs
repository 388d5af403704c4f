//! Tests of the segment table alone.

use super::super::table::{Aim, Contents, Found, Queue, Reason, Search, Then, Victim};
use super::*;
use base::UnixMillis;

fn take_used(allocator: &mut Allocator, run_len: u32) -> u32 {
    let segment = allocator.take(run_len, Purpose::Write, 0).expect("the test leaves room");
    let used_bytes = 100 * u64::from(run_len);
    let latest_expiry_ms = crate::log::table::NEVER_MS;
    allocator.table.close(segment, Contents { used_bytes, latest_expiry_ms, is_long: false });
    segment
}

const TURN: Aim = Aim { copy_below_pct: 0, then: Then::Turn };

fn sparsest(below_pct: u64) -> Aim {
    Aim { copy_below_pct: 0, then: Then::Sparsest { below_pct, segment_bytes: 100 } }
}

fn claim(allocator: &mut Allocator, aim: Aim, live_bytes: impl Fn(u32) -> u64) -> Option<Victim> {
    Search::all(&mut allocator.table, aim, UnixMillis(10), live_bytes)
}

fn free_now(allocator: &mut Allocator, victim: Victim) {
    allocator.retire(victim.segment, 1);
    assert!(!allocator.free_waiting(|_| true, |_| false));
    allocator.validate();
}

#[test]
fn segments_are_taken_from_the_bottom_and_reused_there() {
    let mut allocator = Allocator::new(Regions::one(8));
    assert_eq!([0, 1, 2].map(|_| take_used(&mut allocator, 1)), [0, 1, 2]);
    let oldest = claim(&mut allocator, TURN, |_| 1).unwrap();
    assert_eq!(oldest.segment, 0);
    free_now(&mut allocator, oldest);
    assert_eq!(take_used(&mut allocator, 1), 0);
    assert_eq!(
        claim(&mut allocator, TURN, |_| 1).unwrap().segment,
        1,
        "age, not position, is what counts"
    );
}

#[test]
fn writes_leave_the_reserve_to_sessions_that_make_room() {
    let mut allocator = Allocator::new(Regions::one(8));
    allocator.set_reserve(Reserve { segments: 2, lent_max: 1, deletes_max: 0 });
    for _ in 0..6 {
        take_used(&mut allocator, 1);
    }
    assert_eq!(allocator.take(1, Purpose::Write, 0), None);
    assert!(allocator.take(1, Purpose::Ahead, 0).is_some());
    assert_eq!(allocator.take(1, Purpose::Ahead, 0), None, "one is lent");
    assert!(allocator.take(1, Purpose::Reserve, 0).is_some());
}

#[test]
fn a_run_is_contiguous_and_freed_as_one() {
    let mut allocator = Allocator::new(Regions::one(8));
    take_used(&mut allocator, 1);
    let run = take_used(&mut allocator, 3);
    assert_eq!((run, allocator.table.free_count()), (1, 4));
    assert_eq!(allocator.take(5, Purpose::Write, 0), None);
    let victim = claim(&mut allocator, sparsest(75), |segment| u64::from(segment != run)).unwrap();
    assert_eq!(victim.segment, run);
    free_now(&mut allocator, victim);
    assert_eq!(allocator.table.free_count(), 7);
}

#[test]
fn cleaning_takes_the_sparsest_below_the_limit_and_never_a_live_run() {
    let mut allocator = Allocator::new(Regions::one(8));
    for _ in 0..3 {
        take_used(&mut allocator, 1);
    }
    take_used(&mut allocator, 2);
    let live = |segment: u32| [90, 60, 80, 50][segment as usize];
    let first = claim(&mut allocator, sparsest(75), live).unwrap().segment;
    assert_eq!(first, 1, "the run is sparser, but live, and does not stand in the way");
    assert_eq!(claim(&mut allocator, sparsest(75), live), None);
    assert_eq!(claim(&mut allocator, sparsest(85), live).unwrap().segment, 2);
}

#[test]
fn a_window_for_a_run_is_emptied_where_that_is_cheapest() {
    let mut allocator = Allocator::new(Regions::one(6));
    for _ in 0..6 {
        take_used(&mut allocator, 1);
    }
    let cost = |segment: u32, _| Some([9, 9, 1, 1, 9, 9][segment as usize]);
    let mut claimed = Vec::new();
    while allocator.take(2, Purpose::Write, 0).is_none() {
        let victim = allocator.table.claim_in_window(2, cost).unwrap();
        claimed.push(victim.segment);
        free_now(&mut allocator, victim);
    }
    assert_eq!(claimed, [2, 3]);
}

#[test]
fn a_run_that_sticks_into_the_window_is_reclaimed_whole() {
    let mut allocator = Allocator::new(Regions::one(6));
    let run = take_used(&mut allocator, 4);
    take_used(&mut allocator, 1);
    let open = allocator.take(1, Purpose::Write, 0).unwrap();
    assert_eq!(open, 5);
    let victim = allocator.table.claim_in_window(2, |_, sequence| Some(sequence)).unwrap();
    assert_eq!(victim.segment, run);
    free_now(&mut allocator, victim);
    assert!(allocator.take(2, Purpose::Write, 0).is_some());
}

#[test]
fn a_window_keeps_clear_of_what_cannot_be_emptied() {
    let mut allocator = Allocator::new(Regions::one(12));
    take_used(&mut allocator, 3);
    let open = allocator.take(1, Purpose::Write, 0).unwrap();
    assert_eq!(open, 3);
    take_used(&mut allocator, 3);
    for _ in 7..12 {
        take_used(&mut allocator, 1);
    }
    // Segments: 0-2 a run, 3 open, 4-6 a run, 7 to 11 single, of which 9 is pinned.
    let cost = |segment: u32, _| [5, 0, 0, 0, 3, 0, 0, 1, 1, 0, 1, 1][segment as usize].into();
    let unless_pinned =
        |segment, sequence| if segment == 9 { None } else { cost(segment, sequence) };
    assert_eq!(allocator.table.cheapest_window(2, unless_pinned), Some(7));
    assert_eq!(allocator.table.cheapest_window(3, unless_pinned), Some(4), "not half of the run");
    assert_eq!(allocator.table.cheapest_window(4, unless_pinned), Some(4));
    assert_eq!(allocator.table.cheapest_window(5, unless_pinned), Some(4));
    assert_eq!(allocator.table.cheapest_window(6, unless_pinned), None);
    assert_eq!(allocator.table.cheapest_window(13, unless_pinned), None, "longer than the log");
}

const NEVER: u64 = crate::log::table::NEVER_MS;

fn take_queued(allocator: &mut Allocator, queue: Queue, latest_expiry_ms: u64) -> u32 {
    let segment = allocator.take(1, Purpose::Write, 0).expect("the test leaves room");
    allocator.table.set_queue(segment, queue);
    allocator.table.close(segment, Contents { used_bytes: 100, latest_expiry_ms, is_long: false });
    segment
}

#[test]
fn dead_space_is_claimed_where_least_is_alive() {
    let mut allocator = Allocator::new(Regions::one(8));
    for expiry in [NEVER, NEVER, NEVER, 50, 10] {
        take_queued(&mut allocator, Queue::Main, expiry);
    }
    let live = |segment: u32| [60, 49, 0, 90, 100][segment as usize];
    let mut claimed = Vec::new();
    let aim = Aim { copy_below_pct: 50, ..TURN };
    let turn = loop {
        match claim(&mut allocator, aim, live).expect("five segments are used") {
            victim if victim.reason == Reason::DeadSpace => claimed.push(victim.segment),
            victim => break victim,
        }
    };
    assert_eq!(turn.segment, 0, "then the oldest has its turn");
    assert_eq!(claimed, [2, 4, 1], "dead, then expired, then sparse; others have too much alive");
}

#[test]
fn the_small_queue_gives_up_segments_while_it_has_more_than_its_share() {
    let mut allocator = Allocator::new(Regions::one(32));
    let small = [0, 1].map(|_| take_queued(&mut allocator, Queue::Small, NEVER));
    let main: Vec<u32> = (0..12).map(|_| take_queued(&mut allocator, Queue::Main, NEVER)).collect();
    let mut live = [100_u64; 32];
    let mut turn = |live: &[u64; 32]| {
        let victim = claim(&mut allocator, TURN, |at| live[at as usize]).unwrap();
        (victim.segment, victim.queue)
    };
    assert_eq!(turn(&live), (small[0], Queue::Small), "2 of 14");
    live[small[0] as usize] = 0;
    assert_eq!(turn(&live), (main[0], Queue::Main), "1 of 13");
    live[main[0] as usize] = 0;
    // Not quite dead: a dead segment would be taken first, whatever its queue.
    live[main[1] as usize] = 1;
    live[main[2] as usize] = 1;
    assert_eq!(turn(&live), (main[1], Queue::Main), "1 of 10 is the share");
    live[main[3] as usize] = 1;
    assert_eq!(turn(&live), (small[1], Queue::Small), "1 of 9");
    assert_eq!(turn(&live), (main[2], Queue::Main), "none is left");
}

/// A table of used segments.
fn large_table(segment_count: u32) -> Allocator {
    let mut allocator = Allocator::new(Regions::one(segment_count));
    for _ in 0..segment_count {
        take_used(&mut allocator, 1);
    }
    allocator
}

#[test]
#[cfg_attr(miri, ignore = "many steps of safe code")]
fn a_step_of_a_search_looks_at_a_bounded_number_of_rows_in_a_log_of_any_size() {
    let mut allocator = large_table(20_000);
    let (mut search, mut steps) = (Search::new(TURN), 0);
    let victim = loop {
        let looked_at = std::cell::Cell::new(0);
        let live_bytes = |segment| {
            looked_at.set(looked_at.get() + 1);
            u64::from(segment != 17_000)
        };
        let found = search.step(&mut allocator.table, UnixMillis(10), live_bytes);
        assert!(looked_at.get() <= 1024, "{} rows in a step", looked_at.get());
        steps += 1;
        match found {
            Found::NotYet => {}
            Found::Victim(victim) => break victim,
            Found::Nothing => panic!("all segments are used"),
        }
    };
    assert_eq!((victim.segment, steps), (17_000, 20), "as one pass would have found");
}

#[test]
#[cfg_attr(miri, ignore = "many steps of safe code")]
fn a_search_whose_find_was_taken_meanwhile_starts_anew() {
    let mut allocator = large_table(2_000);
    let mut search = Search::new(TURN);
    assert_eq!(search.step(&mut allocator.table, UnixMillis(10), |_| 1), Found::NotYet);
    // Another session claims the oldest, empties it and fills it again.
    let other = claim(&mut allocator, TURN, |_| 1).unwrap();
    assert_eq!(other.segment, 0);
    free_now(&mut allocator, other);
    assert_eq!(take_used(&mut allocator, 1), 0);
    assert_eq!(search.step(&mut allocator.table, UnixMillis(10), |_| 1), Found::NotYet);
    assert_eq!(search.step(&mut allocator.table, UnixMillis(10), |_| 1), Found::NotYet);
    match search.step(&mut allocator.table, UnixMillis(10), |_| 1) {
        Found::Victim(victim) => assert_eq!(victim.segment, 1),
        found => panic!("{found:?}"),
    }
}

/// Six segments for each of two nodes.
fn on_two_nodes() -> Allocator {
    use index::placement::NodeShare;
    let nodes = [0, 1].map(|node_id| NodeShare { node_id, weight: 1 });
    Allocator::new(Regions::divide(12, 4 << 20, &nodes))
}

#[test]
fn a_session_takes_from_its_own_region_and_then_anywhere() {
    let mut allocator = on_two_nodes();
    let mut take = |region, run_len| allocator.take(run_len, Purpose::Write, region).unwrap();
    assert_eq!([0, 1, 0, 1].map(|region| take(region, 1)), [0, 6, 1, 7]);
    assert_eq!(take(1, 4), 8);
    assert_eq!(take(1, 1), 2, "its own region is full");
    assert_eq!(take(0, 3), 3);
    assert_eq!(allocator.take(1, Purpose::Write, 0), None);
    allocator.validate();
}

#[test]
fn a_run_that_no_region_holds_may_lie_across_their_border() {
    let mut allocator = on_two_nodes();
    assert_eq!(allocator.take(8, Purpose::Write, 1), Some(0));
}

#[test]
fn the_index_borrows_from_the_regions_in_turn() {
    let mut allocator = on_two_nodes();
    allocator.set_lending(12, 6);
    assert_eq!([(); 4].map(|()| allocator.lend().unwrap()), [5, 11, 4, 10]);
    assert_eq!([0, 1].map(|region| allocator.next_lent(region)), [Some(3), Some(9)]);
    assert_eq!(allocator.take(4, Purpose::Write, 0), Some(0));
    assert_eq!([(); 2].map(|()| allocator.lend().unwrap()), [9, 8], "the first has none left");
    allocator.validate();
}

#[test]
fn segments_that_the_index_cannot_name_are_not_lent() {
    let mut allocator = on_two_nodes();
    allocator.set_lending(5, 6);
    assert_eq!([(); 2].map(|()| allocator.lend()), [Some(4), Some(3)]);
    assert_eq!(allocator.next_lent(1), None);
}

#[test]
fn a_smaller_log_parks_what_is_free_and_then_what_comes_free() {
    let mut allocator = Allocator::new(Regions::one(16));
    allocator.set_reserve(Reserve { segments: 2, lent_max: 0, deletes_max: 0 });
    for _ in 0..10 {
        take_used(&mut allocator, 1);
    }
    allocator.resize(8, 1);
    allocator.validate();
    assert_eq!((allocator.usable_count(), allocator.unparked_count()), (8, 13));
    assert_eq!((allocator.available(Purpose::Write), allocator.shortage()), (1, 5));
    for _ in 0..5 {
        let victim = claim(&mut allocator, TURN, |_| 1).unwrap();
        free_now(&mut allocator, victim);
    }
    assert_eq!((allocator.unparked_count(), allocator.shortage()), (8, 0));
    allocator.resize(16, 1);
    allocator.validate();
    assert_eq!((allocator.unparked_count(), allocator.available(Purpose::Write)), (16, 9));
}

#[test]
fn parked_segments_gather_at_the_top_as_others_come_free() {
    let mut allocator = Allocator::new(Regions::one(8));
    for _ in 0..8 {
        take_used(&mut allocator, 1);
    }
    allocator.resize(4, 0);
    // The oldest four lie at the bottom and are parked first.
    for _ in 0..4 {
        let victim = claim(&mut allocator, TURN, |_| 1).unwrap();
        free_now(&mut allocator, victim);
    }
    assert_eq!((allocator.shortage(), allocator.table.top()), (0, 8));
    for _ in 0..4 {
        let victim = claim(&mut allocator, TURN, |_| 1).unwrap();
        free_now(&mut allocator, victim);
    }
    assert_eq!(allocator.table.top(), 4);
    assert_eq!(allocator.take(4, Purpose::Reserve, 0), Some(0), "a run is found below");
}

#[test]
fn a_parked_segment_is_discarded_once_and_not_reused_meanwhile() {
    let mut allocator = Allocator::new(Regions::one(4));
    for _ in 0..4 {
        take_used(&mut allocator, 1);
    }
    while allocator.next_chore(1).is_some() {}
    allocator.resize(2, 0);
    for _ in 0..2 {
        let victim = claim(&mut allocator, TURN, |_| 1).unwrap();
        free_now(&mut allocator, victim);
    }
    assert_eq!(allocator.next_chore(0), Some(Chore::Discard(0)));
    allocator.resize(4, 0);
    assert_eq!(allocator.take(2, Purpose::Reserve, 0), None, "segment 0 is not free yet");
    assert_eq!(allocator.take(1, Purpose::Reserve, 0), Some(1), "resident, and used as it is");
    allocator.end_discard(0);
    assert_eq!(allocator.next_chore(0), None);
    assert_eq!(allocator.next_chore(1), Some(Chore::Populate(0)));
    allocator.validate();
}

#[test]
fn a_run_that_is_made_room_for_is_left_to_its_write() {
    let mut allocator = Allocator::new(Regions::one(16));
    allocator.resize(4, 1);
    assert_eq!(allocator.available(Purpose::Write), 4);
    for _ in 0..4 {
        take_used(&mut allocator, 1);
    }
    allocator.resize(1, 1);
    allocator.want_run(3);
    for _ in 0..4 {
        let victim = claim(&mut allocator, TURN, |_| 1).unwrap();
        free_now(&mut allocator, victim);
    }
    assert_eq!(allocator.take(3, Purpose::Write, 0), Some(0));
    allocator.end_want_run(3);
}

#[test]
fn what_is_kept_for_a_session_is_taken_by_it_alone_and_else_free_again() {
    let mut allocator = Allocator::new(Regions::one(18));
    allocator.set_reserve(Reserve { segments: 2, lent_max: 0, deletes_max: 0 });
    let mut keep = |place, run_len| allocator.keep((place, Purpose::Write), run_len, 0);
    assert!(keep(1, 4) && keep(1, 2) && keep(2, 3));
    assert!(!keep(2, 1), "P2");
    assert_eq!(allocator.take(6, Purpose::Write, 0), Some(9));
    // One is left besides the reserve.
    assert_eq!(allocator.take(2, Purpose::Write, 0), None);
    // The shortest run that is long enough, cut to the length.
    assert_eq!(allocator.take(2, Purpose::Held(1), 0), Some(4));
    assert_eq!(allocator.take(1, Purpose::Held(1), 0), Some(0));
    allocator.resize(15, 0);
    assert_eq!(allocator.take(3, Purpose::Held(1), 0), Some(1), "what is kept is not parked");
    assert_eq!(allocator.take(3, Purpose::Held(2), 0), Some(6));
    allocator.give_back(6);
    assert!(allocator.keep((2, Purpose::Write), 1, 0));
    allocator.end_keep(1);
    allocator.end_keep(2);
    for (segment, run_len) in [(4, 2), (0, 1), (1, 3), (9, 6)] {
        assert_eq!(allocator.table.run_len(segment), run_len);
        allocator.give_back(segment);
    }
    allocator.validate();
    assert_eq!((allocator.table.free_count(), allocator.shortage()), (15, 0));
}

/// However long the log has been in use, and although the new entries are shorter than the old
/// ones.
#[test]
fn new_long_entries_take_the_places_of_the_oldest_and_not_of_each_other() {
    let mut allocator = Allocator::new(Regions::one(20));
    for _ in 0..10_000 {
        let segment = take_used(&mut allocator, 1);
        let victim = allocator.table.claim_in_window(1, |_, _| Some(0)).unwrap();
        assert_eq!(victim.segment, segment);
        free_now(&mut allocator, victim);
    }
    for _ in 0..4 {
        take_used(&mut allocator, 5);
    }
    let mut taken = Vec::new();
    for _ in 0..4 {
        while !allocator.can_take(3, Purpose::Reserve) {
            let victim = allocator.table.claim_in_window(3, |_, age| Some(age)).unwrap();
            assert!(!taken.contains(&victim.segment), "the newest goes first");
            free_now(&mut allocator, victim);
        }
        taken.push(take_used(&mut allocator, 3));
    }
}

#[test]
fn a_long_entry_is_as_old_as_the_segments_in_its_place_would_be() {
    let mut allocator = Allocator::new(Regions::one(8));
    let olds: Vec<u32> = (0..4).map(|_| take_used(&mut allocator, 1)).collect();
    let long = take_used(&mut allocator, 4);
    let age = |_, sequence| Some(sequence);
    for _ in 0..4 {
        let victim = allocator.table.claim_in_window(4, age).unwrap();
        assert!(olds.contains(&victim.segment), "{} is the youngest", victim.segment);
        free_now(&mut allocator, victim);
    }
    let younger = take_used(&mut allocator, 4);
    assert_eq!(allocator.table.claim_in_window(4, age).unwrap().segment, long);
    assert_ne!(younger, long);
}

#[test]
fn a_segment_of_an_earlier_life_is_gone_on_in_unless_it_was_used_otherwise_meanwhile() {
    let mut allocator = Allocator::new(Regions::one(8));
    let mut restored = |used_bytes| {
        let segment = allocator.take(1, Purpose::Write, 0).expect("the test leaves room");
        allocator
            .table
            .close(segment, Contents { used_bytes, latest_expiry_ms: NEVER, is_long: false });
        segment
    };
    let [cleaned, fuller, emptier] = [90, 60, 10].map(&mut restored);
    [cleaned, fuller, emptier].into_iter().for_each(|segment| allocator.add_unfilled(segment));
    let from = (Queue::Main, 0);
    let take = |allocator: &mut Allocator, len_bytes| {
        let taken = allocator.take_unfilled((len_bytes, 100), from, |_| false);
        taken.map(|(segment, contents)| (segment, contents.used_bytes))
    };
    assert_eq!(take(&mut allocator, 91), None, "it fits nowhere");
    assert_eq!(take(&mut allocator, 90), Some((emptier, 10)));
    let contents = Contents { used_bytes: 100, latest_expiry_ms: NEVER, is_long: false };
    allocator.table.close(emptier, contents);
    assert!(allocator.table.sequence(emptier) > allocator.table.sequence(fuller), "U1");
    // Another one was emptied, and is used anew.
    let dead = |segment: u32| u64::from(segment != cleaned);
    let victim = claim(&mut allocator, sparsest(75), dead);
    let victim = victim.filter(|victim| victim.segment == cleaned).expect("nothing in it lives");
    free_now(&mut allocator, victim);
    assert_eq!(take_used(&mut allocator, 1), cleaned);
    assert_eq!(allocator.unfilled_count(), 2);
    let over = allocator.take_unfilled((10, 100), from, |segment| segment == fuller);
    assert!(over.is_none() && allocator.unfilled_count() == 0);
    allocator.validate();
}
