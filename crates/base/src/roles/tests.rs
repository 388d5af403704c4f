//! Tests of plans, and of the state machine that takes them up.

use super::*;

fn plan(epoch: u64, threads: usize, dispatchers: usize) -> RolePlan {
    RolePlan::new(epoch, threads, dispatchers, Executing::Others).expect("a plan that fits")
}

/// By thread, of five: `F` polls, `B` executes, `A` does both, `.` neither.
#[track_caller]
fn check_roles(plan: &RolePlan, want: &str) {
    let role = |thread| match (plan.is_dispatcher(thread), plan.is_executor(thread)) {
        (true, true) => 'A',
        (true, false) => 'F',
        (false, true) => 'B',
        (false, false) => '.',
    };
    assert_eq!((0..want.len()).map(role).collect::<String>(), want);
    let (cr, both, mr) = plan.role_counts();
    assert_eq!(cr + both + mr, plan.threads);
}

#[test]
fn roles_follow_from_two_numbers() {
    check_roles(&plan(1, 4, 1), "FBBB.");
    check_roles(&plan(1, 4, 4), "AAAA.");
    check_roles(&plan(1, 5, 3), "FFFBB");
    check_roles(&plan(1, 1, 1), "A....");
    check_roles(&RolePlan::new(1, 4, 2, Executing::All).unwrap(), "AABB.");
    assert_eq!(plan(1, 5, 3).thread_of(1), 4);
    assert_eq!(plan(1, 5, 3).role_counts(), (3, 0, 2));
    assert_eq!(plan(1, 5, 5).role_counts(), (0, 5, 0));
}

#[test]
fn a_plan_without_a_dispatcher_is_none() {
    for (threads, dispatchers) in [(4, 0), (4, 5), (0, 0)] {
        assert_eq!(RolePlan::new(1, threads, dispatchers, Executing::Others), None);
    }
}

const BUSY: Facts = Facts { is_drained: false, is_settled: false, is_stopping: false };
const DRAINED: Facts = Facts { is_drained: true, ..BUSY };
const SETTLED: Facts = Facts { is_drained: true, is_settled: true, is_stopping: false };
const STOPPING: Facts = Facts { is_stopping: true, ..BUSY };

/// Checks the steps of a thread that began with plan 0, given (the latest plan, facts).
#[track_caller]
fn check(events: &[(RolePlan, Facts, Step)]) {
    let mut member = Member::new(plan(0, 4, 4));
    for (latest, facts, want) in events {
        assert_eq!(member.step(latest, *facts), *want, "{latest:?} {facts:?}");
    }
}

#[test]
fn a_thread_parks_drains_takes_up_and_settles() {
    let (old, new) = (plan(0, 4, 4), plan(1, 4, 1));
    check(&[
        (old, SETTLED, Step::Rest),
        (new, BUSY, Step::Park),
        (new, BUSY, Step::Rest),
        (new, DRAINED, Step::TakeUp(new)),
        (new, DRAINED, Step::Rest),
        (new, SETTLED, Step::Settle),
        (new, SETTLED, Step::Rest),
    ]);
}

#[test]
fn a_parked_thread_takes_up_the_plan_that_is_the_latest_then() {
    let (first, second) = (plan(1, 4, 1), plan(2, 3, 3));
    check(&[
        (first, BUSY, Step::Park),
        (second, BUSY, Step::Rest),
        (second, DRAINED, Step::TakeUp(second)),
        (first, SETTLED, Step::Settle),
    ]);
}

#[test]
fn a_thread_that_has_not_settled_parks_for_the_next_plan() {
    let (first, second) = (plan(1, 4, 1), plan(2, 3, 3));
    check(&[
        (first, DRAINED, Step::Park),
        (first, DRAINED, Step::TakeUp(first)),
        (second, SETTLED, Step::Park),
        (second, DRAINED, Step::TakeUp(second)),
        (second, SETTLED, Step::Settle),
    ]);
}

#[test]
fn a_server_that_stops_keeps_its_roles() {
    let (first, second) = (plan(1, 4, 1), plan(2, 3, 3));
    check(&[
        (first, BUSY, Step::Park),
        (second, STOPPING, Step::GoOn),
        (second, Facts { is_drained: true, ..STOPPING }, Step::Rest),
    ]);
}

#[test]
fn a_publication_is_settled_by_its_last_acknowledgement() {
    let publication = Publication::new(plan(1, 2, 1), 3);
    assert!(!publication.acknowledge());
    assert!(!publication.acknowledge());
    assert!(!publication.is_settled());
    assert!(publication.acknowledge());
    assert!(publication.is_settled());
}

#[test]
fn nothing_leaves_a_server_that_has_stopped() {
    let transit = Transit::new();
    assert!(transit.try_begin());
    transit.stop();
    assert!(!transit.is_over());
    assert!(!transit.try_begin());
    transit.end();
    assert!(transit.is_over());
}

/// A number below `end`; another sequence for each seed.
fn draw(state: &mut u64, end: u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    ((*state >> 33) % end) as usize
}

/// Any number of threads under any sequence of plans: each drains before it takes a plan up, and
/// settles after all have acknowledged; in the end all are in the last plan.
#[test]
fn all_threads_end_in_the_last_plan() {
    for seed in 0..500 {
        let mut state = seed;
        let begin = plan(0, 4, 4);
        let mut members: Vec<Member> = (0..4).map(|_| Member::new(begin)).collect();
        let mut publications = vec![Publication::new(begin, 0)];
        for turn in 0..200 {
            let is_ending = turn >= 180;
            if !is_ending && draw(&mut state, 4) == 0 {
                let threads = 1 + draw(&mut state, 4);
                let dispatchers = 1 + draw(&mut state, threads as u64);
                let next = plan(publications.len() as u64, threads, dispatchers);
                publications.push(Publication::new(next, 4));
            }
            let latest = *publications[publications.len() - 1].plan();
            let thread = if is_ending { turn % 4 } else { draw(&mut state, 4) };
            let member = &mut members[thread];
            let taken = &publications[member.plan().epoch as usize];
            let is_drained = is_ending || draw(&mut state, 2) == 0;
            let facts = Facts { is_drained, is_settled: taken.is_settled(), is_stopping: false };
            match member.step(&latest, facts) {
                Step::TakeUp(up) => {
                    assert!(is_drained, "I1");
                    publications[up.epoch as usize].acknowledge();
                }
                Step::Settle => {
                    let epoch = member.plan().epoch;
                    assert!(members.iter().all(|other| other.plan().epoch >= epoch), "I3");
                }
                Step::GoOn => panic!("nothing stops here"),
                Step::Park | Step::Rest => {}
            }
        }
        for member in &members {
            assert_eq!(member.plan(), publications[publications.len() - 1].plan());
            assert!(!member.is_moving());
        }
    }
}
