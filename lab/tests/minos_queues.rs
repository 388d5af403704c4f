//! Tests of the queueing models of Minos Fig. 2 against closed forms, and of the figure's claims.
//!
//! Tolerances: at a million requests and these loads the means of several seeds spread by about
//! 1 % (M/M/1 and M/D/1) and 2 % (bimodal); the checks allow about three times that.

use lab::figure::{Fidelity, Options};
use lab::minos::queues::{Job, Jobs, early, late, steal};
use lab::minos::{FIGURES, PointOptions, PointResult, Strategy, point};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use sim::SimError;

const REQUESTS: usize = 1_000_000;

fn exponential(unit: f64) -> f64 {
    -(1.0 - unit).ln()
}

fn bimodal(unit: f64) -> f64 {
    if unit < 0.01 { 10.0 } else { 1.0 }
}

fn jobs(per_time: f64, service: fn(f64) -> f64) -> impl Iterator<Item = Job> {
    Jobs::new(SmallRng::seed_from_u64(7), per_time, service).take(REQUESTS)
}

/// Mean time in the system; every request must have been counted.
fn mean_of(run: impl FnOnce(&mut dyn FnMut(&Job, f64))) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    run(&mut |_, latency| {
        sum += latency;
        count += 1;
    });
    assert_eq!(count, REQUESTS);
    sum / f64::from(count as u32)
}

#[track_caller]
fn check(found: f64, want: f64, tolerance: f64) {
    assert!((found / want - 1.0).abs() < tolerance, "found {found}, want {want}");
}

#[test]
fn one_core_with_exponential_services_is_m_m_1() {
    for rho in [0.3, 0.7, 0.9] {
        let want = 1.0 / (1.0 - rho);
        check(mean_of(|out| early(1, jobs(rho, exponential), out)), want, 0.05);
        check(mean_of(|out| late(1, jobs(rho, exponential), out)), want, 0.05);
        check(mean_of(|out| steal(1, jobs(rho, exponential), out)), want, 0.05);
    }
}

#[test]
fn one_core_with_equal_services_is_m_d_1() {
    for rho in [0.3, 0.7, 0.9] {
        let want = 1.0 + rho / (2.0 * (1.0 - rho));
        check(mean_of(|out| early(1, jobs(rho, |_| 1.0), out)), want, 0.03);
    }
}

#[test]
fn cores_bound_early_are_m_g_1_each_by_pollaczek_and_khinchine() {
    let (first, second) = (0.99 + 0.01 * 10.0, 0.99 + 0.01 * 100.0);
    for (cores, rho) in [(1, 0.5), (8, 0.5), (8, 0.8)] {
        let arrivals = rho / first;
        let want = first + arrivals * second / (2.0 * (1.0 - rho));
        let per_time = arrivals * f64::from(cores);
        check(mean_of(|out| early(cores as usize, jobs(per_time, bimodal), out)), want, 0.05);
    }
}

/// Mean time in M/M/n with services of mean 1 (Erlang's C).
fn erlang_c_mean(cores: u32, rho: f64) -> f64 {
    let offered = rho * f64::from(cores);
    let (mut term, mut sum) = (1.0, 0.0);
    for busy in 0..cores {
        sum += term;
        term *= offered / f64::from(busy + 1);
    }
    let waiting = term / (1.0 - rho);
    1.0 + waiting / (sum + waiting) / (f64::from(cores) * (1.0 - rho))
}

#[test]
fn late_binding_is_m_m_n_by_erlang() {
    // Erlang's C for 2 cores at load 0.5 is 1/3.
    check(erlang_c_mean(2, 0.5), 4.0 / 3.0, 1e-12);
    for (cores, rho) in [(2, 0.5), (8, 0.8), (8, 0.95), (64, 0.9)] {
        let want = erlang_c_mean(cores, rho);
        let per_time = rho * f64::from(cores);
        check(mean_of(|out| late(cores as usize, jobs(per_time, exponential), out)), want, 0.07);
    }
}

#[test]
fn stealing_without_cost_has_the_mean_of_late_binding() {
    // No core idles while a request waits, and the order does not depend on the services.
    for (cores, rho) in [(2, 0.5), (8, 0.8)] {
        let want = erlang_c_mean(cores, rho);
        let per_time = rho * f64::from(cores);
        check(mean_of(|out| steal(cores as usize, jobs(per_time, exponential), out)), want, 0.05);
    }
}

fn point_of(strategy: Strategy, k: f64, rho: f64, large_share: f64) -> PointResult {
    let requests = 400_000;
    let options = PointOptions { strategy, k, rho, large_share, requests, ..Default::default() };
    let result = point(&options).expect("its parameters are in their ranges");
    assert_eq!(result.requests, requests);
    result
}

const LARGE: f64 = 0.00125;

#[test]
fn at_a_tenth_of_the_load_hash_suffers_by_one_to_two_orders_of_magnitude() {
    // Minos §2.2, for K of 100 and 1000. Both bounds are the paper's words, read widely.
    let small_only = point_of(Strategy::Hash, 1.0, 0.1, 0.0).p99;
    for k in [100.0, 1000.0] {
        let factor = point_of(Strategy::Hash, k, 0.1, LARGE).p99 / small_only;
        assert!((8.0..=500.0).contains(&factor), "K {k}: {factor}");
    }
}

#[test]
fn late_binding_and_stealing_are_resilient_at_low_load_and_degrade_at_high() {
    // Minos §2.2: "Stealing and late binding are more resilient to service time variability at low
    // load. As the load grows, however, they also suffer".
    for strategy in [Strategy::Late, Strategy::Steal] {
        let factor = |rho| {
            point_of(strategy, 1000.0, rho, LARGE).p99 / point_of(strategy, 1.0, rho, 0.0).p99
        };
        assert!(factor(0.1) < 1.5, "{strategy:?}: {}", factor(0.1));
        assert!(factor(0.9) > 10.0, "{strategy:?}: {}", factor(0.9));
    }
}

#[test]
fn size_aware_sharding_keeps_the_tail_of_small_requests_only() {
    for k in [10.0, 100.0, 1000.0] {
        let mixed = point_of(Strategy::SizeAware, k, 0.7, LARGE).p99;
        let small_only = point_of(Strategy::Hash, 1.0, 0.7, 0.0).p99;
        assert!(mixed < 1.5 * small_only, "K {k}: {mixed} beside {small_only}");
    }
}

#[test]
fn with_d_crew_small_requests_have_the_tail_of_late_binding_alone() {
    for k in [10.0, 100.0, 1000.0] {
        let mixed = point_of(Strategy::SizeAwareDCrew, k, 0.7, LARGE).p99;
        let small_only = point_of(Strategy::Late, 1.0, 0.7, 0.0).p99;
        assert!(mixed < 1.5 * small_only, "K {k}: {mixed} beside {small_only}");
    }
}

#[test]
fn the_controller_shares_the_cores_as_the_cost_says() {
    // ceil(8 x 0.99875 / (0.99875 + 0.00125 K)): 8 with the standby core, 8, and 4.
    for (k, want) in [(10.0, 8), (100.0, 8), (1000.0, 4)] {
        assert_eq!(point_of(Strategy::SizeAware, k, 0.1, LARGE).small_cores, want);
    }
}

#[test]
fn one_seed_gives_one_result() {
    for strategy in Strategy::ALL {
        let run = |seed| {
            let options = PointOptions { strategy, seed, requests: 50_000, ..Default::default() };
            PointResult { simulated_requests_per_second: 0.0, ..point(&options).unwrap() }
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let good = PointOptions::default();
    for bad in [
        PointOptions { cores: 0, ..good },
        PointOptions { k: 0.5, ..good },
        PointOptions { k: f64::NAN, ..good },
        PointOptions { rho: 0.0, ..good },
        PointOptions { large_share: 1.5, ..good },
        PointOptions { write_share: -0.1, ..good },
        PointOptions { requests: 0, ..good },
    ] {
        assert!(matches!(point(&bad), Err(SimError::BadParameter { .. })), "{bad:?}");
    }
    assert!("lottery".parse::<Strategy>().is_err());
}

#[test]
fn fig_2_says_the_same_on_any_number_of_threads() {
    let run = |threads| {
        let options = Options {
            requests: Some(2000),
            seed: 1,
            fidelity: Fidelity::Honest,
            threads,
            costs: None,
            objects: None,
        };
        (FIGURES[0].run)(&options).unwrap()
    };
    let (one, three) = (run(1), run(3));
    assert_eq!(one.table.rows, three.table.rows);
    assert_eq!((one.table.rows.len(), one.charts.len()), (19 * (5 * 3 + 3), 3));
}
