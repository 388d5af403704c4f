//! Tests of the server model of Minos Figs 3 to 10: bounds by hand, and the paper's claims.

use lab::minos::server::{
    CORES, Costs, LINK_BYTES_PER_NS, MinosVariant, Outcome, PACKET_HEADER_BYTES, Setup, System, run,
};
use workload::profile::Minos;

const SYSTEMS: [System; 6] = [
    System::Hkh,
    System::HkhStealing,
    System::Sho(1),
    System::Sho(2),
    System::Minos(MinosVariant::Paper),
    System::Minos(MinosVariant::LargeSteal),
];
const MINOS: System = System::Minos(MinosVariant::Paper);

fn outcome(system: System, workload: Minos, offered_mops: f64) -> Outcome {
    run(&Setup::steady(system, workload, offered_mops, 120_000))
}

fn p99_us(outcome: &Outcome) -> f64 {
    outcome.all.quantile(0.99) as f64 / 1000.0
}

#[test]
fn every_request_is_answered_once() {
    for system in SYSTEMS {
        let outcome = outcome(system, Minos::default(), 4.0);
        assert_eq!(outcome.core_requests.iter().sum::<u64>(), 120_000, "{system:?}");
        assert!(outcome.large.count() < outcome.all.count());
        // The first tenth of the time is warm-up.
        assert!((107_000..109_000).contains(&outcome.all.count()), "{}", outcome.all.count());
    }
}

#[test]
fn an_idle_server_answers_after_its_service_and_the_network() {
    let costs = Costs::default();
    let tiny_reply_ns = (PACKET_HEADER_BYTES + 1.0) / LINK_BYTES_PER_NS;
    let least_ns = costs.network_ns + costs.request_ns + costs.packet_ns + tiny_reply_ns;
    let outcome = outcome(System::Hkh, Minos::default(), 0.01);
    let p50_ns = outcome.all.quantile(0.5) as f64;
    assert!((least_ns..least_ns + 300.0).contains(&p50_ns), "{p50_ns} {least_ns}");
    // §5.4: "the mean service time is 5 µs".
    assert!((4.8..5.4).contains(&(outcome.all.mean() / 1000.0)), "{}", outcome.all.mean());
}

#[test]
fn no_system_sends_more_than_the_wire_carries() {
    for system in SYSTEMS {
        let outcome = outcome(system, Minos { large_requests_pct: 0.75, ..Minos::default() }, 4.0);
        assert!(outcome.link_share <= 1.0 + 1e-9, "{system:?}");
        assert!(!outcome.is_sustained(), "{system:?}: an overload shows as one");
        assert!(outcome.answered_mops < 2.4, "{system:?}: {}", outcome.answered_mops);
    }
}

#[test]
fn hand_off_bounds_the_throughput_of_sho() {
    // §6.1: 10 % below the 6.2 Mops of the others; §6.2: also for writes.
    for get_pct in [95, 50] {
        let workload = Minos { get_pct, ..Minos::default() };
        let one = outcome(System::Sho(1), workload, 7.0);
        assert!((one.answered_mops / 5.6 - 1.0).abs() < 0.03, "{}", one.answered_mops);
    }
}

#[test]
fn the_small_requests_tail_is_an_order_of_magnitude_lower_under_minos() {
    // §6.1, Fig. 3.
    let minos = p99_us(&outcome(MINOS, Minos::default(), 5.0));
    assert!(minos < 50.0, "{minos}");
    for system in [System::Hkh, System::HkhStealing, System::Sho(2)] {
        let other = p99_us(&outcome(system, Minos::default(), 5.0));
        assert!(other > 8.0 * minos, "{system:?}: {other} beside {minos}");
    }
}

#[test]
fn under_a_million_a_second_stealing_and_hand_off_match_minos() {
    // §6.1: "HKH+WS and SHO start out with similar 99th percentile latencies as Minos".
    let minos = p99_us(&outcome(MINOS, Minos::default(), 0.8));
    for system in [System::HkhStealing, System::Sho(1)] {
        let other = p99_us(&outcome(system, Minos::default(), 0.8));
        assert!((0.5..1.5).contains(&(other / minos)), "{system:?}: {other} beside {minos}");
    }
}

#[test]
fn large_requests_pay_at_most_twice_the_tail() {
    // §6.1, Fig. 4.
    for offered_mops in [2.0, 4.0, 5.5] {
        let large = |system| {
            let setup = Setup::steady(system, Minos::default(), offered_mops, 300_000);
            run(&setup).large.quantile(0.99) as f64
        };
        let factor = large(MINOS) / large(System::HkhStealing);
        assert!(factor < 2.0, "{offered_mops} Mops: {factor}");
    }
}

#[test]
fn cores_do_the_same_work_within_what_whole_cores_allow() {
    // §6.5, Fig. 9.
    let workload = Minos { large_requests_pct: 0.75, ..Minos::default() };
    let outcome = outcome(MINOS, workload, 1.7);
    let sum: u64 = outcome.core_packets.iter().sum();
    for packets in &outcome.core_packets {
        let share = *packets as f64 * CORES as f64 / sum as f64;
        assert!((0.6..1.5).contains(&share), "{:?}", outcome.core_packets);
    }
    let requests = &outcome.core_requests;
    assert!(requests[..4].iter().all(|small| *small > 20 * requests[4]), "{requests:?}");
    assert!(requests[4..].is_sorted_by(|more, fewer| more > fewer), "{requests:?}");
}

#[test]
fn large_cores_follow_a_changing_workload() {
    // §6.6, Fig. 10.
    let phase = |large_requests_pct| Minos { large_requests_pct, ..Minos::default() };
    let setup = Setup {
        phases: [0.125, 0.75, 0.125].map(phase).into(),
        epochs: 4,
        ..Setup::steady(MINOS, Minos::default(), 1.7, 480_000)
    };
    let windows = run(&setup).windows;
    let large: Vec<usize> = windows.iter().map(|window| window.large_cores).collect();
    // Each phase is seen one epoch late; the tenth that the old epoch weighs may keep one core
    // more.
    assert_eq!(large[..5], [1, 1, 1, 1, 1], "{large:?}");
    assert_eq!(large[5..9], [4, 4, 4, 4], "{large:?}");
    assert!(large[9] <= 2 && large[10] == 1, "{large:?}");
}

#[test]
fn one_seed_gives_one_result() {
    for system in SYSTEMS {
        let run = |seed| {
            let setup = Setup::steady(system, Minos::default(), 3.0, 30_000);
            let outcome = run(&Setup { seed, ..setup });
            (outcome.all.mean(), outcome.all.quantile(0.99), outcome.core_requests)
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
