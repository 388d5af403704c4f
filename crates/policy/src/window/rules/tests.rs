//! Tests of the rules as tables: the published model's four cases, and C-4's text.

use super::*;

const NOW: Instant = Instant { ns: 1_000 };

#[track_caller]
fn check_write(rules: WindowRules, open: bool, dependent: Option<Dependent>, want: WriteStep) {
    let window = rules.open(NOW);
    let open = open.then_some(&window);
    // A queued write depends under both rules, a queued read only under `Any`.
    let has_dependent = |asked| match dependent {
        Some(Dependent::Writes) => true,
        Some(Dependent::Any) => asked == Dependent::Any,
        None => false,
    };
    assert_eq!(rules.on_write(open, has_dependent), want);
}

#[test]
fn a_write_alone_runs_at_once() {
    check_write(WindowRules::honest(700, 10).held_for(0), false, None, WriteStep::RunNow);
    check_write(WindowRules::artifact(), false, None, WriteStep::RunNow);
}

#[test]
fn a_queued_write_of_the_key_opens_a_window() {
    let queued = Some(Dependent::Writes);
    check_write(WindowRules::honest(700, 10).held_for(0), false, queued, WriteStep::Open);
    check_write(WindowRules::artifact(), false, queued, WriteStep::Open);
}

#[test]
fn a_queued_read_opens_a_window_only_in_the_published_model() {
    let queued = Some(Dependent::Any);
    check_write(WindowRules::honest(700, 10).held_for(0), false, queued, WriteStep::RunNow);
    check_write(WindowRules::artifact(), false, queued, WriteStep::Open);
}

#[test]
fn a_write_joins_the_open_window_without_a_look_at_the_queue() {
    let rules = WindowRules::honest(700, 10).held_for(0);
    let window = rules.open(NOW);
    let step = rules.on_write(Some(&window), |_| panic!("the queue was searched"));
    assert_eq!(step, WriteStep::Join);
}

#[track_caller]
fn check_join(rules: WindowRules, after_ns: u64, in_sight: InSight, want: Option<CloseReason>) {
    let mut window = rules.open(NOW);
    rules.join(&mut window);
    let now = Instant { ns: NOW.ns + after_ns };
    assert_eq!(rules.after_join(now, &window, |_| in_sight), want);
}

#[test]
fn the_published_model_closes_900_ns_before_6000() {
    let rules = WindowRules::artifact();
    check_join(rules, 5_099, InSight::SameKey, None);
    check_join(rules, 5_100, InSight::SameKey, Some(CloseReason::Deadline));
}

#[test]
fn the_published_model_closes_when_the_key_is_drained() {
    let rules = WindowRules::artifact();
    check_join(rules, 100, InSight::OtherKeys, Some(CloseReason::Early));
    check_join(rules, 100, InSight::Nothing, Some(CloseReason::Early));
}

#[test]
fn the_published_model_never_looks_at_a_window_by_itself() {
    let rules = WindowRules::artifact();
    assert!(!rules.on_time(Instant { ns: 1 << 40 }, &rules.open(NOW)));
}

#[test]
fn the_deadline_is_the_mean_service_time_times_one_less_than_the_slo() {
    let rules = WindowRules::honest(700, 10).held_for(0);
    let window = rules.open(NOW);
    assert_eq!(window.deadline, Instant { ns: NOW.ns + 6_300 });
    assert_eq!(rules.closes_at(&window), Instant { ns: NOW.ns + 5_600 });
}

#[test]
fn the_timer_rings_exactly_at_closes_at() {
    for rules in [WindowRules::honest(700, 10).held_for(0), WindowRules::honest(50, 2).held_for(0)]
    {
        let window = rules.open(NOW);
        let at = rules.closes_at(&window);
        assert!(rules.on_time(at, &window));
        assert!(at == NOW || !rules.on_time(Instant { ns: at.ns - 1 }, &window));
    }
}

#[test]
fn each_early_rule_closes_on_its_own_sight() {
    let rules = |close| WindowRules { close, ..WindowRules::honest(700, 10).held_for(0) };
    let early = Some(CloseReason::Early);
    for (close, same_key, other_keys, nothing) in [
        (CloseWhen::Deadline, None, None, None),
        (CloseWhen::KeyDrained, None, early, early),
        (CloseWhen::QueueEmpty, None, None, early),
    ] {
        check_join(rules(close), 100, InSight::SameKey, same_key);
        check_join(rules(close), 100, InSight::OtherKeys, other_keys);
        check_join(rules(close), 100, InSight::Nothing, nothing);
    }
}

#[test]
fn a_held_window_closes_early_only_after_its_hold() {
    let rules = WindowRules::honest(700, 10).held_for(2_100);
    check_join(rules, 2_099, InSight::Nothing, None);
    check_join(rules, 2_100, InSight::Nothing, Some(CloseReason::Early));
    check_join(rules, 2_100, InSight::SameKey, None);
    let window = rules.open(NOW);
    assert_eq!(rules.looks_at(&window), Instant { ns: NOW.ns + 2_100 });
    assert_eq!(rules.closes_at(&window), Instant { ns: NOW.ns + 5_600 });
}

#[test]
fn a_hold_beyond_the_deadline_is_the_deadline() {
    let rules = WindowRules::honest(700, 10).held_for(1_000_000);
    check_join(rules, 5_600, InSight::Nothing, Some(CloseReason::Deadline));
    let window = rules.open(NOW);
    assert_eq!(rules.looks_at(&window), rules.closes_at(&window));
}

#[test]
fn a_full_window_closes_whatever_is_queued() {
    let rules = WindowRules { batch_max: 2, ..WindowRules::honest(700, 10).held_for(0) };
    check_join(rules, 0, InSight::SameKey, Some(CloseReason::Full));
}
